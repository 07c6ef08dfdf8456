"""Arrow tables keyed by an int, the shape in which data travels. No Beam in here."""

import itertools
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

KeyedTable = tuple[int, pa.Table]
"""An int key (shard, part or work item) and a table of at most ELEMENT_BYTES."""

ELEMENT_BYTES = 64 << 20
"""Larger tables are cut: protobuf ends at 2 GiB, runners warn much earlier."""


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """The column as a single array."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def strings(offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> pa.Array:
    """A string array on buffers that a kernel returned, without a copy."""
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers)


def split_parts(table: pa.Table, bounds: NDArray[np.int64]) -> Iterator[KeyedTable]:
    """The rows bounds[p] .. bounds[p + 1] of a table, keyed by p, where there are any.

    No table is of more than about ELEMENT_BYTES, so a part may come as several.
    """
    for part, (begin, end) in enumerate(itertools.pairwise(bounds.tolist())):
        rows = table.slice(begin, end - begin)
        step = max(1, ELEMENT_BYTES * rows.num_rows // max(rows.nbytes, 1))
        for start in range(0, rows.num_rows, step):
            yield part, rows.slice(start, step)
