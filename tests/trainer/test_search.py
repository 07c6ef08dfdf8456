"""Beam search against brute force, against itself in other batches, and at its edges."""

import collections
import itertools
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rareword.schemas.errors import RarewordError
from rareword.schemas.vocabulary import EOS, PAD, UNK
from rareword.trainer import search
from rareword.trainer.config import ModelConfig
from rareword.trainer.ensemble import Ensemble
from rareword.trainer.model import EncoderDecoder, Memory, Network, Rows
from rareword.trainer.search import Candidates, SearchOptions, force, translate

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def random_model(pieces: int, seed: int = 1, sharpness: float = 4.0, **form: Any) -> EncoderDecoder:
    """A small untrained model whose distributions are far from uniform, and which ends some
    outputs early and some not before their limit."""
    torch.manual_seed(seed)
    model = EncoderDecoder(
        ModelConfig(
            source_vocabulary=pieces,
            target_vocabulary=pieces,
            embedding=8,
            hidden=12,
            encoder_hidden=6,
            tied="none",
            **form,
        )
    )
    with torch.no_grad():
        model.output.weight.mul_(sharpness)
        model.output.bias.normal_()
        model.output.bias[EOS] += sharpness
        model.low_rank.weight.mul_(sharpness)
    return model.eval()


def random_sources(count: int, pieces: int, seed: int = 3, longest: int = 12) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [
        rng.integers(3, pieces, rng.integers(1, longest + 1)).astype(np.int32) for _ in range(count)
    ]


def scores(
    model: EncoderDecoder,
    sources: Sequence[np.ndarray],
    targets: Sequence[Sequence[int]],
    options: SearchOptions,
) -> list[float]:
    return [h.score for h in force(model.network(), sources, targets, options, CPU)]


