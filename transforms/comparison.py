"""What is measured when segmenters are compared: the paper's Table 1, sizes, and names.

Everything is computed on word tables, each distinct word once, weighted by its count: a text of any
length costs no more than its words.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rareword.schemas.tables import Side
from rareword.schemas.vocabulary import UNK, Vocabulary
from rareword.transforms import _kernels, rounds, segmenters, transliteration
from rareword.transforms.boundaries import edit_distances
from rareword.transforms.bpe import BpeSegmenter, Units
from rareword.transforms.plain_text import WordCounts
from rareword.transforms.rounds import PairCounts
from rareword.transforms.segmenters import (
    COUNTED,
    Encoder,
    Segmenter,
    VocabularyRules,
    pieces_of_words,
)
from rareword.transforms.segmenting import with_possible_pieces

# ---- byte-pair encoding in memory ----


@dataclasses.dataclass(frozen=True)
class BpeRules:
    """How merges are learnt in memory."""

    units: Units = "characters"
    transliterate: bool = False
    """Learn on words in Latin letters (ISO 9) and write the merges back in Cyrillic."""
    min_frequency: int = 2
    """Learning stops when no pair occurs so often."""


def learn_pairs(table: WordCounts, merges: int, rules: BpeRules) -> PairCounts:
    """The first `merges` merges of a word table, or all that there are."""
    words = table.words
    if rules.transliterate:
        words = transliteration.to_latin_words(words)
    base = _kernels.base_symbols(words, table.counts, rules.units == "bytes")
    none = np.empty(0, np.int32)
    learnt = _kernels.learn_merges(*base, none, none, merges, max(rules.min_frequency, 1))
    return PairCounts(*learnt)


def bpe_segmenter(pairs: PairCounts, rules: BpeRules, **options: Any) -> BpeSegmenter:
    """The segmenter of learnt merges; `options` are further ones of BpeSegmenter."""
    merges = rounds.to_merges(pairs)
    if rules.transliterate:
        merges = transliteration.with_cyrillic(merges)
    return BpeSegmenter(merges, rules.units, **options)


# ---- statistics ----


@dataclasses.dataclass(frozen=True)
class Statistics:
    """A row of the paper's Table 1, and what belongs to it."""

    tokens: int
    """Pieces of the training text."""
    types: int
    """Different pieces of the training text; a piece that ends a word is another than the same
    text inside one."""
    fertility: float
    """Pieces a word of the training text."""
    tokens_per_sentence: float | None
    """None if the number of sentences is not known."""
    held_out_tokens: int
    """Pieces of the held-out text."""
    unknown_tokens: int
    """Those of them that the segmented training text does not have: the paper's #UNK."""
    unknown_types: int
    """How many different ones."""
    unk_pieces: int
    """Pieces that are `<unk>` when rareword encodes the held-out text with the vocabulary of the
    training text, which also has all its characters and whatever merges may make of them."""


@dataclasses.dataclass(frozen=True)
class TextSide:
    """A side of a text."""

    words: WordCounts
    sentences: int | None = None
    """Lines that have a word, if known."""
    lines: Callable[[], Iterator[pa.Array]] | None = None
    """Gives the lines again and again, in blocks, if there are any: raw text needs them."""


def count_text(segmenter: Segmenter, text: TextSide) -> pa.Table:
    """The COUNTED table of a text, with all rows that `count_pieces` gives.

    Segmenters of raw text count lines: words do not know their spaces.
    """
    count_lines = getattr(segmenter, "count_lines", None)
    if count_lines is None:
        return segmenter.count_pieces(text.words.words, text.words.counts)
    assert text.lines is not None
    tables = [count_lines(block) for block in text.lines()]
    keys = COUNTED.names[:-1]
    sums = pa.concat_tables(tables).group_by(keys, use_threads=False).aggregate([("count", "sum")])
    return sums.rename_columns([*keys, "count"])


def occurring(counted: pa.Table) -> pa.Table:
    """The rows of a COUNTED table that occur."""
    return counted.filter(pc.greater(counted["count"], 0))


def unseen(pieces: pa.Table, training: pa.Table) -> pa.Table:
    """The rows of a COUNTED table whose piece another one lacks."""
    known = pc.is_in(_keys(pieces), value_set=_keys(training))
    return pieces.filter(pc.invert(known))


def _keys(pieces: pa.Table) -> pa.ChunkedArray:
    """A string for each piece: its text, and a last character for its flags."""
    flags = pc.add(
        pc.cast(pieces["final"], pa.int8()), pc.multiply(pc.cast(pieces["bytes"], pa.int8()), 2)
    )
    digits = pc.cast(pc.cast(flags, pa.int8()), pa.string())
    return pc.binary_join_element_wise(pieces["piece"], digits, "")


