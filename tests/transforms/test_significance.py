"""Significance tests against sacrebleu's own on the text, and against slow plain resampling."""

import os
import random

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

from rareword.transforms import metrics, significance
from rareword.transforms.significance import Test


def systems(sentences: int = 30) -> tuple[dict[str, list[str]], list[str]]:
    """A good, a middling and a bad system, by how many words they get wrong; and the references."""
    rng = random.Random(1)
    words = ["the", "house", "is", "small", "blue", "sea", "sings", "of", "a", "day", "and", "we"]
    references = [" ".join(rng.choices(words, k=rng.randint(6, 14))) for _ in range(sentences)]

    def spoiled(share: float) -> list[str]:
        return [
            " ".join("wrong" if rng.random() < share else word for word in reference.split())
            for reference in references
        ]

    return {"good": spoiled(0.05), "fair": spoiled(0.2), "bad": spoiled(0.5)}, references


def counted(
    found: dict[str, list[str]], references: list[str]
) -> dict[str, dict[str, metrics.Counts]]:
    return {name: metrics.count_all(texts, references, "13a") for name, texts in found.items()}


@pytest.mark.parametrize(("test", "short"), [("bootstrap", "bs"), ("randomisation", "ar")])
def test_every_pair_is_compared_as_sacrebleu_does_it(
    test: Test, short: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, references = systems()
    compared = significance.compare(counted(found, references), "13a", test, 50, seed=7)
    assert "SACREBLEU_SEED" not in os.environ
    pairs = [("good", "fair"), ("good", "bad"), ("fair", "bad")]
    assert {(c.system, c.other, c.metric) for c in compared} == {
        (*pair, metric) for pair in pairs for metric in ("bleu", "chrf2", "chrf3")
    }
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    for comparison in compared:
        named = [(name, found[name]) for name in (comparison.system, comparison.other)]
        plain = {"bleu": BLEU(), "chrf2": CHRF(), "chrf3": CHRF(beta=3)}[comparison.metric]
        paired = PairedTest(named, {comparison.metric: plain}, [references], short, 50)
        signatures, columns = paired()
        ((label, signature),) = signatures.items()
        first, second = columns[label]
        assert comparison.difference == pytest.approx(first.score - second.score)
        assert comparison.p_value == pytest.approx(second.p_value)
        assert comparison.signature == f"{label}|{signature}"


def test_randomisation_is_the_share_of_random_exchanges_that_differ_more() -> None:
    """All exchanges of a few sentences, one by one, in BLEU of the texts."""
    found, references = systems(8)
    fair, bad = found["fair"], [*found["fair"][:5], *found["bad"][5:]]
    bleu = BLEU(force=True)

    def difference(ours: list[str], theirs: list[str]) -> float:
        a, b = (bleu.corpus_score(texts, [references]).score for texts in (ours, theirs))
        return abs(a - b)

    real, larger = difference(fair, bad), 0
    for number in range(2**8):
        swapped = [bool(number >> i & 1) for i in range(8)]
        ours = [b if swap else a for a, b, swap in zip(fair, bad, swapped, strict=True)]
        theirs = [a if swap else b for a, b, swap in zip(fair, bad, swapped, strict=True)]
        larger += difference(ours, theirs) > real + 1e-9
    compared = significance.compare(
        counted({"fair": fair, "bad": bad}, references),
        "13a",
        "randomisation",
        4000,
        seed=1,
    )
    # Four standard deviations of 4,000 trials.
    assert compared[0].p_value == pytest.approx(larger / 2**8, abs=4 * 0.5 / np.sqrt(4000))


def test_the_seed_decides_and_equal_systems_do_not_differ() -> None:
    found, references = systems()
    counts = counted({"one": found["fair"], "same": found["fair"]}, references)
    first, again = (
        significance.compare(counts, "13a", "randomisation", 40, seed=3) for _ in range(2)
    )
    assert first == again
    assert all(c.difference == 0 and c.p_value > 0 for c in first)
    near = counted(
        {"good": found["good"], "fair": found["good"][:-3] + found["bad"][-3:]}, references
    )
    values = {
        significance.compare(near, "13a", "bootstrap", 40, seed=seed)[0].p_value
        for seed in range(1, 6)
    }
    assert len(values) > 1
