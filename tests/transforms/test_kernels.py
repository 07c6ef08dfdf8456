"""The C++ kernels against plain Python."""

import collections
import itertools

import numpy as np
import oracles
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rareword.transforms import _kernels

EMPTY = np.empty(0, np.int32)
# Few letters, so that repeats, overlaps and ties are the rule; and all that is odd in text.
LETTERS = "ab</w>@\u0000\u00a0\u0301é日\U0001f600"
words_with_counts = st.dictionaries(
    st.text("ab", min_size=1, max_size=12) | st.text(LETTERS, min_size=1, max_size=8),
    st.integers(1, 9),
    min_size=1,
    max_size=12,
)
line = st.text(LETTERS + " ", max_size=30)


def to_dict(offsets, data, *columns):
    raw = bytes(data)
    words = [raw[a:b].decode() for a, b in itertools.pairwise(offsets)]
    return {word: tuple(int(c[i]) for c in columns) for i, word in enumerate(words)}


def count(source: pa.Array, target: pa.Array, threads: int = 1, parts: int = 1):
    counter = _kernels.WordCounter(threads)
    counter.add_lines(source, target)
    return counter.take(parts)


def symbol(number: int, merges: list[oracles.Symbols]) -> tuple[str, bool]:
    if number >= _kernels.FIRST_MERGED:
        left, right = merges[number - _kernels.FIRST_MERGED]
        return left[0] + right[0], right[1]
    return chr(number >> 1), bool(number & 1)


def learn(words: dict[str, int], limit: int, threshold: int) -> list[tuple[oracles.Symbols, int]]:
    symbols = _kernels.base_symbols(pa.array(list(words)), np.array(list(words.values())))
    left, right, counts = _kernels.learn_merges(*symbols, EMPTY, EMPTY, limit, threshold)
    merges: list[oracles.Symbols] = []
    for a, b in zip(left, right, strict=True):
        merges.append((symbol(a, merges), symbol(b, merges)))
    return list(zip(merges, counts.tolist(), strict=True))


@given(
    st.lists(st.tuples(st.lists(line, max_size=6), st.lists(line, max_size=6)), max_size=3),
    st.integers(1, 4),
    st.integers(1, 3),
)
@settings(deadline=None)
def test_words_are_counted_as_a_counter_does(batches, threads, parts):
    counter = _kernels.WordCounter(threads)
    for source, target in batches:
        counter.add_lines(pa.array(source, pa.string()), pa.array(target, pa.string()))
    found = counter.take(parts)
    a = oracles.count_words(line for source, _ in batches for line in source)
    b = oracles.count_words(line for _, target in batches for line in target)
    assert to_dict(*found[:4]) == {word: (a[word], b[word]) for word in a | b}
    bounds = found[4].tolist()
    assert bounds[0] == 0
    assert bounds[-1] == len(a | b) == len(found[2])
    assert bounds == sorted(bounds)
    assert len(counter.take()[2]) == 0, "taken words are gone"


@given(st.lists(st.text(max_size=12) | st.text("ab", max_size=20)))
def test_strings_are_sorted_by_their_bytes(texts):
    found = _kernels.sorted_rows(pa.array(texts, pa.string()))
    assert found.tolist() == sorted(range(len(texts)), key=lambda row: texts[row].encode())


@given(st.dictionaries(st.text(LETTERS, min_size=1, max_size=20), st.integers(1, 2**62)))
@settings(deadline=None)
def test_counted_words_add_up(table):
    counter = _kernels.WordCounter(2)
    column, counts = pa.array(list(table), pa.string()), np.array(list(table.values()), np.int64)
    counter.add_counts(column, counts, np.zeros(len(table), np.int64))
    counter.add_counts(column, np.ones(len(table), np.int64), counts)
    assert to_dict(*counter.take()[:4]) == {word: (n + 1, n) for word, n in table.items()}


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_count_words_takes_slices_and_nulls_with_offsets_of_both_widths(kind):
    lines = pa.array(["x x", "a b", None, "a", "y"], kind).slice(1, 3)
    assert to_dict(*count(lines, pa.array([], kind))[:4]) == {"a": (2, 0), "b": (1, 0)}


@given(st.lists(st.text(" ab", min_size=55, max_size=140), max_size=4))
def test_lines_longer_than_a_block_of_64_bytes_are_split_alike(lines):
    found = to_dict(*count(pa.array(lines, pa.string()), pa.array([], pa.string()))[:4])
    assert {word: n for word, (n, _) in found.items()} == oracles.count_words(lines)


def test_a_words_part_is_a_function_of_its_bytes_alone():
    def parts(*lines, threads=1):
        found = count(pa.array(lines), pa.array([], pa.string()), threads, 7)
        words = list(to_dict(*found[:4]))
        spans = itertools.pairwise(found[4].tolist())
        return {word: p for p, (a, b) in enumerate(spans) for word in words[a:b]}

    one, other = parts("a bb ccc dddddddddd"), parts("dddddddddd", "ccc bb x", "a", threads=2)
    assert one == {word: other[word] for word in one}


