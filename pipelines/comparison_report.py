"""The page, the Markdown and the terminal table of a comparison, made of its figures."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rareword.pipelines import pages
from rareword.pipelines.figures import SMALL, Axis, Line, Mark, Plot, Point, Style, percent, short
from rareword.pipelines.pages import Table, align, number, share

Figures = Mapping[str, Any]
# ---- tables ----


def main_table(found: Figures, seconds: Mapping[str, Mapping[str, float]]) -> Table:
    """The paper's Table 1 and what belongs to it."""
    heads = ("segmenter", "tokens", "types", "#UNK", "<unk>", "pieces/word", "pieces/sentence",
             "learning, s", "applying, s")  # fmt: skip
    rows = []
    for figures in found["segmenters"]:
        label = figures["label"]
        one, spent = figures["statistics"], seconds[label]
        rows.append(
            (
                label,
                number(one["tokens"]),
                number(one["types"]),
                number(one["unknown_tokens"]),
                number(one["unk_pieces"]),
                number(one["fertility"], 2),
                number(one["tokens_per_sentence"], 1),
                number(spent["learning"], 2),
                number(spent["applying"], 2),
            )
        )
    return heads, rows


def sweep_table(found: Figures) -> Table:
    """A row for each number of merges."""
    sweep = found["sweep"]
    rule = sweep["suggestion"]["occurrences"]
    rare = sorted(set(sweep["rare"]))
    heads = ["merges", "tokens", "types", "#UNK", "pieces/word",
             *(f"types < {n:,}×" for n in rare), f"types ≥ {rule:,}×",
             f"merged ≥ {rule:,}×"]  # fmt: skip
    rows = []
    suggested = sweep["suggestion"]["merges"]
    shown = {*sweep["merges"], sweep["learnt"]}
    if suggested is not None:
        shown |= {suggested, suggested + 1}
    for point in sweep["points"]:
        if point["merges"] not in shown:
            continue  # on the way to the suggestion; the curves have it
        at_least = point["types_at_least"]
        types = max(point["types"], 1)
        rows.append(
            [
                number(point["merges"]),
                number(point["tokens"]),
                number(point["types"]),
                number(point["unknown_tokens"]),
                number(point["fertility"], 3),
                *(share(1 - at_least[str(n)] / types) for n in rare),
                share(at_least[str(rule)] / types),
                share(_often(point, rule, "merged")),
            ]
        )
    return heads, rows


def _often(point: Mapping[str, Any], occurrences: int, pieces: str) -> float:
    """The share of all or of merged pieces that occur so often."""
    name = "merged" if pieces == "merged" else "types"
    return float(point[f"{name}_at_least"][str(occurrences)] / (point[name] or 1))


def suggestion(found: Figures) -> str:
    """The rule and what it comes to, in a sentence or two."""
    one = found["sweep"]["suggestion"]
    pieces = "merged pieces" if one["pieces"] == "merged" else "pieces"
    rule = (
        f"The largest number of merges at which {share(one['share'], 0)} of the {pieces} occur at "
        f"least {one['occurrences']:,} times"
    )
    if one["merges"] is None:
        text = (
            f"{rule}: none of those looked at. The best share is {share(one['best_share'])}, at "
            f"{one['best_share_at']:,} merges."
        )
        if one["pieces"] == "all":
            text += (
                " Rare characters are pieces at every size; `suggestion: {pieces: merged}` leaves "
                "single characters out."
            )
        return text
    text = f"{rule}: {one['merges']:,}."
    if one["is_largest_looked_at"]:
        text += (
            " That is all the merges that the text has."
            if one["all_merges_learnt"]
            else " It is the largest number looked at; larger ones may do as well."
        )
    return text


def boundary_table(found: Figures) -> Table:
    heads = ("segmenter", "precision", "recall", "F1", "macro F1", "cuts", "gold cuts")
    rows = []
    for figures in found["segmenters"]:
        label = figures["label"]
        one = figures["boundaries"]
        scores = (share(one[name]) for name in ("precision", "recall", "f1", "macro_f1"))
        rows.append((label, *scores, number(one["found"]), number(one["gold"])))
    return heads, rows


def names_table(found: Figures) -> Table:
    heads = ("segmenter", "pairs", "align", "both whole", "align, of those cut")
    rows = []
    for figures in found["segmenters"]:
        label = figures["label"]
        one = figures["names"]
        rows.append(
            (
                label,
                number(one["pairs"]),
                share(one["share"]),
                number(one["both_whole"]),
                share(one["share_of_cut"]),
            )
        )
    return heads, rows


