"""The page of an evaluation: its figures against the metrics, its text against the inputs, and what
its script does in a browser."""

import html
import itertools
import json
import math
import re
import shutil
import unicodedata
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluation_inputs import (
    CORPUS_ROWS,
    MODEL_ROWS,
    WORD_ROWS,
    Weights,
    content,
    evaluate,
    write_references,
    write_segmented,
    write_translations,
    write_words,
)

from rareword.pipelines import systems
from rareword.pipelines.figures import Style
from rareword.schemas import tables

# ---- a test set of any text ----

HOSTILE = (
    "<script>window.hacked=1</script>",
    "</script><script>window.hacked=2</script>",
    "<img/src=x/onerror=window.hacked=3>",
    "\"/onmouseover='window.hacked=4'",
    "<!--<script>",
    "]]></svg>",
    "one\u2028line",
    "{{7*7}}",
    "&lt;b&gt;",
    "שלום",
    "العالم",
    "日本",
)
"""Words as no tokeniser leaves them."""
NAME, UNCUT, PLAIN = '<i>"m"</i>', "it's</script>", "plain"
RAREST = 5
TRAINED = {"le": 900, "chat": 40, "faux": 8, "loutre": 3, "belette": RAREST, "jamais": 1}


def cut(word: str) -> list[str]:
    """Two letters, and the rest."""
    return [word[:2], word[2:]] if len(word) > 3 else [word]


def displayed(words: Sequence[str], cutting: bool) -> list[str]:
    """As translations have their pieces."""
    parts = [cut(word) if cutting else [word] for word in words]
    return [
        piece + ("@@" if place < len(part) else "")
        for part in parts
        for place, piece in enumerate(part, 1)
    ]


@dataclass
class Inputs:
    """What a page is made of."""

    pairs: list[tuple[int, str, str]] = field(default_factory=list)
    outputs: dict[str, dict[int, list[str]]] = field(default_factory=dict)
    """Words by system and id."""
    alignments: dict[str, dict[int, Weights]] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    page: Path = Path()

    def kinds(self, target: str) -> set[str]:
        counts = [TRAINED.get(word, 0) for word in target.split(" ")]
        found = {"rare"} if any(1 <= count <= RAREST for count in counts) else set()
        return found | ({"unseen"} if 0 in counts else set())

    def wrong(self, system: str, id_: int, target: str) -> bool:
        return self.outputs[system][id_] != target.split(" ")


def some_pairs() -> Iterator[tuple[int, str, str]]:
    for number in range(24):
        target = ["le"]
        target += ["chat"] * (number % 2)
        target += ["loutre"] * (number % 3 == 0) + ["belette"] * (number % 7 == 1)
        target += [f"inconnu{number}"] * (number % 4 == 0)
        yield (number * 37) % 101, f"the thing{number}", " ".join(target)
    for number, word in enumerate(HOSTILE):
        yield 200 + number, f"{word} a {word}", f"{word} le {word}"
    yield 300, "Straße İ", "Ça ΟΔΟΣ"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    """A page of three systems: one with pieces, one of whole words, one without attention."""
    root = tmp_path_factory.mktemp("page")
    made = Inputs(list(some_pairs()))
    words = {word for pair in made.pairs for side in pair[1:] for word in side.split(" ")}
    right = {id_: target.split(" ") for id_, _, target in made.pairs}
    generator = np.random.default_rng(1)
    made.outputs[PLAIN] = right
    made.outputs[NAME] = {
        id_: [*target[:-1], "faux"] if id_ % 5 == 0 else target for id_, target in right.items()
    }
    made.outputs[UNCUT] = {
        id_: words if id_ % 2 else ["le", "loutre"] for id_, words in made.outputs[NAME].items()
    }
    made.outputs[UNCUT][204] = []
    segmented = {
        NAME: write_segmented(root / "cut", made.pairs, {word: cut(word) for word in words}),
        UNCUT: write_segmented(root / "uncut", made.pairs, {}),
    }
    directories = {}
    for number, (name, outputs) in enumerate(made.outputs.items()):
        if name != PLAIN:
            made.alignments[name] = {
                id_: weights(generator, source, outputs[id_], cutting=name == NAME)
                for id_, source, _ in made.pairs
            }
        rows = [
            (id_, " ".join(words), displayed(words, cutting=name == NAME))
            for id_, words in outputs.items()
        ]
        directories[name] = write_translations(
            root / f"system-{number}",
            rows,
            content(segmented[name]) if name in segmented else "unknown",
            {id_: -0.1 - (id_ * 13 % 17) / 10 for id_ in right},
            made.alignments.get(name),
        )
    made.arguments = [
        f"--name={NAME}",
        f"--translations={directories[NAME]}",
        *(f"--baseline={name}={directories[name]}" for name in (UNCUT, PLAIN)),
        f"--references={write_references(root / 'references', made.pairs, made.pairs)}",
        f"--words={write_words(root / 'words', TRAINED)}",
        "--segmented",
        *map(str, segmented.values()),
        f"--rare-threshold={RAREST}",
    ]
    evaluate([*made.arguments, "--samples=1000", "--quiet"], root / "report")
    made.page = root / "report" / "index.html"
    return made


def weights(
    generator: np.random.Generator, source: str, output: Sequence[str], cutting: bool
) -> Weights:
    """Attention of an output; it gives nothing away of how it is stored."""
    columns, rows = (len(displayed(words, cutting)) + 1 for words in (source.split(" "), output))
    found = generator.dirichlet(np.ones(columns), rows).astype(np.float32)
    return [[float(weight) for weight in row] for row in found]


