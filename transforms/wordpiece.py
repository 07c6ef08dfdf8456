"""WordPiece: learnt by its own score, applied by the longest match first.

Learning begins with characters and joins, step by step, the pair of neighbours (a, b) with the
highest count(ab) / (count(a) * count(b)): it asks how much more often the two meet than by chance,
where byte-pair encoding asks how often they meet.

What the counts are. A symbol is its text, wherever in a word it stands and whatever made it.
count(a) is the number of a's in all words as they are cut at that step, count(ab) the number of
places where b follows a (two in `aaa`), both weighted by the words' counts. Scores are quotients in
double precision; of equal ones the pair with the higher count wins, then the smallest (left, right)
by code point.

A text that learning has seen at the beginning of a word is an initial piece, one that it has seen
inside is an inside piece; BERT's vocabularies write the latter as `##er`. Characters are both.
"""

import itertools
import math
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rareword.schemas import storage
from rareword.schemas.errors import RarewordError
from rareword.schemas.tables import WORDPIECES, ShardRecord, read_table, write_shard
from rareword.transforms.segmenters import CuttingSegmenter, split_words

INSIDE = "##"
"""Before a piece that does not begin its word, in BERT's vocabularies; display only."""


class Step(NamedTuple):
    """One step of learning: the pair, its count, its score, and where the new text was seen."""

    left: str
    right: str
    frequency: int
    score: float
    initial: bool
    inside: bool


