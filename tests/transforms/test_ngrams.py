"""Character n-grams against subword-nmt and plain Python."""

import collections
import io
import types

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from subword_nmt.segment_char_ngrams import segment_char_ngrams

from rareword.schemas.errors import RarewordError
from rareword.schemas.vocabulary import UNK, Symbol
from rareword.transforms import segmenters
from rareword.transforms.ngrams import NgramSegmenter
from rareword.transforms.rendering import NgramRenderer
from rareword.transforms.segmenters import VocabularyRules, pieces_of_words

words = st.text("abcdé€𝒳", min_size=1, max_size=9)
counters = st.dictionaries(words, st.integers(1, 5), min_size=1, max_size=20)


def learnt(counter: dict[str, int], **options: int) -> NgramSegmenter:
    counts = np.array(list(counter.values()), np.int64)
    return NgramSegmenter.learn(pa.array(list(counter), pa.string()), counts, **options)


def vocabulary_of(segmenter: segmenters.Segmenter, counter: dict[str, int]):
    counts = np.array(list(counter.values()), np.int64)
    table = segmenter.count_pieces(pa.array(list(counter), pa.string()), counts)
    both = {"source_count": table["count"], "target_count": table["count"]}
    table = pa.table({**{name: table[name] for name in ("piece", "final", "bytes")}, **both})
    return segmenters.build_vocabularies(table, VocabularyRules(joint=True)).source


@given(counters, st.lists(words, min_size=1), st.integers(1, 4), st.integers(1, 6))
def test_pieces_are_those_of_subword_nmt_whose_shortlist_has_one_more(counter, text, n, k):
    ranked = sorted(counter, key=lambda word: (-counter[word], word))
    out = io.StringIO()
    vocab = [f"{word} {counter[word]}\n" for word in ranked]
    line = " ".join(text)
    segment_char_ngrams(
        types.SimpleNamespace(
            vocab=vocab, shortlist=k - 1, n=n, input=[line], output=out, separator="@@"
        )
    )
    segmenter = learnt(counter, ngram=n, shortlist=k)
    expected = out.getvalue().split()
    assert [
        piece + "@@" * (i < len(pieces) - 1)
        for pieces in segmenter.cut(text)
        for i, piece in enumerate(pieces)
    ] == expected
    assert NgramRenderer(set(segmenter.shortlist), n).render(line).split() == expected


@given(counters, st.integers(1, 4), st.integers(0, 25))
def test_exactly_the_most_frequent_words_are_kept_whole(counter, n, k):
    segmenter = learnt(counter, ngram=n, shortlist=k)
    ranked = collections.Counter(counter).most_common()
    ranked.sort(key=lambda one: (-one[1], one[0]))
    assert segmenter.shortlist == dict(ranked[:k])
    for word, pieces in zip(counter, segmenter.cut(list(counter)), strict=True):
        assert "".join(pieces) == word
        assert (len(pieces) == 1) == (word in segmenter.shortlist or len(word) <= n)
        if word not in segmenter.shortlist:
            assert {len(piece) for piece in pieces[:-1]} <= {n}


def test_a_word_that_does_not_occur_is_not_in_the_shortlist():
    assert learnt({"a": 0, "b": 2}, shortlist=5).shortlist == {"b": 2}


def test_an_unseen_ngram_is_spelled_and_only_an_unseen_character_is_unknown():
    counter = {"the": 9, "abcd": 2, "xab": 1}
    segmenter = learnt(counter, ngram=2, shortlist=1)
    vocabulary = vocabulary_of(segmenter, counter)
    encoded = segmenter.encoder(vocabulary).encode(pa.array(["the abcd bdab dz"]))
    ids = encoded.ids.tolist()
    assert vocabulary.display(ids) == [
        *("the", "ab@@", "cd"),
        *("b@@", "d@@", "a@@", "b"),  # bd was never seen, and ab only inside words
        *("d@@", "<unk>"),
    ]
    assert vocabulary.words(ids[:-2]) == "the abcd bdab"
    assert vocabulary.id(Symbol("ab", False)) != UNK
    assert vocabulary.id(Symbol("ab", True)) == UNK


@given(counters, st.integers(1, 3), st.integers(0, 5))
def test_what_is_saved_cuts_alike(tmp_path_factory, counter, n, k):
    directory = str(tmp_path_factory.mktemp("saved"))
    segmenter = learnt(counter, ngram=n, shortlist=k)
    (record,) = segmenter.save(directory, "target")
    assert record.name == "lexicon-target.parquet"
    loaded = segmenters.class_of("char-ngram", "here").load(
        directory, "target", segmenter.settings()
    )
    assert loaded.shortlist == segmenter.shortlist
    assert pieces_of_words(loaded, list(counter)) == pieces_of_words(segmenter, list(counter))


@pytest.mark.parametrize(
    ("options", "named"), [({"ngram": 0}, "--ngram"), ({"shortlist": -1}, "--shortlist")]
)
def test_what_makes_no_sense_is_refused(options, named):
    with pytest.raises(RarewordError, match=named):
        learnt({"a": 1}, **options)