@pytest.fixture
def small(tmp_path: Path) -> list[str]:
    """A test set that can be counted by hand."""
    segmented = write_segmented(tmp_path / "segmented")
    model = write_translations(tmp_path / "model", MODEL_ROWS, content(segmented))
    return [
        f"--translations={model}",
        f"--references={write_references(tmp_path / 'references')}",
        f"--words={write_words(tmp_path / 'words')}",
        f"--segmented={segmented}",
        f"--baseline=words={write_translations(tmp_path / 'word-level', WORD_ROWS)}",
        "--rare-threshold=5",
    ]


# ---- the page as text ----


class Outline(HTMLParser):
    """Checks that tags nest; keeps tags, links, ids and the cells of tables."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.named: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        given = {name: value or "" for name, value in attrs}
        self.links += [given[name] for name in ("href", "src") if name in given]
        self.ids += [given["id"]] if "id" in given else []
        self.named += given.get("aria-labelledby", "").split()
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag not in ("meta", "br", "link", "img", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data


def test_the_page_is_whole_and_needs_nothing_else(made: Inputs) -> None:
    page = made.page.read_text("utf-8")
    outline = Outline(page)
    assert not outline.tags & {"link", "img", "iframe", "b", "i", "object", "style/"}
    assert all(link.startswith("#") for link in outline.links)
    assert {link[1:] for link in outline.links} <= set(outline.ids)
    assert set(outline.named) <= set(outline.ids)
    assert len(set(outline.ids)) == len(outline.ids)
    assert "url(" not in page
    assert "://" not in page


def test_the_tables_are_those_of_the_markdown(made: Inputs) -> None:
    text = (made.page.parent / "metrics.md").read_text("utf-8")
    blocks = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    expected = []
    for block in blocks:
        lines = [re.split(r"(?<!\\)\|", line)[1:-1] for line in block.splitlines()]
        cells = [[html.unescape(cell.strip().replace("\\|", "|")) for cell in x] for x in lines]
        expected.append([cells[0], *cells[2:]])
    found = Outline(made.page.read_text("utf-8")).tables
    assert len(found) == 9  # three of confidence
    assert found == expected


def test_text_is_escaped(made: Inputs, small: list[str], tmp_path: Path) -> None:
    page = made.page.read_text("utf-8")
    for text in (*HOSTILE[:6], NAME, UNCUT):
        assert text not in page
        assert html.escape(text).replace("&#x27;", "&#39;").replace("&quot;", "&#34;") in page
    assert page.count("</script>") == page.count("<script") == 2
    _, page = evaluate([*small, "--name=<i>mine</i>"], tmp_path / "report")
    assert "<i>mine" not in page
    assert "&lt;i&gt;mine&lt;/i&gt;" in page


def lines(page: str, id_: int) -> dict[str, str]:
    """The lines of a sample: `|` between pieces; `*` at unseen, `+` at rare, `~` at wrong words."""
    sample = re.search(rf'id="sentence-{id_}".*?</dl>', page, re.DOTALL)
    assert sample
    found = {}
    for name, line in re.findall(r"<dt>(.*?)</dt><dd.*?>(.*?)</dd>", sample[0], re.DOTALL):
        words = re.findall(r'<span class="word(.*?)">(.*?)</span></span>', line)
        found[re.sub("<.*?>", "", name)] = " ".join(
            "*" * ("unseen" in marks)
            + "+" * ("rare" in marks)
            + "~" * ("wrong" in marks)
            + "|".join(re.sub("<.*?>", "", piece) for piece in word.split("</span>"))
            for marks, word in words
        )
    return found


def test_samples_show_pieces_rare_unseen_and_wrong_words(tmp_path: Path, small: list[str]) -> None:
    _, page = evaluate(small, tmp_path / "report")
    assert lines(page, 20) == {
        "source": "a ze|bra , a gnu .",
        # Its pieces hold <unk>, so it is shown in whole words.
        "reference": "ein *Zebra , ein *Gnu .",
        "model": "ein *Ze|bra , ein ~Hund .",
        "words": "ein ~&lt;unk&gt; , ein ~&lt;unk&gt; .",
    }
    assert lines(page, 10)["reference"] == "der Hund +bellt ."
    assert lines(page, 10)["model"] == "der Hund ~Hund ."
    assert lines(page, 30)["model ✓"] == "der +Ka|ter *schl|äft ."


def test_the_number_of_samples_is_an_option(tmp_path: Path, small: list[str]) -> None:
    _, page = evaluate([*small, "--samples=2"], tmp_path / "two")
    assert page.count('class="sample"') == 2
    _, page = evaluate([*small, "--samples=0"], tmp_path / "none")
    assert "Samples" not in page
    assert "<script" not in page
    assert Outline(page).tables


def test_one_system_alone_does_not_differ(tmp_path: Path, small: list[str]) -> None:
    _, page = evaluate([a for a in small if "--baseline" not in a], tmp_path / "report")
    assert "systems differ" not in page
    assert "any system is wrong" not in page
    assert "model is wrong" in page


# ---- attention ----


def stored_maps(page: str) -> list[dict[str, Any]]:
    (text,) = re.findall(r'<script type="application/json" id="maps">(.*?)</script>', page)
    assert not set(text) & set("<>&'\u2028\u2029")
    return json.loads(text)


def test_maps_have_the_weights_of_the_samples(made: Inputs) -> None:
    maps = stored_maps(made.page.read_text("utf-8"))
    expected = []
    for id_, source, _ in sorted(made.pairs):
        for name in (NAME, UNCUT):
            sides = (made.outputs[name][id_], source.split(" "))
            rows, columns = ([*displayed(s, cutting=name == NAME), "</s>"] for s in sides)
            expected.append((rows, columns, made.alignments[name][id_]))
    assert len(maps) == len(expected)
    for found, (rows, columns, alignment) in zip(maps, expected, strict=True):
        assert (found["rows"], found["columns"]) == (rows, columns)
        weights = np.reshape(found["weights"], (len(rows), len(columns)))
        assert weights.dtype == np.int64
        assert np.abs(weights / 1000 - alignment).max() <= 0.0005 + 1e-6


def test_the_page_says_how_to_get_what_it_lacks(
    made: Inputs, tmp_path: Path, small: list[str]
) -> None:
    text = re.sub(r"\s+", " ", made.page.read_text("utf-8"))
    assert "No attention of plain: <code>rareword decode --alignments</code>" in text
    assert "source pieces are not known" not in text

    _, page = evaluate(small, tmp_path / "without")
    assert "No attention of any system: <code>rareword decode --alignments</code>" in page
    assert stored_maps(page) == []
    assert 'data-map="' not in page

    place = made.arguments.index("--segmented")
    arguments = made.arguments[: place + 2] + made.arguments[place + 3 :]  # the first alone
    _, page = evaluate([*arguments, "--quiet"], tmp_path / "one")
    assert f"No attention maps of {html.escape(UNCUT).replace('&#x27;', '&#39;')}: their" in page
    assert len(stored_maps(page)) == 20


def test_an_output_without_weights_has_no_map(tmp_path: Path) -> None:
    segmented = write_segmented(tmp_path / "segmented")
    alignments = {30: [[0.25] * 5] * 7, 10: [[0.2] * 5] * 5, 20: None}  # 40 was not searched for
    model = write_translations(
        tmp_path / "model", MODEL_ROWS, content(segmented), alignments=alignments
    )
    _, page = evaluate(
        [
            f"--translations={model}",
            f"--references={write_references(tmp_path / 'references')}",
            f"--words={write_words(tmp_path / 'words')}",
            f"--segmented={segmented}",
        ],
        tmp_path / "report",
    )
    assert [found["columns"] for found in stored_maps(page)] == [
        ["the", "dog", "barks", ".", "</s>"],
        ["the", "cat", "sleeps", ".", "</s>"],
    ]
    assert page.count("data-map=") == 2


def test_only_row_groups_with_samples_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "ROW_GROUP_BYTES", 1)
    found = [(id_, "x", ["x"]) for id_ in range(50)]
    directory = write_translations(
        tmp_path / "many", found, alignments={id_: [[id_, 1.0]] * 2 for id_ in range(50)}
    )
    read = []

    def watched(file: Any, index: int, url: str, columns: list[str]) -> Any:
        table = original(file, index, url, columns)
        if "alignment" in columns:
            read.append(table.num_rows)
        return table

    original = tables.read_row_group
    monkeypatch.setattr(tables, "read_row_group", watched)
    details = systems.read_details(str(directory), None, [3, 47])
    assert details.alignments == {3: [[3, 1]] * 2, 47: [[47, 1]] * 2}
    assert len(read) == 4  # a best and a second translation of each
    assert details.sources == {}


# ---- figures ----


def drawings(page: str) -> dict[str, ET.Element]:
    """The drawn figures by id, parsed as XML."""
    found = {}
    for id_, figure in re.findall(r'<figure id="(.*?)"(.*?)</figure>', page, re.DOTALL):
        text = re.search(r"<svg viewBox.{0,80}role=.*?</svg>(?=</div>)", figure, re.DOTALL)
        if text:
            found[id_] = ET.fromstring(text[0])
    return found


@dataclass
class Scale:
    """Places to values, by two ticks of an axis."""

    low: tuple[float, float]
    high: tuple[float, float]

    def value(self, place: float) -> float:
        (one, first), (other, second) = self.low, self.high
        return first + (place - one) / (other - one) * (second - first)


def scale(drawing: ET.Element, along: str, read: Callable[[str], float | None]) -> Scale:
    """The scale of an axis as its tick labels have it."""
    ticks = []
    for text in drawing.iter("text"):
        value = read(text.text or "") if "class" not in text.attrib else None
        if value is not None:
            place = float(text.attrib[along])
            # The label of y stands a little below its line.
            ticks.append((place - 4 if along == "y" else place, value))
    return Scale(ticks[0], ticks[-1])


def as_share(text: str) -> float | None:
    found = re.fullmatch(r"(\d+) %", text)
    return int(found[1]) / 100 if found else None


def as_log_rank(text: str) -> float | None:
    return math.log10(float(text)) if re.fullmatch(r"\d+", text) else None


def as_number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"-?[\d.]+", text) else None


def points(drawing: ET.Element) -> dict[str, list[tuple[float, float]]]:
    """The points of each line, by the system that their titles name."""
    found = {}
    for group in drawing.iter("g"):
        polyline = group.find("polyline")
        if polyline is None:
            continue
        pairs = [tuple(map(float, p.split(","))) for p in polyline.attrib["points"].split()]
        marks = [path.attrib["transform"] for path in group.iter("path")]
        assert marks == [f"translate({x} {y})" for x, y in pairs]
        names = {(path[0].text or "").split(", ")[0] for path in group.iter("path")}
        assert len(names) == 1
        found[names.pop()] = pairs
    return found


def metrics(made: Inputs) -> dict[str, Any]:
    return json.loads((made.page.parent / "metrics.json").read_text("utf-8"))


SYSTEMS = [NAME, UNCUT, PLAIN, "copy"]


def test_figures_are_whole_and_described(made: Inputs) -> None:
    found = drawings(made.page.read_text("utf-8"))
    assert list(found) == ["figure-ranks", "figure-precision", "figure-recall"]
    for id_, drawing in found.items():
        assert drawing.attrib["aria-labelledby"] == f"{id_}-title {id_}-text"
        title, text = drawing[0], drawing[1]
        assert (title.tag, title.attrib["id"]) == ("title", f"{id_}-title")
        assert (text.tag, text.attrib["id"]) == ("desc", f"{id_}-text")
        assert title.text
        assert NAME in (text.text or "")
        width, height = map(float, drawing.attrib["viewBox"].split()[2:])
        for text in drawing.iter("text"):
            assert 0 < float(text.attrib["x"]) < width
            assert 0 < float(text.attrib["y"]) < height


def test_the_points_of_the_ranks_are_the_metrics(made: Inputs) -> None:
    drawing, found = drawings(made.page.read_text("utf-8"))["figure-ranks"], metrics(made)
    x, y = scale(drawing, "x", as_log_rank), scale(drawing, "y", as_share)
    rows = found["f1_by_training_rank"]
    lines = points(drawing)
    assert list(lines) == SYSTEMS
    ends = [float(rule.attrib["x1"]) for rule in drawing.iter("line")
            if rule.attrib["class"] == "rule"]  # fmt: skip
    for name, pairs in lines.items():
        expected = [row for row in rows if row["f1"][name] is not None]
        assert len(pairs) == len(expected) > 2
        for (at, high), row in zip(pairs, expected, strict=True):
            assert y.value(high) == pytest.approx(row["f1"][name], abs=0.001)
            if row["to"] is None:
                assert at > max(ends)
            else:
                middle = (math.log10(row["from"]) + math.log10(row["to"])) / 2
                assert x.value(at) == pytest.approx(middle, abs=0.001)
    # le, chat and faux are more frequent than the first rare word.
    assert found["rare_from_rank"] == 4
    unseen, rare = ends
    assert x.value(rare) == pytest.approx(math.log10(4), abs=0.001)
    assert x.value(unseen) > math.log10(found["training_types"])
    labels = [text.text for text in drawing.iter("text") if "rule-text" in str(text.attrib)]
    assert labels == ["unseen", "rare from rank 4"]


@pytest.mark.parametrize("key", ["precision", "recall"])
def test_the_points_of_the_confidence_are_the_metrics(made: Inputs, key: str) -> None:
    drawing, found = drawings(made.page.read_text("utf-8"))[f"figure-{key}"], metrics(made)
    x, y = scale(drawing, "x", as_number), scale(drawing, "y", as_share)
    lines = points(drawing)
    assert list(lines) == SYSTEMS[:-1]
    slots = {
        text.text: float(text.attrib["x"])
        for text in drawing.iter("text")
        if text.text in ("none", "all")
    }
    for name, pairs in lines.items():
        rows = [
            row for row in found["systems"][name]["unseen_by_threshold"] if row[key] is not None
        ]
        assert len(pairs) == len(rows) > 5
        for (at, high), row in zip(pairs, rows, strict=True):
            assert y.value(high) == pytest.approx(row[key], abs=0.001)
            if row["threshold"] is None:
                assert at == slots["all" if row["copied"] else "none"]
            else:
                assert x.value(at) == pytest.approx(row["threshold"], abs=0.005)


def test_the_bars_of_the_classes_are_the_metrics(made: Inputs) -> None:
    found = metrics(made)
    chart = re.search(r'<dl class="groups">.*?</dl>', made.page.read_text("utf-8"), re.DOTALL)
    assert chart
    groups = ET.fromstring(chart[0])
    classes = {
        kind: counts["tokens"]
        for kind, counts in found["reference_unseen_by_class"].items()
        if counts["tokens"]
    }
    assert [group[0].text for group in groups] == list(classes)
    for (head, bars), (kind, tokens) in zip(groups, classes.items(), strict=True):
        assert head[0].text == (f"{tokens} words" if tokens > 1 else "1 word")
        assert len(bars) == len(SYSTEMS)
        for name, bar in zip(SYSTEMS, bars, strict=True):
            counts = found["systems"][name]["unseen_by_class"][kind]
            length = float(bar.attrib["style"].removeprefix("--length: "))
            assert length == pytest.approx(counts["recall"], abs=0.0001)
            assert bar[1].text == f"{100 * counts['recall']:.1f} %"
            text = f"{name}, {kind}: {counts['matched']} of {tokens} words"
            assert bar.attrib["title"] == text


def test_no_two_lines_look_alike_without_colour(made: Inputs) -> None:
    drawing = drawings(made.page.read_text("utf-8"))["figure-ranks"]
    looks = []
    for group in drawing.iter("g"):
        polyline, path = group.find("polyline"), group.find("path")
        assert polyline is not None
        assert path is not None
        looks.append((polyline.attrib["stroke-dasharray"], path.attrib["d"]))
    assert len({dash for dash, _ in looks}) == len({marker for _, marker in looks}) == 4


def test_no_two_of_many_styles_are_alike_in_two_ways() -> None:
    styles = [Style(number) for number in range(30)]
    looks = [(style.colour, style.dash, style.marker) for style in styles]
    for one, other in itertools.combinations(looks, 2):
        assert sum(a == b for a, b in zip(one, other, strict=True)) < 2


def test_a_figure_without_data_is_a_sentence(tmp_path: Path, small: list[str]) -> None:
    words = {word for _, _, target in CORPUS_ROWS for word in target.split()}
    words |= {word for _, source, _ in CORPUS_ROWS for word in source.split()}
    known = write_words(tmp_path / "all", {**dict.fromkeys(words, 9), "Zoo": 9})
    arguments = [a for a in small if "--words" not in a] + [f"--words={known}"]
    found, page = evaluate(arguments, tmp_path / "report")
    assert found["reference_words"]["unseen"]["tokens"] == 0
    assert found["rare_from_rank"] is None
    assert list(drawings(page)) == ["figure-ranks"]
    assert "No figure: the references have no unseen word." in page
    assert "No figure: no system produced an unseen word, or all sentences" in page
    (rule,) = (
        line for line in drawings(page)["figure-ranks"].iter("line")
        if line.attrib["class"] == "rule"
    )  # fmt: skip
    assert float(rule.attrib["x1"]) > 0


def test_training_without_target_words_has_only_unseen_ones(
    tmp_path: Path, small: list[str]
) -> None:
    nothing = write_words(tmp_path / "nothing", {"der": 0})
    arguments = [a for a in small if "--words" not in a] + [f"--words={nothing}"]
    found, page = evaluate(arguments, tmp_path / "report")
    assert found["training_types"] == 0
    lines = points(drawings(page)["figure-ranks"])
    assert {name: len(pairs) for name, pairs in lines.items()} == {
        "model": 1,
        "words": 1,
        "copy": 1,
    }


# ---- many systems ----

RIGHT = {
    "bpe seed 1": 10,
    "bpe seed 2": 12,
    "bpe ensemble": 14,
    "words seed 1": 3,
    "words seed 2": 2,
    "words ensemble": 4,
    "other": 1,
    "plain seed": 0,
}
"""How many sentences, the first ones, each of many systems has right."""
MANY = [*RIGHT, "copy"]
# One of each group; then the second of each, before the third of the best group.
SHOWN = ["bpe seed 2", "bpe ensemble", "words seed 1", "words ensemble", "other", "plain seed"]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    root = tmp_path_factory.mktemp("many")
    pairs = [
        (id_, f"thing{id_} it is", f"le thing{id_} est {'rare' * id_}") for id_ in range(1, 17)
    ]
    many = Inputs(pairs)
    options = []
    for name, right in RIGHT.items():
        many.outputs[name] = {
            id_: target.split(" ") if id_ <= right else ["le", f"thing{id_ - id_ % 2}"]
            for id_, _, target in pairs
        }
        directory = write_translations(
            root / name.replace(" ", "-"),
            [(id_, " ".join(words), words) for id_, words in many.outputs[name].items()],
            scores={id_: -id_ / 16 for id_, _, _ in pairs},
        )
        options.append(f"--baseline={name}={directory}")
    many.outputs["other"][16] = ["mistake"]
    first = options[0].removeprefix("--baseline=bpe seed 1=")
    many.arguments = ["--name=bpe seed 1", f"--translations={first}", *options[1:]]
    many.arguments += [
        f"--references={write_references(root / 'references', pairs, pairs)}",
        f"--words={write_words(root / 'words', {'le': 900, 'est': 3})}",
        "--rare-threshold=5",
    ]
    evaluate([*many.arguments, "--samples=1000", "--quiet"], root / "report")
    many.page = root / "report" / "index.html"
    return many


def choices(page: str) -> dict[str, tuple[int, bool]]:
    """The systems that can be chosen: their numbers, and whether they are chosen at first."""
    found = re.findall(
        r'id="show-(\d+)" value="(\d+)"( checked)?>.*?<bdi>(.*?)</bdi>', page, re.DOTALL
    )
    assert all(number == value for number, value, _, _ in found)
    return {html.unescape(name): (int(number), bool(on)) for number, _, on, name in found}


def test_of_many_systems_the_best_of_each_are_shown_with_a_colour_each(many: Inputs) -> None:
    page = many.page.read_text("utf-8")
    found = choices(page)
    assert list(found) == MANY
    assert [name for name, (_, on) in found.items() if on] == SHOWN
    assert [found[name][0] for name in SHOWN] == list(range(6))
    assert sorted(number for number, _ in found.values()) == list(range(9))
    assert "Figures and samples show 6 of 9 systems at first" in page


def test_of_few_systems_all_are_shown(made: Inputs, many: Inputs, tmp_path: Path) -> None:
    page = made.page.read_text("utf-8")
    assert choices(page) == {name: (place, True) for place, name in enumerate(SYSTEMS)}
    assert "at first:" not in page
    dropped = [f"--baseline={name}=" for name in ("other", "plain seed")]
    six = [a for a in many.arguments if not a.startswith(tuple(dropped))]
    _, page = evaluate([*six, "--quiet"], tmp_path / "six")
    assert len(choices(page)) == 7
    assert all(on for _, on in choices(page).values())
    assert "at first:" not in page


def test_the_tables_have_all_of_many_systems(many: Inputs) -> None:
    found = Outline(many.page.read_text("utf-8")).tables
    assert [row[0] for row in found[0][1:]] == MANY
    heads = [table[0] for table in found]
    assert sum(head[-len(MANY) :] == MANY for head in heads) == 3  # ranks, bands, classes


def test_what_belongs_to_a_system_has_its_number(many: Inputs) -> None:
    page = many.page.read_text("utf-8")
    numbers = {name: number for name, (number, _) in choices(page).items()}
    lines = re.findall(
        r'<g class="line colour-(\d)" data-system="(\d+)">.*?<title>(.*?), ', page, re.DOTALL
    )
    legends = re.findall(
        r'<li class="colour-(\d)" data-system="(\d+)">.*?<bdi>(.*?)</bdi>', page, re.DOTALL
    )
    bars = re.findall(r'<div class="bar colour-(\d)" data-system="(\d+)".*?title="(.*?), ', page)
    assert {name for _, _, name in lines} == {name for _, _, name in bars} == set(MANY)
    for colour, number, name in (*lines, *legends, *bars):
        assert (int(number), int(colour)) == (numbers[name], numbers[name] % 6)
    outputs = re.findall(r'<div class="line" data-system="(\d+)".*?<bdi>(.*?)</bdi>', page)
    assert len(outputs) == len(RIGHT) * len(many.pairs)
    assert all(int(number) == numbers[name] for number, name in outputs)


# ---- in a browser ----


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium; skips where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api")
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("there is no Chromium (on Debian: apt-get install chromium)")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens a page: `open_page(path, **options)`. At the end nothing may have gone wrong in it, and
    nothing but the page itself may have been asked for."""
    contexts, complaints, requests, opened = [], [], [], []

    def open_(path: Path, **options: Any) -> Any:
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.as_uri())
        opened.append(path.as_uri())
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []
    assert requests == opened


