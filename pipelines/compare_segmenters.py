"""`rareword compare-segmenters CONFIG.yaml`: which segmenter suits a text, by measurement.

    training text, held-out text, gold segmentations, names -> comparison.json, .md, index.html

Runs in one process, on word tables. What is the same at each run stands in comparison.json, what a
machine makes of it (seconds) in seconds.json.
"""

import argparse
import dataclasses
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rareword.pipelines import comparison_config, job
from rareword.pipelines.comparison_config import Comparison, SegmenterOptions
from rareword.pipelines.job import Job
from rareword.schemas import manifest as manifests
from rareword.schemas import storage
from rareword.schemas.errors import RarewordError
from rareword.schemas.manifest import Plan
from rareword.schemas.options import JobOptions, flag, shaping
from rareword.schemas.tables import SIDES, Side, file_record

if TYPE_CHECKING:
    from rareword.pipelines.comparison_texts import Text
    from rareword.transforms.boundaries import Gold
    from rareword.transforms.comparison import NamePair
    from rareword.transforms.segmenters import Segmenter

RESULT_NAME, TIMES_NAME = "comparison.json", "seconds.json"
TABLE_NAME, PAGE_NAME = "comparison.md", "index.html"


@dataclass(frozen=True)
class CompareOptions(JobOptions):
    config: str = dataclasses.field(kw_only=True)
    """URL of the config file, for errors."""
    comparison: Comparison = dataclasses.field(kw_only=True)


def argument_parser() -> argparse.ArgumentParser:
    """The options of `rareword compare-segmenters`."""
    parser = argparse.ArgumentParser(
        prog="rareword compare-segmenters",
        description="Compares segmenters on a text: tokens, types and unknown pieces as in the "
        "paper's Table 1, numbers of merges, gold boundaries, names, unknown characters.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "config", metavar="CONFIG.yaml", help="the comparison: see docs/compare-segmenters.md"
    )
    parser.add_argument("--output", metavar="DIR", help="report directory, instead of the config's")
    for field in dataclasses.fields(JobOptions):
        if field.name != "output":
            parser.add_argument(flag(field.name), action="store_true", help=field.metadata["help"])
    return parser


def run(argv: Sequence[str]) -> int:
    """The command line of `rareword compare-segmenters`."""
    parser = argument_parser()
    given, unknown = parser.parse_known_args(argv)
    if unknown:
        job.refuse_arguments(unknown, list(parser._option_string_actions))
    value = comparison_config.read(given.config)
    output = given.output or value.get("output")
    if not isinstance(output, str) or not output:
        raise RarewordError(f"{given.config}: the key 'output' is missing (the report directory)")
    options = CompareOptions(
        output=output,
        overwrite=given.overwrite,
        dry_run=given.dry_run,
        quiet=given.quiet,
        config=given.config,
        comparison=comparison_config.check(value, given.config),
    )
    job.perform(JOB, options)
    return 0


def _other(side: Side) -> Side:
    return "source" if side == "target" else "target"


def _texts(options: CompareOptions) -> tuple["Text", "Text"]:
    """The training and the held-out text. Raises RarewordError if a side that is needed lacks."""
    from rareword.pipelines.comparison_texts import open_text

    wanted = options.comparison
    is_joint = any(one.joint for one in wanted.segmenters)
    is_joint = is_joint or wanted.names is not None
    is_joint = is_joint or (wanted.sweep is not None and wanted.sweep.joint)
    training: tuple[Side, ...] = SIDES if is_joint else (wanted.side,)
    return (
        open_text(wanted.training, f"{options.config}: training", training),
        open_text(wanted.held_out, f"{options.config}: held_out", (wanted.side,)),
    )


