"""The benchmark of decoding: all translate the same, pieces are joined, ratios are of the best."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu

from rareword.schemas import vocabulary as vocabularies
from rareword.trainer import checkpoints
from rareword.trainer.search import translate as search
from rareword.trainer.search_options import SearchOptions

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))  # its modules import each other as scripts do

import decoding  # noqa: E402
import decoding_report  # noqa: E402
import training  # noqa: E402

PEER = BENCHMARKS / ".peers-training" / "bin" / "python"
SMALL = ["--embedding=16", "--hidden=24", "--encoder-hidden=12", "--threads=1", "--merges=20"]
DEV = [f"cat {n} runs {'newer ' * (n * 7 % 5)}." for n in range(7)]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What training.py leaves: models that copy, more or less; JoeyNMT's if it is installed."""
    folder = tmp_path_factory.mktemp("work")
    lines = {"": [f"the lowest cat, it runs {n} {'newer ' * (n % 5)}." for n in range(60)]}
    options = ["--work", str(folder)]
    for split, text in (lines | {"dev-": DEV}).items():
        for side in ("source", "target"):
            path = folder / f"{split}{side}.txt"
            path.write_text("\n".join(text) + "\n", "utf-8")
            options += [f"--{split}{side}", str(path)]
    less = ["--precisions=float32", "--repeats=1", "--updates=150", "--batches=8"]
    figures = ["--json", str(folder / "training.json")]
    alone = [] if PEER.exists() else ["--no-peers", "--no-bleu"]
    training.main([*options, *SMALL, *less, *figures, *alone])
    return folder


def test_all_translate_the_same_sentences_the_longest_first(work: Path) -> None:
    test = decoding.read_test(str(work / "segmented-dev"), work / "pieces", None)
    assert sorted(test.references) == sorted(DEV)  # the tokeniser leaves these as they are
    assert [vocabularies.joined(line.split(" ")) for line in test.lines] == test.references
    vocabulary = vocabularies.read_both(str(work / "segmented")).source
    assert list(map(vocabulary.words, test.sources)) == test.references
    lengths = list(map(len, test.sources))
    assert lengths == sorted(lengths, reverse=True)
    assert [line.count(" ") + 1 for line in test.lines] == lengths
    first = decoding.read_test(str(work / "segmented-dev"), work / "pieces", 3)
    assert sorted(first.references) == sorted(DEV[:3])


def test_a_row_is_the_search_with_the_folders_model(tmp_path: Path, work: Path) -> None:
    figures = tmp_path / "figures.json"
    command = ["--work", str(work), "--no-peers", "--threads=1", "--json", str(figures)]
    less = ["--precisions=float32", "--batch-tokens=9,4000", "--joeynmt-batches=4", "--repeats=2"]
    decoding.main([*command, *less, "--beams=3"])
    (table,) = json.loads(figures.read_text("utf-8"))["tables"].values()
    skipped = "left out by --no-peers"
    name, small, large = "JoeyNMT, 4 sentences", "float32, 9 pieces", "float32, 4,000 pieces"
    assert [(row["name"], row["beam"], row.get("error")) for row in table["rows"]] == [
        (name, 3, skipped), (f"rareword, {small}", 3, None), (f"rareword, {large}", 3, None),
    ]  # fmt: skip
    network = checkpoints.load_model(str(work / "model-float32"), "latest").model.network()
    vocabulary = vocabularies.read_both(str(work / "segmented")).target
    pairs = list(training.read_ids(str(work / "segmented-dev")))
    sources = [np.asarray(source) for source, _ in pairs]
    for row in (row for row in table["rows"] if "error" not in row):
        options = SearchOptions(
            beam=row["beam"], length_form="gnmt", max_length_ratio=1.5, min_length=1
        )
        found = [best.ids for best, *_ in search(network, sources, options, "cpu")]
        texts = [vocabulary.words(ids) for ids in found]
        bleu = sacrebleu.corpus_bleu(texts, [DEV], tokenize="none", force=True).score
        assert bleu > 10  # so that a wrong order would be seen
        assert row["bleu"] == pytest.approx(bleu)
        assert row["pieces"] == pytest.approx(sum(map(len, found)) / len(found))
        assert len(row["repeats"]["wall"]) == len(row["repeats"]["cpu"]) == 2
        assert row["peak"] > 1e8
    assert table["run"]["sentences"] == len(DEV)
    assert table["run"]["updates"] == 150
    shown = decoding_report.show({"tables": {"decoding": table}})
    assert shown.count(f"skipped: {skipped}") == 1
    assert "beam 3, float32, batches of 4,000 pieces / 9" in shown


def test_other_text_is_prepared_as_the_training_data(tmp_path: Path, work: Path) -> None:
    figures, lines = tmp_path / "figures.json", ["The cat, it runs.", "newer cat runs 5 ."]
    for side in ("source", "target"):
        (tmp_path / side).write_text("\n".join(lines) + "\n", "utf-8")
    files = [f"--{side}={tmp_path / side}" for side in ("source", "target")]
    command = ["--work", str(work), "--no-peers", "--threads=1", "--json", str(figures), *files]
    less = ["--precisions=float32", "--batch-tokens=64", "--beams=1", "--repeats=1"]
    decoding.main([*command, *less])
    run = json.loads(figures.read_text("utf-8"))["tables"]["decoding"]["run"]
    assert (run["text"], run["sentences"]) == ("source", 2)
    before = {path.name for path in work.iterdir()}
    assert not {"corpus-test", "segmented-test"} & before  # the folder stays as it is
    (tmp_path / "pieces").mkdir()
    (tmp_path / "pieces" / "vocabulary.txt").write_text("other\n", "utf-8")
    with pytest.raises(SystemExit, match="has another vocabulary than JoeyNMT"):
        decoding.read_test(str(work / "segmented-dev"), tmp_path / "pieces", None)


