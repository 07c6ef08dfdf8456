"""Models of the sentencepiece library, learnt from counted texts and used without side effects.

The library keeps some characters for itself: it drops texts that hold NUL, a tab or U+2585, and
writes a space as U+2581. So each of them changes places with a private character of plane 16 on the
way in, and back on the way out: every text keeps a form of its own, and comes back exactly.
"""

import io
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

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

_OWN = [*map(chr, range(0x20)), SPACE, "\u2585"]
_PRIVATE = [chr(0x10FF00 + number) for number in range(len(_OWN))]
_SWAP = str.maketrans("".join(_OWN + _PRIVATE), "".join(_PRIVATE + _OWN))
_SWAPPED = re.compile(f"[{re.escape(''.join(_OWN + _PRIVATE))}]")


def protect(text: str) -> str:
    """The text with the library's own characters exchanged; done twice it is the text again."""
    return text.translate(_SWAP) if _SWAPPED.search(text) else text


def text_of(piece: str) -> str:
    """The text that a piece of the library stands for."""
    return protect(piece.replace(SPACE, " "))


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
    rows = sorted((protect(text), count) for text, count in counts.items() if text and count > 0)
    if not rows:
        raise RarewordError("there is no text to learn pieces from")
    # The library begins words at spaces; what is left of a text is then cut nowhere.
    fixed = len(set().union(*(text for text, _ in rows))) + (256 if byte_fallback else 0)
    if pieces < fixed:
        kinds = "characters and bytes" if byte_fallback else "characters"
        raise RarewordError(f"{pieces} pieces are too few for the {fixed} {kinds} of the text")
    model = io.BytesIO()
    with tempfile.TemporaryDirectory() as directory:
        extra: dict[str, Any] = {}
        if model_type == "unigram":
            seeds = seed_pieces(
                [(text.replace(" ", SPACE), n) for text, n in rows], max_piece_length
            )
            path = Path(directory) / "seeds.tsv"
            path.write_bytes("".join(f"{piece}\t{n}\n" for piece, n in seeds).encode())
            extra["seed_sentencepieces_file"] = str(path)
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
    return model.getvalue()


def seed_pieces(rows: Sequence[tuple[str, int]], max_length: int) -> list[tuple[str, int]]:
    """The pieces that a unigram model begins with, and how often they occur: all substrings of 2 to
    `max_length` characters that occur at least twice (Kudo 2018), but those that are always
    followed by the same character, which the longer one stands for.

    The library's own seeds are counted in different texts, however often those occur; beside
    characters, which it counts fully, frequent words then count for nothing and are lost. If there
    are too many, those that cover most text are taken.
    """
    points = np.frombuffer("".join(text for text, _ in rows).encode("utf-32-le"), np.uint32)
    points = points.astype(np.int64)
    lengths = np.fromiter((len(text) for text, _ in rows), np.int64, len(rows))
    weights = np.repeat(np.fromiter((count for _, count in rows), np.int64, len(rows)), lengths)
    ends = np.repeat(np.cumsum(lengths), lengths)
    places = np.arange(len(points))
    ids = points  # of the substring of `length` characters at each place
    kept = np.ones(0, bool)
    found: list[tuple[str, int]] = []
    text = "".join(text for text, _ in rows)
    previous: tuple[Any, Any, int] | None = None  # places, sums and length of the step before
    for length in range(2, max_length + 1):
        inside = places + length <= ends[places]
        places, parents = places[inside], ids[inside]
        keys = (parents << 21) | points[places + length - 1]
        pairs, first, ids = np.unique(keys, return_index=True, return_inverse=True)
        sums = np.zeros(len(pairs), np.int64)
        np.add.at(sums, ids, weights[places])
        if previous is not None:
            starts, totals, size = previous
            longest = np.zeros(len(totals), np.int64)
            np.maximum.at(longest, pairs >> 21, sums)
            kept = (totals >= 2) & (longest < totals)
            found += _texts(text, starts[kept], totals[kept], size)
        previous = places[first], sums, length
        often = sums[ids] >= 2
        places, ids = places[often], ids[often]
    if previous is not None:
        starts, totals, size = previous
        kept = totals >= 2
        found += _texts(text, starts[kept], totals[kept], size)
    # The library takes no piece with a space behind its beginning; nor does a text here hold one.
    found.sort(key=lambda row: (-row[1] * len(row[0]), row[0]))
    return found[:SEEDS]


def _texts(text: str, starts: Any, counts: Any, length: int) -> list[tuple[str, int]]:
    return [
        (text[start : start + length], count)
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True)
    ]


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
