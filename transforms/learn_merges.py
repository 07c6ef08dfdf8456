"""Merge learning as one Beam graph: the rounds of `rounds.py`, unrolled.

No edge carries the word table. A work item names row groups of the word files; a shard's symbols
are a pure function of its words and the merges so far, kept from round to round by each process
that happens to see the shard again. So a retry costs nothing and a restart needs only the merges.

    items ---------------------+--------------------+ ...
                               |                    |
    control (a URL) --side--> Count                 |
                               | pairs by part      |
                              Sum, Cut              |
                               | gathered           |
                            Threshold --side--> Chunks
                                                    | chunks by part
                                                   Sum, Fit
                                                    | gathered
                                                  Learn --side--> Count of the next round ...

There is one path from each control to the next: item 0 sends the control's URL along with the
tables, under the key CONTROL_KEY, as metadata of a table of base symbols; that table is empty,
unless the base symbols of all words are to be counted (--total-symbols). (With several paths a
round, Flink 1.20's optimiser, which walks every path of the graph, does not end.) A finished
learner makes the remaining rounds empty.
"""

import dataclasses
import functools
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.pvalue import AsIter, AsSingleton

from rareword.schemas import merges as merge_files
from rareword.schemas import storage
from rareword.schemas.errors import RarewordError
from rareword.schemas.merges import Merge
from rareword.schemas.tables import MERGES, WORDS, open_parquet, read_row_group, write_shard
from rareword.transforms import _kernels, rounds
from rareword.transforms.elements import MergeTablesCombineFn
from rareword.transforms.parts import KeyedTable
from rareword.transforms.rounds import Control, PairCounts, Rules, Sequences
from rareword.transforms.transliteration import to_latin_words

CONTROL_KEY = -1
CACHE_BYTES = 4 << 30
"""Shard states that one process keeps."""

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class WordSlice:
    """Rows of one row group of a word file: the `number`-th of `of` equal slices."""

    url: str
    row_group: int
    number: int = 0
    of: int = 1


@dataclasses.dataclass(frozen=True)
class Reading:
    """How words become symbols."""

    side: str
    """joint, source or target: whose counts."""
    bytes: bool = False
    transliterate: bool = False


