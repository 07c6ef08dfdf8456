"""Beam search, sampling, and scores of given outputs, all through the same `step`.

Names carry shapes: B sentences of a batch, S source pieces (end-of-sentence included), K beam,
R alive hypotheses of all sentences of the batch, V vocabulary.

The rules follow the paper's decoder: hypotheses are pruned by their summed log-probability; one
that ends leaves the beam, which shrinks by one; scores are normalised by length only at the end,
the length including end-of-sentence. Beyond it, a sentence stops early once no alive hypothesis can
still win, and ends at its length limit by force. Everything is decided sentence by sentence, so an
output does not depend on its batch (beyond the last bits of a matrix product), and asking for more
hypotheses does not change the best one.
"""

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from rareword.schemas.errors import RarewordError
from rareword.schemas.vocabulary import EOS, PAD, UNK
from rareword.trainer import memory
from rareword.trainer.model import Rows
from rareword.trainer.search_options import SearchOptions, length_limits, normalised

Ids = npt.NDArray[np.integer[Any]]
Weights = npt.NDArray[np.float32]

NONE: Ids = np.empty(0, np.int64)

BATCH_ROWS = {"cpu": 768, "cuda": 1 << 15}
"""Most hypotheses of a batch, by device: with more of them a CPU is slower and not faster, for
they leave its caches."""

ROWS = {"cpu": 256, "cuda": 4096}
"""Hypotheses whose log-probabilities there are at once, by device: [R, V] of all would be the
largest tensor of the search, and on a CPU too large for its caches."""

CHUNK = 32
"""Pieces among which the greatest value is found first, where the greatest of all are sought."""


class Steps(Protocol):
    """What search asks of a network: `trainer.model.Network`, or an ensemble of them.

    What the sentences give is the network's own affair: tuples, named or not and nested or not, of
    tensors whose first dimension is the sentences B or, in the state, the hypotheses R.
    """

    def narrowed(self, pieces_C: Tensor, /) -> "Steps":
        """The same network over these pieces alone, in their order."""

    def read(
        self, source_BS: Tensor, mask_BS: Tensor, own_BX: Tensor | None = None, /
    ) -> tuple[Any, Any]:
        """What `step` looks at, and the state before the first piece, of one row a sentence.

        own_BX: further pieces of each sentence, whose columns follow; -1 where there is none.
        """

    def step(
        self, state: Any, previous_R: Tensor | None, attended: Any, rows: Rows | None = None, /
    ) -> tuple[Any, Any, Tensor]:
        """What `log_probs` asks for, the next state, weights_RS."""

    def log_probs(self, features: Any, /) -> Tensor:
        """log_probs_RV (float32), which search may overwrite, of any rows of a step's features."""


class Candidates(NamedTuple):
    """The pieces that outputs may be made of: the softmax is taken over them alone."""

    shared_C: Ids
    """For all sentences, in ascending order; the special pieces must be among them."""
    own: Sequence[Ids]
    """Further ones for each sentence, none of them shared."""


class Hypothesis(NamedTuple):
    """An output sentence."""

    ids: list[int]
    """Piece ids, without end-of-sentence."""
    score: float
    """`normalised` log-probability (natural logarithm)."""
    alignment: Weights | None
    """float32 [T, S]: attention of each output piece, end-of-sentence last, on each source piece,
    end-of-sentence last; rows sum to 1."""


