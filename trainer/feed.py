"""The data feed: the training corpus as a stream of steps, read ahead in bounded memory.

    row groups of all shards        permuted by seed and epoch
      -> blocks                     consecutive row groups with at least `shuffle_pairs` pairs
           -> windows of batches    pairs of a block permuted, windows sorted by length and cut
                -> batches          shuffled within the block: one step each
                     -> shares      every world-th pair to a process
                          -> parts  `accumulate` pieces of a share, taken one after the other

All down to the batches is a pure function of the data, the seed, the epoch and the options
`batch`, `batch_unit`, `max_length`, `shuffle_pairs` and `bpe_dropout`, and every process plans it
for all. So all processes take the same number of steps, and three numbers say where the feed is,
whatever the number of processes.

One thread reads blocks, one makes the tensors of the batches. At most two blocks are in memory:
the one in use and the next one. With BPE-dropout a block is drawn before its batches are planned.
"""

import contextlib
import threading
from collections.abc import Generator
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from rareword.trainer.config import TrainConfig
from rareword.trainer.data import Batch, Corpus, Indices, Pairs, make_batch
from rareword.trainer.distributed import Group
from rareword.trainer.piece_dropout import PieceDropout

T = TypeVar("T")

WINDOW = 20
"""Batches that are sorted by length together (GroundHog's sort_k_batches)."""

STEPS_AHEAD = 8
"""Steps whose tensors wait, made, for the training loop."""

PATIENCE = 10.0
"""Seconds to wait for a reading thread that was told to end; it looks after each row group."""


@dataclass(frozen=True)
class Position:
    """Where the feed is, the same for any number of processes."""

    epoch: int = 0
    block: int = 0
    """Blocks of the epoch that are consumed."""
    batch: int = 0
    """Batches of the block that are consumed."""


@dataclass(frozen=True)
class Step:
    """The data of one update, as one process sees it."""

    parts: tuple[Batch, ...]
    """This process's share in `accumulate` parts or fewer, none if the batch is too small; on the
    host, pinned for cuda."""
    tokens: int
    """Target tokens of the whole batch over all processes, ends of sentences counted."""
    source_tokens: int
    padding: float
    """The share of padding in the matrices of the whole batch, if one process takes it all."""
    ids: NDArray[np.int64]
    """Ids of all pairs of the whole batch."""
    after: Position
    """Where the feed is once this step is taken; its epoch is greater if this ends the epoch."""
    note: str = ""
    """Something to tell when the step is taken: what BPE-dropout did to the block it begins."""


@dataclass(frozen=True)
class _Block:
    """A block in memory and its batches in order."""

    pairs: Pairs
    plan: list[Indices]
    epoch: int
    number: int
    last: bool
    """True if it is the epoch's last one."""
    note: str


