"""Files by URL: local paths, `gs://`, `s3://` and `memory://`, all through fsspec.

A finished file is never half written: `write_atomic` gives a temporary name and renames it when
the block ends without an exception. Object stores publish a file only when it is closed, so there
the final name is written directly.
"""

import contextlib
import hashlib
import io
import json
import lzma
import os
import posixpath
import uuid
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from rareword.schemas.errors import RarewordError

TEMPORARY_MARK = ".tmp-"
"""Part of the name of every file that is still being written."""

_RENAMING_PROTOCOLS = ("file", "memory")


def filesystem(url: str) -> tuple[Any, str]:
    """The fsspec file system of a URL and the path inside it."""
    import fsspec  # its plug-ins load slowly; `--help` must not pay for them

    try:
        return cast("tuple[Any, str]", fsspec.core.url_to_fs(url))
    except (ImportError, ValueError) as error:
        raise RarewordError(
            f"cannot open {url}: {error}. For gs:// install rareword[gcp], for s3:// install s3fs."
        ) from error


def local_file(url: str) -> str | None:
    """The path of a file on this machine; None if it is elsewhere or not there."""
    fs, path = filesystem(url)
    return path if "file" in fs.protocol and os.path.isfile(path) else None


def join(url: str, *parts: str) -> str:
    """`join("gs://bucket/run", "words", "manifest.json")`."""
    return posixpath.join(url, *parts)


def exists(url: str) -> bool:
    """True if the URL names a file or a directory."""
    fs, path = filesystem(url)
    return bool(fs.exists(path))


def is_directory(url: str) -> bool:
    """True if the URL names a directory (on object stores: if any file lies below it)."""
    fs, path = filesystem(url)
    return bool(fs.isdir(path))


def size(url: str) -> int:
    """Bytes of a file."""
    fs, path = filesystem(url)
    return int(fs.size(path))


def list_files(url: str) -> list[str]:
    """The names, relative to `url`, of all files below it, sorted; none if it does not exist."""
    fs, path = filesystem(url)
    fs.invalidate_cache()
    root = path.rstrip("/") + "/"
    return sorted(name[len(root) :] for name in fs.find(path) if name.startswith(root))


def expand(patterns: tuple[str, ...], option: str) -> list[str]:
    """All files that the patterns name, each pattern's matches sorted.

    Raises RarewordError naming `option` when a pattern matches nothing.
    """
    urls = []
    for pattern in patterns:
        fs, path = filesystem(pattern)
        # A file may well be called `a[1].txt`; only what is no file is a pattern.
        matches = [path] if fs.isfile(path) else sorted(filter(fs.isfile, fs.glob(path)))
        if not matches:
            raise RarewordError(f"{option}: no file {pattern}")
        urls += [_with_protocol(fs, match) for match in matches]
    return urls


def open_read(url: str) -> BinaryIO:
    """Opens a file for reading bytes. A missing or unreadable file is a RarewordError."""
    fs, path = filesystem(url)
    try:
        return cast("BinaryIO", fs.open(path, "rb"))
    except FileNotFoundError as error:
        raise RarewordError(f"no file {url}") from error
    except OSError as error:
        raise RarewordError(f"cannot read {url}: {error}") from error


@contextlib.contextmanager
def open_text_stream(url: str) -> Iterator[BinaryIO]:
    """Opens a file for reading bytes, decompressed by its suffix (.gz, .zst, .xz, else plain).

    A torn or foreign compressed file raises RarewordError while it is read.
    """
    import gzip
    import zlib

    import pyarrow as pa  # its Zstandard reader takes no torn file for a whole one, as others do

    with open_read(url) as raw, contextlib.ExitStack() as stack:
        stream: Any = raw
        if url.endswith(".gz"):
            stream = stack.enter_context(gzip.GzipFile(fileobj=raw))
        elif url.endswith(".xz"):
            stream = stack.enter_context(lzma.LZMAFile(raw))
        elif url.endswith(".zst"):
            stream = stack.enter_context(io.BufferedReader(pa.CompressedInputStream(raw, "zstd")))
        try:
            yield stream
        except (EOFError, lzma.LZMAError, OSError, zlib.error) as error:
            raise RarewordError(f"{url} is damaged or not what its suffix says: {error}") from error


