"""Comparisons of segmenters against plain Python."""

import collections
import functools
import itertools

import numpy as np
import oracles
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rareword.schemas.vocabulary import UNK
from rareword.transforms import comparison, segmenters, segmenting
from rareword.transforms.comparison import BpeRules, NamePair, TextSide
from rareword.transforms.plain_text import WordCounts
from rareword.transforms.segmenters import VocabularyRules, WordSegmenter

line = st.text("abcdé ", max_size=16)
lines = st.lists(line, min_size=1, max_size=8)


def table_of(text: list[str]) -> WordCounts:
    counter = oracles.count_words(text)
    return WordCounts(
        pa.array(list(counter), pa.string()), np.array(list(counter.values()), np.int64)
    )


def side_of(text: list[str]) -> TextSide:
    return TextSide(table_of(text), sum(bool(line.strip(" ")) for line in text))


def bpe_pieces(text: list[str], merges: list[oracles.Symbols]) -> collections.Counter:
    """All pieces of a text, by the oracle."""
    return collections.Counter(
        symbol
        for line in text
        for word in oracles.split_words(line)
        for symbol in oracles.segment_word(word, merges)
    )


def has_words(text: list[str]) -> bool:
    return any(line.strip(" ") for line in text)


@given(lines.filter(has_words), lines, st.integers(0, 8))
def test_statistics_are_those_of_the_segmented_lines(train, test, limit):
    merges = [pair for pair, _ in oracles.learn_bpe(oracles.count_words(train), limit, 1)]
    rules = BpeRules(min_frequency=1)
    text = side_of(train)
    segmenter = comparison.bpe_segmenter(comparison.learn_pairs(text.words, limit, rules), rules)
    counted = comparison.count_text(segmenter, text)
    encoder = segmenter.encoder(comparison.training_vocabulary(segmenter, counted))
    found = comparison.statistics(segmenter, encoder, counted, text, side_of(test))

    expected, held_out = bpe_pieces(train, merges), bpe_pieces(test, merges)
    unknown = {piece: n for piece, n in held_out.items() if piece not in expected}
    words = sum(len(oracles.split_words(line)) for line in train)
    characters = set("".join(train))
    assert found.tokens == sum(expected.values())
    assert found.types == len(expected)
    assert found.fertility == pytest.approx(found.tokens / words)
    assert found.tokens_per_sentence == pytest.approx(
        found.tokens / sum(bool(line.strip(" ")) for line in train)
    )
    assert found.held_out_tokens == sum(held_out.values())
    assert found.unknown_tokens == sum(unknown.values())
    assert found.unknown_types == len(unknown)
    assert found.unk_pieces == sum(
        c not in characters for line in test for word in oracles.split_words(line) for c in word
    )


def test_statistics_of_words_counted_by_hand():
    train, test = ["das Haus ist groß", "das ist das", ""], ["das Boot ist das Boot", "ein Haus"]
    text, segmenter = side_of(train), WordSegmenter()
    counted = comparison.count_text(segmenter, text)
    encoder = segmenter.encoder(comparison.training_vocabulary(segmenter, counted))
    found = comparison.statistics(segmenter, encoder, counted, text, side_of(test))
    assert comparison.to_json(found) == {
        "tokens": 7,
        "types": 4,
        "fertility": 1.0,
        "tokens_per_sentence": 3.5,
        "held_out_tokens": 7,
        "unknown_tokens": 3,
        "unknown_types": 2,
        "unk_pieces": 3,
    }


@given(lines.filter(has_words), st.sampled_from(["characters", "bytes"]))
def test_the_vocabulary_is_that_of_the_segment_job(train, units):
    rules, table = BpeRules(units=units, min_frequency=1), table_of(train)
    segmenter = comparison.bpe_segmenter(comparison.learn_pairs(table, 6, rules), rules)
    found = comparison.training_vocabulary(
        segmenter, comparison.count_text(segmenter, TextSide(table))
    )
    both = {"source": segmenter, "target": segmenter}
    counts = {"source": table.counts, "target": np.zeros_like(table.counts)}
    pieces = segmenting.count_pieces(table.words, counts, both)
    pieces = segmenting.with_possible_pieces(pieces, both)
    expected = segmenters.build_vocabularies(pieces, VocabularyRules(joint=False)).source
    assert found.hash == expected.hash


