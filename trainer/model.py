"""The attentional encoder-decoder (Bahdanau et al. 2015; Sennrich et al. 2016).

Letters in names: B batch, S source, T target, E embedding, H hidden (decoder and attention),
Z annotation (both directions of the encoder), D direction, G the gates r, z, n (3 H), V vocabulary,
L layers of the decoder, N target tokens.

The decoder works in the order look, generate, update. With h the state that has read all pieces
before t, and c what attention finds with it:

    look       c_t = attention(h_t)
    generate   p(y_t) from h_t, y_{t-1} and c_t
    update     h_{t+1} = GRU(h_t; y_t, c_t)

There is no start symbol: the embedding of y_{-1} is zero. In training the loop over T yields only
the h_t and c_t, and all that generates runs afterwards as one product over the whole batch. Upper
layers read the states of the layer below; what generates sees the uppermost, attention the lowest.
Sentences are padded on the right, everywhere.
"""

import copy
import functools
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from rareword.trainer import kernels
from rareword.trainer.config import ModelConfig
from rareword.trainer.gru import GruWeights, cell_forward, gru_scan
from rareword.trainer.scan import scan

TABLE = 1 << 25
"""Most numbers of a network's table of what each piece adds to the next step."""


class Memory(NamedTuple):
    """What the decoder keeps of the encoded sentences."""

    annotations_BSZ: Tensor
    keys_BSH: Tensor
    mask_BS: Tensor
    """True on tokens, False on padding."""


class Attended(NamedTuple):
    """What `Network.step` looks at: of each source token its key, and its annotation's products
    with all that reads a context. A context is a mean of annotations, so its products are the
    means of theirs, which saves the step its largest ones."""

    keys_BSH: Tensor
    """`lasting_keys`."""
    products_BSX: Tensor
    """With the gates' columns, then with the readout's."""
    bias_BS: Tensor
    """0 on tokens, -inf on padding."""
    own_BXE: Tensor | None = None
    """Rows of the output matrix that the network itself lacks, for pieces of one sentence each."""
    own_bias_BX: Tensor | None = None
    """Their bias, -inf where there is none."""


class State(NamedTuple):
    """The decoder between two steps: its GRUs' states, and the last context's product with the
    gates."""

    hidden_RLH: Tensor
    context_RG: Tensor


class Features(NamedTuple):
    """What `Network.step` says of the next piece, before the large product with the output."""

    made_RE: Tensor
    own_RX: Tensor | None = None
    """Logits of pieces of the sentences' own."""


class Rows(NamedTuple):
    """The hypotheses of a step, R rows, and the B sentences they belong to, in ascending order."""

    sentence_R: Tensor
    place_R: Tensor
    """Among the B x width places that the sentences have for their hypotheses."""
    width: int


class Gru(nn.Module):
    """The parameters of a GRU layer, for `directions` at once."""

    def __init__(self, config: ModelConfig, inputs: int, hidden: int, directions: int = 1) -> None:
        super().__init__()
        cudnn, shape = config.gru == "cudnn", (directions, 3 * hidden)
        self.input = nn.Parameter(torch.empty(*shape, inputs))
        # GroundHog's gates have no bias, its candidate has.
        self.input_bias = nn.Parameter(torch.empty(directions, (3 if cudnn else 1) * hidden))
        self.hidden = nn.Parameter(torch.empty(*shape, hidden))
        self.hidden_bias = nn.Parameter(torch.empty(directions, 1, hidden)) if cudnn else None
        self.norm = nn.LayerNorm(3 * hidden) if config.layer_norm else None

    def input_biases(self) -> Tensor:
        """The bias of the products with the inputs, 0 where there is none: [D, G]."""
        missing = self.input.shape[1] - self.input_bias.shape[1]
        return functional.pad(self.input_bias, (missing, 0))

    def weights(self, dtype: torch.dtype) -> GruWeights:
        """The state's side, of both directions or of the only one."""
        hidden = _only(self.hidden).to(dtype)
        if self.hidden_bias is not None:
            return GruWeights(hidden, _only(self.hidden_bias).to(dtype))
        size = hidden.shape[-1]
        return GruWeights(hidden[..., : 2 * size, :], None, hidden[..., 2 * size :, :])


def _only(tensor: Tensor) -> Tensor:
    """Without the dimension of the directions, if there is just one."""
    return tensor[0] if len(tensor) == 1 else tensor


