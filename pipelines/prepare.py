"""`rareword prepare`: text files, TSV or Parquet -> a corpus of cleaned sentence pairs."""

import dataclasses
import functools
import itertools
import posixpath
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rareword.pipelines import job
from rareword.pipelines.job import Job, beam_work, count_files
from rareword.schemas import manifest, storage
from rareword.schemas.errors import RarewordError
from rareword.schemas.manifest import Manifest, Plan
from rareword.schemas.options import JobOptions, flag, option, shaping
from rareword.schemas.tables import CORPUS, REJECTED, SIDES, ShardRecord, iterate_row_groups

if TYPE_CHECKING:
    from rareword.transforms.corpus import CorpusFiles
    from rareword.transforms.reading import Part
    from rareword.transforms.text import TextRules

SHARD_BYTES = 64 << 20
"""Text a shard holds when --shards is 0."""

PART_BYTES = 64 << 20
"""Text of the row groups that one reader of a Parquet file takes."""

COMPRESSED_SUFFIXES = (".gz", ".xz", ".zst")
TEXT_PER_COMPRESSED_BYTE = 3
PAIR_BYTES = 1 << 10
"""Text of a pair, for --limit: more than any sentence pair is likely to have."""


@dataclass(frozen=True)
class PrepareOptions(JobOptions):
    source: tuple[str, ...] = option(
        (),
        help="text files of the source side, one sentence a line; files, globs and URLs, plain "
        "or .gz, .xz, .zst",
        shapes_result=False,
    )
    target: tuple[str, ...] = option(
        (),
        help="text files of the target side, as many as --source names and in the same order",
        shapes_result=False,
    )
    input: tuple[str, ...] = option(
        (),
        help="TSV files (also compressed) or Parquet files with both sides, instead of --source "
        "and --target",
        shapes_result=False,
    )
    format: Literal["suffix", "tsv", "parquet"] = option(
        "suffix", help="format of the --input files; by default .tsv or .parquet in their names"
    )
    source_column: str | None = option(
        None,
        help="column of the source side: a name, such as translation.en inside a struct, or a "
        "TSV column's number from 1 (default: source, in TSV 1)",
    )
    target_column: str | None = option(
        None, help="column of the target side (default: target, in TSV 2)"
    )
    tsv_header: bool = option(False, help="the first line of a TSV file names its columns")
    limit: int = option(
        0,
        help="rows to take: the first N of the input in its order, over all files, rejected ones "
        "counted; the rest is not read (and so not checked); 0 for all",
        at_least=0,
    )

    source_language: str | None = option(
        None, help="code such as en, for the tokeniser's and the detokeniser's rules"
    )
    target_language: str | None = option(None, help="the same for the target side")
    normalisation: Literal["NFC", "NFKC", "none"] | None = option(
        None, help="Unicode normal form (default: NFC)"
    )
    control_characters: Literal["space", "reject"] | None = option(
        None,
        help="control characters and white space other than U+0020 become a space, or their row "
        "is rejected (default: space)",
    )
    tokenise: Literal["moses", "none"] | None = option(
        None, help="tokeniser; decoding puts the words together again (default: moses)"
    )
    truecase: Literal["moses", "none"] | None = option(
        None, help="truecaser, learnt from this corpus (default: moses)"
    )
    rules_from: str | None = option(
        None,
        help="a corpus directory whose text rules and truecase models are taken: the training "
        "corpus, for dev and test data",
        shapes_result=False,
    )

    min_tokens: int = option(1, help="tokens that a side must have", at_least=1)
    max_tokens: int = option(0, help="tokens that a side may have; 0 for no bound", at_least=0)
    max_length_ratio: float = option(
        0.0,
        help="tokens of the longer side per token of the shorter one; 0 for no bound",
        at_least=0,
    )
    duplicates: Literal["keep", "drop"] = option(
        "keep", help="drop all but the first of equal pairs; needs --shuffle"
    )
    max_rejected: float = option(
        0.1,
        help="share of faulty rows (such as bytes that are not UTF-8) above which the job fails; "
        "rows that a filter takes out do not count",
        shapes_result=False,
        at_least=0,
        at_most=1,
    )

    shuffle: bool = option(
        True, help="shuffle over all shards; without, the order stays and a file is a shard"
    )
    shards: int = option(
        0, help="shards when shuffling; 0 for one per 64 MB of text", at_least=0, at_most=99_999
    )
    seed: int = option(1, help="seed of the shuffle", at_least=0, at_most=(1 << 63) - 1)
    keep_raw: bool = option(
        False, help="write the untouched text of the accepted rows too, as references"
    )


