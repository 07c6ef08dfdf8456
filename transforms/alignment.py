"""Word alignment: which words translate which, counted over a corpus and made a dictionary.

The aligner is the library Thot (SIL International; `pip install 'rareword[align]'`). Its models are
learnt on a block of pairs at a time, in both directions; the links of the symmetrised alignment are
counted, and counts add up over blocks.

    corpus shards -> pairs by block -> one aligner a block -> link counts by word -> dictionary

Which pairs form a block depends on their ids alone, and a block is put into the order of its ids,
so the dictionary is the same however the corpus was cut and whoever did the work.
"""

import dataclasses
import importlib
import itertools
import math
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Literal

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.metrics import Metrics
from numpy.typing import NDArray

from rareword.schemas.dictionary import word_begins
from rareword.schemas.errors import RarewordError
from rareword.schemas.tables import (
    CORPUS,
    DICTIONARY,
    SIDES,
    ShardRecord,
    iterate_row_groups,
    shard_name,
    write_shard,
)
from rareword.transforms.elements import MergeTablesCombineFn
from rareword.transforms.parts import KeyedTable, one_chunk, split_parts
from rareword.transforms.segmenters import split_words

Model = Literal["eflomal", "fast-align"]
Symmetrisation = Literal["grow-diag-final-and", "grow-diag", "intersection", "union"]

MAX_WORDS = 1024
"""Words of a side beyond which Thot leaves a pair out without a word."""
FAST_ALIGN_ITERATIONS = 5
"""As in fast_align itself."""

LINKS = pa.schema([("source", pa.string()), ("target", pa.string()), ("links", pa.int64())])
"""How often two words were linked. Figures travel in the same form: their name is the source."""


# ---- the library ----


def aligner_library() -> Any:
    """The module `thot.alignment`; RarewordError with what to install if it is missing."""
    try:
        importlib.import_module("threadpoolctl")  # of the same extra
        return importlib.import_module("thot.alignment")
    except ImportError as error:
        raise RarewordError(
            f"align needs the library sil-thot ({error}): pip install 'rareword[align]'"
        ) from error


def one_thread() -> AbstractContextManager[Any]:
    """Within it the library, once loaded, works with one thread and so adds in one order.

    It takes whichever OpenMP runtime came first, such as torch's with a thread for each core, and
    sums of several threads are rounded by chance. Workers share the blocks, not a block.
    """
    import threadpoolctl

    limits: AbstractContextManager[Any] = threadpoolctl.threadpool_limits(1, user_api="openmp")
    return limits


# ---- which pairs, and which of them together ----


@dataclasses.dataclass(frozen=True)
class Blocks:
    """Which pairs are aligned, and which of them together: a function of their ids alone."""

    count: int
    """Number of blocks."""
    share: float = 1.0
    """Share of the pairs that is aligned."""

    @classmethod
    def plan(cls, pairs: int, block_pairs: int, sample_pairs: int | None = None) -> "Blocks":
        """Blocks of about `block_pairs` of a corpus of `pairs`, or of about `sample_pairs` of
        them."""
        sample = pairs if sample_pairs is None else min(sample_pairs, pairs)
        count = max(1, math.ceil(sample / block_pairs))
        return cls(count, sample / pairs if pairs else 1.0)

    def of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """ids [N] -> block of each pair [N], -1 for those that the sample leaves out."""
        bits = _mix(ids.astype(np.uint64))
        blocks = (_mix(bits) % np.uint64(self.count)).astype(np.int64)
        left_out = (bits >> np.uint64(11)).astype(np.float64) >= self.share * 2.0**53
        return np.where(left_out, -1, blocks)


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """64 bits that look random (SplitMix64; Steele, Lea and Flood 2014)."""
    with np.errstate(over="ignore"):
        values = values + np.uint64(0x9E3779B97F4A7C15)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def split_pairs(pairs: pa.Table, blocks: Blocks) -> Iterator[KeyedTable]:
    """A `corpus` table -> its pairs by block; with key `blocks.count` the figures of all of them.

    Figures: `left_out` by the sample, `empty` on a side, `too_long` on a side for the library.
    """
    block = blocks.of(pairs["id"].to_numpy())
    lengths = [split_words(one_chunk(pairs[side]))[1] for side in SIDES]
    empty = (block >= 0) & (np.minimum(*lengths) == 0)
    too_long = (block >= 0) & ~empty & (np.maximum(*lengths) > MAX_WORDS)
    yield (
        blocks.count,
        figures_table(
            left_out=int((block < 0).sum()), empty=int(empty.sum()), too_long=int(too_long.sum())
        ),
    )
    kept = np.flatnonzero((block >= 0) & ~empty & ~too_long)
    kept = kept[np.argsort(block[kept], kind="stable")]
    bounds = np.searchsorted(block[kept], np.arange(blocks.count + 1))
    yield from split_parts(pairs.take(pa.array(kept)), bounds)


