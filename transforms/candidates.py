"""Candidate lists: the target pieces that a sentence's translation may be made of.

The softmax over a large vocabulary is most of the work of decoding. Jean et al. (2015), and the
paper after them, take it over the most frequent pieces and the likely translations of the source
sentence's words alone.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rareword.schemas.dictionary import Dictionary
from rareword.schemas.merges import Symbol
from rareword.schemas.vocabulary import SPECIALS, UNK, Vocabularies, Vocabulary
from rareword.transforms import segmenters
from rareword.transforms.segmenters import Encoder

COUNTERS = ("searched_again", "reference_pieces", "reference_pieces_outside")
"""Figures of a shard: outputs for which the list was given up, pieces of the data's own target
side, and those of them that were in no list."""


def frequent(vocabulary: Vocabulary, most: int) -> NDArray[np.int64]:
    """The ids of the special pieces and of so many of the target side's most frequent ones, in
    ascending order; of equally frequent pieces the lower ids."""
    counts = np.asarray(vocabulary.target_counts[len(SPECIALS) :])
    found = np.argsort(-counts, kind="stable")[:most] + len(SPECIALS)
    return np.sort(np.concatenate([np.arange(len(SPECIALS)), found])).astype(np.int64)


@dataclasses.dataclass(frozen=True)
class CandidateRules:
    """How lists are made."""

    directory: str
    """That of the segmented data, which has a copy of its segmenter."""
    kind: str
    settings: Mapping[str, Any]
    """Of the segmenter."""
    frequent: int
    """The most frequent target pieces that all sentences have."""
    translations: int
    """The most probable translations of a source word."""

    def lists(self, dictionary: Dictionary, both: Vocabularies) -> "CandidateLists":
        found = segmenters.load(self.directory, self.kind, dict(self.settings))
        encoder = found["target"].encoder(both.target)
        shared_C = frequent(both.target, self.frequent)
        return CandidateLists(shared_C, dictionary, both, encoder, self.translations)


@dataclasses.dataclass(frozen=True)
class CandidateLists:
    """What each sentence has beside the pieces that all of them have."""

    shared_C: NDArray[np.int64]
    """Those of `frequent`."""
    dictionary: Dictionary
    vocabularies: Vocabularies
    encoder: Encoder
    """Of the target side: translations are words, and become pieces."""
    translations: int
    """The most probable ones of a word that are taken."""

    def __post_init__(self) -> None:
        target = self.vocabularies.target
        is_shared = np.zeros(len(target), bool)
        is_shared[self.shared_C] = True
        object.__setattr__(self, "_is_shared", is_shared)
        object.__setattr__(self, "_same", same_pieces(self.vocabularies))

    _is_shared: NDArray[np.bool_] = dataclasses.field(init=False, repr=False)
    _same: NDArray[np.int64] = dataclasses.field(init=False, repr=False)

    def own(self, sources: Sequence[NDArray[np.integer[Any]]]) -> list[NDArray[np.int64]]:
        """For each source (ids) the pieces that are not shared, in ascending order: those of its
        words' translations, and its own pieces where the target side has them too."""
        source = self.vocabularies.source
        words = [set(source.words(ids.tolist()).split(" ")) for ids in sources]
        pieces = self._pieces_of(sorted(set().union(*words)))
        found = []
        for ids, own_words in zip(sources, words, strict=True):
            parts = [pieces[word] for word in own_words if word in pieces]
            own = np.unique(np.concatenate([self._same[ids], *parts]))
            found.append(own[~self._is_shared[own]])
        return found

    def _pieces_of(self, words: Sequence[str]) -> dict[str, NDArray[np.int64]]:
        """The pieces of the translations of each word that has any."""
        best = {
            word: [text for text, _ in self.dictionary.best(word, self.translations)]
            for word in words
            if word in self.dictionary
        }
        texts = sorted(set(itertools.chain.from_iterable(best.values())))
        encoded = self.encoder.encode(pa.array(texts, pa.string()))
        bounds = itertools.pairwise(encoded.offsets.tolist())
        ids = {
            text: encoded.ids[begin:end].astype(np.int64)
            for text, (begin, end) in zip(texts, bounds, strict=True)
        }
        return {
            word: np.concatenate([ids[text] for text in best[word]]) for word in best if best[word]
        }

    def outside(
        self, targets: Sequence[Sequence[int]], own: Sequence[NDArray[np.int64]]
    ) -> list[int]:
        """How many pieces of each target are in no list of its sentence."""
        found = []
        for target, own_X in zip(targets, own, strict=True):
            ids = np.asarray(target, np.int64)
            found.append(int((~self._is_shared[ids] & ~np.isin(ids, own_X)).sum()))
        return found


def same_pieces(vocabularies: Vocabularies) -> NDArray[np.int64]:
    """[source vocabulary]: the target side's id of each source piece, UNK where it has none."""
    source, target = vocabularies.source, vocabularies.target
    is_bytes = source.is_bytes or [False] * len(source)
    same = [
        target.id(Symbol(piece, final), bytes_)
        for piece, final, bytes_ in zip(source.pieces, source.final, is_bytes, strict=True)
    ]
    return np.array([*[UNK] * len(SPECIALS), *same[len(SPECIALS) :]], np.int64)
