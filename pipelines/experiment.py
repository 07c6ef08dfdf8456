"""`rareword experiment CONFIG.yaml`: systems side by side on one corpus, as in the paper.

Several models of each system (a seed each), their ensemble, one report on all, and tables of what
it measured.

    corpus/{train,dev,test}   words   dictionary   report   tables.md   tables.json
    systems/NAME/{merges,segmenter}   systems/NAME/segmented/{train,dev,test}
    systems/NAME/models/seed-1 ...   systems/NAME/translations/{seed-1 ...,ensemble}
"""

import argparse
from collections.abc import Iterator, Sequence

from rareword.pipelines import driver, evaluate, stages
from rareword.pipelines.stages import Builder, Recipe, Run, System
from rareword.schemas import storage
from rareword.schemas.errors import RarewordError

FIGURES_NAME, TABLES_NAME = "tables.json", "tables.md"


class ExperimentBuilder(Builder):
    """The config of `rareword experiment`."""

    command = "experiment"
    required = (*Builder.required, "systems")
    optional = ("seeds", "ensemble")

    def recipes(self) -> Iterator[Recipe]:
        recipes = list(self.several("systems", "systems"))
        if not recipes:
            raise RarewordError(f"{self.where}: systems: name one at least")
        return iter(recipes)

    def _seeds(self) -> list[int]:
        seeds = self.config.get("seeds", [1])
        listed = seeds if isinstance(seeds, list) else [seeds]
        if not listed or not all(type(seed) is int for seed in listed):
            raise RarewordError(f"{self.where}: seeds: expected whole numbers, found {seeds!r}")
        if len(set(listed)) < len(listed):
            raise RarewordError(f"{self.where}: seeds: {listed} has one twice; give each once")
        return listed

    def _has_ensemble(self, recipe: Recipe, seeds: Sequence[int]) -> bool:
        """Whether all models of a system translate together too."""
        wanted = self.config.get("ensemble")
        if wanted is not None and type(wanted) is not bool:
            raise RarewordError(f"{self.where}: ensemble: expected true or false, found {wanted!r}")
        several = len(seeds) > 1 or recipe.trains_ensemble
        if wanted and not several:
            raise RarewordError(
                f"{self.where}: ensemble: {recipe.name} has one model only; give two seeds or more"
            )
        return several and wanted is not False

    def system(self, recipe: Recipe) -> System:
        seeds = self._seeds()
        if "seed" in recipe.sections["train"]:
            raise RarewordError(
                f"{self.where}: train: 'seed' is set by the run itself; give 'seeds' beside "
                "'systems'"
            )
        segmenter, segmented = self.segmented(recipe)
        models, translations = [], []
        for seed in seeds:
            models.append(self.train(recipe, f"models/seed-{seed}", segmented, seed=seed))
            members = {"members": "best"} if recipe.trains_ensemble else {}
            name = f"{recipe.name} seed {seed}" if len(seeds) > 1 else recipe.name
            found = self.decode(recipe, f"seed-{seed}", segmented["test"], models[-1:], **members)
            translations.append((name, found))
        ensemble = None
        if self._has_ensemble(recipe, seeds):
            members = {"members": "all"} if recipe.trains_ensemble else {}
            found = self.decode(recipe, "ensemble", segmented["test"], models, **members)
            ensemble = (f"{recipe.name} ensemble", found)
        return System(
            recipe.name,
            segmenter,
            segmented["test"],
            tuple(models),
            tuple(translations),
            ensemble,
        )


def argument_parser() -> argparse.ArgumentParser:
    """The options of `rareword experiment`."""
    return driver.argument_parser(
        ExperimentBuilder.command,
        "Trains and compares systems on one corpus, with several models of each and their "
        "ensembles, and writes the paper's tables for it.",
    )


def run(argv: Sequence[str]) -> int:
    """The command line of `rareword experiment`."""
    return driver.drive(ExperimentBuilder, argument_parser(), argv, _end)


def _end(done: Run) -> str:
    """Writes the tables; gives the main one, and where all lies."""
    from rareword.pipelines import experiment_tables, pages

    directory = done.directory(stages.REPORT)
    metrics = storage.read_json(storage.join(directory, evaluate.METRICS_NAME))
    found = experiment_tables.figures(done, metrics)
    heads, rows = experiment_tables.translation_table(found)
    names = {name: storage.join(done.output, name) for name in (FIGURES_NAME, TABLES_NAME)}
    storage.write_json(names[FIGURES_NAME], found)
    storage.write_bytes(names[TABLES_NAME], experiment_tables.markdown(found).encode())
    return "\n".join(
        [
            *pages.align([heads, *rows]),
            "",
            f"tables: {names[TABLES_NAME]}",
            f"report: {storage.join(directory, evaluate.PAGE_NAME)}",
        ]
    )
