"""Processes that die, hang, or run out of memory; runs that are killed and started again."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_runs
from forks import Forks
from safetensors.numpy import load_file

from rareword.pipelines import cli, train
from rareword.schemas import manifest, storage

TINY = small_runs.SIZES | {
    "max_epochs": 1000,
    "max_steps": 12,
    "validate_every": 5,
    "bleu_pairs": 5,
    "checkpoint_every": 2,
    "patience": 0,
    "log_every": 1,
}


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks() as server:
        yield server


@pytest.fixture
def data(tmp_path: Path, write_segmented: Callable[..., Path]) -> dict[str, str]:
    """32 pairs, so that every batch of 8 is full."""
    return small_runs.copies(write_segmented, tmp_path, 32)


def call(data: dict[str, str], output: Path, **values: object) -> list[str]:
    return ["train", *small_runs.words({**TINY, **data, "output": str(output), **values})]


def contents(directory: Path) -> dict[str, Any]:
    names = storage.list_files(str(directory))
    return {name: small_runs.contents(directory / name) for name in names}


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


def wait_for_lines(log: Path, count: int) -> None:
    """Waits until a log has that many lines."""
    end = time.monotonic() + 400
    while lines(log) < count:
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.001)


@pytest.mark.parametrize("minutes", [0, 1e-9])
def test_a_run_killed_twenty_times_ends_with_the_same_bytes(
    forks: Forks, data: dict[str, str], tmp_path: Path, minutes: float
) -> None:
    """With kill -9; the second time with a checkpoint by the clock at each step.

    The moments are drawn: some lines of progress, and some thousandths of a second.
    """
    values = {"dropout": 0.2, "max_steps": 150, "validate_every": 30, "checkpoint_every": 3}
    values |= {"checkpoint_minutes": minutes}
    generator, log = np.random.default_rng(5), tmp_path / "log"
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    steps = [0]
    for _ in range(20):
        pid = forks.start(call(data, killed, **values), log)
        wait_for_lines(log, lines(log) + generator.integers(0, 8))
        time.sleep(generator.uniform(0, 0.03))
        os.kill(pid, signal.SIGKILL)
        assert forks.wait(pid, 60) == -signal.SIGKILL, log.read_text()
        steps.append(check_no_torn_checkpoint(killed))
    assert steps == sorted(steps)
    assert len(set(steps)) > 5
    assert any(step % 3 for step in steps) is (minutes > 0)
    for run in (killed, whole):
        assert forks.wait(forks.start(call(data, run, **values), log), 400) == 0, log.read_text()
    assert contents(killed) == contents(whole)


def test_a_stopped_run_does_not_go_on_with_other_data_or_another_batch(
    forks: Forks, data: dict[str, str], tmp_path: Path, write_segmented: Callable[..., Path]
) -> None:
    """Its place in the epoch would mean something else, without a sound."""
    log, output = tmp_path / "log", tmp_path / "m"
    values: dict[str, object] = {"max_steps": 10_000, "validate_every": 10_000}
    pid = forks.start(call(data, output, **values), log)
    wait_for_lines(log, 6)
    os.kill(pid, signal.SIGKILL)
    assert forks.wait(pid, 60) == -signal.SIGKILL
    before = contents(output)
    smaller = write_segmented(tmp_path / "smaller", [([3], [3])] * 20, letters=6)
    for change, sentence in (
        ({"batch": 16}, "an unfinished run (option 'batch' differs: 8 there, 16 here)"),
        ({"segmented": smaller}, "an unfinished run (input 'segmented' differs)"),
    ):
        said = tmp_path / sentence[:40]
        assert forks.wait(forks.start(call(data, output, **{**values, **change}), said), 60) == 1
        assert f"{sentence}; choose another directory or add --overwrite" in said.read_text()
    assert contents(output) == before


# ---- several processes, one of which fails ----


def environments(count: int) -> list[dict[str, str]]:
    """What torchrun would set for each process of a group on this machine."""
    port = free_port()
    return [
        {
            "RANK": str(rank),
            "WORLD_SIZE": str(count),
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(count),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        for rank in range(count)
    ]


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def run_group(
    forks: Forks, arguments: list[str], logs: Path, count: int, before: str = ""
) -> list[tuple[int, str]]:
    """Runs a group to its end; each process's exit code and what it said."""
    files = [logs.with_name(f"{logs.name}-{rank}") for rank in range(count)]
    pids = [
        forks.start(arguments, log, environment, before)
        for log, environment in zip(files, environments(count), strict=True)
    ]
    codes = [forks.wait(pid, 60) for pid in pids]
    return [(code, log.read_text()) for code, log in zip(codes, files, strict=True)]


