"""Ensembles against one model, against brute force, and at their edges."""

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch

from rareword.schemas.errors import RarewordError
from rareword.schemas.vocabulary import EOS, PAD
from rareword.trainer import ensemble
from rareword.trainer.checkpoints import LoadedModel
from rareword.trainer.config import ModelConfig
from rareword.trainer.ensemble import Ensemble, Mean, Stack
from rareword.trainer.model import EncoderDecoder, Network
from rareword.trainer.search import Candidates, Hypothesis, SearchOptions, force, translate

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def random_model(pieces: int, seed: int) -> EncoderDecoder:
    """A small untrained model whose distributions are far from uniform, and which ends some
    outputs before their limit."""
    torch.manual_seed(seed)
    model = EncoderDecoder(ModelConfig(pieces, pieces, 8, 12, 6))
    with torch.no_grad():
        model.output.weight.mul_(4)
        model.output.bias.normal_()
        model.output.bias[EOS] += 4
        model.low_rank.weight.mul_(4)
    return model.eval()


def random_sources(count: int, pieces: int, longest: int = 12) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.integers(3, pieces, rng.integers(1, longest + 1)) for _ in range(count)]


def other_form(pieces: int, seed: int) -> EncoderDecoder:
    """A model with other sizes, another GRU, more layers and layer normalisation."""
    torch.manual_seed(seed)
    config = ModelConfig(
        source_vocabulary=pieces,
        target_vocabulary=pieces,
        embedding=6,
        hidden=10,
        encoder_hidden=7,
        tied="all",
        encoder_layers=2,
        decoder_layers=2,
        gru="groundhog",
        layer_norm=True,
        embedding_bias=True,
    )
    model = EncoderDecoder(config)
    with torch.no_grad():
        model.output.bias.normal_(std=2.0)
        model.output.bias[EOS] += 2
        model.low_rank.weight.mul_(4)
    return model.eval()


def loaded(model: EncoderDecoder, vocabulary: str = "a", directory: str = "m") -> LoadedModel:
    return LoadedModel(model, vocabulary, 1, model.config, directory)


@pytest.mark.parametrize("mean", ["log", "probability"])
def test_a_model_with_itself_is_the_model(mean: Mean) -> None:
    model, sources = random_model(30, seed=2), random_sources(20, 30)
    options = SearchOptions(beam=4, n_best=3, alignments=True)
    both = Ensemble([model.network(), model.network()], mean)
    for one, two in zip(
        translate(model.network(), sources, options, CPU),
        translate(both, sources, options, CPU),
        strict=True,
    ):
        assert [h.ids for h in one] == [h.ids for h in two]
        assert [h.score for h in one] == pytest.approx([h.score for h in two], abs=1e-6)
        for left, right in zip(one, two, strict=True):
            assert left.alignment == pytest.approx(right.alignment, abs=1e-6)


