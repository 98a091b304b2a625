"""The files of a running pipeline: its lock, its status and its log.

They are in `.ottla/pipelines/NAME`, so that `ottla pipeline status` and `stop` find a pipeline from
another shell.

Invariant: a process holds the lock as long as it runs the pipeline, so two processes never run it
from the same directory. The status file is complete whenever it is read.
"""

import fcntl
import json
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from ottla.errors import OttlaError

DIRECTORY: Final = Path(".ottla") / "pipelines"
_STATUS: Final = "status.json"
_LOCK: Final = "run.lock"


class AlreadyRunning(OttlaError):
    """Another process runs the pipeline."""


class RunStatus(NamedTuple):
    """What a directory says of a pipeline."""

    name: str
    is_running: bool
    content: Mapping[str, Any]
    """The last status; empty if there is none."""

    @property
    def process(self) -> int | None:
        """The process that runs the pipeline."""
        found = self.content.get("process")
        return found if self.is_running and isinstance(found, int) else None


class RunFiles:
    """The directory of a pipeline."""

    def __init__(self, name: str, directory: Path = DIRECTORY) -> None:
        self.name = name
        self.directory = (directory / name).absolute()
        self.log = self.directory / "spark.log"
        self.events = self.directory / "run.log"
        self.modules = self.directory / "steps.zip"
        """The modules of Python steps, for the executors of a cluster."""
        self.stop_file = self.directory / "stop"
        """The sources offer no more records when this file exists."""
        self._status = self.directory / _STATUS
        self._lock = self.directory / _LOCK

    @contextmanager
    def running(self) -> Generator[None]:
        """Hold the lock; raises AlreadyRunning."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._lock.open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                process = self.read().content.get("process", "unknown")
                what = (
                    f"pipeline {self.name} is running already, as process {process} in "
                    f"{self.directory}"
                )
                raise AlreadyRunning(what) from None
            self.stop_file.unlink(missing_ok=True)
            self._status.unlink(missing_ok=True)
            try:
                yield
            finally:
                self.stop_file.unlink(missing_ok=True)

    def write(self, content: Mapping[str, Any]) -> None:
        """Replace the status."""
        temporary = self._status.with_suffix(".tmp")
        temporary.write_text(json.dumps({"process": os.getpid(), **content}))
        temporary.replace(self._status)

    def read(self) -> RunStatus:
        """Return the status, and whether a process runs the pipeline."""
        try:
            found: object = json.loads(self._status.read_text())
        except (OSError, ValueError):
            found = {}
        content = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        return RunStatus(self.name, self._is_locked(), content)

    def _is_locked(self) -> bool:
        try:
            with self._lock.open("r") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False


def known_pipelines(directory: Path = DIRECTORY) -> list[RunFiles]:
    """Return the pipelines that have run in a directory, by name."""
    names = sorted(one.name for one in directory.iterdir()) if directory.is_dir() else []
    return [RunFiles(name, directory) for name in names if (directory / name / _LOCK).exists()]