TEXT_RULES = (
    "source_language",
    "target_language",
    "normalisation",
    "control_characters",
    "tokenise",
    "truecase",
)
"""The options that are fields of TextRules."""


# ---- what is read ----


@dataclass(frozen=True)
class _Input:
    """The input of a run, found and checked."""

    parts: tuple["Part", ...]
    files: tuple[tuple[str, ...], ...]
    """URLs by file number: one, or source and target."""
    text_bytes: int
    """Text of all files; estimated where they are compressed."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names by file number (of a pair, the source's): URLs without their common folders."""
        paths = [urls[0].split("/") for urls in self.files]
        levels = zip(*(path[:-1] for path in paths), strict=False)
        common = sum(1 for _ in itertools.takewhile(lambda names: len(set(names)) == 1, levels))
        return tuple("/".join(path[common:]) for path in paths)


def _find_input(options: PrepareOptions) -> _Input:
    """Expands the globs, opens what has columns. Raises RarewordError for all that is wrong."""
    if options.input and (options.source or options.target):
        raise RarewordError("give --input, or --source and --target, not both")
    if options.input:
        return _find_tables(options)
    if not options.source or not options.target:
        raise RarewordError("no input: give --source and --target, or --input")
    return _find_text(options)


def _find_text(options: PrepareOptions) -> _Input:
    from rareword.transforms.reading import Part, TextPair

    for name in ("source_column", "target_column", "tsv_header"):
        if getattr(options, name):
            raise RarewordError(f"{flag(name)} is for --input; text files have no columns")
    sources = storage.expand(options.source, "--source")
    targets = storage.expand(options.target, "--target")
    if len(sources) != len(targets):
        raise RarewordError(
            f"--source names {len(sources)} files and --target {len(targets)}; they are read in "
            "pairs, so there must be equally many"
        )
    files = tuple(zip(sources, targets, strict=True))
    return _Input(
        tuple(Part(i, 0, TextPair(*pair)) for i, pair in enumerate(files)),
        files,
        sum(_text_bytes(url) for pair in files for url in pair),
    )


def _find_tables(options: PrepareOptions) -> _Input:
    from rareword.transforms.reading import Part, open_parquet_parts, open_tsv

    urls = storage.expand(options.input, "--input")
    parts: list[Part] = []
    text_bytes = 0
    for file, url in enumerate(urls):
        if _format(url, options.format) == "tsv":
            columns = options.source_column or "1", options.target_column or "2"
            parts.append(Part(file, 0, open_tsv(url, *columns, options.tsv_header)))
            text_bytes += _text_bytes(url)
        else:
            columns = options.source_column or "source", options.target_column or "target"
            for first_row, size, reader in open_parquet_parts(url, *columns, PART_BYTES):
                parts.append(Part(file, first_row, reader))
                text_bytes += size
    return _Input(tuple(parts), tuple((url,) for url in urls), text_bytes)


def _format(url: str, given: str) -> str:
    if given != "suffix":
        return given
    name = url
    for suffix in COMPRESSED_SUFFIXES:
        name = name.removesuffix(suffix)
    suffix = posixpath.splitext(name)[1]
    if suffix == ".tsv" or (suffix == ".parquet" and name == url):
        return suffix[1:]
    raise RarewordError(
        f"--input: {url} is neither .tsv (plain or compressed) nor .parquet; say which it is with "
        "--format"
    )


def _text_bytes(url: str) -> int:
    return storage.size(url) * (
        TEXT_PER_COMPRESSED_BYTE if url.endswith(COMPRESSED_SUFFIXES) else 1
    )


def _count_shards(options: PrepareOptions, found: _Input) -> int:
    if not options.shuffle:
        return len(found.files)
    size = min(found.text_bytes, options.limit * PAIR_BYTES or found.text_bytes)
    return options.shards or max(1, round(size / SHARD_BYTES))


# ---- what is done to the text ----


