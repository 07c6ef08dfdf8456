"""The group of processes that train one model together: one process, or many under torchrun.

Who does what is the same for any number: each process takes its share of a batch, gradients are
summed, process 0 writes. A process that fails ends, and its end breaks every wait of the others,
so that all end; one that hangs is given up after TIMEOUT.
"""

import contextlib
import datetime
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import Store, TCPStore
from torch.distributed.rendezvous import rendezvous

from rareword.schemas.errors import RarewordError
from rareword.trainer import memory

TIMEOUT = datetime.timedelta(minutes=10)
"""How long a process waits for the others wherever all meet: longer than process 0 takes to write
a checkpoint, and than their reading of data may differ."""
_PATIENCE = datetime.timedelta(seconds=2)
"""How long a process tries an address that may be out of date."""


class PeerLostError(RarewordError):
    """Another process has ended or hangs. A consequence: the other one knows the cause."""


@dataclass(frozen=True)
class Group:
    """This process's place among all. Its methods raise PeerLostError if another is lost."""

    device: torch.device
    rank: int = 0
    world: int = 1

    @property
    def name(self) -> str:
        """This process in a sentence: `process 1 of 4` (they count from 0)."""
        return f"process {self.rank} of {self.world}"

    def add_up(self, tensor: Tensor) -> None:
        """Replaces the tensor, in every process, by the sum over all processes."""
        if self.world > 1:
            with self._together():
                dist.all_reduce(tensor)

    def gather(self, value: Any) -> list[Any]:
        """Each process's value, in all processes, by rank."""
        if self.world == 1:
            return [value]
        values = [None] * self.world
        with self._together():
            dist.all_gather_object(values, value)
        return values

    def from_first(self, value: Any) -> Any:
        """The value of process 0, in all processes."""
        if self.world == 1:
            return value
        values = [value]
        with self._together():
            dist.broadcast_object_list(values, src=0)
        return values[0]

    def leave(self) -> None:
        """Ends the group; every process calls it, and none needs the others afterwards.

        All leave together, so that none finds its connections closed while it still writes.
        """
        if self.world > 1 and dist.is_initialized():
            with self._together():
                dist.barrier()
            dist.destroy_process_group()

    @contextlib.contextmanager
    def _together(self) -> Iterator[None]:
        """Around what needs all processes."""
        try:
            yield
        except (torch.AcceleratorError, torch.OutOfMemoryError):  # this process's own failure
            raise
        except RuntimeError as error:
            minutes = TIMEOUT.total_seconds() / 60
            raise PeerLostError(
                f"{self.name} has lost the others: one of them failed, and its own message says "
                f"why, or did not answer for {minutes:g} minutes ({_first_line(error)}). The same "
                "command goes on from the last checkpoint"
            ) from error


def launched() -> bool:
    """True in a process that torchrun (or a launcher like it) started."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


@contextlib.contextmanager
def join(device: Literal["auto", "cpu", "cuda"], threads: int) -> Iterator[Group]:
    """Joins the processes that torchrun started (RANK and WORLD_SIZE say so); alone otherwise.

    threads: CPU threads of this process, 0 for its share of the cores. Raises RarewordError if
    `cuda` is asked for and there is none, PeerLostError if not all come.
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
    memory.keep_freed()
    group = Group(torch.device("cuda", local) if cuda else torch.device("cpu"), rank, world)
    if world > 1:
        with group._together():
            dist.init_process_group(
                "nccl" if cuda else "gloo",
                store=_meeting_place(rank, world),
                rank=rank,
                world_size=world,
                timeout=TIMEOUT,
            )
    yield group
    # Only after success: with a failed peer, taking leave in order could wait for ever.
    group.leave()


def _meeting_place(rank: int, world: int) -> Store:
    """The store where the processes find each other.

    torchrun has one store for all its restarts, with the addresses of dead processes still in it:
    who reads before the new ones are written waits for the dead. So process 0 opens a store of its
    own, and leaves its port, with a word that only this store knows, in torchrun's. A port that is
    out of date leads to nobody who knows the word.
    """
    shared: Store = next(rendezvous("env://", rank, world, timeout=TIMEOUT))[0]
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":  # opened by process 0 just now
        return shared
    host = os.environ["MASTER_ADDR"]
    key, word = "rareword/store", uuid.uuid4().hex
    if rank == 0:
        own = TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=TIMEOUT)
        own.set("word", word)
        shared.set(key, f"{own.port} {word}")
        return own
    end = time.monotonic() + TIMEOUT.total_seconds()
    while True:
        port, word = shared.get(key).decode().split()
        try:
            own = TCPStore(host, int(port), is_master=False, timeout=_PATIENCE)
            if own.check(["word"]) and own.get("word").decode() == word:
                own.set_timeout(TIMEOUT)
                return own
        except dist.DistError:
            pass
        if time.monotonic() > end:
            raise RuntimeError("process 0 has not come")
        time.sleep(0.1)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
