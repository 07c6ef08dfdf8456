"""Readers of parallel text: pairs of text files, TSV and Parquet, to tables of rows.

    files -> parts, one a file or a run of Parquet row groups -> batches of raw bytes -> ROWS tables

A part is read by one worker, parts in parallel. Whatever a row holds, it becomes a row of the
table: a bad one carries the reason in `reason`, and no later step drops it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import apache_beam as beam
import pyarrow as pa
import pyarrow.compute as pc

from rareword.schemas import storage
from rareword.schemas.errors import RarewordError
from rareword.schemas.tables import open_parquet
from rareword.transforms.parts import KeyedTable

ROWS = pa.schema(
    [
        ("id", pa.int64()),
        ("source", pa.string()),
        ("target", pa.string()),
        ("reason", pa.string()),
        ("read", pa.int64()),
    ]
)
"""Rows on their way through `prepare`. `id` is file number * FILE_STRIDE + row. `reason` is null
for an accepted row. `read` is 0 but on the last row of a part, where it is the number of rows that
the reader read: so the reader's own count travels with the data, and lost rows show."""

FILE_STRIDE = 1 << 40
"""Rows a file may have; with one file the ids are the row numbers."""

TABLE_BYTES = 8 << 20
"""Text bytes after which a reader begins a new table."""

BLOCK_BYTES = 1 << 20
LINE_BYTES = 1 << 20
"""A longer line is a rejected row, and only its first EXCERPT_BYTES are kept: without a bound, a
file without line breaks would fill the memory."""
EXCERPT_BYTES = 1 << 10

PARQUET_ROWS = 1024
"""Rows that are taken out of a row group at a time."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Batch = tuple[Sequence[bytes | None], Sequence[bytes | None]]
"""Raw sources and targets, equally many; None where the row lacks a side."""


# ---- text files ----


def read_lines(url: str) -> Iterator[list[bytes]]:
    """The lines of a text file, plain or compressed, in non-empty blocks.

    Lines end at \\n only; one \\r before it and a byte order mark at the file's start are removed;
    a last line without \\n counts. Lines above LINE_BYTES come cut, but still above LINE_BYTES.
    """
    start, rest = True, b""
    with storage.open_text_stream(url) as stream:
        while block := stream.read(BLOCK_BYTES):
            lines = (rest + block).split(b"\n")
            rest = lines.pop()[: LINE_BYTES + 1]
            if lines:
                yield _trimmed(lines, start)
                start = False
    if rest:
        yield _trimmed([rest], start)


def _trimmed(lines: list[bytes], start: bool) -> list[bytes]:
    if start:
        lines[0] = lines[0].removeprefix(BYTE_ORDER_MARK)
    return [line.removesuffix(b"\r") for line in lines]


@dataclass(frozen=True)
class TextPair:
    """Two text files, read in step: line n of one is the translation of line n of the other."""

    source: str
    target: str

    def batches(self) -> Iterator[Batch]:
        """Raises RarewordError with both files and both counts if their lines differ in number."""
        sources_left, targets_left = read_lines(self.source), read_lines(self.target)
        sources: list[bytes] = []
        targets: list[bytes] = []
        rows = 0
        while True:
            sources = sources or next(sources_left, [])
            targets = targets or next(targets_left, [])
            paired = min(len(sources), len(targets))
            if not paired:
                break
            yield sources[:paired], targets[:paired]
            sources, targets = sources[paired:], targets[paired:]
            rows += paired
        if sources or targets:
            source_rows = rows + len(sources) + sum(map(len, sources_left))
            target_rows = rows + len(targets) + sum(map(len, targets_left))
            raise RarewordError(
                f"{self.source} has {source_rows} lines, but {self.target} has {target_rows}; "
                "parallel files must have equally many"
            )


# ---- TSV ----


@dataclass(frozen=True)
class TsvFile:
    """A file of tab-separated fields, without quoting; columns count from 0."""

    url: str
    source_column: int
    target_column: int
    header: bool
    """True if the first line holds the columns' names and is not a row."""

    def batches(self) -> Iterator[Batch]:
        skip = self.header
        for lines in read_lines(self.url):
            rows = [line.split(b"\t") for line in lines[skip:]]
            skip = False
            yield self._column(rows, self.source_column), self._column(rows, self.target_column)

    @staticmethod
    def _column(rows: list[list[bytes]], column: int) -> list[bytes | None]:
        return [fields[column] if column < len(fields) else None for fields in rows]


