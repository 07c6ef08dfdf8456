"""The chunked cross-entropy against torch's own."""

import pytest
import torch
from torch.nn import functional

from rareword.schemas.vocabulary import PAD
from rareword.trainer import loss
from rareword.trainer.loss import cross_entropy


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("padded", [False, True])
def test_loss_and_gradients_equal_torch(
    monkeypatch: pytest.MonkeyPatch, smoothing: float, padded: bool
) -> None:
    """In chunks, with targets that are padding, and with a vocabulary padded to more rows."""
    monkeypatch.setattr(loss, "LOGITS", {"cpu": 1})
    monkeypatch.setattr(loss, "LEAST_ROWS", 64)  # several chunks, the last one short
    torch.manual_seed(1)
    targets_N = torch.randint(PAD + 1, 9, (150,))
    targets_N[::7] = PAD
    inputs = [torch.randn(shape).double().requires_grad_() for shape in ((150, 4), (9, 4), (9,))]
    features_NE, matrix_VE, bias_V = inputs
    logits_NV = features_NE @ matrix_VE.T + bias_V
    expected, plain_expected = (
        functional.cross_entropy(
            logits_NV, targets_N, reduction="sum", label_smoothing=share, ignore_index=PAD
        )
        for share in (smoothing, 0.0)
    )
    expected_gradients = torch.autograd.grad(3 * expected, inputs)
    if padded:
        matrix_VE = functional.pad(matrix_VE, (0, 0, 0, 7))
        bias_V = functional.pad(bias_V, (0, 7), value=-torch.inf)
    smoothed, plain = cross_entropy(features_NE, matrix_VE, bias_V, targets_N, 9, smoothing)
    assert smoothed.item() == pytest.approx(expected.item(), rel=1e-12)
    assert plain.item() == pytest.approx(plain_expected.item(), rel=1e-12)
    for found, wanted in zip(
        torch.autograd.grad(3 * smoothed, inputs), expected_gradients, strict=True
    ):
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)


def test_without_gradients_the_value_is_the_same() -> None:
    torch.manual_seed(1)
    inputs = torch.randn(5, 4), torch.randn(6, 4, requires_grad=True), torch.randn(6)
    targets_N = torch.randint(PAD + 1, 6, (5,))
    with torch.no_grad():
        quiet = cross_entropy(*inputs, targets_N, 6, 0.1)
    loud = cross_entropy(*inputs, targets_N, 6, 0.1)
    assert [x.item() for x in quiet] == [x.item() for x in loud]


def test_bf16_sums_in_float32() -> None:
    """The matrix's gradient is a sum over chunks: it must not be rounded after each."""
    torch.manual_seed(2)
    features_NE, matrix_VE = torch.randn(300, 8), torch.randn(50, 8)
    targets_N = torch.randint(PAD + 1, 50, (300,))
    gradients = []
    for dtype in (torch.float32, torch.bfloat16):
        matrix = matrix_VE.clone().requires_grad_()
        smoothed, _ = cross_entropy(
            features_NE.to(dtype), matrix.to(dtype), torch.zeros(50), targets_N, 50, 0.1
        )
        smoothed.backward()
        gradients.append(matrix.grad)
    exact, rough = gradients
    assert exact is not None
    assert rough is not None
    assert (exact - rough).norm() < 0.01 * exact.norm()
