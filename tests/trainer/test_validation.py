"""Development figures against plain computations."""

from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch

from rareword.schemas.vocabulary import EOS, UNK, Vocabularies, Vocabulary
from rareword.trainer import validation
from rareword.trainer.config import ModelConfig, TrainConfig
from rareword.trainer.data import Pairs, Sentences
from rareword.trainer.distributed import Group
from rareword.trainer.model import EncoderDecoder
from rareword.trainer.precision import FLOAT32
from rareword.trainer.search import SearchOptions, translate

ALONE = Group(torch.device("cpu"))
PIECES = ["<pad>", "<unk>", "</s>", *"abcdef"]


def sentences(generator: np.random.Generator, count: int) -> Sentences:
    lengths = generator.integers(1, 8, count)
    flat = generator.integers(3, len(PIECES), lengths.sum()).astype(np.int32)
    return Sentences(flat, np.cumsum([0, *lengths]))


@pytest.fixture
def model() -> EncoderDecoder:
    """Ends some outputs early, and some not before their limit."""
    torch.manual_seed(1)
    model = EncoderDecoder(ModelConfig(9, 9, 6, 8, 4, dropout=0.2))
    with torch.no_grad():
        model.output.weight.mul_(4)
        model.low_rank.weight.mul_(4)
        model.output.bias[EOS] += 3
        model.output.bias[UNK] += 2
    return model.eval()


@pytest.fixture
def pairs() -> Pairs:
    generator = np.random.default_rng(1)
    return Pairs(np.arange(20), sentences(generator, 20), sentences(generator, 20))


@torch.no_grad()
def test_loss_is_the_mean_over_tokens(
    monkeypatch: pytest.MonkeyPatch, model: EncoderDecoder, pairs: Pairs
) -> None:
    monkeypatch.setattr(validation, "TOKENS", 30)  # several batches
    total, tokens, network = 0.0, 0, model.network()
    for i in range(len(pairs)):
        source_BS = torch.tensor([[*pairs.source[i], EOS]])
        attended, state = network.read(source_BS, torch.ones_like(source_BS, dtype=torch.bool))
        previous = None
        for piece in [*pairs.target[i].tolist(), EOS]:
            features, state, _ = network.step(state, previous, attended)
            log_probs_BV = network.log_probs(features)
            total -= log_probs_BV[0, piece].item()
            tokens += 1
            previous = torch.tensor([piece])
    found = validation.development_loss(model, pairs, FLOAT32, ALONE)
    assert found == pytest.approx(total / tokens, rel=1e-5)


def searched(model: EncoderDecoder, pairs: Pairs, count: int, beam: int, **rules: Any) -> list[str]:
    """By the defaults of `decode`, which a comparison with its BLEU needs, and these rules."""
    found = translate(
        model.network(),
        [pairs.source[i] for i in range(count)],
        SearchOptions(beam=beam, **rules),
        ALONE.device,
    )
    return [" ".join(PIECES[i] for i in best[0].ids) for best in found]


def text(ids: np.ndarray) -> str:
    return " ".join(PIECES[i] for i in ids)


VOCABULARY = Vocabulary(PIECES, [True] * 9, [0] * 9, [0] * 9)


@pytest.mark.parametrize("samples", [0, 2, 18])
def test_bleu_and_samples_are_of_the_searched_words(
    model: EncoderDecoder, pairs: Pairs, samples: int
) -> None:
    """Samples may be more than the pairs for BLEU; the search is the same."""
    config = TrainConfig(bleu_pairs=15, bleu_beam=2, samples=samples)
    texts = searched(model, pairs, 18, beam=2)
    for rules in ({"length_penalty": 0.0}, {"forbid_unk": True}, {"max_length_ratio": 2.0}):
        assert texts[:15] != searched(model, pairs, 15, beam=2, **rules), "it would not be noticed"
    references = [text(pairs.target[n]) for n in range(18)]
    expected = sacrebleu.corpus_bleu(texts[:15], [references[:15]], tokenize="none", force=True)
    both = Vocabularies(VOCABULARY, VOCABULARY)
    found = validation.validate(model, pairs, both, config, FLOAT32, ALONE)
    assert found.bleu == pytest.approx(expected.score)
    sources = [text(pairs.source[n]) for n in range(18)]
    assert found.samples == tuple(zip(sources, references, texts, strict=True))[:samples]


def test_samples_are_shown_without_bleu(model: EncoderDecoder, pairs: Pairs) -> None:
    both = Vocabularies(VOCABULARY, VOCABULARY)
    found = validation.validate(
        model, pairs, both, TrainConfig(bleu_pairs=0, samples=50), FLOAT32, ALONE
    )
    assert found.bleu is None
    assert [sample.translation for sample in found.samples] == searched(model, pairs, 20, beam=1)


def test_samples_are_words_of_their_own_side(model: EncoderDecoder) -> None:
    """Not pieces: here a word ends where the vocabulary says so."""
    one = Sentences(np.array([3, 4, 5], np.int32), np.array([0, 3]))
    ends = [*([True] * 3), False, False, *([True] * 4)]
    source = Vocabulary([*PIECES[:3], *"uvwxyz"], ends, [0] * 9, [0] * 9)
    target = Vocabulary(PIECES, ends, [0] * 9, [0] * 9)
    found = validation.validate(
        model,
        Pairs(np.arange(1), one, one),
        Vocabularies(source, target),
        TrainConfig(),
        FLOAT32,
        ALONE,
    )
    (sample,) = found.samples
    assert (sample.source, sample.reference) == ("uvw", "abc")


def test_validation_leaves_the_mode_as_it_was(model: EncoderDecoder, pairs: Pairs) -> None:
    both = Vocabularies(VOCABULARY, VOCABULARY)
    model.train()
    first = validation.validate(model, pairs, both, TrainConfig(), FLOAT32, ALONE)
    assert model.training
    model.eval()
    assert validation.validate(model, pairs, both, TrainConfig(), FLOAT32, ALONE) == first
    assert not model.training
