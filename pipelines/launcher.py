"""torch's launcher, which starts the workers of a training run and ends all when one fails.

    python -m rareword.pipelines.launcher FOLDER [options of torchrun] WORKER ...

Where a worker fails it tells why itself, in a file of FOLDER. One that a signal ended cannot: then
the sentence about it is left here, in FOLDER/KILLED.
"""

import signal
import sys
from collections.abc import Sequence
from pathlib import Path

KILLED = "killed"


def main(arguments: Sequence[str]) -> int:
    """Runs torchrun with the arguments after the first, FOLDER. Returns the exit code."""
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    folder, *rest = arguments
    try:
        run.main(rest)
    except ChildFailedError as error:
        killed = {rank: failure for rank, failure in error.failures.items() if failure.exitcode < 0}
        if killed:
            rank = min(killed, key=lambda rank: killed[rank].timestamp)
            name = signal.Signals(-killed[rank].exitcode).name
            hint = ", perhaps because the machine ran out of memory" * (name == "SIGKILL")
            Path(folder, KILLED).write_text(
                f"process {rank} (pid {killed[rank].pid}) was ended by {name}{hint}; the same "
                "command goes on from the last checkpoint"
            )
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
