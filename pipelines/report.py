"""The page and the summary of an evaluation, made of its figures and a few samples."""

import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rareword.pipelines import evaluation_tables, figures, pages
from rareword.pipelines.evaluation_tables import Figures, Part
from rareword.pipelines.figures import (
    SMALL,
    WIDE,
    Axis,
    Bar,
    Bars,
    Group,
    Line,
    Mark,
    Plot,
    Point,
    Style,
)
from rareword.pipelines.pages import align, number, share
from rareword.pipelines.systems import Details, References, System
from rareword.schemas.vocabulary import SPECIALS, words_of
from rareword.transforms import metrics, unigrams

if TYPE_CHECKING:
    from rareword.pipelines.evaluate import EvaluateOptions

END = SPECIALS[-1].text
"""End-of-sentence, the last row and column of a heat map."""


def render(
    found: Figures,
    test: References,
    systems: Sequence[System],
    training: Mapping[str, int],
    ids: Sequence[int],
    details: Mapping[str, Details],
) -> str:
    """The page: one HTML file that needs no other.

    found: what goes to metrics.json. systems: the last one copies the source. training: how often
    words occurred in training. ids: the sentences to show. details: of each system but the last.
    """
    names = [system.name for system in systems]
    maps: list[HeatMap] = []
    script, allowed = pages.script("report.js")
    choices = choose_systems(found, names)
    styles = {choice.name: choice.style for choice in choices}
    # The source is shown anyway.
    shown = samples(
        test, systems[:-1], training, found["rare_threshold"], ids, details, styles, maps
    )
    return pages.render(
        "report.html",
        {"count": _count},
        found=found,
        choices=choices,
        sections=sections(found, styles),
        samples=shown,
        checks=FILTERS if len(names) > 2 else FILTERS[:-1],
        maps=maps,
        without_weights=[name for name in names[:-1] if not details[name].alignments],
        without_sources=[
            name for name in names[:-1] if details[name].alignments and not details[name].sources
        ],
        signatures=[
            (name, found["systems"][names[0]][key]["signature"])
            for key, name in evaluation_tables.METRIC_NAMES.items()
        ],
        script=script,
        allowed=allowed,
    )


# ---- which systems are shown ----

SHOWN = figures.COLOURS
"""So many systems are shown at first where there are more: each has a colour of its own."""


@dataclass(frozen=True)
class Choice:
    """A system that the reader can show or hide in figures and samples."""

    name: str
    style: Style
    is_shown: bool
    """Whether it is shown at first."""


def choose_systems(found: Figures, names: Sequence[str]) -> list[Choice]:
    """The systems in their order, the copied source last.

    Up to `SHOWN` are all shown, and `copy` beside them. Of more, the best by chrF2 of each group
    are shown, then the second best and so on; a group is one system's seeds and ensemble, as
    `experiment` names them. What is shown has the first styles, which are the least alike.
    """
    first = list(names)
    if len(names) - 1 > SHOWN:
        seen: Counter[str] = Counter()
        places: dict[str, tuple[int, int]] = {}  # in its group, and among all
        for name in sorted(names[:-1], key=lambda name: -found["systems"][name]["chrf2"]["value"]):
            group = re.sub(r" (ensemble|seed \d+)$", "", name)
            places[name] = (seen[group], len(places))
            seen[group] += 1
        best = set(sorted(places, key=places.__getitem__)[:SHOWN])
        first = [name for name in names if name in best]
    styled = first + [name for name in names if name not in first]
    return [Choice(name, Style(styled.index(name)), name in first) for name in names]


# ---- tables and figures ----


@dataclass(frozen=True)
class Section:
    """Figures and tables under one heading."""

    id: str
    title: str
    text: str
    plots: Sequence[Plot]
    bars: Bars | None
    missing: str
    """Why there is no figure, if one belongs here and would be empty."""
    tables: Sequence[Part]
    is_folded: bool
    """True if the tables are long, and the figures show the same."""