def plan(options: CompareOptions) -> Plan:
    """Checks the config, all inputs, and that each segmenter's kind and keys exist."""
    from rareword.pipelines import comparison_learning
    from rareword.pipelines.comparison_texts import read_names

    wanted, config = options.comparison, options.config
    training, held_out = _texts(options)
    inputs = {"training": training.content(), "held_out": held_out.content()}
    for one in wanted.segmenters:
        comparison_learning.check(one)
        if wanted.training.words is not None and comparison_learning.learns_from_lines(one):
            raise RarewordError(
                f"{one.where}: kind {one.kind!r} learns from lines, and {config}: training has "
                "words alone; give corpus, parquet, or source and target"
            )
    if wanted.held_out.words is not None:
        raise RarewordError(
            f"{config}: held_out.words: lines are needed; give corpus, parquet, or source and "
            "target"
        )
    if wanted.names is not None:
        read_names(wanted.names, f"{config}: names")
        inputs["names"] = storage.sha256(wanted.names.file)
    if wanted.gold is not None:
        _gold(options)
        inputs["gold"] = storage.sha256(wanted.gold.file)
    shape: dict[str, Any] = {
        "side": wanted.side,
        "segmenters": [one.to_json() for one in wanted.segmenters],
    }
    for name in comparison_config.SECTIONS:
        section = getattr(wanted, name)
        if section is not None:
            shape[name] = shaping(section)
    return Plan(JOB.name, shape, inputs)


def _gold(options: CompareOptions) -> "Gold | None":
    """The gold segmentations, if the config names any. Raises RarewordError naming the key."""
    from rareword.transforms import boundaries

    wanted = options.comparison.gold
    if wanted is None:
        return None
    layout = None if wanted.layout == "auto" else wanted.layout
    try:
        gold = boundaries.read_gold(wanted.file, layout, wanted.encoding)
    except RarewordError as error:
        raise RarewordError(f"{options.config}: gold: {error}") from error
    return gold.sample(wanted.words) if wanted.words else gold


# ---- the work ----


