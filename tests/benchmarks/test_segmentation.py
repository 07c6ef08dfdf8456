"""The benchmark's parts: contestants agree where they must, and what fails is told."""

import json
import subprocess
import sys
from pathlib import Path

import oracles
import pyphen
import pytest

from rareword.pipelines import learn_segmenter
from rareword.schemas import manifest
from rareword.schemas.tables import CORPUS, read_table

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))  # its modules import each other as scripts do

import contestants  # noqa: E402
import report  # noqa: E402
import segmentation  # noqa: E402
import texts  # noqa: E402
from contestants import Contestant  # noqa: E402

LINES = [
    "tall taller tallest",
    "  die  kleine\u00a0Katze\t läuft ",
    "",
    "tall taller",
    "кошка 猫 \U0001f600 tall",
    "lowest lower newest",
]
CLEAN = [" ".join(line.split()) for line in LINES if line]


@pytest.fixture
def text(tmp_path: Path) -> texts.Text:
    (tmp_path / "given.txt").write_text("\n".join(LINES * 30) + "\n", "utf-8")
    return texts.cut_text(str(tmp_path / "given.txt"), 1, tmp_path / "clean.txt")


def test_the_text_is_cut_at_lines_and_repeated_if_asked(tmp_path: Path, text: texts.Text) -> None:
    assert Path(text.path).read_text("utf-8") == "\n".join(CLEAN * 30) + "\n"
    assert (text.lines, text.passes) == (len(CLEAN) * 30, 1)
    assert text.megabytes == Path(text.path).stat().st_size / 1e6
    short = texts.cut_text(text.path, 1e-4, tmp_path / "short.txt")
    size = (tmp_path / "short.txt").stat().st_size
    assert 100 <= size < 100 + max(len(line.encode()) + 1 for line in CLEAN)
    long = texts.cut_text(short.path, 0.002, tmp_path / "long.txt", repeat=True)
    assert long.passes == -(-2000 // size)


def test_the_corpus_holds_the_lines_and_their_words(tmp_path: Path, text: texts.Text) -> None:
    for cut in (text, texts.cut_text(text.path, 0, tmp_path / "line.txt")):
        corpus = manifest.read(texts.write_corpus(cut, tmp_path / f"{cut.lines}"), "prepare", "")
        lines = Path(cut.path).read_text("utf-8").splitlines()
        for side, expected in (("source", lines[::2]), ("target", lines[1::2])):
            found = [
                line for url in corpus.urls for line in read_table(url, CORPUS)[side].to_pylist()
            ]
            assert found[: len(expected)] == expected
            assert not any(found[len(expected) :])
            assert corpus.counter(f"{side}_tokens") == oracles.count_words(expected).total()


def test_counters_agree(text: texts.Text) -> None:
    given = {"text": text.path}
    split = {**given, "split": "split_pattern"}
    rows = contestants.compete(
        [
            Contestant("ours", "count_words", given, text.megabytes, same="sha256"),
            Contestant("Counter", "counter_words", given, 1.0, same="sha256", peer=True),
            Contestant("pyarrow", "pyarrow_words", split, 1.0, same="sha256", peer=True),
        ],
        Path(sys.executable),
        repeats=2,
    )
    counts = oracles.count_words(CLEAN)
    assert [row["digest"]["types"] for row in rows] == [len(counts)] * 3
    assert not report.differing(rows)
    rows[1]["digest"]["sha256"] = "another"
    assert report.differing(rows) == ["Counter"]
    assert all(len(row["repeats"]["cpu"]) == 2 for row in rows)


def test_a_peer_that_fails_is_skipped_and_ours_is_not(text: texts.Text) -> None:
    wrong = {"text": f"{text.path}.not-there"}
    (row,) = contestants.compete(
        [Contestant("peer", "counter_words", wrong, 1.0, peer=True)], Path(sys.executable), 1
    )
    assert "not-there" in row["error"]
    assert "skipped: " in report.show_speeds("count", [row])
    with pytest.raises(SystemExit, match="not-there"):
        contestants.compete([Contestant("ours", "count_words", wrong, 1.0)], None, 1)


def test_the_series_of_sizes_says_what_the_rounds_gathered(
    tmp_path: Path, text: texts.Text
) -> None:
    figures = tmp_path / "figures.json"
    command = [sys.executable, str(BENCHMARKS / "segmentation.py"), "scale", "--text", text.path]
    options = ["--sizes", "0.02", "--scale-merges", "20", "--json", str(figures)]
    done = subprocess.run([*command, *options], check=True, capture_output=True, text=True)
    (row,) = json.loads(figures.read_text("utf-8"))["tables"]["scale"]["rows"]
    counts = oracles.count_words(CLEAN)
    assert (row["types"], row["merges"]) == (len(counts), 20)
    assert row["count-words"]["digest"]["symbols"] == sum(map(len, counts))
    assert row["rounds"] == len(row["learn-merges"]["digest"]["rounds"])
    assert 0 < row["chunk_share"] <= 1
    assert row["learn-merges"]["peak"] > 50e6
    passes = -(-int(row["megabytes"] * 1e6) // int(text.megabytes * 1e6))
    assert f", the text {passes} times | {len(counts)} |" in done.stdout


def test_a_peer_that_cannot_be_installed_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uv = tmp_path / "uv"
    uv.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n'
        'case "$*" in\n  venv*) for last; do :; done; mkdir -p "$last" ;;\n'
        '  *youtokentome*) echo "error: no compiler" >&2; exit 1 ;;\nesac\n',
        "utf-8",
    )
    uv.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda *_, **__: str(uv))
    for _ in range(2):  # the second time they are there already
        python, missing = contestants.prepare_peers(tmp_path / "peers")
        assert python == tmp_path / "peers" / "bin" / "python"
        ((pin, reason),) = missing.items()
        assert pin.startswith("youtokentome==")
        assert reason == "error: no compiler"
    calls = (tmp_path / "calls").read_text("utf-8").splitlines()
    assert sum(call.startswith("venv") for call in calls) == 1


