"""Filters, duplicates, the shuffle and the shards."""

import hashlib
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rareword.schemas import tables as schema_tables
from rareword.schemas.tables import ShardRecord
from rareword.transforms.corpus import (
    FILTER_REASONS,
    READ_COUNTER,
    CorpusFiles,
    Filters,
    clean_rows,
    count_tokens,
    pair_hash,
    reason_class,
    split_shards,
    truecase_rows,
    write_corpus_shard,
)
from rareword.transforms.reading import FILE_STRIDE, ROWS
from rareword.transforms.text import TextRules
from rareword.transforms.truecase import COUNTS, write_model

PLAIN = TextRules(tokenise="none", truecase="none")


def rows(pairs: list[tuple[str, str]], reasons: dict[int, str] | None = None) -> pa.Table:
    """ROWS of file 0 that all come from one reader."""
    sources, targets = zip(*pairs, strict=True) if pairs else ((), ())
    n = len(pairs)
    why = [(reasons or {}).get(i) for i in range(n)]
    read = [0] * (n - 1) + [n] * bool(n)
    return pa.table([range(n), sources, targets, why, read], schema=ROWS)


def clean(
    pairs: list[tuple[str, str]], filters: Filters, rules: TextRules = PLAIN
) -> list[str | None]:
    reasons: list[str | None] = clean_rows(rows(pairs), rules, filters, False)["reason"].to_pylist()
    return reasons


# ---- cleaning ----


def expected_reason(source: str, target: str, filters: Filters) -> str | None:
    lengths = {"source": len(source.split()), "target": len(target.split())}
    for side, length in lengths.items():
        if length == 0:
            return f"{side} is empty"
    for side, length in lengths.items():
        if length < filters.min_tokens:
            return f"{side} is too short"
        if filters.max_tokens and length > filters.max_tokens:
            return f"{side} is too long"
    longer, shorter = max(lengths.values()), min(lengths.values())
    if filters.max_length_ratio and longer / shorter > filters.max_length_ratio:
        return "lengths are too unlike"
    return None


sides = st.integers(0, 8).map(lambda n: " ".join("ab"[: n % 2 + 1] for _ in range(n)))


@given(
    st.lists(st.tuples(sides, sides), max_size=20),
    st.integers(1, 3),
    st.integers(0, 6),
    st.sampled_from([0.0, 1.0, 1.5, 2.0]),
)
def test_filters_give_the_reasons_that_plain_code_gives(
    pairs: list[tuple[str, str]], least: int, most: int, ratio: float
) -> None:
    filters = Filters(least, most, ratio)
    expected = [expected_reason(*pair, filters) for pair in pairs]
    assert clean(pairs, filters) == expected
    assert {reason for reason in expected if reason} <= FILTER_REASONS


def test_lengths_count_after_tokenising() -> None:
    rules = TextRules("en", "de", truecase="none")
    assert clean([("(a).", "b")], Filters(max_tokens=3), rules) == ["source is too long"]


def test_white_space_alone_is_empty() -> None:
    pairs = [("\t\u00a0", "a"), ("a", " \u2028\x00")]
    assert clean(pairs, Filters()) == ["source is empty", "target is empty"]


def test_rejected_rows_keep_their_text_and_earlier_reasons_stay() -> None:
    pairs = [("a\tb", "e\u0301"), ("a\tb", ""), ("\ufffd\tx", "e\u0301")]
    table = clean_rows(rows(pairs, {2: "source is not UTF-8: byte 0"}), PLAIN, Filters(), False)
    assert table.select(["source", "target", "reason"]).to_pylist() == [
        {"source": "a b", "target": "é", "reason": None},
        {"source": "a\tb", "target": "", "reason": "target is empty"},
        {"source": "\ufffd\tx", "target": "e\u0301", "reason": "source is not UTF-8: byte 0"},
    ]


def test_control_characters_reject_their_row_if_asked() -> None:
    rules = TextRules(tokenise="none", truecase="none", control_characters="reject")
    pairs = [("a  b", "c"), ("a", "b\u00a0c"), ("\ta", "b\x85"), ("a\u200bb", "c")]
    what = "holds a control character or unusual white space:"
    assert clean(pairs, Filters(), rules) == [
        None,
        f"target {what} U+00A0 at character 1",
        f"source {what} U+0009 at character 0",
        None,
    ]


