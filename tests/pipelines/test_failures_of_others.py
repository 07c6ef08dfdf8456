"""Inputs on which other learners are known to fail: learning, counts, sizes, white space.

A comment names the public report. Codes files, vocabulary files and the commands of subword-nmt
have their own tests.
"""

import contextlib
import io
import random
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import oracles
import pyarrow as pa
import pytest
import sharded
from subword_nmt.learn_bpe import learn_bpe

from rareword.pipelines import cli
from rareword.schemas import manifest as manifests
from rareword.schemas import merges as merge_files
from rareword.schemas import vocabulary as vocabularies
from rareword.schemas.merges import Merge
from rareword.schemas.tables import SEGMENTED, WORDS, iterate_row_groups, shard_name, write_shard
from rareword.transforms import rounds
from rareword.transforms.rounds import ONE_ROUND, Control, Rules

Pairs = list[tuple[oracles.Symbols, int]]
SCHEDULES = [(1, ONE_ROUND), (3, 2), (5, 8)]
WHITE_SPACE = "\t\n\r\v\f\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2003\u2028\u2029\u202f\u205f\u3000"
NOT_QUITE_TEXT = "\x00\u200b\u200d\ufeff\u0301\u064e\U0001f600\U0010ffff\ufffe"


def as_pairs(merges: Iterable[Merge]) -> Pairs:
    return [((tuple(m.left), tuple(m.right)), m.count) for m in merges]


def learn(words: Mapping[str, int], merges: int, min_frequency: int = 1) -> Pairs:
    """The merges of a word table, the same under every schedule."""
    counts = np.array(list(words.values()), np.int64)
    found = []
    for shards, divide in SCHEDULES:
        states = sharded.shards_of(pa.array(list(words), pa.string()), counts, shards)
        control = sharded.learn(states, Rules(merges, min_frequency, divide, parts=2), Control())
        found.append(as_pairs(rounds.to_merges(control.merges)))
    assert all(other == found[0] for other in found)
    return found[0]


def printed(pairs: Pairs) -> list[str]:
    return [" ".join(map(oracles.printed, pair)) for pair, _ in pairs]


def peers_merges(words: Mapping[str, int], merges: int, min_frequency: int) -> list[str]:
    """What subword-nmt learns, as it prints it."""
    out = io.StringIO()
    text = "".join(f"{word} {count}\n" for word, count in words.items())
    with contextlib.redirect_stderr(io.StringIO()):
        learn_bpe(io.StringIO(text), out, merges, min_frequency, is_dict=True)
    return out.getvalue().split("\n")[1:-1]


def command(*arguments: str) -> None:
    assert cli.main(arguments) == 0


def write_words(directory: str, words: Mapping[str, tuple[int, int]], shards: int = 2) -> None:
    """A finished `words` directory with these counts of source and target."""
    records = []
    for k in range(shards):
        mine = sorted(words, key=str.encode)[k::shards]
        columns = {
            "word": mine,
            "source_count": [words[word][0] for word in mine],
            "target_count": [words[word][1] for word in mine],
        }
        table = pa.table(columns, schema=WORDS.fields)
        records.append(write_shard(directory, shard_name(k, shards), WORDS, [table]))
    figures = {"symbols": sum(map(len, words))}
    plan = manifests.Plan("count-words", {}, {})
    manifests.finish(plan, directory, WORDS, records, figures=figures, rules={"text": {}})


def learnt_by_job(directory: Path) -> Pairs:
    return as_pairs(merge_files.read(f"{directory}/part-00000-of-00001.parquet"))


# ---- counts ----


def test_counts_beyond_32_bits_are_learnt_first():
    # huggingface/tokenizers#437, #2058, #2105; google/sentencepiece#359, #967
    words = {"the": 3_000_000_000, "i": 144_250_667, "ab": 2**31 + 1, "ac": 2**31, "thy": 2**62}
    assert learn(words, 9) == oracles.learn_bpe(words, 9, 1)


def test_sums_beyond_32_bits_of_small_counts_are_learnt_first():
    # huggingface/tokenizers#437: no count is large, their sum is
    words = {f"th{k}": 2**29 for k in range(9)} | {"ab": 2**32}
    merges = learn(words, 12)
    assert merges[0] == ((("t", False), ("h", False)), 9 * 2**29)
    assert merges == oracles.learn_bpe(words, 12, 1)