def test_kinds_stand_beside_the_library_that_does_their_cutting(
    tmp_path: Path, text: texts.Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = segmentation._kinds(100, ["de", "ru"])
    assert {one.kind for one in every} == set(learn_segmenter.KINDS)
    some = [one for one in every if one.name in ("bpe, joint", "hyphenation")]
    monkeypatch.setattr(segmentation, "_kinds", lambda *_: some)
    command = ["kinds", "--text", text.path, "--merges", "9", "--repeats", "1"]
    rows = segmentation.kinds_table(
        segmentation.Bench(segmentation.parse([*command, "--languages", "de,ru"]), tmp_path, None)
    )
    assert [row["name"] for row in rows] == ["bpe, joint", "hyphenation", "pyphen, different words"]
    assert [len(row.get("learning", ())) for row in rows] == [2, 1, 0]
    lines, most = CLEAN * 30, Path(tmp_path / "most.txt").read_text("utf-8").splitlines()
    assert most == lines[: len(most)]
    assert (
        Path(tmp_path / "rest.txt").read_text("utf-8").splitlines()
        == (lines[len(most) + len(most) % 2 :])
    )
    words = [oracles.count_words(most[side::2]) for side in (0, 1)]
    patterns = [pyphen.Pyphen(lang=code) for code in ("de", "ru")]
    cut = sum(
        (1 + len(one.positions(word))) * count
        for one, counter in zip(patterns, words, strict=True)
        for word, count in counter.items()
    )
    assert [row["digest"]["pieces"] for row in rows[1:]] == [cut] * 2
    assert not report.differing(rows)
    tokens = sum(counter.total() for counter in words)
    shown = f"| {cut / tokens:.2f} | 0.00% | pyphen, different words |"
    assert shown in report.show_kinds("kinds", rows)
    rows[1]["held_out"]["source_unknown"] += 1
    assert shown not in report.show_kinds("kinds", rows)
    rows[2]["digest"]["pieces"] += 1
    assert "pyphen, different words (**not equal**)" in report.show_kinds("kinds", rows)