def failing(action: str, rank: int = 1, step: int = 3) -> str:
    """Python that makes one process do something in the middle of a step."""
    return f"""
import os, time, torch
from rareword.trainer import train
if os.environ["RANK"] == "{rank}":
    calls, loss = 0, train.batch_loss
    def broken(*arguments, **named):
        global calls
        calls += 1
        if calls == {step}:
            {action}
        return loss(*arguments, **named)
    train.batch_loss = broken
"""


SHORTAGE = "torch.empty(1 << 50)"
"""The allocator's own error."""


@pytest.mark.parametrize(
    ("action", "sentence"),
    [
        (
            SHORTAGE,
            r"out of memory in process 1 of 2, step 3, at \d of the batch's 8 pairs, the longest "
            r"with \d source and \d target pieces: lower --batch or --max-length, or raise "
            r"--accumulate \(.*DefaultCPUAllocator",
        ),
        ("raise ValueError('broken data')", "ValueError: broken data"),
    ],
)
def test_one_failing_process_ends_all(
    forks: Forks, data: dict[str, str], tmp_path: Path, action: str, sentence: str
) -> None:
    """It does not skip its share, for the others would wait; they end by its end."""
    arguments = call(data, tmp_path / "m")
    (first, said), (second, cause) = run_group(
        forks, arguments, tmp_path / "log", 2, failing(action)
    )
    assert (first, second) == (1, 1)
    assert re.search(sentence, cause)
    assert "process 0 of 2 has lost the others: one of them failed" in said
    assert "The same command goes on from the last checkpoint" in said
    done = run_group(forks, arguments, tmp_path / "again", 2)
    assert [code for code, _ in done] == [0, 0]
    assert "going on from step 2" in done[0][1]
    assert manifest.is_finished(str(tmp_path / "m"))


def test_a_process_that_hangs_is_given_up(
    forks: Forks, data: dict[str, str], tmp_path: Path
) -> None:
    """The others end after the time limit, here two seconds; torchrun then ends the one."""
    limit = "import datetime\nfrom rareword.trainer import distributed\n"
    limit += "distributed.TIMEOUT = datetime.timedelta(seconds=2)\n"
    before = limit + failing("time.sleep(3600)")
    logs = [tmp_path / "log-0", tmp_path / "log-1"]
    waiting, hanging = (
        forks.start(call(data, tmp_path / "m"), log, environment, before)
        for log, environment in zip(logs, environments(2), strict=True)
    )
    assert forks.wait(waiting, 60) == 1
    assert "did not answer for 0.0333333 minutes" in logs[0].read_text()
    assert forks.ended(hanging) is None
    os.kill(hanging, signal.SIGKILL)


def test_a_failure_before_the_work_ends_all(
    forks: Forks, data: dict[str, str], tmp_path: Path
) -> None:
    """Process 0 refuses the output directory; the others have nothing to do."""
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "thesis.txt").write_text("mine")
    done = run_group(forks, call(data, tmp_path / "m"), tmp_path / "log", 3)
    assert [code for code, _ in done] == [1, 0, 0]
    assert "holds files that no rareword job wrote (thesis.txt" in done[0][1]


def test_more_processes_than_sentences(
    forks: Forks, tmp_path: Path, write_segmented: Callable[..., Path]
) -> None:
    """Batches of two and a development set of one pair leave processes without a share, in steps,
    in the validation's loss and in its BLEU."""
    pairs = [([3, 4], [4, 3]), ([5], [5]), ([3], [3]), ([4, 4], [4, 4]), ([5, 3], [3, 5])]
    data = {
        "segmented": str(write_segmented(tmp_path / "train", pairs, letters=3)),
        "dev": str(write_segmented(tmp_path / "dev", pairs[:1], letters=3)),
    }
    values = {"batch": 2, "max_steps": 6, "validate_every": 3}
    done = run_group(forks, call(data, tmp_path / "four", **values), tmp_path / "log", 4)
    assert [code for code, _ in done] == [0] * 4, done
    alone = forks.start(call(data, tmp_path / "one", **values), tmp_path / "alone")
    assert forks.wait(alone, 60) == 0
    small_runs.check_curves(tmp_path / "four", tmp_path / "one")


# ---- under torch's launcher ----


