"""learn-segmenter on files: what it refuses, and that its bytes are a function of its input."""

import collections
import dataclasses
import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import types
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import oracles
import pyarrow as pa
import pytest

from rareword.pipelines import count_words, job, learn_merges, learn_segmenter, segment
from rareword.pipelines.learn_segmenter import Kind, LearnSegmenterOptions
from rareword.schemas import manifest as manifests
from rareword.schemas import storage
from rareword.schemas import vocabulary as vocabularies
from rareword.schemas.errors import RarewordError
from rareword.schemas.manifest import Manifest
from rareword.schemas.options import option
from rareword.schemas.tables import SEGMENTED, ShardRecord, file_record, read_table
from rareword.transforms import segmenters
from rareword.transforms.segmenters import CuttingSegmenter

SOURCE = [f"the {stem}{end} is {stem}" for stem in ("low", "new", "wid") for end in ("er", "est")]
TARGET = [f"das ist {stem}{end}" for stem in ("tief", "neu") for end in ("er", "ste", "")]


def make(output: str, kind: str = "bpe", **options: Any) -> Manifest:
    return job.execute(
        learn_segmenter.JOB,
        LearnSegmenterOptions(segmenter=kind, output=output, quiet=True, **options),
    )


def count(corpus: str, output: str, **options: Any) -> Manifest:
    return job.execute(
        count_words.JOB,
        count_words.CountWordsOptions(corpus=corpus, output=output, quiet=True, **options),
    )


def learn(words: str, output: str, **options: Any) -> Manifest:
    return job.execute(
        learn_merges.JOB,
        learn_merges.LearnMergesOptions(
            words=words, output=output, quiet=True, merges=40, min_frequency=1, **options
        ),
    )


def contents(directory: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(directory).iterdir()}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run")
    oracles.write_corpus(f"{path}/corpus", SOURCE, TARGET)
    count(f"{path}/corpus", f"{path}/words", shards=1)
    count(f"{path}/corpus", f"{path}/words-7", shards=7)
    learn(f"{path}/words", f"{path}/merges")
    for side in ("source", "target"):
        learn(f"{path}/words", f"{path}/merges-{side}", side=side)
    learn(f"{path}/words", f"{path}/merges-bytes", units="bytes")
    return path


LANGUAGES = {"source_language": "en", "target_language": "de"}
BOTH = {"source_merges": "{run}/merges-source", "target_merges": "{run}/merges-target"}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("words", {}),
        ("bpe", {"merges": "{run}/merges"}),
        ("bpe", BOTH),
        ("bytes", {"merges": "{run}/merges-bytes"}),
        ("char-ngram", {"ngram": 2, "source_shortlist": 3, "target_shortlist": 1}),
        ("compound", LANGUAGES),
        ("morfessor", {"seed": 3}),
        ("hyphenation", LANGUAGES),
    ],
)
def test_the_number_of_word_shards_changes_no_file(
    run: Path, tmp_path: Path, kind: str, options: dict[str, Any]
) -> None:
    given = {k: v.format(run=run) if isinstance(v, str) else v for k, v in options.items()}
    one = make(f"{tmp_path}/one", kind, words=f"{run}/words", **given)
    many = make(f"{tmp_path}/many", kind, words=f"{run}/words-7", **given)
    assert one.files == many.files
    assert (one.rules, one.figures) == (many.rules, many.figures)


def test_the_manifest_says_what_later_jobs_must_know(run: Path, tmp_path: Path) -> None:
    made = make(f"{tmp_path}/s", words=f"{run}/words", merges=f"{run}/merges")
    both = vocabularies.read_both(f"{tmp_path}/s")
    assert made.rules == {
        "text": {},
        "segmenter": {
            "kind": "bpe",
            "settings": {"both": {"units": "characters"}},
            "joint_vocabulary": True,
        },
        "vocabulary": both.hash,
    }
    assert made.figures == {f"{side}_vocabulary": len(both.source) for side in ("source", "target")}
    assert [record.name for record in made.files] == [
        "merges-both.parquet", "vocabulary-source.parquet", "vocabulary-target.parquet",
    ]  # fmt: skip
    assert sorted(contents(f"{tmp_path}/s")) == [
        "manifest.json", *(record.name for record in made.files),
    ]  # fmt: skip


