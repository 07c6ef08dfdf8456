"""The vocabulary: piece ids, their counts, and the hash that ties data, checkpoints and outputs.

Ids 0, 1 and 2 are `<pad>`, `<unk>` and `</s>`. There is no start symbol: the decoder begins from
a zero embedding, as the paper's code does.
"""

import codecs
import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from rareword.schemas import storage
from rareword.schemas.errors import RarewordError
from rareword.schemas.merges import Symbol
from rareword.schemas.tables import (
    VOCABULARY,
    ShardRecord,
    digest,
    open_parquet,
    read_table,
    write_shard,
)

PAD, UNK, EOS = 0, 1, 2
SPECIALS = (Symbol("<pad>", True), Symbol("<unk>", True), Symbol("</s>", True))
SEPARATOR = "@@"
"""Shown after a piece that does not end its word; display only, never part of a piece."""
_ADDS_SPACE = b"rareword.adds_space"
"""In the metadata of a file's schema: the vocabulary's `adds_space`."""


@dataclass(frozen=True)
class Vocabulary:
    """Pieces by id; the first three are special. `final[i]` says whether piece i ends a word.

    In a vocabulary of raw text no piece ends a word: spaces are part of the pieces.
    """

    pieces: Sequence[str]
    final: Sequence[bool]
    source_counts: Sequence[int]
    target_counts: Sequence[int]
    is_bytes: Sequence[bool] = ()
    """Whether a character of piece i stands for the byte of its number. Empty: nowhere."""
    adds_space: bool = False
    """Raw text: the segmenter puts a space before each line, which is no part of its text."""

    @functools.cached_property
    def has_bytes(self) -> bool:
        """Whether any piece is of bytes."""
        return any(self.is_bytes)

    @functools.cached_property
    def is_raw(self) -> bool:
        """Whether spaces are part of the pieces, and not what stands between words."""
        return len(self) > len(SPECIALS) and not any(self.final[len(SPECIALS) :])

    @functools.cached_property
    def _ids(self) -> dict[tuple[str, bool, bool], int]:
        is_bytes = self.is_bytes or [False] * len(self)
        ids: dict[tuple[str, bool, bool], int] = {}
        for i in range(len(SPECIALS), len(self.pieces)):
            ids.setdefault((self.pieces[i], self.final[i], is_bytes[i]), i)
        return ids

    def __len__(self) -> int:
        return len(self.pieces)

    @property
    def hash(self) -> str:
        """Hex SHA-256 of pieces and flags in id order; counts do not matter."""
        is_bytes = [[bool(flag) for flag in self.is_bytes]] if self.has_bytes else []
        flags = ["adds_space"] if self.adds_space else []
        final = [bool(final) for final in self.final]
        return digest([list(self.pieces), final, *is_bytes, *flags])

    def id(self, piece: Symbol, is_bytes: bool = False) -> int:
        """The id of a piece, UNK if there is none. Special pieces are not text and not found."""
        return self._ids.get((*piece, is_bytes), UNK)

    def piece_bytes(self) -> list[int]:
        """The UTF-8 bytes of text that each piece stands for."""
        sizes = [len(piece.encode()) for piece in self.pieces]
        if self.has_bytes:
            columns = zip(self.pieces, self.is_bytes, sizes, strict=True)
            sizes = [len(piece) if is_bytes else size for piece, is_bytes, size in columns]
        return sizes

    def texts(self, ids: Sequence[int]) -> list[str]:
        """The text of each piece. A character whose bytes are spread over several pieces is text of
        the piece with its last byte; bytes that are not UTF-8 become U+FFFD."""
        if not self.has_bytes:
            return [self.pieces[i] for i in ids]
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        found = []
        for i, following in zip(ids, [*ids[1:], EOS], strict=False):
            text = self.pieces[i]
            if self.is_bytes[i]:
                ends = self.final[i] or not self.is_bytes[following]
                text = decoder.decode(text.encode("latin-1"), final=ends)
            found.append(text)
        return found

    def display(self, ids: Sequence[int]) -> list[str]:
        """Pieces for people: `lo@@` `wer`; `joined` reads them back.

        A piece whose own text ends in `@@` and that ends its word has a space behind it. Pieces of
        raw text are shown without their spaces; several spaces in a row are one.
        """
        texts, ends = self.texts(ids), [self.final[i] for i in ids]
        if self.is_raw:
            ends = [following.startswith(" ") for following in texts[1:]] + [True] * bool(texts)
            texts = [text.strip(" ") for text in texts]
        return [displayed(text, end) for text, end in zip(texts, ends, strict=True)]

    def words(self, ids: Sequence[int]) -> str:
        """Joins pieces to text: a space after each piece that ends a word, but the last one; <unk>
        is a word. Pieces of raw text have their own spaces."""
        parts = []
        for i, text in zip(ids, self.texts(ids), strict=True):
            parts.append(text)
            if self.final[i] and not self.is_raw:
                parts.append(" ")
        text = "".join(parts)
        return self.without_added_space(text) if self.is_raw else text.strip(" ")

    def without_added_space(self, text: str) -> str:
        """Raw text without the space that the segmenter put before it."""
        return text.removeprefix(" ") if self.adds_space else text

    def to_table(self) -> pa.Table:
        return pa.table(
            {
                "id": pa.array(range(len(self)), pa.int32()),
                "piece": pa.array(self.pieces, pa.string()),
                "final": pa.array(self.final, pa.bool_()),
                "bytes": pa.array(self.is_bytes or [False] * len(self), pa.bool_()),
                "source_count": pa.array(self.source_counts, pa.int64()),
                "target_count": pa.array(self.target_counts, pa.int64()),
            },
            schema=VOCABULARY.fields,
        )

    def write(self, directory: str, name: str) -> ShardRecord:
        """Writes the vocabulary as one Parquet file; its record carries no counters."""
        schema = VOCABULARY
        if self.adds_space:
            fields = schema.fields.with_metadata({_ADDS_SPACE: b"yes"})
            schema = dataclasses.replace(schema, fields=fields)
        return write_shard(directory, name, schema, [self.to_table()])


