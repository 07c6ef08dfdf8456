"""Classes of unseen words by cases made by hand; fallback against replacing one by one."""

import math
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rareword.schemas import tables
from rareword.schemas.tables import WORDS
from rareword.transforms import unigrams, unseen
from rareword.transforms.compounds import CompoundSegmenter
from rareword.transforms.unigrams import Lexicon
from rareword.transforms.unseen import CLASSES, Origins

KNOWN = {"gesundheit": 9, "forschung": 7, "institute": 5, "polizei": 3, "rat": 8, "stadt": 6}


def origins(distance: float = 0.3, known: dict[str, int] = KNOWN) -> Origins:
    compounds = CompoundSegmenter(known, fillers=["s"], min_length=4)
    return Origins(known.keys(), compounds, distance)


@pytest.mark.parametrize(
    ("word", "source", "expected"),
    [
        ("Mirzayeva", "Mirzayeva said", "copied"),
        ("2015", "in 2015", "copied"),
        ("NATO", "the Nato said", "cased"),
        ("POLIZEI", "the police", "cased"),
        ("1.234,5", "1,234.5", "number"),
        ("–", "and", "other"),
        ("Мирзаева", "Mirzayeva said", "transliterated"),
        ("Mirzayeva", "Мирзаева сказала", "transliterated"),
        ("Universität", "the university", "cognate"),
        ("Århus", "Aarhus", "cognate"),
        ("Åland", "Aland", "cognate"),
        ("Киева", "Київ", "cognate"),  # both Cyrillic, two edits of five are too many below
        ("Gesundheitsforschungsinstitute", "health research institutes", "compound"),
        ("Gesundheits-Forschung", "health research", "compound"),
        ("Stadtrat", "town council", "other"),  # `rat` has fewer letters than a part may have
        ("dumm", "asinine", "other"),
    ],
)
def test_an_unseen_word_is_of_the_first_class_that_fits(
    word: str, source: str, expected: str
) -> None:
    distance = 0.4 if word == "Киева" else 0.34
    assert origins(distance).of(word, source.split()) == expected


def test_the_distance_decides_what_is_a_cognate() -> None:
    # asinin / asinine: 1 of 7; Asinin / asinine after case.
    assert origins(1 / 7).of("Asinin", ["asinine"]) == "cognate"
    assert origins(0.14).of("Asinin", ["asinine"]) == "other"
    assert origins(0.0).of("Zürich", ["Zurich"]) == "cognate"
    assert origins(1.0).of("Zürich", ["1999", "."]) == "other"


def levenshtein(a: str, b: str) -> int:
    """By its definition."""
    if not a or not b:
        return len(a) + len(b)
    return min(
        levenshtein(a[1:], b) + 1,
        levenshtein(a, b[1:]) + 1,
        levenshtein(a[1:], b[1:]) + (a[0] != b[0]),
    )


@given(
    st.text("abc", min_size=1, max_size=5),
    st.text("abc", min_size=1, max_size=5),
    st.sampled_from([0.0, 0.2, 0.25, 1 / 3, 0.5, 0.6, 1.0]),
)
def test_closeness_is_edits_by_letters_of_the_longer_word(a: str, b: str, distance: float) -> None:
    share = levenshtein(a, b) / max(len(a), len(b))
    assert unseen.is_close(a, b, distance) == (share <= distance + 1e-12)


def test_known_words_are_those_that_training_had_in_any_case(tmp_path: Path) -> None:
    rows = [("Stadt", 2), ("STADT", 3), ("stadt", 0), ("Rat", 0), ("Feld", 4), ("ΟΔΟΣ", 1)]
    columns = {
        "word": [word for word, _ in rows],
        "source_count": [1] * len(rows),
        "target_count": [count for _, count in rows],
    }
    table = pa.table(columns, schema=WORDS.fields)
    urls = []
    for number in range(2):
        name = tables.shard_name(number, 2)
        tables.write_shard(str(tmp_path), name, WORDS, [table.slice(number * 3, 3)])
        urls.append(str(tmp_path / name))
    wanted = unseen.candidate_parts(["Stadtrat", "Οδοσ"], 3)
    assert {"stadtrat", "stadt", "rat", "adtra", "οδοσ"} <= wanted
    assert "st" not in wanted
    assert all(len(text) >= 3 for text in wanted)
    assert unseen.read_known(urls, wanted) == {"stadt": 5, "οδοσ": 1}


