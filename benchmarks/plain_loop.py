"""The paper's encoder-decoder as one writes it down in PyTorch: loops over time and autograd.

What rareword's training step is timed beside. The same equations (reset gate before the product,
order look, generate, update, maxout, output through a low rank) and the usual care: keys and what
comes from the inputs are one product outside the loop, and so is all that follows it. No scan of
its own, no kernels, no graph.

Letters: B batch, S source, T target, E embedding, H hidden, Z annotation, V vocabulary.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Gru(nn.Module):
    """h' = z * tanh(x + U (r * h)) + (1 - z) * h, from the inputs' products for r, z and n."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.inputs = nn.Linear(inputs, 3 * hidden)
        self.gates = nn.Linear(hidden, 2 * hidden, bias=False)
        self.candidate = nn.Linear(hidden, hidden, bias=False)

    def forward(self, products_BG: Tensor, hidden_BH: Tensor) -> Tensor:
        rz, x = products_BG.split((2 * hidden_BH.shape[1], hidden_BH.shape[1]), 1)
        r, z = torch.sigmoid(rz + self.gates(hidden_BH)).chunk(2, 1)
        return torch.lerp(hidden_BH, torch.tanh(x + self.candidate(r * hidden_BH)), z)


class PlainLoop(nn.Module):
    """Sentences are all of one length: there is no padding to mask."""

    def __init__(self, vocabulary: int, embedding: int, hidden: int, encoder_hidden: int) -> None:
        super().__init__()
        E, H, Z = embedding, hidden, 2 * encoder_hidden
        self.source, self.target = nn.Embedding(vocabulary, E), nn.Embedding(vocabulary, E)
        self.reading = nn.ModuleList([Gru(E, encoder_hidden) for _ in range(2)])
        self.initial = nn.Linear(encoder_hidden, H)
        self.key = nn.Linear(Z, H, bias=False)
        self.query = nn.Linear(H, H, bias=False)
        self.energy = nn.Linear(H, 1, bias=False)
        self.decoder = Gru(E, H)
        self.context = nn.Linear(Z, 3 * H, bias=False)
        self.readout = nn.Linear(H + E + Z, H)
        self.low_rank = nn.Linear(H // 2, E, bias=False)
        self.output = nn.Linear(E, vocabulary)

    def encode(self, source_BS: Tensor) -> Tensor:
        embedded_BSE, sides = self.source(source_BS), []
        for gru, backward in zip(self.reading, (False, True), strict=True):
            products_BSG = gru.inputs(embedded_BSE)
            hidden_BH = products_BSG.new_zeros(len(source_BS), products_BSG.shape[2] // 3)
            steps = list(products_BSG.unbind(1))
            states = []
            for products_BG in reversed(steps) if backward else steps:
                hidden_BH = gru(products_BG, hidden_BH)
                states.append(hidden_BH)
            sides.append(torch.stack(states[::-1] if backward else states, 1))
        return torch.cat(sides, 2)

    def forward(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        """The mean loss in nats a target token."""
        annotations_BSZ = self.encode(source_BS)
        keys_BSH = self.key(annotations_BSZ)
        hidden_BH = torch.tanh(self.initial(annotations_BSZ[:, 0].chunk(2, 1)[1]))
        embedded_BTE = self.target(target_BT)
        states, contexts = [], []
        for products_BG in self.decoder.inputs(embedded_BTE).unbind(1):
            tanh_BSH = torch.tanh(keys_BSH + self.query(hidden_BH)[:, None])
            weights_BS = torch.softmax(self.energy(tanh_BSH)[..., 0].float(), 1)
            context_BZ = torch.bmm(weights_BS[:, None].to(keys_BSH.dtype), annotations_BSZ)[:, 0]
            states.append(hidden_BH)
            contexts.append(context_BZ)
            hidden_BH = self.decoder(products_BG + self.context(context_BZ), hidden_BH)
        shifted_BTE = functional.pad(embedded_BTE[:, :-1], (0, 0, 1, 0))
        parts = [torch.stack(states, 1), shifted_BTE, torch.stack(contexts, 1)]
        readout_BTH = self.readout(torch.cat(parts, 2))
        logits_BTV = self.output(self.low_rank(readout_BTH.unflatten(2, (-1, 2)).amax(3)))
        return functional.cross_entropy(logits_BTV.flatten(0, 1).float(), target_BT.flatten())