def test_raw_text_travels_beside_the_prepared() -> None:
    table = clean_rows(rows([(" A\t", "b"), ("", "c")]), PLAIN, Filters(), True)
    assert table["source"].to_pylist() == ["A", ""]
    assert table["raw_source"].to_pylist() == [" A\t", ""]
    assert table["raw_target"].to_pylist() == ["b", "c"]


def test_an_empty_table_stays_one() -> None:
    table = clean_rows(rows([]), PLAIN, Filters(2, 3, 1.5), True)
    assert table.num_rows == 0
    assert list(split_shards(table, 3, 1)) == []


def test_tokens_are_the_pieces_between_spaces() -> None:
    assert count_tokens(pa.array(["", "a", "a b", "a\u00a0b ä"])).to_pylist() == [0, 1, 2, 2]


def test_only_accepted_rows_are_truecased(tmp_path: Path) -> None:
    counts = pa.table([["the"], ["the"], [1]], schema=COUNTS)
    checksums = {side: write_model(str(tmp_path), side, [counts]) for side in ("source", "target")}
    table = truecase_rows(
        rows([("The end", "THE"), ("The", "The")], {1: "bad"}), str(tmp_path), checksums
    )
    assert table["source"].to_pylist() == ["the end", "The"]
    assert table["target"].to_pylist() == ["the", "The"]


# ---- the shuffle ----


def test_the_hash_depends_on_both_sides_their_border_and_the_seed_alone() -> None:
    digest = hashlib.blake2b("1 äb".encode(), digest_size=8, key=bytes([1, 0, 0, 0, 0, 0, 0, 0]))
    assert pair_hash("ä", "b", 1) == int.from_bytes(digest.digest(), "little")
    variants = [("ab", "c", 1), ("a", "bc", 1), ("abc", "", 1), ("ab", "c", 2), ("c", "ab", 1)]
    assert len({pair_hash(*variant) for variant in variants}) == len(variants)


def random_pairs(n: int) -> list[tuple[str, str]]:
    rng = random.Random(5)
    return [(f"s {rng.randrange(n // 2)}", f"t {rng.randrange(3)}") for _ in range(n)]


def test_each_row_goes_to_one_shard_and_equal_pairs_meet() -> None:
    pairs = random_pairs(500)
    shards = dict(split_shards(rows(pairs), 7, seed=3))
    ids = [id for table in shards.values() for id in table["id"].to_pylist()]
    assert sorted(ids) == list(range(500))
    where: dict[tuple[str, str], set[int]] = {}
    for shard, table in shards.items():
        for row in table.to_pylist():
            where.setdefault((row["source"], row["target"]), set()).add(shard)
            assert row["order"] == pair_hash(row["source"], row["target"], 3)
            assert shard == row["order"] % 7
    assert all(len(found) == 1 for found in where.values())


def test_without_a_seed_a_shard_is_a_file_in_its_order() -> None:
    table = rows(random_pairs(6))
    ids = [0, FILE_STRIDE, 1, FILE_STRIDE + 1, 3 * FILE_STRIDE, 2]
    table = table.set_column(0, ROWS.field("id"), pa.array(ids))
    shards = {
        shard: part.sort_by("order")["id"].to_pylist()
        for shard, part in split_shards(table, 4, None)
    }
    assert shards == {0: [0, 1, 2], 1: [FILE_STRIDE, FILE_STRIDE + 1], 3: [3 * FILE_STRIDE]}


# ---- writing ----


def write(directory: Path, tables: list[pa.Table], **options: bool) -> dict[str, ShardRecord]:
    chosen = {"drop_duplicates": False, "keep_raw": False} | options
    files = CorpusFiles(str(directory), 2, ("a.en", "b.en"), **chosen)
    return {record.name: record for record in write_corpus_shard((1, tables), files)}


def one_shard(table: pa.Table, seed: int | None = 1) -> pa.Table:
    [(_, part)] = split_shards(table, 1, seed)
    return part


