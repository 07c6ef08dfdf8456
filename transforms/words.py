"""Word counts: which words the corpus holds, and how often on each side."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.metrics import Metrics

from rareword.schemas.tables import (
    CORPUS,
    WORDS,
    ShardRecord,
    iterate_row_groups,
    shard_name,
    write_shard,
)
from rareword.transforms._kernels import WordCounter
from rareword.transforms.elements import MergeTablesCombineFn
from rareword.transforms.parts import KeyedTable, one_chunk, split_parts, strings

COUNTER_BYTES = 128 << 20
"""A counter that has grown to this sends its words on and begins anew."""
ITEM_BYTES = 64 << 20
"""Compressed bytes of corpus that one worker counts together."""


def count_words(source: pa.Array, target: pa.Array, threads: int = 1) -> pa.Table:
    """The `words` table of two columns of lines, in no particular order.

    Words are split at U+0020 only. Raises ValueError naming row and byte for bad UTF-8.
    """
    counter = WordCounter(threads)
    counter.add_lines(source, target)
    return taken(counter)


def sum_words(tables: Iterable[pa.Table], sort: bool = False) -> pa.Table:
    """Adds the counts of equal words; `sort`: in the order of the words' bytes."""
    counter = WordCounter()
    for table in tables:
        add_table(counter, table)
    return taken(counter, sort)


def add_table(counter: WordCounter, table: pa.Table) -> None:
    """Adds the counts of a `words` table."""
    for batch in table.to_batches():
        counter.add_counts(
            batch["word"], batch["source_count"].to_numpy(), batch["target_count"].to_numpy()
        )


def taken(counter: WordCounter, sort: bool = False) -> pa.Table:
    """Empties a counter into a `words` table."""
    return next((table for _, table in taken_parts(counter, 1, sort)), EMPTY)


def taken_parts(counter: WordCounter, parts: int, sort: bool = False) -> Iterator[KeyedTable]:
    """Empties a counter into a `words` table for each part that has words.

    A word's part is a function of its bytes. Tables are of at most about ELEMENT_BYTES, so a part
    may come as several.
    """
    offsets, data, source_counts, target_counts, bounds = counter.take(parts, sort)
    table = pa.table(
        {
            "word": strings(offsets, data),
            "source_count": source_counts,
            "target_count": target_counts,
        }
    )
    yield from split_parts(table, bounds)


EMPTY = pa.table(
    {
        "word": pa.array([], pa.large_string()),
        "source_count": pa.array([], pa.int64()),
        "target_count": pa.array([], pa.int64()),
    }
)


@dataclasses.dataclass(eq=False)
class CountWords(beam.PTransform):
    """Tuples of URLs of corpus shards, each a work item -> one record for each `words` shard that
    it writes below `directory`.

    Tables of counts travel, never words. A counter that grows beyond COUNTER_BYTES sends its words
    on, so memory is bounded by that and one row group. previous: URLs of `words` shards whose
    counts are added.
    """

    directory: str
    shards: int
    kernel_threads: int
    previous: Sequence[str] = ()

    def expand(self, items: beam.PCollection) -> beam.PCollection:
        # So that a shard without words is a file of no rows, and not missing.
        every_shard = items.pipeline | "EveryShard" >> beam.Create(
            [(key, EMPTY) for key in range(self.shards)]
        ).with_output_types(KeyedTable)
        counts = items | "Count" >> beam.FlatMap(
            _count_lines, self.shards, self.kernel_threads
        ).with_output_types(KeyedTable)
        before = (
            items.pipeline
            | "Previous" >> beam.Create(list(self.previous), reshuffle=False)
            | "SpreadPrevious" >> beam.Reshuffle()
            | "Reread" >> beam.FlatMap(_reread_words, self.shards).with_output_types(KeyedTable)
        )
        return (
            (counts, before, every_shard)
            | "Flatten" >> beam.Flatten()
            | "Sum"
            >> beam.CombinePerKey(MergeTablesCombineFn(sum_words)).with_output_types(KeyedTable)
            | "Write"
            >> beam.Map(_write_words, self.directory, self.shards).with_output_types(ShardRecord)
        )


def plan_items(shards: Iterable[tuple[str, int]]) -> list[tuple[str, ...]]:
    """Work items from (URL, bytes) of corpus shards: small shards are counted together, up to about
    ITEM_BYTES, so that their common words travel once."""
    items: list[tuple[str, ...]] = []
    held = ITEM_BYTES
    for url, size in shards:
        if held + size > ITEM_BYTES:
            items.append(())
            held = 0
        items[-1] += (url,)
        held += size
    return items


def _count_lines(urls: tuple[str, ...], shards: int, threads: int) -> Iterator[KeyedTable]:
    """The words of corpus shards, by output shard."""
    counter = WordCounter(threads)
    for url in urls:
        for group in iterate_row_groups(url, CORPUS, ["source", "target"]):
            Metrics.counter(CountWords, "in-rows").inc(group.num_rows)
            counter.add_lines(one_chunk(group["source"]), one_chunk(group["target"]))
            if counter.memory > COUNTER_BYTES:
                yield from taken_parts(counter, shards)
    yield from taken_parts(counter, shards)


def _reread_words(url: str, shards: int) -> Iterator[KeyedTable]:
    """The words of a `words` shard, by output shard."""
    counter = WordCounter()
    for group in iterate_row_groups(url, WORDS):
        add_table(counter, group)
        yield from taken_parts(counter, shards)


def _write_words(counts: KeyedTable, directory: str, shards: int) -> ShardRecord:
    """Sorted by the words' bytes, so that the file is a function of the counts alone."""
    shard, table = counts
    words = sum_words([table], sort=True)
    symbols = pc.sum(pc.utf8_length(words["word"])).as_py() or 0
    counters = {
        "source_tokens": pc.sum(words["source_count"]).as_py() or 0,
        "target_tokens": pc.sum(words["target_count"]).as_py() or 0,
        "source_types": pc.sum(pc.greater(words["source_count"], 0)).as_py() or 0,
        "target_types": pc.sum(pc.greater(words["target_count"], 0)).as_py() or 0,
        "symbols": symbols,
    }
    return write_shard(directory, shard_name(shard, shards), WORDS, [words], counters)
