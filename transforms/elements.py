"""Elements of the Beam graphs: Arrow tables keyed by an int, and records bound for a manifest.

Never one Python object per word: the cost of a Beam element is its object and its coder call, so a
table of thousands of rows costs little more than one row.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import AsIter

from rareword.schemas.tables import ShardRecord


class TableCoder(beam.coders.Coder):
    """Arrow IPC stream. (A pickled slice would carry its whole parent: apache/arrow#26685.)"""

    def encode(self, value: pa.Table) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as writer:
            writer.write_table(value)
        return bytes(sink.getvalue())

    def decode(self, encoded: bytes) -> pa.Table:
        return pa.ipc.open_stream(encoded).read_all()

    def is_deterministic(self) -> bool:
        return True

    def estimate_size(self, value: pa.Table) -> int:
        """Without this, Beam encodes the table once more just to learn its size."""
        return int(value.nbytes)

    def to_type_hint(self) -> Any:
        return pa.Table


beam.coders.registry.register_coder(pa.Table, TableCoder)


class MergeTablesCombineFn(beam.CombineFn):
    """Combines tables of one key by `merge`, eight at a time.

    The accumulator is a short list of tables; `merge` must be associative and commutative. Only
    what comes as several tables that have rows is merged.
    """

    def __init__(self, merge: Callable[[list[pa.Table]], pa.Table], width: int = 8) -> None:
        self._merge, self._width = merge, width

    def create_accumulator(self) -> list[pa.Table]:
        return []

    def add_input(self, accumulator: list[pa.Table], element: pa.Table) -> list[pa.Table]:
        accumulator = [*accumulator, element]
        return [self._merge(accumulator)] if len(accumulator) >= self._width else accumulator

    def merge_accumulators(self, accumulators: Iterable[list[pa.Table]]) -> list[pa.Table]:
        return self.compact([table for part in accumulators for table in part])

    def compact(self, accumulator: list[pa.Table]) -> list[pa.Table]:
        tables = [table for table in accumulator if table.num_rows] or accumulator[:1]
        return [self._merge(tables)] if len(tables) > 1 else tables

    def extract_output(self, accumulator: list[pa.Table]) -> pa.Table:
        tables = self.compact(accumulator)
        return tables[0] if tables else self._merge([])

    def get_accumulator_coder(self) -> beam.coders.Coder:
        return beam.coders.IterableCoder(TableCoder())


@dataclasses.dataclass(eq=False)
class Finish(beam.PTransform):
    """Gathers the shards' records and calls `write` with all of them, once, at the very end.

    `write(records)` checks the balances and writes the manifest; it may run again after a failure,
    so it must be idempotent. Records are ordinary elements: Beam's counters are for watching only.
    """

    write: Callable[[list[ShardRecord]], Any]

    def expand(self, records: beam.PCollection) -> beam.PCollection:
        return (
            records.pipeline
            | "Tick" >> beam.Create([0])
            | "WriteManifest"
            >> beam.Map(lambda _, found, write: write(list(found)), AsIter(records), self.write)
        )
