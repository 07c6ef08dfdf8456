"""ISO 9:1995: Cyrillic to Latin, one letter for one letter, and back.

Joint merges of a Latin and a Cyrillic language are learnt on transliterated words, so that a name
is cut at the same places in both; the merges are then written back in Cyrillic (Sennrich et al.
2016, section 3.2). The standard gives the hard and the soft sign the double prime and the prime for
both cases; here the capitals take the neighbouring characters U+2033 and U+2032, so that the table
can be inverted.
"""

import unicodedata
from collections.abc import Sequence

import pyarrow as pa

from rareword.schemas.merges import Merge, Symbol

_LOWER = {
    "а": "a", "б": "b", "в": "v", "г": "g", "д": "d", "е": "e", "ё": "ë", "ж": "ž",
    "з": "z", "и": "i", "й": "j", "к": "k", "л": "l", "м": "m", "н": "n", "о": "o",
    "п": "p", "р": "r", "с": "s", "т": "t", "у": "u", "ф": "f", "х": "h", "ц": "c",
    "ч": "č", "ш": "š", "щ": "ŝ", "ъ": "ʺ", "ы": "y", "ь": "ʹ", "э": "è", "ю": "û",
    "я": "â",
}  # fmt: skip
_CAPITAL_SIGNS = {"Ъ": "″", "Ь": "′"}

TO_LATIN = {**_LOWER, **{k.upper(): v.upper() for k, v in _LOWER.items()}, **_CAPITAL_SIGNS}
TO_CYRILLIC = {latin: cyrillic for cyrillic, latin in TO_LATIN.items()}

_LATIN_TABLE = str.maketrans(TO_LATIN)
_CYRILLIC_TABLE = str.maketrans(TO_CYRILLIC)


def to_latin(text: str) -> str:
    """Transliterates the Russian letters of a text; all else stays."""
    return text.translate(_LATIN_TABLE)


def to_latin_words(words: pa.Array) -> pa.Array:
    """Transliterates an Arrow array of words. Words hold no U+0020."""
    if not len(words):
        return words
    text = " ".join(words.to_pylist())
    latin = to_latin(text)
    return words if latin is text else pa.array(latin.split(" "), words.type)


def _to_cyrillic(symbol: Symbol) -> Symbol | None:
    """The symbol in Cyrillic, or None if it holds a Latin letter that no Cyrillic letter gives."""
    text = symbol.text.translate(_CYRILLIC_TABLE)
    if any("LATIN" in unicodedata.name(character, "") for character in text):
        return None
    return Symbol(text, symbol.final)


def with_cyrillic(merges: Sequence[Merge]) -> list[Merge]:
    """Merges learnt on transliterated words, for text of both scripts.

    Each merge is followed by its Cyrillic form, where it has one that differs. So Latin words meet
    the Latin merges in their order and Cyrillic words the Cyrillic ones, as if each script had a
    list of its own, and Latin words inside Russian text are segmented as in English.
    """
    both = []
    for merge in merges:
        both.append(merge)
        left, right = _to_cyrillic(merge.left), _to_cyrillic(merge.right)
        if left is not None and right is not None and (left, right) != (merge.left, merge.right):
            both.append(Merge(left, right, merge.count))
    return both
