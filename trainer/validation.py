"""Development loss and BLEU, with all processes taking their share of the sentences."""

import torch

from rareword.schemas.vocabulary import Vocabulary
from rareword.trainer.config import TrainConfig
from rareword.trainer.data import Pairs, make_batch
from rareword.trainer.distributed import Group
from rareword.trainer.feed import cut_batches, share
from rareword.trainer.loss import batch_loss
from rareword.trainer.model import EncoderDecoder
from rareword.trainer.precision import Precision

TOKENS = 4096
"""Size of a batch, for the loss."""


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


def development_bleu(
    model: EncoderDecoder, pairs: Pairs, vocabulary: Vocabulary, config: TrainConfig, group: Group
) -> float:
    """BLEU of the first `config.bleu_pairs` pairs on tokens, as the corpus has them.

    Both sides are joined from pieces to words and compared as they are, without detokenising: a
    figure for choosing between checkpoints; `rareword evaluate` gives the one to report.
    """
    import sacrebleu

    from rareword.trainer.search import SearchOptions, beam_search

    chosen = torch.arange(min(config.bleu_pairs, len(pairs))).numpy()
    mine = share(chosen, group.rank, group.world)
    sources = [pairs.source[i] for i in mine]
    found = beam_search(model, sources, SearchOptions(beam=config.bleu_beam), group.device)
    texts = {int(i): vocabulary.words(best[0].ids) for i, best in zip(mine, found, strict=True)}
    gathered = {i: text for part in group.gather(texts) for i, text in part.items()}
    return float(
        sacrebleu.corpus_bleu(
            [gathered[int(i)] for i in chosen],
            [[vocabulary.words(pairs.target[i].tolist()) for i in chosen]],
            tokenize="none",
            force=True,
        ).score
    )