def children(pid: int) -> list[int]:
    """The processes that a process started, in the order of their numbers."""
    text = "".join(task.read_text() for task in Path("/proc", str(pid), "task").glob("*/children"))
    return sorted(map(int, text.split()))


def workers(pid: int, count: int) -> list[int]:
    """The processes that train, below a launcher."""
    end = time.monotonic() + 400
    while len(found := [child for child in children(pid) if is_worker(child)]) < count:
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def wait_for_words(
    words: str, logs: list[Path], processes: "list[subprocess.Popen[bytes]]"
) -> None:
    """Waits until processes that run have said something."""
    while words not in (said := "".join(log.read_text() for log in logs)):
        assert all(process.poll() is None for process in processes), said
        time.sleep(0.01)


def is_worker(pid: int) -> bool:
    try:
        return b"RANK=" in Path("/proc", str(pid), "environ").read_bytes()
    except OSError:
        return False


LAUNCHED = {"max_steps": 120, "validate_every": 40, "checkpoint_every": 5}


def test_a_killed_worker_ends_the_job_with_a_sentence(data: dict[str, str], tmp_path: Path) -> None:
    """And the same command goes on."""
    command = [sys.executable, "-m", "rareword.pipelines.cli"]
    arguments = [*command, *call(data, tmp_path / "m", processes=2, max_steps=10_000)]
    log = tmp_path / "log"
    with log.open("w") as stream, subprocess.Popen(arguments, stderr=stream) as job:
        wait_for_words("step 7,", [log], [job])
        (launcher,) = children(job.pid)
        victim = workers(launcher, 2)[1]
        os.kill(victim, signal.SIGKILL)
        assert job.wait(60) == 1
    last = log.read_text().strip().splitlines()[-1]
    assert last == (
        f"rareword train: process 1 (pid {victim}) was ended by SIGKILL, perhaps because the "
        "machine ran out of memory; the same command goes on from the last checkpoint"
    )
    assert check_no_torn_checkpoint(tmp_path / "m") >= 6


def test_a_worker_out_of_memory_ends_the_job_with_its_batch(
    data: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The launcher starts a worker that is broken on purpose."""
    script = tmp_path / "worker.py"
    script.write_text(
        failing(SHORTAGE)
        + "import sys\nfrom rareword.pipelines import cli\n"
        + "sys.exit(cli.main(['train', *sys.argv[1:]]))\n"
    )
    monkeypatch.setattr(train, "WORKER", ("--", str(script)))
    assert cli.main(call(data, tmp_path / "m", processes=2)) == 1
    last = capfd.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("rareword train: out of memory in process 1 of 2, step 3, at ")
    assert "lower --batch" in last


@pytest.mark.parametrize("machines", [1, 2])
def test_torchrun_starts_again_after_a_worker_is_killed(
    forks: Forks, data: dict[str, str], tmp_path: Path, machines: int
) -> None:
    """On one machine, and on two, which are two launchers here. All go on from the last checkpoint
    and end where one process alone ends."""
    output, logs = tmp_path / "m", [tmp_path / f"log-{number}" for number in range(machines)]
    port = free_port()
    started = []
    for number, log in enumerate(logs):
        command = [
            *(sys.executable, "-m", "torch.distributed.run", "--max-restarts=3"),
            *(f"--nnodes={machines}", f"--nproc-per-node={2 // machines}"),
            *(f"--node-rank={number}", "--rdzv-backend=c10d", "--rdzv-id=one"),
            *(f"--rdzv-endpoint=127.0.0.1:{port}", "-m", "rareword.pipelines.train"),
            *call(data, output, **LAUNCHED)[1:],
        ]
        with log.open("w") as stream:
            started.append(subprocess.Popen(command, stdout=stream, stderr=stream))
    try:
        generator = np.random.default_rng(machines)
        wait_for_words("step 10,", logs, started)
        time.sleep(generator.uniform(0, 0.3))
        victims = [pid for agent in started for pid in workers(agent.pid, 2 // machines)]
        os.kill(victims[generator.integers(0, 2)], signal.SIGKILL)
        codes = [agent.wait(400) for agent in started]
    finally:
        for agent in started:
            if agent.poll() is None:
                agent.terminate()
                agent.wait()
    said = "".join(log.read_text() for log in logs)
    assert codes == [0] * machines, said
    assert "going on from step" in said
    alone = forks.start(call(data, tmp_path / "one", **LAUNCHED), tmp_path / "alone")
    assert forks.wait(alone, 60) == 0
    small_runs.check_curves(output, tmp_path / "one")
