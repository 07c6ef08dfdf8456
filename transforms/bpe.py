"""Byte-pair encoding, of characters or of bytes, by the kernel."""

import functools
from collections.abc import Mapping, Sequence, Set
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rareword.schemas import merges as merge_files
from rareword.schemas import storage
from rareword.schemas.merges import Merge, Symbol
from rareword.schemas.tables import MERGES, ShardRecord, write_shard
from rareword.schemas.vocabulary import SPECIALS, UNK, Vocabulary
from rareword.transforms import _kernels
from rareword.transforms.segmenters import Encoded, Encoder, counted

FIRST_MERGED: int = _kernels.FIRST_MERGED
NO_IDS = np.empty(0, np.int32)
Units = Literal["characters", "bytes"]


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

    def __init__(
        self,
        merges: Sequence[Merge],
        units: Units = "characters",
        *,
        merge_limit: int | None = None,
    ) -> None:
        """merge_limit: use so many of the merges, the first ones."""
        self.merges = list(merges[:merge_limit])
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

    def settings(self) -> dict[str, Any]:
        return {"units": self.units}

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
        return counted(
            [*characters, *characters, *(result.text for result in results)],
            [False] * len(seen) + [True] * len(seen) + [result.final for result in results],
            sums[np.concatenate([2 * seen, 2 * seen + 1, FIRST_MERGED + merged])],
            is_bytes=self.units == "bytes",
        )

    def possible_pieces(self, characters: Set[str]) -> pa.Table:
        found = [result for result in self._results if characters >= set(result.text)]
        return counted(
            [result.text for result in found],
            [result.final for result in found],
            [0] * len(found),
            is_bytes=self.units == "bytes",
        )

    def encoder(self, vocabulary: Vocabulary) -> Encoder:
        made = self._numbers.made
        ids = np.full(FIRST_MERGED + len(self.merges), UNK, np.int32)
        for i in range(len(SPECIALS), len(vocabulary)):
            piece = Symbol(vocabulary.pieces[i], vocabulary.final[i])
            number = _base_number(piece) if len(piece.text) == 1 else made.get(piece)
            if number is not None:
                ids[number] = i
        return _BpeEncoder(self.kernel, ids)

    def save(self, directory: str, side: str) -> list[ShardRecord]:
        table = merge_files.to_table(self.merges)
        return [write_shard(directory, _file_name(side), MERGES, [table])]

    @classmethod
    def load(cls, directory: str, side: str, settings: Mapping[str, Any]) -> "BpeSegmenter":
        url = storage.join(directory, _file_name(side))
        return cls(merge_files.read(url), settings["units"])


def _file_name(side: str) -> str:
    return f"merges-{side}.parquet"


def _base_number(symbol: Symbol) -> int:
    return 2 * ord(symbol.text) + symbol.final


class _BpeEncoder:
    def __init__(self, kernel: _kernels.Segmenter, ids: NDArray[np.int32]) -> None:
        self._kernel, self._ids = kernel, ids

    def encode(self, lines: pa.Array, threads: int = 1) -> Encoded:
        return Encoded(*self._kernel.segment(lines, self._ids, threads))
