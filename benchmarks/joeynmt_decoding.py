"""JoeyNMT's side of the decoding benchmark, served as peers.py serves; runs in the peer's own
environment (peers-training.txt).
"""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from joeynmt.config import parse_global_args
from joeynmt.prediction import prepare
from joeynmt.search import search
from joeynmt_training import configuration
from peers import Repeat, Task, serve


def translate(
    data: str,
    vocabulary: str,
    output: str,
    updates: int,
    beam: int,
    batch: int,
    warm: int,
    max_length: int,
    embedding: int,
    hidden: int,
    encoder_hidden: int,
    device: str,
    threads: int,
) -> Iterator[Repeat]:
    """`joeynmt.search.search` of data/test.source with the model of output/UPDATES.ckpt.

    The batches are cut from the lines as they come and are ready before. beam: 1 is greedy. batch:
    sentences. warm: batches that are searched before, not timed.
    """
    torch.set_num_threads(threads)
    config = configuration(
        {"test": f"{data}/test"}, vocabulary, output, device=device, updates=updates, batch=batch,
        max_length=max_length, embedding=embedding, hidden=hidden, encoder_hidden=encoder_hidden,
    )  # fmt: skip
    config["testing"]["load_model"] = f"{output}/{updates}.ckpt"
    args = parse_global_args(config, rank=0, mode="test")
    model, _, _, test = prepare(args, rank=0, mode="test")
    model.eval()
    batches = list(
        test.make_iter(
            batch_size=batch, batch_type="sentence", shuffle=False, pad_index=model.pad_index,
            eos_index=model.eos_index, device=args.device,
        )
    )  # fmt: skip
    orders = [one.sort_by_src_length() for one in batches]
    sentences = test.get_list(lang=test.src_lang, tokenized=True)

    def work(number: int | None = None) -> list[np.ndarray[Any, Any]]:
        found = [
            search(
                model=model, batch=one, beam_size=beam, beam_alpha=1.0, n_best=1,
                max_output_length=args.test.max_output_length,
                min_output_length=args.test.min_output_length, autocast=args.autocast,
            )[0]
            for one in batches[:number]
        ]  # fmt: skip
        if device == "cuda":
            torch.cuda.synchronize()
        return found

    def digest(found: list[np.ndarray[Any, Any]]) -> dict[str, Any]:
        rows = [
            row for output_BT, order in zip(found, orders, strict=True) for row in output_BT[order]
        ]
        return {
            "gpu_peak": torch.cuda.max_memory_allocated() if device == "cuda" else 0,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "source_pieces": sum(map(len, sentences)),
            "source_unknown": sum(
                model.src_vocab.is_unk(piece) for line in sentences for piece in line
            ),
            "hypotheses": model.trg_vocab.arrays_to_sentences(rows, cut_at_eos=True),
        }

    work(warm)
    while True:
        yield Repeat(work, digest)


TASKS: dict[str, Task] = {"translate": translate}

if __name__ == "__main__":
    serve(TASKS, sys.argv[1])
