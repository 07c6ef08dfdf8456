"""Rounds of sharded learning, run without Beam, against Algorithm 1."""

import dataclasses
import itertools

import numpy as np
import oracles
import pyarrow as pa
import pytest
import sharded
from hypothesis import given, settings
from hypothesis import strategies as st

from rareword.schemas.errors import RarewordError
from rareword.schemas.merges import Merge, Symbol
from rareword.transforms import _kernels, rounds
from rareword.transforms.rounds import ONE_ROUND, Control, PairCounts, Rules, Sequences

RUNS = ["a", "ab", "aab", "</w>", "a</w>"]
words_with_counts = st.dictionaries(
    st.text("ab", min_size=1, max_size=14)
    | st.text("abc</w>\U0001f600\u0301\x00\xa0@", min_size=1, max_size=10)
    | st.builds(lambda part, times: part * times, st.sampled_from(RUNS), st.integers(1, 40)),
    st.integers(1, 60) | st.sampled_from([2**31 - 1, 2**31, 2**32 + 1, 2**53 + 1]),
    min_size=1,
    max_size=16,
)
schedules = st.builds(
    Rules,
    merges=st.integers(0, 60),
    min_frequency=st.integers(1, 4),
    divide=st.sampled_from([2, 3, 8, 64, ONE_ROUND]),
    parts=st.integers(1, 4),
    max_chunk_symbols=st.sampled_from([1, 8, 40, 10**9]),
)


def run(
    words: dict[str, int], rules: Rules, shards: int, control: Control, threads: int = 1
) -> Control:
    counts = np.array(list(words.values()), np.int64)
    states = sharded.shards_of(pa.array(list(words), pa.string()), counts, shards)
    return sharded.learn(states, rules, control, threads)


def as_pairs(merges: list[Merge]) -> list[tuple[oracles.Symbols, int]]:
    return [((tuple(m.left), tuple(m.right)), m.count) for m in merges]


@given(words_with_counts, schedules, st.integers(1, 5), st.integers(1, 4))
@settings(deadline=None, max_examples=400)
def test_any_schedule_and_any_sharding_learn_the_merges_of_algorithm_1(
    words, rules, shards, threads
):
    control = run(words, rules, shards, Control(), threads)
    expected = oracles.learn_bpe(words, rules.merges, rules.min_frequency)
    assert as_pairs(rounds.to_merges(control.merges)) == expected


@given(words_with_counts, schedules, st.integers(0, 30))
@settings(deadline=None)
def test_going_on_from_a_prefix_gives_the_same_merges(words, rules, known):
    expected = oracles.learn_bpe(words, rules.merges, rules.min_frequency)
    prefix = [Merge(Symbol(*a), Symbol(*b), count) for (a, b), count in expected[:known]]
    control = run(words, rules, 2, Control(rounds.from_merges(prefix, "here")))
    assert as_pairs(rounds.to_merges(control.merges)) == expected


def test_the_example_of_the_docs():
    # docs/exact-sharded-bpe.md: chunks and merges of three rounds, T = 3, 2, 1, in two shards.
    shards = [{"the": 2, "man": 2, "is": 1, "taller": 1}, {"tall": 1, "than": 1, "tallest": 1}]
    states = [
        Sequences(*_kernels.base_symbols(pa.array(list(shard)), np.array(list(shard.values()))))
        for shard in shards
    ]
    control, seen = Control(), []
    for threshold in (3, 2, 1):
        states = [rounds.apply_merges(state, control.merges) for state in states]
        pairs = rounds.sum_pairs([t for state in states for _, t in rounds.count_pairs(state, 1)])
        active = PairCounts.from_table(pairs).at_least(threshold)
        control = dataclasses.replace(control, active=active, threshold=threshold, done=False)
        tables = [t for state in states for _, t in rounds.cut_chunks(state, active, 1)]
        chunks = Sequences.from_table(rounds.sum_chunks(tables))
        before = rounds.to_merges(control.merges)
        control = rounds.learn(control, [(chunks, threshold)], Rules(merges=99, min_frequency=1))
        merges = rounds.to_merges(control.merges)
        seen.append((shown(chunks, before), [printed(m) for m in merges[len(before) :]]))
    assert seen == [
        ({"t h": 3, "a n_": 3, "t a l": 3}, ["t h", "t a", "ta l", "a n_"]),
        ({"th e_": 2, "m an_": 2, "tal l e": 2}, ["th e_", "tal l", "tall e", "m an_"]),
        (
            {"i s_": 1, "talle r_": 1, "tal l_": 1, "th an_": 1, "talle s t_": 1},
            ["th an_", "talle s", "talles t_", "talle r_", "tal l_", "i s_"],
        ),
    ]
    words = oracles.count_words(["the tall man is taller than the tallest man"])
    assert as_pairs(rounds.to_merges(control.merges)) == oracles.learn_bpe(words, 99, 1)


def printed(merge: Merge) -> str:
    return " ".join(symbol.text + "_" * symbol.final for symbol in (merge.left, merge.right))


def shown(chunks: Sequences, merges: list[Merge]) -> dict[str, int]:
    def name(number: int) -> str:
        if number >= rounds.FIRST_MERGED:
            symbol = merges[number - rounds.FIRST_MERGED].result
        else:
            symbol = Symbol(chr(number >> 1), bool(number & 1))
        return symbol.text + "_" * symbol.final

    symbols, offsets = chunks.symbols.tolist(), chunks.offsets.tolist()
    rows = [symbols[a:b] for a, b in itertools.pairwise(offsets)]
    return {
        " ".join(map(name, row)): count
        for row, count in zip(rows, chunks.counts.tolist(), strict=True)
    }


def test_merges_that_were_not_learnt_cannot_be_continued():
    a, b, ab = Symbol("a", False), Symbol("b", False), Symbol("ab", False)
    with pytest.raises(RarewordError, match=r"x\.parquet: merge 0 joins 'ab', which no earlier"):
        rounds.from_merges([Merge(ab, b, 1)], "x.parquet")
    with pytest.raises(RarewordError, match="merge 1 makes 'ab' a second time"):
        rounds.from_merges([Merge(a, b, 1)] * 2, "x.parquet")


@given(words_with_counts, st.integers(0, 20))
@settings(deadline=None, max_examples=30)
def test_a_control_survives_its_file(words, limit):
    control = run(words, Rules(limit, 1), 1, Control())
    url = control.write("memory://rounds-test")
    assert control.write("memory://rounds-test") == url
    again = rounds.read_control(url)
    assert again.merges.to_table().equals(control.merges.to_table())
    assert (again.threshold, again.done) == (control.threshold, control.done)
