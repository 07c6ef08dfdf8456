"""Compound splitting against all splits of a word, tried one by one."""

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rareword.schemas.errors import RarewordError
from rareword.transforms import segmenters
from rareword.transforms.compounds import FILLERS, CompoundSegmenter, fold

# Figure 2 of Koehn and Knight (2003).
AKTIONSPLAN = {"aktionsplan": 852, "aktion": 960, "aktions": 5, "akt": 224, "ion": 1, "plan": 710}


def mean(*counts: int) -> float:
    return math.prod(counts) ** (1 / len(counts))


def brute_force(
    word: str, counts: dict[str, int], fillers: tuple[str, ...], length: int, least: int
) -> list[str]:
    """The pieces of the best of all 2^(n - 1) splits."""
    text = word.lower()
    fillers = ("", "-", *fillers, *(filler + "-" for filler in fillers))

    def frequency(part: str, is_last: bool) -> int:
        forms = (
            [part] if is_last else [part[: len(part) - len(f)] for f in fillers if part.endswith(f)]
        )
        return max(
            counts[form]
            if len(form) >= length and form.isalpha() and counts.get(form, 0) >= least
            else 0
            for form in forms
        )

    # Means of up to 5 parts compared exactly: by their 60th powers.
    best, chosen = (counts.get(text, 0) ** 60, -1, [len(word)]), [word]
    for number in range(1, len(word)):
        for cuts in itertools.combinations(range(1, len(word)), number):
            bounds = [0, *cuts, len(word)]
            parts = [text[a:b] for a, b in itertools.pairwise(bounds)]
            found = [frequency(part, i == number) for i, part in enumerate(parts)]
            if all(found):
                lengths = [len(part) for part in parts[::-1]]
                key = (math.prod(found) ** (60 // (number + 1)), -number - 1, lengths)
                if key > best:
                    best, chosen = key, [word[a:b] for a, b in itertools.pairwise(bounds)]
    return chosen


counters = st.dictionaries(
    st.text("absn-", min_size=1, max_size=5), st.integers(1, 9), min_size=1, max_size=25
)


@given(
    st.data(),
    counters,
    st.sampled_from([(), ("s",), ("s", "ns", "n")]),
    st.integers(2, 3),
    st.integers(1, 3),
)
def test_the_split_is_the_best_of_all(data, counts, fillers, length, least):
    parts = st.lists(st.sampled_from([*counts, *fillers, "-"]), min_size=1, max_size=4)
    word = data.draw(parts.map("".join).filter(lambda text: len(text) <= 11)) or "a"
    word = "".join(c.upper() if data.draw(st.booleans()) else c for c in word)
    segmenter = CompoundSegmenter(counts, fillers=fillers, min_length=length, min_count=least)
    (found,) = segmenter.cut([word])
    assert list(found) == brute_force(word, counts, fillers, length, least)
    assert "".join(found) == word


def test_the_papers_example_with_its_printed_values():
    assert mean(852) == 852
    assert round(mean(960, 710), 1) == 825.6
    assert round(mean(5, 710), 1) == 59.6
    assert round(mean(224, 1, 710), 1) == 54.2
    assert CompoundSegmenter(AKTIONSPLAN).cut(["Aktionsplan"]) == [["Aktionsplan"]]
    for count, pieces in ((826, ["Aktionsplan"]), (825, ["Aktions", "plan"])):
        segmenter = CompoundSegmenter({**AKTIONSPLAN, "aktionsplan": count})
        assert segmenter.cut(["Aktionsplan"]) == [pieces]
    # Without the fillers and the better parts, the others win in the order of their means.
    segmenter = CompoundSegmenter({**AKTIONSPLAN, "aktionsplan": 1}, fillers=())
    assert segmenter.cut(["Aktionsplan"]) == [["Aktions", "plan"]]
    rest = {"akt": 224, "ion": 1, "plan": 710}
    assert CompoundSegmenter(rest).cut(["Aktionsplan"]) == [["Akt", "ions", "plan"]]


def test_means_that_differ_by_less_than_a_double_can_tell_are_told_apart():
    big = 10**17
    counts = {"abc": big, "def": big + 2, "abcdef": big + 1}
    # (big + 1)^2 is greater than big (big + 2) by one.
    assert CompoundSegmenter(counts).cut(["abcdef"]) == [["abcdef"]]
    assert CompoundSegmenter({**counts, "abcdef": big}).cut(["abcdef"]) == [["abc", "def"]]


def test_hyphens_are_fillers_and_numbers_no_parts():
    segmenter = CompoundSegmenter({"fpö": 3, "chef": 9, "verhandler": 2, "000": 99, "meter": 5})
    assert segmenter.cut(["FPÖ-Chefverhandler", "10000-Meter", "x"]) == [
        ["FPÖ-", "Chef", "verhandler"],
        ["10000-Meter"],
        ("x",),
    ]


def test_case_is_folded_and_no_length_changes():
    counts = np.array([1, 2, 4, 8], np.int64)
    segmenter = CompoundSegmenter.learn(pa.array(["Tag", "TAG", "tag", "und"]), counts)
    assert segmenter.counts == {"tag": 7, "und": 8}
    assert segmenter.cut(["TagUnd"]) == [["Tag", "Und"]]
    assert fold("İSTANBUL") == "İstanbul"
    assert fold("ΟΔΟΣ") == "οδοσ"


@given(st.text())
def test_folding_keeps_the_length(text):
    assert len(fold(text)) == len(text)


def test_fillers_come_from_the_option_the_language_or_the_paper():
    def learn(**options):
        words = pa.array(["wort", "bild"])
        return CompoundSegmenter.learn(words, np.array([1, 1], np.int64), **options).fillers

    assert learn() == ["es", "s"]
    assert learn(language="de_AT") == list(FILLERS["de"])
    assert learn(language="fi") == []
    assert learn(language="de", fillers=["x"]) == ["x"]


def test_a_very_long_word_stays_whole():
    segmenter = CompoundSegmenter({"abc": 5})
    assert segmenter.cut(["abc" * 33, "abc" * 34]) == [["abc"] * 33, ("abc" * 34,)]


@given(counters, st.lists(st.text("absn-", min_size=1, max_size=12)))
def test_what_is_saved_cuts_alike(tmp_path_factory, counts, words):
    directory = str(tmp_path_factory.mktemp("saved"))
    segmenter = CompoundSegmenter(counts, fillers=["n"], min_length=2, min_count=2)
    segmenter.save(directory, "both")
    loaded = segmenters.class_of("compound", "here").load(directory, "both", segmenter.settings())
    assert loaded.cut(words) == segmenter.cut(words)
    assert loaded.settings() == segmenter.settings()


def test_what_makes_no_sense_is_refused():
    with pytest.raises(RarewordError, match="not 0 and 1"):
        CompoundSegmenter({}, min_length=0)
