"""Every kind of segmenter as jobs, on English and Russian: what is cut comes back."""

import dataclasses
import gzip
import json
import random
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import oracles
import pyarrow.parquet as pq
import pytest
from babel import Locale

from rareword.pipelines import count_words, job, learn_merges, learn_segmenter, prepare, segment
from rareword.schemas import manifest as manifests
from rareword.schemas import vocabulary as vocabularies
from rareword.schemas.manifest import Manifest
from rareword.schemas.tables import CORPUS, REJECTED, SEGMENTED, SIDES, Side, read_table
from rareword.schemas.vocabulary import UNK
from rareword.transforms import segmenters

Restores = Literal["all text", "known characters", "known pieces"]
"""What comes back: any text; that of characters of the training text; that of whole pieces."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A kind with its options. `merges`: directories of merges below the run, by option."""

    kind: str
    restores: Restores
    merges: Mapping[str, str] = dataclasses.field(default_factory=dict)
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    is_joint: bool = False


SEPARATE = {"source_merges": "merges-source", "target_merges": "merges-target"}
CASES = {
    "bpe separate": Case("bpe", "known characters", SEPARATE),
    "bpe joint": Case("bpe", "known characters", {"merges": "merges-joint"}, is_joint=True),
    "bpe joint iso9": Case("bpe", "known characters", {"merges": "merges-iso9"}, is_joint=True),
    "bpe with byte fallback": Case("bpe", "all text", SEPARATE, {"byte_fallback": True}),
    "bytes": Case("bytes", "all text", {"merges": "merges-bytes"}, is_joint=True),
    "wordpiece": Case("wordpiece", "known characters", options={"pieces": 300}),
    "unigram": Case("unigram", "known characters", options={"pieces": 300}),
    "sentencepiece": Case("sentencepiece", "all text", options={"pieces": 600}),
    "sentencepiece bpe": Case(
        "sentencepiece", "all text", options={"pieces": 600, "model_type": "bpe"}
    ),
    "char-ngram": Case("char-ngram", "known characters", options={"ngram": 2, "shortlist": 50}),
    "words": Case("words", "known pieces"),
    "compound": Case("compound", "known pieces"),
    "morfessor": Case("morfessor", "known pieces"),
    "hyphenation": Case("hyphenation", "known pieces"),
}
LEARNT = {
    "merges-source": {"side": "source"},
    "merges-target": {"side": "target"},
    "merges-joint": {},
    "merges-iso9": {"transliterate": "iso9"},
    "merges-bytes": {"units": "bytes"},
}


def test_every_kind_is_here() -> None:
    assert {case.kind for case in CASES.values()} == set(learn_segmenter.KINDS)


def lines_of(corpus: str) -> dict[Side, list[str]]:
    """The lines of a corpus by side, in the order of the ids."""
    urls = manifests.read(corpus, "prepare", "").urls
    rows = [row for url in urls for row in read_table(url, CORPUS).to_pylist()]
    rows.sort(key=lambda row: row["id"])
    return {side: [row[side] for row in rows] for side in SIDES}


class Run:
    """A training and a held-out corpus with the words of the first and merges of all sorts."""

    def __init__(self, directory: Path, merges: int) -> None:
        self.directory = directory
        self.lines = {name: lines_of(f"{directory}/{name}") for name in ("train", "held-out")}
        self._job(count_words, "words", corpus=f"{directory}/train", shards=2)
        for name, options in LEARNT.items():
            self._job(learn_merges, name, words=f"{directory}/words", merges=merges, **options)

    def _job(self, module: Any, output: str, **options: Any) -> Manifest:
        path = f"{self.directory}/{output}"
        typed = module.JOB.options(output=path, quiet=True, **options)
        return job.execute(module.JOB, typed)

    def segmenter(self, name: str, **more: Any) -> str:
        """Learns a case's segmenter; its directory below the run."""
        case = CASES[name]
        text = "corpus" if learn_segmenter.KINDS[case.kind].learnt_from == "corpus" else "words"
        where = "train" if text == "corpus" else "words"
        output = f"segmenter-{name.replace(' ', '-')}"
        self._job(
            learn_segmenter,
            output,
            segmenter=case.kind,
            **{text: f"{self.directory}/{where}"},
            **{option: f"{self.directory}/{place}" for option, place in case.merges.items()},
            **{**case.options, **more},
        )
        return output

    def segment(self, segmenter: str, corpus: str) -> tuple[Manifest, dict[Side, list[list[int]]]]:
        """The manifest, and the ids of each line by side, in the order of the rows' ids."""
        made = self._job(
            segment,
            f"{segmenter}-{corpus}",
            corpus=f"{self.directory}/{corpus}",
            segmenter=f"{self.directory}/{segmenter}",
        )
        rows = [row for url in made.urls for row in read_table(url, SEGMENTED).to_pylist()]
        rows.sort(key=lambda row: row["id"])
        return made, {side: [row[side] for row in rows] for side in SIDES}


