"""One round of exact sharded merge learning, as pure functions.

    words, sharded            control: merges so far, threshold T, active pairs
        |                        |
        +--- apply merges -------+
        |
        +-- count_pairs ---> sum ---> cut_pairs ---> choose_threshold ---> control
        +-- cut_chunks ----> sum ---> fit_chunks --> learn --------------> control

A pair is active if its count reaches T. Words are cut at every junction whose pair is not active;
what remains are chunks, few and often equal, and ordinary BPE on them is exact until the best count
falls below T, because

(a) a junction is never made again once merged, and the count of a pair of existing symbols never
    rises;
(b) a span whose two ends are still junctions is segmented inside as the span alone would be (the
    delicate case, a run x x x x cut by a living junction, has an even number of x before the cut,
    since merging goes from left to right); so each symbol string has one derivation, and its first
    and last symbol at any earlier time are determined;
(c) hence occurrences of a pair (X, Y) later map one to one into earlier junctions (last of X,
    first of Y): its count is at most that junction's count at the start of the round;
(d) a cut junction has a count below T, so no pair across it can reach T in this round.

Symbols are ids that need no alphabet: 2 * code point (+ 1 at the word's end) for characters,
FIRST_MERGED + rank for merges.
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rareword.schemas import storage
from rareword.schemas.errors import RarewordError
from rareword.schemas.merges import Merge, Symbol
from rareword.transforms import _kernels
from rareword.transforms.parts import KeyedTable, one_chunk, split_parts

FIRST_MERGED: int = _kernels.FIRST_MERGED
ONE_ROUND = 1 << 62
"""As `divide`: T is the minimum frequency at once, so one round suffices."""


@dataclasses.dataclass(frozen=True)
class Rules:
    """What is asked of the learner. How it goes about it (`divide`, `parts`, `max_chunk_symbols`)
    leaves the merges alone."""

    merges: int
    """Merges to learn; with `total_symbols`, merges and base symbols together."""
    min_frequency: int
    """Learning stops when the best count is below it (at least 1)."""
    divide: int = 8
    """T is the best count divided by this."""
    parts: int = 16
    """Keys over which pairs and chunks are combined."""
    max_chunk_symbols: int = 64_000_000
    """The learner never gathers more than about this; T rises until the chunk table fits."""
    total_symbols: bool = False


@dataclasses.dataclass(frozen=True)
class Sequences:
    """Weighted symbol sequences: row w is symbols[offsets[w]:offsets[w + 1]], `counts[w]` times."""

    symbols: NDArray[np.int32]
    offsets: NDArray[np.int64]
    counts: NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        return self.symbols.nbytes + self.offsets.nbytes + self.counts.nbytes

    def to_table(self) -> pa.Table:
        lists = pa.LargeListArray.from_arrays(self.offsets, self.symbols)
        return pa.table({"symbols": lists, "count": self.counts})

    @classmethod
    def from_table(cls, table: pa.Table) -> "Sequences":
        lists = one_chunk(table["symbols"])
        return cls(
            lists.values.to_numpy(), lists.offsets.to_numpy(), one_chunk(table["count"]).to_numpy()
        )


@dataclasses.dataclass(frozen=True)
class PairCounts:
    """Symbol pairs and their counts."""

    left: NDArray[np.int32]
    right: NDArray[np.int32]
    counts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.counts)

    def at_least(self, threshold: int) -> "PairCounts":
        keep = self.counts >= threshold
        return PairCounts(self.left[keep], self.right[keep], self.counts[keep])

    def first(self, number: int) -> "PairCounts":
        return PairCounts(self.left[:number], self.right[:number], self.counts[:number])

    def then(self, other: "PairCounts") -> "PairCounts":
        return PairCounts(
            np.concatenate([self.left, other.left]),
            np.concatenate([self.right, other.right]),
            np.concatenate([self.counts, other.counts]),
        )

    def to_table(self) -> pa.Table:
        return pa.table({"left": self.left, "right": self.right, "count": self.counts})

    @classmethod
    def from_table(cls, table: pa.Table) -> "PairCounts":
        return cls(*(one_chunk(table[name]).to_numpy() for name in ("left", "right", "count")))


NO_PAIRS = PairCounts(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.int64))


@dataclasses.dataclass(frozen=True)
class Control:
    """All that lives from round to round."""

    merges: PairCounts = NO_PAIRS
    """By rank, with the count each had when it was chosen."""
    active: PairCounts = NO_PAIRS
    """Pairs at or above `threshold`, between the two steps of a round; else empty."""
    threshold: int = 0
    done: bool = False
    log: tuple[dict[str, int], ...] = ()
    """Figures of each round, for people."""
    base_symbols: int | None = None
    """Different characters of the words, final ones apart; with `total_symbols` known after the
    first count."""

    def limit(self, rules: Rules) -> int:
        """How many merges to learn."""
        return max(rules.merges - (self.base_symbols or 0), 0)

    def write(self, directory: str) -> str:
        """Writes the control to a file named by its content; returns the URL."""
        pairs = self.merges.then(self.active)
        meta = {
            "merges": len(self.merges),
            "threshold": self.threshold,
            "done": self.done,
            "log": self.log,
            "base_symbols": self.base_symbols,
        }
        table = pairs.to_table().replace_schema_metadata({"control": json.dumps(meta)})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        data = bytes(sink.getvalue())
        url = storage.join(directory, f"control-{hashlib.sha256(data).hexdigest()[:24]}.arrow")
        storage.write_bytes(url, data)
        return url


@functools.lru_cache(maxsize=2)
def read_control(url: str) -> Control:
    """Reads a control; the file's name is its content's, so a process reads each one once."""
    with storage.open_read(url) as stream:
        table = pa.ipc.open_stream(stream.read()).read_all()
    meta = json.loads(table.schema.metadata[b"control"])
    pairs, number = PairCounts.from_table(table), meta["merges"]
    active = PairCounts(pairs.left[number:], pairs.right[number:], pairs.counts[number:])
    return Control(
        pairs.first(number),
        active,
        meta["threshold"],
        meta["done"],
        tuple(meta["log"]),
        meta["base_symbols"],
    )


# ---- on the shards ----


def apply_merges(state: Sequences, merges: PairCounts, threads: int = 1) -> Sequences:
    """The sequences after the merges; those of one symbol are dropped, they hold no pair."""
    return Sequences(
        *_kernels.apply_merges(
            state.symbols, state.offsets, state.counts, merges.left, merges.right, threads
        )
    )


def count_pairs(state: Sequences, parts: int, threads: int = 1) -> Iterator[KeyedTable]:
    """Pair counts of a shard, cut into parts by pair."""
    left, right, counts, bounds = _kernels.count_pairs(
        state.symbols, state.offsets, state.counts, threads, parts
    )
    yield from split_parts(PairCounts(left, right, counts).to_table(), bounds)


def cut_chunks(
    state: Sequences, active: PairCounts, parts: int, threads: int = 1
) -> Iterator[KeyedTable]:
    """Chunks of a shard, cut into parts by chunk."""
    symbols, offsets, counts, bounds = _kernels.cut_chunks(
        state.symbols, state.offsets, state.counts, active.left, active.right, threads, parts
    )
    yield from split_parts(Sequences(symbols, offsets, counts).to_table(), bounds)


# ---- on the parts ----


def sum_pairs(tables: list[pa.Table]) -> pa.Table:
    """Adds the counts of equal pairs over several tables."""
    pairs = PairCounts.from_table(pa.concat_tables(tables))
    left, right, counts, _ = _kernels.sum_pairs(pairs.left, pairs.right, pairs.counts)
    return PairCounts(left, right, counts).to_table()


def sum_chunks(tables: list[pa.Table]) -> pa.Table:
    """Adds the counts of equal chunks over several tables."""
    chunks = Sequences.from_table(pa.concat_tables(tables))
    symbols, offsets, counts, _ = _kernels.sum_chunks(chunks.symbols, chunks.offsets, chunks.counts)
    table = Sequences(symbols, offsets, counts).to_table()
    return table.replace_schema_metadata(tables[0].schema.metadata)


def cut_pairs(part: PairCounts, last_threshold: int, rules: Rules) -> PairCounts:
    """Drops pairs that cannot be active, before anything is gathered.

    The next T is at least min(last T / divide, best / divide), and no part's best exceeds the best.
    """
    level = int(part.counts.max(initial=0)) // rules.divide
    if last_threshold:
        level = min(level, last_threshold // rules.divide)
    return part.at_least(max(rules.min_frequency, level))


def fit_chunks(chunks: Sequences, control: Control, rules: Rules) -> tuple[Sequences, int]:
    """Cuts a part of the chunk table at ever higher T, until it fits its share of the limit.

    Returns the part and the threshold it was cut at. Chunks cut twice are the chunks cut once at
    the higher threshold, so the learner may raise all parts to the highest T of any. Steps of a
    quarter: after a round no pair reaches the last T, so what is cut at a little less is small, and
    doubling would jump over it and end where the last round did.
    """
    threshold = control.threshold
    best = int(control.active.counts.max(initial=1))
    while threshold < best and len(chunks.symbols) > rules.max_chunk_symbols // rules.parts:
        threshold = min(best, threshold + max(threshold // 4, 1))
        chunks = _cut_again(chunks, control, threshold)
    return chunks, threshold


def _cut_again(chunks: Sequences, control: Control, threshold: int) -> Sequences:
    active = control.active.at_least(threshold)
    symbols, offsets, counts, _ = _kernels.cut_chunks(
        chunks.symbols, chunks.offsets, chunks.counts, active.left, active.right
    )
    return Sequences(symbols, offsets, counts)


# ---- at the one learner ----


def choose_threshold(control: Control, parts: Sequence[PairCounts], rules: Rules) -> Control:
    """Picks T below the best count; or finds that there is nothing left to merge."""
    limit = control.limit(rules)
    if len(control.merges) >= limit:
        return dataclasses.replace(control, merges=control.merges.first(limit), done=True)
    best = max((int(part.counts.max(initial=0)) for part in parts), default=0)
    if best < rules.min_frequency:
        return dataclasses.replace(control, done=True)
    level = best // rules.divide
    if control.threshold:
        level = min(level, control.threshold // rules.divide)
    threshold = max(rules.min_frequency, level)
    active = functools.reduce(PairCounts.then, (part.at_least(threshold) for part in parts))
    return dataclasses.replace(control, active=active, threshold=threshold)


def learn(control: Control, parts: Sequence[tuple[Sequences, int]], rules: Rules) -> Control:
    """Ordinary incremental BPE on the gathered chunks until the best count is below T.

    parts: the parts of the chunk table, each with the threshold it was cut at.
    """
    threshold = max((level for _, level in parts), default=control.threshold)
    chunks = _joined(
        [
            part if level == threshold else _cut_again(part, control, threshold)
            for part, level in parts
        ]
    )
    left, right, counts = _kernels.learn_merges(
        chunks.symbols,
        chunks.offsets,
        chunks.counts,
        control.merges.left,
        control.merges.right,
        control.limit(rules) - len(control.merges),
        threshold,
    )
    merges = control.merges.then(PairCounts(left, right, counts))
    row = {
        "threshold": threshold,
        "active_pairs": len(control.active),
        "chunks": len(chunks.counts),
        "chunk_symbols": len(chunks.symbols),
        "merges": len(merges),
    }
    return dataclasses.replace(
        control,
        merges=merges,
        active=NO_PAIRS,
        threshold=threshold,
        done=len(merges) >= control.limit(rules) or threshold <= rules.min_frequency,
        log=(*control.log, row),
    )


def _joined(parts: Sequence[Sequences]) -> Sequences:
    """The parts as one table. Equal chunks of several parts may stay apart: they count the same."""
    if not parts:
        return Sequences(np.empty(0, np.int32), np.zeros(1, np.int64), np.empty(0, np.int64))
    return Sequences.from_table(pa.concat_tables([part.to_table() for part in parts]))


# ---- symbol ids and symbols ----


def to_merges(pairs: PairCounts) -> list[Merge]:
    """Merges of ids as merges of text."""
    made: list[Symbol] = []

    def symbol(number: int) -> Symbol:
        if number >= FIRST_MERGED:
            return made[number - FIRST_MERGED]
        return Symbol(chr(number >> 1), bool(number & 1))

    merges = []
    for left, right, count in zip(
        pairs.left.tolist(), pairs.right.tolist(), pairs.counts.tolist(), strict=True
    ):
        merge = Merge(symbol(left), symbol(right), count)
        made.append(merge.result)
        merges.append(merge)
    return merges


def from_merges(merges: Sequence[Merge], name: str) -> PairCounts:
    """Merges of text as merges of ids, to go on learning from them. `name` is for errors.

    Raises RarewordError for a merge of a symbol that no earlier merge makes, or that makes a symbol
    again: such a list was not learnt and cannot be continued.
    """
    ids: dict[Symbol, int] = {}

    def number(symbol: Symbol, rank: int) -> int:
        if len(symbol.text) == 1:
            return 2 * ord(symbol.text) + symbol.final
        if symbol not in ids:
            raise RarewordError(
                f"{name}: merge {rank} joins {symbol.text!r}, which no earlier merge makes"
            )
        return ids[symbol]

    left, right = [], []
    for rank, merge in enumerate(merges):
        left.append(number(merge.left, rank))
        right.append(number(merge.right, rank))
        if merge.result in ids:
            raise RarewordError(f"{name}: merge {rank} makes {merge.result.text!r} a second time")
        ids[merge.result] = FIRST_MERGED + rank
    return PairCounts(
        np.array(left, np.int32),
        np.array(right, np.int32),
        np.array([merge.count for merge in merges], np.int64),
    )
