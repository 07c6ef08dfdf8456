"""`rareword count-words`: corpus -> words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rareword.pipelines import job
from rareword.schemas import manifest as manifests
from rareword.schemas.errors import RarewordError
from rareword.schemas.manifest import Manifest, Plan
from rareword.schemas.options import JobOptions, option, shaping
from rareword.schemas.tables import WORDS, ShardRecord


@dataclass(frozen=True)
class CountWordsOptions(JobOptions):
    corpus: str = option(help="directory that `prepare` wrote", shapes_result=False)
    previous: str | None = option(
        None,
        help="`count-words` directory of earlier data: its counts are added, so that only new data "
        "is read",
        shapes_result=False,
    )
    shards: int = option(8, help="output files; words are spread by a stable hash", at_least=1)
    kernel_threads: int = option(
        1, help="threads of one worker process", shapes_result=False, at_least=1
    )


def plan(options: CountWordsOptions) -> Plan:
    corpus, previous = _inputs(options)
    inputs = {"corpus": corpus.content}
    if previous is not None:
        inputs["previous"] = previous.content
    return Plan(JOB.name, shaping(options), inputs)


def _inputs(options: CountWordsOptions) -> tuple[Manifest, Manifest | None]:
    """The manifests of the corpus and of the earlier words; the same text rules must hold."""
    corpus = manifests.read(options.corpus, "prepare", "--corpus")
    if options.previous is None:
        return corpus, None
    previous = manifests.read(options.previous, JOB.name, "--previous")
    if previous.rules != corpus.rules:
        raise RarewordError(
            f"--previous: {options.previous} was counted on text that was prepared by other rules "
            f"than {options.corpus}; prepare the new text with --rules-from the old corpus"
        )
    return corpus, previous


def build(pipeline: Any, options: CountWordsOptions, plan: Plan) -> None:
    import apache_beam as beam

    from rareword.transforms.elements import Finish
    from rareword.transforms.words import CountWords, plan_items

    corpus, previous = _inputs(options)

    sizes = [shard.bytes for shard in corpus.shards]

    def tokens(side: str) -> int:
        before = previous.counter(f"{side}_tokens") if previous else 0
        return corpus.counter(f"{side}_tokens") + before

    def write(records: list[ShardRecord]) -> None:
        totals = {name: sum(r.counters[name] for r in records) for name in records[0].counters}
        manifests.check_balance(
            {
                f"{side} tokens of the corpus (and --previous) and of the words": (
                    tokens(side),
                    totals[f"{side}_tokens"],
                )
                for side in ("source", "target")
            }
        )
        manifests.finish(plan, options.output, WORDS, records, figures=totals, rules=corpus.rules)

    (
        pipeline
        | "Items"
        >> beam.Create(
            plan_items(
                zip(corpus.urls, sizes, strict=True), previous.urls if previous is not None else ()
            )
        )
        | "CountWords" >> CountWords(options.output, options.shards, options.kernel_threads)
        | "Finish" >> Finish(write)
    )


JOB = job.Job(
    name="count-words",
    description="Counts the words of both sides of a corpus; words are split at spaces.",
    options=CountWordsOptions,
    plan=plan,
    work=job.beam_work(build),
    progress=job.count_files,
)


def run(argv: Sequence[str]) -> int:
    return job.run(JOB, argv)
