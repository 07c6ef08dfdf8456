"""The learn-segmenter job's first step: the segmenters of both sides, learnt and saved.

A kind's class learns by one of these, each with the kind's own keyword options:

    learn(words, counts, ...)    from the word table of a side, or of both
    learn_text(lines, ...)       from the lines of the corpus, for raw text
    the class itself             from the merges that `learn-merges` has learnt, or from nothing

Learning is one step of one worker. Words come to it in the order of their bytes, so the number of
word shards does not matter.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rareword.schemas import merges as merge_files
from rareword.schemas.tables import CORPUS, SIDES, WORDS, ShardRecord, Side, iterate_row_groups
from rareword.transforms import segmenters
from rareword.transforms.parts import one_chunk
from rareword.transforms.segmenters import Segmenter
from rareword.transforms.segmenting import SegmenterPlace

Learning = Literal["nothing", "merges", "words", "corpus"]
"""What a kind is learnt from."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """All that the segmenters of both sides depend on."""

    kind: str
    learnt_from: Learning
    urls: Mapping[Side, Sequence[str]]
    """Files to learn from: merges of a side, word shards or corpus shards."""
    keywords: Mapping[Side, Mapping[str, Any]]
    """The kind's own options."""
    is_joint: bool
    """One segmenter serves both sides; files and keywords of the source side are for both."""


class Learnt(NamedTuple):
    """Segmenters on disk: their place and their files."""

    place: SegmenterPlace
    files: list[ShardRecord]


@dataclasses.dataclass(eq=False)
class LearnSegmenter(beam.PTransform):
    """A pipeline -> one Learnt; the files are written below `directory`."""

    recipe: Recipe
    directory: str
    digest: str
    """Of the work, for SegmenterPlace."""

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection:
        return (
            begin
            | "Recipe" >> beam.Create([self.recipe])
            | "Learn"
            >> beam.Map(_learn_and_save, self.directory, self.digest).with_output_types(Learnt)
        )


def _learn_and_save(recipe: Recipe, directory: str, digest: str) -> Learnt:
    both = learn(recipe)
    settings = json.dumps(segmenters.settings(both), sort_keys=True)
    files = segmenters.save(both, directory)
    return Learnt(SegmenterPlace(directory, recipe.kind, settings, digest), files)


def learn(recipe: Recipe) -> dict[Side, Segmenter]:
    """The segmenters of both sides; one for both if the recipe is joint."""
    if recipe.is_joint:
        return dict.fromkeys(SIDES, _learn_one(recipe, "source", SIDES))
    return {side: _learn_one(recipe, side, [side]) for side in SIDES}


def _learn_one(recipe: Recipe, side: Side, serves: Sequence[Side]) -> Segmenter:
    kind: Any = segmenters.class_of(recipe.kind, "--segmenter")
    urls, keywords = recipe.urls[side], recipe.keywords[side]
    learnt: Segmenter
    if recipe.learnt_from == "words":
        learnt = kind.learn(*read_words(urls, serves), **keywords)
    elif recipe.learnt_from == "corpus":
        learnt = kind.learn_text(read_lines(urls, serves), **keywords)
    elif recipe.learnt_from == "merges":
        merges = [merge for url in urls for merge in merge_files.read(url)]
        learnt = kind(merges, **keywords)
    else:
        learnt = kind(**keywords)
    return learnt


def read_words(urls: Sequence[str], sides: Sequence[Side]) -> tuple[pa.Array, NDArray[np.int64]]:
    """The words that occur on these sides of word shards, by their UTF-8 bytes, and their counts
    there."""
    columns = [f"{side}_count" for side in sides]
    empty = WORDS.fields.empty_table().select(["word", *columns])
    groups = (group for url in urls for group in iterate_row_groups(url, WORDS, empty.column_names))
    table = pa.concat_tables([empty, *groups])
    counts = np.zeros(table.num_rows, np.int64)
    for column in columns:
        counts += table[column].to_numpy()
    occurs = counts > 0
    words = one_chunk(table["word"].cast(pa.large_string())).filter(pa.array(occurs))
    order = pc.sort_indices(words)
    return words.take(order), counts[occurs][order.to_numpy()]


def read_lines(urls: Sequence[str], sides: Sequence[Side]) -> Iterator[str]:
    """The lines of these sides of corpus shards, one side after the other."""
    for side in sides:
        for url in urls:
            for group in iterate_row_groups(url, CORPUS, [side]):
                yield from (line for line in group[side].to_pylist() if line)