class ScriptedModel:
    """Log-probabilities by the pieces so far, from a dictionary; what it lacks is impossible.

    The state is the number of a prefix.
    """

    def __init__(self, table: dict[tuple[int, ...], dict[int, float]], pieces: int) -> None:
        self.table, self.pieces = table, pieces
        self.prefixes: list[tuple[int, ...]] = [()]
        self.rows: list[int] = []
        self.sentences: list[int] = []

    def network(self) -> "ScriptedModel":
        return self

    def narrowed(self, pieces_C: Tensor) -> "ScriptedModel":
        raise AssertionError("not asked for")

    def read(
        self, source_BS: Tensor, mask_BS: Tensor, own_BX: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        assert own_BX is None
        return mask_BS, torch.zeros(len(mask_BS), dtype=torch.int64)

    def step(
        self,
        numbers_R: Tensor,
        previous_R: Tensor | None,
        mask_BS: Tensor,
        rows: Rows | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        mask_RS = mask_BS if rows is None else mask_BS[rows.sentence_R]
        assert len(mask_RS) == len(numbers_R)
        self.rows.append(len(numbers_R))
        self.sentences.append(len(mask_BS))
        log_probs_RV = torch.full((len(numbers_R), self.pieces), -math.inf)
        numbers = []
        for row, number in enumerate(numbers_R.tolist()):
            prefix = self.prefixes[number]
            if previous_R is not None:
                prefix = (*prefix, int(previous_R[row]))
            self.prefixes.append(prefix)
            numbers.append(len(self.prefixes) - 1)
            for id_, value in self.table.get(prefix, {}).items():
                log_probs_RV[row, id_] = value
        return log_probs_RV, torch.tensor(numbers), mask_RS / mask_RS.sum(1, keepdim=True)

    def log_probs(self, features: Tensor) -> Tensor:
        return features.clone()


def log_probabilities(
    model: EncoderDecoder,
    source: Sequence[int],
    target: Sequence[int],
    among: set[int] | None = None,
) -> float:
    """Sum of the log-probabilities of a target, step by step with one sentence; of the
    probabilities among some pieces alone, if there are such."""
    with torch.no_grad():
        source_BS = torch.tensor([[*source, EOS]])
        network = model.network()
        attended, state = network.read(source_BS, torch.ones_like(source_BS, dtype=torch.bool))
        previous, total = None, 0.0
        for id_ in [*target, EOS]:
            features, state, _ = network.step(state, previous, attended)
            log_probs_BV = network.log_probs(features)
            total += float(log_probs_BV[0, id_])
            if among is not None:
                total -= float(log_probs_BV[0, sorted(among)].logsumexp(0))
            previous = torch.tensor([id_])
    return total


def brute_force(
    model: EncoderDecoder,
    source: Sequence[int],
    pieces: int,
    options: SearchOptions,
    among: set[int] | None = None,
) -> list[tuple[float, tuple[int, ...]]]:
    """All targets that the options allow, the best first; at most 5 pieces with the end.

    among: pieces over which probabilities are normalised.
    """
    banned = {PAD, EOS} | ({UNK} if options.forbid_unk else set())
    allowed = [i for i in among or range(pieces) if i not in banned]
    most = min(5, math.floor(options.max_length_ratio * (len(source) + 1)))
    if options.max_length is not None:
        most = min(most, options.max_length + 1)
    fewest = max(options.min_length, math.floor(options.min_length_ratio * (len(source) + 1)))
    p = options.length_penalty
    scored = []
    for length in range(fewest, most):
        for target in itertools.product(allowed, repeat=length):
            total, n = log_probabilities(model, source, target, among), length + 1
            value = {
                "power": total / n**p,
                "gnmt": total / ((5 + n) / 6) ** p,
                "reward": total + p * n,
            }[options.length_form]
            scored.append((value, target))
    return sorted(scored, reverse=True)


RULES: list[dict[str, Any]] = [
    {"length_penalty": 0.0},
    {"length_penalty": 0.6},
    {"length_penalty": 1.0},
    {"length_penalty": 2.0},
    {"length_form": "gnmt", "length_penalty": 0.8},
    {"length_form": "reward", "length_penalty": 1.5},
    {"min_length": 2},
    {"min_length_ratio": 1.0, "forbid_unk": True},
    {"min_length": 3, "length_form": "reward", "length_penalty": 0.3},
    {"max_length": 2},
    {"max_length": 1, "min_length": 1},
]


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_a_beam_as_large_as_the_space_finds_what_brute_force_finds(rules: dict[str, Any]) -> None:
    pieces = 6  # four that can be generated beside </s>
    for seed in range(3):
        model = random_model(pieces, seed)
        source = random_sources(1, pieces, seed, longest=1)[0]
        options = SearchOptions(beam=400, n_best=3, max_length_ratio=2.5, **rules)
        expected = brute_force(model, source, pieces, options)[:3]
        found = translate(model.network(), [source], options, CPU)[0]
        assert [tuple(h.ids) for h in found] == [ids for _, ids in expected]
        assert [h.score for h in found] == pytest.approx([s for s, _ in expected], abs=1e-5)


FORMS: list[dict[str, Any]] = [{}, {"gru": "groundhog", "encoder_layers": 2, "decoder_layers": 2}]


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("beam", [1, 4])
def test_a_sentence_gives_the_same_output_in_every_batch(beam: int, form: dict[str, Any]) -> None:
    """Alone, in batches of a few and with 79 others: its translations and its forced score."""
    model, sources = random_model(40, seed=6, **form), random_sources(80, 40)
    choices = [SearchOptions(beam=beam, batch_tokens=tokens) for tokens in (1, 37, 100_000)]
    results = [translate(model.network(), sources, options, CPU) for options in choices]
    targets = random_sources(80, 40, seed=4)
    found = [scores(model, sources, targets, options) for options in choices]
    for one, *others in zip(*results, strict=True):
        for other in others:
            assert [h.ids for h in other] == [h.ids for h in one]
            assert [h.score for h in other] == pytest.approx([h.score for h in one], abs=1e-5)
    early = sum(len(h[0].ids) < 3 * len(x) for h, x in zip(results[0], sources, strict=True))
    assert 10 < early < 75, "some should end early, and some late"
    assert found[1] == pytest.approx(found[0], abs=1e-5)
    assert found[2] == pytest.approx(found[0], abs=1e-5)


def test_one_output_per_input_in_the_order_of_the_inputs() -> None:
    model, sources = random_model(30), random_sources(25, 30)
    sources[7] = sources[20] = np.array([], np.int32)
    together = translate(model.network(), sources, SearchOptions(), CPU)
    alone = [translate(model.network(), [source], SearchOptions(), CPU)[0] for source in sources]
    assert [[h.ids for h in hypotheses] for hypotheses in together] == [
        [h.ids for h in hypotheses] for hypotheses in alone
    ]


def test_blank_in_is_blank_out_without_entering_the_model() -> None:
    class Untouchable:
        def __getattr__(self, name: str) -> None:
            raise AssertionError(f"the model's {name} was used")

    blank = np.array([], np.int32)
    found = translate(Untouchable(), [blank, blank], SearchOptions(n_best=3), CPU)
    assert found == [[([], 0.0, None)], [([], 0.0, None)]]
    assert translate(Untouchable(), [], SearchOptions(), CPU) == []


def test_the_number_of_hypotheses_asked_for_does_not_change_the_best() -> None:
    model, sources = random_model(40, seed=2), random_sources(40, 40)
    options = [SearchOptions(beam=6, n_best=n) for n in (1, 3, 6)]
    by_number = [translate(model.network(), sources, chosen, CPU) for chosen in options]
    for one, three, six in zip(*by_number, strict=True):
        assert (len(one), len(three), len(six)) == (1, 3, 6)
        assert one[0].ids == three[0].ids == six[0].ids
        assert [h.ids for h in three] == [h.ids for h in six[:3]]
        assert [h.score for h in six] == sorted((h.score for h in six), reverse=True)
        assert len({tuple(h.ids) for h in six}) == 6
    longer = sum(
        len(six[0].ids) > min(len(h.ids) for h in six) for *_, six in zip(*by_number, strict=True)
    )
    assert longer > 5, "the best should not always be the first that ends"


def test_of_fewer_outputs_than_asked_for_there_are_no_more() -> None:
    table = {(): {EOS: -1.0, 3: -2.0}, (3,): {EOS: -0.5}}
    options = SearchOptions(beam=4, n_best=4)
    found = translate(ScriptedModel(table, 5), [np.array([3])] * 2, options, CPU)
    for best in found:
        assert [h.ids for h in best] == [[], [3]]
        assert [h.score for h in best] == pytest.approx([-1.0, -2.5 / 2])


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_forced_score_of_an_output_is_its_reported_score(form: dict[str, Any]) -> None:
    model, sources = random_model(40, seed=6, **form), random_sources(30, 40)
    options = SearchOptions(beam=3, length_penalty=0.7)
    best = [hypotheses[0] for hypotheses in translate(model.network(), sources, options, CPU)]
    forced = scores(model, sources, [h.ids for h in best], options)
    assert forced == pytest.approx([h.score for h in best], abs=1e-5)
    by_hand = [
        log_probabilities(model, source, h.ids) / (len(h.ids) + 1) ** 0.7
        for source, h in zip(sources, best, strict=True)
    ]
    assert forced == pytest.approx(by_hand, abs=1e-5)


def test_forced_scores_of_blank_sentences_are_defined() -> None:
    model, blank = random_model(10), np.array([], np.int32)
    assert scores(model, [blank, blank], [[], [4]], SearchOptions()) == [0.0, -math.inf]


def test_beam_one_is_greedy() -> None:
    model, sources = random_model(30, seed=8), random_sources(20, 30)
    for source in sources:
        with torch.no_grad():
            source_BS = torch.tensor([[*source, EOS]])
            network = model.network()
            attended, state = network.read(source_BS, torch.ones_like(source_BS, dtype=torch.bool))
            previous, ids = None, []
            while len(ids) < 3 * (len(source) + 1) - 1:
                features, state, _ = network.step(state, previous, attended)
                log_probs_BV = network.log_probs(features)
                log_probs_BV[0, PAD] = -math.inf
                previous = log_probs_BV.argmax(1)
                if previous == EOS:
                    break
                ids.append(int(previous))
        assert translate(model.network(), [source], SearchOptions(beam=1), CPU)[0][0].ids == ids


def test_an_alive_hypothesis_that_can_still_win_is_waited_for() -> None:
    # `</s>` at once is the best at first; the longer output wins after normalisation by length.
    a = 3
    model = ScriptedModel(
        {(): {EOS: -1.0, a: -1.1}, (a,): {a: -0.1, EOS: -3.0}, (a, a): {EOS: -0.1}}, pieces=4
    )
    found = translate(model.network(), [np.array([3])], SearchOptions(beam=2), CPU)[0]
    assert found[0].ids == [a, a]
    assert found[0].score == pytest.approx((-1.1 - 0.1 - 0.1) / 3)


def test_search_stops_when_no_alive_hypothesis_can_win() -> None:
    a = 3
    endless: dict[tuple[int, ...], dict[int, float]] = {
        (a,) * n: {a: -9.0, EOS: -9.5} for n in range(1, 60)
    }
    model = ScriptedModel({(): {EOS: -0.1, a: -9.0}, **endless}, pieces=4)
    options = SearchOptions(beam=2, max_length_ratio=25.0)
    assert translate(model.network(), [np.array([3])], options, CPU)[0][0].ids == []
    assert len(model.rows) == 1  # -9 / 50 > -0.1 is false from the first step on


def test_finished_sentences_and_hypotheses_leave_the_batch() -> None:
    a, b = 3, 4
    model = ScriptedModel(
        {(): {a: -0.5, b: -1.0}, (a,): {EOS: -0.1}, (b,): {b: -0.1}, (b, b): {EOS: -0.1}}, pieces=5
    )
    translate(model.network(), [np.array([3])] * 2, SearchOptions(beam=2), CPU)
    assert model.rows == [2, 4, 2]


def test_what_ended_is_no_longer_looked_at_when_half_has_ended() -> None:
    endless = {(3,) * n: {3: -0.1, EOS: -5.0} for n in range(30)}
    model = ScriptedModel(endless, 4)
    sources = [np.array([3] * length) for length in (1, 9, 1, 1)]
    found = translate(model, sources, SearchOptions(beam=1), CPU)
    assert [len(best[0].ids) for best in found] == [5, 29, 5, 5]
    assert model.sentences == [4] * 6 + [1] * 24


def test_equal_scores_go_to_the_lowest_id() -> None:
    flat = {id_: -1.0 for id_ in range(1, 50)}
    table = {(): dict(flat), **{(id_,): dict(flat) for id_ in range(50)}}
    options = SearchOptions(beam=3, n_best=3, max_length_ratio=1.0)
    found = translate(ScriptedModel(table, 50), [np.array([3])], options, CPU)[0]
    # Two pieces at most: the end, or one piece and the end. All of the beam's totals are equal.
    assert [h.ids for h in found] == [[], [1], [3]]


@pytest.mark.parametrize("k", [1, 2, 5, 9])
@pytest.mark.parametrize("columns", [9, 32 * 40, 32 * 40 + 7])
def test_the_greatest_values_are_those_of_a_stable_sort(k: int, columns: int) -> None:
    """Short rows, and such as are searched chunk by chunk; many equal values, of either sign."""
    rng = np.random.default_rng(0)
    values = rng.integers(-3, 4, (200, columns)).astype(np.float32) / 7
    values[rng.random(values.shape) < 0.3] = -np.inf
    values[:50][values[:50] > 0] = -0.0
    values[50:60, :-3] = -np.inf  # fewer than k, in the last columns
    order = np.argsort(-values, axis=1, kind="stable")[:, :k]
    found, ids = search._top(torch.from_numpy(values), k)
    assert np.array_equal(ids.numpy(), order)
    assert np.array_equal(found.numpy(), np.take_along_axis(values, order, 1))


def test_pad_is_never_generated_and_unk_only_if_allowed() -> None:
    likely = {PAD: -0.1, UNK: -1.0, EOS: -4.0, 3: -2.0}
    table = {(): likely, (UNK,): {EOS: -0.1}, (3,): {EOS: -0.1}}
    source = [np.array([3])]
    for forbid, expected in ((False, [UNK]), (True, [3])):
        options = SearchOptions(forbid_unk=forbid)
        found = translate(ScriptedModel(table, 4), source, options, CPU)
        assert found[0][0].ids == expected


@pytest.mark.parametrize("ratio", [1.0, 1.5, 3.0])
def test_outputs_end_at_the_length_limit(ratio: float) -> None:
    endless = {(3,) * n: {3: -0.1, EOS: -5.0} for n in range(40)}
    options = SearchOptions(beam=2, max_length_ratio=ratio, length_penalty=1.0)
    found = translate(ScriptedModel(endless, 4), [np.array([3, 3, 3])], options, CPU)[0]
    length = math.floor(4 * ratio) - 1
    assert found[0].ids == [3] * length
    assert found[0].score == pytest.approx((-0.1 * length - 5.0) / (length + 1))
    assert search.length_limits(3, options) == (1, length + 1)


def test_a_sentence_without_finite_probabilities_gives_an_empty_output() -> None:
    broken = ScriptedModel({(): {3: math.nan}}, 4)
    found = translate(broken, [np.array([3]), np.array([3, 3])], SearchOptions(), CPU)
    assert found == [[([], -math.inf, None)]] * 2


def test_alignments_have_a_row_per_piece_and_ignore_padding() -> None:
    model, sources = random_model(30, seed=9), random_sources(20, 30)
    options = SearchOptions(beam=3, n_best=2, alignments=True)
    together = translate(model.network(), sources, options, CPU)
    plain = translate(model.network(), sources, SearchOptions(beam=3, n_best=2), CPU)
    for source, hypotheses, without in zip(sources, together, plain, strict=True):
        assert [h.ids for h in hypotheses] == [h.ids for h in without]
        alone = translate(model.network(), [source], options, CPU)[0]
        for hypothesis, same in zip(hypotheses, alone, strict=True):
            assert hypothesis.alignment is not None
            assert hypothesis.alignment.shape == (len(hypothesis.ids) + 1, len(source) + 1)
            assert hypothesis.alignment.sum(1) == pytest.approx(1.0, abs=1e-5)
            assert hypothesis.alignment == pytest.approx(same.alignment, abs=1e-5)


def test_alignments_are_the_weights_of_the_forced_run() -> None:
    model, source = random_model(30, seed=9), random_sources(1, 30)[0]
    found = translate(model.network(), [source], SearchOptions(beam=4, alignments=True), CPU)[0][0]
    with torch.no_grad():
        source_BS = torch.tensor([[*source, EOS]])
        network = model.network()
        attended, state = network.read(source_BS, torch.ones_like(source_BS, dtype=torch.bool))
        previous, rows = None, []
        for id_ in [*found.ids, EOS]:
            _, state, weights_BS = network.step(state, previous, attended)
            rows.append(weights_BS[0].numpy())
            previous = torch.tensor([id_])
    assert found.alignment == pytest.approx(np.stack(rows), abs=1e-5)


def test_batches_hold_their_tokens_longest_first_and_each_sentence_once() -> None:
    rng = np.random.default_rng(1)
    for tokens in (1, 30, 200):
        lengths = rng.integers(1, 60, 100).tolist()
        batches = search.plan_batches(lengths, tokens)
        assert sorted(itertools.chain.from_iterable(batches)) == list(range(100))
        flat = [lengths[i] for batch in batches for i in batch]
        assert flat == sorted(flat, reverse=True)
        for batch in batches:
            assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= tokens
        few = search.plan_batches(lengths, tokens, 4)
        assert sorted(itertools.chain.from_iterable(few)) == list(range(100))
        assert max(map(len, few)) == min(4, max(map(len, batches)))
    assert search.plan_batches([], 10) == []


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: not enough memory"),
        MemoryError(),
    ],
    ids=type,
)
def test_a_batch_that_does_not_fit_the_memory_is_done_in_halves(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    model, sources = random_model(20), random_sources(9, 20)
    targets, encode, most = random_sources(9, 20, seed=4), Network.encode, 9
    options = SearchOptions(alignments=True)

    def encode_few(network: Network, source_BS: Tensor, mask_BS: Tensor) -> Memory:
        if len(source_BS) > most:
            raise error
        return encode(network, source_BS, mask_BS)

    def found() -> list[Any]:
        best = [h[0] for h in translate(model.network(), sources, options, CPU)]
        return [*best, *force(model.network(), sources, targets, options, CPU)]

    monkeypatch.setattr(Network, "encode", encode_few)
    expected, most = found(), 2
    for one, other in zip(found(), expected, strict=True):
        assert one.ids == other.ids
        assert one.score == pytest.approx(other.score, abs=1e-5)
        assert one.alignment == pytest.approx(other.alignment, abs=1e-5)

    most = 0
    said = r"a sentence of \d+ pieces does not fit the memory of cpu"
    with pytest.raises(RarewordError, match=f"{said} with a beam of 5; lower the beam, choose"):
        translate(model.network(), sources, options, CPU)
    with pytest.raises(RarewordError, match=f"{said}; choose a device"):
        force(model.network(), sources, targets, options, CPU)


def test_an_error_that_is_not_of_memory_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(network: Network, source_BS: Tensor, mask_BS: Tensor) -> Memory:
        raise RuntimeError("CUDA error: unspecified launch failure")

    monkeypatch.setattr(Network, "encode", broken)
    with pytest.raises(RuntimeError, match="unspecified launch failure"):
        translate(random_model(20).network(), random_sources(4, 20), SearchOptions(), CPU)


# ---- candidate lists ----


def test_a_search_among_candidates_finds_what_brute_force_finds_among_them() -> None:
    """Lists of several lengths in one batch, one of them with nothing of its own."""
    pieces, shared = 9, np.array([PAD, UNK, EOS, 4])
    options = SearchOptions(beam=400, n_best=3, max_length_ratio=2.0)
    for seed in range(2):
        model = random_model(pieces, seed)
        sources = [np.array([3]), np.array([5]), np.array([7])]
        own = [np.array([3, 8]), np.array([], np.int64), np.array([6])]
        found = translate(
            model.network(), sources, options, CPU, candidates=Candidates(shared, own)
        )
        for source, ids, best in zip(sources, own, found, strict=True):
            among = {*shared.tolist(), *ids.tolist()}
            expected = brute_force(model, source, pieces, options, among)[:3]
            assert [tuple(h.ids) for h in best] == [target for _, target in expected]
            assert [h.score for h in best] == pytest.approx([s for s, _ in expected], abs=1e-5)


@pytest.mark.parametrize("count", [1, 2])
def test_lists_of_all_pieces_change_nothing(count: int) -> None:
    """Whichever of them are shared; also for an ensemble, and when sentences leave the batch."""
    models = [random_model(40, seed=6), random_model(40, seed=7)][:count]
    networks = [model.network() for model in models]
    network = networks[0] if count == 1 else Ensemble(networks)
    sources, rng = random_sources(30, 40), np.random.default_rng(2)
    options = SearchOptions(beam=3, n_best=2, alignments=True)
    expected = translate(network, sources, options, CPU)
    shared = np.array(sorted({PAD, UNK, EOS, *rng.choice(40, 11, replace=False).tolist()}))
    rest = np.setdiff1d(np.arange(40), shared)
    candidates = Candidates(shared, [rest] * 30)
    found = translate(network, sources, options, CPU, candidates=candidates)
    for one, other in zip(expected, found, strict=True):
        assert [h.ids for h in one] == [h.ids for h in other]
        assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-5)
        for left, right in zip(one, other, strict=True):
            assert left.alignment == pytest.approx(right.alignment, abs=1e-5)