class RawSegmenter:
    """Cuts raw lines into single characters, spaces included: the part of a raw text segmenter
    that is used here."""

    def count_lines(self, lines: pa.Array) -> pa.Table:
        sums = collections.Counter("".join(lines.to_pylist()))
        counts = [sums[c] for c in sorted(sums)]
        return segmenters.counted(sorted(sums), [False] * len(sums), counts)

    def encode(self, lines: pa.Array, threads: int = 1) -> segmenters.Encoded:
        texts = lines.to_pylist()
        ids = [3 if c in "ab " else UNK for text in texts for c in text]
        offsets = np.cumsum([0, *map(len, texts)])
        words = np.array([len(oracles.split_words(text)) for text in texts])
        return segmenters.Encoded(np.array(ids, np.int32), offsets, words)


def test_raw_text_is_counted_line_by_line():
    def side(text: list[list[str]]) -> TextSide:
        flat = [line for block in text for line in block]
        blocks = lambda: (pa.array(block, pa.string()) for block in text)  # noqa: E731
        return TextSide(table_of(flat), len(flat), blocks)

    segmenter = RawSegmenter()
    train, test = side([["ab ba", "a"], ["b  b"]]), side([["a c"], ["cab"]])
    counted = comparison.count_text(segmenter, train)
    found = comparison.statistics(segmenter, segmenter, counted, train, test)
    assert (found.tokens, found.types) == (10, 3)
    assert found.fertility == 10 / 5
    assert (found.held_out_tokens, found.unknown_tokens, found.unknown_types) == (6, 2, 1)
    assert found.unk_pieces == 2


# ---- numbers of merges ----


@given(lines.filter(has_words), lines, st.lists(st.integers(0, 10), min_size=1, max_size=4))
@settings(max_examples=60)
def test_a_sweep_is_so_many_separate_runs(train, test, sizes):
    rules = BpeRules(min_frequency=1)
    pairs = comparison.learn_pairs(table_of(train), max(sizes), rules)
    sweep = comparison.Sweep(pairs, rules, table_of(train), table_of(test), [1, 2, 5])
    for size in sizes:
        merges = [pair for pair, _ in oracles.learn_bpe(oracles.count_words(train), size, 1)]
        expected, held_out = bpe_pieces(train, merges), bpe_pieces(test, merges)
        merged = [n for (text, _), n in expected.items() if len(text) > 1]
        point = sweep.point(size)
        assert point.merges == len(merges)
        assert point.tokens == sum(expected.values())
        assert point.types == len(expected)
        assert point.merged == len(merged)
        assert point.unknown_tokens == sum(
            n for piece, n in held_out.items() if piece not in expected
        )
        for often in (1, 2, 5):
            assert point.types_at_least[often] == sum(n >= often for n in expected.values())
            assert point.merged_at_least[often] == sum(n >= often for n in merged)
    assert [point.merges for point in sweep.points] == sorted(
        {min(size, len(pairs)) for size in sizes}
    )


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60), min_size=1))
def test_the_suggested_size_holds_and_the_next_does_not(holding, sizes):
    found = comparison.largest_size(lambda size: size in holding, sorted(sizes))
    if found is None:
        assert not holding & sizes
        return
    assert found in holding
    assert found >= max(holding & sizes)
    assert found == max(sizes) or found + 1 not in holding


@given(st.integers(0, 60), st.sets(st.integers(0, 60), min_size=1))
def test_the_suggested_size_is_the_largest_where_the_rule_holds_up_to_a_size(last, sizes):
    sizes |= {0, 60}
    assert comparison.largest_size(lambda size: size <= last, sorted(sizes)) == last


# ---- names ----


@functools.cache
def distance(a: str, b: str) -> int:
    """Levenshtein's by its definition."""
    if not a or not b:
        return len(a) + len(b)
    return min(
        distance(a[1:], b) + 1, distance(a, b[1:]) + 1, distance(a[1:], b[1:]) + (a[0] != b[0])
    )