def shown(page: Any) -> list[int]:
    """The ids of the sentences that one sees."""
    every, ids = page.evaluate(
        """() => {
          const every = [...document.querySelectorAll(".sample")];
          const visible = every.filter((sample) => sample.checkVisibility());
          return [every.length, visible.map((sample) => Number(sample.id.slice(9)))];
        }"""
    )
    assert page.locator("#count").inner_text() == f"{len(ids)} of {every} shown"
    return ids


def test_filters_show_exactly_the_right_sentences(
    made: Inputs, open_page: Callable[..., Any]
) -> None:
    page = open_page(made.page)
    pairs = sorted(made.pairs)
    every = [id_ for id_, _, _ in pairs]
    assert shown(page) == every

    def expected(passes: Callable[[int, str], bool]) -> list[int]:
        found = [id_ for id_, _, target in pairs if passes(id_, target)]
        assert 0 < len(found) < len(every)
        return found

    def differ(id_: int) -> bool:
        return len({" ".join(outputs[id_]) for outputs in made.outputs.values()}) > 1

    checks: dict[str, Callable[[int, str], bool]] = {
        "rare": lambda id_, target: "rare" in made.kinds(target),
        "unseen": lambda id_, target: "unseen" in made.kinds(target),
        "differ": lambda id_, target: differ(id_),
    }
    for value, passes in checks.items():
        box = page.locator(f"#filters input[value={value}]")
        box.check()
        wanted = expected(passes)
        assert shown(page) == wanted
        assert box.locator("xpath=..").inner_text().split()[-1] == str(len(wanted))
        box.uncheck()
    page.locator("input[value=rare]").check()
    page.locator("input[value=unseen]").check()
    both = expected(lambda id_, target: made.kinds(target) == {"rare", "unseen"})
    assert shown(page) == both
    page.get_by_role("button", name="Show all").click()
    page.wait_for_function("document.querySelectorAll('.sample[hidden]').length === 0")
    assert shown(page) == every

    choice = page.get_by_label("Right or wrong")
    for name in (NAME, UNCUT):
        choice.select_option(label=f"{name} is wrong")
        assert shown(page) == expected(lambda id_, target: made.wrong(name, id_, target))  # noqa: B023
    choice.select_option(label=f"{PLAIN} is wrong")
    assert shown(page) == []
    choice.select_option(label="any system is wrong")
    assert shown(page) == expected(
        lambda id_, target: any(made.wrong(name, id_, target) for name in made.outputs)
    )


