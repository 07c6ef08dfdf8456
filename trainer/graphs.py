"""CUDA graphs: a step's work is recorded once for each shape of batch, then replayed.

Launching a step's thousands of small kernels takes the processor longer than running them takes a
GPU, at the batch sizes of the paper by a factor of four. A replayed graph is launched as one.

A recorded function must find everything that changes in tensors that stay where they are. Its
first call runs as it is, so that libraries and kernels are ready; the second is recorded; all
others replay. The graphs share one pool of memory, as no two run at a time.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from rareword.schemas.vocabulary import EOS, PAD
from rareword.trainer.data import Batch

ROUND = 8
"""Sizes of batches are rounded up to a multiple of it, to have fewer shapes."""

LIMIT = 128
"""Shapes whose graphs are kept; of more, the one that was not used for the longest time goes."""


class Graph(Protocol):
    """A recorded piece of work."""

    def replay(self) -> None: ...


def wanted(option: Literal["auto", "on", "off"], device: torch.device) -> tuple[bool, str | None]:
    """Whether to record, and what to say about it if that is not what one would expect."""
    if device.type != "cuda":
        missing = "--cuda-graphs on: there is no GPU; steps run as they are"
        return False, missing if option == "on" else None
    return option != "off", None


class Recorded:
    """A function without arguments: run, then recorded, then replayed."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._calls = 0
        self._graph: Graph | None = None

    def __call__(self) -> None:
        self._calls += 1
        if self._calls == 1:
            run_aside(self._function)
            return
        if self._graph is None:
            self._graph = record(self._function)
        self._graph.replay()


class RecordedBatches:
    """A function of a batch: recorded once for each shape, batches being padded to fewer shapes.

    function: does its work on a batch on the GPU; leaves results in tensors that stay.
    """

    def __init__(self, function: Callable[[Batch], None], device: torch.device) -> None:
        self._function, self._device = function, device
        self._shapes: OrderedDict[tuple[int, int, int], tuple[Tensor, Tensor, Recorded]] = (
            OrderedDict()
        )

    def __call__(self, batch: Batch) -> None:
        """batch: on the host or the device; see `Batch`."""
        rows, source = batch.source_BS.shape
        target = batch.target_BT.shape[1]
        shape = (_up(rows), _up(source), _up(target))
        if shape not in self._shapes:
            self._shapes[shape] = self._new(*shape)
            if len(self._shapes) > LIMIT:
                self._shapes.popitem(last=False)
        self._shapes.move_to_end(shape)
        source_BS, target_BT, recorded = self._shapes[shape]
        # A row without a pair holds an end of sentence, which is read and translated to nothing.
        source_BS.fill_(PAD)
        source_BS[:, 0] = EOS
        target_BT.fill_(PAD)
        source_BS[:rows, :source].copy_(batch.source_BS, non_blocking=True)
        target_BT[:rows, :target].copy_(batch.target_BT, non_blocking=True)
        recorded()

    def _new(self, rows: int, source: int, target: int) -> tuple[Tensor, Tensor, Recorded]:
        """The places of a shape's inputs, and its work."""
        source_BS = torch.empty(rows, source, dtype=torch.int64, device=self._device)
        target_BT = torch.empty(rows, target, dtype=torch.int64, device=self._device)

        def work() -> None:
            self._function(Batch(source_BS, source_BS != PAD, target_BT))

        return source_BS, target_BT, Recorded(work)


def _up(size: int) -> int:
    return -(-size // ROUND) * ROUND


_pool: Any = None


def run_aside(function: Callable[[], None]) -> None:
    """Runs on a stream of its own, as what is to be recorded later must."""
    if not torch.cuda.is_available():
        function()
        return
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        function()
    torch.cuda.current_stream().wait_stream(stream)


def record(function: Callable[[], None]) -> Graph:
    """Records the function's work without doing it."""
    global _pool  # noqa: PLW0603 (one for the process: graphs that never run together)
    if _pool is None:
        _pool = torch.cuda.graph_pool_handle()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=_pool):
        function()
    return graph
