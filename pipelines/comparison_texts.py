"""The texts and names that segmenters are compared on, read from whatever form they have."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from rareword.pipelines.comparison_config import NamesOptions, TextOptions
from rareword.schemas import manifest as manifests
from rareword.schemas import storage
from rareword.schemas.errors import RarewordError
from rareword.schemas.tables import (
    CORPUS,
    SIDES,
    WORDS,
    Side,
    digest,
    iterate_row_groups,
)
from rareword.transforms import words as word_tables
from rareword.transforms._kernels import WordCounter
from rareword.transforms.comparison import NamePair, TextSide, word_counts
from rareword.transforms.parts import one_chunk
from rareword.transforms.plain_text import WordCounts
from rareword.transforms.reading import LINE_BYTES, TsvFile, open_parquet_columns, read_lines


@dataclass(frozen=True)
class Text:
    """A text: its words with their counts, and its lines if it has any."""

    options: TextOptions
    where: str
    """Its place in the config, for errors."""
    sides: tuple[Side, ...]
    """Those that it has."""

    @cached_property
    def _counted(self) -> tuple[pa.Table, dict[Side, int] | None]:
        """The WORDS table, sorted by the words' bytes, and the lines of each side with a word."""
        if self.options.words is not None:
            found = manifests.read(self.options.words, "count-words", f"{self.where}.words")
            tables = (group for url in found.urls for group in iterate_row_groups(url, WORDS))
            return word_tables.sum_words(tables).sort_by("word"), None
        counter, sentences = WordCounter(), dict.fromkeys(SIDES, 0)
        none = pa.array([], pa.string())
        for side in self.sides:
            for block in self._blocks(side):
                lines = pa.array(block, pa.string())
                counter.add_lines(*((lines, none) if side == "source" else (none, lines)))
                sentences[side] += sum(bool(line.strip(" ")) for line in block)
        return word_tables.taken(counter).sort_by("word"), sentences

    def words(self, side: Side | None) -> WordCounts:
        """The words of a side, or of both together; sorted by their bytes.

        Raises RarewordError if there are none.
        """
        table, _ = self._counted
        for wanted in SIDES if side is None else (side,):
            if wanted not in self.sides:
                raise RarewordError(f"{self.where}: the {wanted} side is needed; add it")
        counts = [one_chunk(table[f"{one}_count"]).to_numpy() for one in SIDES]
        chosen = np.add(*counts) if side is None else counts[SIDES.index(side)]
        found = word_counts(one_chunk(table["word"]), chosen)
        if not len(found.counts):
            raise RarewordError(f"{self.where}: the {side or 'text'} side has no words")
        return found

    def side(self, side: Side) -> TextSide:
        """Words, sentences and lines of a side."""
        _, sentences = self._counted
        if sentences is None:
            return TextSide(self.words(side))
        return TextSide(
            self.words(side),
            sentences[side],
            lambda: (pa.array(block, pa.string()) for block in self._blocks(side)),
        )

    def lines(self, side: Side | None) -> Iterator[str]:
        """The lines of a side, or of both, one after the other.

        Raises RarewordError if only the words are known.
        """
        if self.options.words is not None:
            raise RarewordError(
                f"{self.where}.words: lines are needed, not words alone; give corpus, parquet, or "
                "source and target"
            )
        for one in SIDES if side is None else (side,):
            for block in self._blocks(one):
                yield from block

    def _blocks(self, side: Side) -> Iterator[list[str]]:
        if self.options.corpus is not None:
            found = manifests.read(self.options.corpus, "prepare", f"{self.where}.corpus")
            for url in found.urls:
                for group in iterate_row_groups(url, CORPUS, [side]):
                    yield [line or "" for line in group[side].to_pylist()]
            return
        for url in self.urls(side):
            rows = 0
            for block in self._raw_blocks(url, side):
                yield [_decoded(line, url, rows + i) for i, line in enumerate(block, 1)]
                rows += len(block)

    def _raw_blocks(self, url: str, side: Side) -> Iterator[Sequence[bytes | None]]:
        if not self.options.parquet:
            yield from read_lines(url)
            return
        name = getattr(self.options, f"{side}_column")
        column = name, f"{self.where}.{side}_column"
        for values, _ in open_parquet_columns(url, column, column).batches():
            yield values

    def urls(self, side: Side) -> list[str]:
        """The files of a text that rareword did not write."""
        if self.options.parquet:
            return storage.expand(self.options.parquet, f"{self.where}.parquet")
        return storage.expand(getattr(self.options, side), f"{self.where}.{side}")

    def content(self) -> str:
        """The digest of what the text is read from. Raises RarewordError for what is not there."""
        for job, directory in (
            ("count-words", self.options.words),
            ("prepare", self.options.corpus),
        ):
            if directory is not None:
                form = "words" if job == "count-words" else "corpus"
                return manifests.read(directory, job, f"{self.where}.{form}").content
        if self.options.parquet:
            for url in self.urls("source"):
                for side in self.sides:
                    name = getattr(self.options, f"{side}_column"), f"{self.where}.{side}_column"
                    open_parquet_columns(url, name, name)
            return digest([storage.sha256(url) for url in self.urls("source")])
        return digest([[storage.sha256(url) for url in self.urls(side)] for side in self.sides])


def open_text(options: TextOptions, where: str, needed: Sequence[Side]) -> Text:
    """A text of which some sides will be needed. Raises RarewordError if one is not given."""
    sides: tuple[Side, ...] = SIDES
    if options.source or options.target:
        sides = tuple(side for side in SIDES if getattr(options, side))
    elif options.parquet:
        sides = tuple(needed)  # a file of one column will do for one side
    for side in needed:
        if side not in sides:
            raise RarewordError(
                f"{where}: the key {side!r} is missing; this comparison needs that side too"
            )
    return Text(options, where, sides)


def _decoded(line: bytes | None, url: str, row: int) -> str:
    if line is None:
        return ""
    if len(line) > LINE_BYTES:
        raise RarewordError(f"{url}: row {row} is longer than {LINE_BYTES} bytes")
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise RarewordError(f"{url}: row {row}: byte {error.start} is not UTF-8") from error


def read_names(options: NamesOptions, where: str) -> list[NamePair]:
    """The pairs of names that have a word on both sides, each pair once, in order."""
    if options.file.endswith(".parquet"):
        reader = open_parquet_columns(
            options.file,
            (options.source_column or "source", f"{where}.source_column"),
            (options.target_column or "target", f"{where}.target_column"),
        )
    else:
        reader = TsvFile(  # type: ignore[assignment]
            options.file,
            _tsv_column(options.source_column or "1", f"{where}.source_column"),
            _tsv_column(options.target_column or "2", f"{where}.target_column"),
            header=False,
        )
    found: dict[tuple[tuple[str, ...], tuple[str, ...]], None] = {}
    row = 0
    for sources, targets in reader.batches():
        for source, target in zip(sources, targets, strict=True):
            row += 1
            if source is None or target is None:
                raise RarewordError(f"{where}.file: {options.file}: row {row} lacks a name")
            a, b = (
                tuple(word for word in _decoded(name, options.file, row).split(" ") if word)
                for name in (source, target)
            )
            if a and b:
                found[a, b] = None
    if not found:
        raise RarewordError(f"{where}.file: {options.file} has no pair of names")
    return [NamePair(source, target) for source, target in found]


def _tsv_column(column: str, where: str) -> int:
    if not column.isdecimal() or int(column) < 1:
        raise RarewordError(f"{where}: expected a column's number from 1, found {column!r}")
    return int(column) - 1
