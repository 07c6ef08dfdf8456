"""The model against a slow NumPy version of its equations, and its two ways against each other."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from rareword.schemas.vocabulary import EOS, PAD
from rareword.trainer.config import ModelConfig
from rareword.trainer.model import EncoderDecoder

SOURCES = [[3, 4, 5, 6, EOS], [5, 3, EOS], [EOS]]
TARGETS = [[4, 4, EOS], [3, 5, 6, 3, EOS], [6, EOS]]


def make_model(tied: str = "none", dropout: float = 0.0) -> EncoderDecoder:
    torch.manual_seed(5)
    model = EncoderDecoder(ModelConfig(7, 7, 5, 8, 3, tied, dropout)).double()
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
    """One sentence pair, one matrix product at a time, in float64."""

    def __init__(self, model: EncoderDecoder) -> None:
        self.p = {name: p.detach().numpy() for name, p in model.named_parameters()}
        self.output = model.output.weight.detach().numpy()

    def gru(self, x: np.ndarray, h: np.ndarray, U: np.ndarray, b: np.ndarray) -> np.ndarray:
        """x: the input's part of the three gates r, z, n."""
        u = U @ h + b
        (xr, xz, xn), (ur, uz, un) = np.split(x, 3), np.split(u, 3)
        r, z = sigmoid(xr + ur), sigmoid(xz + uz)
        n = np.tanh(xn + r * un)
        return (1 - z) * n + z * h

    def encode(self, source: list[int]) -> np.ndarray:
        states = []
        for suffix, order in (("", 1), ("_reverse", -1)):
            W, U, bi, bh = (
                self.p[f"encoder.{kind}_l0{suffix}"]
                for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            h, run = np.zeros(U.shape[1]), []
            for word in source[::order]:
                h = self.gru(W @ self.p["source_embedding.weight"][word] + bi, h, U, bh)
                run.append(h)
            states.append(run[::order])
        return np.array([np.concatenate(both) for both in zip(*states, strict=True)])

    def log_probabilities(self, source: list[int], target: list[int]) -> list[np.ndarray]:
        p, annotations = self.p, self.encode(source)
        backward_of_first = annotations[0, annotations.shape[1] // 2 :]
        h = np.tanh(p["initial.weight"] @ backward_of_first + p["initial.bias"])
        previous, found = np.zeros(p["target_embedding.weight"].shape[1]), []
        for word in target:
            # look
            energy = [
                p["attention.energy.weight"][0]
                @ np.tanh(p["attention.key.weight"] @ a + p["attention.query.weight"] @ h)
                for a in annotations
            ]
            alpha = np.exp(energy) / np.exp(energy).sum()
            c = alpha @ annotations
            # generate
            t = p["readout.weight"] @ np.concatenate([h, previous, c]) + p["readout.bias"]
            maxout = np.maximum(t[0::2], t[1::2])
            logits = self.output @ (p["low_rank.weight"] @ maxout) + p["output.bias"]
            found.append(logits - np.log(np.exp(logits).sum()))
            # update
            previous = p["target_embedding.weight"][word]
            x = p["input_gates.weight"] @ previous + p["input_gates.bias"]
            x = x + p["context_gates.weight"] @ c
            h = self.gru(x, h, p["hidden_gates.weight"], p["hidden_gates.bias"])
        return found


def test_steps_follow_the_equations() -> None:
    model = make_model()
    reference = Reference(model)
    source_BS, target_BT = padded(SOURCES), padded(TARGETS)
    memory = model.encode(source_BS, source_BS != PAD)
    state, previous = model.start(memory), None
    expected = [reference.log_probabilities(*pair) for pair in zip(SOURCES, TARGETS, strict=True)]
    for t in range(target_BT.shape[1]):
        log_probs_BV, state, weights_BS = model.step(state, previous, memory)
        previous = target_BT[:, t]
        for b, rows in enumerate(expected):
            if t < len(rows):
                np.testing.assert_allclose(log_probs_BV[b].detach().numpy(), rows[t], rtol=1e-9)
        np.testing.assert_allclose(weights_BS.sum(1).detach().numpy(), 1, rtol=1e-12)
        assert (weights_BS[source_BS == PAD] == 0).all()


@pytest.mark.parametrize("tied", ["none", "target", "all"])
def test_teacher_forced_loss_is_the_sum_over_steps(tied: str) -> None:
    model = make_model(tied)
    source_BS, target_BT = padded(SOURCES), padded(TARGETS)
    memory = model.encode(source_BS, source_BS != PAD)
    logits_NV = model.output(model.forced(memory, target_BT))
    forced = functional.cross_entropy(logits_NV, target_BT[target_BT != PAD], reduction="sum")
    state, previous, total = model.start(memory), None, 0.0
    for next_B in target_BT.T:
        log_probs_BV, state, _ = model.step(state, previous, memory)
        chosen = log_probs_BV.gather(1, next_B[:, None])[:, 0]
        total -= chosen[next_B != PAD].sum().item()
        previous = next_B
    assert forced.item() == pytest.approx(total, rel=1e-12)


def test_gradients_of_the_forced_pass_are_those_of_the_steps() -> None:
    gradients = []
    for forced in (True, False):
        model = make_model()
        source_BS, target_BT = padded(SOURCES), padded(TARGETS)
        memory = model.encode(source_BS, source_BS != PAD)
        if forced:
            logits_NV = model.output(model.forced(memory, target_BT))
            loss = functional.cross_entropy(logits_NV, target_BT[target_BT != PAD], reduction="sum")
        else:
            state, previous, loss = model.start(memory), None, torch.zeros(()).double()
            for next_B in target_BT.T:
                log_probs_BV, state, _ = model.step(state, previous, memory)
                chosen = log_probs_BV.gather(1, next_B[:, None])[:, 0]
                loss = loss - chosen[next_B != PAD].sum()
                previous = next_B
        loss.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    for name, gradient in gradients[0].items():
        np.testing.assert_allclose(gradient, gradients[1][name], rtol=1e-9, atol=1e-11)


def test_a_sentence_does_not_depend_on_its_batch() -> None:
    model = make_model()
    source_BS, target_BT = padded(SOURCES), padded(TARGETS)
    together = model.forced(model.encode(source_BS, source_BS != PAD), target_BT).detach()
    start = 0
    for source, target in zip(SOURCES, TARGETS, strict=True):
        ids = torch.tensor([source])
        alone = model.forced(model.encode(ids, ids != PAD), torch.tensor([target])).detach()
        np.testing.assert_allclose(together[start : start + len(target)], alone, rtol=1e-10)
        start += len(target)


def test_tied_embeddings_are_one_matrix() -> None:
    assert (
        len(dict(make_model("none").named_parameters()))
        == len(dict(make_model("all").named_parameters())) + 2
    )
    model = make_model("all")
    assert model.source_embedding.weight is model.output.weight
    assert model.target_embedding.weight is model.output.weight
    model = make_model("target")
    assert model.target_embedding.weight is model.output.weight
    assert model.source_embedding.weight is not model.output.weight


def test_dropout_works_in_training_only() -> None:
    model = make_model(dropout=0.5)
    source_BS, target_BT = padded(SOURCES), padded(TARGETS)

    def features() -> torch.Tensor:
        return model.forced(model.encode(source_BS, source_BS != PAD), target_BT).detach()

    assert torch.equal(features(), features())
    model.train()
    assert not torch.equal(features(), features())


def test_bf16_stays_near_float32() -> None:
    model = make_model().float()
    source_BS, target_BT = padded(SOURCES), padded(TARGETS)
    with torch.no_grad():
        exact = model.forced(model.encode(source_BS, source_BS != PAD), target_BT)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rough = model.forced(model.encode(source_BS, source_BS != PAD), target_BT)
    assert torch.nn.functional.cosine_similarity(exact, rough.float(), dim=-1).min() > 0.98
