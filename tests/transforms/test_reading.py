"""Readers: lines, TSV and Parquet to rows, whatever the bytes are."""

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from apache_beam.testing.util import assert_that, equal_to
from hypothesis import given
from hypothesis import strategies as st

from rareword.schemas.errors import RarewordError
from rareword.transforms import reading
from rareword.transforms.reading import (
    FILE_STRIDE,
    Part,
    ReadRows,
    TextPair,
    make_rows,
    open_parquet_parts,
    open_tsv,
    read_lines,
    read_tables,
    work_items,
)

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def lines_of(url: str) -> list[bytes]:
    return [line for block in read_lines(url) for line in block]


def expected_lines(data: bytes) -> list[bytes]:
    """What the rules say, for a file that fits the memory."""
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if data.endswith(b"\n") or not data:
        lines.pop()
    return [line[:-1] if line.endswith(b"\r") else line for line in lines]


def write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


# ---- lines ----


@given(
    st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b"a", "é\u2028".encode(), b"\xff"])),
    st.booleans(),
    st.integers(1, 5),
)
def test_lines_end_at_newlines_only_for_any_block(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], mark: bool, block: int
) -> None:
    data = b"\xef\xbb\xbf" * mark + b"".join(pieces)
    if data == b"\xef\xbb\xbf":
        return  # a file of nothing but a mark: whether it has a line is nobody's concern
    url = write(tmp_path_factory.getbasetemp() / "lines", data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "BLOCK_BYTES", block)
        assert lines_of(url) == expected_lines(data)


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_files_read_like_plain_ones(tmp_path: Path, suffix: str) -> None:
    data = "\ufeffone\r\ntwo\n\nfour".encode()
    url = write(tmp_path / f"text{suffix}", COMPRESS[suffix](data))
    assert lines_of(url) == [b"one", b"two", b"", b"four"]


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_torn_compressed_files_are_named(tmp_path: Path, suffix: str) -> None:
    data = COMPRESS[suffix](bytes(range(256)) * 1000)
    url = write(tmp_path / f"text{suffix}", data[: len(data) // 2])
    with pytest.raises(RarewordError, match=f"text{suffix} is damaged"):
        lines_of(url)


def test_a_line_above_the_bound_is_cut_but_stays_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BLOCK_BYTES", 7)
    monkeypatch.setattr(reading, "LINE_BYTES", 20)
    url = write(tmp_path / "text", b"x" * 20 + b"\n" + b"y" * 1000 + b"\nz\n" + b"w" * 100)
    found = lines_of(url)
    assert found[0] == b"x" * 20
    assert found[2] == b"z"
    assert [len(line) > 20 for line in found] == [False, True, False, True]
    assert max(map(len, found)) < 20 + 2 * 7 + 2


# ---- pairs of text files ----


def test_pairs_stay_in_step_when_line_lengths_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BLOCK_BYTES", 64)
    sources = [str(i) for i in range(500)]
    targets = [f"{i}:" + "x" * (i * 37 % 101) for i in range(500)]
    pair = TextPair(
        write(tmp_path / "s", "\n".join(sources).encode()),
        write(tmp_path / "t.gz", gzip.compress("\n".join(targets).encode())),
    )
    rows = pa.concat_tables(read_tables([Part(0, 0, pair)]))
    assert rows["source"].to_pylist() == sources
    assert rows["target"].to_pylist() == targets


@pytest.mark.parametrize(("sources", "targets"), [(3, 2), (2, 3), (0, 1), (5000, 1)])
def test_unequal_files_are_refused_with_both_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sources: int, targets: int
) -> None:
    monkeypatch.setattr(reading, "BLOCK_BYTES", 64)
    pair = TextPair(
        write(tmp_path / "s", b"a\n" * sources), write(tmp_path / "t", b"b\n" * targets)
    )
    with pytest.raises(RarewordError, match=f"s has {sources} lines, but .*t has {targets};"):
        list(read_tables([Part(0, 0, pair)]))


def test_a_torn_source_is_not_blamed_on_the_target(tmp_path: Path) -> None:
    torn = gzip.compress(bytes(range(256)) * 1000)[:200]
    pair = TextPair(write(tmp_path / "s.gz", torn), write(tmp_path / "t", b"b\n"))
    with pytest.raises(RarewordError, match=r"s\.gz is damaged"):
        list(read_tables([Part(0, 0, pair)]))


# ---- TSV ----

TSV = b"id\ten\tde\r\n1\ta b\tc\r\n2\tonly\r\n3\td\te\tmore\r\n"


def test_tsv_columns_by_number_and_by_name_are_the_same(tmp_path: Path) -> None:
    url = write(tmp_path / "t.tsv", TSV)
    by_name = list(read_tables([Part(0, 0, open_tsv(url, "en", "de", header=True))]))
    by_number = list(read_tables([Part(0, 0, open_tsv(url, "2", "3", header=True))]))
    assert by_name == by_number
    assert by_name[0].select(["id", "source", "target", "reason"]).to_pylist() == [
        {"id": 0, "source": "a b", "target": "c", "reason": None},
        {"id": 1, "source": "only", "target": "", "reason": "target is missing"},
        {"id": 2, "source": "d", "target": "e", "reason": None},
    ]
    headless = pa.concat_tables(read_tables([Part(0, 0, open_tsv(url, "3", "2", header=False))]))
    assert headless["source"].to_pylist() == ["de", "c", "", "e"]


@pytest.mark.parametrize(
    ("column", "header", "message"),
    [
        ("fr", True, "no column 'fr'; its columns are id, en, de"),
        ("en", False, "no column 'en'; it has 4 columns; names need --tsv-header"),
        ("5", False, "no column '5'; it has 4 columns"),
        ("0", False, "no column '0'"),
    ],
)
def test_a_column_that_a_tsv_file_lacks_is_refused_with_those_it_has(
    tmp_path: Path, column: str, header: bool, message: str
) -> None:
    url = write(tmp_path / "t.tsv", TSV)
    with pytest.raises(RarewordError, match=f"--target-column: .*{message}"):
        open_tsv(url, "1", column, header)


# ---- Parquet ----


def parquet_rows(
    url: str, source: str = "source", target: str = "target"
) -> list[dict[str, object]]:
    parts = [Part(0, row, reader) for row, _, reader in open_parquet_parts(url, source, target, 1)]
    tables = [table for part in parts for table in read_tables([part])]
    return pa.concat_tables(tables).select(["id", "source", "target", "reason"]).to_pylist()


def test_string_columns_of_every_kind_are_read(tmp_path: Path) -> None:
    url = str(tmp_path / "p.parquet")
    texts = ["a", None, "é", "a"]
    expected = [
        {"id": i, "source": text or "", "target": text or "", "reason": reason}
        for i, (text, reason) in enumerate(
            zip(texts, [None, "source is missing", None, None], strict=True)
        )
    ]
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        column = pa.array(texts, pa.string()).cast(kind)
        pq.write_table(pa.table({"source": column, "target": column}), url, row_group_size=3)
        assert parquet_rows(url) == expected
    pair = pa.StructArray.from_arrays([column, column], ["en", "de"])
    pq.write_table(pa.table({"translation": pair}), url, row_group_size=2)
    assert parquet_rows(url, "translation.en", "translation.de") == expected


def test_strings_that_are_not_utf8_are_rejected_rows(tmp_path: Path) -> None:
    url = str(tmp_path / "p.parquet")
    binary = pa.array([b"fine", b"ab\xffc"], pa.binary())
    strings = pa.Array.from_buffers(pa.string(), 2, binary.buffers())
    pq.write_table(pa.table({"source": ["x", "y"], "target": strings}), url)
    assert parquet_rows(url)[1] == {
        "id": 1,
        "source": "y",
        "target": "ab\ufffdc",
        "reason": "target is not UTF-8: byte 2",
    }


def test_columns_that_are_missing_or_no_strings_are_refused(tmp_path: Path) -> None:
    url = str(tmp_path / "p.parquet")
    pq.write_table(pa.table({"n": [1], "t": [{"en": "a"}], "l": [["a"]]}), url)
    with pytest.raises(RarewordError, match=r"no column 'source'; its columns are n, t\.en, l"):
        open_parquet_parts(url, "source", "t.en", 1)
    with pytest.raises(RarewordError, match=r"--target-column: .*'n' holds int64, expected string"):
        open_parquet_parts(url, "t.en", "n", 1)
    with pytest.raises(RarewordError, match=r"'l' holds list<.*>, expected string"):
        open_parquet_parts(url, "l", "t.en", 1)


def test_row_groups_are_cut_into_parts_by_their_text(tmp_path: Path) -> None:
    url = str(tmp_path / "p.parquet")
    texts = [f"{i} " + "x" * 100 for i in range(100)]
    table = pa.table({"source": texts, "target": texts, "other": texts})
    pq.write_table(table, url, row_group_size=10, use_dictionary=False, write_statistics=False)
    parts = open_parquet_parts(url, "source", "target", 5000)
    groups = [(first, part.first_group, part.end_group) for first, _, part in parts]
    assert groups == [(30 * i, 3 * i, min(3 * i + 3, 10)) for i in range(4)]
    assert 2 * sum(map(len, texts)) <= sum(size for _, size, _ in parts) <= 23_000
    rows = [row for first, _, part in parts for row in read_tables([Part(0, first, part)])]
    assert pa.concat_tables(rows)["source"].to_pylist() == texts


def test_a_torn_parquet_file_is_named(tmp_path: Path) -> None:
    url = str(tmp_path / "p.parquet")
    pq.write_table(pa.table({"source": ["a"], "target": ["b"]}), url)
    data = Path(url).read_bytes()
    Path(url).write_bytes(data[:-20])
    with pytest.raises(RarewordError, match=r"p\.parquet is damaged or not a Parquet file"):
        open_parquet_parts(url, "source", "target", 1)


def test_a_damaged_row_group_is_named(tmp_path: Path) -> None:
    url = str(tmp_path / "p.parquet")
    texts = [f"{i:04d}" * 10 for i in range(200)]
    pq.write_table(
        pa.table({"source": texts, "target": texts}), url, row_group_size=100, compression="zstd"
    )
    offset = pq.ParquetFile(url).metadata.row_group(1).column(0).dictionary_page_offset
    data = bytearray(Path(url).read_bytes())
    data[offset : offset + 60] = b"\x00" * 60
    Path(url).write_bytes(bytes(data))
    with pytest.raises(RarewordError, match="row group 1 is damaged"):
        parquet_rows(url)


# ---- rows ----


def test_faults_of_a_side_become_reasons_and_never_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LINE_BYTES", 10)
    monkeypatch.setattr(reading, "EXCERPT_BYTES", 4)
    rows = make_rows(7, [b"ok", b"\xe4", b"ok", None], ["é".encode(), b"\xff", b"x" * 11, b"\xff"])
    assert rows.select(["id", "source", "target", "reason"]).to_pylist() == [
        {"id": 7, "source": "ok", "target": "é", "reason": None},
        {"id": 8, "source": "\ufffd", "target": "\ufffd", "reason": "source is not UTF-8: byte 0"},
        {"id": 9, "source": "ok", "target": "xxxx", "reason": "target is longer than 10 bytes"},
        {"id": 10, "source": "", "target": "\ufffd", "reason": "source is missing"},
    ]


@pytest.fixture
def three_parts(tmp_path: Path) -> list[Part]:
    """Two text pairs of 700 and 0 lines and a TSV file of 300."""
    texts = [
        write(tmp_path / f"{side}{n}", "".join(f"{side} {i}\n" for i in range(n)).encode())
        for n in (700, 0)
        for side in "st"
    ]
    tsv = write(tmp_path / "f.tsv", b"".join(b"s %d\tt %d\n" % (i, i) for i in range(300)))
    readers = [TextPair(*texts[:2]), TextPair(*texts[2:]), open_tsv(tsv, "1", "2", header=False)]
    return [Part(file, 0, reader) for file, reader in enumerate(readers)]


@pytest.mark.parametrize("table_bytes", [1, 1000, 1 << 20])
def test_ids_are_file_and_row_and_the_readers_count_stands_on_the_last_row(
    three_parts: list[Part], table_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BLOCK_BYTES", 100)
    tables = list(read_tables(three_parts, table_bytes=table_bytes))
    rows = pa.concat_tables(tables)
    assert rows["id"].to_pylist() == [*range(700), *(2 * FILE_STRIDE + i for i in range(300))]
    assert rows["read"].to_pylist() == [*[0] * 699, 700, *[0] * 299, 300]
    assert all(table.num_rows for table in tables)
    assert (len(tables) > 2) == (table_bytes < 1 << 20)


@pytest.mark.parametrize("limit", [1, 699, 700, 701, 999, 1000, 2000])
def test_a_limit_takes_the_first_rows_over_all_parts(three_parts: list[Part], limit: int) -> None:
    every = pa.concat_tables(read_tables(three_parts))
    first = pa.concat_tables(read_tables(three_parts, limit))
    assert first["id"].to_pylist() == every["id"].to_pylist()[:limit]
    assert sum(first["read"].to_pylist()) == min(limit, 1000)


def test_a_limit_does_not_read_what_lies_behind_it(three_parts: list[Part]) -> None:
    missing = Part(3, 0, TextPair("/no/such/source", "/no/such/target"))
    assert sum(table.num_rows for table in read_tables([*three_parts, missing], 1000)) == 1000


@pytest.mark.parametrize("limit", [0, 900])
def test_beam_reads_what_one_reader_reads(three_parts: list[Part], limit: int) -> None:
    expected = pa.concat_tables(read_tables(three_parts, limit))["id"].to_pylist()
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        ids = (
            pipeline
            | beam.Create(work_items(three_parts, limit))
            | ReadRows(limit, 1000)
            | beam.FlatMap(lambda element: element[1]["id"].to_pylist())
        )
        assert_that(ids, equal_to(expected))
