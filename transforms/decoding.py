"""From segmented shards to translations shards: what surrounds the search, one to one by shard.

    segmented shard k -> batches of rows -> (search) -> rows of translations -> translations shard k

A batch carries its place in its shard, so that the rows come back in the order of the input.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rareword.schemas import tables
from rareword.schemas import vocabulary as vocabularies
from rareword.schemas.errors import RarewordError
from rareword.schemas.tables import CORPUS, SEGMENTED, TRANSLATIONS, ShardRecord
from rareword.schemas.vocabulary import Vocabulary
from rareword.transforms import candidates, unk_replacement
from rareword.transforms.parts import KeyedTable, one_chunk
from rareword.transforms.segmenters import split_words
from rareword.transforms.text import restore
from rareword.transforms.unk_replacement import Replacement

ROWS_PER_BATCH = 2048
"""Rows of one Beam element: enough to sort by length, little to repeat after a failure."""

Batch = tuple[int, KeyedTable]
"""The shard, and rows keyed by their place in the shard."""

Found = tuple[list[int], float, "npt.NDArray[np.float32] | None"]
"""A hypothesis: target ids without end-of-sentence, score, alignment [T, S] or None."""

COUNTERS = ("sentences", "target_pieces", "empty_outputs", "at_limit_outputs")
"""Figures of a shard, over its best hypotheses."""


# ---- reading ----


def read_batches(
    shard: int, url: str, corpus_url: str | None = None, rows: int = ROWS_PER_BATCH
) -> Iterator[Batch]:
    """The batches of a segmented shard, in order; an empty shard gives one batch without rows.

    corpus_url: the corpus shard that it was cut from, whose source words come as a column `words`.
    Raises RarewordError if its rows are not the same.
    """
    if corpus_url is not None:
        groups = tables.iterate_row_groups(corpus_url, CORPUS, _COLUMNS)
        corpus = pa.concat_tables([CORPUS.fields.empty_table().select(_COLUMNS), *groups])
    done = 0
    for place, part in enumerate(_slices(url, rows)):
        if corpus_url is None:
            yield shard, (place, part)
        else:
            same = corpus.slice(done, part.num_rows)
            yield shard, (place, _with_words(part, same, f"{url} and {corpus_url}"))
        done += part.num_rows


_COLUMNS = ["id", "source"]


def _slices(url: str, rows: int) -> Iterator[pa.Table]:
    """At most `rows` rows at a time; a table without rows if there are none at all."""
    is_empty = True
    for group in tables.iterate_row_groups(url, SEGMENTED):
        for start in range(0, group.num_rows, rows):
            is_empty = False
            yield group.slice(start, rows)
    if is_empty:
        yield SEGMENTED.fields.empty_table()


def _with_words(batch: pa.Table, corpus: pa.Table, where: str) -> pa.Table:
    """Adds the source words of each row, one for each of its pieces."""
    words, sizes = split_words(one_chunk(corpus["source"]))
    if batch["id"].to_pylist() != corpus["id"].to_pylist() or not np.array_equal(
        pc.list_value_length(batch["source"]).to_numpy(), sizes
    ):
        raise RarewordError(
            f"{where} do not hold the same sentences in the same words; segment the corpus again"
        )
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
    return batch.append_column("words", pa.ListArray.from_arrays(offsets, words))


# ---- rows ----


def to_rows(
    ids: Sequence[int],
    found: Sequence[Sequence[Found]],
    limits: Sequence[int],
    vocabulary: Vocabulary,
    text_rules: Mapping[str, Any],
    *,
    figures: Mapping[str, Sequence[int]] | None = None,
    keeps_alignments: bool = True,
    replacement: Replacement | None = None,
    source_words: Sequence[Sequence[str]] = (),
) -> pa.Table:
    """The rows of TRANSLATIONS for sentences `ids`, and further columns for counting: a bool
    `at_limit`, the figures, with a replacement its COUNTERS.

    found: for each sentence its hypotheses, the best first. limits: the most pieces an output may
    have, end-of-sentence included. text_rules: undone on the words to give the text. figures: by
    name, one for each sentence.
    keeps_alignments: False leaves their column null. replacement: what takes the place of `<unk>`
    in pieces that are whole words; needs alignments and the words of each sentence's source.
    """
    hypotheses = [hypothesis for several in found for hypothesis in several]
    alignments = [alignment if keeps_alignments else None for _, _, alignment in hypotheses]
    shown = [vocabulary.display(pieces) for pieces, _, _ in hypotheses]
    words = [vocabulary.words(pieces) for pieces, _, _ in hypotheses]
    at_limit = [
        len(pieces) + 1 >= limit
        for several, limit in zip(found, limits, strict=True)
        for pieces, _, _ in several
    ]
    counts: dict[str, pa.Array] = {"at_limit": pa.array(at_limit, pa.bool_())}
    for name, values in (figures or {}).items():
        repeated = np.repeat(np.asarray(values, np.int64), list(map(len, found)))
        counts[name] = pa.array(repeated, pa.int64())
    if replacement is not None:
        replaced = [
            replacement.replace(pieces, vocabulary.texts(pieces), alignment, source)
            for several, source in zip(found, source_words, strict=True)
            for pieces, _, alignment in several
        ]
        shown = [[vocabularies.displayed(word) for word in output.words] for output in replaced]
        words = list(map(vocabularies.joined, shown))
        counts |= {
            name: pa.array([output.counts[name] for output in replaced], pa.int64())
            for name in unk_replacement.COUNTERS
        }
    columns = {
        "id": [id_ for id_, several in zip(ids, found, strict=True) for _ in several],
        "rank": [rank for several in found for rank in range(len(several))],
        "text": restore(text_rules, words),
        "pieces": shown,
        "score": [score for _, score, _ in hypotheses],
        "alignment": [None if a is None else a.tolist() for a in alignments],
    }
    table = pa.table(columns, schema=TRANSLATIONS.fields)
    for name, column in counts.items():
        table = table.append_column(name, column)
    return table


def count(rows: pa.Table) -> dict[str, int]:
    """The COUNTERS of a table that `to_rows` made, and those of its replacement if it had one."""
    best = rows.filter(pc.equal(rows["rank"], 0))
    lengths = pc.list_value_length(best["pieces"])
    return {
        "sentences": best.num_rows,
        "target_pieces": pc.sum(lengths).as_py() or 0,
        "empty_outputs": pc.sum(pc.equal(lengths, 0)).as_py() or 0,
        "at_limit_outputs": pc.sum(best["at_limit"]).as_py() or 0,
        **{
            name: pc.sum(best[name]).as_py() or 0
            for name in (*unk_replacement.COUNTERS, *candidates.COUNTERS)
            if name in best.column_names
        },
    }


# ---- writing ----


def write_translations(
    gathered: tuple[int, Iterable[KeyedTable]], source_urls: Sequence[str], directory: str
) -> ShardRecord:
    """Writes one translations shard; idempotent, since its name and rows are fixed.

    gathered: the shard, and tables of `to_rows` with their places, in any order. source_urls: the
    segmented shards. Raises RarewordError unless there is exactly one rank-0 row for each input
    row, in its order.
    """
    shard, batches = gathered
    ordered = [table for _, table in sorted(batches, key=lambda batch: batch[0])]
    rows = pa.concat_tables(ordered)
    url = source_urls[shard]
    expected = [table["id"] for table in tables.iterate_row_groups(url, SEGMENTED, ["id"])]
    found = rows.filter(pc.equal(rows["rank"], 0))["id"].to_pylist()
    if found != [id_.as_py() for column in expected for id_ in column]:
        raise RarewordError(
            f"the run lost or doubled data: {url} and its translations do not have the same ids; "
            "nothing was finished; run it again, on another runner if it repeats"
        )
    name = tables.shard_name(shard, len(source_urls))
    return tables.write_shard(directory, name, TRANSLATIONS, [rows], count(rows))


@dataclasses.dataclass(eq=False)
class WriteTranslations(beam.PTransform):
    """Gathers the batches of each shard and writes it; gives the shards' records."""

    source_urls: Sequence[str]
    directory: str

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        return (
            batches
            | "GroupByShard" >> beam.GroupByKey()
            | "Write"
            >> beam.Map(write_translations, self.source_urls, self.directory).with_output_types(
                ShardRecord
            )
        )