def test_search_shows_the_sentences_that_have_the_text(
    made: Inputs, open_page: Callable[..., Any]
) -> None:
    def folded(line: str) -> str:
        return unicodedata.normalize("NFC", line).lower()

    def lines(id_: int, source: str, target: str) -> list[str]:
        outputs = [" ".join(outputs[id_]) for outputs in made.outputs.values()]
        return [folded(line) for line in (source, target, *outputs)]

    page = open_page(made.page)
    box = page.get_by_label("Search source, reference and outputs")
    numbers = set()
    for text in (
        *(
            "inconnu",
            "  THING1 ",
            "le chat",
            "faux",
            "</script><script>",
            "{{7*7}}",
            "שלום",
            "&lt;",
        ),
        *("strasse", "straße", "c\u0327a", "οδος", "one", "no such text", " "),
    ):
        box.fill(text)
        wanted = [
            pair[0]
            for pair in sorted(made.pairs)
            if any(folded(text.strip()) in line for line in lines(*pair))
        ]
        assert shown(page) == wanted
        numbers.add(len(wanted))
    assert {0, 1, len(made.pairs)} < numbers
    page.keyboard.press("Enter")  # sends nothing anywhere
    assert shown(page) == wanted


def open_maps(page: Any) -> None:
    page.evaluate("document.querySelectorAll('button.open').forEach(button => button.click())")