def sections(found: Figures, styles: Mapping[str, Style]) -> list[Section]:
    """The tables of metrics.md, those of one heading together, with their figures. styles: of the
    systems in their order."""
    made = []
    parts = evaluation_tables.parts(found, list(styles))
    for id_, grouped in itertools.groupby(parts, lambda part: part.id):
        tables = list(grouped)
        plots: list[Plot] = []
        chart, missing = None, ""
        if id_ == "ranks":
            plots = rank_figure(found, styles)
            missing = "No figure: neither references nor outputs have a word."
        elif id_ == "confidence":
            plots = confidence_figures(found, styles)
            missing = (
                "No figure: no system produced an unseen word, or all sentences of each have the "
                "same score."
            )
        elif id_ == "classes":
            chart = class_figure(found, styles)
            missing = "No figure: the references have no unseen word."
        drawn = bool(plots or chart)
        is_folded = id_ in ("ranks", "confidence")
        first = tables[0]
        made.append(
            Section(
                id_,
                first.title,
                first.text,
                plots,
                chart,
                "" if drawn else missing,
                tables,
                is_folded,
            )
        )
    return made


_SLOT = 54.0
"""Room beside an axis for what has no place on it: unseen words, no and all sentences."""


def rank_figure(found: Figures, styles: Mapping[str, Style]) -> list[Plot]:
    """The paper's Figures 2 and 3: F1 by rank of training frequency, a line for each system;
    empty if there is no word. Each bin is drawn in the (geometric) middle of its ranks."""
    rows = found["f1_by_training_rank"]
    if all(f1 is None for row in rows for f1 in row["f1"].values()):
        return []
    last = max((row["to"] for row in rows if row["to"] is not None), default=1)
    x = Axis(1, max(last, 2), WIDE.left + 12, WIDE.right - 1.5 * _SLOT, is_log=True)
    y = Axis(0, 1, WIDE.bottom, WIDE.top)
    unseen = WIDE.right - _SLOT / 2
    lines = []
    for name, style in styles.items():
        points = []
        for row in rows:
            f1 = row["f1"][name]
            if f1 is None:
                continue
            if row["to"] is None:
                middle, words = unseen, "unseen words"
            else:
                middle = x.place(math.sqrt(row["from"] * row["to"]))
                words = f"ranks {evaluation_tables.span(row['from'], row['to'])}"
            text = f"{name}, {words}: F1 {share(f1)} ({number(row['tokens'])} in the references)"
            points.append(Point(middle, y.place(f1), text))
        lines.append(Line(name, points, style))
    marks = [Mark(WIDE.right - _SLOT, "unseen")]
    rare = found["rare_from_rank"]
    if rare is not None:
        at = x.place(rare)
        is_left = at > (WIDE.left + WIDE.right) / 2
        marks.append(Mark(at, f"rare from rank {rare:,}", is_left))
    return [
        Plot(
            "figure-ranks",
            "F1 of words by rank of training frequency",
            f"A line for each system shown, of {', '.join(styles)}: from the most frequent word to "
            f"rank {last:,} on a logarithmic axis; unseen words on the far right. The table below "
            "has the figures.",
            "rank of training frequency",
            "F1",
            [*((x.place(tick), figures.short(tick)) for tick in x.ticks()), (unseen, "")],
            [(y.place(tick), figures.percent(tick)) for tick in y.ticks()],
            lines,
            marks=marks,
            frame=WIDE,
        )
    ]


