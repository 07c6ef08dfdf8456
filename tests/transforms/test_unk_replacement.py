"""Which word takes the place of `<unk>`: cases computed by hand."""

import numpy as np
import pyarrow as pa
import pytest

from rareword.schemas.vocabulary import SPECIALS, UNK, Vocabulary
from rareword.transforms import decoding
from rareword.transforms.unk_replacement import Replacement

SOURCE = ["der", "Hund", "Xaver"]
DICTIONARY = {"der": "the", "Hund": "dog"}


def replace(weights, ids=(UNK,), words=("<unk>",), dictionary=None, source=SOURCE):
    rule = Replacement(DICTIONARY if dictionary is None else dictionary)
    found = rule.replace(ids, words, np.array(weights, np.float32), source)
    return found.words, tuple(found.counts.values())


@pytest.mark.parametrize(
    ("weights", "word", "counts"),
    [
        ([0.1, 0.6, 0.2, 0.1], "dog", (1, 0)),
        ([0.1, 0.2, 0.6, 0.1], "Xaver", (0, 1)),  # not in the dictionary: itself
        ([0.1, 0.3, 0.1, 0.5], "dog", (1, 0)),  # the peak is end-of-sentence
        ([0.1, 0.2, 0.1, 0.0, 0.3, 0.3], "dog", (1, 0)),  # peaks on padding
        ([0.2, 0.3, 0.3, 0.2], "dog", (1, 0)),  # a tie: the first one
        ([0.3, 0.3, 0.3, 0.1], "the", (1, 0)),
        ([0.0, 0.0, 0.0, 1.0], "the", (1, 0)),  # all of it on end-of-sentence
    ],
)
def test_the_source_word_of_the_highest_attention_decides(weights, word, counts) -> None:
    end = [0.25] * len(weights)
    assert replace([weights, end]) == ([word], counts)


def test_only_unknown_pieces_change_and_each_by_itself() -> None:
    weights = [[0, 0, 1, 0], [0, 1, 0, 0], [0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]]
    found = replace(weights, [UNK, 5, UNK, 6], ["<unk>", "and", "<unk>", "<unk>"])
    # The last one is a word that is spelled like the mark.
    assert found == (["Xaver", "and", "dog", "<unk>"], (1, 1))


def test_without_a_dictionary_words_are_copied() -> None:
    assert replace([[0.1, 0.6, 0.2, 0.1]], dictionary={}) == (["Hund"], (0, 1))


def test_what_has_no_unknown_piece_needs_no_attention() -> None:
    rule = Replacement(DICTIONARY)
    assert rule.replace([], [], None, []).words == []
    assert rule.replace([5], ["and"], None, SOURCE).words == ["and"]


PIECES = [piece.text for piece in SPECIALS] + ["and", "no@@"]
VOCABULARY = Vocabulary(PIECES, [True] * 5, [1] * 5, [1] * 5)
MOSES = {"source_language": "de", "target_language": "en"}


def test_text_and_pieces_have_the_words_and_the_text_is_restored_after_it() -> None:
    weights = np.array([[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 1]], np.float32)
    found = [[([UNK, UNK, 3], -1.0, weights), ([UNK], -2.0, weights[:2])], [([], 0.0, None)]]
    sources = [["der", "Hund", "w@@"], []]
    table = decoding.to_rows(
        [7, 8], found, [9, 9], VOCABULARY, MOSES,
        keeps_alignments=False, replacement=Replacement(DICTIONARY), source_words=sources,
    )  # fmt: skip
    assert table["text"].to_pylist() == ["Dog w@@ and", "Dog", ""]
    assert table["pieces"].to_pylist() == [["dog", "w@@ ", "and"], ["dog"], []]
    assert table["alignment"].to_pylist() == [None, None, None]
    counts = decoding.count(table)
    assert (counts["replaced_by_dictionary"], counts["replaced_by_copy"]) == (1, 1), "rank 0 alone"
    assert counts["target_pieces"] == 3


def test_no_rows_are_no_rows() -> None:
    table = decoding.to_rows([], [], [], VOCABULARY, MOSES, replacement=Replacement({}))
    assert (table.num_rows, table["replaced_by_copy"].type) == (0, pa.int64())
    assert decoding.count(table)["replaced_by_copy"] == 0