@pytest.mark.parametrize("limit", [0, 7])
def test_a_merge_limit_is_a_shorter_list_of_merges(run: Path, tmp_path: Path, limit: int) -> None:
    job.execute(
        learn_merges.JOB,
        learn_merges.LearnMergesOptions(
            words=f"{run}/words",
            output=f"{tmp_path}/few",
            merges=limit,
            min_frequency=1,
            quiet=True,
        ),
    )
    few = make(f"{tmp_path}/of-few", words=f"{run}/words", merges=f"{tmp_path}/few")
    limited = make(
        f"{tmp_path}/limited", words=f"{run}/words", merges=f"{run}/merges", merge_limit=limit
    )
    assert limited.files == few.files


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        ("bpe", {}, "--segmenter bpe needs --merges, or both --source-merges and --target-merges"),
        ("bpe", {"source_merges": "x"}, "--segmenter bpe needs --merges, or both"),
        ("bpe", {**BOTH, "merges": "{run}/merges"}, "--segmenter bpe needs --merges, or both"),
        ("bpe", {"merges": "nowhere"}, "--merges: nowhere does not exist"),
        (
            "bpe",
            {"merges": "{run}/words"},
            "--merges: .* was written by `count-words`, expected `learn-merges`",
        ),
        ("bpe", {"merges": "{run}/merges-bytes"}, "learnt on bytes; use --segmenter bytes"),
        ("bytes", {"merges": "{run}/merges"}, "learnt on characters; use --segmenter bpe"),
        ("bpe", {"merges": "x", "words": None}, "--segmenter bpe needs --words"),
        (
            "bpe",
            {"merges": "x", "max_vocabulary_size": 3},
            "--max-vocabulary-size: 3 pieces have no",
        ),
        ("bpe", {"merges": "x", "joint": True}, "--joint is not for bpe"),
        ("words", {"corpus": "x"}, "--corpus is not for words"),
        ("words", {"merges": "x"}, "--merges is not for words but for bpe, bytes; leave it out"),
        ("words", {"merge_limit": 0}, "--merge-limit is not for words but for bpe, bytes"),
        ("words", {"words": "{run}/corpus"}, "written by `prepare`, expected `count-words`"),
        ("wrods", {}, "--segmenter: 'wrods' is not one of bpe, bytes, "),
    ],
)
def test_wrong_options_are_sentences(
    run: Path, tmp_path: Path, kind: str, options: dict[str, Any], sentence: str
) -> None:
    given = {"words": f"{run}/words", **options}
    given = {k: v.format(run=run) if isinstance(v, str) else v for k, v in given.items()}
    with pytest.raises(RarewordError, match=sentence):
        make(f"{tmp_path}/out", kind, **given)
    assert not (tmp_path / "out").exists()


def test_merges_of_text_under_other_rules_are_refused(run: Path, tmp_path: Path) -> None:
    shutil.copytree(f"{run}/merges", f"{tmp_path}/merges")
    learnt = manifests.read(f"{run}/merges", "learn-merges", "")
    other = {**learnt.rules, "text": {"truecase": "moses"}}
    dataclasses.replace(learnt, rules=other).write(f"{tmp_path}/merges")
    with pytest.raises(RarewordError, match=r"--merges: .* other rules than that of .*words"):
        make(f"{tmp_path}/out", words=f"{run}/words", merges=f"{tmp_path}/merges")


def test_words_that_got_lost_fail_the_job(run: Path, tmp_path: Path) -> None:
    shutil.copytree(f"{run}/words-7", f"{tmp_path}/words")
    words = manifests.read(f"{run}/words-7", "count-words", "")
    largest = max(words.shards, key=lambda shard: shard.rows)
    fewer = [
        dataclasses.replace(words.shards[0], name=largest.name, bytes=largest.bytes)
        if shard == words.shards[0] else shard for shard in words.shards
    ]  # fmt: skip
    assert fewer[0].name != words.shards[0].name
    dataclasses.replace(words, shards=tuple(fewer)).write(f"{tmp_path}/words")
    with pytest.raises(RarewordError, match="the run lost or doubled data: source words"):
        make(f"{tmp_path}/out", "words", words=f"{tmp_path}/words")
    assert not (tmp_path / "out").exists()


