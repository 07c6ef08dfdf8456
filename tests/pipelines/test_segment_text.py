"""segment-text as a command: pieces of standard input, and text again."""

import io
import itertools
import math
import subprocess
import sys
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import oracles
import pyarrow as pa
import pytest
from babel import Locale
from subword_nmt.apply_bpe import BPE

from rareword.pipelines import cli
from rareword.schemas import manifest as manifests
from rareword.schemas import vocabulary as vocabularies
from rareword.schemas.merges import Symbol
from rareword.schemas.vocabulary import UNK
from rareword.transforms import plain_text, segmenters
from rareword.transforms.segment_text import list_segmentations, restore_pieces
from rareword.transforms.unigram import UnigramSegmenter

ENGLISH, RUSSIAN = (
    [" ".join(name.split()) for name in Locale(code).territories.values()] for code in ("en", "ru")
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Segmenters of words, separate BPE, bytes and unigram LM, learnt from names of places."""
    path = tmp_path_factory.mktemp("run")
    rows = min(len(ENGLISH), len(RUSSIAN))
    oracles.write_corpus(f"{path}/corpus", ENGLISH[:rows], RUSSIAN[:rows])

    def job(*arguments: str) -> None:
        assert cli.main([*arguments, "--quiet"]) == 0

    words = ["--words", f"{path}/words"]
    job("count-words", "--corpus", f"{path}/corpus", "--output", f"{path}/words")
    for side in ("source", "target"):
        job("learn-merges", *words, "--merges", "60", "--side", side, "--output", f"{path}/{side}")
    job("learn-merges", *words, "--merges", "60", "--units", "bytes", "--output", f"{path}/joint")
    learn = ("learn-segmenter", *words, "--segmenter")
    job(*learn, "words", "--output", f"{path}/by-words")
    job(*learn, "unigram", "--pieces", "150", "--output", f"{path}/by-unigram")
    job(*learn, "bytes", "--merges", f"{path}/joint", "--output", f"{path}/by-bytes")
    job(*learn, "bpe", "--source-merges", f"{path}/source", "--target-merges", f"{path}/target",
        "--output", f"{path}/by-bpe")  # fmt: skip
    job("segment", "--corpus", f"{path}/corpus", "--segmenter", f"{path}/by-bpe",
        "--output", f"{path}/segmented")  # fmt: skip
    return path


Command = Callable[..., tuple[int, bytes, str]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command in this process: (exit code, output, messages)."""

    def call(data: bytes, segmenter: Path, *arguments: str) -> tuple[int, bytes, str]:
        with monkeypatch.context() as context:
            out = io.TextIOWrapper(io.BytesIO(), "utf-8")
            context.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), "utf-8"))
            context.setattr(sys, "stdout", out)
            code = cli.main(["segment-text", "--segmenter", str(segmenter), *arguments])
            out.flush()
            return code, out.buffer.getvalue(), capsys.readouterr().err

    return call


@pytest.mark.parametrize(("side", "text"), [("source", ENGLISH), ("target", RUSSIAN)])
@pytest.mark.parametrize("directory", ["by-bpe", "segmented"])
@pytest.mark.parametrize("threads", ["1", "3"])
def test_pieces_are_those_of_subword_nmt_on_the_side(
    run: Path, command: Command, side: str, text: list[str], directory: str, threads: str
) -> None:
    data = "".join(f"{line}\n" for line in text).encode()
    peer = BPE(io.StringIO((run / side / "codes.txt").read_text("utf-8")))
    options = ("--side", side, "--kernel-threads", threads)
    code, found, said = command(data, run / directory, *options)
    assert (code, said) == (0, "")
    assert found.decode().split("\n")[:-1] == [peer.process_line(line) for line in text]


@pytest.mark.parametrize("directory", ["by-words", "by-bpe", "by-bytes"])
@pytest.mark.parametrize("ids", [(), ("--ids",)])
@pytest.mark.parametrize("block", [7, 1 << 20])
def test_text_comes_back_for_every_kind_and_size_of_blocks(
    run: Path, command: Command, monkeypatch: pytest.MonkeyPatch, directory: str,
    ids: tuple[str, ...], block: int,
) -> None:  # fmt: skip
    monkeypatch.setattr(plain_text, "BLOCK_BYTES", block)
    lines = [*ENGLISH[:40], "", f"{ENGLISH[0]} {ENGLISH[1]}\r", "", ENGLISH[2]]
    data = "\n".join(lines).encode()
    code, cut, said = command(data, run / directory, "--side", "source", *ids)
    assert (code, said) == (0, "")
    assert cut.count(b"\n") == data.count(b"\n")
    assert cut != data or directory == "by-words"
    code, found, _ = command(cut, run / directory, "--side", "source", "--restore", *ids)
    assert (code, found) == (0, data)


