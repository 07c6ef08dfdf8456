"""The benchmark of training: everyone sees the same pieces, equations agree, tables are told."""

import json
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from rareword.schemas import vocabulary as vocabularies

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))  # its modules import each other as scripts do

import plain_loop  # noqa: E402
import training  # noqa: E402
import training_report  # noqa: E402
import training_tasks  # noqa: E402

TINY = ["--embedding=6", "--hidden=8", "--encoder-hidden=5", "--threads=1"]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def text(work: Path) -> list[str]:
    """The options that name a parallel corpus, and a folder where it is prepared once."""
    options = ["--merges=20", "--work", str(work)]
    for split, number in (("", 60), ("dev-", 7)):
        for side, words in (("source", "the lowest cat, it runs"), ("target", "die Katze läuft")):
            lines = [f"{words} {n} {'newer ' * (n % 5)}." for n in range(number)]
            path = work / f"{split}{side}.txt"
            path.write_text("\n".join(lines) + "\n", "utf-8")
            options += [f"--{split}{side}", str(path)]
    return options


def test_joeynmt_gets_the_pieces_and_the_vocabulary(text: list[str]) -> None:
    options = training.parse(text)
    data = training.prepare_data(options, options.work)
    folder = Path(data["pieces"])
    lines = (folder / "vocabulary.txt").read_text("utf-8").split("\n")[:-1]
    vocabulary = vocabularies.read_both(data["segmented"]).source
    assert len(lines) == len(vocabulary) - 3
    known, pieces = {*lines}, 0
    for split, where in (("train", data["segmented"]), ("dev", data["dev"])):
        pairs = list(training.read_ids(where))
        for side, ids in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
            written = (folder / f"{split}.{side}").read_text("utf-8").split("\n")[:-1]
            assert [vocabularies.joined(line.split(" ")) for line in written] == [
                vocabulary.words(row) for row in ids
            ]
            assert known.issuperset(" ".join(written).split(" "))
            pieces += sum(map(len, ids)) if split == "train" else 0
    assert data["expected"] == {"pairs": 60, "pieces": pieces, "unknown": 0}
    sources = Path(options.dev_target).read_text("utf-8").split("\n")[:-1]
    assert data["references"] == sources  # the tokeniser leaves these as they are


def test_real_text_gives_a_row_a_contestant(tmp_path: Path, text: list[str]) -> None:
    figures = tmp_path / "figures.json"
    command = [*text, *TINY, "--batches=8", "--updates=30", "--precisions=float32"]
    training.main([*command, "--no-peers", "--json", str(figures)])
    (table,) = json.loads(figures.read_text("utf-8"))["tables"].values()
    peer, ours = table["rows"]
    assert peer == {"name": "JoeyNMT", "error": "left out by --no-peers"}
    assert ours["name"] == "rareword, float32"
    assert ours["speed"] == ours["runs"][0] > 0
    assert ours["peak"] > 1e8
    assert {*ours["bleu"]} == {"1", "5"}
    assert all(0 <= bleu <= 100 for bleu in ours["bleu"].values())
    shown = training_report.show({"tables": {"translation": table}})
    assert "skipped: left out by --no-peers" in shown


def test_joeynmt_trains_on_the_same(tmp_path: Path, text: list[str]) -> None:
    python = BENCHMARKS / ".peers-training" / "bin" / "python"
    if not python.exists():
        pytest.skip("JoeyNMT is not installed; benchmarks/training.py does it")
    figures = tmp_path / "figures.json"
    command = [*text, *TINY, "--batches=8", "--updates=20", "--precisions=float32"]
    training.main([*command, "--no-bleu", "--repeats=1", "--json", str(figures)])
    (table,) = json.loads(figures.read_text("utf-8"))["tables"].values()
    assert [row["name"] for row in table["rows"]] == ["JoeyNMT", "rareword, float32"]
    assert all(row["speed"] > 0 for row in table["rows"])


def test_other_data_ends_the_benchmark() -> None:
    digest = {"windows": [1.0, 2.0, 3.0], "pieces": 9, "unknown": 1, "hypotheses": {}}
    found = {"name": "JoeyNMT", "digest": digest, "peak": 1}
    expected = {"pieces": 9, "unknown": 0}
    with pytest.raises(SystemExit, match="JoeyNMT trained on other data"):
        training.add_run(None, found, {"expected": expected, "references": []})


def test_the_speed_of_a_run_is_that_of_all_its_windows_but_the_first() -> None:
    kept = {"parameters": 1, "dev_loss": None, "gpu_peak": 0, "hypotheses": {}}
    row, data = None, {"expected": {"unknown": 0}, "references": []}
    for first, peak in ((1.0, 5), (7.0, 3), (9.0, 4)):
        digest = {"windows": [first, 100.0, 50.0, first * 100], **kept}
        row = training.add_run(row, {"name": "x", "digest": digest, "peak": peak}, data)
    assert row is not None
    assert row["runs"] == pytest.approx([3 / (1 / 100 + 1 / 50 + 0.01 / n) for n in (1, 7, 9)])
    assert (row["speed"], row["peak"]) == (sorted(row["runs"])[1], 5)


