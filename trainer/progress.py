"""How training goes: lines for people, `training.jsonl` and TensorBoard, all of the same figures.

    {"kind": "train", "step": 350, ...}        averages since the line before
    {"kind": "validation", "step": 363, ...}   development data, with sample translations
    {"kind": "end", "step": 3630, ...}         why training ended, and the best checkpoint

A run that was killed and went on leaves the `training.jsonl` of an uninterrupted one, but for the
values named `seconds` and `tokens_per_second`. For that a checkpoint leaves a line of kind
`checkpoint` with the sums that are not printed yet; these lines are gone at the end.
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from rareword.schemas import storage
from rareword.trainer.config import TrainConfig
from rareword.trainer.state import RunState
from rareword.trainer.validation import Found

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

RECORD = "training.jsonl"
TENSORBOARD = "tensorboard"

_FLUSH_S = 1.0
"""Lines wait this long for others before they are appended to the record."""


class Update(NamedTuple):
    """One update on the whole batch, over all processes."""

    loss: float
    """Summed over the target tokens, in nats, without smoothing."""
    tokens: int
    """Target tokens, ends of sentences counted."""
    source_tokens: int
    padding: float
    """Share of padding in the batch's matrices."""
    pairs: int
    norm: float
    """Of the gradient, before clipping."""
    clipped: bool


@dataclass
class _Sums:
    """What updates add up to since the last line."""

    updates: int = 0
    loss: float = 0.0
    tokens: int = 0
    source_tokens: int = 0
    cells: float = 0.0
    """Tokens and padding of the batches' matrices."""
    norm: float = 0.0
    clipped: int = 0

    def add(self, update: Update) -> None:
        self.updates += 1
        self.loss += update.loss
        self.tokens += update.tokens
        self.source_tokens += update.source_tokens
        self.cells += (update.tokens + update.source_tokens) / (1 - update.padding)
        self.norm += update.norm
        self.clipped += update.clipped

    def figures(self) -> dict[str, Any]:
        """Means over the target tokens, the matrices' cells and the updates."""
        loss = self.loss / self.tokens
        return {
            "updates": self.updates,
            "loss": loss,
            "perplexity": perplexity(loss),
            "target_tokens": self.tokens,
            "source_tokens": self.source_tokens,
            "padding": 1 - (self.tokens + self.source_tokens) / self.cells,
            "gradient_norm": self.norm / self.updates,
            "clipped": self.clipped / self.updates,
        }


def perplexity(loss: float) -> float | None:
    """Of a loss in nats a token; None if it is too large for a float."""
    return math.exp(loss) if loss < 700 else None