@pytest.mark.parametrize("data", [b"", b"\n", b"\n\n\n", b" \n"])
def test_lines_without_words_stay_lines(run: Path, command: Command, data: bytes) -> None:
    code, found, _ = command(data, run / "by-bpe", "--side", "source")
    assert (code, found) == (0, data.replace(b" ", b""))


def test_unknown_pieces_are_told(run: Path, command: Command) -> None:
    code, found, said = command("☃ Qqqqqq\n".encode(), run / "by-words", "--side", "source")
    assert (code, found) == (0, b"<unk> <unk>\n")
    assert said.startswith("segment-text: 2 of 2 pieces are <unk>")
    _, found, said = command("☃\n".encode(), run / "by-bytes", "--side", "source")
    assert said == ""


@pytest.mark.parametrize(
    ("data", "arguments", "sentence"),
    [
        (b"one\n\xff\n", (), "standard input, line 2: byte 0 is not UTF-8"),
        (b"one\n\xff\n", ("--restore",), "standard input, line 2: byte 0 is not UTF-8"),
        (b"3\nx\n", ("--restore", "--ids"), "standard input, line 2: 'x' is not of ids"),
        (b"3 9999999\n", ("--restore", "--ids"), "standard input, line 1: the vocabulary has no "),
        (b"", ("--sample", "1.5"), "--sample: 1.5 is no probability of BPE-dropout"),
        (b"", ("--sample", "-0.1"), "--sample: -0.1 is no probability of BPE-dropout"),
        (b"", ("--sample", "nan"), "--sample: nan is not a number"),
        (b"", ("--sample", "0", "--restore"), "--sample and --restore do not go together"),
        (b"", ("--seed", "0"), "--seed is of --sample; give both"),
        (b"", ("--sample", "0.1", "--seed", "-1"), "--seed: -1 is below 0"),
        (b"", ("--sample", "0.1", "--seed", str(2**64)), f"--seed: {2**64} is above {2**64 - 1}"),
        (b"", ("--n-best", "0"), "--n-best: 0 is below 1"),
        (b"", ("--n-best", "513"), "--n-best: 513 is above 512"),
        (b"", ("--n-best", "2", "--ids"), "--n-best and --ids do not go together"),
        (b"", ("--n-best", "2", "--restore"), "--n-best and --restore do not go together"),
        (b"", ("--n-best", "2", "--sample", "0"), "--n-best and --sample do not go together"),
        (b"", ("--n-best", "2"), "--n-best: a segmenter of kind 'bpe' gives one segmentation"),
        (
            b"",
            ("--segmenter", "{run}/by-words", "--sample", "0"),
            "--sample: a segmenter of kind",
        ),
        (b"", ("--segmenter", "{run}/by-unigram", "--sample", "0"), "--sample: 0.0 is no alpha"),
        (b"", ("--segmenter", "{run}/by-unigram", "--sample", "inf"), "--sample: inf is no alpha"),
        (
            b"one\none two\n",
            ("--segmenter", "{run}/by-unigram", "--n-best", "2"),
            "standard input, line 2: 'one two' is not one word",
        ),
        (
            b"one\n\n",
            ("--segmenter", "{run}/by-unigram", "--n-best", "2"),
            "standard input, line 2: '' is not one word",
        ),
        (b"", ("--kernel-threads", "0"), "--kernel-threads: 0 is below 1"),
        (b"", ("--restroe",), "unknown argument --restroe; did you mean --restore?"),
        (b"", ("--segmenter", "{run}/words"), "--segmenter: {run}/words was written by `count-w"),
        (b"", ("--segmenter", "nowhere"), "--segmenter: nowhere does not exist"),
    ],
)
def test_what_is_wrong_is_a_sentence(
    run: Path, command: Command, data: bytes, arguments: tuple[str, ...], sentence: str
) -> None:
    given = [argument.format(run=run) for argument in arguments]
    code, _, said = command(data, run / "by-bpe", "--side", "source", *given)
    assert code == 1
    assert said.startswith(f"rareword segment-text: {sentence.format(run=run)}")
    assert len(said.splitlines()) == 1


