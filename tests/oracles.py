"""Slow, plain Python: what the kernels and jobs must agree with."""

import collections
import itertools
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

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
    directory: str,
    source: Sequence[str],
    target: Sequence[str],
    shards: int = 2,
    rows: int = 10**9,
    text: Mapping[str, str] | None = None,
) -> Manifest:
    """A finished `corpus` directory; `rows` bounds its row groups by cutting the tables.

    text: its text rules.
    """
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
    rules = {"text": dict(text or {})}
    return finish(
        Plan("prepare", {}, {}), directory, CORPUS, records, figures={"rejected": 0}, rules=rules
    )


# ---- segmenting text to text ----


def merge_all(symbols: Symbols, merges: Sequence[Symbols]) -> Symbols:
    """The first merge of the list that occurs, in all its places, again and again."""
    while True:
        pairs = set(itertools.pairwise(symbols))
        found = next((pair for pair in merges if pair in pairs), None)
        if found is None:
            return symbols
        symbols = merge_pair(symbols, found)


def start(text: str, end_symbol: bool) -> Symbols:
    """The symbols of a word before any merge; in codes of version 0.1 its end is one more."""
    if end_symbol:
        return (*((c, False) for c in text), ("", True))
    return characters(text)


def in_vocabulary(
    symbol: tuple[str, bool],
    last: bool,
    merges: Sequence[Symbols],
    vocabulary: Collection[str],
    separator: str,
) -> list[str]:
    """A symbol as it is, if the vocabulary has it as it is printed; or its parts, down to
    characters."""
    if symbol[0] + separator * (not last) in vocabulary:
        return [symbol[0]]
    for left, right in merges:
        if (left[0] + right[0], right[1]) == symbol and len(symbol[0]) > 1:
            if not right[0]:
                return in_vocabulary(left, last, merges, vocabulary, separator)
            return [
                *in_vocabulary(left, False, merges, vocabulary, separator),
                *in_vocabulary(right, last, merges, vocabulary, separator),
            ]
    return [symbol[0]]


def glossary_parts(word: str, glossaries: Sequence[str]) -> list[tuple[str, bool]]:
    """A word in parts, and which of them a glossary keeps whole."""
    parts = [(word, False)]
    for glossary in glossaries:
        cut: list[tuple[str, bool]] = []
        for text, whole in parts:
            places = [m.span() for m in re.finditer(glossary, text) if m.group()]
            if re.fullmatch(glossary, text):
                places = [(0, len(text))]
            elif not places:
                cut.append((text, whole))
                continue
            at = 0
            for begin, end in places:
                cut += [(text[at:begin], False), (text[begin:end], True)]
                at = end
            cut.append((text[at:], False))
        parts = [part for part in cut if part[0]]
    return parts


def render_line(
    line: str,
    merges: Sequence[Symbols],
    end_symbol: bool = False,
    separator: str = "@@",
    vocabulary: Collection[str] | None = None,
    glossaries: Sequence[str] = (),
) -> str:
    """A line with its words in pieces, white space at its ends kept."""
    body = line.strip("\r\n ")
    begin = line.index(body) if body else len(line)
    words = []
    for word in split_words(body):
        pieces: list[str] = []
        for text, whole in glossary_parts(word, glossaries):
            if whole:
                pieces.append(text)
                continue
            symbols = merge_all(start(text, end_symbol), merges)
            if symbols[-1] == ("", True):
                symbols = symbols[:-1]
            for i, symbol in enumerate(symbols):
                if vocabulary is None:
                    pieces.append(symbol[0])
                else:
                    last = i == len(symbols) - 1
                    pieces += in_vocabulary(symbol, last, merges, vocabulary, separator)
        words.append((separator + " ").join(pieces))
    return line[:begin] + " ".join(words) + line[begin + len(body) :]


def dropout_outcomes(
    symbols: Symbols, merges: Sequence[Symbols], probability: float
) -> dict[Symbols, float]:
    """Every segmentation that BPE-dropout can give, with its probability.

    In a round each place where a merge fits is dropped by itself; of the others those of the first
    merge in the list are merged, from left to right. Nothing left: the end.
    """
    places = [i for i, pair in enumerate(itertools.pairwise(symbols)) if pair in merges]
    outcomes: collections.Counter[Symbols] = collections.Counter()
    for kept in itertools.product((False, True), repeat=len(places)):
        chance = math.prod(1 - probability if keep else probability for keep in kept)
        left = [i for i, keep in zip(places, kept, strict=True) if keep]
        if not left:
            outcomes[symbols] += chance
            continue
        rank = min(merges.index(symbols[i : i + 2]) for i in left)
        out: list[tuple[str, bool]] = []
        i = 0
        while i < len(symbols):
            if i in left and symbols[i : i + 2] == merges[rank]:
                out.append((symbols[i][0] + symbols[i + 1][0], symbols[i + 1][1]))
                i += 2
            else:
                out.append(symbols[i])
                i += 1
        for outcome, share in dropout_outcomes(tuple(out), merges, probability).items():
            outcomes[outcome] += chance * share
    return dict(outcomes)
