"""Fixtures for the trainer's tests."""

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Tiny models gain nothing from more, and threads that wait for each other lose much."""
    torch.set_num_threads(1)