# ---- sampled and n-best segmentations ----

KINDS = {"by-bpe": "bpe", "by-bytes": "bytes", "by-unigram": "unigram"}
TEXT = [*ENGLISH[:60], "", *ENGLISH[:60], " Chad  \u2603Peru "]


def loaded(run: Path, directory: str, side: Literal["source", "target"] = "source") -> Any:
    """A segmenter with its vocabulary."""
    rules = manifests.read(str(run / directory), "learn-segmenter", "here").rules["segmenter"]
    assert rules["kind"] == KINDS[directory]
    segmenter = segmenters.load(str(run / directory), rules["kind"], rules["settings"])[side]
    return segmenter, getattr(vocabularies.read_both(str(run / directory)), side)


@pytest.mark.parametrize("directory", ["by-bpe", "by-bytes"])
@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("seed", [None, 0, 2**64 - 1])
def test_bpe_is_drawn_by_dropout(
    run: Path, command: Command, directory: str, probability: float, seed: int | None
) -> None:
    segmenter, vocabulary = loaded(run, directory)
    best = segmenter.encoder(vocabulary).encode(pa.array(TEXT))
    ids, offsets = segmenter.dropout(vocabulary).draw(
        best.ids, best.offsets, np.arange(len(TEXT)), probability, 1 if seed is None else seed
    )
    rows = [ids[a:b].tolist() for a, b in itertools.pairwise(offsets)]
    data = "\n".join(TEXT).encode()
    options = ["--side", "source", "--sample", str(probability)]
    options += [] if seed is None else ["--seed", str(seed)]
    _, found, _ = command(data, run / directory, *options)
    assert found.decode().split("\n") == [" ".join(vocabulary.display(row)) for row in rows]
    _, found, _ = command(data, run / directory, *options, "--ids")
    assert [[int(i) for i in line.split()] for line in found.decode().split("\n")] == rows
    if probability == 0:
        assert command(data, run / directory, *options[:2], "--ids")[1] == found
    if probability == 1 and directory == "by-bytes":
        assert list(map(len, rows)) == [len(line.replace(" ", "").encode()) for line in TEXT]


@pytest.mark.parametrize("alpha", [0.01, 1.0])
def test_unigram_is_drawn_word_by_word(run: Path, command: Command, alpha: float) -> None:
    segmenter, vocabulary = loaded(run, "by-unigram")

    def ids(pieces: Sequence[str]) -> list[int]:
        found: list[int] = []
        for position, piece in enumerate(pieces, 1):
            final = position == len(pieces)
            one = vocabulary.id(Symbol(piece, final))
            spelled = [
                vocabulary.id(Symbol(character, final and place == len(piece)))
                for place, character in enumerate(piece, 1)
            ]
            found += spelled if one == UNK else [one]
        return found

    expected = [
        [
            i
            for place, word in enumerate(line.split())
            for i in ids(segmenter.sample([word], alpha, f"5 {row} {place}")[0])
        ]
        for row, line in enumerate(TEXT)
    ]
    data = "\n".join(TEXT).encode()
    options = ("--side", "source", "--sample", str(alpha), "--seed", "5")
    _, found, said = command(data, run / "by-unigram", *options)
    shown = [" ".join(vocabulary.display(row)) for row in expected]
    assert found.decode().split("\n") == shown
    assert shown[:60] != shown[61:121], "equal lines are drawn alike"
    assert said.startswith("segment-text: 1 of ")


def test_a_large_alpha_draws_the_best_segmentation(run: Path, command: Command) -> None:
    data = "\n".join(TEXT).encode()
    best = command(data, run / "by-unigram", "--side", "source")
    assert command(data, run / "by-unigram", "--side", "source", "--sample", "1e6") == best


@pytest.mark.parametrize("directory", KINDS)
def test_draws_depend_on_seed_and_line_and_give_the_text(
    run: Path, command: Command, monkeypatch: pytest.MonkeyPatch, directory: str
) -> None:
    data = "\n".join(ENGLISH[:80]).encode()

    def draw(seed: int, threads: int = 1) -> bytes:
        options = ("--sample", "0.4", "--seed", str(seed), "--kernel-threads", str(threads))
        code, found, said = command(data, run / directory, "--side", "source", *options)
        assert (code, said) == (0, "")
        return found

    first, other = draw(1), draw(2)
    assert first != other
    code, text, _ = command(first, run / directory, "--side", "source", "--restore")
    assert (code, text) == (0, data)
    assert draw(1, threads=3) == first
    for size in (7, 100):
        monkeypatch.setattr(plain_text, "BLOCK_BYTES", size)
        assert draw(1, threads=2) == first