def total(pieces: pa.Table) -> int:
    """The sum of a COUNTED table's counts."""
    return int(pc.sum(pieces["count"]).as_py() or 0)


def statistics(
    segmenter: Segmenter,
    encoder: Encoder,
    counted: pa.Table,
    training: TextSide,
    held_out: TextSide,
) -> Statistics:
    """encoder: with the vocabulary of the training text. counted: what `count_text` found in it."""
    pieces = occurring(counted)
    tokens, words = total(pieces), int(training.words.counts.sum())
    found = occurring(count_text(segmenter, held_out))
    unknown = unseen(found, pieces)
    return Statistics(
        tokens=tokens,
        types=pieces.num_rows,
        fertility=tokens / max(words, 1),
        tokens_per_sentence=tokens / training.sentences if training.sentences else None,
        held_out_tokens=total(found),
        unknown_tokens=total(unknown),
        unknown_types=unknown.num_rows,
        unk_pieces=_count_unk(segmenter, encoder, held_out),
    )


def _count_unk(segmenter: Segmenter, encoder: Encoder, text: TextSide) -> int:
    """How many pieces of a text are `<unk>`."""
    if hasattr(segmenter, "count_lines"):
        assert text.lines is not None
        return sum(int((encoder.encode(block).ids == UNK).sum()) for block in text.lines())
    encoded = encoder.encode(text.words.words)
    owners = np.repeat(text.words.counts, np.diff(encoded.offsets))
    return int(owners[encoded.ids == UNK].sum())


def training_vocabulary(segmenter: Segmenter, counted: pa.Table) -> Vocabulary:
    """The vocabulary that `rareword segment` makes of a side when nothing limits it.

    counted: what `count_text` found in the side's training text.
    """
    both: dict[Side, Segmenter] = {"source": segmenter, "target": segmenter}
    none = pa.nulls(counted.num_rows, pa.int64())
    columns = {name: counted[name] for name in COUNTED.names[:-1]}
    table = pa.table({**columns, "source_count": counted["count"], "target_count": none})
    table = with_possible_pieces(table, both)
    return segmenters.build_vocabularies(table, VocabularyRules(joint=True)).source


# ---- numbers of merges ----


@dataclasses.dataclass(frozen=True)
class SweepPoint:
    """The statistics of a text that is cut with the first `merges` merges."""

    merges: int
    tokens: int
    types: int
    fertility: float
    unknown_tokens: int
    types_at_least: Mapping[int, int]
    """By a number of occurrences: how many types occur so often."""
    merged: int
    """Types of two or more characters (or bytes): those that merges made."""
    merged_at_least: Mapping[int, int]

    def share_at_least(self, occurrences: int, merged_only: bool = False) -> float:
        """The share of types that occur so often; 1 if there are no types.

        merged_only: single characters, which every size has, do not count.
        """
        types = self.merged if merged_only else self.types
        often = self.merged_at_least if merged_only else self.types_at_least
        return often[occurrences] / types if types else 1.0


class Sweep:
    """Sizes of one list of merges. Any number of merges costs one pass over the word table, and is
    what learning that many merges would give: a shorter list is the begin of a longer one."""

    def __init__(
        self,
        pairs: PairCounts,
        rules: BpeRules,
        training: WordCounts,
        held_out: WordCounts,
        occurrences: Sequence[int],
    ) -> None:
        """occurrences: the numbers for `types_at_least`."""
        self.learnt = len(pairs)
        self._pairs, self._rules = pairs, rules
        self._training, self._held_out = training, held_out
        self._occurrences = sorted(set(occurrences))
        self._points: dict[int, SweepPoint] = {}

    def point(self, merges: int) -> SweepPoint:
        """The statistics at a number of merges, which is computed once."""
        merges = min(merges, self.learnt)
        if merges not in self._points:
            self._points[merges] = self._measure(merges)
        return self._points[merges]

    def _measure(self, merges: int) -> SweepPoint:
        segmenter = bpe_segmenter(self._pairs.first(merges), self._rules)
        pieces = occurring(self._count(segmenter, self._training))
        counts = pieces["count"].to_numpy()
        merged = counts[pc.greater(pc.utf8_length(pieces["piece"]), 1).to_numpy()]
        tokens = int(counts.sum())
        return SweepPoint(
            merges=merges,
            tokens=tokens,
            types=len(counts),
            fertility=tokens / max(int(self._training.counts.sum()), 1),
            unknown_tokens=total(unseen(occurring(self._count(segmenter, self._held_out)), pieces)),
            types_at_least={n: int((counts >= n).sum()) for n in self._occurrences},
            merged=len(merged),
            merged_at_least={n: int((merged >= n).sum()) for n in self._occurrences},
        )

    @staticmethod
    def _count(segmenter: Segmenter, table: WordCounts) -> pa.Table:
        return segmenter.count_pieces(table.words, table.counts)

    @property
    def points(self) -> list[SweepPoint]:
        """All points so far, the smallest size first."""
        return [self._points[merges] for merges in sorted(self._points)]