def test_maps_show_the_alignments(made: Inputs, open_page: Callable[..., Any]) -> None:
    page = open_page(made.page)
    assert page.locator(".attention").count() == 0
    open_maps(page)
    found = page.evaluate(
        """() => [...document.querySelectorAll("article")].map(article => [
             Number(article.id.slice(9)),
             [...article.querySelectorAll(".line")].slice(2).map(line => {
               const table = line.querySelector(".attention table");
               const texts = (selector) =>
                 [...table.querySelectorAll(selector)].map(cell => cell.textContent);
               return table && {
                 columns: texts("thead th"), rows: texts("tbody th"), cells: texts("tbody td"),
                 titles: [...table.querySelectorAll("tbody td")].map(cell => cell.title),
                 alphas: [...table.querySelectorAll("tbody td")].map(cell => {
                   const colour = getComputedStyle(cell).backgroundColor.match(/[\\d.]+/g);
                   return colour.length > 3 ? Number(colour[3]) : 1;
                 }),
               };
             }),
           ])"""
    )
    assert [id_ for id_, _ in found] == sorted(id_ for id_, _, _ in made.pairs)
    sources = {id_: source for id_, source, _ in made.pairs}
    for id_, maps in found:
        assert maps.pop() is None  # plain was decoded without
        for name, drawn in zip((NAME, UNCUT), maps, strict=True):
            sides = (made.outputs[name][id_], sources[id_].split(" "))
            rows, columns = ([*displayed(s, cutting=name == NAME), "</s>"] for s in sides)
            assert (drawn["rows"], drawn["columns"]) == (rows, columns)
            weights = np.array(made.alignments[name][id_]).ravel()
            assert np.abs(np.array(drawn["cells"], float) - weights).max() <= 0.0005 + 1e-6
            assert np.abs(np.array(drawn["alphas"]) - weights).max() <= 0.006
            assert drawn["titles"] == [
                f"{row} ← {column}: {cell}"
                for (row, column), cell in zip(
                    ((row, column) for row in rows for column in columns),
                    drawn["cells"],
                    strict=True,
                )
            ]


