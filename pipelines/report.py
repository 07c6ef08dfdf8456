"""The page and the summary of an evaluation, made of its figures and a few samples."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rareword.pipelines import pages
from rareword.pipelines.systems import References, System
from rareword.schemas.vocabulary import words_of
from rareword.transforms import metrics, unigrams

if TYPE_CHECKING:
    from rareword.pipelines.evaluate import EvaluateOptions


@dataclass(frozen=True)
class Word:
    """A word of a sample, in pieces."""

    pieces: Sequence[str]
    unseen: bool = False
    """True if training never had it."""
    wrong: bool = False
    """True if the reference does not hold it, or not so often."""


@dataclass(frozen=True)
class Sample:
    """A sentence with its translations."""

    id: int
    source: Sequence[Word]
    reference: Sequence[Word]
    outputs: Sequence[tuple[str, bool, Sequence[Word]]]
    """For each system its name, whether it is exactly right, and its words."""


def render(
    found: Mapping[str, Any],
    test: References,
    systems: Sequence[System],
    segmented: tuple[Sequence[Sequence[str]], Sequence[Sequence[str]]] | None,
    training: Mapping[str, int],
    options: "EvaluateOptions",
) -> str:
    """The page: one HTML file without scripts and without other files.

    found: what goes to metrics.json. segmented: the pieces of sources and references, if known.
    training: how often words occurred in training.
    """
    return pages.render(
        "report.html",
        {"share": _share, "score": _score, "count": _count},
        found=found,
        names=[system.name for system in systems],
        bands=[str(band) for band in unigrams.BANDS],
        # The last system copies the source, which is shown anyway.
        samples=samples(test, systems[:-1], segmented, training, options),
    )


def samples(
    test: References,
    systems: Sequence[System],
    segmented: tuple[Sequence[Sequence[str]], Sequence[Sequence[str]]] | None,
    training: Mapping[str, int],
    options: "EvaluateOptions",
) -> list[Sample]:
    """Sentences for people to look at, mostly such whose reference has an unseen word."""

    def unseen(word: str) -> bool:
        return training.get(word) == 0 and word != unigrams.UNKNOWN

    interesting = {
        id_
        for id_, words in zip(test.ids, test.target_words, strict=True)
        if any(map(unseen, words))
    }
    rows = {id_: row for row, id_ in enumerate(test.ids)}
    found = []
    for id_ in metrics.choose(test.ids, interesting, options.samples, options.seed):
        row = rows[id_]
        source = in_pieces(test.source_words[row], segmented[0][row] if segmented else [])
        reference = in_pieces(test.target_words[row], segmented[1][row] if segmented else [])
        outputs = []
        for system in systems:
            left = Counter(test.target_words[row])
            words = []
            for pieces in words_of(system.pieces[row]):
                word = "".join(pieces)
                words.append(Word(pieces, unseen(word), wrong=left[word] <= 0))
                left[word] -= 1
            right = bool(metrics.exact_matches([system.texts[row]], [test.targets[row]]))
            outputs.append((system.name, right, words))
        found.append(
            Sample(
                id_,
                [Word(pieces) for pieces in source],
                [Word(pieces, unseen("".join(pieces))) for pieces in reference],
                outputs,
            )
        )
    return found


def in_pieces(words: Sequence[str], shown: Sequence[str]) -> list[list[str]]:
    """The words, cut as the displayed pieces cut them; whole if the pieces are other words.

    (They are where a character was unknown.)
    """
    cut = words_of(shown)
    return cut if ["".join(pieces) for pieces in cut] == list(words) else [[w] for w in words]


def summary(found: Mapping[str, Any], names: Sequence[str]) -> str:
    """A table for the terminal, with the signatures below it."""
    heads = ["", "BLEU", "chrF2", "exact", "F1 all", "F1 rare", "F1 unseen"]
    rows = [heads]
    for name in names:
        figures = found["systems"][name]
        rows.append(
            [
                name,
                _score(figures["bleu"]["value"]),
                _score(figures["chrf2"]["value"]),
                f"{figures['exact_matches']['count']:,} of {found['sentences']:,}",
                *(_share(figures["unigrams"][kind]["f1"]) for kind in ("all", "rare", "unseen")),
            ]
        )
    lines = align(rows)
    signatures = found["systems"][names[0]]
    lines += [f"{metric}: {signatures[metric]['signature']}" for metric in ("bleu", "chrf2")]
    return "\n".join(lines)


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of text columns: the first one left, the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _score(value: float) -> str:
    return f"{value:.1f}"


def _count(value: int) -> str:
    return f"{value:,}"
