"""Segmenters: how a word becomes pieces. One protocol; the vocabulary gives the pieces their ids.

`Segmenter.count_pieces` tells which pieces a word table has, and `possible_pieces` which others it
might; `build_vocabularies` chooses among them, and `Segmenter.encoder` then turns lines into ids.
What has no id becomes `<unk>` by itself; the rest of its word stays.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rareword.schemas import merges as merge_files
from rareword.schemas import storage
from rareword.schemas.errors import RarewordError
from rareword.schemas.merges import Merge, Symbol
from rareword.schemas.tables import MERGES, SIDES, ShardRecord, write_shard
from rareword.schemas.vocabulary import SPECIALS, UNK, Units, Vocabularies, Vocabulary
from rareword.transforms import _kernels

FIRST_MERGED: int = _kernels.FIRST_MERGED
NO_IDS = np.empty(0, np.int32)

# A side's count is null if its words cannot have the piece.
PIECE_COUNTS = pa.schema(
    [
        ("piece", pa.string()),
        ("final", pa.bool_()),
        ("source_count", pa.int64()),
        ("target_count", pa.int64()),
    ]
)
# The same of one side.
COUNTED = pa.schema([("piece", pa.string()), ("final", pa.bool_()), ("count", pa.int64())])


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

    units: Units
    """What a character of a piece stands for: itself, or a byte of the text."""

    def count_pieces(self, words: pa.Array, counts: NDArray[np.int64]) -> pa.Table:
        """How often each piece occurs in words with these counts: columns of COUNTED.

        The characters of these words come too, in both forms, with count 0 where they are no piece.
        """

    def possible_pieces(self, characters: Set[str]) -> list[Symbol]:
        """The pieces, beside the characters, that words of these characters can have."""

    def encoder(self, vocabulary: Vocabulary) -> Encoder:
        """Binds the segmenter to piece ids."""

    def save(self, directory: str, name: str) -> ShardRecord | None:
        """Writes what `load` needs below `directory`; None if there is nothing to write."""


class WordSegmenter:
    """Every word is a piece: the word-level baseline."""

    units: Units = "characters"

    def count_pieces(self, words: pa.Array, counts: NDArray[np.int64]) -> pa.Table:
        final = np.ones(len(words), bool)
        return pa.table({"piece": words, "final": final, "count": counts}, schema=COUNTED)

    def possible_pieces(self, characters: Set[str]) -> list[Symbol]:
        return []

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


class _Numbers(NamedTuple):
    """Merges as symbol ids, and the id of each string that they make."""

    left: NDArray[np.int32]
    right: NDArray[np.int32]
    result: NDArray[np.int32]
    made: dict[Symbol, int]


class BpeSegmenter:
    """Byte-pair encoding with a list of merges; of two for one pair, the earlier one holds.

    With units "bytes" words are UTF-8 bytes before they are merged, and a character of a symbol
    stands for the byte of its number (U+0000 .. U+00FF).
    """

    def __init__(self, merges: Sequence[Merge], units: Units = "characters") -> None:
        self.merges = list(merges)
        self.units: Units = units

    @functools.cached_property
    def _results(self) -> list[Symbol]:
        return [merge.result for merge in self.merges]

    @functools.cached_property
    def _numbers(self) -> _Numbers:
        made: dict[Symbol, int] = {}
        for rank, result in enumerate(self._results):
            if len(result.text) > 1:
                made.setdefault(result, FIRST_MERGED + rank)

        def number(symbol: Symbol) -> int:
            return _base_number(symbol) if len(symbol.text) == 1 else made.get(symbol, -1)

        rows = [
            (number(merge.left), number(merge.right), number(result))
            for merge, result in zip(self.merges, self._results, strict=True)
        ]
        # A merge of a symbol that nothing makes can never apply and is left out.
        usable = [row for row in rows if row[0] >= 0 and row[1] >= 0]
        columns = np.array(usable, np.int32).reshape(-1, 3).T.copy()
        return _Numbers(columns[0], columns[1], columns[2], made)

    @functools.cached_property
    def kernel(self) -> _kernels.Segmenter:
        """Cuts lines into symbol ids; its cache of words serves all encoders."""
        left, right, result, _ = self._numbers
        symbols = FIRST_MERGED + len(self.merges)
        return _kernels.Segmenter(left, right, result, symbols, self.units == "bytes")

    def count_pieces(self, words: pa.Array, counts: NDArray[np.int64]) -> pa.Table:
        ids, offsets, _ = self.kernel.segment(words, NO_IDS)
        sums = np.zeros(FIRST_MERGED + len(self.merges), np.int64)
        np.add.at(sums, ids, np.repeat(counts, np.diff(offsets)))
        base, _, _ = _kernels.base_symbols(words, counts, self.units == "bytes")
        is_seen = np.zeros(FIRST_MERGED // 2, bool)
        is_seen[base >> 1] = True
        if self.units == "bytes":
            is_seen[:256] = True
        seen, merged = np.flatnonzero(is_seen), np.flatnonzero(sums[FIRST_MERGED:])
        characters = [chr(number) for number in seen.tolist()]
        results = [self._results[rank] for rank in merged.tolist()]
        return pa.table(
            {
                "piece": [*characters, *characters, *(result.text for result in results)],
                "final": [False] * len(seen) + [True] * len(seen)
                + [result.final for result in results],
                "count": sums[np.concatenate([2 * seen, 2 * seen + 1, FIRST_MERGED + merged])],
            },
            schema=COUNTED,
        )  # fmt: skip

    def possible_pieces(self, characters: Set[str]) -> list[Symbol]:
        return [result for result in self._results if characters >= set(result.text)]

    def encoder(self, vocabulary: Vocabulary) -> Encoder:
        made = self._numbers.made
        ids = np.full(FIRST_MERGED + len(self.merges), UNK, np.int32)
        for i in range(len(SPECIALS), len(vocabulary)):
            piece = Symbol(vocabulary.pieces[i], vocabulary.final[i])
            number = _base_number(piece) if len(piece.text) == 1 else made.get(piece)
            if number is not None:
                ids[number] = i
        return _BpeEncoder(self.kernel, ids)

    def save(self, directory: str, name: str) -> ShardRecord | None:
        return write_shard(directory, name, MERGES, [merge_files.to_table(self.merges)])


def _base_number(symbol: Symbol) -> int:
    return 2 * ord(symbol.text) + symbol.final


class _BpeEncoder:
    def __init__(self, kernel: _kernels.Segmenter, ids: NDArray[np.int32]) -> None:
        self._kernel, self._ids = kernel, ids

    def encode(self, lines: pa.Array, threads: int = 1) -> Encoded:
        return Encoded(*self._kernel.segment(lines, self._ids, threads))


# ---- on disk ----


def merges_name(side: str) -> str:
    return f"merges-{side}.parquet"


def save(segmenters: Mapping[str, Segmenter], directory: str) -> list[ShardRecord]:
    """Writes the segmenters of both sides below a `segmented` directory."""
    records = [segmenters[side].save(directory, merges_name(side)) for side in SIDES]
    return [record for record in records if record is not None]


def load(directory: str, kind: str) -> dict[str, Segmenter]:
    """The segmenters of both sides that `save` wrote. kind: words, bpe or bytes."""
    if kind == "words":
        return {side: WordSegmenter() for side in SIDES}
    if kind in ("bpe", "bytes"):
        urls = {side: storage.join(directory, merges_name(side)) for side in SIDES}
        units: Units = "bytes" if kind == "bytes" else "characters"
        # Equal merges are one segmenter, with one cache of words.
        digests = {side: storage.sha256(url) for side, url in urls.items()}
        made = {
            digest: BpeSegmenter(merge_files.read(urls[side]), units)
            for side, digest in digests.items()
            if side == "source" or digest != digests["source"]
        }
        return {side: made[digest] for side, digest in digests.items()}
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


def build_vocabularies(
    counts: pa.Table, rules: VocabularyRules, units: Units = "characters"
) -> Vocabularies:
    """Vocabularies from a PIECE_COUNTS table: falling count, then the piece by code point."""
    if rules.joint:
        sums = [pc.fill_null(counts[f"{side}_count"], 0) for side in SIDES]
        joint = _vocabulary(counts, pc.add(*sums), rules, units)
        return Vocabularies(joint, joint)
    return Vocabularies(
        *(
            _vocabulary(counts.filter(pc.is_valid(order)), order.drop_null(), rules, units)
            for order in (counts[f"{side}_count"] for side in SIDES)
        )
    )


def _vocabulary(
    counts: pa.Table, order: pa.ChunkedArray, rules: VocabularyRules, units: Units
) -> Vocabulary:
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
        units=units,
    )
