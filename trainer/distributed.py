"""The group of processes that train one model together: one process, or many under torchrun.

Who does what is the same for any number: each process takes its share of a batch, gradients are
summed, process 0 writes. A process that fails ends, torchrun then ends the others.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from rareword.schemas.errors import RarewordError


@dataclass(frozen=True)
class Group:
    """This process's place among all."""

    device: torch.device
    rank: int = 0
    world: int = 1

    def add_up(self, tensor: Tensor) -> None:
        """Replaces the tensor, in every process, by the sum over all processes."""
        if self.world > 1:
            dist.all_reduce(tensor)

    def gather(self, value: Any) -> list[Any]:
        """Each process's value, in all processes, by rank."""
        if self.world == 1:
            return [value]
        values = [None] * self.world
        dist.all_gather_object(values, value)
        return values

    def from_first(self, value: Any) -> Any:
        """The value of process 0, in all processes."""
        if self.world == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]


def launched() -> bool:
    """True in a process that torchrun (or a launcher like it) started."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


@contextlib.contextmanager
def join(device: Literal["auto", "cpu", "cuda"], threads: int) -> Iterator[Group]:
    """Joins the processes that torchrun started (RANK and WORLD_SIZE say so); alone otherwise.

    threads: CPU threads of this process, 0 for its share of the cores. Raises RarewordError if
    `cuda` is asked for and there is none.
    """
    rank, world, local, local_world = 0, 1, 0, 1
    if launched():
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        local = int(os.environ.get("LOCAL_RANK", rank))
        local_world = int(os.environ.get("LOCAL_WORLD_SIZE", world))
    cuda = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    if cuda and torch.cuda.device_count() <= local:
        raise RarewordError(
            f"--device cuda: process {local} of this machine needs a GPU of its own, but torch "
            f"finds {torch.cuda.device_count()}; use fewer processes or --device cpu"
        )
    if cuda:
        torch.cuda.set_device(local)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    torch.set_num_threads(threads or max(1, (cores or 1) // local_world))
    group = Group(torch.device("cuda", local) if cuda else torch.device("cpu"), rank, world)
    if world == 1:
        yield group
        return
    dist.init_process_group("nccl" if cuda else "gloo", rank=rank, world_size=world)
    yield group
    # Only after success: with a failed peer, taking leave in order could wait for ever. All leave
    # together, so that none finds its connections closed while it still writes.
    dist.barrier()
    dist.destroy_process_group()
