"""Words produced against words expected, by how often the words occurred in training.

Unigram F1 is the paper's: words as the model saw them (tokenised, truecased), counts clipped
sentence by sentence as in BLEU, precision and recall over the whole test set, for all words, for
rare ones and for unseen ones, and by rank of training frequency (sections 4 and 5.1, Figures 2
and 3).

Words are numbers here. Axes: N running words, S sentences, K distinct words of each sentence,
V distinct words of references and translations together, L distinct training frequencies.
"""

import itertools
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rareword.schemas.tables import WORDS, iterate_row_groups

UNKNOWN = "<unk>"
"""How an unknown piece is shown: a produced token that is no word of any class."""

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


# ---- words as numbers ----


@dataclass(frozen=True)
class Text:
    """The words of sentences, by number."""

    words_N: NDArray[np.int32]
    bounds: Ints
    """[S + 1]: where each sentence begins, and the last one ends."""

    @property
    def lengths(self) -> Ints:
        """[S]: words of each sentence."""
        return np.diff(self.bounds)

    @property
    def sentences(self) -> Ints:
        """[N]: the sentence of each word."""
        return np.repeat(np.arange(len(self.bounds) - 1), self.lengths)


class Lexicon:
    """Numbers words in the order in which they are met."""

    def __init__(self) -> None:
        self._numbers: defaultdict[str, int] = defaultdict()
        self._numbers.default_factory = self._numbers.__len__

    def encode(self, sentences: Iterable[Sequence[str]]) -> Text:
        """The sentences by number; words not met before get the next ones."""
        words, bounds = array("i"), array("q", [0])
        for sentence in sentences:
            words.extend(map(self._numbers.__getitem__, sentence))
            bounds.append(len(words))
        return Text(np.array(words, np.int32), np.array(bounds, np.int64))

    @property
    def words(self) -> list[str]:
        """All words met, by number."""
        return list(self._numbers)

    def mask(self, words: Iterable[str]) -> Mask:
        """True at the numbers of the given words, where they were met."""
        mask_V = np.zeros(len(self._numbers), np.bool_)
        for word in words:
            if word in self._numbers:
                mask_V[self._numbers[word]] = True
        return mask_V


class Bag(NamedTuple):
    """How often each sentence holds each of its words; sorted by sentence and word."""

    sentences_K: Ints
    words_K: Ints
    counts_K: Ints

    def by_word(self, size: int) -> Ints:
        """[V]: the counts of each word, summed over the sentences. size: V."""
        return _sums(self.words_K, self.counts_K, size)

    def by_sentence(self, mask_V: Mask, size: int) -> Ints:
        """[S]: how many words of a mask each sentence holds. size: S."""
        chosen = mask_V[self.words_K]
        return _sums(self.sentences_K[chosen], self.counts_K[chosen], size)


def _sums(places: Ints, counts: Ints, size: int) -> Ints:
    # bincount adds in float64: exact up to 2^53.
    return np.bincount(places, counts, size).astype(np.int64)


def bag(text: Text) -> Bag:
    """The bag of each sentence's words."""
    keys, counts = np.unique(text.sentences << 32 | text.words_N, return_counts=True)
    return Bag(keys >> 32, keys & 0xFFFFFFFF, counts.astype(np.int64))


class Matches(NamedTuple):
    """Words produced and expected; matches are clipped sentence by sentence: a word counts as often
    as both sides have it."""

    produced: Bag
    expected: Bag
    matched: Bag
    """The words and sentences of `expected`, with how often they were matched, 0 included."""

    def by_word(self, size: int) -> "WordCounts":
        """The sums over the sentences. size: V."""
        return WordCounts(*(part.by_word(size) for part in self))


def match(hypotheses: Text, expected: Bag) -> Matches:
    """Compares translations with the bags of their references."""
    produced = bag(hypotheses)
    ours, theirs = (b.sentences_K << 32 | b.words_K for b in (produced, expected))
    _, at_ours, at_theirs = np.intersect1d(ours, theirs, assume_unique=True, return_indices=True)
    counts_K = np.zeros_like(expected.counts_K)
    counts_K[at_theirs] = np.minimum(produced.counts_K[at_ours], expected.counts_K[at_theirs])
    return Matches(produced, expected, expected._replace(counts_K=counts_K))


@dataclass(frozen=True)
class Unigrams:
    """Words matched, produced and expected over a test set; matches clipped per sentence."""

    matched: int
    produced: int
    expected: int

    @property
    def precision(self) -> float | None:
        """Share of the produced words that their references hold; None if none was produced."""
        return self.matched / self.produced if self.produced else None

    @property
    def recall(self) -> float | None:
        """Share of the references' words that were produced; None if there are none."""
        return self.matched / self.expected if self.expected else None

    @property
    def f1(self) -> float | None:
        """Harmonic mean of precision and recall; None if there is nothing to find or to count."""
        total = self.produced + self.expected
        return 2 * self.matched / total if total else None


