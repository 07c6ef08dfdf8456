"""Glossaries: what is to stay whole inside words, such as names, addresses or numbers.

An entry is literal text, found anywhere inside a word; `re:` before it makes it a regular
expression of Python, in which `^` and `$` are the word's ends. A backslash at the start of an entry
makes the rest of it literal, whatever it is: `\\re:x` is the text `re:x`, `\\\\x` the text `\\x`.
"""

import re
from collections.abc import Sequence

from rareword.schemas import storage
from rareword.schemas.errors import RarewordError

REGEX = "re:"

Parts = list[tuple[str, bool]]
"""A word in parts: text, and whether it stays whole."""


def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern, or a RarewordError that says what is wrong with it."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise RarewordError(
            f"glossary {pattern!r} is not a regular expression ({error}); "
            "a backslash before a special character makes it an ordinary one"
        ) from error


def read(url: str) -> list[str]:
    """The entries of a glossary file: UTF-8, one a line; spaces around them and blank lines do not
    count. Raises RarewordError naming file and line."""
    entries = []
    for number, line in enumerate(storage.read_text(url).removeprefix("\ufeff").split("\n"), 1):
        entry = line.strip(" \r")
        if not entry:
            continue
        try:
            Glossary([entry])
        except RarewordError as error:
            raise RarewordError(f"{url}, line {number}: {error}") from error
        entries.append(entry)
    return entries


class Glossary:
    """Takes words apart at what its entries match.

    Literal entries come first, longer ones before shorter ones, then regular expressions in their
    order. What one entry keeps, no later one cuts; matches of nothing are no matches.
    """

    def __init__(self, entries: Sequence[str]) -> None:
        """Raises RarewordError for an entry that can match nothing or is no regular expression."""
        self._regexes = [
            compiled(entry.removeprefix(REGEX)) for entry in entries if entry.startswith(REGEX)
        ]
        literals = {e.removeprefix("\\") for e in entries if not e.startswith(REGEX)}
        for text in [*literals, *(entry for entry in entries if entry == REGEX)]:
            if text in ("", REGEX) or " " in text:
                raise RarewordError(
                    f"glossary entry {text!r} can match nothing: entries are found inside words, "
                    "which are not empty and hold no space"
                )
        self._literals = literals
        self._lengths = sorted({len(text) for text in literals})

    def parts(self, word: str) -> Parts | None:
        """The word in parts, none of them empty; None if nothing in it is to stay whole."""
        kept: list[tuple[int, int]] = []
        taken = bytearray(len(word))

        def keep(begin: int, end: int) -> None:
            if begin < end and taken.find(1, begin, end) < 0:
                kept.append((begin, end))
                taken[begin:end] = b"\1" * (end - begin)

        for text in self._found(word):
            at = word.find(text)
            while at >= 0:
                keep(at, at + len(text))
                at = word.find(text, at + 1)
        for regex in self._regexes:
            for match in regex.finditer(word):
                keep(*match.span())
        if not kept:
            return None
        parts, last = [], 0
        for begin, end in sorted(kept):
            parts += [(word[last:begin], False), (word[begin:end], True)]
            last = end
        parts.append((word[last:], False))
        return [part for part in parts if part[0]]

    def _found(self, word: str) -> list[str]:
        """The literal entries that the word holds, in their order. A glossary may have very many,
        so its entries are looked up by the word's substrings, not tried one by one."""
        found = {
            text
            for length in self._lengths
            for begin in range(len(word) - length + 1)
            if (text := word[begin : begin + length]) in self._literals
        }
        return sorted(found, key=lambda text: (-len(text), text))