@contextlib.contextmanager
def write_atomic(url: str) -> Iterator[BinaryIO]:
    """Opens `url` for writing bytes; the file appears, complete, when the block ends.

    Two writers of the same deterministic content (a retried bundle) may run side by side.
    """
    fs, path = filesystem(url)
    renames = _renames(fs)
    target = f"{path}{TEMPORARY_MARK}{uuid.uuid4().hex[:12]}" if renames else path
    try:
        fs.makedirs(posixpath.dirname(path), exist_ok=True)
        stream = fs.open(target, "wb")
        try:
            yield stream
            stream.flush()
            if "file" in fs.protocol:
                os.fsync(stream.fileno())
        except BaseException:
            _abandon(stream, renames)
            raise
        stream.close()
        if renames:
            fs.mv(target, path) if "memory" in fs.protocol else os.replace(target, path)
    except BaseException as error:
        if renames:
            _remove_quietly(fs, target)
        if isinstance(error, OSError):
            raise RarewordError(f"cannot write {url}: {error}") from error
        raise


def _renames(fs: Any) -> bool:
    """True on file systems where a file can be renamed and appended to."""
    protocols = (fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol
    return any(protocol in _RENAMING_PROTOCOLS for protocol in protocols)


def _abandon(stream: Any, renames: bool) -> None:
    """Ends a stream whose content is not wanted.

    An object store would publish it on closing, so there the stream is only taken for closed; what
    was sent of an upload that never ends is dropped by the store after some days.
    """
    if renames:
        stream.close()
    else:
        stream.closed = True


def read_text(url: str) -> str:
    """A whole file as text; a RarewordError naming file and byte if it is not UTF-8."""
    with open_read(url) as stream:
        return decode(stream.read(), url)


def decode(data: bytes, url: str) -> str:
    """The text of a file's bytes, as `read_text` gives it."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise RarewordError(f"{url}: byte {error.start} is not UTF-8") from error


def write_bytes(url: str, data: bytes) -> None:
    """Writes a whole file atomically."""
    with write_atomic(url) as stream:
        stream.write(data)


def can_append(url: str) -> bool:
    """False on object stores, whose files are written whole or not at all."""
    return _renames(filesystem(url)[0])


def append(url: str, data: bytes) -> None:
    """Adds to the end of a file, which is made if it is not there. Needs `can_append`."""
    fs, path = filesystem(url)
    try:
        fs.makedirs(posixpath.dirname(path), exist_ok=True)
        with fs.open(path, "ab") as stream:
            stream.write(data)
    except OSError as error:
        raise RarewordError(f"cannot write {url}: {error}") from error


def write_json(url: str, value: Any) -> None:
    """Writes JSON atomically: sorted keys, two spaces, UTF-8, a final newline."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
    write_bytes(url, (text + "\n").encode())


def read_json(url: str) -> Any:
    """Reads a JSON file; a torn one is a RarewordError."""
    with open_read(url) as stream:
        data = stream.read()
    try:
        return json.loads(data)
    except ValueError as error:
        raise RarewordError(
            f"{url} is not valid JSON ({error}): remove it or restore it"
        ) from error


def remove(url: str) -> None:
    """Removes a file or a whole directory; nothing happens if there is none."""
    fs, path = filesystem(url)
    with contextlib.suppress(FileNotFoundError):
        fs.rm(path, recursive=True)


def sha256(url: str) -> str:
    """Hex SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with open_read(url) as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _with_protocol(fs: Any, path: str) -> str:
    """Puts back the `gs://` that fsspec strips; local paths stay plain."""
    return path if "file" in fs.protocol else str(fs.unstrip_protocol(path))


def _remove_quietly(fs: Any, path: str) -> None:
    with contextlib.suppress(Exception):
        fs.rm(path)