SENTENCES = st.lists(
    st.tuples(*[st.lists(st.sampled_from("abxyz"), max_size=4)] * 3, st.integers(-3, 0)),
    min_size=1,
    max_size=8,
)


@given(SENTENCES)
def test_fallback_is_replacing_every_sentence_below_the_threshold(
    sentences: list[tuple[list[str], list[str], list[str], int]],
) -> None:
    ours, theirs, references = ([row[i] for row in sentences] for i in range(3))
    scores = np.array([row[3] for row in sentences], np.float32)
    lexicon = Lexicon()
    texts = [lexicon.encode(side) for side in (ours, theirs, references)]
    mask, expected = lexicon.mask("xyz"), unigrams.bag(texts[2])
    own, copy = (unigrams.match(text, expected) for text in texts[:2])
    rows = unseen.fallback(own, copy, scores, mask, steps=5)
    assert [rows[0]["copied"], rows[-1]["copied"]] == [0, len(sentences)]
    assert [row["threshold"] is None for row in rows] == [
        True,
        *[False] * (len(rows) - 2),
        True,
    ]
    for number, row in enumerate(rows):
        threshold = row["threshold"]
        if threshold is None:
            threshold = math.inf if number else -math.inf
        mixed = [own if score >= threshold else other for own, other, _, score in sentences]
        assert row["copied"] == sum(score < threshold for *_, score in sentences)
        matched = produced = 0
        for words, reference in zip(mixed, references, strict=True):
            left = list(reference)
            for word in words:
                if word in "xyz":
                    produced += 1
                    if word in left:
                        matched += 1
                        left.remove(word)
        wanted = sum(word in "xyz" for reference in references for word in reference)
        assert (row["matched"], row["produced"], row["expected"]) == (matched, produced, wanted)
        assert row["precision"] == (matched / produced if produced else None)
        assert row["recall"] == (matched / wanted if wanted else None)


def test_sentences_without_a_probability_fall_back_first() -> None:
    lexicon = Lexicon()
    ours, reference = lexicon.encode([["x"], ["y"], ["x"]]), lexicon.encode([["x"]] * 3)
    expected = unigrams.bag(reference)
    own, copy = unigrams.match(ours, expected), unigrams.match(reference, expected)
    scores = np.array([-1, -math.inf, -2], np.float32)
    rows = unseen.fallback(own, copy, scores, lexicon.mask("xy"), steps=3)
    assert [(row["threshold"], row["copied"], row["matched"]) for row in rows] == [
        (None, 0, 2),
        (-2.0, 1, 3),
        (-1.0, 2, 3),
        (None, 3, 3),
    ]


def test_recall_by_class_adds_up_to_the_recall_of_unseen_words() -> None:
    rng = random.Random(5)
    words = [*"abc", "Paris", "Stadtforschung", "77", "Gesundheitsforschung", "NATO"]
    sources = [rng.choices(["a", "Paris", "Nato", "77.0", "research"], k=5) for _ in range(40)]
    references, outputs = ([rng.choices(words, k=6) for _ in range(40)] for _ in range(2))
    lexicon = Lexicon()
    reference, output = lexicon.encode(references), lexicon.encode(outputs)
    expected = unigrams.bag(reference)
    matches = unigrams.match(output, expected)
    mask = lexicon.mask(words[3:])
    classes = unseen.classify(expected, mask, lexicon.words, sources, origins())
    found = unseen.recalled(matches, classes)
    total = matches.by_word(len(mask)).within(mask)
    assert sum(matched for matched, _ in found.values()) == total.matched
    assert sum(expected for _, expected in found.values()) == total.expected
    by_hand = dict.fromkeys(CLASSES, 0)
    for source, one in zip(sources, references, strict=True):
        for word in one:
            if word in words[3:]:
                by_hand[origins().of(word, source)] += 1
    assert {name: expected for name, (_, expected) in found.items()} == by_hand
    assert all(by_hand[name] for name in ("copied", "cased", "number", "compound"))
