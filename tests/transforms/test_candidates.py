"""Candidate lists against plain sets."""

import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from rareword.schemas.dictionary import Dictionary
from rareword.schemas.tables import DICTIONARY
from rareword.schemas.vocabulary import EOS, PAD, SPECIALS, UNK, Vocabularies, Vocabulary
from rareword.transforms import candidates
from rareword.transforms.candidates import CandidateLists
from rareword.transforms.segmenters import Encoded

SPECIAL = [piece.text for piece in SPECIALS]


def vocabulary(pieces: Sequence[str], counts: Sequence[int] | None = None) -> Vocabulary:
    """`lo@@` is a piece that does not end its word."""
    texts = [*SPECIAL, *(piece.removesuffix("@@") for piece in pieces)]
    final = [True] * 3 + [not piece.endswith("@@") for piece in pieces]
    numbers = [0, 0, 0, *(counts or [1] * len(pieces))]
    return Vocabulary(texts, final, numbers, numbers)


SOURCE = vocabulary(["the", "cat", "lo@@", "wer", "Oslo", "lo"])
TARGET = vocabulary(["die", "Katze", "nied@@", "rig@@", "er", "lo@@", "Oslo", "der", "das"])


CUTS = {"niedriger": ["nied@@", "rig@@", "er"], "neu": ["?"]}


class Spelled:
    """An encoder that knows how words are cut."""

    def encode(self, lines: pa.Array, threads: int = 1) -> Encoded:
        names = {
            piece + ("" if final else "@@"): i
            for i, (piece, final) in enumerate(zip(TARGET.pieces, TARGET.final, strict=True))
        }
        ids = [
            [names.get(piece, UNK) for piece in CUTS.get(word, [word])]
            for word in lines.to_pylist()
        ]
        offsets = np.cumsum([0, *map(len, ids)])
        flat = np.array([*itertools.chain.from_iterable(ids)], np.int32)
        return Encoded(flat, offsets, np.ones(len(ids), np.int64))


def dictionary(entries: dict[str, list[str]]) -> Dictionary:
    rows, bounds = [], {}
    for word, targets in entries.items():
        bounds[word] = (len(rows), len(rows) + len(targets))
        rows += [(word, target, 1 / len(targets), 1) for target in targets]
    columns = [list(column) for column in zip(*rows, strict=True)]
    return Dictionary(pa.table(columns, schema=DICTIONARY.fields), bounds)


ENTRIES = {"the": ["die", "der", "das"], "cat": ["Katze", "neu"], "lower": ["niedriger"]}


def ids(vocabulary: Vocabulary, *shown: str) -> list[int]:
    names = [vocabulary.display([i])[0] for i in range(len(vocabulary))]
    return [names.index(piece) for piece in shown]


def lists(shared: Sequence[int], translations: int) -> CandidateLists:
    both = Vocabularies(SOURCE, TARGET)
    return CandidateLists(
        np.array([PAD, UNK, EOS, *shared]), dictionary(ENTRIES), both, Spelled(), translations
    )


@pytest.mark.parametrize(
    ("sentence", "translations", "expected"),
    [
        (["the"], 10, ["die", "der", "das"]),
        (["the"], 2, ["die", "der"]),
        (["the"], 0, []),
        (["cat"], 10, ["Katze"]),  # `neu` has no pieces: <unk> is shared
        (["lo@@", "wer"], 10, ["nied@@", "rig@@", "er", "lo@@"]),
        (["Oslo"], 10, ["Oslo"]),  # not in the dictionary, but a piece of both sides
        (["lo"], 10, []),  # a word `lo` is no `lo@@`
        (["the", "cat", "the"], 1, ["die", "Katze"]),
        ([], 10, []),
    ],
    ids=str,
)
def test_a_list_has_translations_and_the_pieces_of_both_sides(
    sentence: list[str], translations: int, expected: list[str]
) -> None:
    made = lists([], translations)
    other = ids(SOURCE, "the", "Oslo")
    found = made.own([np.array(ids(SOURCE, *sentence), np.int64), np.array(other)])
    assert found[0].tolist() == sorted(ids(TARGET, *expected))
    assert set(ids(TARGET, "Oslo")) <= set(found[1].tolist())


def test_what_is_shared_is_nobody_s_own() -> None:
    shared = ids(TARGET, "die", "Oslo")
    found = lists(shared, 10).own([np.array(ids(SOURCE, "the", "Oslo"))])
    assert found[0].tolist() == sorted(ids(TARGET, "der", "das"))


def test_pieces_outside_of_the_lists_are_counted() -> None:
    made = lists(ids(TARGET, "die"), 1)
    sources = [np.array(ids(SOURCE, "cat")), np.array(ids(SOURCE, "Oslo"))]
    targets = [ids(TARGET, "die", "Katze", "Oslo", "Oslo"), ids(TARGET, "Oslo", "Katze")]
    assert made.outside(targets, made.own(sources)) == [2, 1]


def test_the_most_frequent_pieces_of_equal_ones_the_lower_ids() -> None:
    counted = vocabulary(["a", "b", "c", "d"], [5, 9, 5, 7])
    assert candidates.frequent(counted, 3).tolist() == [0, 1, 2, 3, 4, 6]
    assert candidates.frequent(counted, 0).tolist() == [0, 1, 2]
    assert candidates.frequent(counted, 99).tolist() == list(range(7))
