"""What is shown and recorded of a training run, against plain computations and TensorBoard."""

import itertools
import json
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_runs
from hypothesis import given
from hypothesis import strategies as st

from rareword.schemas import storage
from rareword.trainer import progress
from rareword.trainer.config import TrainConfig
from rareword.trainer.progress import Progress, Update, duration
from rareword.trainer.state import RunState
from rareword.trainer.validation import Found, Sample

CONFIG = TrainConfig(log_every=4, max_steps=30)
SAMPLE = Sample("ein Haus", "a house", "a home")


def updates(seed: int = 1) -> Iterator[Update]:
    generator = np.random.default_rng(seed)
    while True:
        tokens, source_tokens = generator.integers(1, 50, 2).tolist()
        yield Update(
            loss=float(generator.gamma(2, 10)),
            tokens=tokens,
            source_tokens=source_tokens,
            padding=float(generator.uniform(0, 0.5)),
            pairs=int(generator.integers(1, 9)),
            norm=float(generator.gamma(2)),
            clipped=bool(generator.integers(2)),
        )


def start(
    directory: str | None,
    step: int = 0,
    config: TrainConfig = CONFIG,
    lines: list[str] | None = None,
    pairs: int | None = None,
) -> tuple[Progress, RunState]:
    """A run that begins or goes on at a step."""
    state, say = RunState(0.5, step=step), ([] if lines is None else lines).append
    return Progress(config, state, directory, say=say, show=say, pairs=pairs), state


def run(
    directory: str, until: int, *, since: int = 0, config: TrainConfig = CONFIG, every: int = 3
) -> None:
    """Steps, a validation each 10 and at 30, a checkpoint each `every` and at validations."""
    shown, state = start(directory, since, config)
    for update in itertools.islice(updates(), since, until):
        state.step += 1
        shown.add(state, update)
        if state.step % 10 == 0:
            shown.line(state)
            best = state.validate(50 / state.step, state.step / 2, config)
            assert best
            shown.validated(state, Found(50 / state.step, state.step / 2, (SAMPLE,)), 0.5, 0.1)
        if state.step % 10 == 0 or state.step % every == 0:
            shown.checkpoint(state)
    if state.step == 30:
        shown.end(state, "enough")
    shown.close()


def record(directory: str) -> list[dict[str, Any]]:
    text = storage.read_text(storage.join(directory, progress.RECORD))
    return [json.loads(line) for line in text.splitlines()]


def timeless(directory: str) -> list[dict[str, Any]]:
    return [
        {k: v for k, v in line.items() if k not in small_runs.TIMES} for line in record(directory)
    ]


def test_a_line_has_the_means_since_the_last_one(tmp_path: Path) -> None:
    run(str(tmp_path), 30)
    lines = timeless(str(tmp_path))
    assert [(line["kind"], line["step"]) for line in lines] == [
        *(("train", 4), ("train", 8), ("train", 10), ("validation", 10)),
        *(("train", 12), ("train", 16), ("train", 20), ("validation", 20)),
        *(("train", 24), ("train", 28), ("train", 30), ("validation", 30), ("end", 30)),
    ]
    columns = [np.array(column) for column in zip(*itertools.islice(updates(), 30), strict=True)]
    loss, tokens, source, padding, _, norm, clipped = columns
    first = 0
    for line in lines:
        if line["kind"] != "train":
            continue
        part = slice(first, line["step"])
        first = line["step"]
        both = (tokens + source)[part]
        expected = {
            "kind": "train",
            "step": line["step"],
            "epoch": 0,
            "updates": part.stop - part.start,
            "loss": loss[part].sum() / tokens[part].sum(),
            "perplexity": np.exp(loss[part].sum() / tokens[part].sum()),
            "target_tokens": tokens[part].sum(),
            "source_tokens": source[part].sum(),
            "padding": 1 - both.sum() / (both / (1 - padding[part])).sum(),
            "gradient_norm": norm[part].mean(),
            "clipped": clipped[part].mean(),
            "learning_rate": 0.5,
        }
        assert line == pytest.approx(expected)