def test_counts_beyond_53_bits_are_exact():
    words = {"ab": 2**53 + 1, "zy": 2**53, "xx": 2**60 + 1, "xxxx": 2**59}
    merges = learn(words, 9)
    assert merges == oracles.learn_bpe(words, 9, 1)
    assert printed(merges).index("a b</w>") < printed(merges).index("z y</w>")


@pytest.mark.parametrize(("side", "column"), [("joint", None), ("source", 0), ("target", 1)])
def test_the_job_adds_and_compares_counts_of_64_bits(tmp_path, side, column):
    words = {
        "the": (2**33, 2**33), "ab": (2**53 + 1, 0), "cd": (0, 2**53), "thee": (1, 2**40),
        "of": (5, 2**31),
    }  # fmt: skip
    write_words(f"{tmp_path}/words", words)
    command("learn-merges", "--words", f"{tmp_path}/words", "--output", f"{tmp_path}/merges",
            "--quiet", "--merges", "9", "--side", side, "--shards", "3", "--divide", "5000",
            "--max-rounds", "4")  # fmt: skip
    counts = {word: sum(both) if column is None else both[column] for word, both in words.items()}
    expected = oracles.learn_bpe({word: n for word, n in counts.items() if n}, 9)
    assert learnt_by_job(tmp_path / "merges") == expected
    assert (
        manifests.read(f"{tmp_path}/merges", "learn-merges", "").figures["last_count"]
        == (expected[-1][1])
    )


@pytest.mark.parametrize("words", [
    {"##ab": 3, "##abc": 2, "##b": 5, "##ba": 1, "##bab": 1, "##aabb": 1, "##bb": 2, "##abab": 1},
    {"a" * n: 1 for n in range(1, 12)},
    {"tall": 1, "taller": 1, "tallest": 1},
])  # fmt: skip
def test_a_pair_that_does_not_occur_is_never_merged(words):
    # huggingface/tokenizers#2320; glample/fastBPE#7, #35: `o o 0` again and again
    merges = learn(words, 1000)
    assert 0 < len(merges) < 1000
    assert min(count for _, count in merges) >= 1
    assert len({pair for pair, _ in merges}) == len(merges)
    assert merges == oracles.learn_bpe(words, 1000, 1)


@pytest.mark.parametrize("text", ["bc a aaaa", "aaa aaaaa", "abababab", "xyxyxy yxyx", "aaaabaaaa"])
def test_pairs_that_overlap_themselves_are_counted_at_every_position(text):
    # google/sentencepiece#318; YouTokenToMe counts (n / 2)
    words = oracles.count_words([text])
    merges = learn(words, 50)
    assert merges == oracles.learn_bpe(words, 50, 1)
    assert printed(merges) == peers_merges(words, 50, 1)


# ---- order and ties ----


def test_merges_are_a_function_of_the_counts_and_not_of_the_order_of_the_text(tmp_path):
    # karpathy/minbpe#90; huggingface/tokenizers#1794; marian-nmt/marian-dev#657
    text = ["bbb", "aaa", "dddd", "cccc", "abcd", "dcba", "bbb", "é\u0301", "\u0301é", "x\u00a0y"]
    written = set()
    for k in range(2):
        random.Random(k).shuffle(text)
        path = f"{tmp_path}/{k}"
        oracles.write_corpus(f"{path}/corpus", text[:k] + text[k:], [""] * len(text), shards=k + 1)
        command("count-words", "--corpus", f"{path}/corpus", "--output", f"{path}/words",
                "--quiet", "--shards", str(3 * k + 1), "--kernel-threads", str(k + 1))  # fmt: skip
        command("learn-merges", "--words", f"{path}/words", "--output", f"{path}/merges",
                "--quiet", "--min-frequency", "1", "--kernel-threads", str(k + 1),
                "--shards", str(4 * k + 1), "--divide", str(9 * k),
                "--max-rounds", "3")  # fmt: skip
        written.add(Path(path, "merges", "part-00000-of-00001.parquet").read_bytes())
        assert learnt_by_job(Path(path, "merges")) == oracles.learn_bpe(
            oracles.count_words(text), 1000, 1
        )
    assert len(written) == 1


