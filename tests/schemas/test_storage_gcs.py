"""gs:// URLs against an emulator of Google Cloud Storage: the same contract as local files."""

import json
import os
import socket
from collections.abc import Iterator

import fsspec
import oracles
import pytest
from gcp_storage_emulator.server import create_server

from rareword.pipelines import count_words, job
from rareword.schemas import manifest, storage
from rareword.schemas.errors import RarewordError
from rareword.trainer.config import TrainConfig
from rareword.trainer.progress import RECORD, Progress, Update
from rareword.trainer.state import RunState

BUCKET = "gs://bucket"


@pytest.fixture(scope="module", autouse=True)
def emulator() -> Iterator[None]:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    server = create_server("localhost", port, in_memory=True, default_bucket="bucket")
    server.start()
    before = os.environ.get("STORAGE_EMULATOR_HOST")
    os.environ["STORAGE_EMULATOR_HOST"] = f"http://localhost:{port}"
    fsspec.filesystem("gs", skip_instance_cache=True).clear_instance_cache()
    yield
    fsspec.filesystem("gs").clear_instance_cache()
    if before is None:
        del os.environ["STORAGE_EMULATOR_HOST"]
    else:
        os.environ["STORAGE_EMULATOR_HOST"] = before
    server.stop()


def test_files_are_written_listed_found_and_removed() -> None:
    url = storage.join(BUCKET, "run", "a", "b.json")
    storage.write_json(url, {"é": 1})
    assert storage.read_json(url) == {"é": 1}
    assert storage.list_files(f"{BUCKET}/run") == ["a/b.json"]
    assert storage.exists(url)
    assert storage.is_directory(f"{BUCKET}/run")
    assert storage.expand((f"{BUCKET}/run/*/*.json",), "--input") == [url]
    with pytest.raises(RarewordError, match="no file gs://bucket/run/none"):
        storage.open_read(f"{BUCKET}/run/none")
    storage.remove(f"{BUCKET}/run")
    assert storage.list_files(f"{BUCKET}/run") == []


@pytest.mark.parametrize("size", [3, 20 << 20], ids=["one request", "many requests"])
def test_a_failed_writer_publishes_nothing_and_keeps_what_was_there(size: int) -> None:
    url = f"{BUCKET}/kept/file"
    storage.write_bytes(url, b"whole")
    with pytest.raises(KeyError), storage.write_atomic(url) as stream:  # noqa: PT012
        stream.write(b"x" * size)
        raise KeyError
    with storage.open_read(url) as stream:
        assert stream.read() == b"whole"
    with pytest.raises(KeyError), storage.write_atomic(f"{BUCKET}/kept/new") as stream:  # noqa: PT012
        stream.write(b"x" * size)
        raise KeyError
    assert storage.list_files(f"{BUCKET}/kept") == ["file"]


def test_a_job_reads_and_writes_a_bucket() -> None:
    lines = ["a b a", "b", "c"]
    oracles.write_corpus(f"{BUCKET}/job/corpus", lines, lines)
    options = count_words.CountWordsOptions(
        corpus=f"{BUCKET}/job/corpus", output=f"{BUCKET}/job/words", shards=2, quiet=True
    )
    job.execute(count_words.JOB, options)
    words = manifest.read(f"{BUCKET}/job/words", "count-words", "--words")
    assert words.figures["source_tokens"] == 5
    assert job.execute(count_words.JOB, options).content == words.content
    assert not any(storage.TEMPORARY_MARK in name for name in storage.list_files(f"{BUCKET}/job"))


def test_the_record_of_a_training_run_grows_with_its_checkpoints() -> None:
    """An object store cannot append: the file is written anew, and is always whole."""
    url = f"{BUCKET}/model"
    config, seen = TrainConfig(log_every=1), list[list[int]]()
    update = Update(3.0, 3, 2, 0.1, 1, 1.0, False)
    for first, last in ((0, 5), (3, 7)):
        state = RunState(0.1, step=first)
        shown = Progress(config, state, url, say=print, show=print, pairs=None)
        while state.step < last:
            state.step += 1
            shown.add(state, update)
            if state.step % 3 == 0:
                shown.checkpoint(state)
            lines = storage.read_text(f"{url}/{RECORD}").splitlines()
            seen.append([json.loads(line)["step"] for line in lines])
    shown.end(state, "enough")
    assert [len(steps) for steps in seen] == [0, 0, 3, 3, 3, 3, 3, 6, 6]
    assert all(steps == [*range(1, len(steps) + 1)] for steps in seen)
    lines = storage.read_text(f"{url}/{RECORD}").splitlines()
    assert [json.loads(line)["step"] for line in lines] == [*range(1, 8), 7]
