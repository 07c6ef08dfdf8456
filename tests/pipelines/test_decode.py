"""The decode job from end to end with a small random model."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from rareword.pipelines import cli, decode
from rareword.schemas import manifest as manifests
from rareword.schemas import tables
from rareword.schemas import vocabulary as vocabularies
from rareword.schemas.manifest import Plan
from rareword.schemas.tables import SEGMENTED, ShardRecord
from rareword.schemas.vocabulary import EOS, SPECIALS, Vocabularies, Vocabulary
from rareword.trainer import checkpoints
from rareword.trainer.config import ModelConfig, TrainConfig
from rareword.trainer.model import EncoderDecoder
from rareword.trainer.optimiser import Optimiser
from rareword.trainer.search import SearchOptions, force, translate
from rareword.trainer.state import RunState

PIECES = 30
TEXT = {"tokenise": "none", "truecase": "none"}


def vocabulary(pieces: int = PIECES) -> Vocabularies:
    names = [piece.text for piece in SPECIALS] + [f"p{i}" for i in range(3, pieces)]
    final = [True] * 3 + [i % 3 > 0 for i in range(3, pieces)]
    one = Vocabulary(names, final, [1] * pieces, [1] * pieces)
    return Vocabularies(one, one)


def write_segmented(
    directory: Path, shards: list[list[tuple[int, list[int]]]], found: Vocabularies | None = None
) -> Path:
    """A finished `segment` directory; each row is (id, ids of either side)."""
    found = found or vocabulary()
    records: list[ShardRecord] = []
    for number, rows in enumerate(shards):
        table = pa.table(
            {
                "id": [id_ for id_, _ in rows],
                "source": [source for _, source in rows],
                "target": [source for _, source in rows],
            },
            schema=SEGMENTED.fields,
        )
        name = tables.shard_name(number, len(shards))
        records.append(tables.write_shard(str(directory), name, SEGMENTED, [table]))
    manifests.finish(
        Plan("segment", {}, {"rows": str(shards)}),
        str(directory),
        SEGMENTED,
        records,
        files=vocabularies.write_both(found, str(directory)),
        rules={"text": TEXT, "segmenter": {"kind": "bpe-joint"}, "vocabulary": found.hash},
    )
    return directory


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"), vocabulary())


def write_model(directory: Path, found: Vocabularies) -> Path:
    """A finished `train` directory with an untrained model of sharp opinions."""
    torch.manual_seed(7)
    config = ModelConfig(PIECES, PIECES, 8, 12, 6, "none")
    network = EncoderDecoder(config)
    with torch.no_grad():
        network.output.weight.mul_(4)
        network.output.bias.normal_()
        network.output.bias[EOS] += 2.5
    checkpoints.save(
        str(directory),
        network,
        Optimiser(network, TrainConfig()),
        RunState(learning_rate=1.0),
        checkpoints.Identity("a run", found.hash, config),
        best=True,
        keep=1,
    )
    (directory / "latest.json").unlink()
    manifests.finish(
        Plan("train", {}, {}),
        str(directory),
        None,
        [],
        files=vocabularies.write_both(found, str(directory)),
        rules={"text": TEXT, "vocabulary": found.hash},
    )
    return directory


def random_rows(count: int = 23) -> list[tuple[int, list[int]]]:
    rng = np.random.default_rng(5)
    rows = [
        (int(id_), rng.integers(1, PIECES, rng.integers(1, 9)).tolist())
        for id_ in rng.permutation(1000)[:count]
    ]
    rows[1] = (rows[1][0], [])
    return rows


def run(segmented: Path, model: Path, output: Path, *more: str) -> list[dict[str, Any]]:
    """Runs the job; the rows of all shards."""
    arguments = [f"--segmented={segmented}", f"--model={model}", f"--output={output}", *more]
    code = cli.main(["decode", "--quiet", "--threads=1", *arguments])
    assert code == 0
    found = manifests.read(str(output), "decode", "--output")
    return [row for url in found.urls for row in pq.read_table(url).to_pylist()]


def test_the_job_writes_what_search_finds(tmp_path: Path, model: Path) -> None:
    rows = random_rows()
    segmented = write_segmented(tmp_path / "segmented", [rows[:9], [], rows[9:]])
    written = run(segmented, model, tmp_path / "out", "--beam=3", "--n-best=2", "--alignments")

    loaded = checkpoints.load_model(str(model))
    options = SearchOptions(beam=3, n_best=2, alignments=True)
    expected = translate(
        loaded.model.network(), [np.array(source) for _, source in rows], options, "cpu"
    )
    pairs = [
        (id_, rank, hypothesis)
        for (id_, _), hypotheses in zip(rows, expected, strict=True)
        for rank, hypothesis in enumerate(hypotheses)
    ]
    target = vocabulary().target
    assert [(row["id"], row["rank"]) for row in written] == [(i, rank) for i, rank, _ in pairs]
    for row, (_, _, hypothesis) in zip(written, pairs, strict=True):
        assert row["pieces"] == target.display(hypothesis.ids)
        assert row["text"] == target.words(hypothesis.ids)
        assert row["score"] == pytest.approx(hypothesis.score, abs=1e-5)
        if hypothesis.alignment is None:
            assert row["alignment"] is None
        else:
            assert np.array(row["alignment"]) == pytest.approx(hypothesis.alignment, abs=1e-5)

    manifest = manifests.read(str(tmp_path / "out"), "decode", "--output")
    assert [(shard.name, shard.counters["sentences"]) for shard in manifest.shards] == [
        ("part-00000-of-00003.parquet", 9),
        ("part-00001-of-00003.parquet", 0),
        ("part-00002-of-00003.parquet", 14),
    ]
    best = [hypotheses[0] for hypotheses in expected]
    assert manifest.figures == {
        "sentences": 23,
        "target_pieces": sum(len(h.ids) for h in best),
        "empty_outputs": sum(not h.ids for h in best),
        "at_limit_outputs": sum(
            len(h.ids) + 1 == 3 * (len(source) + 1)
            for h, (_, source) in zip(best, rows, strict=True)
        ),
    }
    assert manifest.figures["empty_outputs"] > 1, "some besides the blank source"
    assert manifest.figures["at_limit_outputs"] > 0
    assert manifest.rules == {
        "text": TEXT,
        "segmenter": {"kind": "bpe-joint"},
        "vocabulary": vocabulary().hash,
    }


def test_forced_decoding_scores_the_data_s_own_targets(tmp_path: Path, model: Path) -> None:
    rows = random_rows()
    segmented = write_segmented(tmp_path / "segmented", [rows[:9], rows[9:]])
    written = run(segmented, model, tmp_path / "out", "--search=forced", "--alignments")
    network, target = checkpoints.load_model(str(model)).model.network(), vocabulary().target
    assert [row["id"] for row in written] == [id_ for id_, _ in rows]
    for row, (_, ids) in zip(written, rows, strict=True):
        same = force(network, [np.array(ids)], [ids], SearchOptions(alignments=True), "cpu")[0]
        assert row["pieces"] == target.display(ids)
        assert row["score"] == pytest.approx(same.score, abs=1e-5)
        if ids:
            assert np.array(row["alignment"]) == pytest.approx(same.alignment, abs=1e-5)


def test_what_is_drawn_does_not_depend_on_shards_or_batches(tmp_path: Path, model: Path) -> None:
    rows = random_rows()
    drawn = []
    for name, shards, tokens in (("a", [rows], 4000), ("b", [rows[:7], rows[7:]], 9)):
        segmented = write_segmented(tmp_path / name, shards)
        more = ("--search=sample", "--n-best=3", f"--batch-tokens={tokens}")
        written = run(segmented, model, tmp_path / f"out-{name}", *more)
        drawn.append([(row["id"], row["rank"], row["pieces"]) for row in written])
    assert drawn[0] == drawn[1]
    other = run(segmented, model, tmp_path / "c", *more, "--search-seed=2")
    assert [(row["id"], row["rank"], row["pieces"]) for row in other] != drawn[0]


def test_bf16_finds_nearly_the_same_scores(tmp_path: Path, model: Path) -> None:
    segmented = write_segmented(tmp_path / "segmented", [random_rows()])
    exact, rounded = (
        run(segmented, model, tmp_path / name, f"--precision={name}", "--search=forced")
        for name in ("float32", "bf16")
    )
    scores = [[row["score"] for row in rows] for rows in (exact, rounded)]
    assert scores[0] == pytest.approx(scores[1], rel=0.02)
    assert scores[0] != scores[1]


def test_the_paper_s_search_is_a_preset(tmp_path: Path, model: Path) -> None:
    segmented = write_segmented(tmp_path / "segmented", [random_rows()])
    preset = run(segmented, model, tmp_path / "preset", "--preset=paper")
    by_hand = run(segmented, model, tmp_path / "hand", "--beam=12", "--min-length-ratio=0.5")
    assert preset == by_hand
    assert preset != run(segmented, model, tmp_path / "modern")


def test_batch_size_and_shard_count_change_no_translation(tmp_path: Path, model: Path) -> None:
    rows = random_rows()
    cuts = {1: [rows], 3: [rows[:2], rows[2:15], rows[15:]]}
    results = [
        run(
            write_segmented(tmp_path / f"s{shards}-{tokens}", cuts[shards]),
            model,
            tmp_path / f"o{shards}-{tokens}",
            f"--batch-tokens={tokens}",
        )
        for shards, tokens in ((1, 1), (1, 4000), (3, 40))
    ]
    for result in results[1:]:
        for row, first in zip(result, results[0], strict=True):
            assert row["score"] == pytest.approx(first["score"], abs=1e-5)
            assert {**row, "score": 0} == {**first, "score": 0}


def test_several_sets_are_translated_each_into_its_own_directory(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = random_rows()
    sets = [write_segmented(tmp_path / name, [part]) for name, part in
            (("one", rows[:9]), ("two", rows[9:]))]  # fmt: skip
    together = ["decode", "--segmented", *map(str, sets), f"--model={model}", "--threads=1",
                f"--output={tmp_path}/out", "--quiet"]  # fmt: skip
    assert cli.main(together) == 0
    for directory in sets:
        alone = run(directory, model, tmp_path / "alone" / directory.name)
        found = manifests.read(f"{tmp_path}/out/{directory.name}", "decode", "--output")
        assert [row for url in found.urls for row in pq.read_table(url).to_pylist()] == alone
    assert cli.main([word for word in together if word != "--quiet"]) == 0
    assert capsys.readouterr().err.count("is finished already, skipped") == 2
    twice = [*together[:3], f"{sets[0]}/", *together[4:]]
    assert cli.main([*twice, f"--output={tmp_path}/new"]) == 1
    assert "two directories are called 'one'" in capsys.readouterr().err
    missing = [*together[:3], str(tmp_path / "missing"), *together[4:]]
    assert cli.main([*missing, f"--output={tmp_path}/new"]) == 1
    assert "--segmented: " in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_data_without_shards_gives_translations_without_shards(tmp_path: Path, model: Path) -> None:
    assert run(write_segmented(tmp_path / "segmented", []), model, tmp_path / "out") == []


def test_the_same_run_gives_the_same_bytes(tmp_path: Path, model: Path) -> None:
    segmented = write_segmented(tmp_path / "segmented", [random_rows()])
    for name in ("a", "b"):
        run(segmented, model, tmp_path / name)
    one, other = (
        {path.name: path.read_bytes() for path in sorted((tmp_path / name).iterdir())}
        for name in ("a", "b")
    )
    assert one == other


def test_a_finished_run_is_skipped(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    segmented = write_segmented(tmp_path / "segmented", [random_rows(3)])
    arguments = ["decode", f"--segmented={segmented}", f"--model={model}", f"--output={tmp_path}/o"]
    assert cli.main([*arguments, "--quiet"]) == 0
    assert cli.main([*arguments, "--batch-tokens=100"]) == 0
    assert "is finished already, skipped" in capsys.readouterr().err
    assert cli.main([*arguments, "--beam=2"]) == 1
    assert "option 'beam' differs: 5 there, 2 here" in capsys.readouterr().err


def refused(capsys: pytest.CaptureFixture[str], output: Path, *arguments: str) -> str:
    """Runs the job, which must fail with one sentence and write nothing; the sentence."""
    assert cli.main(["decode", f"--output={output}", *arguments]) == 1
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert not output.exists()
    return error


def test_another_vocabulary_is_refused_before_work(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = vocabulary(PIECES - 1)
    segmented = write_segmented(tmp_path / "segmented", [random_rows(3)], other)
    error = refused(capsys, tmp_path / "out", f"--segmented={segmented}", f"--model={model}")
    assert f"{segmented} has vocabulary {other.hash[:12]}" in error
    assert f"{model} was trained with vocabulary {vocabulary().hash[:12]}" in error


def test_a_model_that_numbers_its_pieces_otherwise_is_refused_in_an_ensemble(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the same size, so that its ids would be taken for the others' without a sign."""
    one = vocabulary().target
    pieces = [*one.pieces[:3], one.pieces[4], one.pieces[3], *one.pieces[5:]]
    swapped = Vocabulary(pieces, one.final, one.source_counts, one.target_counts)
    other = write_model(tmp_path / "other", Vocabularies(swapped, swapped))
    segmented = write_segmented(tmp_path / "segmented", [random_rows(3)])
    for models in ([model, other], [other, model]):
        arguments = [f"--segmented={segmented}", "--model", *map(str, models)]
        error = refused(capsys, tmp_path / "out", *arguments)
        assert f"{segmented} has vocabulary {vocabulary().hash[:12]}" in error
        assert f"{other} was trained with vocabulary" in error


