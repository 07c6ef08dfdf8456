"""The model inside RunInference: loaded once per process, fed with batches of segmented rows."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from apache_beam.metrics import Metrics
from apache_beam.ml.inference.base import ModelHandler

from rareword.schemas import vocabulary as vocabularies
from rareword.schemas.dictionary import read_dictionary
from rareword.schemas.errors import RarewordError
from rareword.schemas.vocabulary import Vocabulary
from rareword.transforms import decoding
from rareword.transforms.decoding import Batch
from rareword.transforms.unk_replacement import Replacement

if TYPE_CHECKING:
    from rareword.trainer.search import Searchable, SearchOptions


@dataclasses.dataclass(frozen=True)
class Loaded:
    """What a worker process holds."""

    model: "Searchable"
    """One model, or several as an ensemble."""
    device: str
    search: "SearchOptions"
    vocabulary: Vocabulary
    """Of the target side."""
    replacement: Replacement | None
    """What takes the place of `<unk>`, if anything."""


class TranslatorHandler(ModelHandler[Batch, Batch, Loaded]):
    """Translates batches of rows by beam search.

    Torch comes in only when the model is loaded: the process that builds the graph and workers
    that do other things need none of it.
    """

    def __init__(
        self,
        *,
        models: Sequence[str],
        mean: Literal["log", "probability"],
        checkpoint: Literal["best", "latest"],
        vocabulary_hash: str,
        text_rules: Mapping[str, Any],
        search: Mapping[str, Any],
        device: str,
        threads: int,
        replace_unk: Literal["none", "copy", "dictionary"] = "none",
        dictionary: str | None = None,
    ) -> None:
        """models: finished `train` directories, of which several make an ensemble with the given
        mean. search: fields of trainer.search.SearchOptions. dictionary: a finished `align`
        directory. With replace_unk the rows have a column `words`."""
        # An element is a table of rows already; search makes its own batches of it.
        super().__init__(min_batch_size=1, max_batch_size=1)
        self._models = tuple(models)
        self._mean: Literal["log", "probability"] = mean
        self._checkpoint: Literal["best", "latest"] = checkpoint
        self._vocabulary_hash = vocabulary_hash
        self._text_rules, self._search = dict(text_rules), dict(search)
        self._device, self._threads = device, threads
        self._replace_unk, self._dictionary = replace_unk, dictionary

    def load_model(self) -> Loaded:
        from rareword.trainer import checkpoints, ensemble  # before torch: OpenMP's threads
        from rareword.trainer.search import SearchOptions

        import torch  # isort: skip

        if self._threads:
            torch.set_num_threads(self._threads)
        device, has_cuda = self._device, torch.cuda.is_available()
        if device == "auto":
            device = "cuda" if has_cuda else "cpu"
        if device == "cuda" and not has_cuda:
            raise RarewordError("--device: a worker has no CUDA device; use auto or cpu")
        loaded = []
        for directory in self._models:
            loaded.append(checkpoints.load_model(directory, self._checkpoint))
            loaded[-1].model.to(device)  # before the next one is read
        model = ensemble.together(loaded, self._mean)
        loaded[0].check_vocabulary(self._vocabulary_hash, "the segmented data")
        vocabulary = vocabularies.read_both(self._models[0]).target
        replacement = None
        search = SearchOptions(**self._search)
        if self._replace_unk != "none":
            found = {} if self._dictionary is None else read_dictionary(self._dictionary).first()
            replacement = Replacement(found)
            search = dataclasses.replace(search, alignments=True)
        return Loaded(model, device, search, vocabulary, replacement)

    def run_inference(
        self,
        batch: Sequence[Batch],
        model: Loaded,
        inference_args: dict[str, Any] | None = None,
    ) -> Iterable[Batch]:
        for shard, (place, rows) in batch:
            yield shard, (place, self._translate(rows, model))

    def _translate(self, rows: pa.Table, loaded: Loaded) -> pa.Table:
        from rareword.trainer.search import beam_search, length_limit

        sources = [np.asarray(ids, np.int64) for ids in rows["source"].to_pylist()]
        found = beam_search(loaded.model, sources, loaded.search, loaded.device)
        Metrics.counter(type(self), "sentences").inc(len(sources))
        limits = [length_limit(len(source), loaded.search) for source in sources]
        ids = rows["id"].to_pylist()
        return decoding.to_rows(
            ids,
            found,
            limits,
            loaded.vocabulary,
            self._text_rules,
            keeps_alignments=self._search["alignments"],
            replacement=loaded.replacement,
            source_words=rows["words"].to_pylist() if loaded.replacement else (),
        )

    def get_num_bytes(self, batch: Sequence[Batch]) -> int:
        """For Beam's metrics; by default it pickles the batch only to learn its size."""
        return sum(rows.nbytes for _, (_, rows) in batch)
