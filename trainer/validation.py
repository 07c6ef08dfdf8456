"""Development loss, BLEU and sample translations, with all processes taking their share of the
sentences."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from rareword.schemas.vocabulary import Vocabularies, Vocabulary
from rareword.trainer.config import TrainConfig
from rareword.trainer.data import Pairs, make_batch
from rareword.trainer.distributed import Group
from rareword.trainer.feed import cut_batches, share
from rareword.trainer.loss import batch_loss
from rareword.trainer.model import EncoderDecoder
from rareword.trainer.precision import Precision
from rareword.trainer.search_options import SearchOptions

TOKENS = 4096
"""Size of a batch, for the loss."""


class Sample(NamedTuple):
    """A sentence of the development data, in words."""

    source: str
    reference: str
    translation: str


class Found(NamedTuple):
    """What a validation finds, the same in all processes."""

    loss: float
    """Nats a target token."""
    bleu: float | None
    """On tokens; None if no pair is translated for it."""
    samples: tuple[Sample, ...]


def validate(
    model: EncoderDecoder,
    pairs: Pairs,
    vocabularies: Vocabularies,
    config: TrainConfig,
    precision: Precision,
    group: Group,
) -> Found:
    """Loss on all pairs, BLEU of the first `bleu_pairs` and the first `samples` as text."""
    was_training = model.training
    model.eval()
    loss = development_loss(model, pairs, precision, group)
    scored, shown = (min(wanted, len(pairs)) for wanted in (config.bleu_pairs, config.samples))
    texts = translations(model, pairs, max(scored, shown), vocabularies.target, config, group)
    model.train(was_training)
    references = [vocabularies.target.words(pairs.target[i].tolist()) for i in range(len(texts))]
    samples = (
        Sample(vocabularies.source.words(pairs.source[i].tolist()), references[i], texts[i])
        for i in range(shown)
    )
    bleu = bleu_on_tokens(texts[:scored], references[:scored]) if scored else None
    return Found(loss, bleu, tuple(samples))


def development_loss(
    model: EncoderDecoder, pairs: Pairs, precision: Precision, group: Group
) -> float:
    """The loss in nats a target token (ends of sentences count), without label smoothing.

    `model` is in evaluation mode.
    """
    longest = pairs.longest
    batches = cut_batches(longest.argsort(kind="stable"), longest, TOKENS, "tokens")
    losses = {}
    with torch.no_grad():
        for number in range(group.rank, len(batches), group.world):
            batch = make_batch(pairs, batches[number]).to(group.device)
            losses[number] = batch_loss(model, batch, precision)[1].item()
    gathered = {number: loss for part in group.gather(losses) for number, loss in part.items()}
    # Added up in one order, so that the sum does not depend on the number of processes.
    total = sum(gathered[number] for number in range(len(batches)))
    return float(total / pairs.target.lengths.sum())


def translations(
    model: EncoderDecoder,
    pairs: Pairs,
    count: int,
    vocabulary: Vocabulary,
    config: TrainConfig,
    group: Group,
) -> list[str]:
    """The first `count` sources in words of the target, in all processes.

    `model` is in evaluation mode; each process searches for its share.
    """
    from rareword.trainer.search import translate

    mine = share(np.arange(count), group.rank, group.world)
    sources = [pairs.source[i] for i in mine]
    with torch.inference_mode():
        network = model.network()
    found = translate(network, sources, SearchOptions(beam=config.bleu_beam), group.device)
    texts = {int(i): vocabulary.words(best[0].ids) for i, best in zip(mine, found, strict=True)}
    gathered = {i: text for part in group.gather(texts) for i, text in part.items()}
    return [gathered[i] for i in range(count)]


def bleu_on_tokens(texts: Sequence[str], references: Sequence[str]) -> float:
    """BLEU of texts as the corpus has them.

    Both sides are joined from pieces to words and compared as they are, without detokenising: a
    figure for choosing between checkpoints; `rareword evaluate` gives the one to report.
    """
    import sacrebleu

    return float(sacrebleu.corpus_bleu(texts, [references], tokenize="none", force=True).score)
