"""BPE-dropout on the training data: other pieces each epoch."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rareword.schemas.tables import SIDES, Side
from rareword.trainer.data import Pairs, Sentences
from rareword.transforms.bpe import BpeDropout


@dataclass(frozen=True)
class PieceDropout:
    """BPE-dropout on the training data: other pieces each epoch."""

    sides: Mapping[Side, BpeDropout]
    """The sides whose pieces are drawn anew."""
    probability: float
    seed: int
    max_length: int
    """Pieces; see `draw`."""
    threads: int = 1

    def draw(self, pairs: Pairs, epoch: int) -> tuple[Pairs, int]:
        """Pairs as an epoch has them, and how many sentences dropout left alone because they
        would have had more than `max_length` pieces.

        A sentence's pieces are a function of seed, epoch, side and the id of its pair.
        """
        drawn, too_long = {"source": pairs.source, "target": pairs.target}, 0
        for number, side in enumerate(SIDES):
            if side not in self.sides:
                continue
            before = drawn[side]
            state = np.random.SeedSequence([self.seed, epoch, number])
            seed = int(state.generate_state(1, np.uint64)[0])
            after = Sentences(
                *self.sides[side].draw(
                    before.flat, before.offsets, pairs.ids, self.probability, seed, self.threads
                )
            )
            over = after.lengths > self.max_length + 1
            too_long += int(over.sum())
            drawn[side] = _either(over, before, after)
        return replace(pairs, source=drawn["source"], target=drawn["target"]), too_long


def _either(first: NDArray[np.bool_], one: Sentences, other: Sentences) -> Sentences:
    """Sentence i of `one` where first[i], else of `other`."""
    if not first.any():
        return other
    lengths = np.where(first, one.lengths, other.lengths) - 1
    starts = np.where(first, one.offsets[:-1], other.offsets[:-1] + len(one.flat))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    places = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
    return Sentences(np.concatenate([one.flat, other.flat])[places], offsets)
