"""`rareword experiment` on a tiny corpus: shared stages, kill -9, and tables that say what the
report says."""

import os
import random
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import small_runs
from safetensors import safe_open

from rareword.pipelines import cli
from rareword.schemas.storage import read_json

CONFIG = """
languages: {{source: en, target: de}}
data:
  train: {{source: {data}/train.en, target: {data}/train.de}}
  dev: {{source: {data}/dev.en, target: {data}/dev.de}}
  test: {{source: {data}/test.en, target: {data}/test.de}}
systems:
  wunk: &words {{learn_segmenter: {{max_vocabulary_size: 12}}}}
  wdict: *words
  bpe-joint:
seeds: [1, 2]
prepare: {{tokenise: none, truecase: none}}
align: {{model: fast-align, shards: 1}}
learn_merges: {{merges: 10}}
train:
  embedding: 8
  hidden: 8
  encoder_hidden: 8
  batch: 8
  batch_unit: sentences
  max_epochs: 2
  threads: 1
decode: {{beam: 2, threads: 1, max_length_ratio: 1}}
evaluate: {{rare_threshold: 2}}
"""

SYSTEMS = ("wunk", "wdict", "bpe-joint")
OURS = ("config.json", "tables.json", "tables.md")
"""Files of the command itself, beside the directories of the stages."""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A config and its data: words of a few letters, translated by spelling them in capitals."""
    root = tmp_path_factory.mktemp("experiment")
    numbers = random.Random(1)
    words = ["".join(numbers.choices("abcd", k=numbers.randint(2, 5))) for _ in range(20)]
    for split, pairs in (("train", 40), ("dev", 4), ("test", 8)):
        lines = [" ".join(numbers.choices(words, k=3)) for _ in range(pairs)]
        (root / f"{split}.en").write_text("".join(f"{line}\n" for line in lines))
        (root / f"{split}.de").write_text("".join(f"{line.upper()}\n" for line in lines))
    (root / "tiny.yaml").write_text(CONFIG.format(data=root))
    return str(root / "tiny.yaml")


@pytest.fixture(scope="module")
def finished(config: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment that nothing disturbed."""
    output = tmp_path_factory.mktemp("runs") / "undisturbed"
    assert cli.main(["experiment", config, "--output", str(output), "--quiet"]) == 0
    return output


def test_words_and_data_are_made_once_for_all_seeds_and_both_word_systems(finished: Path) -> None:
    found = {
        str(path.parent.relative_to(finished))
        for path in finished.rglob("manifest.json")
        if path.parent.relative_to(finished).parts[0] == "systems"
    }
    expected = {
        f"systems/{name}/{stage}"
        for name in ("words", "bpe-joint")
        for stage in ("segmenter", "segmented/train", "segmented/dev", "segmented/test",
                      "models/seed-1", "models/seed-2")
    } | {
        f"systems/{name}/translations/{model}"
        for name in SYSTEMS for model in ("seed-1", "seed-2", "ensemble")
    }  # fmt: skip
    assert found == expected | {"systems/bpe-joint/merges"}


def test_the_dictionary_takes_the_place_of_unknown_words(finished: Path) -> None:
    rows = {
        name: [
            row
            for path in sorted((finished / f"systems/{name}/translations/seed-1").glob("part*"))
            for row in pq.read_table(path).to_pylist()
        ]
        for name in ("wunk", "wdict")
    }
    metrics = read_json(f"{finished}/report/metrics.json")["systems"]
    assert metrics["wunk seed 1"]["unknown_pieces"] > 0
    assert metrics["wdict seed 1"]["unknown_pieces"] == 0
    for plain, looked_up in zip(rows["wunk"], rows["wdict"], strict=True):
        assert plain["score"] == looked_up["score"]
        for one, other in zip(plain["pieces"], looked_up["pieces"], strict=True):
            assert one == other or (one == "<unk>" and other.isalpha())