def test_a_validation_and_the_end_are_recorded_with_their_figures(tmp_path: Path) -> None:
    run(str(tmp_path), 30)
    lines = timeless(str(tmp_path))
    assert lines[3] == {
        "kind": "validation",
        "step": 10,
        "epoch": 0,
        "loss": 5.0,
        "perplexity": math.exp(5.0),
        "bleu": 5.0,
        "train_loss": 0.0,
        "learning_rate": 0.5,
        "best": True,
        "stalled": 0,
        "samples": [{"source": "ein Haus", "reference": "a house", "translation": "a home"}],
    }
    assert lines[-1] == {
        "kind": "end",
        "step": 30,
        "epoch": 0,
        "reason": "enough",
        "best_step": 30,
        "loss": 50 / 30,
        "bleu": 15.0,
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    directory = str(tmp_path_factory.mktemp("whole"))
    run(directory, 30)
    return timeless(directory)


NUMBERS = itertools.count()


@given(
    kills=st.lists(st.integers(1, 29), max_size=4),
    every=st.integers(1, 7),
    appends=st.booleans(),
    torn=st.integers(0, 40),
)
def test_a_run_killed_anywhere_leaves_the_record_of_a_whole_one(
    whole: list[dict[str, Any]], kills: list[int], every: int, appends: bool, torn: int
) -> None:
    """Also where files cannot be appended to; and if a crash tears what came after a checkpoint."""
    directory = f"memory://progress-{os.getpid()}-{next(NUMBERS)}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "can_append", lambda url: appends)
        patch.setattr(progress, "_FLUSH_S", 0.0)
        since = 0
        for kill in kills:
            if kill < since:
                continue
            run(directory, kill, since=since, every=every)
            last = [step for step in range(1, kill + 1) if step % every == 0 or step % 10 == 0]
            since = max(since, *last, 0)
            url = storage.join(directory, progress.RECORD)
            data = storage.read_text(url).encode()
            covered = [line for line in data.splitlines(True) if json.loads(line)["step"] <= since]
            storage.write_bytes(url, data[: max(len(b"".join(covered)), len(data) - torn)])
        run(directory, 30, since=since, every=every)
    assert timeless(directory) == whole
    seconds = [line["seconds"] for line in record(directory)]
    assert seconds == sorted(seconds)


def test_another_log_every_changes_lines_and_loses_no_update(tmp_path: Path) -> None:
    run(str(tmp_path), 23)
    run(str(tmp_path), 30, since=21, config=replace(CONFIG, log_every=1))
    lines = [line for line in record(str(tmp_path)) if line["kind"] == "train"]
    assert [line["step"] for line in lines] == [4, 8, 10, 12, 16, 20, *range(22, 31)]
    assert sum(line["updates"] for line in lines) == 30


def test_a_record_that_is_gone_stops_nothing(tmp_path: Path) -> None:
    run(str(tmp_path), 15)
    (tmp_path / progress.RECORD).unlink()
    run(str(tmp_path), 30, since=15)
    lines = timeless(str(tmp_path))
    assert [line["step"] for line in lines] == [16, 20, 20, 24, 28, 30, 30, 30]
    assert lines[0]["updates"] == 1


@pytest.mark.parametrize("lost", [1, 2, 40])
def test_a_last_line_that_is_torn_is_taken_out(tmp_path: Path, lost: int) -> None:
    """As after a power failure: the checkpoint is there, the end of the record is not."""
    run(str(tmp_path), 15)
    path = tmp_path / progress.RECORD
    path.write_bytes(path.read_bytes()[:-lost])
    run(str(tmp_path), 30, since=15)
    steps = [line["step"] for line in record(str(tmp_path))]
    assert steps == [4, 8, 10, 10, 12, 16, 20, 20, 24, 28, 30, 30, 30]


def test_a_loss_beyond_numbers_is_null_in_json(tmp_path: Path) -> None:
    lines: list[str] = []
    shown, state = start(str(tmp_path), config=replace(CONFIG, log_every=1), lines=lines)
    state.step = 1
    shown.add(state, next(updates())._replace(loss=1e6, tokens=2))
    state.validate(math.nan, None, CONFIG)
    shown.validated(state, Found(math.nan, None, ()), 0.5, 0.1)
    shown.close()
    train, validation = record(str(tmp_path))
    assert (train["loss"], train["perplexity"]) == (5e5, None)
    assert (validation["loss"], validation["perplexity"], validation["bleu"]) == (None, None, None)
    assert "perplexity too large" in lines[0]


def test_a_process_that_records_nothing_writes_nothing(tmp_path: Path) -> None:
    shown, state = start(None, config=replace(CONFIG, tensorboard=True))
    for update in itertools.islice(updates(), 5):
        state.step += 1
        shown.add(state, update)
    shown.checkpoint(state)
    shown.end(state, "enough")
    shown.close()


# ---- times ----


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Time that passes only when it is told to."""
    now = 1000.0

    def wait(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    return wait


EVEN = Update(loss=20.0, tokens=10, source_tokens=6, padding=0.5, pairs=2, norm=1.0, clipped=True)


def test_times_and_rates_are_those_of_the_clock(
    tmp_path: Path, clock: Callable[[float], None]
) -> None:
    lines: list[str] = []
    shown, state = start(str(tmp_path), config=replace(CONFIG, log_every=2), lines=lines)
    for _ in range(6):
        clock(8.0 if state.step < 2 else 0.5)
        state.step += 1
        shown.add(state, EVEN)
    shown.checkpoint(state)
    shown.close()
    assert lines == [
        f"train: step {step}, epoch 1: loss 2.0000, perplexity 7.39, {rate} tokens/s, "
        f"at most {left} left, learning rate 0.5, gradient norm 1.00, 100% clipped, padding 50.0%"
        # 24 steps of half a second are left in the end: the slow first two count no more.
        for step, rate, left in ((2, 2, "4 min"), (4, 32, "13 s"), (6, 32, "12 s"))
    ]
    written = record(str(tmp_path))
    assert [line["seconds"] for line in written] == [16.0, 17.0, 18.0]
    assert [line["tokens_per_second"] for line in written] == [2.0, 32.0, 32.0]
    clock(1e6)  # between a kill and the next start
    shown, state = start(str(tmp_path), 6, lines=lines)
    clock(2.0)
    state.step = 7
    shown.end(state, "enough")
    assert lines[-1] == "train: ended at step 7: enough; took 20 s"
    assert record(str(tmp_path))[-1]["seconds"] == 20.0


@pytest.mark.parametrize(
    ("max_steps", "max_epochs", "pairs", "left"),
    [
        (None, 3, None, None),  # nothing is known
        (None, 3, 40, "56 s"),  # 20 updates an epoch
        (30, 3, 40, "26 s"),
        (100, 3, 40, "56 s"),
        (100, 3, None, "2 min"),  # 96 s
    ],
)
def test_the_time_left_is_what_is_known(
    clock: Callable[[float], None],
    max_steps: int | None,
    max_epochs: int,
    pairs: int | None,
    left: str | None,
) -> None:
    config = replace(CONFIG, max_steps=max_steps, max_epochs=max_epochs)
    lines: list[str] = []
    shown, state = start(None, config=config, lines=lines, pairs=pairs)
    for _ in range(4):
        clock(1.0)
        state.step += 1
        shown.add(state, EVEN)
    assert (f"at most {left} left" if left else "tokens/s, learning rate") in lines[0]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "0 s"),
        (59, "59 s"),
        (61, "1 min"),
        (59 * 60 + 20, "59 min"),
        (59 * 60 + 40, "1 h 0 min"),
        (3 * 3600 + 5 * 60, "3 h 5 min"),
        (24 * 3600 - 1, "1 d 0 h"),
        (52 * 3600, "2 d 4 h"),
    ],
)
def test_durations_have_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


# ---- TensorBoard ----


def scalars(directory: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard itself reads, by tag."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(directory / progress.TENSORBOARD), size_guidance={"scalars": 0})
    found.Reload()
    return {
        tag: [(event.step, event.value) for event in found.Scalars(tag)]
        for tag in found.Tags()["scalars"]
    }


def test_tensorboard_shows_the_record_of_a_run_that_was_killed(tmp_path: Path) -> None:
    config = replace(CONFIG, tensorboard=True)
    for since, until in ((0, 2), (0, 23), (18, 26), (24, 30)):
        run(str(tmp_path), until, since=since, config=config)
    found = scalars(tmp_path)
    expected: dict[str, list[tuple[int, float]]] = {}
    for line in record(str(tmp_path)):
        for name, value in line.items():
            if line["kind"] == "end" or name in ("kind", "step", "epoch", "seconds"):
                continue
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                expected.setdefault(f"{line['kind']}/{name}", []).append((line["step"], value))
    assert {"train/loss", "train/tokens_per_second", "validation/bleu"} <= set(expected)
    assert set(found) == set(expected)
    for tag, values in expected.items():
        assert [step for step, _ in found[tag]] == [step for step, _ in values], tag
        np.testing.assert_allclose(
            [value for _, value in found[tag]], [value for _, value in values], rtol=1e-6
        )


def test_tensorboard_shows_the_samples(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run(str(tmp_path), 10, config=replace(CONFIG, tensorboard=True))
    found = EventAccumulator(str(tmp_path / progress.TENSORBOARD))
    found.Reload()
    (event,) = found.Tensors("sample/1/text_summary")
    (text,) = event.tensor_proto.string_val
    assert [part.split("**: ")[1] for part in text.decode().split("\n\n")] == list(SAMPLE)
