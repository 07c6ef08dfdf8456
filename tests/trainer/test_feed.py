"""The feed: which pairs, in which order, in which steps; in how much memory; how it ends."""

import itertools
import subprocess
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rareword.schemas import manifest
from rareword.schemas.errors import RarewordError
from rareword.schemas.vocabulary import EOS, PAD
from rareword.trainer import data
from rareword.trainer.config import TrainConfig
from rareword.trainer.data import Corpus, Pairs, scan
from rareword.trainer.distributed import Group
from rareword.trainer.feed import STEPS_AHEAD, Feed, Position, Step, cut_batches, share

Row = tuple[list[int], list[int]]

SHARDS, GROUP, LIMIT = 4, 10, 25


def random_rows(count: int) -> list[Row]:
    """Pairs of which some are blank or over LIMIT; all sources differ."""
    generator = np.random.default_rng(7)
    rows = []
    for number in range(count):
        digits = [3 + int(digit) for digit in f"{number:03d}"]
        source, target = (
            generator.integers(3, 13, n).tolist() for n in generator.integers(0, LIMIT, 2)
        )
        rows.append((digits + source if number % 11 else [], target))
    return rows


ROWS = random_rows(400)
USABLE = {
    1000 + i: (source, target)
    for i, (source, target) in enumerate(ROWS)
    if source and target and max(len(source), len(target)) <= LIMIT
}
CONFIG = TrainConfig(
    batch=16, batch_unit="sentences", max_length=LIMIT, shuffle_pairs=60, seed=3, accumulate=1
)
BY_TOKENS = replace(CONFIG, batch=300, batch_unit="tokens")
ALL_IN_ONE = replace(CONFIG, shuffle_pairs=1000)


@pytest.fixture(scope="module")
def corpus(write_segmented: Callable[..., Path]) -> Corpus:
    """40 row groups in 4 shards at a URL that is no local file."""
    url = f"memory://{uuid.uuid4().hex}/train"
    write_segmented(url, ROWS, letters=10, shards=SHARDS, group=GROUP)
    return scan(manifest.read(url, "segment", "--segmented"), 13, 13, LIMIT)


def feed(corpus: Corpus, config: TrainConfig = CONFIG, rank: int = 0, world: int = 1) -> Feed:
    return Feed(corpus, config, Group(torch.device("cpu"), rank, world))


def take(found: Feed, epochs: int = 1, position: Position | None = None) -> list[Step]:
    """The steps to the end of an epoch."""
    taken = []
    with closing(found.steps(position)) as steps:
        for step in steps:
            taken.append(step)
            if step.after.epoch == epochs:
                return taken
    raise AssertionError("the feed has no end")


def ids_of(steps: list[Step]) -> list[list[int]]:
    return [step.ids.tolist() for step in steps]


def rows_of(step: Step) -> list[Row]:
    """The pairs of a step's parts as they were before they became tensors."""
    rows = []
    for part in step.parts:
        for source, mask, target in zip(*(tensor.tolist() for tensor in part), strict=True):
            assert mask == [piece != PAD for piece in source]
            sides = [[piece for piece in side if piece != PAD] for side in (source, target)]
            assert all(side.pop() == EOS for side in sides)
            rows.append((sides[0], sides[1]))
    return rows


# ---- order ----


def plain_epoch(config: TrainConfig, epoch: int) -> list[list[list[int]]]:
    """The order of an epoch, as the module describes it, from lists: block, batch, id."""
    per_shard = len(ROWS) // SHARDS
    groups = [
        [
            1000 + row
            for row in range(start, min(start + GROUP, (shard + 1) * per_shard))
            if 1000 + row in USABLE
        ]
        for shard in range(SHARDS)
        for start in range(shard * per_shard, (shard + 1) * per_shard, GROUP)
    ]
    groups = [group for group in groups if group]
    order = np.random.default_rng([config.seed, epoch]).permutation(len(groups)).tolist()
    blocks: list[list[int]] = []
    taken: list[int] = []
    while order:
        taken.append(order.pop(0))
        if sum(len(groups[g]) for g in taken) >= config.shuffle_pairs or not order:
            blocks.append(taken)
            taken = []

    def length(i: int, *sides: int) -> int:
        return max(len(USABLE[i][side]) + 1 for side in sides)

    epochs_batches = []
    for number, block in enumerate(blocks):
        ids = [i for g in sorted(block) for i in groups[g]]
        generator = np.random.default_rng([config.seed, epoch, 1 + number])
        ids = [ids[i] for i in generator.permutation(len(ids))]
        size = config.batch
        if config.batch_unit == "tokens":
            size = int(config.batch / np.mean([length(i, 0, 1) for i in ids]))
        batches: list[list[int]] = []
        for start in range(0, len(ids), 20 * size):
            window = sorted(
                ids[start : start + 20 * size],
                key=lambda i: (length(i, 0, 1), length(i, 1), length(i, 0)),
            )
            batches.append([])
            for i in window:
                full = (
                    len(batches[-1]) == config.batch
                    if config.batch_unit == "sentences"
                    else (len(batches[-1]) + 1) * length(i, 0, 1) > config.batch
                )
                if full:
                    batches.append([])
                batches[-1].append(i)
        epochs_batches.append([batches[i] for i in generator.permutation(len(batches))])
    return epochs_batches