def test_a_killed_job_starts_again_and_ends_with_the_same_files(run: Path, tmp_path: Path) -> None:
    given = {"source_merges": f"{run}/merges-source", "target_merges": f"{run}/merges-target"}
    make(f"{tmp_path}/whole", words=f"{run}/words-7", **given)
    command = [sys.executable, "-m", "rareword.pipelines.cli", "learn-segmenter", "--quiet",
               "--segmenter", "bpe", "--words", f"{run}/words-7",
               "--source-merges", given["source_merges"], "--target-merges",
               given["target_merges"], "--output", f"{tmp_path}/killed"]  # fmt: skip
    process = subprocess.Popen(command)
    between = tmp_path / "killed" / "merges-source.parquet"
    deadline = time.monotonic() + 120
    while not between.exists() and time.monotonic() < deadline:
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert between.exists(), "the kill came before the first file"
    assert not (tmp_path / "killed" / "manifest.json").exists()
    assert subprocess.run(command, check=False).returncode == 0
    assert contents(f"{tmp_path}/killed") == contents(f"{tmp_path}/whole")


# ---- a kind that is learnt here: a row and a class ----


class Endings(CuttingSegmenter):
    """Cuts off the most frequent endings of two letters; keeps what it was given, for the tests."""

    spells = True

    def __init__(self, endings: Sequence[str], given: Mapping[str, Any]) -> None:
        self.endings, self.given = list(endings), dict(given)

    @classmethod
    def learn(cls, words: pa.Array, counts: np.ndarray, **given: Any) -> "Endings":
        texts = words.to_pylist()
        assert texts == sorted(texts, key=str.encode)
        sums: dict[str, int] = {}
        for word, n in zip(texts, counts.tolist(), strict=True):
            assert n > 0
            if len(word) > 2:
                sums[word[-2:]] = sums.get(word[-2:], 0) + n
        best = sorted(sums, key=lambda ending: (-sums[ending], ending))
        return cls(best[: given["pieces"]], given)

    def count_lines(self, lines: pa.Array) -> pa.Table:
        return self.count_pieces(lines, np.ones(len(lines), np.int64))

    @classmethod
    def learn_text(cls, lines: Iterable[str], **given: Any) -> "Endings":
        words = oracles.count_words(lines)
        ordered = sorted(words, key=str.encode)
        counts = np.array([words[word] for word in ordered], np.int64)
        return cls.learn(pa.array(ordered, pa.string()), counts, **given)

    def cut(self, words: Sequence[str]) -> list[Sequence[str]]:
        return [
            (word[:-2], word[-2:]) if len(word) > 2 and word[-2:] in self.endings else (word,)
            for word in words
        ]

    def settings(self) -> dict[str, Any]:
        return {"given": self.given}

    def save(self, directory: str, side: str) -> list[ShardRecord]:
        name = f"endings-{side}.json"
        storage.write_json(storage.join(directory, name), self.endings)
        return [file_record(directory, name, len(self.endings))]

    @classmethod
    def load(cls, directory: str, side: str, settings: Mapping[str, Any]) -> "Endings":
        endings = storage.read_json(storage.join(directory, f"endings-{side}.json"))
        return cls(endings, settings["given"])


@dataclasses.dataclass(frozen=True)
class EndingOptions(LearnSegmenterOptions):
    pieces: int | None = option(None, help="endings")
    source_language: str | None = option(None, help="of the source side")
    target_language: str | None = option(None, help="of the target side")
    glossary: str | None = option(None, help="file", shapes_result=False)


OWN = ("pieces", "source_language", "target_language", "glossary")


def read_lines(url: str) -> list[str]:
    lines = Path(url).read_text().splitlines()
    if "bad" in lines:
        raise RarewordError(f"{url}: a bad line")
    return lines


