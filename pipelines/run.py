"""`rareword run CONFIG.yaml`: one system, and baselines, from raw text to the report."""

import argparse
from collections.abc import Sequence

from rareword.pipelines import driver, evaluate, stages
from rareword.pipelines.stages import Run
from rareword.schemas import storage


def argument_parser() -> argparse.ArgumentParser:
    """The options of `rareword run`."""
    return driver.argument_parser(
        "run", "Runs all jobs of an experiment, from raw text to the report."
    )


def run(argv: Sequence[str]) -> int:
    """The command line of `rareword run`."""
    return driver.drive("run", argument_parser(), argv, _end)


def _end(done: Run) -> str:
    """The figures of the report, and where it lies."""
    from rareword.pipelines import report

    directory = done.directory(stages.REPORT)
    figures = storage.read_json(storage.join(directory, evaluate.METRICS_NAME))
    names = [name for system in done.systems for name, _ in system.decoded]
    return "\n\n".join(
        [
            report.summary(figures, [*names, evaluate.COPY]),
            f"report: {storage.join(directory, evaluate.PAGE_NAME)}",
        ]
    )
