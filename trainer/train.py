"""The training loop.

One process with a batch and many processes with their shares of it make the same step: the loss
is the sum over all target tokens divided by their number in the whole batch, which the data feed
knows, and gradients are summed before they are clipped. The same holds for a share that is taken in
parts. With dropout each process and part draws masks of its own, so that the equality holds on
average only.
"""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from rareword.schemas import storage
from rareword.schemas.errors import RarewordError
from rareword.schemas.vocabulary import Vocabularies
from rareword.trainer import checkpoints, graphs, kernels, memory, precision, validation
from rareword.trainer.checkpoints import Identity
from rareword.trainer.config import TrainConfig, model_config
from rareword.trainer.data import Batch, Corpus, Pairs
from rareword.trainer.distributed import Group
from rareword.trainer.feed import Feed, Step
from rareword.trainer.graphs import RecordedBatches
from rareword.trainer.loss import batch_loss
from rareword.trainer.model import EncoderDecoder
from rareword.trainer.optimiser import Optimiser
from rareword.trainer.piece_dropout import PieceDropout
from rareword.trainer.progress import Progress, Update
from rareword.trainer.state import RunState

FAILED_BATCH = "failed-batch.json"


@dataclass(frozen=True)
class Corpora:
    """What a run trains and validates on."""

    train: Corpus
    dev: Pairs
    vocabularies: Vocabularies
    dropout: PieceDropout | None = None
    """Draws the pieces of `train` anew each epoch."""


