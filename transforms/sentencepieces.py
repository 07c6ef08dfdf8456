"""Segmentation of raw text as SentencePiece does it: spaces are part of the pieces.

There is no word splitting before and no joining rule after: the pieces of a line, behind each
other, are the line, whatever it holds. What the model has no piece for goes by UTF-8 bytes.

Models that others learnt may do less: normalise the line first, put a space before it, or have no
bytes, so that unknown characters are `<unk>`.
"""

import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rareword.schemas import storage
from rareword.schemas.errors import RarewordError
from rareword.schemas.merges import Symbol
from rareword.schemas.tables import ShardRecord
from rareword.schemas.vocabulary import UNK, Vocabulary
from rareword.transforms import sentencepiece_models as models
from rareword.transforms.segmenters import Encoded, Encoder, counted, split_words
from rareword.transforms.sentencepiece_models import ModelType


class _Piece(NamedTuple):
    text: str
    is_bytes: bool


class SentencePieceSegmenter:
    """Cuts lines into pieces that hold their spaces; none is final.

    With a model that was learnt here a space is only ever the first character of a piece, every
    line can be cut, and `Vocabulary.words` gives it back exactly.
    """

    spells: ClassVar[bool] = True
    """See `segmenters.Segmenter`."""

    def __init__(self, model: bytes, name: str = "the model") -> None:
        """`model`: a sentencepiece model. `name` is for errors."""
        self.model = model
        self.spec = models.spec_of(model, name)
        self.processor = models.load_model(model, name)
        self._unknown: int = self.processor.unk_id()

    @classmethod
    def learn_text(
        cls,
        lines: Iterable[str],
        *,
        pieces: int,
        model_type: ModelType = "unigram",
        max_piece_length: int = 16,
    ) -> "SentencePieceSegmenter":
        """Learns at most `pieces` pieces, the 256 bytes and all characters included, from lines.

        A piece reaches over no space, as in the library by default, so the lines are counted by
        words with the space before them, and memory grows with different words alone.
        """
        counts: Counter[str] = Counter()
        first: Counter[str] = Counter()
        for line in lines:
            head, *rest = line.split(" ")
            first[head] += 1
            counts.update(rest)
        sums = Counter({f" {word}": count for word, count in counts.items()})
        sums.update(first)
        model = models.learn_model(
            sums,
            pieces=pieces,
            model_type=model_type,
            byte_fallback=True,
            max_piece_length=max_piece_length,
        )
        return cls(model)

    @functools.cached_property
    def pieces(self) -> list[_Piece]:
        """The pieces by the library's ids; those that no text gives have no text."""
        library, found = self.processor, []
        for i in range(len(library)):
            piece = library.id_to_piece(i)
            if library.is_byte(i):
                found.append(_Piece(chr(int(piece[1:-1], 16)), True))
            elif library.is_unknown(i) or library.is_control(i) or library.is_unused(i):
                found.append(_Piece("", False))
            else:
                found.append(_Piece(self._text_of(piece), False))
        return found

    def _text_of(self, piece: str) -> str:
        """The text that the library's text of a piece, or of a line, stands for."""
        if self.spec.is_lossless:
            return models.text_of(piece)
        return piece.replace(models.SPACE, " ")

    def normalised(self, lines: pa.Array) -> pa.Array:
        """What the pieces of lines give: the lines themselves, unless the model changes them."""
        if self.spec.is_lossless:
            return lines
        texts = self.processor.normalize(pc.fill_null(lines, "").to_pylist())
        return pa.array(map(self._text_of, texts), pa.large_string())

    def numbers(
        self, lines: pa.Array, threads: int = 1
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The library's ids of all lines behind each other, and how many each line has."""
        texts = pc.fill_null(lines, "").to_pylist()
        odd_rows = models.odd_rows(lines) if self.spec.is_lossless else []
        odd = {row: texts[row] for row in odd_rows}
        for row, text in odd.items():
            texts[row] = models.protect(text)
        found = self._encode(texts, threads)
        for row, text in odd.items():
            if self._strangers.search(text):
                found[row] = self._around_strangers(text)
        sizes = np.fromiter(map(len, found), np.int64, len(found))
        ids = np.fromiter(itertools.chain.from_iterable(found), np.int32, int(sizes.sum()))
        return ids, sizes

    def _encode(self, texts: Sequence[str], threads: int) -> list[list[int]]:
        """The library's ids, but for neighbouring unknown characters, of which it makes one piece:
        here each is by itself."""
        found: list[list[int]] = self.processor.encode(texts, out_type=int, num_threads=threads)
        rows = [row for row, ids in enumerate(found) if self._unknown in ids]
        if rows:
            cut = self.processor.encode([texts[row] for row in rows], out_type=str)
            for row, pieces in zip(rows, cut, strict=True):
                sizes = [
                    len(piece) if i == self._unknown else 1
                    for i, piece in zip(found[row], pieces, strict=True)
                ]
                found[row] = np.repeat(found[row], sizes).tolist()
        return found

    @functools.cached_property
    def _strangers(self) -> re.Pattern[str]:
        return models.strangers({piece.text for piece in self.pieces if not piece.is_bytes})

    def _around_strangers(self, text: str) -> list[int]:
        """The ids of a line with characters that the library cannot take; they go by bytes, if the
        model has any."""
        ids: list[int] = []
        for number, part in enumerate(self._strangers.split(text)):
            if number % 2 and not self.spec.has_bytes:
                ids.append(self._unknown)
            elif number % 2:
                ids += [self.processor.piece_to_id(f"<0x{byte:02X}>") for byte in part.encode()]
            else:
                ids += self._encode([models.protect(part)], 1)[0]
        return ids

    def count_lines(self, lines: pa.Array) -> pa.Table:
        """How often each of the model's pieces occurs in lines: a COUNTED table, those that do not
        occur included. It takes the place of `count_pieces`: words do not know their spaces."""
        ids, _ = self.numbers(lines)
        return self._counted(np.bincount(ids, minlength=len(self.pieces)))

    def _counted(self, counts: NDArray[np.int64]) -> pa.Table:
        rows = [(p, n) for p, n in zip(self.pieces, counts.tolist(), strict=True) if p.text]
        return counted(
            [piece.text for piece, _ in rows],
            [False] * len(rows),
            [count for _, count in rows],
            [piece.is_bytes for piece, _ in rows],
        )

    def count_pieces(self, words: pa.Array, counts: NDArray[np.int64]) -> pa.Table:
        raise RarewordError(
            "pieces of raw text hold spaces and cannot be counted in a word table; count them in "
            "the corpus"
        )

    def possible_pieces(self, characters: Set[str]) -> pa.Table:
        return self._counted(np.zeros(len(self.pieces), np.int64))

    def encoder(self, vocabulary: Vocabulary) -> Encoder:
        return _RawEncoder(self, vocabulary)

    def settings(self) -> dict[str, Any]:
        """How the model changes text; it knows that by itself, this is for people."""
        spec = self.spec
        told = {
            "normalisation": spec.rule,
            "adds_space": spec.adds_space,
            "removes_spaces": spec.removes_spaces,
            "lacks_bytes": not spec.has_bytes,
        }
        return {name: value for name, value in told.items() if value}

    def save(self, directory: str, side: str) -> list[ShardRecord]:
        return [models.save_model(self.model, directory, _file_name(side))]

    @classmethod
    def load(
        cls, directory: str, side: str, settings: Mapping[str, Any]
    ) -> "SentencePieceSegmenter":
        name = _file_name(side)
        return cls(models.read_model(directory, name), storage.join(directory, name))


def _file_name(side: str) -> str:
    return f"sentencepiece-{side}.model"


class _RawEncoder:
    """A piece that has no id in the vocabulary is spelled in characters, a character in bytes."""

    def __init__(self, segmenter: SentencePieceSegmenter, vocabulary: Vocabulary) -> None:
        self._segmenter = segmenter
        spelled = [self._ids(piece, vocabulary) for piece in segmenter.pieces]
        self._sizes = np.array([len(ids) for ids in spelled], np.int64)
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._flat = np.array([i for ids in spelled for i in ids], np.int32)

    @staticmethod
    def _ids(piece: _Piece, vocabulary: Vocabulary) -> Sequence[int]:
        found = vocabulary.id(Symbol(piece.text, False), piece.is_bytes)
        if found != UNK or piece.is_bytes or not piece.text:
            return [found]
        ids = []
        for character in piece.text:
            found = vocabulary.id(Symbol(character, False))
            in_bytes = [vocabulary.id(Symbol(chr(b), False), True) for b in character.encode()]
            ids += [found] if found != UNK or UNK in in_bytes else in_bytes
        return ids

    def encode(self, lines: pa.Array, threads: int = 1) -> Encoded:
        numbers, sizes = self._segmenter.numbers(lines, threads)
        pieces = self._sizes[numbers]
        ends = np.concatenate([[0], np.cumsum(pieces)])
        ids = self._flat[np.repeat(self._starts[numbers] - ends[:-1], pieces) + np.arange(ends[-1])]
        offsets = ends[np.concatenate([[0], np.cumsum(sizes)])]
        _, words = split_words(lines)
        is_same = self._segmenter.spec.is_lossless
        return Encoded(ids, offsets, words, None if is_same else self._segmenter.normalised(lines))