def test_a_map_opens_and_closes_by_the_keyboard_and_tells_the_value(
    made: Inputs, open_page: Callable[..., Any]
) -> None:
    page = open_page(made.page)
    button = page.locator("#sentence-37 button").first
    button.focus()
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-expanded") == "true"
    cell = page.locator("#sentence-37 .attention tbody td").nth(1)
    cell.hover()
    weight = made.alignments[NAME][37][0][1]
    text = page.locator("#sentence-37 .attention p").inner_text()
    assert re.fullmatch(r"le ← th@@: \d\.\d{3}", text)
    assert float(text.split()[-1]) == pytest.approx(weight, abs=0.0005 + 1e-6)
    page.keyboard.press("Space")
    assert button.get_attribute("aria-expanded") == "false"
    assert page.locator(".attention").count() == 0

    page.get_by_label("Search source, reference and outputs").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Space")  # the first filter
    assert page.locator("input[value=rare]").is_checked()
    assert len(shown(page)) < len(made.pairs)


def test_hostile_text_is_shown_and_not_executed(
    made: Inputs, open_page: Callable[..., Any]
) -> None:
    page = open_page(made.page)
    open_maps(page)
    for number, word in enumerate(HOSTILE):
        lines = page.locator(f"#sentence-{200 + number} dd")
        assert lines.first.evaluate("line => line.textContent") == f"{word} a {word}"
        reference = lines.nth(1).evaluate("line => line.textContent")
        assert reference == f"{word} le {word}"
    assert page.evaluate("window.hacked") is None
    assert page.locator("script").count() == 2
    assert page.locator("article :is(img, b, i, script, iframe)").count() == 0
    assert page.locator(".legend bdi").first.inner_text() == NAME
    for number, word in enumerate(HOSTILE):
        line = page.locator(f"#sentence-{200 + number} dd").first
        is_right_to_left = unicodedata.bidirectional(word[0]) in ("R", "AL")
        direction = line.evaluate("line => getComputedStyle(line).direction")
        assert direction == ("rtl" if is_right_to_left else "ltr")


