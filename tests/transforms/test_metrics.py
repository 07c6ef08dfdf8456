"""Each figure against plain Python written another way, or against a case worked out by hand."""

import itertools
import math
import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from rareword.schemas import tables
from rareword.schemas.tables import WORDS
from rareword.transforms import metrics
from rareword.transforms.metrics import ALL, BANDS, UNSEEN, Band, Unigrams

SENTENCES = st.lists(st.lists(st.sampled_from("abcde"), max_size=6), min_size=1, max_size=5)


def random_text(seed: int, count: int = 40) -> list[str]:
    rng = random.Random(seed)
    words = ["the", "house", "is", "small", ",", "blue", "sea", "sings", "of", "a"]
    return [" ".join(rng.choices(words, k=rng.randint(1, 12))) + "." for _ in range(count)]


def bleu_by_hand(hypotheses: list[str], references: list[str]) -> float:
    """Papineni et al. 2002 on text that is split at spaces; no smoothing is needed here."""
    matched, total = [0] * 4, [0] * 4
    lengths = [0, 0]
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        ours, theirs = hypothesis.split(), reference.split()
        lengths[0] += len(ours)
        lengths[1] += len(theirs)
        for n in range(1, 5):
            a = Counter(zip(*(ours[i:] for i in range(n)), strict=False))
            b = Counter(zip(*(theirs[i:] for i in range(n)), strict=False))
            matched[n - 1] += sum(min(count, b[gram]) for gram, count in a.items())
            total[n - 1] += sum(a.values())
    brevity = min(1.0, math.exp(1 - lengths[1] / lengths[0]))
    logs = [math.log(m / t) for m, t in zip(matched, total, strict=True)]
    return 100 * brevity * math.exp(sum(logs) / 4)


def test_bleu_is_the_geometric_mean_of_clipped_precisions() -> None:
    hypotheses, references = random_text(1), random_text(2)
    hypotheses[:10] = references[:10]
    found = metrics.bleu(hypotheses, references, "none")
    assert found.value == pytest.approx(bleu_by_hand(hypotheses, references))
    ratio = sum(len(h.split()) for h in hypotheses) / sum(len(r.split()) for r in references)
    assert found.length_ratio == pytest.approx(ratio)
    assert "tok:none" in found.signature
    assert f"version:{sacrebleu.__version__}" in found.signature


def chrf_by_hand(hypothesis: str, reference: str, beta: int) -> float:
    """Popović 2015 on one sentence: n-grams of one to six characters without spaces."""
    a, b = hypothesis.replace(" ", ""), reference.replace(" ", "")
    precision, recall = [], []
    for n in range(1, 7):
        ours = Counter(a[i : i + n] for i in range(len(a) - n + 1))
        theirs = Counter(b[i : i + n] for i in range(len(b) - n + 1))
        precision.append((ours & theirs).total() / ours.total())
        recall.append((ours & theirs).total() / theirs.total())
    p, r = sum(precision) / 6, sum(recall) / 6
    return 100 * (1 + beta**2) * p * r / (beta**2 * p + r)


@pytest.mark.parametrize("beta", [2, 3])
def test_chrf_is_the_f_score_of_character_n_grams(beta: int) -> None:
    hypothesis, reference = "the house is small today", "a house was rather small"
    found = metrics.chrf([hypothesis], [reference], beta)
    assert found.value == pytest.approx(chrf_by_hand(hypothesis, reference, beta))
    assert found.signature.startswith(f"chrF{beta}|nrefs:1")


def test_perfect_and_empty_translations_score_the_extremes() -> None:
    references = random_text(3)
    for metric in (
        lambda h: metrics.bleu(h, references, "13a"),
        lambda h: metrics.chrf(h, references, 2),
    ):
        assert metric(references).value == pytest.approx(100)
        assert metric([""] * len(references)).value == 0


def test_exact_matches_see_everything_but_white_space_and_normal_form() -> None:
    pairs = [
        ("Åland", "A\u030aland"),
        ("two  words ", "two\u00a0words"),
        ("Case", "case"),
        ("dot.", "dot"),
        ("", ""),
    ]
    assert metrics.exact_matches(*(list(side) for side in zip(*pairs, strict=True))) == 3


