"""Unigram language model (Kudo 2018), learnt by the sentencepiece library from a word table.

A segmentation's probability is the product of its pieces' probabilities, and the best one is cut.
Learning begins with many pieces, fits their probabilities (EM), and drops those whose loss would
cost the text's likelihood least, again and again; characters stay.
"""

import functools
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rareword.schemas import storage
from rareword.schemas.tables import ShardRecord
from rareword.transforms import sentencepiece_models as models
from rareword.transforms.segmenters import CuttingSegmenter

UNKNOWN_PENALTY = 10.0
"""How far the log probability of an unknown character lies below that of the rarest piece."""


class UnigramSegmenter(CuttingSegmenter):
    """Cuts words into the most probable pieces. A character that no piece has is cut off by itself.

    `cut` gives the best segmentation, `n_best` the best ones, `sample` a random one.
    """

    spells: ClassVar[bool] = True

    def __init__(self, model: bytes, name: str = "the model") -> None:
        """`model`: a sentencepiece model of type unigram. `name` is for errors."""
        self.model = model
        self.processor = models.load_model(model, name)
        self._unknown_id = self.processor.unk_id()

    @classmethod
    def learn(
        cls,
        words: pa.Array,
        counts: NDArray[np.int64],
        *,
        pieces: int,
        max_piece_length: int = 16,
    ) -> "UnigramSegmenter":
        """Learns at most `pieces` pieces of at most `max_piece_length` characters, characters
        included, from words and their counts."""
        sums: dict[str, int] = {}
        for word, count in zip(words.to_pylist(), counts.tolist(), strict=True):
            sums[word] = sums.get(word, 0) + count
        return cls(models.learn_model(sums, pieces=pieces, max_piece_length=max_piece_length))

    @functools.cached_property
    def log_probabilities(self) -> dict[str, float]:
        """The natural logarithm of each piece's probability."""
        return {
            text: self.processor.get_score(i)
            for i, text in enumerate(self._texts)
            if i != self._unknown_id
        }

    @functools.cached_property
    def _unknown(self) -> float:
        return min(self.log_probabilities.values(), default=0.0) - UNKNOWN_PENALTY

    @functools.cached_property
    def _longest(self) -> int:
        return max(map(len, self.log_probabilities), default=1)

    def cut(self, words: Sequence[str]) -> list[Sequence[str]]:
        protected = models.protect_words(words)
        found: list[Sequence[str]] = []
        text_of = self._texts.__getitem__
        encoded = self.processor.encode(protected, out_type=int, num_threads=1)
        for word, given, ids in zip(words, protected, encoded, strict=True):
            if self._unknown_id in ids:
                found.append(self._pieces(word, self.processor.encode(given, out_type=str), ids))
            else:
                found.append(list(map(text_of, ids)))
        return found

    @functools.cached_property
    def _texts(self) -> list[str]:
        """What each piece of the model stands for, by the library's ids."""
        return [models.text_of(self.processor.id_to_piece(i)) for i in range(len(self.processor))]

    def _pieces(self, word: str, texts: Sequence[str], ids: Sequence[int]) -> Sequence[str]:
        """The library's pieces as parts of the word. It joins unknown characters; here each is by
        itself."""
        pieces: list[str] = []
        begin = 0
        for text, i in zip(texts, ids, strict=True):
            piece = word[begin : begin + len(text)]
            pieces += [piece] if i != self._unknown_id else list(piece)
            begin += len(text)
        return pieces

    def log_probability(self, pieces: Sequence[str]) -> float:
        """The natural logarithm of a segmentation's probability."""
        return math.fsum(self.log_probabilities.get(piece, self._unknown) for piece in pieces)

    def n_best(self, word: str, n: int) -> list[Sequence[str]]:
        """The n most probable segmentations of a word, best first; fewer if there are no more."""
        protected = models.protect(word)
        texts = self.processor.nbest_encode_as_pieces(protected, n)
        ids = self.processor.nbest_encode_as_ids(protected, n)
        return [self._pieces(word, *found) for found in zip(texts, ids, strict=True)]

    def sample(self, words: Sequence[str], alpha: float, seed: int) -> list[Sequence[str]]:
        """A random segmentation of each word, drawn from all with a chance that is proportional to
        its probability to the power of `alpha`: 1 is the model's own, 0 makes all equal, and a
        large one gives the best. The result is a function of words, alpha and seed.
        """
        generator = random.Random(seed)
        return [self._sample(word, alpha, generator) for word in words]

    def _sample(self, word: str, alpha: float, generator: random.Random) -> Sequence[str]:
        """Adds up all ways to each place, then draws piece after piece from the end."""
        known = self.log_probabilities
        ways = [0.0]  # the logarithm of the sum over all segmentations of word[:end]
        steps: list[list[tuple[int, float]]] = [[]]  # the last piece's begin, and its share of that
        for end in range(1, len(word) + 1):
            found = []
            for begin in range(max(0, end - self._longest), end):
                score = known.get(word[begin:end])
                if score is None and begin == end - 1:
                    score = self._unknown
                if score is not None:
                    found.append((begin, ways[begin] + alpha * score))
            best = max(score for _, score in found)
            ways.append(best + math.log(sum(math.exp(score - best) for _, score in found)))
            steps.append(found)
        pieces: list[str] = []
        end = len(word)
        while end:
            begins = [begin for begin, _ in steps[end]]
            weights = [math.exp(score - ways[end]) for _, score in steps[end]]
            (begin,) = generator.choices(begins, weights)
            pieces.append(word[begin:end])
            end = begin
        return pieces[::-1]

    def save(self, directory: str, side: str) -> list[ShardRecord]:
        return [models.save_model(self.model, directory, _file_name(side))]

    @classmethod
    def load(cls, directory: str, side: str, settings: Mapping[str, Any]) -> "UnigramSegmenter":
        name = _file_name(side)
        return cls(models.read_model(directory, name), storage.join(directory, name))


def _file_name(side: str) -> str:
    return f"unigram-{side}.model"