def figures(metrics: dict[str, Any], name: str) -> dict[str, float]:
    """What the tables show of a system, as the report's own figures say it."""
    found = metrics["systems"][name]
    return {
        "bleu": found["bleu"]["value"],
        "chrf3": found["chrf3"]["value"],
        "exact": found["exact_matches"]["share"],
        "f1_all": found["unigrams"]["all"]["f1"],
        "f1_rare": found["unigrams"]["rare"]["f1"],
        "f1_unseen": found["unigrams"]["unseen"]["f1"],
    }


def test_the_tables_have_the_figures_of_the_report(finished: Path) -> None:
    tables = read_json(f"{finished}/tables.json")
    metrics = read_json(f"{finished}/report/metrics.json")
    assert list(tables["systems"]) == sorted(SYSTEMS), "JSON is written in sorted order"
    assert tables["copy"] == figures(metrics, "copy")
    assert tables["sentences"] == 8
    for name in SYSTEMS:
        system = tables["systems"][name]
        models = {f"{name} seed {seed}": figures(metrics, f"{name} seed {seed}") for seed in (1, 2)}
        assert system["models"] == models
        assert system["ensemble"] == figures(metrics, f"{name} ensemble")
        for key, spread in system["single"].items():
            values = [model[key] for model in models.values()]
            if None in values:
                assert spread == {"mean": None, "min": None, "max": None}
            else:
                expected = statistics.mean(values), min(values), max(values)
                assert (spread["mean"], spread["min"], spread["max"]) == pytest.approx(expected)


def test_the_tables_have_the_sizes_of_the_systems(finished: Path) -> None:
    tables = read_json(f"{finished}/tables.json")["systems"]
    for name, place, kind in (("wdict", "words", "words"), ("bpe-joint", "bpe-joint", "bpe")):
        root, system = finished / "systems" / place, tables[name]
        for side in ("source", "target"):
            rows = pq.read_metadata(root / f"segmenter/vocabulary-{side}.parquet").num_rows
            assert system[f"{side}_vocabulary"] == rows
        assert system["segmenter"] == kind
        assert system["updates"] == [10, 10], "2 epochs of 5 batches of 8 pairs"
        model = next((root / "models/seed-1/checkpoints").glob("*/model.safetensors"))
        with safe_open(model, "numpy") as tensors:
            sizes = [tensors.get_tensor(key).size for key in tensors.keys()]  # noqa: SIM118
        assert system["parameters"] == sum(sizes)
    assert tables["wunk"]["updates"] == tables["wdict"]["updates"]


def test_the_markdown_shows_mean_range_and_ensemble(finished: Path) -> None:
    text = (finished / "tables.md").read_text()
    tables = read_json(f"{finished}/tables.json")["systems"]
    assert text.startswith("# en to de\n\n8 test sentences. Single models: the mean of 2 (lowest–")
    first = text.split("\n## ")[1]
    rows = [line.split(" | ")[0] for line in first.splitlines() if line.startswith("| ")]
    assert rows == ["| system", "| wunk", "| wdict", "| bpe-joint", "| copy"]
    bleu = tables["wdict"]["single"]["bleu"]
    cells = f"| wdict | {bleu['mean']:.1f} ({bleu['min']:.1f}–{bleu['max']:.1f}) "
    assert f"{cells}| {tables['wdict']['ensemble']['bleu']:.1f} |" in text
    assert f"| wdict seed 2 | {tables['wdict']['models']['wdict seed 2']['bleu']:.1f} |" in text