def confidence_figures(found: Figures, styles: Mapping[str, Style]) -> list[Plot]:
    """Precision and recall of unseen words by the threshold of confidence, a line for each system
    that has scores; empty if there is nothing to draw."""
    by_name = {name: found["systems"][name]["unseen_by_threshold"] or [] for name in styles}
    thresholds = [
        row["threshold"]
        for rows in by_name.values()
        for row in rows
        if row["threshold"] is not None and math.isfinite(row["threshold"])
    ]
    if not thresholds:
        return []
    keys = ("precision", "recall")
    shares = [row[key] or 0 for rows in by_name.values() for row in rows for key in keys]
    x = Axis(min(thresholds), max(thresholds), SMALL.left + _SLOT, SMALL.right - _SLOT)
    y = Axis(0, max(math.ceil(5 * max(shares)), 1) / 5, SMALL.bottom, SMALL.top)
    plots = []
    for key in keys:
        lines = [
            line
            for name, rows in by_name.items()
            if (line := _confidence_line(name, rows, key, x, y, styles[name])).points
        ]
        if not lines:
            return []
        plots.append(
            Plot(
                f"figure-{key}",
                f"{key.capitalize()} of unseen words by confidence",
                f"A line for each system shown, of {', '.join(line.name for line in lines)}: over "
                "the score below which outputs are replaced by their source; no output replaced on "
                "the far left, all on the far right. The tables below have the figures.",
                "outputs with a score below this are copied",
                key,
                [
                    (_NONE, "none"),
                    *((x.place(tick), f"{tick:.4g}") for tick in x.ticks()),
                    (_ALL, "all"),
                ],
                [(y.place(tick), figures.percent(tick)) for tick in y.ticks()],
                lines,
                gaps=[SMALL.left + 2 * _SLOT / 3, SMALL.right - 2 * _SLOT / 3],
            )
        )
    return plots


_NONE, _ALL = SMALL.left + _SLOT / 3, SMALL.right - _SLOT / 3
"""Where no and all outputs are replaced."""


def _confidence_line(
    name: str, rows: Sequence[Figures], key: str, x: Axis, y: Axis, style: Style
) -> Line:
    points = []
    for place, row in enumerate(rows):
        value, threshold = row[key], row["threshold"]
        if value is None:
            continue
        if threshold is not None:
            if not math.isfinite(threshold):
                continue
            at, what = x.place(threshold), f"threshold {threshold:.4f}"
        elif place == 0:
            at, what = _NONE, "no threshold"
        else:
            at, what = _ALL, "no threshold"
        text = f"{name}, {what}, {number(row['copied'])} sentences copied: {key} {share(value)}"
        points.append(Point(at, y.place(value), text))
    return Line(name, points, style)


def class_figure(found: Figures, styles: Mapping[str, Style]) -> Bars | None:
    """How many of the references' unseen words of each class a system produced; classes without
    words are left out. None if none has words."""
    classes = {
        kind: counts["tokens"]
        for kind, counts in found["reference_unseen_by_class"].items()
        if counts["tokens"]
    }
    if not classes:
        return None
    groups = []
    for kind, tokens in classes.items():
        bars = []
        for name, style in styles.items():
            part = found["systems"][name]["unseen_by_class"][kind]
            text = f"{name}, {kind}: {number(part['matched'])} of {number(tokens)} words"
            bars.append(Bar(part["recall"], share(part["recall"]), text, style))
        groups.append(Group(kind, "1 word" if tokens == 1 else f"{tokens:,} words", bars))
    return Bars("figure-classes", "Recall of unseen words by class", list(styles.items()), groups)


# ---- samples ----


@dataclass(frozen=True)
class Word:
    """A word of a sample, in pieces."""

    pieces: Sequence[str]
    kind: Literal["", "rare", "unseen"] = ""
    """How seldom training had it."""
    wrong: bool = False
    """True if the reference does not hold it, or not so often."""


@dataclass(frozen=True)
class Output:
    """What a system made of a sample."""

    name: str
    number: int
    """That of its style."""
    text: int
    """Equal for outputs that are equal."""
    right: bool
    """Whether it equals the reference, white space aside."""
    words: Sequence[Word]
    map: int | None
    """The number of its heat map."""


@dataclass(frozen=True)
class Sample:
    """A sentence with its translations."""

    id: int
    source: Sequence[Word]
    reference: Sequence[Word]
    outputs: Sequence[Output]
    has: Sequence[str]
    """Which kinds of words its reference has: rare, unseen."""


