"""Recording of steps: the bookkeeping with a double of the recorder, the real one on a GPU."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rareword.schemas.vocabulary import EOS, PAD
from rareword.trainer import graphs
from rareword.trainer.config import ModelConfig, TrainConfig
from rareword.trainer.data import Batch
from rareword.trainer.distributed import Group
from rareword.trainer.graphs import Recorded, RecordedBatches
from rareword.trainer.loss import batch_loss
from rareword.trainer.model import EncoderDecoder
from rareword.trainer.optimiser import Optimiser
from rareword.trainer.precision import FLOAT32

CPU = torch.device("cpu")


class Again:
    """In the place of a CUDA graph: replaying does the work once more."""

    def __init__(self, function: Callable[[], None]) -> None:
        self.replay = function


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> list[Again]:
    made: list[Again] = []

    def record(function: Callable[[], None]) -> Again:
        made.append(Again(function))
        return made[-1]

    monkeypatch.setattr(graphs, "record", record)
    return made


def drawn(rows: int, source: int, target: int) -> Batch:
    source_BS = torch.randint(3, 9, (rows, source))
    source_BS[:, -1] = EOS
    target_BT = torch.randint(3, 9, (rows, target))
    target_BT[:, -1] = EOS
    return Batch(source_BS, source_BS != PAD, target_BT)


def test_the_first_call_runs_the_second_records_the_others_replay(recordings: list[Again]) -> None:
    calls = []
    recorded = Recorded(lambda: calls.append(None))
    for number in range(1, 5):
        recorded()
        assert (len(calls), len(recordings)) == (number, min(1, number - 1))


def test_batches_are_padded_to_few_shapes_without_changing_the_loss(
    recordings: list[Again],
) -> None:
    """A graph is recorded for a shape that comes again; a smaller batch leaves nothing behind."""
    torch.manual_seed(1)
    model = EncoderDecoder(ModelConfig(9, 9, 6, 8, 5)).double()
    losses, shapes = torch.zeros(2, dtype=torch.float64), []

    def work(batch: Batch) -> None:
        shapes.append((*batch.source_BS.shape, batch.target_BT.shape[1]))
        losses.copy_(torch.stack(batch_loss(model, batch, FLOAT32, 0.1)).detach())

    recorded = RecordedBatches(work, CPU)
    for sizes in [(8, 7, 9), (8, 8, 16), (3, 2, 10), (8, 9, 9), (8, 8, 16)]:
        batch = drawn(*sizes)
        recorded(batch)
        expected = torch.stack(batch_loss(model, batch, FLOAT32, 0.1)).detach()
        torch.testing.assert_close(losses, expected, rtol=1e-12, atol=0)
    assert set(shapes) == {(8, 8, 16), (8, 16, 16)}
    assert len(recordings) == 1


def test_the_shape_not_used_for_longest_is_given_up(
    recordings: list[Again], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "LIMIT", 2)
    recorded = RecordedBatches(lambda batch: None, CPU)
    small, middle, large = drawn(1, 8, 8), drawn(1, 16, 8), drawn(1, 24, 8)
    for batch in (small, small, middle, middle, small, large, large):
        recorded(batch)
    assert len(recordings) == 3
    recorded(small)
    assert len(recordings) == 3
    for batch in (middle, middle):
        recorded(batch)
    assert len(recordings) == 4


def test_without_a_gpu_asking_for_graphs_is_answered() -> None:
    assert graphs.wanted("auto", CPU) == (False, None)
    assert graphs.wanted("off", CPU) == (False, None)
    wanted, sentence = graphs.wanted("on", CPU)
    assert not wanted
    assert "there is no GPU" in str(sentence)
    assert graphs.wanted("auto", torch.device("cuda")) == (True, None)
    assert graphs.wanted("off", torch.device("cuda")) == (False, None)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="records on a GPU only")
@pytest.mark.parametrize("optimiser", ["adam", "adadelta"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_recorded_steps_train_as_eager_ones(optimiser: str, dropout: float) -> None:
    device = torch.device("cuda")
    batches = [drawn(8, 8, 8), drawn(5, 7, 6), drawn(8, 16, 8)]
    curves: list[list[Tensor]] = []
    for record in (False, True):
        torch.manual_seed(1)
        model = EncoderDecoder(ModelConfig(9, 9, 16, 32, 16, dropout=dropout)).to(device)
        step = Optimiser(model, TrainConfig(optimiser=optimiser), record=record)

        def work(batch: Batch, model: EncoderDecoder = model, step: Optimiser = step) -> None:
            smoothed, plain = batch_loss(model, batch, FLOAT32)
            smoothed.backward()
            step.figures.add_(torch.stack([smoothed.detach(), plain]))

        recorded = RecordedBatches(work, device)
        losses = []
        for number in range(12):
            torch.manual_seed(number)
            step.zero()
            batch = batches[number % len(batches)]
            if record:
                recorded(batch)
            else:
                work(Batch(*(tensor.to(device) for tensor in batch)))
            _, figures = step.step(1e-3, Group(device))
            losses.append(torch.tensor(figures))
        curves.append(losses)
    if not dropout:  # padding to other shapes draws other masks
        torch.testing.assert_close(curves[0], curves[1], rtol=1e-5, atol=1e-5)
    assert curves[1][-1][1] < curves[1][0][1]
