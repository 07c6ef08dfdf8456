"""`rareword evaluate`: what the translations are worth, above all their rare and unseen words.

    translations, baselines, references, training words -> metrics.json and index.html

Runs in one process: a test set fits in memory, and of the training words only those of the test
set are kept. Every system is measured on the same sentences, found by their ids.
"""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rareword.pipelines import job
from rareword.pipelines.job import Job
from rareword.schemas import manifest as manifests
from rareword.schemas import options as typed_options
from rareword.schemas import storage
from rareword.schemas import vocabulary as vocabularies
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

if TYPE_CHECKING:
    from rareword.pipelines.systems import References, System
    from rareword.transforms.metrics import Band, Unigrams

METRICS_NAME, PAGE_NAME = "metrics.json", "index.html"
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
    segmented: str | None = option(
        None,
        help="directory that `segment` wrote for the test set; shows the pieces of the samples' "
        "sources and references",
        shapes_result=False,
    )
    baseline: tuple[str, ...] = option(
        (),
        help="NAME=DIR: translations of the same test set by other systems, such as words=DIR",
        shapes_result=False,
    )
    name: str = option("model", help="name of the system in the tables")
    rare_threshold: int = option(
        10, help="a word is rare if training had it, but at most so many times", at_least=1
    )
    bleu_tokenizer: Literal["13a", "intl", "zh", "char", "none"] = option(
        "13a", help="sacrebleu's tokeniser for BLEU; zh for Chinese, char for Japanese"
    )
    samples: int = option(20, help="sentences shown on the page", at_least=0)
    seed: int = option(1, help="seed for the choice of samples")


def plan(options: EvaluateOptions) -> Plan:
    """Checks that all inputs are finished and hold what is asked for."""
    inputs = {
        "translations": manifests.read(options.translations, "decode", "--translations"),
        "references": manifests.read(options.references, "prepare", "--references"),
        "words": manifests.read(options.words, "count-words", "--words"),
    }
    schemas = {"translations": TRANSLATIONS, "references": CORPUS, "words": WORDS}
    if options.segmented is not None:
        inputs["segmented"] = manifests.read(options.segmented, "segment", "--segmented")
        schemas["segmented"] = SEGMENTED
        if inputs["translations"].inputs["segmented"] != inputs["segmented"].content:
            raise RarewordError(
                f"--segmented: {options.segmented} is not what {options.translations} was decoded "
                "from; give the directory that was, or leave --segmented out"
            )
    for name, directory in baselines(options).items():
        inputs[f"baseline {name}"] = manifests.read(directory, "decode", "--baseline")
        schemas[f"baseline {name}"] = TRANSLATIONS
    for name, found in inputs.items():
        _check_files(found, schemas[name])
    return Plan(
        "evaluate",
        typed_options.shaping(options),
        {name: found.content for name, found in inputs.items()},
    )


def _check_files(found: Manifest, schema: TableSchema) -> None:
    for url in found.urls:
        open_parquet(url, schema).close()


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


# ---- measuring ----


def measure(
    system: "System", test: "References", training: Mapping[str, int], options: EvaluateOptions
) -> dict[str, Any]:
    """All figures of a system, as JSON values; shares and F1 from 0 to 1, BLEU and chrF to 100.

    training: how often the words of references and translations occurred in training.
    """
    from rareword.transforms import metrics

    bleu = metrics.bleu(system.texts, test.targets, options.bleu_tokenizer)
    exact = metrics.exact_matches(system.texts, test.targets)
    matches = metrics.match_words(system.words, test.target_words)
    return {
        "bleu": bleu._asdict(),
        "chrf2": metrics.chrf(system.texts, test.targets, 2)._asdict(),
        "chrf3": metrics.chrf(system.texts, test.targets, 3)._asdict(),
        "exact_matches": {"count": exact, "share": exact / len(test.ids)},
        "empty_outputs": sum(not text.strip() for text in system.texts),
        "unknown_pieces": sum(
            piece.removesuffix(vocabularies.SEPARATOR) == metrics.UNKNOWN
            for shown in system.pieces
            for piece in shown
        ),
        "unigrams": {
            name: _figures(matches.within(band, training))
            for name, band in metrics.classes(options.rare_threshold).items()
        },
        "unigrams_by_training_frequency": {
            str(band): _figures(matches.within(band, training)) for band in metrics.BANDS
        },
    }