# ---- sampling ----


def test_what_is_drawn_is_distributed_as_the_model_says() -> None:
    table = {(): {3: math.log(0.5), 4: math.log(0.3), EOS: math.log(0.2)}, (3,): {EOS: 0.0}}
    table[(4,)] = {3: math.log(0.25), EOS: math.log(0.75)}
    table[(4, 3)] = {EOS: 0.0}
    options = SearchOptions(search="sample", n_best=4000, length_penalty=0.0)
    found = translate(ScriptedModel(table, 5), [np.array([3])], options, CPU)[0]
    counts = collections.Counter(tuple(h.ids) for h in found)
    expected = {(3,): 0.5, (4,): 0.225, (4, 3): 0.075, (): 0.2}
    assert counts.keys() == expected.keys()
    for ids, share in expected.items():
        deviation = (share * (1 - share) / 4000) ** 0.5
        assert abs(counts[ids] / 4000 - share) < 4 * deviation
    assert all(h.score == pytest.approx(math.log(expected[tuple(h.ids)]), abs=1e-5) for h in found)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({"top_k": 2}, {3: 0.625, 4: 0.375}),
        ({"top_k": 1}, {3: 1.0}),
        ({"top_p": 0.5}, {3: 1.0}),
        ({"top_p": 0.51}, {3: 0.625, 4: 0.375}),
        ({"temperature": 0.5}, {3: 0.25 / 0.38, 4: 0.09 / 0.38, 5: 0.04 / 0.38}),
        ({"temperature": 0.01}, {3: 1.0}),
    ],
    ids=str,
)
def test_drawing_from_some_of_the_pieces(rules: dict, expected: dict[int, float]) -> None:
    first = {3: math.log(0.5), 4: math.log(0.3), 5: math.log(0.2)}
    table = {(): first, **{(id_,): {EOS: 0.0} for id_ in first}}
    options = SearchOptions(search="sample", n_best=2000, **rules)
    found = translate(ScriptedModel(table, 6), [np.array([3])], options, CPU)[0]
    counts = collections.Counter(h.ids[0] for h in found)
    assert counts.keys() == expected.keys()
    for id_, share in expected.items():
        assert abs(counts[id_] / 2000 - share) <= 4 * (share * (1 - share) / 2000) ** 0.5
    # The score is the model's own, whatever was drawn from.
    assert all(h.score == pytest.approx(first[h.ids[0]] / 2) for h in found)


