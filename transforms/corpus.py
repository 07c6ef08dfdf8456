"""Rows to corpus shards: text rules, filters, duplicates, the shuffle, and the writing of shards.

    ROWS -> clean_rows -> (truecase_rows) -> split_shards -> group by shard -> write_corpus_shard

Filters only set `reason`; accepted and rejected rows take the same way to the same writer, which
parts them. So nothing can be lost without the counts showing it.
"""

import functools
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.pvalue import AsSingleton

from rareword.schemas.tables import (
    CORPUS,
    REJECTED,
    SIDES,
    ShardRecord,
    Side,
    shard_name,
    write_shard,
)
from rareword.transforms.parts import KeyedTable
from rareword.transforms.reading import FILE_STRIDE, ROWS
from rareword.transforms.text import TextRules, find_control_character
from rareword.transforms.truecase import load_truecaser

RAW = {side: f"raw_{side}" for side in SIDES}
"""Columns that carry the untouched text beside the prepared one, where it is to be kept."""

ORDER = pa.field("order", pa.uint64())
"""Sort key inside a shard."""

TOO_UNLIKE = "lengths are too unlike"
DUPLICATE = "pair is a duplicate"
FILTER_REASONS = frozenset(
    [f"{side} is {what}" for side in SIDES for what in ("empty", "too short", "too long")]
    + [TOO_UNLIKE, DUPLICATE]
)
"""Reasons of rows that are sound but not wanted. All others are faults of the input."""

READ_COUNTER = "read:"
"""Prefix of the counters `read:FILE`: rows that the reader of this file counted."""


def reason_class(reason: str) -> str:
    """A reason up to its colon; what follows differs from row to row (`...: byte 17`)."""
    return reason.split(":", 1)[0]


# ---- cleaning ----


@dataclass(frozen=True)
class Filters:
    """Bounds on the tokens of each side; 0 for no bound."""

    min_tokens: int = 1
    max_tokens: int = 0
    max_length_ratio: float = 0.0
    """Of the longer side's tokens to the shorter side's."""