def _figures(unigrams: "Unigrams") -> dict[str, int | float | None]:
    return {
        "matched": unigrams.matched,
        "produced": unigrams.produced,
        "expected": unigrams.expected,
        "precision": unigrams.precision,
        "recall": unigrams.recall,
        "f1": unigrams.f1,
    }


def count_reference_words(
    test: "References", training: Mapping[str, int], bands: Mapping[str, "Band"]
) -> dict[str, dict[str, int]]:
    """How many words of each band the references have: types and tokens."""
    words = Counter(word for sentence in test.target_words for word in sentence)
    found = {}
    for name, band in bands.items():
        inside = [count for word, count in words.items() if band.holds(training[word])]
        found[name] = {"types": len(inside), "tokens": sum(inside)}
    return found


def warnings(test: "References", systems: Sequence["System"]) -> list[str]:
    """What a reader of the figures should know."""
    found = []
    if not test.raw:
        found.append(
            "The references are the corpus with tokenisation and truecasing undone, not the "
            "original text: scores are comparable among these systems only. Prepare the test set "
            "with --keep-raw."
        )
    mean_length = sum(map(len, test.target_words)) / len(test.target_words)
    if mean_length < 4:
        found.append(
            f"References have {mean_length:.1f} words on average and BLEU counts sequences of up "
            "to four: it says little here, look at chrF and exact matches."
        )
    mark = vocabularies.SEPARATOR
    if not any(mark in reference for reference in test.targets):
        for system in systems:
            count = sum(mark in text for text in system.texts)
            if count:
                found.append(f"{count:,} outputs of {system.name} hold the piece mark {mark}.")
    return found


# ---- the job ----


def work(options: EvaluateOptions, plan: Plan, arguments: Sequence[str]) -> None:
    """Measures all systems and writes figures, page and manifest."""
    from rareword.pipelines import report
    from rareword.pipelines.systems import System, read_references, read_segmented, read_system
    from rareword.transforms import metrics

    test = read_references(options.references)
    systems = [
        read_system(options.name, options.translations, test, "--translations"),
        *(
            read_system(name, directory, test, "--baseline")
            for name, directory in baselines(options).items()
        ),
        System(COPY, test.sources, test.source_words),
    ]
    segmented = read_segmented(options.segmented, test) if options.segmented else None
    produced = {word for system in systems for words in system.words for word in words}
    expected = {word for words in test.target_words for word in words}
    words = manifests.read(options.words, "count-words", "--words")
    training = metrics.training_counts(words.urls, produced | expected)
    prepared = manifests.read(options.references, "prepare", "--references")
    found = {
        "sentences": len(test.ids),
        "rejected_references": prepared.figures["rejected"],
        "references": "raw" if test.raw else "restored",
        "rare_threshold": options.rare_threshold,
        "reference_words": count_reference_words(
            test, training, metrics.classes(options.rare_threshold)
        ),
        "reference_words_by_training_frequency": count_reference_words(
            test, training, {str(band): band for band in metrics.BANDS}
        ),
        "systems": {system.name: measure(system, test, training, options) for system in systems},
        "warnings": warnings(test, systems),
    }
    page = report.render(found, test, systems, segmented, training, options)
    storage.write_json(storage.join(options.output, METRICS_NAME), found)
    storage.write_bytes(storage.join(options.output, PAGE_NAME), page.encode())
    best = found["systems"][options.name]
    manifests.finish(
        plan,
        options.output,
        None,
        [],
        files=[file_record(options.output, name) for name in (METRICS_NAME, PAGE_NAME)],
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
        print(report.summary(found, [system.name for system in systems]))


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