def segmentations(word: str, known: Container[str]) -> Iterator[list[str]]:
    """All ways to cut a word into known pieces, or single characters."""
    if not word:
        yield []
    for end in range(1, len(word) + 1):
        if end == 1 or word[:end] in known:
            yield from ([word[:end], *rest] for rest in segmentations(word[end:], known))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("block", [7, 1 << 20])
def test_n_best_are_the_most_probable_of_all_segmentations(
    run: Path, command: Command, monkeypatch: pytest.MonkeyPatch, end: str, block: int
) -> None:
    monkeypatch.setattr(plain_text, "BLOCK_BYTES", block)
    scores = loaded(run, "by-unigram")[0].log_probabilities
    unknown = min(scores.values()) - 10
    words = [word for line in ENGLISH for word in line.split() if len(word) < 10][:50]
    words += ["C", "\u2603", "Chad\u2603", "a@"]
    data = end.join(words).encode()
    code, out, said = command(data, run / "by-unigram", "--side", "source", "--n-best", "6")
    assert (code, said) == (0, "")
    lines = iter(out.decode().split(end))
    for word in words:
        scored = {
            tuple(cut): math.fsum(scores.get(piece, unknown) for piece in cut)
            for cut in segmentations(word, scores)
        }
        best = sorted(scored.values(), reverse=True)[:6]
        found = []
        for expected in best:
            shown, score = next(lines).split("\t")
            pieces = tuple(shown.split("@@ "))
            found.append(pieces)
            assert math.isclose(scored[pieces], expected, abs_tol=1e-4)
            assert score == f"{float(score):.4f}"
            assert math.isclose(float(score), expected, abs_tol=1e-4)
        assert len(set(found)) == len(found)
    assert next(lines, None) is None


def test_listed_pieces_that_look_like_marks_are_read_back(run: Path) -> None:
    words = ["a@@", "b@@", "@@", "ab", "ba@@"]
    segmenter = UnigramSegmenter.learn(pa.array(words), np.array([5, 4, 9, 3, 2]), pieces=8)
    assert "@@" in segmenter.log_probabilities
    text = "".join(f"{word}\n" for word in words).encode()
    listed = list_segmentations(segmenter, 1, plain_text.Block(text, "text", 0))
    shown = b"".join(line.split(b"\t")[0] + b"\n" for line in listed.splitlines())
    assert b"@@ \n" in shown
    vocabulary = loaded(run, "by-unigram")[1]
    assert restore_pieces(vocabulary, plain_text.Block(shown, "shown", 0)) == text


def test_a_line_goes_on_before_the_next_one_comes(run: Path) -> None:
    arguments = ["--segmenter", str(run / "by-bpe"), "--side", "source"]
    with subprocess.Popen(
        [sys.executable, "-m", "rareword.pipelines.cli", "segment-text", *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        for line in (b"France\n", b"Chad\n"):
            process.stdin.write(line)
            process.stdin.flush()
            pieces = process.stdout.readline()
            assert pieces.replace(b"@@ ", b"") == line
        process.stdin.close()
        assert process.wait(60) == 0


def test_a_reader_that_has_seen_enough_is_no_error(run: Path) -> None:
    command = (
        f"yes 'France Chad' | head -n 2000000 | {sys.executable} -m rareword.pipelines.cli "
        f"segment-text --segmenter {run}/by-bpe --side source | head -n 1"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=True, timeout=120)
    assert done.stdout.count(b"\n") == 1
    assert done.stderr == b""


def test_memory_does_not_grow_with_the_text(run: Path) -> None:
    code = (
        "import resource, sys\nfrom rareword.pipelines.cli import main\n"
        f"main(['segment-text', '--segmenter', '{run}/by-bpe', '--side', 'source'])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
    )

    def peak(lines: int) -> int:
        command = f"yes 'France Chad Peru' | head -n {lines} | {sys.executable} -c \"{code}\""
        done = subprocess.run(["bash", "-c", command], capture_output=True, check=True, timeout=300)
        assert done.stdout.count(b"\n") == lines
        return int(done.stderr.splitlines()[-1])  # KiB

    assert peak(8_000_000) < peak(1_000_000) + 150_000