def largest_size(holds: Callable[[int], bool], sizes: Sequence[int]) -> int | None:
    """The largest number at which a rule holds, to the one; None if it holds at none of `sizes`.

    Looks at all `sizes`, then halves the gap between the largest that holds and the next, so the
    rule holds at the result and fails at the number after it, unless the result is the last size.
    """
    ordered = sorted(set(sizes))
    holding = [size for size in ordered if holds(size)]
    if not holding:
        return None
    low = holding[-1]
    above = [size for size in ordered if size > low]
    if above:
        high = above[0]
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if holds(middle) else (low, middle)
    return low


# ---- names in two languages ----


def edit_distance(a: str, b: str) -> int:
    """Levenshtein's: the fewest insertions, deletions and substitutions that make b of a."""
    return edit_distances(a, b)[-1]


def comparable_name(text: str) -> str:
    """A name in small Latin letters (ISO 9)."""
    return transliteration.to_latin(text.lower())


def pieces_align(source: Sequence[str], target: Sequence[str]) -> bool:
    """Whether the pieces of two names, both `comparable_name`, align one to one.

    They do if they are equally many and the edit distances of the first two, the second two, ...
    add up to the edit distance of the whole names: then one of the cheapest alignments of the
    letters passes through all cuts. (The sum is never less.)
    """
    if len(source) != len(target):
        return False
    parts = sum(edit_distance(a, b) for a, b in zip(source, target, strict=True))
    return parts == edit_distance("".join(source), "".join(target))


@dataclasses.dataclass(frozen=True)
class NamePair:
    """A name in two languages, word by word."""

    source: Sequence[str]
    target: Sequence[str]

    def is_transliterated(self, max_distance: float) -> bool:
        """Whether both have equally many words, and letters that differ in at most the given share
        of the longer name's. With a half, `Germany` and `Германия` are a transliteration, `Georgia`
        and `Грузия` are not."""
        if len(self.source) != len(self.target) or not self.source:
            return False
        a, b = (comparable_name(" ".join(words)) for words in (self.source, self.target))
        return edit_distance(a, b) <= max_distance * max(len(a), len(b))


@dataclasses.dataclass(frozen=True)
class Consistency:
    """How alike a name is cut in two languages."""

    pairs: int
    """Pairs that were compared."""
    consistent: int
    """Those whose pieces align one to one, in every word."""
    both_whole: int
    """Those of them where no word is cut on either side: consistent, and trivially so."""

    @property
    def share(self) -> float | None:
        return self.consistent / self.pairs if self.pairs else None

    @property
    def share_of_cut(self) -> float | None:
        """The share among pairs where a word is cut on one side at least."""
        cut = self.pairs - self.both_whole
        return (self.consistent - self.both_whole) / cut if cut else None


def consistency(pairs: Sequence[NamePair], source: Segmenter, target: Segmenter) -> Consistency:
    """Compares the pieces of names, each side cut by its own segmenter."""
    sources = _cut_names([pair.source for pair in pairs], source)
    targets = _cut_names([pair.target for pair in pairs], target)
    consistent = whole = 0
    for a, b in zip(sources, targets, strict=True):
        consistent += all(itertools.starmap(pieces_align, zip(a, b, strict=True)))
        whole += all(len(pieces) == 1 for pieces in (*a, *b))
    return Consistency(len(pairs), consistent, whole)


def _cut_names(names: Sequence[Sequence[str]], segmenter: Segmenter) -> Iterator[list[list[str]]]:
    """The pieces of each word of each name, made comparable."""
    words = list(dict.fromkeys(word for name in names for word in name))
    cut = dict(zip(words, pieces_of_words(segmenter, words), strict=True))
    for name in names:
        yield [[comparable_name(piece) for piece in cut[word] if piece] for word in name]


def to_json(value: Any) -> dict[str, Any]:
    """A dataclass of this module as JSON values."""
    found = dataclasses.asdict(value)
    if isinstance(value, Consistency):
        found |= {"share": value.share, "share_of_cut": value.share_of_cut}
    if isinstance(value, SweepPoint):
        for name in ("types_at_least", "merged_at_least"):
            found[name] = {str(n): count for n, count in found[name].items()}
    return found


def word_counts(words: pa.Array, counts: NDArray[np.int64]) -> WordCounts:
    """The words that occur."""
    occurs = counts > 0
    return WordCounts(words.filter(pa.array(occurs)), counts[occurs])
