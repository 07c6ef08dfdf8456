"""The tables and the ratios of training as Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

from contestants import Row
from report import Claim, markdown

TITLES = {
    "translation": "Training beside JoeyNMT",
    "translation, GPU": "Training beside JoeyNMT, GPU",
    "steps": "Random batches beside a plain loop",
    "steps, GPU": "Random batches beside a plain loop, GPU",
    "memory": "Memory of an update",
    "memory, GPU": "Memory of an update, GPU",
}
LEAST_SPEED = {"cpu": {"float32": 2.2, "bf16": 3.3}, "cuda": {"bf16": 20.0}}
"""Speeds by JoeyNMT's that are promised; bf16 on CPUs with instructions for it."""
LEAST_STEPS = {80: 4.0, 640: 3.8}
"""Speeds by the plain loop's in bf16 on a GPU, by batch; and the share of its peak:"""
LEAST_MFU = {640: 0.28}
PAPER_SIZES = {"embedding": 620, "hidden": 1000, "encoder_hidden": 1000}
MEMORY_MB = 8_000
AUTO_NOISE = 0.95
"""`auto` is one of the others; how far below that one a run of it may stay."""


def show_translation(run: Row, rows: Sequence[Row]) -> str:
    base, lines = rows[0].get("speed"), []
    for row in rows:
        if "error" in row:
            lines.append([row["name"], *["-"] * 7, f"skipped: {row['error']}"])
            continue
        low, high = min(row["runs"]), max(row["runs"])
        lines.append(
            [
                row["name"], f"{row['speed']:,.0f}",
                f"{low:,.0f}-{high:,.0f}" if len(row["runs"]) > 1 else "",
                f"{row['speed'] / base:.2f}" if base else "-", f"{row['peak'] / 1e6:,.0f}",
                f"{row['gpu_peak'] / 1e6:,.0f}" if row["gpu_peak"] else "-",
                f"{row['parameters'] / 1e6:.1f}",
                f"{row['dev_loss']:.3f}" if row["dev_loss"] is not None else "-",
                ", ".join(f"{bleu:.2f}" for bleu in row["bleu"].values()) or "-",
            ]
        )  # fmt: skip
    head = [
        "", "target tokens/s", "repeats", "JoeyNMT = 1", "peak MB", "GPU MB", "M parameters",
        "dev loss", "dev BLEU, greedy and beam 5",
    ]  # fmt: skip
    return markdown(head, lines)


def show_steps(run: Row, rows: Sequence[Row]) -> str:
    plain, lines = _plain(rows), []
    for row in rows:
        by_plain = row["speed"] / plain[row["batch"], row["precision"]] if "batch" in row else None
        lines.append(
            [
                row["name"], f"{row['speed']:,.0f}" if "speed" in row else "-",
                f"{by_plain:.2f}" if by_plain else "-", f"{row['flops'] / 1e12:,.2f}",
                f"{row['mfu']:.3f}", f"{row['peak'] / 1e6:,.0f}",
                f"{row['gpu_peak'] / 1e6:,.0f}" if row.get("gpu_peak") else "-",
            ]
        )  # fmt: skip
    head = [
        "", "target tokens/s", "plain loop = 1", "TFLOP/s", "MFU", "peak MB", "GPU MB"
    ]  # fmt: skip
    return markdown(head, lines)


def _plain(rows: Sequence[Row]) -> dict[tuple[int, str], float]:
    return {
        (row["batch"], row["precision"]): row["speed"]
        for row in rows
        if row["name"].startswith("plain loop")
    }


def show_memory(run: Row, rows: Sequence[Row]) -> str:
    lines = [
        [
            row["name"], f"{row['parameters'] / 1e6:.1f}", f"{row['cpu']:.1f}",
            f"{row['wall']:.1f}", f"{row['peak'] / 1e6:,.0f}",
            f"{row['gpu_peak'] / 1e6:,.0f}" if row["gpu_peak"] else "-",
        ]
        for row in rows
    ]  # fmt: skip
    head = ["", "M parameters", "CPU s, second update", "wall s", "peak MB", "GPU MB"]
    return markdown(head, lines)


def claims(tables: Mapping[str, Mapping[str, Any]]) -> list[Claim]:
    """What is promised, as far as the rows are there."""
    found: list[Claim] = []
    for name in tables:
        run, rows = tables[name]["run"], tables[name]["rows"]
        if name.startswith("translation"):
            found += _translation_claims(run, {row["name"]: row for row in rows})
        elif name == "steps, GPU" and all(run[key] == n for key, n in PAPER_SIZES.items()):
            found += _steps_claims(rows)
        elif name == "memory" and run["vocabulary"] == 90_000:
            found += [
                Claim(
                    f"an update of 90,000 pieces, {row['name']}, peak MB", f"≤ {MEMORY_MB:,}",
                    row["peak"] / 1e6, row["peak"] / 1e6 <= MEMORY_MB,
                )
                for row in rows
            ]  # fmt: skip
    return found


