"""Examples worked out in print: byte-pair encoding of Sennrich et al. (2016) and of lecture notes.

In both the end of a word is a symbol of its own (codes of version 0.1), and of equally frequent
pairs the one met first is merged. rareword learns as subword-nmt does: the end is a property of the
last character, and of equal pairs the greatest is merged. WordPiece, unigram LM and compound
splitting have their examples beside their tests.
"""

import collections
import contextlib
import io
import itertools
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pytest
from subword_nmt.learn_bpe import learn_bpe

from rareword.schemas import merges as merge_files
from rareword.schemas.merges import Merge, Symbol
from rareword.transforms import _kernels, rounds
from rareword.transforms.bpe import NO_IDS, BpeSegmenter
from rareword.transforms.rendering import BpeRenderer
from rareword.transforms.rounds import PairCounts
from rareword.transforms.segmenters import pieces_of_words


def algorithm_1(words: Mapping[str, int], merges: int) -> tuple[list[tuple[str, int]], list[str]]:
    """The paper's listing: (pair, count) of each merge, and the words at the end."""
    table = {(*word, "</w>"): count for word, count in words.items()}
    learnt = []
    for _ in range(merges):
        pairs: collections.Counter[tuple[str, str]] = collections.Counter()
        for symbols, count in table.items():
            for pair in itertools.pairwise(symbols):
                pairs[pair] += count
        best = max(pairs, key=pairs.__getitem__)  # of equal ones the first that was met
        learnt.append((" ".join(best), pairs[best]))
        table = {
            tuple(f" {' '.join(symbols)} ".replace(f" {' '.join(best)} ", f" {''.join(best)} ")
                  .split()): count
            for symbols, count in table.items()
        }  # fmt: skip
    return learnt, [" ".join(symbols) for symbols in table]


def segmented(codes: str, text: str) -> str:
    rendered = BpeRenderer(merge_files.from_codes(codes, "codes")).render(text.encode())
    return b"".join(rendered).decode()


PAPER = {"low": 5, "lower": 2, "newest": 6, "widest": 3}
PRINTED = "e s\nes t\nest </w>\nl o\nlo w\nn e\nne w\nnew est</w>\nlow </w>\nw i\n"


def test_the_listing_of_algorithm_1_and_its_words() -> None:
    """What the paper's listing prints for its own words."""
    learnt, words = algorithm_1(PAPER, 10)
    assert "".join(f"{pair}\n" for pair, _ in learnt) == PRINTED
    assert words == ["low</w>", "low e r </w>", "newest</w>", "wi d est</w>"]
    assert segmented(PRINTED, "low lower newest widest") == "low low@@ e@@ r newest wi@@ d@@ est"


def test_the_words_of_algorithm_1_as_they_are_learnt() -> None:
    """By hand, with the end in the last character and the greatest of equal pairs: `s t` and `e s`
    tie at 9, `w est`, `n e` and `e w` at 6, the pairs of `w i d est` at 3."""
    expected = [
        ("s t</w>", 9), ("e st</w>", 9), ("l o", 7), ("w est</w>", 6), ("n e", 6),
        ("ne west</w>", 6), ("lo w</w>", 5), ("w i", 3), ("wi d", 3), ("wid est</w>", 3),
    ]  # fmt: skip
    words = pa.array(list(PAPER), pa.string()), np.array(list(PAPER.values()), np.int64)
    base = _kernels.base_symbols(*words)
    merges = rounds.to_merges(
        PairCounts(*_kernels.learn_merges(*base, NO_IDS, NO_IDS, len(expected), 1))
    )
    codes = "#version: 0.2\n" + "".join(f"{pair}\n" for pair, _ in expected)
    assert merge_files.to_codes(merges) == codes
    assert [merge.count for merge in merges] == [count for _, count in expected]
    peer = io.StringIO()
    dictionary = io.StringIO("".join(f"{word} {count}\n" for word, count in PAPER.items()))
    with contextlib.redirect_stderr(io.StringIO()):
        learn_bpe(dictionary, peer, len(expected), 1, is_dict=True)
    assert peer.getvalue() == codes
    assert pieces_of_words(BpeSegmenter(merges), [*PAPER, "lowest"]) == [
        ["low"], ["lo", "w", "e", "r"], ["newest"], ["widest"], ["lo", "west"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("word", "pieces"), [("lower", "low@@ er"), ("low", "low"), ("newer", "n@@ e@@ w@@ er")]
)
def test_the_papers_figure_1(word: str, pieces: str) -> None:
    """Merges of low, lowest, newer, wider; `lower`, which is not among them, becomes `low er·`."""
    assert segmented("r </w>\nl o\nlo w\ne r</w>\n", word) == pieces


TALL = "the tall man is taller than the tallest man"


def test_tall_taller_tallest() -> None:
    """Lecture notes: ten merges with their counts, and what becomes of the sentence."""
    learnt, _ = algorithm_1(collections.Counter(TALL.split()), 10)
    assert learnt == [
        ("t h", 3), ("t a", 3), ("ta l", 3), ("tal l", 3), ("a n", 3), ("an </w>", 3),
        ("th e", 2), ("the </w>", 2), ("m an</w>", 2), ("tall e", 2),
    ]  # fmt: skip
    codes = "".join(f"{pair}\n" for pair, _ in learnt)
    assert segmented(codes, TALL) == ("the tall man i@@ s talle@@ r th@@ an the talle@@ s@@ t man")


def test_tall_taller_tallest_as_it_is_learnt() -> None:
    """With the end in the last character `tall` ends in another `l` than `taller` goes on with, so
    `tal l` is found twice and not three times; `talle` is made all the same."""
    counts = collections.Counter(TALL.split())
    base = _kernels.base_symbols(
        pa.array(list(counts), pa.string()), np.array(list(counts.values()), np.int64)
    )
    merges = rounds.to_merges(PairCounts(*_kernels.learn_merges(*base, NO_IDS, NO_IDS, 9, 2)))
    assert {merge.count for merge in merges[:4]} == {3}
    assert Merge(Symbol("tal", False), Symbol("l", False), 2) in merges
    assert pieces_of_words(BpeSegmenter(merges), ["the", "man", "taller", "tallest"]) == [
        ["the"], ["man"], ["talle", "r"], ["talle", "s", "t"],
    ]  # fmt: skip
