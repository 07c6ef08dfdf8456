"""Parquet files of ours: what is written is read, and everything else is refused by name."""

import hashlib
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rareword.schemas import storage, tables
from rareword.schemas.errors import RarewordError
from rareword.schemas.tables import CORPUS, SEGMENTED, TRANSLATIONS, WORDS, ShardRecord

ROWS = st.lists(
    st.tuples(st.integers(-(2**63), 2**63 - 1), st.text(max_size=20), st.text(max_size=20)),
    max_size=30,
)


def corpus(rows: list[tuple[int, str, str]]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(("id", "source", "target"), row, strict=True)) for row in rows],
        schema=CORPUS.fields,
    )


@given(rows=ROWS, cut=st.integers(0, 30))
def test_rows_come_back_whatever_the_tables_they_came_in(
    rows: list[tuple[int, str, str]], cut: int
) -> None:
    parts = [corpus(rows[:cut]), corpus(rows[cut:])]
    record = tables.write_shard("memory://tables", "part.parquet", CORPUS, parts, {"tokens": 7})
    url = "memory://tables/part.parquet"
    found = [tuple(row.values()) for row in tables.read_table(url, CORPUS).to_pylist()]
    assert found == rows
    with storage.open_read(url) as stream:
        data = stream.read()
    assert record == ShardRecord(
        "part.parquet", len(rows), len(data), hashlib.sha256(data).hexdigest(), {"tokens": 7}
    )


def test_lists_and_nulls_come_back(tmp_path: Path) -> None:
    rows = [
        {
            "id": 1,
            "rank": 0,
            "text": "а б",
            "pieces": ["а", "б"],
            "score": -0.5,
            "alignment": [[0.25, 0.75], []],
        },
        {"id": 2, "rank": 0, "text": "", "pieces": [], "score": 0.0, "alignment": None},
    ]
    table = pa.Table.from_pylist(rows, schema=TRANSLATIONS.fields)
    tables.write_shard(str(tmp_path), "t.parquet", TRANSLATIONS, [table])
    assert tables.read_table(str(tmp_path / "t.parquet"), TRANSLATIONS).to_pylist() == rows


def test_a_generator_may_count_while_it_runs(tmp_path: Path) -> None:
    counters: dict[str, int] = {}

    def produce():
        for number in range(3):
            counters["seen"] = number + 1
            yield corpus([(number, "a", "b")])

    record = tables.write_shard(str(tmp_path), "p.parquet", CORPUS, produce(), counters)
    assert record.counters == {"seen": 3}
    assert record.rows == 3


def test_row_groups_are_bounded_and_small_tables_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "ROW_GROUP_BYTES", 10_000)
    small = [corpus([(i, "x" * 10, "y")]) for i in range(1000)]
    large = corpus([(i, "x" * 90, "y") for i in range(1000)])
    tables.write_shard(str(tmp_path), "p.parquet", CORPUS, [*small, large])
    file = pq.ParquetFile(tmp_path / "p.parquet")
    groups = [file.read_row_group(i).nbytes for i in range(file.num_row_groups)]
    assert sum(file.metadata.row_group(i).num_rows for i in range(len(groups))) == 2000
    assert len(groups) < 30
    assert max(groups) < 2 * 10_000


def test_the_bytes_are_a_function_of_the_rows(tmp_path: Path) -> None:
    table = corpus([(i, f"s{i}", f"t{i}") for i in range(100)])
    first = tables.write_shard(str(tmp_path), "a.parquet", CORPUS, [table])
    second = tables.write_shard(
        str(tmp_path), "b.parquet", CORPUS, [table.slice(0, 33), table.slice(33)]
    )
    assert first.checksum == second.checksum


def test_name_and_version_stand_in_the_file(tmp_path: Path) -> None:
    tables.write_shard(str(tmp_path), "p.parquet", CORPUS, [corpus([])])
    metadata = pq.read_schema(tmp_path / "p.parquet").metadata
    assert metadata[b"rareword.schema"] == b"corpus"
    assert metadata[b"rareword.version"] == b"1"


@pytest.mark.parametrize("keep", [0, 3, 100, 0.5, 0.9, -1])
def test_a_torn_file_is_a_sentence(tmp_path: Path, keep: float) -> None:
    path = tmp_path / "p.parquet"
    tables.write_shard(str(tmp_path), path.name, CORPUS, [corpus([(1, "a" * 1000, "b")] * 99)])
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data)) if isinstance(keep, float) else keep])
    with pytest.raises(RarewordError, match=r"p\.parquet is damaged or not a Parquet file"):
        tables.read_table(str(path), CORPUS)


