"""Beam search, and forced scoring through the same `step`.

Names carry shapes: B sentences of a batch, S source pieces (end-of-sentence included), R alive
hypotheses of all sentences of the batch, V vocabulary, K beam.

The rules follow the paper's decoder: hypotheses are pruned by their summed log-probability; one
that ends leaves the beam, which shrinks by one; scores are normalised by length^p only at the end,
the length including end-of-sentence. Beyond it, a sentence stops early once no alive hypothesis can
still win, and ends at its length limit by force. Everything is decided sentence by sentence, so an
output does not depend on its batch (beyond the last bits of a matrix product), and asking for more
hypotheses does not change the best one.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rareword.schemas.errors import RarewordError
from rareword.schemas.vocabulary import EOS, PAD, UNK

Ids = npt.NDArray[np.integer[Any]]
Weights = npt.NDArray[np.float32]


class Steps(Protocol):
    """What search asks of a network: `trainer.model.Network`, or an ensemble of them.

    Memory and state belong to the network: tuples, named or not and nested or not, of tensors
    whose first dimension is the rows R.
    """

    def encode(self, source_BS: Tensor, mask_BS: Tensor, /) -> Any: ...

    def start(self, memory: Any, /) -> Any: ...

    def step(
        self, state: Any, previous_R: Tensor | None, memory: Any, /
    ) -> tuple[Tensor, Any, Tensor]: ...


class Searchable(Protocol):
    """A model: `trainer.model.EncoderDecoder`, or an ensemble."""

    def network(self) -> Steps: ...


@dataclass(frozen=True)
class SearchOptions:
    """How to search."""

    beam: int = 5
    """Hypotheses kept per sentence; 1 is greedy search."""
    n_best: int = 1
    """Hypotheses returned per sentence, at most `beam`."""
    length_penalty: float = 1.0
    """The exponent p in score = log-probability / length^p; 0 switches normalisation off."""
    max_length_ratio: float = 3.0
    """Longest output in source lengths, end-of-sentence counted on both sides."""
    batch_tokens: int = 2048
    """Source pieces of a batch, padding and end-of-sentence included."""
    forbid_unk: bool = False
    """Never generate <unk>."""
    alignments: bool = False
    """Keep the attention weights."""


class Hypothesis(NamedTuple):
    """An output sentence."""

    ids: list[int]
    """Piece ids, without end-of-sentence."""
    score: float
    """Length-normalised log-probability (natural logarithm)."""
    alignment: Weights | None
    """float32 [T, S]: attention of each output piece, end-of-sentence last, on each source piece,
    end-of-sentence last; rows sum to 1."""


def length_limit(source_length: int, options: SearchOptions) -> int:
    """The most pieces an output may have, end-of-sentence included.

    source_length: pieces, without end-of-sentence.
    """
    return max(2, math.floor(options.max_length_ratio * (source_length + 1)))


def normalised(log_probability: float, length: int, options: SearchOptions) -> float:
    """The score by which hypotheses are compared; `length` includes end-of-sentence."""
    return log_probability / float(length**options.length_penalty)


def plan_batches(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Groups sentences (by index) of similar length, the longest first.

    A batch has at most `batch_tokens` pieces with padding, or it is a single sentence. Longest
    first: if the memory does not suffice, that shows at once and not after hours.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        batch = batches[-1] if batches else []
        if batch and (len(batch) + 1) * lengths[batch[0]] <= batch_tokens:
            batch.append(index)
        else:
            batches.append([index])
    return batches


def beam_search(
    model: Searchable,
    sources: Sequence[Ids],
    options: SearchOptions,
    device: torch.device | str,
) -> list[list[Hypothesis]]:
    """Translates sentences of any number and length; one list per source, the best first.

    sources: int ids [S] without end-of-sentence. A blank source gives one empty hypothesis with
    score 0 and never enters the model. A sentence for which the model yields no finite
    probability gives one empty hypothesis with score -inf.
    Raises RarewordError if a single sentence does not fit the device's memory.
    """
    results = [[Hypothesis([], 0.0, None)] for _ in sources]
    filled = [i for i, source in enumerate(sources) if len(source)]
    lengths = [len(sources[i]) + 1 for i in filled]
    for batch in plan_batches(lengths, options.batch_tokens):
        chosen = [filled[i] for i in batch]
        found = _search_in_memory(model, [sources[i] for i in chosen], options, device)
        for index, hypotheses in zip(chosen, found, strict=True):
            results[index] = hypotheses
    return results


def _search_in_memory(
    model: Searchable,
    sources: list[Ids],
    options: SearchOptions,
    device: torch.device | str,
) -> list[list[Hypothesis]]:
    """Searches a batch; one that does not fit the device's memory is searched in halves."""
    try:
        return _search(model, sources, options, device)
    except torch.OutOfMemoryError as error:
        if len(sources) == 1:
            raise RarewordError(
                f"a sentence of {len(sources[0]):,} pieces does not fit the memory of {device} "
                f"with a beam of {options.beam}; lower the beam, choose a device with more memory, "
                "or leave such long sentences out of the data"
            ) from error
    # Outside the handler, where nothing holds the failed batch's tensors any more.
    half = len(sources) // 2
    return [
        hypotheses
        for part in (sources[:half], sources[half:])
        for hypotheses in _search_in_memory(model, part, options, device)
    ]