def check(
    run: Run, name: str, corpora: Sequence[str] = ("train", "held-out"), **options: Any
) -> None:
    """What the kind claims, on the training corpus and on one with other words and characters."""
    case, segmenter = CASES[name], run.segmenter(name, **options)
    is_raw = learn_segmenter.KINDS[case.kind].learnt_from == "corpus"
    training = run.lines["train"]
    characters = {side: set().union(*training[side]) for side in SIDES}
    if case.is_joint:
        characters = dict.fromkeys(SIDES, characters["source"] | characters["target"])
    for corpus in corpora:
        made, ids = run.segment(segmenter, corpus)
        both = vocabularies.read_both(made.directory)
        for side in SIDES:
            vocabulary = getattr(both, side)
            lines = run.lines[corpus][side]
            unknown = sum(row.count(UNK) for row in ids[side])
            assert unknown == made.figures[f"{side}_unknown"]
            for line, row in zip(lines, ids[side], strict=True):
                if UNK not in row:
                    words = line if is_raw else " ".join(oracles.split_words(line))
                    assert vocabulary.words(row) == words
            strange = sum(c not in characters[side] for line in lines for c in line if c != " ")
            if corpus == "train" or case.restores == "all text":
                assert unknown == 0
            elif case.restores == "known characters":
                assert unknown == strange > 0
            else:
                assert strange > 0
                assert unknown == unknown_pieces(run, segmenter, made, side, lines) > 0


def unknown_pieces(
    run: Run, directory: str, made: Manifest, side: Side, lines: Sequence[str]
) -> int:
    """Of a kind that gives whole pieces: those that its segmenter cuts and that have no id."""
    rules = made.rules["segmenter"]
    place = f"{run.directory}/{directory}"
    one = segmenters.load(place, rules["kind"], rules["settings"])[side]
    vocabulary = getattr(vocabularies.read_both(place), side)
    known = set(zip(vocabulary.pieces[3:], vocabulary.final[3:], strict=True))
    unknown = 0
    for word, count in oracles.count_words(lines).items():
        (pieces,) = segmenters.pieces_of_words(one, [word])
        marked = [*((piece, False) for piece in pieces[:-1]), (pieces[-1], True)]
        unknown += count * sum(piece not in known for piece in marked)
    return unknown


# ---- a small corpus ----

