"""Words that training never had: what they are, and what a system makes of them.

The paper (section 3) names the words that a translator can make of their parts: names that are
copied or transliterated, cognates and loanwords, and compounds. The classes here are what can be
computed of that from source and training words alone, without a dictionary.
"""

import unicodedata
from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rareword.schemas.tables import WORDS, iterate_row_groups
from rareword.transforms.boundaries import edit_distances
from rareword.transforms.compounds import MAX_CHARACTERS, CompoundSegmenter, fold
from rareword.transforms.transliteration import to_latin
from rareword.transforms.unigrams import Bag, Ints, Mask, Matches, Unigrams

CLASSES = ("copied", "cased", "number", "transliterated", "cognate", "compound", "other")
"""In the order in which they are tried: a word is of the first class that fits.

copied: a word of the source sentence. cased: but for upper and lower case, a word of the source
sentence or of training. number: digits and no letters. transliterated: in Latin letters (ISO 9)
close to a word of the source sentence of the other script. cognate: close to one of the same
script. compound: a row of words of training. other: the rest.
"""


# ---- what a word is ----


def candidate_parts(words: Iterable[str], part_length: int) -> set[str]:
    """All that may be a part of a word, and the words themselves, as `fold` gives them."""
    found = set()
    for word in words:
        text = fold(word)
        found.add(text)
        if len(text) <= MAX_CHARACTERS:
            found |= {
                text[begin:end]
                for begin in range(len(text) - part_length + 1)
                for end in range(begin + part_length, len(text) + 1)
            }
    return found


def read_known(urls: Iterable[str], wanted: Collection[str]) -> dict[str, int]:
    """How often training had each of the `wanted` texts as a target word in any case, where it did.

    wanted: as `fold` gives them. urls: the shards of a `words` table, read one row group at a time.
    """
    counts: dict[str, int] = {}
    texts = pa.array(sorted(wanted), pa.string())
    for url in urls:
        for table in iterate_row_groups(url, WORDS, ["word", "target_count"]):
            near = pc.is_in(pc.utf8_lower(table["word"]), texts)
            found = table.filter(pc.and_(near, pc.greater(table["target_count"], 0)))
            for word, count in zip(*(column.to_pylist() for column in found.columns), strict=True):
                text = fold(word)
                if text in wanted:
                    counts[text] = counts.get(text, 0) + count
    return counts


@lru_cache(1 << 16)
def _latin(word: str) -> str:
    """A word in small Latin letters without marks, as far as ISO 9 can give it."""
    latin = to_latin(unicodedata.normalize("NFC", word.casefold()))
    parts = unicodedata.normalize("NFD", latin)
    return "".join(c for c in parts if unicodedata.category(c) not in ("Mn", "Lm"))


@lru_cache(1 << 16)
def _is_cyrillic(word: str) -> bool:
    return to_latin(word) != word


def is_close(a: str, b: str, distance: float) -> bool:
    """Whether the edit distance of two words is at most so large a share of the longer one."""
    longest = max(len(a), len(b))
    limit = int(distance * longest + 1e-9)
    # Each character that the other word does not have costs an edit.
    if abs(len(a) - len(b)) > limit or max(len({*a} - {*b}), len({*b} - {*a})) > limit:
        return False
    return edit_distances(a, b)[-1] <= limit


@dataclass(frozen=True)
class Origins:
    """Tells what unseen words are."""

    known: Set[str]
    """Words of training as `fold` gives them."""
    compounds: CompoundSegmenter
    distance: float
    """How far a word may be from a source word for a cognate: edits by characters of the longer."""

    def of(self, word: str, source: Sequence[str]) -> str:
        """The class of a word that training never had, beside the words of its source sentence."""
        if word in source:
            return "copied"
        text = fold(word)
        if text in self.known or any(fold(other) == text for other in source):
            return "cased"
        if not any(map(str.isalpha, word)):
            return "number" if any(map(str.isdigit, word)) else "other"
        close = self._close(word, source)
        if close:
            return close
        (pieces,) = self.compounds.cut([word])
        return "compound" if len(pieces) > 1 else "other"

    def _close(self, word: str, source: Sequence[str]) -> str | None:
        """Whether the word is near one of the source, and in which script that one is."""
        latin, cyrillic, found = _latin(word), _is_cyrillic(word), None
        for other in source:
            if any(map(str.isalpha, other)) and is_close(latin, _latin(other), self.distance):
                if _is_cyrillic(other) != cyrillic:
                    return "transliterated"
                found = "cognate"
        return found


def classify(
    expected: Bag,
    unseen_V: Mask,
    words: Sequence[str],
    sources: Sequence[Sequence[str]],
    origins: Origins,
) -> NDArray[np.int8]:
    """[K]: the number in CLASSES of each expected word, -1 for words that training had.

    words: by number. sources: the words of the source sentences.
    """
    classes_K = np.full(len(expected.words_K), -1, np.int8)
    for place in np.flatnonzero(unseen_V[expected.words_K]):
        word = words[expected.words_K[place]]
        source = sources[int(expected.sentences_K[place])]
        classes_K[place] = CLASSES.index(origins.of(word, source))
    return classes_K


def recalled(matches: Matches, classes_K: NDArray[np.int8]) -> dict[str, tuple[int, int]]:
    """By class how many unseen words were matched, and how many expected."""
    found = {}
    for number, name in enumerate(CLASSES):
        chosen = classes_K == number
        parts = (matches.matched, matches.expected)
        matched, expected = (int(part.counts_K[chosen].sum()) for part in parts)
        found[name] = (matched, expected)
    return found


# ---- confidence ----


def fallback(
    own: Matches, copy: Matches, scores_S: NDArray[np.float32], unseen_V: Mask, steps: int = 20
) -> list[dict[str, Any]]:
    """Unseen words if sentences whose score is below a threshold are replaced by their source.

    own, copy: the system and the copied source against the same references. steps: thresholds that
    replace 0, 1, 2, ... of so many parts of the sentences; those with the threshold's own score
    stay, so a row may replace fewer. No threshold (None) stands for none and for all of them.
    """
    size = len(scores_S)
    order = np.argsort(scores_S, kind="stable")
    ours, theirs = (_running(matches, unseen_V, order) for matches in (own, copy))
    rows: list[dict[str, Any]] = []
    for step in range(steps + 1):
        place, threshold = size * step // steps, None
        if 0 < place < size:
            threshold = float(scores_S[order[place]])
            place = int((scores_S < threshold).sum())
        if rows and rows[-1]["copied"] == place:
            continue
        found = Unigrams(*(int(n) for n in ours[:, -1] - ours[:, place] + theirs[:, place]))
        rows.append(
            {
                "threshold": threshold,
                "copied": place,
                "matched": found.matched,
                "produced": found.produced,
                "expected": found.expected,
                "precision": found.precision,
                "recall": found.recall,
                "f1": found.f1,
            }
        )
    return rows


def _running(matches: Matches, unseen_V: Mask, order: Ints) -> Ints:
    """[3, S + 1]: unseen words matched, produced and expected in the first sentences in order."""
    bags = (matches.matched, matches.produced, matches.expected)
    counts = [part.by_sentence(unseen_V, len(order))[order] for part in bags]
    return np.pad(np.cumsum(counts, axis=1), ((0, 0), (1, 0)))