def _find_rules(options: PrepareOptions) -> tuple["TextRules", Manifest | None]:
    """The text rules, and the manifest of the corpus that they come from with --rules-from."""
    from rareword.transforms.text import TextRules

    given = {name: getattr(options, name) for name in TEXT_RULES}
    given = {name: value for name, value in given.items() if value is not None}
    if options.rules_from is None:
        return TextRules(**given), None
    if given:
        raise RarewordError(
            f"{flag(next(iter(given)))}: the text rules come from --rules-from "
            f"{options.rules_from}; leave it out"
        )
    corpus = manifest.read(options.rules_from, "prepare", "--rules-from")
    return TextRules.from_json(corpus.rules["text"]), corpus


def plan(options: PrepareOptions) -> Plan:
    """Finds and checks input and rules; the inputs' digests are those of their bytes."""
    found = _find_input(options)
    rules, corpus = _find_rules(options)
    if options.max_tokens and options.max_tokens < options.min_tokens:
        raise RarewordError(
            f"--max-tokens: {options.max_tokens} is below --min-tokens {options.min_tokens}"
        )
    if not options.shuffle and options.shards:
        raise RarewordError("--shards: without shuffling every input file is a shard; leave it out")
    if not options.shuffle and options.duplicates == "drop":
        raise RarewordError("--duplicates: equal pairs meet in the shuffle; drop needs --shuffle")
    _refuse_overlap(options, found)
    inputs = {
        f"{file:05d} {side} {posixpath.basename(url)}": storage.sha256(url)
        for file, urls in enumerate(found.files)
        for side, url in zip(
            ("source", "target") if len(urls) > 1 else ("both",), urls, strict=True
        )
    }
    if corpus is not None:
        inputs["rules"] = corpus.content
    return Plan(JOB.name, {**shaping(options), **rules.to_json()}, inputs)


def _refuse_overlap(options: PrepareOptions, found: _Input) -> None:
    """Raises RarewordError if --overwrite would remove what is read."""
    output = _path(options.output)
    for url in [url for urls in found.files for url in urls] + [options.rules_from or ""]:
        if url and f"{_path(url)}/".startswith(f"{output}/"):
            raise RarewordError(f"--output: {options.output} holds the input {url}")


def _path(url: str) -> str:
    return str(storage.filesystem(url)[1]).rstrip("/")


# ---- the graph ----


def build(pipeline: Any, options: PrepareOptions, plan: Plan) -> None:
    """Read, clean, truecase, shuffle, write; the manifest last."""
    import apache_beam as beam

    from rareword.transforms.corpus import (
        CleanRows,
        CorpusFiles,
        Filters,
        TruecaseRows,
        WriteCorpus,
    )
    from rareword.transforms.elements import Finish
    from rareword.transforms.reading import ReadRows, work_items
    from rareword.transforms.truecase import CopyTruecaser, LearnTruecaser

    found = _find_input(options)
    rules, corpus = _find_rules(options)
    filters = Filters(options.min_tokens, options.max_tokens, options.max_length_ratio)
    files = CorpusFiles(
        options.output,
        _count_shards(options, found),
        found.names,
        drop_duplicates=options.duplicates == "drop",
        keep_raw=options.keep_raw,
    )
    rows = (
        pipeline
        | "Parts" >> beam.Create(work_items(found.parts, options.limit))
        | ReadRows(options.limit)
        | CleanRows(rules, filters, options.keep_raw)
    )
    if rules.truecase == "moses":
        if corpus is None:
            models = rows | LearnTruecaser(options.output)
        else:
            models = (
                pipeline
                | "RulesFrom" >> beam.Create([corpus.directory])
                | CopyTruecaser(options.output)
            )
        rows = rows | TruecaseRows(options.output, models)
    seed = options.seed if options.shuffle else None
    write = functools.partial(
        finish, plan=plan, files=files, rules=rules, max_rejected=options.max_rejected
    )
    rows | WriteCorpus(files, seed) | Finish(write)


# ---- the end ----


