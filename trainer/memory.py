"""Memory: what is freed stays for the next step, and where it runs out the user learns it.

In training running out always ends the run, in all processes. A process that skipped a batch of its
own accord would leave the others waiting for its gradients.
"""

import contextlib
import ctypes
import sys
from collections.abc import Iterator

import torch

from rareword.schemas.errors import RarewordError

_TEXTS = (
    "out of memory",
    "not enough memory",
    "can't allocate memory",
    "std::bad_alloc",
    "STATUS_ALLOC_FAILED",
)


def keep_freed() -> None:
    """Lets this process keep the memory of a step for the next one, where its C library can.

    glibc gives large blocks back to the system at once, and each step would have the system clear
    tens of megabytes anew: a tenth of the time of small models on a CPU.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        trim_threshold, mmap_max = -1, -4  # malloc.h
        mallopt(mmap_max, 0)
        mallopt(trim_threshold, 2**31 - 1)


def ran_out(error: BaseException) -> bool:
    """True if the error says that there was no memory left, on a GPU or on the CPU.

    Only some libraries have a class for it (torch's allocator for the CPU has none).
    """
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or (
        isinstance(error, RuntimeError) and any(text in str(error) for text in _TEXTS)
    )


@contextlib.contextmanager
def explained(where: str, remedy: str) -> Iterator[None]:
    """Turns running out of memory into a RarewordError: `where` it was, and what to do."""
    try:
        yield
    except Exception as error:
        if not ran_out(error):
            raise
        cause = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise RarewordError(f"out of memory {where}: {remedy} ({cause})") from error