class WordPieceSegmenter(CuttingSegmenter):
    """Cuts a word from the left, each time by the longest piece that matches: an initial one at its
    beginning, inside ones after that; a character that matches none is a piece by itself.

    Words of more than `max_word_length` characters become their characters; `count_long_words`
    tells how many there are.
    """

    spells: ClassVar[bool] = True

    def __init__(
        self,
        initial: Sequence[str],
        inside: Sequence[str],
        max_word_length: int = 100,
        left_out: Mapping[str, int] | None = None,
    ) -> None:
        """`left_out` tells which words were too long to learn from: `types` and `tokens`."""
        if max_word_length < 1:
            raise RarewordError("the longest word must have at least 1 character")
        self.initial, self.inside = tuple(initial), tuple(inside)
        self.max_word_length = max_word_length
        self.left_out = dict(left_out or {"types": 0, "tokens": 0})
        self._initial, self._inside = frozenset(self.initial), frozenset(self.inside)
        self._longest: dict[str, int] = {}
        for piece in self._initial | self._inside:
            first = piece[0]
            self._longest[first] = max(self._longest.get(first, 1), len(piece))

    @classmethod
    def learn(
        cls,
        words: pa.Array,
        counts: NDArray[np.int64],
        *,
        pieces: int,
        min_frequency: int = 0,
        max_word_length: int = 100,
    ) -> "WordPieceSegmenter":
        """Learns from words and their counts until there are `pieces` pieces, initial and inside
        ones counted apart and characters included, or no pair occurs `min_frequency` times.

        The last step may bring two pieces; if only one fits it is not made. Words of more than
        `max_word_length` characters give their characters alone.

        The score alone prefers what is rare: of two symbols that only ever occur together, the
        rarer pair is joined first. So the result hangs on `min_frequency`. With 0 it is chosen: the
        highest, to a tenth, with which `pieces` pieces are found.
        """
        occurs = pc.and_(pc.greater(pa.array(counts), 0), pc.greater(pc.binary_length(words), 0))
        words, counts = words.filter(occurs), counts[occurs.to_numpy(zero_copy_only=False)]
        fits = pc.less_equal(pc.utf8_length(words), max_word_length).to_numpy(zero_copy_only=False)
        left_out = {"types": int((~fits).sum()), "tokens": int(counts[~fits].sum())}
        characters = sorted(set().union(*words.to_pylist()))
        if 2 * len(characters) > pieces:
            raise RarewordError(
                f"{pieces} pieces are too few: the words have {len(characters)} characters, and "
                f"each is an initial and an inside piece; ask for {2 * len(characters)} or more"
            )
        texts, counts = words.filter(pa.array(fits)).to_pylist(), counts[fits]

        def learnt(frequency: int) -> _Forms:
            steps = Learner(texts, counts, frequency).steps()
            return _collect(steps, characters, pieces)

        found = learnt(min_frequency) if min_frequency else _highest(learnt, pieces, counts)
        return cls(list(found.initial), list(found.inside), max_word_length, left_out)

    @property
    def tokens(self) -> list[str]:
        """The pieces as BERT's vocabularies write them: `low`, then `##er`.

        Raises RarewordError if an initial piece itself begins with `##` and more: BERT's format
        cannot tell it from an inside piece.
        """
        for piece in self.initial:
            if piece.startswith(INSIDE) and len(piece) > len(INSIDE):
                raise RarewordError(
                    f"the piece {piece!r} begins a word and with {INSIDE}: a WordPiece vocabulary "
                    "cannot tell it from a piece inside a word"
                )
        return [*self.initial, *(INSIDE + piece for piece in self.inside)]

    def cut(self, words: Sequence[str]) -> list[Sequence[str]]:
        return [self._cut(word) for word in words]

    def _cut(self, word: str) -> Sequence[str]:
        size = len(word)
        if size > self.max_word_length:
            return tuple(word)
        pieces = []
        begin, known = 0, self._initial
        while begin < size:
            end = min(size, begin + self._longest.get(word[begin], 1))
            while end > begin + 1 and word[begin:end] not in known:
                end -= 1
            pieces.append(word[begin:end])
            begin, known = end, self._inside
        return pieces

    def count_long_words(self, lines: pa.Array) -> int:
        """How many words of these lines are longer than `max_word_length` characters."""
        lines = pc.fill_null(lines, "")
        lines = lines.filter(pc.greater(pc.utf8_length(lines), self.max_word_length))
        words, _ = split_words(lines)
        return int(np.sum(pc.utf8_length(words).to_numpy() > self.max_word_length))

    def settings(self) -> dict[str, Any]:
        return {"max_word_length": self.max_word_length, "left_out": self.left_out}

    def save(self, directory: str, side: str) -> list[ShardRecord]:
        inside = [False] * len(self.initial) + [True] * len(self.inside)
        columns = {"piece": [*self.initial, *self.inside], "inside": inside}
        table = pa.table(columns, schema=WORDPIECES.fields)
        return [write_shard(directory, _file_name(side), WORDPIECES, [table])]

    @classmethod
    def load(cls, directory: str, side: str, settings: Mapping[str, Any]) -> "WordPieceSegmenter":
        table = read_table(storage.join(directory, _file_name(side)), WORDPIECES)
        inside = table["piece"].filter(table["inside"]).to_pylist()
        initial = table["piece"].filter(pc.invert(table["inside"])).to_pylist()
        return cls(initial, inside, settings["max_word_length"], settings["left_out"])


def _file_name(side: str) -> str:
    return f"wordpieces-{side}.parquet"


class _Forms(NamedTuple):
    """Initial and inside pieces, as keys in the order in which they were learnt."""

    initial: dict[str, None]
    inside: dict[str, None]
    full: bool
    """Whether learning ended because there were enough pieces."""


def _collect(steps: Iterator[Step], characters: Sequence[str], pieces: int) -> _Forms:
    """The pieces of learning's steps, until there are `pieces`."""
    initial, inside = dict.fromkeys(characters), dict.fromkeys(characters)
    for step in steps:
        text = step.left + step.right
        new = [
            form
            for form, seen in ((initial, step.initial), (inside, step.inside))
            if seen and text not in form
        ]
        if len(initial) + len(inside) + len(new) > pieces:
            return _Forms(initial, inside, True)
        for form in new:
            form[text] = None
        if len(initial) + len(inside) == pieces:
            return _Forms(initial, inside, True)
    return _Forms(initial, inside, False)


