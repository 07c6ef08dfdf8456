"""Word counts: which words the corpus holds, and how often on each side."""

import dataclasses
from collections.abc import Iterator

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.metrics import Metrics
from numpy.typing import NDArray

from rareword.schemas.tables import CORPUS, WORDS, ShardRecord, iterate_row_groups, shard_name
from rareword.schemas.tables import write_shard as write_parquet_shard
from rareword.transforms import _kernels
from rareword.transforms.elements import KeyedTable, MergeTablesCombineFn


def count_words(source: pa.Array, target: pa.Array, threads: int = 1) -> pa.Table:
    """The `words` table of two columns of lines, with a hash column for sharding.

    Words are split at U+0020 only. Raises ValueError naming row and byte for bad UTF-8.
    """
    return _table(*_kernels.count_words(source, target, threads))


def sum_words(tables: list[pa.Table]) -> pa.Table:
    """Adds the counts of equal words over several tables of `count_words`."""
    together = pa.concat_tables(tables).combine_chunks()
    return _table(
        *_kernels.sum_words(
            one_chunk(together["word"]),
            together["source_count"].to_numpy(),
            together["target_count"].to_numpy(),
        )
    )


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """The column as a single array."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _table(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    source_counts: NDArray[np.int64],
    target_counts: NDArray[np.int64],
    hashes: NDArray[np.uint64],
) -> pa.Table:
    words = pa.Array.from_buffers(
        pa.large_string(), len(source_counts), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    return pa.table(
        {
            "word": words,
            "source_count": source_counts,
            "target_count": target_counts,
            "hash": hashes,
        }
    )


def partition(table: pa.Table, hashes: NDArray[np.uint64], parts: int) -> Iterator[KeyedTable]:
    """Cuts a table by hash into at most `parts` tables, each a copy of its own rows."""
    keys = (hashes % np.uint64(parts)).astype(np.int64)
    order = np.argsort(keys, kind="stable")
    bounds = np.searchsorted(keys[order], np.arange(parts + 1))
    for key in range(parts):
        rows = order[bounds[key] : bounds[key + 1]]
        if len(rows):
            yield key, table.take(pa.array(rows))


@dataclasses.dataclass(eq=False)
class CountWords(beam.PTransform):
    """URLs of corpus shards -> one record for each `words` shard it writes below `directory`.

    Tables of counts travel, never words; a row group's counts leave the worker before the next row
    group is read, so memory is bounded by one row group and its distinct words.
    """

    directory: str
    shards: int
    kernel_threads: int

    def expand(self, urls: beam.PCollection) -> beam.PCollection:
        # So that a shard without words is a file of no rows, and not missing.
        every_shard = urls.pipeline | "EveryShard" >> beam.Create(
            [(key, _EMPTY) for key in range(self.shards)]
        ).with_output_types(KeyedTable)
        counts = urls | "Count" >> beam.ParDo(
            _CountRowGroups(self.shards, self.kernel_threads)
        ).with_output_types(KeyedTable)
        return (
            (counts, every_shard)
            | "Flatten" >> beam.Flatten()
            | "Sum"
            >> beam.CombinePerKey(MergeTablesCombineFn(sum_words)).with_output_types(KeyedTable)
            | "Write"
            >> beam.Map(_write_words, self.directory, self.shards).with_output_types(ShardRecord)
        )


_EMPTY = count_words(pa.array([], pa.string()), pa.array([], pa.string()))


class _CountRowGroups(beam.DoFn):
    def __init__(self, shards: int, threads: int) -> None:
        self._shards, self._threads = shards, threads

    def process(self, url: str) -> Iterator[KeyedTable]:
        for group in iterate_row_groups(url, CORPUS, ["source", "target"]):
            Metrics.counter(CountWords, "in-rows").inc(group.num_rows)
            table = count_words(
                one_chunk(group["source"]), one_chunk(group["target"]), self._threads
            )
            yield from partition(table, table["hash"].to_numpy(), self._shards)


def _write_words(counts: KeyedTable, directory: str, shards: int) -> ShardRecord:
    """Sorted by the words' bytes, so that the file is a function of the counts alone."""
    shard, table = counts
    words = table.drop_columns("hash").sort_by("word")
    symbols = pc.sum(pc.utf8_length(words["word"])).as_py() or 0
    counters = {
        "source_tokens": pc.sum(words["source_count"]).as_py() or 0,
        "target_tokens": pc.sum(words["target_count"]).as_py() or 0,
        "source_types": pc.sum(pc.greater(words["source_count"], 0)).as_py() or 0,
        "target_types": pc.sum(pc.greater(words["target_count"], 0)).as_py() or 0,
        "symbols": symbols,
    }
    return write_parquet_shard(directory, shard_name(shard, shards), WORDS, [words], counters)
