"""Slow, plain Python: what the kernels and jobs must agree with."""

import collections
from collections.abc import Iterable, Mapping, Sequence

from rareword.schemas.manifest import Manifest, Plan, finish
from rareword.schemas.tables import CORPUS, shard_name, write_shard

Symbols = tuple[tuple[str, bool], ...]
"""A word as (text, ends the word) symbols."""


def split_words(line: str) -> list[str]:
    """Words are split at U+0020 and nowhere else."""
    return [word for word in line.split(" ") if word]


def count_words(lines: Iterable[str]) -> collections.Counter[str]:
    return collections.Counter(word for line in lines for word in split_words(line))


def characters(word: str) -> Symbols:
    return tuple((c, i == len(word) - 1) for i, c in enumerate(word))


def printed(symbol: tuple[str, bool]) -> str:
    return symbol[0] + "</w>" * symbol[1]


def merge_pair(word: Symbols, pair: Symbols) -> Symbols:
    """Every occurrence of the pair becomes one symbol, from left to right."""
    out: list[tuple[str, bool]] = []
    i = 0
    while i < len(word):
        if word[i : i + 2] == pair:
            out.append((pair[0][0] + pair[1][0], pair[1][1]))
            i += 2
        else:
            out.append(word[i])
            i += 1
    return tuple(out)


def learn_bpe(
    words: Mapping[str, int], merges: int, min_frequency: int = 2
) -> list[tuple[Symbols, int]]:
    """Algorithm 1 of the paper: all pairs are counted anew for every merge.

    Ties: the greatest pair as subword-nmt prints it; a final symbol after the same printed text.
    """
    table = {characters(word): count for word, count in words.items()}
    learnt = []
    while len(learnt) < merges:
        pairs: collections.Counter[Symbols] = collections.Counter()
        for word, count in table.items():
            for i in range(len(word) - 1):
                pairs[word[i : i + 2]] += count
        if not pairs:
            break
        best = max(pairs, key=lambda p: (pairs[p], [printed(s) for s in p], [s[1] for s in p]))
        if pairs[best] < min_frequency:
            break
        learnt.append((best, pairs[best]))
        merged: collections.Counter[Symbols] = collections.Counter()
        for word, count in table.items():
            merged[merge_pair(word, best)] += count
        table = dict(merged)
    return learnt


def segment_word(word: str, merges: Sequence[Symbols]) -> Symbols:
    """Merges of one word as subword-nmt applies them: the first of the list that occurs, all its
    occurrences, again and again."""
    ranks: dict[Symbols, int] = {}
    for rank, pair in enumerate(merges):
        ranks.setdefault(pair, rank)
    symbols = characters(word)
    while True:
        found = [symbols[i : i + 2] for i in range(len(symbols) - 1) if symbols[i : i + 2] in ranks]
        if not found:
            return symbols
        symbols = merge_pair(symbols, min(found, key=ranks.__getitem__))


def write_corpus(
    directory: str, source: Sequence[str], target: Sequence[str], shards: int = 2, rows: int = 10**9
) -> Manifest:
    """A finished `corpus` directory; `rows` bounds its row groups by cutting the tables."""
    import pyarrow as pa

    records = []
    for k in range(shards):
        ids = range(k, len(source), shards)
        table = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "source": pa.array([source[i] for i in ids], pa.string()),
                "target": pa.array([target[i] for i in ids], pa.string()),
            }
        )
        counters = {
            f"{side}_tokens": sum(len(split_words(lines[i])) for i in ids)
            for side, lines in (("source", source), ("target", target))
        }
        parts = [table.slice(i, rows) for i in range(0, max(table.num_rows, 1), rows)]
        records.append(write_shard(directory, shard_name(k, shards), CORPUS, parts, counters))
    return finish(Plan("prepare", {}, {}), directory, CORPUS, records, rules={"text": {}})
