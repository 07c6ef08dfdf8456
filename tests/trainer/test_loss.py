"""The chunked cross-entropy against torch's own."""

import pytest
import torch
from torch.nn import functional

from rareword.trainer import loss
from rareword.trainer.loss import cross_entropy


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_and_gradients_equal_torch(monkeypatch: pytest.MonkeyPatch, smoothing: float) -> None:
    monkeypatch.setattr(loss, "ROWS", 3)  # several chunks, the last one short
    torch.manual_seed(1)
    targets_N = torch.randint(0, 9, (7,))
    inputs = [torch.randn(shape).double().requires_grad_() for shape in ((7, 4), (9, 4), (9,))]
    features_NE, weight_VE, bias_V = inputs
    logits_NV = features_NE @ weight_VE.T + bias_V
    expected = functional.cross_entropy(
        logits_NV, targets_N, reduction="sum", label_smoothing=smoothing
    )
    plain_expected = functional.cross_entropy(logits_NV, targets_N, reduction="sum")
    expected_gradients = torch.autograd.grad(3 * expected, inputs)
    smoothed, plain = cross_entropy(features_NE, weight_VE, bias_V, targets_N, smoothing)
    assert smoothed.item() == pytest.approx(expected.item(), rel=1e-12)
    assert plain.item() == pytest.approx(plain_expected.item(), rel=1e-12)
    for found, wanted in zip(
        torch.autograd.grad(3 * smoothed, inputs), expected_gradients, strict=True
    ):
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)


def test_without_gradients_the_value_is_the_same() -> None:
    torch.manual_seed(1)
    inputs = torch.randn(5, 4), torch.randn(6, 4, requires_grad=True), torch.randn(6)
    targets_N = torch.randint(0, 6, (5,))
    with torch.no_grad():
        quiet = cross_entropy(*inputs, targets_N, 0.1)
    assert [x.item() for x in quiet] == [x.item() for x in cross_entropy(*inputs, targets_N, 0.1)]
