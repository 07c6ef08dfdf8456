"""Byte for byte the codes of subword-nmt, on real corpora and on made-up text.

`golden/codes.json` holds the digests of what subword-nmt learns; `golden/make_codes.py` writes it.
Most schedules run as a loop without Beam (`sharded.py`), some as jobs.
"""

import contextlib
import functools
import io
import itertools
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import oracles
import pyarrow as pa
import pytest
import sharded
from golden import make_codes
from golden.make_codes import CORPORA
from subword_nmt.learn_bpe import learn_bpe

from rareword.pipelines import count_words, job, learn_merges
from rareword.schemas import merges as merge_files
from rareword.schemas.errors import RarewordError
from rareword.transforms import rounds
from rareword.transforms.parts import one_chunk
from rareword.transforms.rounds import Control, Rules, Sequences
from rareword.transforms.words import count_words as count_lines

GOLDEN = json.loads((Path(make_codes.__file__).parent / "codes.json").read_text(encoding="utf-8"))
NO_LIMIT = 10**9
MADE_UP_MERGES = 800
TIGHT = {"en-de": 45_000, "en-ru": 45_000, "tr": 12_000, "fi": 16_000, "ja": 24_000, "zh": 40_000}
"""Chunk symbols: a little less than the largest chunk table of the rounds that halve T."""
SHARDS = (1, 7, 64)
DIVIDE = (2, 8, 32)


def codes_of(control: Control) -> str:
    return merge_files.to_codes(rounds.to_merges(control.merges))


def limit(name: str, divide: int) -> int:
    """So few symbols that parts of the chunk table have to be cut again."""
    return TIGHT[name] if divide == 2 else 100_000


@functools.cache
def word_table(name: str, data: Path) -> tuple[pa.Array, np.ndarray]:
    columns = CORPORA[name].lines(data)
    text = "".join(f"{line}\n" for lines in columns for line in lines)
    assert make_codes.sha256(text) == GOLDEN["corpora"][name]["text_sha256"], "another text"
    source, target = (pa.array(lines, pa.string()) for lines in [*columns, []][:2])
    table = count_lines(source, target)
    counts = table["source_count"].to_numpy() + table["target_count"].to_numpy()
    return one_chunk(table["word"]), counts


# ---- real corpora ----


@pytest.mark.parametrize("shards", SHARDS)
@pytest.mark.parametrize("name", CORPORA)
def test_any_schedule_learns_the_codes_of_subword_nmt(shared_data, name, shards):
    corpus = CORPORA[name]
    states = sharded.shards_of(*word_table(name, shared_data), shards)
    free = [(divide, NO_LIMIT) for divide in DIVIDE]
    cut = dict(zip(SHARDS, DIVIDE, strict=True))[shards]
    for divide, most in [*free, (cut, limit(name, cut))]:
        rules = Rules(corpus.merges, 2, divide, parts=4, max_chunk_symbols=most)
        control = sharded.learn(states, rules, Control())
        found = make_codes.digests(codes_of(control), corpus.merges)
        assert found == GOLDEN["corpora"][name]["codes_sha256"], (divide, most)
        above = sharded.rounds_above_schedule(control.log, control.merges.counts.tolist(), divide)
        assert len(control.log) >= 2
        assert bool(above) == (most != NO_LIMIT)
        assert all(row["chunk_symbols"] <= most for row in control.log)


def count_corpus(name: str, data: Path, directory: Path) -> str:
    """The `words` directory of a corpus."""
    columns = CORPORA[name].lines(data)
    source, target = columns if len(columns) == 2 else (columns[0], [""] * len(columns[0]))
    oracles.write_corpus(f"{directory}/corpus", source, target, shards=4, rows=20_000)
    options = count_words.CountWordsOptions(
        corpus=f"{directory}/corpus", output=f"{directory}/words", shards=5, quiet=True
    )
    job.execute(count_words.JOB, options)
    return f"{directory}/words"


def learn(**options: Any) -> None:
    job.execute(learn_merges.JOB, learn_merges.LearnMergesOptions(quiet=True, **options))


def check_codes(name: str, directory: Path) -> None:
    codes = (directory / "codes.txt").read_bytes().decode()
    found = make_codes.digests(codes, CORPORA[name].merges)
    assert found == GOLDEN["corpora"][name]["codes_sha256"]


def rounds_cut_to_fit(directory: Path, divide: int) -> list[int]:
    log = json.loads((directory / "rounds.json").read_text(encoding="utf-8"))
    merges = merge_files.read(str(directory / "part-00000-of-00001.parquet"))
    return sharded.rounds_above_schedule(log, [merge.count for merge in merges], divide)


@pytest.mark.parametrize(
    "name", [name for name, corpus in CORPORA.items() if corpus.merges == 8000]
)
def test_the_job_writes_the_codes_of_subword_nmt(shared_data, tmp_path, name):
    words = count_corpus(name, shared_data, tmp_path)
    learn(words=words, output=f"{tmp_path}/merges", merges=CORPORA[name].merges, shards=7,
          divide=8, parts=4, max_chunk_symbols=limit(name, 8), max_rounds=9)  # fmt: skip
    check_codes(name, tmp_path / "merges")
    assert rounds_cut_to_fit(tmp_path / "merges", 8)


