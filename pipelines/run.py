"""`rareword run CONFIG.yaml`: a whole experiment in one directory, finished stages skipped."""

import argparse
import dataclasses
import time
from collections.abc import Sequence
from typing import Any

from rareword.pipelines import evaluate
from rareword.pipelines import experiment as experiments
from rareword.pipelines import job as jobs
from rareword.pipelines.experiment import Experiment, Stage
from rareword.pipelines.job import Outcome
from rareword.schemas import storage
from rareword.schemas.errors import RarewordError
from rareword.schemas.options import JobOptions, flag

CONFIG_NAME = "config.json"

_FLAGS = ("overwrite", "dry_run", "quiet")
"""Options of every job that the whole run hands on."""


def argument_parser() -> argparse.ArgumentParser:
    """The options of `rareword run`."""
    parser = argparse.ArgumentParser(
        prog="rareword run",
        description="Runs all jobs of an experiment, from raw text to the report. Stages that are "
        "finished are skipped; one that was interrupted goes on or starts again.",
        epilog="Beam's own pipeline options may follow, as --name=value; all Beam jobs get them.",
        allow_abbrev=False,
    )
    parser.add_argument("config", metavar="CONFIG.yaml", help="the experiment: see docs/run.md")
    parser.add_argument("--output", metavar="DIR", help="run directory, instead of the config's")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="change a value of the config; may be given several times",
    )
    for field in dataclasses.fields(JobOptions):
        if field.name in _FLAGS:
            parser.add_argument(flag(field.name), action="store_true", help=field.metadata["help"])
    return parser


def run(argv: Sequence[str]) -> int:
    """The command line of `rareword run`."""
    parser = argument_parser()
    given, beam_arguments = parser.parse_known_args(argv)
    jobs.check_beam_arguments(beam_arguments, list(parser._option_string_actions))
    flags = {name: getattr(given, name) for name in _FLAGS}
    experiment = experiments.load(given.config, given.set, given.output, **flags)
    _check_data(experiment)
    if given.dry_run:
        _print_plans(experiment, beam_arguments)
        return 0
    started = time.monotonic()
    record = storage.join(experiment.output, CONFIG_NAME)
    _write_record(experiment, record)
    outcomes = [_perform(stage, beam_arguments) for stage in experiment.stages]
    if not given.quiet:
        print(_summary(experiment, outcomes, time.monotonic() - started))
    return 0


def _perform(stage: Stage, beam_arguments: Sequence[str]) -> Outcome:
    return jobs.perform(stage.job, stage.options, beam_arguments if stage.job.uses_beam else ())


def _check_data(experiment: Experiment) -> None:
    """Looks at the development and test data now, not after the hours the training data takes."""
    for stage in experiment.stages:
        if stage.job.name == "prepare" and stage.needs:
            files: Any = stage.options
            # The rules come from a corpus that is not there yet; any others do for a look.
            stage.job.plan(
                dataclasses.replace(files, rules_from=None, tokenise="none", truecase="none")
            )


def _print_plans(experiment: Experiment, beam_arguments: Sequence[str]) -> None:
    """The plan of each stage whose inputs are there, and what the others wait for."""
    finished = set()
    for stage in experiment.stages:
        missing = [name for name in stage.needs if name not in finished]
        if missing:
            print(f"{stage.job.name} would write {stage.options.output} after {', '.join(missing)}")
        elif _perform(stage, beam_arguments).manifest.directory:
            finished.add(stage.name)


def _write_record(experiment: Experiment, url: str) -> None:
    """Writes the config with every option that it left to its default, for the record."""
    if storage.exists(url):
        found = storage.read_json(url)
        if not isinstance(found, dict) or found.get("job") != "run":
            raise RarewordError(f"{url} was not written by rareword; choose another --output")
    stages = {
        stage.name: {"job": stage.job.name, "options": dataclasses.asdict(stage.options)}
        for stage in experiment.stages
    }
    storage.write_json(url, {"job": "run", "config": experiment.config, "stages": stages})


# ---- the summary ----


def _summary(experiment: Experiment, outcomes: Sequence[Outcome], seconds: float) -> str:
    """A table of the stages, the figures of the report, and where it lies."""
    from rareword.pipelines import pages, report

    rows = [("stage", "rows", "time")]
    for stage, outcome in zip(experiment.stages, outcomes, strict=True):
        size = f"{outcome.manifest.rows:,}" if outcome.manifest.shards else ""
        rows.append((stage.name, size, _time(outcome.seconds)))
    rows.append(("all", "", _time(seconds)))
    first, second, third = ("-" * max(map(len, column)) for column in zip(*rows, strict=True))
    rows.insert(1, (first, second, third))
    last: Any = experiment.stages[-1].options
    figures = storage.read_json(storage.join(last.output, evaluate.METRICS_NAME))
    systems = [last.name, *evaluate.baselines(last), evaluate.COPY]
    return "\n\n".join(
        [
            "\n".join(pages.align(rows)),
            report.summary(figures, systems),
            f"report: {storage.join(last.output, evaluate.PAGE_NAME)}",
        ]
    )


def _time(seconds: float | None) -> str:
    return "skipped" if seconds is None else f"{seconds:.1f} s"