def test_figures_have_a_line_for_each_system(made: Inputs, open_page: Callable[..., Any]) -> None:
    page = open_page(made.page)
    counts = {"figure-ranks": 4, "figure-precision": 3, "figure-recall": 3}
    for id_, count in counts.items():
        figure = page.locator(f"#{id_}")
        assert figure.locator("polyline").count() == count
        assert figure.locator(".legend li").count() == count
        assert figure.get_by_role("img").count() == 1
        box = figure.locator(".drawing svg").bounding_box()
        assert min(box["width"], box["height"]) > 100
    assert page.locator("#figure-classes .legend li").count() == 4


def test_all_is_there_without_script(made: Inputs, open_page: Callable[..., Any]) -> None:
    page = open_page(made.page, java_script_enabled=False)
    assert page.locator(".sample:visible").count() == len(made.pairs)
    assert not page.locator("#filters").is_visible()
    assert page.get_by_text("allow this page its script").is_visible()
    assert page.locator("figure").count() == 4
    assert page.locator(".systems table").is_visible()
    page.locator("summary", has_text="As a table").first.click()
    assert page.locator(".ranks table").is_visible()


def seen(page: Any) -> dict[str, list[str]]:
    """The systems that one sees in each figure, where legend and drawing agree, and in samples,
    which are all alike."""
    found = page.evaluate(
        """() => {
          const visible = (within, selector) =>
            [...within.querySelectorAll(selector)].filter((one) => one.getClientRects().length > 0);
          const found = {};
          for (const figure of document.querySelectorAll("figure")) {
            found[figure.id] = visible(figure, ".legend li").map((item) => item.innerText.trim());
            found[`${figure.id}-drawn`] =
              visible(figure, "g.line, .group:first-child .bar")
                .map((one) => (one.title || one.querySelector("title").textContent).split(", ")[0]);
          }
          document.querySelectorAll(".sample").forEach((sample, place) => {
            found[`sample-${place}`] = visible(sample, "bdi").map((name) => name.innerText);
          });
          return found;
        }"""
    )
    samples = [names for key, names in found.items() if key.startswith("sample-")]
    assert all(names == samples[0] for names in samples)
    for figure in ("ranks", "classes", "precision", "recall"):
        assert found[f"figure-{figure}"] == found[f"figure-{figure}-drawn"]
    return {
        "ranks": found["figure-ranks"],
        "classes": found["figure-classes"],
        "precision": found["figure-precision"],
        "recall": found["figure-recall"],
        "samples": samples[0],
    }


def everywhere(names: Sequence[str]) -> dict[str, list[str]]:
    """What `seen` gives if these are shown; `copy` has no confidence, and the source is shown."""
    scored = [name for name in names if name != "copy"]
    return {
        "ranks": list(names),
        "classes": list(names),
        "precision": scored,
        "recall": scored,
        "samples": scored,
    }