@pytest.mark.parametrize("config", [CONFIG, BY_TOKENS, ALL_IN_ONE])
def test_the_order_is_that_of_the_description(corpus: Corpus, config: TrainConfig) -> None:
    steps = take(feed(corpus, config), epochs=2)
    expected = [plain_epoch(config, epoch) for epoch in range(2)]
    assert (len(expected[0]) == 1) == (config is ALL_IN_ONE)
    assert ids_of(steps) == [batch for epoch in expected for block in epoch for batch in block]
    before = [Position(), *(step.after for step in steps[:-1])]
    assert before == [
        Position(epoch, block, batch)
        for epoch in range(2)
        for block in range(len(expected[epoch]))
        for batch in range(len(expected[epoch][block]))
    ]
    assert steps[-1].after == Position(2)


@pytest.mark.parametrize("config", [CONFIG, BY_TOKENS, ALL_IN_ONE])
def test_an_epoch_holds_each_usable_pair_once_in_an_order_of_its_own(
    corpus: Corpus, config: TrainConfig
) -> None:
    orders = []
    for seed in (1, 2):
        steps = take(feed(corpus, replace(config, seed=seed)), epochs=3)
        for epoch in range(3):
            mine = [s for s in steps if (s.after.epoch == epoch) != (s.after == Position(epoch))]
            mine += [s for s in steps if s.after == Position(epoch + 1)]
            ids = [i for step in mine for i in step.ids.tolist()]
            assert sorted(ids) == sorted(USABLE)
            orders.append(ids)
    for one, other in itertools.combinations(orders, 2):
        assert one != other


@pytest.mark.parametrize("config", [CONFIG, BY_TOKENS])
@pytest.mark.parametrize(("world", "accumulate"), [(1, 1), (1, 4), (2, 1), (4, 3), (7, 2)])
def test_processes_and_parts_take_each_pair_of_a_step_once(
    corpus: Corpus, config: TrainConfig, world: int, accumulate: int
) -> None:
    config = replace(config, accumulate=accumulate)
    of_rank = [take(feed(corpus, config, rank, world)) for rank in range(world)]
    expected = [batch for block in plain_epoch(config, 0) for batch in block]
    seen_parts = set()
    for steps in zip(*of_rank, strict=True):  # equally many in all processes
        batch = expected.pop(0)
        rows = [row for step in steps for row in rows_of(step)]
        assert sorted(rows) == sorted(USABLE[i] for i in batch)
        for step in steps:
            assert step.ids.tolist() == batch
            assert step.tokens == sum(len(USABLE[i][1]) + 1 for i in batch)
            assert step.source_tokens == sum(len(USABLE[i][0]) + 1 for i in batch)
            assert (step.after, step.padding) == (steps[0].after, steps[0].padding)
            pairs = len(rows_of(step))
            assert len(step.parts) == min(accumulate, pairs)
            assert all(len(part.source_BS) for part in step.parts)
            lengths = [max(map(len, row)) for row in rows_of(step)]
            assert lengths == sorted(lengths), "parts hold neighbours in length"
            seen_parts.add(len(step.parts))
    assert not expected
    if (world, config.batch_unit) == (7, "sentences"):
        assert 0 in seen_parts, "some batch has fewer pairs than processes"


def test_padding_is_that_of_the_matrices(corpus: Corpus) -> None:
    for step in take(feed(corpus, BY_TOKENS)):
        (part,) = step.parts
        cells = torch.cat([part.source_BS.flatten(), part.target_BT.flatten()])
        assert step.padding == pytest.approx((cells == PAD).double().mean().item())


def test_sentence_batches_hold_like_lengths(corpus: Corpus) -> None:
    steps = take(feed(corpus, ALL_IN_ONE))
    longest = {i: max(map(len, row)) for i, row in USABLE.items()}
    spread = [np.ptp([longest[i] for i in step.ids.tolist()]) for step in steps]
    assert np.mean(spread) < 0.2 * np.ptp(list(longest.values()))


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


