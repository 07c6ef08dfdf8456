"""Processes of the command line that start at once, to be killed and failed at will.

A server has torch and the trainer imported and forks a process for each call, which is as good as
one that was started anew: no thread, no group and no model is there before the fork.
"""

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path


class Forks:
    """The server, seen from a test. Its processes end with it."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def __enter__(self) -> "Forks":
        return self

    def __exit__(self, *error: object) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()

    def start(
        self,
        arguments: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        before: str = "",
    ) -> int:
        """Starts `rareword ARGUMENTS` and returns its pid.

        log: gets all it says. before: Python that it runs first, to break something.
        """
        return int(
            self._ask(
                arguments=list(arguments),
                log=str(log),
                environment=dict(environment or {}),
                before=before,
            )
        )

    def ended(self, pid: int) -> int | None:
        """The exit code, negative for a signal; None while the process runs. Asked only until it
        has ended."""
        code = self._ask(ended=pid)
        return None if code is None else int(code)

    def wait(self, pid: int, seconds: float) -> int:
        """Waits for the end; fails the test if it does not come in time."""
        end = time.monotonic() + seconds
        while (code := self.ended(pid)) is None:
            assert time.monotonic() < end, f"process {pid} goes on after {seconds} s"
            time.sleep(0.01)
        return code

    def _ask(self, **question: object) -> object:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        print(json.dumps(question), file=self._server.stdin, flush=True)
        return json.loads(self._server.stdout.readline())


def serve() -> None:
    # Imported before, so that no process has to.
    import sacrebleu  # noqa: F401
    import torch
    import torch._dynamo

    from rareword.pipelines import train
    from rareword.trainer import train as training  # noqa: F401

    torch.set_num_threads(1)
    for line in sys.stdin:
        question = json.loads(line)
        if "ended" in question:
            pid, status = os.waitpid(question["ended"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        elif not (answer := os.fork()):
            train._ending_with_parent(signal.SIGKILL)()
            work(question)
        print(json.dumps(answer), flush=True)


def work(question: Mapping[str, object]) -> None:
    """One call, in its own process."""
    from rareword.pipelines import cli

    code = 1
    try:
        for stream, target in ((0, os.devnull), (1, question["log"]), (2, question["log"])):
            flags = os.O_RDONLY if stream == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND
            os.dup2(os.open(str(target), flags), stream)
        os.environ.update(question["environment"])
        exec(str(question["before"]), {})
        code = cli.main(question["arguments"])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
