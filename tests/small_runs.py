"""Small training runs by the command line: sizes, data, and what is compared of two runs."""

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SIZES = {
    "embedding": 8,
    "hidden": 16,
    "encoder_hidden": 8,
    "dropout": 0.0,
    "batch": 8,
    "batch_unit": "sentences",
    "precision": "float32",  # of bf16 two processes round otherwise than one
    "threads": 1,
    "device": "cpu",
}
"""Options of a run that takes seconds."""


def words(values: Mapping[str, object]) -> list[str]:
    """The command line that gives options; a text with spaces gives several values."""
    return [
        word
        for name, value in values.items()
        for word in ("--" + name.replace("_", "-"), *str(value).split())
    ]


def copies(write_segmented: Callable[..., Path], root: Path, train: int) -> dict[str, str]:
    """Letters to the same letters: so many pairs to train on, and 10 of development."""
    generator = np.random.default_rng(1)
    rows = [generator.integers(3, 9, generator.integers(1, 7)).tolist() for _ in range(train + 10)]
    pairs = [(row, row) for row in rows]
    return {
        "segmented": str(write_segmented(root / "train", pairs[:train], letters=6)),
        "dev": str(write_segmented(root / "dev", pairs[train:], letters=6)),
    }


def check_curves(found: Path, wanted: Path) -> None:
    """The histories of two runs of the same plan that differ in rounding only."""
    one, two = (json.loads((path / "history.json").read_text()) for path in (found, wanted))
    for left, right in zip(one, two, strict=True):
        assert left == pytest.approx(right, rel=1e-5)


# ---- the record, `training.jsonl` ----

TIMES = {"seconds", "tokens_per_second"}


def without_times(file: Path) -> list[dict[str, Any]]:
    """Its lines but for the values that differ from run to run."""
    lines = map(json.loads, file.read_text().splitlines())
    return [{name: value for name, value in line.items() if name not in TIMES} for line in lines]


def run_contents(output: Path) -> dict[str, Any]:
    """All files of a run; its config alone holds paths, the record of training alone times."""
    return {
        str(path.relative_to(output)): contents(path)
        for path in sorted(output.rglob("*"))
        if path.is_file() and path.name != "config.json"
    }


def changed_at(output: Path, but: Collection[str] = ("config.json",)) -> dict[str, int]:
    """When each file below was last written, in nanoseconds; `but`: names that do not count."""
    return {
        str(path.relative_to(output)): path.stat().st_mtime_ns
        for path in output.rglob("*")
        if path.is_file() and path.name not in but
    }


def contents(file: Path) -> Any:
    """What two runs of one plan must have alike in a file: its bytes, or a record without times."""
    return without_times(file) if file.name == "training.jsonl" else file.read_bytes()