def plan_batches(
    lengths: Sequence[int], batch_tokens: int, most: int | None = None
) -> list[list[int]]:
    """Groups sentences (by index) of similar length, the longest first.

    A batch has at most `batch_tokens` pieces with padding and at most `most` sentences, or it is a
    single sentence. Longest first: if the memory does not suffice, that shows at once and not
    after hours.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        batch = batches[-1] if batches else []
        fits = batch and (len(batch) + 1) * lengths[batch[0]] <= batch_tokens
        if fits and (most is None or len(batch) < most):
            batch.append(index)
        else:
            batches.append([index])
    return batches


def translate(
    network: Steps,
    sources: Sequence[Ids],
    options: SearchOptions,
    device: torch.device | str,
    keys: Sequence[int] | None = None,
    candidates: Candidates | None = None,
) -> list[list[Hypothesis]]:
    """Translates sentences of any number and length; one list per source, the best first.

    sources: int ids [S] without end-of-sentence. keys: numbers of the sentences, by which what
    `sample` draws does not depend on other sentences; left out, their places. candidates: what
    outputs may be made of; left out, the whole vocabulary. A blank source gives
    one empty hypothesis with score 0 and never enters the model. A sentence for which the model
    yields no finite probability gives one empty hypothesis with score -inf.
    Raises RarewordError if a single sentence does not fit the device's memory.
    """
    keys = range(len(sources)) if keys is None else keys
    shared_C: Tensor | None = None
    if candidates is not None:
        shared_C = torch.from_numpy(candidates.shared_C).to(device)
        network = network.narrowed(shared_C)
    own = [NONE] * len(sources) if candidates is None else candidates.own
    results = [[Hypothesis([], 0.0, None)] for _ in sources]
    filled = [i for i, source in enumerate(sources) if len(source)]
    lengths = [len(sources[i]) + 1 for i in filled]
    most = BATCH_ROWS[torch.device(device).type] // options.width
    for batch in plan_batches(lengths, options.batch_tokens, most):
        chosen = [filled[i] for i in batch]
        sentences = [_Sentence(sources[i], keys[i], own[i]) for i in chosen]
        found = _in_memory(
            lambda part: _search(network, part, shared_C, options, device),
            sentences,
            f"{device} with a beam of {options.width}; lower the beam,",
        )
        for index, hypotheses in zip(chosen, found, strict=True):
            results[index] = hypotheses
    return results


class _Sentence(NamedTuple):
    source: Ids
    key: int
    own: Ids


class _Given(NamedTuple):
    """A sentence with an output."""

    source: Ids
    target: Sequence[int]


_Item = TypeVar("_Item", _Sentence, _Given)
_Found = TypeVar("_Found")


def _in_memory(
    work: Callable[[Sequence[_Item]], list[_Found]], batch: Sequence[_Item], where: str
) -> list[_Found]:
    """What the work finds for each item; a batch that does not fit the memory is done in halves.

    where: the memory, and what to do if a single item does not fit it. Raises RarewordError then.
    """
    try:
        return work(batch)
    except Exception as error:
        if not memory.ran_out(error):
            raise
        if len(batch) == 1:
            raise RarewordError(
                f"a sentence of {len(batch[0].source):,} pieces does not fit the memory of {where} "
                "choose a device with more memory, or leave such long sentences out of the data"
            ) from error
    # Outside the handler, where nothing holds the failed batch's tensors any more.
    half = len(batch) // 2
    return [
        found for part in (batch[:half], batch[half:]) for found in _in_memory(work, part, where)
    ]


# ---- one batch ----


@torch.inference_mode()
def _search(
    network: Steps,
    batch: Sequence[_Sentence],
    shared_C: Tensor | None,
    options: SearchOptions,
    device: torch.device | str,
) -> list[list[Hypothesis]]:
    """Searches one batch of sentences, none of them blank.

    shared_C: the pieces that the network's columns stand for, if they are not all.
    """
    sources, sentences, width = [one.source for one in batch], len(batch), options.width
    own_BX = None if shared_C is None else _filled([one.own for one in batch]).to(device)
    attended, state = network.read(*_padded(sources, device), own_BX)
    limits = [length_limits(len(source), options) for source in sources]
    fewest_B, most_B = torch.tensor(limits, device=device).unbind(1)
    uniforms_BKT = None
    if options.search == "sample":
        uniforms_BKT = _uniforms([one.key for one in batch], limits, options)
    finished = _Finished.none(sentences, width, device)
    trace: list[_Chosen] = []
    lines = _Lines(torch.arange(sentences, device=device), sentences)
    totals_BK = torch.full((sentences, width), -math.inf, device=device)
    totals_BK[:, : 1 if uniforms_BKT is None else width] = 0.0
    alive_R, previous_R = (totals_BK > -math.inf).flatten().nonzero()[:, 0], None
    state = _take(state, alive_R // width)
    for length in itertools.count(1):  # of what this step makes, end-of-sentence included
        features, state, weights_RS = network.step(
            state, previous_R, attended, lines.rows(alive_R, width)
        )
        sentence_R, uniforms_R = alive_R // width, None
        if uniforms_BKT is not None:
            uniforms_R = uniforms_BKT[..., length - 1].flatten()[alive_R.cpu()].to(device)
        values_Rk, ids_Rk = _continuations(
            network, features, fewest_B[sentence_R] > length, most_B[sentence_R] == length,
            uniforms_R, options,
        )  # fmt: skip
        totals_BK, parents_BK, ids_BK = _merged(values_Rk, ids_Rk, totals_BK, alive_R, options)
        if shared_C is not None and own_BX is not None:
            ids_BK = _pieces(ids_BK, shared_C, own_BX)
        open_BK = totals_BK > -math.inf
        if uniforms_BKT is None:  # the beam shrinks by what has ended before
            open_BK &= torch.arange(width, device=device) < width - finished.count_B[:, None]
        ends_BK = open_BK & (ids_BK == EOS)
        finished.add(ends_BK, totals_BK, parents_BK, length, options)
        going_BK = open_BK & ~ends_BK
        if uniforms_BKT is None:
            going_BK &= _can_win(totals_BK, going_BK, finished, most_B, options)[:, None]
        row_BK = torch.zeros(sentences * width, dtype=torch.int64, device=device)
        row_BK[alive_R] = torch.arange(len(alive_R), device=device)
        weights = weights_RS.float().cpu().numpy() if options.alignments else None
        rows_BK = row_BK.view(sentences, width).cpu().numpy()
        trace.append(_Chosen(ids_BK.cpu().numpy(), parents_BK.cpu().numpy(), rows_BK, weights))
        alive_R = going_BK.flatten().nonzero()[:, 0]
        if not len(alive_R):
            break
        totals_BK = totals_BK.masked_fill(~going_BK, -math.inf)
        parents_R = alive_R // width * width + parents_BK.flatten()[alive_R]
        state = _take(state, row_BK[parents_R])
        previous_R = ids_BK.flatten()[alive_R]
        attended = lines.keep(attended, going_BK.any(1))
    return finished.hypotheses(trace, [len(source) + 1 for source in sources], options)


@dataclass
class _Lines:
    """Where the sentences of a batch lie in what their network looks at, which is cut when half of
    them have ended."""

    line_B: Tensor
    count: int

    def rows(self, alive_R: Tensor, width: int) -> Rows:
        """The rows of a step, for hypotheses at these of the B x width places."""
        line_R = self.line_B[alive_R // width]
        return Rows(line_R, line_R * width + alive_R % width, width)

    def keep(self, attended: Any, alive_B: Tensor) -> Any:
        """What the network looks at, perhaps cut to the sentences that are alive."""
        alive = alive_B.nonzero()[:, 0]
        if 2 * len(alive) > self.count:
            return attended
        kept = _take(attended, self.line_B[alive])
        self.count = len(alive)
        self.line_B[alive] = torch.arange(self.count, device=alive.device)
        return kept


class _Chosen(NamedTuple):
    """What a step chose for each place, and where it came from."""

    ids_BK: npt.NDArray[np.int64]
    parents_BK: npt.NDArray[np.int64]
    """The place it goes on from, among those of the step before."""
    row_BK: npt.NDArray[np.int64]
    """The row of `weights_RS` of each place of the step before."""
    weights_RS: Weights | None


@dataclass
class _Finished:
    """The hypotheses that ended, in their order: F is K places, and one for waste."""

    scores_BF: Tensor
    """float64; -inf where there is none."""
    lengths_BF: Tensor
    parents_BF: Tensor
    """The place of the hypothesis before its end-of-sentence."""
    count_B: Tensor

    @classmethod
    def none(cls, sentences: int, width: int, device: torch.device | str) -> "_Finished":
        shape = (sentences, width + 1)
        return cls(
            torch.full(shape, -math.inf, dtype=torch.float64, device=device),
            torch.zeros(shape, dtype=torch.int64, device=device),
            torch.zeros(shape, dtype=torch.int64, device=device),
            torch.zeros(sentences, dtype=torch.int64, device=device),
        )

    def add(
        self,
        ends_BK: Tensor,
        totals_BK: Tensor,
        parents_BK: Tensor,
        length: int,
        options: SearchOptions,
    ) -> None:
        """Those that end with the step that makes `length` pieces."""
        waste = self.scores_BF.shape[1] - 1
        place_BK = self.count_B[:, None] + ends_BK.cumsum(1) - 1
        place_BK = place_BK.masked_fill(~ends_BK, waste)
        scores_BK = normalised(totals_BK.double(), length, options)
        self.scores_BF.scatter_(1, place_BK, scores_BK)
        self.scores_BF[:, waste] = -math.inf
        self.lengths_BF.scatter_(1, place_BK, length)
        self.parents_BF.scatter_(1, place_BK, parents_BK)
        self.count_B += ends_BK.sum(1)

    def hypotheses(
        self, trace: Sequence[_Chosen], source_lengths: Sequence[int], options: SearchOptions
    ) -> list[list[Hypothesis]]:
        """The n best of each sentence. source_lengths: with end-of-sentence."""
        scores, lengths = self.scores_BF.tolist(), self.lengths_BF.tolist()
        parents, counts = self.parents_BF.tolist(), self.count_B.tolist()
        found = []
        for sentence, count in enumerate(counts):
            order = sorted(range(count), key=lambda i: -scores[sentence][i])[: options.n_best]
            hypotheses = []
            for place in order:
                length, parent = lengths[sentence][place], parents[sentence][place]
                ids, alignment = _follow(trace[:length], sentence, parent, source_lengths[sentence])
                hypotheses.append(Hypothesis(ids, scores[sentence][place], alignment))
            found.append(hypotheses or [Hypothesis([], -math.inf, None)])
        return found


def _follow(
    trace: Sequence[_Chosen], sentence: int, place: int, source_length: int
) -> tuple[list[int], Weights | None]:
    """The pieces of a hypothesis and its attention, back from its end-of-sentence.

    place: of the hypothesis at the step before the last of the trace.
    """
    ids, weights = [], []
    for number in range(len(trace) - 1, -1, -1):
        chosen = trace[number]
        if chosen.weights_RS is not None:
            row = chosen.row_BK[sentence, place]
            weights.append(chosen.weights_RS[row, :source_length])
        if number:
            before = trace[number - 1]
            ids.append(int(before.ids_BK[sentence, place]))
            place = int(before.parents_BK[sentence, place])
    return ids[::-1], np.stack(weights[::-1]) if weights else None


def _filled(own: Sequence[Ids]) -> Tensor:
    """own_BX, right filled with -1."""
    filled = np.full((len(own), max(map(len, own))), -1, np.int64)
    for row, ids in enumerate(own):
        filled[row, : len(ids)] = ids
    return torch.from_numpy(filled)


def _pieces(columns_BK: Tensor, shared_C: Tensor, own_BX: Tensor) -> Tensor:
    """The pieces that columns stand for: first the shared ones, then the sentence's own."""
    shared = len(shared_C)
    pieces_BK = shared_C[columns_BK.clamp_max(shared - 1)]
    if not own_BX.shape[1]:
        return pieces_BK
    own_BK = own_BX.gather(1, (columns_BK - shared).clamp_min(0))
    return torch.where(columns_BK < shared, pieces_BK, own_BK)


