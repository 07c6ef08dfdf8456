"""`rareword segment`: corpus and segmenter -> segmented."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rareword.pipelines import job, segmenter_directory
from rareword.schemas import manifest as manifests
from rareword.schemas import storage
from rareword.schemas import vocabulary as vocabularies
from rareword.schemas.errors import RarewordError
from rareword.schemas.manifest import Manifest, Plan
from rareword.schemas.options import JobOptions, option, shaping
from rareword.schemas.tables import SEGMENTED, SIDES, ShardRecord, Side


@dataclass(frozen=True)
class SegmentOptions(JobOptions):
    corpus: str = option(help="directory that `prepare` wrote", shapes_result=False)
    segmenter: str = option(
        help="directory that `learn-segmenter` wrote from the training corpus", shapes_result=False
    )
    kernel_threads: int = option(
        1, help="threads of one worker process", shapes_result=False, at_least=1
    )


def _inputs(options: SegmentOptions) -> tuple[Manifest, Manifest]:
    """The manifests of corpus and segmenter; the same text rules must hold."""
    corpus = manifests.read(options.corpus, "prepare", "--corpus")
    segmenter = manifests.read(options.segmenter, segmenter_directory.MAKERS, "--segmenter")
    # Of the text that an imported one was learnt on nothing is known.
    if segmenter.rules.get("text", corpus.rules["text"]) != corpus.rules["text"]:
        raise RarewordError(
            f"--segmenter: {options.segmenter} was learnt on text that was prepared by other rules "
            f"than {options.corpus}; prepare the corpus with --rules-from the training corpus"
        )
    return corpus, segmenter


def plan(options: SegmentOptions) -> Plan:
    corpus, segmenter = _inputs(options)
    inputs = {"corpus": corpus.content, "segmenter": segmenter.content}
    return Plan(JOB.name, shaping(options), inputs)


def build(pipeline: Any, options: SegmentOptions, plan: Plan) -> None:
    import apache_beam as beam

    from rareword.transforms.elements import Finish
    from rareword.transforms.segmenting import (
        SegmentedShard,
        SegmenterPlace,
        SegmentShards,
        count_used,
    )

    corpus, segmenter = _inputs(options)
    rules = segmenter.rules["segmenter"]
    place = SegmenterPlace(
        segmenter.directory, rules["kind"], json.dumps(rules["settings"]), segmenter.content
    )

    def write(shards: list[SegmentedShard]) -> None:
        used = {side: count_used(shards, side) for side in SIDES}
        records = [shard.record for shard in shards]
        _finish(plan, options.output, corpus, segmenter, records, used)

    (
        pipeline
        | "Shards" >> beam.Create(list(enumerate(corpus.urls)))
        | "SegmentShards"
        >> SegmentShards(
            place,
            segmenter.rules["vocabulary"],
            options.output,
            len(corpus.shards),
            options.kernel_threads,
        )
        | "Finish" >> Finish(write)
    )


def _finish(
    plan: Plan,
    output: str,
    corpus: Manifest,
    segmenter: Manifest,
    records: list[ShardRecord],
    used: Mapping[Side, int],
) -> None:
    files = [_copy(segmenter.directory, record, output) for record in segmenter.files]
    made = vocabularies.read_both(output)
    totals = {name: sum(r.counters[name] for r in records) for name in records[0].counters}
    balance = {"rows": (corpus.rows, sum(record.rows for record in records))}
    figures: dict[str, Any] = {}
    for side in SIDES:
        tokens, pieces = totals[f"{side}_tokens"], totals[f"{side}_pieces"]
        balance[f"{side} tokens"] = (corpus.counter(f"{side}_tokens"), tokens)
        figures |= {
            f"{side}_tokens": tokens,
            f"{side}_pieces": pieces,
            f"{side}_types": used[side],
            f"{side}_unknown": totals[f"{side}_unknown"],
            f"{side}_fertility": round(pieces / tokens, 4) if tokens else 0.0,
            f"{side}_vocabulary": len(getattr(made, side)),
        }
        if f"{side}_long_words" in totals:
            figures[f"{side}_long_words"] = totals[f"{side}_long_words"]
    manifests.check_balance(balance)
    manifests.finish(
        plan,
        output,
        SEGMENTED,
        records,
        files=files,
        figures=figures,
        rules={
            **corpus.rules,
            "segmenter": {**segmenter.rules["segmenter"], "fingerprint": segmenter.content},
            "vocabulary": made.hash,
        },
    )


def _copy(directory: str, record: ShardRecord, output: str) -> ShardRecord:
    """Copies a file of another job; its record holds for the copy."""
    url = storage.join(directory, record.name)
    with storage.open_read(url) as stream:
        data = stream.read()
    if hashlib.sha256(data).hexdigest() != record.checksum:
        raise RarewordError(
            f"{url} is not the file that its manifest names; run `rareword learn-segmenter` again "
            "with --overwrite"
        )
    storage.write_bytes(storage.join(output, record.name), data)
    return record


JOB = job.Job(
    name="segment",
    description="Segments a corpus into piece ids: training, dev and test sets by the segmenter "
    "and the\nvocabulary of the training corpus.",
    options=SegmentOptions,
    plan=plan,
    work=job.beam_work(build),
    progress=job.count_files,
)


def run(argv: Sequence[str]) -> int:
    return job.run(JOB, argv)
