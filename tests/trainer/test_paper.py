"""The paper's model and its first step against slow NumPy, in the terms of the paper's own code.

GroundHog lets the update gate u weight the new state, the product keeps z = 1 - u: so the rows of z
are negated below. Everything else has the same values in both.
"""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from rareword.schemas.vocabulary import EOS, PAD
from rareword.trainer.config import ModelConfig, TrainConfig, model_config
from rareword.trainer.data import Batch
from rareword.trainer.distributed import Group
from rareword.trainer.loss import batch_loss
from rareword.trainer.model import EncoderDecoder
from rareword.trainer.optimiser import Optimiser
from rareword.trainer.precision import FLOAT32, Precision

Array = NDArray[np.float64]
SOURCES = [[3, 4, 5, 6, EOS], [5, 3, EOS], [EOS]]
TARGETS = [[4, 4, EOS], [3, 5, 6, 3, EOS], [6, EOS]]


def tiny(vocabulary: int = 7) -> ModelConfig:
    config = TrainConfig.of("paper", embedding=5, hidden=6, encoder_hidden=4)
    return model_config(config, vocabulary, vocabulary, joint=True)


def drawn_model() -> EncoderDecoder:
    """A tiny model of the preset whose values are large enough to matter, in float64."""
    torch.manual_seed(3)
    model = EncoderDecoder(tiny()).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.7)
    return model


def padded(sentences: list[list[int]]) -> torch.Tensor:
    width = max(map(len, sentences))
    return torch.tensor([s + [PAD] * (width - len(s)) for s in sentences])


def batch(sources: list[list[int]], targets: list[list[int]]) -> Batch:
    source_BS = padded(sources)
    return Batch(source_BS, source_BS != PAD, padded(targets))


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


class GroundHog:
    """The summed loss of sentence pairs, one pair, word and product at a time."""

    def __init__(self, values: dict[str, Array]) -> None:
        p = values
        self.p = p
        self.encoder = [
            self.gru(
                p["encoder.0.input"][d], p["encoder.0.input_bias"][d], p["encoder.0.hidden"][d]
            )
            for d in (0, 1)
        ]
        self.decoder = self.gru(
            p["decoder.0.input"][0],
            p["decoder.0.input_bias"][0],
            p["decoder.0.hidden"][0],
            p["context.weight"],
        )

    @staticmethod
    def gru(x: Array, bias: Array, h: Array, c: Array | None = None) -> dict[str, Array]:
        """W (input), G (update) and R (reset), each for the input x, the state h, the context c."""
        found = {"b": bias}
        for name, rows in (("x", x), ("h", h), ("c", c)):
            if rows is not None:
                found["R" + name], keep, found["W" + name] = np.split(rows, 3)
                found["G" + name] = -keep
        return found

    @staticmethod
    def update(m: dict[str, Array], h: Array, x: Array, c: Array | None = None) -> Array:
        parts = {k: m[k + "x"] @ x + (0 if c is None else m[k + "c"] @ c) for k in "WGR"}
        r = sigmoid(parts["R"] + m["Rh"] @ h)
        u = sigmoid(parts["G"] + m["Gh"] @ h)
        new = np.tanh(parts["W"] + m["b"] + m["Wh"] @ (r * h))
        return u * new + (1 - u) * h

    def annotations(self, source: list[int]) -> Array:
        words = self.p["source_embedding.weight"][source] + self.p["source_bias"]
        runs = []
        for matrices, order in zip(self.encoder, (1, -1), strict=True):
            h, run = np.zeros(len(matrices["b"])), []
            for x in words[::order]:
                h = self.update(matrices, h, x)
                run.append(h)
            runs.append(run[::order])
        return np.concatenate([np.array(run) for run in runs], 1)

    def loss(self, source: list[int], target: list[int]) -> float:
        p, annotations = self.p, self.annotations(source)
        size = annotations.shape[1] // 2
        h = np.tanh(p["initial.weight"] @ annotations[0, -size:] + p["initial.bias"])
        hidden_size, embedding = len(h), p["target_embedding.weight"].shape[1]
        Uo, Vo, Co = np.split(p["readout.weight"], [hidden_size, hidden_size + embedding], 1)
        previous, total = np.zeros(embedding), 0.0  # no start symbol
        for word in target:
            # look
            energies = np.array(
                [
                    p["energy.weight"][0] @ np.tanh(p["key.weight"] @ a + p["query.weight"] @ h)
                    for a in annotations
                ]
            )
            alpha = np.exp(energies) / np.exp(energies).sum()
            c = alpha @ annotations
            # generate
            readout = Uo @ h + p["readout.bias"] + Vo @ previous + Co @ c
            maxout = readout.reshape(-1, 2).max(1)
            logits = p["output.weight"] @ (p["low_rank.weight"] @ maxout) + p["output.bias"]
            total -= logits[word] - np.log(np.exp(logits).sum())
            # update
            previous = p["target_embedding.weight"][word] + p["target_bias"]
            h = self.update(self.decoder, h, previous, c)
        return float(total)


def arrays(model: EncoderDecoder) -> dict[str, Array]:
    return {name: p.detach().double().numpy().copy() for name, p in model.named_parameters()}


def total_loss(values: dict[str, Array]) -> float:
    reference = GroundHog(values)
    return sum(reference.loss(*pair) for pair in zip(SOURCES, TARGETS, strict=True))


