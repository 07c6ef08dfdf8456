"""The vocabulary of a segmenter from a word table; and, shard by shard, a corpus in its ids."""

import dataclasses
import functools
import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple, cast

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.pvalue import AsIter, AsSingleton
from numpy.typing import NDArray

from rareword.schemas import vocabulary as vocabularies
from rareword.schemas.errors import RarewordError
from rareword.schemas.tables import (
    CORPUS,
    SEGMENTED,
    SIDES,
    WORDS,
    ShardRecord,
    Side,
    iterate_row_groups,
    shard_name,
    write_shard,
)
from rareword.schemas.vocabulary import UNK, Vocabulary
from rareword.transforms import _kernels, segmenters
from rareword.transforms.elements import MergeTablesCombineFn
from rareword.transforms.parts import KeyedTable, one_chunk
from rareword.transforms.segmenters import (
    COUNTED,
    PIECE_COUNTS,
    Encoded,
    Encoder,
    RawSegmenter,
    VocabularyRules,
)


@dataclasses.dataclass(frozen=True)
class SegmenterPlace:
    """Where the segmenters of both sides lie. The digest keeps a process from mistaking another
    run's files in the same place for these."""

    directory: str
    kind: str
    settings: str
    """As JSON: a place is a key."""
    digest: str


@functools.lru_cache(maxsize=2)
def _segmenters(place: SegmenterPlace) -> dict[Side, segmenters.Segmenter]:
    return segmenters.load(place.directory, place.kind, json.loads(place.settings))


# ---- vocabulary ----


@dataclasses.dataclass(eq=False)
class BuildVocabulary(beam.PTransform):
    """URLs of word shards, or of corpus shards for raw text -> one BuiltVocabulary; the
    vocabularies are written below `directory`. `segmenter` is one SegmenterPlace, which comes when
    the segmenter is written."""

    segmenter: beam.PCollection
    rules: VocabularyRules
    directory: str
    is_raw: bool
    """The segmenter cuts whole lines: its pieces are counted in the corpus."""

    def expand(self, urls: beam.PCollection) -> beam.PCollection:
        place = AsSingleton(self.segmenter)
        counts = (
            urls
            | "CountPieces"
            >> beam.FlatMap(_count_pieces, place, self.is_raw).with_output_types(KeyedTable)
            | "SumPieces"
            >> beam.CombinePerKey(MergeTablesCombineFn(sum_pieces)).with_output_types(KeyedTable)
        )
        return (
            urls.pipeline
            | "Tick" >> beam.Create([0])
            | "WriteVocabulary"
            >> beam.Map(
                _write_vocabularies, place, self.rules, self.directory, AsIter(counts)
            ).with_output_types(BuiltVocabulary)
        )


class BuiltVocabulary(NamedTuple):
    """The hash of written vocabularies, and how many words their counts make up."""

    hash: str
    source_words: int
    target_words: int


def _count_pieces(url: str, place: SegmenterPlace, is_raw: bool) -> Iterator[KeyedTable]:
    """One table a row group, all under one key: pieces are few."""
    both = _segmenters(place)
    if is_raw:
        for group in iterate_row_groups(url, CORPUS, list(SIDES)):
            yield 0, _count_pieces_of_lines(group, both)
        return
    for group in iterate_row_groups(url, WORDS):
        words = one_chunk(group["word"])
        yield 0, count_pieces(words, {s: group[f"{s}_count"].to_numpy() for s in SIDES}, both)


def _count_pieces_of_lines(rows: pa.Table, both: dict[Side, segmenters.Segmenter]) -> pa.Table:
    """The PIECE_COUNTS table of rows of a corpus."""
    tables = []
    for side in SIDES:
        lines = pc.fill_null(one_chunk(rows[side]), "")
        tables.append(_of_side(cast("RawSegmenter", both[side]).count_lines(lines), side))
    return sum_pieces(tables)


