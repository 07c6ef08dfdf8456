"""The data feed: sentence pairs as flat arrays, and the plan of an epoch's batches.

The order of the data is a pure function of the seed, the epoch and the batch size. Batches are
planned for all processes together and then dealt out, so every process takes the same number of
steps, and the state of the feed is one number: how many batches of the epoch are consumed. With
BPE-dropout an epoch's pieces are a pure function of the seed, the epoch and the pairs' ids, drawn
before its batches are planned.

Letters: B batch, S source, T target.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from rareword.schemas import manifest as manifests
from rareword.schemas.errors import RarewordError
from rareword.schemas.manifest import Manifest
from rareword.schemas.tables import SEGMENTED, SIDES, Side, iterate_row_groups
from rareword.schemas.vocabulary import EOS, PAD
from rareword.transforms.bpe import BpeDropout

Indices = NDArray[np.int64]

WINDOW = 20
"""Batches that are sorted by length together (GroundHog's sort_k_batches)."""


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

    def __getitem__(self, index: int) -> NDArray[np.int32]:
        return self.flat[self.offsets[index] : self.offsets[index + 1]]

    def padded(self, indices: Indices) -> NDArray[np.int64]:
        """ids_BS of the chosen sentences, each with its end of sentence, right padded."""
        starts, lengths = self.offsets[indices], self.offsets[indices + 1] - self.offsets[indices]
        columns = np.arange(int(lengths.max()) + 1)
        ids_BS = np.full((len(indices), len(columns)), PAD, np.int64)
        inside = columns < lengths[:, None]
        ids_BS[inside] = self.flat[(starts[:, None] + columns)[inside]]
        ids_BS[np.arange(len(indices)), lengths] = EOS
        return ids_BS


@dataclass(frozen=True)
class Pairs:
    """A segmented corpus in memory: 4 bytes a piece and 24 bytes a pair, in every process."""

    ids: Indices
    source: Sentences
    target: Sentences
    too_long: int
    """Pairs left out because a side has more pieces than allowed."""
    blank: int
    """Pairs left out because a side has no piece."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def longest(self) -> Indices:
        """The length of each pair's longer side, its end of sentence included."""
        return np.maximum(self.source.lengths, self.target.lengths)


class Batch(NamedTuple):
    """One process's share of a batch."""

    source_BS: Tensor
    mask_BS: Tensor
    """True on the source's tokens."""
    target_BT: Tensor


def read_pairs(
    manifest: Manifest, source_size: int, target_size: int, max_length: int | None = None
) -> Pairs:
    """Reads the shards of a `segmented` directory.

    source_size, target_size: numbers of pieces of the vocabularies. max_length: pieces of the
    longer side. Raises RarewordError for an id outside its vocabulary, for rows that the manifest
    does not promise and for a corpus without a usable pair.
    """
    ids: list[Indices] = []
    sides: dict[str, list[tuple[NDArray[np.int32], Indices]]] = {"source": [], "target": []}
    too_long = blank = 0
    for url in manifest.urls:
        for table in iterate_row_groups(url, SEGMENTED):
            lengths = {side: _lengths(table[side]) for side in sides}
            empty = np.minimum(*lengths.values()) == 0
            over = np.maximum(*lengths.values()) > (max_length or np.inf)
            blank += int(empty.sum())
            too_long += int((over & ~empty).sum())
            kept = table.filter(pa.array(~(empty | over)))
            ids.append(kept["id"].to_numpy())
            for side, size in (("source", source_size), ("target", target_size)):
                flat = kept[side].combine_chunks().flatten().to_numpy(zero_copy_only=False)
                if len(flat) and not 0 <= flat.min() <= flat.max() < size:
                    raise RarewordError(
                        f"{url}: column {side!r} holds piece id {flat.max()}, the vocabulary has "
                        f"{size} pieces; segment the corpus again"
                    )
                sides[side].append((flat, _lengths(kept[side])))
    pairs = Pairs(
        np.concatenate(ids or [np.zeros(0, np.int64)]),
        _sentences(sides["source"]),
        _sentences(sides["target"]),
        too_long,
        blank,
    )
    manifests.check_balance(
        {"pairs used and skipped": (len(pairs) + too_long + blank, manifest.rows)}
    )
    if not len(pairs):
        raise RarewordError(
            f"{manifest.directory}: none of its {manifest.rows} pairs can be used "
            f"({too_long} with a side over {max_length} pieces, {blank} with an empty side)"
        )
    return pairs


def _lengths(column: pa.ChunkedArray) -> Indices:
    lengths: Indices = pc.list_value_length(column).to_numpy().astype(np.int64)
    return lengths


def _sentences(parts: list[tuple[NDArray[np.int32], Indices]]) -> Sentences:
    flat = np.concatenate([part for part, _ in parts] or [np.zeros(0, np.int32)])
    lengths = np.concatenate([part for _, part in parts] or [np.zeros(0, np.int64)])
    return Sentences(flat, np.concatenate([[0], np.cumsum(lengths)]))


@dataclass(frozen=True)
class PieceDropout:
    """BPE-dropout on the training data: other pieces each epoch."""

    sides: Mapping[Side, BpeDropout]
    """The sides whose pieces are drawn anew."""
    probability: float
    seed: int
    max_length: int
    """Pieces; see `epoch`."""
    threads: int = 1

    def epoch(self, pairs: Pairs, epoch: int) -> tuple[Pairs, int]:
        """The pairs as an epoch has them, and how many sentences dropout left alone because they
        would have had more than `max_length` pieces.

        A sentence's pieces are a function of seed, epoch, side and the id of its pair.
        """
        drawn, too_long = {"source": pairs.source, "target": pairs.target}, 0
        for number, side in enumerate(SIDES):
            if side not in self.sides:
                continue
            before = drawn[side]
            state = np.random.SeedSequence([self.seed, epoch, number])
            seed = int(state.generate_state(1, np.uint64)[0])
            after = Sentences(
                *self.sides[side].draw(
                    before.flat, before.offsets, pairs.ids, self.probability, seed, self.threads
                )
            )
            over = after.lengths > self.max_length + 1
            too_long += int(over.sum())
            drawn[side] = _either(over, before, after)
        return replace(pairs, source=drawn["source"], target=drawn["target"]), too_long


def _either(first: NDArray[np.bool_], one: Sentences, other: Sentences) -> Sentences:
    """Sentence i of `one` where first[i], else of `other`."""
    if not first.any():
        return other
    lengths = np.where(first, one.lengths, other.lengths) - 1
    starts = np.where(first, one.offsets[:-1], other.offsets[:-1] + len(one.flat))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    places = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
    return Sentences(np.concatenate([one.flat, other.flat])[places], offsets)


def plan_epoch(
    pairs: Pairs, batch: int, unit: Literal["tokens", "sentences"], seed: int, epoch: int
) -> list[Indices]:
    """The batches of an epoch, in order; each holds the indices of its pairs by length.

    The pairs are shuffled, windows of about WINDOW batches are sorted by length and cut into
    batches, and the batches are shuffled. See `cut_batches` for `batch` and `unit`.
    """
    generator = np.random.default_rng([seed, epoch])
    order = generator.permutation(len(pairs))
    longest = pairs.longest
    size = batch if unit == "sentences" else max(1, int(batch / longest.mean()))
    keys = (pairs.source.lengths, pairs.target.lengths, longest)
    batches: list[Indices] = []
    for start in range(0, len(order), WINDOW * size):
        window = order[start : start + WINDOW * size]
        window = window[np.lexsort([key[window] for key in keys])]
        batches += cut_batches(window, longest, batch, unit)
    return [batches[i] for i in generator.permutation(len(batches))]


def cut_batches(
    order: Indices, longest: Indices, batch: int, unit: Literal["tokens", "sentences"]
) -> list[Indices]:
    """Cuts pairs, sorted by rising length, into batches.

    A batch holds `batch` sentences; or as many pairs as fit if every pair takes the length of the
    batch's longest one and `batch` tokens are allowed, but at least one pair.
    """
    if unit == "sentences":
        return [order[i : i + batch] for i in range(0, len(order), batch)]
    batches, start, lengths = [], 0, longest[order]
    while start < len(order):
        reach = lengths[start : start + batch]  # each pair takes a token at least
        sizes = reach * np.arange(1, len(reach) + 1)
        count = max(1, int(np.searchsorted(sizes, batch, "right")))
        batches.append(order[start : start + count])
        start += count
    return batches


def share(batch: Indices, rank: int, world: int) -> Indices:
    """What process `rank` of `world` takes of a batch: every world-th pair, perhaps none."""
    return batch[rank::world]


def make_batch(pairs: Pairs, indices: Indices, device: torch.device) -> Batch:
    """The tensors of some pairs."""
    source_BS = torch.from_numpy(pairs.source.padded(indices))
    target_BT = torch.from_numpy(pairs.target.padded(indices))
    return Batch(
        source_BS.to(device, non_blocking=True),
        (source_BS != PAD).to(device, non_blocking=True),
        target_BT.to(device, non_blocking=True),
    )
