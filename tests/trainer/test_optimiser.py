"""Clipping and updates against torch's own functions on ordinary gradients."""

import copy
import math

import pytest
import torch
from torch import nn

from rareword.trainer.config import TrainConfig
from rareword.trainer.distributed import Group
from rareword.trainer.optimiser import Optimiser

ALONE = Group(torch.device("cpu"))


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def backward(net: nn.Module, seed: int, scale: float = 1.0) -> None:
    torch.manual_seed(seed)
    (scale * net(torch.randn(5, 3)).square().sum()).backward()


@pytest.mark.parametrize(("kind", "clip"), [("adam", 1.0), ("adadelta", 1.0), ("adam", 0.0)])
def test_steps_equal_torch(kind: str, clip: float) -> None:
    net, other = model(), model()
    ours = Optimiser(net, TrainConfig(optimiser=kind, clip=clip, learning_rate=0.5))
    theirs: torch.optim.Optimizer = (
        torch.optim.Adam(other.parameters(), lr=0.5)
        if kind == "adam"
        else torch.optim.Adadelta(other.parameters(), lr=0.5, rho=0.95, eps=1e-6)
    )
    for seed, scale in enumerate([1.0, 0.001, 10.0]):  # some above the clipping norm, some below
        ours.zero()
        backward(net, seed, scale)
        norm, _ = ours.step(0.5, ALONE)
        theirs.zero_grad()
        backward(other, seed, scale)
        expected = nn.utils.clip_grad_norm_(other.parameters(), clip or float("inf"))
        theirs.step()
        assert norm == pytest.approx(expected.item(), rel=1e-5)
    for found, wanted in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["adam", "adadelta"])
def test_a_saved_state_goes_on_exactly(kind: str) -> None:
    config = TrainConfig(optimiser=kind)
    net = model()
    first = Optimiser(net, config)
    for seed in range(3):
        first.zero()
        backward(net, seed)
        first.step(1e-3, ALONE)
    saved = {name: tensor.clone() for name, tensor in first.tensors().items()}
    other = copy.deepcopy(net)
    second = Optimiser(other, config)
    second.load(saved)
    for net_, optimiser in ((net, first), (other, second)):
        optimiser.zero()
        backward(net_, 9)
        optimiser.step(1e-3, ALONE)
    for found, wanted in zip(other.parameters(), net.parameters(), strict=True):
        assert torch.equal(found, wanted)


def test_an_infinite_gradient_changes_nothing() -> None:
    net = model()
    before = copy.deepcopy(net)
    optimiser = Optimiser(net, TrainConfig())
    optimiser.zero()
    backward(net, 1)
    next(net.parameters()).grad[0] = float("nan")
    norm, _ = optimiser.step(1e-3, ALONE)
    assert math.isnan(norm)
    for found, wanted in zip(net.parameters(), before.parameters(), strict=True):
        assert torch.equal(found, wanted)


def test_figures_travel_with_the_gradients() -> None:
    optimiser = Optimiser(model(), TrainConfig())
    optimiser.zero()
    optimiser.figures.copy_(torch.tensor([2.0, 3.0]))
    assert optimiser.step(1e-3, ALONE) == (0.0, [2.0, 3.0])


def test_gradients_stay_in_the_one_buffer() -> None:
    """And parameters in rows of their own: no step copies what lies elsewhere first."""
    net = model()
    optimiser = Optimiser(net, TrainConfig(freeze=()))
    saved = None
    for seed in range(3):
        optimiser.zero()
        backward(net, seed)
        optimiser.step(1e-3, ALONE)
        saved = {name: tensor.clone() for name, tensor in optimiser.tensors().items()}
        optimiser.load(saved)
    places = [parameter.grad.data_ptr() for parameter in net.parameters()]
    sizes = [parameter.numel() * 4 for parameter in net.parameters()]
    starts = [places[0] + sum(sizes[:number]) for number in range(len(sizes))]
    assert places == starts
    assert all(parameter.is_contiguous() for parameter in net.parameters())
