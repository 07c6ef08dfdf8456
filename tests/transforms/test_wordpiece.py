"""WordPiece against plain code and the printed values of a worked example."""

import collections
import itertools
from typing import NamedTuple

import numpy as np
import oracles
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rareword.schemas import storage
from rareword.schemas.errors import RarewordError
from rareword.schemas.merges import Symbol
from rareword.schemas.vocabulary import SPECIALS, UNK, Vocabulary
from rareword.transforms import segmenters
from rareword.transforms.wordpiece import INSIDE, Learner, Step, WordPieceSegmenter

words_with_counts = st.dictionaries(
    st.text("abcé\U0001f600", min_size=1, max_size=9), st.integers(1, 9), min_size=1, max_size=12
)


def columns(counter: dict[str, int]) -> tuple[pa.Array, np.ndarray]:
    return pa.array(list(counter), pa.string()), np.array(list(counter.values()), np.int64)


def learn(counter: dict[str, int], **options: int) -> WordPieceSegmenter:
    return WordPieceSegmenter.learn(*columns(counter), **options)


def steps(counter: dict[str, int], min_frequency: int) -> list[Step]:
    words, counts = columns(counter)
    return list(Learner(words.to_pylist(), counts, min_frequency).steps())


# ---- learning ----


class Counts(NamedTuple):
    symbols: collections.Counter[str]
    pairs: collections.Counter[tuple[str, str]]


def count(table: dict[str, list[str]], counter: dict[str, int]) -> Counts:
    symbols, pairs = collections.Counter(), collections.Counter()
    for word, cut in table.items():
        for symbol in cut:
            symbols[symbol] += counter[word]
        for pair in itertools.pairwise(cut):
            pairs[pair] += counter[word]
    return Counts(symbols, pairs)


def slow_steps(counter: dict[str, int], min_frequency: int) -> list[Step]:
    """All counts anew for every step."""
    table = {word: list(word) for word in counter}
    found = []
    while True:
        symbols, pairs = count(table, counter)
        scores = {
            (a, b): (n / (symbols[a] * symbols[b]), n)
            for (a, b), n in pairs.items()
            if n >= min_frequency
        }
        if not scores:
            return found
        best = max(scores.values())
        left, right = min(pair for pair, score in scores.items() if score == best)
        initial = inside = False
        for word, cut in table.items():
            joined: list[str] = []
            i = 0
            while i < len(cut):
                if cut[i : i + 2] == [left, right]:
                    initial, inside = initial or not i, inside or i > 0
                    joined.append(left + right)
                    i += 2
                else:
                    joined.append(cut[i])
                    i += 1
            table[word] = joined
        score, pair_count = best
        found.append(Step(left, right, pair_count, score, initial, inside))


@given(words_with_counts, st.integers(1, 4))
def test_learning_takes_the_steps_of_plain_code(counter, min_frequency):
    assert steps(counter, min_frequency) == slow_steps(counter, min_frequency)


TALL = collections.Counter(["the", "tall", "man", "is", "taller", "than", "the", "tallest", "man"])


def test_the_worked_example_has_its_printed_values():
    # Lecture notes on "the tall man is taller than the tallest man": symbol counts, scores and the
    # first two steps.
    symbols, pairs = count({word: list(word) for word in TALL}, TALL)
    printed = {"t": 7, "a": 6, "l": 6, "e": 4, "h": 3, "n": 3, "m": 2, "s": 2, "i": 1, "r": 1}
    assert symbols == printed
    scores = {pair: n / (symbols[pair[0]] * symbols[pair[1]]) for pair, n in pairs.items()}
    for pair, score in (("th", 0.14), ("an", 0.17), ("ll", 0.08), ("er", 0.25), ("is", 0.50)):
        assert round(scores[tuple(pair)], 2) == score
    first, second, *_ = steps(TALL, 1)
    assert first == Step("i", "s", 1, 0.50, initial=True, inside=False)
    assert second == Step("e", "r", 1, 0.25, initial=False, inside=True)


