"""Character n-grams, with a shortlist of frequent words that stay whole (section 4.1 of the paper).

A word that is not in the shortlist is cut from its start into pieces of n characters; the last one
may be shorter. An n-gram without an id is spelled in characters.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rareword.schemas.errors import RarewordError
from rareword.schemas.tables import ShardRecord
from rareword.transforms.segmenters import CuttingSegmenter, read_lexicon, write_lexicon


class NgramSegmenter(CuttingSegmenter):
    """Cuts words into n-grams of characters, those of the shortlist excepted."""

    spells = True

    def __init__(self, ngram: int, shortlist: Mapping[str, int] | Collection[str] = ()) -> None:
        """shortlist: the words that stay whole; with their counts if these are to be saved."""
        if ngram < 1:
            raise RarewordError(f"n-grams have at least 1 character, not {ngram}: set --ngram")
        self.ngram = ngram
        self.shortlist = (
            dict(shortlist) if isinstance(shortlist, Mapping) else dict.fromkeys(shortlist, 0)
        )

    @classmethod
    def learn(
        cls, words: pa.Array, counts: NDArray[np.int64], *, ngram: int = 2, shortlist: int = 0
    ) -> "NgramSegmenter":
        """The `shortlist` most frequent words stay whole: exactly so many, unless there are fewer
        words; of equally frequent ones the first by code point."""
        if shortlist < 0:
            raise RarewordError(
                f"a shortlist has 0 or more words, not {shortlist}: set --shortlist"
            )
        table = pa.table({"word": words, "count": counts})
        table = table.filter(pa.array(counts > 0))
        ranked = table.sort_by([("count", "descending"), ("word", "ascending")]).slice(0, shortlist)
        columns = ranked["word"].to_pylist(), ranked["count"].to_pylist()
        return cls(ngram, dict(zip(*columns, strict=True)))

    def cut(self, words: Sequence[str]) -> list[Sequence[str]]:
        n, shortlist = self.ngram, self.shortlist
        return [
            (word,) if word in shortlist else [word[i : i + n] for i in range(0, len(word), n)]
            for word in words
        ]

    def settings(self) -> dict[str, Any]:
        return {"ngram": self.ngram}

    def save(self, directory: str, side: str) -> list[ShardRecord]:
        return [write_lexicon(directory, side, self.shortlist)]

    @classmethod
    def load(cls, directory: str, side: str, settings: Mapping[str, Any]) -> "NgramSegmenter":
        return cls(settings["ngram"], read_lexicon(directory, side))
