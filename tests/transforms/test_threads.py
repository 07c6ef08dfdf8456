"""The same answer from any number of threads. Rows may come in another order."""

import functools
import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import oracles
import pyarrow as pa
import pytest
import sharded

from rareword.schemas.merges import Merge, Symbol
from rareword.schemas.vocabulary import SPECIALS, Vocabulary
from rareword.transforms import rounds, words
from rareword.transforms.bpe import BpeSegmenter
from rareword.transforms.rounds import Control, PairCounts, Rules, Sequences

THREADS = [2, 3, 4, 7]


@functools.cache
def text() -> tuple[list[str], list[str]]:
    """Two columns of lines, with words of all frequencies, some long, and lines without words."""
    draw = random.Random(0)
    alphabet = "aaabcdeéж日\U0001f600\u0301\x00\xa0@</w>"
    vocabulary = ["".join(draw.choices(alphabet, k=draw.randint(1, 12))) for _ in range(4000)]
    vocabulary += ["a" * 300, "ab" * 200, "</w>" * 40]
    weights = [1 / rank for rank in range(1, len(vocabulary) + 1)]

    def lines(number: int) -> list[str]:
        return [
            " ".join(draw.choices(vocabulary, weights, k=draw.choice([0, 1, 9, 30])))
            for _ in range(number)
        ]

    return lines(6000), [*lines(5000), "", "   "]


def columns() -> tuple[pa.Array, pa.Array]:
    source, target = text()
    return pa.array(source), pa.array(target)


@functools.cache
def word_table() -> dict[str, int]:
    return oracles.count_words([*text()[0], *text()[1]])


@functools.cache
def sequences() -> Sequences:
    counts = np.array(list(word_table().values()), np.int64)
    return sharded.shards_of(pa.array(list(word_table())), counts, 1)[0]


@functools.cache
def merges() -> PairCounts:
    return sharded.learn([sequences()], Rules(400, 2, 8), Control()).merges


def rows_of(found: Sequences) -> list[tuple[tuple[int, ...], int]]:
    symbols, counts = found.symbols.tolist(), found.counts.tolist()
    spans = itertools.pairwise(found.offsets.tolist())
    return sorted((tuple(symbols[a:b]), n) for (a, b), n in zip(spans, counts, strict=True))


def by_part(tables: Any, rows: Callable[[pa.Table], list[Any]]) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for part, table in tables:
        found.setdefault(part, []).extend(rows(table))
    return {part: sorted(items) for part, items in found.items()}


def test_words_are_counted_once_by_any_number_of_threads():
    source, target = map(oracles.count_words, text())
    expected = {word: (source[word], target[word]) for word in source | target}
    for threads in (1, *THREADS):
        table = words.count_words(*columns(), threads)
        found = {r["word"]: (r["source_count"], r["target_count"]) for r in table.to_pylist()}
        assert found == expected
        assert table.num_rows == len(expected)


@pytest.mark.parametrize("threads", THREADS)
def test_any_number_of_threads_applies_merges_alike(threads):
    one = rounds.apply_merges(sequences(), merges())
    assert rows_of(rounds.apply_merges(sequences(), merges(), threads)) == rows_of(one)


@pytest.mark.parametrize("threads", THREADS)
def test_any_number_of_threads_counts_pairs_alike(threads):
    def pairs(table: pa.Table) -> list[Any]:
        found = PairCounts.from_table(table)
        return list(
            zip(*(c.tolist() for c in (found.left, found.right, found.counts)), strict=True)
        )

    state = rounds.apply_merges(sequences(), merges().first(50))
    one = by_part(rounds.count_pairs(state, 5), pairs)
    assert by_part(rounds.count_pairs(state, 5, threads), pairs) == one
    every = [pair[:2] for part in one.values() for pair in part]
    assert len(set(every)) == len(every)


@pytest.mark.parametrize("threads", THREADS)
def test_any_number_of_threads_cuts_chunks_alike(threads):
    state = rounds.apply_merges(sequences(), merges().first(50))
    active = merges().first(200)

    def chunks(tables: Any) -> dict[int, list[Any]]:
        return by_part(tables, lambda table: rows_of(Sequences.from_table(table)))

    one = chunks(rounds.cut_chunks(state, active, 5))
    found = chunks(rounds.cut_chunks(state, active, 5, threads))
    assert found == one


@pytest.mark.parametrize("threads", THREADS)
def test_any_number_of_threads_segments_alike(threads):
    learnt = rounds.to_merges(merges())
    segmenter = BpeSegmenter(learnt)
    vocabulary = vocabulary_of(learnt, set("".join(word_table())))
    for column in columns():
        one = segmenter.encoder(vocabulary).encode(column)
        encoder = segmenter.encoder(vocabulary)
        for _ in range(2):  # the second time from the cache
            found = encoder.encode(column, threads)
            assert found.ids.tolist() == one.ids.tolist()
            assert found.offsets.tolist() == one.offsets.tolist()
            assert found.words.tolist() == one.words.tolist()


@pytest.mark.parametrize("threads", THREADS)
def test_any_number_of_threads_learns_alike(threads):
    counts = np.array(list(word_table().values()), np.int64)
    states = sharded.shards_of(pa.array(list(word_table())), counts, 3)
    rules = Rules(400, 2, 4, parts=3, max_chunk_symbols=8000)
    control = sharded.learn(states, rules, Control(), threads)
    assert control.merges.to_table().equals(merges().to_table())


def vocabulary_of(learnt: list[Merge], characters: set[str]) -> Vocabulary:
    pieces = sorted({Symbol(c, final) for c in characters for final in (False, True)})
    pieces = [*SPECIALS, *pieces, *dict.fromkeys(merge.result for merge in learnt)]
    counts = [0] * len(pieces)
    texts, final = [piece.text for piece in pieces], [piece.final for piece in pieces]
    return Vocabulary(texts, final, counts, counts)