def _padded(sources: Sequence[Ids], device: torch.device | str) -> tuple[Tensor, Tensor]:
    """ids [B, S] with end-of-sentence, right padded, and the mask [B, S] of real pieces."""
    lengths = np.array([len(source) + 1 for source in sources])
    ids_BS = np.full((len(sources), lengths.max()), PAD, np.int64)
    for row, source in enumerate(sources):
        ids_BS[row, : len(source)] = source
        ids_BS[row, len(source)] = EOS
    mask_BS = np.arange(ids_BS.shape[1]) < lengths[:, None]
    return torch.from_numpy(ids_BS).to(device), torch.from_numpy(mask_BS).to(device)


# ---- what comes next ----


def _continuations(
    network: Steps,
    features: Any,
    is_early_R: Tensor,
    is_late_R: Tensor,
    uniforms_R: Tensor | None,
    options: SearchOptions,
) -> tuple[Tensor, Tensor]:
    """Of each hypothesis the K best next pieces, or the one that is drawn by the number
    `uniforms_R`: their log-probabilities and columns, both [R, k].

    is_early_R: no end yet; is_late_R: only an end.
    """
    found, rows = [], ROWS[is_early_R.device.type]
    for first in range(0, len(is_early_R), rows):
        part = slice(first, first + rows)
        log_probs_RV = network.log_probs(_each(features, operator.itemgetter(part))).float()
        _forbid(log_probs_RV, is_early_R[part], is_late_R[part], options)
        if uniforms_R is None:
            found.append(_top(log_probs_RV, min(options.beam, log_probs_RV.shape[1])))
        else:
            found.append(_drawn(log_probs_RV, uniforms_R[part], options))
    values, columns = zip(*found, strict=True)
    return torch.cat(values), torch.cat(columns)


