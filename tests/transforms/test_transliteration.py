"""ISO 9:1995."""

import itertools
import unicodedata

import oracles
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from rareword.schemas.merges import Merge, Symbol
from rareword.transforms import transliteration

RUSSIAN = "абвгдеёжзийклмнопрстуфхцчшщъыьэюя"
ALPHABET = RUSSIAN + RUSSIAN.upper()
# The standard's table as published: one Latin letter, with its diacritic, for each Cyrillic one.
STANDARD = list("abvgdeëžzijklmnoprstufhcčšŝʺyʹèûâ")


def test_the_table_is_the_standards():
    assert transliteration.to_latin(RUSSIAN) == "".join(STANDARD)
    capitals = transliteration.to_latin(RUSSIAN.upper())
    for letter, latin, expected in zip(RUSSIAN, capitals, STANDARD, strict=True):
        assert latin == expected.upper() or letter in "ъь"


def test_every_letter_has_one_image_and_none_is_shared():
    latin = transliteration.to_latin(ALPHABET)
    assert len(latin) == len(set(latin)) == len(ALPHABET)
    assert not any("CYRILLIC" in unicodedata.name(letter) for letter in latin)
    assert [transliteration.TO_CYRILLIC[letter] for letter in latin] == list(ALPHABET)


# Both cases by the names of their characters: the letter in Cyrillic, the letter in Latin.
NAMES = {
    "A": "A", "BE": "B", "VE": "V", "GHE": "G", "DE": "D", "IE": "E", "IO": "E WITH DIAERESIS",
    "ZHE": "Z WITH CARON", "ZE": "Z", "I": "I", "SHORT I": "J", "KA": "K", "EL": "L", "EM": "M",
    "EN": "N", "O": "O", "PE": "P", "ER": "R", "ES": "S", "TE": "T", "U": "U", "EF": "F",
    "HA": "H", "TSE": "C", "CHE": "C WITH CARON", "SHA": "S WITH CARON",
    "SHCHA": "S WITH CIRCUMFLEX", "YERU": "Y", "E": "E WITH GRAVE", "YU": "U WITH CIRCUMFLEX",
    "YA": "A WITH CIRCUMFLEX",
}  # fmt: skip
SIGNS = {
    "CYRILLIC SMALL LETTER HARD SIGN": "MODIFIER LETTER DOUBLE PRIME",
    "CYRILLIC SMALL LETTER SOFT SIGN": "MODIFIER LETTER PRIME",
    # The standard has one character for both cases; these make the table one that can be undone.
    "CYRILLIC CAPITAL LETTER HARD SIGN": "DOUBLE PRIME",
    "CYRILLIC CAPITAL LETTER SOFT SIGN": "PRIME",
}


def test_the_whole_table_in_both_cases_by_the_names_of_the_characters():
    table = SIGNS | {
        f"CYRILLIC {case} LETTER {cyrillic}": f"LATIN {case} LETTER {latin}"
        for cyrillic, latin in NAMES.items()
        for case in ("SMALL", "CAPITAL")
    }
    assert len(table) == len(ALPHABET) == 66
    assert {
        unicodedata.name(letter): unicodedata.name(latin)
        for letter, latin in transliteration.TO_LATIN.items()
    } == table


@given(st.text())
def test_nothing_but_russian_letters_is_touched(text):
    latin = transliteration.to_latin(text)
    assert len(latin) == len(text)
    for before, after in zip(text, latin, strict=True):
        assert (before != after) == (before in ALPHABET)


@given(st.text(ALPHABET + " -0123.,"))
def test_russian_text_can_be_written_back(text):
    latin = transliteration.to_latin(text)
    back = latin.translate(str.maketrans(transliteration.TO_CYRILLIC))
    assert back == text


@given(st.lists(st.text(ALPHABET + "xyz09-\n\r\t", min_size=1)))
def test_arrays_are_transliterated_word_by_word(words):
    found = transliteration.to_latin_words(pa.array(words, pa.string())).to_pylist()
    assert found == [transliteration.to_latin(word) for word in words]


def merge(left: str, right: str, final: bool = False) -> Merge:
    return Merge(Symbol(left, False), Symbol(right, final), 7)


def test_merges_are_written_in_both_scripts_where_they_can_be():
    merges = [merge("M", "o"), merge("w", "h"), merge("1", "9"), merge("Mo", "s", True)]
    assert transliteration.with_cyrillic(merges) == [
        merge("M", "o"), merge("М", "о"), merge("w", "h"), merge("1", "9"),
        merge("Mo", "s", True), merge("Мо", "с", True),
    ]  # fmt: skip


def test_merges_with_every_letter_come_in_both_scripts():
    latin = transliteration.to_latin(ALPHABET)
    merges = [merge(a, b) for a, b in itertools.pairwise(latin)]
    both = transliteration.with_cyrillic(merges)
    assert both[0::2] == merges
    assert both[1::2] == [merge(a, b) for a, b in itertools.pairwise(ALPHABET)]


@given(st.dictionaries(st.text(RUSSIAN[:6] + "12", min_size=1, max_size=6), st.integers(1, 9)))
def test_a_word_is_cut_at_the_same_places_in_both_scripts(words):
    latin = {transliteration.to_latin(word): count for word, count in words.items()}
    learnt = oracles.learn_bpe(latin, 30, 1)
    both = transliteration.with_cyrillic(
        [Merge(Symbol(*a), Symbol(*b), count) for (a, b), count in learnt]
    )
    pairs = [(tuple(m.left), tuple(m.right)) for m in both]
    for word in words:
        cyrillic = oracles.segment_word(word, pairs)
        transliterated = oracles.segment_word(transliteration.to_latin(word), pairs)
        assert [transliteration.to_latin(text) for text, _ in cyrillic] == [
            text for text, _ in transliterated
        ]
