"""The tables of an evaluation in Markdown, made of its figures."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rareword.pipelines import pages
from rareword.pipelines.pages import Table, number, share

Figures = Mapping[str, Any]
KINDS = ("all", "rare", "unseen")
METRIC_NAMES = {"bleu": "BLEU", "chrf2": "chrF2", "chrf3": "chrF3", "chrf++": "chrF++"}


def markdown(found: Figures, names: Sequence[str]) -> str:
    """All tables with what they show. names: the systems in their order, the copied source last."""
    rare = (
        f"occurred 1 to {found['rare_threshold']:,} times in training"
        if found["rare_rank"] is None
        else f"occurred in training, but rank after its {found['rare_rank']:,} most frequent types"
    )
    lines = [
        "# Evaluation",
        "",
        f"{found['sentences']:,} sentences; the references have "
        f"{found['reference_words']['all']['tokens']:,} words, "
        f"{found['reference_words']['rare']['tokens']:,} of them rare and "
        f"{found['reference_words']['unseen']['tokens']:,} unseen. Rare words {rare}; unseen words "
        "never occurred there. `copy` is the source text as its own translation.",
    ]
    lines += [line for text in found["warnings"] for line in ("", f"**Note.** {_text(text)}")]
    for part in parts(found, names):
        title = f"{part.title}: {part.system}" if part.system else part.title
        lines += ["", f"## {_text(title)}", "", _text(part.text), ""]
        lines += pages.markdown_table(*part.table)
    own = found["systems"][names[0]]
    lines += ["", "## Signatures", ""]
    lines += [f"* {METRIC_NAMES[key]}: `{own[key]['signature']}`" for key in METRIC_NAMES]
    return "\n".join(lines) + "\n"


def _text(text: str) -> str:
    return pages.markdown_text(text)


class Part(NamedTuple):
    """A table with what it shows."""

    id: str
    title: str
    text: str
    table: Table
    system: str = ""
    """Of which alone it is."""


def parts(found: Figures, names: Sequence[str]) -> list[Part]:
    """All tables that have rows. names: the systems in their order, the copied source last."""
    tables = [
        Part(
            "systems",
            "Systems",
            "Scores from 0 to 100. F1 is that of words, clipped sentence by sentence.",
            systems_table(found, names),
        ),
        Part(
            "words",
            "Precision and recall of words",
            "Of the words that a system produced the share that its references have, and the other "
            "way round.",
            unigrams_table(found, names),
        ),
        Part(
            "ranks",
            "F1 by rank of training frequency",
            "Words that are equally frequent share the rank of the first of them, so a bin may "
            "have more or fewer types than ranks. The last row is of unseen words.",
            ranks_table(found, names),
        ),
        Part(
            "bands",
            "F1 by occurrences in training",
            "Words of the references by how often they occurred in training.",
            bands_table(found, names),
        ),
        Part(
            "classes",
            "Unseen words by class",
            "Recall: the share of the references' unseen words that a system produced. A word is "
            "of the first class that fits.",
            classes_table(found, names),
        ),
        *(
            Part(
                "confidence",
                "Unseen words by confidence",
                "Outputs whose score is below the threshold are replaced by their source.",
                threshold_table(found["systems"][name]),
                name,
            )
            for name in names
            if found["systems"][name]["unseen_by_threshold"]
        ),
        Part(
            "outputs",
            "Outputs",
            "Repeated: n-grams of words that follow upon themselves. Loops: words that have one to "
            "four characters four times in a row. Spaced stops: full stops at the end with a space "
            "before them.",
            outputs_table(found, names),
        ),
    ]
    if found["significance"]:
        test = found["significance"]
        name = {"bootstrap": "Paired bootstrap resampling"}.get(
            test["test"], "Approximate randomisation"
        )
        text = f"{name}, {test['trials']:,} trials, seed {test['seed']}."
        tables.append(Part("significance", "Significance", text, significance_table(test)))
    return [part for part in tables if part.table[1]]


def systems_table(found: Figures, names: Sequence[str]) -> Table:
    """The paper's Tables 2 and 3, and exact matches."""
    heads = ["system", *METRIC_NAMES.values(), "exact", *(f"F1 {kind}" for kind in KINDS)]
    rows = []
    for name in names:
        figures = found["systems"][name]
        rows.append(
            [
                name,
                *(number(figures[key]["value"], 1) for key in METRIC_NAMES),
                share(figures["exact_matches"]["share"]),
                *(share(figures["unigrams"][kind]["f1"]) for kind in KINDS),
            ]
        )
    return heads, rows


