"""Development figures against plain computations."""

import numpy as np
import pytest
import sacrebleu
import torch

from rareword.schemas.vocabulary import EOS, Vocabulary
from rareword.trainer import validation
from rareword.trainer.config import ModelConfig, TrainConfig
from rareword.trainer.data import Pairs, Sentences
from rareword.trainer.distributed import Group
from rareword.trainer.model import EncoderDecoder
from rareword.trainer.precision import FLOAT32
from rareword.trainer.search import SearchOptions, beam_search

ALONE = Group(torch.device("cpu"))
PIECES = ["<pad>", "<unk>", "</s>", *"abcdef"]


def sentences(generator: np.random.Generator, count: int) -> Sentences:
    lengths = generator.integers(1, 8, count)
    flat = generator.integers(3, len(PIECES), lengths.sum()).astype(np.int32)
    return Sentences(flat, np.cumsum([0, *lengths]))


@pytest.fixture
def model() -> EncoderDecoder:
    torch.manual_seed(1)
    return EncoderDecoder(ModelConfig(9, 9, 6, 8, 4, "none")).eval()


@pytest.fixture
def pairs() -> Pairs:
    generator = np.random.default_rng(1)
    return Pairs(np.arange(20), sentences(generator, 20), sentences(generator, 20))


@torch.no_grad()
def test_loss_is_the_mean_over_tokens(
    monkeypatch: pytest.MonkeyPatch, model: EncoderDecoder, pairs: Pairs
) -> None:
    monkeypatch.setattr(validation, "TOKENS", 30)  # several batches
    total, tokens = 0.0, 0
    for i in range(len(pairs)):
        source_BS = torch.tensor([[*pairs.source[i], EOS]])
        network = model.network()
        memory = network.encode(source_BS, torch.ones_like(source_BS, dtype=torch.bool))
        state, previous = network.start(memory), None
        for piece in [*pairs.target[i].tolist(), EOS]:
            log_probs_BV, state, _ = network.step(state, previous, memory)
            total -= log_probs_BV[0, piece].item()
            tokens += 1
            previous = torch.tensor([piece])
    found = validation.development_loss(model, pairs, FLOAT32, ALONE)
    assert found == pytest.approx(total / tokens, rel=1e-5)


def test_bleu_is_that_of_the_searched_words(model: EncoderDecoder, pairs: Pairs) -> None:
    vocabulary = Vocabulary(PIECES, [True] * 9, [0] * 9, [0] * 9)
    config = TrainConfig(bleu_pairs=15, bleu_beam=2)
    found = beam_search(
        model, [pairs.source[i] for i in range(15)], SearchOptions(beam=2), ALONE.device
    )
    texts = [" ".join(PIECES[i] for i in best[0].ids) for best in found]
    references = [" ".join(PIECES[i] for i in pairs.target[n]) for n in range(15)]
    expected = sacrebleu.corpus_bleu(texts, [references], tokenize="none", force=True).score
    assert validation.development_bleu(model, pairs, vocabulary, config, ALONE) == pytest.approx(
        expected
    )
