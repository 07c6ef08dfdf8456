"""`rareword run CONFIG.yaml`: one system, and baselines beside it, from raw text to the report.

    corpus/{train,dev,test}   words   merges   segmenter   segmented/{train,dev,test}   model
    translations/test   report   baselines/NAME/{merges,segmenter,segmented,model,translations}

Each is the directory of a job.
"""

import argparse
from collections.abc import Iterator, Sequence

from rareword.pipelines import driver, evaluate, stages
from rareword.pipelines.stages import Builder, Recipe, Run, System
from rareword.schemas import storage


class RunBuilder(Builder):
    """The config of `rareword run`."""

    command = "run"
    required = (*Builder.required, "segmenter")
    optional = ("baselines",)

    def recipes(self) -> Iterator[Recipe]:
        name = self.config["segmenter"]
        segmenter = self.segmenter(name, "segmenter")
        yield Recipe(name, segmenter, "", "", self.sections, stages.ENSEMBLE_SECTION in self.config)
        yield from self.several("baselines", "baselines", (name,))

    def system(self, recipe: Recipe) -> System:
        segmenter, segmented = self.segmented(recipe)
        model = self.train(recipe, "model", segmented)
        translations = self.decode(recipe, "test", segmented["test"], [model])
        decoded = ((recipe.name, translations),)
        return System(recipe.name, segmenter, segmented["test"], (model,), decoded)


def argument_parser() -> argparse.ArgumentParser:
    """The options of `rareword run`."""
    return driver.argument_parser(
        RunBuilder.command, "Runs all jobs of an experiment, from raw text to the report."
    )


def run(argv: Sequence[str]) -> int:
    """The command line of `rareword run`."""
    return driver.drive(RunBuilder, argument_parser(), argv, _end)


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
