"""Byte-pair encoding, of characters or of bytes, by the kernel."""

import collections
import functools
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rareword.schemas import merges as merge_files
from rareword.schemas import storage
from rareword.schemas.errors import RarewordError
from rareword.schemas.merges import Merge, Symbol
from rareword.schemas.tables import MERGES, ShardRecord, write_shard
from rareword.schemas.vocabulary import SPECIALS, UNK, Vocabulary
from rareword.transforms import _kernels
from rareword.transforms.glossary import Glossary
from rareword.transforms.segmenters import Encoded, Encoder, counted

FIRST_MERGED: int = _kernels.FIRST_MERGED
NO_IDS = np.empty(0, np.int32)
NONE = -1
Units = Literal["characters", "bytes"]
Ids = NDArray[np.int32]


class _Numbers(NamedTuple):
    """Merges as symbol ids, and what symbols there are."""

    left: Ids
    right: Ids
    result: Ids
    symbols: list[Symbol]
    """Symbol FIRST_MERGED + k: what merge k makes, or after those what `inner` needs."""
    made: dict[Symbol, int]
    """The number of each symbol of several characters; of two equal ones the first."""
    inner: Ids
    """Of symbol FIRST_MERGED + k: the same text as a piece that does not end its word. Empty
    without a glossary."""


def first_splits(left: Ids, right: Ids, result: Ids, symbols: int) -> tuple[Ids, Ids]:
    """What the symbols FIRST_MERGED + 0 .. symbols - 1 were joined from: for each the pair of the
    first merge that makes it, NONE if there is none."""
    splits = np.full((2, symbols), NONE, np.int32)
    for side, parts in zip(splits, (left, right), strict=True):
        side[result[::-1] - FIRST_MERGED] = parts[::-1]  # of equal ones the last holds: the first
    return splits[0], splits[1]