def oracle_step(
    models: list[EncoderDecoder], source: Any, target: Any, mean: Mean
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """For each piece of a target, end included: mean log-probabilities [V] and attention [S], from
    what each model says alone, in float64."""
    values: list[list[np.ndarray]] = []
    weights: list[list[np.ndarray]] = []
    for model in models:
        with torch.no_grad():
            source_BS = torch.tensor([[*source, EOS]])
            network = model.network()
            attended, state = network.read(source_BS, torch.ones_like(source_BS, dtype=torch.bool))
            previous = None
            values.append([])
            weights.append([])
            for id_ in [*target, EOS]:
                features, state, weights_BS = network.step(state, previous, attended)
                log_probs_BV = network.log_probs(features)
                values[-1].append(log_probs_BV[0].double().numpy())
                weights[-1].append(weights_BS[0].double().numpy())
                previous = torch.tensor([id_])
    means = [
        np.mean(step, axis=0) if mean == "log" else np.log(np.mean(np.exp(step), axis=0))
        for step in zip(*values, strict=True)
    ]
    return means, [np.mean(step, axis=0) for step in zip(*weights, strict=True)]


@pytest.mark.parametrize("mean", ["log", "probability"])
def test_a_beam_as_large_as_the_space_finds_the_best_of_all_sequences(mean: Mean) -> None:
    pieces = 6
    for seed in range(2):
        models = [random_model(pieces, seed), other_form(pieces, seed + 10)]
        source = random_sources(1, pieces, longest=1)[0]
        options = SearchOptions(beam=400, n_best=5, max_length_ratio=2.0)
        found = translate(
            Ensemble([model.network() for model in models], mean), [source], options, CPU
        )[0]

        def total(target: Any) -> float:
            means, _ = oracle_step(models, source, target, mean)  # noqa: B023
            ids = [*target, EOS]
            return float(sum(step[id_] for step, id_ in zip(means, ids, strict=True)))

        allowed = [id_ for id_ in range(pieces) if id_ not in (PAD, EOS)]
        space = [t for length in range(4) for t in itertools.product(allowed, repeat=length)]
        expected = sorted(((total(t) / (len(t) + 1), t) for t in space), reverse=True)[:5]
        assert [tuple(h.ids) for h in found] == [ids for _, ids in expected]
        assert [h.score for h in found] == pytest.approx([s for s, _ in expected], abs=1e-5)
        # Not what either finds alone, else the test would say little.
        for model in models:
            alone = translate(model.network(), [source], options, CPU)[0]
            assert [h.ids for h in alone] != [h.ids for h in found]


@pytest.mark.parametrize("mean", ["log", "probability"])
def test_scores_and_attention_are_the_means_of_the_members(mean: Mean) -> None:
    models = [random_model(40, 4), other_form(40, 5), random_model(40, 6)]
    sources = random_sources(20, 40)
    options = SearchOptions(beam=3, length_penalty=0.7, alignments=True)
    both = Ensemble([model.network() for model in models], mean)
    best = [hypotheses[0] for hypotheses in translate(both, sources, options, CPU)]
    forced = force(both, sources, [h.ids for h in best], options, CPU)
    assert [h.score for h in forced] == pytest.approx([h.score for h in best], abs=1e-5)
    for source, hypothesis in zip(sources, best, strict=True):
        means, weights = oracle_step(models, source, hypothesis.ids, mean)
        ids = [*hypothesis.ids, EOS]
        total = sum(step[id_] for step, id_ in zip(means, ids, strict=True))
        assert hypothesis.score == pytest.approx(total / len(ids) ** 0.7, abs=1e-5)
        assert hypothesis.alignment == pytest.approx(np.stack(weights), abs=1e-5)


def test_the_two_means_differ_and_only_probabilities_sum_to_one() -> None:
    models = [random_model(20, 1), random_model(20, 2)]
    sums = {}
    for mean in ("log", "probability"):
        network = Ensemble([model.network() for model in models], mean)
        with torch.no_grad():
            source_BS = torch.tensor([[5, 6, EOS]])
            attended, state = network.read(source_BS, torch.ones_like(source_BS, dtype=torch.bool))
            features, _, _ = network.step(state, None, attended)
            log_probs_BV = network.log_probs(features)
        sums[mean] = float(log_probs_BV.exp().sum())
    assert sums["probability"] == pytest.approx(1.0, abs=1e-5)
    assert sums["log"] < 0.95


def test_what_one_member_finds_impossible_is_so_for_the_log_mean_alone() -> None:
    sure, open_ = random_model(10, 1), random_model(10, 2)
    with torch.no_grad():
        sure.output.bias[7] = -math.inf
    for mean, impossible in (("log", True), ("probability", False)):
        network = Ensemble([sure.network(), open_.network()], mean)
        with torch.no_grad():
            source_BS = torch.tensor([[5, EOS]])
            attended, state = network.read(source_BS, torch.ones_like(source_BS, dtype=torch.bool))
            features, _, _ = network.step(state, None, attended)
            log_probs_BV = network.log_probs(features)
        assert (log_probs_BV[0, 7] == -math.inf) == impossible
        assert not log_probs_BV.isnan().any()


def test_a_sentence_gives_the_same_output_in_every_batch() -> None:
    both = Ensemble([random_model(40, 5).network(), other_form(40, 5).network()])
    sources = random_sources(30, 40)
    one, other = (
        translate(both, sources, SearchOptions(beam=4, batch_tokens=tokens), CPU)
        for tokens in (1, 200)
    )
    assert [h[0].ids for h in one] == [h[0].ids for h in other]
    assert all(PAD not in h[0].ids for h in one)


def test_different_vocabularies_are_refused_with_both_names() -> None:
    model = random_model(10, 1)
    members = [loaded(model), loaded(model, directory="n"), loaded(model, "b", "runs/other")]
    with pytest.raises(RarewordError, match=r"the model in m has vocabulary a, .*runs/other has b"):
        ensemble.together(members)


def test_members_of_one_form_are_stacked() -> None:
    members = [loaded(random_model(10, 1)), loaded(random_model(10, 2)), loaded(other_form(10, 3))]
    kinds = [type(ensemble.together(members[:count])) for count in (1, 2, 3)]
    assert kinds == [Network, Stack, Ensemble]


@pytest.mark.parametrize("make", [random_model, other_form])
@pytest.mark.parametrize("mean", ["log", "probability"])
def test_a_stack_finds_what_its_members_find_one_by_one(
    make: Callable[[int, int], EncoderDecoder], mean: Mean
) -> None:
    """Translations, with candidate lists too, and scores and attention of given outputs."""
    networks = [make(40, seed).double().network(align=4) for seed in (1, 2, 3)]
    stack, one_by_one = Stack(networks, mean), Ensemble(networks, mean)
    sources = random_sources(25, 40)
    options = SearchOptions(beam=3, n_best=2, alignments=True, batch_tokens=60)
    own = [np.arange(12, 40, dtype=np.int64)[place % 7 :: 4] for place in range(len(sources))]
    lists = Candidates(np.arange(12, dtype=np.int64), own)
    for candidates in (None, lists):
        found, wanted = (
            translate(network, sources, options, CPU, candidates=candidates)
            for network in (stack, one_by_one)
        )
        same(itertools.chain(*found), itertools.chain(*wanted))
    targets = [hypotheses[-1].ids for hypotheses in wanted]
    same(*(force(network, sources, targets, options, CPU) for network in (stack, one_by_one)))


def same(found: Iterable[Hypothesis], wanted: Iterable[Hypothesis]) -> None:
    for left, right in zip(found, wanted, strict=True):
        assert left.ids == right.ids
        assert left.score == pytest.approx(right.score, abs=1e-5)
        assert left.alignment == pytest.approx(right.alignment, abs=1e-5)


def test_a_stack_in_bf16_is_its_members_in_bf16() -> None:
    networks = [random_model(40, seed).network(torch.bfloat16, 8) for seed in (1, 2)]
    sources = random_sources(10, 40)
    stack, one_by_one = (
        force(network, sources, [[5, 6, 7]] * 10, SearchOptions(), CPU)
        for network in (Stack(networks), Ensemble(networks))
    )
    for left, right in zip(stack, one_by_one, strict=True):
        assert left.score == pytest.approx(right.score, abs=0.02)