def test_a_missing_checkpoint_and_too_many_hypotheses_are_refused(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    segmented = write_segmented(tmp_path / "segmented", [random_rows(3)])
    both = [f"--segmented={segmented}", f"--model={model}"]
    error = refused(capsys, tmp_path / "out", *both, "--checkpoint=latest")
    assert "has no latest checkpoint" in error
    assert "try --checkpoint best" in error
    error = refused(capsys, tmp_path / "out", *both, "--n-best=6")
    assert "--n-best: 6 is more than --beam 5" in error


def test_a_damaged_checkpoint_is_a_sentence_and_leaves_nothing(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    segmented = write_segmented(tmp_path / "segmented", [random_rows(3)])
    [tensors] = model.glob("checkpoints/*/model.safetensors")
    whole = tensors.read_bytes()
    try:
        tensors.write_bytes(whole[: len(whole) // 2])
        error = refused(capsys, tmp_path / "out", f"--segmented={segmented}", f"--model={model}")
    finally:
        tensors.write_bytes(whole)
    assert f"{tensors} is damaged" in error


def test_a_device_that_is_not_there_is_a_sentence(
    tmp_path: Path,
    model: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    segmented = write_segmented(tmp_path / "segmented", [random_rows(3)])
    arguments = [f"--segmented={segmented}", f"--model={model}", "--device=cuda"]
    assert "--device: a worker has no CUDA device" in refused(capsys, tmp_path / "o", *arguments)


def test_a_dry_run_writes_nothing(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    segmented = write_segmented(tmp_path / "segmented", [random_rows(3)])
    output = tmp_path / "out"
    arguments = [f"--segmented={segmented}", f"--model={model}", f"--output={output}", "--dry-run"]
    assert decode.run(arguments) == 0
    assert "option beam: 5" in capsys.readouterr().out
    assert not output.exists()


def test_a_lost_sentence_or_shard_stops_the_manifest(tmp_path: Path) -> None:
    counters = {"sentences": 2, "target_pieces": 4, "empty_outputs": 0, "at_limit_outputs": 0}
    record = ShardRecord("part-00000-of-00002.parquet", 2, 1, "", counters)
    for records, name in (([record], "shards"), ([record, record], "sentences of shard 1")):
        finish = decode._Finish(Plan("decode", {}, {}), str(tmp_path), [2, 3], {})
        with pytest.raises(manifests.RarewordError, match=f"{name}: "):
            finish(records)
    assert list(tmp_path.iterdir()) == []