# ---- one batch ----


class _Piece(NamedTuple):
    """The last piece of a hypothesis, linked to those before; beams share their beginnings."""

    id: int
    weights_S: Weights | None
    before: "_Piece | None"


class _Alive(NamedTuple):
    """A hypothesis without end-of-sentence."""

    sentence: int
    total: float
    """Sum of its pieces' log-probabilities."""
    last: _Piece | None


@torch.inference_mode()
def _search(
    model: Searchable,
    sources: list[Ids],
    options: SearchOptions,
    device: torch.device | str,
) -> list[list[Hypothesis]]:
    """Searches one batch of sources, none of them blank."""
    network = model.network()
    memory = network.encode(*_padded(sources, device))
    state = network.start(memory)
    limits = [length_limit(len(source), options) for source in sources]
    finished: list[list[Hypothesis]] = [[] for _ in sources]
    alive = [_Alive(sentence, 0.0, None) for sentence in range(len(sources))]
    previous_R: Tensor | None = None
    for length in itertools.count(1):  # of what this step makes, end-of-sentence included
        log_probs_RV, state, weights_RS = network.step(state, previous_R, memory)
        at_limit = [limits[hypothesis.sentence] == length for hypothesis in alive]
        candidates = _candidates(_allowed(log_probs_RV, at_limit, options), alive, options.beam)
        weights = weights_RS.float().cpu().numpy() if options.alignments else None
        survivors: list[tuple[int, _Alive]] = []  # with the row they come from
        for sentence, ranked in candidates.items():
            going: list[tuple[int, _Alive]] = []
            width = options.beam - len(finished[sentence])  # shrinks by what has ended before
            for total, row, id_ in ranked[:width]:
                row_weights = (
                    None if weights is None else weights[row, : len(sources[sentence]) + 1]
                )
                last = _Piece(id_, row_weights, alive[row].last)
                if id_ == EOS:
                    score = normalised(total, length, options)
                    finished[sentence].append(_hypothesis(last, score))
                else:
                    going.append((row, _Alive(sentence, total, last)))
            if going and _can_win(going[0][1], finished[sentence], limits[sentence], options):
                survivors += going
        if not survivors:
            break
        rows_R = torch.tensor([row for row, _ in survivors], device=device)
        survived = [item for _, item in survivors]
        state = _take(state, rows_R)
        if [item.sentence for item in survived] != [item.sentence for item in alive]:
            memory = _take(memory, rows_R)
        alive = survived
        previous_R = torch.tensor([item.last.id for item in alive if item.last], device=device)
    return [
        sorted(hypotheses, key=lambda h: -h.score)[: options.n_best]
        or [Hypothesis([], -math.inf, None)]
        for hypotheses in finished
    ]


def _padded(sources: Sequence[Ids], device: torch.device | str) -> tuple[Tensor, Tensor]:
    """ids [B, S] with end-of-sentence, right padded, and the mask [B, S] of real pieces."""
    lengths = np.array([len(source) + 1 for source in sources])
    ids_BS = np.full((len(sources), lengths.max()), PAD, np.int64)
    for row, source in enumerate(sources):
        ids_BS[row, : len(source)] = source
        ids_BS[row, len(source)] = EOS
    mask_BS = np.arange(ids_BS.shape[1]) < lengths[:, None]
    return torch.from_numpy(ids_BS).to(device), torch.from_numpy(mask_BS).to(device)


def _allowed(log_probs_RV: Tensor, at_limit: list[bool], options: SearchOptions) -> Tensor:
    """Sets what must not be generated to -inf: NaN, <pad>, and all but the end at the limit."""
    allowed_RV = log_probs_RV.float().nan_to_num(nan=-math.inf, neginf=-math.inf)
    allowed_RV[:, PAD] = -math.inf
    if options.forbid_unk:
        allowed_RV[:, UNK] = -math.inf
    if any(at_limit):
        rows = torch.tensor([row for row, ends in enumerate(at_limit) if ends]).to(
            log_probs_RV.device
        )
        end_R = allowed_RV[rows, EOS]
        allowed_RV[rows] = -math.inf
        allowed_RV[rows, EOS] = end_R
    return allowed_RV


