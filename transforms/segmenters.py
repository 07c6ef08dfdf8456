"""Segmenters: how text becomes pieces. One protocol; the vocabulary gives the pieces their ids.

`Segmenter.count_pieces` tells which pieces a word table has, and `possible_pieces` which others it
might; `build_vocabularies` chooses among them, and `Segmenter.encoder` then turns lines into ids.
What has no id becomes `<unk>` by itself; the rest of its word stays.

Each kind of segmenter is a class in a module of its own; `KINDS` names them, `save` and `load` keep
them on disk. `CuttingSegmenter` is the base of those that cut one word after the other in Python.
"""

import abc
import dataclasses
import importlib
import itertools
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, ClassVar, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rareword.schemas import storage
from rareword.schemas.errors import RarewordError
from rareword.schemas.tables import LEXICON, SIDES, ShardRecord, Side, read_table, write_shard
from rareword.schemas.vocabulary import SPECIALS, UNK, Vocabularies, Vocabulary

# A side's count is null if its words cannot have the piece.
PIECE_COUNTS = pa.schema(
    [
        ("piece", pa.string()),
        ("final", pa.bool_()),
        ("bytes", pa.bool_()),
        ("source_count", pa.int64()),
        ("target_count", pa.int64()),
    ]
)
# The same of one side.
COUNTED = pa.schema(
    [
        ("piece", pa.string()),
        ("final", pa.bool_()),
        ("bytes", pa.bool_()),
        ("count", pa.int64()),
    ]
)


def counted(
    pieces: Sequence[str] | pa.Array,
    final: Sequence[bool] | NDArray[np.bool_],
    counts: Sequence[int] | NDArray[np.int64],
    is_bytes: bool | Sequence[bool] = False,
) -> pa.Table:
    """A COUNTED table of columns."""
    flags = [is_bytes] * len(pieces) if isinstance(is_bytes, bool) else is_bytes
    columns = {"piece": pieces, "final": final, "bytes": flags, "count": counts}
    return pa.table(columns, schema=COUNTED)


@dataclasses.dataclass(frozen=True)
class Encoded:
    """Lines as piece ids: line r is ids[offsets[r]:offsets[r + 1]] and has `words[r]` words."""

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    words: NDArray[np.int64]
    text: pa.Array | None = None
    """What the pieces of each line give, where the segmenter has changed the lines (normalisation);
    None: the lines themselves."""


class Encoder(Protocol):
    """A segmenter bound to a vocabulary."""

    def encode(self, lines: pa.Array, threads: int = 1) -> Encoded:
        """The ids of each line; words are split at U+0020."""


class Segmenter(Protocol):
    """Cuts the text of one side into pieces."""

    @property
    def spells(self) -> bool:
        """Whether a piece without an id becomes smaller ones, down to characters (or bytes)."""

    def count_pieces(self, words: pa.Array, counts: NDArray[np.int64]) -> pa.Table:
        """How often each piece occurs in words with these counts: a COUNTED table.

        The characters of these words come too, in both forms, with count 0 where they are no piece,
        if words of other pieces can be spelled in them.
        """

    def possible_pieces(self, characters: Set[str]) -> pa.Table:
        """The pieces, beside the characters, that words of these characters can have: a COUNTED
        table with counts of 0."""

    def encoder(self, vocabulary: Vocabulary) -> Encoder:
        """Binds the segmenter to piece ids."""

    def settings(self) -> dict[str, Any]:
        """What `load` needs besides the files: a JSON object."""

    def save(self, directory: str, side: str) -> list[ShardRecord]:
        """Writes what `load` needs into files below `directory` whose names hold `side`, which is
        source, target or both."""

    @classmethod
    def load(cls, directory: str, side: str, settings: Mapping[str, Any]) -> "Segmenter":
        """The segmenter that `save` wrote."""


class Sampler(Protocol):
    """A segmenter bound to a vocabulary, which draws one of the segmentations that a text has."""

    def encode(self, lines: pa.Array, rows: NDArray[np.int64], threads: int = 1) -> Encoded:
        """The ids of each line; lines[i] is line rows[i] of the text, counted from 0, and its
        random numbers are a function of the sampler's seed and rows[i] alone."""


class SamplingSegmenter(Segmenter, Protocol):
    """Has more than one segmentation of a text."""

    def sampler(self, vocabulary: Vocabulary, amount: float, seed: int) -> Sampler:
        """amount: says how far draws go from the best segmentation; each kind has its own measure.
        Raises RarewordError if it is out of range."""


