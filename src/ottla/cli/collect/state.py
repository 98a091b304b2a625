"""The state directory of a collector: its lock, and how far each file is.

Invariant: one process uses a directory at a time. The file is replaced as a whole, after its bytes
are on disk, so that it is complete whenever it is read, also after a power failure.
"""

import fcntl
import json
import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

from ottla.cli.collect.tail import FileId, Fingerprint, Mark
from ottla.cli.collect.tracker import Stored
from ottla.cli.failures import Failed

VERSION: Final = 1


class CollectorState:
    """A state directory, locked during the `with` block of `locked`."""

    def __init__(self, directory: Path, topic: str) -> None:
        self.directory = directory
        self._topic = topic
        self._path = directory / "files.json"

    @contextmanager
    def locked(self) -> Generator[None]:
        """Create the directory and hold its lock; raises Failed."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with (self.directory / "lock").open("a") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    what = f"another process uses the state directory {self.directory}"
                    raise Failed(f"{what}: stop it, or choose another one with --state") from None
                yield
        except (PermissionError, FileExistsError, NotADirectoryError) as error:
            raise Failed(f"{error.filename}: {error.strerror}; choose --state") from None

    def read(self) -> list[Stored] | None:
        """Return what is stored, or None if nothing is; raises Failed."""
        try:
            text = self._path.read_text()
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise Failed(f"{self._path}: cannot be read: {error}") from None
        try:
            content = cast("dict[str, Any]", json.loads(text))
            version, topic = content["version"], content["topic"]
            files = [_stored(one) for one in content["files"]] if version == VERSION else []
        except (ValueError, KeyError, TypeError) as error:
            what = f"{self._path} is damaged ({type(error).__name__}: {error})"
            raise Failed(f"{what}; delete it to collect all files again") from None
        if version != VERSION:
            raise Failed(f"{self._path} has version {version}, which this Ottla does not support")
        if topic != self._topic:
            what = f"{self._path} is of topic {topic}, not of {self._topic}"
            raise Failed(f"{what}; choose another directory with --state")
        return files

    def write(self, files: Iterable[Stored]) -> None:
        """Replace what is stored; raises OSError."""
        content = {
            "version": VERSION,
            "topic": self._topic,
            "files": [_object(one) for one in files],
        }
        temporary = self._path.with_suffix(".tmp")
        with temporary.open("w") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)


def _object(one: Stored) -> dict[str, Any]:
    mark = one.mark
    # Paths may have bytes that are not UTF-8; JSON escapes the surrogates that Python uses.
    return {
        "path": one.path,
        "device": one.id.device,
        "inode": one.id.inode,
        "position": mark.position,
        "parts": mark.parts,
        "head": [*mark.head],
        "tail": [*mark.tail],
    }


def _stored(found: Any) -> Stored:
    head_bytes, head = found["head"]
    tail_bytes, tail = found["tail"]
    mark = Mark(
        int(found["position"]),
        Fingerprint(int(head_bytes), str(head)),
        Fingerprint(int(tail_bytes), str(tail)),
        int(found["parts"]),
    )
    if not 0 <= max(mark.head.size, mark.tail.size) <= mark.position:
        raise ValueError(f"position {mark.position}")
    return Stored(str(found["path"]), FileId(int(found["device"]), int(found["inode"])), mark)
