"""Text rules: what `prepare` does to a sentence, recorded with the corpus and undone at the end.

    raw line -> normalise -> tokenise -> truecase -> corpus ... decoded words -> restore -> text

Each step works on one sentence. Its result is text whose words are separated by single U+0020; no
other white space and no control character is left, so every later job may split at spaces.
"""

import functools
import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from sacremoses import MosesDetokenizer, MosesDetruecaser, MosesTokenizer

from rareword.schemas.errors import RarewordError
from rareword.schemas.tables import SIDES, Side

Form = Literal["NFC", "NFKC", "none"]

_CHOICES = {
    "normalisation": ("NFC", "NFKC", "none"),
    "control_characters": ("space", "reject"),
    "tokenise": ("moses", "none"),
    "truecase": ("moses", "none"),
}
_LANGUAGE_CODE = re.compile("[a-z]{2,3}")


@dataclass(frozen=True)
class TextRules:
    """How text becomes words; stored in the manifest of every corpus and of all that follows."""

    source_language: str = ""
    """Two- or three-letter code; tokeniser and detokeniser have rules of their own for it."""
    target_language: str = ""
    normalisation: Form = "NFC"
    """Unicode normal form: NFC, NFKC or none."""
    control_characters: str = "space"
    """What becomes of control characters and of white space other than U+0020: `space`, or
    `reject` for the whole row."""
    tokenise: str = "moses"
    truecase: str = "moses"

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise RarewordError(
                    f"text rules: {name} is {getattr(self, name)!r}, expected one of "
                    f"{', '.join(choices)}"
                )
        for side in SIDES:
            code = self.language(side)
            if code and not _LANGUAGE_CODE.fullmatch(code):
                raise RarewordError(
                    f"text rules: {side}_language is {code!r}, expected a code of two or three "
                    "small letters such as en"
                )
            if not code and self.tokenise == "moses":
                raise RarewordError(
                    f"text rules: {side}_language is missing, and Moses tokenisation depends on "
                    "it; give a code such as en, or set tokenise to none"
                )

    def language(self, side: Side) -> str:
        return self.source_language if side == "source" else self.target_language

    def to_json(self) -> dict[str, str]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "TextRules":
        """Raises RarewordError for rules that this release does not know."""
        try:
            return cls(**value)
        except TypeError as error:
            raise RarewordError(
                f"the text rules were written by another release ({error}); prepare the corpus "
                "again"
            ) from error

    def apply(self, text: str, side: Side) -> str:
        """Normalises and tokenises a sentence; truecasing needs a model and comes after it."""
        text = normalise(text, self.normalisation)
        return tokenise(text, self.language(side)) if self.tokenise == "moses" else text


# ---- normalisation ----

_OTHER_SPACE = "\\x00-\\x1f\\x7f-\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
"""Control characters (Cc) and Unicode's White_Space without U+0020. Zero-width characters and the
soft hyphen are neither: they belong to words."""
_OTHER_SPACE_CHARACTER = re.compile(f"[{_OTHER_SPACE}]")
_SPACES = re.compile(f"[ {_OTHER_SPACE}]+")


def normalise(text: str, form: Form = "NFC") -> str:
    """Unicode normal form `form`, then each run of white space and control characters one space.

    No space stands at either end. Idempotent: a space composes with nothing.
    """
    if form != "none" and not text.isascii():
        text = unicodedata.normalize(form, text)
    return _SPACES.sub(" ", text).strip(" ")


def find_control_character(text: str) -> re.Match[str] | None:
    """The first control character or white space other than U+0020."""
    return _OTHER_SPACE_CHARACTER.search(text)


# ---- tokenisation ----


def tokenise(text: str, language: str) -> str:
    """Moses tokenisation of a normalised sentence, nothing escaped; tokens at single spaces.

    Only spaces are added: without them, text and result are the same characters.
    """
    return " ".join(_tokeniser(language).tokenize(text, escape=False))


@functools.cache
def _tokeniser(language: str) -> "_Tokeniser":
    return _Tokeniser(language)


class _Tokeniser(MosesTokenizer):
    """sacremoses' tokeniser with two faults mended and its slow spots made fast.

    Combining marks and format characters (joiners, soft hyphen) stay with the character before
    them, where Moses makes tokens of their own of them that nothing can put together again
    (hplt-project/sacremoses#73). Text that holds `DOTMULTI`, the placeholder for dots, is text.
    """

    _LOWER = frozenset(MosesTokenizer.IsLower)
    _ALPHA = frozenset(MosesTokenizer.IsAlpha)
    _DOT = "\x01"  # normalised text has no control characters

    def __init__(self, language: str) -> None:
        super().__init__(language)
        kept = _marks_and_format_characters()
        self.PAD_NOT_ISALNUM = (
            re.compile(rf"([^{self.IsAlnum}{kept}\s.'`,\-][{kept}]*)"),
            r" \1 ",
        )

    def islower(self, text: str) -> bool:
        return self._LOWER.issuperset(text)

    def isanyalpha(self, text: str) -> bool:
        return not self._ALPHA.isdisjoint(text)

    def handles_nonbreaking_prefixes(self, text: str) -> str:
        if "." not in text:  # then there is no full stop to part from its word
            return " ".join(text.split())
        return str(super().handles_nonbreaking_prefixes(text))

    def replace_multidots(self, text: str) -> str:
        return str(self.MULTIDOT_RUN.sub(lambda dots: f" {self._DOT * len(dots[0])} ", text))

    def restore_multidots(self, text: str) -> str:
        return text.replace(self._DOT, ".")


@functools.cache
def _marks_and_format_characters() -> str:
    """All of Unicode's M and Cf, as the inside of a regular expression's character class."""
    characters = map(chr, range(sys.maxunicode + 1))
    return "".join(c for c in characters if unicodedata.category(c) in ("Mn", "Mc", "Me", "Cf"))


# ---- the way back ----


def restore(rules: Mapping[str, Any], texts: Iterable[str], side: Side = "target") -> list[str]:
    """Undoes truecasing and tokenisation of decoded sentences, one result per text.

    rules: the text rules as a manifest holds them (`manifest.rules["text"]`). Both steps are
    Moses': the first word of a sentence gets a capital, punctuation joins its word again.
    """
    read = TextRules.from_json(rules)
    restored = list(texts)
    if read.truecase == "moses":
        detruecaser = MosesDetruecaser()
        restored = [detruecaser.detruecase(text, return_str=True) for text in restored]
    if read.tokenise == "moses":
        detokeniser = MosesDetokenizer(read.language(side))
        restored = [detokeniser.detokenize(text.split(" "), unescape=False) for text in restored]
    return restored