@dataclasses.dataclass(frozen=True)
class WordShard:
    """A work item: some slices of the word table, and how their words are read."""

    words: str
    """Content digest of the word table; names the shard in a process's cache."""
    number: int
    of: int
    slices: tuple[WordSlice, ...]
    reading: Reading

    def read(self) -> Sequences:
        """The base symbols of the shard's words."""
        words, counts = [], []
        for part in self.slices:
            with open_parquet(part.url, WORDS) as file:
                table = read_row_group(file, part.row_group, part.url, WORDS.fields.names)
            begin, end = (table.num_rows * k // part.of for k in (part.number, part.number + 1))
            table = table.slice(begin, end - begin)
            if self.reading.side == "joint":
                count = _added(table["source_count"], table["target_count"], part.url)
            else:
                count = table[f"{self.reading.side}_count"]
            keep = pc.greater(count, 0)
            words += table["word"].filter(keep).chunks
            counts += count.filter(keep).chunks
        column = pa.concat_arrays(words) if words else pa.array([], pa.string())
        if self.reading.transliterate:
            column = to_latin_words(column)
        count = pa.concat_arrays(counts) if counts else pa.array([], pa.int64())
        return Sequences(*_kernels.base_symbols(column, count.to_numpy(), self.reading.bytes))


def _added(source: pa.ChunkedArray, target: pa.ChunkedArray, url: str) -> pa.ChunkedArray:
    try:
        return pc.add_checked(source, target)
    except pa.ArrowInvalid as error:
        raise RarewordError(f"{url}: the counts of a word do not fit 64 bits together") from error


def plan_shards(urls: Iterable[str], words: str, shards: int, reading: Reading) -> list[WordShard]:
    """Deals the row groups of the word files to `shards` work items; row groups are sliced if there
    are too few. Words are unique, so any partition does."""
    groups = []
    for url in urls:
        with open_parquet(url, WORDS) as file:
            groups += [(url, k) for k in range(file.num_row_groups)]
    of = -(-shards // max(len(groups), 1))
    slices = [WordSlice(url, group, k, of) for url, group in groups for k in range(of)]
    return [WordShard(words, k, shards, tuple(slices[k::shards]), reading) for k in range(shards)]


class _StateCache:
    """The last state of the shards that this process saw, within CACHE_BYTES."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: OrderedDict[WordShard, tuple[PairCounts, Sequences]] = OrderedDict()

    def get(self, shard: WordShard) -> tuple[PairCounts, Sequences] | None:
        with self._lock:
            return self._states.get(shard)

    def put(self, shard: WordShard, merges: PairCounts, state: Sequences) -> None:
        with self._lock:
            self._states.pop(shard, None)
            self._states[shard] = merges, state
            while sum(kept.nbytes for _, kept in self._states.values()) > CACHE_BYTES:
                self._states.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._states.clear()


_cache = _StateCache()


def forget_shards() -> None:
    """Gives back the memory of the shards that this process kept."""
    _cache.clear()


def shard_state(shard: WordShard, merges: PairCounts, threads: int = 1) -> Sequences:
    """The shard's sequences with all merges applied.

    Goes on from the state that this process kept, if that state's merges are a prefix of these.
    """
    kept = _cache.get(shard)
    if kept is not None and _is_prefix(kept[0], merges):
        if len(kept[0]) == len(merges):
            return kept[1]
        state = kept[1]
    else:
        state = shard.read()
    # Ranks count from the first merge, so all are given; the old ones match nothing any more.
    state = rounds.apply_merges(state, merges, threads)
    _cache.put(shard, merges, state)
    return state


def _is_prefix(some: PairCounts, merges: PairCounts) -> bool:
    head = merges.first(len(some))
    return len(some) <= len(merges) and bool(
        (some.left == head.left).all() and (some.right == head.right).all()
    )


# ---- the graph ----


@dataclasses.dataclass(eq=False)
class LearnMerges(beam.PTransform):
    """Work items (WordShard) -> the URL of the final control (one element).

    `directory` takes the controls and, after each round, `checkpoint-0002685.parquet`: the merges
    so far as a `merges` file.
    """

    rules: Rules
    start: PairCounts
    """Merges to go on from."""
    max_rounds: int
    directory: str
    kernel_threads: int

    def expand(self, items: beam.PCollection) -> beam.PCollection:
        start, directory = Control(self.start), self.directory
        tick = items.pipeline | "Tick" >> beam.Create([0])
        control = tick | "Start" >> beam.Map(lambda _: start.write(directory)).with_output_types(
            str
        )
        for number in range(self.max_rounds):
            active = self._step(
                items, tick, control, f"Round{number:02d}Count", _count_pairs, rounds.sum_pairs,
                _cut_pairs, _choose_threshold,
            )  # fmt: skip
            control = self._step(
                items, tick, active, f"Round{number:02d}Chunks", _cut_chunks, rounds.sum_chunks,
                _fit_chunks, _learn,
            )  # fmt: skip
        return control

    def _step(
        self,
        items: beam.PCollection,
        tick: beam.PCollection,
        control: beam.PCollection,
        label: str,
        work: "_Work",
        merge: Callable[[list[pa.Table]], pa.Table],
        trim: "_Trim",
        then: "_Then",
    ) -> beam.PCollection:
        """Shards work, parts are summed and trimmed, one worker goes on from all parts.

        tick: one element, so that one worker does it.
        """
        tables = (
            items
            | label
            >> beam.FlatMap(
                _work_on, work, self.rules, self.kernel_threads, AsSingleton(control)
            ).with_output_types(KeyedTable)
            | f"{label}Sum"
            >> beam.CombinePerKey(MergeTablesCombineFn(_unless_control(merge))).with_output_types(
                KeyedTable
            )
            | f"{label}Trim" >> beam.Map(_trim_part, trim, self.rules).with_output_types(pa.Table)
        )
        return tick | f"{label}Then" >> beam.Map(
            _go_on, then, self.rules, self.directory, AsIter(tables)
        ).with_output_types(str)


_Work = Callable[[Sequences, Control, Rules, int], Iterator[KeyedTable]]
_Trim = Callable[[pa.Table, Control, Rules], pa.Table]
_Then = Callable[[Control, list[pa.Table], Rules], Control]

_BASE_SYMBOLS = pa.schema([("base_symbol", pa.int32())])


def _tagged(table: pa.Table, url: str) -> pa.Table:
    """The table with its control's URL (and whatever metadata it had)."""
    return table.replace_schema_metadata({**(table.schema.metadata or {}), b"control": url})


def _control_of(table: pa.Table) -> str:
    return str((table.schema.metadata or {})[b"control"].decode())


def _has_base_symbols(table: pa.Table) -> bool:
    """True for the tables under CONTROL_KEY."""
    return bool(table.column_names == _BASE_SYMBOLS.names)


def _work_on(
    shard: WordShard, work: _Work, rules: Rules, threads: int, control_url: str
) -> Iterator[KeyedTable]:
    control = rounds.read_control(control_url)
    if shard.number == 0:
        yield CONTROL_KEY, _tagged(_BASE_SYMBOLS.empty_table(), control_url)
    if rules.total_symbols and control.base_symbols is None:
        # The words of one character count here; a shard's state has dropped them.
        symbols = pa.table([np.unique(shard.read().symbols)], schema=_BASE_SYMBOLS)
        yield CONTROL_KEY, _tagged(symbols, control_url)
    if not control.done:
        state = shard_state(shard, control.merges, threads)
        for key, table in work(state, control, rules, threads):
            yield key, _tagged(table, control_url)


def _unless_control(
    merge: Callable[[list[pa.Table]], pa.Table],
) -> Callable[[list[pa.Table]], pa.Table]:
    return functools.partial(_merge_tagged, merge)


def _merge_tagged(merge: Callable[[list[pa.Table]], pa.Table], tables: list[pa.Table]) -> pa.Table:
    """Merges tables of one round."""
    if _has_base_symbols(tables[0]):
        every = pc.unique(pa.concat_tables(tables)["base_symbol"])
        return _tagged(pa.table([every], schema=_BASE_SYMBOLS), _control_of(tables[0]))
    return _tagged(merge(tables), _control_of(tables[0]))


def _trim_part(part: KeyedTable, trim: _Trim, rules: Rules) -> pa.Table:
    key, table = part
    if key == CONTROL_KEY:
        return table
    url = _control_of(table)
    return _tagged(trim(table, rounds.read_control(url), rules), url)


def _go_on(_: int, then: _Then, rules: Rules, directory: str, tables: Iterable[pa.Table]) -> str:
    tables = list(tables)
    url = _control_of(tables[0])
    control = rounds.read_control(url)
    if control.done:
        return url
    if rules.total_symbols and control.base_symbols is None:
        found = next(table for table in tables if _has_base_symbols(table))
        control = dataclasses.replace(control, base_symbols=found.num_rows)
    control = then(control, [table for table in tables if not _has_base_symbols(table)], rules)
    if then is _learn:
        _logger.info("learn-merges: %s", json.dumps(control.log[-1]))
        write_checkpoint(control.merges, directory)
    return control.write(directory)


def _count_pairs(
    state: Sequences, control: Control, rules: Rules, threads: int
) -> Iterator[KeyedTable]:
    return rounds.count_pairs(state, rules.parts, threads)


def _cut_pairs(table: pa.Table, control: Control, rules: Rules) -> pa.Table:
    return rounds.cut_pairs(PairCounts.from_table(table), control.threshold, rules).to_table()


def _choose_threshold(control: Control, tables: list[pa.Table], rules: Rules) -> Control:
    return rounds.choose_threshold(control, [PairCounts.from_table(t) for t in tables], rules)


def _cut_chunks(
    state: Sequences, control: Control, rules: Rules, threads: int
) -> Iterator[KeyedTable]:
    return rounds.cut_chunks(state, control.active, rules.parts, threads)


def _fit_chunks(table: pa.Table, control: Control, rules: Rules) -> pa.Table:
    chunks, threshold = rounds.fit_chunks(Sequences.from_table(table), control, rules)
    return chunks.to_table().replace_schema_metadata({"threshold": str(threshold)})


def _learn(control: Control, tables: list[pa.Table], rules: Rules) -> Control:
    parts = [(Sequences.from_table(t), int(t.schema.metadata[b"threshold"])) for t in tables]
    return rounds.learn(control, parts, rules)


# ---- checkpoints ----


def write_checkpoint(merges: PairCounts, directory: str) -> None:
    """Writes the merges so far as a `merges` file named by their number."""
    table = merge_files.to_table(rounds.to_merges(merges))
    write_shard(directory, f"checkpoint-{len(merges):07d}.parquet", MERGES, [table])


def last_checkpoint(directory: str) -> list[Merge]:
    """The merges of the furthest complete checkpoint below a directory; none if there is none."""
    names = [
        name
        for name in storage.list_files(directory)
        if name.rsplit("/", 1)[-1].startswith("checkpoint-") and name.endswith(".parquet")
    ]
    for name in sorted(names, reverse=True):
        try:
            return merge_files.read(storage.join(directory, name))
        except RarewordError as error:
            _logger.warning("a checkpoint is left aside: %s", error)
    return []


def check_finished(control: Control, learn: LearnMerges) -> Sequence[Merge]:
    """The merges of a finished learner; RarewordError if the rounds were used up before."""
    if not control.done:
        used = "1 round was" if learn.max_rounds == 1 else f"{learn.max_rounds} rounds were"
        raise RarewordError(
            f"{used} not enough: {len(control.merges)} of "
            f"{control.limit(learn.rules)} merges are learnt (threshold {control.threshold}). They "
            "are kept: run the same command again to go on from them, or add --max-rounds, or "
            "raise --divide or --max-chunk-symbols"
        )
    return rounds.to_merges(control.merges)
