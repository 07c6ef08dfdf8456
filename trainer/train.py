"""The training loop.

One process with a batch and many processes with their shares of it make the same step: the loss
is the sum over all target tokens divided by their number in the whole batch, which the plan of
the epoch knows, and gradients are summed before they are clipped. With dropout the processes draw
masks of their own, so that the equality holds on average only.
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
from rareword.trainer import checkpoints, precision, validation
from rareword.trainer.checkpoints import Identity
from rareword.trainer.config import TrainConfig, model_config
from rareword.trainer.data import Indices, Pairs, PieceDropout, make_batch, plan_epoch, share
from rareword.trainer.distributed import Group
from rareword.trainer.loss import batch_loss
from rareword.trainer.model import EncoderDecoder
from rareword.trainer.optimiser import Optimiser
from rareword.trainer.progress import Progress, Update
from rareword.trainer.state import RunState

FAILED_BATCH = "failed-batch.json"


@dataclass(frozen=True)
class Corpora:
    """What a run trains and validates on."""

    train: Pairs
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
        self._optimiser = Optimiser(self._model, config)
        resumed = checkpoints.resume(directory, self._model, self._optimiser, self._identity)
        self._state = resumed or RunState(config.initial_rate)
        self._progress = Progress(
            config,
            self._state,
            directory if first else None,
            say=self._say,
            show=(show or say) if first else self._say,
            pairs=len(corpora.train),
        )
        self._pairs = corpora.train
        self.parameters = sum(parameter.numel() for parameter in self._model.parameters())
        """Numbers to learn; a tied matrix counts once."""
        self._say(
            f"train: {len(corpora.train):,} pairs, {self.parameters:,} parameters, "
            f"{group.world} x {group.device.type}, {self._precision.name}"
            + (f", going on from step {self._state.step}" if resumed else "")
        )

    def train(self) -> RunState:
        """Trains to the end, from the latest checkpoint in the directory if there is one.

        Raises RarewordError if the loss or the gradient is no longer a number; the ids of the
        batch's pairs are in `failed-batch.json` then.
        """
        with contextlib.closing(self._progress):
            return self._loop()

    def _loop(self) -> RunState:
        config, state = self._config, self._state
        self._model.train()
        while (reason := state.why_end(config)) is None:
            epoch = state.epoch
            self._pairs = self._drawn(epoch)
            plan = plan_epoch(self._pairs, config.batch, config.batch_unit, config.seed, epoch)
            while state.epoch == epoch and state.why_end(config) is None:
                self._step(plan[state.consumed], len(plan))
                if state.wants_validation(config):
                    self._validate()
                elif state.step % config.checkpoint_every == 0:
                    self._save(best=False)
        self._progress.end(state, reason)
        return state

    def _drawn(self, epoch: int) -> Pairs:
        """The training data as an epoch has it."""
        pairs, dropout = self._corpora.train, self._corpora.dropout
        if dropout is None:
            return pairs
        before = len(pairs.source.flat) + len(pairs.target.flat)
        pairs, too_long = dropout.epoch(pairs, epoch)
        after = len(pairs.source.flat) + len(pairs.target.flat)
        self._say(
            f"train: epoch {epoch + 1}: BPE-dropout makes {after / before:.3f} times as many pieces"
            + f", {too_long:,} sentences left alone (--max-length)" * bool(too_long)
        )
        return pairs

    def _step(self, indices: Indices, batches: int) -> None:
        """One update on one batch of the plan."""
        config, group, state, pairs = self._config, self._group, self._state, self._pairs
        tokens = int(pairs.target.lengths[indices].sum())
        self._optimiser.zero()
        mine = share(indices, group.rank, group.world)
        if len(mine):  # else zeros: this process has no part in a small batch
            torch.manual_seed(_mask_seed(config.seed, state.step, group.rank))
            batch = make_batch(pairs, mine, group.device)
            smoothed, plain = batch_loss(
                self._model, batch, self._precision, config.label_smoothing
            )
            (smoothed / tokens).backward()
            self._optimiser.figures.copy_(torch.stack([smoothed.detach(), plain]))
        norm, (smoothed_sum, loss) = self._optimiser.step(state.learning_rate, group)
        if not np.isfinite([norm, smoothed_sum]).all():
            self._fail(indices, norm, smoothed_sum / tokens)
        state.consume(batches, loss, tokens)
        source_tokens = int(pairs.source.lengths[indices].sum())
        clipped = 0 < config.clip < norm
        padding = _padding(pairs, indices)
        self._progress.add(
            state, Update(loss, tokens, source_tokens, padding, len(indices), norm, clipped)
        )

    def _validate(self) -> None:
        config, state, corpora = self._config, self._state, self._corpora
        self._progress.line(state)
        started, rate = time.monotonic(), state.learning_rate
        found = validation.validate(
            self._model, corpora.dev, corpora.vocabularies, config, self._precision, self._group
        )
        best = state.validate(found.loss, found.bleu, config)
        self._progress.validated(state, found, rate, time.monotonic() - started)
        self._save(best)

    def _save(self, best: bool) -> None:
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
            )

    def _fail(self, indices: Indices, norm: float, loss: float) -> None:
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
                    "ids": self._corpora.train.ids[indices].tolist(),
                },
            )
        raise RarewordError(
            f"training broke down at step {self._state.step + 1}: loss {loss}, gradient norm "
            f"{norm}; the ids of the batch's pairs are in {url}. Try a lower --learning-rate or "
            "--clip, or --precision float32"
        )


def _padding(pairs: Pairs, indices: Indices) -> float:
    """The share of padding in a batch's source and target matrices, if one process takes it all."""
    lengths = [side.lengths[indices] for side in (pairs.source, pairs.target)]
    cells = sum(int(side.max()) * len(side) for side in lengths)
    return 1 - sum(int(side.sum()) for side in lengths) / cells


def _mask_seed(seed: int, step: int, rank: int) -> int:
    """The seed of a step's dropout masks: a function of the place in the run alone, so a resumed
    run draws what an uninterrupted one would."""
    return int(np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint64)[0])
