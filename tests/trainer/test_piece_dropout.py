"""BPE-dropout in training: what an epoch's pieces depend on, and on what they do not."""

import itertools
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import oracles
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rareword.schemas import manifest, storage
from rareword.schemas.manifest import Manifest
from rareword.schemas.merges import Merge, Symbol
from rareword.schemas.tables import SIDES
from rareword.schemas.vocabulary import Vocabularies
from rareword.trainer.config import TrainConfig
from rareword.trainer.data import Pairs, Sentences, read_pairs, scan
from rareword.trainer.distributed import Group
from rareword.trainer.feed import Feed
from rareword.trainer.piece_dropout import PieceDropout, _either
from rareword.trainer.progress import RECORD
from rareword.trainer.train import Corpora, Trainer
from rareword.transforms import segmenters, segmenting
from rareword.transforms.bpe import BpeSegmenter
from rareword.transforms.segmenters import VocabularyRules

TEXT = ["lower newest low", "the newest lower widest", "low low", "widest newest", "a low newest"]


def corpus(rows: int = 60) -> tuple[BpeSegmenter, Vocabularies, Pairs]:
    """Sentences of TEXT in both directions, in pieces."""
    lines = [TEXT[i % len(TEXT)] + " low" * (i % 3) for i in range(rows)]
    learnt = oracles.learn_bpe(oracles.count_words(lines), 40, 1)
    segmenter = BpeSegmenter([Merge(Symbol(*a), Symbol(*b), n) for (a, b), n in learnt])
    counter = oracles.count_words(lines)
    counts = np.array(list(counter.values()))
    found = segmenting.count_pieces(
        pa.array(list(counter)), dict.fromkeys(SIDES, counts), dict.fromkeys(SIDES, segmenter)
    )
    both = segmenters.build_vocabularies(found, VocabularyRules(joint=True), spells=True)
    sides = []
    for side in (lines, lines[::-1]):
        encoded = segmenter.encoder(both.source).encode(pa.array(side))
        sides.append(Sentences(encoded.ids, encoded.offsets))
    return segmenter, both, Pairs(np.arange(rows) * 7 + 1000, *sides)


def dropout(max_length: int = 100, **changes: object) -> PieceDropout:
    segmenter, both, _ = corpus()
    values = {"probability": 0.3, "seed": 1, **changes}
    return PieceDropout(
        dict.fromkeys(SIDES, segmenter.dropout(both.source)), max_length=max_length, **values
    )


def texts(side: Sentences) -> list[str]:
    words = corpus()[1].source.words
    return [words(side[i].tolist()) for i in range(len(side.offsets) - 1)]


def ids(side: Sentences) -> list[list[int]]:
    return [side[i].tolist() for i in range(len(side.offsets) - 1)]


def test_every_epoch_has_other_pieces_of_the_same_text() -> None:
    pairs = corpus()[2]
    seen = []
    for epoch in range(3):
        drawn, too_long = dropout().draw(pairs, epoch)
        assert too_long == 0
        assert drawn.ids.tolist() == pairs.ids.tolist()
        assert texts(drawn.source) == texts(pairs.source)
        assert texts(drawn.target) == texts(pairs.target)
        seen += [ids(drawn.source), ids(drawn.target)[::-1]]
    for one, other in itertools.combinations(seen, 2):
        assert one != other, "epochs and sides draw by themselves"
    assert ids(dropout(seed=2).draw(pairs, 0)[0].source) != seen[0]
    assert ids(dropout(threads=3).draw(pairs, 0)[0].source) == seen[0]


def test_a_pairs_pieces_depend_on_its_id_not_on_its_place() -> None:
    pairs = corpus()[2]
    whole = dropout().draw(pairs, 4)[0]
    order = np.random.default_rng(0).permutation(len(pairs))[:23]

    def chosen(side: Sentences) -> Sentences:
        rows = [side[i] for i in order]
        return Sentences(np.concatenate(rows), np.cumsum([0, *map(len, rows)]))

    part = Pairs(pairs.ids[order], chosen(pairs.source), chosen(pairs.target))
    drawn = dropout().draw(part, 4)[0]
    assert ids(drawn.source) == ids(chosen(whole.source))
    assert ids(drawn.target) == ids(chosen(whole.target))


def test_one_side_alone_may_be_drawn() -> None:
    segmenter, both, pairs = corpus()
    one = PieceDropout({"target": segmenter.dropout(both.target)}, 0.3, 1, 100)
    drawn = one.draw(pairs, 0)[0]
    assert drawn.source is pairs.source
    assert ids(drawn.target) == ids(dropout().draw(pairs, 0)[0].target) != ids(pairs.target)


def test_a_sentence_that_would_become_too_long_keeps_its_pieces() -> None:
    pairs = corpus()[2]
    longest = int(pairs.longest.max()) - 1
    free = dropout(probability=0.9).draw(pairs, 0)[0]
    drawn, too_long = dropout(longest, probability=0.9).draw(pairs, 0)
    kept = 0
    for side in SIDES:
        before, after, all_of_it = (ids(getattr(p, side)) for p in (pairs, drawn, free))
        expected = [
            long if len(long) <= longest else short
            for short, long in zip(before, all_of_it, strict=True)
        ]
        assert after == expected
        kept += sum(len(long) > longest for long in all_of_it)
    assert too_long == kept > 0
    assert drawn.longest.max() <= longest + 1