def test_of_equal_pairs_the_lowest_id_stays_and_the_rest_is_rejected(tmp_path: Path) -> None:
    pairs = random_pairs(200)
    bad = {0: "source is not UTF-8: byte 1", 3: "source is not UTF-8: byte 2"}
    records = write(tmp_path, [one_shard(rows(pairs, bad))], drop_duplicates=True)
    first = {pair: i for i, pair in reversed(list(enumerate(pairs))) if i not in bad}
    expected = sorted(first.values(), key=lambda i: (pair_hash(*pairs[i], 1), i))
    written = pq.read_table(tmp_path / "part-00001-of-00002.parquet")
    assert written["id"].to_pylist() == expected
    rejected = pq.read_table(tmp_path / "rejected/part-00001-of-00002.parquet").to_pylist()
    assert [row["id"] for row in rejected] == sorted(set(range(200)) - set(expected))
    assert rejected[0] == {
        "id": 0,
        "file": "a.en",
        "row": 0,
        "reason": "source is not UTF-8: byte 1",
        "source": pairs[0][0],
        "target": pairs[0][1],
    }
    record = records["rejected/part-00001-of-00002.parquet"]
    assert record.counters == {
        "source is not UTF-8": 2,
        "pair is a duplicate": 198 - len(expected),
    }
    assert sum(record.rows for record in records.values()) == 200


def test_rejected_rows_name_their_file_and_row(tmp_path: Path) -> None:
    table = rows([("a", ""), ("b", "")], {0: "no", 1: "no"})
    table = table.set_column(0, ROWS.field("id"), pa.array([FILE_STRIDE + 41, 7]))
    write(tmp_path, [part for _, part in split_shards(table, 2, None)])
    rejected = pq.read_table(tmp_path / "rejected/part-00001-of-00002.parquet")
    assert rejected.select(["file", "row"]).to_pylist() == [
        {"file": "a.en", "row": 7},
        {"file": "b.en", "row": 41},
    ]


def test_counters_are_tokens_and_the_readers_counts(tmp_path: Path) -> None:
    table = rows([("a b", "c"), ("d", "e f g"), ("x", "")], {2: "target is empty"})
    records = write(tmp_path, [one_shard(table)])
    counters = {"source_tokens": 3, "target_tokens": 4, f"{READ_COUNTER}0": 3}
    assert records["part-00001-of-00002.parquet"].counters == counters


def test_a_shard_without_rows_is_a_file_without_rows(tmp_path: Path) -> None:
    files = CorpusFiles(str(tmp_path), 2, ("a",), drop_duplicates=True, keep_raw=True)
    records = write_corpus_shard((0, [files.rows.empty_table()]), files)
    assert [(record.name, record.rows) for record in records] == [
        ("part-00000-of-00002.parquet", 0),
        ("raw/part-00000-of-00002.parquet", 0),
    ]
    assert records[0].counters == {"source_tokens": 0, "target_tokens": 0}


def test_raw_shards_hold_the_same_rows_in_the_same_order(tmp_path: Path) -> None:
    pairs = [(f" s\t{i}", f"t  {i}") for i in range(50)] + [("", "empty")]
    table = one_shard(clean_rows(rows(pairs), PLAIN, Filters(), True))
    write(tmp_path, [table], keep_raw=True)
    name = "part-00001-of-00002.parquet"
    prepared, raw = pq.read_table(tmp_path / name), pq.read_table(tmp_path / "raw" / name)
    assert raw["id"].to_pylist() == prepared["id"].to_pylist()
    assert [(row["source"], row["target"]) for row in raw.to_pylist()] == [
        pairs[row["id"]] for row in prepared.to_pylist()
    ]
    assert prepared.num_rows == 50


@pytest.mark.parametrize("seed", [1, None])
def test_a_shard_has_the_same_bytes_however_its_rows_arrive(
    tmp_path: Path, seed: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_tables, "ROW_GROUP_BYTES", 1000)
    whole = one_shard(rows(random_pairs(300), {i: "bad" for i in range(0, 300, 9)}), seed)
    checksums = []
    for n, step in enumerate((300, 70, 1)):
        pieces = [whole.slice(start, step) for start in range(0, 300, step)]
        random.Random(n).shuffle(pieces)
        copies = [pa.Table.from_pylist(piece.to_pylist(), whole.schema) for piece in pieces]
        records = write(tmp_path / str(n), copies if n else pieces)
        checksums.append({name: record.checksum for name, record in records.items()})
    assert checksums[0] == checksums[1] == checksums[2]
    assert pq.ParquetFile(tmp_path / "0/part-00001-of-00002.parquet").num_row_groups > 2


def test_reasons_are_counted_without_what_differs_from_row_to_row() -> None:
    assert reason_class("source is not UTF-8: byte 17") == "source is not UTF-8"
    assert reason_class("pair is a duplicate") == "pair is a duplicate"
