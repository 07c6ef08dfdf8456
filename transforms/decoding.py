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
from rareword.schemas.errors import RarewordError
from rareword.schemas.tables import SEGMENTED, TRANSLATIONS, ShardRecord
from rareword.schemas.vocabulary import Vocabulary
from rareword.transforms.parts import KeyedTable
from rareword.transforms.text import restore

ROWS_PER_BATCH = 2048
"""Rows of one Beam element: enough to sort by length, little to repeat after a failure."""

Batch = tuple[int, KeyedTable]
"""The shard, and rows keyed by their place in the shard."""

Found = tuple[list[int], float, "npt.NDArray[np.float32] | None"]
"""A hypothesis: target ids without end-of-sentence, score, alignment [T, S] or None."""

COUNTERS = ("sentences", "target_pieces", "empty_outputs", "at_limit_outputs")
"""Figures of a shard, over its best hypotheses."""


# ---- reading ----


def read_batches(shard: int, url: str, rows: int = ROWS_PER_BATCH) -> Iterator[Batch]:
    """The batches of a segmented shard, in order; an empty shard gives one batch without rows."""
    place = 0
    for group in tables.iterate_row_groups(url, SEGMENTED):
        for start in range(0, group.num_rows, rows):
            yield shard, (place, group.slice(start, rows))
            place += 1
    if place == 0:
        yield shard, (0, SEGMENTED.fields.empty_table())


# ---- rows ----


def to_rows(
    ids: Sequence[int],
    found: Sequence[Sequence[Found]],
    limits: Sequence[int],
    vocabulary: Vocabulary,
    text_rules: Mapping[str, Any],
) -> pa.Table:
    """The rows of TRANSLATIONS for sentences `ids`, and a bool column `at_limit` for counting.

    found: for each sentence its hypotheses, the best first. limits: the most pieces an output may
    have, end-of-sentence included. text_rules: undone on the words to give the text.
    """
    hypotheses = [hypothesis for several in found for hypothesis in several]
    alignments = [alignment for _, _, alignment in hypotheses]
    words = [vocabulary.words(pieces) for pieces, _, _ in hypotheses]
    columns = {
        "id": [id_ for id_, several in zip(ids, found, strict=True) for _ in several],
        "rank": [rank for several in found for rank in range(len(several))],
        "text": restore(text_rules, words),
        "pieces": [vocabulary.display(pieces) for pieces, _, _ in hypotheses],
        "score": [score for _, score, _ in hypotheses],
        "alignment": [None if a is None else a.tolist() for a in alignments],
    }
    table = pa.table(columns, schema=TRANSLATIONS.fields)
    at_limit = [
        len(pieces) + 1 >= limit
        for several, limit in zip(found, limits, strict=True)
        for pieces, _, _ in several
    ]
    return table.append_column("at_limit", pa.array(at_limit, pa.bool_()))


def count(rows: pa.Table) -> dict[str, int]:
    """The COUNTERS of a table that `to_rows` made."""
    best = rows.filter(pc.equal(rows["rank"], 0))
    lengths = pc.list_value_length(best["pieces"])
    return {
        "sentences": best.num_rows,
        "target_pieces": pc.sum(lengths).as_py() or 0,
        "empty_outputs": pc.sum(pc.equal(lengths, 0)).as_py() or 0,
        "at_limit_outputs": pc.sum(best["at_limit"]).as_py() or 0,
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
