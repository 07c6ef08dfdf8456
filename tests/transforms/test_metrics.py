"""Each figure against plain Python written another way, or against a case worked out by hand."""

import math
import random
from collections import Counter

import pytest
import sacrebleu
from sacrebleu.metrics.chrf import CHRF

from rareword.transforms import metrics


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


def test_bleu_without_a_match_of_four_is_smoothed_by_halves() -> None:
    """Chen and Cherry 2014, method 3: the first precision of nought counts as half a match, the
    next as a quarter."""
    found = metrics.bleu(["a b c d e", "x y"], ["a b c f g", "x z"], "none")
    precisions = [4 / 7, 2 / 5, 1 / 3, 1 / 2 / 2]
    assert found.value == pytest.approx(100 * math.prod(precisions) ** (1 / 4))
    found = metrics.bleu(["a b c d e"], ["a b f g h"], "none")
    precisions = [2 / 5, 1 / 4, 1 / 2 / 3, 1 / 4 / 2]
    assert found.value == pytest.approx(100 * math.prod(precisions) ** (1 / 4))


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


def scores(hypotheses: list[str], references: list[str]) -> dict[str, metrics.Score | metrics.Bleu]:
    return metrics.scores(metrics.count_all(hypotheses, references, "13a"), "13a")


@pytest.mark.parametrize("beta", [2, 3])
def test_chrf_is_the_f_score_of_character_n_grams(beta: int) -> None:
    hypothesis, reference = "the house is small today", "a house was rather small"
    found = scores([hypothesis], [reference])[f"chrf{beta}"]
    assert found.value == pytest.approx(chrf_by_hand(hypothesis, reference, beta))
    assert found.signature.startswith(f"chrF{beta}|nrefs:1")


def test_scores_and_signatures_are_sacrebleus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_LOT", 7)
    hypotheses, references = random_text(1), random_text(2)
    hypotheses[3], hypotheses[9] = "", "blue"
    found = scores(hypotheses, references)
    bleu = sacrebleu.BLEU()
    assert found["bleu"].value == pytest.approx(bleu.corpus_score(hypotheses, [references]).score)
    assert found["bleu"].signature == str(bleu.get_signature())
    others = {"chrf2": CHRF(), "chrf3": CHRF(beta=3), "chrf++": CHRF(word_order=2)}
    for name, metric in others.items():
        score = metric.corpus_score(hypotheses, [references])
        assert found[name].value == pytest.approx(score.score)
        assert found[name].signature == f"{score.name}|{metric.get_signature()}"
    assert set(found) == {"bleu", *others} == set(metrics.METRICS)


def test_perfect_and_empty_translations_score_the_extremes() -> None:
    references = random_text(3)
    assert [s.value for s in scores(references, references).values()] == pytest.approx([100] * 4)
    assert [s.value for s in scores([""] * len(references), references).values()] == [0] * 4


def test_exact_matches_see_everything_but_white_space_and_normal_form() -> None:
    pairs = [
        ("Åland", "A\u030aland"),
        ("two  words ", "two\u00a0words"),
        ("Case", "case"),
        ("dot.", "dot"),
        ("", ""),
    ]
    assert metrics.exact_matches(*(list(side) for side in zip(*pairs, strict=True))) == 3


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
