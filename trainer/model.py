"""The attentional encoder-decoder (Bahdanau et al. 2015; Sennrich et al. 2016).

Letters in names: B batch, S source, T target, E embedding, H hidden (decoder and attention),
Z annotation (both directions of the encoder), V vocabulary, N target tokens without padding.

The decoder works in the order look, generate, update. With h the state that has read all pieces
before t, and c what attention finds with it:

    look       c_t = attention(h_t)
    generate   p(y_t) from h_t, y_{t-1} and c_t
    update     h_{t+1} = GRU(h_t; y_t, c_t)

There is no start symbol: the embedding of y_{-1} is zero. In training the loop over T yields only
the h_t and c_t, and all that generates runs afterwards as one product over the whole batch.
Sentences are padded on the right, everywhere.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from rareword.schemas.vocabulary import PAD
from rareword.trainer.attention import AdditiveAttention, mask_bias
from rareword.trainer.config import ModelConfig
from rareword.trainer.scan import ScanWeights, scan


class Memory(NamedTuple):
    """What the decoder keeps of the encoded sentences."""

    annotations_BSZ: Tensor
    keys_BSH: Tensor
    mask_BS: Tensor
    """True on tokens, False on padding."""


class State(NamedTuple):
    """The decoder between two steps: its GRU's state and the last context."""

    hidden_BH: Tensor
    context_BZ: Tensor


