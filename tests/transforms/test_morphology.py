"""Morfessor and hyphenation against their libraries, called as their documentation says."""

import collections
import functools
import json
import math
import random
import sys

import morfessor
import numpy as np
import pyarrow as pa
import pyphen
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rareword.schemas.errors import RarewordError
from rareword.transforms import segmenters
from rareword.transforms.morphology import HyphenationSegmenter, MorfessorSegmenter

STEMS = ["walk", "talk", "jump", "play", "open", "turn", "look", "call", "clean", "paint"]
WORDS = collections.Counter(
    {
        prefix + stem + ending: 1 + 7 * len(stem) % 5 + len(ending)
        for stem in STEMS
        for ending in ("", "s", "ed", "ing", "er", "ers")
        for prefix in ("", "re", "over")
    }
)
WORDS["well-known"] = 3


def learnt(counter=WORDS, **options) -> MorfessorSegmenter:
    counts = np.array(list(counter.values()), np.int64)
    return MorfessorSegmenter.learn(pa.array(list(counter), pa.string()), counts, **options)


def library_model(dampen, weight=1.0, seed=1):
    model = morfessor.BaselineModel(forcesplit_list=["-"], corpusweight=weight)
    model.load_data([(WORDS[word], word) for word in sorted(WORDS)], count_modifier=dampen)
    state = random.getstate()
    random.seed(seed)
    model.train_batch()
    random.setstate(state)
    return model


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ({}, (lambda count: 1,)),
        ({"dampening": "log"}, (lambda count: round(math.log2(count + 1)),)),
        ({"dampening": "tokens"}, (None,)),
        ({"corpus_weight": 0.3, "seed": 7}, (lambda count: 1, 0.3, 7)),
    ],
)
def test_pieces_are_the_librarys(options, arguments, tmp_path):
    model = library_model(*arguments)
    segmenter = learnt(**options)
    unseen = ["replayable", "overcleaners", "x", "ж", "walk-in", "openededed", "w" * 40]
    texts = [*WORDS, *unseen]
    expected = [model.viterbi_segment(word)[0] for word in texts]
    assert segmenter.cut(texts) == expected
    assert any(len(pieces) > 1 for pieces in expected)
    segmenter.save(str(tmp_path), "source")
    kept = json.loads(json.dumps(segmenter.settings()))
    loaded = segmenters.class_of("morfessor", "here").load(str(tmp_path), "source", kept)
    assert loaded.cut(texts) == expected
    assert loaded.settings() == segmenter.settings()


def test_learning_depends_on_words_and_options_alone():
    before = random.getstate()
    shuffled = list(WORDS.items())
    random.Random(3).shuffle(shuffled)
    assert learnt(dict(shuffled)).morphs == learnt().morphs
    assert random.getstate() == before


@settings(max_examples=20)
@given(st.lists(st.text("walked-é𝒳 ".replace(" ", ""), min_size=1, max_size=40)))
def test_the_pieces_of_any_word_join_to_it(words):
    assert ["".join(pieces) for pieces in SEGMENTER.cut(words)] == words


SEGMENTER = learnt()


def test_very_long_and_rare_words_are_left_out_and_counted():
    segmenter = learnt({**WORDS, "ab" * 51: 9, "rare": 1}, min_count=2)
    rare = sum(count < 2 for count in WORDS.values())
    assert segmenter.settings()["left_out"] == rare + 2
    (pieces,) = segmenter.cut(["ab" * 51])
    assert "".join(pieces) == "ab" * 51


def test_no_words_give_no_morphs():
    assert learnt({}).cut(["abc"]) == [("abc",)]


def test_a_corpus_weight_of_nothing_is_refused():
    with pytest.raises(RarewordError, match="above 0"):
        learnt(corpus_weight=0.0)


# ---- hyphenation ----


@pytest.mark.parametrize("language", ["de", "en_GB", "ru_RU", "hu_HU", "nl_NL"])
def test_cuts_are_where_the_library_puts_hyphens(language):
    words = [
        "Lettergrepen",
        "Donaudampfschifffahrt",
        "international",
        "разделение",
        "asszonnyal",
        "a",
    ]
    segmenter = HyphenationSegmenter.learn(pa.array(words), np.ones(6, np.int64), language=language)
    library = pyphen.Pyphen(lang=language)
    for word, pieces in zip(words, segmenter.cut(words), strict=True):
        ends = np.cumsum([len(piece) for piece in pieces])[:-1].tolist()
        assert ends == [int(position) for position in library.positions(word)]
        assert "".join(pieces) == word
        if all(position.data is None for position in library.positions(word)):
            assert "=".join(pieces) == library.inserted(word, "=")


def test_a_letter_whose_lower_case_is_two_shifts_no_place():
    segmenter = HyphenationSegmenter("de")
    assert segmenter.cut(["İnternational"]) == [
        ["İ" + piece[1:] if i == 0 else piece for i, piece in enumerate(pieces)]
        for pieces in segmenter.cut(["International"])
    ]


@functools.cache
def german() -> HyphenationSegmenter:
    return HyphenationSegmenter("de")  # a second to load


@given(st.lists(st.text(min_size=1).map(lambda text: text.replace(" ", "_"))))
@settings(deadline=None)
def test_any_word_comes_back(words):
    assert ["".join(pieces) for pieces in german().cut(words)] == words


def test_hyphenation_is_loaded_by_its_language(tmp_path):
    segmenter = HyphenationSegmenter("de_AT")
    assert segmenter.save(str(tmp_path), "both") == []
    found = segmenters.load(str(tmp_path), "hyphenation", {"both": segmenter.settings()})
    assert found["source"].cut(["Zeitungen"]) == segmenter.cut(["Zeitungen"])


@pytest.mark.parametrize(
    ("language", "says"),
    [
        ("enx", "near it are en, en_GB, en_US"),
        ("zz", "there are"),
        (None, "give --source-language"),
    ],
)
def test_a_language_without_patterns_is_a_sentence(language, says):
    with pytest.raises(RarewordError, match=says):
        HyphenationSegmenter.learn(pa.array(["a"]), np.ones(1, np.int64), language=language)


@pytest.mark.parametrize("name", ["morfessor", "pyphen"])
def test_a_missing_library_is_a_sentence_that_says_what_to_install(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        RarewordError, match=rf"library {name}: pip install 'rareword\[segmenters\]'"
    ):
        learnt() if name == "morfessor" else HyphenationSegmenter("de")
