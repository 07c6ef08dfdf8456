"""Lines of text to lines of pieces and back, by a segmenter of one side and its vocabulary."""

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rareword.schemas.errors import RarewordError
from rareword.schemas.vocabulary import SEPARATOR, UNK, Vocabulary, joined
from rareword.transforms.plain_text import Block
from rareword.transforms.segmenters import Encoded, Sampler, Segmenter

if TYPE_CHECKING:
    from rareword.transforms.unigram import UnigramSegmenter

SPACE = "\u2581"
"""How a space that is part of a piece is shown, as sentencepiece does it."""
_SHOWN = str.maketrans({" ": SPACE, SPACE: f"\\{SPACE}", "\\": "\\\\"})
_RAW = re.compile(rf"\\(.)|{SPACE}| ", re.DOTALL)


class TextSegmenter:
    """Cuts blocks of lines. It counts the pieces that it gives, and those that are `<unk>`.

    Line ends stay as they are, `\\r\\n` too; lines of pieces are joined by single spaces. With a
    sampler, one of the segmenter and this vocabulary, it draws the segmentation of each line.
    """

    def __init__(
        self,
        segmenter: Segmenter,
        vocabulary: Vocabulary,
        as_ids: bool = False,
        threads: int = 1,
        sampler: Sampler | None = None,
    ) -> None:
        self._encoder, self._vocabulary = segmenter.encoder(vocabulary), vocabulary
        self._sampler, self._threads = sampler, threads
        self.pieces = self.unknown = 0
        self._shown: pa.Array | None = None
        """How each piece is shown, if that does not depend on the pieces beside it."""
        ids = range(len(vocabulary))
        if as_ids:
            self._shown = pa.array(map(str, ids), pa.large_string())
        elif not (vocabulary.has_bytes or vocabulary.is_raw):
            self._shown = pa.array(vocabulary.display(ids), pa.large_string())

    def segment(self, block: Block) -> bytes:
        """The pieces of each line, `lo@@ wer` or as ids. RarewordError for a line that is not
        UTF-8."""
        lines, ends = _split(block)
        encoded = self._encode(pa.array(lines, pa.large_string()), block.first_line)
        self.pieces += len(encoded.ids)
        self.unknown += int(np.count_nonzero(encoded.ids == UNK))
        return _join(self._lines(encoded), ends)

    def _encode(self, lines: pa.Array, first: int) -> Encoded:
        if self._sampler is None:
            return self._encoder.encode(lines, self._threads)
        return self._sampler.encode(lines, first + np.arange(len(lines)), self._threads)

    def _lines(self, encoded: Encoded) -> list[str]:
        if self._shown is None:
            ids, bounds = encoded.ids.tolist(), encoded.offsets.tolist()
            show = self._show_raw if self._vocabulary.is_raw else self._vocabulary.display
            return [" ".join(show(ids[a:b])) for a, b in itertools.pairwise(bounds)]
        pieces = self._shown.take(pa.array(encoded.ids))
        lists = pa.LargeListArray.from_arrays(pa.array(encoded.offsets, pa.int64()), pieces)
        found: list[str] = pc.binary_join(lists, pa.scalar(" ", pa.large_string())).to_pylist()
        return found

    def _show_raw(self, ids: Sequence[int]) -> list[str]:
        """Pieces of raw text with all their spaces. A backslash stands before U+2581 and each
        backslash of the text. Where bytes make a character, the last one shows it."""
        return [text.translate(_SHOWN) for text in self._vocabulary.texts(ids)]


def list_segmentations(segmenter: "UnigramSegmenter", n: int, block: Block) -> bytes:
    """The n most probable segmentations of each word, one a line, with the natural logarithms of
    their probabilities.

    Pieces are the model's, whether the vocabulary has them or not. RarewordError naming the line
    that is not one word.
    """
    lines, ends = _split(block)
    shown: list[str] = []
    for number, (word, end) in enumerate(zip(lines, ends, strict=True), block.first_line + 1):
        if not word or " " in word:
            raise RarewordError(
                f"{block.name}, line {number}: {word!r} is not one word; --n-best takes one a line"
            )
        found = segmenter.n_best(word, n)
        between = end if end.endswith("\n") else f"{end}\n"
        shown += [between.join(_scored(segmenter, pieces) for pieces in found), end]
    return "".join(shown).encode()


def _scored(segmenter: "UnigramSegmenter", pieces: Sequence[str]) -> str:
    *inside, final = pieces
    shown = [*(piece + SEPARATOR for piece in inside), final + " " * final.endswith(SEPARATOR)]
    return f"{' '.join(shown)}\t{segmenter.log_probability(pieces):.4f}"


def restore_pieces(vocabulary: Vocabulary, block: Block) -> bytes:
    """The text of lines of pieces as they are shown."""
    lines, ends = _split(block)
    if not vocabulary.is_raw:
        return _join([joined(_pieces(line)) for line in lines], ends)
    texts = (_RAW.sub(lambda m: m[1] or " " * (m[0] == SPACE), line) for line in lines)
    return _join([vocabulary.without_added_space(text) for text in texts], ends)


def _pieces(line: str) -> list[str]:
    """The shown pieces of a line. A second space after a piece that ends in `@@` belongs to it."""
    found: list[str] = []
    for part in line.split(" "):
        if part:
            found.append(part)
        elif found and found[-1].endswith(SEPARATOR):
            found[-1] += " "
    return found


def restore_ids(vocabulary: Vocabulary, block: Block) -> bytes:
    """The text of lines of ids. RarewordError naming the line with something that is no id."""
    lines, ends = _split(block)
    texts = []
    for number, line in enumerate(lines, block.first_line + 1):
        try:
            ids = [int(field) for field in line.split()]
        except ValueError as error:
            raise RarewordError(f"{block.name}, line {number}: {line!r} is not of ids") from error
        wrong = [i for i in ids if not 0 <= i < len(vocabulary)]
        if wrong:
            raise RarewordError(
                f"{block.name}, line {number}: the vocabulary has no id {wrong[0]}; ids are 0 to "
                f"{len(vocabulary) - 1}"
            )
        texts.append(vocabulary.words(ids))
    return _join(texts, ends)


def _split(block: Block) -> tuple[list[str], list[str]]:
    """The lines of a block, and how each ends."""
    lines = block.decode().split("\n")
    ends = ["\n"] * (len(lines) - 1) + [""]
    if not lines[-1]:
        lines.pop()
        ends.pop()
    for i, line in enumerate(lines):
        if line.endswith("\r"):
            lines[i], ends[i] = line[:-1], f"\r{ends[i]}"
    return lines, ends


def _join(lines: Sequence[str], ends: Sequence[str]) -> bytes:
    def parts() -> Iterator[str]:
        for line, end in zip(lines, ends, strict=True):
            yield line
            yield end

    return "".join(parts()).encode()
