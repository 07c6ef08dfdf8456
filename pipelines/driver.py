"""What `rareword run` and `rareword experiment` do with a config: all its stages, in order."""

import argparse
import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

from rareword.pipelines import job as jobs
from rareword.pipelines import stages
from rareword.pipelines.job import Outcome
from rareword.pipelines.stages import Builder, Run, Stage
from rareword.schemas import manifest as manifests
from rareword.schemas import storage
from rareword.schemas.errors import RarewordError
from rareword.schemas.options import JobOptions, flag

CONFIG_NAME = "config.json"

_FLAGS = ("overwrite", "dry_run", "quiet")
"""Options of every job that the whole run hands on."""


def argument_parser(command: str, description: str) -> argparse.ArgumentParser:
    """The options of the command."""
    parser = argparse.ArgumentParser(
        prog=f"rareword {command}",
        description=f"{description} Stages that are finished are skipped; one that was "
        "interrupted goes on or starts again.",
        epilog="Beam's own pipeline options may follow, as --name=value; all Beam jobs get them.",
        allow_abbrev=False,
    )
    parser.add_argument("config", metavar="CONFIG.yaml", help=f"what to do: see docs/{command}.md")
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


def drive(
    builder: type[Builder],
    parser: argparse.ArgumentParser,
    argv: Sequence[str],
    end: Callable[[Run], str],
) -> int:
    """The command line: all stages, and then `end`, which gives the last lines to print."""
    given, beam_arguments = parser.parse_known_args(argv)
    jobs.check_beam_arguments(beam_arguments, list(parser._option_string_actions))
    flags = {name: getattr(given, name) for name in _FLAGS}
    run = stages.load(given.config, given.set, given.output, builder=builder, **flags)
    _check(run)
    if given.dry_run:
        _print_plans(run, beam_arguments)
        return 0
    started = time.monotonic()
    _check_record(builder.command, run, given.overwrite)
    _write_record(builder.command, run)
    outcomes = [_perform(stage, beam_arguments) for stage in run.stages]
    text = end(run)
    if not given.quiet:
        print(_table(run, outcomes, time.monotonic() - started), text, sep="\n\n")
    return 0


def _perform(stage: Stage, beam_arguments: Sequence[str]) -> Outcome:
    return jobs.perform(stage.job, stage.options, beam_arguments if stage.job.uses_beam else ())


def _check(run: Run) -> None:
    """Looks now at what later stages need: the development and test data, and the aligner."""
    for stage in run.stages:
        if stage.job.name == "prepare" and stage.needs:
            files: Any = stage.options
            # The rules come from a corpus that is not there yet; any others do for a look.
            stage.job.plan(
                dataclasses.replace(files, rules_from=None, tokenise="none", truecase="none")
            )
        if stage.job.name == "align":
            from rareword.transforms.alignment import aligner_library

            aligner_library()


def _print_plans(run: Run, beam_arguments: Sequence[str]) -> None:
    """The plan of each stage whose inputs are there, and what the others wait for."""
    finished = set()
    for stage in run.stages:
        missing = [name for name in stage.needs if name not in finished]
        if missing:
            print(f"{stage.job.name} would write {stage.options.output} after {', '.join(missing)}")
        elif _perform(stage, beam_arguments).manifest.directory:
            finished.add(stage.name)


def _check_record(command: str, run: Run, overwrite: bool) -> None:
    """Raises RarewordError for a directory of another program or command, and for finished stages
    that have got further inputs: now, not after the hours that these inputs take."""
    url = storage.join(run.output, CONFIG_NAME)
    if not storage.exists(url):
        return
    found = storage.read_json(url)
    if not isinstance(found, dict) or found.get("job") != command:
        raise RarewordError(f"{url} was not written by rareword {command}; choose another --output")
    for stage in run.stages:
        output, before = (
            stage.options.output,
            found.get("stages", {}).get(stage.name, {}).get("needs"),
        )
        if before is None or overwrite or not manifests.is_finished(output):
            continue
        if len(before) != len(stage.needs):
            raise RarewordError(
                f"--output: {output} was made of {len(before)} inputs and would now be made of "
                f"{len(stage.needs)}; choose another directory or add --overwrite, which keeps all "
                "that is as asked for"
            )


def _write_record(command: str, run: Run) -> None:
    """Writes the config with every option that it left to its default, for the record."""
    listed = {
        stage.name: {
            "job": stage.job.name,
            "needs": stage.needs,
            "options": dataclasses.asdict(stage.options),
        }
        for stage in run.stages
    }
    url = storage.join(run.output, CONFIG_NAME)
    storage.write_json(url, {"job": command, "config": run.config, "stages": listed})


def _table(run: Run, outcomes: Sequence[Outcome], seconds: float) -> str:
    """The stages with their rows and times."""
    from rareword.pipelines import pages

    rows = [("stage", "rows", "time")]
    for stage, outcome in zip(run.stages, outcomes, strict=True):
        size = f"{outcome.manifest.rows:,}" if outcome.manifest.shards else ""
        rows.append((stage.name, size, _time(outcome.seconds)))
    rows.append(("all", "", _time(seconds)))
    first, second, third = ("-" * max(map(len, column)) for column in zip(*rows, strict=True))
    rows.insert(1, (first, second, third))
    return "\n".join(pages.align(rows))


def _time(seconds: float | None) -> str:
    return "skipped" if seconds is None else f"{seconds:.1f} s"
