"""The recurrences with their own backward passes against plain loops under autograd, in float64."""

import itertools
from typing import Literal

import pytest
import torch
from plain_scans import plain_gru_scan, plain_scan
from torch import Tensor

from rareword.trainer import scan
from rareword.trainer.gru import GruWeights, gru_scan

Form = Literal["cudnn", "groundhog"]
FORMS: tuple[Form, ...] = ("cudnn", "groundhog")


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def state_weights(form: Form, directions: tuple[int, ...], size: int) -> GruWeights:
    if form == "cudnn":
        return GruWeights(drawn(*directions, 3 * size, size), drawn(*directions, 1, size))
    return GruWeights(drawn(*directions, 2 * size, size), None, drawn(*directions, size, size))


def check_equal(
    found: tuple[Tensor, ...], wanted: tuple[Tensor, ...], inputs: list[Tensor]
) -> None:
    """Values and the gradients of a random function of them, to 1e-12 of the largest number."""
    factors = [torch.randn_like(value) for value in wanted]
    gradients = [
        torch.autograd.grad(
            sum((value * factor).sum() for value, factor in zip(values, factors, strict=True)),
            inputs,
            retain_graph=True,
        )
        for values in (found, wanted)
    ]
    for one, other in zip((*found, *gradients[0]), (*wanted, *gradients[1]), strict=True):
        assert torch.isfinite(one).all()
        assert (one - other).abs().max() <= 1e-12 * max(1.0, other.abs().max().item())


@pytest.mark.parametrize(("form", "directions"), list(itertools.product(FORMS, ((), (2,)))))
def test_a_gru_over_time(form: Form, directions: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    weights = state_weights(form, directions, 4)
    inputs, hidden = drawn(6, *directions, 3, 12), drawn(*directions, 3, 4)
    leaves = [inputs, hidden, *(tensor for tensor in weights if tensor is not None)]
    # On padding the keep gate is 1: the second sentence ends after four steps.
    padding = torch.zeros(inputs.shape, dtype=torch.bool)
    padding[4:, ..., 1, 4:8] = True
    held = inputs.masked_fill(padding, torch.inf)
    found, wanted = gru_scan(held, hidden, weights), plain_gru_scan(held, hidden, weights)
    assert torch.equal(found[5, ..., 1, :], found[3, ..., 1, :])
    check_equal((found,), (wanted,), leaves)


@pytest.mark.parametrize("form", FORMS)
def test_no_steps_leave_an_empty_sequence(form: Form) -> None:
    """What the upper layers of a decoder read of a target that is only its end."""
    weights = state_weights(form, (), 4)
    inputs = drawn(0, 3, 12)
    found = gru_scan(inputs, drawn(3, 4), weights)
    assert found.shape == (0, 3, 4)
    found.sum().backward()
    assert inputs.grad is not None


@pytest.mark.parametrize("form", FORMS)
def test_the_decoder_with_its_attention(form: Form) -> None:
    torch.manual_seed(2)
    steps, batch, source, size, annotation = 5, 3, 4, 6, 10
    weights = state_weights(form, (), size)
    inputs = (
        drawn(steps, batch, 3 * size),
        drawn(batch, size),
        drawn(batch, source, size),
        drawn(batch, source, annotation),
    )
    matrices = (drawn(size, size), drawn(3 * size, annotation), drawn(size))
    bias_BS = torch.zeros(batch, source, dtype=torch.float64)
    bias_BS[0, 2:] = bias_BS[1, 1:] = -torch.inf
    leaves = [*inputs, *(tensor for tensor in weights if tensor is not None), *matrices]
    found = scan.scan(*inputs, bias_BS, weights, *matrices)
    wanted = plain_scan(*inputs, bias_BS, weights, *matrices)
    check_equal(found, wanted, leaves)