@pytest.mark.parametrize(
    ("data", "byte"),
    [
        (b"\xff", 0),
        (b"ab \xc3", 3),
        (b"a\xc0\x80", 1),
        (b"\xed\xa0\x80", 0),
        (b"\xf4\x90\x80\x80", 0),
        (b"ok \xe2\x28\xa1", 3),
    ],
)
def test_text_that_is_not_utf8_names_row_and_byte(data, byte):
    offsets = np.array([0, 4, 4 + len(data)], np.int32)
    lines = pa.StringArray.from_buffers(2, pa.py_buffer(offsets), pa.py_buffer(b"fine" + data))
    none = pa.array([], pa.string())
    for call in (
        lambda: count(lines, none),
        lambda: count(none, lines, 2),
        lambda: segmenter([]).segment(lines, EMPTY),
    ):
        with pytest.raises(ValueError, match=rf"row 1, byte {byte}: not UTF-8"):
            call()
    with pytest.raises(ValueError, match=rf"row 1, byte {byte}: not UTF-8"):
        _kernels.base_symbols(lines, np.ones(2, np.int64))


def test_malformed_arguments_are_refused():
    with pytest.raises(TypeError, match="Arrow array"):
        count(["a"], pa.array(["a"]))
    with pytest.raises(TypeError, match="strings"):
        count(pa.array([1]), pa.array(["a"]))
    backwards = pa.StringArray.from_buffers(
        3, pa.py_buffer(np.array([0, 3, 1, 4], np.int32)), pa.py_buffer(b"abcd")
    )
    with pytest.raises(ValueError, match=r"row 1: offsets .* backwards"):
        count(backwards, backwards)
    with pytest.raises(ValueError, match="reach outside"):
        _kernels.count_pairs(np.array([1, 2], np.int32), np.array([0, 3]), np.array([1]))
    one = np.array([_kernels.FIRST_MERGED], np.int32)
    with pytest.raises(ValueError, match="not there yet"):
        _kernels.learn_merges(EMPTY, np.array([0]), np.empty(0, np.int64), one, one, 1, 1)


@given(words_with_counts, st.integers(0, 40), st.integers(1, 3))
@settings(deadline=None, max_examples=300)
def test_learned_merges_are_those_of_algorithm_1(words, limit, min_frequency):
    assert learn(words, limit, min_frequency) == oracles.learn_bpe(words, limit, min_frequency)


def test_counts_beyond_32_bits_decide():
    words = {"ab": 2**31 + 1, "cd": 5, "ce": 2**40}
    assert [(pair[1][0], count) for pair, count in learn(words, 3, 2)] == [
        ("e", 2**40),
        ("b", 2**31 + 1),
        ("d", 5),
    ]


@given(words_with_counts, st.integers(1, 30), st.integers(1, 3))
@settings(deadline=None)
def test_applied_merges_leave_what_the_oracle_leaves(words, limit, threads):
    merges = [pair for pair, _ in learn(words, limit, 1)]
    base = _kernels.base_symbols(pa.array(list(words)), np.array(list(words.values())))
    left, right, _ = _kernels.learn_merges(*base, EMPTY, EMPTY, limit, 1)
    symbols, offsets, counts = _kernels.apply_merges(*base, left, right, threads)
    found = [
        (tuple(symbol(s, merges) for s in symbols[a:b]), int(c))
        for a, b, c in zip(offsets[:-1], offsets[1:], counts, strict=True)
    ]
    expected = [(oracles.segment_word(word, merges), count) for word, count in words.items()]
    assert found == [(word, count) for word, count in expected if len(word) > 1]


def parts_of(bounds, keys):
    """The part of each key, from the rows' bounds."""
    spans = list(itertools.pairwise(bounds.tolist()))
    assert (spans[0][0], spans[-1][1]) == (0, len(keys))
    return {key: part for part, (a, b) in enumerate(spans) for key in keys[a:b]}


