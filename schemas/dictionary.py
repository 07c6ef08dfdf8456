"""The dictionary that `rareword align` writes, for those who look words up in it."""

import itertools
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rareword.schemas import manifest as manifests
from rareword.schemas.tables import DICTIONARY, read_table

JOB = "align"


@dataclass(frozen=True)
class Dictionary:
    """Translations of single words, the most probable first."""

    table: pa.Table
    """Schema DICTIONARY; the rows of a source word stand together, the best first."""
    rows: dict[str, tuple[int, int]]
    """Source word -> its first row, and the row after its last."""

    def __len__(self) -> int:
        """Number of source words."""
        return len(self.rows)

    def __contains__(self, word: str) -> bool:
        return word in self.rows

    def best(self, word: str, most: int = 1) -> list[tuple[str, float]]:
        """At most `most` translations with p(target | word); none for an unknown word."""
        begin, end = self.rows.get(word, (0, 0))
        found = self.table.slice(begin, min(end - begin, most))
        return list(zip(found["target"].to_pylist(), found["probability"].to_pylist(), strict=True))

    def first(self) -> dict[str, str]:
        """Each source word's most probable translation."""
        begins = pa.array([begin for begin, _ in self.rows.values()], pa.int64())
        return dict(zip(self.rows, self.table["target"].take(begins).to_pylist(), strict=True))


def read_dictionary(directory: str, option: str = "--dictionary") -> Dictionary:
    """The finished directory of an `align` job, which the user gave as `option`.

    Raises RarewordError for a directory that is not finished, of another job, or damaged.
    """
    manifest = manifests.read(directory, JOB, option)
    tables = [read_table(url, DICTIONARY) for url in manifest.urls]
    table = pa.concat_tables([DICTIONARY.fields.empty_table(), *tables]).combine_chunks()
    begins = word_begins(table["source"])
    words = table["source"].take(begins).to_pylist()
    bounds = itertools.pairwise([*begins.tolist(), table.num_rows])
    return Dictionary(table, dict(zip(words, bounds, strict=True)))


def word_begins(sources: pa.ChunkedArray) -> NDArray[np.int64]:
    """The first row of each run of equal words.

    sources: a column of words in which equal ones stand together.
    """
    codes = sources.combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    if not len(codes):
        return np.empty(0, np.int64)
    return np.concatenate([[0], np.flatnonzero(np.diff(codes)) + 1]).astype(np.int64)
