"""What is measured on whole texts: sacrebleu's BLEU and chrF, exact matches; choice of samples.

sacrebleu's metrics count in each sentence and compute a score from the sums. The counts are kept as
arrays, so that every metric of a kind, and every resampling of a significance test, needs no second
look at the text.
"""

import hashlib
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

Metric = BLEU | CHRF
Counts = NDArray[np.int32]
"""[sentences, counts]: what a metric of sacrebleu counts in each sentence."""

METRICS: Mapping[str, Callable[[str], Metric]] = {
    # `force` silences a guess about tokenised input; the report has a warning of its own.
    "bleu": lambda tokenizer: BLEU(tokenize=tokenizer, force=True),
    "chrf2": lambda _: CHRF(beta=2),
    "chrf3": lambda _: CHRF(beta=3),
    "chrf++": lambda _: CHRF(beta=2, word_order=2),
}
"""By name, from the name of sacrebleu's tokeniser for BLEU. The paper reports BLEU and chrF3."""

_LOT = 4096
"""Sentences whose counts are Python lists at a time."""


class Score(NamedTuple):
    """A corpus score of sacrebleu (0 to 100) with the signature that makes it comparable."""

    value: float
    signature: str


class Bleu(NamedTuple):
    """BLEU, and the length of the hypotheses over that of the references in its tokens."""

    value: float
    signature: str
    length_ratio: float


def bleu(hypotheses: Sequence[str], references: Sequence[str], tokenizer: str) -> Bleu:
    """Corpus BLEU of text; `tokenizer` is one of sacrebleu's, such as 13a."""
    metric = METRICS["bleu"](tokenizer)
    return bleu_score(metric, count(metric, hypotheses, references))


def count(metric: Metric, hypotheses: Sequence[str], references: Sequence[str]) -> Counts:
    """What the metric counts in each sentence."""
    lots = [
        np.array(metric._extract_corpus_statistics(ours, [theirs]), np.int32)
        for begin in range(0, len(hypotheses), _LOT)
        for ours, theirs in [(hypotheses[begin : begin + _LOT], references[begin : begin + _LOT])]
    ]
    return np.concatenate(lots)


def count_all(
    hypotheses: Sequence[str], references: Sequence[str], tokenizer: str
) -> dict[str, Counts]:
    """What each of METRICS counts. With one reference a chrF counts the same for any beta, and
    chrF++ besides them n-grams of words, in its last columns."""
    counts = {
        name: count(METRICS[name](tokenizer), hypotheses, references) for name in ("bleu", "chrf++")
    }
    characters = counts["chrf++"][:, : 3 * CHRF.CHAR_ORDER]
    return counts | {"chrf2": characters, "chrf3": characters}


def scores(counts: Mapping[str, Counts], tokenizer: str) -> dict[str, Score | Bleu]:
    """The scores of METRICS from what `count_all` gives."""
    found: dict[str, Score | Bleu] = {}
    for name, make in METRICS.items():
        metric = make(tokenizer)
        metric.num_refs = 1  # for the signature; sacrebleu sets it where it sees references
        if name == "bleu":
            found[name] = bleu_score(metric, counts[name])
        else:
            score = metric._compute_score_from_stats(_sums(counts[name]))
            found[name] = Score(score.score, f"{score.name}|{metric.get_signature()}")
    return found


def bleu_score(metric: Any, counts: Counts) -> Bleu:
    """BLEU from what it counts."""
    metric.num_refs = 1
    found = metric._compute_score_from_stats(_sums(counts))
    ratio = found.sys_len / max(found.ref_len, 1)
    return Bleu(found.score, str(metric.get_signature()), ratio)


def _sums(counts: Counts) -> list[int]:
    return [int(total) for total in counts.sum(0, dtype=np.int64)]


def comparable(text: str) -> str:
    """Text without what nobody sees: normal form C, single spaces, none at the ends."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def exact_matches(hypotheses: Sequence[str], references: Sequence[str]) -> int:
    """Sentences that equal their reference, both made `comparable`."""
    return sum(
        comparable(hypothesis) == comparable(reference)
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    )


# ---- samples ----


def choose(ids: Iterable[int], preferred: Collection[int], number: int, seed: int) -> list[int]:
    """`number` of the ids at random, three quarters of them from `preferred` if it has as many.

    The choice depends on nothing but the arguments; the result is sorted.
    """

    def order(id_: int) -> bytes:
        return hashlib.sha256(f"{seed} {id_}".encode()).digest()

    ordered = sorted(ids, key=order)
    first = [id_ for id_ in ordered if id_ in preferred]
    rest = [id_ for id_ in ordered if id_ not in preferred]
    others = min(len(rest), number - min(len(first), number - number // 4))
    return sorted(first[: number - others] + rest[:others])
