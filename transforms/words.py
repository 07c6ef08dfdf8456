"""Word counts: which words the corpus holds, and how often on each side."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Literal

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
from rareword.transforms._kernels import WordCounter, sorted_rows
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


def sum_words(tables: Iterable[pa.Table]) -> pa.Table:
    """Adds the counts of equal words; in no particular order."""
    counter = WordCounter()
    for table in tables:
        add_table(counter, table)
    return taken(counter)


def add_table(counter: WordCounter, table: pa.Table) -> None:
    """Adds the counts of a `words` table."""
    for batch in table.to_batches():
        counter.add_counts(
            batch["word"], batch["source_count"].to_numpy(), batch["target_count"].to_numpy()
        )


def taken(counter: WordCounter) -> pa.Table:
    """Empties a counter into a `words` table."""
    return next((table for _, table in taken_parts(counter, 1)), EMPTY)


def taken_parts(counter: WordCounter, parts: int) -> Iterator[KeyedTable]:
    """Empties a counter into a `words` table for each part that has words.

    A word's part is a function of its bytes. Tables are of at most about ELEMENT_BYTES, so a part
    may come as several.
    """
    offsets, data, source_counts, target_counts, bounds = counter.take(parts)
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


WorkItem = tuple[Literal["shards", "corpus", "words"], tuple[str, ...]]
"""URLs of corpus shards or of `words` shards; with neither it stands for the output shards."""


def plan_items(corpus: Iterable[tuple[str, int]], previous: Iterable[str] = ()) -> list[WorkItem]:
    """Work items from (URL, bytes) of corpus shards and the URLs of `words` shards whose counts are
    added.

    Small corpus shards are counted together, up to about ITEM_BYTES, so that their common words
    travel once.
    """
    groups: list[tuple[str, ...]] = []
    held = ITEM_BYTES
    for url, size in corpus:
        if held + size > ITEM_BYTES:
            groups.append(())
            held = 0
        groups[-1] += (url,)
        held += size
    items: list[WorkItem] = [("corpus", urls) for urls in groups]
    items += [("words", (url,)) for url in previous]
    return [*items, ("shards", ())]


@dataclasses.dataclass(eq=False)
class CountWords(beam.PTransform):
    """WorkItems -> one record for each `words` shard that it writes below `directory`.

    Tables of counts travel, never words. A counter that grows beyond COUNTER_BYTES sends its words
    on, so memory is bounded by that and one row group.
    """

    directory: str
    shards: int
    kernel_threads: int

    def expand(self, items: beam.PCollection) -> beam.PCollection:
        return (
            items
            | "Count"
            >> beam.FlatMap(_count, self.shards, self.kernel_threads).with_output_types(KeyedTable)
            | "Sum"
            >> beam.CombinePerKey(MergeTablesCombineFn(sum_words)).with_output_types(KeyedTable)
            | "Write"
            >> beam.Map(_write_words, self.directory, self.shards).with_output_types(ShardRecord)
        )


def _count(item: WorkItem, shards: int, threads: int) -> Iterator[KeyedTable]:
    """The counts of a work item, by output shard."""
    kind, urls = item
    if kind == "shards":  # so that a shard without words is a file of no rows, and not missing
        yield from ((shard, EMPTY) for shard in range(shards))
    counter = WordCounter(threads)
    for url in urls:
        if kind == "words":
            for group in iterate_row_groups(url, WORDS):
                add_table(counter, group)
                yield from _full(counter, shards)
        else:
            for group in iterate_row_groups(url, CORPUS, ["source", "target"]):
                Metrics.counter(CountWords, "in-rows").inc(group.num_rows)
                counter.add_lines(one_chunk(group["source"]), one_chunk(group["target"]))
                yield from _full(counter, shards)
    yield from taken_parts(counter, shards)


def _full(counter: WordCounter, shards: int) -> Iterator[KeyedTable]:
    """Empties a counter that has grown too large."""
    if counter.memory > COUNTER_BYTES:
        yield from taken_parts(counter, shards)


def _write_words(counts: KeyedTable, directory: str, shards: int) -> ShardRecord:
    """Sorted by the words' bytes, so that the file is a function of the counts alone."""
    shard, table = counts
    words = table.take(pa.array(sorted_rows(one_chunk(table["word"]))))
    symbols = pc.sum(pc.utf8_length(words["word"])).as_py() or 0
    counters = {
        "source_tokens": pc.sum(words["source_count"]).as_py() or 0,
        "target_tokens": pc.sum(words["target_count"]).as_py() or 0,
        "source_types": pc.sum(pc.greater(words["source_count"], 0)).as_py() or 0,
        "target_types": pc.sum(pc.greater(words["target_count"], 0)).as_py() or 0,
        "symbols": symbols,
    }
    return write_shard(directory, shard_name(shard, shards), WORDS, [words], counters)