class BpeSegmenter:
    """Byte-pair encoding with a list of merges; of two for one pair, the earlier one holds.

    With units "bytes" words are UTF-8 bytes before they are merged, and a character of a symbol
    stands for the byte of its number (U+0000 .. U+00FF).

    A piece without an id is split into what the first merge that makes it joined, each part is
    looked up in turn, and so on to characters, as subword-nmt does with a vocabulary.

    byte_fallback: characters without an id become the pieces of their UTF-8 bytes instead of
    `<unk>`. glossary: entries of a glossary (see `glossary.py`); what they match inside a word is a
    piece by itself, and what stands between is merged as if it were a word. One that has no id is
    merged like the rest. merge_limit: use so many of the merges, the first ones.
    """

    spells: ClassVar[bool] = True
    """See `segmenters.Segmenter`."""

    def __init__(
        self,
        merges: Sequence[Merge],
        units: Units = "characters",
        *,
        byte_fallback: bool = False,
        glossary: Sequence[str] = (),
        merge_limit: int | None = None,
    ) -> None:
        """Raises RarewordError for options that do not go together."""
        if merge_limit is not None and merge_limit < 0:
            raise RarewordError(f"merge_limit is 0 or more merges, not {merge_limit}")
        if units == "bytes" and (byte_fallback or glossary):
            raise RarewordError(
                "merges of bytes know no unknown character and take no glossary; leave out "
                + ("byte_fallback" if byte_fallback else "the glossary")
            )
        self.merges = list(merges[:merge_limit])
        self.units: Units = units
        self.byte_fallback, self.merge_limit = byte_fallback, merge_limit
        self.glossary = list(glossary)
        self._parts = Glossary(self.glossary).parts

    @functools.cached_property
    def _numbers(self) -> _Numbers:
        symbols = [merge.result for merge in self.merges]
        made: dict[Symbol, int] = {}
        for rank, result in enumerate(symbols):
            if len(result.text) > 1:
                made.setdefault(result, FIRST_MERGED + rank)

        def number(symbol: Symbol) -> int:
            return _base_number(symbol) if len(symbol.text) == 1 else made.get(symbol, NONE)

        rows = [
            (number(merge.left), number(merge.right), number(result))
            for merge, result in zip(self.merges, symbols, strict=True)
        ]
        # A merge of a symbol that nothing makes, or of one behind the end of a word, can never
        # apply and is left out.
        usable = [
            row
            for row, merge in zip(rows, self.merges, strict=True)
            if row[0] >= 0 and row[1] >= 0 and not merge.left.final
        ]
        columns = np.array(usable, np.int32).reshape(-1, 3).T.copy()
        inner: list[int] = []
        if self.glossary:
            for symbol in list(symbols):
                piece = Symbol(symbol.text, False)
                if len(piece.text) > 1 and piece not in made:
                    made[piece] = FIRST_MERGED + len(symbols)
                    symbols.append(piece)
            inner = [number(Symbol(symbol.text, False)) for symbol in symbols]
            inner = [max(found, 0) for found in inner]  # of what is never made: any will do
        return _Numbers(
            columns[0], columns[1], columns[2], symbols, made, np.array(inner, np.int32)
        )

    def _splits(self) -> tuple[Ids, Ids]:
        """What symbols FIRST_MERGED + k are split into if they have no id."""
        left, right, result, symbols, made, inner = self._numbers
        lefts, rights = first_splits(left, right, result, len(symbols))
        for k in range(len(self.merges), len(symbols)):
            whole = made[Symbol(symbols[k].text, True)] - FIRST_MERGED
            last = int(rights[whole])
            lefts[k] = lefts[whole]
            rights[k] = last & ~1 if last < FIRST_MERGED else inner[last - FIRST_MERGED]
        return lefts, rights

    @functools.cached_property
    def kernel(self) -> _kernels.Segmenter:
        """Cuts lines into symbol ids, without the glossary; its cache of words serves all
        encoders."""
        left, right, result, texts, *_ = self._numbers
        symbols = FIRST_MERGED + len(texts)
        return _kernels.Segmenter(left, right, result, symbols, self.units == "bytes")

    def settings(self) -> dict[str, Any]:
        options = {
            "byte_fallback": self.byte_fallback,
            "glossary": self.glossary,
            "merge_limit": self.merge_limit,
        }
        given = {name: value for name, value in options.items() if value not in (False, [], None)}
        return {"units": self.units, **given}

    def count_pieces(self, words: pa.Array, counts: NDArray[np.int64]) -> pa.Table:
        """Pieces are counted before any is split for want of an id, as subword-nmt's get-vocab
        counts them in segmented text; the bytes of the fallback have the count 0."""
        symbols = self._numbers.symbols
        sums = np.zeros(FIRST_MERGED + len(symbols), np.int64)
        kept: collections.Counter[Symbol] = collections.Counter()
        if self.glossary:
            self._count_around_glossary(words, counts, sums, kept)
        else:
            self._count_symbols(words, counts, sums)
        base, _, _ = _kernels.base_symbols(words, counts, self.units == "bytes")
        is_seen = np.zeros(FIRST_MERGED // 2, bool)
        is_seen[base >> 1] = True
        if self.units == "bytes":
            is_seen[:256] = True
        seen, merged = np.flatnonzero(is_seen), np.flatnonzero(sums[FIRST_MERGED:])
        characters = [chr(number) for number in seen.tolist()]
        found = [*(symbols[k] for k in merged.tolist()), *kept]
        spelled = counted(
            [*characters, *characters, *(symbol.text for symbol in found)],
            [False] * len(seen) + [True] * len(seen) + [symbol.final for symbol in found],
            np.concatenate(
                [
                    sums[np.concatenate([2 * seen, 2 * seen + 1, FIRST_MERGED + merged])],
                    np.fromiter(kept.values(), np.int64, len(kept)),
                ]
            ),
            is_bytes=self.units == "bytes",
        )
        if not self.byte_fallback:
            return spelled
        every = [chr(byte) for byte in range(256)]
        both = counted([*every, *every], [False] * 256 + [True] * 256, [0] * 512, is_bytes=True)
        return pa.concat_tables([spelled, both])

    def _count_symbols(
        self, words: pa.Array, counts: NDArray[np.int64], sums: NDArray[np.int64], ends: bool = True
    ) -> None:
        """Adds the symbols of words, or of parts that do not end their word."""
        ids, offsets, _ = self.kernel.segment(words, NO_IDS)
        if not ends:
            at = offsets[1:] - 1
            merged = ids[at] >= FIRST_MERGED
            ids[at[~merged]] &= ~1
            ids[at[merged]] = self._numbers.inner[ids[at[merged]] - FIRST_MERGED]
        np.add.at(sums, ids, np.repeat(counts, np.diff(offsets)))

    def _count_around_glossary(
        self,
        words: pa.Array,
        counts: NDArray[np.int64],
        sums: NDArray[np.int64],
        kept: collections.Counter[Symbol],
    ) -> None:
        """Adds to `kept` what the glossary keeps of words, and to `sums` the symbols of the
        rest."""
        texts: dict[bool, list[str]] = {True: [], False: []}
        numbers: dict[bool, list[int]] = {True: [], False: []}
        for word, count in zip(words.to_pylist(), counts.tolist(), strict=True):
            parts = self._parts(word) or [(word, False)]
            for position, (text, whole) in enumerate(parts, 1):
                ends = position == len(parts)
                if whole:
                    kept[Symbol(text, ends)] += count
                else:
                    texts[ends].append(text)
                    numbers[ends].append(count)
        for ends in (True, False):
            rest = pa.array(texts[ends], pa.string())
            self._count_symbols(rest, np.array(numbers[ends], np.int64), sums, ends)

    def possible_pieces(self, characters: Set[str]) -> pa.Table:
        results = [merge.result for merge in self.merges]
        found = [result for result in results if characters >= set(result.text)]
        return counted(
            [result.text for result in found],
            [result.final for result in found],
            [0] * len(found),
            is_bytes=self.units == "bytes",
        )

    def encoder(self, vocabulary: Vocabulary) -> Encoder:
        bound = self._bind(vocabulary)
        return _BpeEncoder(bound.kernel, bound.ids, bound.table if bound.lacks_symbols else None)

    def dropout(self, vocabulary: Vocabulary) -> "BpeDropout":
        """Segments piece ids of this vocabulary anew."""
        bound = self._bind(vocabulary)
        return BpeDropout(bound.kernel, bound.table, *self._spelling(vocabulary))

    def sampler(self, vocabulary: Vocabulary, amount: float, seed: int) -> "BpeSampler":
        """See `segmenters.SamplingSegmenter`. The amount is the probability of BPE-dropout."""
        if not 0 <= amount <= 1:
            raise RarewordError(f"{amount} is no probability of BPE-dropout; give one from 0 to 1")
        return BpeSampler(self.encoder(vocabulary), self.dropout(vocabulary), amount, seed)

    def _bind(self, vocabulary: Vocabulary) -> "_Bound":
        left, right, result, symbols, made, inner = self._numbers
        made = dict(made)
        numbers, ids = [], []
        byte_ids = np.full(512, UNK, np.int32)
        total = FIRST_MERGED + len(symbols)
        for i in range(len(SPECIALS), len(vocabulary)):
            piece = Symbol(vocabulary.pieces[i], vocabulary.final[i])
            if vocabulary.has_bytes and vocabulary.is_bytes[i] and self.units == "characters":
                byte_ids[_base_number(piece)] = i
                continue
            number = _base_number(piece) if len(piece.text) == 1 else made.get(piece)
            if number is None and self.glossary:  # what an entry kept whole
                number = made[piece] = total
                total += 1
            if number is not None:
                numbers.append(number)
                ids.append(i)
        of_symbols = np.full(total, NONE, np.int32)
        of_symbols[numbers] = ids
        kernel = self.kernel
        if self.glossary:
            extra = np.arange(FIRST_MERGED + len(symbols), total, dtype=np.int32)
            known = of_symbols >= 0

            def take_apart(word: str) -> list[tuple[str, int]] | None:
                parts = self._parts(word)
                if parts is None:
                    return None
                found = []
                for position, (text, whole) in enumerate(parts, 1):
                    number = NONE
                    if whole:
                        piece = Symbol(text, position == len(parts))
                        one = len(text) == 1
                        number = _base_number(piece) if one else made.get(piece, NONE)
                    found.append((text, number if number >= 0 and known[number] else NONE))
                return found

            kernel = _kernels.Segmenter(
                left,
                right,
                result,
                total,
                glossary=take_apart,
                inner=np.concatenate([inner, extra]),
            )
        lacks = self.byte_fallback or bool((of_symbols[result] < 0).any())
        if self.glossary:
            lacks |= bool((of_symbols[inner] < 0).any())
        none = np.full(total - FIRST_MERGED - len(symbols), NONE, np.int32)
        lefts, rights = (np.concatenate([part, none]) for part in self._splits())
        sizes = [len(symbol.text) for symbol in symbols]
        return _Bound(
            kernel,
            np.where(of_symbols < 0, np.int32(UNK), of_symbols),
            functools.partial(
                _kernels.PieceTable,
                of_symbols,
                lefts,
                rights,
                np.concatenate([np.array(sizes, np.int32), -none]),
                byte_ids if self.byte_fallback else NO_IDS,
                UNK,
            ),
            lacks,
        )

    def _spelling(self, vocabulary: Vocabulary) -> tuple[Ids, NDArray[np.int64]]:
        """The base symbols of each piece, and where each piece's begin; special pieces have none.
        A byte that is no symbol of its own is -1 less its number as one."""
        spelled: list[list[int]] = [[] for _ in SPECIALS]
        for i in range(len(SPECIALS), len(vocabulary)):
            text, final = vocabulary.pieces[i], vocabulary.final[i]
            symbols = [2 * ord(character) for character in text]
            symbols[-1] += final
            if vocabulary.has_bytes and vocabulary.is_bytes[i] and self.units == "characters":
                symbols = [-1 - symbol for symbol in symbols]
            spelled.append(symbols)
        flat = np.array([symbol for symbols in spelled for symbol in symbols], np.int32)
        return flat, np.cumsum([0, *map(len, spelled)], dtype=np.int64)

    def save(self, directory: str, side: str) -> list[ShardRecord]:
        table = merge_files.to_table(self.merges)
        return [write_shard(directory, _file_name(side), MERGES, [table])]

    @classmethod
    def load(cls, directory: str, side: str, settings: Mapping[str, Any]) -> "BpeSegmenter":
        url = storage.join(directory, _file_name(side))
        return cls(merge_files.read(url), **settings)


def _file_name(side: str) -> str:
    return f"merges-{side}.parquet"


def _base_number(symbol: Symbol) -> int:
    return 2 * ord(symbol.text) + symbol.final


@dataclass(frozen=True)
class _Bound:
    """A segmenter with a vocabulary."""

    kernel: _kernels.Segmenter
    ids: Ids
    """Of each symbol; UNK where there is none."""
    make_table: Callable[[], _kernels.PieceTable]
    lacks_symbols: bool
    """Whether lines may have symbols without id that are more than one unknown character."""

    @functools.cached_property
    def table(self) -> _kernels.PieceTable:
        return self.make_table()


class _BpeEncoder:
    def __init__(
        self, kernel: _kernels.Segmenter, ids: Ids, table: _kernels.PieceTable | None
    ) -> None:
        self._kernel, self._ids, self._table = kernel, ids if table is None else NO_IDS, table

    def encode(self, lines: pa.Array, threads: int = 1) -> Encoded:
        return Encoded(*self._kernel.segment(lines, self._ids, threads, self._table))


class BpeDropout:
    """BPE-dropout (Provilkov et al. 2020) on piece ids: every word is merged anew from its
    characters, and in every round each place where a merge fits is passed over with a given
    probability. Nothing is remembered.

    `<unk>` stays; nothing is merged across it.
    """

    def __init__(
        self,
        kernel: _kernels.Segmenter,
        table: _kernels.PieceTable,
        spelling: Ids,
        offsets: NDArray[np.int64],
    ) -> None:
        self._kernel, self._table = kernel, table
        self._spelling, self._spelling_offsets = spelling, offsets

    def draw(
        self,
        ids: Ids,
        offsets: NDArray[np.int64],
        rows: NDArray[np.int64],
        probability: float,
        seed: int,
        threads: int = 1,
    ) -> tuple[Ids, NDArray[np.int64]]:
        """New ids and offsets; row r is ids[offsets[r]:offsets[r + 1]].

        The random numbers of a row are a function of seed (64 bits) and rows[r] alone.
        """
        return self._kernel.draw(
            ids,
            offsets,
            rows,
            self._spelling,
            self._spelling_offsets,
            self._table,
            probability,
            seed,
            threads,
        )


@dataclass(frozen=True)
class BpeSampler:
    """Lines to ids by BPE-dropout: see `segmenters.Sampler`."""

    encoder: Encoder
    dropout: BpeDropout
    probability: float
    seed: int

    def encode(self, lines: pa.Array, rows: NDArray[np.int64], threads: int = 1) -> Encoded:
        best = self.encoder.encode(lines, threads)
        drawn = self.dropout.draw(
            best.ids, best.offsets, rows, self.probability, self.seed, threads
        )
        return Encoded(*drawn, best.words)
