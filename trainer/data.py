"""Segmented sentence pairs: looking through a corpus on disk, and parts of it as flat arrays.

A corpus is read by row groups. `scan` looks through all of them once and keeps a few numbers of
each, `Corpus.read` takes some of them into memory.

Letters: B batch, S source, T target.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from rareword.schemas.errors import RarewordError
from rareword.schemas.manifest import Manifest
from rareword.schemas.tables import SEGMENTED, SIDES, Side, iterate_row_groups
from rareword.schemas.vocabulary import EOS, PAD
from rareword.trainer.distributed import Group

Indices = NDArray[np.int64]

# ---- in memory ----


@dataclass(frozen=True)
class Sentences:
    """Many sentences of piece ids in one flat array, without end of sentence."""

    flat: NDArray[np.int32]
    offsets: Indices
    """Sentence i is flat[offsets[i] : offsets[i + 1]]."""

    @property
    def lengths(self) -> Indices:
        """Pieces of each sentence and 1 for its end."""
        return np.diff(self.offsets) + 1

    def lengths_of(self, indices: Indices) -> Indices:
        """The same for some sentences alone."""
        return self.offsets[indices + 1] - self.offsets[indices] + 1

    def __getitem__(self, index: int) -> NDArray[np.int32]:
        return self.flat[self.offsets[index] : self.offsets[index + 1]]

    def padded(self, indices: Indices) -> NDArray[np.int64]:
        """ids_BS of the chosen sentences, each with its end of sentence, right padded."""
        starts, lengths = self.offsets[indices], self.lengths_of(indices) - 1
        columns = np.arange(int(lengths.max()) + 1)
        ids_BS = np.full((len(indices), len(columns)), PAD, np.int64)
        inside = columns < lengths[:, None]
        ids_BS[inside] = self.flat[(starts[:, None] + columns)[inside]]
        ids_BS[np.arange(len(indices)), lengths] = EOS
        return ids_BS


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs in memory: 4 bytes a piece and 24 bytes a pair."""

    ids: Indices
    source: Sentences
    target: Sentences

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def longest(self) -> Indices:
        """The length of each pair's longer side, its end of sentence included."""
        return np.maximum(self.source.lengths, self.target.lengths)


class Batch(NamedTuple):
    """Sentence pairs as tensors, right padded with PAD, ends of sentences included."""

    source_BS: Tensor
    mask_BS: Tensor
    """True on the source's tokens."""
    target_BT: Tensor

    def to(self, device: torch.device) -> "Batch":
        """The batch on a device; from pinned memory the copy runs beside other work."""
        return Batch(*(tensor.to(device, non_blocking=True) for tensor in self))

    def pinned(self) -> "Batch":
        """The batch in memory that a GPU can read by itself."""
        return Batch(*(tensor.pin_memory() for tensor in self))


def make_batch(pairs: Pairs, indices: Indices) -> Batch:
    """The tensors of some pairs, on the host."""
    source_BS, target_BT = pairs.source.padded(indices), pairs.target.padded(indices)
    return Batch(*map(torch.from_numpy, (source_BS, source_BS != PAD, target_BT)))


# ---- on disk ----

ROW_GROUP = np.dtype(
    [(name, np.int64) for name in ("shard", "index", "pairs", "source", "target")]
    + [(name, np.int64) for name in ("too_long", "blank")]
)
"""What `scan` keeps of a row group: where it is, its usable pairs and their pieces of each side,
and the pairs that are left out."""


@dataclass(frozen=True)
class Limits:
    """Which pairs can be used."""

    source_size: int
    """Pieces of the source vocabulary."""
    target_size: int
    max_length: int | None = None
    """Pieces of the longer side."""

    def sort_out(
        self, table: pa.Table, url: str
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_], dict[Side, Indices]]:
        """Which rows have a side over the limit, which have a side without a piece, and the
        lengths of both sides.

        Raises RarewordError for an id that the vocabulary does not have.
        """
        lengths = {side: _lengths(table[side]) for side in SIDES}
        for side, size in zip(SIDES, (self.source_size, self.target_size), strict=True):
            flat = _flat(table[side])
            low, high = (int(flat.min()), int(flat.max())) if len(flat) else (EOS, EOS)
            if low <= PAD or high >= size:
                wrong = low if low <= PAD else high
                raise RarewordError(
                    f"{url}: column {side!r} holds piece id {wrong}, the vocabulary has {size} "
                    f"pieces and {PAD} is kept for padding; segment the corpus again"
                )
        blank = np.minimum(*lengths.values()) == 0
        over = np.maximum(*lengths.values()) > (self.max_length or np.inf)
        return over & ~blank, blank, lengths


