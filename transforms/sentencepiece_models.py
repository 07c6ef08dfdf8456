"""Models of the sentencepiece library, learnt from counted texts and used without side effects.

The library keeps some characters for itself: it drops texts that hold NUL, a tab or U+2585, and
writes a space as U+2581. On the way in each of them is replaced by a private character of plane 16
that stands for it (U+10FF00 and following), and put back on the way out. Where a text holds one of
those private characters itself, it is cut out and is unknown to every model.
"""

import io
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from rareword.schemas import storage
from rareword.schemas.errors import RarewordError
from rareword.schemas.tables import ShardRecord, file_record

try:
    import sentencepiece
except ImportError as error:  # pragma: no cover
    raise RarewordError(
        "this segmenter needs the sentencepiece library: pip install 'rareword[segmenters]'"
    ) from error

ModelType = Literal["unigram", "bpe"]

SPACE = "\u2581"
"""What the library makes of a space."""
UNKNOWN = "\x01"
"""The name of the model's piece for unknown characters; no protected text holds it."""
SEEDS = 1_000_000
"""Candidates that a unigram model begins with, at most."""

_OWN = "".join([*map(chr, range(0x20)), SPACE, "\u2585"])
_PRIVATE = "".join(chr(0x10FF00 + number) for number in range(len(_OWN) + 1))
_STRANGER = _PRIVATE[-1]
"""What all private characters of a text become."""
_IN = str.maketrans(_OWN + _PRIVATE, _PRIVATE[:-1] + _STRANGER * len(_PRIVATE))
_OUT = str.maketrans(SPACE + _PRIVATE[:-1], " " + _OWN)
_TRANSLATED = re.compile(f"[{re.escape(_OWN + _PRIVATE)}]")
_CUT_OUT = re.compile(f"[{_PRIVATE}]")
_CUT_OUT_BYTES = re.compile(f"[{_PRIVATE}]|(?<=<0x[0-9A-F]{{2}})(?=>)")
"""Where learning texts are cut; a piece may not look like the name of a byte's piece, `<0x41>`."""


def protect(text: str) -> str:
    """The text with the library's own characters replaced, character by character."""
    return text.translate(_IN) if _TRANSLATED.search(text) else text


def protect_words(words: Sequence[str]) -> list[str]:
    """Protects words, which hold no U+0020; mostly there is nothing to do, which one look tells."""
    if _TRANSLATED.search(" ".join(words)):
        return [protect(word) for word in words]
    return list(words)


def odd_rows(lines: pa.Array) -> list[int]:
    """The rows that may hold a character which has to be replaced, from a glance at their bytes."""
    offsets, data = lines.buffers()[1:]
    if data is None:
        return []
    wide = np.int64 if lines.type == pa.large_string() else np.int32
    bounds = np.frombuffer(offsets, wide)[lines.offset : lines.offset + len(lines) + 1]
    found = np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]
    # U+2580 .. U+25BF begin with E2 96, private characters of plane 16 with F4.
    is_odd = (found < 0x20) | (found == 0xF4)
    is_odd[:-1] |= (found[:-1] == 0xE2) & (found[1:] == 0x96)
    rows = np.searchsorted(bounds, np.flatnonzero(is_odd) + bounds[0], side="right") - 1
    return sorted(set(rows.tolist()))


def text_of(piece: str) -> str:
    """The text that a piece of the library stands for."""
    return piece.translate(_OUT)


def strangers(known: Collection[str]) -> re.Pattern[str]:
    """The characters that a model with these pieces must not be asked for, as a group."""
    return re.compile(f"([{_PRIVATE}{re.escape(''.join(set(_OWN).difference(known)))}])")