def cheapest_ways(a: str, b: str, i: int = 0, j: int = 0):
    """All alignments of least cost, each as the (letters of a, letters of b) that it passes."""
    if i == len(a) and j == len(b):
        yield 0, ((i, j),)
        return
    ways = []
    for x, y in ((1, 0), (0, 1), (1, 1)):
        if i + x <= len(a) and j + y <= len(b):
            step = 1 if x + y == 1 else int(a[i] != b[j])
            ways += [
                (cost + step, ((i, j), *way)) for cost, way in cheapest_ways(a, b, i + x, j + y)
            ]
    least = min(cost for cost, _ in ways)
    yield from (way for way in ways if way[0] == least)


name = st.text("abc", min_size=1, max_size=5)


@given(name, name)
def test_edit_distance(a, b):
    assert comparison.edit_distance(a, b) == distance(a, b)


@given(st.data())
def test_pieces_align_if_one_cheapest_alignment_passes_through_all_cuts(data):
    pieces = [
        data.draw(st.lists(st.text("ab", min_size=1, max_size=2), min_size=1, max_size=3))
        for _ in range(2)
    ]
    cuts = [list(itertools.accumulate(map(len, one))) for one in pieces]
    expected = len(cuts[0]) == len(cuts[1]) and any(
        set(zip(*cuts, strict=True)) <= set(way)
        for _, way in cheapest_ways("".join(pieces[0]), "".join(pieces[1]))
    )
    assert comparison.pieces_align(*pieces) == expected


def test_the_papers_mirzayeva():
    """Section 5.2: BPE-60k cuts the name Mirz|ayeva and Мир|за|ева, not alike."""
    russian = [comparison.comparable_name(piece) for piece in ("Мир", "за", "ева")]
    assert russian == ["mir", "za", "eva"]
    assert not comparison.pieces_align(["mirz", "ayeva"], russian)
    assert comparison.pieces_align(["mir", "za", "yeva"], russian)


def test_only_transliterations_are_compared():
    assert NamePair(["Germany"], ["Германия"]).is_transliterated(0.5)
    assert not NamePair(["Georgia"], ["Грузия"]).is_transliterated(0.5)
    assert NamePair(["Georgia"], ["Грузия"]).is_transliterated(5 / 7)
    assert not NamePair(["New", "York"], ["Нью-Йорк"]).is_transliterated(1)


def test_consistency_counted_by_hand():
    class Cut(segmenters.CuttingSegmenter):
        """Cuts at full stops, which stay with the piece before."""

        def cut(self, words):
            return [tuple(p for p in word.replace(".", ". ").split(" ") if p) for word in words]

    pairs = [
        NamePair(["a.b"], ["а.б"]),
        NamePair(["abc.d"], ["а.бцд"]),
        NamePair(["ab"], ["аб"]),
        NamePair(["a.b", "c"], ["а.б", "с"]),
        NamePair(["a.b", "c"], ["а.б", "с.c"]),
    ]
    found = comparison.consistency(pairs, Cut(), Cut())
    assert (found.pairs, found.consistent, found.both_whole) == (5, 3, 1)
    assert (found.share, found.share_of_cut) == (3 / 5, 2 / 4)


def test_joint_iso9_merges_cut_names_alike():
    """The same names in both alphabets: joint merges in Latin letters must cut all alike."""
    latin = ["mirza", "rzamir", "zamira", "mira", "zarim", "marzi"]
    cyrillic = ["мирза", "рзамир", "замира", "мира", "зарим", "марзи"]
    rules = BpeRules(transliterate=True, min_frequency=1)
    pairs = comparison.learn_pairs(table_of([*latin, *cyrillic]), 3, rules)
    segmenter = comparison.bpe_segmenter(pairs, rules)
    names = [NamePair([a], [b]) for a, b in zip(latin, cyrillic, strict=True)]
    found = comparison.consistency(names, segmenter, segmenter)
    assert found.consistent == found.pairs == 6
    assert found.both_whole < 6