# ---- going on ----


@pytest.mark.parametrize("config", [BY_TOKENS, ALL_IN_ONE])
def test_from_every_position_the_rest_follows(corpus: Corpus, config: TrainConfig) -> None:
    whole = take(feed(corpus, config), epochs=2)
    positions = [Position(), *(step.after for step in whole[:-1])]
    for number, position in enumerate(positions):
        other = replace(config, accumulate=1 + number % 3)
        rest = take(feed(corpus, other, number % 2, 2), 2, position)
        assert ids_of(rest) == ids_of(whole[number:])
        assert [step.after for step in rest] == [step.after for step in whole[number:]]
    again = take(feed(corpus, config), 2, positions[3])
    for one, two in zip(again, whole[3:], strict=True):
        assert rows_of(one) == rows_of(two)


# ---- reading ----


class Reads:
    """Watches what is read of corpora and how much of it is alive."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.chosen: list[list[int]] = []
        self.done = self.most_rows = 0
        self.before: list[int] = []
        """Blocks alive when a read began."""
        self._alive: weakref.WeakValueDictionary[int, Pairs] = weakref.WeakValueDictionary()
        read = Corpus.read

        def watched(corpus: Corpus, chosen: np.ndarray, *rest: object) -> Pairs:
            self.chosen.append(chosen.tolist())
            self.before.append(len(self.alive))
            pairs = read(corpus, chosen, *rest)
            self._alive[len(self.chosen)] = pairs
            self.most_rows = max(self.most_rows, sum(map(len, self.alive)))
            self.done += 1
            return pairs

        monkeypatch.setattr(Corpus, "read", watched)

    @property
    def alive(self) -> list[Pairs]:
        return list(self._alive.values())


@pytest.mark.parametrize("shuffle_pairs", [1, 35])
def test_at_most_two_blocks_are_in_memory(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch, shuffle_pairs: int
) -> None:
    monkeypatch.setattr("rareword.trainer.feed.STEPS_AHEAD", 1)
    reads = Reads(monkeypatch)
    found = feed(corpus, replace(CONFIG, shuffle_pairs=shuffle_pairs, batch=2))
    blocks = len(found.blocks(0)) + len(found.blocks(1))
    assert blocks >= 2 * len(USABLE) / (shuffle_pairs + GROUP)
    with closing(found.steps()) as steps:
        next(steps)
        end = time.monotonic() + 60
        while reads.done < 2 and time.monotonic() < end:
            time.sleep(0.01)
        assert len(reads.alive) == 2, "one in use and one read ahead"
        while next(steps).after.epoch < 2:
            pass
    assert blocks <= len(reads.chosen) <= blocks + 2
    assert set(reads.before) == {0, 1}
    assert 0 < reads.most_rows <= 2 * (shuffle_pairs + GROUP - 1) < len(USABLE) / 3


def test_what_comes_before_the_position_is_not_read(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, found = Reads(monkeypatch), feed(corpus)
    blocks = found.blocks(5)
    with closing(found.steps(Position(5, len(blocks) - 1, 1))) as steps:
        assert next(steps).after.epoch in (5, 6)
    assert reads.chosen[0] == blocks[-1].tolist()
    following = [block.tolist() for block in found.blocks(6)]
    assert reads.chosen[1:] == following[: len(reads.chosen) - 1]


def test_a_corpus_of_one_block_is_read_once(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = Reads(monkeypatch)
    take(feed(corpus, ALL_IN_ONE), epochs=3)
    assert reads.chosen == [list(range(len(corpus.row_groups)))]


def test_only_a_few_steps_are_made_ahead(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    make = data.make_batch

    def counting(*arguments: object) -> data.Batch:
        made.append(1)
        return make(*arguments)

    monkeypatch.setattr("rareword.trainer.feed.make_batch", counting)
    with closing(feed(corpus, ALL_IN_ONE).steps()) as steps:
        for taken in range(1, 4):
            next(steps)
            time.sleep(0.1)  # enough to run away; a slow machine passes all the same
            assert len(made) <= taken + STEPS_AHEAD


# ---- failing and ending ----


def feeding_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("rareword-feed")]


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    assert not feeding_threads()
    yield
    assert not feeding_threads()


def local_corpus(directory: Path, write_segmented: Callable[..., Path]) -> Corpus:
    write_segmented(directory, ROWS, letters=10, shards=SHARDS, group=GROUP)
    return scan(manifest.read(str(directory), "segment", "--segmented"), 13, 13, LIMIT)


def test_a_row_group_damaged_later_ends_the_feed_with_its_file(
    tmp_path: Path, write_segmented: Callable[..., Path]
) -> None:
    """At the first step that needs it and not before."""
    corpus = local_corpus(tmp_path, write_segmented)
    found = feed(corpus)
    block_of = {group: n for n, block in enumerate(found.blocks(0)) for group in block.tolist()}
    (firsts,) = np.nonzero(corpus.row_groups["index"] == 0)
    group = max(firsts.tolist(), key=block_of.__getitem__)
    assert block_of[group] > 0
    shard = corpus.row_groups["shard"][group]
    file = tmp_path / f"part-0000{shard}-of-00004.parquet"
    content = bytearray(file.read_bytes())
    content[40:60] = bytes(20)
    file.write_bytes(content)
    taken: list[Step] = []
    with pytest.raises(RarewordError, match=f"part-0000{shard}.*row group 0 is damaged"):
        taken.extend(found.steps())
    sound = plain_epoch(CONFIG, 0)[: block_of[group]]
    assert ids_of(taken) == [batch for block in sound for batch in block]


def test_a_lost_shard_and_a_strange_id_end_the_feed_with_the_file(
    tmp_path: Path, write_segmented: Callable[..., Path]
) -> None:
    corpus = local_corpus(tmp_path, write_segmented)
    narrower = replace(corpus, limits=replace(corpus.limits, target_size=12))
    with pytest.raises(RarewordError, match=r"part-0000.*'target' holds piece id 12"):
        take(feed(narrower))
    (tmp_path / "part-00003-of-00004.parquet").unlink()
    with pytest.raises(RarewordError, match="part-00003"):
        take(feed(corpus))


def test_any_failure_of_a_thread_reaches_the_consumer(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object) -> Pairs:
        raise MemoryError("no room")

    monkeypatch.setattr("rareword.trainer.feed.make_batch", broken)
    with pytest.raises(MemoryError, match="no room"):
        take(feed(corpus))
    monkeypatch.undo()
    monkeypatch.setattr(Corpus, "read", broken)
    with pytest.raises(MemoryError, match="no room"):
        take(feed(corpus))


def test_threads_end_with_the_iterator(corpus: Corpus) -> None:
    steps = feed(corpus).steps()
    assert not feeding_threads(), "nothing runs before the first step is asked for"
    for _ in range(3):
        next(steps)
        assert len(feeding_threads()) == 2
    steps.close()
    assert not feeding_threads()
    with pytest.raises(StopIteration):
        next(steps)
    forgotten = feed(corpus).steps()
    next(forgotten)
    del forgotten


def test_a_read_under_way_is_broken_off(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closed while the next block is being read, the feed waits for no more than a row group."""
    found = feed(corpus)
    first, second = (len(block) for block in found.blocks(0)[:2])
    reading, go_on = threading.Event(), threading.Event()
    read: list[int] = []
    groups = data.iterate_row_groups

    def slow(*arguments: object, **named: object) -> Iterator[object]:
        for table in groups(*arguments, **named):
            if len(read) == first:
                reading.set()
                assert go_on.wait(60)
            read.append(1)
            yield table

    monkeypatch.setattr(data, "iterate_row_groups", slow)
    with closing(found.steps()) as steps:
        next(steps)
        assert reading.wait(60)
        threading.Timer(0.2, go_on.set).start()
    assert second > 1
    assert len(read) == first + 1