def test_the_loss_is_that_of_the_equations() -> None:
    model = drawn_model()
    smoothed, plain = batch_loss(model, batch(SOURCES, TARGETS), FLOAT32)
    assert plain.item() == pytest.approx(total_loss(arrays(model)), rel=1e-12)
    assert smoothed.item() == plain.item()


def test_the_gradient_is_that_of_finite_differences() -> None:
    """Every parameter, at up to twenty places."""
    model = drawn_model()
    batch_loss(model, batch(SOURCES, TARGETS), FLOAT32)[0].backward()
    values, generator = arrays(model), np.random.default_rng(1)
    step = 1e-5
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        gradient, flat = parameter.grad.numpy().reshape(-1), values[name].reshape(-1)
        for place in generator.permutation(len(flat))[:20]:
            kept = flat[place]
            flat[place] = kept + step
            above = total_loss(values)
            flat[place] = kept - step
            below = total_loss(values)
            flat[place] = kept
            numeric = (above - below) / (2 * step)
            assert gradient[place] == pytest.approx(numeric, rel=1e-6, abs=1e-7), (name, place)


@pytest.mark.parametrize("clip", [1.0, 5.0, 1e6])
def test_a_step_of_adadelta_after_clipping(clip: float) -> None:
    """The summed loss, its global norm, rho 0.95 and eps 1e-6: two steps, in float64."""
    model = drawn_model()
    config = TrainConfig.of("paper", clip=clip)
    data = batch(SOURCES, TARGETS)
    values = arrays(model)
    squares = {name: np.zeros_like(value) for name, value in values.items()}
    updates = {name: np.zeros_like(value) for name, value in values.items()}
    optimiser = Optimiser(model, config)
    for _ in range(2):
        optimiser.zero()
        batch_loss(model, data, FLOAT32)[0].backward()
        gradients = {
            name: p.grad.numpy().copy()
            for name, p in model.named_parameters()
            if p.grad is not None
        }
        norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
        found, _ = optimiser.step(config.initial_rate, Group(torch.device("cpu")))
        assert found == pytest.approx(norm, rel=1e-12)
        for name, gradient in gradients.items():
            g = gradient * min(1, clip / norm)
            squares[name] = 0.95 * squares[name] + 0.05 * g**2
            delta = np.sqrt(updates[name] + 1e-6) / np.sqrt(squares[name] + 1e-6) * g
            updates[name] = 0.95 * updates[name] + 0.05 * delta**2
            values[name] = values[name] - delta
    for name, value in arrays(model).items():
        np.testing.assert_allclose(value, values[name], rtol=1e-9, atol=1e-12, err_msg=name)


def test_the_first_values_are_the_papers() -> None:
    torch.manual_seed(1)
    config = TrainConfig.of("paper", embedding=200, hidden=100, encoder_hidden=80)
    values = arrays(EncoderDecoder(model_config(config, 50, 60, joint=False)))
    for name in ("encoder.0.hidden", "decoder.0.hidden"):
        for direction in values.pop(name):
            for gate in np.split(direction, 3):
                np.testing.assert_allclose(gate @ gate.T, np.eye(len(gate)), atol=1e-5)
    assert (values.pop("energy.weight") == 0).all()
    for name in ("key.weight", "query.weight"):
        assert values.pop(name).std() == pytest.approx(0.001, rel=0.05)
    for name, value in values.items():
        if "bias" in name:
            assert (value == 0).all(), name
        else:
            assert value.std() == pytest.approx(0.01, rel=0.05), name
            assert abs(value.mean()) < 0.001, name


def test_the_number_of_parameters_is_the_papers() -> None:
    """28.5 million beside the vocabulary, 1,860 and a bias for each of its entries."""
    config = TrainConfig.of("paper")
    sizes = []
    for vocabulary in (10, 11):
        with torch.device("meta"):
            model = EncoderDecoder(model_config(config, vocabulary, vocabulary, joint=True))
        sizes.append(sum(parameter.numel() for parameter in model.parameters()))
    assert sizes[1] - sizes[0] == 3 * 620 + 1
    assert sizes[0] - 10 * 1861 == pytest.approx(28.5e6, rel=0.01)


def test_the_norm_of_a_large_sum_does_not_overflow() -> None:
    """The summed loss of many tokens, in bf16: the norm is float32's, far above 1 and finite."""
    torch.manual_seed(1)
    model = EncoderDecoder(
        model_config(
            TrainConfig.of("paper", embedding=32, hidden=64, encoder_hidden=32), 50, 50, True
        )
    )
    generator = np.random.default_rng(2)
    sides = [[[*generator.integers(3, 50, 40).tolist(), EOS] for _ in range(300)] for _ in range(2)]
    norms = []
    for precision in (FLOAT32, Precision("bf16", torch.bfloat16, 8)):
        optimiser = Optimiser(model, TrainConfig.of("paper"))
        optimiser.zero()
        (batch_loss(model, batch(*sides), precision)[0] * 1e4).backward()
        norm, _ = optimiser.step(0.0, Group(torch.device("cpu")))
        norms.append(norm)
    assert norms[0] > float(np.finfo(np.float16).max)
    assert norms[1] == pytest.approx(norms[0], rel=0.02)
