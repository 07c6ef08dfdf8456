"""Plain text files: their words with counts, merges learnt from them, and vocabularies of pieces.

Everything here is bounded by the distinct words of a text, never by its length.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rareword.schemas.errors import RarewordError
from rareword.schemas.merges import END_OF_WORD, Merge
from rareword.transforms import _kernels
from rareword.transforms.parts import strings
from rareword.transforms.rendering import BpeRenderer
from rareword.transforms.rounds import PairCounts, to_merges

BLOCK_BYTES = 8 << 20

LARGEST_COUNT = 1 << 62
"""Counts of pairs must stay below it."""


@dataclass(frozen=True)
class Block:
    """Whole lines of a text, the last of which may lack its line end. Lines end at \\n only."""

    text: bytes
    name: str
    """Of the file, for errors."""
    first_line: int
    """Lines of the file before these."""

    def decode(self) -> str:
        """The text. Raises RarewordError naming the line that is not UTF-8."""
        try:
            return self.text.decode()
        except UnicodeDecodeError as error:
            raise self.not_utf8(error) from error

    def not_utf8(self, cause: ValueError) -> RarewordError | ValueError:
        """The sentence that names the first line that is not UTF-8; else the cause itself."""
        for number, line in enumerate(self.text.split(b"\n"), self.first_line + 1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                return RarewordError(f"{self.name}, line {number}: byte {error.start} is not UTF-8")
        return cause


def read_blocks(stream: BinaryIO, name: str, at_once: bool = False) -> Iterator[Block]:
    """A stream in blocks of about BLOCK_BYTES; `at_once`: whatever has come, for pipes."""
    read = stream.read1 if at_once else stream.read  # type: ignore[attr-defined]
    rest: list[bytes] = []  # the begin of a line
    line = 0
    while part := read(BLOCK_BYTES):
        end = part.rfind(b"\n") + 1
        if end:
            text = b"".join([*rest, part[:end]])
            yield Block(text, name, line)
            line += text.count(b"\n")
            rest = [part[end:]]
        else:
            rest.append(part)
    if last := b"".join(rest):
        yield Block(last, name, line)


# ---- words ----


@dataclass(frozen=True)
class WordCounts:
    """Distinct strings in the order in which they were first seen."""

    words: pa.Array
    counts: NDArray[np.int64]

    def lines(self) -> Iterator[bytes]:
        """`word count` lines by falling count; equal counts in the order of first sight."""
        order = pa.array(np.argsort(-self.counts, kind="stable"))
        for begin in range(0, len(order), 1 << 16):
            rows = order.slice(begin, 1 << 16)
            counts = pc.cast(pa.array(self.counts).take(rows), pa.large_string())
            space = pa.scalar(" ", pa.large_string())
            lines = pc.binary_join_element_wise(self.words.take(rows), counts, space)
            yield ("\n".join(lines.to_pylist()) + "\n").encode()


def count_words(blocks: Iterable[Block], threads: int = 1) -> WordCounts:
    """The words of a text, split at U+0020; \\r, \\n and spaces at line ends belong to none."""
    counter = _kernels.TextCounter()
    for block in blocks:
        try:
            counter.add(block.text, block.first_line, threads)
        except ValueError as error:
            raise block.not_utf8(error) from error
    offsets, data, counts = counter.words()
    return WordCounts(strings(offsets, data), counts)


def read_dictionary(blocks: Iterable[Block]) -> WordCounts:
    """The words of lines `word count`; the counts of a word that comes again add up.

    Raises RarewordError naming file and line for a line that is none, and the word whose counts
    come to less than nothing or to more than 64 bits hold. Blank lines are skipped.
    """
    sums: dict[str, int] = {}
    name = ""
    for block in blocks:
        name = block.name
        for number, line in enumerate(_lines(block), block.first_line + 1):
            if line:
                word, count = _word_and_count(line, name, number)
                sums[word] = sums.get(word, 0) + count
    for word, count in sums.items():
        if not 0 <= count < LARGEST_COUNT:
            raise RarewordError(f"{name}: the counts of {word!r} add up to {count}")
    counts = np.fromiter(sums.values(), np.int64, len(sums))
    return WordCounts(pa.array(list(sums), pa.large_string()), counts)


def read_vocabulary(blocks: Iterable[Block], threshold: int | None) -> set[str]:
    """The pieces of a vocabulary file (`piece count` lines) that occur `threshold` times or more.

    Of a piece that comes twice one good count suffices. Blank lines are skipped. Raises
    RarewordError naming file, line and content.
    """
    pieces = set()
    for block in blocks:
        for number, line in enumerate(_lines(block), block.first_line + 1):
            if line:
                piece, count = _word_and_count(line, block.name, number)
                if threshold is None or count >= threshold:
                    pieces.add(piece)
    return pieces


def _lines(block: Block) -> list[str]:
    return [line.rstrip("\r ").lstrip(" ") for line in block.decode().split("\n")]


def _word_and_count(line: str, name: str, number: int) -> tuple[str, int]:
    word, _, count = line.partition(" ")
    try:
        return word, int(count)
    except ValueError as error:
        raise RarewordError(
            f"{name}, line {number}: expected a word, one space and its count, found {line!r}"
        ) from error


# ---- merges ----


def count_characters(tables: Sequence[WordCounts]) -> tuple[int, int]:
    """How many characters stand inside words, and how many end one."""
    symbols = np.unique(
        np.concatenate(
            [_kernels.base_symbols(t.words, t.counts)[0] for t in tables] or [np.empty(0, np.int32)]
        )
    )
    final = int(np.count_nonzero(symbols & 1))
    return len(symbols) - final, final


def learn_merges(tables: Sequence[WordCounts], limit: int, min_frequency: int) -> list[Merge]:
    """Merges of the words of all tables together, as many as `limit`.

    Stops when no pair occurs `min_frequency` times, or at all. A merge that a codes file cannot
    hold (one of a carriage return, or one that ends in a literal `</w>`) is never chosen. Raises
    RarewordError if counts do not fit 64 bits.
    """
    words = pa.concat_arrays([table.words for table in tables])
    counts = np.concatenate([table.counts for table in tables])
    symbols, offsets, counts = _kernels.base_symbols(words, counts)
    if float(np.dot(np.diff(offsets).astype(float), counts.astype(float))) >= LARGEST_COUNT:
        raise RarewordError("the counts of the words are too large: their sum must fit 64 bits")
    none = np.empty(0, np.int32)
    left, right, found = _kernels.learn_merges(
        *_without_unwritable(symbols, offsets, counts),
        none,
        none,
        max(limit, 0),
        max(min_frequency, 1),
    )
    return to_merges(PairCounts(left, right, found))


def _without_unwritable(
    symbols: NDArray[np.int32], offsets: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
    """The sequences, cut where a merge could make what a codes file cannot hold."""
    cut = np.zeros(len(symbols) + 1, np.bool_)  # before symbol i
    returns = symbols >> 1 == ord("\r")
    cut[:-1] |= returns
    cut[1:] |= returns
    if len(symbols) >= len(END_OF_WORD):
        starts = np.ones(len(symbols) - 3, np.bool_)
        for i, character in enumerate(END_OF_WORD[:-1]):
            starts &= symbols[i : len(symbols) - 3 + i] == 2 * ord(character)
        starts &= symbols[3:] >> 1 == ord(END_OF_WORD[-1])
        cut[3:-1] |= starts
    if not cut.any():
        return symbols, offsets, counts
    bounds = np.union1d(offsets, np.flatnonzero(cut))
    owners = np.searchsorted(offsets, bounds[:-1], side="right") - 1
    return symbols, bounds, counts[owners]


def count_pieces(renderer: BpeRenderer, table: WordCounts) -> WordCounts:
    """The vocabulary of a text with these words: its pieces as they are printed."""
    lists = pc.split_pattern(renderer.render_words(table.words), " ")
    pieces, rows = lists.flatten(), pc.list_parent_indices(lists).to_numpy()
    found = pieces.dictionary_encode()  # numbered as they are first seen
    sums = np.zeros(len(found.dictionary), np.int64)
    np.add.at(sums, found.indices.to_numpy(), table.counts[rows])
    keep = np.asarray(pc.binary_length(found.dictionary)) > 0
    return WordCounts(found.dictionary.filter(pa.array(keep)), sums[keep])


# ---- lists of words ----


def read_words(blocks: Iterable[Block]) -> list[str]:
    """The lines of a file that are not blank; \\r at their ends is none of theirs."""
    return [
        line.rstrip("\r")
        for block in blocks
        for line in block.decode().split("\n")
        if line.strip("\r ")
    ]


def read_shortlist(blocks: Iterable[Block], size: int) -> tuple[set[str], int]:
    """The first `size` words of a vocabulary file, and how many of its lines were skipped.

    As in subword-nmt's segment-char-ngrams, a line has two fields between white space of any kind;
    others are skipped and counted. Fewer than none are none.
    """
    words: dict[str, None] = {}
    skipped = 0
    for block in blocks:
        for line in block.decode().split("\n"):
            fields = line.split()
            if len(fields) == 2:
                if len(words) < size:
                    words[fields[0]] = None
            elif fields:
                skipped += 1
    return set(words), skipped