def stress_table(found: Figures) -> Table:
    """Unknown pieces and spoilt words by perturbation."""
    first = found["segmenters"][0]
    kinds = list(first["stress"])
    heads = ["segmenter", *(f"{kind}: {what}" for kind in kinds for what in ("<unk>", "spoilt"))]
    rows = []
    for figures in found["segmenters"]:
        label = figures["label"]
        row = [label]
        for kind in kinds:
            one = figures["stress"][kind]
            unknown = one["unknown_pieces"] / one["pieces"] if one["pieces"] else None
            row += [share(unknown), number(one["spoilt"])]
        rows.append(row)
    return heads, rows


def summary(found: Figures, seconds: Mapping[str, Mapping[str, float]]) -> str:
    """The main table for the terminal, and the suggestion."""
    heads, rows = main_table(found, seconds)
    lines = align([heads, *rows])
    if "sweep" in found:
        lines += ["", suggestion(found)]
    return "\n".join(lines)


# ---- words that explain the tables ----


def _text(found: Figures) -> str:
    training, held_out = found["training"], found["held_out"]
    sentences = training["sentences"]
    lines = f" in {sentences:,} sentences" if sentences is not None else ""
    return (
        f"Training text, {found['side']} side: {training['words']:,} words{lines}, "
        f"{training['word_types']:,} of them different. Held-out text: {held_out['words']:,} words."
    )


EXPLAINED = {
    "main": "Tokens and types are pieces of the training text and different pieces of it; a piece "
    "at a word's end is another than the same text inside. #UNK counts the pieces of the held-out "
    "text that the segmented training text does not have, as in Table 1 of Sennrich et al. (2016). "
    "<unk> counts what is unknown to rareword's vocabulary, which also has all characters of the "
    "training text and all pieces that the merges may make of them. Learning and applying are CPU "
    "seconds; applying is to the distinct words of the training text.",
    "sweep": "All numbers of merges are prefixes of one list, learnt once.",
    "boundaries": "Cuts inside words against those of the gold segmentations; of a word's "
    "alternatives the one with the highest F1. Macro F1 is of the words' mean precision and "
    "recall (BPR of Morpho Challenge).",
    "names": "Each side is cut by its own segmenter, or both by one if it is joint. Names are "
    "compared in small Latin letters (ISO 9). The pieces of two names align one to one if they are "
    "equally many and the edit distances of the first pieces, of the second pieces, and so on, add "
    "up to the edit distance of the names.",
    "stress": "One word of each of {stress_words} held-out lines is changed. <unk> is the share of "
    "its pieces that are unknown. A word is spoilt if the change made characters unknown that "
    "training knows.",
}


