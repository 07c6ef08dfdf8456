"""segment-text as a command: pieces of standard input, and text again."""

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import oracles
import pytest
from babel import Locale
from subword_nmt.apply_bpe import BPE

from rareword.pipelines import cli
from rareword.transforms import plain_text

ENGLISH, RUSSIAN = (
    [" ".join(name.split()) for name in Locale(code).territories.values()] for code in ("en", "ru")
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Segmenters of words, of separate BPE and of bytes, learnt from names of places."""
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
