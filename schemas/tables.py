"""The Arrow schemas of everything on disk, and checked reading and writing of Parquet.

Each Parquet file carries its schema's name and version in the schema metadata. Readers check both,
so that a file of another kind or time ends in a sentence, not in wrong numbers.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from rareword.schemas import storage
from rareword.schemas.errors import RarewordError

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")

ROW_GROUP_BYTES = 32 << 20
"""Text bytes after which a writer starts a new row group (readers take whole row groups)."""


@dataclass(frozen=True)
class TableSchema:
    """A named, versioned Arrow schema of the product."""

    name: str
    version: int
    fields: pa.Schema

    @property
    def stored(self) -> pa.Schema:
        """The Arrow schema with name and version added to its metadata."""
        names = {"rareword.schema": self.name, "rareword.version": str(self.version)}
        return self.fields.with_metadata({**(self.fields.metadata or {}), **names})

    def check(self, found: pa.Schema, url: str) -> None:
        """Raises RarewordError naming file, field, expected and found if `found` differs."""
        metadata = found.metadata or {}
        name = metadata.get(b"rareword.schema", b"").decode()
        version = metadata.get(b"rareword.version", b"").decode()
        if name != self.name:
            raise RarewordError(
                f"{url}: expected a Parquet file of schema {self.name!r}, found "
                f"{repr(name) if name else 'one that rareword did not write'}"
            )
        if version != str(self.version):
            raise RarewordError(
                f"{url}: schema {self.name!r} has version {version}, this release reads version "
                f"{self.version}; write the data again with this release"
            )
        for field in self.fields:
            index = found.get_field_index(field.name)
            if index < 0:
                raise RarewordError(f"{url}: field {field.name!r} ({field.type}) is missing")
            if found.field(index).type != field.type:
                raise RarewordError(
                    f"{url}: field {field.name!r}: expected {field.type}, found "
                    f"{found.field(index).type}"
                )


def _schema(name: str, version: int, *fields: tuple[str, pa.DataType]) -> TableSchema:
    return TableSchema(name, version, pa.schema([pa.field(*field) for field in fields]))


CORPUS = _schema("corpus", 1, ("id", pa.int64()), ("source", pa.string()), ("target", pa.string()))
"""One sentence pair a row; ids unique and stable under retries."""

REJECTED = _schema(
    "rejected",
    1,
    ("id", pa.int64()),
    ("file", pa.string()),
    ("row", pa.int64()),
    ("reason", pa.string()),
    ("source", pa.string()),
    ("target", pa.string()),
)
"""Rows that `prepare` did not pass on. `row` counts from 0 in `file`; bytes that are not UTF-8
appear as U+FFFD."""

WORDS = _schema(
    "words",
    1,
    ("word", pa.string()),
    ("source_count", pa.int64()),
    ("target_count", pa.int64()),
)
"""Each word once, sorted by its UTF-8 bytes inside a shard; additive over corpora."""

DICTIONARY = _schema(
    "dictionary",
    1,
    ("source", pa.string()),
    ("target", pa.string()),
    ("probability", pa.float64()),
    ("count", pa.int64()),
)
"""Translations of words: p(target | source), and how often the two words were linked. Sorted by
source, falling probability and target inside a shard; all rows of a source word are in one
shard."""

MERGES = _schema(
    "merges",
    1,
    ("rank", pa.int32()),
    ("left", pa.string()),
    ("left_final", pa.bool_()),
    ("right", pa.string()),
    ("right_final", pa.bool_()),
    ("count", pa.int64()),
)
"""Merges in the order they were learnt. `*_final` marks a symbol that ends a word. In merges learnt
on bytes (the manifest says so) a character stands for the byte of its number."""

LEXICON = _schema("lexicon", 1, ("text", pa.string()), ("count", pa.int64()))
"""Texts with counts that a segmenter cuts words by: a shortlist, parts of compounds, morphs. Sorted
by text, each once."""

SEGMENTED = _schema(
    "segmented",
    1,
    ("id", pa.int64()),
    ("source", pa.list_(pa.int32())),
    ("target", pa.list_(pa.int32())),
)
"""Piece ids of each side, without end-of-sentence."""

VOCABULARY = _schema(
    "vocabulary",
    2,
    ("id", pa.int32()),
    ("piece", pa.string()),
    ("final", pa.bool_()),
    ("bytes", pa.bool_()),
    ("source_count", pa.int64()),
    ("target_count", pa.int64()),
)
"""Special pieces first, then by falling count. `final` marks a piece that ends a word, `bytes` one
whose characters (U+0000 .. U+00FF) stand for the bytes of their numbers."""

WORDPIECES = _schema("wordpieces", 1, ("piece", pa.string()), ("inside", pa.bool_()))
"""The pieces of a WordPiece segmenter in the order in which they were learnt: those that may begin
a word, then those that may stand inside one."""

TRANSLATIONS = _schema(
    "translations",
    1,
    ("id", pa.int64()),
    ("rank", pa.int32()),
    ("text", pa.string()),
    ("pieces", pa.list_(pa.string())),
    ("score", pa.float32()),
    ("alignment", pa.list_(pa.list_(pa.float32()))),
)
"""Rank 0 is the best hypothesis; exactly one rank-0 row per input id. `alignment`, where asked
for, has one list per piece with a weight per source piece, end-of-sentence last on both sides; else
null."""


def open_parquet(url: str, schema: TableSchema | None = None) -> pq.ParquetFile:
    """Opens a Parquet file, checked against `schema` if given.

    Raises RarewordError for a missing file, a torn file or another schema.
    """
    local = storage.local_file(url)  # mapped into memory: one copy less
    stream = None if local else storage.open_read(url)
    try:
        file = pq.ParquetFile(
            local or stream, memory_map=local is not None, page_checksum_verification=True
        )
    except (pa.ArrowException, OSError) as error:
        if stream is not None:
            stream.close()
        raise RarewordError(f"{url} is damaged or not a Parquet file: {error}") from error
    if schema is not None:
        schema.check(file.schema_arrow, url)
    return file


def read_row_group(file: pq.ParquetFile, index: int, url: str, columns: list[str]) -> pa.Table:
    """One row group; a torn one is a RarewordError that names file and row group."""
    try:
        return file.read_row_group(index, columns=columns, use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise RarewordError(f"{url}: row group {index} is damaged: {error}") from error


def iterate_row_groups(
    url: str,
    schema: TableSchema,
    columns: list[str] | None = None,
    chosen: Iterable[int] | None = None,
) -> Iterator[pa.Table]:
    """The row groups of a file of ours (or the chosen ones, by number), one table each; memory
    holds one at a time."""
    names = columns or schema.fields.names
    with open_parquet(url, schema) as file:
        for index in range(file.num_row_groups) if chosen is None else chosen:
            yield read_row_group(file, index, url, names)


def read_table(url: str, schema: TableSchema) -> pa.Table:
    """A whole file of ours as one table, for small files (merges, vocabularies)."""
    return pa.concat_tables([schema.fields.empty_table(), *iterate_row_groups(url, schema)])


@dataclass(frozen=True)
class ShardRecord:
    """What a finished shard holds; it travels with the data into the manifest."""

    name: str
    """File name below the job's directory."""
    rows: int
    bytes: int
    checksum: str
    """Hex SHA-256 of the file."""
    counters: Mapping[str, int]
    """Figures that must balance over the job (tokens, rejected rows, ...)."""

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "rows": self.rows,
            "bytes": self.bytes,
            "checksum": self.checksum,
            "counters": dict(self.counters),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "ShardRecord":
        return cls(**value)


