"""Segmenters by libraries for comparison: Morfessor and hyphenation.

Both cut any word, so that pieces joined give the word; a piece that the vocabulary lacks is
`<unk>`. The libraries come with `pip install 'rareword[segmenters]'`.
"""

import difflib
import importlib
import itertools
import logging
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rareword.schemas.errors import RarewordError
from rareword.schemas.tables import ShardRecord
from rareword.transforms.segmenters import CuttingSegmenter, read_lexicon, write_lexicon

Dampening = Literal["types", "log", "tokens"]
MAX_CHARACTERS = 100
"""Longer words are left out when Morfessor learns: its work grows with the square of their length.
They are cut like all others."""


def _library(name: str, kind: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise RarewordError(
            f"segmenter {kind!r} needs the library {name}: pip install 'rareword[segmenters]'"
        ) from error


class MorfessorSegmenter(CuttingSegmenter):
    """Morfessor Baseline (Creutz and Lagus 2002; the library Morfessor 2): morphs that describe
    words and themselves in the fewest bits. Words are cut by its Viterbi search, seen or not."""

    def __init__(
        self, morphs: Mapping[str, int], *, tokens: int, corpus_weight: float, left_out: int = 0
    ) -> None:
        """morphs: how often each occurs in the analysis of the training words. tokens: how many
        words that were, as Morfessor counted them. left_out: words that it did not see."""
        library = _library("morfessor", "morfessor")
        self.morphs = dict(morphs)
        self.tokens, self.corpus_weight, self.left_out = tokens, corpus_weight, left_out
        self._model = library.BaselineModel(corpusweight=corpus_weight)
        # A morph is a word of one morph to the library: all that its search looks at is then as it
        # was at the end of learning, but for the number of words.
        self._model.load_segmentations((n, text, [text]) for text, n in sorted(morphs.items()))
        self._model._corpus_coding.boundaries = tokens

    @classmethod
    def learn(
        cls,
        words: pa.Array,
        counts: NDArray[np.int64],
        *,
        dampening: Dampening = "types",
        corpus_weight: float = 1.0,
        min_count: int = 1,
        seed: int = 1,
    ) -> "MorfessorSegmenter":
        """Batch training with the defaults of the library's own command: recursive, a forced cut
        at hyphens, until an epoch saves less than 0.005 a word.

        dampening: what a word's count is to Morfessor: 1 (types), log2(count + 1) rounded (log) or
        the count itself (tokens). min_count: rarer words are left out. seed: of the order of words
        in an epoch, which the library draws.
        """
        library = _library("morfessor", "morfessor")
        utils = _library("morfessor.utils", "morfessor")
        if corpus_weight <= 0:
            raise RarewordError(f"the corpus weight is above 0, not {corpus_weight}")
        dampen = {
            "types": lambda count: 1,
            "log": lambda count: round(math.log2(count + 1)),
            "tokens": lambda count: count,
        }[dampening]
        table = sorted(zip(words.to_pylist(), counts.tolist(), strict=True))
        kept = [(c, w) for w, c in table if c >= max(min_count, 1) and len(w) <= MAX_CHARACTERS]
        model = library.BaselineModel(forcesplit_list=["-"], corpusweight=corpus_weight)
        model.load_data(kept, count_modifier=dampen)
        state, progress = random.getstate(), utils.show_progress_bar
        logger = logging.getLogger("morfessor.baseline")
        level = logger.level
        try:
            random.seed(seed)
            utils.show_progress_bar = False
            logger.setLevel(logging.WARNING)
            if kept:
                model.train_batch()
        finally:
            random.setstate(state)
            utils.show_progress_bar = progress
            logger.setLevel(level)
        return cls(
            dict(model.get_constructions()),
            tokens=sum(dampen(count) for count, _ in kept),
            corpus_weight=corpus_weight,
            left_out=len(table) - len(kept),
        )

    def cut(self, words: Sequence[str]) -> list[Sequence[str]]:
        if not self.morphs:
            return [(word,) for word in words]
        return [self._model.viterbi_segment(word)[0] for word in words]

    def settings(self) -> dict[str, Any]:
        return {
            "tokens": self.tokens,
            "corpus_weight": self.corpus_weight,
            "left_out": self.left_out,
        }

    def save(self, directory: str, side: str) -> list[ShardRecord]:
        return [write_lexicon(directory, side, self.morphs)]

    @classmethod
    def load(cls, directory: str, side: str, settings: Mapping[str, Any]) -> "MorfessorSegmenter":
        return cls(read_lexicon(directory, side), **settings)


class HyphenationSegmenter(CuttingSegmenter):
    """Cuts words where a line may break (Liang 1983; the library pyphen with the patterns of
    LibreOffice). Where a broken word would be spelled otherwise, it is cut as it stands."""

    def __init__(self, language: str) -> None:
        """language: a code such as `de`, `de_AT` or `pt-BR`."""
        pyphen = _library("pyphen", "hyphenation")
        if pyphen.language_fallback(language) is None:
            known = sorted(pyphen.LANGUAGES)
            near = [code for code in known if code[:2].lower() == language[:2].lower()]
            near = near or difflib.get_close_matches(language.lower(), known, cutoff=0.4)
            raise RarewordError(
                f"there are no hyphenation patterns for language {language!r}; "
                + (f"near it are {', '.join(near)}" if near else f"there are {', '.join(known)}")
            )
        self.language = language
        # Patterns are kept once a process by pyphen, with a cache of words that has no bound; ours
        # is enough.
        self._patterns = pyphen.Pyphen(lang=language, cache=False)

    @classmethod
    def learn(
        cls, words: pa.Array, counts: NDArray[np.int64], *, language: str | None = None
    ) -> "HyphenationSegmenter":
        """Learns nothing."""
        if not language:
            raise RarewordError(
                "hyphenation needs the language of each side: give --source-language and "
                "--target-language, for example de"
            )
        return cls(language)

    def cut(self, words: Sequence[str]) -> list[Sequence[str]]:
        found: list[Sequence[str]] = []
        for word in words:
            # The one character whose lower case is two would shift the places.
            places = self._patterns.positions(word.replace("İ", "I"))
            bounds = [0, *map(int, places), len(word)]
            found.append([word[a:b] for a, b in itertools.pairwise(bounds)])
        self._patterns.hd.cache.clear()
        return found

    def settings(self) -> dict[str, Any]:
        return {"language": self.language}

    @classmethod
    def load(cls, directory: str, side: str, settings: Mapping[str, Any]) -> "HyphenationSegmenter":
        return cls(settings["language"])
