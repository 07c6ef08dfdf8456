"""A whole run on a tiny corpus: skipped, resumed after kill -9, changed and refused."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import small_runs

from rareword.pipelines import cli

CONFIG = """
languages: {{source: en, target: de}}
data:
  train: {{source: {data}/train.en, target: {data}/train.de}}
  dev: {{source: {data}/dev.en, target: {data}/dev.de}}
  test: {{source: {data}/test.en, target: {data}/test.de}}
segmenter: bpe-joint
prepare: {{tokenise: none, truecase: none}}
count_words: {{shards: 2}}
learn_merges: {{merges: 20}}
train:
  embedding: 8
  hidden: 8
  encoder_hidden: 8
  batch: 8
  batch_unit: sentences
  max_epochs: 6
  threads: 1
decode: {{beam: 2, threads: 1, alignments: true}}
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A config and its data: words of four letters, translated by spelling them backwards."""
    root = tmp_path_factory.mktemp("experiment")
    numbers = random.Random(1)
    for split, pairs in (("train", 40), ("dev", 6), ("test", 6)):
        lines = [
            " ".join("".join(numbers.choices("abcd", k=numbers.randint(2, 5))) for _ in range(3))
            for _ in range(pairs)
        ]
        (root / f"{split}.en").write_text("".join(f"{line}\n" for line in lines))
        (root / f"{split}.de").write_text("".join(f"{line[::-1]}\n" for line in lines))
    (root / "tiny.yaml").write_text(CONFIG.format(data=root))
    return str(root / "tiny.yaml")


@pytest.fixture(scope="module")
def finished(config: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed."""
    output = tmp_path_factory.mktemp("runs") / "undisturbed"
    assert cli.main(["run", config, "--output", str(output), "--quiet"]) == 0
    return output


KILL_WHEN_THERE_IS = (
    "corpus/dev/started.json",
    "merges/started.json",
    "segmenter/started.json",
    "model/latest.json",
    "translations/test/started.json",
)


def test_a_run_killed_again_and_again_ends_with_the_same_files(
    config: str, finished: Path, tmp_path: Path
) -> None:
    output = tmp_path / "disturbed"
    command = [sys.executable, "-m", "rareword.pipelines.cli", "run", config, "--quiet"]
    command += ["--output", str(output)]
    for mark in KILL_WHEN_THERE_IS:
        with subprocess.Popen(command, start_new_session=True) as running:
            while not (output / mark).exists():
                assert running.poll() is None, f"ended before there was {mark}"
                time.sleep(0.002)
            os.killpg(running.pid, signal.SIGKILL)
        assert not (output / Path(mark).parent / "manifest.json").exists()
    subprocess.run(command, check=True, timeout=300)
    assert small_runs.run_contents(output) == small_runs.run_contents(finished)


def test_the_report_has_the_attention_of_the_translations(finished: Path) -> None:
    page = (finished / "report" / "index.html").read_text("utf-8")
    (text,) = re.findall(r'<script type="application/json" id="maps">(.*?)</script>', page)
    rows = pa.concat_tables(map(pq.read_table, (finished / "translations/test").glob("part-*")))
    sources = pa.concat_tables(map(pq.read_table, (finished / "segmented/test").glob("part-*")))
    lengths = {row["id"]: len(row["source"]) for row in sources.to_pylist()}
    translations = sorted((row for row in rows.to_pylist()), key=lambda row: row["id"])
    maps = json.loads(text)
    assert len(maps) == len(translations) == 6
    for found, translation in zip(maps, translations, strict=True):
        assert found["rows"] == [*translation["pieces"], "</s>"]
        assert len(found["columns"]) == lengths[translation["id"]] + 1
        alignment = [weight for row in translation["alignment"] for weight in row]
        assert found["weights"] == pytest.approx([1000 * weight for weight in alignment], abs=0.51)
        assert len(alignment) == len(found["rows"]) * len(found["columns"])


def test_a_finished_run_is_skipped_as_a_whole(
    config: str, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = small_runs.changed_at(finished)
    assert cli.main(["run", config, "--output", str(finished)]) == 0
    assert small_runs.changed_at(finished) == before
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines() if line.endswith(" skipped")]
    assert [row[0] for row in rows] == [
        "corpus/train",
        "corpus/dev",
        "corpus/test",
        "words",
        "merges",
        "segmenter",
        "segmented/train",
        "segmented/dev",
        "segmented/test",
        "model",
        "translations/test",
        "report",
    ]
    assert rows[0][1] == "40"
    assert "bpe-joint" in out
    assert "copy" in out
    assert out.splitlines()[-1] == f"report: {finished}/report/index.html"


def test_a_changed_option_is_refused_and_overwrite_does_again_what_follows_from_it(
    config: str, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = small_runs.changed_at(finished)
    change = ["run", config, "--output", str(finished), "--set", "decode.beam=3"]
    assert cli.main(change) == 1
    assert "(option 'beam' differs: 2 there, 3 here)" in capsys.readouterr().err
    assert small_runs.changed_at(finished) == before
    try:
        assert cli.main([*change, "--quiet", "--overwrite"]) == 0
        after = small_runs.changed_at(finished)
        folders = {Path(name).parent.parts[0] for name in before if before[name] != after[name]}
        assert folders == {"translations", "report"}
    finally:
        assert cli.main([*change[:-2], "--quiet", "--overwrite"]) == 0


def test_a_dry_run_shows_every_stage_and_writes_nothing(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    assert cli.main(["run", config, "--output", str(output), "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"prepare would write {output}/corpus/train" in lines
    assert f"train would write {output}/model after segmented/train, segmented/dev" in lines
    assert not output.exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--set", "train.drop_out=1"], "train: unknown key 'drop_out'; did you mean 'dropout'?"),
        (["--set", "data.test.target=none.de"], "--target: no file none.de"),
        (["--set", "evaluate.samples=-1"], "evaluate.samples: -1 is below 0"),
        (["--runer=X"], "unknown argument --runer; did you mean --runner?"),
        (["--overwritte"], "unknown argument --overwritte; did you mean --overwrite?"),
        (["--direct_running_mode=multi_threading"], "multi_threading is refused"),
    ],
)
def test_a_mistake_is_a_sentence_before_any_work(
    config: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    sentence: str,
) -> None:
    output = tmp_path / "out"
    assert cli.main(["run", config, "--output", str(output), *arguments]) == 1
    err = capsys.readouterr().err
    assert err.startswith("rareword run: ")
    assert sentence in err
    assert len(err.splitlines()) == 1
    assert not output.exists()


def test_a_config_of_another_program_is_not_overwritten(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text('{"theme": "dark"}')
    assert cli.main(["run", config, "--output", str(tmp_path)]) == 1
    assert "config.json was not written by rareword" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
