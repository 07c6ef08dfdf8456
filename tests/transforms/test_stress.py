"""The stress report: what happens to words, and what segmenters lose."""

import unicodedata

import numpy as np
import oracles
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rareword.transforms import comparison, stress
from rareword.transforms.comparison import BpeRules, TextSide
from rareword.transforms.plain_text import WordCounts
from rareword.transforms.segmenters import WordSegmenter

TRAIN = ["das große Haus steht am Wasser", "ein Haus am See", "Großes Wasser"]
words = st.lists(st.text("aeioußstrHW文", min_size=2, max_size=8), min_size=1, max_size=12)


def text_of(lines):
    counter = oracles.count_words(lines)
    counts = np.array(list(counter.values()), np.int64)
    return TextSide(WordCounts(pa.array(list(counter), pa.string()), counts))


def ready(segmenter, text):
    counted = comparison.count_text(segmenter, text)
    vocabulary = comparison.training_vocabulary(segmenter, counted)
    return segmenter.encoder(vocabulary), vocabulary, stress.characters_of(text.words.words)


def bpe(text, merges, units="characters"):
    rules = BpeRules(units=units, min_frequency=1)
    return comparison.bpe_segmenter(comparison.learn_pairs(text.words, merges, rules), rules)


@given(words, st.integers(0, 5))
def test_perturbations_do_what_they_say(found, seed):
    for before, after in stress.perturb(found, "emoji", seed):
        assert "".join(c for c in after if c not in stress.EMOJI) == before
        assert len(after) == len(before) + 1
    others = set("".join(stress.OTHER_SCRIPTS.values()))
    for before, after in stress.perturb(found, "other scripts", seed):
        (at,) = {i for i in range(len(after)) if after[:i] + after[i + 1 :] == before} or {None}
        new = after[at]
        assert new in others
        assert unicodedata.name(new).split()[0] not in {
            unicodedata.name(c).split()[0] for c in before
        }
    for before, after in stress.perturb(found, "full-width forms", seed):
        assert len(after) == len(before)
        assert unicodedata.normalize("NFKC", after) == unicodedata.normalize("NFKC", before)
    for before, after in stress.perturb(found, "combining marks", seed):
        assert "".join(c for c in after if not unicodedata.combining(c)) == before
    for before, after in stress.perturb(found, "typos", seed):
        assert set(after) <= set(before)
        assert 1 <= comparison.edit_distance(before, after) <= 2


@pytest.mark.parametrize("kind", stress.PERTURBATIONS)
def test_the_seed_alone_decides(kind):
    found = ["Wasser", "Haus", "große"] * 10
    assert stress.perturb(found, kind, 1) == stress.perturb(found, kind, 1)
    assert stress.perturb(found, kind, 1) != stress.perturb(found, kind, 2)


def test_the_sample_has_a_word_of_each_line():
    lines = [f"{'x' * k} a {'y' * k}" for k in range(30)]  # the first two have none
    found = stress.sample(lines, 100, 1)
    assert [len(word) for word in found] == list(range(2, 30))
    few = stress.sample(lines, 7, 1)
    assert few == stress.sample(lines, 7, 1) != stress.sample(lines, 7, 2)
    assert len(few) == 7
    assert few == sorted(few, key=len)


@given(words, st.integers(0, 12))
def test_bpe_loses_unknown_characters_and_nothing_else(found, merges):
    text = text_of(TRAIN)
    encoder, vocabulary, known = ready(bpe(text, merges), text)
    for kind in stress.PERTURBATIONS:
        pairs = stress.perturb(found, kind, 1)
        result = stress.measure(pairs, encoder, vocabulary, known)
        unknown = sum(c not in known for _, word in pairs for c in word)
        assert result.unknown_pieces == result.unknown_characters == unknown
        assert result.spoilt == 0
        assert result.words == len(pairs)


@given(words)
def test_bytes_lose_nothing(found):
    text = text_of(TRAIN)
    measured = stress.stress(found, *ready(bpe(text, 9, "bytes"), text), seed=3)
    assert set(measured) == set(stress.PERTURBATIONS)
    for result in measured.values():
        assert (result.unknown_pieces, result.spoilt) == (0, 0)


def test_whole_words_are_spoilt_once():
    text = text_of(TRAIN)
    pairs = [
        ("Haus", "Ha🐈us"),  # known, then lost with all its letters
        ("Haus", "Hasu"),
        ("Haus", "Wasser"),  # still a known word
        ("Hase", "Ha🐈se"),  # was unknown before
        ("am", "文字"),  # all of it unknown anyway
    ]
    result = stress.measure(pairs, *ready(WordSegmenter(), text))
    assert result.words == 5
    assert result.unknown_pieces == 4
    assert result.pieces == 5
    assert result.unknown_characters == 4
    assert result.spoilt == 2
