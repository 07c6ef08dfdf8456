"""ISO 9:1995."""

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


@given(st.lists(st.text(ALPHABET + "xyz09-", min_size=1)))
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
