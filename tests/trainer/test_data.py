"""The feed: which pairs, in which order, in which batches, and their tensors."""

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from rareword.schemas import manifest
from rareword.schemas.errors import RarewordError
from rareword.schemas.vocabulary import EOS, PAD
from rareword.trainer import data
from rareword.trainer.data import Pairs, Sentences, cut_batches, plan_epoch, read_pairs, share


def sentences(ids: list[list[int]]) -> Sentences:
    flat = np.array([i for sentence in ids for i in sentence], np.int32)
    return Sentences(flat, np.cumsum([0, *map(len, ids)]))


def random_pairs(count: int, seed: int = 0) -> Pairs:
    generator = np.random.default_rng(seed)
    sides = [sentences([[3] * int(n) for n in generator.integers(1, 30, count)]) for _ in range(2)]
    return Pairs(np.arange(count), *sides, too_long=0, blank=0)


def test_sentences_are_padded_on_the_right_after_their_end() -> None:
    side = sentences([[3, 4, 5], [6], [], [7, 8]])
    np.testing.assert_array_equal(
        side.padded(np.array([3, 0, 2])),
        [[7, 8, EOS, PAD], [3, 4, 5, EOS], [EOS, PAD, PAD, PAD]],
    )
    np.testing.assert_array_equal(side.lengths, [4, 2, 1, 3])
    np.testing.assert_array_equal(side[3], [7, 8])


def test_a_batch_masks_what_is_padding() -> None:
    pairs = Pairs(np.arange(2), sentences([[3], [4, 5]]), sentences([[6, 7], [8]]), 0, 0)
    batch = data.make_batch(pairs, np.array([0, 1]), torch.device("cpu"))
    assert batch.source_BS.tolist() == [[3, EOS, PAD], [4, 5, EOS]]
    assert batch.mask_BS.tolist() == [[True, True, False], [True, True, True]]
    assert batch.target_BT.tolist() == [[6, 7, EOS], [8, EOS, PAD]]


@pytest.mark.parametrize("unit", ["tokens", "sentences"])
def test_an_epoch_holds_each_pair_once_in_an_order_of_its_own(unit: str) -> None:
    pairs = random_pairs(3000)
    plans = [plan_epoch(pairs, 64, unit, seed, epoch) for seed, epoch in ((1, 0), (1, 1), (2, 0))]
    for plan in plans:
        assert sorted(np.concatenate(plan)) == list(range(3000))
    flat = [np.concatenate(plan).tolist() for plan in plans]
    assert flat[0] != flat[1] != flat[2] != flat[0]
    again = plan_epoch(random_pairs(3000), 64, unit, 1, 0)
    assert [b.tolist() for b in again] == [b.tolist() for b in plans[0]]


def test_sentence_batches_have_their_size_and_like_lengths() -> None:
    pairs = random_pairs(64 * 20 * 2 + 10)
    plan = plan_epoch(pairs, 64, "sentences", 1, 0)
    assert sorted(map(len, plan)) == [10] + [64] * 40
    spread = [np.ptp(pairs.longest[batch]) for batch in plan]
    assert np.mean(spread) < 0.15 * np.ptp(pairs.longest)


def test_token_batches_fill_their_budget_but_never_exceed_it() -> None:
    lengths = np.sort(np.random.default_rng(1).integers(2, 50, 1000))
    batches = cut_batches(np.arange(1000), lengths, 500, "tokens")
    assert np.concatenate(batches).tolist() == list(range(1000))
    for batch, after in itertools.pairwise(batches):
        assert len(batch) * lengths[batch].max() <= 500
        assert (len(batch) + 1) * lengths[after[0]] > 500


def test_a_pair_over_the_budget_is_a_batch_of_its_own() -> None:
    lengths = np.array([2, 3, 90, 95])
    found = cut_batches(np.arange(4), lengths, 10, "tokens")
    assert [batch.tolist() for batch in found] == [[0, 1], [2], [3]]


@pytest.mark.parametrize("world", [1, 2, 3, 7])
def test_shares_are_the_batch(world: int) -> None:
    batch = np.arange(5) * 10
    shares = [share(batch, rank, world) for rank in range(world)]
    assert sorted(np.concatenate(shares)) == batch.tolist()
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_long_and_blank_pairs_are_counted_and_skipped(
    tmp_path: Path, write_segmented: Callable[..., Path]
) -> None:
    rows = [([3, 4], [5]), ([], [3]), ([3] * 6, [4]), ([4], [5] * 5), ([], [5] * 9), ([5], [6, 7])]
    directory = write_segmented(tmp_path / "train", rows, letters=6)
    found = manifest.read(str(directory), "segment", "--segmented")
    pairs = read_pairs(found, 9, 9, max_length=5)
    assert (pairs.too_long, pairs.blank) == (1, 2)
    assert pairs.ids.tolist() == [1000, 1003, 1005]
    assert [pairs.source[i].tolist() for i in range(3)] == [[3, 4], [4], [5]]
    assert [pairs.target[i].tolist() for i in range(3)] == [[5], [5] * 5, [6, 7]]
    assert len(read_pairs(found, 9, 9)) == 4
    with pytest.raises(RarewordError, match=r"part-00000.*'source' holds piece id 4"):
        read_pairs(found, 4, 9)


def test_a_corpus_without_a_usable_pair_is_refused(
    tmp_path: Path, write_segmented: Callable[..., Path]
) -> None:
    for name, rows in (("blank", [([], [3]), ([3], [])]), ("none", [])):
        directory = write_segmented(tmp_path / name, rows, letters=2)
        with pytest.raises(RarewordError, match=f"{name}: none of its {len(rows)} pairs"):
            read_pairs(manifest.read(str(directory), "segment", "--dev"), 9, 9)