@given(st.lists(st.tuples(st.booleans(), *[st.lists(st.integers(0, 9), max_size=4)] * 2)))
def test_sentences_are_chosen_from_either(rows) -> None:
    def side(sentences: list[list[int]]) -> Sentences:
        flat = np.array([i for row in sentences for i in row], np.int32)
        return Sentences(flat, np.cumsum([0, *map(len, sentences)]))

    first = np.array([row[0] for row in rows], bool)
    found = _either(first, side([row[1] for row in rows]), side([row[2] for row in rows]))
    assert ids(found) == [row[1] if row[0] else row[2] for row in rows]


# ---- in the feed ----

TINY = TrainConfig(
    embedding=8, hidden=16, encoder_hidden=8, batch=150, bleu_pairs=2, max_steps=11,
    checkpoint_every=2, log_every=100, bpe_dropout=0.3,
)  # fmt: skip
ALONE = Group(torch.device("cpu"))


@pytest.fixture
def on_disk(tmp_path: Path, write_segmented: Callable[..., Path]) -> Manifest:
    """The corpus in row groups of 7 pairs."""
    pairs = corpus()[2]
    rows = list(zip(ids(pairs.source), ids(pairs.target), strict=True))
    write_segmented(tmp_path / "data", rows, letters=1, group=7)
    return manifest.read(str(tmp_path / "data"), "segment", "--segmented")


def sizes() -> tuple[int, int]:
    both = corpus()[1]
    return len(both.source), len(both.target)


@pytest.mark.parametrize("shuffle_pairs", [1000, 15])
def test_batches_are_planned_with_what_is_drawn_whatever_the_blocks(
    on_disk: Manifest, shuffle_pairs: int
) -> None:
    plain = read_pairs(on_disk, *sizes())
    config = TrainConfig(**{**vars(TINY), "shuffle_pairs": shuffle_pairs})
    made = Feed(scan(on_disk, *sizes()), config, ALONE, dropout())
    blocks = 0
    with closing(made.steps()) as steps:
        for epoch in range(2):
            drawn = dropout().draw(plain, epoch)[0]
            assert drawn.longest.sum() > plain.longest.sum()
            place = {pair: i for i, pair in enumerate(drawn.ids.tolist())}
            seen: list[int] = []
            for step in steps:
                chosen = np.array([place[pair] for pair in step.ids.tolist()])
                (part,) = step.parts
                np.testing.assert_array_equal(part.source_BS, drawn.source.padded(chosen))
                np.testing.assert_array_equal(part.target_BT, drawn.target.padded(chosen))
                assert len(chosen) * drawn.longest[chosen].max() <= config.batch
                blocks += f"epoch {epoch + 1}" in step.note and "BPE-dropout makes" in step.note
                seen += step.ids.tolist()
                if step.after.epoch > epoch:
                    break
            assert sorted(seen) == sorted(place)
    assert blocks == len(made.blocks(0)) + len(made.blocks(1))
    assert (blocks > 2) == (shuffle_pairs == 15)


# ---- in the loop ----


def run(directory: Path, data: Manifest, lines: list[str], **changes: object) -> Trainer:
    return Trainer(
        TrainConfig(**{**vars(TINY), **changes}),
        Corpora(scan(data, *sizes()), read_pairs(data, *sizes()), corpus()[1], dropout()),
        directory=str(directory),
        run="a plan",
        group=ALONE,
        say=lines.append,
    )


class StoppedError(Exception):
    pass


def checksums(directory: Path) -> dict[str, str]:
    """Of all files but the record, which holds times."""
    names = set(storage.list_files(str(directory))) - {RECORD}
    return {name: storage.sha256(str(directory / name)) for name in names}


@pytest.mark.parametrize(("stop_after", "shuffle_pairs"), [(1, 1000), (5, 1000), (5, 15), (9, 15)])
def test_a_run_broken_off_in_an_epoch_ends_with_the_same_bytes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    on_disk: Manifest,
    stop_after: int,
    shuffle_pairs: int,
) -> None:
    lines: list[str] = []
    run(tmp_path / "whole", on_disk, lines, shuffle_pairs=shuffle_pairs).train()
    epochs = [line for line in lines if "BPE-dropout makes" in line]
    assert len(epochs) > 1
    assert len(set(epochs)) == len(epochs)
    step, count = Trainer._step, 0

    def stopping(self: Trainer, *arguments: object) -> None:
        nonlocal count
        if count == stop_after:
            raise StoppedError
        count += 1
        step(self, *arguments)

    monkeypatch.setattr(Trainer, "_step", stopping)
    with pytest.raises(StoppedError):
        run(tmp_path / "broken", on_disk, [], shuffle_pairs=shuffle_pairs).train()
    monkeypatch.undo()
    run(tmp_path / "broken", on_disk, [], shuffle_pairs=shuffle_pairs).train()
    assert checksums(tmp_path / "broken") == checksums(tmp_path / "whole")