HeatMap = dict[str, Any]
"""`rows` and `columns`: output and source pieces; `weights`: in thousandths, row after row."""

FILTERS = (
    ("rare", "rare words"),
    ("unseen", "unseen words"),
    ("differ", "systems differ"),
)


def choose(test: References, training: Mapping[str, int], options: "EvaluateOptions") -> list[int]:
    """The ids of the sentences to look at, mostly such whose reference has an unseen word."""
    interesting = {
        id_
        for id_, words in zip(test.ids, test.target_words, strict=True)
        if any(kind_of(word, training, 0) == "unseen" for word in words)
    }
    return metrics.choose(test.ids, interesting, options.samples, options.seed)


def kind_of(word: str, training: Mapping[str, int], rarest: int) -> Literal["", "rare", "unseen"]:
    """How seldom training had a word. rarest: how often rare words occurred at most."""
    if word == unigrams.UNKNOWN or word not in training or training[word] > rarest:
        return ""
    return "rare" if training[word] else "unseen"


def samples(
    test: References,
    systems: Sequence[System],
    training: Mapping[str, int],
    rarest: int,
    ids: Sequence[int],
    details: Mapping[str, Details],
    styles: Mapping[str, Style],
    maps: list[HeatMap],
) -> list[Sample]:
    """The sentences with what people look at. Appends the outputs' heat maps to `maps`."""
    rows = {id_: row for row, id_ in enumerate(test.ids)}
    own = details[systems[0].name]
    found = []
    for id_ in ids:
        row = rows[id_]
        expected = test.target_words[row]
        source = in_pieces(test.source_words[row], own.sources.get(id_, ()))
        reference = in_pieces(expected, own.targets.get(id_, ()))
        outputs = []
        texts = [system.texts[row] for system in systems]
        for system, text in zip(systems, texts, strict=True):
            left = Counter(expected)
            words = []
            for pieces in words_of(system.pieces[row]):
                word = "".join(pieces)
                words.append(Word(pieces, kind_of(word, training, rarest), left[word] <= 0))
                left[word] -= 1
            right = bool(metrics.exact_matches([text], [test.targets[row]]))
            heat = heat_map(system.pieces[row], id_, details[system.name])
            outputs.append(
                Output(
                    system.name,
                    styles[system.name].number,
                    texts.index(text),
                    right,
                    words,
                    len(maps) if heat else None,
                )
            )
            maps += [heat] if heat else []
        kinds = {kind_of(word, training, rarest) for word in expected}
        found.append(
            Sample(
                id_,
                [Word(pieces) for pieces in source],
                [Word(pieces, kind_of("".join(pieces), training, rarest)) for pieces in reference],
                outputs,
                [kind for kind in ("rare", "unseen") if kind in kinds],
            )
        )
    return found


def heat_map(pieces: Sequence[str], id_: int, details: Details) -> HeatMap | None:
    """What an output attends to; None if its weights or its source pieces are not known."""
    weights = details.alignments.get(id_)
    if weights is None or id_ not in details.sources:
        return None
    return {
        "rows": [*pieces, END],
        "columns": [*details.sources[id_], END],
        "weights": [round(1000 * weight) for row in weights for weight in row],
    }


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
        scores = found["systems"][name]
        rows.append(
            [
                name,
                _score(scores["bleu"]["value"]),
                _score(scores["chrf2"]["value"]),
                f"{scores['exact_matches']['count']:,} of {found['sentences']:,}",
                *(share(scores["unigrams"][kind]["f1"]) for kind in evaluation_tables.KINDS),
            ]
        )
    lines = align(rows)
    signatures = found["systems"][names[0]]
    lines += [f"{metric}: {signatures[metric]['signature']}" for metric in ("bleu", "chrf2")]
    return "\n".join(lines)


def _score(value: float) -> str:
    return f"{value:.1f}"


def _count(value: int) -> str:
    return f"{value:,}"
