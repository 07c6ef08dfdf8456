"""Segmenters: how a word becomes pieces. One protocol; the vocabulary gives the pieces their ids.

`Segmenter.count_pieces` tells which pieces a word table has, `build_vocabularies` chooses among
them, and `Segmenter.encoder` then turns lines into ids. What has no id becomes `<unk>` by itself;
the rest of its word stays.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rareword.schemas import merges as merge_files
from rareword.schemas import storage
from rareword.schemas.errors import RarewordError
from rareword.schemas.merges import Merge, Symbol
from rareword.schemas.tables import MERGES, SIDES, ShardRecord, write_shard
from rareword.schemas.vocabulary import SPECIALS, UNK, Vocabularies, Vocabulary
from rareword.transforms import _kernels

FIRST_MERGED: int = _kernels.FIRST_MERGED

# A side's count is null if its words cannot have the piece.
PIECE_COUNTS = pa.schema(
    [
        ("piece", pa.string()),
        ("final", pa.bool_()),
        ("source_count", pa.int64()),
        ("target_count", pa.int64()),
    ]
)


@dataclasses.dataclass(frozen=True)
class Encoded:
    """Lines as piece ids: line r is ids[offsets[r]:offsets[r + 1]] and has `words[r]` words."""

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    words: NDArray[np.int64]


class Encoder(Protocol):
    """A segmenter bound to a vocabulary."""

    def encode(self, lines: pa.Array, threads: int = 1) -> Encoded:
        """The ids of each line; words are split at U+0020."""


class Segmenter(Protocol):
    """Cuts the words of one side into pieces."""

    def count_pieces(self, words: pa.Array, counts: NDArray[np.int64]) -> dict[Symbol, int]:
        """How often each piece occurs in words with these counts.

        Pieces that these words do not show but other words of the same characters can have come
        with count 0, so that a vocabulary may hold them.
        """

    def encoder(self, vocabulary: Vocabulary) -> Encoder:
        """Binds the segmenter to piece ids."""

    def save(self, directory: str, name: str) -> ShardRecord | None:
        """Writes what `load` needs below `directory`; None if there is nothing to write."""


class WordSegmenter:
    """Every word is a piece: the word-level baseline."""

    def count_pieces(self, words: pa.Array, counts: NDArray[np.int64]) -> dict[Symbol, int]:
        return {
            Symbol(word, True): int(count)
            for word, count in zip(words.to_pylist(), counts.tolist(), strict=True)
            if count
        }

    def encoder(self, vocabulary: Vocabulary) -> Encoder:
        return _WordEncoder(vocabulary)

    def save(self, directory: str, name: str) -> ShardRecord | None:
        return None


class _WordEncoder:
    def __init__(self, vocabulary: Vocabulary) -> None:
        self._words = pa.array(vocabulary.pieces[len(SPECIALS) :], pa.string())

    def encode(self, lines: pa.Array, threads: int = 1) -> Encoded:
        lists = pc.split_pattern(pc.fill_null(lines, ""), " ")
        words, rows = lists.flatten(), pc.list_parent_indices(lists)
        keep = pc.greater(pc.binary_length(words), 0)
        found = pc.index_in(words.filter(keep), value_set=self._words)
        ids = pc.fill_null(found, UNK - len(SPECIALS)).to_numpy() + np.int32(len(SPECIALS))
        sizes = np.bincount(rows.filter(keep).to_numpy(), minlength=len(lines)).astype(np.int64)
        return Encoded(ids, np.concatenate([[0], np.cumsum(sizes)]), sizes)


class BpeSegmenter:
    """Byte-pair encoding with a list of merges; of two for one pair, the earlier one holds."""

    def __init__(self, merges: Sequence[Merge]) -> None:
        self.merges = list(merges)
        self._ids: dict[Symbol, int] = {}
        for rank, merge in enumerate(self.merges):
            if len(merge.result.text) > 1:
                self._ids.setdefault(merge.result, FIRST_MERGED + rank)
        # A merge of a symbol that nothing makes can never apply and is left out.
        usable = [m for m in self.merges if None not in (self._id(m.left), self._id(m.right))]
        self._left = np.array([self._id(merge.left) for merge in usable], np.int32)
        self._right = np.array([self._id(merge.right) for merge in usable], np.int32)
        self._result = np.array([self._id(merge.result) for merge in usable], np.int32)

    def _id(self, symbol: Symbol) -> int | None:
        if len(symbol.text) == 1:
            return 2 * ord(symbol.text) + symbol.final
        return self._ids.get(symbol)

    def _symbol(self, number: int) -> Symbol:
        if number >= FIRST_MERGED:
            return self.merges[number - FIRST_MERGED].result
        return Symbol(chr(number >> 1), bool(number & 1))

    def _kernel(self, ids: NDArray[np.int32]) -> _kernels.Segmenter:
        return _kernels.Segmenter(self._left, self._right, self._result, ids)

    def count_pieces(self, words: pa.Array, counts: NDArray[np.int64]) -> dict[Symbol, int]:
        every = np.arange(FIRST_MERGED + len(self.merges), dtype=np.int32)
        ids, offsets, _ = self._kernel(every).segment(words)
        sums = np.zeros(len(every), np.int64)
        np.add.at(sums, ids, np.repeat(counts, np.diff(offsets)))
        seen = {character for word in words.to_pylist() for character in word}
        possible = [Symbol(character, final) for character in seen for final in (False, True)]
        possible += [m.result for m in self.merges if seen.issuperset(m.result.text)]
        occurring = np.flatnonzero(sums).tolist()
        return {
            **dict.fromkeys(possible, 0),
            **{self._symbol(number): int(sums[number]) for number in occurring},
        }

    def encoder(self, vocabulary: Vocabulary) -> Encoder:
        ids = np.full(FIRST_MERGED + len(self.merges), UNK, np.int32)
        for i in range(len(SPECIALS), len(vocabulary)):
            number = self._id(Symbol(vocabulary.pieces[i], vocabulary.final[i]))
            if number is not None:
                ids[number] = i
        return _BpeEncoder(self._kernel(ids))

    def save(self, directory: str, name: str) -> ShardRecord | None:
        return write_shard(directory, name, MERGES, [merge_files.to_table(self.merges)])


class _BpeEncoder:
    def __init__(self, kernel: _kernels.Segmenter) -> None:
        self._kernel = kernel

    def encode(self, lines: pa.Array, threads: int = 1) -> Encoded:
        return Encoded(*self._kernel.segment(lines, threads))


# ---- on disk ----


def merges_name(side: str) -> str:
    return f"merges-{side}.parquet"


def save(segmenters: Mapping[str, Segmenter], directory: str) -> list[ShardRecord]:
    """Writes the segmenters of both sides below a `segmented` directory."""
    records = [segmenters[side].save(directory, merges_name(side)) for side in SIDES]
    return [record for record in records if record is not None]


def load(directory: str, kind: str) -> dict[str, Segmenter]:
    """The segmenters of both sides that `save` wrote. kind: words or bpe."""
    if kind == "words":
        return {side: WordSegmenter() for side in SIDES}
    if kind == "bpe":
        return {
            side: BpeSegmenter(merge_files.read(storage.join(directory, merges_name(side))))
            for side in SIDES
        }
    raise RarewordError(f"{directory}: segmenter {kind!r} is not known to this release")


# ---- vocabulary ----


@dataclasses.dataclass(frozen=True)
class VocabularyRules:
    """Which pieces get an id."""

    joint: bool
    """One vocabulary for both sides."""
    max_size: int = 0
    """At most so many pieces a vocabulary, special ones included (0: no limit)."""
    min_count: int = 0
    """Rarer pieces get no id. With 0 the vocabulary is the paper's: all characters of the training
    text, in both forms, and all that merges make of them, seen as pieces or not."""


def build_vocabularies(counts: pa.Table, rules: VocabularyRules) -> Vocabularies:
    """Vocabularies from a PIECE_COUNTS table: falling count, then the piece by code point."""
    if rules.joint:
        sums = [pc.fill_null(counts[f"{side}_count"], 0) for side in SIDES]
        joint = _vocabulary(counts, pc.add(*sums), rules)
        return Vocabularies(joint, joint)
    return Vocabularies(
        *(
            _vocabulary(counts.filter(pc.is_valid(order)), order.drop_null(), rules)
            for order in (counts[f"{side}_count"] for side in SIDES)
        )
    )


def _vocabulary(counts: pa.Table, order: pa.ChunkedArray, rules: VocabularyRules) -> Vocabulary:
    table = counts.append_column("order", order)
    table = table.filter(pc.greater_equal(table["order"], rules.min_count))
    table = table.sort_by([("order", "descending"), ("piece", "ascending"), ("final", "ascending")])
    if rules.max_size:
        table = table.slice(0, max(rules.max_size - len(SPECIALS), 0))
    columns = table.to_pydict()
    none = [0] * len(SPECIALS)
    return Vocabulary(
        pieces=[special.text for special in SPECIALS] + columns["piece"],
        final=[special.final for special in SPECIALS] + columns["final"],
        source_counts=none + [count or 0 for count in columns["source_count"]],
        target_counts=none + [count or 0 for count in columns["target_count"]],
    )
