"""Segmenters from the files of other programs.

Each reader gives a segmenter, its own pieces as a vocabulary, and sentences on what it left out.
What would make other pieces than the program itself is refused.
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from rareword.schemas import storage
from rareword.schemas.errors import RarewordError
from rareword.schemas.merges import END_OF_WORD, Symbol, from_codes
from rareword.schemas.vocabulary import SEPARATOR, SPECIALS, Vocabulary
from rareword.transforms import from_huggingface, segmenters
from rareword.transforms.bpe import BpeSegmenter
from rareword.transforms.from_huggingface import BpeParts
from rareword.transforms.segmenters import Segmenter

if TYPE_CHECKING:
    from rareword.transforms.sentencepiece_models import Spec

Format = Literal["auto", "subword-nmt", "fastbpe", "sentencepiece", "huggingface"]


@dataclasses.dataclass(frozen=True)
class Imported:
    """A segmenter that another program learnt."""

    kind: str
    """Of segmenters.KINDS."""
    segmenter: Segmenter
    vocabulary: Vocabulary
    """The pieces of the file, with counts of 0 where it has none."""
    notes: Sequence[str] = ()
    """What was left out, a sentence each."""


def read(url: str, form: Format) -> Imported:
    """Reads a file of another program; `auto` tells the format by the content.

    Raises RarewordError naming the file and what in it has no counterpart.
    """
    with storage.open_read(url) as stream:
        data = stream.read()
    if form == "auto":
        form = guess(data)
    if form == "sentencepiece":
        return of_sentencepiece(data, url)
    text = storage.decode(data, url)
    if form == "huggingface":
        return of_huggingface(text, url)
    return of_codes(text, url, form)


def guess(data: bytes) -> Format:
    """The format of a file: JSON, the protocol buffer of sentencepiece (which begins with the
    length of its first piece), or lines of merges."""
    if data.lstrip()[:1] == b"{":
        return "huggingface"
    if data[:1] == b"\n" and b"\0" in data:
        return "sentencepiece"
    first = data.split(b"\n", 1)[0].rstrip().split(b" ")
    return "fastbpe" if len(first) == 3 and first[2].isdigit() else "subword-nmt"


# ---- merges as lines ----


def of_codes(text: str, name: str, form: Format) -> Imported:
    """The codes of subword-nmt (version 0.2) or of fastBPE (a third column holds the count)."""
    codes = from_codes(text, name)
    if form == "fastbpe" and text.startswith("#version:"):
        raise RarewordError(f"{name} is a codes file of subword-nmt; use --format subword-nmt")
    if codes.version == (0, 1):
        ends = any(not symbol.text for m in codes.merges for symbol in (m.left, m.right))
        raise RarewordError(
            f"{name}: codes of version 0.1 (the file has no `#version:` line), in which the end of "
            f"a word is a symbol of its own, have no counterpart here; "
            + (
                "`rareword subword-nmt apply-bpe` applies them, or learn anew with "
                "`rareword learn-merges`"
                if ends
                else f"but no merge here is with {END_OF_WORD} alone: if the first line of a file "
                "of version 0.2 was lost, put `#version: 0.2` before the others"
            )
        )
    merges = codes.merges
    characters = sorted({c for m in merges for s in (m.left, m.right) for c in s.text})
    pieces = [Symbol(c, final) for c in characters for final in (False, True)]
    results = dict.fromkeys(merge.result for merge in merges)
    pieces += [result for result in results if len(result.text) > 1]
    return Imported("bpe", BpeSegmenter(merges), vocabulary_of(pieces))


def vocabulary_of(
    pieces: Iterable[Symbol], is_bytes: bool | Sequence[bool] = False, counts: Sequence[int] = ()
) -> Vocabulary:
    """A vocabulary of these pieces in their order, behind the special ones."""
    symbols = [*SPECIALS, *pieces]
    none = [0] * len(symbols)
    if isinstance(is_bytes, bool):
        is_bytes = [is_bytes] * (len(symbols) - len(SPECIALS))
    return Vocabulary(
        [symbol.text for symbol in symbols],
        [symbol.final for symbol in symbols],
        [0] * len(SPECIALS) + list(counts) if counts else none,
        none,
        [False] * len(SPECIALS) + list(is_bytes) if any(is_bytes) else (),
    )


def read_vocabulary(url: str) -> Vocabulary:
    """A vocabulary file of subword-nmt or fastBPE: lines `piece count`, with `@@` behind a piece
    that does not end its word.

    Raises RarewordError naming file and line.
    """
    lines = storage.read_text(url).removesuffix("\n").split("\n")
    found: dict[Symbol, int] = {}
    for number, line in enumerate(lines, 1):
        fields = line.removesuffix("\r").split(" ")
        if len(fields) != 2 or not fields[0] or not fields[1].isdecimal():
            raise RarewordError(f"{url}, line {number}: expected `piece count`, found {line!r}")
        text, goes_on = fields[0].removesuffix(SEPARATOR), fields[0].endswith(SEPARATOR)
        piece = Symbol(text, not goes_on) if text else Symbol(fields[0], True)
        if piece in found:
            raise RarewordError(f"{url}, line {number}: the piece {fields[0]!r} is there twice")
        found[piece] = int(fields[1])
    return vocabulary_of(found, counts=list(found.values()))


# ---- tokenizer.json ----


def of_huggingface(text: str, name: str) -> Imported:
    """A tokenizer.json of Hugging Face."""
    try:
        value: Any = json.loads(text)
    except ValueError as error:
        raise RarewordError(f"{name} is not JSON ({error})") from error
    parts, notes = from_huggingface.read(value, name)
    if isinstance(parts, BpeParts):
        return Imported(
            "bytes" if parts.is_bytes else "bpe",
            BpeSegmenter(parts.merges, "bytes" if parts.is_bytes else "characters"),
            vocabulary_of(parts.pieces, parts.is_bytes),
            notes,
        )
    made: Any = segmenters.class_of("wordpiece", name)
    texts = dict.fromkeys([*parts.initial, *parts.continuing])
    return Imported(
        "wordpiece",
        made(parts.initial, parts.continuing, parts.max_characters),
        vocabulary_of(Symbol(text, final) for text in texts for final in (False, True)),
        notes,
    )


# ---- sentencepiece ----


def of_sentencepiece(data: bytes, name: str) -> Imported:
    """A model of sentencepiece: of raw text, or a unigram model of words, without spaces.

    Raises RarewordError for what is no model, or has no counterpart.
    """
    from rareword.transforms import sentencepiece_models

    spec = sentencepiece_models.spec_of(data, name)
    is_of_words = spec.is_unigram and spec.is_lossless and not (spec.has_bytes or spec.has_spaces)
    kind = "unigram" if is_of_words else "sentencepiece"
    made: Any = segmenters.class_of(kind, name)
    segmenter = made(data, name)
    if is_of_words:
        texts = segmenter.log_probabilities
        vocabulary = vocabulary_of(Symbol(text, final) for text in texts for final in (False, True))
        return Imported(kind, segmenter, vocabulary)
    pieces = [piece for piece in segmenter.pieces if piece.text]
    flags = [piece.is_bytes for piece in pieces]
    vocabulary = vocabulary_of((Symbol(piece.text, False) for piece in pieces), flags)
    vocabulary = dataclasses.replace(vocabulary, adds_space=spec.adds_space)
    return Imported(kind, segmenter, vocabulary, list(_losses(spec)))


def _losses(spec: "Spec") -> Iterator[str]:
    """What does not come back from the pieces of a model, a sentence each."""
    if spec.rule:
        yield (
            f"the model normalises text (rule {spec.rule}) before it cuts it; what comes back from "
            "pieces is the normalised text"
        )
    if spec.removes_spaces:
        yield "the model leaves one of several spaces in a row, and none at the ends of a line"
    if not spec.has_bytes:
        yield "the model has no pieces for bytes (byte_fallback): unknown characters are <unk>"