def _forbid(
    log_probs_RV: Tensor, is_early_R: Tensor, is_late_R: Tensor, options: SearchOptions
) -> None:
    """Sets what must not be generated to -inf: <pad>, an end too early, all but the end at the
    limit."""
    log_probs_RV[:, PAD] = -math.inf
    if options.forbid_unk:
        log_probs_RV[:, UNK] = -math.inf
    log_probs_RV[:, EOS].masked_fill_(is_early_R, -math.inf)
    if is_late_R.any():
        ends_R = log_probs_RV[is_late_R, EOS]
        log_probs_RV[is_late_R] = -math.inf
        log_probs_RV[is_late_R, EOS] = ends_R


def _merged(
    values_Rk: Tensor, ids_Rk: Tensor, totals_BK: Tensor, alive_R: Tensor, options: SearchOptions
) -> tuple[Tensor, Tensor, Tensor]:
    """The continuations of each sentence's hypotheses: totals_BK, and the place they go on from
    and their piece, both [B, K]. Of beams the best ones, the best first.

    Equal totals are ordered by the rank of the hypothesis, then by id. A place without one has
    -inf, as have hypotheses to which the model gives NaN.
    """
    (sentences, width), k = totals_BK.shape, values_Rk.shape[1]
    found_Rk = totals_BK.flatten()[alive_R, None] + values_Rk
    totals = totals_BK.new_full((sentences * width, k), -math.inf)
    totals[alive_R] = found_Rk.nan_to_num(nan=-math.inf, neginf=-math.inf)
    ids = ids_Rk.new_zeros(sentences * width, k)
    ids[alive_R] = ids_Rk
    if options.search == "sample":
        places_BK = torch.arange(width, device=ids.device).expand(sentences, width)
        return totals.view(sentences, width), places_BK, ids.view(sentences, width)
    best_BK, column_BK = _top(totals.view(sentences, -1), width)
    return best_BK, column_BK // k, ids.view(sentences, -1).gather(1, column_BK)


