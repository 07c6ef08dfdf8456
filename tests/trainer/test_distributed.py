"""One process alone. (Two together: tests/pipelines/test_train.py.)"""

import pytest
import torch

from rareword.schemas.errors import RarewordError
from rareword.trainer import distributed


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