def finish(
    records: Sequence[ShardRecord],
    *,
    plan: Plan,
    files: "CorpusFiles",
    rules: "TextRules",
    max_rejected: float,
) -> Manifest:
    """Checks that every row that was read is accepted or rejected, and writes the manifest.

    Raises RarewordError for an imbalance, for too many faulty rows and if no pair is left.
    """
    from rareword.transforms.corpus import READ_COUNTER
    from rareword.transforms.truecase import model_record

    shards = [record for record in records if "/" not in record.name]
    raw = [record for record in records if record.name.startswith("raw/")]
    rejected = [record for record in records if record.name.startswith("rejected/")]
    read: Counter[str] = Counter(dict.fromkeys(files.inputs, 0))
    totals: Counter[str] = Counter()
    for record in shards:
        for name, count in record.counters.items():
            if name.startswith(READ_COUNTER):
                read[files.inputs[int(name.removeprefix(READ_COUNTER))]] += count
            else:
                totals[name] += count
    reasons = sum((Counter(record.counters) for record in rejected), Counter[str]())
    rows_read, pairs = sum(read.values()), _rows(shards)
    balance = {
        "rows read = pairs + rejected rows": (rows_read, pairs + _rows(rejected)),
        "rejected rows = reasons": (_rows(rejected), sum(reasons.values())),
    }
    if files.keep_raw:
        balance["pairs = raw pairs"] = (pairs, _rows(raw))
    manifest.check_balance(balance)
    _refuse_too_few(pairs, rows_read, reasons, sorted(rejected, key=_name), files, max_rejected)

    models = [model_record(files.directory, side) for side in SIDES if rules.truecase == "moses"]
    return manifest.finish(
        plan,
        files.directory,
        CORPUS,
        [_without(record, READ_COUNTER) for record in shards],
        files=[*raw, *rejected, *models],
        figures={
            "pairs": pairs,
            "read": rows_read,
            "rejected": _rows(rejected),
            **totals,
            "reasons": dict(reasons),
            "files": dict(read),
        },
        rules={"text": rules.to_json()},
        packages=("apache-beam", "pyarrow", "sacremoses"),
    )


def _rows(records: Sequence[ShardRecord]) -> int:
    return sum(record.rows for record in records)


def _name(record: ShardRecord) -> str:
    return record.name


def _without(record: ShardRecord, prefix: str) -> ShardRecord:
    """The record without the counters of this prefix; they were for the checks."""
    kept = {name: n for name, n in record.counters.items() if not name.startswith(prefix)}
    return dataclasses.replace(record, counters=kept)


def _refuse_too_few(
    pairs: int,
    rows_read: int,
    reasons: Counter[str],
    rejected: Sequence[ShardRecord],
    files: "CorpusFiles",
    max_rejected: float,
) -> None:
    from rareword.transforms.corpus import FILTER_REASONS

    if not rows_read:
        raise RarewordError(f"the input has no rows ({', '.join(files.inputs)})")
    faults = Counter({name: n for name, n in reasons.items() if name not in FILTER_REASONS})
    faulty = sum(faults.values())
    if faulty > max_rejected * rows_read:
        raise RarewordError(
            f"{faulty} of {rows_read} rows are faulty, more than the share --max-rejected "
            f"{max_rejected} allows; most often: {_example(faults, rejected, files.directory)}"
        )
    if not pairs:
        raise RarewordError(
            f"no pair is left of {rows_read} rows; most often: "
            f"{_example(reasons, rejected, files.directory)}"
        )


def _example(reasons: Counter[str], rejected: Sequence[ShardRecord], directory: str) -> str:
    """The most frequent reason, its rows, and one of them."""
    from rareword.transforms.corpus import reason_class

    most = max(sorted(reasons), key=lambda name: reasons[name])
    record = next(record for record in rejected if most in record.counters)
    for table in iterate_row_groups(storage.join(directory, record.name), REJECTED):
        for row in table.select(["file", "row", "reason"]).to_pylist():
            if reason_class(row["reason"]) == most:
                return f"{row['reason']} ({reasons[most]} rows, such as {row['file']}:{row['row']})"
    raise AssertionError(f"{record.name} has no row with the reason {most!r}")


JOB = Job(
    "prepare",
    "Cleans parallel text, tokenises and truecases it, and writes it as a shuffled corpus.",
    PrepareOptions,
    plan,
    beam_work(build),
    count_files,
)


def run(argv: Sequence[str]) -> int:
    return job.run(JOB, argv)