def learn_model(
    counts: Mapping[str, int],
    *,
    pieces: int,
    model_type: ModelType = "unigram",
    byte_fallback: bool = False,
    max_piece_length: int = 16,
) -> bytes:
    """A model of at most `pieces` pieces, learnt from texts and how often each occurs.

    A space is the beginning of a piece or a piece by itself. All characters are pieces, and with
    `byte_fallback` all 256 bytes. The model is a function of the counts: neither their order nor
    the number of cores matters. Raises RarewordError if `pieces` is too small or there is no text.
    """
    sums: dict[str, int] = {}
    cut_out = _CUT_OUT_BYTES if byte_fallback else _CUT_OUT
    for text, count in counts.items():
        for part in cut_out.split(text):
            if part and count > 0:
                sums[part] = sums.get(part, 0) + count
    rows = sorted((protect(text), count) for text, count in sums.items())
    if not rows:
        raise RarewordError("there is no text to learn pieces from")
    fixed = len(set().union(*(text for text, _ in rows))) + (256 if byte_fallback else 0)
    if pieces < fixed:
        kinds = "characters and bytes" if byte_fallback else "characters"
        raise RarewordError(f"{pieces} pieces are too few for the {fixed} {kinds} of the text")
    model, path = io.BytesIO(), ""
    with tempfile.TemporaryDirectory() as directory:
        extra: dict[str, Any] = {}
        if model_type == "unigram":
            seeds = seed_pieces(
                [(text.replace(" ", SPACE), n) for text, n in rows], max_piece_length
            )
            path = f"{directory}/seeds.tsv"
            Path(path).write_bytes("".join(f"{piece}\t{n}\n" for piece, n in seeds).encode())
            extra["seed_sentencepieces_file"] = path
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter([f"{text}\t{count}" for text, count in rows]),
                input_format="tsv",
                model_writer=model,
                model_type=model_type,
                vocab_size=pieces + 1,
                hard_vocab_limit=False,
                byte_fallback=byte_fallback,
                character_coverage=1.0,
                max_sentencepiece_length=max_piece_length,
                normalization_rule_name="identity",
                add_dummy_prefix=False,
                remove_extra_whitespaces=False,
                split_by_unicode_script=False,
                split_by_number=False,
                max_sentence_length=1 << 30,
                unk_id=0,
                unk_piece=UNKNOWN,
                bos_id=-1,
                eos_id=-1,
                pad_id=-1,
                num_threads=1,
                minloglevel=2,
                **extra,
            )
        except (OSError, RuntimeError) as error:
            raise RarewordError(f"sentencepiece could not learn from the text: {error}") from error
    return _without(model.getvalue(), path.encode()) if path else model.getvalue()


def _without(model: bytes, text: bytes) -> bytes:
    """The model without a string of its training settings: a temporary path would make every model
    another file."""
    out = b""
    for number, field, value in _fields(model):
        if number == TRAINER_SPEC and isinstance(value, bytes):
            kept = b"".join(inner for _, inner, found in _fields(value) if found != text)
            out += field[:1] + _varint(len(kept)) + kept
        else:
            out += field
    return out


PIECE, TRAINER_SPEC, NORMALIZER_SPEC = 1, 2, 3
"""The numbers of a model's fields, as in sentencepiece_model.proto. (The library's own reader of it
asks for one release of protobuf.)"""


class Spec(NamedTuple):
    """What a model makes of text, besides its pieces."""

    rule: str
    """The name of the normalisation; empty if characters stay as they are."""
    adds_space: bool
    """A space is put before each line."""
    removes_spaces: bool
    """Of spaces in a row one is left, and none at the ends of a line."""
    is_unigram: bool
    has_bytes: bool
    """Unknown characters become bytes (byte_fallback)."""
    has_spaces: bool
    """There are pieces with spaces, so the model is of lines and not of single words."""

    @property
    def is_lossless(self) -> bool:
        """Whether the pieces of a line are the line, but for unknown characters."""
        return not (self.rule or self.adds_space or self.removes_spaces)


def spec_of(model: bytes, name: str) -> Spec:
    """Reads the settings of a model; `name` is for errors.

    Raises RarewordError for what is no model, and for models whose pieces have no counterpart here.
    """
    try:
        fields = _values(model)
        trainer, normalizer = (
            _values(fields.get(n, [b""])[-1]) for n in (TRAINER_SPEC, NORMALIZER_SPEC)
        )
        pieces = [_values(piece) for piece in fields[PIECE]]
        texts = [piece[1][-1] for piece in pieces]
        has_bytes = any(piece.get(3, [1])[-1] == 6 for piece in pieces)
        has_spaces = any(SPACE.encode() in text for text in texts)
        rule = normalizer.get(1, [b""])[-1].decode() or "of its own"
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise RarewordError(f"{name} is no sentencepiece model ({error!r})") from error
    model_type = trainer.get(3, [1])[-1]
    refused = {
        "treat_whitespace_as_suffix": trainer.get(24, [0])[-1] != 0,
        "escape_whitespaces=false": normalizer.get(5, [1])[-1] == 0,
        "a model of type word": model_type == 3,
    }
    for setting, is_set in refused.items():
        if is_set:
            raise RarewordError(f"{name}: {setting} has no counterpart in rareword")
    return Spec(
        rule if normalizer.get(2, [b""])[-1] else "",
        normalizer.get(3, [1])[-1] != 0,
        normalizer.get(4, [1])[-1] != 0,
        model_type == 1,
        has_bytes,
        has_spaces,
    )


