"""Loops and marks in outputs against plain Python and cases made by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rareword.transforms import outputs
from rareword.transforms.outputs import Share
from rareword.transforms.unigrams import Lexicon


@given(st.lists(st.lists(st.sampled_from("ab"), max_size=12), max_size=4), st.integers(1, 4))
def test_repeats_are_n_grams_equal_to_the_next_one(sentences: list[list[str]], n: int) -> None:
    found = total = 0
    for words in sentences:
        for begin in range(len(words) - n + 1):
            total += 1
            following = words[begin + n : begin + 2 * n]
            found += words[begin : begin + n] == following
    assert outputs.repeats(Lexicon().encode(sentences), n) == Share(found, total)


def test_loops_are_words_with_the_same_characters_four_times_in_a_row() -> None:
    words = ["......", "hahahaha", "schnellschnell", "Schifffahrt", "1000000", "abcdabcdabcdabcd"]
    lexicon = Lexicon()
    text = lexicon.encode([words, ["......"]])
    assert outputs.loops(text, lexicon.words) == Share(4, 7)
    assert outputs.loops(lexicon.encode([]), lexicon.words) == Share(0, 0)
    assert Share(0, 0).share == 0


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("Ze@@ bra", ["@@"]),
        ("Ze@@", ["@@"]),
        ("user@@home", []),
        ("ze ##bra", ["##"]),
        ("C## and # 5", []),
        ("▁ze bra", ["▁"]),
        ("plain text", []),
    ],
)
def test_marks_of_pieces_are_told_from_signs_of_text(text: str, marks: list[str]) -> None:
    found = outputs.marked([text, "no mark"])
    assert [mark for mark, count in found.items() if count] == marks
    assert sum(found.values()) == len(marks)


def test_detached_stops_are_those_behind_a_space() -> None:
    texts = ["It is .", "It is.", "Is it ?", "Vraiment !", ".", "", "so ... . ", "no stop"]
    assert outputs.detached(texts) == Share(2, 4)