def _parts(found: Figures, seconds: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """The sections of the report: id, title, what it means, table."""
    first = found["segmenters"][0]
    stress_words = f"{found['stress_words']:,}"
    parts = [("main", "Segmenters", EXPLAINED["main"], main_table(found, seconds))]
    if "sweep" in found:
        text = f"{EXPLAINED['sweep']} {suggestion(found)}"
        parts.append(("sweep", "Numbers of merges", text, sweep_table(found)))
    if "boundaries" in first:
        text = f"{found['gold']['words']:,} words. {EXPLAINED['boundaries']}"
        parts.append(("boundaries", "Boundaries", text, boundary_table(found)))
    if "names" in first:
        names = found["names"]
        text = (
            f"{names['transliterations']:,} of {names['pairs']:,} pairs have equally many words "
            f"and differ in at most {share(names['max_distance'], 0)} of their letters; these are "
            f"compared. {EXPLAINED['names']}"
        )
        parts.append(("names", "Names in two languages", text, names_table(found)))
    text = EXPLAINED["stress"].format(stress_words=stress_words)
    parts.append(("stress", "Unknown characters and typing errors", text, stress_table(found)))
    return [
        {"id": id_, "title": title, "text": text, "heads": heads, "rows": rows}
        for id_, title, text, (heads, rows) in parts
    ]


# ---- Markdown ----


def markdown(found: Figures, seconds: Mapping[str, Mapping[str, float]]) -> str:
    """The whole report as Markdown."""
    lines = ["# Segmenters compared", "", _text(found)]
    for part in _parts(found, seconds):
        lines += ["", f"## {part['title']}", "", pages.markdown_text(part["text"]), ""]
        lines += pages.markdown_table(part["heads"], part["rows"])
    return "\n".join(lines) + "\n"


# ---- plots ----


def curves(
    id_: str,
    title: str,
    points: Sequence[Mapping[str, Any]],
    named: Mapping[str, Callable[[Mapping[str, Any]], float]],
    shown: Callable[[float], str],
    top: float | None = None,
    level: float | None = None,
    mark: int | None = None,
) -> Plot:
    """Figures by number of merges, on a logarithmic axis; no merges have no place on it.

    top: the highest y, else the highest value. level: a y, mark: a number of merges.
    """
    drawn = [point for point in points if point["merges"] > 0]
    sizes = [point["merges"] for point in drawn]
    x = Axis(min(sizes), max(sizes), SMALL.left, SMALL.right, is_log=True)
    highest = max((value(point) for value in named.values() for point in drawn), default=0)
    y = Axis(0, top or highest * 1.05 or 1, SMALL.bottom, SMALL.top)
    lines = []
    for place, (name, value) in enumerate(named.items()):
        places = [
            Point(
                x.place(point["merges"]),
                y.place(value(point)),
                f"{name + ', ' if name else ''}{point['merges']:,} merges: {shown(value(point))}",
            )
            for point in drawn
        ]
        lines.append(Line(name, places, Style(place)))
    return Plot(
        id_,
        title,
        f"A curve over {min(sizes):,} to {max(sizes):,} merges.",
        "merges",
        "",
        [(x.place(tick), short(tick)) for tick in x.ticks()],
        [(y.place(tick), shown(tick)) for tick in y.ticks()],
        lines,
        levels=[] if level is None else [y.place(level)],
        marks=[Mark(x.place(mark))] if mark else [],
    )


def scatter(found: Figures) -> Plot:
    """Every segmenter between length and types: the trade that the paper's Table 1 shows."""
    rows = [(one["label"], one["statistics"]) for one in found["segmenters"]]
    types = [max(one["types"], 1) for _, one in rows]
    lengths = [one["fertility"] for _, one in rows]
    x = Axis(min(types) / 1.5, max(types) * 1.5, SMALL.left, SMALL.right, is_log=True)
    y = Axis(min(lengths) * 0.9, max(lengths) * 1.1, SMALL.bottom, SMALL.top, is_log=True)
    dots = [
        Point(x.place(max(one["types"], 1)), y.place(one["fertility"]), label, str(number))
        for number, (label, one) in enumerate(rows, 1)
    ]
    return Plot(
        "figure-segmenters",
        "Pieces a word: " + ", ".join(f"{dot.label} {dot.text}" for dot in dots),
        "A dot for each segmenter, by its types and its pieces a word.",
        "types",
        "pieces/word",
        [(x.place(tick), short(tick)) for tick in x.ticks()],
        [(y.place(tick), short(tick)) for tick in y.ticks()],
        dots=dots,
    )


def sweep_plots(found: Figures) -> list[Plot]:
    """The curves over numbers of merges; none if fewer than two of them are above 0."""
    sweep = found["sweep"]
    points, rule = sweep["points"], sweep["suggestion"]
    if sum(point["merges"] > 0 for point in points) < 2:
        return []

    def at_least(occurrences: int, pieces: str) -> Callable[[Mapping[str, Any]], float]:
        return lambda point: _often(point, occurrences, pieces)

    def rarer(occurrences: int) -> Callable[[Mapping[str, Any]], float]:
        return lambda point: 1 - _often(point, occurrences, "all")

    occurrences = rule["occurrences"]
    shown = {"all pieces": "all", "merged pieces": "merged"}
    return [
        curves(
            "figure-frequent",
            f"Share of pieces that occur at least {occurrences:,} times",
            points,
            {name: at_least(occurrences, pieces) for name, pieces in shown.items()},
            percent,
            top=1.0,
            level=rule["share"],
            mark=rule["merges"],
        ),
        curves("figure-pieces", "Pieces a word", points, {"": lambda p: p["fertility"]}, short),
        curves("figure-types", "Types", points, {"": lambda p: p["types"]}, short),
        curves(
            "figure-unknown",
            "#UNK in the held-out text",
            points,
            {"": lambda p: p["unknown_tokens"]},
            short,
        ),
        curves(
            "figure-rare",
            "Share of pieces that occur less than so often",
            points,
            {f"{n:,} times": rarer(n) for n in sorted(set(sweep["rare"]))},
            percent,
        ),
    ]


def page(found: Figures, seconds: Mapping[str, Mapping[str, float]]) -> str:
    """The page: one HTML file without scripts and without other files."""
    plots = {"main": [scatter(found)]}
    if "sweep" in found:
        plots["sweep"] = sweep_plots(found)
    return pages.render(
        "compare_segmenters.html", text=_text(found), parts=_parts(found, seconds), plots=plots
    )