def test_the_speed_of_a_window_is_that_of_its_target_tokens(tmp_path: Path) -> None:
    line = {"kind": "train", "tokens_per_second": 300.0, "target_tokens": 4, "source_tokens": 8}
    lines = [line, {"kind": "validation"}, {"kind": "end"}]
    (tmp_path / "training.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    assert training_tasks.read_speeds(str(tmp_path)) == [100.0]


def test_the_plain_loop_is_the_papers_model() -> None:
    """Against the equations for one sentence, one step after the other."""
    torch.manual_seed(0)
    model = plain_loop.PlainLoop(11, 4, 6, 3).double()
    source, target = torch.randint(11, (5,)), torch.randint(11, (4,))

    def gru(cell: plain_loop.Gru, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        size = len(h)
        r, z = torch.sigmoid(x[: 2 * size] + cell.gates.weight @ h).chunk(2)
        return z * torch.tanh(x[2 * size :] + cell.candidate.weight @ (r * h)) + (1 - z) * h

    sides = []
    for cell, order in zip(model.reading, (range(5), range(4, -1, -1)), strict=True):
        assert isinstance(cell, plain_loop.Gru)
        h, states = torch.zeros(3).double(), {}
        for i in order:
            h = states[i] = gru(cell, cell.inputs(model.source.weight[source[i]]), h)
        sides.append(torch.stack([states[i] for i in range(5)]))
    annotations = torch.cat(sides, 1)
    h = torch.tanh(model.initial(sides[1][0]))
    previous, loss = torch.zeros(4).double(), torch.zeros(()).double()
    for piece in target:
        keys = annotations @ model.key.weight.t()
        energies = torch.tanh(keys + model.query.weight @ h) @ model.energy.weight[0]
        context = torch.softmax(energies, 0) @ annotations
        readout = model.readout(torch.cat([h, previous, context])).view(3, 2).amax(1)
        logits = model.output(model.low_rank(readout))
        loss = loss - functional.log_softmax(logits, 0)[piece] / 4
        previous = model.target.weight[piece]
        x = model.decoder.inputs(previous) + model.context(context)
        h = gru(model.decoder, x, h)
    found = model(source[None], target[None])
    assert found.item() == pytest.approx(loss.item(), rel=1e-6)  # its softmax is float32


def test_multiply_adds_are_those_that_torch_counts() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    sizes = ["--vocabulary=50", "--embedding=6", "--hidden=8", "--encoder-hidden=5"]
    options = training.parse(["--table", *sizes])
    model = plain_loop.PlainLoop(50, 6, 8, 5)
    source, target = torch.randint(50, (2, 7)), torch.randint(50, (2, 4))
    with FlopCounterMode(display=False) as counter:
        model(source, target)
    # torch counts the energies' product as it is made, and two flops a multiply-add.
    assert counter.get_total_flops() == 2 * 2 * training.multiply_adds(options, 7, 4)


def test_random_batches_and_memory_at_tiny_sizes(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    sizes = [*TINY, "--vocabulary=40", "--length=5", "--json", str(figures)]
    training.main(["--memory", *sizes])
    training.main(["--table", "--batches=2", "--updates=1", "--repeats=2", "--warm=1", *sizes])
    tables = json.loads(figures.read_text("utf-8"))["tables"]
    names = [row["name"] for row in tables["steps"]["rows"]]
    assert names == [
        "bf16 matrix product", "plain loop, bf16, batch 2", "rareword, bf16, batch 2"
    ]  # fmt: skip
    for row in tables["steps"]["rows"][1:]:
        assert row["speed"] == pytest.approx(row["batch"] * 5 / row["wall"])
        assert 0 < row["mfu"] < 1
    assert [row["name"] for row in tables["memory"]["rows"]] == ["paper, adadelta", "modern, adam"]
    assert all(row["peak"] > 1e8 for row in tables["memory"]["rows"])
    training.main(["--show", "--json", str(figures)])


def test_promises_are_checked_where_they_apply() -> None:
    run = {"device": "cpu", "bf16": True, "vocabulary": 90_000}
    rows = [
        {"name": "JoeyNMT", "speed": 100.0, "bleu": {"1": 20.0}},
        {"name": "rareword, float32", "speed": 230.0, "bleu": {"1": 21.0}},
        {"name": "rareword, bf16", "speed": 300.0, "bleu": {"1": 19.5}},
        {"name": "rareword, auto", "speed": 299.0, "bleu": {}},
    ]
    memory = [{"name": "paper, adadelta", "peak": 9e9}]
    found = training_report.claims(
        {"translation": {"run": run, "rows": rows}, "memory": {"run": run, "rows": memory}}
    )
    assert [(claim.measured, claim.kept) for claim in found] == [
        (2.3, True), (3.0, False), (pytest.approx(299 / 300), True), (1.0, True), (-0.5, False),
        (9000.0, False),
    ]  # fmt: skip