@pytest.fixture
def endings(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("rareword.transforms.endings")
    module.Endings = Endings  # type: ignore[attr-defined]
    module.read = read_lines  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for kind, learnt_from in (("endings", "words"), ("line-endings", "corpus")):
        monkeypatch.setitem(segmenters.KINDS, kind, "endings.Endings")
        row = Kind(learnt_from, OWN, ("pieces",), {"glossary": "endings.read"}, {"fixed": True})
        monkeypatch.setitem(learn_segmenter.KINDS, kind, row)


def make_endings(output: str, kind: str = "endings", **options: Any) -> Manifest:
    given = EndingOptions(segmenter=kind, output=output, quiet=True, **options)
    return job.execute(learn_segmenter.JOB, given)


def expected_endings(lines: Sequence[str], size: int) -> list[str]:
    sums: dict[str, int] = {}
    for line in lines:
        for word in line.split(" "):
            if len(word) > 2:
                sums[word[-2:]] = sums.get(word[-2:], 0) + 1
    return sorted(sums, key=lambda ending: (-sums[ending], ending))[:size]


@pytest.mark.usefixtures("endings")
@pytest.mark.parametrize("shards", ["words", "words-7"])
@pytest.mark.parametrize("joint", [False, True])
def test_a_kind_learns_from_the_words_of_a_side_or_of_both(
    run: Path, tmp_path: Path, shards: str, joint: bool
) -> None:
    made = make_endings(f"{tmp_path}/s", words=f"{run}/{shards}", pieces=3, joint=joint)
    texts = {"both": [*SOURCE, *TARGET]} if joint else {"source": SOURCE, "target": TARGET}
    for side, lines in texts.items():
        found = json.loads((tmp_path / "s" / f"endings-{side}.json").read_text())
        assert found == expected_endings(lines, 3)
    assert made.rules["segmenter"]["joint_vocabulary"] == joint
    assert vocabularies.read_both(f"{tmp_path}/s").joint == joint
    done = job.execute(
        segment.JOB,
        segment.SegmentOptions(
            corpus=f"{run}/corpus", segmenter=f"{tmp_path}/s", output=f"{tmp_path}/d", quiet=True
        ),
    )
    both = vocabularies.read_both(f"{tmp_path}/d")
    rows = {r["id"]: r for url in done.urls for r in read_table(url, SEGMENTED).to_pylist()}
    assert [both.source.words(rows[i]["source"]) for i in range(len(SOURCE))] == SOURCE
    assert [both.target.words(rows[i]["target"]) for i in range(len(TARGET))] == TARGET


@pytest.mark.usefixtures("endings")
@pytest.mark.parametrize("joint", [False, True])
def test_a_kind_of_raw_text_learns_from_lines_and_counts_its_pieces_in_them(
    run: Path, tmp_path: Path, joint: bool
) -> None:
    lines_of = {"source": SOURCE, "target": TARGET}
    made = make_endings(
        f"{tmp_path}/s", "line-endings", corpus=f"{run}/corpus", pieces=2, joint=joint
    )
    found = {
        side: json.loads((tmp_path / "s" / f"endings-{side}.json").read_text())
        for side in made.rules["segmenter"]["settings"]
    }
    if joint:
        assert found == {"both": expected_endings([*SOURCE, *TARGET], 2)}
    else:
        assert found == {side: expected_endings(lines, 2) for side, lines in lines_of.items()}
    both = vocabularies.read_both(f"{tmp_path}/s")
    for side, lines in lines_of.items():
        # A text of this kind is a whole line.
        ends = found["both" if joint else side]
        expected = collections.Counter(
            piece
            for line in lines
            for piece in ([line[:-2], line[-2:]] if line[-2:] in ends else [line])
        )
        vocabulary = getattr(both, side)
        counts = getattr(vocabulary, f"{side}_counts")
        counted = {p: n for p, n in zip(vocabulary.pieces, counts, strict=True) if n}
        assert counted == expected


@pytest.mark.usefixtures("endings")
def test_a_class_gets_the_options_that_were_given_those_of_a_side_on_their_side(
    run: Path, tmp_path: Path
) -> None:
    shutil.copytree(f"{run}/words", f"{tmp_path}/words")
    words = manifests.read(f"{run}/words", "count-words", "")
    rules = {"text": {"source_language": "en", "target_language": "de"}}
    dataclasses.replace(words, rules=rules).write(f"{tmp_path}/words")
    (tmp_path / "glossary").write_text("one\ntwo\n")
    glossary = f"{tmp_path}/glossary"
    given = {"words": f"{tmp_path}/words", "pieces": 2, "source_language": "ru"}
    made = make_endings(f"{tmp_path}/s", **given, glossary=glossary)
    both = {"fixed": True, "pieces": 2, "glossary": ["one", "two"]}
    assert made.rules["segmenter"]["settings"] == {
        "source": {"given": {**both, "language": "ru"}},
        "target": {"given": {**both, "language": "de"}},
    }
    assert made.options["source_language"] == "ru"
    assert "target_language" not in made.options
    # A file shapes the result by what is in it.
    assert "glossary" not in made.options
    assert make_endings(f"{tmp_path}/s", **given, glossary=glossary) == made
    (tmp_path / "glossary").write_text("three\n")
    with pytest.raises(RarewordError, match="input 'glossary' differs"):
        make_endings(f"{tmp_path}/s", **given, glossary=glossary)
    (tmp_path / "glossary").write_text("bad\n")
    with pytest.raises(RarewordError, match="glossary: a bad line"):
        make_endings(f"{tmp_path}/t", **given, glossary=glossary)
    with pytest.raises(RarewordError, match="no file nowhere"):
        make_endings(f"{tmp_path}/t", **given, glossary="nowhere")
    assert not (tmp_path / "t").exists()


@pytest.mark.usefixtures("endings")
@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        (
            "words",
            {"pieces": 3},
            "--pieces is not for words but for .*endings, line-endings; leave",
        ),
        ("words", {"joint": True}, "--joint is not for words but for .*endings, line-endings"),
        ("hyphenation", {"pieces": None}, "hyphenation needs the language of each side: give"),
        ("endings", {"pieces": None}, "--segmenter endings needs --pieces"),
        ("line-endings", {}, "--words is not for line-endings but for "),
        ("line-endings", {"words": None}, "--segmenter line-endings needs --corpus"),
        ("endings", {"corpus": "x"}, "--corpus is not for endings but for .*line-endings"),
        ("endings", {"merges": "x"}, "--merges is not for endings but for bpe, bytes; leave"),
    ],
)
def test_options_of_other_kinds_are_refused(
    run: Path, tmp_path: Path, kind: str, options: dict[str, Any], sentence: str
) -> None:
    given = {"words": f"{run}/words", "pieces": None if kind == "words" else 2, **options}
    with pytest.raises(RarewordError, match=sentence):
        make_endings(f"{tmp_path}/s", kind, **given)


