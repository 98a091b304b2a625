"""Finds what earlier runs of a pipeline have left, and deletes it.

A query continues from its checkpoint. Without one it starts again, and counts its micro-batches
from 0. The log of a Parquet directory (`_spark_metadata`) also has these numbers: Spark skips a
micro-batch whose number is in the log, so a new query would lose its first rows.

Invariant: a query with a new checkpoint never writes to a Parquet directory with an old log. Errors
show directories as they are written in the file, without the values of variables.
"""

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

import msgspec

from ottla.errors import OttlaError
from ottla.pipeline.spec.decoding import decode
from ottla.pipeline.spec.model import Pipeline
from ottla.pipeline.streaming_queries import queries_of
from ottla.pipeline.upgrades import Change, Effect, changes_of

SINK_LOG: Final = "_spark_metadata"
DECLARATION: Final = "ottla-declaration.json"
"""The file in a checkpoint with the declaration of its last run."""

_OFFSETS: Final = "offsets"
_PARQUET: Final = "parquet"


class CannotStartAgain(OttlaError):
    """Files of earlier runs prevent a new start; the text names them."""


class RemoteFiles(Protocol):
    """The files of other file systems, which Spark can read; see `remote_files.py`."""

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory; nothing if there is none."""
        ...

    def read(self, directory: str, name: str) -> str | None:
        """Return the text of a file; None if there is none."""
        ...

    def write(self, directory: str, name: str, text: str) -> None:
        """Replace a file, and create its directory."""
        ...


class RunDirectory(NamedTuple):
    """A directory of a query."""

    path: Path | None
    """None in another file system, which only Spark can read."""
    written: str
    """As the pipeline file has it."""
    place: str = ""
    """With the values of variables."""
    remote: RemoteFiles | None = None
    """The other file systems, once Spark has started."""

    @property
    def has_offsets(self) -> bool:
        """Whether it is the checkpoint of a query that has started, as far as that is known."""
        return self._has_batches(_OFFSETS)

    @property
    def has_log(self) -> bool:
        """Whether it is a Parquet directory to which a query has written."""
        return self._has_batches(SINK_LOG)

    @property
    def is_readable(self) -> bool:
        """Whether its files can be read now."""
        return self.path is not None or self.remote is not None

    def read(self, name: str) -> str | None:
        """Return the text of a file; None if there is none."""
        if self.path is not None:
            with suppress(OSError, ValueError):
                return (self.path / name).read_text()
        elif self.remote is not None:
            return self.remote.read(self.place, name)
        return None

    def write(self, name: str, text: str) -> None:
        """Replace a file, if the directory is in a file system that is known."""
        if self.path is not None:
            self.path.mkdir(parents=True, exist_ok=True)
            temporary = self.path / f".{name}.tmp"
            temporary.write_text(text)
            temporary.replace(self.path / name)
        elif self.remote is not None:
            self.remote.write(self.place, name, text)

    def _has_batches(self, folder: str) -> bool:
        if self.path is not None:
            return any((self.path / folder).glob("[0-9]*"))
        if self.remote is None:
            return False
        names = self.remote.names(f"{self.place.rstrip('/')}/{folder}")
        return any(one[:1].isdigit() for one in names)


class QueryDirectories(NamedTuple):
    """The checkpoint of a query, and its Parquet directories that have a log."""

    checkpoint: RunDirectory
    outputs: tuple[RunDirectory, ...]


def query_directories(pipeline: Pipeline, written: Pipeline) -> list[QueryDirectories]:
    """Return the directories of each query; `written` has no values of variables."""
    found: list[QueryDirectories] = []
    for query, shown in zip(queries_of(pipeline), queries_of(written), strict=True):
        outputs = [
            RunDirectory(local_path(one.target), other.target, one.target)
            for one, other in zip(query.outputs, shown.outputs, strict=True)
            if one.kind == _PARQUET and not pipeline.together  # joint sinks write no log
        ]
        place = query.checkpoint
        checkpoint = RunDirectory(local_path(place), shown.checkpoint, place)
        found.append(QueryDirectories(checkpoint, tuple(outputs)))
    return found


def remote_directories(
    queries: list[QueryDirectories], remote: RemoteFiles
) -> list[QueryDirectories]:
    """Return the queries whose checkpoints only Spark can read, now readable."""
    return [
        QueryDirectories(
            checkpoint._replace(remote=remote),
            tuple(one._replace(remote=remote) for one in outputs),
        )
        for checkpoint, outputs in queries
        if checkpoint.path is None
    ]


def check_new_start(queries: list[QueryDirectories]) -> None:
    """Raise CannotStartAgain unless every query starts with a new checkpoint."""
    for checkpoint, _ in queries:
        if checkpoint.path is None:
            what = (
                f"--from needs local checkpoints, not {checkpoint.written}: set `start` of the "
                "sources, and a new directory for `checkpoints`"
            )
            raise CannotStartAgain(what)
        if checkpoint.has_offsets:
            what = (
                f"--from cannot change the checkpoint of an earlier run in {checkpoint.written}: "
                "delete it with `ottla pipeline reset`"
            )
            raise CannotStartAgain(what)


def check_skipped_batches(queries: list[QueryDirectories]) -> None:
    """Raise CannotStartAgain if Spark would skip the first micro-batches of a query."""
    for checkpoint, outputs in queries:
        if not checkpoint.is_readable or checkpoint.has_offsets:
            continue
        for output in outputs:
            if output.has_log:
                what = (
                    f"{output.written} has files of another checkpoint than {checkpoint.written}, "
                    "so Spark would skip the first rows: move the files away, or write to another "
                    "directory"
                )
                raise CannotStartAgain(what)


def check_changes(queries: list[QueryDirectories], written: Pipeline) -> None:
    """Raise CannotStartAgain if a query cannot continue because the pipeline has changed."""
    found: list[Change] = []
    names = {query.checkpoint: query.name for query in queries_of(written)}
    for checkpoint, _ in queries:
        before = _kept_declaration(checkpoint)
        if before is not None:
            name = names[checkpoint.written]
            found += [one for one in changes_of(before, written) if one.query == name]
    if not found:
        return
    cure = "start again with `ottla pipeline reset`, or continue with --keep-state"
    if found[0].effect is Effect.REFUSED:
        cure = "undo the change"
    raise CannotStartAgain(f"{found[0]}; {cure}")


def keep_declaration(queries: list[QueryDirectories], written: Pipeline) -> None:
    """Store the declaration in each checkpoint, without the values of variables.

    Checkpoints in other file systems are left out as long as Spark has not started.
    """
    kept = msgspec.structs.replace(written, tests=[], profiles={}, client={})
    data = json.dumps(msgspec.to_builtins(kept))
    for checkpoint, _ in queries:
        checkpoint.write(DECLARATION, data)


def _kept_declaration(checkpoint: RunDirectory) -> Pipeline | None:
    """Return the declaration of the last run; None if there is none, or it cannot be read."""
    if not checkpoint.has_offsets or (text := checkpoint.read(DECLARATION)) is None:
        return None
    with suppress(ValueError):
        found: object = json.loads(text)
        decoded = decode(found, Pipeline)
        # A key that this release does not know is ignored; a wrong value is not compared.
        return decoded.part if isinstance(found, dict) and "sources" in found else None
    return None


def existing_directories(
    queries: list[QueryDirectories],
) -> tuple[list[RunDirectory], list[RunDirectory]]:
    """Return the local checkpoints and the Parquet directories that earlier runs have left."""
    checkpoints = [
        one.checkpoint
        for one in queries
        if one.checkpoint.path is not None and one.checkpoint.path.is_dir()
    ]
    outputs = [output for one in queries for output in one.outputs if output.has_log]
    return checkpoints, [*dict.fromkeys(outputs)]


def delete_directories(directories: list[RunDirectory]) -> None:
    """Delete directories with all that they contain."""
    for one in directories:
        if one.path is not None:
            shutil.rmtree(one.path)


def local_path(directory: str) -> Path | None:
    """Return the path of a directory on this machine; None in another file system."""
    parts = urlsplit(directory)
    if not parts.scheme:
        return Path(directory)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None
