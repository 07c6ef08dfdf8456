"""Words by training frequency against plain Python that takes them one by one."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rareword.schemas import tables
from rareword.schemas.tables import WORDS
from rareword.transforms import unigrams
from rareword.transforms.unigrams import BANDS, Band, Frequencies, Lexicon, Unigrams

SENTENCES = st.lists(st.lists(st.sampled_from("abcde"), max_size=6), min_size=1, max_size=5)


def write_words(directory: Path, counts: Sequence[tuple[str, int]], shards: int = 1) -> list[str]:
    """The URLs of a `words` table; counts are those of the target side."""
    urls = []
    for number in range(shards):
        part = counts[number::shards]
        columns = {
            "word": [word for word, _ in part],
            "source_count": [10**6] * len(part),
            "target_count": [count for _, count in part],
        }
        name = tables.shard_name(number, shards)
        tables.write_shard(str(directory), name, WORDS, [pa.table(columns, schema=WORDS.fields)])
        urls.append(str(directory / name))
    return urls


@pytest.mark.parametrize("shards", [1, 3])
def test_training_counts_are_those_of_the_words_table(tmp_path: Path, shards: int) -> None:
    urls = write_words(tmp_path, [(f"w{i}", i // 2) for i in range(50)], shards)
    counts, frequencies = unigrams.read_training(urls, ["w3", "w49", "w0", "never"])
    assert counts.tolist() == [1, 24, 0, 0]
    # Each of 1 to 24 twice; two words never stood on the target side.
    assert frequencies.counts_L.tolist() == list(range(24, 0, -1))
    assert frequencies.types_L.tolist() == [2] * 24
    assert frequencies.types == 48
    assert unigrams.read_training(urls, [])[0].tolist() == []


def test_training_without_target_words_has_no_ranks(tmp_path: Path) -> None:
    counts, frequencies = unigrams.read_training(write_words(tmp_path, [("a", 0)]), ["a"])
    assert (counts.tolist(), frequencies.types, frequencies.bins()) == ([0], 0, [])
    assert frequencies.highest_beyond(0) == 0
    assert frequencies.first_rank(9) is None


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=60).map(lambda counts: sorted(counts)[::-1]),
    st.integers(0, 70),
)
def test_words_of_the_same_frequency_share_the_rank_of_the_first(
    counts: list[int], rank: int
) -> None:
    values, sizes = np.unique(counts, return_counts=True)
    frequencies = Frequencies(values[::-1], sizes[::-1])
    ranks = [1 + sum(other > count for other in counts) for count in counts]
    expected = dict(zip(counts, ranks, strict=True))
    assert dict(zip(values[::-1].tolist(), frequencies.ranks.tolist(), strict=True)) == expected
    beyond = [count for count, own in zip(counts, ranks, strict=True) if own > rank]
    assert frequencies.highest_beyond(rank) == max(beyond, default=0)
    for most in range(14):
        rare = [own for count, own in zip(counts, ranks, strict=True) if count <= most]
        assert frequencies.first_rank(most) == min(rare, default=None)
    bins = frequencies.bins()
    assert [low for low, *_ in bins] == [1, 2, 3, 6, 11, 21, 51][: len(bins)]
    assert [high + 1 for _, high, *_ in bins] == [*(low for low, *_ in bins[1:]), len(counts) + 1]
    for low, high, band, types in bins:
        inside = [count for count, own in zip(counts, ranks, strict=True) if low <= own <= high]
        held = [count for count in counts if band.low <= count <= (band.high or 0)]
        assert held == inside
        assert types == len(inside)


def test_bins_end_at_the_papers_50_000_and_500_000() -> None:
    bins = Frequencies(np.arange(600_000, 0, -1), np.ones(600_000, np.int64)).bins()
    highs = [found.high for found in bins]
    assert highs[:7] == [1, 2, 5, 10, 20, 50, 100]
    assert highs[-4:] == [100_000, 200_000, 500_000, 600_000]
    assert 50_000 in highs
    assert bins[0].band == Band(600_000, 600_000)


def test_every_count_is_in_one_band() -> None:
    counts = np.array([0, 1, 2, 4, 5, 9, 10, 99, 100, 999, 1000, 10**12])
    assert np.sum([band.holds(counts) for band in BANDS], axis=0).tolist() == [1] * len(counts)
    assert list(map(str, BANDS)) == [
        "0",
        "1",
        "2 to 4",
        "5 to 9",
        "10 to 99",
        "100 to 999",
        "1,000 and more",
    ]


def test_the_three_classes_are_all_rare_and_unseen_words() -> None:
    counts = np.array([0, 1, 3, 4])
    held = {name: band.holds(counts).tolist() for name, band in unigrams.classes(3).items()}
    assert held == {
        "all": [True] * 4,
        "rare": [False, True, True, False],
        "unseen": [True, False, False, False],
    }
    assert not unigrams.classes(0)["rare"].holds(counts).any()


def unigrams_by_hand(
    hypotheses: list[list[str]], references: list[list[str]], words: set[str]
) -> tuple[int, int, int]:
    """Takes each produced word away from its reference, one by one."""
    matched = produced = expected = 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        left = list(reference)
        for word in hypothesis:
            if word in words:
                produced += 1
                if word in left:
                    left.remove(word)
                    matched += 1
        expected += sum(word in words for word in reference)
    return matched, produced, expected


@given(SENTENCES, SENTENCES, st.sets(st.sampled_from("abcde")))
def test_matches_are_clipped_sentence_by_sentence(
    hypotheses: list[list[str]], references: list[list[str]], words: set[str]
) -> None:
    pairs = list(itertools.zip_longest(hypotheses, references, fillvalue=[]))
    ours, theirs = [a for a, _ in pairs], [b for _, b in pairs]
    lexicon = Lexicon()
    expected, produced = lexicon.encode(theirs), lexicon.encode(ours)
    matches = unigrams.match(produced, unigrams.bag(expected))
    mask = lexicon.mask(words)
    counts = matches.by_word(len(mask)).within(mask)
    assert (counts.matched, counts.produced, counts.expected) == unigrams_by_hand(
        ours, theirs, words
    )
    parts = (matches.matched, matches.produced, matches.expected)
    for row, one in enumerate(pairs):
        found = tuple(part.by_sentence(mask, len(pairs))[row] for part in parts)
        assert found == unigrams_by_hand([one[0]], [one[1]], words)


@given(SENTENCES)
def test_encoded_words_are_the_sentences_again(sentences: list[list[str]]) -> None:
    lexicon = Lexicon()
    text = lexicon.encode(sentences)
    words = [lexicon.words[number] for number in text.words_N]
    assert [words[a:b] for a, b in itertools.pairwise(text.bounds.tolist())] == sentences
    assert text.lengths.tolist() == list(map(len, sentences))
    assert text.sentences.tolist() == [i for i, s in enumerate(sentences) for _ in s]


def test_f1_is_the_harmonic_mean_of_precision_and_recall() -> None:
    found = Unigrams(matched=3, produced=4, expected=12)
    assert (found.precision, found.recall) == (3 / 4, 3 / 12)
    assert found.f1 == pytest.approx(2 / (4 / 3 + 12 / 3))


def test_figures_without_words_are_undefined_not_zero() -> None:
    nothing, unproduced = Unigrams(0, 0, 0), Unigrams(0, 0, 5)
    assert (nothing.precision, nothing.recall, nothing.f1) == (None, None, None)
    assert (unproduced.precision, unproduced.recall, unproduced.f1) == (None, 0, 0)
