"""Counting words as tables."""

import collections

import oracles
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from rareword.transforms import words

line = st.text("ab é\u00a0", max_size=12)


def as_counter(table: pa.Table, side: str) -> collections.Counter[str]:
    rows = zip(table["word"].to_pylist(), table[f"{side}_count"].to_pylist(), strict=True)
    return collections.Counter({word: count for word, count in rows if count})


@given(st.lists(st.tuples(line, line), max_size=20), st.integers(1, 5), st.integers(1, 4))
@settings(deadline=None)
def test_parts_of_batches_add_up_to_the_whole(pairs, shards, batch):
    tables = [
        words.count_words(
            pa.array([s for s, _ in pairs[i : i + batch]], pa.string()),
            pa.array([t for _, t in pairs[i : i + batch]], pa.string()),
        )
        for i in range(0, len(pairs), batch)
    ]
    parts = collections.defaultdict(list)
    for table in tables:
        counter = words.WordCounter()
        words.add_table(counter, table)
        for key, part in words.taken_parts(counter, shards):
            assert 0 <= key < shards
            parts[key].append(part)
    found = [words.sum_words(tables) for tables in parts.values()]
    for side, column in (("source", 0), ("target", 1)):
        expected = oracles.count_words(pair[column] for pair in pairs)
        together = sum((as_counter(table, side) for table in found), collections.Counter())
        assert together == expected
    seen = [word for table in found for word in table["word"].to_pylist()]
    assert len(seen) == len(set(seen)), "a word lies in one shard only"
