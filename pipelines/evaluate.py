"""`rareword evaluate`: what the translations are worth, above all their rare and unseen words.

    translations, baselines, references, training words -> metrics.json, metrics.md, index.html

Runs in one process: a test set fits in memory, and of the training words only those of the test
set, and of the parts of its unseen words, are kept. Every system is measured on the same sentences,
found by their ids.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rareword.pipelines import job
from rareword.pipelines.job import Job
from rareword.schemas import manifest as manifests
from rareword.schemas import options as typed_options
from rareword.schemas import storage
from rareword.schemas.errors import RarewordError
from rareword.schemas.manifest import Manifest, Plan
from rareword.schemas.options import JobOptions, option
from rareword.schemas.tables import (
    CORPUS,
    SEGMENTED,
    TRANSLATIONS,
    WORDS,
    TableSchema,
    file_record,
    open_parquet,
)

METRICS_NAME, TABLES_NAME, PAGE_NAME = "metrics.json", "metrics.md", "index.html"
COPY = "copy"
"""The baseline that is always there: the source text as its own translation."""


@dataclass(frozen=True)
class EvaluateOptions(JobOptions):
    translations: str = option(help="directory that `decode` wrote", shapes_result=False)
    references: str = option(
        help="directory that `prepare` wrote for the test set; with --keep-raw its untouched text "
        "is the reference",
        shapes_result=False,
    )
    words: str = option(
        help="directory that `count-words` wrote for the training data; says which words are rare",
        shapes_result=False,
    )
    segmented: tuple[str, ...] = option(
        (),
        help="directories that `segment` wrote for the test set, of one or several of the systems; "
        "shows the pieces of the samples' sources and references, and what outputs attend to",
        shapes_result=False,
    )
    baseline: tuple[str, ...] = option(
        (),
        help="NAME=DIR: translations of the same test set by other systems, such as words=DIR",
        shapes_result=False,
    )
    name: str = option("model", help="name of the system in the tables")
    rare_rank: int = option(
        50_000,
        help="a word is rare if training had it, but not among so many most frequent types",
        at_least=0,
    )
    rare_threshold: int | None = option(
        None,
        help="a word is rare if training had it, but at most so many times; instead of --rare-rank",
        at_least=1,
    )
    cognate_distance: float = option(
        0.3,
        help="an unseen word is a cognate or a transliteration of a source word if they differ in "
        "at most so large a share of the letters",
        at_least=0,
        at_most=1,
    )
    part_length: int = option(
        4, help="letters that each part of a compound has at least", at_least=1
    )
    significance: Literal["none", "bootstrap", "randomisation"] = option(
        "none",
        help="paired test of every two systems in BLEU and chrF: bootstrap resampling or "
        "approximate randomisation",
    )
    trials: int | None = option(
        None,
        help="trials of --significance; left out: 1,000 of bootstrap, 10,000 of randomisation",
        at_least=1,
    )
    bleu_tokenizer: Literal["13a", "intl", "zh", "char", "none"] = option(
        "13a", help="sacrebleu's tokeniser for BLEU; zh for Chinese, char for Japanese"
    )
    samples: int = option(20, help="sentences shown on the page", at_least=0)
    seed: int = option(1, help="seed for the choice of samples and for --significance")


MOST_MEMORY = 8 << 30
"""Bytes that a significance test may take."""


def plan(options: EvaluateOptions) -> Plan:
    """Checks that all inputs are finished and hold what is asked for."""
    inputs = {
        "translations": manifests.read(options.translations, "decode", "--translations"),
        "references": manifests.read(options.references, "prepare", "--references"),
        "words": manifests.read(options.words, "count-words", "--words"),
    }
    schemas = {"translations": TRANSLATIONS, "references": CORPUS, "words": WORDS}
    for name, directory in segmented(options).items():
        key = "segmented" if name == options.name else f"segmented {name}"
        inputs[key] = manifests.read(directory, "segment", "--segmented")
        schemas[key] = SEGMENTED
    for name, directory in baselines(options).items():
        inputs[f"baseline {name}"] = manifests.read(directory, "decode", "--baseline")
        schemas[f"baseline {name}"] = TRANSLATIONS
    for name, found in inputs.items():
        _check_files(found, schemas[name])
    if options.significance != "none":
        _check_significance(options, inputs["references"].rows)
    return Plan(
        "evaluate",
        typed_options.shaping(options),
        {name: found.content for name, found in inputs.items()},
    )


def _check_files(found: Manifest, schema: TableSchema) -> None:
    for url in found.urls:
        open_parquet(url, schema).close()


def _check_significance(options: EvaluateOptions, sentences: int) -> None:
    from rareword.transforms import significance

    test: Any = options.significance
    if not options.baseline:
        raise RarewordError("--significance: there are no two systems; give --baseline NAME=DIR")
    if options.seed < 1:
        raise RarewordError(
            f"--seed: {options.seed} cannot be the seed of --significance (sacrebleu takes 0 for "
            "none); choose 1 or more"
        )
    trials = options.trials or significance.DEFAULT_TRIALS[test]
    needed = significance.memory(test, sentences, trials)
    if needed > MOST_MEMORY:
        raise RarewordError(
            f"--significance: {trials:,} trials of {test} on {sentences:,} sentences take about "
            f"{needed / (1 << 30):,.0f} GiB, more than {MOST_MEMORY >> 30}; lower --trials, or "
            "test on fewer sentences"
        )


def baselines(options: EvaluateOptions) -> dict[str, str]:
    """The directories of --baseline by name. Raises RarewordError for a bad or a doubled name."""
    if options.name == COPY:
        raise RarewordError(f"--name: {COPY!r} is the name of the copied source; choose another")
    found: dict[str, str] = {}
    for text in options.baseline:
        name, equals, directory = text.partition("=")
        if not (name and equals and directory):
            raise RarewordError(f"--baseline: expected NAME=DIR, found {text!r}")
        if name in found or name in (options.name, COPY):
            raise RarewordError(f"--baseline: the name {name!r} is taken; choose another")
        found[name] = directory
    return found


def segmented(options: EvaluateOptions) -> dict[str, str]:
    """The directory of --segmented that a system was decoded from, by its name; systems of which it
    was not given are left out. Raises RarewordError for one that no system was decoded from."""
    directories = {
        manifests.read(directory, "segment", "--segmented").content: directory
        for directory in options.segmented
    }
    found = {}
    translations = [(options.name, options.translations, "--translations")]
    translations += [(name, other, "--baseline") for name, other in baselines(options).items()]
    for name, directory, flag in translations:
        content = manifests.read(directory, "decode", flag).inputs["segmented"]
        if content in directories:
            found[name] = directories[content]
    for directory in directories.values():
        if directory not in found.values():
            raise RarewordError(
                f"--segmented: {directory} is not what {options.translations} was decoded from, "
                "nor any --baseline; give the directory that was, or leave --segmented out"
            )
    return found


# ---- the job ----


def work(options: EvaluateOptions, plan: Plan, arguments: Sequence[str]) -> None:
    """Measures all systems and writes figures, page and manifest."""
    from rareword.pipelines import evaluation_tables, measuring, report
    from rareword.pipelines.systems import System, read_details, read_references, read_system

    test = read_references(options.references)
    systems = [
        read_system(options.name, options.translations, test, "--translations"),
        *(
            read_system(name, directory, test, "--baseline")
            for name, directory in baselines(options).items()
        ),
        System(COPY, test.sources, test.source_words),
    ]
    names = [system.name for system in systems]
    found, training = measuring.measure(test, systems, options)
    shown, cut = report.choose(test, training, options), segmented(options)
    details = {
        name: read_details(directory, cut.get(name), shown)
        for name, directory in {options.name: options.translations, **baselines(options)}.items()
    }
    page = report.render(found, test, systems, training, shown, details)
    tables = evaluation_tables.markdown(found, names)
    storage.write_json(storage.join(options.output, METRICS_NAME), found)
    storage.write_bytes(storage.join(options.output, TABLES_NAME), tables.encode())
    storage.write_bytes(storage.join(options.output, PAGE_NAME), page.encode())
    best = found["systems"][options.name]
    manifests.finish(
        plan,
        options.output,
        None,
        [],
        files=[
            file_record(options.output, name) for name in (METRICS_NAME, TABLES_NAME, PAGE_NAME)
        ],
        figures={
            "sentences": len(test.ids),
            "exact_matches": best["exact_matches"]["count"],
            "bleu": best["bleu"]["value"],
        },
        packages=("pyarrow", "sacrebleu"),
    )
    for warning in found["warnings"]:
        print(f"evaluate: {warning}", file=sys.stderr)
    if not options.quiet:
        print(report.summary(found, names))


JOB = Job(
    "evaluate",
    "Measures translations: BLEU, chrF, exact matches, rare and unseen words.",
    EvaluateOptions,
    plan,
    work,
    uses_beam=False,
)


def run(argv: Sequence[str]) -> int:
    """The command line of `rareword evaluate`."""
    return job.run(JOB, argv)