def _candidates(
    log_probs_RV: Tensor, alive: list[_Alive], beam: int
) -> dict[int, list[tuple[float, int, int]]]:
    """For each sentence its `beam` best continuations: (total, row, id), the best first.

    Equal totals are ordered by the rank of the hypothesis, then by id.
    """
    k = min(beam, log_probs_RV.shape[1])
    values_Rk, ids_Rk = _top(log_probs_RV, k)
    totals_R = torch.tensor([hypothesis.total for hypothesis in alive]).to(values_Rk.device)
    # One row per sentence, one column per (hypothesis, continuation); -inf where there is none.
    rows_of: dict[int, list[int]] = {}
    for row, hypothesis in enumerate(alive):
        rows_of.setdefault(hypothesis.sentence, []).append(row)
    place_R = [
        line * beam + slot
        for line, rows in enumerate(rows_of.values())
        for slot in range(len(rows))
    ]
    totals = torch.full((len(rows_of) * beam, k), -math.inf, device=values_Rk.device)
    totals[torch.tensor(place_R).to(totals.device)] = totals_R[:, None] + values_Rk
    best_BK, column_BK = totals.view(len(rows_of), beam * k).sort(
        dim=1, descending=True, stable=True
    )
    best, columns = best_BK[:, :beam].tolist(), column_BK[:, :beam].tolist()
    ids = ids_Rk.tolist()
    return {
        sentence: [
            (total, row, ids[row][column % k])
            for total, column in zip(best[line], columns[line], strict=True)
            if total > -math.inf
            for row in [rows[column // k]]
        ]
        for line, (sentence, rows) in enumerate(rows_of.items())
    }


def _top(values_RV: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k greatest values of each row and their ids, both [R, k]; of equal values the lowest ids.

    `topk` alone leaves open which of several equal values it returns, and in which order.
    """
    values_Rk, ids_Rk = values_RV.topk(k, dim=1)
    tied_R = (values_RV >= values_Rk[:, -1:]).sum(1) > k
    if tied_R.any():
        values, ids = values_RV[tied_R].sort(dim=1, descending=True, stable=True)
        values_Rk[tied_R], ids_Rk[tied_R] = values[:, :k], ids[:, :k]
    ids_Rk, order_Rk = ids_Rk.sort(dim=1)
    values_Rk, order_Rk = values_Rk.gather(1, order_Rk).sort(dim=1, descending=True, stable=True)
    return values_Rk, ids_Rk.gather(1, order_Rk)


def _can_win(best: _Alive, finished: list[Hypothesis], limit: int, options: SearchOptions) -> bool:
    """True if the best alive hypothesis may still enter the n best.

    Log-probabilities only add up downwards, so its score is at most its present total over the
    greatest length it may reach.
    """
    if len(finished) < options.n_best:
        return True
    scores = sorted((hypothesis.score for hypothesis in finished), reverse=True)
    return normalised(best.total, limit, options) > scores[options.n_best - 1]


def _hypothesis(last: _Piece, score: float) -> Hypothesis:
    """Follows the links back from end-of-sentence."""
    pieces = []
    piece: _Piece | None = last
    while piece is not None:
        pieces.append(piece)
        piece = piece.before
    pieces.reverse()
    weights = [piece.weights_S for piece in pieces if piece.weights_S is not None]
    ids = [piece.id for piece in pieces[:-1]]
    return Hypothesis(ids, score, np.stack(weights) if weights else None)


def _take(fields: Any, rows_R: Tensor) -> Any:
    """The given rows of every tensor of a tuple, of named tuples, or of tuples of them."""
    if isinstance(fields, Tensor):
        return fields.index_select(0, rows_R)
    taken = (_take(field, rows_R) for field in fields)
    return type(fields)(*taken) if hasattr(fields, "_fields") else type(fields)(taken)


# ---- forced scoring ----


def score(
    model: Searchable,
    sources: Sequence[Ids],
    targets: Sequence[Sequence[int]],
    options: SearchOptions,
    device: torch.device | str,
) -> list[float]:
    """The scores that beam search would give to the targets (ids without end-of-sentence).

    A blank source gives 0 for a blank target and -inf for any other.
    """
    scores = [-math.inf if len(target) else 0.0 for target in targets]
    filled = [i for i, source in enumerate(sources) if len(source)]
    lengths = [len(sources[i]) + 1 for i in filled]
    for batch in plan_batches(lengths, options.batch_tokens):
        chosen = [filled[i] for i in batch]
        totals = _force(model, [sources[i] for i in chosen], [targets[i] for i in chosen], device)
        for index, total in zip(chosen, totals, strict=True):
            scores[index] = normalised(total, len(targets[index]) + 1, options)
    return scores


@torch.inference_mode()
def _force(
    model: Searchable,
    sources: list[Ids],
    targets: list[Sequence[int]],
    device: torch.device | str,
) -> list[float]:
    """The summed log-probabilities of one batch of targets, end-of-sentence included."""
    network = model.network()
    memory = network.encode(*_padded(sources, device))
    state = network.start(memory)
    targets_BT, mask_BT = _padded([np.asarray(target) for target in targets], device)
    totals_B = torch.zeros(len(targets), device=device)
    previous_B: Tensor | None = None
    for next_B, real_B in zip(targets_BT.T, mask_BT.T, strict=True):
        log_probs_BV, state, _ = network.step(state, previous_B, memory)
        chosen_B = log_probs_BV.float().gather(1, next_B[:, None])[:, 0]
        totals_B += torch.where(real_B, chosen_B, 0.0)
        previous_B = next_B
    return totals_B.tolist()