def unigrams_table(found: Figures, names: Sequence[str]) -> Table:
    parts = ("precision", "recall")
    heads = ["system", *(f"{kind}: {part}" for kind in KINDS for part in parts)]
    rows = [
        [
            name,
            *(
                share(found["systems"][name]["unigrams"][kind][part])
                for kind in KINDS
                for part in parts
            ),
        ]
        for name in names
    ]
    return heads, rows


def ranks_table(found: Figures, names: Sequence[str]) -> Table:
    """The paper's Figures 2 and 3."""
    heads = ["rank", "occurrences", "training types", "reference words", *names]
    rows = []
    for row in found["f1_by_training_rank"]:
        if not row["tokens"] and all(f1 is None for f1 in row["f1"].values()):
            continue
        rows.append(
            [
                "unseen" if row["to"] is None else span(row["from"], row["to"]),
                span(*row["occurrences"]) if row["occurrences"] else "–",
                number(row["training_types"]),
                number(row["tokens"]),
                *(share(row["f1"][name]) for name in names),
            ]
        )
    return heads, rows


def span(low: int, high: int) -> str:
    """`7`, or `7 to 9`."""
    return number(low) if low == high else f"{low:,} to {high:,}"


def bands_table(found: Figures, names: Sequence[str]) -> Table:
    """F1 in the bands of training frequency that the references have words of."""
    rows = [
        [
            band,
            number(words["types"]),
            number(words["tokens"]),
            *(
                share(found["systems"][name]["unigrams_by_training_frequency"][band]["f1"])
                for name in names
            ),
        ]
        for band, words in found["reference_words_by_training_frequency"].items()
    ]
    return ["occurrences", "reference types", "reference words", *names], rows


def classes_table(found: Figures, names: Sequence[str]) -> Table:
    rows = [
        [
            kind,
            number(counts["tokens"]),
            *(share(found["systems"][name]["unseen_by_class"][kind]["recall"]) for name in names),
        ]
        for kind, counts in found["reference_unseen_by_class"].items()
    ]
    return ["class", "reference words", *names], rows


def outputs_table(found: Figures, names: Sequence[str]) -> Table:
    own = found["reference_outputs"]
    heads = ["system", "length ratio", "empty", "at limit", "<unk>",
             *(f"repeated {n}-grams" for n in own["repeats"]), "loops", "spaced stops",
             *own["marks"]]  # fmt: skip
    rows: list[list[str]] = []
    for name in (*names, "references"):
        is_reference = len(rows) == len(names)
        figures = own if is_reference else found["systems"][name]["outputs"]
        unknown = None if is_reference else found["systems"][name]["unknown_pieces"]
        rows.append(
            [
                name,
                number(figures.get("length_ratio"), 3),
                share(figures.get("empty"), 2),
                share(figures.get("at_limit"), 2),
                number(unknown),
                *(share(repeated["share"], 2) for repeated in figures["repeats"].values()),
                share(figures["loops"]["share"], 2),
                share(figures["detached_stops"]["share"]),
                *(number(count) for count in figures["marks"].values()),
            ]
        )
    return heads, rows


def threshold_table(figures: Figures) -> Table:
    rows = [
        [
            "–" if row["threshold"] is None else f"{row['threshold']:.4f}",
            number(row["copied"]),
            number(row["produced"]),
            share(row["precision"]),
            share(row["recall"]),
            share(row["f1"]),
        ]
        for row in figures["unseen_by_threshold"]
    ]
    return ["threshold", "sentences copied", "unseen words", "precision", "recall", "F1"], rows


def significance_table(test: Figures) -> Table:
    rows = [
        [
            f"{row['system']} – {row['other']}",
            METRIC_NAMES[row["metric"]],
            f"{row['difference']:+.2f}",
            f"{row['p_value']:.4f}",
        ]
        for row in test["comparisons"]
    ]
    return ["systems", "metric", "difference", "p"], rows