def count_tokens(texts: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Tokens of each text: the pieces between single spaces, none in an empty text."""
    return pc.if_else(pc.equal(texts, ""), 0, pc.add(pc.count_substring(texts, " "), 1))


def clean_rows(table: pa.Table, rules: TextRules, filters: Filters, keep_raw: bool) -> pa.Table:
    """Applies the text rules but for truecasing, then the filters. Rejected rows keep their text.

    keep_raw: adds the columns RAW.
    """
    reasons = table["reason"].to_pylist()
    prepared: dict[Side, list[str]] = {}
    for side in SIDES:
        prepared[side] = []
        for i, text in enumerate(table[side].to_pylist()):
            if rules.control_characters == "reject" and reasons[i] is None:
                reasons[i] = _control_character_reason(text, side)
            prepared[side].append(rules.apply(text, side) if reasons[i] is None else text)
    texts = {side: pa.array(prepared[side], pa.string()) for side in SIDES}
    reason = _filter(texts, pa.array(reasons, pa.string()), filters)
    accepted = pc.is_null(reason)
    columns = {name: table[name] for name in ROWS.names} | {"reason": reason}
    for side in SIDES:
        columns[side] = pc.if_else(accepted, texts[side], table[side])
        if keep_raw:
            columns[RAW[side]] = table[side]
    return pa.table(columns)


def _control_character_reason(text: str, side: Side) -> str | None:
    found = find_control_character(text)
    if found is None:
        return None
    return (
        f"{side} holds a control character or unusual white space: "
        f"U+{ord(found[0]):04X} at character {found.start()}"
    )


def _filter(texts: Mapping[Side, pa.Array], reason: pa.Array, filters: Filters) -> pa.Array:
    """Gives the rows without a reason the first one that applies."""
    lengths = {side: count_tokens(texts[side]) for side in SIDES}
    checks = [(f"{side} is empty", pc.equal(lengths[side], 0)) for side in SIDES]
    for side in SIDES:
        checks.append((f"{side} is too short", pc.less(lengths[side], filters.min_tokens)))
        if filters.max_tokens:
            checks.append((f"{side} is too long", pc.greater(lengths[side], filters.max_tokens)))
    if filters.max_length_ratio:
        longer = pc.max_element_wise(*lengths.values())
        shorter = pc.cast(pc.min_element_wise(*lengths.values()), pa.float64())
        bound = pc.multiply(shorter, filters.max_length_ratio)
        checks.append((TOO_UNLIKE, pc.greater(longer, bound)))
    for name, applies in checks:
        reason = pc.coalesce(reason, pc.if_else(applies, name, pa.scalar(None, pa.string())))
    return reason


@dataclass(eq=False)
class CleanRows(beam.PTransform):
    """KeyedTables of ROWS -> the same, cleaned; see clean_rows."""

    rules: TextRules
    filters: Filters
    keep_raw: bool

    def expand(self, tables: beam.PCollection) -> beam.PCollection:
        return tables | "Clean" >> beam.Map(
            _on_table, clean_rows, self.rules, self.filters, self.keep_raw
        ).with_output_types(KeyedTable)


def _on_table(element: KeyedTable, function: Callable[..., pa.Table], *how: Any) -> KeyedTable:
    return element[0], function(element[1], *how)


# ---- truecasing ----


def truecase_rows(table: pa.Table, directory: str, checksums: Mapping[Side, str]) -> pa.Table:
    """Truecases the accepted rows with the models of `directory`."""
    accepted = pc.is_null(table["reason"])
    for side in SIDES:
        truecase = load_truecaser(directory, side, checksums[side])
        cased = pa.array([truecase(text) for text in table[side].to_pylist()], pa.string())
        table = table.set_column(
            table.schema.get_field_index(side),
            ROWS.field(side),
            pc.if_else(accepted, cased, table[side]),
        )
    return table


@dataclass(eq=False)
class TruecaseRows(beam.PTransform):
    """KeyedTables of ROWS -> the same, truecased.

    models: a PCollection of one element, the checksums of the models in `directory`; it arrives
    when they are written. The models themselves go by path: they may be large.
    """

    directory: str
    models: beam.PCollection

    def expand(self, tables: beam.PCollection) -> beam.PCollection:
        return tables | "Truecase" >> beam.Map(
            _on_table, truecase_rows, self.directory, AsSingleton(self.models)
        ).with_output_types(KeyedTable)


# ---- the shuffle ----


def pair_hash(source: str, target: str, seed: int) -> int:
    """64 bits that depend on the texts and the seed alone."""
    digest = hashlib.blake2b(digest_size=8, key=seed.to_bytes(8, "little"))
    digest.update(f"{len(source)} ".encode())  # so that no other pair has the same bytes
    digest.update(source.encode() + target.encode())
    return int.from_bytes(digest.digest(), "little")


def split_shards(table: pa.Table, shards: int, seed: int | None) -> Iterator[KeyedTable]:
    """Cuts a table into its rows for each shard and adds the column ORDER.

    With a seed, shard and order are a hash of the pair, so equal pairs meet in one shard; without,
    a shard is a file of the input and the order is the input's.
    """
    if not table.num_rows:
        return
    ids = table["id"].to_numpy()
    if seed is None:
        order = ids.astype(np.uint64)
        shard_of_row = ids // FILE_STRIDE
    else:
        pairs = zip(table["source"].to_pylist(), table["target"].to_pylist(), strict=True)
        hashes = (pair_hash(source, target, seed) for source, target in pairs)
        order = np.fromiter(hashes, np.uint64, len(ids))
        shard_of_row = order % np.uint64(shards)
    table = table.append_column(ORDER, pa.array(order))
    by_shard = np.argsort(shard_of_row, kind="stable")
    bounds = np.flatnonzero(np.diff(shard_of_row[by_shard])) + 1
    for rows in np.split(by_shard, bounds):
        yield int(shard_of_row[rows[0]]), table.take(pa.array(rows))


# ---- writing ----


@dataclass(frozen=True)
class CorpusFiles:
    """Where the shards go and what goes into them."""

    directory: str
    shards: int
    inputs: tuple[str, ...]
    """Names of the input files by number, for the rejected rows."""
    drop_duplicates: bool
    keep_raw: bool

    @property
    def rows(self) -> pa.Schema:
        """Schema of the tables that the writer gets."""
        raw = [pa.field(name, pa.string()) for name in RAW.values()] if self.keep_raw else []
        return pa.schema([*ROWS, *raw, ORDER])


def write_corpus_shard(
    group: tuple[int, Iterable[pa.Table]], files: CorpusFiles
) -> list[ShardRecord]:
    """Writes what belongs to a shard: the corpus shard, its rejected rows, its raw text if kept.

    Of equal pairs the one with the lowest id stays. The records' counters hold the tokens, the
    classes of reasons and the readers' counts.
    """
    shard, tables = group
    table = pa.concat_tables([files.rows.empty_table(), *tables])
    table = table.sort_by([("order", "ascending"), ("id", "ascending")])
    if files.drop_duplicates:
        table = _mark_duplicates(table)
    accepted = table.filter(pc.is_null(table["reason"]))
    rejected = table.filter(pc.is_valid(table["reason"])).sort_by("id")

    name = functools.partial(shard_name, shard, files.shards)
    counters = _token_counters(accepted) | _read_counters(table)
    records = [write_shard(files.directory, name(), CORPUS, [accepted], counters)]
    if files.keep_raw:
        columns = [accepted["id"], *(accepted[RAW[side]] for side in SIDES)]
        raw = pa.table(columns, schema=CORPUS.fields)
        records.append(write_shard(files.directory, name("raw/part"), CORPUS, [raw]))
    if rejected.num_rows:
        reasons = Counter(map(reason_class, rejected["reason"].to_pylist()))
        located = _locate(rejected, files.inputs)
        records.append(
            write_shard(files.directory, name("rejected/part"), REJECTED, [located], reasons)
        )
    return records


def _token_counters(table: pa.Table) -> dict[str, int]:
    return {f"{side}_tokens": pc.sum(count_tokens(table[side])).as_py() or 0 for side in SIDES}


def _read_counters(table: pa.Table) -> dict[str, int]:
    """The readers' counts in this shard, by file number."""
    counts: Counter[str] = Counter()
    marked = table.filter(pc.greater(table["read"], 0))
    for id, read in zip(marked["id"].to_pylist(), marked["read"].to_pylist(), strict=True):
        counts[f"{READ_COUNTER}{id // FILE_STRIDE}"] += read
    return counts


def _mark_duplicates(table: pa.Table) -> pa.Table:
    """Gives all accepted rows but the first of each pair, by id, a reason."""
    accepted = table.filter(pc.is_null(table["reason"]))
    first = accepted.group_by(["source", "target"]).aggregate([("id", "min")])["id_min"]
    again = pc.invert(pc.is_in(table["id"], value_set=first))
    marked = pc.coalesce(
        table["reason"], pc.if_else(again, DUPLICATE, pa.scalar(None, pa.string()))
    )
    return table.set_column(table.schema.get_field_index("reason"), ROWS.field("reason"), marked)


def _locate(rejected: pa.Table, files: tuple[str, ...]) -> pa.Table:
    """Adds file name and row, which the id holds."""
    ids = rejected["id"].to_numpy()
    names = pa.array([files[file] for file in ids // FILE_STRIDE], pa.string())
    return rejected.append_column("file", names).append_column(
        "row", pa.array(ids % FILE_STRIDE, pa.int64())
    )


@dataclass(eq=False)
class WriteCorpus(beam.PTransform):
    """KeyedTables of ROWS -> the ShardRecords of all that was written.

    Every shard is written, empty ones too. seed: None keeps the input's order.
    """

    files: CorpusFiles
    seed: int | None

    def expand(self, tables: beam.PCollection) -> beam.PCollection:
        split = functools.partial(_split_keyed, shards=self.files.shards, seed=self.seed)
        filled = tables | "SplitShards" >> beam.FlatMap(split).with_output_types(KeyedTable)
        empty = self.files.rows.empty_table()
        started = (
            tables.pipeline
            | "Shards" >> beam.Create(range(self.files.shards))
            | "Start"
            >> beam.Map(lambda shard, table: (shard, table), empty).with_output_types(KeyedTable)
        )
        return (
            (filled, started)
            | beam.Flatten()
            | beam.GroupByKey()
            | "WriteShard"
            >> beam.FlatMap(write_corpus_shard, self.files).with_output_types(ShardRecord)
        )


def _split_keyed(element: KeyedTable, shards: int, seed: int | None) -> Iterator[KeyedTable]:
    return split_shards(element[1], shards, seed)