def test_some_of_many_systems_are_shown_and_the_page_says_so(
    many: Inputs, open_page: Callable[..., Any]
) -> None:
    page = open_page(many.page)
    assert seen(page) == everywhere(SHOWN)
    assert page.get_by_text("show 6 of 9 systems at first").is_visible()
    assert page.locator("#choice summary").inner_text().endswith(": 6 of 9")
    assert page.locator(".systems tbody tr:visible").count() == len(MANY)
    colours = page.locator("#figure-ranks .legend li:visible").evaluate_all(
        "items => items.map((item) => getComputedStyle(item).color)"
    )
    assert len(set(colours)) == len(SHOWN)


def test_few_systems_are_all_shown(made: Inputs, open_page: Callable[..., Any]) -> None:
    page = open_page(made.page)
    assert seen(page) == everywhere(SYSTEMS)
    assert page.locator("#not-shown").count() == 0
    assert page.locator("#choice summary").inner_text().endswith(": 4 of 4")


@pytest.mark.parametrize("script", [True, False])
def test_systems_are_chosen_by_the_keyboard_in_figures_and_samples(
    many: Inputs, open_page: Callable[..., Any], script: bool
) -> None:
    page = open_page(many.page, java_script_enabled=script)

    def colour() -> str:
        item = page.locator("#figure-ranks .legend li", has_text="bpe ensemble")
        return item.evaluate("item => getComputedStyle(item).color")

    before, height = colour(), page.locator("#figure-classes").bounding_box()["height"]
    page.locator("#choice summary").focus()
    page.keyboard.press("Enter")
    assert page.locator("#choice input:visible").count() == len(MANY)
    page.keyboard.press("Tab")
    page.keyboard.press("Space")  # the first one, shown by it
    assert seen(page) == everywhere(["bpe seed 1", *SHOWN])
    assert page.locator("#figure-classes").bounding_box()["height"] > height
    assert colour() == before
    page.keyboard.press("Tab")
    page.keyboard.press("Space")  # the second one, hidden by it
    left = ["bpe seed 1", *SHOWN[1:]]
    assert seen(page) == everywhere(left)
    page.get_by_label("copy", exact=True).check()
    assert seen(page) == everywhere([*left, "copy"])
    assert colour() == before
    page.get_by_role("button", name="As at first").click()
    assert seen(page) == everywhere(SHOWN)
    assert page.get_by_role("button", name="All", exact=True).count() == script
    assert page.locator(".systems tbody tr:visible").count() == len(MANY)


def test_all_or_none_of_the_systems_are_chosen_at_once(
    many: Inputs, open_page: Callable[..., Any]
) -> None:
    page = open_page(many.page)
    page.locator("#choice summary").click()
    page.get_by_role("button", name="All", exact=True).click()
    assert seen(page) == everywhere(MANY)
    assert page.locator("#choice summary").inner_text().endswith(": 9 of 9")
    page.get_by_role("button", name="None", exact=True).click()
    assert seen(page) == everywhere([])
    assert page.locator(".sample dt:visible").count() == 2 * len(many.pairs)


def test_the_choice_stays_in_reach(many: Inputs, open_page: Callable[..., Any]) -> None:
    page = open_page(many.page, viewport={"width": 400, "height": 600})
    page.locator(".sample").last.scroll_into_view_if_needed()
    page.locator("#choice summary").click()
    assert page.evaluate("scrollY") > 1000
    box = page.get_by_label("copy", exact=True)
    box.check()
    place = box.bounding_box()
    assert 0 < place["y"] < 600 - place["height"]


def test_filters_go_by_the_systems_that_are_shown(
    many: Inputs, open_page: Callable[..., Any]
) -> None:
    page = open_page(many.page)
    page.locator("#choice summary").click()
    page.get_by_role("button", name="None", exact=True).click()
    for name in ("bpe ensemble", "words ensemble"):
        page.get_by_label(name, exact=True).check()
    page.locator("#choice summary").click()
    ids = [id_ for id_, _, _ in many.pairs]

    page.locator("input[value=differ]").check()
    assert shown(page) == [id_ for id_ in ids if 4 < id_ <= 14]
    label = page.locator("label", has=page.locator("input[value=differ]"))
    assert label.inner_text().split()[-1] == "10"
    page.locator("input[value=differ]").uncheck()

    choice = page.get_by_label("Right or wrong")
    choice.select_option(label="any system is wrong")
    assert shown(page) == [id_ for id_ in ids if id_ > 4]
    assert choice.locator("option:enabled").all_text_contents() == [
        "right or wrong",
        "any system is wrong",
        "bpe ensemble is wrong",
        "words ensemble is wrong",
    ]
    choice.select_option(label="words ensemble is wrong")
    search = page.get_by_label("Search source, reference and outputs")
    search.fill("le thing6")
    assert shown(page) == [6, 7]  # that of 7 is its mistake
    page.locator("#choice summary").click()
    page.get_by_label("words ensemble", exact=True).uncheck()
    page.locator("#choice summary").click()
    assert choice.input_value() == ""
    assert shown(page) == [6]
    search.fill("")
    assert shown(page) == ids


@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize("systems", ["few", "many"])
def test_nothing_sticks_out_of_the_page(
    made: Inputs, many: Inputs, open_page: Callable[..., Any], width: int, systems: str
) -> None:
    page = open_page(
        (made if systems == "few" else many).page, viewport={"width": width, "height": 800}
    )
    open_maps(page)
    page.locator("#choice summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_a_page_without_samples_or_maps_works(
    tmp_path: Path, small: list[str], open_page: Callable[..., Any]
) -> None:
    evaluate([*small, "--samples=0"], tmp_path / "none")
    page = open_page(tmp_path / "none" / "index.html")
    assert page.locator("figure").count() == 2
    evaluate(small, tmp_path / "no-maps")
    page = open_page(tmp_path / "no-maps" / "index.html")
    assert shown(page) == [10, 20, 30, 40]
    assert page.get_by_role("button", name="attention").count() == 0
