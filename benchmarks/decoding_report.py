"""The table and the ratios of decoding as Markdown."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from contestants import Row
from report import Claim, markdown
from training_report import describe_machine, describe_versions

TITLES = {
    "decoding": "Decoding beside JoeyNMT",
    "decoding, GPU": "Decoding beside JoeyNMT, GPU",
}
CLOCKS = {"cpu": "CPU", "wall": "clock"}
GPU_CLOCKS = {"wall": "clock"}
"""Whose seconds a promise is about, the first for batches; those of the CPU say little of a GPU."""
LEAST_SPEED = 3.0
"""rareword's sentences a second by JoeyNMT's, both in float32 and with their best batches."""
NOISE = 0.95
"""A larger batch must not be slower; how far below the smaller one a run of it may stay."""


def show_decoding(run: Row, rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        if "error" in row:
            lines.append([row["name"], str(row["beam"]), *["-"] * 9, f"skipped: {row['error']}"])
            continue
        speeds = []
        for clock in CLOCKS:
            mine, base = run["sentences"] / row[clock], _best(rows, row["beam"], "JoeyNMT", clock)
            low, high = (run["sentences"] / of(row["repeats"][clock]) for of in (max, min))
            spread = f"{low:.1f}-{high:.1f}" if run["repeats"] > 1 else ""
            by_base = f"{mine * base / run['sentences']:.2f}" if base else "-"
            speeds += [f"{mine:.1f}", spread, by_base]
        lines.append(
            [
                row["name"], str(row["beam"]), *speeds, f"{row['peak'] / 1e6:,.0f}",
                f"{row['gpu_peak'] / 1e6:,.0f}" if row["gpu_peak"] else "-",
                f"{row['pieces']:.1f}", f"{row['bleu']:.2f}",
            ]
        )  # fmt: skip
    head = [
        "", "beam", "sentences/CPU s", "repeats", "JoeyNMT = 1", "sentences/s", "repeats",
        "JoeyNMT = 1", "peak MB", "GPU MB", "pieces/sentence", "BLEU",
    ]  # fmt: skip
    return markdown(head, lines)


def _those(rows: Sequence[Row], beam: int, of: str) -> list[Row]:
    return [
        row
        for row in rows
        if row["beam"] == beam and row["name"].startswith(of) and "error" not in row
    ]


def _best(rows: Sequence[Row], beam: int, of: str, clock: str) -> float | None:
    """The fewest seconds among the rows whose names begin so; None if there is none."""
    return min((row[clock] for row in _those(rows, beam, of)), default=None)


def claims(tables: Mapping[str, Mapping[str, Any]]) -> list[Claim]:
    """What is promised, as far as the rows are there."""
    found: list[Claim] = []
    for table in TITLES:
        if table in tables:
            found += _claims(tables[table]["run"]["device"], tables[table]["rows"])
    return found


def _claims(device: str, rows: Sequence[Row]) -> list[Claim]:
    where, clocks = ("", CLOCKS) if device == "cpu" else (", GPU", GPU_CLOCKS)
    found = []
    for beam in dict.fromkeys(row["beam"] for row in rows):
        peers, ours = (_those(rows, beam, of) for of in ("JoeyNMT", "rareword, float32"))
        if peers and ours:
            for clock, name in clocks.items():
                ratio = min(row[clock] for row in peers) / min(row[clock] for row in ours)
                what = f"beam {beam}{where}, float32 / JoeyNMT by the {name}"
                found.append(Claim(what, f"≥ {LEAST_SPEED:g} ×", ratio, ratio >= LEAST_SPEED))
            less = min(row["bleu"] for row in ours) - max(row["bleu"] for row in peers)
            what = f"beam {beam}{where}, float32, BLEU less JoeyNMT's"
            found.append(Claim(what, "≥ 0", less, less >= 0))
        for small, large in itertools.pairwise(ours):
            sizes = [row["name"].split(", ")[-1].removesuffix(" pieces") for row in (small, large)]
            clock = next(iter(clocks))
            ratio = small[clock] / large[clock]
            what = f"beam {beam}{where}, float32, batches of {sizes[1]} pieces / {sizes[0]}"
            found.append(Claim(what, f"≥ {NOISE:g} ×", ratio, ratio >= NOISE))
    return found


def show(results: Mapping[str, Any]) -> str:
    """All tables as Markdown, as they stand in docs/benchmarks.md."""
    parts = []
    for name, title in TITLES.items():
        if name in results["tables"]:
            table = results["tables"][name]
            body = show_decoding(table["run"], table["rows"])
            parts.append(f"### {title}\n\n{describe(table['run'])}\n\n{body}")
    lines = [
        [what, wanted, f"{measured:.3g}", "" if kept else "missed"]
        for what, wanted, measured, kept in claims(results["tables"])
    ]
    if lines:
        parts.append("### Ratios of decoding\n\n" + markdown(["", "wanted", "measured", ""], lines))
    return "\n".join(parts)


def describe(run: Mapping[str, Any]) -> str:
    return (
        f"{describe_machine(run)}; {run['sentences']:,} sentences of the {run['text']}, "
        f"{run['source_pieces']:,} pieces; models of {run['updates']:,} updates, embeddings "
        f"{run['embedding']}, encoder 2 x {run['encoder_hidden']}, decoder {run['hidden']}; "
        f"medians of {run['repeats']}; {run['threads']} threads. {describe_versions(run)}"
    )