class EncoderDecoder(nn.Module):
    """The parameters of a model. `network` makes of them what computes.

    Bidirectional GRU encoder, additive attention without bias, GRU decoder with maxout and low-rank
    output. Dropout (when training) falls on both embeddings, between layers, on the annotations
    and on the maxout layer; layer normalisation on the products of the GRUs' inputs, the
    annotations and the readout.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        embedding, hidden, annotation = config.embedding, config.hidden, 2 * config.encoder_hidden
        self.source_embedding = nn.Embedding(config.source_vocabulary, embedding)
        self.target_embedding = nn.Embedding(config.target_vocabulary, embedding)
        self.source_bias = nn.Parameter(torch.empty(embedding)) if config.embedding_bias else None
        self.target_bias = nn.Parameter(torch.empty(embedding)) if config.embedding_bias else None
        self.encoder = nn.ModuleList(
            Gru(config, embedding if layer == 0 else annotation, config.encoder_hidden, 2)
            for layer in range(config.encoder_layers)
        )
        self.initial = nn.Linear(config.encoder_hidden, config.decoder_layers * hidden)
        self.key = nn.Linear(annotation, hidden, bias=False)
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.energy = nn.Linear(hidden, 1, bias=False)
        self.decoder = nn.ModuleList(
            Gru(config, embedding if layer == 0 else hidden, hidden)
            for layer in range(config.decoder_layers)
        )
        self.context = nn.Linear(annotation, 3 * hidden, bias=False)
        self.readout = nn.Linear(hidden + embedding + annotation, hidden)
        self.low_rank = nn.Linear(hidden // 2, embedding, bias=False)
        self.output = nn.Linear(embedding, config.target_vocabulary)
        normed = config.layer_norm
        self.annotation_norm = nn.LayerNorm(annotation) if normed else None
        self.readout_norm = nn.LayerNorm(hidden) if normed else None
        self.dropout = nn.Dropout(config.dropout)
        self._initialise()
        if config.tied in ("all", "target"):
            self.output.weight = self.target_embedding.weight
        if config.tied == "all":
            self.source_embedding.weight = self.target_embedding.weight

    def _initialise(self) -> None:
        """Recurrent matrices orthogonal gate by gate, biases 0, the others by the config.

        The paper's: normal with deviation 0.01, in the attention 0.001, and the vector of its
        energies 0, so that it looks everywhere alike at first. Else Glorot, embeddings small.
        """
        paper = self.config.initialisation == "paper"
        for name, parameter in self.named_parameters():
            if "norm" in name:
                continue  # a LayerNorm knows its own
            if parameter.dim() < 2 or name.endswith("_bias"):
                nn.init.zeros_(parameter)
            elif name.endswith(".hidden"):
                for direction in parameter.data:
                    for gate in direction.chunk(3):
                        nn.init.orthogonal_(gate)
            elif paper and name.startswith("energy"):
                nn.init.zeros_(parameter)
            elif paper:
                nn.init.normal_(parameter, std=0.001 if name.startswith(("key", "query")) else 0.01)
            elif "embedding" in name or name == "output.weight":
                nn.init.normal_(parameter, std=1 / math.sqrt(self.config.embedding))
            elif name.endswith(".input") or name == "context.weight":
                gates = parameter.data.unflatten(-2, (3, -1)).flatten(0, -3)
                for gate in gates:
                    nn.init.xavier_uniform_(gate)
            else:
                nn.init.xavier_uniform_(parameter)

    def network(self, dtype: torch.dtype | None = None, align: int = 1) -> "Network":
        """The network with products in `dtype` (default: the parameters' own).

        Weights are cast once here, not at each use. align: sizes of embedding, maxout layer and
        vocabulary are rounded up to a multiple of it, with zeros; nothing else changes. (GPUs are
        fast only on rows of whole 16 bytes.)
        """
        return Network(self, dtype or self.output.weight.dtype, align)


class Network:
    """What a model computes, with its weights cast and padded. `EncoderDecoder.network` makes it.

    Gradients go through to the parameters.
    """

    def __init__(self, model: EncoderDecoder, dtype: torch.dtype, align: int) -> None:
        self.model, self.config, self.dtype = model, model.config, dtype
        self.columns = self.config.target_vocabulary
        """Pieces of the target vocabulary; what `output_VE` has beyond is padding."""
        embedding, hidden = self.config.embedding, self.config.hidden
        self._extra = -embedding % align
        readout = (-(hidden // 2) % align) * 2
        vocabulary = -self.columns % align

        def cast(tensor: Tensor, *pad: int) -> Tensor:
            """In the network's type, padded: (columns,) or (columns, rows)."""
            tensor = tensor.to(dtype)
            if not any(pad):
                return tensor
            return functional.pad(tensor, [part for size in pad for part in (0, size)])

        encoder, decoder = _layers(model.encoder), _layers(model.decoder)
        self._encoder = [layer.weights(dtype) for layer in encoder]
        self._decoder = [layer.weights(dtype) for layer in decoder]
        below = [self._extra] + [0] * max(self.config.encoder_layers, self.config.decoder_layers)
        self._encoder_inputs = [
            cast(layer.input, below[i]).flatten(0, 1) for i, layer in enumerate(encoder)
        ]
        self._decoder_inputs = [cast(x.input[0], below[i]) for i, x in enumerate(decoder)]
        self._encoder_bias = [cast(layer.input_biases()).flatten() for layer in encoder]
        self._decoder_bias = [cast(layer.input_biases()[0]) for layer in decoder]
        self._decoder_norms = [layer.norm for layer in decoder]
        self._initial, self._initial_bias = cast(model.initial.weight), cast(model.initial.bias)
        self._key, self._query = cast(model.key.weight), cast(model.query.weight)
        self._energy, self._context = cast(model.energy.weight[0]), cast(model.context.weight)
        parts = model.readout.weight.split((hidden, embedding, 2 * self.config.encoder_hidden), 1)
        columns = (0, self._extra, 0)
        self._readout = torch.cat(
            [cast(part, extra, readout) for part, extra in zip(parts, columns, strict=True)], 1
        )
        self._readout_bias = cast(model.readout.bias, readout)
        self._readout_norm = model.readout_norm
        self._widths = len(self._context), len(self._readout)
        """Of what contexts and pieces add to the gates and to the readout."""
        self._context_products = torch.cat([self._context, self._readout[:, -parts[2].shape[1] :]])
        self._low_rank = cast(model.low_rank.weight, readout // 2, self._extra)
        self.output_VE = cast(model.output.weight, self._extra, vocabulary)
        bias_V = model.output.bias
        self.output_bias_V = functional.pad(bias_V, (0, vocabulary), value=-torch.inf)
        self._output = self.output_VE, self.output_bias_V  # of all pieces

    def encode(self, source_BS: Tensor, mask_BS: Tensor) -> Memory:
        """Reads sentences. `source_BS`: int64 ids with their end of sentence, right padded."""
        model = self.model
        layer_SBX = self._embed(model.source_embedding, model.source_bias, source_BS.t())
        padding_SB1 = ~mask_BS.t()[:, :, None]
        for number, layer in enumerate(_layers(model.encoder)):
            if number:
                layer_SBX = model.dropout(layer_SBX)
            layer_SBX = self._read(number, layer, layer_SBX, padding_SB1)
        if model.annotation_norm is not None:
            layer_SBX = _normalise(model.annotation_norm, layer_SBX)
        annotations_BSZ = model.dropout(layer_SBX).transpose(0, 1).contiguous()
        return Memory(annotations_BSZ, functional.linear(annotations_BSZ, self._key), mask_BS)

    def _read(self, number: int, layer: Gru, layer_SBX: Tensor, padding_SB1: Tensor) -> Tensor:
        """A layer of the encoder: states_SBZ of both directions."""
        size = self.config.encoder_hidden
        inputs = functional.linear(
            layer_SBX, self._encoder_inputs[number], self._encoder_bias[number]
        ).unflatten(-1, (2, -1))
        if layer.norm is not None:
            inputs = _normalise(layer.norm, inputs)
        # The second direction runs from the end. On padding the keep gate is 1: the state stays.
        inputs_SDBG = torch.stack([inputs[:, :, 0], inputs[:, :, 1].flip(0)], 1)
        padding_SDB1 = torch.stack([padding_SB1, padding_SB1.flip(0)], 1)
        keep_G = torch.arange(3 * size, device=inputs.device) // size == 1
        inputs_SDBG = inputs_SDBG.masked_fill(padding_SDB1 & keep_G, torch.inf)
        first = inputs_SDBG.new_zeros(2, inputs_SDBG.shape[2], size)
        states_SDBH = gru_scan(inputs_SDBG, first, self._encoder[number])
        return torch.cat([states_SDBH[:, 0], states_SDBH[:, 1].flip(0)], -1)

    def start(self, memory: Memory) -> Tensor:
        """The states before the first piece, from the backward annotation of the first piece:
        hidden_BLH."""
        backward_BZ = memory.annotations_BSZ[:, 0, self.config.encoder_hidden :]
        hidden_BX = torch.tanh(functional.linear(backward_BZ, self._initial, self._initial_bias))
        hidden_BLH: Tensor = hidden_BX.unflatten(1, (self.config.decoder_layers, -1))
        return hidden_BLH

    def narrowed(self, pieces_C: Tensor) -> "Network":
        """The same network over these pieces of the target vocabulary alone, in their order."""
        _ = self._table  # made once for all copies
        network = copy.copy(self)
        network.output_VE = self.output_VE[..., pieces_C, :]
        network.output_bias_V = self.output_bias_V[..., pieces_C]
        network.columns = len(pieces_C)
        network._output = self._output
        return network

    def read(
        self, source_BS: Tensor, mask_BS: Tensor, own_BX: Tensor | None = None
    ) -> tuple[Attended, State]:
        """Reads sentences for `step`; the arguments of `encode`.

        own_BX: further pieces of each sentence (int64), -1 where there is none. Their columns
        follow those of the network, which must be `narrowed`.
        """
        memory = self.encode(source_BS, mask_BS)
        products_BSX = functional.linear(memory.annotations_BSZ, self._context_products)
        hidden_BLH = self.start(memory)
        context_BG = products_BSX.new_zeros(len(source_BS), self._widths[0])
        attended = Attended(kernels.lasting_keys(memory.keys_BSH), products_BSX, mask_bias(memory))
        if own_BX is not None:
            output_VE, bias_V = self._output
            known_BX = own_BX.clamp_min(0)
            own_bias_BX = bias_V[known_BX].masked_fill(own_BX < 0, -torch.inf)
            attended = attended._replace(own_BXE=output_VE[known_BX], own_bias_BX=own_bias_BX)
        return attended, State(hidden_BLH, context_BG)

    def step(
        self,
        state: State,
        previous_R: Tensor | None,
        attended: Attended,
        rows: Rows | None = None,
    ) -> tuple[Features, State, Tensor]:
        """One piece: what `log_probs` makes its distribution of, the next state, attention
        weights_RS. No gradients.

        previous_R: the piece chosen last (int64); None at the first step. With it the state is
        first updated by the previous piece and the context it was generated from. rows: of
        `attended`; None if there is one for each sentence.
        """
        hidden_RLH, context_RG = state
        spoken_RH: Tensor | float = 0.0
        if previous_R is not None:
            inputs_RG, spoken_RH = self._previous(previous_R)
            hidden_RLH = self._update(hidden_RLH, inputs_RG + context_RG)
        query_RH = _linear(hidden_RLH[..., 0, :], self._query)
        weights_RS, looked_RX = self._look(query_RH, attended, rows)
        context_RG, readout_RH = looked_RX.split(self._widths, -1)
        own = self._readout[..., : self.config.hidden]
        own_RH = _linear(hidden_RLH[..., -1, :], own, self._readout_bias)
        features = Features(self._features(readout_RH + own_RH + spoken_RH))
        if attended.own_BXE is not None:
            features = features._replace(own_RX=self._own_logits(features.made_RE, attended, rows))
        return features, State(hidden_RLH, context_RG), weights_RS

    def _previous(self, previous_R: Tensor) -> tuple[Tensor, Tensor]:
        """What the last piece adds: inputs_RG of the first GRU, and what the readout is given."""
        table_VX = self._table
        if table_VX is not None:
            inputs_RG, spoken_RH = table_VX[previous_R].split(self._widths, -1)
            return inputs_RG, spoken_RH
        return self._said(previous_R)

    def _said(self, previous_R: Tensor) -> tuple[Tensor, Tensor]:
        """`_previous` without the table."""
        model, hidden = self.model, self.config.hidden
        embedded_RE = self._embed(model.target_embedding, model.target_bias, previous_R)
        readout = self._readout[:, hidden : hidden + embedded_RE.shape[-1]]
        return self._inputs(0, embedded_RE), functional.linear(embedded_RE, readout)

    @functools.cached_property
    def _table(self) -> Tensor | None:
        """`_said` of every piece, [V, G + H], if it is not too large."""
        if self.config.target_vocabulary * sum(self._widths) > TABLE:
            return None
        pieces_V = torch.arange(self.config.target_vocabulary, device=self._readout.device)
        with torch.no_grad():
            return torch.cat(self._said(pieces_V), -1)

    def _look(
        self, query_RH: Tensor, attended: Attended, rows: Rows | None
    ) -> tuple[Tensor, Tensor]:
        """Attention: weights_RS, and by them the means of the products_BSX."""
        sentence_R = None if rows is None else rows.sentence_R
        energies_RS = kernels.energies_of_rows(
            attended.keys_BSH, query_RH, self._energy, sentence_R
        )
        return self._looked(energies_RS, attended, rows)

    def _looked(
        self, energies_RS: Tensor, attended: Attended, rows: Rows | None
    ) -> tuple[Tensor, Tensor]:
        bias_RS = attended.bias_BS if rows is None else attended.bias_BS[rows.sentence_R]
        weights_RS = functional.softmax(energies_RS + bias_RS, -1)
        return weights_RS, _products(weights_RS.to(self.dtype), attended.products_BSX, rows)

    def _own_logits(self, made_RE: Tensor, attended: Attended, rows: Rows | None) -> Tensor:
        """logits_RX of the pieces that are each sentence's own."""
        assert attended.own_BXE is not None
        assert attended.own_bias_BX is not None
        bias_BX = attended.own_bias_BX
        own_RX = _products(made_RE, attended.own_BXE.transpose(1, 2), rows)
        return own_RX + (bias_BX if rows is None else bias_BX[rows.sentence_R])

    def log_probs(self, features: Features) -> Tensor:
        """log_probs_RV (float32) of a piece; with pieces of the sentences' own [R, V + X]."""
        made_RE, own_RX = features
        if made_RE.dtype == self.output_bias_V.dtype:
            logits_RV = _linear(made_RE, self.output_VE, self.output_bias_V)
        else:
            logits_RV = _linear(made_RE, self.output_VE) + self.output_bias_V[..., None, :]
        logits_RV = logits_RV[..., : self.columns]
        if own_RX is not None:
            logits_RV = torch.cat([logits_RV, own_RX.to(logits_RV.dtype)], -1)
        return functional.log_softmax(logits_RV, -1)

    def forced(self, memory: Memory, target_BT: Tensor, rows_N: Tensor | None = None) -> Tensor:
        """features_NE of the target tokens, teacher forced, in the order of `target_BT.t()`.

        rows_N: which of the T B cells to give, all if None. `output_VE` times the features and
        `output_bias_V` are the logits that `step` would give with the true pieces before.
        """
        model, layers = self.model, self.config.decoder_layers
        embedded_TBE = self._embed(model.target_embedding, model.target_bias, target_BT.t())
        start_BLH = self.start(memory)
        hiddens_TBH, contexts_TBZ = scan(
            self._inputs(0, embedded_TBE),
            start_BLH[:, 0],
            memory.keys_BSH,
            memory.annotations_BSZ,
            mask_bias(memory),
            self._decoder[0],
            self._query,
            self._context,
            self._energy,
        )
        for number in range(1, layers):
            start_1BH = start_BLH[:, number][None]
            inputs_TBG = self._inputs(number, model.dropout(hiddens_TBH[1:]))
            states_TBH = gru_scan(inputs_TBG, start_1BH[0], self._decoder[number])
            hiddens_TBH = torch.cat([start_1BH, states_TBH])
        shifted_TBE = functional.pad(embedded_TBE[:-1], (0, 0, 0, 0, 1, 0))
        parts = [part.flatten(0, 1) for part in (hiddens_TBH, shifted_TBE, contexts_TBZ)]
        parts_NX = torch.cat([part if rows_N is None else part[rows_N] for part in parts], -1)
        return self._features(functional.linear(parts_NX, self._readout, self._readout_bias))

    def _embed(self, embedding: nn.Embedding, bias_E: Tensor | None, ids: Tensor) -> Tensor:
        """The pieces' embeddings [..., E], with dropout."""
        rows: Tensor = _Lookup.apply(embedding.weight, ids)
        if bias_E is not None:
            rows = rows + bias_E
        rows = rows.to(self.dtype)
        if self._extra:
            rows = functional.pad(rows, (0, self._extra))
        dropped: Tensor = self.model.dropout(rows)
        return dropped

    def _inputs(self, number: int, values: Tensor) -> Tensor:
        """The products [..., G] of a decoder layer's gates with its inputs."""
        inputs = _linear(values, self._decoder_inputs[number], self._decoder_bias[number])
        norm = self._decoder_norms[number]
        return inputs if norm is None else _normalise(norm, inputs)

    def _update(self, hidden_RLH: Tensor, inputs_RG: Tensor) -> Tensor:
        """The GRUs: the states after a piece. inputs_RG: of the first layer."""
        states: list[Tensor] = []
        for number, weights in enumerate(self._decoder):
            hidden_RH = hidden_RLH[..., number, :].contiguous()
            if number:
                inputs_RG = self._inputs(number, states[-1])
            products = torch.matmul(hidden_RH, weights.first.mT)
            gates_RG = torch.empty_like(inputs_RG)
            state_RH, _ = cell_forward(inputs_RG, products, hidden_RH, weights, gates_RG)
            states.append(state_RH)
        return torch.stack(states, -2)

    def _features(self, readout_NH: Tensor) -> Tensor:
        """features_NE before the output matrix: maxout over adjacent pairs, low rank."""
        if self._readout_norm is not None:
            size = self.config.hidden
            normed_NH = _normalise(self._readout_norm, readout_NH[..., :size])
            readout_NH = functional.pad(normed_NH, (0, readout_NH.shape[-1] - size))
        maxout = readout_NH.unflatten(-1, (-1, 2)).amax(-1)
        return _linear(self.model.dropout(maxout), self._low_rank)


def _linear(values: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """values [..., X] times weight [N, X]; of a stack of networks [M, R, X] times [M, N, X]."""
    if weight.dim() == 2:
        return functional.linear(values, weight, bias)
    if bias is None:
        return torch.bmm(values, weight.mT)
    return torch.baddbmm(bias[:, None], values, weight.mT)


def _products(values_RY: Tensor, matrices_BYX: Tensor, rows: Rows | None) -> Tensor:
    """products_RX of each row with its sentence's matrix, sentence by sentence."""
    if rows is None:
        return torch.bmm(values_RY[:, None], matrices_BYX)[:, 0]
    batch, size, _ = matrices_BYX.shape
    values_BKY = values_RY.new_zeros(batch * rows.width, size)
    values_BKY[rows.place_R] = values_RY
    products_BKX = torch.bmm(values_BKY.view(batch, rows.width, size), matrices_BYX)
    return products_BKX.flatten(0, 1)[rows.place_R]


def _layers(modules: nn.ModuleList) -> list[Gru]:
    return [layer for layer in modules if isinstance(layer, Gru)]


class _Lookup(torch.autograd.Function):
    """Rows of the embeddings. (torch's own backward cannot be recorded in a CUDA graph.)"""

    @staticmethod
    def forward(context: Any, weight_VE: Tensor, ids: Tensor) -> Tensor:
        context.save_for_backward(ids)
        context.shape = weight_VE.shape
        return weight_VE[ids]

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (ids,), (gradient,) = context.saved_tensors, gradients
        d_weight_VE = gradient.new_zeros(context.shape)
        d_weight_VE.index_add_(0, ids.flatten(), gradient.flatten(0, -2))
        return d_weight_VE, None


def _normalise(norm: nn.Module, values: Tensor) -> Tensor:
    """Layer normalisation in the precision of the parameters, given back in that of the values."""
    normed: Tensor = norm(values.to(next(norm.parameters()).dtype))
    return normed.to(values.dtype)


def mask_bias(memory: Memory) -> Tensor:
    """bias_BS to add to energies: 0 on tokens, -inf on padding."""
    mask_BS = memory.mask_BS
    exact = kernels.accumulator(memory.keys_BSH)
    bias_BS = torch.zeros(mask_BS.shape, dtype=exact, device=mask_BS.device)
    return bias_BS.masked_fill_(~mask_BS, float("-inf"))
