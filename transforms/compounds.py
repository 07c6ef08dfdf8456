"""Compound splitting by the frequencies of parts (Koehn and Knight, "Empirical Methods for Compound
Splitting", EACL 2003, section 2).

Of all ways to split a word into known parts, the word itself among them, the one whose parts have
the highest geometric mean of frequencies wins. Between parts a filler may stand (Aktion-s-plan): it
is no part of what is looked up, and stays with the part before it, so that the pieces joined give
the word. Upper and lower case count as the same.
"""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rareword.schemas.errors import RarewordError
from rareword.schemas.tables import ShardRecord
from rareword.transforms.segmenters import CuttingSegmenter, read_lexicon, write_lexicon

FILLERS = {
    "da": ("e", "s"),
    "de": ("e", "en", "ens", "er", "es", "n", "s"),
    "nb": ("e", "s"),
    "nl": ("e", "en", "s"),
    "no": ("e", "s"),
    "sv": ("s",),
}
"""The linking elements of languages that join nouns with any; other languages have none."""
KOEHN_KNIGHT = ("es", "s")
"""What the paper allows between parts of German words; used where no language is given."""
MAX_CHARACTERS = 100
"""Longer words (addresses, rows of signs) are no compounds and stay whole."""


class _Split(NamedTuple):
    """The best way to cut the start of a word into so many parts."""

    product: int
    """Of the parts' frequencies: an exact integer, so that rounding decides no tie."""
    last: int
    """Where the last part begins."""


class CompoundSegmenter(CuttingSegmenter):
    """Splits compounds. A hyphen, alone or after a filler, is a filler too."""

    def __init__(
        self,
        counts: Mapping[str, int],
        *,
        fillers: Iterable[str] = KOEHN_KNIGHT,
        min_length: int = 3,
        min_count: int = 1,
    ) -> None:
        """counts: frequencies of words, in the form that `fold` gives."""
        if min_length < 1 or min_count < 1:
            raise RarewordError(
                "the least length and count of a compound's parts are 1 or more, not "
                f"{min_length} and {min_count}"
            )
        self.counts = dict(counts)
        self.fillers = sorted(set(fillers) - {"", "-"})
        self.min_length, self.min_count = min_length, min_count
        self._endings = ["-", *self.fillers, *(filler + "-" for filler in self.fillers)]
        self._parts = {
            text: count
            for text, count in self.counts.items()
            if count >= min_count and len(text) >= min_length and _is_word(text)
        }
        self._longest = max(map(len, self._parts), default=0) + max(map(len, self._endings))

    @classmethod
    def learn(
        cls,
        words: pa.Array,
        counts: NDArray[np.int64],
        *,
        language: str | None = None,
        fillers: Iterable[str] | None = None,
        min_length: int = 3,
        min_count: int = 1,
    ) -> "CompoundSegmenter":
        """Takes the frequencies. Fillers: those given, else those of the language (a code such as
        `de` or `de_AT`), else those of Koehn and Knight.

        min_length, min_count: parts have at least so many characters and occurrences.
        """
        if fillers is None:
            code = "" if language is None else language.replace("-", "_").split("_")[0].lower()
            fillers = KOEHN_KNIGHT if language is None else FILLERS.get(code, ())
        sums: dict[str, int] = {}
        for word, count in zip(words.to_pylist(), counts.tolist(), strict=True):
            if count > 0 and len(word) >= min_length:
                text = fold(word)
                sums[text] = sums.get(text, 0) + count
        return cls(sums, fillers=fillers, min_length=min_length, min_count=min_count)

    def cut(self, words: Sequence[str]) -> list[Sequence[str]]:
        return [self._split(word) for word in words]

    def _split(self, word: str) -> Sequence[str]:
        """The pieces of the best split; of equal ones that with fewer parts, and then that with the
        longer last part, the longer last but one, and so on.

        A geometric mean needs the number of parts, so the table of dynamic programming has the best
        product for each end of a part and each number of parts. Means of m and n parts are compared
        by the powers product^n and product^m.
        """
        size = len(word)
        if size < 2 * self.min_length or size > MAX_CHARACTERS:
            return (word,)
        text = fold(word)
        best: list[dict[int, _Split]] = [{} for _ in range(size + 1)]
        best[0][0] = _Split(1, 0)
        for begin in range(size - self.min_length + 1):
            if not best[begin]:
                continue
            for end in range(begin + self.min_length, min(begin + self._longest, size) + 1):
                count = self._count(text, begin, end)
                if count:
                    for parts, split in best[begin].items():
                        product = split.product * count
                        found = best[end].get(parts + 1)
                        if found is None or product > found.product:
                            best[end][parts + 1] = _Split(product, begin)
        chosen, product = 1, self.counts.get(text, 0)
        for parts in sorted(best[size]):
            if parts > 1 and best[size][parts].product ** chosen > product**parts:
                chosen, product = parts, best[size][parts].product
        bounds = [size]
        for parts in range(chosen, 1, -1):
            bounds.append(best[bounds[-1]][parts].last)
        return [word[a:b] for a, b in zip([0, *bounds[:0:-1]], bounds[::-1], strict=True)]

    def _count(self, text: str, begin: int, end: int) -> int:
        """The frequency of a part with or without a filler behind it; 0 if it is no part. The last
        part of a word has no filler."""
        count = self._parts.get(text[begin:end], 0)
        if end < len(text):
            for ending in self._endings:
                if text.endswith(ending, begin, end):
                    count = max(count, self._parts.get(text[begin : end - len(ending)], 0))
        return count

    def settings(self) -> dict[str, Any]:
        return {
            "fillers": self.fillers,
            "min_length": self.min_length,
            "min_count": self.min_count,
        }

    def save(self, directory: str, side: str) -> list[ShardRecord]:
        return [write_lexicon(directory, side, self.counts)]

    @classmethod
    def load(cls, directory: str, side: str, settings: Mapping[str, Any]) -> "CompoundSegmenter":
        return cls(read_lexicon(directory, side), **settings)


def fold(word: str) -> str:
    """The word in lower case, of the same length (İ, whose lower case is two, stays)."""
    text = word.lower()
    if len(text) == len(word) and "Σ" not in word:  # whose lower case depends on what follows
        return text
    lowered = (character.lower() for character in word)
    return "".join(a if len(a) == 1 else b for a, b in zip(lowered, word, strict=True))


def _is_word(text: str) -> bool:
    """Whether a text is of letters alone, combining marks included."""
    return text.isalpha() or all(unicodedata.category(c)[0] in "LM" for c in text)