def count_pieces(
    words: pa.Array,
    counts: dict[str, NDArray[np.int64]],
    both: dict[Side, segmenters.Segmenter],
) -> pa.Table:
    """The PIECE_COUNTS table of a word table."""
    tables = []
    for side in SIDES:
        occurs = counts[side] > 0
        found = both[side].count_pieces(words.filter(pa.array(occurs)), counts[side][occurs])
        tables.append(_of_side(found, side))
    return sum_pieces(tables)


def _of_side(counted: pa.Table, side: str) -> pa.Table:
    """A COUNTED table as a PIECE_COUNTS table that knows nothing of the other side."""
    none = pa.nulls(counted.num_rows, pa.int64())
    columns = {f"{s}_count": counted["count"] if s == side else none for s in SIDES}
    return pa.table({**{name: counted[name] for name in COUNTED.names[:-1]}, **columns})


def with_possible_pieces(counts: pa.Table, both: dict[Side, segmenters.Segmenter]) -> pa.Table:
    """Adds, with count 0, the pieces that other words of each side's characters can have."""
    tables = [counts]
    for side in SIDES:
        known = counts["piece"].filter(pc.is_valid(counts[f"{side}_count"]))
        characters = set(known.filter(pc.equal(pc.utf8_length(known), 1)).to_pylist())
        tables.append(_of_side(both[side].possible_pieces(characters), side))
    return sum_pieces(tables)


def sum_pieces(tables: list[pa.Table]) -> pa.Table:
    """Adds the counts of equal pieces."""
    table = pa.concat_tables(tables).group_by(PIECE_COUNTS.names[:3], use_threads=False)
    sums = table.aggregate([("source_count", "sum"), ("target_count", "sum")])
    return sums.rename_columns(
        {"source_count_sum": "source_count", "target_count_sum": "target_count"}
    ).select(PIECE_COUNTS.names)


def _write_vocabularies(
    _: int,
    place: SegmenterPlace,
    rules: VocabularyRules,
    directory: str,
    counts: Iterable[KeyedTable],
) -> BuiltVocabulary:
    used = _segmenters(place)
    table = pa.concat_tables([PIECE_COUNTS.empty_table(), *(table for _, table in counts)])
    table = with_possible_pieces(table, used)
    spells = all(segmenter.spells for segmenter in used.values())
    both = segmenters.build_vocabularies(table, rules, spells)
    vocabularies.write_both(both, directory)
    ends = table.filter(table["final"])  # a word has one
    words = (pc.sum(ends[f"{side}_count"]).as_py() or 0 for side in SIDES)
    return BuiltVocabulary(both.hash, *words)


# ---- corpus ----


class SegmentedShard(NamedTuple):
    """A finished shard: its record, and which pieces occur in it (a bit a piece id)."""

    record: ShardRecord
    source_used: bytes
    target_used: bytes


@dataclasses.dataclass(eq=False)
class SegmentShards(beam.PTransform):
    """(shard number, URL) of corpus shards -> one SegmentedShard each.

    Shards map one to one and are streamed row group by row group: no shuffle, bounded memory, and
    a repeated bundle writes the same file again.
    """

    segmenter: SegmenterPlace
    vocabulary: str
    """Hash of the vocabularies that lie with the segmenter."""
    directory: str
    shards: int
    kernel_threads: int

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        return shards | "SegmentShard" >> beam.Map(
            _segment_shard,
            self.segmenter,
            self.vocabulary,
            self.directory,
            self.shards,
            self.kernel_threads,
        ).with_output_types(SegmentedShard)


class Measured(NamedTuple):
    """What the conservation check knows of a vocabulary."""

    measures: NDArray[np.int64]
    """Of each piece: its bytes, plus ENDS_WORD if it ends its word, so that one sum measures a line
    (no line has as many bytes as ENDS_WORD, or 2^24 words)."""
    is_raw: bool


ENDS_WORD = 1 << 40


def measured(vocabulary: Vocabulary) -> Measured:
    """Measures the pieces; in a raw vocabulary none ends a word."""
    measures = np.array(vocabulary.piece_bytes(), np.int64)
    if not vocabulary.is_raw:
        measures += np.array(vocabulary.final, np.int64) * ENDS_WORD
    return Measured(measures, vocabulary.is_raw)