def test_a_flipped_bit_in_the_data_is_found(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    rows = [(i, hashlib.sha256(bytes([i])).hexdigest(), "b") for i in range(200)]
    tables.write_shard(str(tmp_path), path.name, CORPUS, [corpus(rows)])
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(RarewordError, match=r"p\.parquet: row group 0 is damaged"):
        tables.read_table(str(path), CORPUS)


def test_a_missing_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(RarewordError, match=r"^no file .*p\.parquet$"):
        tables.open_parquet(str(tmp_path / "p.parquet"), CORPUS)


def test_another_schema_is_named(tmp_path: Path) -> None:
    tables.write_shard(str(tmp_path), "p.parquet", CORPUS, [corpus([])])
    with pytest.raises(
        RarewordError, match=r"p\.parquet: expected .* schema 'words', found 'corpus'"
    ):
        tables.read_table(str(tmp_path / "p.parquet"), WORDS)


def test_a_foreign_parquet_file_is_named(tmp_path: Path) -> None:
    pq.write_table(corpus([]), tmp_path / "p.parquet")
    with pytest.raises(
        RarewordError, match=r"schema 'corpus', found one that rareword did not write"
    ):
        tables.read_table(str(tmp_path / "p.parquet"), CORPUS)


def as_corpus(path: Path, version: str = "1", **columns: pa.Array) -> str:
    """A file that calls itself a corpus but holds other columns."""
    table = pa.table(columns).replace_schema_metadata(
        {"rareword.schema": "corpus", "rareword.version": version}
    )
    pq.write_table(table, path)
    return str(path)


def test_another_version_asks_for_writing_again(tmp_path: Path) -> None:
    url = as_corpus(tmp_path / "p.parquet", version="7", id=pa.array([1]))
    with pytest.raises(RarewordError, match="has version 7, this release reads version 1; write"):
        tables.read_table(url, CORPUS)


def test_a_missing_field_is_named_with_its_type(tmp_path: Path) -> None:
    url = as_corpus(tmp_path / "p.parquet", id=pa.array([1]), source=pa.array(["a"]))
    with pytest.raises(RarewordError, match=r"p\.parquet: field 'target' \(string\) is missing"):
        tables.read_table(url, CORPUS)


def test_a_field_of_another_type_is_named_with_both_types(tmp_path: Path) -> None:
    columns = {"id": pa.array([1]), "source": pa.array([[1]]), "target": pa.array(["b"])}
    url = as_corpus(tmp_path / "p.parquet", **columns)
    with pytest.raises(
        RarewordError, match=r"field 'source': expected string, found list<.*int64>"
    ):
        tables.read_table(url, CORPUS)


def test_only_the_asked_columns_are_read(tmp_path: Path) -> None:
    table = pa.table(
        {"id": [1], "source": [[3, 4]], "target": [[5]]},
        schema=SEGMENTED.fields,
    )
    tables.write_shard(str(tmp_path), "p.parquet", SEGMENTED, [table])
    (found,) = tables.iterate_row_groups(str(tmp_path / "p.parquet"), SEGMENTED, ["target"])
    assert found.to_pydict() == {"target": [[5]]}


def test_shard_names_sort_as_their_numbers() -> None:
    names = [tables.shard_name(number, 1000) for number in range(1000)]
    assert names == sorted(names)
    assert names[0] == "part-00000-of-01000.parquet"


@given(
    st.builds(
        ShardRecord,
        name=st.text(),
        rows=st.integers(0),
        bytes=st.integers(0),
        checksum=st.text(),
        counters=st.dictionaries(st.text(), st.integers()),
    )
)
def test_a_record_comes_back_from_json(record: ShardRecord) -> None:
    assert ShardRecord.from_json(json.loads(json.dumps(record.to_json()))) == record


@given(st.dictionaries(st.text(), st.integers(), min_size=1, max_size=5))
def test_the_digest_does_not_depend_on_the_order_of_keys(value: dict[str, int]) -> None:
    turned = dict(reversed(value.items()))
    assert tables.digest(value) == tables.digest(turned)
    some = next(iter(value))
    assert tables.digest(value) != tables.digest({**value, some: value[some] + 1})
