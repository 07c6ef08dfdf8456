"""The compare-segmenters job on a text small enough to segment with plain Python."""

import collections
import gzip
import json
import random
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import oracles
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from rareword.pipelines import cli, comparison_report
from rareword.schemas import manifest as manifests
from rareword.schemas.manifest import Plan
from rareword.schemas.tables import WORDS, write_shard

SEGMENTERS: list[dict[str, Any]] = [
    {"kind": "words"},
    {"kind": "characters"},
    {"kind": "bpe", "merges": 30},
    {"kind": "bpe-joint", "merges": 30, "label": "joint <b>|</b>"},
    {"kind": "bytes", "merges": 30},
]


def made_up(seed: int, letters: str, lines: int) -> list[str]:
    """Lines of words that share their parts; the first words are frequent."""
    chance = random.Random(seed)
    parts = ["".join(chance.choices(letters, k=chance.randint(1, 4))) for _ in range(30)]
    words = ["".join(chance.choices(parts, k=chance.randint(1, 3))) for _ in range(80)]
    weights = [1 / rank for rank in range(1, 81)]
    return [" ".join(chance.choices(words, weights, k=chance.randint(0, 7))) for _ in range(lines)]


TRAIN = {"source": made_up(1, "abcdefg", 200), "target": made_up(2, "abcdxyzß", 200)}
TEST = [*TRAIN["target"][:30], *made_up(3, "abcdxyzßqµ", 40)]
NAMES = [("Mir za", "Мир за"), ("Caen", "Каен"), ("Xyz", "Абв"), ("Mir za", "Мир за")]
GOLD = "compound\tmodifier1\thead\nabcd\tab\tcd\nxyzab\txyz\tab\n"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("comparison")
    for side, lines in TRAIN.items():
        (root / f"train.{side}").write_text("\n".join(lines) + "\n", "utf-8")
    with gzip.open(root / "test.target.gz", "wt", encoding="utf-8") as stream:
        stream.write("\n".join(TEST) + "\n")
    pq.write_table(pa.table({"en": TRAIN["source"], "de": TRAIN["target"]}), root / "train.parquet")
    oracles.write_corpus(str(root / "corpus"), TRAIN["source"], TRAIN["target"])
    counts = {side: oracles.count_words(lines) for side, lines in TRAIN.items()}
    words = sorted({*counts["source"], *counts["target"]})
    columns = {f"{side}_count": [counts[side][word] for word in words] for side in TRAIN}
    table = pa.table({"word": words, **columns}, schema=WORDS.fields)
    shard = write_shard(str(root / "words"), "part-00000-of-00001.parquet", WORDS, [table])
    manifests.finish(Plan("count-words", {}, {}), str(root / "words"), WORDS, [shard])
    (root / "names.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in NAMES), "utf-8")
    (root / "gold.txt").write_text(GOLD, "utf-8")
    return root


def config(data: Path, **changes: Any) -> dict[str, Any]:
    value: dict[str, Any] = {
        "training": {"source": f"{data}/train.source", "target": f"{data}/train.target"},
        "held_out": {"target": f"{data}/test.target.gz"},
        "segmenters": SEGMENTERS,
        "gold": {"file": f"{data}/gold.txt"},
        "names": {"file": f"{data}/names.tsv", "max_distance": 0.5},
        "sweep": {"merges": [4, 12, 40], "rare": [3]},
        "suggestion": {"share": 0.8, "occurrences": 5},
        "stress": {"words": 20},
    }
    return {key: found for key, found in {**value, **changes}.items() if found is not None}


def run(tmp_path: Path, value: dict[str, Any], name: str = "report", *more: str) -> Path:
    path = tmp_path / "comparison.yaml"
    path.write_text(yaml.safe_dump({"output": str(tmp_path / name), **value}), "utf-8")
    assert cli.main(["compare-segmenters", str(path), "--quiet", *more]) == 0
    return tmp_path / name


def result(report: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((report / "comparison.json").read_text("utf-8"))
    return found


@pytest.fixture(scope="module")
def report(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("run"), config(data))


def by_label(found: dict[str, Any]) -> dict[str, Any]:
    return {one["label"]: one for one in found["segmenters"]}


def pieces(lines: list[str], cut: Any) -> collections.Counter:
    return collections.Counter(
        piece for line in lines for word in oracles.split_words(line) for piece in cut(word)
    )


def learnt(limit: int, *sides: str) -> Any:
    """Cuts words by merges of the text of these sides."""
    counts = sum((oracles.count_words(TRAIN[side]) for side in sides), collections.Counter())
    merges = [pair for pair, _ in oracles.learn_bpe(counts, limit)]
    return lambda word: oracles.segment_word(word, merges)


CUTS = {
    "words": lambda word: [(word, True)],
    "characters": oracles.characters,
    "bpe, merges 30": learnt(30, "target"),
    "joint <b>|</b>": learnt(30, "source", "target"),
}


@pytest.mark.parametrize("label", CUTS)
def test_the_table_is_that_of_the_segmented_lines(report: Path, label: str) -> None:
    found = by_label(result(report))[label]["statistics"]
    train, test = pieces(TRAIN["target"], CUTS[label]), pieces(TEST, CUTS[label])
    words = sum(oracles.count_words(TRAIN["target"]).values())
    assert found["tokens"] == sum(train.values())
    assert found["types"] == len(train)
    assert found["unknown_tokens"] == sum(n for piece, n in test.items() if piece not in train)
    assert found["fertility"] == pytest.approx(found["tokens"] / words)
    sentences = sum(bool(line.strip()) for line in TRAIN["target"])
    assert found["tokens_per_sentence"] == pytest.approx(found["tokens"] / sentences)
    characters = set("".join(TRAIN["target"]))
    unknown = sum(c not in characters for line in TEST for c in line if c != " ")
    if label != "words":
        assert found["unk_pieces"] == unknown > 0
    else:
        assert found["unk_pieces"] == found["unknown_tokens"]


def test_the_sweep_and_its_suggestion(report: Path) -> None:
    sweep = result(report)["sweep"]
    points = {point["merges"]: point for point in sweep["points"]}
    assert {4, 12, 40} <= set(points)

    def oracle(merges: int) -> collections.Counter:
        return pieces(TRAIN["target"], learnt(merges, "target"))

    for merges, point in points.items():
        train = oracle(merges)
        assert point["tokens"] == sum(train.values())
        assert point["types"] == len(train)
        assert point["types_at_least"] == {
            str(often): sum(n >= often for n in train.values()) for often in (3, 5)
        }

    def holds(merges: int) -> bool:
        train = oracle(merges)
        return sum(n >= 5 for n in train.values()) >= 0.8 * len(train)

    suggested = sweep["suggestion"]["merges"]
    assert suggested is not None
    assert holds(suggested)
    assert suggested == 40 or not holds(suggested + 1)
    assert suggested >= max((size for size in (4, 12, 40) if holds(size)), default=0)


def test_names_and_boundaries_and_stress(report: Path) -> None:
    found = result(report)
    # The fourth pair is the first again; Xyz and Абв share no letter.
    assert found["names"] == {"pairs": 3, "transliterations": 2, "max_distance": 0.5}
    assert found["gold"]["words"] == 2
    characters = by_label(found)["characters"]
    assert characters["names"]["pairs"] == characters["names"]["consistent"] == 2
    assert characters["names"]["both_whole"] == 0
    assert by_label(found)["words"]["names"]["both_whole"] == 2
    # abcd has 3 places to cut and xyzab 4; each word has one cut.
    assert characters["boundaries"]["recall"] == 1.0
    assert characters["boundaries"]["precision"] == pytest.approx(2 / 7)
    for label, one in by_label(found).items():
        for kind, stress in one["stress"].items():
            assert stress["words"] > 0
            assert stress["spoilt"] == 0 or label == "words"
            if label == "bytes, merges 30":
                assert stress["unknown_pieces"] == 0
            elif label != "words":
                assert stress["unknown_pieces"] == stress["unknown_characters"]
            elif kind == "emoji":
                assert stress["unknown_pieces"] == stress["pieces"] == stress["words"]
                assert stress["spoilt"] > 0


@pytest.mark.parametrize(
    "training",
    [
        {"corpus": "{data}/corpus"},
        {"words": "{data}/words"},
        {"parquet": "{data}/train.parquet", "source_column": "en", "target_column": "de"},
    ],
    ids=["corpus", "words", "parquet"],
)
def test_every_form_of_the_text_gives_the_same_table(
    data: Path, report: Path, tmp_path: Path, training: dict[str, str]
) -> None:
    training = {key: text.format(data=data) for key, text in training.items()}
    found, expected = result(run(tmp_path, config(data, training=training))), result(report)
    if "words" in training:
        expected["training"]["sentences"] = None
        for one in expected["segmenters"]:
            one["statistics"]["tokens_per_sentence"] = None
    assert found == expected
    assert "–" in (tmp_path / "report" / "comparison.md").read_text("utf-8") or (
        "words" not in training
    )


def test_the_same_inputs_give_the_same_bytes(data: Path, report: Path, tmp_path: Path) -> None:
    again = run(tmp_path, config(data))
    assert (again / "comparison.json").read_bytes() == (report / "comparison.json").read_bytes()


def test_a_finished_comparison_is_skipped_and_another_refused(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = config(data, gold=None, names=None, sweep=None, suggestion=None)
    report = run(tmp_path, small)
    before = (report / "seconds.json").stat().st_mtime_ns
    run(tmp_path, small)
    assert (report / "seconds.json").stat().st_mtime_ns == before
    assert set(result(report)["segmenters"][0]) >= {"statistics", "stress"}
    assert not {"names", "boundaries"} & set(result(report)["segmenters"][0])
    path = tmp_path / "comparison.yaml"
    path.write_text(yaml.safe_dump({**small, "output": str(report), "side": "source"}), "utf-8")
    assert cli.main(["compare-segmenters", str(path)]) == 1  # the held-out text has no source side
    small["held_out"] = {"source": f"{data}/train.source"}
    path.write_text(yaml.safe_dump({**small, "output": str(report), "side": "source"}), "utf-8")
    capsys.readouterr()
    assert cli.main(["compare-segmenters", str(path)]) == 1
    assert "holds another run" in capsys.readouterr().err
    assert cli.main(["compare-segmenters", str(path), "--overwrite", "--quiet"]) == 0


def test_a_dry_run_writes_nothing(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = run(tmp_path, config(data), "elsewhere", "--dry-run", f"--output={tmp_path}/report")
    assert not report.exists()
    assert not (tmp_path / "report").exists()
    assert f"would write {tmp_path}/report" in capsys.readouterr().out


# ---- the page ----


class Outline(HTMLParser):
    """Checks that tags nest."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: collections.Counter[str] = collections.Counter()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.links += [str(value) for name, value in attrs if name in ("href", "src")]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_else(report: Path) -> None:
    page = (report / "index.html").read_text("utf-8")
    outline = Outline()
    outline.feed(page)
    assert outline.open == []
    assert not set(outline.tags) & {"script", "link", "img", "iframe", "b"}
    assert outline.links == []
    assert outline.tags["figure"] == 6  # segmenters, and five curves
    assert outline.tags["table"] == 5
    assert "joint &lt;b&gt;|&lt;/b&gt;" in page


def test_curves_stay_inside_their_drawing(report: Path) -> None:
    page = (report / "index.html").read_text("utf-8")
    texts = re.findall(r'<svg [^>]*role="img".*?</svg>', page, re.DOTALL)
    assert len(texts) == 6
    for text in texts:
        drawing = ET.fromstring(text)
        width, height = map(float, drawing.attrib["viewBox"].split()[2:])
        points = {
            tuple(map(float, path.attrib["transform"][len("translate(") : -1].split()))
            for path in drawing.iter("path")
        }
        assert len(points) > 1
        assert all(0 < x < width and 0 < y < height for x, y in points)
        if drawing.find(".//polyline") is not None:
            assert len({x for x, _ in points}) > 1


def test_the_markdown_tables_have_a_row_for_each_segmenter(report: Path) -> None:
    text = (report / "comparison.md").read_text("utf-8")
    assert text.count("| joint &lt;b>\\|&lt;/b> |") == 4
    heads = [line for line in text.splitlines() if line.startswith("|---")]
    assert len(heads) == 5


def test_a_suggestion_that_no_size_fulfils_is_said_to_be_none(data: Path, tmp_path: Path) -> None:
    value = config(data, suggestion={"share": 1.0, "occurrences": 10**6})
    found = result(run(tmp_path, value))
    assert found["sweep"]["suggestion"]["merges"] is None
    assert "none of those looked at" in comparison_report.suggestion(found)
    assert "pieces: merged" in comparison_report.suggestion(found)


# ---- what is wrong with a config ----

WRONG = [
    ({"segmentors": []}, "unknown key 'segmentors'; did you mean 'segmenters'?"),
    ({"training": None}, "the key 'training' is missing"),
    ({"training": {}}, "training: give one of words, corpus, parquet, source and target; none"),
    (
        {"training": {"words": "{data}/words", "corpus": "{data}/corpus"}},
        "training: give one of words, corpus, parquet, source and target; words and corpus are",
    ),
    ({"training": {"target": "{data}/none.txt"}, "names": None}, "needs that side too"),
    ({"training": {"source": "{data}/no", "target": "{data}/no"}}, "training.source: no file"),
    ({"training": {"corpus": "{data}/words"}}, "training.corpus: "),
    ({"training": {"parquet": "{data}/train.parquet"}}, "training.source_column: "),
    ({"held_out": {"words": "{data}/words"}}, "held_out.words: lines are needed"),
    ({"held_out": {"source": "{data}/train.source"}}, "held_out: the key 'target' is missing"),
    ({"side": "both"}, "side: 'both' is not one of source, target"),
    ({"segmenters": None}, "segmenters: expected a list"),
    ({"segmenters": [{"kind": "bpee", "merges": 3}]}, "no segmenter 'bpee'; did you mean 'bpe'?"),
    ({"segmenters": [{"kind": "bpe"}]}, "number 1: the key 'merges' is missing"),
    ({"segmenters": [{"kind": "bpe", "merges": "3"}]}, "number 1.merges: expected int, found '3'"),
    ({"segmenters": [{"kind": "bpe", "merges": -1}]}, "number 1.merges: -1 is below 0"),
    (
        {"segmenters": [{"kind": "words"}, {"kind": "bpe", "merge": 3}]},
        "number 2: unknown key 'merge'; did you mean 'merges'?",
    ),
    ({"segmenters": [{"kind": "words"}] * 2}, "number 2: the label 'words' is taken"),
    ({"segmenters": [{"merges": 3}]}, "number 1: the key 'kind' is missing"),
    (
        {"segmenters": [{"kind": "bytes", "merges": 3, "transliterate": "iso9"}]},
        "number 1.transliterate: only kind bpe has it, not bytes",
    ),
    ({"segmenters": [{"kind": "characters", "merges": 3}]}, "leave the key out"),
    ({"segmenters": [{"kind": "char-ngram", "ngramm": 2}]}, "did you mean 'ngram'?"),
    ({"segmenters": [{"kind": "char-ngram", "ngram": 0}]}, "number 1 (char-ngram, ngram 0): "),
    ({"sweep": {"merges": []}}, "sweep.merges: the list is empty"),
    ({"sweep": {"merges": [-1]}}, "sweep.merges: -1 is below 0"),
    ({"sweep": None}, "suggestion: the numbers of merges to choose from are missing"),
    ({"suggestion": {"share": 95}}, "suggestion.share: 95.0 is above 1"),
    ({"names": {"file": "{data}/no.tsv"}}, "no file"),
    ({"names": {"file": "{data}/names.tsv", "target_column": "3"}}, "row 1 lacks a name"),
    ({"names": {"file": "{data}/names.tsv", "target_column": "ru"}}, "a column's number from 1"),
    ({"gold": {"file": "{data}/train.source"}}, "gold: "),
    ({"stress": {"word": 3}}, "stress: unknown key 'word'; did you mean 'words'?"),
]


@pytest.mark.parametrize(("change", "sentence"), WRONG, ids=[sentence for _, sentence in WRONG])
def test_what_is_wrong_is_named(
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, Any],
    sentence: str,
) -> None:
    path = tmp_path / "wrong.yaml"
    value = {"output": str(tmp_path / "report"), **config(data, **change)}
    text = yaml.safe_dump(value).replace("{data}", str(data))
    path.write_text(text, "utf-8")
    assert cli.main(["compare-segmenters", str(path)]) == 1
    error = capsys.readouterr().err
    assert sentence in error
    assert error.startswith(f"rareword compare-segmenters: {path}") or "no file" in error
    assert not (tmp_path / "report").exists()


def test_text_that_is_not_utf8_is_named_with_its_row(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.txt").write_bytes(b"good\nb\xe4d\n")
    path = tmp_path / "comparison.yaml"
    value = config(data, held_out={"target": f"{tmp_path}/bad.txt"}, output=f"{tmp_path}/report")
    path.write_text(yaml.safe_dump(value), "utf-8")
    assert cli.main(["compare-segmenters", str(path), "--quiet"]) == 1
    assert "bad.txt: row 2: byte 1 is not UTF-8" in capsys.readouterr().err
    assert not (tmp_path / "report").exists()


def test_wrong_calls_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["compare-segmenters", str(tmp_path / "none.yaml")]) == 1
    assert "no file" in capsys.readouterr().err
    path = tmp_path / "empty.yaml"
    path.write_text("side: target\n", "utf-8")
    assert cli.main(["compare-segmenters", str(path), "--overwrit"]) == 1
    assert "did you mean --overwrite?" in capsys.readouterr().err
    assert cli.main(["compare-segmenters", str(path)]) == 1
    assert "the key 'output' is missing" in capsys.readouterr().err


def test_a_real_corpus_has_the_relations_of_the_papers_table(
    shared_data: Path, tmp_path: Path
) -> None:
    """BPE adds little length and leaves (nearly) nothing unknown; characters are five times as
    long; words leave most unknown."""
    table = pq.read_table(shared_data / "catalog" / "ende.train.parquet").slice(0, 30_000)
    (tmp_path / "train.de").write_text("\n".join(table["target"].to_pylist()) + "\n", "utf-8")
    test = shared_data / "catalog" / "ende.test.parquet"
    kinds = [{"kind": "words"}, {"kind": "characters"}, {"kind": "bpe", "merges": 4000}]
    value = {
        "training": {"target": str(tmp_path / "train.de")},
        "held_out": {"parquet": str(test)},
        "segmenters": kinds,
    }
    found = result(run(tmp_path, value))["segmenters"]
    words, characters, bpe = (one["statistics"] for one in found)
    assert bpe["fertility"] < 2
    assert characters["fertility"] > 4
    assert characters["types"] < bpe["types"] < words["types"]
    assert bpe["unk_pieces"] == characters["unk_pieces"]
    assert bpe["unknown_tokens"] < words["unknown_tokens"] / 10
