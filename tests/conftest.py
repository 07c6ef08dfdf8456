"""Fixtures for all tests."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# Triton reads this when it is first imported, whoever does that. With a GPU its kernels are
# compiled and run there; elsewhere in its interpreter.
if not Path("/dev/nvidiactl").exists():
    os.environ["TRITON_INTERPRET"] = "1"

# A busy machine is slow, not wrong.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def shared_data() -> Path:
    """Real corpora beside the repository; tests that use them are skipped elsewhere."""
    path = ROOT.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip("the development corpora are not on this machine")
    return path


@pytest.fixture(scope="session")
def write_segmented() -> Callable[..., Path]:
    """Writes a `segmented` directory: `write_segmented(directory, pairs, letters)`.

    pairs: (source ids, target ids); their own ids are 1000, 1001, ... The joint vocabulary has
    `letters` pieces of one letter each, all final, beside the special ones: ids 3, 4, ... are
    a, b, ... group: pairs in a row group, if there is to be more than one in a shard.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from rareword.schemas import manifest, storage, tables, vocabulary

    def write(
        directory: Path | str,
        pairs: list[tuple[list[int], list[int]]],
        letters: int,
        shards: int = 2,
        group: int | None = None,
    ) -> Path | str:
        pieces = [symbol.text for symbol in vocabulary.SPECIALS] + [
            chr(ord("a") + i) for i in range(letters)
        ]
        counts = [0] * len(pieces)
        one = vocabulary.Vocabulary(pieces, [True] * len(pieces), counts, counts)
        both = vocabulary.Vocabularies(one, one)
        records = []
        for number in range(shards):
            part = range(len(pairs) * number // shards, len(pairs) * (number + 1) // shards)
            table = pa.table(
                {
                    "id": pa.array([1000 + i for i in part], pa.int64()),
                    "source": pa.array([pairs[i][0] for i in part], pa.list_(pa.int32())),
                    "target": pa.array([pairs[i][1] for i in part], pa.list_(pa.int32())),
                }
            )
            name = tables.shard_name(number, shards)
            if group is None:
                record = tables.write_shard(str(directory), name, tables.SEGMENTED, [table])
            else:
                with storage.write_atomic(storage.join(str(directory), name)) as stream:
                    table = table.cast(tables.SEGMENTED.stored)
                    pq.write_table(table, stream, row_group_size=group, write_page_checksum=True)
                record = tables.file_record(str(directory), name, len(part))
            records.append(record)
        text = {"tokenise": "none", "truecase": "none"}
        manifest.finish(
            manifest.Plan("segment", {}, {}),
            str(directory),
            tables.SEGMENTED,
            records,
            files=vocabulary.write_both(both, str(directory)),
            rules={"text": text, "segmenter": {"kind": "letters"}, "vocabulary": both.hash},
        )
        return directory

    return write