class Feed:
    """One process's stream of steps from a corpus; all processes of the group make one alike."""

    def __init__(
        self,
        corpus: Corpus,
        config: TrainConfig,
        group: Group,
        dropout: PieceDropout | None = None,
    ) -> None:
        self._corpus, self._config, self._group = corpus, config, group
        self._dropout = dropout
        self._whole: Pairs | None = None

    def blocks(self, epoch: int) -> list[Indices]:
        """The row groups of each block of an epoch, by rising numbers.

        A corpus that fits one block is the same block in every epoch.
        """
        pairs = self._corpus.row_groups["pairs"]
        order = np.random.default_rng([self._config.seed, epoch]).permutation(len(pairs))
        blocks, start, held = [], 0, 0
        for stop, group in enumerate(order, 1):
            held += pairs[group]
            if held >= self._config.shuffle_pairs or stop == len(order):
                blocks.append(np.sort(order[start:stop]))
                start, held = stop, 0
        return blocks

    def steps(self, position: Position | None = None) -> Generator[Step, None, None]:
        """The steps from a position on, without end, made ahead by threads.

        Blocks before the position are not read. An exception of a thread is raised here, at the
        step that it concerns. Close the generator to end the threads.
        """
        position = position or Position()
        stopped = threading.Event()
        blocks = _ahead(self._read_blocks(position, stopped), 1, stopped)
        return _ahead(self._make_steps(blocks, position.batch), STEPS_AHEAD, stopped)

    def _read_blocks(
        self, position: Position, stopped: threading.Event
    ) -> Generator[_Block, None, None]:
        epoch, first = position.epoch, position.block
        while True:
            blocks = self.blocks(epoch)
            for number in range(first, len(blocks)):
                yield self._read_block(blocks, epoch, number, stopped)
            epoch, first = epoch + 1, 0

    def _read_block(
        self, blocks: list[Indices], epoch: int, number: int, stopped: threading.Event
    ) -> _Block:
        def watch() -> None:
            if stopped.is_set():
                raise _StoppedError

        pairs = self._whole
        if pairs is None:
            pairs = self._corpus.read(blocks[number], watch)
        if len(blocks) == 1:  # no need to read it again in the next epoch
            self._whole = pairs
        note = ""
        if self._dropout is not None:
            before = _pieces(pairs)
            pairs, too_long = self._dropout.draw(pairs, epoch)
            note = (
                f"epoch {epoch + 1}"
                + f", block {number + 1} of {len(blocks)}" * (len(blocks) > 1)
                + f": BPE-dropout makes {_pieces(pairs) / before:.3f} times as many pieces"
                + f", {too_long:,} sentences left alone (--max-length)" * bool(too_long)
            )
        # 1 + number, as a seed [s, e] gives the same random numbers as [s, e, 0].
        generator = np.random.default_rng([self._config.seed, epoch, 1 + number])
        plan = plan_batches(pairs, self._config.batch, self._config.batch_unit, generator)
        return _Block(pairs, plan, epoch, number, number + 1 == len(blocks), note)

    def _make_steps(
        self, blocks: Generator[_Block, None, None], skip: int
    ) -> Generator[Step, None, None]:
        """The steps of all blocks, without the first `skip` ones."""
        if self._group.device.type == "cuda":
            torch.cuda.set_device(self._group.device)  # each thread has a device of its own
        with contextlib.closing(blocks):
            for block in blocks:
                for number in range(skip, len(block.plan)):
                    yield self._step(block, number, block.note if number == skip else "")
                skip = 0
                del block  # before the next one is taken

    def _step(self, block: _Block, number: int, note: str) -> Step:
        config, group, pairs = self._config, self._group, block.pairs
        indices = block.plan[number]
        sides = pairs.source.lengths_of(indices), pairs.target.lengths_of(indices)
        source_tokens, tokens = (int(lengths.sum()) for lengths in sides)
        mine = share(indices, group.rank, group.world)
        parts = np.array_split(mine, max(1, min(config.accumulate, len(mine))))
        batches = (make_batch(pairs, part) for part in parts if len(part))
        if number + 1 < len(block.plan):
            after = Position(block.epoch, block.number, number + 1)
        elif not block.last:
            after = Position(block.epoch, block.number + 1)
        else:
            after = Position(block.epoch + 1)
        return Step(
            tuple(batch.pinned() if group.device.type == "cuda" else batch for batch in batches),
            tokens,
            source_tokens,
            1 - (source_tokens + tokens) / sum(int(side.max()) * len(side) for side in sides),
            pairs.ids[indices],
            after,
            note,
        )


def _pieces(pairs: Pairs) -> int:
    return len(pairs.source.flat) + len(pairs.target.flat)


# ---- planning ----


def plan_batches(
    pairs: Pairs,
    batch: int,
    unit: Literal["tokens", "sentences"],
    generator: np.random.Generator,
) -> list[Indices]:
    """The batches of a block, in order; each holds the indices of its pairs by length.

    The pairs are shuffled, windows of about WINDOW batches are sorted by length and cut into
    batches, and the batches are shuffled. See `cut_batches` for `batch` and `unit`.
    """
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


# ---- reading ahead ----


class _StoppedError(Exception):
    """Ends a thread whose items are no longer wanted."""


def _ahead(
    items: Generator[T, None, None], depth: int, stopped: threading.Event
) -> Generator[T, None, None]:
    """The same endless items, made in a thread, at most `depth` of them before they are asked for.

    An exception of the thread is raised here. When this generator is closed or fails, `stopped` is
    set and the thread ends; a thread that does not (it hangs in a read) keeps no process alive.
    """
    made: SimpleQueue[tuple[T, None] | tuple[None, BaseException]] = SimpleQueue()
    room = threading.Semaphore(depth)

    def work() -> None:
        try:
            while True:
                room.acquire()
                if stopped.is_set():
                    raise _StoppedError
                made.put((next(items), None))
        except BaseException as error:  # whatever it is, the consumer must not wait for ever
            made.put((None, error))
        finally:
            items.close()

    thread = threading.Thread(target=work, name="rareword-feed", daemon=True)
    thread.start()
    try:
        while True:
            item, error = made.get()
            if error is not None:
                raise error
            room.release()
            yield item  # type: ignore[misc]  # there is one, as there is no error
            del item  # a block must be gone before the next but one is read
    finally:
        stopped.set()
        room.release()
        thread.join(PATIENCE)
