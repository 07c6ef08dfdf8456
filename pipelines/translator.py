"""The model inside RunInference: loaded once per process, fed with batches of segmented rows."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from apache_beam.metrics import Metrics
from apache_beam.ml.inference.base import ModelHandler

from rareword.schemas import vocabulary as vocabularies
from rareword.schemas.dictionary import read_dictionary
from rareword.schemas.errors import RarewordError
from rareword.schemas.vocabulary import Vocabulary
from rareword.trainer.search_options import SearchOptions, length_limits
from rareword.transforms import candidates, decoding
from rareword.transforms.candidates import CandidateLists, CandidateRules
from rareword.transforms.decoding import Batch
from rareword.transforms.unk_replacement import Replacement

if TYPE_CHECKING:
    from rareword.trainer.search import Hypothesis, Steps


@dataclasses.dataclass(frozen=True)
class Loaded:
    """What a worker process holds."""

    network: "Steps"
    """One model, or several as an ensemble."""
    device: str
    vocabulary: Vocabulary
    """Of the target side."""
    replacement: Replacement | None
    """What takes the place of `<unk>`, if anything."""
    lists: CandidateLists | None
    """What outputs may be made of, if not of the whole vocabulary."""


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
        search: SearchOptions,
        precision: Literal["auto", "float32", "tf32", "bf16"],
        device: str,
        threads: int,
        replace_unk: Literal["none", "copy", "dictionary"] = "none",
        dictionary: str | None = None,
        lists: CandidateRules | None = None,
    ) -> None:
        """models: finished `train` directories, of which several make an ensemble with the given
        mean. dictionary: a finished `align` directory. With replace_unk the rows have a column
        `words`."""
        # An element is a table of rows already; search makes its own batches of it.
        super().__init__(min_batch_size=1, max_batch_size=1)
        self._models = tuple(models)
        self._mean: Literal["log", "probability"] = mean
        self._checkpoint: Literal["best", "latest"] = checkpoint
        self._vocabulary_hash = vocabulary_hash
        self._text_rules, self._search = dict(text_rules), search
        self._precision: Literal["auto", "float32", "tf32", "bf16"] = precision
        self._device, self._threads = device, threads
        self._replace_unk, self._dictionary = replace_unk, dictionary
        self._lists = lists

    def load_model(self) -> Loaded:
        from rareword.trainer import checkpoints, ensemble  # before torch: OpenMP's threads
        from rareword.trainer.distributed import Group
        from rareword.trainer.precision import resolve

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
        precision = resolve(self._precision, Group(torch.device(device)))
        network = ensemble.together(loaded, self._mean, precision)
        loaded[0].check_vocabulary(self._vocabulary_hash, "the segmented data")
        both = vocabularies.read_both(self._models[0])
        dictionary = None if self._dictionary is None else read_dictionary(self._dictionary)
        replacement = lists = None
        if self._replace_unk != "none":
            replacement = Replacement({} if dictionary is None else dictionary.first())
        if self._lists is not None:
            assert dictionary is not None
            lists = self._lists.lists(dictionary, both)
        return Loaded(network, device, both.target, replacement, lists)

    def run_inference(
        self,
        batch: Sequence[Batch],
        model: Loaded,
        inference_args: dict[str, Any] | None = None,
    ) -> Iterable[Batch]:
        for shard, (place, rows) in batch:
            yield shard, (place, self._translate(rows, model))

    def _translate(self, rows: pa.Table, loaded: Loaded) -> pa.Table:
        ids = rows["id"].to_pylist()
        sources = [np.asarray(pieces, np.int64) for pieces in rows["source"].to_pylist()]
        targets = rows["target"].to_pylist()
        limits = [length_limits(len(source), self._search)[1] for source in sources]
        found, figures = self._search_for(ids, sources, targets, limits, loaded)
        Metrics.counter(type(self), "sentences").inc(len(sources))
        return decoding.to_rows(
            ids,
            found,
            limits,
            loaded.vocabulary,
            self._text_rules,
            figures=figures,
            keeps_alignments=self._search.alignments,
            replacement=loaded.replacement,
            source_words=rows["words"].to_pylist() if loaded.replacement else (),
        )

    def _search_for(
        self,
        ids: Sequence[int],
        sources: Sequence["npt.NDArray[np.int64]"],
        targets: Sequence[Sequence[int]],
        limits: Sequence[int],
        loaded: Loaded,
    ) -> tuple[list[list["Hypothesis"]], dict[str, list[int]]]:
        """The hypotheses of each sentence, and the figures of `candidates` if there are lists."""
        from rareword.trainer.search import Candidates, force, translate

        options = self._search
        if loaded.replacement:
            options = dataclasses.replace(options, alignments=True)
        if options.search == "forced":
            forced = force(loaded.network, sources, targets, options, loaded.device)
            return [[hypothesis] for hypothesis in forced], {}
        if loaded.lists is None:
            return translate(loaded.network, sources, options, loaded.device, ids), {}
        own = loaded.lists.own(sources)
        lists = Candidates(loaded.lists.shared_C, own)
        found = translate(loaded.network, sources, options, loaded.device, ids, lists)
        # What only the limit ended is searched for among all pieces.
        again = [i for i, best in enumerate(found) if len(best[0].ids) + 1 >= limits[i]]
        wider = translate(
            loaded.network,
            [sources[i] for i in again],
            options,
            loaded.device,
            [ids[i] for i in again],
        )
        for i, best in zip(again, wider, strict=True):
            found[i] = best
        outside = loaded.lists.outside(targets, own)
        searched_again = np.isin(np.arange(len(ids)), again).tolist()
        values = (searched_again, [*map(len, targets)], outside)
        return found, dict(zip(candidates.COUNTERS, values, strict=True))

    def get_num_bytes(self, batch: Sequence[Batch]) -> int:
        """For Beam's metrics; by default it pickles the batch only to learn its size."""
        return sum(rows.nbytes for _, (_, rows) in batch)