def open_tsv(url: str, source_column: str, target_column: str, header: bool) -> TsvFile:
    """Finds the columns: by number from 1, or by name in the file's first line if it is a header.

    Raises RarewordError for a column that the file's beginning does not have, with those it has.
    """
    lines = [line.split(b"\t") for line in next(read_lines(url), [])]
    names = [name.decode(errors="replace") for name in lines[0]] if lines and header else []
    width = max(map(len, lines), default=0)

    def find(column: str, option: str) -> int:
        if column in names:
            return names.index(column)
        if column.isdecimal() and 1 <= int(column) <= width:
            return int(column) - 1
        if not lines and column.isdecimal() and int(column):
            return int(column) - 1  # an empty file has no rows to lack it
        there = f"its columns are {', '.join(names)}" if names else f"it has {width} columns"
        hint = "" if header or column.isdecimal() else "; names need --tsv-header"
        raise RarewordError(f"{option}: {url} has no column {column!r}; {there}{hint}")

    return TsvFile(
        url, find(source_column, "--source-column"), find(target_column, "--target-column"), header
    )


# ---- Parquet ----


@dataclass(frozen=True)
class ParquetGroups:
    """Some row groups of a Parquet file; a column inside a struct is named `translation.en`."""

    url: str
    source_column: str
    target_column: str
    first_group: int
    end_group: int

    def batches(self) -> Iterator[Batch]:
        """Raises RarewordError naming file and row group for damaged pages."""
        columns = list(dict.fromkeys([self.source_column, self.target_column]))
        with open_parquet(self.url) as file:
            for group in range(self.first_group, self.end_group):
                try:
                    for batch in file.iter_batches(
                        PARQUET_ROWS, row_groups=[group], columns=columns, use_threads=False
                    ):
                        step = max(1, batch.num_rows * BLOCK_BYTES // max(batch.nbytes, 1))
                        for part in (batch[i : i + step] for i in range(0, len(batch), step)):
                            yield (
                                _values(part, self.source_column),
                                _values(part, self.target_column),
                            )
                except (pa.ArrowException, OSError) as error:
                    raise RarewordError(
                        f"{self.url}: row group {group} is damaged: {error}"
                    ) from error


def _values(batch: pa.RecordBatch, name: str) -> list[bytes | None]:
    """A string column as bytes: Parquet's strings need not be UTF-8, and ours are checked later."""
    path = _path(batch.schema, name)
    column = batch.column(path[0])
    if path[1:]:
        column = pc.struct_field(column, path[1:])
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    values: list[bytes | None] = column.cast(pa.large_binary()).to_pylist()
    return values


def _path(schema: pa.Schema, name: str) -> list[str]:
    """`translation.en` as steps, unless a column has just this name."""
    return [name] if name in schema.names else name.split(".")


def _is_text(type: pa.DataType) -> bool:
    if pa.types.is_dictionary(type):
        type = type.value_type
    return any(
        is_string(type)
        for is_string in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    )


def _leaves(fields: Sequence[pa.Field], prefix: str = "") -> Iterator[tuple[str, pa.DataType]]:
    for field in fields:
        if pa.types.is_struct(field.type):
            yield from _leaves(list(field.type), f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, field.type


def _check_text_column(schema: pa.Schema, name: str, option: str, url: str) -> None:
    """Raises RarewordError for a column that is missing or does not hold strings."""
    leaves = dict(_leaves(list(schema)))
    if name not in leaves:
        raise RarewordError(
            f"{option}: {url} has no column {name!r}; its columns are {', '.join(leaves)}"
        )
    if not _is_text(leaves[name]):
        raise RarewordError(
            f"{option}: {url}: column {name!r} holds {leaves[name]}, expected string"
        )


def open_parquet_columns(
    url: str, source: tuple[str, str], target: tuple[str, str]
) -> ParquetGroups:
    """A whole Parquet file, two of its columns, each given with the option that names it.

    Raises RarewordError for a damaged file and for a column that is missing or no text.
    """
    with open_parquet(url) as file:
        for name, option in (source, target):
            _check_text_column(file.schema_arrow, name, option, url)
        return ParquetGroups(url, source[0], target[0], 0, file.metadata.num_row_groups)


def open_parquet_parts(
    url: str, source_column: str, target_column: str, part_bytes: int
) -> list[tuple[int, int, ParquetGroups]]:
    """Cuts a Parquet file into runs of row groups of at least `part_bytes` of text.

    Returns first row, text bytes and reader of each run. Raises RarewordError for a damaged file,
    for a missing column (with those there are) and for a column that does not hold strings.
    """
    with open_parquet(url) as file:
        schema, metadata = file.schema_arrow, file.metadata
    _check_text_column(schema, source_column, "--source-column", url)
    _check_text_column(schema, target_column, "--target-column", url)
    parts: list[tuple[int, int, ParquetGroups]] = []
    first, row, first_row, size = 0, 0, 0, 0
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        row += group.num_rows
        size += sum(
            column.total_uncompressed_size
            for column in map(group.column, range(group.num_columns))
            if column.path_in_schema in (source_column, target_column)
        )
        if size >= part_bytes or index + 1 == metadata.num_row_groups:
            reader = ParquetGroups(url, source_column, target_column, first, index + 1)
            parts.append((first_row, size, reader))
            first, first_row, size = index + 1, row, 0
    return parts


# ---- rows ----


@dataclass(frozen=True)
class Part:
    """What one reader reads: a file or a run of its row groups."""

    file: int
    """Number of the file in the order of the input."""
    first_row: int
    reader: TextPair | TsvFile | ParquetGroups


def make_rows(
    first_id: int, sources: Sequence[bytes | None], targets: Sequence[bytes | None]
) -> pa.Table:
    """The ROWS of a batch; bytes that are not UTF-8 become U+FFFD and give the row a reason."""
    texts: tuple[list[str], list[str]] = ([], [])
    reasons: list[str | None] = [None] * len(sources)
    for side, values, decoded in zip(("source", "target"), (sources, targets), texts, strict=True):
        for i, value in enumerate(values):
            text, fault = _decode(value)
            decoded.append(text)
            if fault and reasons[i] is None:
                reasons[i] = f"{side} {fault}"
    ids = range(first_id, first_id + len(reasons))
    return pa.table([ids, *texts, reasons, [0] * len(reasons)], schema=ROWS)


def _decode(value: bytes | None) -> tuple[str, str | None]:
    """A side's text and what is wrong with it. What follows a colon differs from row to row."""
    if value is None:
        return "", "is missing"
    if len(value) > LINE_BYTES:
        return value[:EXCERPT_BYTES].decode(errors="replace"), f"is longer than {LINE_BYTES} bytes"
    try:
        return value.decode(), None
    except UnicodeDecodeError as error:
        return value.decode(errors="replace"), f"is not UTF-8: byte {error.start}"


def read_tables(
    parts: Sequence[Part], limit: int = 0, table_bytes: int = TABLE_BYTES
) -> Iterator[pa.Table]:
    """Reads parts one after the other into ROWS tables of about `table_bytes` of text.

    limit: rows after which reading stops, over all parts; 0 for no limit.
    """
    left = limit or None
    for part in parts:
        rows, held = 0, 0
        waiting: list[pa.Table] = []
        for sources, targets in part.reader.batches():
            if not sources:
                continue
            if held >= table_bytes:
                yield pa.concat_tables(waiting).combine_chunks()
                waiting, held = [], 0
            first_id = part.file * FILE_STRIDE + part.first_row + rows
            waiting.append(make_rows(first_id, sources[:left], targets[:left]))
            rows += waiting[-1].num_rows
            held += waiting[-1].nbytes
            if left is not None:
                left -= waiting[-1].num_rows
                if not left:
                    break
        if rows:
            table = pa.concat_tables(waiting).combine_chunks()
            counts = pa.array([0] * (table.num_rows - 1) + [rows], pa.int64())
            yield table.set_column(table.schema.get_field_index("read"), ROWS.field("read"), counts)
        if left == 0:
            return


WorkItem = tuple[int, tuple[Part, ...]]
"""A key, and parts that one reader reads in turn."""


def work_items(parts: Sequence[Part], limit: int = 0) -> list[WorkItem]:
    """Parts to be read in parallel; under a limit one reader takes all, to know when to stop."""
    return list(enumerate([tuple(parts)] if limit else [(part,) for part in parts]))


@dataclass(eq=False)
class ReadRows(beam.PTransform):
    """WorkItems -> KeyedTables of ROWS with the item's key; see read_tables."""

    limit: int = 0
    table_bytes: int = TABLE_BYTES

    def expand(self, items: beam.PCollection) -> beam.PCollection:
        return items | "Read" >> beam.FlatMap(
            _read_keyed, self.limit, self.table_bytes
        ).with_output_types(KeyedTable)


def _read_keyed(item: WorkItem, limit: int, table_bytes: int) -> Iterator[KeyedTable]:
    for table in read_tables(item[1], limit, table_bytes):
        yield item[0], table
