"""`rareword experiment CONFIG.yaml`: systems side by side on one corpus, as in the paper.

Several models of each system (a seed each), their ensemble, one report on all, and tables of what
it measured.
"""

import argparse
from collections.abc import Sequence

from rareword.pipelines import driver, evaluate, stages
from rareword.pipelines.stages import Run
from rareword.schemas import storage

FIGURES_NAME, TABLES_NAME = "tables.json", "tables.md"


def argument_parser() -> argparse.ArgumentParser:
    """The options of `rareword experiment`."""
    return driver.argument_parser(
        "experiment",
        "Trains and compares systems on one corpus, with several models of each and their "
        "ensembles, and writes the paper's tables for it.",
    )


def run(argv: Sequence[str]) -> int:
    """The command line of `rareword experiment`."""
    return driver.drive("experiment", argument_parser(), argv, _end)


def _end(done: Run) -> str:
    """Writes the tables; gives the main one, and where all lies."""
    from rareword.pipelines import experiment_tables, report

    directory = done.directory(stages.REPORT)
    metrics = storage.read_json(storage.join(directory, evaluate.METRICS_NAME))
    found = experiment_tables.figures(done, metrics)
    heads, rows = experiment_tables.translation_table(found)
    names = {name: storage.join(done.output, name) for name in (FIGURES_NAME, TABLES_NAME)}
    storage.write_json(names[FIGURES_NAME], found)
    storage.write_bytes(names[TABLES_NAME], experiment_tables.markdown(found).encode())
    return "\n".join(
        [
            *report.align([heads, *rows]),
            "",
            f"tables: {names[TABLES_NAME]}",
            f"report: {storage.join(directory, evaluate.PAGE_NAME)}",
        ]
    )