@pytest.mark.parametrize("text", ["DCBBABCD", "D C B B A B C D", "DC BB AB CD", "ba b<a ab a<"])
def test_of_equal_counts_the_greatest_pair_by_code_point_wins(text):
    # huggingface/tokenizers#1065
    words = oracles.count_words([text])
    merges = learn(words, 50)
    assert merges == oracles.learn_bpe(words, 50, 1)
    with contextlib.suppress(ValueError):  # subword-nmt's, for text without pairs
        assert printed(merges) == peers_merges(words, 50, 1)


# ---- too little text ----


@pytest.mark.parametrize(
    "lines", [[], ["", " ", "   "], ["a b c", "a", "", "\u00e9 \U0001f600 \x00"]]
)
def test_text_without_pairs_gives_no_merges_and_is_segmented_all_the_same(tmp_path, lines, capfd):
    # huggingface/tokenizers#214, #284; subword-nmt: `max() arg is an empty sequence`
    path = str(tmp_path)
    oracles.write_corpus(f"{path}/corpus", lines, lines)
    run_jobs(path)
    assert (tmp_path / "merges" / "codes.txt").read_bytes() == b"#version: 0.2\n"
    assert segmented(path) == [[" ".join(oracles.split_words(line))] * 2 for line in lines]


def test_more_merges_than_there_are_end_early_and_say_how_many(tmp_path, capfd):
    # google/sentencepiece#730, #297; rsennrich/subword-nmt#63
    text = ["the tall taller", "the tallest"]
    oracles.write_corpus(f"{tmp_path}/corpus", text, [""] * 2)
    command("count-words", "--corpus", f"{tmp_path}/corpus", "--output", f"{tmp_path}/words")
    command("learn-merges", "--words", f"{tmp_path}/words", "--output", f"{tmp_path}/merges",
            "--merges", "32000", "--max-rounds", "1")  # fmt: skip
    expected = oracles.learn_bpe(oracles.count_words(text), 32000, 2)
    assert learnt_by_job(tmp_path / "merges") == expected
    assert 0 < len(expected) < 20
    assert f"merges {len(expected)}" in capfd.readouterr().err


def test_spaces_at_ends_and_in_rows_make_no_words(tmp_path):
    # rsennrich/subword-nmt#41; facebookresearch/fairseq#132
    lines = ["and  x", " and x ", "", "   ", "x"]
    oracles.write_corpus(f"{tmp_path}/corpus", lines, lines[::-1])
    run_jobs(str(tmp_path))
    assert counted(str(tmp_path)) == {"and": (2, 2), "x": (3, 3)}
    assert [row[0] for row in segmented(str(tmp_path))] == ["and x", "and x", "", "", "x"]


# ---- large words, many words ----


def letters(number: int, alphabet: str = "abc") -> str:
    return "".join(random.Random(number).choices(alphabet, k=number))


@pytest.mark.parametrize("word", [letters(70_000), "a" * 70_000], ids=["random", "one letter"])
def test_a_word_of_seventy_thousand_letters_is_learnt_and_segmented(tmp_path, word):
    # google/sentencepiece#340, openai/tiktoken#15, #195
    oracles.write_corpus(f"{tmp_path}/corpus", [f"{word} ab", "ab"], [word, ""])
    run_jobs(str(tmp_path), merges=12, divide=64)
    expected = oracles.learn_bpe({word: 2, "ab": 2}, 12)
    assert learnt_by_job(tmp_path / "merges") == expected
    assert segmented(str(tmp_path)) == [[f"{word} ab", word], ["ab", ""]]


@pytest.mark.parametrize(
    "word", [letters(1_000_000), "^" * 1_000_001], ids=["random", "one letter"]
)
def test_a_word_of_a_megabyte_is_learnt(word):
    # openai/tiktoken#245, #327
    assert learn({word: 3, "ab": 1}, 3) == oracles.learn_bpe({word: 3, "ab": 1}, 3, 1)


def test_lines_without_spaces_are_words_like_others():
    # rsennrich/subword-nmt#7, #53, #103; huggingface/tokenizers#422, #1795
    draw = random.Random(0)
    characters = [chr(code) for code in range(0x4E00, 0x4E00 + 1500)]
    weights = [1 / rank for rank in range(1, 1501)]
    lines = {"".join(draw.choices(characters, weights, k=60)): 1 for _ in range(3000)}
    assert printed(learn(lines, 60, 2)) == peers_merges(lines, 60, 2)


# ---- white space and odd characters in words ----


