"""Writes the lines of the services to log files, and rotates these.

Two of the services rename a full file and open a new one. The other two are rotated as `logrotate`
does with `copytruncate`: the file is copied, then truncated.

Invariant: a file is rotated only after a whole line. The last OLD_FILES rotated files are kept.
"""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Final

from logs.services import SERVICES, LogLine

FILE_BYTES: Final = 100_000
OLD_FILES: Final = 5


class LogFiles:
    """The log files of all services; closed after the `with` block."""

    def __init__(self, directory: Path, file_bytes: int = FILE_BYTES) -> None:
        self._directory = directory
        self._file_bytes = file_bytes
        self._files: dict[str, IO[bytes]] = {}

    def __enter__(self) -> "LogFiles":
        self._directory.mkdir(parents=True, exist_ok=True)
        for service in SERVICES:
            self._open(service)
        return self

    def __exit__(self, *exception: object) -> None:
        for file in self._files.values():
            file.close()

    def write(self, lines: Iterable[LogLine]) -> None:
        """Append lines, and rotate files that are full."""
        for line in lines:
            file = self._files[line.service]
            file.write(line.text + b"\n")
            if file.tell() >= self._file_bytes:
                file.flush()
                self._rotate(line.service)
        for file in self._files.values():
            file.flush()

    def _open(self, service: str) -> None:
        self._files[service] = (self._directory / f"{service}.log").open("ab")

    def _rotate(self, service: str) -> None:
        path = self._directory / f"{service}.log"
        for number in range(OLD_FILES - 1, 0, -1):
            old = self._directory / f"{service}.log.{number}"
            if old.exists():
                old.replace(self._directory / f"{service}.log.{number + 1}")
        first = self._directory / f"{service}.log.1"
        if SERVICES.index(service) % 2:
            shutil.copyfile(path, first)
            os.truncate(path, 0)
        else:
            path.rename(first)
        self._files.pop(service).close()
        self._open(service)