def displayed(text: str, ends_word: bool = True) -> str:
    """A piece for people, as `Vocabulary.display` shows it."""
    return text + (" " * text.endswith((SEPARATOR, " ")) if ends_word else SEPARATOR)


def words_of(shown: Sequence[str]) -> list[list[str]]:
    """Displayed pieces by word, without marks: `lo@@ wer` is one word of `lo` and `wer`."""
    words: list[list[str]] = []
    goes_on = False
    for piece in shown:
        if not goes_on:
            words.append([])
        goes_on = piece.endswith(SEPARATOR)
        words[-1].append(piece.removesuffix(SEPARATOR if goes_on else " "))
    return words


def joined(shown: Sequence[str]) -> str:
    """The text of displayed pieces: what `Vocabulary.words` gives for their ids."""
    return " ".join("".join(word) for word in words_of(shown)).strip(" ")


def read(url: str) -> Vocabulary:
    """Reads a vocabulary file; ids must be 0, 1, 2, ... and begin with the special pieces."""
    columns = read_table(url, VOCABULARY).to_pydict()
    with open_parquet(url) as file:
        adds_space = _ADDS_SPACE in (file.schema_arrow.metadata or {})
    if columns["id"] != list(range(len(columns["id"]))):
        raise RarewordError(f"{url}: ids are not 0, 1, 2, ...; the file was edited")
    n = len(SPECIALS)
    if tuple(map(Symbol, columns["piece"][:n], columns["final"][:n])) != SPECIALS:
        raise RarewordError(f"{url}: does not begin with the special pieces <pad> <unk> </s>")
    return Vocabulary(
        columns["piece"],
        columns["final"],
        columns["source_count"],
        columns["target_count"],
        columns["bytes"] if any(columns["bytes"]) else (),
        adds_space,
    )


@dataclass(frozen=True)
class Vocabularies:
    """The vocabularies of the two sides; the same one twice when it is joint."""

    source: Vocabulary
    target: Vocabulary

    @property
    def joint(self) -> bool:
        return self.source.hash == self.target.hash

    @property
    def hash(self) -> str:
        """Checked wherever ids are handed over: data, checkpoints, translations."""
        return digest([self.source.hash, self.target.hash])


def check_limit(size: int, name: str) -> None:
    """Raises RarewordError if the option `name`, pieces at most (0: no limit), leaves no piece."""
    if 0 < size <= len(SPECIALS):
        raise RarewordError(
            f"{name}: {size} pieces have no room beside the {len(SPECIALS)} special ones; allow "
            "more, or 0 for no limit"
        )


SOURCE_NAME, TARGET_NAME = "vocabulary-source.parquet", "vocabulary-target.parquet"


def read_both(directory: str) -> Vocabularies:
    """The vocabularies of a `segmenter`, `segmented` or `model` directory."""
    return Vocabularies(
        read(storage.join(directory, SOURCE_NAME)), read(storage.join(directory, TARGET_NAME))
    )


def write_both(vocabularies: Vocabularies, directory: str) -> list[ShardRecord]:
    """Writes both vocabularies into a directory."""
    return [
        vocabularies.source.write(directory, SOURCE_NAME),
        vocabularies.target.write(directory, TARGET_NAME),
    ]
