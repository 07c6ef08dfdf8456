"""rareword's side of the decoding benchmark, served as peers.py serves."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from peers import Repeat, Task, serve
from training_tasks import gpu_peak, synchronised

from rareword.schemas import vocabulary as vocabularies
from rareword.schemas.vocabulary import UNK
from rareword.trainer import checkpoints, ensemble, search, search_options
from rareword.trainer.distributed import Group
from rareword.trainer.precision import resolve


def translate(
    model: str,
    sources: Sequence[Sequence[int]],
    options: Mapping[str, Any],
    warm: int,
    precision: str,
    device: str,
    threads: int,
) -> Iterator[Repeat]:
    """`trainer.search.translate` with the latest checkpoint of a model directory.

    sources: piece ids, without end-of-sentence. options: fields of SearchOptions. warm: sentences
    that are translated before, not timed.
    """
    torch.set_num_threads(threads)
    loaded = checkpoints.load_model(model, "latest")
    loaded.model.to(device)
    network = ensemble.together([loaded], precision=resolve(precision, Group(torch.device(device))))
    vocabulary = vocabularies.read_both(model).target
    arrays, how = [np.asarray(ids) for ids in sources], search_options.SearchOptions(**options)

    def work(number: int | None = None) -> list[list[search.Hypothesis]]:
        return search.translate(network, arrays[:number], how, device)

    def digest(found: list[list[search.Hypothesis]]) -> dict[str, Any]:
        return {
            "gpu_peak": gpu_peak(),
            "parameters": sum(parameter.numel() for parameter in loaded.model.parameters()),
            "source_pieces": sum(map(len, sources)),
            "source_unknown": sum(list(ids).count(UNK) for ids in sources),
            "hypotheses": [vocabulary.display(best.ids) for best, *_ in found],
        }

    work(warm)
    while True:
        yield Repeat(synchronised(device, work), digest)


TASKS: dict[str, Task] = {"translate": translate}

if __name__ == "__main__":
    serve(TASKS, sys.argv[1])
