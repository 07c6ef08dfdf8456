"""Truecasing against sacremoses: the same model from the same text, the same words changed."""

import json
import random
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pytest
from sacremoses import MosesTruecaser

from rareword.schemas.errors import RarewordError
from rareword.transforms.parts import KeyedTable
from rareword.transforms.truecase import (
    COUNTS,
    PARTS,
    LearnTruecaser,
    Truecaser,
    count_forms,
    load_truecaser,
    merge_counts,
    model_name,
    split_parts,
    write_model,
)

TEXT = [
    "The cat saw the Dog . It ran : Then THE end came !",
    '" Why ? " he asked . ( The rest is history )',
    "<b> this is a tag </b> . In Berlin the Polish polish",
    "I polish what the polish polish . . . 42 is 42",
    "THE ADVENTURES OF THE CAT",
    "a | b and c|d : « The end »",
    "ẞ ß Straße STRASSE ǆ ǅ İ i",
    "",
]


def random_text(seed: int) -> list[str]:
    rng = random.Random(seed)
    words = ["the", "The", "THE", "cat", "Cat", ".", ":", "?", "!", "(", '"', "'", "3", "é", "É"]
    weights = [9, 5, 1, 5, 2, 2, 1, 1, 1, 1, 1, 1, 1, 3, 2]
    return [" ".join(rng.choices(words, weights, k=rng.randint(1, 12))) for _ in range(300)]


def trained_by_sacremoses(sentences: list[str]) -> MosesTruecaser:
    truecaser = MosesTruecaser()
    truecaser.train([sentence.split(" ") for sentence in sentences])
    return truecaser


def model_of(table: pa.Table) -> dict[str, dict[str, int]]:
    model: dict[str, dict[str, int]] = {}
    for row in table.to_pylist():
        model.setdefault(row["word"], {})[row["form"]] = row["weight"]
    return model


@pytest.mark.parametrize("sentences", [TEXT, random_text(1)], ids=["cases", "random"])
def test_counts_are_those_of_sacremoses(sentences: list[str]) -> None:
    halves = [count_forms(sentences[:3]), count_forms(sentences[3:])]
    casing = trained_by_sacremoses(sentences).model["casing"]
    assert model_of(merge_counts(halves)) == {word: dict(forms) for word, forms in casing.items()}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_truecasing_is_that_of_sacremoses_with_known_words(seed: int) -> None:
    sentences = random_text(seed)
    theirs = trained_by_sacremoses(sentences)
    casing = theirs.model["casing"]
    ours = Truecaser(casing)
    assert all(len(set(forms.values())) == len(forms) for forms in casing.values()), "no ties"
    for sentence in [*sentences, "The CAT . ( THE Cat ) Unknown unknown | É : é"]:
        assert ours(sentence) == theirs.truecase(sentence, return_str=True, use_known=True)


def test_weights_are_numbers_not_text() -> None:
    assert Truecaser({"the": {"The": 40, "the": 400}})("The end") == "the end"
    assert Truecaser({"the": {"The": 400, "the": 40}})("the end") == "The end"


def test_of_equal_weights_small_letters_win_whatever_the_order() -> None:
    for forms in ({"Polish": 3, "polish": 3}, {"polish": 3, "Polish": 3}):
        assert Truecaser({"polish": forms})("Polish") == "polish"


def test_words_known_in_capitals_keep_them_inside_a_sentence() -> None:
    truecase = Truecaser({"the": {"the": 9, "THE": 1}, "end": {"end": 5}})
    assert truecase("THE story of THE END . THE end") == "the story of THE end . the end"


def learn(directory: Path, tables: list[KeyedTable]) -> dict[str, bytes]:
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        _ = (
            pipeline
            | beam.Create(tables).with_output_types(KeyedTable)
            | LearnTruecaser(str(directory))
        )
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_the_model_learnt_in_beam_is_the_same_for_any_cut_and_leaves_out_rejected_rows(
    tmp_path: Path,
) -> None:
    sentences = random_text(4)
    rejected = [i % 7 == 0 for i in range(len(sentences))]
    table = pa.table(
        {
            "source": sentences,
            "target": sentences[::-1],
            "reason": pa.array(["bad" if bad else None for bad in rejected], pa.string()),
        }
    )
    whole = learn(tmp_path / "whole", [(0, table)])
    cuts = [(i, table.slice(i * 40, 40)) for i in reversed(range(8))]
    assert learn(tmp_path / "cut", cuts) == whole
    for side, texts in (("source", sentences), ("target", sentences[::-1])):
        kept = [text for text, bad in zip(texts, rejected, strict=True) if not bad]
        casing = trained_by_sacremoses(kept).model["casing"]
        assert json.loads(whole[f"truecase-{side}.json"]) == casing


def test_a_corpus_without_words_still_has_a_model(tmp_path: Path) -> None:
    files = learn(tmp_path, [])
    assert {name: json.loads(data) for name, data in files.items()} == {
        "truecase-source.json": {},
        "truecase-target.json": {},
    }


def test_parts_hold_every_word_once_and_whole() -> None:
    table = count_forms(random_text(5))
    parts = list(split_parts(table, "target"))
    assert sum(part.num_rows for _, part in parts) == table.num_rows
    assert all(PARTS <= key < 2 * PARTS for key, _ in parts)
    words = [set(part["word"].to_pylist()) for _, part in parts]
    assert sum(map(len, words)) == len(set().union(*words))


def test_a_model_survives_its_file_with_braces_in_words(tmp_path: Path) -> None:
    table = pa.table([["a},", "a},"], ["a},", "A},"], [2, 1]], schema=COUNTS)
    checksum = write_model(str(tmp_path), "source", [table])
    assert load_truecaser(str(tmp_path), "source", checksum)("A}, b") == "a}, b"


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    for text in ('{"the": {"the": "400"}}', "[]", "{"):
        (tmp_path / model_name("source")).write_text(text)
        with pytest.raises(RarewordError, match=r"truecase-source\.json"):
            load_truecaser(str(tmp_path), "source", text)
