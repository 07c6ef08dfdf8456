"""Merge operations: the `merges` table and the codes files of subword-nmt.

A symbol is text and a flag that says whether it ends a word, so text that holds `</w>` stays
ordinary text. A codes file writes the flag as the suffix `</w>`; what that format cannot express
is refused with the offending merge.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from rareword.schemas import storage
from rareword.schemas.errors import RarewordError
from rareword.schemas.tables import MERGES, read_table

END_OF_WORD = "</w>"


class Symbol(NamedTuple):
    """A piece of a word: its text, and whether the word ends with it."""

    text: str
    final: bool


@dataclass(frozen=True, slots=True)
class Merge:
    """The pair `left right` becomes one symbol. `count` is the pair's count when it was chosen."""

    left: Symbol
    right: Symbol
    count: int

    @property
    def result(self) -> Symbol:
        return Symbol(self.left.text + self.right.text, self.right.final)


class Codes(NamedTuple):
    """What a codes file says."""

    version: tuple[int, int]
    """(0, 1): the end of a word is a symbol of its own, with empty text. (0, 2): the last character
    of a word is another symbol than the same character inside."""
    merges: list[Merge]


def to_table(merges: Sequence[Merge]) -> pa.Table:
    """The `merges` table, in order."""
    return pa.table(
        {
            "rank": pa.array(range(len(merges)), pa.int32()),
            "left": pa.array([m.left.text for m in merges], pa.string()),
            "left_final": pa.array([m.left.final for m in merges], pa.bool_()),
            "right": pa.array([m.right.text for m in merges], pa.string()),
            "right_final": pa.array([m.right.final for m in merges], pa.bool_()),
            "count": pa.array([m.count for m in merges], pa.int64()),
        },
        schema=MERGES.fields,
    )


def from_table(table: pa.Table) -> list[Merge]:
    """The merges of a `merges` table, in rank order."""
    rows = table.sort_by("rank").to_pydict()
    return [
        Merge(Symbol(left, left_final), Symbol(right, right_final), count)
        for left, left_final, right, right_final, count in zip(
            rows["left"],
            rows["left_final"],
            rows["right"],
            rows["right_final"],
            rows["count"],
            strict=True,
        )
    ]


def read(url: str) -> list[Merge]:
    """Reads a `merges` Parquet file."""
    return from_table(read_table(url, MERGES))


def to_codes(merges: Iterable[Merge]) -> str:
    """The text of a subword-nmt codes file, version 0.2.

    Raises RarewordError for a merge whose text is empty (as in version 0.1, where the end of a word
    is a symbol of its own), holds a space or a line break, or ends in a literal `</w>`: the format
    would read it back as something else.
    """
    lines = ["#version: 0.2"]
    for rank, merge in enumerate(merges):
        for symbol in (merge.left, merge.right):
            text = symbol.text
            if not text or text.endswith(END_OF_WORD) or any(c in text for c in " \n\r"):
                raise RarewordError(
                    f"merge {rank} ({merge.left.text!r} {merge.right.text!r}) cannot be written "
                    "to a codes file: its text is empty, holds a space, a line break or a literal "
                    "</w>; the merges table itself can hold it"
                )
        lines.append(" ".join(s.text + END_OF_WORD * s.final for s in (merge.left, merge.right)))
    return "\n".join(lines) + "\n"


def from_codes(text: str, name: str) -> Codes:
    """Reads a codes file, version 0.1 or 0.2; counts are 0. `name` is for errors.

    Version 0.1 has no header and treats `</w>` as a symbol of its own. A third, numeric column is
    the count of a fastBPE file, which has no header either but ends words as version 0.2 does.
    Raises RarewordError naming file, line and content.
    """
    lines = text.removeprefix("\ufeff").split("\n")
    version, start = (0, 1), 0
    if lines[0].startswith("#version:"):
        given, start = lines[0].removeprefix("#version:").strip(), 1
        known = re.fullmatch(r"0\.([12])(\.0+)*", given)
        if known is None:
            raise RarewordError(f"{name}: codes version {given!r} is not known (0.1 and 0.2 are)")
        version = (0, int(known[1]))
    while lines and not lines[-1].strip("\r"):
        lines.pop()
    merges = []
    for number, line in enumerate(lines[start:], start + 1):
        fields = line.strip("\r ").split(" ")
        count = 0
        if len(fields) == 3 and fields[2].isdecimal():
            count = int(fields.pop())
            version = (0, 2) if start == 0 else version
        if len(fields) != 2 or not all(fields):
            raise RarewordError(f"{name}, line {number}: expected two symbols, found {line!r}")
        left, right = (Symbol(f.removesuffix(END_OF_WORD), f.endswith(END_OF_WORD)) for f in fields)
        merges.append(Merge(left, right, count))
    return Codes(version, merges)


def read_codes(url: str) -> Codes:
    """Reads a codes file by URL (UTF-8 always)."""
    return from_codes(storage.read_text(url), url)
