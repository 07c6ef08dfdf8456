"""Files by URL: atomic writing, listing, decompression, and the sentences of their errors."""

import gzip
import hashlib
import lzma
import resource
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from rareword.schemas import storage
from rareword.schemas.errors import RarewordError


@pytest.fixture(params=["local", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty directory on each kind of file system that needs no network."""
    if request.param == "local":
        yield str(tmp_path / "data")
    else:
        url = f"memory://{uuid.uuid4().hex}"
        yield url
        storage.remove(url)


def read(url: str) -> bytes:
    with storage.open_read(url) as stream:
        return stream.read()


def test_appending_adds_to_the_end(root: str) -> None:
    url = storage.join(root, "deep", "lines")
    assert storage.can_append(url)
    for data in (b"one\n", b"", b"two\n"):
        storage.append(url, data)
    assert read(url) == b"one\ntwo\n"


def test_what_is_written_is_read(root: str) -> None:
    storage.write_bytes(storage.join(root, "deep", "er.bin"), b"\x00abc")
    assert read(storage.join(root, "deep", "er.bin")) == b"\x00abc"
    assert storage.size(storage.join(root, "deep", "er.bin")) == 4
    assert storage.exists(root)
    assert storage.is_directory(root)
    assert not storage.is_directory(storage.join(root, "deep", "er.bin"))


def write_half(url: str, interruption: type[BaseException]) -> None:
    with storage.write_atomic(url) as stream:
        stream.write(b"half")
        raise interruption


@pytest.mark.parametrize("interruption", [ZeroDivisionError, KeyboardInterrupt])
def test_an_exception_leaves_no_file(root: str, interruption: type[BaseException]) -> None:
    with pytest.raises(interruption):
        write_half(storage.join(root, "a.bin"), interruption)
    assert storage.list_files(root) == []


def test_an_exception_leaves_the_old_content(root: str) -> None:
    url = storage.join(root, "a.bin")
    storage.write_bytes(url, b"old")
    with pytest.raises(ZeroDivisionError):
        write_half(url, ZeroDivisionError)
    assert storage.list_files(root) == ["a.bin"]
    assert read(url) == b"old"


def test_a_file_appears_only_when_it_is_complete(root: str) -> None:
    url = storage.join(root, "a.bin")
    with storage.write_atomic(url) as stream:
        stream.write(b"abc")
        assert not storage.exists(url)
    assert read(url) == b"abc"


def test_a_full_disk_is_a_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(RarewordError, match=r"cannot write .*a\.bin: .*File too large"):
            storage.write_bytes(str(tmp_path / "a.bin"), bytes(1 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_a_path_below_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    with pytest.raises(RarewordError, match=r"cannot write .*file/run/a\.json"):
        storage.write_json(str(tmp_path / "file" / "run" / "a.json"), {})


def test_listing_is_relative_sorted_and_deep(root: str) -> None:
    for name in ("b.bin", "a/z.bin", "a/b/c.bin"):
        storage.write_bytes(storage.join(root, *name.split("/")), b"x")
    assert storage.list_files(root) == ["a/b/c.bin", "a/z.bin", "b.bin"]
    assert storage.list_files(storage.join(root, "nothing")) == []


def test_removing_takes_files_and_directories_and_minds_no_absence(root: str) -> None:
    storage.write_bytes(storage.join(root, "a", "b.bin"), b"x")
    storage.write_bytes(storage.join(root, "c.bin"), b"x")
    storage.remove(storage.join(root, "a"))
    assert storage.list_files(root) == ["c.bin"]
    storage.remove(storage.join(root, "c.bin"))
    storage.remove(storage.join(root, "c.bin"))
    assert storage.list_files(root) == []


def test_patterns_expand_in_their_order_each_sorted(root: str) -> None:
    for name in ("b.txt", "a.txt", "c.tsv"):
        storage.write_bytes(storage.join(root, name), b"x")
    found = storage.expand(
        (storage.join(root, "c.tsv"), storage.join(root, "*.txt")), "--source-files"
    )
    assert [url.rsplit("/", 1)[1] for url in found] == ["c.tsv", "a.txt", "b.txt"]
    assert all(read(url) == b"x" for url in found)


def test_a_file_with_a_bracket_in_its_name_is_no_pattern(tmp_path: Path) -> None:
    path = tmp_path / "a[1].txt"
    path.write_text("x")
    assert storage.expand((str(path),), "--source-files") == [str(path)]


@pytest.mark.parametrize("pattern", ["missing.txt", "*.txt"])
def test_a_pattern_without_a_file_names_the_option(root: str, pattern: str) -> None:
    with pytest.raises(RarewordError, match=r"^--source-files: no file .*\.txt$"):
        storage.expand((storage.join(root, pattern),), "--source-files")


def test_an_unknown_protocol_says_what_to_install() -> None:
    with pytest.raises(RarewordError, match=r"cannot open gopher://x: .*install"):
        storage.exists("gopher://x")


def test_a_missing_file_is_a_sentence(root: str) -> None:
    with pytest.raises(RarewordError, match=r"^no file "):
        storage.open_read(storage.join(root, "nothing"))


def read_text(url: str) -> bytes:
    with storage.open_text_stream(url) as stream:
        return stream.read()


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("suffix", COMPRESSORS)
@given(parts=st.lists(st.binary(max_size=100), min_size=1, max_size=3))
def test_text_is_decompressed_by_its_suffix(suffix: str, parts: list[bytes]) -> None:
    url = f"memory://suffix/text{suffix}"
    # Several members one after the other, as `cat a.gz b.gz` makes them, are one text.
    storage.write_bytes(url, b"".join(map(COMPRESSORS[suffix], parts)))
    assert read_text(url) == b"".join(parts)


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("damage", ["torn", "foreign"])
def test_a_damaged_compressed_file_is_a_sentence(tmp_path: Path, suffix: str, damage: str) -> None:
    path = tmp_path / f"text{suffix}"
    data = COMPRESSORS[suffix](bytes(range(256)) * 4096)
    path.write_bytes(data[: len(data) // 2] if damage == "torn" else b"plain text\n" * 10)
    with pytest.raises(RarewordError, match=rf"text\{suffix} is damaged or not what its suffix"):
        read_text(str(path))


def test_json_has_one_form_and_a_torn_one_is_a_sentence(root: str) -> None:
    url = storage.join(root, "a.json")
    storage.write_json(url, {"b": ["ж"], "a": 1})
    assert read(url).decode() == '{\n  "a": 1,\n  "b": [\n    "ж"\n  ]\n}\n'
    assert storage.read_json(url) == {"a": 1, "b": ["ж"]}
    storage.write_bytes(url, read(url)[:-5])
    with pytest.raises(RarewordError, match=r"a\.json is not valid JSON"):
        storage.read_json(url)


def test_sha256_is_that_of_the_bytes(root: str) -> None:
    data = bytes(range(256)) * 8192  # more than one block
    storage.write_bytes(storage.join(root, "a"), data)
    assert storage.sha256(storage.join(root, "a")) == hashlib.sha256(data).hexdigest()