def _translation_claims(run: Row, rows: Mapping[str, Row]) -> list[Claim]:
    found, peer = [], rows.get("JoeyNMT", {})
    speeds = {name.removeprefix("rareword, "): row["speed"] for name, row in rows.items()
              if "speed" in row and row is not peer}  # fmt: skip
    where = "" if run["device"] == "cpu" else ", GPU"
    for precision, bound in LEAST_SPEED[run["device"]].items():
        wanted = precision == "float32" or where or run["bf16"]
        if precision in speeds and "speed" in peer and wanted:
            ratio = speeds[precision] / peer["speed"]
            what = f"training{where}, {precision} / JoeyNMT"
            found.append(Claim(what, f"≥ {bound:g} ×", ratio, ratio >= bound))
    if "auto" in speeds and len(speeds) > 1:
        ratio = speeds["auto"] / max(speed for name, speed in speeds.items() if name != "auto")
        what = f"training{where}, auto / the faster precision"
        found.append(Claim(what, f"≥ {AUTO_NOISE:g} ×", ratio, ratio >= AUTO_NOISE))
    for beam, bleu in peer.get("bleu", {}).items():
        for name, row in rows.items():
            if row is not peer and row.get("bleu"):
                what = f"{name}{where}, dev BLEU with beam {beam} less JoeyNMT's"
                found.append(
                    Claim(what, "≥ 0", row["bleu"][beam] - bleu, row["bleu"][beam] >= bleu)
                )
    return found


def _steps_claims(rows: Sequence[Row]) -> list[Claim]:
    found, plain = [], _plain(rows)
    for row in rows:
        batch = row.get("batch")
        if not row["name"].startswith("rareword, bf16"):
            continue
        if batch in LEAST_STEPS:
            ratio, bound = row["speed"] / plain[batch, "bf16"], LEAST_STEPS[batch]
            what = f"batch {batch}, bf16 / plain loop"
            found.append(Claim(what, f"≥ {bound:g} ×", ratio, ratio >= bound))
        if batch in LEAST_MFU:
            bound = LEAST_MFU[batch]
            found.append(
                Claim(f"batch {batch}, MFU", f"≥ {bound:g}", row["mfu"], row["mfu"] >= bound)
            )
    return found


def show(results: Mapping[str, Any]) -> str:
    """All tables as Markdown, as they stand in docs/benchmarks.md."""
    parts, shown = [], {"translation": show_translation, "steps": show_steps, "memory": show_memory}
    for name, title in TITLES.items():
        if name in results["tables"]:
            table = results["tables"][name]
            body = shown[name.split(",")[0]](table["run"], table["rows"])
            parts.append(f"### {title}\n\n{describe(table['run'])}\n\n{body}")
    lines = [
        [what, wanted, f"{measured:.3g}", "" if kept else "missed"]
        for what, wanted, measured, kept in claims(results["tables"])
    ]
    if lines:
        parts.append("### Ratios of training\n\n" + markdown(["", "wanted", "measured", ""], lines))
    return "\n".join(parts)


def describe_machine(run: Mapping[str, Any]) -> str:
    load = "load {:.1f} at the start and {:.1f} at the end".format(*run["load"])
    gpu = f", {run['gpu']}" if "gpu" in run else ""
    return (
        f"{run['date']}, {run['cpu']}, {run['cores']} cores, {run['memory_gib']} GiB{gpu}, {load}"
    )


def describe_versions(run: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    missing = "".join(f" Not to be had: {pin} ({why})." for pin, why in run["missing"].items())
    return f"{versions}.{missing}"


def describe(run: Mapping[str, Any]) -> str:
    text = f"{' and '.join(run['text'])}, joint BPE of {run['merges']:,} merges; "
    sizes = (
        f"embeddings {run['embedding']}, encoder 2 x {run['encoder_hidden']}, decoder "
        f"{run['hidden']}, batch {' and '.join(map(str, run['batches']))}"
    )
    work = {
        "translation": f"{run['updates']:,} updates",
        "steps": f"{run['updates']} updates a repeat",
        "memory": "2 updates, float32",
    }[run["mode"]]
    if run["mode"] != "translation":
        text = ""
        sizes += f" x {run['length']} pieces, {run['vocabulary']:,} pieces a vocabulary"
    repeats = f", medians of {run['repeats']}" if run["repeats"] > 1 else ""
    return (
        f"{describe_machine(run)}; {text}{sizes}; {work}{repeats}; {run['threads']} threads. "
        f"{describe_versions(run)}"
    )