def test_a_process_ends_though_its_feed_was_never_closed(
    tmp_path: Path, write_segmented: Callable[..., Path]
) -> None:
    local_corpus(tmp_path, write_segmented)
    program = f"""
import torch
from rareword.schemas import manifest
from rareword.trainer.config import TrainConfig
from rareword.trainer.data import scan
from rareword.trainer.distributed import Group
from rareword.trainer.feed import Feed
corpus = scan(manifest.read({str(tmp_path)!r}, "segment", "--segmented"), 13, 13, {LIMIT})
steps = Feed(corpus, TrainConfig(shuffle_pairs=20), Group(torch.device("cpu"))).steps()
print(len(next(steps).ids) > 0)
raise RuntimeError("an end without order")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=100
    )
    assert (done.returncode, done.stdout) == (1, "True\n")
    assert done.stderr.endswith("RuntimeError: an end without order\n")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_tensors_for_a_gpu_are_pinned(corpus: Corpus) -> None:
    found = Feed(corpus, CONFIG, Group(torch.device("cuda", 0)))
    with closing(found.steps()) as steps:
        step = next(steps)
    assert all(tensor.is_pinned() for part in step.parts for tensor in part)
    moved = step.parts[0].to(torch.device("cuda", 0))
    assert torch.equal(moved.source_BS.cpu(), step.parts[0].source_BS)
