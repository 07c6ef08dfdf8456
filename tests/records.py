"""The record of a training run, `training.jsonl`, as tests compare it."""

import json
from pathlib import Path
from typing import Any

TIMES = {"seconds", "tokens_per_second"}


def without_times(file: Path) -> list[dict[str, Any]]:
    """Its lines but for the values that differ from run to run."""
    lines = map(json.loads, file.read_text().splitlines())
    return [{name: value for name, value in line.items() if name not in TIMES} for line in lines]


def contents(file: Path) -> Any:
    """What two runs of one plan must have alike in a file: its bytes, or a record without times."""
    return without_times(file) if file.name == "training.jsonl" else file.read_bytes()