class RawSegmenter(Segmenter, Protocol):
    """Cuts raw text: spaces are part of the pieces, none of which is final, so words do not tell
    what pieces there are."""

    def count_lines(self, lines: pa.Array) -> pa.Table:
        """How often each piece occurs in lines: a COUNTED table. It takes the place of
        `count_pieces`."""


class CuttingSegmenter(abc.ABC):
    """Base of segmenters that cut word by word: a subclass gives `cut`, `settings` and the files.

    Words are cut once each and remembered, so a frequent word costs a look-up.
    """

    spells: ClassVar[bool] = False
    """Whether a piece without an id is spelled in characters; what has no id either is `<unk>`."""

    @abc.abstractmethod
    def cut(self, words: Sequence[str]) -> list[Sequence[str]]:
        """The pieces of each word, which joined give the word. Words are not empty."""

    def settings(self) -> dict[str, Any]:
        return {}

    def save(self, directory: str, side: str) -> list[ShardRecord]:
        return []

    def count_pieces(self, words: pa.Array, counts: NDArray[np.int64]) -> pa.Table:
        sums: dict[tuple[str, bool], int] = {}
        texts = words.to_pylist()
        for text, pieces, count in zip(texts, self.cut(texts), counts.tolist(), strict=True):
            if self.spells:
                for character in set(text):
                    sums.setdefault((character, False), 0)
                    sums.setdefault((character, True), 0)
            last = len(pieces) - 1
            for position, piece in enumerate(pieces):
                key = piece, position == last
                sums[key] = sums.get(key, 0) + count
        return counted([p for p, _ in sums], [final for _, final in sums], list(sums.values()))

    def possible_pieces(self, characters: Set[str]) -> pa.Table:
        return COUNTED.empty_table()

    def encoder(self, vocabulary: Vocabulary) -> Encoder:
        return CuttingEncoder(self, vocabulary)


class CuttingEncoder:
    """The encoder of a segmenter that cuts word by word."""

    CACHED_WORDS = 1 << 20

    def __init__(self, segmenter: CuttingSegmenter, vocabulary: Vocabulary) -> None:
        self._segmenter, self._vocabulary = segmenter, vocabulary
        self._inside: dict[str, int] = {}
        self._final: dict[str, int] = {}
        for i in range(len(vocabulary) - 1, len(SPECIALS) - 1, -1):
            ids = self._final if vocabulary.final[i] else self._inside
            ids[vocabulary.pieces[i]] = i
        self._cache: dict[str, tuple[int, ...]] = {}

    def encode(self, lines: pa.Array, threads: int = 1) -> Encoded:
        words, sizes = split_words(lines)
        coded = words.dictionary_encode()
        distinct = self._words(coded.dictionary.to_pylist())
        lengths = np.fromiter(map(len, distinct), np.int64, len(distinct))
        flat = np.fromiter((i for ids in distinct for i in ids), np.int32, int(lengths.sum()))
        codes = coded.indices.to_numpy()
        starts, pieces = (np.cumsum(lengths) - lengths)[codes], lengths[codes]
        ends = np.concatenate([[0], np.cumsum(pieces)])
        ids = flat[np.repeat(starts - ends[:-1], pieces) + np.arange(ends[-1])]
        offsets = ends[np.concatenate([[0], np.cumsum(sizes)])]
        return Encoded(ids, offsets, sizes)

    def _words(self, words: list[str]) -> list[tuple[int, ...]]:
        """The ids of each word."""
        if len(self._cache) + len(words) > self.CACHED_WORDS:
            self._cache.clear()
        new = [word for word in words if word not in self._cache]
        self._cache.update(zip(new, self._cut(new), strict=True))
        return [self._cache[word] for word in words]

    def _cut(self, words: list[str]) -> Iterable[tuple[int, ...]]:
        """The ids of words that are seen for the first time."""
        return map(self.ids, self._segmenter.cut(words))

    def ids(self, pieces: Sequence[str]) -> tuple[int, ...]:
        """The ids of a word's pieces."""
        # Tuples of integers cost the garbage collector nothing, as many lists would.
        ids = (*map(self._inside.get, pieces[:-1]), self._final.get(pieces[-1]))
        if None in ids:
            return tuple(self._with_unknown(pieces))
        return cast("tuple[int, ...]", ids)

    def _with_unknown(self, pieces: Sequence[str]) -> list[int]:
        """The ids of pieces of which some have none."""
        *inside, final = pieces
        ids: list[int] = []
        for piece in inside:
            ids += self._some(piece, self._inside)
        return ids + self._some(final, self._final)

    def _some(self, piece: str, last: Mapping[str, int]) -> list[int]:
        """The ids of a piece whose last character, and itself, has one in `last`."""
        if piece in last:
            return [last[piece]]
        if not self._segmenter.spells:
            return [UNK]
        return [
            *(self._inside.get(character, UNK) for character in piece[:-1]),
            last.get(piece[-1], UNK),
        ]