class _Clock:
    """CPU seconds of this process, by what they were spent on."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def measure(self, what: str) -> Iterator[None]:
        started = time.process_time()
        yield
        self.seconds[what] = time.process_time() - started


def work(options: CompareOptions, plan: Plan, arguments: Sequence[str]) -> None:
    """Measures everything and writes figures, table, page and manifest."""
    from rareword.pipelines import comparison_report
    from rareword.pipelines.comparison_texts import read_names
    from rareword.transforms import stress

    wanted = options.comparison
    training, held_out = _texts(options)
    names: list[NamePair] = []
    all_names = 0
    if wanted.names is not None:
        pairs = read_names(wanted.names, f"{options.config}: names")
        all_names = len(pairs)
        names = [pair for pair in pairs if pair.is_transliterated(wanted.names.max_distance)]
    sampled = stress.sample(
        list(held_out.lines(wanted.side)), wanted.stress.words, wanted.stress.seed
    )
    found: dict[str, Any] = {
        "side": wanted.side,
        "training": _size(training, wanted.side),
        "held_out": _size(held_out, wanted.side),
        "segmenters": [],
        "stress_words": len(sampled),
    }
    if wanted.names is not None:
        found["names"] = {
            "pairs": all_names,
            "transliterations": len(names),
            "max_distance": wanted.names.max_distance,
        }
    gold = _gold(options)
    if gold is not None:
        found["gold"] = {"words": len(gold.words), "rows": gold.rows, "skipped": gold.skipped}
    seconds: dict[str, dict[str, float]] = {}
    for one in wanted.segmenters:
        clock = _Clock()
        figures = _measure(one, wanted, training, held_out, sampled, names, gold, clock)
        found["segmenters"].append({**one.to_json(), **figures})
        seconds[one.label] = clock.seconds
        if not options.quiet:
            spent = ", ".join(f"{what} {spent:.1f} s" for what, spent in clock.seconds.items())
            print(f"{JOB.name}: {one.label}: {spent}", file=sys.stderr)
    if wanted.sweep is not None:
        found["sweep"] = _sweep(wanted, training, held_out)
    storage.write_json(storage.join(options.output, RESULT_NAME), found)
    storage.write_json(storage.join(options.output, TIMES_NAME), seconds)
    table = comparison_report.markdown(found, seconds)
    page = comparison_report.page(found, seconds)
    storage.write_bytes(storage.join(options.output, TABLE_NAME), table.encode())
    storage.write_bytes(storage.join(options.output, PAGE_NAME), page.encode())
    manifests.finish(
        plan,
        options.output,
        None,
        [],
        files=[
            file_record(options.output, name)
            for name in (RESULT_NAME, TIMES_NAME, TABLE_NAME, PAGE_NAME)
        ],
        figures={"segmenters": len(wanted.segmenters), "words": found["training"]["words"]},
        packages=("pyarrow", "numpy"),
    )
    if not options.quiet:
        print(comparison_report.summary(found, seconds))
        print(f"report: {storage.join(options.output, PAGE_NAME)}")


def _size(text: "Text", side: Side) -> dict[str, Any]:
    found = text.side(side)
    return {
        "words": int(found.words.counts.sum()),
        "word_types": len(found.words.counts),
        "sentences": found.sentences,
    }


def _measure(
    one: SegmenterOptions,
    wanted: Comparison,
    training: "Text",
    held_out: "Text",
    sampled: Sequence[str],
    names: Sequence["NamePair"],
    gold: "Gold | None",
    clock: _Clock,
) -> dict[str, Any]:
    """All figures of a segmenter."""
    from rareword.pipelines import comparison_learning
    from rareword.transforms import boundaries, comparison, stress

    side = wanted.side
    text = training.side(side)
    with clock.measure("learning"):
        segmenter = comparison_learning.learn(one, training, side)
    with clock.measure("applying"):
        counted = comparison.count_text(segmenter, text)
    vocabulary = comparison.training_vocabulary(segmenter, counted)
    encoder = segmenter.encoder(vocabulary)
    statistics = comparison.statistics(segmenter, encoder, counted, text, held_out.side(side))
    known = stress.characters_of(text.words.words)
    stressed = stress.stress(sampled, encoder, vocabulary, known, wanted.stress.seed)
    figures: dict[str, Any] = {
        "statistics": comparison.to_json(statistics),
        "stress": {kind: dataclasses.asdict(result) for kind, result in stressed.items()},
    }
    if gold is not None:
        figures["boundaries"] = dataclasses.asdict(boundaries.evaluate(segmenter, gold))
    if wanted.names is not None:
        other: Segmenter = segmenter
        if not one.joint:
            other = comparison_learning.learn(one, training, _other(side))
        both = {side: segmenter, _other(side): other}
        same = comparison.consistency(names, both["source"], both["target"])
        figures["names"] = comparison.to_json(same)
    return figures


def _sweep(wanted: Comparison, training: "Text", held_out: "Text") -> Mapping[str, Any]:
    """The sizes, and the one that the rule suggests."""
    from rareword.transforms import comparison

    options, rule = wanted.sweep, wanted.suggestion
    assert options is not None
    rules = comparison.BpeRules(
        options.units, options.transliterate == "iso9", options.min_frequency
    )
    learnt_from = training.words(None if options.joint else wanted.side)
    pairs = comparison.learn_pairs(learnt_from, max(options.merges), rules)
    sweep = comparison.Sweep(
        pairs,
        rules,
        training.words(wanted.side),
        held_out.words(wanted.side),
        [*options.rare, rule.occurrences],
    )
    sizes = sorted({min(size, sweep.learnt) for size in options.merges})

    def often(size: int) -> float:
        return sweep.point(size).share_at_least(rule.occurrences, rule.pieces == "merged")

    best = max(sizes, key=often)
    suggested = comparison.largest_size(lambda size: often(size) >= rule.share, sizes)
    return {
        **shaping(options),
        "learnt": sweep.learnt,
        "points": [comparison.to_json(point) for point in sweep.points],
        "suggestion": {
            **shaping(rule),
            "merges": suggested,
            "is_largest_looked_at": suggested == sizes[-1],
            "all_merges_learnt": sweep.learnt < max(options.merges),
            "best_share": often(best),
            "best_share_at": best,
        },
    }


JOB = Job(
    "compare-segmenters",
    "Compares segmenters on a text.",
    CompareOptions,
    plan,
    work,
    uses_beam=False,
)