@pytest.mark.skipif(not PEER.exists(), reason="benchmarks/training.py installs JoeyNMT")
def test_joeynmt_translates_the_same(tmp_path: Path, work: Path) -> None:
    figures = tmp_path / "figures.json"
    command = ["--work", str(work), "--threads=1", "--json", str(figures), "--repeats=1"]
    less = ["--precisions=float32", "--batch-tokens=64", "--joeynmt-batches=9", "--beams=1,5"]
    decoding.main([*command, *less])
    rows = json.loads(figures.read_text("utf-8"))["tables"]["decoding"]["rows"]
    assert [row.get("error") for row in rows] == [None] * 4
    trained = json.loads((work / "training.json").read_text("utf-8"))["tables"]["translation"]
    (wanted,) = (row["bleu"] for row in trained["rows"] if row["name"] == "JoeyNMT")
    found = {str(row["beam"]): row["bleu"] for row in rows if row["name"].startswith("JoeyNMT")}
    assert found == pytest.approx(wanted)  # by its own `predict`
    assert all(bleu > 1 for bleu in wanted.values())


def test_other_data_ends_the_benchmark() -> None:
    test = decoding.Test([[5, 6], [5]], ["lower", "lo"], ["lo@@ wer", "lo"], 0)
    digest = {"source_pieces": 3, "source_unknown": 1, "hypotheses": [["lo@@", "wer"], ["lo"]]}
    with pytest.raises(SystemExit, match=r"JoeyNMT translated other data: \(3, 1, 2\)"):
        decoding.finish_row({"name": "JoeyNMT", "digest": digest}, test)


def test_bleu_is_of_words_and_not_of_pieces() -> None:
    words = ["the lower cat runs newer", "it is the lowest cat"]
    test = decoding.Test([[5, 6], [5]], words, ["", ""], 0)
    pieces = [["the", "lo@@", "wer", "cat", "runs", "newer"], ["it", "is", "the", "lowest", "c@@"]]
    digest = {"source_pieces": 3, "source_unknown": 0, "hypotheses": pieces, "gpu_peak": 0}
    row = decoding.finish_row({"name": "JoeyNMT", "digest": digest}, test)
    texts = ["the lower cat runs newer", "it is the lowest c"]
    bleu = sacrebleu.corpus_bleu(texts, [words], tokenize="none", force=True).score
    assert row == {"name": "JoeyNMT", "gpu_peak": 0, "pieces": 5.5, "bleu": pytest.approx(bleu)}


def test_ratios_are_of_the_best_batches_of_each() -> None:
    def row(name: str, cpu: float, wall: float, bleu: float) -> dict[str, Any]:
        repeats = {"cpu": [cpu, 2 * cpu], "wall": [wall, wall]}
        return {
            "name": name, "beam": 5, "cpu": cpu, "wall": wall, "bleu": bleu, "repeats": repeats,
            "peak": 5e8, "gpu_peak": 0, "pieces": 12.0,
        }  # fmt: skip

    rows = [
        row("JoeyNMT, 64 sentences", 40.0, 30.0, 20.0),
        row("JoeyNMT, 100 sentences", 36.0, 32.0, 20.5),
        {"name": "JoeyNMT, 200 sentences", "beam": 5, "error": "no memory"},
        row("rareword, float32, 512 pieces", 10.0, 12.0, 20.6),
        row("rareword, float32, 2,048 pieces", 9.0, 11.0, 20.4),
        row("rareword, float32, 8,192 pieces", 10.0, 10.0, 20.6),
        row("rareword, bf16, 512 pieces", 5.0, 5.0, 19.0),
    ]
    run = {"device": "cpu", "sentences": 120, "repeats": 2}
    found = decoding_report.claims({"decoding": {"run": run, "rows": rows}})
    assert [(claim.measured, claim.kept) for claim in found] == [
        (pytest.approx(36 / 9), True), (pytest.approx(30 / 10), True),
        (pytest.approx(20.4 - 20.5), False), (pytest.approx(10 / 9), True),
        (pytest.approx(9 / 10), False),
    ]  # fmt: skip
    run_gpu = {"decoding, GPU": {"run": {**run, "device": "cuda"}, "rows": rows}}
    assert [claim.measured for claim in decoding_report.claims(run_gpu)] == pytest.approx(
        [30 / 10, 20.4 - 20.5, 12 / 11, 11 / 10]  # by the clock alone
    )
    lines = decoding_report.show_decoding(run, rows).splitlines()[2:]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert {len(line) for line in cells} == {12}
    assert cells[0][2:8] == ["3.0", "1.5-3.0", "0.90", "4.0", "4.0-4.0", "1.00"]
    assert cells[4][2:8] == ["13.3", "6.7-13.3", "4.00", "10.9", "10.9-10.9", "2.73"]
    assert cells[2][-1] == "skipped: no memory"
