"""The manifest: written last, trusted alone, and refused when the files tell another story."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rareword.schemas import manifest, storage, tables
from rareword.schemas.errors import RarewordError
from rareword.schemas.manifest import Manifest, Plan
from rareword.schemas.tables import CORPUS

PLAN = Plan("prepare", {"shards": 2, "limit": None}, {"source": "abc"})


def finished(directory: Path) -> Manifest:
    """A small finished run of `prepare`."""
    table = pa.table({"id": [1], "source": ["a b"], "target": ["c"]}, schema=CORPUS.fields)
    shards = [
        tables.write_shard(
            str(directory), tables.shard_name(number, 2), CORPUS, [table], {"tokens": number + 3}
        )
        for number in (1, 0)
    ]
    rejected = tables.write_shard(str(directory), "rejected/r.parquet", CORPUS, [table])
    return manifest.finish(
        PLAN,
        str(directory),
        CORPUS,
        shards,
        files=[rejected],
        figures={"rows": 2},
        rules={"text": {"nfc": True}},
    )


def edit(directory: Path, **changes: Any) -> None:
    path = directory / "manifest.json"
    value = json.loads(path.read_text())
    for key, change in changes.items():
        if change is None:
            del value[key]
        else:
            value[key] = change
    path.write_text(json.dumps(value))


def test_what_was_finished_is_read(tmp_path: Path) -> None:
    written = finished(tmp_path)
    found = manifest.read(str(tmp_path), "prepare", "--corpus")
    assert found == written
    assert found.rows == 2
    assert found.counter("tokens") == 3 + 4
    assert found.counter("nothing") == 0
    assert [url.rsplit("/", 1)[1] for url in found.urls] == [
        "part-00000-of-00002.parquet",
        "part-00001-of-00002.parquet",
    ]
    assert found.plan == PLAN.fingerprint
    assert {"rareword", "apache-beam", "pyarrow"} <= set(found.versions)


def test_no_manifest_means_not_finished(tmp_path: Path) -> None:
    assert not manifest.is_finished(str(tmp_path))
    with pytest.raises(RarewordError, match=r"^--corpus: .* is not finished .*`rareword prepare`"):
        manifest.read(str(tmp_path), "prepare", "--corpus")
    with pytest.raises(RarewordError, match=r"^--corpus: .*/none does not exist"):
        manifest.read(str(tmp_path / "none"), "prepare", "--corpus")
    finished(tmp_path)
    assert manifest.is_finished(str(tmp_path))


def test_another_job_is_named(tmp_path: Path) -> None:
    finished(tmp_path)
    with pytest.raises(RarewordError, match="was written by `prepare`, expected `segment`"):
        manifest.read(str(tmp_path), "segment", "--segmented")
    assert manifest.read(str(tmp_path), ("segment", "prepare"), "--data").job == "prepare"


@pytest.mark.parametrize("name", ["part-00001-of-00002.parquet", "rejected/r.parquet"])
def test_a_missing_or_torn_file_is_named(tmp_path: Path, name: str) -> None:
    finished(tmp_path)
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[:-1])
    with pytest.raises(RarewordError, match=rf"{name} has {len(data) - 1} bytes, .* {len(data)}"):
        manifest.read(str(tmp_path), "prepare", "--corpus")
    (tmp_path / name).unlink()
    with pytest.raises(RarewordError, match=rf"{name} is named in .*manifest.json but missing"):
        manifest.read(str(tmp_path), "prepare", "--corpus")


@pytest.mark.parametrize("change", [{"shards": None}, {"job": None}, {"extra": 1}, {"shards": [1]}])
def test_a_manifest_of_another_shape_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    finished(tmp_path)
    edit(tmp_path, **change)
    with pytest.raises(RarewordError, match=r"manifest\.json is not a rareword manifest"):
        manifest.read(str(tmp_path), "prepare", "--corpus")


def test_a_manifest_of_another_release_or_torn_is_refused(tmp_path: Path) -> None:
    finished(tmp_path)
    edit(tmp_path, format=99)
    with pytest.raises(RarewordError, match="was written by another release"):
        manifest.read(str(tmp_path), "prepare", "--corpus")
    (tmp_path / "manifest.json").write_text('{"format": 1, "job"')
    with pytest.raises(RarewordError, match=r"manifest\.json is not valid JSON"):
        manifest.read(str(tmp_path), "prepare", "--corpus")


def test_the_content_digest_is_of_the_result_not_of_the_place(tmp_path: Path) -> None:
    first, second = finished(tmp_path / "a"), finished(tmp_path / "b")
    assert first.content == second.content
    edit(tmp_path / "b", rules={"text": {"nfc": False}})
    changed = manifest.read(str(tmp_path / "b"), "prepare", "--corpus")
    assert changed.content != first.content
    edit(tmp_path / "b", rules=dict(first.rules), figures={}, versions={})
    same = manifest.read(str(tmp_path / "b"), "prepare", "--corpus")
    assert same.content == first.content


JSON = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=4)


@given(options=JSON, inputs=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3))
def test_the_fingerprint_sees_everything_but_the_order(
    options: dict[str, Any], inputs: dict[str, str]
) -> None:
    plan = Plan("train", options, inputs)
    turned = Plan("train", dict(reversed(options.items())), dict(reversed(inputs.items())))
    assert plan.fingerprint == turned.fingerprint
    assert plan.fingerprint != Plan("decode", options, inputs).fingerprint
    assert plan.fingerprint != Plan("train", {**options, "more  ": 1}, inputs).fingerprint
    assert plan.fingerprint != Plan("train", options, {**inputs, "more  ": "x"}).fingerprint


def test_an_imbalance_names_its_figure_and_both_sides() -> None:
    manifest.check_balance({"rows": (5, 5)})
    with pytest.raises(RarewordError, match="lost or doubled data: tokens: 7 against 8"):
        manifest.check_balance({"rows": (5, 5), "tokens": (7, 8)})


def test_the_manifest_has_one_form(tmp_path: Path) -> None:
    finished(tmp_path / "a")
    finished(tmp_path / "b")
    assert (tmp_path / "a/manifest.json").read_bytes() == (
        tmp_path / "b/manifest.json"
    ).read_bytes()
    assert storage.TEMPORARY_MARK not in " ".join(storage.list_files(str(tmp_path)))