@given(words_with_counts, st.integers(1, 3), st.sets(st.integers(0, 30)), st.integers(1, 5))
@settings(deadline=None)
def test_pairs_and_chunks_are_those_of_plain_loops(words, threads, chosen, parts):
    base = _kernels.base_symbols(pa.array(list(words)), np.array(list(words.values())))
    rows = [
        (tuple(base[0][a:b].tolist()), int(c))
        for a, b, c in zip(base[1][:-1], base[1][1:], base[2], strict=True)
    ]
    pairs: collections.Counter[tuple[int, ...]] = collections.Counter()
    for row, count in rows:
        for i in range(len(row) - 1):
            pairs[row[i : i + 2]] += count
    left, right, counts, bounds = _kernels.count_pairs(*base, threads, parts)
    keys = list(zip(left.tolist(), right.tolist(), strict=True))
    assert dict(zip(keys, counts.tolist(), strict=True)) == pairs
    assert len(keys) == len(pairs)
    of_pair = parts_of(bounds, keys)
    half = [column[: base[1][len(words) // 2]] if k == 0 else column[: len(words) // 2 + (k == 1)]
            for k, column in enumerate(base)]  # fmt: skip
    left, right, _, bounds = _kernels.count_pairs(*half, 1, parts)
    some = parts_of(bounds, list(zip(left.tolist(), right.tolist(), strict=True)))
    assert some == {pair: of_pair[pair] for pair in some}, "a pair's part is its own"

    active = {pair for k, pair in enumerate(sorted(pairs)) if k in chosen}
    chunks: collections.Counter[tuple[int, ...]] = collections.Counter()
    for row, count in rows:
        chunk = row[:1]
        for i in range(1, len(row)):
            if row[i - 1 : i + 1] not in active:
                chunks[chunk] += count
                chunk = ()
            chunk += row[i : i + 1]
        chunks[chunk] += count
    columns = [np.array([pair[side] for pair in active], np.int32) for side in (0, 1)]
    symbols, offsets, counts, bounds = _kernels.cut_chunks(*base, *columns, threads, parts)
    assert (bounds[0], bounds[-1], len(bounds)) == (0, len(counts), parts + 1)
    found = {
        tuple(symbols[a:b].tolist()): int(c)
        for a, b, c in zip(offsets[:-1], offsets[1:], counts, strict=True)
    }
    assert found == {chunk: count for chunk, count in chunks.items() if len(chunk) > 1}


def segmenter(merges: list[oracles.Symbols], cache_bytes: int = 1 << 20) -> _kernels.Segmenter:
    from rareword.schemas.merges import Merge, Symbol
    from rareword.transforms.bpe import BpeSegmenter

    bpe = BpeSegmenter([Merge(Symbol(*a), Symbol(*b), 0) for a, b in merges])
    left, right, result, *_ = bpe._numbers
    symbols = _kernels.FIRST_MERGED + len(merges)
    return _kernels.Segmenter(left, right, result, symbols, False, cache_bytes)


# Lists that nobody learnt: parts made later than they are used, doubles, one string made twice.
pieces = st.text("ab", min_size=1, max_size=3)
edited = st.lists(
    st.tuples(st.tuples(pieces, st.just(False)), st.tuples(pieces, st.booleans())), max_size=12
)


@given(edited, st.text("ab", min_size=1, max_size=200))
@settings(deadline=None, max_examples=300)
def test_any_list_of_merges_is_applied_as_subword_nmt_does(merges, word):
    # A symbol is its text and its flag: what makes it does not matter, as with strings.
    kernel = segmenter(merges)
    ids, offsets, counts = kernel.segment(pa.array([word, f" {word}  {word} "]), EMPTY)
    first: dict[tuple[str, bool], int] = {}
    for rank, (left, right) in enumerate(merges):
        first.setdefault((left[0] + right[0], right[1]), _kernels.FIRST_MERGED + rank)
    expected = [
        2 * ord(s[0]) + s[1] if len(s[0]) == 1 else first[s]
        for s in oracles.segment_word(word, merges)
    ]
    assert ids[: offsets[1]].tolist() == expected
    assert ids[offsets[1] :].tolist() == expected * 2
    assert counts.tolist() == [1, 2]


def test_a_word_of_a_megabyte_is_segmented_as_a_short_one():
    merges = [(("a", False), ("a", False)), (("aa", False), ("aa", False))]
    ids, _, _ = segmenter(merges).segment(pa.array(["a" * 1_000_001]), EMPTY)
    first = _kernels.FIRST_MERGED
    assert np.unique(ids[:-1]).tolist() == [first + 1]
    assert ids[-1] == 2 * ord("a") + 1
    assert len(ids) == 250_001


def test_a_small_cache_and_many_threads_change_nothing():
    lines = pa.array([f"w{i % 97} aab{i % 13} x" for i in range(2000)])
    merges = [(("a", False), ("a", False)), (("aa", False), ("b", False))]
    to_ids = np.arange(_kernels.FIRST_MERGED + len(merges), dtype=np.int32)[::-1].copy()
    expected = segmenter(merges).segment(lines, EMPTY)
    expected = (to_ids[expected[0]], *expected[1:])
    for threads, cache in ((1, 1), (3, 1 << 20), (2, 100_000)):
        kernel = segmenter(merges, cache)
        for _ in range(2):
            found = kernel.segment(lines, to_ids, threads)
            assert all((a == b).all() for a, b in zip(found, expected, strict=True))