# ---- pruning ----


def _top(values_RN: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k greatest values of each row and their columns, both [R, k]; of equal values the first.

    Of a long row only the k chunks with the greatest maxima are looked at: what is in another one
    has k values before it. (`topk` alone leaves open which of several equal values it returns.)
    """
    rows, columns = values_RN.shape
    whole = columns // CHUNK
    if whole <= 2 * k:
        return _top_of(values_RN, torch.arange(columns, device=values_RN.device), k)
    maxima = values_RN[:, : whole * CHUNK].unflatten(1, (whole, CHUNK)).amax(2)
    _, chunk_Rk = _top_of(maxima, torch.arange(whole, device=values_RN.device), k)
    inside = torch.arange(CHUNK, device=values_RN.device)
    rest = torch.arange(whole * CHUNK, columns, device=values_RN.device)
    column_RC = torch.cat(
        [(chunk_Rk[:, :, None] * CHUNK + inside).flatten(1), rest.expand(rows, -1)], 1
    )
    return _top_of(values_RN.gather(1, column_RC), column_RC, k)


_ORDER = 32
"""Bits of the column's part of a key."""


def _top_of(values_RC: Tensor, columns: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """`_top` of float32 values and the columns they stand for, [C] or [R, C].

    Each value becomes a number of its own: its bits, in an order that grows with it, above the
    columns, which fall.
    """
    bits = (values_RC + 0.0).view(torch.int32).long()  # -0 is 0
    bits = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    keys = (bits << _ORDER) + ((1 << _ORDER) - 1 - columns)
    keys_Rk = keys.topk(k, dim=1).values
    bits = keys_Rk >> _ORDER
    bits = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    column_Rk = (1 << _ORDER) - 1 - (keys_Rk & ((1 << _ORDER) - 1))
    return bits.int().view(torch.float32), column_Rk


def _can_win(
    totals_BK: Tensor, going_BK: Tensor, finished: _Finished, most_B: Tensor, options: SearchOptions
) -> Tensor:
    """True [B] where the best alive hypothesis may still enter the n best.

    Log-probabilities only add up downwards, so its score is at most that of its present total at
    the greatest length it may reach.
    """
    best_B = totals_BK.masked_fill(~going_BK, -math.inf).amax(1).double()
    worst_B = finished.scores_BF.topk(options.n_best, dim=1).values[:, -1]
    found: Tensor = normalised(best_B, most_B, options) > worst_B
    return found


# ---- drawing ----


def _uniforms(
    keys: Sequence[int], limits: Sequence[tuple[int, int]], options: SearchOptions
) -> Tensor:
    """Numbers in [0, 1) for each sentence, hypothesis and step: a function of seed and key."""
    longest = max(most for _, most in limits)
    drawn = np.zeros((len(keys), options.width, longest))
    for line, (key, (_, most)) in enumerate(zip(keys, limits, strict=True)):
        generator = np.random.default_rng([options.search_seed, *divmod(key % (1 << 64), 1 << 32)])
        drawn[line, :, :most] = generator.random((options.width, most))
    return torch.from_numpy(drawn)


def _drawn(
    log_probs_RV: Tensor, uniforms_R: Tensor, options: SearchOptions
) -> tuple[Tensor, Tensor]:
    """A piece for each hypothesis by the inverse of the distribution function: its log-probability
    and its column, both [R, 1]."""
    scaled_RV = log_probs_RV / options.temperature
    if 0 < options.top_k < scaled_RV.shape[1]:
        values_Rk, ids_Rk = _top(scaled_RV, options.top_k)
        scaled_RV = torch.full_like(scaled_RV, -math.inf).scatter_(1, ids_Rk, values_Rk)
    probs_RV = functional.softmax(scaled_RV.double(), 1).nan_to_num_(nan=0.0)
    if options.top_p < 1:
        sorted_RV, ids_RV = probs_RV.sort(dim=1, descending=True, stable=True)
        before_RV = sorted_RV.cumsum(1) - sorted_RV
        probs_RV.scatter_(1, ids_RV, sorted_RV.masked_fill(before_RV >= options.top_p, 0.0))
    sums_RV = probs_RV.cumsum(1)
    ids_R1 = torch.searchsorted(sums_RV, uniforms_R[:, None] * sums_RV[:, -1:], right=True)
    ids_R1 = ids_R1.clamp_max_(sums_RV.shape[1] - 1)
    return log_probs_RV.gather(1, ids_R1), ids_R1


def _take(fields: Any, rows_R: Tensor) -> Any:
    """The given rows of every tensor."""
    return _each(fields, lambda tensor: tensor.index_select(0, rows_R))


def _each(fields: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Every tensor of a tuple, of named tuples, or of tuples of them, changed; None stays."""
    if fields is None:
        return None
    if isinstance(fields, Tensor):
        return change(fields)
    changed = (_each(field, change) for field in fields)
    return type(fields)(*changed) if hasattr(fields, "_fields") else type(fields)(changed)


# ---- given outputs ----


def force(
    network: Steps,
    sources: Sequence[Ids],
    targets: Sequence[Sequence[int]],
    options: SearchOptions,
    device: torch.device | str,
) -> list[Hypothesis]:
    """The targets (ids without end-of-sentence) with the scores that search would give them.

    A blank source gives 0 for a blank target and -inf for any other.
    Raises RarewordError if a single sentence does not fit the device's memory.
    """
    found = [
        Hypothesis(list(map(int, target)), -math.inf if len(target) else 0.0, None)
        for target in targets
    ]
    filled = [i for i, source in enumerate(sources) if len(source)]
    lengths = [max(len(sources[i]), len(targets[i])) + 1 for i in filled]
    most = BATCH_ROWS[torch.device(device).type]
    for batch in plan_batches(lengths, options.batch_tokens, most):
        chosen = [filled[i] for i in batch]
        scored = _in_memory(
            lambda part: _force(network, part, options.alignments, device),
            [_Given(sources[i], targets[i]) for i in chosen],
            f"{device};",
        )
        for index, (total, alignment) in zip(chosen, scored, strict=True):
            score = normalised(total, len(targets[index]) + 1, options)
            found[index] = Hypothesis(found[index].ids, score, alignment)
    return found


@torch.inference_mode()
def _force(
    network: Steps, batch: Sequence[_Given], alignments: bool, device: torch.device | str
) -> list[tuple[float, Weights | None]]:
    """The summed log-probability of each target of one batch, end-of-sentence included."""
    attended, state = network.read(*_padded([one.source for one in batch], device))
    targets_BT, mask_BT = _padded([np.asarray(one.target) for one in batch], device)
    totals_B = torch.zeros(len(batch), device=device)
    previous_B: Tensor | None = None
    rows, weights = ROWS[totals_B.device.type], []
    for next_B, real_B in zip(targets_BT.T, mask_BT.T, strict=True):
        features, state, weights_BS = network.step(state, previous_B, attended)
        for first in range(0, len(totals_B), rows):
            part = slice(first, first + rows)
            log_probs_BV = network.log_probs(_each(features, operator.itemgetter(part))).float()
            chosen_B = log_probs_BV.gather(1, next_B[part, None])[:, 0]
            totals_B[part] += torch.where(real_B[part], chosen_B, 0.0)
        previous_B = next_B
        if alignments:
            weights.append(weights_BS.float().cpu().numpy())
    weights_of = [
        np.stack([step[row, : len(source) + 1] for step in weights[: len(target) + 1]])
        if alignments
        else None
        for row, (source, target) in enumerate(batch)
    ]
    return list(zip(totals_B.tolist(), weights_of, strict=True))
