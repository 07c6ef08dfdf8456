"""Words in the place of `<unk>`, for models of whole words: what the attention says they stand for.

The rule of Jean et al. (2015), which the paper's baseline WDict follows: the source word with the
highest attention is looked up in a dictionary of single words, and copied if it is not there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rareword.schemas.vocabulary import UNK

COUNTERS = ("replaced_by_dictionary", "replaced_by_copy")
"""Figures of a shard, over its best hypotheses."""


class Replaced(NamedTuple):
    """An output without `<unk>`."""

    words: list[str]
    counts: dict[str, int]
    """The COUNTERS."""


@dataclass(frozen=True)
class Replacement:
    """The rule."""

    dictionary: Mapping[str, str] = field(default_factory=dict)
    """The translation of each source word that has one; empty if all are copied."""

    def replace(
        self,
        ids: Sequence[int],
        words: Sequence[str],
        weights_TS: "npt.NDArray[np.float32] | None",
        source_words: Sequence[str],
    ) -> Replaced:
        """Puts a word in the place of each UNK of `ids`; the others stay as they are.

        words: the text of each id. weights_TS: attention [T, S] of each output word on each source
        word; further rows and columns (end-of-sentence, padding) do not count. None will do where
        nothing is to be replaced. source_words: as they stand in the corpus, not what a vocabulary
        made of them. Of equal weights the first one counts.
        """
        found = list(words)
        counts = dict.fromkeys(COUNTERS, 0)
        for place, id_ in enumerate(ids):
            if id_ != UNK:
                continue
            assert weights_TS is not None
            source = source_words[int(weights_TS[place, : len(source_words)].argmax())]
            found[place] = self.dictionary.get(source, source)
            counts[COUNTERS[0 if source in self.dictionary else 1]] += 1
        return Replaced(found, counts)
