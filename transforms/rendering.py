"""Text to text: lines of words become lines of pieces, as they are printed for people and files.

`BpeRenderer` prints what byte-pair encoding makes of a text, with everything that subword-nmt's
apply-bpe knows: both versions of codes, a vocabulary outside of which merges are undone,
glossaries, any separator, dropout. `NgramRenderer` cuts rare words into character n-grams.
"""

import re
from collections.abc import Callable, Collection, Sequence

import numpy as np
import pyarrow as pa

from rareword.schemas.merges import Codes
from rareword.transforms import _kernels
from rareword.transforms.bpe import first_splits
from rareword.transforms.glossary import Parts, compiled
from rareword.transforms.parts import strings

SEPARATOR = "@@"


class BpeRenderer:
    """Prints words in pieces; a piece that does not end its word is followed by the separator.

    A piece that the vocabulary lacks is split into what the first merge that makes it joined, each
    part is looked up in turn, and so on to characters, which stay. The vocabulary holds pieces as
    they are printed (`lo@@`, `w`); an empty one holds nothing, so all words become characters.

    What a glossary (a regular expression of Python) matches inside a word stays whole, and what
    stands between is segmented as if it were a word. Glossaries apply one after the other, to what
    an earlier one kept whole too, unless the later one matches all of it. Matches of nothing are no
    matches.
    """

    def __init__(
        self,
        codes: Codes,
        separator: str = SEPARATOR,
        vocabulary: Collection[str] | None = None,
        glossaries: Sequence[str] = (),
        cache_bytes: int = 256 << 20,
    ) -> None:
        numbers: dict[tuple[str, bool], int] = {}
        symbols: list[str] = []  # the texts of those of more than one character

        def number(symbol: tuple[str, bool]) -> int:
            found = numbers.get(symbol)
            if found is None:
                text, final = symbol
                if len(text) == 1:
                    found = 2 * ord(text) + final
                elif not text:
                    found = _kernels.END_OF_WORD
                else:
                    found = _kernels.FIRST_MERGED + len(symbols)
                    symbols.append(text)
                numbers[symbol] = found
            return found

        rows = []
        for merge in codes.merges:
            left, right = merge.left, merge.right
            made = left.text + right.text, right.final
            rows.append((number(left), number(right), number(made)))
        merges = np.array(rows, np.int32).reshape(-1, 3)
        # A symbol joined with a bare `</w>` may be itself again: no way to split it.
        makes = (merges[:, 2] >= _kernels.FIRST_MERGED) & (merges[:, :2] != merges[:, 2:]).all(1)
        left, right, made_by = merges[makes].T
        splits = first_splits(left, right, made_by, len(symbols))
        sizes = [len(text.encode()) for text in symbols]
        inside = [
            (text + separator in vocabulary) + 2 * (text in vocabulary)
            for text in symbols
            if vocabulary is not None
        ]
        self._kernel = _kernels.Renderer(
            merges[:, 0],
            merges[:, 1],
            merges[:, 2],
            np.array(sizes, np.int32),
            *splits,
            np.array(inside, np.uint8),
            separator,
            codes.version == (0, 1),
            _glossary(glossaries) if glossaries else None,
            cache_bytes,
        )

    def render(
        self,
        text: bytes,
        first_line: int = 0,
        threads: int = 1,
        dropout: float = 0.0,
        seed: int = 0,
    ) -> list[bytes]:
        """Whole lines of UTF-8 with their words in pieces; the parts of the result are in order.

        Words are split at U+0020; what stands of `\\r`, `\\n` and spaces at both ends of a line
        stays, runs of spaces inside become one. dropout: the probability, 0 to 1, that a place
        where a merge could be made is passed over in a round; the random numbers of a line are a
        function of (seed, its number: first_line, first_line + 1, ...), whatever the threads.
        Raises ValueError for text that is not UTF-8.
        """
        return self._kernel.render(text, first_line, threads, dropout, seed)

    def render_words(self, words: pa.Array) -> pa.Array:
        """Each word of a string array in pieces, without dropout."""
        return strings(*self._kernel.render_words(words))


def _glossary(glossaries: Sequence[str]) -> Callable[[str], Parts | None]:
    """The function that takes a word apart; None if no glossary is in it."""
    patterns = [compiled(glossary) for glossary in glossaries]

    def cut(text: str, whole: bool, pattern: re.Pattern[str]) -> Parts:
        if pattern.fullmatch(text):
            return [(text, True)]
        parts, end = [], 0
        for match in pattern.finditer(text):
            if match.end() > match.start():
                parts += [(text[end : match.start()], False), (match[0], True)]
                end = match.end()
        parts.append((text[end:], whole and not parts))
        return [part for part in parts if part[0]]

    def take_apart(word: str) -> Parts | None:
        if not any(pattern.search(word) for pattern in patterns):  # most words, quickly
            return None
        parts = [(word, False)]
        for pattern in patterns:
            parts = [piece for text, whole in parts for piece in cut(text, whole, pattern)]
        # What is left of a cut part may be all of another glossary's match.
        parts = [
            (text, whole or any(pattern.fullmatch(text) for pattern in patterns))
            for text, whole in parts
        ]
        return parts if any(whole for _, whole in parts) else None

    return take_apart


class NgramRenderer:
    """Cuts every word that is not in the shortlist into n-grams of characters.

    Words are split at white space of any kind, as subword-nmt's segment-char-ngrams does. Each
    word and each n-gram is followed by a space.
    """

    CACHED_WORDS = 1 << 20

    def __init__(self, shortlist: Collection[str], n: int, separator: str = SEPARATOR) -> None:
        self._shortlist, self._n, self._joiner = shortlist, n, separator + " "
        self._cache: dict[str, str] = {}

    def render(self, text: str) -> str:
        """Whole lines of text. The result always ends in `\\n`, whether the text does or not."""
        lines = text.split("\n")
        if not lines[-1]:
            lines.pop()
        return "".join(["".join(map(self._word, line.split())) + "\n" for line in lines])

    def _word(self, word: str) -> str:
        found = self._cache.get(word)
        if found is None:
            pieces = [word]
            if word not in self._shortlist:
                pieces = [word[i : i + self._n] for i in range(0, len(word), self._n)]
            found = self._joiner.join(pieces) + " "
            if len(self._cache) >= self.CACHED_WORDS:
                self._cache.clear()
            self._cache[word] = found
        return found
