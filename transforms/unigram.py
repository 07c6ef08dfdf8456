"""Unigram language model (Kudo 2018), learnt by the sentencepiece library from a word table.

A segmentation's probability is the product of its pieces' probabilities, and the best one is cut.
Learning begins with many pieces, fits their probabilities (EM), and drops those whose loss would
cost the text's likelihood least, again and again; characters stay.
"""

import functools
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rareword.schemas import storage
from rareword.schemas.errors import RarewordError
from rareword.schemas.tables import ShardRecord
from rareword.schemas.vocabulary import Vocabulary
from rareword.transforms import sentencepiece_models as models
from rareword.transforms.segmenters import (
    CuttingEncoder,
    CuttingSegmenter,
    Encoded,
    Encoder,
    split_words,
)

Steps = list[list[tuple[int, float]]]
"""For each place in a word where a piece may end: where it may begin, and how probable that is."""

LARGEST_ALPHA = 1e6
"""Above, rounding errors of the logarithms would count."""
MOST_SEGMENTATIONS = 512
"""The library gives no more of a word."""
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
            for i, text in enumerate(self.texts)
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
        text_of = self.texts.__getitem__
        encoded = self.processor.encode(protected, out_type=int, num_threads=1)
        for word, given, ids in zip(words, protected, encoded, strict=True):
            if self._unknown_id in ids:
                found.append(self._pieces(word, self.processor.encode(given, out_type=str), ids))
            else:
                found.append(list(map(text_of, ids)))
        return found

    def encoder(self, vocabulary: Vocabulary) -> Encoder:
        return _UnigramEncoder(self, vocabulary)

    @functools.cached_property
    def texts(self) -> list[str]:
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
        """The n most probable segmentations of a word, best first; fewer if there are no more.
        Raises RarewordError for n above MOST_SEGMENTATIONS."""
        if not 1 <= n <= MOST_SEGMENTATIONS:
            raise RarewordError(
                f"{n} segmentations of a word cannot be listed; ask for 1 to {MOST_SEGMENTATIONS}"
            )
        protected = models.protect(word)
        texts = self.processor.nbest_encode_as_pieces(protected, n)
        ids = self.processor.nbest_encode_as_ids(protected, n)
        return [self._pieces(word, *found) for found in zip(texts, ids, strict=True)]

    def sample(self, words: Sequence[str], alpha: float, seed: int | str) -> list[Sequence[str]]:
        """A random segmentation of each word, drawn from all with a chance that is proportional to
        its probability to the power of `alpha`: 1 is the model's own, 0 makes all equal, and a
        large one gives the best. The result is a function of words, alpha and seed.
        """
        generator = random.Random(seed)
        return [_draw(word, self.steps(word, alpha), generator) for word in words]

    def steps(self, word: str, alpha: float) -> Steps:
        """What `sample` draws from: adds up all ways to each place."""
        known = self.log_probabilities
        ways = [0.0]  # the logarithm of the sum over all segmentations of word[:end]
        steps: Steps = [[]]
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
            steps.append([(begin, math.exp(score - ways[end])) for begin, score in found])
        return steps

    def sampler(self, vocabulary: Vocabulary, amount: float, seed: int) -> "UnigramSampler":
        """See `segmenters.SamplingSegmenter`. The amount is alpha."""
        if not 0 < amount <= LARGEST_ALPHA:
            raise RarewordError(
                f"{amount} is no alpha of a unigram model; give one above 0 and at most "
                f"{LARGEST_ALPHA:,.0f}"
            )
        return UnigramSampler(self, vocabulary, amount, seed)

    def save(self, directory: str, side: str) -> list[ShardRecord]:
        return [models.save_model(self.model, directory, _file_name(side))]

    @classmethod
    def load(cls, directory: str, side: str, settings: Mapping[str, Any]) -> "UnigramSegmenter":
        name = _file_name(side)
        return cls(models.read_model(directory, name), storage.join(directory, name))


def _draw(word: str, steps: Steps, generator: random.Random) -> Sequence[str]:
    """Draws piece after piece from the end."""
    pieces: list[str] = []
    end = len(word)
    while end:
        begins, weights = zip(*steps[end], strict=True)
        (begin,) = generator.choices(begins, weights)
        pieces.append(word[begin:end])
        end = begin
    return pieces[::-1]


class _UnigramEncoder(CuttingEncoder):
    """Goes from the library's ids to those of the vocabulary without a look at the texts."""

    def __init__(self, segmenter: UnigramSegmenter, vocabulary: Vocabulary) -> None:
        super().__init__(segmenter, vocabulary)
        self._unigram = segmenter
        unknown = segmenter.processor.unk_id()
        texts = [text if i != unknown else "" for i, text in enumerate(segmenter.texts)]
        self._inside_of = [self._inside.get(text) for text in texts]
        self._final_of = [self._final.get(text) for text in texts]

    def _cut(self, words: list[str]) -> Iterable[tuple[int, ...]]:
        inside, final = self._inside_of.__getitem__, self._final_of
        protected = models.protect_words(words)
        encoded = self._unigram.processor.encode(protected, out_type=int, num_threads=1)
        for word, numbers in zip(words, encoded, strict=True):
            last = numbers.pop()
            ids = (*map(inside, numbers), final[last])
            if None in ids:
                yield self.ids(self._unigram.cut([word])[0])
            else:
                yield cast("tuple[int, ...]", ids)


class UnigramSampler:
    """Lines to ids by segmentations that `UnigramSegmenter.sample` draws, anew for each word.

    Word w of line r, both counted from 0, is that of `sample([word], alpha, f"{seed} {r} {w}")`.
    A piece without an id is spelled in characters.
    """

    CACHED_WORDS = 1 << 15

    def __init__(
        self, segmenter: UnigramSegmenter, vocabulary: Vocabulary, alpha: float, seed: int
    ) -> None:
        self._segmenter, self._alpha, self._seed = segmenter, alpha, seed
        self._encoder = CuttingEncoder(segmenter, vocabulary)
        self._cache: dict[str, Steps] = {}

    def encode(self, lines: pa.Array, rows: NDArray[np.int64], threads: int = 1) -> Encoded:
        """See `segmenters.Sampler`."""
        words, sizes = split_words(lines)
        texts = iter(words.to_pylist())
        ids: list[int] = []
        offsets = [0]
        for row, size in zip(rows.tolist(), sizes.tolist(), strict=True):
            for place in range(size):
                word = next(texts)
                generator = random.Random(f"{self._seed} {row} {place}")
                ids += self._encoder.ids(_draw(word, self._steps(word), generator))
            offsets.append(len(ids))
        return Encoded(np.array(ids, np.int32), np.array(offsets, np.int64), sizes)

    def _steps(self, word: str) -> Steps:
        steps = self._cache.get(word)
        if steps is None:
            if len(self._cache) >= self.CACHED_WORDS:
                self._cache.clear()
            steps = self._cache[word] = self._segmenter.steps(word, self._alpha)
        return steps


def _file_name(side: str) -> str:
    return f"unigram-{side}.model"