@given(words_with_counts, st.integers(1, 3), st.integers(0, 12))
def test_learning_stops_at_the_number_of_pieces_and_knows_where_they_were_seen(
    counter, min_frequency, more
):
    characters = sorted(set("".join(counter)))
    pieces = 2 * len(characters) + more
    segmenter = learn(counter, pieces=pieces, min_frequency=min_frequency)
    initial, inside = list(characters), list(characters)
    for step in slow_steps(counter, min_frequency):
        text = step.left + step.right
        new = [
            form
            for form, seen in ((initial, step.initial), (inside, step.inside))
            if seen and text not in form
        ]
        if len(initial) + len(inside) + len(new) > pieces:
            break
        for form in new:
            form.append(text)
    assert (list(segmenter.initial), list(segmenter.inside)) == (initial, inside)
    assert len(segmenter.tokens) <= pieces


@given(words_with_counts, st.randoms())
def test_order_and_shards_of_the_words_do_not_matter(counter, random):
    rows = [(word, 1) for word, count in counter.items() for _ in range(count)]
    random.shuffle(rows)
    words, counts = [word for word, _ in rows], [count for _, count in rows]
    split = WordPieceSegmenter.learn(pa.array(words), np.array(counts), pieces=30, min_frequency=2)
    one = learn(counter, pieces=30, min_frequency=2)
    assert (split.initial, split.inside) == (one.initial, one.inside)


@given(words_with_counts, st.integers(0, 8))
def test_the_chosen_frequency_gives_all_pieces_if_any_does(counter, more):
    pieces = 2 * len(set("".join(counter))) + more
    chosen = learn(counter, pieces=pieces)
    most = max(
        len(learn(counter, pieces=pieces, min_frequency=frequency).tokens)
        for frequency in range(1, sum(counter.values()) + 2)
    )
    # The last step may bring two pieces where one fits.
    assert len(chosen.tokens) in (most, most - 1)


def test_the_chosen_frequency_is_the_highest_to_a_tenth():
    # 200 words of two characters each, all different, word k occurs k times: frequency f gives as
    # many pieces beside the characters as there are words with k >= f, and the rarest come first.
    counter = {chr(0x4E00 + 2 * k) + chr(0x4E01 + 2 * k): k for k in range(1, 201)}
    chosen = learn(counter, pieces=2 * 400 + 50)
    found = sorted(counter[word] for word in chosen.initial[400:])
    assert found == list(range(found[0], found[0] + 50))
    assert 151 / 1.1 <= found[0] <= 151


def test_too_few_pieces_are_refused():
    with pytest.raises(RarewordError, match="ask for 20 or more"):
        learn(TALL, pieces=19)


# ---- cutting ----


def slow_cut(word: str, initial: set[str], inside: set[str]) -> list[str]:
    cut: list[str] = []
    while word:
        known = inside if cut else initial
        sizes = [n for n in range(1, len(word) + 1) if word[:n] in known]
        size = max(sizes, default=1)
        cut.append(word[:size])
        word = word[size:]
    return cut


pieces_lists = st.lists(st.text("abc", min_size=1, max_size=4), max_size=10)


@given(pieces_lists, pieces_lists, st.lists(st.text("abcd", min_size=1, max_size=12)))
def test_the_longest_match_comes_first(initial, inside, words):
    segmenter = WordPieceSegmenter(initial, inside)
    assert [list(cut) for cut in segmenter.cut(words)] == [
        slow_cut(word, set(initial), set(inside)) for word in words
    ]


def test_initial_pieces_match_at_the_beginning_alone():
    segmenter = WordPieceSegmenter(["play", "ing"], ["ing"])
    assert list(map(list, segmenter.cut(["playing", "ingplay"]))) == [
        ["play", "ing"],
        ["ing", "p", "l", "a", "y"],
    ]
    assert segmenter.tokens == ["play", "ing", "##ing"]


