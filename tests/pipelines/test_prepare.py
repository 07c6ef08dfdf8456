"""The whole `prepare` job on small input, compared with plain Python, and everything it refuses."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rareword.pipelines import job
from rareword.pipelines.prepare import JOB, PrepareOptions
from rareword.schemas import storage
from rareword.schemas import tables as schema_tables
from rareword.schemas.errors import RarewordError
from rareword.schemas.manifest import Manifest
from rareword.schemas.tables import CORPUS, REJECTED, iterate_row_groups
from rareword.transforms import reading
from rareword.transforms.corpus import FILTER_REASONS, pair_hash
from rareword.transforms.text import TextRules, normalise, restore
from rareword.transforms.truecase import Truecaser, count_forms, merge_counts

PLAIN = {"tokenise": "none", "truecase": "none"}
MOSES = {"source_language": "en", "target_language": "de"}

PAIRS = [
    ("The house is old.", "Das Haus ist alt."),
    ("Is the House old?", "Ist das Haus alt?"),
    ("He saw the house.", "Er sah das Haus."),
    ("The house is old.", "Das Haus ist alt."),
    ("", "Leer."),
    ("No break\u00a0here,\tno.", "Ein\u2028Satz, zwei."),
]


def prepare(output: Path | str, **options: Any) -> Manifest:
    return job.execute(JOB, PrepareOptions(output=str(output), quiet=True, **options))


def write_lines(path: Path, lines: list[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    return str(path)


def write_pairs(
    directory: Path, pairs: list[tuple[str, str]], name: str = "text"
) -> dict[str, Any]:
    """Two text files, and the options that name them."""
    return {
        "source": (write_lines(directory / f"{name}.en", [source for source, _ in pairs]),),
        "target": (write_lines(directory / f"{name}.de", [target for _, target in pairs]),),
    }


def read_rows(manifest: Manifest, below: str = "") -> list[dict[str, Any]]:
    schema = REJECTED if below == "rejected/" else CORPUS
    names = [record.name for record in (*manifest.shards, *manifest.files)]
    return [
        row
        for name in names
        if name.startswith(below or "part-") and name.endswith(".parquet")
        for table in iterate_row_groups(storage.join(manifest.directory, name), schema)
        for row in table.to_pylist()
    ]


def contents(directory: Path) -> dict[str, bytes]:
    files = {p.relative_to(directory).as_posix(): p for p in directory.rglob("*") if p.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if name != "manifest.json"}


# ---- what it writes ----


def test_a_corpus_is_what_plain_python_makes_of_the_text(tmp_path: Path) -> None:
    found = prepare(tmp_path / "corpus", **write_pairs(tmp_path, PAIRS), **MOSES, keep_raw=True)

    rules = TextRules("en", "de")
    kept = [i for i, (source, target) in enumerate(PAIRS) if source and target]
    expected = []
    for column, side in enumerate(("source", "target")):
        tokens = {i: rules.apply(PAIRS[i][column], side) for i in kept}
        casing: dict[str, dict[str, int]] = {}
        for row in merge_counts([count_forms(tokens.values())]).to_pylist():
            casing.setdefault(row["word"], {})[row["form"]] = row["weight"]
        assert json.loads((tmp_path / f"corpus/truecase-{side}.json").read_text()) == casing
        expected.append({i: Truecaser(casing)(text) for i, text in tokens.items()})
    order = sorted(kept, key=lambda i: (pair_hash(expected[0][i], expected[1][i], 1), i))

    assert read_rows(found) == [
        {"id": i, "source": expected[0][i], "target": expected[1][i]} for i in order
    ]
    assert expected[0][5] == "no break here , no ."
    assert read_rows(found, "raw/") == [
        {"id": i, "source": PAIRS[i][0], "target": PAIRS[i][1]} for i in order
    ]
    assert read_rows(found, "rejected/") == [
        {
            "id": 4,
            "file": "text.en",
            "row": 4,
            "reason": "source is empty",
            "source": "",
            "target": "Leer.",
        }
    ]
    tokens = [sum(len(text.split(" ")) for text in side.values()) for side in expected]
    assert found.figures == {
        "pairs": 5,
        "read": 6,
        "rejected": 1,
        "reasons": {"source is empty": 1},
        "files": {"text.en": 6},
        "source_tokens": tokens[0],
        "target_tokens": tokens[1],
    }
    assert found.shards[0].counters == {"source_tokens": tokens[0], "target_tokens": tokens[1]}
    assert found.rules == {"text": rules.to_json()}


def test_memory_and_local_output_are_the_same_bytes(tmp_path: Path) -> None:
    files = write_pairs(tmp_path, PAIRS)
    local = prepare(tmp_path / "corpus", **files, **MOSES)
    remote = prepare("memory://test_prepare/corpus", **files, **MOSES)
    assert remote.content == local.content
    assert read_rows(remote) == read_rows(local)


def test_duplicates_are_kept_or_dropped_over_all_files(tmp_path: Path) -> None:
    first = write_pairs(tmp_path, PAIRS, "a")
    second = write_pairs(tmp_path, [PAIRS[1], ("new", "neu"), PAIRS[0]], "b")
    files = {side: first[side] + second[side] for side in first}
    kept = prepare(tmp_path / "keep", **files, **PLAIN, shards=3)
    dropped = prepare(tmp_path / "drop", **files, **PLAIN, shards=3, duplicates="drop")
    assert kept.rows == 8
    assert sorted(row["id"] for row in read_rows(dropped)) == [0, 1, 2, 5, (1 << 40) + 1]
    assert dropped.figures["reasons"] == {"pair is a duplicate": 3, "source is empty": 1}
    assert dropped.figures["files"] == {"a.en": 6, "b.en": 3}


def test_globs_compression_and_several_files_keep_their_order(tmp_path: Path) -> None:
    for name in ("b", "a"):
        for side in ("en", "de"):
            text = f"{side} {name} 0\n{side} {name} 1\n".encode()
            (tmp_path / f"{name}.{side}.gz").write_bytes(gzip.compress(text))
    files = {"source": (f"{tmp_path}/?.en.gz",), "target": (f"{tmp_path}/?.de.gz",)}
    found = prepare(tmp_path / "corpus", **files, **PLAIN, shuffle=False)
    assert [(row["source"], row["target"]) for row in read_rows(found)] == [
        (f"en {name} {i}", f"de {name} {i}") for name in "ab" for i in (0, 1)
    ]
    assert [shard.rows for shard in found.shards] == [2, 2]


def test_without_shuffling_the_rows_keep_their_order_and_ids(tmp_path: Path) -> None:
    pairs = [(f"s {i}", f"t {i}") for i in range(300)]
    files = write_pairs(tmp_path, pairs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "BLOCK_BYTES", 100)
        found = prepare(tmp_path / "corpus", **files, **PLAIN, shuffle=False)
    assert read_rows(found) == [
        {"id": i, "source": source, "target": target} for i, (source, target) in enumerate(pairs)
    ]


def test_tsv_and_parquet_give_the_rows_that_text_gives(tmp_path: Path) -> None:
    pairs = [(f"s {i}", f"t {i % 7}") for i in range(50)]
    text = prepare(tmp_path / "text", **write_pairs(tmp_path, pairs), **PLAIN, shards=3)
    tsv = tmp_path / "x.tsv.gz"
    tsv.write_bytes(gzip.compress("".join(f"{s}\t-\t{t}\n" for s, t in pairs).encode()))
    columns = {"source_column": "1", "target_column": "3"}
    table = pa.table({"translation": [{"en": s, "de": t} for s, t in pairs]})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=20)
    names = {"source_column": "translation.en", "target_column": "translation.de"}
    expected = [(shard.rows, shard.checksum) for shard in text.shards]
    for url, options in ((tsv, columns), (tmp_path / "x.parquet", names)):
        found = prepare(
            tmp_path / f"from-{url.name}", input=(str(url),), **options, **PLAIN, shards=3
        )
        assert [(shard.rows, shard.checksum) for shard in found.shards] == expected


@pytest.mark.parametrize("shuffle", [True, False])
def test_output_bytes_do_not_depend_on_how_the_input_is_cut(
    tmp_path: Path, shuffle: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_tables, "ROW_GROUP_BYTES", 1000)
    pairs = [(f"The Cat number {i % 40} sat.", "Die Katze\x00 saß." * (i % 5)) for i in range(200)]
    table = pa.table({"source": [s for s, _ in pairs], "target": [t for _, t in pairs]})
    outputs = []
    for row_group, part, block, options in (
        (200, 1 << 20, 1 << 20, {}),
        (30, 1, 50, {}),
        *([(7, 1, 1 << 20, {"limit": 500})] if shuffle else []),
    ):
        pq.write_table(table, tmp_path / "t.parquet", row_group_size=row_group)
        monkeypatch.setattr("rareword.pipelines.prepare.PART_BYTES", part)
        monkeypatch.setattr(reading, "BLOCK_BYTES", block)
        directory = tmp_path / f"out{row_group}"
        prepare(
            directory,
            input=(str(tmp_path / "t.parquet"),),
            **MOSES,
            **options,
            shuffle=shuffle,
            shards=2 if shuffle else 0,
            duplicates="drop" if shuffle else "keep",
            keep_raw=True,
        )
        outputs.append(contents(directory))
    assert len(outputs[0]) == (8 if shuffle else 5)
    assert all(output == outputs[0] for output in outputs)


def test_a_limit_takes_the_first_rows_and_reads_no_further(tmp_path: Path) -> None:
    files = write_pairs(tmp_path, PAIRS)
    torn = tmp_path / "torn.gz"
    torn.write_bytes(gzip.compress(b"never read" * 1000)[:50])
    files = {side: (*urls, str(torn)) for side, urls in files.items()}
    found = prepare(tmp_path / "corpus", **files, **PLAIN, limit=5)
    assert sorted(row["id"] for row in read_rows(found)) == [0, 1, 2, 3]
    assert found.figures["read"] == 5


def test_the_seed_changes_the_order_but_not_the_rows(tmp_path: Path) -> None:
    files = write_pairs(tmp_path, [(f"s {i}", f"t {i}") for i in range(40)])
    one, two = (read_rows(prepare(tmp_path / f"{n}", **files, **PLAIN, seed=n)) for n in (1, 2))
    assert one != two
    assert sorted(one, key=lambda row: row["id"]) == sorted(two, key=lambda row: row["id"])


# ---- rules of another corpus ----


def test_dev_data_take_rules_and_models_from_the_training_corpus(tmp_path: Path) -> None:
    train = prepare(tmp_path / "train", **write_pairs(tmp_path, PAIRS), **MOSES)
    dev_files = write_pairs(tmp_path, [("THE house, the HOUSE.", "DAS Haus, das HAUS.")], "dev")
    dev = prepare(tmp_path / "dev", **dev_files, rules_from=str(tmp_path / "train"), shuffle=False)
    assert dev.rules == train.rules
    for name in ("truecase-source.json", "truecase-target.json"):
        assert (tmp_path / "dev" / name).read_bytes() == (tmp_path / "train" / name).read_bytes()
    assert read_rows(dev)[0]["source"] == "the house , the house ."
    assert restore(dev.rules["text"], [read_rows(dev)[0]["target"]]) == ["Das Haus, das Haus."]

    other = prepare(tmp_path / "train2", **write_pairs(tmp_path, PAIRS[:3], "x"), **MOSES)
    with pytest.raises(RarewordError, match=r"holds another run .*'rules'"):
        prepare(tmp_path / "dev", **dev_files, rules_from=other.directory, shuffle=False)


def test_text_options_beside_rules_from_are_refused(tmp_path: Path) -> None:
    files = write_pairs(tmp_path, PAIRS)
    prepare(tmp_path / "train", **files, **PLAIN)
    with pytest.raises(RarewordError, match="--tokenise: the text rules come from --rules-from"):
        prepare(tmp_path / "x", **files, rules_from=str(tmp_path / "train"), tokenise="none")
    with pytest.raises(RarewordError, match=r"--rules-from: .* does not exist"):
        prepare(tmp_path / "x", **files, rules_from=str(tmp_path / "no"))


# ---- bad rows ----


def test_bad_rows_are_set_aside_with_their_reasons_and_counted(tmp_path: Path) -> None:
    tsv = tmp_path / "t.tsv"
    good = b"".join(b"s %d\tt %d\r\n" % (i, i) for i in range(96))
    tsv.write_bytes(b"\xef\xbb\xbfa\xff\tb\n" + good + b"only\na\t\n\t\xc3\nlast\tline")
    found = prepare(tmp_path / "corpus", input=(str(tsv),), **PLAIN)
    rejected = [(row["row"], row["reason"], row["source"]) for row in read_rows(found, "rejected/")]
    assert rejected == [
        (0, "source is not UTF-8: byte 1", "a\ufffd"),
        (97, "target is missing", "only"),
        (98, "target is empty", "a"),
        (99, "target is not UTF-8: byte 0", ""),
    ]
    assert found.rows == 97
    assert found.figures["files"] == {"t.tsv": 101}


def test_more_bad_rows_than_allowed_fail_the_job_with_an_example(tmp_path: Path) -> None:
    lines = [b"ok\tok"] * 90 + [b"\xff\tok"] * 8 + [b"one"] * 3
    (tmp_path / "t.tsv").write_bytes(b"\n".join(lines))
    options = {"input": (str(tmp_path / "t.tsv"),), **PLAIN}
    message = (
        r"11 of 101 rows are faulty, more than the share --max-rejected 0.1 allows; most often: "
        r"source is not UTF-8: byte 0 \(8 rows, such as t.tsv:90\)"
    )
    with pytest.raises(RarewordError, match=message):
        prepare(tmp_path / "corpus", **options)
    assert not (tmp_path / "corpus").exists()
    assert prepare(tmp_path / "corpus", **options, max_rejected=0.11).rows == 90


def test_filtered_rows_do_not_count_as_faulty_but_some_pair_must_be_left(tmp_path: Path) -> None:
    files = write_pairs(tmp_path, [("a", "")] * 9 + [("a", "b")])
    assert prepare(tmp_path / "corpus", **files, **PLAIN, max_rejected=0.0).rows == 1
    with pytest.raises(
        RarewordError, match=r"no pair is left of 10 rows; most often: target is em"
    ):
        prepare(tmp_path / "none", **files, **PLAIN, min_tokens=2)
    with pytest.raises(RarewordError, match=r"the input has no rows \(empty.en\)"):
        prepare(tmp_path / "none", **write_pairs(tmp_path, [], "empty"), **PLAIN)


def test_every_kind_of_messy_line_is_accepted_or_rejected_with_a_reason(
    tmp_path: Path, shared_data: Path
) -> None:
    """Records with line breaks inside go through Parquet; lines through text files."""
    kinds = sorted((shared_data / "messy").glob("*.jsonl"))
    assert len(kinds) > 20
    records = {}
    for kind in kinds:
        lines = kind.read_text(encoding="utf-8").rstrip("\n").split("\n")
        records[kind.stem] = [json.loads(line) for line in lines]
        table = pa.Table.from_pylist(records[kind.stem]).select(["source", "target"])
        pq.write_table(table, tmp_path / f"{kind.stem}.parquet")
    found = prepare(
        tmp_path / "corpus", input=(f"{tmp_path}/*.parquet",), **PLAIN, shuffle=False, keep_raw=True
    )
    assert found.figures["files"] == {
        f"{kind}.parquet": len(rows) for kind, rows in records.items()
    }
    every = [row for kind in sorted(records) for row in records[kind]]
    accepted, rejected = read_rows(found), read_rows(found, "rejected/")
    assert len(accepted) + len(rejected) == len(every)
    assert all(row["reason"] in FILTER_REASONS for row in rejected)
    assert Counter(row["reason"] for row in rejected) == found.figures["reasons"]
    raw = read_rows(found, "raw/")
    for row, untouched in zip(accepted, raw, strict=True):
        for side in ("source", "target"):
            assert row[side] == normalise(untouched[side])
    assert restore(found.rules["text"], [row["target"] for row in accepted]) == [
        row["target"] for row in accepted
    ]

    moses = prepare(tmp_path / "moses", input=(f"{tmp_path}/*.parquet",), **MOSES, shuffle=False)
    assert [row["id"] for row in read_rows(moses)] == [row["id"] for row in accepted]
    for row, plain in zip(read_rows(moses), accepted, strict=True):
        for side in ("source", "target"):
            assert row[side].split() == row[side].split(" ")
            assert row[side].replace(" ", "").lower() == plain[side].replace(" ", "").lower()


@pytest.mark.parametrize("name", ["lf.txt", "crlf.txt", "bom.txt", "no_final_newline.txt", "bin"])
def test_messy_files_keep_every_line(tmp_path: Path, shared_data: Path, name: str) -> None:
    name = "invalid_utf8_truncated.bin" if name == "bin" else f"messy_lines.{name}"
    url = shared_data / "messy" / name
    found = prepare(tmp_path / "corpus", source=(str(url),), target=(str(url),), **PLAIN)
    data = url.read_bytes()
    lines = data.count(b"\n") + (not data.endswith(b"\n"))
    assert found.figures["read"] == lines
    bad = {row["reason"] for row in read_rows(found, "rejected/")} - FILTER_REASONS
    assert len(bad) == name.endswith(".bin")
    texts = {row["id"]: row["source"] for row in read_rows(found)}
    for i, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n")):
        assert texts.get(i, "") in ("", normalise(line.decode(errors="replace")))


# ---- what it refuses ----


def test_unequal_files_fail_with_both_counts_and_leave_nothing(tmp_path: Path) -> None:
    files = {
        "source": (write_lines(tmp_path / "a.en", ["a"] * 3),),
        "target": (write_lines(tmp_path / "a.de", ["b"] * 2),),
    }
    with pytest.raises(RarewordError, match=r"^\S*a\.en has 3 lines, but \S*a\.de has 2; [^\n]*$"):
        prepare(tmp_path / "corpus", **files, **PLAIN)
    assert not (tmp_path / "corpus").exists()


def test_torn_input_fails_with_its_name_and_leaves_nothing(tmp_path: Path) -> None:
    files = write_pairs(tmp_path, PAIRS)
    torn = tmp_path / "torn.en.gz"
    torn.write_bytes(gzip.compress("".join(map(chr, range(256, 5000))).encode())[:500])
    with pytest.raises(RarewordError, match=r"torn\.en\.gz is damaged"):
        prepare(tmp_path / "corpus", source=(str(torn),), target=files["target"], **PLAIN)
    assert not (tmp_path / "corpus").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "no input: give --source and --target, or --input"),
        ({"source": ("text.en",)}, "no input"),
        ({"source": ("no.en",), "target": ("text.de",)}, "--source: no file .*no.en"),
        ({"source": ("text.*",), "target": ("text.de",)}, "--source names 2 files and --target 1"),
        ({"source": ("text.en",), "input": ("t.tsv",)}, "not both"),
        ({"source": ("text.en",), "target": ("text.de",), "source_column": "1"}, "no columns"),
        ({"input": ("text.en",)}, "text.en is neither .tsv .* nor .parquet"),
        ({"input": ("t.tsv",), "target_column": "3"}, "no column '3'; it has 2 columns"),
        ({"input": ("n.parquet",)}, "no column 'source'; its columns are n, s"),
        ({"input": ("n.parquet",), "source_column": "n"}, "'n' holds int64, expected string"),
        ({"input": ("t.tsv",), "format": "parquet"}, "t.tsv is damaged or not a Parquet file"),
        ({"input": ("t.tsv",), "tokenise": None}, "source_language is missing"),
        ({"input": ("t.tsv",), "min_tokens": 5, "max_tokens": 4}, "--max-tokens: 4 is below"),
        ({"input": ("t.tsv",), "shuffle": False, "shards": 2}, "--shards: without shuffling"),
        ({"input": ("t.tsv",), "shuffle": False, "duplicates": "drop"}, "drop needs --shuffle"),
    ],
)
def test_wrong_calls_are_refused_before_work_starts(
    tmp_path: Path, options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pairs(tmp_path, PAIRS)
    (tmp_path / "t.tsv").write_text("a\tb\n")
    pq.write_table(pa.table({"n": [1], "s": ["a"]}), tmp_path / "n.parquet")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RarewordError, match=message):
        prepare(tmp_path / "corpus", **(PLAIN | options))
    assert not (tmp_path / "corpus").exists()


def test_output_that_holds_the_input_is_refused(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    files = write_pairs(tmp_path / "corpus", PAIRS)
    with pytest.raises(RarewordError, match="holds the input"):
        prepare(tmp_path / "corpus", **files, **PLAIN, overwrite=True)
    assert (tmp_path / "corpus/text.en").exists()


def test_a_finished_corpus_is_skipped_and_changed_input_is_seen(tmp_path: Path) -> None:
    files = write_pairs(tmp_path, PAIRS)
    first = prepare(tmp_path / "corpus", **files, **PLAIN)
    assert prepare(tmp_path / "corpus", **files, **PLAIN) == first
    write_pairs(tmp_path, PAIRS[:2])
    with pytest.raises(RarewordError, match=r"input '00000 source text.en' differs"):
        prepare(tmp_path / "corpus", **files, **PLAIN)


def test_a_dry_run_checks_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(tmp_path / "corpus", **write_pairs(tmp_path, PAIRS), **PLAIN, dry_run=True)
    assert "option normalisation: NFC" in capsys.readouterr().out
    assert not (tmp_path / "corpus").exists()
