"""rareword's side of the training benchmark, and the plain loop's, served as peers.py serves."""

import contextlib
import functools
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from peers import Repeat, Task, serve
from plain_loop import PlainLoop

from rareword.pipelines import cli
from rareword.schemas import manifest
from rareword.schemas.tables import TRANSLATIONS, read_table
from rareword.schemas.vocabulary import SPECIALS
from rareword.trainer.config import ModelConfig, TrainConfig
from rareword.trainer.data import Batch
from rareword.trainer.distributed import Group
from rareword.trainer.graphs import RecordedBatches, wanted
from rareword.trainer.loss import batch_loss
from rareword.trainer.model import EncoderDecoder
from rareword.trainer.optimiser import Optimiser
from rareword.trainer.precision import resolve
from rareword.trainer.progress import RECORD

T = TypeVar("T")
LOG_EVERY = 10
"""Updates between two figures of speed."""


def run_job(name: str, **options: Any) -> None:
    """`rareword NAME` in this process. Raises RuntimeError with its last line if it failed."""
    words = [name]
    for option, value in options.items():
        flag = "--" + option.replace("_", "-")
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            words += [flag, str(value)]
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = cli.main(words)
    if code:
        raise RuntimeError(said.getvalue().strip().rsplit("\n", 1)[-1])


# ---- real data ----


def train(
    segmented: str,
    dev: str,
    output: str,
    updates: int,
    options: Mapping[str, Any],
    beams: list[int],
) -> Iterator[Repeat]:
    """`rareword train`, and `decode` of the development data with each beam, not timed.

    The digest has the speed of the windows of LOG_EVERY updates, and the hypotheses by beam, in
    pieces.
    """

    def work() -> list[float]:
        run_job(
            "train", segmented=segmented, dev=dev, output=output, overwrite=True,
            max_steps=updates, max_epochs=1_000_000, validate_every=updates,
            checkpoint_every=updates, patience=0, halve_after=0, bleu_pairs=0, samples=0,
            log_every=LOG_EVERY, **options,
        )  # fmt: skip
        return read_speeds(output)

    def digest(speeds: list[float]) -> dict[str, Any]:
        gpu = gpu_peak()
        figures = manifest.read(output, "train", "--output").figures
        hypotheses = {}
        for beam in beams:
            where = f"{output}-beam-{beam}"
            run_job(
                "decode", segmented=dev, model=output, checkpoint="latest", beam=beam,
                output=where, overwrite=True, device=options["device"],
                threads=options["threads"],
            )  # fmt: skip
            hypotheses[beam] = read_translations(where)
        return {
            "windows": speeds,
            "gpu_peak": gpu,
            "parameters": figures["parameters"],
            "pairs": figures["pairs"],
            "dev_loss": figures["dev_loss"],
            "hypotheses": hypotheses,
        }

    while True:
        yield Repeat(work, digest)


def read_speeds(output: str) -> list[float]:
    """Target tokens a second of each window, from the run's record."""
    lines = map(json.loads, Path(output, RECORD).read_text("utf-8").splitlines())
    return [
        line["tokens_per_second"]
        * line["target_tokens"]
        / (line["target_tokens"] + line["source_tokens"])
        for line in lines
        if line["kind"] == "train"
    ]


def read_translations(directory: str) -> list[list[str]]:
    """The displayed pieces of the best translation of each sentence, in the order of the ids."""
    found = {}
    for url in manifest.read(directory, "decode", "--output").urls:
        table = read_table(url, TRANSLATIONS)
        for row in table.select(["id", "rank", "pieces"]).to_pylist():
            if row["rank"] == 0:
                found[row["id"]] = row["pieces"]
    return [found[id_] for id_ in sorted(found)]


# ---- synthetic batches ----


def gpu_peak() -> int:
    """Bytes of the GPU's memory that tensors of this process have taken at most."""
    return int(torch.cuda.max_memory_allocated()) if torch.cuda.is_available() else 0