class Progress:
    """Shows a run's figures and records them; in one process of the group.

    state: where the run begins or goes on; what the record holds of later steps is removed. say
    prints a line, show one that the next may overwrite. pairs: of an epoch, for the time left;
    None if they are not known. directory: None in processes that record nothing.
    """

    def __init__(
        self,
        config: TrainConfig,
        state: RunState,
        directory: str | None,
        *,
        say: Callable[[str], None],
        show: Callable[[str], None],
        pairs: int | None,
    ) -> None:
        self._config, self._say, self._show = config, say, show
        self._remaining = _Remaining(config, pairs, state.step)
        self._record = self._board = None
        self._sums, before = _Sums(), 0.0
        if directory is not None:
            self._record = _Record(storage.join(directory, RECORD))
            last, waiting = self._record.cut_back(state.step)
            before = (waiting or last).get("seconds", 0.0)
            self._sums = _Sums(**waiting["sums"]) if waiting else _Sums()
            if config.tensorboard:
                self._board = _board(directory, state.step)
        self._started = time.monotonic() - before
        """When training would have begun if it had never been interrupted."""
        self._clock = time.monotonic()
        self._tokens = 0

    @property
    def seconds(self) -> float:
        """Since training began, without the time between a kill and the start after it."""
        return time.monotonic() - self._started

    def add(self, state: RunState, update: Update) -> None:
        """Books an update, which `state` counts already; prints a line if one is due."""
        self._sums.add(update)
        self._remaining.add(update.pairs)
        self._tokens += update.tokens + update.source_tokens
        if state.step % self._config.log_every == 0:
            self.line(state)

    def line(self, state: RunState) -> None:
        """Prints and records the averages since the last line, if there was any update."""
        if not self._sums.updates:
            return
        figures, seconds = self._sums.figures(), time.monotonic() - self._clock
        rate = self._tokens / max(seconds, 1e-9)
        left = self._remaining.text(state.step)
        loss, bits = figures["loss"], figures["perplexity"]
        self._show(
            f"train: step {state.step}, epoch {state.epoch + 1}: loss {loss:.4f}, "
            f"perplexity {_number(bits)}, {rate:,.0f} tokens/s"
            + (f", at most {left} left" if left else "")
            + f", learning rate {state.learning_rate:g}, gradient norm "
            f"{figures['gradient_norm']:.2f}, {figures['clipped']:.0%} clipped, "
            f"padding {figures['padding']:.1%}"
        )
        figures |= {"learning_rate": state.learning_rate, "tokens_per_second": rate}
        self._write("train", state, figures)
        self._restart()

    def validated(self, state: RunState, found: Found, rate: float, seconds: float) -> None:
        """A validation, which `state` has booked. rate: the learning rate before it. seconds: how
        long it took."""
        best, text = state.best_step == state.step, f"dev loss {found.loss:.4f}"
        self._say(
            f"train: step {state.step}, {state.epoch} epochs: {text}"
            + (f", dev BLEU on tokens {found.bleu:.2f}" if found.bleu is not None else "")
            + (", best so far" if best else f", {state.stalled} since the best")
            + (f", learning rate now {state.learning_rate:g}" if state.learning_rate < rate else "")
            + f" ({seconds:.1f} s)"
        )
        for sample in found.samples:
            self._say(f"train:   source       {sample.source}")
            self._say(f"train:   reference    {sample.reference}")
            self._say(f"train:   translation  {sample.translation}")
        values = {
            "loss": found.loss,
            "perplexity": perplexity(found.loss),
            "bleu": found.bleu,
            "train_loss": state.history[-1]["train_loss"],
            "learning_rate": state.learning_rate,
            "best": best,
            "stalled": state.stalled,
            "samples": [sample._asdict() for sample in found.samples],
        }
        self._write("validation", state, values)
        self._restart()

    def checkpoint(self, state: RunState) -> None:
        """Makes the record whole up to this step; to be called before a checkpoint is written."""
        if self._record is None:
            return
        if self._sums.updates:
            self._write("checkpoint", state, {"sums": asdict(self._sums)})
        self._record.flush()

    def end(self, state: RunState, reason: str) -> None:
        """Says why training ended, and completes the record."""
        best = next((e for e in state.history if e["step"] == state.best_step), None)
        took = self.seconds
        self._say(
            f"train: ended at step {state.step}: {reason}; took {duration(took)}"
            + (f"; best at step {best['step']}: dev loss {best['loss']:.4f}" if best else "")
            + (
                f", dev BLEU on tokens {best['bleu']:.2f}"
                if best and best["bleu"] is not None
                else ""
            )
        )
        values = {key: best[key] for key in ("loss", "bleu")} if best else {}
        self._write("end", state, {"reason": reason, "best_step": state.best_step, **values})
        if self._record is not None:
            self._record.finish()

    def close(self) -> None:
        """Keeps what is recorded, also if training fails."""
        if self._record is not None:
            self._record.flush()
        if self._board is not None:
            self._board.close()

    def _restart(self) -> None:
        self._sums, self._tokens, self._clock = _Sums(), 0, time.monotonic()

    def _write(self, kind: str, state: RunState, values: Mapping[str, Any]) -> None:
        if self._record is None:
            return
        place = {"kind": kind, "step": state.step, "epoch": state.epoch}
        values = {key: _known(value) for key, value in values.items()}
        self._record.add({**place, **values, "seconds": round(self.seconds, 3)})
        if self._board is not None and kind in ("train", "validation"):
            for name, value in values.items():
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    self._board.add_scalar(f"{kind}/{name}", value, state.step)
            for number, sample in enumerate(values.get("samples", ())):
                text = "\n\n".join(f"**{name}**: {words}" for name, words in sample.items())
                self._board.add_text(f"sample/{number + 1}", text, state.step)
            self._board.flush()


# ---- the record ----


