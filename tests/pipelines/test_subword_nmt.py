"""`rareword subword-nmt` against the installed subword-nmt 0.3.8, command by command."""

import gzip
import io
import os
import re
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
from subword_nmt.apply_bpe import BPE, read_vocabulary
from subword_nmt.get_vocab import get_vocab
from subword_nmt.learn_bpe import learn_bpe
from subword_nmt.segment_char_ngrams import segment_char_ngrams

from rareword.pipelines import cli

TEXT = (
    "low low low lower newest newest widest aaaa aaa Öl жук жуки 北京 low\u00a0er\n"
    "  the   lower\ttab  \n\n   \nnewer widest \U0001f600\U0001f600 e\u0301te\u0301\n"
) * 3
CORPORA = [
    ("catalog", "ende.dev", "en"),
    ("catalog", "ende.dev", "de"),
    ("catalog", "enru.dev", "ru"),
    ("catalog-other", "entr.dev", "tr"),
    ("catalog-other", "enfi.dev", "fi"),
    ("catalog-other", "enja.dev", "ja"),
    ("catalog-other", "enzh.dev", "zh"),
]
LINE_BREAKS = re.compile("[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
"""What subword-nmt takes for the end of a line beside \\n."""

Run = Callable[..., bytes]


@pytest.fixture
def rareword(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Runs a command in an empty directory; returns what it wrote to standard output.

    `rareword("apply-bpe", "-c", "codes", text="low\\n", code=0)`; standard error is kept in
    `rareword.errors`.
    """
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, text: str | bytes = b"", code: int = 0) -> bytes:
        data = text.encode() if isinstance(text, str) else text
        out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), "utf-8"))
        monkeypatch.setattr(sys, "stdout", out)
        capsys.readouterr()  # progress bars of subword-nmt
        try:
            found = cli.main(["subword-nmt", *arguments])
        except SystemExit as stop:
            found = int(stop.code or 0)
        run.errors = capsys.readouterr().err  # type: ignore[attr-defined]
        assert found == code, run.errors  # type: ignore[attr-defined]
        return out.buffer.getvalue()  # type: ignore[attr-defined]

    return run


def lines(text: str) -> io.StringIO:
    """As a file whose lines end at \\n only."""
    return io.StringIO(text, newline="\n")


def peer_codes(text: str, number: int, **options: object) -> str:
    out = io.StringIO()
    learn_bpe(lines(text), out, number, **options)
    return out.getvalue()


def peer_vocabulary(text: str) -> str:
    out = io.StringIO()
    get_vocab(lines(text), out)
    return out.getvalue()


def peer_pieces(text: str, codes: str, dropout: float = 0, **options: object) -> str:
    bpe = BPE(io.StringIO(codes), **options)
    return "".join(bpe.process_line(line, dropout) for line in lines(text))


def subword_nmt(*arguments: str, text: bytes = b"") -> bytes:
    """The installed command itself."""
    command = Path(sys.executable).with_name("subword-nmt")
    done = subprocess.run([command, *arguments], input=text, capture_output=True, check=True)
    return done.stdout


# ---- learn-bpe ----


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"min_frequency": 4},
        {"min_frequency": 1},
        {"total_symbols": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("number", [0, 7, 45, 10_000])
def test_learn_bpe_writes_the_codes_of_subword_nmt(rareword, options, number) -> None:
    flags = [f"--min-frequency={options['min_frequency']}"] if "min_frequency" in options else []
    flags += ["-t"] if "total_symbols" in options else []
    found = rareword("learn-bpe", "-s", str(number), *flags, text=TEXT).decode()
    if options.get("min_frequency") == 1 and number == 10_000:
        assert found.startswith(peer_codes(TEXT, 100, **options))
    else:
        assert found == peer_codes(TEXT, number, **options)


def test_learn_bpe_reads_a_dictionary_and_files(rareword) -> None:
    words = "low 5\nlower 2\nlow 1\nnewest 6\r\nwidest 3\n"
    expected = peer_codes(words.replace("\r", ""), 10, is_dict=True)
    Path("words").write_text(words, "utf-8", newline="")
    rareword("learn-bpe", "--dict-input", "-i", "words", "-o", "codes", "-s", "10")
    assert Path("codes").read_text("utf-8") == expected
    with gzip.open("words.gz", "wb") as out:
        out.write(words.encode())
    assert rareword("learn-bpe", "--dict-input", "-i", "words.gz", "-s10").decode() == expected
    assert sorted(os.listdir()) == ["codes", "words", "words.gz"]


def test_learn_bpe_says_what_subword_nmt_says(rareword, capsys) -> None:
    capsys.readouterr()
    peer_codes(TEXT, 500, verbose=True, total_symbols=True)
    said = capsys.readouterr().err  # with a progress bar in between
    rareword("learn-bpe", "-s", "500", "-v", "-t", text=TEXT)
    ours = rareword.errors.splitlines()
    pairs = re.findall(r"pair \d+: .*", said)
    assert ours[:3] == re.findall(r"(?:Number of word|Reducing).*", said)
    assert ours[3:-1] == pairs
    assert ours[-1] == f"no pair has frequency >= 2. Stopping after {len(pairs)} merges"


@pytest.mark.parametrize("text", ["", "\n\n", "a b c\n", "a"])
def test_text_without_pairs_gives_codes_without_merges(rareword, text) -> None:
    """subword-nmt: max() arg is an empty sequence."""
    with pytest.raises(ValueError, match="empty"):
        peer_codes(text, 10)
    assert rareword("learn-bpe", text=text) == b"#version: 0.2\n"
    assert rareword.errors == "no pair has frequency >= 2. Stopping after 0 merges\n"
    Path("codes").write_bytes(b"#version: 0.2\n")
    assert rareword("apply-bpe", "-c", "codes", text="low\n") == b"l@@ o@@ w\n"


@pytest.mark.parametrize("least", ["0", "-3"])
def test_learning_ends_when_no_pair_is_left(rareword, least) -> None:
    """subword-nmt writes the last pair again and again."""
    text = "abc ab\n"
    assert peer_codes(text, 10, min_frequency=int(least)).count("\n") == 11
    found = rareword("learn-bpe", "-s10", f"--min-frequency={least}", text=text).decode()
    assert found == peer_codes(text, 3, min_frequency=1)


def test_counts_beyond_32_bits_and_words_that_are_cut_short(rareword) -> None:
    words = "the 3000000000\nhe 4000000000\nxy 1\n"
    found = rareword("learn-bpe", "--dict-input", "-s9", text=words).decode()
    assert found == peer_codes(words, 9, is_dict=True)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("low", "line 2: expected a word, one space and its count, found 'low'"),
        ("low x", "line 2: expected a word, one space and its count, found 'low x'"),
        ("low 1 2", "line 2: expected a word, one space and its count, found 'low 1 2'"),
        ("low -1", "the counts of 'low' add up to -1"),
        (f"low {2**64}", f"the counts of 'low' add up to {2**64}"),
        (f"low {2**61}", "too large"),
    ],
)
def test_a_bad_dictionary_is_a_sentence(rareword, line, message) -> None:
    Path("words").write_text(f"a 1\n{line}\n")
    rareword("learn-bpe", "--dict-input", "-i", "words", "-o", "codes", code=1)
    assert message in rareword.errors
    assert len(rareword.errors.splitlines()) == 1
    assert os.listdir() == ["words"]


# ---- apply-bpe ----


@pytest.fixture
def codes(rareword) -> str:
    text = peer_codes(TEXT, 40)
    Path("codes").write_text(text, "utf-8")
    return text


@pytest.mark.parametrize("number", [-1, 0, 1, 17, 40, 1000])
def test_merges_takes_the_first_lines_of_the_codes(rareword, codes, number) -> None:
    found = rareword("apply-bpe", "-c", "codes", "-m", str(number), text=TEXT).decode()
    assert found == peer_pieces(TEXT, codes, merges=number)


@pytest.mark.parametrize("separator", ["@@", "￭", "", "</w>"])
@pytest.mark.parametrize("threshold", [None, 1, 4, 6])
@pytest.mark.parametrize("glossaries", [[], ["low"], ["[ew]+", "жук", "北"]])
def test_apply_bpe_writes_the_pieces_of_subword_nmt(
    rareword, codes, separator, threshold, glossaries
) -> None:
    written = peer_vocabulary(peer_pieces(TEXT, codes, separator=separator))
    Path("vocabulary").write_text(written, "utf-8")
    options = ["-s", separator, "--vocabulary", "vocabulary"]
    options += [] if threshold is None else ["--vocabulary-threshold", str(threshold)]
    options += ["--glossaries", *glossaries] if glossaries else []
    found = rareword("apply-bpe", "-c", "codes", *options, "--num-workers", "3", text=TEXT)
    vocabulary = read_vocabulary(io.StringIO(written), threshold)
    assert vocabulary
    assert found.decode() == peer_pieces(
        TEXT, codes, separator=separator, vocab=vocabulary, glossaries=glossaries
    )


def test_the_installed_command_writes_the_same(rareword, codes) -> None:
    Path("text").write_text(TEXT, "utf-8")
    Path("vocabulary").write_bytes(rareword("get-vocab", "-i", "text"))
    options = ["-c", "codes", "--vocabulary", "vocabulary", "--glossaries", "low"]
    expected = subword_nmt("apply-bpe", *options, text=TEXT.encode())
    assert rareword("apply-bpe", *options, text=TEXT) == expected
    subword_nmt("learn-joint-bpe-and-vocab", "-i", "text", "vocabulary", "-s80", "-t", "-o", "c",
                "--write-vocabulary", "v1", "v2", "--separator=_")  # fmt: skip
    theirs = [Path(name).read_bytes() for name in ("c", "v1", "v2")]
    rareword("learn-joint-bpe-and-vocab", "-i", "text", "vocabulary", "-s80", "-t", "-o", "c",
             "--write-vocabulary", "v1", "v2", "--separator=_")  # fmt: skip
    assert [Path(name).read_bytes() for name in ("c", "v1", "v2")] == theirs
    assert theirs[0].count(b"\n") > 1


def test_files_compressed_input_and_any_number_of_workers(rareword, codes) -> None:
    expected = peer_pieces(TEXT, codes).encode()
    with gzip.open("text.gz", "wb") as out:
        out.write(TEXT.encode())
    for workers in ("1", "2", "7", "0", "-1"):
        rareword("apply-bpe", "-c", "codes", "-i", "text.gz", "-o", "out", "--num-workers", workers)
        assert Path("out").read_bytes() == expected
    assert rareword("apply-bpe", "-c", "codes", "-i", "-", "-o", "-", text=TEXT) == expected
    assert sorted(os.listdir()) == ["codes", "out", "text.gz"]


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_the_size_of_blocks_changes_nothing(rareword, codes, monkeypatch, size) -> None:
    from rareword.transforms import plain_text

    monkeypatch.setattr(plain_text, "BLOCK_BYTES", size)
    for text in (TEXT, TEXT + "low\r\n\r\nlast  line"):
        found = rareword("apply-bpe", "-c", "codes", "--num-workers", "2", text=text).decode()
        assert found == peer_pieces(text, codes)
        assert rareword("get-vocab", text=text).decode() == peer_vocabulary(text)
        random = ("apply-bpe", "-c", "codes", "--dropout", "0.3", "--seed", "1")
        monkeypatch.setattr(plain_text, "BLOCK_BYTES", 1 << 20)
        whole = rareword(*random, text=text)
        monkeypatch.setattr(plain_text, "BLOCK_BYTES", size)
        assert rareword(*random, text=text) == whole


@pytest.mark.parametrize(
    "text", ["and  x", "and x\n", "and x\n\n", " ", "\n", "", "a", "\r\n", "\r"]
)
def test_empty_words_and_lines_are_kept_as_they_are(rareword, codes, text) -> None:
    assert rareword("apply-bpe", "-c", "codes", text=text).decode() == peer_pieces(text, codes)


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r"])
def test_only_a_line_feed_ends_a_line(rareword, codes, mark) -> None:
    """subword-nmt takes these for line ends: it counts half words and marks no piece."""
    text = f"low{mark}er x\nlow\n"
    found = rareword("apply-bpe", "-c", "codes", text=text).decode()
    assert found.count("\n") == 2
    assert found.replace("@@ ", "") == text
    assert rareword("get-vocab", text=text).decode() == f"low{mark}er 1\nx 1\nlow 1\n"
    Path("text").write_text(text, "utf-8", newline="")
    assert rareword("get-vocab", "-i", "text").decode().startswith(f"low{mark}er 1\n")


def test_codes_are_read_as_people_have_them(rareword, codes) -> None:
    expected = rareword("apply-bpe", "-c", "codes", text=TEXT)
    for number, text in enumerate(
        [
            "\ufeff" + codes,
            codes.replace("\n", "\r\n"),
            codes + "\n\n",
            codes.replace("0.2", "0.2.0"),
            "".join(f"{line} 7\n" for line in codes.splitlines()[1:]),  # fastBPE
            codes + codes.split("\n", 1)[1],  # every pair twice
        ]
    ):
        Path(f"codes{number}").write_text(text, "utf-8", newline="")
        assert rareword("apply-bpe", "-c", f"codes{number}", text=TEXT) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "--codes: bad is empty"),
        ("#version: 0.3\na b\n", "bad: codes version '0.3' is not known"),
        ("#version: 0.2\na b\n/home/me/codes\n", "bad, line 3: expected two symbols, found"),
        ("#version: 0.2\na b\n\na c\n", "bad, line 3: expected two symbols, found ''"),
    ],
)
def test_bad_codes_are_a_sentence(rareword, text, message) -> None:
    Path("bad").write_text(text)
    rareword("apply-bpe", "-c", "bad", "-o", "out", text=TEXT, code=1)
    assert message in rareword.errors
    assert len(rareword.errors.splitlines()) == 1
    assert os.listdir() == ["bad"]


def test_a_vocabulary_may_hold_what_text_holds(rareword, codes) -> None:
    """subword-nmt: ValueError at U+2028, at a blank line; a tab is ordinary."""
    text = "lo\u2028w lo\u2028w\n\t\t x\ty q\r z\n"
    pieces = rareword("apply-bpe", "-c", "codes", text=text)
    Path("vocabulary").write_bytes(rareword("get-vocab", text=pieces) + b"\n\r\n")
    options = ("apply-bpe", "-c", "codes", "--vocabulary", "vocabulary")
    assert rareword(*options, text=text) == pieces


def test_a_line_of_a_vocabulary_without_a_count_is_named(rareword, codes) -> None:
    Path("vocabulary").write_text("low 4\nlow\t4\n")
    rareword("apply-bpe", "-c", "codes", "--vocabulary", "vocabulary", text=TEXT, code=1)
    assert "vocabulary, line 2: expected a word, one space and its count, found 'low\\t4'" in (
        rareword.errors
    )


def test_a_threshold_above_every_count_leaves_characters(rareword, codes) -> None:
    """subword-nmt takes an empty vocabulary for none."""
    Path("vocabulary").write_text("low 4\n")
    found = rareword("apply-bpe", "-c", "codes", "--vocabulary", "vocabulary",
                     "--vocabulary-threshold", "9", text="low жук\n").decode()  # fmt: skip
    assert found == "l@@ o@@ w ж@@ у@@ к\n"


def test_characters_that_the_vocabulary_lacks_stay(rareword, codes) -> None:
    Path("vocabulary").write_text("low 4\n")
    found = rareword("apply-bpe", "-c", "codes", "--vocabulary", "vocabulary", text="low 北京\n")
    assert found.decode() == "low 北@@ 京\n"


def test_glossaries_come_from_a_file_too(rareword, codes) -> None:
    Path("glossaries").write_text("low\n\n[ew]+\r\n", "utf-8", newline="")
    found = rareword("apply-bpe", "-c", "codes", "--glossaries-file", "glossaries", text=TEXT)
    assert found.decode() == peer_pieces(TEXT, codes, glossaries=["low", "[ew]+"])
    found = rareword("apply-bpe", "-c", "codes", "--glossaries-file", "glossaries",
                     "--glossaries", "жук", text=TEXT)  # fmt: skip
    assert found.decode() == peer_pieces(TEXT, codes, glossaries=["жук", "low", "[ew]+"])


def test_dropout_is_seeded_and_says_its_seed(rareword, codes) -> None:
    text = TEXT * 20
    options = ("apply-bpe", "-c", "codes", "--dropout", "0.3")
    first = rareword(*options, text=text)
    (seed,) = re.fullmatch(r"dropout: --seed (\d+)\n", rareword.errors).groups()
    assert rareword(*options, text=text) != first
    for workers in ("1", "2", "5", "-1"):
        again = rareword(*options, "--seed", seed, "--num-workers", workers, text=text)
        assert again == first
        assert rareword.errors == ""
    assert rareword(*options, "--seed", "-5", text=text) != first
    assert first.decode().replace("@@ ", "") == peer_pieces(text, codes).replace("@@ ", "")
    assert rareword(*options[:-1], "0", text=text).decode() == peer_pieces(text, codes)
    everything = rareword(*options[:-1], "1", text=text).decode()
    assert everything == peer_pieces(text, codes, merges=0)
    assert first.decode() not in (everything, peer_pieces(text, codes))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dropout", "1.5"], "--dropout is a probability, 0 to 1, not 1.5"),
        (["--dropout", "-1"], "--dropout is a probability"),
        (["--dropout", "nan"], "--dropout is a probability"),
        (["--merges", "-2"], "--merges is 0 or more, or -1 for all, not -2"),
        (["--vocabulary-threshold", "5"], "--vocabulary-threshold needs --vocabulary"),
        (["--separator", "a\nb"], "--separator must not hold a line break"),
        (["--separator", "\udcff"], "--separator is not UTF-8"),
        (["--glossaries", "\udcff"], "--glossaries is not UTF-8"),
        (["--threads", "5"], "unrecognized arguments: --threads 5"),
    ],
)
def test_a_wrong_call_is_a_sentence(rareword, codes, arguments, message) -> None:
    rareword("apply-bpe", "-c", "codes", *arguments, code=2)
    assert rareword.errors.splitlines()[-1].startswith("rareword subword-nmt")
    assert message in rareword.errors.splitlines()[-1]


@pytest.mark.parametrize("command", ["apply-bpe", "get-vocab", "learn-bpe", "segment-char-ngrams"])
def test_text_that_is_not_utf8_is_named_and_leaves_no_file(rareword, codes, command) -> None:
    options = {"apply-bpe": ["-c", "codes"], "segment-char-ngrams": ["--vocab", "codes"]}
    Path("text").write_bytes(b"good\n" * 5 + b"ab \xff\n")
    rareword(command, *options.get(command, []), "-i", "text", "-o", "out", code=1)
    assert rareword.errors.endswith("text, line 6: byte 3 is not UTF-8\n")
    assert sorted(os.listdir()) == ["codes", "text"]


def test_a_reader_that_has_seen_enough_ends_it_quietly(rareword, codes) -> None:
    Path("text").write_text("low lower\n" * 500_000)
    command = f"{sys.executable} -m rareword.pipelines.cli subword-nmt apply-bpe -c codes -i text"
    done = subprocess.run(f"{command} | head -1", shell=True, capture_output=True, check=True)
    assert done.stdout.decode() == peer_pieces("low lower\n", Path("codes").read_text("utf-8"))
    assert done.stderr == b""


def test_devices_and_links_are_written_through(rareword, codes) -> None:
    expected = peer_pieces(TEXT, codes).encode()
    Path("there").write_bytes(b"old")
    Path("link").symlink_to("there")
    rareword("apply-bpe", "-c", "codes", "-o", "link", text=TEXT)
    assert Path("link").is_symlink()
    assert Path("there").read_bytes() == expected
    rareword("apply-bpe", "-c", "codes", "-o", "/dev/null", text=TEXT)
    assert Path("/dev/null").is_char_device()
    os.mkfifo("pipe")
    writer = subprocess.Popen(["sh", "-c", "cat > pipe"], stdin=subprocess.PIPE)
    assert writer.stdin is not None
    writer.stdin.write(TEXT.encode())
    writer.stdin.close()
    assert rareword("apply-bpe", "-c", "codes", "-i", "pipe") == expected
    writer.wait()


def test_the_locale_does_not_matter(rareword, codes) -> None:
    """Files and arguments are UTF-8 always."""
    Path("text").write_text(TEXT, "utf-8")
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "rareword.pipelines.cli", "subword-nmt", "apply-bpe"]
    options = ["-c", "codes", "-i", "text", "-s", "￭", "--glossaries", "жу"]
    done = subprocess.run([*command, *options], env=environment, capture_output=True, check=True)
    expected = peer_pieces(TEXT, codes, separator="￭", glossaries=["жу"])
    assert done.stdout.decode() == expected


# ---- get-vocab and learn-joint-bpe-and-vocab ----


@pytest.mark.parametrize("separator", ["@@", "￭"])
@pytest.mark.parametrize("total", [[], ["-t"]])
def test_joint_learning_writes_the_codes_and_vocabularies_of_its_parts(
    rareword, separator, total
) -> None:
    texts = {"one": TEXT, "two": "lowest жуки жуками low\n" * 7, "none": ""}
    for name, text in texts.items():
        Path(name).write_text(text, "utf-8")
    rareword("learn-joint-bpe-and-vocab", "-i", *texts, "-o", "codes", "-s60", *total,
             "--separator", separator, "--write-vocabulary", "v1", "v2", "v3",
             "--num-workers", "2")  # fmt: skip
    codes = peer_codes("".join(texts.values()), 60, total_symbols=bool(total))
    assert Path("codes").read_text("utf-8") == codes
    for name, text in zip(("v1", "v2", "v3"), texts.values(), strict=True):
        expected = peer_vocabulary(peer_pieces(text, codes, separator=separator))
        assert Path(name).read_text("utf-8") == expected


def test_every_input_has_its_vocabulary(rareword) -> None:
    rareword(
        "learn-joint-bpe-and-vocab", "-i", "a", "b", "-o", "c", "--write-vocabulary", "v", code=2
    )
    assert "--write-vocabulary names 1 files and --input 2" in rareword.errors


# ---- segment-char-ngrams ----

NGRAM_TEXT = "the lower the low  é\n\nwidest the\u00a0low lower\tlow\nthe last"
NGRAM_VOCABULARY = "the 5\nlow 4\nlower 3\nwidest 1\n"


@pytest.mark.parametrize("n", [1, 2, 3, 100])
@pytest.mark.parametrize("shortlist", [0, 1, 3, 9])
@pytest.mark.parametrize("separator", ["@@", "￭"])
def test_ngrams_are_those_of_subword_nmt_with_the_shortlist_one_shorter(
    rareword, n, shortlist, separator
) -> None:
    out = io.StringIO()
    segment_char_ngrams(
        types.SimpleNamespace(
            vocab=io.StringIO(NGRAM_VOCABULARY), input=io.StringIO(NGRAM_TEXT), output=out,
            shortlist=shortlist - 1, n=n, separator=separator,
        )
    )  # fmt: skip
    Path("vocabulary").write_text(NGRAM_VOCABULARY)
    found = rareword("segment-char-ngrams", "--vocab", "vocabulary", "--shortlist", str(shortlist),
                     "-n", str(n), "-s", separator, text=NGRAM_TEXT)  # fmt: skip
    assert found.decode() == out.getvalue()


def test_ngrams_keep_the_lines_and_know_what_a_vocabulary_line_is(rareword) -> None:
    Path("vocabulary").write_text("the 9\nthe\u00a0low 7\n\nx\nlow 3\nlow 2\nlower 1\n", "utf-8")
    text = "the\u2028lower\rlow\nthe\n"
    found = rareword("segment-char-ngrams", "--vocab", "vocabulary", "--shortlist", "2", text=text)
    assert found.decode() == "the lo@@ we@@ r low \nthe \n"
    assert rareword.errors == (
        "vocabulary: 2 lines that are not a word and its count were skipped\n"
    )


def test_ngrams_have_a_length(rareword) -> None:
    rareword("segment-char-ngrams", "--vocab", "v", "-n", "0", code=2)
    assert "-n is 1 or more, not 0" in rareword.errors


# ---- real text ----


def test_the_golden_corpus(rareword, shared_data: Path) -> None:
    golden = shared_data / "subword-nmt-tests"
    corpus = str(golden / "corpus.en")
    rareword("learn-bpe", "-i", corpus, "-o", "codes", "-s", "1000")
    assert Path("codes").read_bytes() == (golden / "bpe.ref").read_bytes()
    rareword("apply-bpe", "-c", "codes", "-i", corpus, "-o", "out", "--num-workers", "2")
    assert Path("out").read_bytes() == (golden / "corpus.bpe.ref.en").read_bytes()


@pytest.mark.parametrize(("folder", "name", "language"), CORPORA)
def test_real_text(rareword, shared_data: Path, folder: str, name: str, language: str) -> None:
    """Lines that hold what subword-nmt takes for a line end are left out."""
    text = (shared_data / folder / f"{name}.{language}").read_text("utf-8")
    text = "".join(line for line in lines(text) if not LINE_BREAKS.search(line[:-1]))
    Path("text").write_text(text, "utf-8")
    rareword("learn-joint-bpe-and-vocab", "-i", "text", "-o", "codes", "--write-vocabulary",
             "vocabulary", "-s", "400")  # fmt: skip
    codes = peer_codes(text, 400)
    assert Path("codes").read_text("utf-8") == codes
    pieces = peer_pieces(text, codes)
    assert rareword("apply-bpe", "-c", "codes", "-i", "text").decode() == pieces
    written = peer_vocabulary(pieces)
    assert Path("vocabulary").read_text("utf-8") == written
    options = {"merges": 300, "separator": "￭", "glossaries": ["[0-9]+", "%s", "e.", "の"]}
    vocabulary = read_vocabulary(io.StringIO(written), 20)
    found = rareword("apply-bpe", "-c", "codes", "-i", "text", "--num-workers", "2", "-m", "300",
                     "-s", "￭", "--vocabulary", "vocabulary", "--vocabulary-threshold", "20",
                     "--glossaries", *options["glossaries"])  # fmt: skip
    assert found.decode() == peer_pieces(text, codes, vocab=vocabulary, **options)
