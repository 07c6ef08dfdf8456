"""The same bytes on Prism, Beam's portable runner, as on the runner inside the process.

Prism is built with Go once and kept in the user's cache; without Go these tests are skipped. Every
process that a test starts leads a process group of its own, which is killed at the end.
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import apache_beam
import oracles
import pytest
import sharded
from babel import Locale

from rareword.pipelines import count_words, job, learn_merges, learn_segmenter, segment
from rareword.schemas import merges as merge_files

JOB_SECONDS = 300
"""A run that takes longer hangs."""
BUILD_SECONDS = 900


def run_group(command: Sequence[str], seconds: float, **options) -> tuple[int, str]:
    """Runs a command to its end; then nothing of what it started is left. -> exit code, output"""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True, **options,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=seconds)
        return process.returncode, output
    finally:
        end_group(process)


def end_group(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture(scope="session")
def prism() -> str:
    """The path of Prism, of Beam's own version."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rareword"
    binary = cache / f"prism-{apache_beam.__version__}"
    go = shutil.which("go")
    if not binary.exists() and go is None:
        pytest.skip("Prism is not built: there is no go on this machine")
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists():
            with tempfile.TemporaryDirectory(dir=cache) as directory:
                package = f"github.com/apache/beam/sdks/v2/go/cmd/prism@v{apache_beam.__version__}"
                code, output = run_group(
                    [str(go), "install", package], BUILD_SECONDS,
                    env={**os.environ, "GOBIN": directory}, cwd=directory,
                )  # fmt: skip
                if code:
                    pytest.skip(f"Prism cannot be built: {' '.join(output.split())[-300:]}")
                os.replace(Path(directory) / "prism", binary)
    return str(binary)


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> Path:
    """A corpus, its words, joint merges and the segmented corpus, all by FnApiRunner."""
    path = tmp_path_factory.mktemp("expected")
    columns = []
    for language in ("en", "ru"):
        locale = Locale(language)
        names = [*locale.territories.values(), *locale.languages.values()]
        columns.append([" ".join(name.split()) for name in names][:600])
    rows = min(map(len, columns))
    source, target = (column[:rows] for column in columns)
    oracles.write_corpus(f"{path}/corpus", source, target, shards=5, rows=40)
    for found in (count_words.JOB, learn_merges.JOB, learn_segmenter.JOB, segment.JOB):
        arguments = arguments_of(path)[found.name]
        assert job.run(found, [*arguments, "--output", f"{path}/{found.name}"]) == 0
    return path


def arguments_of(run: Path) -> dict[str, list[str]]:
    """The jobs' arguments; merges take several rounds, in which parts must cut themselves."""
    return {
        "count-words": ["--quiet", "--corpus", f"{run}/corpus", "--shards", "3"],
        "learn-merges": [
            "--quiet", "--words", f"{run}/count-words", "--merges", "300", "--shards", "4",
            "--divide", "3", "--parts", "3", "--max-chunk-symbols", "3000", "--max-rounds", "7",
        ],
        "learn-segmenter": [
            "--quiet", "--segmenter", "bpe", "--words", f"{run}/count-words",
            "--merges", f"{run}/learn-merges",
        ],
        "segment": [
            "--quiet", "--corpus", f"{run}/corpus", "--segmenter", f"{run}/learn-segmenter",
        ],
    }  # fmt: skip


@pytest.fixture(scope="module")
def worker_pool(tmp_path_factory) -> Iterator[str]:
    """The address of a pool of worker processes, as one stands on each machine of a cluster."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("pool") / "log"
    # The pool starts its workers as `python`.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    module = "apache_beam.runners.worker.worker_pool_main"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", module, f"--service_port={port}"],
            stdout=output, stderr=output, env={**os.environ, "PATH": path}, start_new_session=True,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + 120
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("localhost", port), 1):
                break
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield f"localhost:{port}"
    finally:
        end_group(process)


@pytest.mark.parametrize("environment", ["LOOPBACK", "EXTERNAL"])
@pytest.mark.parametrize("name", ["count-words", "learn-merges", "learn-segmenter", "segment"])
def test_prism_writes_the_bytes_of_fn_api_runner(
    prism, expected, request, tmp_path, name, environment
):
    output = tmp_path / "output"
    command = [
        sys.executable, "-m", "rareword.pipelines.cli", name, *arguments_of(expected)[name],
        "--output", str(output), "--runner=PrismRunner", f"--prism_location={prism}",
        f"--environment_type={environment}",
    ]  # fmt: skip
    if environment == "EXTERNAL":
        pool = request.getfixturevalue("worker_pool")
        command.append(f"--environment_config={pool}")
    code, messages = run_group(command, JOB_SECONDS)
    assert code == 0, messages
    assert contents(output) == contents(expected / name)


def test_rounds_used_up_on_prism_end_in_a_sentence_and_go_on_elsewhere(prism, expected, tmp_path):
    arguments = [*arguments_of(expected)["learn-merges"], "--output", str(tmp_path / "merges")]
    command = [
        sys.executable, "-m", "rareword.pipelines.cli", "learn-merges", *arguments,
        "--max-rounds", "2", "--runner=PrismRunner", f"--prism_location={prism}",
    ]  # fmt: skip
    code, messages = run_group(command, JOB_SECONDS)
    assert code == 1
    assert "\nrareword learn-merges: 2 rounds were not enough: " in messages
    assert job.run(learn_merges.JOB, arguments) == 0
    found, whole = contents(tmp_path / "merges"), contents(expected / "learn-merges")
    assert found.pop("rounds.json") != whole.pop("rounds.json"), "it went on, not anew"
    assert found == whole


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def test_the_compared_merges_took_rounds_in_which_parts_cut_themselves(expected):
    log = json.loads((expected / "learn-merges" / "rounds.json").read_text(encoding="utf-8"))
    merges = merge_files.read(f"{expected}/learn-merges/part-00000-of-00001.parquet")
    assert len(log) >= 3
    assert sharded.rounds_above_schedule(log, [merge.count for merge in merges], divide=3)
