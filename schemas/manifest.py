"""The manifest: the last file a job writes, and the only thing a reader trusts.

No manifest means not finished. A manifest records what was asked (job, options, inputs), what
came out (shards with checksums, figures) and with which versions. Its `plan` digest answers "is
this the same work?", its `content` digest "is this the same result?"; the content digests of the
inputs are part of the plan, so a change anywhere upstream is seen all the way down.
"""

import importlib.metadata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rareword.schemas import storage
from rareword.schemas.errors import RarewordError
from rareword.schemas.tables import ShardRecord, TableSchema, digest

MANIFEST_NAME = "manifest.json"
STARTED_NAME = "started.json"
FORMAT = 1


@dataclass(frozen=True)
class Plan:
    """What a job is asked to do: enough to tell whether a finished directory already holds it."""

    job: str
    options: Mapping[str, Any]
    """The options that shape the result, as JSON values (no paths, no thread counts)."""
    inputs: Mapping[str, str]
    """Name of each input and the digest of its content."""

    @property
    def fingerprint(self) -> str:
        return digest({"job": self.job, "options": dict(self.options), "inputs": dict(self.inputs)})


@dataclass(frozen=True)
class Manifest:
    """A finished job directory."""

    job: str
    plan: str
    """Fingerprint of the plan."""
    options: Mapping[str, Any]
    inputs: Mapping[str, str]
    schema: str
    """Name of the schema of the main shards."""
    shards: tuple[ShardRecord, ...]
    """Shards of the main table, in order."""
    files: tuple[ShardRecord, ...] = ()
    """Further files of the job: vocabulary, codes, rejected rows, checkpoints."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """Totals and statistics (JSON values)."""
    rules: Mapping[str, Any] = field(default_factory=dict)
    """What later jobs must know: text rules, segmenter, vocabulary hash."""
    versions: Mapping[str, str] = field(default_factory=dict)
    directory: str = ""
    """Where it was read from; not stored."""

    @property
    def content(self) -> str:
        """Digest of the result: the same for the same bytes, wherever they lie."""
        return digest(
            {
                "job": self.job,
                "plan": self.plan,
                "files": {r.name: r.checksum for r in (*self.shards, *self.files)},
                "rules": dict(self.rules),
            }
        )

    @property
    def rows(self) -> int:
        """Rows of the main table."""
        return sum(shard.rows for shard in self.shards)

    @property
    def urls(self) -> list[str]:
        """The shards' URLs, in order."""
        return [storage.join(self.directory, shard.name) for shard in self.shards]

    def counter(self, name: str) -> int:
        """The sum of a counter over the main shards."""
        return sum(shard.counters.get(name, 0) for shard in self.shards)

    def write(self, directory: str) -> None:
        """Writes the manifest: from now on the directory is finished."""
        storage.write_json(
            storage.join(directory, MANIFEST_NAME),
            {
                "format": FORMAT,
                "job": self.job,
                "plan": self.plan,
                "options": dict(self.options),
                "inputs": dict(self.inputs),
                "schema": self.schema,
                "shards": [shard.to_json() for shard in self.shards],
                "files": [file.to_json() for file in self.files],
                "figures": dict(self.figures),
                "rules": dict(self.rules),
                "versions": dict(self.versions),
            },
        )


def versions(*packages: str) -> dict[str, str]:
    """Installed versions of rareword and of the named distributions."""
    return {name: importlib.metadata.version(name) for name in ("rareword", *packages)}


def finish(
    plan: Plan,
    directory: str,
    schema: TableSchema | None,
    shards: Iterable[ShardRecord],
    *,
    files: Iterable[ShardRecord] = (),
    figures: Mapping[str, Any] | None = None,
    rules: Mapping[str, Any] | None = None,
    packages: tuple[str, ...] = ("apache-beam", "pyarrow"),
) -> Manifest:
    """Writes the manifest of a finished job and returns it. The last step of every job."""
    manifest = Manifest(
        job=plan.job,
        plan=plan.fingerprint,
        options=plan.options,
        inputs=plan.inputs,
        schema=schema.name if schema else "",
        shards=tuple(sorted(shards, key=lambda record: record.name)),
        files=tuple(sorted(files, key=lambda record: record.name)),
        figures=figures or {},
        rules=rules or {},
        versions=versions(*packages),
        directory=directory,
    )
    manifest.write(directory)
    return manifest


def is_finished(directory: str) -> bool:
    """True if the directory holds a manifest."""
    return storage.exists(storage.join(directory, MANIFEST_NAME))


def read(directory: str, job: str | tuple[str, ...], option: str) -> Manifest:
    """The manifest of a finished job's directory, given by the user as `option`.

    Raises RarewordError if there is none, if it is of another job, or if a file is missing or has
    another size than recorded.
    """
    jobs = (job,) if isinstance(job, str) else job
    url = storage.join(directory, MANIFEST_NAME)
    if not storage.exists(url):
        what = "is not finished" if storage.exists(directory) else "does not exist"
        raise RarewordError(
            f"{option}: {directory} {what} (no {MANIFEST_NAME}); run `rareword {jobs[0]}` first"
        )
    value = storage.read_json(url)
    try:
        if value.pop("format") != FORMAT:
            raise RarewordError(f"{url} was written by another release; write the data again")
        for key in ("shards", "files"):
            value[key] = tuple(ShardRecord.from_json(record) for record in value[key])
        manifest = Manifest(**value, directory=directory)
    except (AttributeError, KeyError, TypeError) as error:
        raise RarewordError(f"{url} is not a rareword manifest ({error})") from error
    if manifest.job not in jobs:
        raise RarewordError(
            f"{option}: {directory} was written by `{manifest.job}`, expected `{jobs[0]}`"
        )
    found = set(storage.list_files(directory))
    for record in (*manifest.shards, *manifest.files):
        path = storage.join(directory, record.name)
        if record.name not in found:
            raise RarewordError(f"{path} is named in {url} but missing; run the job again")
        if storage.size(path) != record.bytes:
            raise RarewordError(
                f"{path} has {storage.size(path)} bytes, its manifest says {record.bytes}; "
                "run the job again with --overwrite"
            )
    return manifest


def check_balance(equal: Mapping[str, tuple[int, int]]) -> None:
    """Conservation: raises RarewordError for the first figure whose two sides differ."""
    for name, (left, right) in equal.items():
        if left != right:
            raise RarewordError(
                f"the run lost or doubled data: {name}: {left} against {right}. Nothing was "
                "finished; run it again, on another runner if it repeats"
            )