class _Side(NamedTuple):
    encoder: Encoder
    pieces: Measured


@functools.lru_cache(maxsize=2)
def _sides(place: SegmenterPlace, vocabulary: str) -> dict[Side, _Side]:
    """Encoders of both sides, loaded once per process. vocabulary: the hash of those beside the
    segmenter."""
    both = vocabularies.read_both(place.directory)
    if both.hash != vocabulary:
        raise RarewordError(f"{place.directory}: the vocabulary changed while it was read")
    used = _segmenters(place)
    source = _Side(used["source"].encoder(both.source), measured(both.source))
    if used["source"] is used["target"] and both.joint:
        return {"source": source, "target": source}
    target = _Side(used["target"].encoder(both.target), measured(both.target))
    return {"source": source, "target": target}


def _segment_shard(
    shard: tuple[int, str],
    place: SegmenterPlace,
    vocabulary: str,
    directory: str,
    shards: int,
    threads: int,
) -> SegmentedShard:
    number, url = shard
    sides = _sides(place, vocabulary)
    counters = {f"{s}_{what}": 0 for s in SIDES for what in ("tokens", "pieces", "unknown")}
    used = {side: np.zeros(len(sides[side].pieces.measures), bool) for side in SIDES}
    count_long = {}
    for side, segmenter in _segmenters(place).items():
        if hasattr(segmenter, "count_long_words"):  # a limit on words is not to be silent
            count_long[side] = segmenter.count_long_words
            counters[f"{side}_long_words"] = 0

    def tables() -> Iterator[pa.Table]:
        for group in iterate_row_groups(url, CORPUS):
            columns = {"id": one_chunk(group["id"])}
            for side in SIDES:
                lines = one_chunk(group[side])
                encoded = sides[side].encoder.encode(lines, threads)
                unknown, occurs = check_joins(encoded, lines, sides[side].pieces, url, threads)
                counters[f"{side}_tokens"] += int(encoded.words.sum())
                counters[f"{side}_pieces"] += len(encoded.ids)
                counters[f"{side}_unknown"] += unknown
                if side in count_long:
                    counters[f"{side}_long_words"] += count_long[side](lines)
                used[side] |= occurs
                columns[side] = pa.ListArray.from_arrays(
                    pa.array(encoded.offsets, pa.int32()), pa.array(encoded.ids, pa.int32())
                )
            yield pa.table(columns, schema=SEGMENTED.fields)

    record = write_shard(directory, shard_name(number, shards), SEGMENTED, tables(), counters)
    return SegmentedShard(record, *(np.packbits(used[side]).tobytes() for side in SIDES))


def check_joins(
    encoded: Encoded, lines: pa.Array, vocabulary: Measured, url: str, threads: int = 1
) -> tuple[int, NDArray[np.bool_]]:
    """Conservation: in every line without unknown pieces the pieces have all the text's bytes and
    end as many words as there are. (The text is what the segmenter made of the line, if it changes
    lines first.)

    Returns the number of unknown pieces, and of each piece of the vocabulary whether it occurs.
    Raises RarewordError naming file and row if pieces do not give their line.
    """
    wrong, unknown, used = _kernels.check_pieces(
        encoded.ids,
        encoded.offsets,
        encoded.words,
        lines if encoded.text is None else encoded.text,
        vocabulary.measures,
        ENDS_WORD,
        UNK,
        vocabulary.is_raw,
        threads,
    )
    if wrong >= 0:
        raise RarewordError(f"{url}: the pieces of row {wrong} of a row group do not give its text")
    return unknown, used.view(bool)


def count_used(shards: list[SegmentedShard], side: str) -> int:
    """How many different pieces occur on a side."""
    masks = [np.frombuffer(getattr(shard, f"{side}_used"), np.uint8) for shard in shards]
    return int(np.unpackbits(functools.reduce(np.bitwise_or, masks)).sum()) if masks else 0
