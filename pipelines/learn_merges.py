"""`rareword learn-merges`: words -> merges."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rareword.pipelines import job
from rareword.schemas import manifest as manifests
from rareword.schemas import merges as merge_files
from rareword.schemas import storage
from rareword.schemas.errors import RarewordError
from rareword.schemas.manifest import Manifest, Plan
from rareword.schemas.merges import Merge
from rareword.schemas.options import JobOptions, option, shaping
from rareword.schemas.tables import MERGES, ShardRecord, file_record, shard_name, write_shard

LEARNT_NAME = "learnt.parquet"
CODES_NAME = "codes.txt"
ROUNDS_DIRECTORY = "rounds"


@dataclass(frozen=True)
class LearnMergesOptions(JobOptions):
    words: str = option(help="directory that `count-words` wrote", shapes_result=False)
    merges: int = option(32000, help="merges to learn", at_least=0)
    total_symbols: bool = option(
        False,
        help="let --merges be the number of all symbols: the characters of the words, those that "
        "end a word counted apart, are taken off it, as in subword-nmt",
    )
    min_frequency: int = option(
        2, help="stop when the best pair occurs less often, as in subword-nmt", at_least=1
    )
    side: Literal["joint", "source", "target"] = option(
        "joint", help="learn from the counts of both sides, or of one"
    )
    units: Literal["characters", "bytes"] = option(
        "characters",
        help="what the first merges join: characters, or the bytes of the UTF-8 text (256 base "
        "symbols, so no text is unknown)",
    )
    transliterate: Literal["none", "iso9"] = option(
        "none",
        help="iso9: learn on words with Cyrillic letters made Latin (ISO 9:1995), and write each "
        "merge in both scripts",
    )
    continue_from: str | None = option(
        None,
        help="go on from these merges: a `merges` directory or file, or a checkpoint",
        shapes_result=False,
    )
    shards: int = option(
        0, help="work items a round (0: one a word file)", shapes_result=False, at_least=0
    )
    parts: int = option(
        16, help="keys over which pairs and chunks are combined", shapes_result=False, at_least=1
    )
    divide: int = option(
        0,
        help="a round learns down to the best count divided by this (0: one round if the words "
        "have at most --max-chunk-symbols symbols, else 8)",
        shapes_result=False,
        at_least=0,
    )
    max_rounds: int = option(
        0,
        help="rounds to unroll, unneeded ones cost little (0: 3 if one should do, else 12)",
        shapes_result=False,
        at_least=0,
    )
    max_chunk_symbols: int = option(
        64_000_000,
        help="symbols that the learner may gather in a round (about 40 bytes of memory each)",
        shapes_result=False,
        at_least=1,
    )
    kernel_threads: int = option(
        1, help="threads of one worker process", shapes_result=False, at_least=1
    )


def plan(options: LearnMergesOptions) -> Plan:
    words = manifests.read(options.words, "count-words", "--words")
    inputs = {"words": words.content}
    if options.divide == 1:
        raise RarewordError("--divide: 1 leaves no room below the best count; use 2 or more, or 0")
    if options.units == "bytes" and options.transliterate != "none":
        raise RarewordError("--transliterate works on characters; leave out --units bytes")
    if options.continue_from is not None:
        inputs["continue_from"] = storage.sha256(_merges_url(options.continue_from, options.units))
        _start(options)
    return Plan(JOB.name, shaping(options), inputs)


def _merges_url(path: str, units: str) -> str:
    """The learnt merges of a `merges` directory, or the file itself."""
    if not storage.is_directory(path):
        return path
    found = manifests.read(path, JOB.name, "--continue-from")
    other = found.rules["merges"].get("units", "characters")
    if other != units:
        raise RarewordError(
            f"--continue-from: {path} was learnt on {other}, not {units}; use the same --units"
        )
    learnt = storage.join(path, LEARNT_NAME)
    return learnt if storage.exists(learnt) else storage.join(path, shard_name(0, 1))


def _start(options: LearnMergesOptions) -> list[Merge]:
    """The merges to go on from: the given ones, or those of a killed run if they are more."""
    from rareword.transforms.learn_merges import last_checkpoint

    given = (
        merge_files.read(_merges_url(options.continue_from, options.units))
        if options.continue_from is not None
        else []
    )
    rounds_url = storage.join(options.output, ROUNDS_DIRECTORY)
    kept = last_checkpoint(rounds_url) if storage.exists(rounds_url) else []
    return max(given, kept, key=len)[: options.merges]


def build(pipeline: Any, options: LearnMergesOptions, plan: Plan) -> None:
    import apache_beam as beam

    from rareword.transforms import rounds
    from rareword.transforms.learn_merges import LearnMerges, Reading, plan_shards

    words = manifests.read(options.words, "count-words", "--words")
    one_round = words.figures["symbols"] <= options.max_chunk_symbols
    rules = rounds.Rules(
        merges=options.merges,
        min_frequency=options.min_frequency,
        divide=options.divide or (rounds.ONE_ROUND if one_round else 8),
        parts=options.parts,
        max_chunk_symbols=options.max_chunk_symbols,
        total_symbols=options.total_symbols,
    )
    items = plan_shards(
        words.urls,
        words.content,
        options.shards or len(words.shards),
        Reading(options.side, options.units == "bytes", options.transliterate == "iso9"),
    )
    learn = LearnMerges(
        rules=rules,
        start=rounds.from_merges(_start(options), "the merges to go on from"),
        max_rounds=options.max_rounds or (3 if rules.divide == rounds.ONE_ROUND else 12),
        directory=storage.join(options.output, ROUNDS_DIRECTORY),
        kernel_threads=options.kernel_threads,
    )

    def write(control_url: str) -> None:
        finish(control_url, learn, words, options, plan)

    (
        pipeline
        | "Items" >> beam.Create(items)
        | "Spread" >> beam.Reshuffle()
        | "LearnMerges" >> learn
        | "Finish" >> beam.Map(write)
    )


def finish(
    control_url: str, learn: Any, words: Manifest, options: LearnMergesOptions, plan: Plan
) -> None:
    """Writes merges, codes and manifest from the last control; raises if the rounds ran out."""
    from rareword.transforms import learn_merges, rounds, transliteration

    learn_merges.forget_shards()
    control = rounds.read_control(control_url)
    learnt = list(learn_merges.check_finished(control, learn))
    both_scripts = options.transliterate == "iso9"
    merges = transliteration.with_cyrillic(learnt) if both_scripts else learnt
    output = options.output
    record = write_shard(output, shard_name(0, 1), MERGES, [merge_files.to_table(merges)])
    files = []
    if both_scripts:
        files.append(write_shard(output, LEARNT_NAME, MERGES, [merge_files.to_table(learnt)]))
    figures: dict[str, Any] = {
        "merges": len(learnt),
        "last_count": learnt[-1].count if learnt else 0,
    }
    if control.base_symbols is not None:
        figures["base_symbols"] = control.base_symbols
    try:
        if options.units == "bytes":
            raise RarewordError("codes files are of characters, and these merges of bytes")
        files.append(_write_codes(output, merge_files.to_codes(merges)))
    except RarewordError as error:
        figures["codes"] = f"not written: {error}"
    storage.write_json(storage.join(output, "rounds.json"), list(control.log))
    storage.remove(storage.join(output, ROUNDS_DIRECTORY))
    merge_rules = {"side": options.side, "units": options.units, "script": options.transliterate}
    manifests.finish(
        plan,
        output,
        MERGES,
        [record],
        files=files,
        figures=figures,
        rules={**words.rules, "merges": merge_rules},
    )


def _write_codes(output: str, text: str) -> ShardRecord:
    storage.write_bytes(storage.join(output, CODES_NAME), text.encode())
    return file_record(output, CODES_NAME, text.count("\n"))


def _progress(options: LearnMergesOptions) -> str:
    names = storage.list_files(storage.join(options.output, ROUNDS_DIRECTORY))
    done = [name for name in names if name.startswith("checkpoint-")]
    merges = int(max(done).removeprefix("checkpoint-").split(".")[0]) if done else 0
    return f"round {len(done) + 1}, {merges:,} of {options.merges:,} merges"


JOB = job.Job(
    name="learn-merges",
    description="Learns byte-pair merges, exactly, from word counts in shards.",
    options=LearnMergesOptions,
    plan=plan,
    work=job.beam_work(build),
    progress=_progress,
    resumes=True,
)


def run(argv: Sequence[str]) -> int:
    return job.run(JOB, argv)
