"""The model against a slow NumPy version of its equations, and its two ways against each other."""

from typing import Any

import numpy as np
import pytest
import torch
from plain_scans import plain_gru_scan, plain_scan
from torch.nn import functional

from rareword.schemas.vocabulary import EOS, PAD
from rareword.trainer import model as module
from rareword.trainer.config import ModelConfig
from rareword.trainer.data import Batch
from rareword.trainer.loss import batch_loss
from rareword.trainer.model import EncoderDecoder, Network
from rareword.trainer.precision import FLOAT32, Precision

SOURCES = [[3, 4, 5, 6, EOS], [5, 3, EOS], [EOS]]
TARGETS = [[4, 4, EOS], [3, 5, 6, 3, EOS], [6, EOS]]


def make_model(**values: Any) -> EncoderDecoder:
    torch.manual_seed(5)
    sizes = {"embedding": 5, "hidden": 8, "encoder_hidden": 3}
    model = EncoderDecoder(ModelConfig(7, 7, **{**sizes, **values})).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape))
    return model.eval()


def padded(sentences: list[list[int]]) -> torch.Tensor:
    width = max(map(len, sentences))
    return torch.tensor([s + [PAD] * (width - len(s)) for s in sentences])


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


class Reference:
    """One sentence pair, one matrix product at a time, in float64: the cuDNN form."""

    def __init__(self, model: EncoderDecoder) -> None:
        self.p = {name: p.detach().numpy() for name, p in model.named_parameters()}
        self.output = model.output.weight.detach().numpy()

    def gru(self, x: np.ndarray, h: np.ndarray, U: np.ndarray, b: np.ndarray) -> np.ndarray:
        """x: the input's part of the three gates r, z, n."""
        (xr, xz, xn), (ur, uz, un) = np.split(x, 3), np.split(U @ h, 3)
        r, z = sigmoid(xr + ur), sigmoid(xz + uz)
        n = np.tanh(xn + r * (un + b))
        return (1 - z) * n + z * h

    def layer(self, words: np.ndarray, number: int) -> np.ndarray:
        states = []
        for direction, order in ((0, 1), (1, -1)):
            W, bi, U, bh = (
                self.p[f"encoder.{number}.{kind}"][direction]
                for kind in ("input", "input_bias", "hidden", "hidden_bias")
            )
            h, run = np.zeros(U.shape[1]), []
            for word in words[::order]:
                h = self.gru(W @ word + bi, h, U, bh[0])
                run.append(h)
            states.append(run[::order])
        return np.array([np.concatenate(both) for both in zip(*states, strict=True)])

    def encode(self, source: list[int]) -> np.ndarray:
        values = self.p["source_embedding.weight"][source]
        for number in range(sum(name.endswith(".input") for name in self.p if "encoder" in name)):
            values = self.layer(values, number)
        return values

    def log_probabilities(self, source: list[int], target: list[int]) -> list[np.ndarray]:
        p, annotations = self.p, self.encode(source)
        backward_of_first = annotations[0, annotations.shape[1] // 2 :]
        layers = sum(name.endswith(".input") for name in p if "decoder" in name)
        start = np.tanh(p["initial.weight"] @ backward_of_first + p["initial.bias"])
        states = list(start.reshape(layers, -1))
        previous, found = np.zeros(p["target_embedding.weight"].shape[1]), []
        for word in target:
            # look
            energy = np.array(
                [
                    p["energy.weight"][0]
                    @ np.tanh(p["key.weight"] @ a + p["query.weight"] @ states[0])
                    for a in annotations
                ]
            )
            alpha = np.exp(energy) / np.exp(energy).sum()
            c = alpha @ annotations
            # generate
            t = p["readout.weight"] @ np.concatenate([states[-1], previous, c]) + p["readout.bias"]
            maxout = np.maximum(t[0::2], t[1::2])
            logits = self.output @ (p["low_rank.weight"] @ maxout) + p["output.bias"]
            found.append(logits - np.log(np.exp(logits).sum()))
            # update
            below = previous = p["target_embedding.weight"][word]
            for number in range(layers):
                W, bi, U, bh = (
                    p[f"decoder.{number}.{kind}"][0]
                    for kind in ("input", "input_bias", "hidden", "hidden_bias")
                )
                x = W @ below + bi + (p["context.weight"] @ c if number == 0 else 0)
                below = states[number] = self.gru(x, states[number], U, bh[0])
        return found


VARIANTS: list[dict[str, Any]] = [
    {},
    {"encoder_layers": 3, "decoder_layers": 2},
    {"gru": "groundhog", "encoder_layers": 2, "decoder_layers": 3},
    {"embedding_bias": True, "layer_norm": True, "decoder_layers": 2},
    {"tied": "all"},
    {"tied": "target", "gru": "groundhog"},
]
"""Every switch of the model at least once."""

ids = str


def stepped(network: Network, batch: Batch) -> torch.Tensor:
    """log_probs_BTV of `step` along the true pieces."""
    attended, state = network.read(batch.source_BS, batch.mask_BS)
    target_BT, previous, found = batch.target_BT, None, []
    for t in range(target_BT.shape[1]):
        features, state, weights_BS = network.step(state, previous, attended)
        log_probs_BV = network.log_probs(features)
        np.testing.assert_allclose(weights_BS.sum(1).numpy(), 1, rtol=1e-12)
        assert (weights_BS[~batch.mask_BS] == 0).all()
        previous = target_BT[:, t]
        found.append(log_probs_BV)
    return torch.stack(found, 1)


def chosen_loss(log_probs_BTV: torch.Tensor, target_BT: torch.Tensor) -> float:
    chosen_BT = log_probs_BTV.gather(2, target_BT[:, :, None])[:, :, 0]
    return -chosen_BT[target_BT != PAD].sum().item()


def batch_of(sources: list[list[int]], targets: list[list[int]]) -> Batch:
    source_BS = padded(sources)
    return Batch(source_BS, source_BS != PAD, padded(targets))


@pytest.mark.parametrize("layers", [1, 2])
@torch.no_grad()
def test_steps_follow_the_equations(layers: int) -> None:
    model = make_model(encoder_layers=layers, decoder_layers=layers)
    reference, batch = Reference(model), batch_of(SOURCES, TARGETS)
    network = model.network()
    found = stepped(network, batch)
    for b, pair in enumerate(zip(SOURCES, TARGETS, strict=True)):
        for t, row in enumerate(reference.log_probabilities(*pair)):
            np.testing.assert_allclose(found[b, t].numpy(), row, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("table", [0, module.TABLE])
@pytest.mark.parametrize("values", VARIANTS, ids=ids)
@torch.no_grad()
def test_teacher_forced_loss_is_the_sum_over_steps(
    values: dict[str, Any], table: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not what a piece adds to the next step is looked up in a table."""
    monkeypatch.setattr(module, "TABLE", table)
    model, batch = make_model(**values), batch_of(SOURCES, TARGETS)
    network = model.network()
    assert (network._table is None) == (not table)
    total = chosen_loss(stepped(network, batch), batch.target_BT)
    assert batch_loss(model, batch, FLOAT32)[1].item() == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("values", VARIANTS, ids=ids)
def test_the_model_has_the_gradients_of_plain_loops(
    values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, batch = make_model(**values), batch_of(SOURCES, TARGETS)
    parameters, gradients = list(model.parameters()), []
    for plain in (False, True):
        if plain:
            monkeypatch.setattr(module, "gru_scan", plain_gru_scan)
            monkeypatch.setattr(module, "scan", plain_scan)
        loss, _ = batch_loss(model, batch, FLOAT32)
        gradients.append(torch.autograd.grad(loss, parameters))
    for name, one, other in zip(dict(model.named_parameters()), *gradients, strict=True):
        assert (one - other).abs().max() <= 1e-12 * max(1.0, other.abs().max().item()), name


@pytest.mark.parametrize("values", VARIANTS, ids=ids)
def test_padded_sizes_change_nothing(values: dict[str, Any]) -> None:
    """Embedding 5, maxout layer 4, vocabulary 7 become 8: loss, gradients and steps stay."""
    model, batch = make_model(**values), batch_of(SOURCES, TARGETS)
    parameters = list(model.parameters())
    results = []
    for align in (1, 8):
        loss, _ = batch_loss(model, batch, Precision("float32", None, align), 0.1)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            network = model.network(align=align)
            results.append((loss, *gradients, stepped(network, batch)))
    assert network.output_VE.shape == (8, 8)
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("values", VARIANTS, ids=ids)
@torch.no_grad()
def test_a_sentence_does_not_depend_on_its_batch(values: dict[str, Any]) -> None:
    """Its loss alone and among 80 others, which pad both of its sides."""
    model, generator = make_model(**values), np.random.default_rng(1)

    def sentence() -> list[int]:
        return [*generator.integers(3, 7, generator.integers(0, 12)).tolist(), EOS]

    sources, targets = [sentence() for _ in range(80)], [sentence() for _ in range(80)]
    network, batch = model.network(), batch_of(sources, targets)
    together = stepped(network, batch)
    total = 0.0
    for b, (source, target) in enumerate(zip(sources, targets, strict=True)):
        alone = batch_loss(model, batch_of([source], [target]), FLOAT32)[1].item()
        found = chosen_loss(together[b : b + 1, : len(target)], torch.tensor([target]))
        assert alone == pytest.approx(found, rel=1e-10)
        total += alone
    assert batch_loss(model, batch, FLOAT32)[1].item() == pytest.approx(total, rel=1e-12)


def test_tied_embeddings_are_one_matrix() -> None:
    assert (
        len(dict(make_model(tied="none").named_parameters()))
        == len(dict(make_model(tied="all").named_parameters())) + 2
    )
    model = make_model(tied="all")
    assert model.source_embedding.weight is model.output.weight
    assert model.target_embedding.weight is model.output.weight
    model = make_model(tied="target")
    assert model.target_embedding.weight is model.output.weight
    assert model.source_embedding.weight is not model.output.weight


@pytest.mark.parametrize("values", [{}, {"encoder_layers": 2, "decoder_layers": 2}], ids=ids)
def test_dropout_works_in_training_only(values: dict[str, Any]) -> None:
    model, batch = make_model(dropout=0.5, **values), batch_of(SOURCES, TARGETS)

    def loss() -> float:
        return batch_loss(model, batch, FLOAT32)[0].item()

    assert loss() == loss()
    model.train()
    assert loss() != loss()


@pytest.mark.parametrize("gru", ["cudnn", "groundhog"])
def test_bf16_stays_near_float32(gru: str) -> None:
    torch.manual_seed(1)
    model = EncoderDecoder(ModelConfig(50, 50, 32, 64, 32, gru=gru, layer_norm=True))
    batch = batch_of(SOURCES, TARGETS)
    losses, gradients = [], []
    for precision in (FLOAT32, Precision("bf16", torch.bfloat16, 8)):
        loss, _ = batch_loss(model, batch, precision)
        losses.append(loss.item())
        parts = torch.autograd.grad(loss, list(model.parameters()))
        assert all(part.dtype == torch.float32 for part in parts)
        gradients.append(torch.cat([part.flatten() for part in parts]))
    assert losses[1] == pytest.approx(losses[0], rel=0.01)
    assert functional.cosine_similarity(*gradients, dim=0) > 0.999