def figures_table(**figures: int) -> pa.Table:
    """Figures as rows of LINKS, which `sum_links` adds up."""
    columns = [list(figures), [""] * len(figures), list(figures.values())]
    return pa.table(columns, schema=LINKS)


# ---- aligning ----


@dataclasses.dataclass(frozen=True)
class _Text:
    """One side of a block as numbers of distinct words."""

    bounds: NDArray[np.int64]
    """[N + 1]: sentence i has the places bounds[i] .. bounds[i + 1]."""
    codes: NDArray[np.int32]
    """The word at each place."""
    words: pa.Array

    @classmethod
    def of(cls, lines: pa.Array) -> "_Text":
        words, lengths = split_words(lines)
        encoded = words.dictionary_encode()
        return cls(
            np.concatenate([[0], np.cumsum(lengths)]),
            encoded.indices.to_numpy(),
            encoded.dictionary,
        )

    def sentences(self) -> Iterator[list[str]]:
        """Each sentence, its words as numerals: the library has a use of its own for some words,
        such as NULL."""
        names = list(map(str, range(len(self.words))))
        for begin, end in itertools.pairwise(self.bounds.tolist()):
            yield [names[code] for code in self.codes[begin:end].tolist()]


@dataclasses.dataclass(frozen=True)
class Aligner:
    """An alignment model, and how its two directions become one alignment."""

    model: Model = "eflomal"
    symmetrisation: Symmetrisation = "grow-diag-final-and"
    seed: int = 1
    """Of the sampler of `eflomal`; `fast-align` draws nothing."""

    def count_links(self, source: pa.Array, target: pa.Array) -> pa.Table:
        """Learns both directions on the N pairs of lines and links their words -> LINKS.

        No side of a pair may be empty or longer than MAX_WORDS.
        """
        texts = _Text.of(source), _Text.of(target)
        both = self._learn(*texts)
        places: list[list[NDArray[np.int64]]] = [[np.empty(0, np.int64)] for _ in texts]
        for pair in range(len(source)):
            _, matrix_ST = both.get_training_alignment(pair)
            for text, linked, index in zip(
                texts, places, np.nonzero(matrix_ST.to_numpy()), strict=True
            ):
                linked.append(text.bounds[pair] + index)
        sources, targets = (
            text.codes[np.concatenate(linked)].astype(np.int64)
            for text, linked in zip(texts, places, strict=True)
        )
        width = len(texts[1].words)
        pairs, links = np.unique(sources * width + targets, return_counts=True)
        return pa.table(
            [
                texts[0].words.take(pa.array(pairs // max(width, 1))).cast(pa.string()),
                texts[1].words.take(pa.array(pairs % max(width, 1))).cast(pa.string()),
                links,
            ],
            schema=LINKS,
        )

    def _learn(self, source: _Text, target: _Text) -> Any:
        """Both directions on a block, symmetrised."""
        library = aligner_library()

        def learn(given: _Text, made: _Text) -> Any:
            if self.model == "fast-align":
                model = library.FastAlignModel()
                model.variational_bayes = True
            else:
                model = library.EflomalAlignmentModel()
                model.seed, model.deterministic = self.seed, True
            for pair in zip(given.sentences(), made.sentences(), strict=True):
                model.add_sentence_pair(*pair)
            model.emit_training_alignments = True
            model.start_training()
            for _ in range(
                FAST_ALIGN_ITERATIONS if self.model == "fast-align" else model.scheduled_iterations
            ):
                model.train()
            model.end_training()
            return model

        with one_thread():
            directions = learn(source, target), learn(target, source)
        both = library.SymmetrizedAlignmentModel(*directions)
        both.heuristic = getattr(
            library.SymmetrizationHeuristic, self.symmetrisation.replace("-", "_").upper()
        )
        return both


def align_block(
    keyed: tuple[int, Iterable[pa.Table]], blocks: Blocks, aligner: Aligner, shards: int
) -> Iterator[KeyedTable]:
    """A block's pairs -> its links by dictionary shard, and its figures with key `shards`.

    Figures: pairs `aligned` and `links`. Those that come with key `blocks.count` go on as they are,
    with an empty table for each shard, so that one without words is a file of no rows.
    """
    block, tables = keyed
    if block == blocks.count:
        yield from ((shard, LINKS.empty_table()) for shard in range(shards))
        yield shards, sum_links(tables)
        return
    pairs = pa.concat_tables(tables).sort_by("id")
    links = aligner.count_links(
        *(one_chunk(pairs[side].cast(pa.large_string())) for side in SIDES)  # may be over 2 GiB
    )
    figures = {"aligned": pairs.num_rows, "links": pc.sum(links["links"]).as_py() or 0}
    yield shards, figures_table(**figures)
    yield from split_links(links, shards)


def sum_links(tables: Iterable[pa.Table]) -> pa.Table:
    """Adds the links of equal pairs of words; in no particular order."""
    table = pa.concat_tables([LINKS.empty_table(), *tables])
    sums = table.group_by(["source", "target"]).aggregate([("links", "sum")])
    return sums.rename_columns({"links_sum": "links"}).select(LINKS.names).cast(LINKS)


def split_links(links: pa.Table, shards: int) -> Iterator[KeyedTable]:
    """Links by dictionary shard, which is a function of the source word's bytes."""
    encoded = one_chunk(links["source"]).dictionary_encode()
    shard_of_word = np.array(
        [zlib.crc32(word.encode()) % shards for word in encoded.dictionary.to_pylist()], np.int64
    )
    shard = shard_of_word[encoded.indices.to_numpy()]
    order = np.argsort(shard, kind="stable")
    bounds = np.searchsorted(shard[order], np.arange(shards + 1))
    yield from split_parts(links.take(pa.array(order)), bounds)


# ---- the dictionary ----


@dataclasses.dataclass(frozen=True)
class Pruning:
    """Which translations of a word the dictionary keeps."""

    keep: int = 100
    """The most probable ones; 0: all."""
    min_probability: float = 0.0

    def dictionary(self, links: pa.Table) -> pa.Table:
        """Summed LINKS -> DICTIONARY, sorted by source, falling count and target.

        A probability is the share of the source word's links, pruned ones counted.
        """
        links = links.sort_by(
            [("source", "ascending"), ("links", "descending"), ("target", "ascending")]
        )
        counts = links["links"].to_numpy()
        begins = word_begins(links["source"])
        rows = np.diff([*begins, len(counts)])
        totals = np.add.reduceat(counts, begins) if len(begins) else counts
        probabilities = counts / np.repeat(totals, rows)
        ranks = np.arange(len(counts)) - np.repeat(begins, rows)
        kept = (ranks < (self.keep or len(counts))) & (probabilities >= self.min_probability)
        columns = [links["source"], links["target"], probabilities, counts]
        return pa.table(columns, schema=DICTIONARY.fields).filter(pa.array(kept))


@dataclasses.dataclass(eq=False)
class AlignWords(beam.PTransform):
    """URLs of corpus shards -> one record for each `dictionary` shard written below `directory`,
    and one without a name whose counters are the figures of the pairs.

    A block's pairs are gathered on one worker, so memory is that of about `block_pairs` pairs.
    """

    directory: str
    shards: int
    blocks: Blocks
    aligner: Aligner
    pruning: Pruning

    def expand(self, urls: beam.PCollection) -> beam.PCollection:
        return (
            urls
            | "Read" >> beam.FlatMap(_read, self.blocks).with_output_types(KeyedTable)
            | "Gather" >> beam.GroupByKey()
            | "Align"
            >> beam.FlatMap(align_block, self.blocks, self.aligner, self.shards).with_output_types(
                KeyedTable
            )
            | "Sum"
            >> beam.CombinePerKey(MergeTablesCombineFn(sum_links)).with_output_types(KeyedTable)
            | "Write"
            >> beam.Map(_write, self.directory, self.shards, self.pruning).with_output_types(
                ShardRecord
            )
        )


def _read(url: str, blocks: Blocks) -> Iterator[KeyedTable]:
    """The pairs of a corpus shard by block."""
    yield blocks.count, figures_table(left_out=0, empty=0, too_long=0)  # of a file without rows
    for group in iterate_row_groups(url, CORPUS):
        Metrics.counter(AlignWords, "in-rows").inc(group.num_rows)
        yield from split_pairs(group, blocks)


def _write(keyed: KeyedTable, directory: str, shards: int, pruning: Pruning) -> ShardRecord:
    """A shard, sorted, so that the file is a function of the links alone; or the figures."""
    shard, links = keyed
    if shard == shards:
        figures = dict(zip(links["source"].to_pylist(), links["links"].to_pylist(), strict=True))
        return ShardRecord("", 0, 0, "", figures)
    dictionary = pruning.dictionary(links)
    counters = {
        "links": pc.sum(links["links"]).as_py() or 0,
        "source_words": pc.count_distinct(links["source"]).as_py(),
        "pruned": links.num_rows - dictionary.num_rows,
    }
    return write_shard(directory, shard_name(shard, shards), DICTIONARY, [dictionary], counters)