def _highest(learnt: Callable[[int], _Forms], pieces: int, counts: NDArray[np.int64]) -> _Forms:
    """What is learnt with the highest frequency that gives enough pieces, found by halving the
    ratio of a frequency that does and one that does not; with 1 if none does."""
    low, high = 1, int(counts.sum()) + 1
    best = None
    while high > low + 1 and high > 1.1 * low:
        middle = min(max(round(math.sqrt(low * high)), low + 1), high - 1)
        found = learnt(middle)
        if found.full:
            low, best = middle, found
        else:
            high = middle
    return best or learnt(1)


SHIFT = 32
"""A pair of symbol ids is one number: left << SHIFT | right."""


class Learner:
    """The steps of learning. Words lie behind each other as linked symbols; a step touches the
    places of its pair, and the scores of the pairs that share a symbol with it.

    A step changes the counts of three symbols, and so the scores of all their pairs, up as well as
    down: there are thousands for a frequent symbol, too many for a heap entry each. So scores stand
    in one array, those of a symbol are computed anew at once, and the best is the array's maximum.
    Only pairs with at least `min_frequency` places are in it.
    """

    def __init__(self, words: list[str], counts: NDArray[np.int64], min_frequency: int) -> None:
        points = np.frombuffer("".join(words).encode("utf-32-le"), np.uint32)
        lengths = np.fromiter(map(len, words), np.int64, len(words))
        ends = np.cumsum(lengths)
        weights = np.repeat(counts, lengths)
        alphabet, symbols = np.unique(points, return_inverse=True)
        previous, following = np.arange(len(points)) - 1, np.arange(len(points)) + 1
        previous[ends - lengths] = -1
        following[ends - 1] = -1
        self._minimum = max(min_frequency, 1)
        # By place: the symbol (-1: joined to the one before), its neighbours' places (-1: none).
        self._symbols = array("q", symbols.astype(np.int64).tobytes())
        self._previous = array("q", previous.tobytes())
        self._following = array("q", following.tobytes())
        self._weights = array("q", weights.astype(np.int64).tobytes())
        # By symbol.
        self._texts = [chr(point) for point in alphabet]
        self._ids = {text: number for number, text in enumerate(self._texts)}
        self._totals = np.zeros(max(len(self._texts), 1), np.int64)
        np.add.at(self._totals, symbols, weights)
        self._pairs_of = [array("q") for _ in self._texts]
        # By pair: count and places.
        lefts = np.flatnonzero(following >= 0)
        keys = (symbols[lefts].astype(np.int64) << SHIFT) | symbols[lefts + 1]
        order = np.argsort(keys, kind="stable")
        pairs, first = np.unique(keys[order], return_index=True)
        self._all_places = lefts[order]
        bounds = [*first.tolist(), len(order)]
        self._first_places = dict(zip(pairs.tolist(), itertools.pairwise(bounds), strict=True))
        self._places: dict[int, list[int]] = {}
        sums = np.add.reduceat(weights[self._all_places], first) if len(first) else first
        self._counts: dict[int, int] = dict(zip(pairs.tolist(), sums.tolist(), strict=True))
        # By number of a pair that has, or had, enough places.
        self._numbers: dict[int, int] = {}
        self._left, self._right = np.zeros(1024, np.int64), np.zeros(1024, np.int64)
        self._pair_counts, self._scores = np.zeros(1024, np.int64), np.zeros(1024)
        for pair, count in self._counts.items():
            self._store(pair, count)
        self._score(np.arange(len(self._numbers)))

    def steps(self) -> Iterator[Step]:
        """All steps, in order."""
        while (number := self._best()) is not None:
            left, right = int(self._left[number]), int(self._right[number])
            count, score = int(self._pair_counts[number]), float(self._scores[number])
            initial, inside = self._join(left, right)
            yield Step(self._texts[left], self._texts[right], count, score, initial, inside)

    def _best(self) -> int | None:
        scores = self._scores[: len(self._numbers)]
        best = scores.max(initial=0.0)
        if best == 0.0:
            return None
        found = np.flatnonzero(scores == best)
        if len(found) > 1:
            counts = self._pair_counts[found]
            found = found[counts == counts.max()]

        def texts(number: int) -> tuple[str, str]:
            return self._texts[self._left[number]], self._texts[self._right[number]]

        return int(found[0]) if len(found) == 1 else min(found.tolist(), key=texts)

    def _join(self, left: int, right: int) -> tuple[bool, bool]:
        """Joins the pair in all its places, from left to right in each word. Returns whether any is
        at the beginning of a word, and whether any is inside."""
        symbols, previous, following = self._symbols, self._previous, self._following
        joined = self._symbol(self._texts[left] + self._texts[right])
        pair = left << SHIFT | right
        deltas: dict[int, int] = {}
        total, initial, inside = 0, False, False
        for place in self._take_places(pair):
            after = following[place]
            if symbols[place] != left or after < 0 or symbols[after] != right:
                continue
            weight, before, behind = self._weights[place], previous[place], following[after]
            deltas[pair] = deltas.get(pair, 0) - weight
            total += weight
            symbols[place], symbols[after] = joined, -1
            following[place] = behind
            if before >= 0:
                inside = True
                other = symbols[before] << SHIFT
                deltas[other | left] = deltas.get(other | left, 0) - weight
                deltas[other | joined] = deltas.get(other | joined, 0) + weight
                self._places.setdefault(other | joined, []).append(before)
            else:
                initial = True
            if behind >= 0:
                previous[behind] = place
                other = symbols[behind]
                old, new = right << SHIFT | other, joined << SHIFT | other
                deltas[old] = deltas.get(old, 0) - weight
                deltas[new] = deltas.get(new, 0) + weight
                self._places.setdefault(new, []).append(place)
        self._totals[left] -= total
        self._totals[right] -= total
        self._totals[joined] += total
        for key, delta in deltas.items():
            count = self._counts.get(key, 0) + delta
            self._counts[key] = count
            self._store(key, count)
        for symbol in {left, right, joined}:
            self._score(np.frombuffer(self._pairs_of[symbol], np.int64))
        return initial, inside

    def _take_places(self, pair: int) -> list[int]:
        """Where the pair stands, or once stood."""
        begin, end = self._first_places.pop(pair, (0, 0))
        places = set(self._all_places[begin:end].tolist())
        return sorted(places.union(self._places.pop(pair, ())))

    def _symbol(self, text: str) -> int:
        """The id of a text, a new one if it is new."""
        number = self._ids.setdefault(text, len(self._texts))
        if number == len(self._texts):
            self._texts.append(text)
            self._pairs_of.append(array("q"))
            if number == len(self._totals):
                self._totals = np.concatenate([self._totals, np.zeros_like(self._totals)])
        return number

    def _store(self, pair: int, count: int) -> None:
        """Notes a pair's count; its score is not yet up to date."""
        number = self._numbers.get(pair)
        if number is None:
            if count < self._minimum:
                return
            number = self._numbers[pair] = len(self._numbers)
            if number == len(self._scores):
                self._left, self._right, self._pair_counts, self._scores = (
                    np.concatenate([column, np.zeros_like(column)])
                    for column in (self._left, self._right, self._pair_counts, self._scores)
                )
            left, right = pair >> SHIFT, pair & ((1 << SHIFT) - 1)
            self._left[number], self._right[number] = left, right
            for symbol in {left, right}:
                self._pairs_of[symbol].append(number)
        self._pair_counts[number] = count

    def _score(self, numbers: NDArray[np.int64]) -> None:
        """Computes the scores of these pairs."""
        counts = self._pair_counts[numbers]
        left = self._totals[self._left[numbers]].astype(np.float64)
        right = self._totals[self._right[numbers]].astype(np.float64)
        scores = np.zeros(len(numbers))
        np.divide(counts, left * right, out=scores, where=counts >= self._minimum)
        self._scores[numbers] = scores