class EncoderDecoder(nn.Module):
    """Bidirectional GRU encoder, additive attention, GRU decoder with maxout and low-rank output.

    Both GRUs are of the cuDNN form: n = tanh(W x + r * (U h + b)), h' = (1 - z) * n + z * h.
    Dropout (when training) falls on both embeddings, the annotations and the maxout layer.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        embedding, hidden, annotation = config.embedding, config.hidden, 2 * config.encoder_hidden
        self.source_embedding = nn.Embedding(config.source_vocabulary, embedding)
        self.encoder = nn.GRU(
            embedding, config.encoder_hidden, batch_first=True, bidirectional=True
        )
        self.initial = nn.Linear(config.encoder_hidden, hidden)
        self.attention = AdditiveAttention(annotation, hidden)
        self.target_embedding = nn.Embedding(config.target_vocabulary, embedding)
        # The decoder's GRU as its three products, each for the gates r, z and n: the product with
        # the embeddings is made outside the loop, and without bias that with the context.
        self.input_gates = nn.Linear(embedding, 3 * hidden)
        self.context_gates = nn.Linear(annotation, 3 * hidden, bias=False)
        self.hidden_gates = nn.Linear(hidden, 3 * hidden)
        self.readout = nn.Linear(hidden + embedding + annotation, hidden)
        self.low_rank = nn.Linear(hidden // 2, embedding, bias=False)
        self.output = nn.Linear(embedding, config.target_vocabulary)
        self.dropout = nn.Dropout(config.dropout)
        self._initialise()
        if config.tied in ("all", "target"):
            self.output.weight = self.target_embedding.weight
        if config.tied == "all":
            self.source_embedding.weight = self.target_embedding.weight

    def _initialise(self) -> None:
        """Recurrent matrices orthogonal gate by gate, embeddings small, the rest Glorot."""
        for name, parameter in self.named_parameters():
            if parameter.dim() < 2:
                nn.init.zeros_(parameter)
            elif "embedding" in name or name == "output.weight":
                nn.init.normal_(parameter, std=1 / math.sqrt(self.config.embedding))
            elif "weight_hh" in name or name == "hidden_gates.weight":
                for gate in parameter.data.chunk(3):
                    nn.init.orthogonal_(gate)
            elif "weight_ih" in name or name.endswith("_gates.weight"):
                for gate in parameter.data.chunk(3):
                    nn.init.xavier_uniform_(gate)
            else:
                nn.init.xavier_uniform_(parameter)

    def encode(self, source_BS: Tensor, mask_BS: Tensor) -> Memory:
        """Reads sentences. `source_BS`: int64 ids with their end of sentence, right padded."""
        embedded_BSE = self.dropout(self.source_embedding(source_BS))
        lengths_B = mask_BS.sum(1).cpu()
        packed = pack_padded_sequence(
            embedded_BSE, lengths_B, batch_first=True, enforce_sorted=False
        )
        annotations_BSZ, _ = pad_packed_sequence(
            self.encoder(packed)[0], batch_first=True, total_length=source_BS.shape[1]
        )
        annotations_BSZ = self.dropout(annotations_BSZ)
        return Memory(annotations_BSZ, self.attention.keys(annotations_BSZ), mask_BS)

    def start(self, memory: Memory) -> State:
        """The state before the first piece, from the backward annotation of the first piece."""
        backward_BZ = memory.annotations_BSZ[:, 0, self.config.encoder_hidden :]
        hidden_BH = torch.tanh(self.initial(backward_BZ))
        return State(hidden_BH, torch.zeros_like(memory.annotations_BSZ[:, 0]))

    def step(
        self, state: State, previous_B: Tensor | None, memory: Memory
    ) -> tuple[Tensor, State, Tensor]:
        """One piece: log_probs_BV (float32), the next state, attention weights_BS.

        previous_B: the piece chosen last (int64); None at the first step. With it the state is
        first updated by the previous piece and the context it was generated from.
        """
        hidden_BH, context_BZ = state
        if previous_B is None:
            embedded_BE = hidden_BH.new_zeros(len(hidden_BH), self.config.embedding)
        else:
            embedded_BE = self.dropout(self.target_embedding(previous_B))
            hidden_BH = self._update(
                hidden_BH,
                self.hidden_gates(hidden_BH),
                self.input_gates(embedded_BE),
                context_BZ,
            )
        bias_BS = mask_bias(memory.mask_BS, _accumulator(memory.keys_BSH))
        context_BZ, weights_BS = self.attention.look(
            self.attention.query(hidden_BH), memory.keys_BSH, memory.annotations_BSZ, bias_BS
        )
        logits_BV = self.output(self._generate(hidden_BH, embedded_BE, context_BZ))
        log_probs_BV = functional.log_softmax(logits_BV.to(bias_BS.dtype), -1)
        return log_probs_BV, State(hidden_BH, context_BZ), weights_BS

    def forced(self, memory: Memory, target_BT: Tensor) -> Tensor:
        """features_NE of all target tokens, row by row, teacher forced; N leaves out padding.

        `output(features_NE)` are the logits that `step` would give with the true pieces before.
        """
        embedded_BTE = self.dropout(self.target_embedding(target_BT))
        inputs_TBG = self.input_gates(embedded_BTE).transpose(0, 1).contiguous()
        attention = self.attention
        hiddens_TBH, contexts_TBZ = scan(
            inputs_TBG,
            self.start(memory).hidden_BH,
            memory.keys_BSH,
            memory.annotations_BSZ,
            mask_bias(memory.mask_BS, _accumulator(memory.keys_BSH)),
            ScanWeights(
                torch.cat([attention.query.weight, self.hidden_gates.weight]),
                functional.pad(self.hidden_gates.bias, (self.config.hidden, 0)),
                self.context_gates.weight,
                attention.energy.weight[0],
            ),
        )
        shifted_BTE = functional.pad(embedded_BTE[:, :-1], (0, 0, 1, 0))
        real_BT = target_BT != PAD
        return self._generate(
            hiddens_TBH.transpose(0, 1)[real_BT],
            shifted_BTE[real_BT],
            contexts_TBZ.transpose(0, 1)[real_BT],
        )

    def _update(
        self, hidden_BH: Tensor, hidden_gates_BG: Tensor, inputs_BG: Tensor, context_BZ: Tensor
    ) -> Tensor:
        """The GRU: the state after a piece. G is 3 H: gates r, z and n."""
        size = self.config.hidden
        outer_BG = inputs_BG + self.context_gates(context_BZ)
        gates = torch.sigmoid(outer_BG[:, : 2 * size] + hidden_gates_BG[:, : 2 * size])
        reset_BH, keep_BH = gates[:, :size], gates[:, size:]
        new_BH = torch.tanh(
            torch.addcmul(outer_BG[:, 2 * size :], reset_BH, hidden_gates_BG[:, 2 * size :])
        )
        return torch.lerp(new_BH, hidden_BH.to(new_BH.dtype), keep_BH)

    def _generate(self, hidden_NH: Tensor, embedded_NE: Tensor, context_NZ: Tensor) -> Tensor:
        """features_NE before the output matrix: readout, maxout over adjacent pairs, low rank."""
        parts = [part.to(hidden_NH.dtype) for part in (hidden_NH, embedded_NE, context_NZ)]
        readout_NH = self.readout(torch.cat(parts, -1))
        maxout = readout_NH.unflatten(-1, (-1, 2)).amax(-1)
        features_NE: Tensor = self.low_rank(self.dropout(maxout))
        return features_NE


def _accumulator(tensor: Tensor) -> torch.dtype:
    """The precision of energies, softmax and loss: float32, or float64 for a float64 model."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32
