"""Frozen parameters, against the update rules written out in NumPy."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from rareword.schemas.errors import RarewordError
from rareword.trainer.config import FREEZABLE, ModelConfig, TrainConfig
from rareword.trainer.distributed import Group
from rareword.trainer.model import EncoderDecoder
from rareword.trainer.optimiser import Optimiser, frozen_names

ALONE = Group(torch.device("cpu"))
Arrays = dict[str, NDArray[Any]]
RATE, CLIP = 0.1, 1.0


def model(tied: Any = "none", **values: Any) -> EncoderDecoder:
    torch.manual_seed(1)
    return EncoderDecoder(ModelConfig(6, 6, 4, 6, 3, tied=tied, **values))


def arrays(net: EncoderDecoder) -> Arrays:
    return {name: p.detach().numpy().copy() for name, p in net.named_parameters()}


def oracle(kind: str, start: Arrays, gradients: list[Arrays], frozen: set[str]) -> Arrays:
    """Clips by the norm of all gradients, keeps both moments of all parameters, and multiplies the
    update of frozen ones by 0, in float64."""
    values = {name: value.astype(np.float64) for name, value in start.items()}
    one = {name: np.zeros_like(value) for name, value in values.items()}
    two = {name: np.zeros_like(value) for name, value in values.items()}
    for step, gradient in enumerate(gradients, 1):
        norm = np.sqrt(sum((g.astype(np.float64) ** 2).sum() for g in gradient.values()))
        for name in values:
            g = gradient[name].astype(np.float64) * min(1.0, CLIP / norm)
            if kind == "adam":
                one[name] = 0.9 * one[name] + 0.1 * g
                two[name] = 0.999 * two[name] + 0.001 * g**2
                m, v = one[name] / (1 - 0.9**step), two[name] / (1 - 0.999**step)
                update = m / (np.sqrt(v) + 1e-8)
            else:
                one[name] = 0.95 * one[name] + 0.05 * g**2
                update = np.sqrt(two[name] + 1e-6) / np.sqrt(one[name] + 1e-6) * g
                two[name] = 0.95 * two[name] + 0.05 * update**2
            values[name] -= RATE * (0 if name in frozen else 1) * update
    return values


def trained(kind: str, freeze: tuple[str, ...], steps: int, gradients: list[Arrays]) -> Any:
    net = model()
    optimiser = Optimiser(
        net, TrainConfig(optimiser=kind, learning_rate=RATE, clip=CLIP, freeze=freeze)
    )
    for gradient in gradients[:steps]:
        optimiser.zero()
        for name, parameter in net.named_parameters():
            assert parameter.grad is not None
            parameter.grad.copy_(torch.from_numpy(gradient[name]))
        optimiser.step(RATE, ALONE)
    return net, optimiser


@pytest.mark.parametrize("kind", ["adam", "adadelta"])
@pytest.mark.parametrize(
    "freeze", [(), ("source-embedding",), ("source-embedding", "target-embedding", "output")]
)
def test_steps_equal_the_rules_written_out(kind: str, freeze: tuple[str, ...]) -> None:
    generator = np.random.default_rng(3)
    start = arrays(model())
    gradients = [
        {n: generator.normal(0, scale, v.shape).astype(np.float32) for n, v in start.items()}
        for scale in (1.0, 0.001, 5.0)  # above the clipping norm, below, above
    ]
    net, optimiser = trained(kind, freeze, 3, gradients)
    frozen = {name for group in freeze for name in start if name.startswith(FREEZABLE[group])}
    found, wanted = arrays(net), oracle(kind, start, gradients, frozen)
    for name, value in found.items():
        np.testing.assert_allclose(value, wanted[name], rtol=1e-4, atol=1e-6, err_msg=name)
        if name in frozen:
            assert value.tobytes() == start[name].tobytes()
    assert set(optimiser.frozen) == frozen

    # The first step of the others, and all moments ever, are bit for bit those without freezing.
    free, frozen_one = (trained(kind, which, 1, gradients)[0] for which in ((), freeze))
    for name, value in arrays(free).items():
        if name not in frozen:
            assert value.tobytes() == arrays(frozen_one)[name].tobytes(), name
    moments = trained(kind, (), 3, gradients)[1].tensors()
    for name, tensor in optimiser.tensors().items():
        assert torch.equal(tensor, moments[name]), name


def test_a_saved_state_goes_on_with_frozen_parameters() -> None:
    """The frozen ones are numbered last, whatever their place in the model."""
    generator = np.random.default_rng(4)
    gradients = [
        {n: generator.normal(size=v.shape).astype(np.float32) for n, v in arrays(model()).items()}
        for _ in range(2)
    ]
    config = TrainConfig(freeze=("source-embedding",), learning_rate=RATE, clip=CLIP)
    net, first = trained("adam", config.freeze, 1, gradients)
    other = model()
    other.load_state_dict(net.state_dict())
    second = Optimiser(other, config)
    second.load({name: tensor.clone() for name, tensor in first.tensors().items()})
    for made, optimiser in ((net, first), (other, second)):
        optimiser.zero()
        for name, parameter in made.named_parameters():
            assert parameter.grad is not None
            parameter.grad.copy_(torch.from_numpy(gradients[1][name]))
        optimiser.step(RATE, ALONE)
    for name, value in arrays(net).items():
        assert value.tobytes() == arrays(other)[name].tobytes(), name


def test_all_names_of_a_tied_matrix_are_frozen_together() -> None:
    every = ["output.bias", "output.weight", "target_embedding.weight"]
    assert frozen_names(model("target"), ["output"]) == every
    assert frozen_names(model("target"), ["target-embedding"]) == every[1:]
    assert frozen_names(model("all"), ["source-embedding"]) == [
        *every[1:2],
        "source_embedding.weight",
        every[2],
    ]


def test_each_group_is_in_the_model_and_leaves_the_vectors_beside_it() -> None:
    net = model(embedding_bias=True)
    for group in FREEZABLE:
        assert frozen_names(net, [group])
    frozen = frozen_names(net, list(FREEZABLE))
    assert frozen == [
        "output.bias",
        "output.weight",
        "source_embedding.weight",
        "target_embedding.weight",
    ]


def test_a_group_that_the_model_lacks_is_a_sentence() -> None:
    with pytest.raises(RarewordError, match="--freeze: the model has no parameter of output"):
        frozen_names(torch.nn.Linear(2, 2), ["output"])
