"""Whether systems differ by more than chance: the paired tests of sacrebleu."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, cast

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

from rareword.transforms.metrics import METRICS, Counts

Test = Literal["bootstrap", "randomisation"]
DEFAULT_TRIALS: Mapping[str, int] = {"bootstrap": 1000, "randomisation": 10_000}
"""sacrebleu's own."""
TESTED = ("bleu", "chrf2", "chrf3")


class Comparison(NamedTuple):
    """One system against another in one metric."""

    system: str
    other: str
    metric: str
    difference: float
    """Of the scores: system less other."""
    p_value: float
    """How likely a difference of at least that size is if the systems are equally good."""
    signature: str


class _CountedBleu(BLEU):
    """BLEU whose counts are there already: they stand in for the text."""

    def _extract_corpus_statistics(self, hypotheses: Any, references: Any) -> Any:
        return hypotheses


class _CountedChrf(CHRF):
    """The same for chrF."""

    def _extract_corpus_statistics(self, hypotheses: Any, references: Any) -> Any:
        return hypotheses


def compare(
    counts: Mapping[str, Mapping[str, Counts]],
    tokenizer: str,
    test: Test,
    trials: int,
    seed: int,
) -> list[Comparison]:
    """Every system against every other, in each metric of TESTED.

    counts: for each system what `metrics.count_all` gives. seed: 1 or more; sacrebleu takes 0 for
    none.
    """
    names, found = list(counts), []
    for place, name in enumerate(names[:-1]):
        for metric in TESTED:
            systems = [(other, counts[other][metric]) for other in names[place:]]
            with _seeded(seed):
                paired = PairedTest(
                    cast("Any", systems),
                    {metric: _counted(metric, tokenizer)},
                    references=None,
                    test_type="bs" if test == "bootstrap" else "ar",
                    n_samples=trials,
                )
                signatures, columns = paired()
            ((label, signature),) = signatures.items()
            own, *others = cast("Sequence[Any]", columns[label])
            for (other, _), result in zip(systems[1:], others, strict=True):
                found.append(
                    Comparison(
                        name,
                        other,
                        metric,
                        float(own.score - result.score),
                        float(result.p_value),
                        f"{label}|{signature}",
                    )
                )
    return found


def memory(test: Test, sentences: int, trials: int) -> int:
    """About how many bytes a test takes: sacrebleu draws all trials at once."""
    if test == "randomisation":
        return 2 * trials * sentences  # who gives the sentence, and the opposite
    # The drawn sentences' numbers, and the counts of chrF in float32 for them.
    return trials * sentences * (8 + 4 * 3 * CHRF.CHAR_ORDER)


def _counted(name: str, tokenizer: str) -> Metric:
    metric: Metric
    if name == "bleu":
        metric = _CountedBleu(tokenize=tokenizer, force=True)
    else:
        plain = cast("CHRF", METRICS[name](tokenizer))
        metric = _CountedChrf(beta=plain.beta, word_order=plain.word_order)
    metric.num_refs = 1
    return metric


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Sets the environment variable that sacrebleu takes its seed from."""
    before = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before