NAMES = {code: dict(Locale(code).territories) for code in ("en", "ru")}
PAIRS = [(NAMES["en"][key], NAMES["ru"][key]) for key in sorted(NAMES["en"]) if key in NAMES["ru"]]
ODD = [
    ("the 猫 of </w> and @@ is <unk> \u2581 low", "это \U0001f600 и ▁ @@ в ёлке"),
    ("naïve łódź e\u0301 low-lower", "Ѳеодоръ не\u0301т да-да"),
]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Names of places in sentences; every seventh is held out, with odd lines."""
    path = tmp_path_factory.mktemp("small")
    pairs = [(f"The flag of {en} is new .", f"Флаг {ru} – новый .") for en, ru in PAIRS]
    train = [pair for i, pair in enumerate(pairs) if i % 7]
    options: dict[str, dict[str, Any]] = {
        "train": {
            "tokenise": "none", "truecase": "none", "shards": 2,
            "source_language": "en", "target_language": "ru",
        },
        "held-out": {"rules_from": f"{path}/train"},
    }  # fmt: skip
    for name, rows in (("train", train), ("held-out", [*pairs[::7], *ODD])):
        (path / f"{name}.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rows), "utf-8")
        given = {"input": (f"{path}/{name}.tsv",), "output": f"{path}/{name}", **options[name]}
        job.execute(prepare.JOB, prepare.PrepareOptions(quiet=True, **given))
    return Run(path, merges=150)


@pytest.mark.parametrize("name", CASES)
def test_a_kind_gives_back_what_it_says(small: Run, name: str) -> None:
    check(small, name)


# ---- real text ----

LANGUAGES = {"source_language": "en", "target_language": "ru"}
QUICK: dict[str, dict[str, Any]] = {
    **{name: {} for name in CASES if CASES[name].kind in ("bpe", "bytes", "words", "char-ngram")},
    "wordpiece": {"pieces": 2000, "min_frequency": 20},
    "unigram": {"pieces": 2000},
    "sentencepiece": {"pieces": 2000},
    "sentencepiece bpe": {"pieces": 2000},
    "compound": LANGUAGES,
    "hyphenation": LANGUAGES,
}
"""All but Morfessor, which is slow, with their options."""


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Run]:
    """The first pairs of a catalogue corpus; pairs of other documents and the odd lines are held
    out."""
    path, made = tmp_path_factory.mktemp("catalogue"), []

    def make(data: Path) -> Run:
        if not made:
            for name, file, rows in (("train", "enru.train", 2000), ("held-out", "enru.test", 600)):
                table = pq.read_table(data / "catalog" / f"{file}.parquet").slice(0, rows)
                sides = [table[side].to_pylist() for side in SIDES]
                if name == "held-out":
                    odd = zip(*ODD, strict=True)
                    sides = [[*lines, *more] for lines, more in zip(sides, odd, strict=True)]
                oracles.write_corpus(f"{path}/{name}", *sides, shards=3)
            made.append(Run(path, merges=2000))
        return made[0]

    return make


@pytest.mark.parametrize("name", QUICK)
def test_a_kind_gives_back_what_it_says_of_real_text(
    shared_data: Path, catalogue: Callable[[Path], Run], name: str
) -> None:
    check(catalogue(shared_data), name, **QUICK[name])


# ---- lines of all corpora ----


def lines_of_file(path: Path) -> list[str] | None:
    """The lines, or strings of rows, of a file as they stand; None if it is not UTF-8."""
    if path.suffix == ".parquet":
        table = pq.read_table(path, columns=list(SIDES))
        return [text for side in SIDES for text in table[side].to_pylist()]
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError:
        return None
    if path.suffix != ".jsonl":
        return lines
    rows = [json.loads(line) for line in lines if line]
    return [text for row in rows for side in SIDES if (text := row[side])]


def files_of(data: Path) -> dict[str, Path]:
    return {str(path.relative_to(data)): path for path in sorted(data.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Run]:
    """Fifty lines of every file, cleaned by nobody; the tenth part of them is learnt from."""
    path, made = tmp_path_factory.mktemp("everything"), []

    def make(data: Path) -> Run:
        if not made:
            lines: list[str] = []
            for name, file in files_of(data).items():
                found = lines_of_file(file) or []
                lines += random.Random(name).sample(found, min(50, len(found)))
            for name, some in (("train", lines[::10]), ("held-out", lines)):
                half = len(some) // 2
                oracles.write_corpus(f"{path}/{name}", some[:half], some[half : 2 * half])
            made.append(Run(path, merges=2000))
        return made[0]

    return make


@pytest.mark.parametrize("name", QUICK)
def test_a_kind_gives_back_what_it_says_of_lines_of_every_corpus(
    shared_data: Path, everything: Callable[[Path], Run], name: str
) -> None:
    more = {"pieces": 6000} if "pieces" in QUICK[name] else {}  # there are many characters
    check(everything(shared_data), name, ["held-out"], **{**QUICK[name], **more})


def test_files_that_are_not_utf8_are_refused_with_line_and_byte(
    shared_data: Path, small: Run, tmp_path: Path
) -> None:
    broken = [path for path in files_of(shared_data).values() if lines_of_file(path) is None]
    assert "invalid_utf8_truncated.bin" in {path.name for path in broken}
    learnt = small.directory / small.segmenter("words")
    command = [sys.executable, "-m", "rareword.pipelines.cli", "segment-text", "--side", "source"]
    for path in broken:
        wrong = {}
        for row, line in enumerate(path.read_bytes().split(b"\n")):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                wrong[row] = error.start
        done = subprocess.run(
            [*command, "--segmenter", str(learnt)], input=path.read_bytes(), capture_output=True,
            check=False,
        )  # fmt: skip
        row, byte = next(iter(wrong.items()))
        assert done.returncode == 1
        assert f"line {row + 1}: byte {byte} is not UTF-8" in done.stderr.decode()

        output = f"{tmp_path}/{path.name}"
        options = prepare.PrepareOptions(
            source=(str(path),), target=(str(path),), output=output, quiet=True, tokenise="none",
            truecase="none", max_rejected=1.0,
        )  # fmt: skip
        job.execute(prepare.JOB, options)
        rejected = {
            row["id"]: row["reason"]
            for file in Path(output, "rejected").glob("*.parquet")
            for row in read_table(str(file), REJECTED).to_pylist()
            if "UTF-8" in row["reason"]
        }
        assert rejected == {row: f"source is not UTF-8: byte {byte}" for row, byte in wrong.items()}