def test_a_piece_that_looks_like_an_inside_piece_is_not_exported():
    assert WordPieceSegmenter(["#", "##"], ["##a"]).tokens == ["#", INSIDE, "####a"]
    with pytest.raises(RarewordError, match="cannot tell it"):
        _ = WordPieceSegmenter(["##a"], []).tokens


def test_long_words_become_characters_and_are_counted():
    counter = {"abab": 3, "abababab": 5}
    segmenter = learn(counter, pieces=7, min_frequency=1, max_word_length=4)
    assert segmenter.left_out == {"types": 1, "tokens": 5}
    assert list(map(list, segmenter.cut(["abab", "ababa"]))) == [["abab"], list("ababa")]
    lines = pa.array(["abab ababa", None, "", " ababab  ababa ", "ab ab ab", "éééé ééééé"])
    assert segmenter.count_long_words(lines) == 4


# ---- the protocol ----


def vocabulary_of(segmenter: segmenters.Segmenter, counter: dict[str, int]) -> Vocabulary:
    counted = segmenter.count_pieces(*columns(counter)).to_pydict()
    table = pa.table(
        {
            **{name: counted[name] for name in ("piece", "final", "bytes")},
            "source_count": counted["count"],
            "target_count": [0] * len(counted["count"]),
        },
        schema=segmenters.PIECE_COUNTS,
    )
    return segmenters.build_vocabularies(table, segmenters.VocabularyRules(True)).source


def rows(encoded: segmenters.Encoded) -> list[list[int]]:
    return [encoded.ids[a:b].tolist() for a, b in itertools.pairwise(encoded.offsets.tolist())]


any_line = st.lists(
    st.sampled_from(["ab", "c", "é", " ", "  ", "##", "\u2581", "\x00", "\t", "@@"])
    | st.characters(exclude_categories=["Cs"]),
    max_size=20,
).map("".join)


@given(st.lists(any_line, max_size=4), st.lists(any_line, max_size=4), st.integers(0, 20))
def test_any_text_comes_back_but_for_unknown_characters(train, test, more):
    counter = oracles.count_words(train)
    characters = set("".join(counter))
    options = {"pieces": 2 * len(characters) + more, "min_frequency": 1, "max_word_length": 7}
    segmenter = learn(counter, **options)
    vocabulary = vocabulary_of(segmenter, counter)
    text = [*train, *test]
    encoded = segmenter.encoder(vocabulary).encode(pa.array(text, pa.string()))
    for line, ids in zip(text, rows(encoded), strict=True):
        words = oracles.split_words(line)
        assert ids.count(UNK) == sum(c not in characters for word in words for c in word)
        if UNK not in ids:
            assert vocabulary.words(ids) == " ".join(words)
    assert encoded.words.tolist() == [len(oracles.split_words(line)) for line in text]


@given(words_with_counts)
def test_a_saved_segmenter_is_loaded_again(counter):
    segmenter = learn(counter, pieces=20, min_frequency=1, max_word_length=8)
    both = {"source": segmenter, "target": segmenter}
    (record,) = segmenters.save(both, "memory://wordpiece")
    assert "both" in record.name
    assert storage.exists(f"memory://wordpiece/{record.name}")
    loaded = segmenters.load("memory://wordpiece", "wordpiece", segmenters.settings(both))["source"]
    assert isinstance(loaded, WordPieceSegmenter)
    assert (loaded.initial, loaded.inside) == (segmenter.initial, segmenter.inside)
    assert loaded.settings() == segmenter.settings()
    assert loaded.cut(list(counter)) == segmenter.cut(list(counter))


def test_the_vocabulary_holds_the_special_pieces_first():
    vocabulary = vocabulary_of(learn(TALL, pieces=24, min_frequency=1), TALL)
    assert tuple(map(Symbol, vocabulary.pieces[:3], vocabulary.final[:3])) == SPECIALS
    ids = rows(learn(TALL, pieces=24, min_frequency=1).encoder(vocabulary).encode(pa.array(["is"])))
    assert vocabulary.display(ids[0]) == ["is"]
