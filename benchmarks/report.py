"""The tables and the ratios as Markdown."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from contestants import Row

TITLES = {
    "count": "Count words",
    "learn": "Learn merges",
    "segment": "Segment",
    "threads": "Two threads",
    "jobs": "Beam jobs, Parquet in to Parquet out, local runner, one process",
    "kinds": "Kinds of segmenters, each by its Beam jobs",
    "memory": "Memory of count-words",
    "scale": "Growth: learn-merges in rounds of best / 8",
}

CLOCKS = {"threads": "wall"}
"""Which seconds count; else those of the CPU."""


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def differing(rows: Sequence[Row]) -> list[str]:
    """The rows whose result must be that of their base and is not."""
    found = {row["name"]: row.get("digest", {}) for row in rows}
    return [
        row["name"]
        for row in rows
        if (key := row.get("same")) and row.get("digest") and found.get(base_name(row, rows))
        and row["digest"].get(key) != found[base_name(row, rows)].get(key)
    ]  # fmt: skip


def base_name(row: Row, rows: Sequence[Row]) -> str:
    return str(row["base"] or rows[0]["name"])


def speed(rows: Sequence[Row], name: str, clock: str = "cpu", start: str = "") -> float | None:
    """MB/s of a row; less the seconds of the row `start`. None if the row was skipped."""
    by_name = {row["name"]: row for row in rows if clock in row}
    if name not in by_name or (start and start not in by_name):
        return None
    seconds = by_name[name][clock] - (by_name[start][clock] if start else 0.0)
    return float(by_name[name]["megabytes"] / max(seconds, 1e-9))


def show_speeds(table: str, rows: Sequence[Row]) -> str:
    clock, wrong, lines = CLOCKS.get(table, "cpu"), differing(rows), []
    for row in rows:
        if "error" in row:
            lines.append([row["name"], *["-"] * 5, f"skipped: {row['error']}"])
            continue
        mine, base = speed(rows, row["name"], clock), speed(rows, base_name(row, rows), clock)
        digest = row["digest"]
        result = [
            f"{digest[key]:,} {key}" for key in ("types", "merges", "pieces") if key in digest
        ]
        if row["name"] in wrong:
            result.append("**not equal**")
        elif row["name"] != base_name(row, rows):
            result.append("equal" if row["same"] else "not compared")
        lines.append(
            [
                row["name"], f"{row['megabytes']:.1f}", f"{row['cpu']:.3f}", f"{row['wall']:.3f}",
                f"{mine:,.0f}" if mine and mine >= 100 else f"{mine:.3g}",
                f"{mine / base:.3f}" if mine and base else "-", ", ".join(result),
            ]
        )  # fmt: skip
    return markdown(["", "MB", "CPU s", "wall s", "MB/s", "base = 1", "result"], lines)


def show_kinds(table: str, rows: Sequence[Row]) -> str:
    """A row a kind, with the library that stands beside it."""
    wrong, lines = differing(rows), []
    for row, after in itertools.zip_longest(rows, rows[1:]):
        if "learning" not in row:
            continue
        tokens, pieces = (_both_sides(row["digest"], what) for what in ("tokens", "pieces"))
        new, unknown = (_both_sides(row["held_out"], what) for what in ("pieces", "unknown"))
        beside = ["", "", ""]
        if after is not None and "learning" not in after:
            same = " (**not equal**)" if after["name"] in wrong else ""
            beside = [
                f"{after['name']}{same}",
                f"{after['cpu']:.2f}",
                f"{after['cpu'] / row['cpu']:.2f}",
            ]
        learning = [sum(one[clock] for one in row["learning"]) for clock in ("cpu", "wall")]
        lines.append(
            [
                row["name"], *(f"{seconds:.1f}" for seconds in learning), f"{row['cpu']:.2f}",
                f"{speed(rows, row['name']):.3g}", f"{pieces / tokens:.2f}",
                f"{unknown / new:.2%}", *beside,
            ]
        )  # fmt: skip
    head = [
        "", "learn CPU s", "wall s", "segment CPU s", "MB/s", "pieces/word", "<unk>",
        "library alone", "CPU s", "library = 1",
    ]  # fmt: skip
    megabytes, size = rows[0]["megabytes"], rows[0]["size"]
    sides = f"{megabytes:.1f} MB, even lines source and odd ones target; {size:,} merges or pieces"
    return f"{sides}.\n\n{markdown(head, lines)}"


def _both_sides(figures: Mapping[str, int], what: str) -> int:
    return figures[f"source_{what}"] + figures[f"target_{what}"]


def show_memory(table: str, rows: Sequence[Row]) -> str:
    lines = [
        [
            text_name(row), f"{row['digest']['types']:,}", f"{row['cpu']:.1f}",
            f"{row['wall']:.1f}", f"{row['peak'] / 1e6:.0f}",
            f"{row['digest']['largest_element'] / 1e6:.1f}",
        ]
        for row in rows
    ]  # fmt: skip
    head = ["", "types", "CPU s", "wall s", "peak MB", "largest element MB"]
    return markdown(head, lines)


def show_scale(table: str, rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        times = [
            figure
            for job in (row["count-words"], row["learn-merges"])
            for figure in (f"{job['cpu']:.1f}", f"{job['wall']:.1f}", f"{job['peak'] / 1e6:.0f}")
        ]
        figures = [f"{row['merges']:,}", str(row["rounds"]), f"{row['chunk_share']:.1%}"]
        lines.append([text_name(row), f"{row['types']:,}", *times, *figures])
    head = [
        "", "types", "count CPU s", "wall s", "peak MB", "learn CPU s", "wall s", "peak MB",
        "merges", "rounds", "largest chunk table",
    ]  # fmt: skip
    return markdown(head, lines)


def text_name(row: Row) -> str:
    again = f", the text {row['passes']} times" if row["passes"] > 1 else ""
    return f"{row['megabytes']:.0f} MB{again}"


class Claim(NamedTuple):
    """What the project promises, and what was measured."""

    what: str
    wanted: str
    measured: float
    kept: bool


def claims(tables: Mapping[str, Sequence[Row]]) -> list[Claim]:
    """As far as the rows are there."""
    found: list[Claim] = []

    def ratio(
        what: str, bound: float, table: str, ours: str, theirs: Sequence[str],
        start: tuple[str, str] = ("", ""),
    ) -> None:  # fmt: skip
        """`ours` over the fastest of `theirs`; start: rows whose seconds are taken off."""
        rows, clock = tables.get(table, ()), CLOCKS.get(table, "cpu")
        mine = speed(rows, ours, clock, start[0])
        others = [s for name in theirs if (s := speed(rows, name, clock, start[1])) is not None]
        if mine is not None and others:
            measured = mine / max(others)
            found.append(Claim(what, f"≥ {bound:g} ×", measured, measured >= bound))

    def at_most(what: str, bound: float, measured: float) -> None:
        found.append(Claim(what, f"≤ {bound:g}", measured, measured <= bound))

    arrow = [row["name"] for row in tables.get("count", ()) if row["name"].startswith("pyarrow")]
    ratio("count words / pyarrow's fastest", 1.7, "count", "rareword", arrow)
    ratio("count words / Counter + split", 6, "count", "rareword", ["Counter + split"])
    for peer, bound in (("HF tokenizers", 9.0), ("sentencepiece", 5.0), ("YouTokenToMe", 5.0)):
        ratio(f"count + learn / {peer}", bound, "learn", "rareword", [peer])
    ratio("learn, same word table / subword-nmt", 200, "learn", "rareword, word table",
          ["subword-nmt, word table"])  # fmt: skip
    for temper, peer, bound in (
        ("cold", "HF tokenizers", 9), ("cold", "YouTokenToMe", 3.5), ("warm", "HF tokenizers", 25),
    ):  # fmt: skip
        ratio(f"segment, {temper} / {peer}", bound, "segment", f"rareword, {temper}", [peer])
    for kernel in ("count", "pairs", "chunks", "apply", "segment"):
        ratio(f"{kernel}, two threads / one", 1.7, "threads", f"{kernel}, 2 threads",
              [f"{kernel}, 1 thread"])  # fmt: skip
    job, book = "count-words job", "textbook pipeline"
    lines = (f"{job}, one line", f"{book}, one line")
    ratio(f"{job} / {book}", 8, "jobs", job, [f"{book}, sample"])
    ratio(f"{job} / {book}, both without start", 8, "jobs", job, [f"{book}, sample"], start=lines)
    for name, base in (("count-words", "count kernel"), ("segment", "segment kernel, cold")):
        own = f"{name} job"
        ratio(f"{own} / kernel", 0.5, "jobs", own, [base])
        ratio(f"{own} without start / kernel", 0.5, "jobs", own, [base],
              start=(f"{own}, one line", ""))  # fmt: skip
    for row in tables.get("memory", ()):
        name = f"count-words of {row['megabytes']:.0f} MB"
        at_most(f"{name}, peak MB", 1500, row["peak"] / 1e6)
        at_most(f"{name}, largest element MiB", 64, row["digest"]["largest_element"] / (1 << 20))
    for row in tables.get("scale", ()):
        name = f"{row['megabytes']:.0f} MB, {row['merges']:,} merges"
        at_most(f"{name}, rounds", 5, row["rounds"])
        at_most(f"{name}, largest chunk table, % of the symbols", 10, 100 * row["chunk_share"])
    return found


def show(results: Mapping[str, Any]) -> str:
    """All tables as Markdown, as they stand in docs/benchmarks.md."""
    parts, tables = [], {}
    for name, title in TITLES.items():
        if name not in results["tables"]:
            continue
        table = results["tables"][name]
        tables[name] = rows = table["rows"]
        body = {"kinds": show_kinds, "memory": show_memory, "scale": show_scale}.get(
            name, show_speeds
        )(name, rows)
        parts.append(f"### {title}\n\n{describe(table['run'])}\n\n{body}")
    lines = [
        [what, wanted, f"{measured:.3g}", "" if kept else "missed"]
        for what, wanted, measured, kept in claims(tables)
    ]
    if lines:
        parts.append("### Ratios\n\n" + markdown(["", "wanted", "measured", ""], lines))
    return "\n".join(parts)


def describe(run: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    missing = "".join(f" Not to be had: {pin} ({why})." for pin, why in run["missing"].items())
    load = "load {:.1f} at the start and {:.1f} at the end".format(*run["load"])
    return (
        f"{run['date']}, {run['text']}, {run['cpu']}, {run['cores']} cores, "
        f"{run['memory_gib']} GiB, {load}; medians of {run['repeats']} (memory and growth: one "
        f"run); {run['merges']:,} merges. {versions}.{missing}"
    )