def split_words(lines: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """All words of lines, split at U+0020, and how many each line has; null is a blank line."""
    lists = pc.split_pattern(pc.fill_null(lines, ""), " ")
    words, rows = lists.flatten(), pc.list_parent_indices(lists)
    keep = pc.greater(pc.binary_length(words), 0)
    sizes = np.bincount(rows.filter(keep).to_numpy(), minlength=len(lines)).astype(np.int64)
    return words.filter(keep), sizes


class WordSegmenter(CuttingSegmenter):
    """Every word is a piece: the word-level baseline."""

    def cut(self, words: Sequence[str]) -> list[Sequence[str]]:
        return [(word,) for word in words]

    def encoder(self, vocabulary: Vocabulary) -> Encoder:
        return _WordEncoder(vocabulary)

    @classmethod
    def load(cls, directory: str, side: str, settings: Mapping[str, Any]) -> "WordSegmenter":
        return cls()


class _WordEncoder:
    def __init__(self, vocabulary: Vocabulary) -> None:
        self._words = pa.array(vocabulary.pieces[len(SPECIALS) :], pa.string())

    def encode(self, lines: pa.Array, threads: int = 1) -> Encoded:
        words, sizes = split_words(lines)
        found = pc.index_in(words, value_set=self._words)
        ids = pc.fill_null(found, UNK - len(SPECIALS)).to_numpy() + np.int32(len(SPECIALS))
        return Encoded(ids, np.concatenate([[0], np.cumsum(sizes)]), sizes)


# ---- the kinds, and on disk ----

KINDS = {
    "words": "segmenters.WordSegmenter",
    "bpe": "bpe.BpeSegmenter",
    "bytes": "bpe.BpeSegmenter",
    "char-ngram": "ngrams.NgramSegmenter",
    "compound": "compounds.CompoundSegmenter",
    "morfessor": "morphology.MorfessorSegmenter",
    "hyphenation": "morphology.HyphenationSegmenter",
    "wordpiece": "wordpiece.WordPieceSegmenter",
    "unigram": "unigram.UnigramSegmenter",
    "sentencepiece": "sentencepieces.SentencePieceSegmenter",
}
"""Module and class of each kind; a module is imported when its kind is used, for it may need a
library that not everybody has."""


def class_of(kind: str, where: str) -> type[Segmenter]:
    """The class of a kind. `where` is for the error when there is none."""
    if kind not in KINDS:
        raise RarewordError(f"{where}: segmenter {kind!r} is not known to this release")
    module, name = KINDS[kind].split(".")
    found = getattr(importlib.import_module(f"rareword.transforms.{module}"), name)
    return cast("type[Segmenter]", found)


Settings = dict[str, dict[str, Any]]
"""A segmenter's settings by side; by `both` alone if it serves both sides."""


def save(segmenters: Mapping[Side, Segmenter], directory: str) -> list[ShardRecord]:
    """Writes the segmenters of both sides, once if they are one."""
    return [
        file for side, one in _distinct(segmenters).items() for file in one.save(directory, side)
    ]


def settings(segmenters: Mapping[Side, Segmenter]) -> Settings:
    """What `load` needs besides the files."""
    return {side: one.settings() for side, one in _distinct(segmenters).items()}


def _distinct(segmenters: Mapping[Side, Segmenter]) -> dict[str, Segmenter]:
    if segmenters["source"] is segmenters["target"]:
        return {"both": segmenters["source"]}
    return {side: segmenters[side] for side in SIDES}


def load(directory: str, kind: str, settings: Settings) -> dict[Side, Segmenter]:
    """The segmenters of both sides that `save` wrote; one that serves both has one cache."""
    made = class_of(kind, directory)
    found = {side: made.load(directory, side, values) for side, values in settings.items()}
    return {side: found[side if side in found else "both"] for side in SIDES}


def write_lexicon(directory: str, side: str, texts: Mapping[str, int]) -> ShardRecord:
    """Writes texts with their counts, as `read_lexicon` reads them."""
    rows = sorted(texts.items())
    table = pa.table([[text for text, _ in rows], [n for _, n in rows]], schema=LEXICON.fields)
    return write_shard(directory, f"lexicon-{side}.parquet", LEXICON, [table])


def read_lexicon(directory: str, side: str) -> dict[str, int]:
    """The texts with their counts of a side (source, target or both)."""
    table = read_table(storage.join(directory, f"lexicon-{side}.parquet"), LEXICON)
    return dict(zip(table["text"].to_pylist(), table["count"].to_pylist(), strict=True))


def pieces_of_words(segmenter: Segmenter, words: Sequence[str]) -> list[list[str]]:
    """The texts of each word's pieces, which joined give the word; none is `<unk>`.

    Words are not empty and hold no U+0020. A character of several pieces of bytes belongs to the
    last of them, and the pieces before have no text. Where spaces are part of pieces, the one
    before the word is left out.
    """
    if isinstance(segmenter, CuttingSegmenter):
        return [list(pieces) for pieces in segmenter.cut(words)]
    lines = pa.array(words, pa.string())
    # Segmenters of raw text count lines; here each line is a word.
    count_lines = getattr(segmenter, "count_lines", None)
    table = (
        count_lines(lines)
        if count_lines is not None
        else segmenter.count_pieces(lines, np.ones(len(words), np.int64))
    )
    both = {"source_count": table["count"], "target_count": table["count"]}
    counts = pa.table({**{name: table[name] for name in COUNTED.names[:-1]}, **both})
    vocabulary = build_vocabularies(counts, VocabularyRules(joint=True)).source
    encoded = segmenter.encoder(vocabulary).encode(lines)
    found = []
    for word, (begin, end) in zip(words, itertools.pairwise(encoded.offsets.tolist()), strict=True):
        pieces = vocabulary.texts(encoded.ids[begin:end].tolist())
        if vocabulary.is_raw and pieces and pieces[0].startswith(" "):
            pieces[0] = pieces[0][1:]
        if "".join(pieces) != word:
            raise RarewordError(f"the pieces of {word!r} do not give the word: {pieces}")
        found.append(pieces)
    return found


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
    counts: pa.Table, rules: VocabularyRules, spells: bool = False
) -> Vocabularies:
    """Vocabularies from a PIECE_COUNTS table: falling count, then the piece by code point.

    spells: characters and single bytes have their ids whatever `min_count` is, for rarer pieces are
    spelled in them; the bound on the size takes the rarest of the other pieces first, then the
    rarest characters, and never a byte. Raises RarewordError if the bytes alone are too many.
    """
    if rules.joint:
        sums = [pc.fill_null(counts[f"{side}_count"], 0) for side in SIDES]
        joint = _vocabulary(counts, pc.add(*sums), rules, spells)
        return Vocabularies(joint, joint)
    return Vocabularies(
        *(
            _vocabulary(counts.filter(pc.is_valid(order)), order.drop_null(), rules, spells)
            for order in (counts[f"{side}_count"] for side in SIDES)
        )
    )