class _Record:
    """A file of one JSON object a line. Where files can be appended to, lines get there within
    seconds; on an object store with each checkpoint."""

    def __init__(self, url: str) -> None:
        self._url, self._waiting = url, list[bytes]()
        self._appends = storage.can_append(url)
        self._flushed = time.monotonic()

    def cut_back(self, step: int) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Removes what was recorded after the checkpoint of `step`, and lines of older checkpoints.

        Returns the last line of another kind (empty if there is none), and that of this checkpoint.
        """
        last: dict[str, Any] = {}
        waiting = None

        def kept() -> Iterator[bytes]:
            nonlocal last, waiting
            for line, value in self._read():
                if value["step"] > step or value["kind"] == "end":
                    return
                if not _is_checkpoint(value):
                    last = value
                elif value["step"] == step:
                    waiting = value  # the run may be killed again before its next checkpoint
                else:
                    continue
                yield line

        self._rewrite(kept())
        return last, waiting

    def add(self, value: Mapping[str, Any]) -> None:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        self._waiting.append(f"{text}\n".encode())
        if self._appends and time.monotonic() - self._flushed > _FLUSH_S:
            self.flush()

    def flush(self) -> None:
        """Writes the lines that wait."""
        if self._waiting and self._appends:
            storage.append(self._url, b"".join(self._waiting))
        elif self._waiting:
            self._rewrite(line for line, _ in self._read())
        self._waiting, self._flushed = [], time.monotonic()

    def finish(self) -> None:
        """Writes all lines, and takes out those that only a resumed run needs."""
        self._waiting = [line for line in self._waiting if not _is_checkpoint(json.loads(line))]
        self._rewrite(line for line, value in self._read() if not _is_checkpoint(value))

    def _read(self) -> Iterator[tuple[bytes, dict[str, Any]]]:
        """The file's lines, up to one that a crash has torn."""
        if not storage.exists(self._url):
            return
        with storage.open_read(self._url) as stream:
            for line in stream:
                try:
                    value = json.loads(line)
                except ValueError:
                    return
                if not line.endswith(b"\n"):
                    return
                yield line, value

    def _rewrite(self, lines: Iterator[bytes]) -> None:
        """Puts these lines and those that wait in the file's place."""
        with storage.write_atomic(self._url) as stream:
            for line in lines:
                stream.write(line)
            stream.writelines(self._waiting)
        self._waiting = []


def _is_checkpoint(value: Mapping[str, Any]) -> bool:
    return bool(value["kind"] == "checkpoint")


def _board(directory: str, step: int) -> "SummaryWriter":
    """A writer of events; what earlier writers left of steps after `step` is taken back."""
    from torch.utils.tensorboard import SummaryWriter

    url = storage.join(directory, TENSORBOARD)
    return SummaryWriter(url, purge_step=step + 1 if storage.exists(url) else None)


# ---- the time left ----


class _Remaining:
    """Estimates when --max-steps or --max-epochs ends training. Patience may end it before."""

    def __init__(self, config: TrainConfig, pairs: int | None, step: int) -> None:
        self._config, self._epoch_pairs = config, pairs
        self._updates = self._pairs = 0
        self._since = step, time.monotonic()
        self._is_first = True

    def add(self, pairs: int) -> None:
        self._updates += 1
        self._pairs += pairs

    def steps(self, step: int) -> float | None:
        """Updates to come at most, by the mean number of pairs that an update takes."""
        limits: list[float] = []
        if self._config.max_steps is not None:
            limits.append(self._config.max_steps)
        if self._epoch_pairs is not None and self._pairs:
            of_epoch = self._epoch_pairs * self._updates / self._pairs
            limits.append(self._config.max_epochs * of_epoch)
        return max(0.0, min(limits) - step) if limits else None

    def text(self, step: int) -> str | None:
        """The time for these, at the pace so far. The first line's updates do not count once there
        are others: they are slow."""
        steps, now = self.steps(step), time.monotonic()
        if steps is None or step == self._since[0]:
            return None
        pace = (now - self._since[1]) / (step - self._since[0])
        if self._is_first:
            self._since, self._is_first = (step, now), False
        return duration(steps * pace)


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h 5 min`, `2 d 4 h`: two units, of which the smaller one is rounded."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours = round(minutes / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{hours // 24} d {hours % 24} h"


def _known(value: Any) -> Any:
    """The value; None if it is a float that JSON has no text for."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: float | None) -> str:
    if value is None:
        return "too large"
    return f"{value:.2f}" if value < 1e5 else f"{value:.2g}"