def test_what_is_drawn_for_a_sentence_depends_on_its_key_and_the_seed_alone() -> None:
    model, sources = random_model(40, seed=5), random_sources(30, 40)
    keys = [7 * i for i in range(30)]
    options = [
        SearchOptions(search="sample", n_best=2, batch_tokens=tokens, search_seed=seed)
        for tokens, seed in ((1, 1), (100_000, 1), (100_000, 2))
    ]
    one, other, reseeded = (
        [[h.ids for h in best] for best in translate(model.network(), sources, chosen, CPU, keys)]
        for chosen in options
    )
    assert one == other
    assert one != reseeded
    backwards = translate(model.network(), sources[::-1], options[1], CPU, keys[::-1])
    assert [[h.ids for h in best] for best in backwards[::-1]] == one
    assert len({tuple(ids) for best in one for ids in best}) > 30
    for best in translate(model.network(), sources, options[0], CPU, keys):
        assert [h.score for h in best] == sorted((h.score for h in best), reverse=True)


def test_drawn_outputs_have_their_forced_scores_and_alignments() -> None:
    model, sources = random_model(40, seed=5), random_sources(20, 40)
    options = SearchOptions(search="sample", n_best=3, alignments=True, min_length=2)
    for source, best in zip(
        sources, translate(model.network(), sources, options, CPU), strict=True
    ):
        assert len(best) == 3
        forced = force(model.network(), [source] * 3, [h.ids for h in best], options, CPU)
        for drawn, same in zip(best, forced, strict=True):
            assert len(drawn.ids) >= 2
            assert drawn.score == pytest.approx(same.score, abs=1e-5)
            assert drawn.alignment == pytest.approx(same.alignment, abs=1e-5)


# ---- options ----


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"n_best": 6}, "--n-best: 6 is more than --beam 5"),
        ({"search": "forced", "n_best": 2}, "--n-best: --search forced"),
        ({"temperature": 0.5}, "--temperature needs --search sample"),
        ({"top_k": 3}, "--top-k needs --search sample"),
        ({"top_p": 0.9}, "--top-p needs --search sample"),
        ({"min_length_ratio": 3.0}, "--min-length-ratio: 3.0 is not below"),
        ({"min_length": 9, "max_length": 8}, "--min-length: 9 is more than --max-length 8"),
    ],
    ids=str,
)
def test_contradictions_are_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(RarewordError, match=re.escape(said)):
        SearchOptions(**values).check()


def test_the_paper_s_search_bans_the_end_for_half_of_the_source() -> None:
    options = SearchOptions(**SearchOptions.PRESETS["paper"])
    assert options.beam == 12
    # 7 pieces and the end: an end of 3.5 is too early for 4 pieces, 3 x 8 are the most.
    assert search.length_limits(7, options) == (5, 24)
