"""Contestants in processes of their own, taking turns; and the peers' environment."""

import contextlib
import dataclasses
import datetime
import functools
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # Threads that wait for each other sleep. By default they spin, which is CPU time too, and much
    # of it on a machine with other work.
    "OMP_WAIT_POLICY": "PASSIVE",
}
"""One thread, unless a task asks for more, and the same way of waiting for everyone."""


@dataclasses.dataclass(frozen=True)
class Contestant:
    """A row of a table: a task of ours.py, of peers.py with `peer`, or of another script."""

    name: str
    task: str
    arguments: Mapping[str, Any]
    megabytes: float
    base: str = ""
    """The row that this one's speed is divided by ("": the first)."""
    same: str = ""
    """The key of the digest that must be equal to the base's; "" if the work is not identical."""
    peer: bool = False
    """Runs in the peers' environment, and may fail."""
    script: str = ""
    """The file in this folder that serves the task, if it is neither of the two."""


class Process:
    """A contestant's process, ready when made. Raises RuntimeError saying what went wrong."""

    def __init__(self, contestant: Contestant, python: Path | None) -> None:
        environment = {**os.environ, **ENVIRONMENT}
        script = contestant.script or ("peers.py" if contestant.peer else "ours.py")
        command = [sys.executable, str(HERE / script), contestant.task]
        if contestant.peer:
            if python is None:
                raise RuntimeError("left out by --no-peers")
            environment.pop("PYTHONPATH", None)
            command[0] = str(python)
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (see close)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment,
        )
        try:
            self._ask(json.dumps(contestant.arguments))
        except RuntimeError:
            self.close()
            raise

    def _ask(self, line: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            self._log.seek(0)
            last = (self._log.read().strip() or "no word").rsplit("\n", 1)[-1]
            raise RuntimeError(f"ended with code {self._process.wait()}: {last}")
        found: dict[str, Any] = json.loads(answer)
        if "error" in found:
            raise RuntimeError(found["error"].split("\n")[0])
        return found

    def repeat(self) -> dict[str, Any]:
        return self._ask("again")

    def close(self) -> None:
        self._process.communicate()  # the end of its input is the end of it
        self._log.close()


Row = dict[str, Any]


def compete(contestants: Sequence[Contestant], python: Path | None, repeats: int) -> list[Row]:
    """Interleaved repeats of all contestants; one row each, with medians or a peer's error.

    What goes wrong on rareword's side ends the benchmark.
    """
    running: dict[str, Process] = {}
    found: dict[str, list[dict[str, Any]]] = {one.name: [] for one in contestants}
    errors: dict[str, str] = {}
    skippable = {one.name for one in contestants if one.peer}

    def attempt(name: str, step: Callable[[], Any]) -> Any:
        try:
            return step()
        except RuntimeError as error:
            if name not in skippable:
                raise SystemExit(f"{name}: {error}") from error
            errors[name] = str(error)
            print(f"{name}: skipped, {error}", file=sys.stderr)
            if name in running:
                running.pop(name).close()
            return None

    try:
        for one in contestants:
            made = attempt(one.name, functools.partial(Process, one, python))
            if made is not None:
                running[one.name] = made
        for _ in range(repeats):
            for name in list(running):
                answer = attempt(name, running[name].repeat)
                if answer is not None:
                    found[name].append(answer)
    finally:
        for process in running.values():
            process.close()
    return [_row(one, found[one.name], errors.get(one.name)) for one in contestants]


def _row(one: Contestant, repeats: Sequence[Mapping[str, Any]], error: str | None) -> Row:
    row: Row = {"name": one.name, "megabytes": one.megabytes, "base": one.base, "same": one.same}
    if error is not None:
        return {**row, "error": error}
    times = {key: [round(repeat[key], 4) for repeat in repeats] for key in ("cpu", "wall")}
    return {
        **row,
        **{key: statistics.median(values) for key, values in times.items()},
        "repeats": times,
        "peak": max(repeat["peak"] for repeat in repeats),
        "digest": repeats[0]["digest"],
    }


def read_pins(name: str) -> list[str]:
    """The pins of a file in this folder."""
    return [line for line in (HERE / name).read_text("utf-8").splitlines() if "==" in line]


def describe_machine(load: float) -> dict[str, Any]:
    """The machine and its load, of which `load` is what it was at the start."""
    model = platform.processor()
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as stream:
        models = [line.split(":")[1].strip() for line in stream if line.startswith("model name")]
        model = models[0] if models else model
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)),
        "load": [round(load, 2), round(os.getloadavg()[0], 2)],
    }


def prepare_peers(directory: Path, name: str = "peers.txt") -> tuple[Path, dict[str, str]]:
    """Installs a file's pins with uv, in their order, unless they are there.

    Returns the environment's Python, and for each pin that could not be installed the reason.
    """
    pins = read_pins(name)
    wanted = [sys.version, *pins]
    python, stamp = directory / "bin" / "python", directory / "installed.json"
    with contextlib.suppress(OSError, ValueError):
        state = json.loads(stamp.read_text("utf-8"))
        if state["wanted"] == wanted:
            return python, state["missing"]
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if uv is None:
        raise SystemExit("the peers are installed with uv, which is not here: pip install uv")
    print(f"installing the peers into {directory}", file=sys.stderr)
    make = [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(directory)]
    subprocess.run(make, check=True)
    missing = {}
    for pin in pins:
        install = [uv, "pip", "install", "--quiet", "--no-build-isolation", "--python", str(python)]
        environment = {**os.environ, "CYTHON_FORCE_REGEN": "1"}
        done = subprocess.run(
            [*install, pin], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            said = [line.strip() for line in done.stderr.splitlines() if "error" in line.lower()]
            missing[pin] = (said or ["cannot be installed"])[-1]
            print(f"{pin} is left out: {missing[pin]}", file=sys.stderr)
    stamp.write_text(json.dumps({"wanted": wanted, "missing": missing}), "utf-8")
    return python, missing