def synchronised(device: str, work: Callable[[], T]) -> Callable[[], T]:
    """The work, which ends when the GPU has done it."""

    def run() -> T:
        result = work()
        if device == "cuda":
            torch.cuda.synchronize()
        return result

    return run


def _sentences(vocabulary: int, batch: int, length: int, device: str) -> torch.Tensor:
    return torch.randint(len(SPECIALS), vocabulary, (batch, length), device=device)


def rareword_steps(
    model: Mapping[str, Any],
    config: Mapping[str, Any],
    batch: int,
    source: int,
    target: int,
    updates: int,
    warm: int,
    device: str,
    precision: str,
    threads: int,
) -> Iterator[Repeat]:
    """Updates on one batch of random pieces without padding, by the trainer's own parts.

    model: fields of ModelConfig. config: those of TrainConfig, over its preset. source, target:
    lengths. warm: updates that are not timed.
    """
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    options = TrainConfig.of(**config)
    sizes = ModelConfig(**model)
    network = EncoderDecoder(sizes).to(device)
    group = Group(torch.device(device))
    resolved = resolve(precision, group)
    recorded, _ = wanted(options.cuda_graphs, group.device)
    optimiser = Optimiser(network, options, record=recorded)
    source_BS = _sentences(sizes.source_vocabulary, batch, source, device)
    target_BT = _sentences(sizes.target_vocabulary, batch, target, device)
    data = Batch(source_BS, torch.ones_like(source_BS, dtype=torch.bool), target_BT)
    scale = target_BT.numel() if options.loss_scale == "mean" else 1

    def part(data: Batch) -> None:
        smoothed, plain = batch_loss(network, data, resolved, options.label_smoothing)
        (smoothed / scale).backward()
        optimiser.figures.add_(torch.stack([smoothed.detach(), plain]))

    take = RecordedBatches(part, group.device) if recorded else part

    def steps(number: int) -> None:
        for _ in range(number):
            optimiser.zero()
            take(data)
            optimiser.step(options.initial_rate, group)

    yield from _timed(device, steps, updates, warm, network)


def plain_steps(
    sizes: Mapping[str, int],
    batch: int,
    source: int,
    target: int,
    updates: int,
    warm: int,
    device: str,
    precision: str,
    threads: int,
) -> Iterator[Repeat]:
    """The same updates by the plain loop. sizes: what PlainLoop takes."""
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    network = PlainLoop(**sizes).to(device)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3, fused=True)
    source_BS = _sentences(sizes["vocabulary"], batch, source, device)
    target_BT = _sentences(sizes["vocabulary"], batch, target, device)

    def steps(number: int) -> None:
        for _ in range(number):
            optimiser.zero_grad()
            with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
                loss = network(source_BS, target_BT)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()

    yield from _timed(device, steps, updates, warm, network)


def _timed(
    device: str, steps: Callable[[int], None], updates: int, warm: int, network: torch.nn.Module
) -> Iterator[Repeat]:
    parameters = sum(parameter.numel() for parameter in network.parameters())
    synchronised(device, functools.partial(steps, warm))()
    work = synchronised(device, functools.partial(steps, updates))
    while True:
        yield Repeat(work, lambda _: {"gpu_peak": gpu_peak(), "parameters": parameters})


def matrix_product(size: int, times: int, device: str, threads: int) -> Iterator[Repeat]:
    """What the machine gives at most: products of two size x size matrices in bf16."""
    torch.set_num_threads(threads)
    left = torch.randn(size, size, device=device).bfloat16()
    right = torch.randn(size, size, device=device).bfloat16()

    def work() -> None:
        for _ in range(times):
            torch.mm(left, right)

    synchronised(device, work)()
    while True:
        yield Repeat(synchronised(device, work), lambda _: {})


TASKS: dict[str, Task] = {
    task.__name__: task for task in (train, rareword_steps, plain_steps, matrix_product)
}

if __name__ == "__main__":
    serve(TASKS, sys.argv[1])