def test_words_are_split_at_the_space_and_nowhere_else(tmp_path):
    # rsennrich/subword-nmt#29, #46, #55, #92, #112; google/sentencepiece#954, #629, #101
    lines = [
        line
        for c in WHITE_SPACE + NOT_QUITE_TEXT
        for line in (f"ab{c}cd x{c}", f"{c} ab{c}cd {c}x", c, f"{c}{c}")
    ]
    oracles.write_corpus(f"{tmp_path}/corpus", lines, ["y"] * len(lines), rows=30)
    run_jobs(str(tmp_path), min_frequency=1)
    counter = oracles.count_words(lines)
    assert counter["ab\u2028cd"] == 2
    assert {w: n for w, (n, _) in counted(str(tmp_path)).items() if n} == counter
    expected = oracles.learn_bpe({**counter, "y": len(lines)}, 1000, 1)
    assert learnt_by_job(tmp_path / "merges") == expected
    assert [row[0] for row in segmented(str(tmp_path))] == lines


@pytest.mark.parametrize(
    ("words", "merges"),
    [
        # subword-nmt joins a and a\t</w> inside `aa a\t</w>`, for its pattern sees a space there
        ({"a\t": 6, "aaaa\t": 1}, ["a \t</w>", "a a", "aa a", "aaa a\t</w>"]),
        ({"0\xa0": 4, "0000\xa0": 2}, ["0 \xa0</w>", "0 0", "00 0", "000 0\xa0</w>"]),
    ],
)
def test_white_space_inside_words_does_not_part_them(words, merges):
    assert printed(learn(words, 4)) == merges
    assert learn(words, 4) == oracles.learn_bpe(words, 4, 1)


MARKS = ["a</w></w>a", "</w>", "</w></w>", "a@@b@@", "@@", "a</w>", "\u2581a", "##a", "<unk>"]


@pytest.mark.parametrize("word", MARKS)
def test_text_that_looks_like_a_mark_is_text(word):
    # subword-nmt takes the text's `</w>` for the end of the word
    words = {word: 2, f"{word}a": 1, "a": 3, "ab": 1}
    assert learn(words, 60) == oracles.learn_bpe(words, 60, 1)


def test_marks_in_the_text_come_back(tmp_path):
    lines = [f"{word} {word}a a {word} ab a{word}{word}" for word in MARKS] + MARKS
    oracles.write_corpus(f"{tmp_path}/corpus", lines, lines[::-1])
    run_jobs(str(tmp_path), min_frequency=1)
    assert segmented(str(tmp_path)) == [list(row) for row in zip(lines, lines[::-1], strict=True)]


# ---- the jobs' command lines, and what they wrote ----


def run_jobs(path: str, merges: int = 1000, min_frequency: int = 2, divide: int = 8) -> None:
    """Counts, learns and segments `path/corpus`, joint, in a few rounds."""
    command("count-words", "--quiet", "--corpus", f"{path}/corpus", "--output", f"{path}/words")
    command("learn-merges", "--quiet", "--words", f"{path}/words", "--output", f"{path}/merges",
            "--merges", str(merges), "--min-frequency", str(min_frequency),
            "--divide", str(divide), "--max-rounds", "3", "--shards", "3",
            "--parts", "2")  # fmt: skip
    command("learn-segmenter", "--quiet", "--segmenter", "bpe", "--words", f"{path}/words",
            "--merges", f"{path}/merges", "--output", f"{path}/segmenter")  # fmt: skip
    command("segment", "--quiet", "--corpus", f"{path}/corpus",
            "--segmenter", f"{path}/segmenter", "--output", f"{path}/segmented")  # fmt: skip


def counted(path: str) -> dict[str, tuple[int, int]]:
    manifest = manifests.read(f"{path}/words", "count-words", "")
    return {
        row["word"]: (row["source_count"], row["target_count"])
        for url in manifest.urls
        for group in iterate_row_groups(url, WORDS)
        for row in group.to_pylist()
    }


def segmented(path: str) -> list[list[str]]:
    """Both sides of each line, put together again from the pieces."""
    both = vocabularies.read_both(f"{path}/segmented")
    manifest = manifests.read(f"{path}/segmented", "segment", "")
    found = {
        row["id"]: [both.source.words(row["source"]), both.target.words(row["target"])]
        for url in manifest.urls
        for group in iterate_row_groups(url, SEGMENTED)
        for row in group.to_pylist()
    }
    return [found[key] for key in sorted(found)]