def test_every_kind_of_the_table_has_its_class_and_its_options() -> None:
    assert set(learn_segmenter.KINDS) == set(segmenters.KINDS)
    known = {field.name for field in dataclasses.fields(LearnSegmenterOptions)}
    for name, kind in learn_segmenter.KINDS.items():
        assert known >= set(kind.options) >= {*kind.needs, *kind.files}
        made = segmenters.class_of(name, "")
        learns = {"words": "learn", "corpus": "learn_text"}.get(kind.learnt_from, "__init__")
        asked = inspect.signature(getattr(made, learns)).parameters
        for option_name in (*kind.options, *kind.keywords):
            assert option_name.removeprefix("source_").removeprefix("target_") in asked


def test_words_beyond_the_limit_of_wordpiece_are_counted(run: Path, tmp_path: Path) -> None:
    make(f"{tmp_path}/s", "wordpiece", words=f"{run}/words", pieces=400, max_word_length=4)
    options = segment.SegmentOptions(
        output=f"{tmp_path}/out", corpus=f"{run}/corpus", segmenter=f"{tmp_path}/s", quiet=True
    )
    figures = job.execute(segment.JOB, options).figures
    for side, lines in (("source", SOURCE), ("target", TARGET)):
        words = [word for line in lines for word in line.split(" ")]
        assert figures[f"{side}_long_words"] == sum(len(word) > 4 for word in words) > 0
