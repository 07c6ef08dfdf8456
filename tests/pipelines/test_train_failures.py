"""Processes that die, hang, or run out of memory; runs that are killed and started again."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from forks import Forks
from safetensors.numpy import load_file

from rareword.schemas import storage

TINY = {
    "embedding": 8,
    "hidden": 16,
    "encoder_hidden": 8,
    "dropout": 0.0,
    "batch": 8,
    "batch_unit": "sentences",
    "precision": "float32",
    "max_epochs": 1000,
    "max_steps": 12,
    "validate_every": 5,
    "bleu_pairs": 5,
    "checkpoint_every": 2,
    "patience": 0,
    "threads": 1,
    "log_every": 1,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks() as server:
        yield server


@pytest.fixture
def data(tmp_path: Path, write_segmented: Callable[..., Path]) -> dict[str, str]:
    """Letters to the same letters; 33 pairs, so the epoch's last batch of 8 has a single one."""
    generator = np.random.default_rng(1)
    rows = [generator.integers(3, 9, generator.integers(1, 7)).tolist() for _ in range(43)]
    pairs = [(row, row) for row in rows]
    return {
        "segmented": str(write_segmented(tmp_path / "train", pairs[:33], letters=6)),
        "dev": str(write_segmented(tmp_path / "dev", pairs[33:], letters=6)),
    }


def call(data: dict[str, str], output: Path, **values: object) -> list[str]:
    merged = {**TINY, **data, "output": str(output), **values}
    parts = [("--" + name.replace("_", "-"), str(value)) for name, value in merged.items()]
    return ["train", *(word for pair in parts for word in pair)]


def contents(directory: Path) -> dict[str, bytes]:
    names = storage.list_files(str(directory))
    return {name: (directory / name).read_bytes() for name in names}


# ---- one process, killed at random moments ----


def check_no_torn_checkpoint(directory: Path) -> int:
    """Every pointer names a checkpoint that loads; returns the latest one's step, or 0."""
    step = 0
    for pointer in ("best", "latest"):
        if not (directory / f"{pointer}.json").exists():
            continue
        name = json.loads((directory / f"{pointer}.json").read_text())["checkpoint"]
        folder = directory / "checkpoints" / name
        state = json.loads((folder / "state.json").read_text())
        step = state["state"]["step"]
        model = load_file(folder / "model.safetensors")
        moments = load_file(folder / "optimiser.safetensors")
        assert {name.split("/")[0] for name in moments} == set(model)
    return step


def lines(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0


@pytest.mark.parametrize("minutes", [0, 1e-9])
def test_a_run_killed_twenty_times_ends_with_the_same_bytes(
    forks: Forks, data: dict[str, str], tmp_path: Path, minutes: float
) -> None:
    """With kill -9; the second time with a checkpoint by the clock at each step.

    The moments are drawn: some lines of progress, and some thousandths of a second.
    """
    values = {"dropout": 0.2, "max_steps": 90, "validate_every": 30, "checkpoint_every": 3}
    values |= {"checkpoint_minutes": minutes}
    generator, log = np.random.default_rng(5), tmp_path / "log"
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    steps = [0]
    for _ in range(20):
        pid = forks.start(call(data, killed, **values), log)
        until = lines(log) + generator.integers(0, 8)
        while lines(log) < until and forks.ended(pid) is None:
            time.sleep(0.001)
        time.sleep(generator.uniform(0, 0.03))
        os.kill(pid, signal.SIGKILL)
        assert forks.wait(pid, 60) == -signal.SIGKILL, log.read_text()
        steps.append(check_no_torn_checkpoint(killed))
    assert steps == sorted(steps)
    assert len(set(steps)) > 5
    for run in (killed, whole):
        assert forks.wait(forks.start(call(data, run, **values), log), 120) == 0, log.read_text()
    assert contents(killed) == contents(whole)
