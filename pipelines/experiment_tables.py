"""The tables of an experiment in the form of the paper's Tables 2 and 3.

All scores are those of the evaluation's metrics.json; what is computed here is their mean and
range over the models of a system.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rareword.pipelines import evaluate, evaluation_tables, pages
from rareword.pipelines.pages import Table, number, share
from rareword.pipelines.stages import Run, System
from rareword.schemas import manifest as manifests
from rareword.schemas import storage
from rareword.schemas.manifest import Manifest

Figures = Mapping[str, Any]

KINDS = evaluation_tables.KINDS
SCORES = {"bleu": "BLEU", "chrf3": "chrF3"}
SHARES = {"exact": "exact", **{f"f1_{kind}": f"F1 {kind}" for kind in KINDS}}
"""Scores from 0 to 100, and shares from 0 to 1; null where there was nothing to divide by."""


def figures(done: Run, metrics: Figures) -> dict[str, Any]:
    """What goes to tables.json. metrics: the evaluation's metrics.json."""
    return {
        "languages": done.config["languages"],
        "sentences": metrics["sentences"],
        "rare_words": evaluation_tables.rare_words(metrics),
        "systems": {system.name: _system(done, system, metrics) for system in done.systems},
        evaluate.COPY: _scores(metrics, evaluate.COPY),
    }


def _system(done: Run, system: System, metrics: Figures) -> dict[str, Any]:
    segmenter = manifests.read(done.directory(system.segmenter), "learn-segmenter", "--output")
    models = [_model(done.directory(model)) for model in system.models]
    every = {name: _scores(metrics, name) for name, _ in system.translations}
    values = list(every.values())
    return {
        "segmenter": segmenter.rules["segmenter"]["kind"],
        "source_vocabulary": segmenter.figures["source_vocabulary"],
        "target_vocabulary": segmenter.figures["target_vocabulary"],
        "parameters": models[0].figures["parameters"],
        "updates": [model.figures["steps"] for model in models],
        "best_updates": [model.figures["best_step"] for model in models],
        "models": every,
        "single": {key: _spread([scores[key] for scores in values]) for key in values[0]},
        "ensemble": _scores(metrics, system.ensemble[0]) if system.ensemble else None,
    }


def _model(directory: str) -> Manifest:
    """A training's manifest; of several by `train-ensemble` the one that translates alone."""
    found = manifests.read(directory, ("train", "train-ensemble"), "--output")
    if found.job == "train":
        return found
    return manifests.read(storage.join(directory, found.figures["best"]), "train", "--output")


def _scores(metrics: Figures, name: str) -> dict[str, float | None]:
    """The figures of the tables out of those of the evaluation."""
    found = metrics["systems"][name]
    return {
        **{key: found[key]["value"] for key in SCORES},
        "exact": found["exact_matches"]["share"],
        **{f"f1_{kind}": found["unigrams"][kind]["f1"] for kind in KINDS},
    }


def _spread(values: Sequence[float | None]) -> dict[str, float | None]:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return {"mean": None, "min": None, "max": None}
    return {"mean": statistics.fmean(known), "min": min(known), "max": max(known)}


# ---- Markdown ----


def markdown(found: Figures) -> str:
    """All tables, with what they show."""
    models = max(len(system["models"]) for system in found["systems"].values())
    single = f"the mean of {models} (lowest–highest)" if models > 1 else "one of each system"
    languages = found["languages"]
    lines = [
        f"# {languages['source']} to {languages['target']}",
        "",
        f"{found['sentences']:,} test sentences. Single models: {single}. Ensembles: all models of "
        "a system together. F1 is that of words, clipped sentence by sentence. Rare words "
        f"{found['rare_words']}; unseen words never occurred there. `copy` is the source text as "
        "its own translation.",
    ]
    for title, (heads, rows) in (
        ("Translation", translation_table(found)),
        ("Systems", systems_table(found)),
        ("Single models", models_table(found)),
    ):
        lines += ["", f"## {title}", "", *pages.markdown_table(heads, rows)]
    return "\n".join(lines) + "\n"


def _cell(key: str, value: float | None) -> str:
    return share(value) if key in SHARES else number(value, 1)


def _range(key: str, spread: Figures, several: bool) -> str:
    mean = _cell(key, spread["mean"])
    if not several or spread["mean"] is None:
        return mean
    low, high = (_cell(key, spread[end]).removesuffix(" %") for end in ("min", "max"))
    return f"{mean} ({low}–{high})"


def translation_table(found: Figures) -> Table:
    """Single models and ensembles."""
    names = {**SCORES, **SHARES}
    systems = found["systems"]
    has_ensemble = any(system["ensemble"] for system in systems.values())
    heads = ["system"]
    for name in names.values():
        heads += [name, f"{name}, ensemble"] if has_ensemble else [name]
    rows = []
    for name, system in systems.items():
        row = [name]
        for key in names:
            row.append(_range(key, system["single"][key], len(system["models"]) > 1))
            if has_ensemble:
                row.append(_cell(key, system["ensemble"][key]) if system["ensemble"] else "–")
        rows.append(row)
    copy = [evaluate.COPY]
    for key in names:
        copy += [_cell(key, found[evaluate.COPY][key]), *["–"] * has_ensemble]
    return heads, [*rows, copy]


def systems_table(found: Figures) -> Table:
    """How large the systems are, and how long they were trained."""
    heads = ["system", "segmenter", "source vocabulary", "target vocabulary", "parameters",
             "updates", "of the best checkpoint"]  # fmt: skip
    rows = [
        [
            name,
            system["segmenter"],
            number(system["source_vocabulary"]),
            number(system["target_vocabulary"]),
            number(system["parameters"]),
            *(
                ", ".join(f"{count:,}" for count in system[key])
                for key in ("updates", "best_updates")
            ),
        ]
        for name, system in found["systems"].items()
    ]
    return heads, rows


def models_table(found: Figures) -> Table:
    """Every model by itself."""
    names = {**SCORES, **SHARES}
    rows = [
        [name, *(_cell(key, scores[key]) for key in names)]
        for system in found["systems"].values()
        for name, scores in system["models"].items()
    ]
    return ["model", *names.values()], rows