_ORDER = [
    ("order", "descending"),
    ("piece", "ascending"),
    ("final", "ascending"),
    ("bytes", "ascending"),
]


def _vocabulary(
    counts: pa.Table, order: pa.ChunkedArray, rules: VocabularyRules, spells: bool
) -> Vocabulary:
    # 2: single bytes, 1: characters, 0: what may be spelled in them.
    small = pc.equal(pc.utf8_length(counts["piece"]), 1)
    rank = pc.add(pc.cast(small, pa.int8()), pc.cast(pc.and_(small, counts["bytes"]), pa.int8()))
    rank = rank if spells else pc.multiply(rank, pa.scalar(0, pa.int8()))
    table = counts.append_column("order", order).append_column("rank", rank)
    table = table.filter(
        pc.or_(pc.greater_equal(table["order"], rules.min_count), pc.greater(table["rank"], 0))
    )
    if rules.max_size:
        room = max(rules.max_size - len(SPECIALS), 0)
        if (needed := pc.sum(pc.equal(table["rank"], 2)).as_py() or 0) > room:
            raise RarewordError(
                f"a vocabulary of at most {rules.max_size} pieces has no room for the {needed} "
                f"pieces of single bytes and the {len(SPECIALS)} special ones; allow more pieces"
            )
        table = table.sort_by([("rank", "descending"), *_ORDER]).slice(0, room)
    columns = table.sort_by(_ORDER).to_pydict()
    none = [0] * len(SPECIALS)
    return Vocabulary(
        pieces=[special.text for special in SPECIALS] + columns["piece"],
        final=[special.final for special in SPECIALS] + columns["final"],
        source_counts=none + [count or 0 for count in columns["source_count"]],
        target_counts=none + [count or 0 for count in columns["target_count"]],
        is_bytes=[False] * len(SPECIALS) + columns["bytes"],
    )