@dataclass(frozen=True)
class Corpus:
    """A segmented corpus on disk, as `scan` found it."""

    urls: tuple[str, ...]
    row_groups: NDArray[np.void]
    """Those with a usable pair, in the order of the shards; see ROW_GROUP."""
    limits: Limits
    too_long: int
    """Pairs left out because a side has more pieces than allowed."""
    blank: int
    """Pairs left out because a side has no piece."""

    def __len__(self) -> int:
        """Usable pairs."""
        return int(self.row_groups["pairs"].sum())

    @property
    def target_tokens(self) -> int:
        """Pieces and ends of sentences of all usable targets."""
        return int(self.row_groups["target"].sum()) + len(self)

    def read(self, chosen: Indices, watch: Callable[[], None] = lambda: None) -> Pairs:
        """The usable pairs of some row groups, given by rising numbers.

        Memory holds them and two row groups more. watch: called before each row group. Raises
        RarewordError for a damaged file and for one that is not what `scan` saw.
        """
        groups = self.row_groups[chosen]
        count, row, place = int(groups["pairs"].sum()), 0, dict.fromkeys(SIDES, 0)
        ids = np.empty(count, np.int64)
        flat = {side: np.empty(int(groups[side].sum()), np.int32) for side in SIDES}
        lengths = {side: np.empty(count, np.int64) for side in SIDES}
        for shard in np.unique(groups["shard"]):
            url, here = self.urls[shard], groups[groups["shard"] == shard]
            watch()
            tables = iterate_row_groups(url, SEGMENTED, chosen=here["index"].tolist())
            for group, table in zip(here, tables, strict=True):
                too_long, blank, found = self.limits.sort_out(table, url)
                usable = ~(too_long | blank)
                kept = table if usable.all() else table.filter(pa.array(usable))
                rows = slice(row, row + len(kept))
                for side in SIDES:
                    pieces = _flat(kept[side])
                    if (len(kept), len(pieces)) != (group["pairs"], group[side]):
                        raise RarewordError(
                            f"{url}: row group {group['index']} is not what it was when this run "
                            "began; start it again"
                        )
                    lengths[side][rows] = found[side][usable]
                    flat[side][place[side] : place[side] + len(pieces)] = pieces
                    place[side] += len(pieces)
                ids[rows] = kept["id"].to_numpy()
                row = rows.stop
                watch()
        sides = [
            Sentences(flat[side], np.concatenate([[0], np.cumsum(lengths[side])])) for side in SIDES
        ]
        return Pairs(ids, *sides)


def scan(
    manifest: Manifest,
    source_size: int,
    target_size: int,
    max_length: int | None = None,
    group: Group | None = None,
) -> Corpus:
    """Looks through a `segmented` directory, the processes of the group through a part each.

    source_size, target_size: numbers of pieces of the vocabularies. max_length: pieces of the
    longer side. Memory holds two row groups. Raises RarewordError, the same in all processes, for
    a damaged file, an id outside its vocabulary, rows that the manifest does not promise and a
    corpus without a usable pair.
    """
    rank, world = (group.rank, group.world) if group else (0, 1)
    limits = Limits(source_size, target_size, max_length)
    mine: NDArray[np.void] | RarewordError
    try:
        mine = _scan_shards(manifest, limits, range(rank, len(manifest.shards), world))
    except RarewordError as error:
        mine = error
    parts: list[NDArray[np.void]] = []
    for part in group.gather(mine) if group else [mine]:
        if isinstance(part, RarewordError):
            raise part
        parts.append(part)
    found = np.sort(np.concatenate(parts), order=["shard", "index"])
    corpus = Corpus(
        tuple(manifest.urls),
        found[found["pairs"] > 0],
        limits,
        int(found["too_long"].sum()),
        int(found["blank"].sum()),
    )
    if not len(corpus):
        raise RarewordError(
            f"{manifest.directory}: none of its {manifest.rows} pairs can be used "
            f"({corpus.too_long} with a side over {max_length} pieces, {corpus.blank} with an "
            "empty side)"
        )
    return corpus


def _scan_shards(manifest: Manifest, limits: Limits, numbers: range) -> NDArray[np.void]:
    """What there is in each row group of some shards."""
    found = []
    for number in numbers:
        url, rows = manifest.urls[number], 0
        for index, table in enumerate(iterate_row_groups(url, SEGMENTED)):
            too_long, blank, lengths = limits.sort_out(table, url)
            usable = ~(too_long | blank)
            pieces = (int(lengths[side][usable].sum()) for side in SIDES)
            counts = (usable.sum(), *pieces, too_long.sum(), blank.sum())
            found.append((number, index, *map(int, counts)))
            rows += len(table)
        if rows != manifest.shards[number].rows:
            raise RarewordError(
                f"{url} holds {rows} pairs, its manifest says {manifest.shards[number].rows}; "
                "segment the corpus again"
            )
    return np.array(found, ROW_GROUP)


def read_pairs(
    manifest: Manifest, source_size: int, target_size: int, max_length: int | None = None
) -> Pairs:
    """A small corpus as a whole; see `scan` for the arguments and what is refused."""
    corpus = scan(manifest, source_size, target_size, max_length)
    return corpus.read(np.arange(len(corpus.row_groups)))


def _lengths(column: pa.ChunkedArray) -> Indices:
    lengths: Indices = pc.list_value_length(column).to_numpy().astype(np.int64)
    return lengths


def _flat(column: pa.ChunkedArray) -> NDArray[np.int32]:
    flat: NDArray[np.int32] = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return flat