def test_a_job_out_of_rounds_goes_on_with_other_shards_to_the_codes_of_subword_nmt(
    shared_data, tmp_path
):
    words = count_corpus("en-de", shared_data, tmp_path)
    options = {"words": words, "output": f"{tmp_path}/merges", "merges": CORPORA["en-de"].merges}
    with pytest.raises(RarewordError, match="2 rounds were not enough"):
        learn(**options, shards=7, divide=8, max_rounds=2)
    with pytest.raises(RarewordError, match="1 round was not enough"):
        learn(**options, shards=64, divide=32, parts=3, max_rounds=1)
    learn(**options, shards=1, divide=8, parts=5, max_rounds=6)
    check_codes("en-de", tmp_path / "merges")


def test_a_killed_job_goes_on_with_other_shards_to_the_codes_of_subword_nmt(shared_data, tmp_path):
    words = count_corpus("en-ru", shared_data, tmp_path)
    output = tmp_path / "merges"
    command = [
        sys.executable, "-m", "rareword.pipelines.cli", "learn-merges", "--quiet",
        "--words", words, "--output", str(output), "--merges", str(CORPORA["en-ru"].merges),
    ]  # fmt: skip
    process = subprocess.Popen([*command, "--shards", "64", "--divide", "4", "--max-rounds", "10"])
    try:
        wait_for_checkpoint(process, output)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGKILL, "it ended before it was killed"
    before = max(path.name for path in output.glob("rounds/checkpoint-*.parquet"))
    assert int(before[11:18]) < CORPORA["en-ru"].merges
    subprocess.run([*command, "--shards", "7", "--max-rounds", "3"], check=True, timeout=300)
    check_codes("en-ru", output)
    log = json.loads((output / "rounds.json").read_text(encoding="utf-8"))
    assert all(row["merges"] > int(before[11:18]) for row in log), "it went on, not anew"


def wait_for_checkpoint(process: subprocess.Popen[bytes], output: Path) -> None:
    deadline = time.monotonic() + 120
    while not list(output.glob("rounds/checkpoint-*.parquet")):
        assert process.poll() is None, "it ended without a checkpoint"
        assert time.monotonic() < deadline, "no checkpoint came"
        time.sleep(0.01)


# ---- made-up text ----


def made_up_words(seed: int, types: int = 3000) -> dict[str, int]:
    """Words of stems and endings with counts that fall by rank as in real text; many ties."""
    draw = random.Random(seed)
    letters = "aabcdeeéfghiiklmnooprsßtuvwyzдаинош日本語\U0001f600"
    stems = ["".join(draw.choices(letters, k=draw.randint(1, 6))) for _ in range(types // 4)]
    endings = ["", "s", "ed", "ing", "er", "erna", "-", "aaaa"]
    words = dict.fromkeys(
        draw.choice(stems) + draw.choice(stems) * draw.randint(0, 1) + draw.choice(endings)
        for _ in range(types)
    )
    return {word: 1 + 20_000 // rank for rank, word in enumerate(words, 1)}


def made_up_shards(words: dict[str, int], shards: int) -> list[Sequences]:
    counts = np.array(list(words.values()), np.int64)
    return sharded.shards_of(pa.array(list(words)), counts, shards)


def made_up_limit(divide: int) -> int:
    return 1700 if divide == 2 else 3000


@functools.cache
def peers_codes(seed: int) -> str:
    dictionary = "".join(f"{word} {count}\n" for word, count in made_up_words(seed).items())
    out = io.StringIO()
    with contextlib.redirect_stderr(io.StringIO()):
        learn_bpe(io.StringIO(dictionary), out, MADE_UP_MERGES, is_dict=True)
    return out.getvalue()


@pytest.mark.parametrize("seed", [1, 2])
def test_any_schedule_on_made_up_text_learns_the_codes_of_subword_nmt(seed):
    words = made_up_words(seed)
    for shards, divide, cut in itertools.product(SHARDS, DIVIDE, (False, True)):
        rules = Rules(MADE_UP_MERGES, 2, divide, 3, made_up_limit(divide) if cut else NO_LIMIT)
        control = sharded.learn(made_up_shards(words, shards), rules, Control())
        assert codes_of(control) == peers_codes(seed), (shards, divide, cut)
        above = sharded.rounds_above_schedule(control.log, control.merges.counts.tolist(), divide)
        assert bool(above) == cut


@pytest.mark.parametrize("seed", [1, 2])
def test_learning_goes_on_from_any_merge_under_another_schedule(seed):
    words = made_up_words(seed)
    draw = random.Random(seed)
    for known in draw.sample(range(MADE_UP_MERGES), 4):
        control = Control()
        for merges in (known, MADE_UP_MERGES):
            divide = draw.choice(DIVIDE)
            most = draw.choice([made_up_limit(divide), NO_LIMIT])
            rules = Rules(merges, 2, divide, draw.randint(1, 4), most)
            states = made_up_shards(words, draw.choice(SHARDS))
            control = sharded.learn(states, rules, Control(control.merges))
        assert codes_of(control) == peers_codes(seed)