class WordCounts(NamedTuple):
    """For each word how often it was produced, expected and matched over the test set."""

    produced_V: Ints
    expected_V: Ints
    matched_V: Ints

    def within(self, mask_V: Mask) -> Unigrams:
        """The sums over the words of a mask."""
        produced, expected, matched = (int(counts[mask_V].sum()) for counts in self)
        return Unigrams(matched, produced, expected)


# ---- how often training had a word ----


class Band(NamedTuple):
    """Words by their number of occurrences in training, bounds included."""

    low: int
    high: int | None

    def holds(self, counts_V: Ints) -> Mask:
        """Which of the counts are inside."""
        inside = counts_V >= self.low
        return inside if self.high is None else inside & (counts_V <= self.high)

    def __str__(self) -> str:
        if self.high is None:
            return f"{self.low:,} and more"
        return f"{self.low:,}" if self.low == self.high else f"{self.low:,} to {self.high:,}"


BANDS = (
    Band(0, 0),
    Band(1, 1),
    Band(2, 4),
    Band(5, 9),
    Band(10, 99),
    Band(100, 999),
    Band(1000, None),
)
"""From words never seen in training to frequent ones."""

ALL, UNSEEN = Band(0, None), BANDS[0]


def classes(rarest: int) -> dict[str, Band]:
    """The paper's three: all words, rare ones (seen, but seldom) and those never seen.

    rarest: how often rare words occurred in training at most; 0 if there are none.
    """
    return {"all": ALL, "rare": Band(1, rarest), "unseen": UNSEEN}


class RankBin(NamedTuple):
    """Words by their rank of training frequency, bounds included."""

    low: int
    high: int
    band: Band
    """The frequencies of such words; one that holds nothing if no word has such a rank."""
    types: int
    """Words of training in the bin."""


@dataclass(frozen=True)
class Frequencies:
    """How many words of the training data occurred how often.

    The rank of a word is one more than the number of words that are more frequent: words of the
    same frequency share a rank, so nothing depends on an order among them.
    """

    counts_L: Ints
    """The distinct numbers of occurrences, falling."""
    types_L: Ints
    """How many words have each."""

    @property
    def types(self) -> int:
        """All words."""
        return int(self.types_L.sum())

    @property
    def ranks(self) -> Ints:
        """[L]: the rank of the words of each frequency."""
        return np.cumsum(self.types_L) - self.types_L + 1

    def highest_beyond(self, rank: int) -> int:
        """How often the most frequent word beyond a rank occurred; 0 if there is none."""
        beyond = self.counts_L[self.ranks > rank]
        return int(beyond[0]) if len(beyond) else 0

    def first_rank(self, count: int) -> int | None:
        """The rank of the most frequent of the words that occurred at most so often; None if there
        are none."""
        rest = self.ranks[self.counts_L <= count]
        return int(rest[0]) if len(rest) else None

    def bins(self) -> list[RankBin]:
        """Ranks in bins that end at 1, 2, 5, 10, 20, 50, 100, ..., the last at all words."""
        found: list[RankBin] = []
        low, ranks_L = 1, self.ranks
        for edge in _edges():
            if low > self.types:
                return found
            high = min(edge, self.types)
            inside = (low <= ranks_L) & (ranks_L <= high)
            counts = self.counts_L[inside]
            band = Band(int(counts[-1]), int(counts[0])) if len(counts) else Band(1, 0)
            found.append(RankBin(low, high, band, int(self.types_L[inside].sum())))
            low = high + 1
        raise AssertionError("unreachable: the edges never end")


def _edges() -> Iterator[int]:
    return (digit * 10**power for power in itertools.count() for digit in (1, 2, 5))


def read_training(urls: Iterable[str], words: Sequence[str]) -> tuple[Ints, Frequencies]:
    """How often each of `words` occurs on the target side of the training data [V], and how often
    its words do in all.

    urls: the shards of a `words` table, of which memory holds one row group at a time.
    """
    numbers = {word: number for number, word in enumerate(words)}
    counts_V = np.zeros(len(words), np.int64)
    wanted = pa.array(words, pa.string())
    types: defaultdict[int, int] = defaultdict(int)
    for url in urls:
        for table in iterate_row_groups(url, WORDS, ["word", "target_count"]):
            seen = table.filter(pc.greater(table["target_count"], 0))
            values, sizes = np.unique(seen["target_count"].to_numpy(), return_counts=True)
            for count, size in zip(values.tolist(), sizes.tolist(), strict=True):
                types[count] += size
            found = seen.filter(pc.is_in(seen["word"], wanted))
            for word, count in zip(*(column.to_pylist() for column in found.columns), strict=True):
                counts_V[numbers[word]] += count
    ordered = sorted(types.items(), reverse=True)
    counts_L, types_L = np.array(ordered, np.int64).reshape(-1, 2).T
    return counts_V, Frequencies(counts_L, types_L)
