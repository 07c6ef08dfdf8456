"""`rareword segment`: corpus and merges -> segmented."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rareword.pipelines import job
from rareword.schemas import manifest as manifests
from rareword.schemas import merges as merge_files
from rareword.schemas import vocabulary as vocabularies
from rareword.schemas.errors import RarewordError
from rareword.schemas.manifest import Manifest, Plan
from rareword.schemas.options import JobOptions, flag, option, shaping
from rareword.schemas.tables import SEGMENTED, SIDES, ShardRecord, Side, file_record


@dataclass(frozen=True)
class SegmentOptions(JobOptions):
    corpus: str = option(help="directory that `prepare` wrote", shapes_result=False)
    segmenter: Literal["bpe", "bytes", "words"] = option(
        "bpe",
        help="byte-pair encoding of characters; of bytes (merges learnt with --units bytes); or "
        "every word a piece",
    )
    merges: str | None = option(
        None, help="`learn-merges` directory for both sides", shapes_result=False
    )
    source_merges: str | None = option(
        None, help="`learn-merges` directory for the source side", shapes_result=False
    )
    target_merges: str | None = option(
        None, help="`learn-merges` directory for the target side", shapes_result=False
    )
    words: str | None = option(
        None,
        help="`count-words` directory of the training corpus: makes the vocabulary from it",
        shapes_result=False,
    )
    vocabulary: str | None = option(
        None,
        help="`segment` directory of the training corpus: use its segmenter and vocabulary, for "
        "dev and test sets",
        shapes_result=False,
    )
    joint_vocabulary: Literal["auto", "yes", "no"] = option(
        "auto", help="one vocabulary for both sides; auto: if both have the same merges"
    )
    max_vocabulary_size: int = option(
        0,
        help="pieces in a vocabulary at most (0: no limit); characters lose their ids last",
        at_least=0,
    )
    min_piece_count: int = option(
        0,
        help="rarer pieces get no id and are split into smaller ones, characters always have one "
        "(words: are <unk>); 0 also keeps pieces that other words of the training text's "
        "characters may have",
        at_least=0,
    )
    kernel_threads: int = option(
        1, help="threads of one worker process", shapes_result=False, at_least=1
    )


def _inputs(options: SegmentOptions) -> dict[str, Manifest]:
    """The manifests of all inputs; RarewordError for options that do not go together."""
    found = {"corpus": manifests.read(options.corpus, "prepare", "--corpus")}
    if (options.words is None) == (options.vocabulary is None):
        raise RarewordError(
            "give --words (the training corpus: a vocabulary is made) or --vocabulary (dev and "
            "test: the training corpus' one is used), one of the two"
        )
    merges = {"merges": options.merges, "source_merges": options.source_merges,
              "target_merges": options.target_merges}  # fmt: skip
    given = {name for name, path in merges.items() if path is not None}
    if options.vocabulary is not None:
        if given:
            raise RarewordError(
                "--vocabulary brings its own segmenter; leave --merges, --source-merges and "
                "--target-merges out"
            )
        found["vocabulary"] = manifests.read(options.vocabulary, "segment", "--vocabulary")
        return found
    assert options.words is not None
    found["words"] = manifests.read(options.words, "count-words", "--words")
    if options.segmenter == "words":
        if given:
            raise RarewordError("--segmenter words takes no merges; leave them out")
    elif given not in ({"merges"}, {"source_merges", "target_merges"}):
        raise RarewordError(
            f"--segmenter {options.segmenter} needs --merges, or both --source-merges and "
            "--target-merges"
        )
    for name in sorted(given):
        learnt = manifests.read(str(merges[name]), "learn-merges", flag(name))
        units = learnt.rules["merges"].get("units", "characters")
        if (units == "bytes") != (options.segmenter == "bytes"):
            raise RarewordError(
                f"{flag(name)}: {merges[name]} was learnt on {units}; use --segmenter "
                f"{'bytes' if units == 'bytes' else 'bpe'}"
            )
        found[name] = learnt
    return found


def plan(options: SegmentOptions) -> Plan:
    inputs = _inputs(options)
    shape = {} if options.vocabulary is not None else shaping(options)
    return Plan(JOB.name, shape, {name: found.content for name, found in inputs.items()})


def _learnt(manifest: Manifest) -> list[merge_files.Merge]:
    return [merge for url in manifest.urls for merge in merge_files.read(url)]


def build(pipeline: Any, options: SegmentOptions, plan: Plan) -> None:
    import apache_beam as beam

    from rareword.transforms import segmenters
    from rareword.transforms.bpe import BpeSegmenter, Units
    from rareword.transforms.elements import Finish
    from rareword.transforms.segmenting import (
        BuildVocabulary,
        SegmentedShard,
        SegmenterPlace,
        SegmentShards,
        count_used,
    )

    inputs = _inputs(options)
    corpus = inputs["corpus"]
    both: dict[Side, segmenters.Segmenter]
    if "vocabulary" in inputs:
        train = inputs["vocabulary"]
        rules = train.rules["segmenter"]
        both = segmenters.load(train.directory, rules["kind"], rules["settings"])
    else:
        joint = options.merges is not None or options.segmenter == "words"
        wanted = options.joint_vocabulary == "yes" or (
            options.joint_vocabulary == "auto" and options.merges is not None
        )
        if options.segmenter == "words":
            both = dict.fromkeys(SIDES, segmenters.WordSegmenter())
        else:
            names = {side: "merges" if joint else f"{side}_merges" for side in SIDES}
            units: Units = "bytes" if options.segmenter == "bytes" else "characters"
            made = {
                name: BpeSegmenter(_learnt(inputs[name]), units) for name in set(names.values())
            }
            both = {side: made[name] for side, name in names.items()}
        rules = {
            "kind": options.segmenter,
            "settings": segmenters.settings(both),
            "joint_vocabulary": wanted,
        }
    files = segmenters.save(both, options.output)
    place = SegmenterPlace(
        options.output, rules["kind"], json.dumps(rules["settings"]), plan.fingerprint
    )
    if "vocabulary" in inputs:
        known = vocabularies.read_both(inputs["vocabulary"].directory)
        vocabularies.write_both(known, options.output)
        vocabulary = pipeline | "Vocabulary" >> beam.Create([known.hash])
    else:
        vocabulary = (
            pipeline
            | "WordShards" >> beam.Create(inputs["words"].urls)
            | "BuildVocabulary"
            >> BuildVocabulary(
                place,
                segmenters.VocabularyRules(
                    rules["joint_vocabulary"], options.max_vocabulary_size, options.min_piece_count
                ),
                options.output,
            )
        )

    def write(shards: list[SegmentedShard]) -> None:
        used = {side: count_used(shards, side) for side in SIDES}
        records = [shard.record for shard in shards]
        _finish(plan, options.output, corpus, records, used, files, rules)

    (
        pipeline
        | "Shards" >> beam.Create(list(enumerate(corpus.urls)))
        | "Spread" >> beam.Reshuffle()
        | "SegmentShards"
        >> SegmentShards(
            place,
            vocabulary,
            options.output,
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
    records: list[ShardRecord],
    used: Mapping[Side, int],
    files: list[ShardRecord],
    segmenter: dict[str, Any],
) -> None:
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
    manifests.check_balance(balance)
    vocabulary_files = [
        file_record(output, vocabularies.SOURCE_NAME, len(made.source)),
        file_record(output, vocabularies.TARGET_NAME, len(made.target)),
    ]
    manifests.finish(
        plan,
        output,
        SEGMENTED,
        records,
        files=[*files, *vocabulary_files],
        figures=figures,
        rules={**corpus.rules, "segmenter": segmenter, "vocabulary": made.hash},
    )


JOB = job.Job(
    name="segment",
    description="Segments a corpus into piece ids. The training corpus makes the vocabulary from\n"
    "its words; dev and test sets take segmenter and vocabulary from the training set.",
    options=SegmentOptions,
    plan=plan,
    work=job.beam_work(build),
    progress=job.count_files,
)


def run(argv: Sequence[str]) -> int:
    return job.run(JOB, argv)