@pytest.mark.parametrize("shards", [1, 3])
def test_training_counts_are_those_of_the_words_table(tmp_path: Path, shards: int) -> None:
    rows = [(f"w{i}", i * 10, i) for i in range(50)]
    urls = []
    for number in range(shards):
        part = rows[number::shards]
        columns = dict(zip(WORDS.fields.names, map(list, zip(*part, strict=True)), strict=True))
        table = pa.table(columns, schema=WORDS.fields)
        name = tables.shard_name(number, shards)
        tables.write_shard(str(tmp_path), name, WORDS, [table])
        urls.append(str(tmp_path / name))
    found = metrics.training_counts(urls, {"w3", "w49", "w0", "never"})
    assert found == {"w3": 3, "w49": 49, "w0": 0, "never": 0}
    assert metrics.training_counts(urls, set()) == {}


def test_every_count_is_in_one_band() -> None:
    for count in (0, 1, 2, 4, 5, 9, 10, 99, 100, 999, 1000, 10**12):
        assert sum(band.holds(count) for band in BANDS) == 1
    assert list(map(str, BANDS)) == [
        "0",
        "1",
        "2 to 4",
        "5 to 9",
        "10 to 99",
        "100 to 999",
        "1,000 and more",
    ]


def test_the_three_classes_are_all_rare_and_unseen_words() -> None:
    classes = metrics.classes(3)
    counts = (0, 1, 3, 4)
    assert {name: [band.holds(c) for c in counts] for name, band in classes.items()} == {
        "all": [True] * 4,
        "rare": [False, True, True, False],
        "unseen": [True, False, False, False],
    }


def unigrams_by_hand(
    hypotheses: list[list[str]], references: list[list[str]], words: set[str]
) -> tuple[int, int, int]:
    """Takes each produced word away from its reference, one by one."""
    matched = produced = expected = 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        left = list(reference)
        for word in hypothesis:
            if word in words:
                produced += 1
                if word in left:
                    left.remove(word)
                    matched += 1
        expected += sum(word in words for word in reference)
    return matched, produced, expected


@given(SENTENCES, SENTENCES, st.dictionaries(st.sampled_from("abcde"), st.integers(0, 4)))
def test_matches_are_clipped_sentence_by_sentence(
    hypotheses: list[list[str]], references: list[list[str]], some: dict[str, int]
) -> None:
    pairs = list(itertools.zip_longest(hypotheses, references, fillvalue=[]))
    ours, theirs = [a for a, _ in pairs], [b for _, b in pairs]
    training = {word: some.get(word, 0) for word in "abcde"}
    found = metrics.match_words(ours, theirs)
    for band in (ALL, UNSEEN, Band(1, 2), Band(3, None)):
        words = {word for word, count in training.items() if band.holds(count)}
        counts = found.within(band, training)
        assert (counts.matched, counts.produced, counts.expected) == unigrams_by_hand(
            ours, theirs, words
        )


def test_f1_is_the_harmonic_mean_of_precision_and_recall() -> None:
    found = Unigrams(matched=3, produced=4, expected=12)
    assert (found.precision, found.recall) == (3 / 4, 3 / 12)
    assert found.f1 == pytest.approx(2 / (4 / 3 + 12 / 3))


def test_figures_without_words_are_undefined_not_zero() -> None:
    nothing, unproduced = Unigrams(0, 0, 0), Unigrams(0, 0, 5)
    assert (nothing.precision, nothing.recall, nothing.f1) == (None, None, None)
    assert (unproduced.precision, unproduced.recall, unproduced.f1) == (None, 0, 0)


def test_unknown_pieces_are_wrong_words_but_no_unseen_ones() -> None:
    found = metrics.match_words([["a", "<unk>"]], [["a", "b"]])
    training = {"a": 5, "b": 0, "<unk>": 0}
    assert found.within(ALL, training) == Unigrams(1, 2, 2)
    assert found.within(UNSEEN, training) == Unigrams(0, 0, 1)


@pytest.mark.parametrize(
    ("preferred", "number", "expected"), [(50, 20, 15), (6, 20, 6), (95, 20, 15), (100, 20, 20)]
)
def test_three_quarters_of_the_samples_are_preferred_ones(
    preferred: int, number: int, expected: int
) -> None:
    chosen = metrics.choose(range(100), set(range(preferred)), number, seed=1)
    assert len(set(chosen)) == len(chosen) == number
    assert chosen == sorted(chosen)
    assert sum(id_ < preferred for id_ in chosen) == expected


def test_the_choice_follows_from_the_seed_and_not_from_the_order() -> None:
    ids = list(range(100))
    chosen = metrics.choose(ids, {5, 6}, 10, seed=1)
    assert metrics.choose(ids[::-1], {5, 6}, 10, seed=1) == chosen
    assert metrics.choose(ids, {5, 6}, 10, seed=2) != chosen
    assert metrics.choose(ids, {5, 6}, 1000, seed=1) == ids
    assert metrics.choose(ids, {5, 6}, 0, seed=1) == []
