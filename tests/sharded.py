"""The graph of `LearnMerges` as a loop, without Beam: many schedules in the time of one job."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from rareword.transforms import _kernels, rounds
from rareword.transforms.rounds import Control, PairCounts, Rules, Sequences


def shards_of(words: pa.Array, counts: np.ndarray, shards: int) -> list[Sequences]:
    """The base symbols of a word table, its rows dealt to shards."""
    return [
        Sequences(*_kernels.base_symbols(words.take(np.arange(k, len(words), shards)), mine))
        for k, mine in ((k, np.ascontiguousarray(counts[k::shards])) for k in range(shards))
    ]


def learn(states: Sequence[Sequences], rules: Rules, control: Control, threads: int = 1) -> Control:
    """Rounds until the learner has finished. Each round must add merges."""
    while not control.done:
        done_before = len(control.merges)
        states = [rounds.apply_merges(state, control.merges, threads) for state in states]
        tables = [
            part for state in states for part in rounds.count_pairs(state, rules.parts, threads)
        ]
        pairs = [
            rounds.cut_pairs(
                PairCounts.from_table(rounds.sum_pairs([t for k, t in tables if k == part])),
                control.threshold,
                rules,
            )
            for part in {key for key, _ in tables}
        ]
        control = rounds.choose_threshold(control, pairs, rules)
        if control.done:
            break
        tables = [
            part
            for state in states
            for part in rounds.cut_chunks(state, control.active, rules.parts, threads)
        ]
        chunks = [
            rounds.fit_chunks(
                Sequences.from_table(rounds.sum_chunks([t for k, t in tables if k == part])),
                control,
                rules,
            )
            for part in {key for key, _ in tables}
        ]
        control = rounds.learn(control, chunks, rules)
        assert len(control.merges) > done_before or control.done, "a round must make progress"
    return control


def rounds_above_schedule(
    log: Sequence[dict[str, int]], counts: Sequence[int], divide: int, min_frequency: int = 2
) -> list[int]:
    """The rounds whose threshold is above the one `divide` asks for: parts of the chunk table were
    cut again, to fit their limit.

    log: the rows of rounds.json, of one run from the first merge on; counts: those of the merges.
    """
    found = []
    merges = before = 0
    for number, row in enumerate(log):
        level = counts[merges] // divide
        if before:
            level = min(level, before // divide)
        if row["threshold"] > max(level, min_frequency):
            found.append(number)
        merges, before = row["merges"], row["threshold"]
    return found