def test_a_finished_experiment_is_skipped_as_a_whole(
    config: str, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = small_runs.changed_at(finished, OURS)
    assert cli.main(["experiment", config, "--output", str(finished)]) == 0
    assert small_runs.changed_at(finished, OURS) == before
    lines = capsys.readouterr().out.splitlines()
    skipped = [line.split()[0] for line in lines if line.endswith(" skipped")]
    stages = [name.removesuffix("/manifest.json") for name in before if "manifest" in name]
    assert sorted(skipped) == sorted(stages)
    assert lines[-2:] == [f"tables: {finished}/tables.md", f"report: {finished}/report/index.html"]
    [wdict] = [line for line in lines if line.startswith("wdict ")]
    mean = read_json(f"{finished}/tables.json")["systems"]["wdict"]["single"]["bleu"]["mean"]
    assert wdict.split()[1] == f"{mean:.1f}"


def test_a_killed_experiment_goes_on_to_the_same_files(
    config: str, finished: Path, tmp_path: Path
) -> None:
    """Killed while the second seed is trained; its first stages and its models are then those of
    the larger experiment, which nobody disturbed."""
    output = tmp_path / "disturbed"
    arguments = ["experiment", config, "--quiet", "--output", str(output)]
    arguments += ["--set", "systems=[bpe-joint]"]
    command = [sys.executable, "-m", "rareword.pipelines.cli", *arguments]
    training = output / "systems/bpe-joint/models/seed-2"
    with subprocess.Popen(command, start_new_session=True) as running:
        while not (training / "latest.json").exists():
            assert running.poll() is None, "ended before it was killed"
            time.sleep(0.002)
        os.killpg(running.pid, signal.SIGKILL)
    assert not (training / "manifest.json").exists()
    assert not (output / "tables.json").exists()
    assert cli.main(arguments) == 0
    ours, all_files = small_runs.run_contents(output), small_runs.run_contents(finished)
    for name, content in ours.items():
        if not name.startswith(("report/", "tables.")):
            assert content == all_files[name], name
    assert {"tables.json", "tables.md", "report/metrics.json"} <= ours.keys()


def test_a_further_seed_keeps_the_models_that_are_there(
    config: str, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The ensembles and the report are others then, so `--overwrite` must be given."""
    less = ["--set", "systems=[bpe-joint]", "--set", "evaluate.samples=1"]
    command = ["experiment", config, "--output", f"{tmp_path}/out", "--quiet", *less]
    assert cli.main([*command, "--set", "seeds=[1]"]) == 0
    before = small_runs.changed_at(tmp_path / "out", OURS)
    assert "bpe-joint" in (tmp_path / "out/tables.md").read_text()
    assert "ensemble" not in read_json(f"{tmp_path}/out/report/metrics.json")["systems"]
    assert cli.main(command) == 1
    error = capsys.readouterr().err
    assert f"{tmp_path}/out/report was made of 4 inputs and would now be made of 6" in error
    assert small_runs.changed_at(tmp_path / "out", OURS) == before, (
        "said before the second model is trained"
    )
    assert cli.main([*command, "--overwrite"]) == 0
    after = small_runs.changed_at(tmp_path / "out", OURS)
    changed = {name.split("/")[0] for name in before if before[name] != after.get(name)}
    assert changed == {"report"}
    tables = read_json(f"{tmp_path}/out/tables.json")["systems"]["bpe-joint"]
    assert list(tables["models"]) == ["bpe-joint seed 1", "bpe-joint seed 2"]
    assert (
        tables["ensemble"]
        == read_json(f"{finished}/tables.json")["systems"]["bpe-joint"]["ensemble"]
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--set", "train.drop_out=1"], "train: unknown key 'drop_out'; did you mean 'dropout'?"),
        (["--set", "seeds=[1, 1]"], "seeds: [1, 1] has one twice"),
        (["--set", "data.test.target=none.de"], "--target: no file none.de"),
        (["--overwritte"], "unknown argument --overwritte; did you mean --overwrite?"),
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
    assert cli.main(["experiment", config, "--output", str(output), *arguments]) == 1
    error = capsys.readouterr().err
    assert error.startswith("rareword experiment: ")
    assert sentence in error
    assert len(error.splitlines()) == 1
    assert not output.exists()


def test_a_missing_aligner_is_said_before_any_work(
    config: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "thot", None)
    monkeypatch.setitem(sys.modules, "thot.alignment", None)
    assert cli.main(["experiment", config, "--output", f"{tmp_path}/out"]) == 1
    assert "rareword[align]" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_dry_run_shows_every_stage_and_writes_nothing(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    assert cli.main(["experiment", config, "--output", str(output), "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"align would write {output}/dictionary after corpus/train" in lines
    assert not output.exists()


def test_the_directory_of_a_run_is_not_that_of_an_experiment(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text('{"job": "run"}')
    assert cli.main(["experiment", config, "--output", str(tmp_path)]) == 1
    assert "config.json was not written by rareword experiment" in capsys.readouterr().err