def _values(message: bytes) -> dict[int, list[Any]]:
    """The values of a protocol buffer by the number of their field."""
    found: dict[int, list[Any]] = {}
    for number, _, value in _fields(message):
        found.setdefault(number, []).append(value)
    return found


def _fields(message: bytes) -> Iterator[tuple[int, bytes, bytes | int]]:
    """The fields of a protocol buffer: number, all bytes, and the value, which is an int or bytes.

    Raises IndexError or ValueError if the message is none.
    """
    place = 0
    while place < len(message):
        begin = place
        tag, start = _read_varint(message, place)
        kind = tag & 7
        value: bytes | int
        if kind == 0:
            value, place = _read_varint(message, start)
        elif kind in (1, 2, 5):
            size = {1: 8, 5: 4}.get(kind, 0)
            if kind == 2:
                size, start = _read_varint(message, start)
            place = start + size
            value = message[start:place]
        else:
            raise ValueError(f"field {tag >> 3} is of no known type")
        if place > len(message):
            raise ValueError("it is cut off")
        yield tag >> 3, message[begin:place], value


def _read_varint(message: bytes, place: int) -> tuple[int, int]:
    """A number and the place behind it."""
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def seed_pieces(rows: Sequence[tuple[str, int]], max_length: int) -> list[tuple[str, int]]:
    """The pieces that a unigram model begins with, and how often they occur: all substrings of 2 to
    `max_length` characters that occur at least twice (Kudo 2018), but those that always have the
    same character before or behind, which the longer one stands for.

    The library's own seeds are counted in different texts, however often those occur; beside
    characters, which it counts fully, frequent words then count for nothing and are lost. If there
    are too many, those that cover most text are taken.
    """
    text = "".join(text for text, _ in rows)
    points = np.frombuffer(text.encode("utf-32-le"), np.uint32).astype(np.int64)
    lengths = np.fromiter((len(text) for text, _ in rows), np.int64, len(rows))
    weights = np.repeat(np.fromiter((count for _, count in rows), np.int64, len(rows)), lengths)
    ends = np.repeat(np.cumsum(lengths), lengths)
    # Of the last length: the number of the substring at each place (-1: none that is repeated), and
    # by number one place, the count, and the highest count of a substring that is longer by one.
    ids = points
    starts = totals = longer = np.zeros(0, np.int64)
    found: list[tuple[str, int]] = []
    places = np.arange(len(points))
    for length in range(2, max_length + 2):
        places = places[places + length <= ends[places]]
        keys = (ids[places] << 21) | points[places + length - 1]
        pairs, first, numbers = np.unique(keys, return_index=True, return_inverse=True)
        sums = np.zeros(len(pairs), np.int64)
        np.add.at(sums, numbers, weights[places])
        repeated = sums >= 2
        if length > 2:
            if length <= max_length:
                inner = places[first[repeated]]
                for part in (ids[inner], ids[inner + 1]):
                    np.maximum.at(longer, part, sums[repeated])
            kept = (totals >= 2) & (longer < totals)
            spans = zip(starts[kept].tolist(), totals[kept].tolist(), strict=True)
            found += [(text[start : start + length - 1], count) for start, count in spans]
        starts, totals, longer = places[first], sums, np.zeros(len(sums), np.int64)
        often = repeated[numbers]
        places = places[often]
        ids = np.full(len(points), -1)
        ids[places] = numbers[often]
    found.sort(key=lambda row: (-row[1] * len(row[0]), row[0]))
    return found[:SEEDS]


def load_model(model: bytes, name: str) -> Any:
    """The library's processor of a model; `name` is for errors."""
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=model)
    except (OSError, RuntimeError) as error:
        raise RarewordError(f"{name} is damaged or no sentencepiece model: {error}") from error


def save_model(model: bytes, directory: str, name: str) -> ShardRecord:
    storage.write_bytes(storage.join(directory, name), model)
    return file_record(directory, name)


def read_model(directory: str, name: str) -> bytes:
    with storage.open_read(storage.join(directory, name)) as stream:
        return stream.read()
