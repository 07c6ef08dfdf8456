"""JoeyNMT's side of the training benchmark, served as peers.py serves; runs in the peer's own
environment (peers-training.txt).
"""

import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from joeynmt.config import parse_global_args, set_validation_args
from joeynmt.prediction import predict, prepare
from joeynmt.training import TrainManager
from peers import Repeat, Task, serve

LOG_EVERY = 10
"""Updates between two figures of speed."""
NEVER = 1_000_000 * LOG_EVERY


class Timed(TrainManager):
    """Keeps the tokens a second that JoeyNMT logs: target tokens without padding, ends of
    sentences counted, with the reading of the batches and without validation."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.windows: list[float] = []

    def _log_scores(
        self, epoch_no: int, elapsed_time: float, start_tokens: int, *rest: Any
    ) -> None:
        self.windows.append((self.stats.total_tokens - start_tokens) / elapsed_time)
        super()._log_scores(epoch_no, elapsed_time, start_tokens, *rest)


def configuration(
    splits: Mapping[str, str],
    vocabulary: str,
    output: str,
    *,
    device: str,
    updates: int,
    batch: int,
    max_length: int,
    embedding: int,
    hidden: int,
    encoder_hidden: int,
) -> dict[str, Any]:
    """JoeyNMT's, of a model of these sizes. splits: of the data, the files without `.source` and
    `.target`. output: the model's folder."""
    side = {
        "level": "word", "voc_file": vocabulary, "max_length": max_length,
        "lowercase": False, "normalize": False, "tokenizer_cfg": {"pretokenizer": "none"},
    }  # fmt: skip
    embeddings = {"embedding_dim": embedding, "dropout": 0.0}
    return {
        "name": "benchmark",
        "model_dir": output,
        "use_cuda": device == "cuda",
        "data": {
            **splits,
            "dataset_type": "plain",
            "src": {"lang": "source", **side},
            "trg": {"lang": "target", **side},
        },
        "training": {
            "optimizer": "adam", "learning_rate": 1e-3, "learning_rate_min": 0.0,
            "clip_grad_norm": 1.0, "normalization": "tokens", "label_smoothing": 0.0,
            "batch_size": batch, "batch_type": "sentence", "updates": updates, "epochs": NEVER,
            "logging_freq": LOG_EVERY, "validation_freq": NEVER, "shuffle": True,
            "keep_best_ckpts": 1,
            # It wants a schedule: times 1 each epoch.
            "scheduling": "exponential", "decrease_factor": 1.0,
        },
        "testing": {"batch_size": 100, "batch_type": "sentence", "beam_alpha": 1.0},
        "model": {
            "initializer": "xavier_uniform", "bias_initializer": "zeros",
            "embed_initializer": "normal", "embed_init_weight": 0.1, "init_rnn_orthogonal": True,
            "tied_embeddings": True, "tied_softmax": False,
            "encoder": {
                "type": "recurrent", "rnn_type": "gru", "num_layers": 1, "bidirectional": True,
                "hidden_size": encoder_hidden, "dropout": 0.0, "embeddings": embeddings,
            },
            "decoder": {
                "type": "recurrent", "rnn_type": "gru", "num_layers": 1, "hidden_size": hidden,
                "dropout": 0.0, "hidden_dropout": 0.0, "init_hidden": "bridge",
                "attention": "bahdanau", "input_feeding": True, "embeddings": embeddings,
            },
        },
    }  # fmt: skip


def train(
    data: str,
    output: str,
    updates: int,
    batch: int,
    max_length: int,
    embedding: int,
    hidden: int,
    encoder_hidden: int,
    device: str,
    threads: int,
    beams: list[int],
) -> Iterator[Repeat]:
    """Trains on data/train.source and .target with data/vocabulary.txt, and translates dev.source
    with each beam, not timed. Batches are random ones, as JoeyNMT makes them."""
    torch.set_num_threads(threads)
    config = configuration(
        {"train": f"{data}/train", "dev": f"{data}/dev"}, f"{data}/vocabulary.txt", output,
        device=device, updates=updates, batch=batch, max_length=max_length, embedding=embedding,
        hidden=hidden, encoder_hidden=encoder_hidden,
    )  # fmt: skip
    Path(output).mkdir(parents=True, exist_ok=True)
    args = parse_global_args(config, rank=0, mode="train")
    model, train_data, dev_data, _ = prepare(args, rank=0, mode="train")

    def work() -> list[float]:
        manager = Timed(
            rank=0, model=model, model_dir=args.model_dir, device=args.device, n_gpu=args.n_gpu,
            num_workers=args.num_workers, autocast=args.autocast, seed=args.seed,
            train_args=args.train, dev_args=set_validation_args(args.test),
        )  # fmt: skip
        manager.train_and_validate(train_data=train_data, valid_data=dev_data)
        return manager.windows

    def digest(windows: list[float]) -> dict[str, Any]:
        gpu = torch.cuda.max_memory_allocated() if device == "cuda" else 0
        scores, hypotheses = {}, {}
        for beam in beams:
            found = predict(
                model=model, data=dev_data, device=args.device, n_gpu=args.n_gpu,
                compute_loss=not hypotheses, normalization="tokens", autocast=args.autocast,
                args=args.test._replace(beam_size=beam),
            )  # fmt: skip
            scores = scores or found[0]
            hypotheses[beam] = found[3]  # pieces
        return {
            "windows": windows,
            "gpu_peak": gpu,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "pairs": len(train_data),
            **_pieces(train_data, model.src_vocab),
            "dev_loss": math.log(scores["ppl"]) if scores else None,
            "hypotheses": hypotheses,
        }

    yield Repeat(work, digest)


def _pieces(data: Any, vocabulary: Any) -> dict[str, int]:
    """How many pieces JoeyNMT has read, and how many of them its vocabulary does not know."""
    sentences = [
        sentence
        for lang in (data.src_lang, data.trg_lang)
        for sentence in data.get_list(lang=lang, tokenized=True)
    ]
    return {
        "pieces": sum(map(len, sentences)),
        "unknown": sum(map(vocabulary.is_unk, (piece for line in sentences for piece in line))),
    }


TASKS: dict[str, Task] = {"train": train}

if __name__ == "__main__":
    serve(TASKS, sys.argv[1])
