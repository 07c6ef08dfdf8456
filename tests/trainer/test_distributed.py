"""One process alone, and how several find each other. (Runs: tests/pipelines.)"""

import datetime
import threading

import numpy as np
import pytest
import torch
import torch.distributed as dist

from rareword.schemas.errors import RarewordError
from rareword.trainer import distributed, memory


def test_alone_everything_is_its_own_sum_and_list() -> None:
    with distributed.join("cpu", 1) as group:
        tensor = torch.tensor([1.0, 2.0])
        group.add_up(tensor)
        assert tensor.tolist() == [1.0, 2.0]
        assert group.gather("x") == ["x"]
        assert group.from_first("y") == "y"
        assert (group.rank, group.world, group.device.type) == (0, 1, "cpu")


def test_a_group_of_one_under_torchrun_needs_no_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert distributed.launched()
    with distributed.join("cpu", 1) as group:
        assert group.world == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_a_gpu_is_refused() -> None:
    with pytest.raises(RarewordError, match="--device cuda"), distributed.join("cuda", 1):
        pass


def test_threads_are_set() -> None:
    with distributed.join("cpu", 2):
        assert torch.get_num_threads() == 2


@pytest.mark.parametrize("stale", ["nobody", "another store"])
def test_after_a_restart_processes_find_each_other_and_not_the_dead(
    monkeypatch: pytest.MonkeyPatch, stale: str
) -> None:
    """torchrun's store still has what process 0 left before it died."""
    shared, other = (dist.TCPStore("127.0.0.1", 0, is_master=True) for _ in range(2))
    port = other.port
    if stale == "nobody":
        del other
    shared.set("rareword/store", f"{port} word")
    monkeypatch.setattr(distributed, "_PATIENCE", datetime.timedelta(seconds=0.2))
    for name, value in {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(shared.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }.items():
        monkeypatch.setenv(name, value)
    found: list[dist.Store] = []
    second = threading.Thread(target=lambda: found.append(distributed._meeting_place(1, 2)))
    second.start()
    second.join(0.5)
    assert not found
    first = distributed._meeting_place(0, 2)
    second.join()
    first.set("said", "here")
    assert found[0].get("said") == b"here"
    shared.set("said", "elsewhere")
    assert found[0].get("said") == b"here"


def test_shortage_of_memory_is_told_by_class_or_text() -> None:
    errors: list[Exception] = []
    for call in (lambda: torch.empty(1 << 50), lambda: np.empty(1 << 58), lambda: [0] * (1 << 60)):
        with pytest.raises((MemoryError, RuntimeError)) as caught:
            call()
        errors.append(caught.value)
    errors.append(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"))
    for error in errors:
        assert memory.ran_out(error)
        with (
            pytest.raises(RarewordError, match=r"^out of memory here: do that \(.+\)$"),
            memory.explained("here", "do that"),
        ):
            raise error
    for other in (ValueError("out of memory"), RuntimeError("shapes do not match")):
        assert not memory.ran_out(other)
        with pytest.raises(type(other), match=str(other)), memory.explained("here", "do that"):
            raise other
