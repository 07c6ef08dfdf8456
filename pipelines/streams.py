"""Text that streams through a command: standard input and output, pipes, files and URLs."""

import contextlib
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO, cast

from rareword.schemas.errors import RarewordError

if TYPE_CHECKING:
    from rareword.transforms.plain_text import Block

STANDARD = "-"
"""As a path: standard input or output, the default."""
_DEVICES = ("/dev/", "/proc/")


def run(command: Callable[[], None]) -> int:
    """Runs a command that writes to standard output. Returns the exit code."""
    try:
        command()
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has seen enough. Python must not complain at its end either.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _is_special(path: str) -> bool:
    """True for pipes and devices, which can be neither sought in nor replaced."""
    if path.startswith(_DEVICES):  # /dev/fd/3 may well lead to a plain file
        return True
    try:
        return not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path)
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def read(path: str) -> Iterator["Iterator[Block]"]:
    """The blocks of a text."""
    from rareword.schemas import storage
    from rareword.transforms.plain_text import read_blocks

    if path in (STANDARD, "/dev/stdin"):
        yield read_blocks(sys.stdin.buffer, "standard input", at_once=True)
    elif _is_special(path):
        with open(path, "rb") as stream:
            yield read_blocks(stream, path, at_once=True)
    else:
        with storage.open_text_stream(path) as stream:
            yield read_blocks(stream, path)


@contextlib.contextmanager
def write(path: str) -> Iterator[BinaryIO]:
    """A file that appears when all of it is written; or standard output."""
    from rareword.schemas import storage

    if path in (STANDARD, "/dev/stdout"):
        try:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise RarewordError(f"cannot write standard output: {error}") from error
    elif _is_special(path):
        with open(path, "wb") as stream:
            yield cast("BinaryIO", stream)
    else:
        # A link stays one: the file it leads to is replaced.
        with storage.write_atomic(os.path.realpath(path) if os.path.islink(path) else path) as out:
            yield out


def pass_on(parts: Sequence[bytes], out: BinaryIO, block: "Block") -> None:
    """Writes a block's result; what came through a pipe goes on at once."""
    out.writelines(parts)
    if len(block.text) < 1 << 20:
        out.flush()


def note(text: str) -> None:
    """A line on standard error."""
    print(text, file=sys.stderr, flush=True)
