"""Reading the dictionary of an `align` job."""

from pathlib import Path

import pyarrow as pa
import pytest

from rareword.schemas import dictionary
from rareword.schemas.errors import RarewordError
from rareword.schemas.manifest import Plan, finish
from rareword.schemas.tables import DICTIONARY, shard_name, write_shard

ROWS = [
    [("a", "x", 0.5, 2), ("a", "y", 0.25, 1), ("a", "z", 0.25, 1), ("c", "x", 1.0, 7)],
    [],
    [("b", "", 1.0, 1)],
]


def write(directory: Path, shards: list[list[tuple]], job: str = dictionary.JOB) -> str:
    records = []
    for number, rows in enumerate(shards):
        columns = [list(column) for column in zip(*rows, strict=True)] or [[]] * 4
        table = pa.table(columns, schema=DICTIONARY.fields)
        name = shard_name(number, len(shards))
        records.append(write_shard(str(directory), name, DICTIONARY, [table]))
    finish(Plan(job, {}, {}), str(directory), DICTIONARY, records)
    return str(directory)


def test_words_are_found_in_all_shards(tmp_path: Path) -> None:
    read = dictionary.read_dictionary(write(tmp_path, ROWS))
    assert len(read) == 3
    assert [word in read for word in ("a", "b", "c", "x")] == [True, True, True, False]
    assert read.best("a") == [("x", 0.5)]
    assert read.best("a", 2) == [("x", 0.5), ("y", 0.25)]
    assert read.best("a", 9) == [("x", 0.5), ("y", 0.25), ("z", 0.25)]
    assert read.best("c", 9) == [("x", 1.0)]
    assert read.best("x", 9) == []
    assert read.first() == {"a": "x", "b": "", "c": "x"}
    assert read.table.to_pylist() == [
        dict(zip(DICTIONARY.fields.names, row, strict=True)) for rows in ROWS for row in rows
    ]


def test_a_dictionary_may_be_empty(tmp_path: Path) -> None:
    read = dictionary.read_dictionary(write(tmp_path, [[]]))
    assert len(read) == 0
    assert read.first() == {}
    assert read.best("a", 3) == []


def test_other_directories_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RarewordError, match=r"--translate-by: .*run `rareword align` first"):
        dictionary.read_dictionary(str(tmp_path / "nothing"), "--translate-by")
    with pytest.raises(RarewordError, match="was written by `count-words`, expected `align`"):
        dictionary.read_dictionary(write(tmp_path, ROWS, "count-words"))
