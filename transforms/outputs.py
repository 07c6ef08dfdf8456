"""What may be wrong with translations whatever they say: loops, marks of pieces, tokenised text."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rareword.transforms.unigrams import Text

LONGEST_REPEAT = 4
"""The longest n-grams looked at, in words."""

MARKS = {"@@": re.compile(r"@@(?: |$)"), "##": re.compile(r"(?:^| )##(?=\w)"), "▁": re.compile("▁")}
"""How text in pieces looks: subword-nmt's mark, WordPiece's and SentencePiece's."""

_LOOP = re.compile(r"([^\d]{1,4}?)\1{3}")


class Share(NamedTuple):
    """So many of so many."""

    found: int
    total: int

    @property
    def share(self) -> float:
        """0 where there is nothing."""
        return self.found / self.total if self.total else 0.0


def repeats(text: Text, n: int) -> Share:
    """n-grams of words that are followed at once by themselves, of all n-grams.

    `no no no` repeats a 1-gram twice; `he said he said` a 2-gram once.
    """
    total = int(np.maximum(text.lengths - n + 1, 0).sum())
    words_N, sentences_N = text.words_N, text.sentences
    positions = len(words_N) - 2 * n + 1
    if positions <= 0:
        return Share(0, total)
    equal = np.concatenate([[0], np.cumsum(words_N[:-n] == words_N[n:])])
    found = equal[n : n + positions] - equal[:positions] == n  # n equal words in a row
    found &= sentences_N[:positions] == sentences_N[2 * n - 1 :]
    return Share(int(found.sum()), total)


def loops(text: Text, words: Sequence[str]) -> Share:
    """Words that have one to four characters, other than digits, four times in a row (`......`,
    `hahahaha`), of all words. words: by number."""
    loops_V = np.array([_LOOP.search(word) is not None for word in words], np.bool_)
    count = int(loops_V[text.words_N].sum()) if len(text.words_N) else 0
    return Share(count, len(text.words_N))


def marked(texts: Sequence[str]) -> dict[str, int]:
    """How many texts hold each of MARKS."""
    return {
        mark: sum(pattern.search(text) is not None for text in texts)
        for mark, pattern in MARKS.items()
    }


def detached(texts: Sequence[str]) -> Share:
    """Texts that end in a full stop with a space before it, of those that end in a full stop.

    Only the full stop: French has a space before other signs.
    """
    ends = [text.rstrip()[-2:] for text in texts]
    stops = [end for end in ends if end.endswith(".")]
    return Share(sum(end[0].isspace() for end in stops), len(stops))
