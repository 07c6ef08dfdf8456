"""Stress: what segmenters make of characters and words that the training text never had.

Words of the held-out text are changed in known ways. What a segmenter then loses is counted in
UTF-8 bytes of text that no piece stands for, so every kind is measured alike. A character that the
training text has is known. A word is spoilt if known characters become unknown along with, or
instead of, those that are unknown anyway.
"""

import dataclasses
import random
import unicodedata
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from rareword.schemas.vocabulary import UNK, Vocabulary
from rareword.transforms.segmenters import Encoder

EMOJI = "😀😂🥳🚀🐈🍀❤⚽🎻🧬"
OTHER_SCRIPTS = {
    "Arabic": "ابتجسمنهي",
    "Cyrillic": "бгджзлфцшщ",
    "Devanagari": "अकगतनमरसह",
    "Georgian": "აბგდეკლმნ",
    "Greek": "βγδθλξπσφψ",
    "Han": "中文字書山水火木",
    "Hangul": "가나다라마바사",
    "Hiragana": "あいうえおかき",
    "Latin": "bdfghklmprs",
    "Thai": "กขคงจชดต",
}
COMBINING_MARKS = "\u0300\u0301\u0302\u0303\u0304\u0306\u0308\u030a\u030c\u0323\u0327\u0331"
FULL_WIDTH = {chr(code): chr(code + 0xFEE0) for code in range(0x21, 0x7F)}
"""ASCII characters and their full-width forms, U+FF01 .. U+FF5E."""


def _with_emoji(word: str, chance: random.Random) -> str:
    at = chance.randint(1, len(word))
    return word[:at] + chance.choice(EMOJI) + word[at:]


def _script_of(character: str) -> str:
    """The first word of its name: LATIN, CYRILLIC, CJK, ..."""
    name = unicodedata.name(character, "").partition(" ")[0]
    return "HAN" if name == "CJK" else name


def _with_other_script(word: str, chance: random.Random) -> str:
    own = {_script_of(character) for character in word}
    scripts = [name for name in OTHER_SCRIPTS if name.upper() not in own]
    at = chance.randint(1, len(word))
    return word[:at] + chance.choice(OTHER_SCRIPTS[chance.choice(scripts)]) + word[at:]


def _full_width(word: str, chance: random.Random) -> str:
    places = [i for i, character in enumerate(word) if character in FULL_WIDTH]
    if not places:
        return word
    at = chance.choice(places)
    return word[:at] + FULL_WIDTH[word[at]] + word[at + 1 :]


def _with_mark(word: str, chance: random.Random) -> str:
    at = chance.randint(1, len(word))
    return word[:at] + chance.choice(COMBINING_MARKS) + word[at:]


def _mistyped(word: str, chance: random.Random) -> str:
    """A letter is left out, doubled, replaced by another one of the word, or two change places."""
    at = chance.randrange(len(word) - 1)
    return chance.choice(
        (
            word[:at] + word[at + 1 :],
            word[:at] + word[at] + word[at:],
            word[:at] + word[at + 1] + word[at] + word[at + 2 :],
            word[:at] + chance.choice(word) + word[at + 1 :],
        )
    )


PERTURBATIONS: dict[str, Callable[[str, random.Random], str]] = {
    "emoji": _with_emoji,
    "other scripts": _with_other_script,
    "full-width forms": _full_width,
    "combining marks": _with_mark,
    "typos": _mistyped,
}


def sample(lines: Sequence[str], size: int, seed: int) -> list[str]:
    """One word of two or more characters of each of up to `size` lines that have any.

    Drawn by the seed: the same lines give the same words.
    """
    usable = [found for line in lines if (found := [w for w in line.split(" ") if len(w) > 1])]
    chance = random.Random(f"{seed} sample")
    if len(usable) > size:
        usable = [usable[i] for i in sorted(chance.sample(range(len(usable)), size))]
    return [chance.choice(words) for words in usable]


def perturb(words: Sequence[str], kind: str, seed: int) -> list[tuple[str, str]]:
    """Each word and what became of it; words that the perturbation leaves alone are left out."""
    chance = random.Random(f"{seed} {kind}")
    changed = [(word, PERTURBATIONS[kind](word, chance)) for word in words]
    return [(before, after) for before, after in changed if before != after]


@dataclasses.dataclass(frozen=True)
class Stress:
    """What a segmenter makes of perturbed words."""

    words: int
    unknown_characters: int
    """Characters of these words that the training text does not have."""
    pieces: int
    unknown_pieces: int
    spoilt: int
    """Words that lost known characters, and did not before they were perturbed."""


def measure(
    pairs: Sequence[tuple[str, str]],
    encoder: Encoder,
    vocabulary: Vocabulary,
    known: frozenset[str],
) -> Stress:
    """pairs: words before and after. known: the characters of the training text."""
    before = _encode([word for word, _ in pairs], encoder, vocabulary, known)
    after = _encode([word for _, word in pairs], encoder, vocabulary, known)
    return Stress(
        words=len(pairs),
        unknown_characters=sum(c not in known for _, word in pairs for c in word),
        pieces=after.pieces,
        unknown_pieces=after.unknown,
        spoilt=int((after.spoilt & ~before.spoilt).sum()),
    )


@dataclasses.dataclass(frozen=True)
class _Encoded:
    pieces: int
    unknown: int
    spoilt: np.ndarray
    """For each word, whether more bytes are lost than those of its unknown characters."""


def _encode(
    words: Sequence[str], encoder: Encoder, vocabulary: Vocabulary, known: frozenset[str]
) -> _Encoded:
    encoded = encoder.encode(pa.array(words, pa.string()))
    sizes = np.array(_text_bytes(vocabulary), np.int64)
    sizes[UNK] = 0
    sums = np.concatenate([[0], np.cumsum(sizes[encoded.ids])])
    kept = np.diff(sums[encoded.offsets])
    can_keep = np.array(
        [sum(len(c.encode()) for c in word if c in known) for word in words], np.int64
    )
    unknown = int((encoded.ids == UNK).sum())
    return _Encoded(len(encoded.ids), unknown, kept < can_keep)


def _text_bytes(vocabulary: Vocabulary) -> list[int]:
    """UTF-8 bytes of each piece without its spaces."""
    sizes = vocabulary.piece_bytes()
    return [size - piece.count(" ") for size, piece in zip(sizes, vocabulary.pieces, strict=True)]


def characters_of(words: pa.Array) -> frozenset[str]:
    """All characters of words."""
    found: set[str] = set()
    for word in words.to_pylist():
        found.update(word)
    return frozenset(found)


def stress(
    words: Sequence[str],
    encoder: Encoder,
    vocabulary: Vocabulary,
    known: frozenset[str],
    seed: int,
) -> Mapping[str, Stress]:
    """Every perturbation of the words."""
    return {
        kind: measure(perturb(words, kind, seed), encoder, vocabulary, known)
        for kind in PERTURBATIONS
    }