class Trainer:
    """One process of a training run; every process of the group makes one with the same arguments.

    run: fingerprint of options and data, kept in the checkpoints. say: prints a line. show: prints
    one that the next may overwrite; `say` if it is not given.
    """

    def __init__(
        self,
        config: TrainConfig,
        corpora: Corpora,
        *,
        directory: str,
        run: str,
        group: Group,
        say: Callable[[str], None],
        show: Callable[[str], None] | None = None,
    ) -> None:
        self._config, self._corpora = config, corpora
        self._directory, self._group = directory, group
        first = group.rank == 0
        self._say = say if first else lambda text: None
        both = corpora.vocabularies
        sizes = model_config(config, len(both.source), len(both.target), both.joint)
        self._identity = Identity(run, both.hash, sizes)
        torch.manual_seed(config.seed)
        self._model = EncoderDecoder(sizes).to(group.device)
        self._precision = precision.resolve(config.precision, group)
        record, self._without_graphs = graphs.wanted(config.cuda_graphs, group.device)
        self._optimiser = Optimiser(self._model, config, record=record)
        self._scale = torch.ones((), device=group.device)
        self._take = RecordedBatches(self._part, group.device) if record else self._take_at_once
        resumed = self._resume()
        self._state = resumed or RunState(config.initial_rate)
        self._progress = Progress(
            config,
            self._state,
            directory if first else None,
            say=self._say,
            show=(show or say) if first else self._say,
            pairs=len(corpora.train),
        )
        self._saved_at = time.monotonic()
        self._feed = Feed(corpora.train, config, group, corpora.dropout)
        self.parameters = sum(parameter.numel() for parameter in self._model.parameters())
        """Numbers to learn; a tied matrix counts once."""
        self._say(
            f"train: {len(corpora.train):,} pairs{_left_out(corpora.train)}, "
            f"{self.parameters:,} parameters, "
            f"{group.world} x {group.device.type}, {self._precision.name}"
            + (f", going on from step {self._state.step}" if resumed else "")
        )
        self._say_what_is_off()
        if self._optimiser.frozen:
            self._say(f"train: not updated (--freeze): {', '.join(self._optimiser.frozen)}")
        if config.init_from and not resumed:
            self._initialise(config.init_from)

    def _resume(self) -> RunState | None:
        """The state of the latest checkpoint, if there is one, with its tensors taken up.

        Process 0 says which it is: what others see of the directory may be older.
        """
        directory, first = self._directory, self._group.rank == 0
        name = self._group.from_first(checkpoints.latest(directory) if first else None)
        if first:
            checkpoints.tidy(directory, self._config.keep)
        if name is None:
            return None
        return checkpoints.resume(directory, name, self._model, self._optimiser, self._identity)

    def _initialise(self, older: str) -> None:
        """Takes the first parameters from an older model (--init-from)."""
        which, both = self._config.init_checkpoint, self._corpora.vocabularies
        counts = checkpoints.take_parameters(self._model, both, older, which)
        pieces = ", ".join(
            f"{taken:,} {side} pieces taken and {new:,} new"
            for side, (taken, new) in counts.items()
        )
        self._say(f"train: parameters of {older} ({which}): {pieces}; the optimiser starts afresh")

    def train(self) -> RunState:
        """Trains to the end, from the latest checkpoint in the directory if there is one.

        Raises RarewordError if the loss or the gradient is no longer a number; the ids of the
        batch's pairs are in `failed-batch.json` then.
        """
        with contextlib.closing(self._progress):
            return self._loop()

    def _loop(self) -> RunState:
        config, state = self._config, self._state
        if config.finish:
            self._validate_resumed()
        self._model.train()
        with contextlib.closing(self._feed.steps(state.position)) as steps:
            while (reason := state.why_end(config)) is None:
                self._step(next(steps))
                if state.wants_validation(config):
                    self._validate()
                elif state.step % config.checkpoint_every == 0:
                    self._save(best=False)
                elif self._minutes_are_over():
                    self._save(best=False, timed=True)
        self._progress.end(state, reason)
        return state

    def _validate_resumed(self) -> None:
        """Validates the checkpoint that a run ends with because it goes no further."""
        if self._state.step == 0:
            raise RarewordError(
                f"--finish: {self._directory} has no checkpoint yet; leave the option out to train"
            )
        if not self._state.validated:
            self._validate()

    def _step(self, step: Step) -> None:
        """One update."""
        config, group, state = self._config, self._group, self._state
        if step.note:
            self._say(f"train: {step.note}")
        self._scale.fill_(1 / step.tokens if config.loss_scale == "mean" else 1.0)
        self._optimiser.zero()
        for number, part in enumerate(step.parts):  # none: no part in a small batch, zeros
            torch.manual_seed(_mask_seed(config.seed, state.step, group.rank, number))
            with memory.explained(
                f"in {group.name}, step {state.step + 1}, at {len(part.source_BS)} of the batch's "
                f"{len(step.ids)} pairs, the longest with {part.source_BS.shape[1]} source and "
                f"{part.target_BT.shape[1]} target pieces",
                "lower --batch or --max-length, or raise --accumulate",
            ):
                self._take(part)
        state.schedule(config, len(self._corpora.train))
        norm, (smoothed_sum, loss) = self._optimiser.step(state.learning_rate, group)
        if not np.isfinite([norm, smoothed_sum]).all():
            self._fail(step, norm, smoothed_sum / step.tokens)
        state.consume(step.after, loss, step.tokens, len(step.ids))
        update = Update(
            loss,
            step.tokens,
            step.source_tokens,
            step.padding,
            len(step.ids),
            norm,
            clipped=0 < config.clip < norm,
        )
        self._progress.add(state, update)

    def _take_at_once(self, batch: Batch) -> None:
        self._part(batch.to(self._group.device))

    def _part(self, batch: Batch) -> None:
        """Adds a part's gradients and losses; all that changes from step to step is in tensors."""
        smoothed, plain = batch_loss(
            self._model, batch, self._precision, self._config.label_smoothing
        )
        (smoothed * self._scale).backward()
        self._optimiser.figures.add_(torch.stack([smoothed.detach(), plain]))

    def _say_what_is_off(self) -> None:
        """What would make training on this machine faster, and is missing."""
        if self._without_graphs:
            self._say(f"train: {self._without_graphs}")
        if self._group.device.type != "cuda":
            return
        if self._config.cuda_graphs == "off":
            self._say("train: --cuda-graphs off: small batches train at less than half the speed")
        if (missing := kernels.why_not_triton()) is not None:
            self._say(
                f"train: without Triton kernels, for {missing}: plain torch takes their place, "
                "at about two thirds of the speed"
            )

    def _validate(self) -> None:
        config, state, corpora = self._config, self._state, self._corpora
        self._progress.line(state)
        started, rate = time.monotonic(), state.learning_rate
        with memory.explained(
            f"in {self._group.name}, in the validation after step {state.step}",
            "lower --bleu-beam, or leave BLEU out with --bleu-pairs 0",
        ):
            found = validation.validate(
                self._model,
                corpora.dev,
                corpora.vocabularies,
                config,
                self._precision,
                self._group,
            )
        best = state.validate(found.loss, found.bleu, config)
        self._progress.validated(state, found, rate, time.monotonic() - started)
        self._save(best)

    def _minutes_are_over(self) -> bool:
        """True, in process 0, if the clock asks for a checkpoint. The others write none, so that
        they need not know."""
        waited = time.monotonic() - self._saved_at
        return self._group.rank == 0 and 0 < self._config.checkpoint_minutes * 60 <= waited

    def _save(self, best: bool, timed: bool = False) -> None:
        if self._group.rank == 0:
            self._progress.checkpoint(self._state)
            checkpoints.save(
                self._directory,
                self._model,
                self._optimiser,
                self._state,
                self._identity,
                best=best,
                keep=self._config.keep,
                timed=timed,
            )
        self._saved_at = time.monotonic()

    def _fail(self, step: Step, norm: float, loss: float) -> None:
        """Ends the run: the loss or the gradient is not a number."""
        url = storage.join(self._directory, FAILED_BATCH)
        if self._group.rank == 0:
            storage.write_json(
                url,
                {
                    "step": self._state.step + 1,
                    "epoch": self._state.epoch,
                    "loss": str(loss),
                    "gradient_norm": str(norm),
                    "ids": step.ids.tolist(),
                },
            )
        raise RarewordError(
            f"training broke down at step {self._state.step + 1}: loss {loss}, gradient norm "
            f"{norm}; the ids of the batch's pairs are in {url}. Try a lower --learning-rate or "
            "--clip, or --precision float32"
        )


def _left_out(corpus: Corpus) -> str:
    """The pairs that no epoch has, for the first line."""
    if not corpus.too_long + corpus.blank:
        return ""
    return (
        f" (left out: {corpus.too_long:,} over --max-length, {corpus.blank:,} with an empty side)"
    )


def _mask_seed(seed: int, step: int, rank: int, part: int) -> int:
    """The seed of a part's dropout masks: a function of the place in the run alone, so a resumed
    run draws what an uninterrupted one would."""
    state = np.random.SeedSequence([seed, step, rank, part])
    return int(state.generate_state(1, np.uint64)[0])