def file_record(directory: str, name: str, rows: int = 0) -> ShardRecord:
    """The record of a file that is there already."""
    url = storage.join(directory, name)
    return ShardRecord(name, rows, storage.size(url), storage.sha256(url), {})


def shard_name(number: int, of: int, prefix: str = "part") -> str:
    """`shard_name(0, 8)` is `part-00000-of-00008.parquet`."""
    return f"{prefix}-{number:05d}-of-{of:05d}.parquet"


class _HashingStream:
    """Passes bytes through to a file and keeps their SHA-256 and number."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()
        self.bytes = 0
        self.closed = False

    def write(self, data: Any) -> int:
        self._digest.update(data)
        self.bytes += len(data)
        self._stream.write(data)
        return len(data)

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        self.closed = True

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


def write_shard(
    directory: str,
    name: str,
    schema: TableSchema,
    tables: Iterator[pa.Table] | list[pa.Table],
    counters: Mapping[str, int] | None = None,
) -> ShardRecord:
    """Writes one Parquet shard atomically (zstd, bounded row groups) and returns its record.

    `tables` may be a generator: its tables are buffered up to one row group. `counters` is read
    after the last table, so a generator may fill it while it runs.
    """
    rows = 0
    with storage.write_atomic(storage.join(directory, name)) as raw:
        stream = _HashingStream(raw)
        with pq.ParquetWriter(
            stream,
            schema.stored,
            compression="zstd",
            use_dictionary=False,  # quicker, and no larger once it is compressed
            column_encoding=_encodings(schema.fields),
            write_page_checksum=True,
        ) as writer:
            for group in _row_groups(tables):
                group = group.select(schema.fields.names).cast(schema.fields)  # noqa: PLW2901
                writer.write_table(group.replace_schema_metadata(schema.stored.metadata))
                rows += group.num_rows
    return ShardRecord(name, rows, stream.bytes, stream.hexdigest(), dict(counters or {}))


def _encodings(fields: pa.Schema) -> dict[str, str] | None:
    """Ids compress better and faster with their bytes apart: first all lowest, then the next."""
    ids = pa.list_(pa.int32())
    names = [field.name for field in fields if field.type == ids]
    return {f"{name}.list.element": "BYTE_STREAM_SPLIT" for name in names} or None


def _row_groups(tables: Iterator[pa.Table] | list[pa.Table]) -> Iterator[pa.Table]:
    """Joins small tables and cuts large ones to about ROW_GROUP_BYTES."""
    waiting: list[pa.Table] = []
    held = 0
    for table in tables:
        if not table.num_rows:
            continue
        step = max(1, table.num_rows * ROW_GROUP_BYTES // max(table.nbytes, 1))
        for start in range(0, table.num_rows, step):
            part = table.slice(start, step)
            waiting.append(part)
            held += part.nbytes
            if held >= ROW_GROUP_BYTES:
                yield pa.concat_tables(waiting).combine_chunks()
                waiting, held = [], 0
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def digest(value: Any) -> str:
    """Hex SHA-256 of a JSON value in canonical form."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
