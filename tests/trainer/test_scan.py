"""The scan's backward pass against finite differences and, in bf16, against float32."""

import pytest
import torch
from torch import Tensor

from rareword.trainer.attention import mask_bias
from rareword.trainer.scan import ScanWeights, scan

B, S, T, H, Z = 2, 3, 4, 3, 5
MASK_BS = torch.tensor([[True, True, True], [True, False, False]])


def tensors(dtype: torch.dtype) -> list[Tensor]:
    torch.manual_seed(3)
    shapes = [(T, B, 3 * H), (B, H), (B, S, H), (B, S, Z), (4 * H, H), (4 * H,), (3 * H, Z), (H,)]
    return [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]


def run(*inputs: Tensor) -> tuple[Tensor, Tensor]:
    exact = torch.promote_types(inputs[0].dtype, torch.float32)
    return scan(*inputs[:4], mask_bias(MASK_BS, exact), ScanWeights(*inputs[4:]))


def test_gradients_equal_finite_differences() -> None:
    assert torch.autograd.gradcheck(run, tensors(torch.float64))


def test_bf16_gradients_point_the_same_way() -> None:
    gradients = []
    for dtype in (torch.float32, torch.bfloat16):
        inputs = tensors(dtype)
        sum(output.float().square().sum() for output in run(*inputs)).backward()
        gradients.append([tensor.grad.float().flatten() for tensor in inputs])
    for exact, rough in zip(*gradients, strict=True):
        assert torch.nn.functional.cosine_similarity(exact, rough, dim=0) > 0.99


@pytest.mark.parametrize("unused", [0, 1])
def test_one_output_alone_has_gradients(unused: int) -> None:
    inputs = tensors(torch.float64)
    expected = torch.autograd.grad(
        sum(x.sum() * (i != unused) for i, x in enumerate(run(*inputs))), inputs
    )
    found = torch.autograd.grad(run(*inputs)[1 - unused].sum(), inputs)
    for left, right in zip(found, expected, strict=True):
        torch.testing.assert_close(left, right)
