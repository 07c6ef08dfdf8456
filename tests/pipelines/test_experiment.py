"""A config file becomes the stages of a run, or a sentence that says what is wrong with it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from rareword.pipelines import experiment, learn_segmenter
from rareword.pipelines.experiment import SEGMENTERS, Experiment
from rareword.pipelines.learn_segmenter import KINDS
from rareword.schemas.errors import RarewordError

CONFIG: dict[str, Any] = {
    "output": "out",
    "languages": {"source": "en", "target": "ru"},
    "data": {
        "train": {"source": ["a.en", "b.en"], "target": ["a.ru", "b.ru"], "limit": 100},
        "dev": {"source": "dev.en", "target": "dev.ru"},
        "test": {"input": "test.parquet", "source_column": "translation.en"},
    },
    "segmenter": "bpe-joint-iso9",
    "prepare": {"max_tokens": 50},
    "learn_merges": {"merges": 300},
    "train": {"dropout": 0.2},
}


def load(tmp_path: Path, *changes: str, remove: str = "", **values: Any) -> Experiment:
    config = {**CONFIG, **values}
    config.pop(remove, None)
    path = tmp_path / "my.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return experiment.load(str(path), changes)


def by_name(found: Experiment) -> dict[str, Any]:
    return {stage.name: stage.options for stage in found.stages}


def test_the_stages_come_in_the_order_of_the_work(tmp_path: Path) -> None:
    assert [(stage.name, stage.job.name) for stage in load(tmp_path).stages] == [
        ("corpus/train", "prepare"),
        ("corpus/dev", "prepare"),
        ("corpus/test", "prepare"),
        ("words", "count-words"),
        ("merges", "learn-merges"),
        ("segmenter", "learn-segmenter"),
        ("segmented/train", "segment"),
        ("segmented/dev", "segment"),
        ("segmented/test", "segment"),
        ("model", "train"),
        ("translations/test", "decode"),
        ("report", "evaluate"),
    ]


@pytest.mark.parametrize("segmenter", SEGMENTERS)
def test_every_stage_reads_what_earlier_stages_wrote(tmp_path: Path, segmenter: str) -> None:
    def keys(name: str) -> dict[str, Any]:
        needed = KINDS[SEGMENTERS[name].kind].needs
        return {"learn_segmenter": dict.fromkeys(needed, 8000)} if needed else {}

    baselines = {name: keys(name) for name in SEGMENTERS if name != segmenter}
    done: set[str] = set()
    for stage in load(tmp_path, segmenter=segmenter, baselines=baselines, **keys(segmenter)).stages:
        assert set(stage.needs) <= done
        assert stage.name not in done
        assert stage.options.output == f"out/{stage.name}"
        done.add(stage.name)


def test_the_users_keys_reach_their_jobs(tmp_path: Path) -> None:
    found = by_name(load(tmp_path))
    train = found["corpus/train"]
    assert train.source == ("a.en", "b.en")
    assert train.limit == 100
    assert train.max_tokens == 50
    assert (train.source_language, train.target_language) == ("en", "ru")
    assert found["merges"].merges == 300
    assert found["merges"].transliterate == "iso9"
    assert found["model"].dropout == 0.2


def test_development_and_test_data_follow_the_training_rules_and_lose_no_row(
    tmp_path: Path,
) -> None:
    found = by_name(load(tmp_path))
    for split in ("dev", "test"):
        options = found[f"corpus/{split}"]
        assert options.rules_from == "out/corpus/train"
        assert options.keep_raw
        assert not options.shuffle
        assert options.max_tokens == 0
    assert found["corpus/test"].source_column == "translation.en"


def test_separate_bpe_learns_merges_for_each_side(tmp_path: Path) -> None:
    found = by_name(load(tmp_path, segmenter="bpe"))
    assert (found["merges-source"].side, found["merges-target"].side) == ("source", "target")
    segmenter = found["segmenter"]
    assert segmenter.merges is None
    assert segmenter.source_merges == "out/merges-source"
    assert segmenter.target_merges == "out/merges-target"


def test_merges_of_bytes_are_learnt_for_bytes(tmp_path: Path) -> None:
    found = by_name(load(tmp_path, segmenter="bytes", baselines=["bpe"]))
    assert (found["merges"].side, found["merges"].units) == ("joint", "bytes")
    assert (found["segmenter"].segmenter, found["segmenter"].merges) == ("bytes", "out/merges")
    assert found["baselines/bpe/merges-source"].units == "characters"


def test_all_data_are_cut_by_one_segmenter(tmp_path: Path) -> None:
    found = by_name(load(tmp_path, segment={"kernel_threads": 2}, baselines=["words"]))
    for split in experiment.SPLITS:
        assert found[f"segmented/{split}"].segmenter == "out/segmenter"
        assert found[f"segmented/{split}"].kernel_threads == 2
        other = found[f"baselines/words/segmented/{split}"]
        assert other.segmenter == "out/baselines/words/segmenter"


def test_a_baseline_inherits_the_segmenter_options_that_its_kind_has(tmp_path: Path) -> None:
    given = {"merge_limit": 5, "max_vocabulary_size": 60}
    baselines = {"words": {"learn_segmenter": {"max_vocabulary_size": 50}}, "bpe": None}
    found = by_name(load(tmp_path, learn_segmenter=given, baselines=baselines))
    kept = {
        name: (found[name].merge_limit, found[name].max_vocabulary_size)
        for name in ("segmenter", "baselines/words/segmenter", "baselines/bpe/segmenter")
    }
    assert list(kept.values()) == [(5, 60), (None, 50), (5, 60)]


@pytest.mark.parametrize(
    ("name", "expected"), [("c2-50k", [50_000, 50_000]), ("c2-3-500k", [300_000, 500_000])]
)
def test_the_papers_n_grams_have_its_shortlists(
    tmp_path: Path, name: str, expected: list[int]
) -> None:
    options = by_name(load(tmp_path, segmenter=name))["segmenter"]
    of_sides = [options.source_shortlist, options.target_shortlist]
    assert options.ngram == 2
    assert [options.shortlist if size is None else size for size in of_sides] == expected
    assert (
        by_name(load(tmp_path, "learn_segmenter.ngram=3", segmenter=name))["segmenter"].ngram == 3
    )


def test_a_kind_that_learn_segmenter_learns_itself_needs_its_name_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind, learnt_from in (("affixes", "words"), ("rawest", "corpus")):
        monkeypatch.setitem(learn_segmenter.KINDS, kind, learn_segmenter.Kind(learnt_from))
        monkeypatch.setitem(SEGMENTERS, kind, experiment.Segmenter(kind))
    found = load(
        tmp_path, segmenter="affixes", baselines=["rawest"], learn_segmenter={"joint": True}
    )
    stages = {stage.name: stage for stage in found.stages}
    assert stages["segmenter"].needs == ("words",)
    assert stages["segmenter"].options.joint
    assert stages["baselines/rawest/segmenter"].needs == ("corpus/train",)
    assert stages["baselines/rawest/segmenter"].options.joint
    assert not [name for name in stages if "merges" in name]


def test_baselines_get_their_own_directories_and_stand_in_the_report(tmp_path: Path) -> None:
    baselines = {"words": None, "bpe-9": {"segmenter": "bpe-joint", "learn_merges": {"merges": 9}}}
    found = by_name(load(tmp_path, baselines=baselines))
    assert found["baselines/words/model"].segmented == "out/baselines/words/segmented/train"
    assert found["baselines/words/model"].dropout == 0.2
    assert found["baselines/bpe-9/merges"].merges == 9
    assert found["merges"].merges == 300
    assert "baselines/words/merges" not in found
    assert found["report"].name == "bpe-joint-iso9"
    assert found["report"].baseline == (
        "words=out/baselines/words/translations/test",
        "bpe-9=out/baselines/bpe-9/translations/test",
    )
    assert found["report"].segmented == (
        "out/segmented/test",
        "out/baselines/words/segmented/test",
        "out/baselines/bpe-9/segmented/test",
    )


def test_a_change_wins_over_the_file(tmp_path: Path) -> None:
    changes = ("train.dropout=0.5", "learn_segmenter.joint_vocabulary=no", "data.train.limit=7")
    found = by_name(load(tmp_path, *changes))
    assert found["model"].dropout == 0.5
    assert found["segmenter"].joint_vocabulary == "no"
    assert found["corpus/train"].limit == 7


def test_the_output_and_the_flags_may_come_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        yaml.safe_dump({key: value for key, value in CONFIG.items() if key != "output"})
    )
    found = experiment.load(str(tmp_path / "c.yaml"), output="gs://b/run", quiet=True)
    assert found.output == "gs://b/run"
    assert all(stage.options.quiet for stage in found.stages)
    assert by_name(found)["model"].segmented == "gs://b/run/segmented/train"


def test_a_section_of_its_own_makes_the_model_an_ensemble(tmp_path: Path) -> None:
    keys = {"clips": [1, 2], "last": 3}
    own = {"c2-50k": {"train_ensemble": {"last": 2}}}
    found = load(tmp_path, train_ensemble=keys, baselines={"words": {}, **own})
    jobs = {stage.name: stage.job.name for stage in found.stages}
    options = by_name(found)
    for model, last in (("model", 3), ("baselines/words/model", 3), ("baselines/c2-50k/model", 2)):
        assert jobs[model] == "train-ensemble"
        assert options[model].clips == (1.0, 2.0)
        assert options[model].last == last
        assert options[model].dropout == 0.2
        assert options[model].continue_freeze == ("source-embedding", "target-embedding")
        decode = options[model.replace("model", "translations/test")]
        assert decode.model == (f"out/{model}",)
    assert by_name(load(tmp_path, "train.preset=paper", train_ensemble=None))["model"].last == 4
    # Without the section it is one model, but for a baseline that has its own.
    jobs = {stage.name: stage.job.name for stage in load(tmp_path, baselines=own).stages}
    assert (jobs["model"], jobs["baselines/c2-50k/model"]) == ("train", "train-ensemble")


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"train_ensemble": {"lsat": 1}}, ": train_ensemble: unknown key 'lsat'; did you mean"),
        ({"train_ensemble": {"dropout": 0.1}}, ": train_ensemble: unknown key 'dropout'; "),
        (
            {"train_ensemble": {}, "train": {"dropout": 2.0}},
            ": train.dropout: 2.0 is above 0.95",
        ),
        ({"train_ensemble": {"last": 0}}, ": train_ensemble.last: 0 is below 1"),
        ({"trian": {}}, ": unknown key 'trian'; did you mean 'train'?"),
        ({"train": {"drop_out": 1}}, ": train: unknown key 'drop_out'; did you mean 'dropout'?"),
        ({"train": {"dropout": "0.2"}}, ": train.dropout: expected float, found '0.2'"),
        ({"train": {"dropout": 2.0}}, ": train.dropout: 2.0 is above 0.95"),
        ({"train": [1]}, ": train: expected keys and values, found [1]"),
        ({"train": {"quiet": True}}, ": train: unknown key 'quiet'"),
        ({"train": {"output": "x"}}, ": train: unknown key 'output'"),
        ({"train": {"segmented": "x"}}, ": train: 'segmented' is set by the run itself; leave it"),
        ({"learn_merges": {"side": "joint"}}, ": learn_merges: 'side' is set by the run itself"),
        ({"learn_segmenter": {"words": "x"}}, ": learn_segmenter: 'words' is set by the run itse"),
        ({"learn_segmenter": {"joint": True}}, ": learn_segmenter.joint is not for bpe"),
        (
            {"segmenter": "words", "learn_segmenter": {"merge_limit": 3}},
            ": learn_segmenter.merge_limit is not for words but for bpe, bytes; leave it out",
        ),
        ({"segment": {"joint_vocabulary": "no"}}, ": segment: unknown key 'joint_vocabulary'"),
        ({"segmenter": "bpe-jiont"}, ": segmenter: unknown key 'bpe-jiont'; did you mean"),
        ({"segmenter": ["bpe"]}, ": segmenter: expected a segmenter, found ['bpe']"),
        ({"output": 3}, ": output: expected text, found 3"),
        ({"languages": {"source": "en"}}, ": languages: the key 'target' is missing"),
        ({"languages": "en-ru"}, ": languages: expected the keys source, target"),
        ({"languages": {"source": "en", "target": 1}}, ": prepare.target_language: expected str"),
        ({"data": {"train": {}, "dev": {}}}, ": data: the key 'test' is missing"),
        ({"data": {"train": {}, "dev": {}, "tset": {}}}, ": data: unknown key 'tset'; did you"),
        (
            {"data": {**CONFIG["data"], "dev": {"sources": "x"}}},
            ": data.dev: unknown key 'sources'; did you mean 'source'?",
        ),
        (
            {"data": {**CONFIG["data"], "dev": {"source": 1}}},
            ": data.dev.source: expected str, found 1",
        ),
        ({"data": {**CONFIG["data"], "dev": "dev.en"}}, ": data.dev: expected keys and values"),
        ({"baselines": ["wrods"]}, ": baselines.wrods: unknown key 'wrods'; did you mean 'words'?"),
        ({"baselines": "words"}, ": baselines: expected a list of segmenters"),
        (
            {"segmenter": "unigram"},
            ": learn_segmenter.segmenter unigram needs learn_segmenter.pieces",
        ),
        ({"baselines": ["bpe-joint-iso9"]}, ": baselines.bpe-joint-iso9: a baseline needs a name"),
        ({"baselines": {"a/b": {"segmenter": "bpe"}}}, ": baselines.a/b: a baseline needs a name"),
        ({"baselines": {"words": {"prepare": {}}}}, ": baselines.words: unknown key 'prepare'"),
        (
            {"baselines": {"words": {"train": {"dropuot": 1}}}},
            ": baselines.words: train: unknown key 'dropuot'; did you mean 'dropout'?",
        ),
    ],
)
def test_a_mistake_is_a_sentence_with_its_place(
    tmp_path: Path, values: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(RarewordError) as error:
        load(tmp_path, **values)
    assert str(error.value).startswith(f"{tmp_path / 'my.yaml'}{sentence}")


@pytest.mark.parametrize("key", ["output", "languages", "data", "segmenter"])
def test_a_missing_key_is_named(tmp_path: Path, key: str) -> None:
    with pytest.raises(RarewordError, match=rf"my\.yaml: the key '{key}' is missing"):
        load(tmp_path, remove=key)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("train.dropout", "--set: expected section.key=value, found 'train.dropout'"),
        ("=3", "--set: expected section.key=value, found '=3'"),
        ("segmenter.x=3", "--set: 'segmenter.x=3': 'segmenter' has no keys below it"),
        ("train.dropout=[1", "--set train.dropout=[1, line 1: "),
    ],
)
def test_a_bad_change_is_a_sentence(tmp_path: Path, change: str, sentence: str) -> None:
    with pytest.raises(RarewordError) as error:
        load(tmp_path, change)
    assert str(error.value).startswith(sentence)


def test_a_file_that_is_no_config_is_named(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("just text\n")
    with pytest.raises(RarewordError, match=r"c\.yaml: expected keys and values, found 'just"):
        experiment.load(str(tmp_path / "c.yaml"))
