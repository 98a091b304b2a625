"""What the job has found so far: averages out of their files, alerts out of their topic.

Invariant: only what Spark has committed is read, each file and each alert once.
"""

import json
import os
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import unquote, urlparse

import pyarrow.parquet

from ottla.client.admin import OffsetAt
from ottla.sync import Admin, Consumer
from sensors.topics import PARTITIONS, partitions

SHOWN_ALERTS: Final = 200


class Averages:
    """The files that a query has written; Spark lists those of each micro-batch that is done."""

    def __init__(self, folder: Path) -> None:
        self.count = 0
        self.latest: list[Mapping[str, Any]] = []  # of the last ten seconds that there are
        self._log = folder / "_spark_metadata"
        self._seen: set[str] = set()
        self._next = 0

    def look(self) -> None:
        """Read what is new."""
        while (listed := self._listed(self._next)) is not None:
            for line in listed.read_text().splitlines()[1:]:
                address: str = json.loads(line)["path"]
                path = unquote(urlparse(address).path)
                if path not in self._seen:
                    self._seen.add(path)
                    self.take(_rows(path))
            self._next += 1

    def take(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Count the rows of a file, and keep those of the last ten seconds."""
        self.count += len(rows)
        if rows:
            both = [*self.latest, *rows]
            last = max(row["end"] for row in both)
            self.latest = [row for row in both if row["end"] == last]

    def _listed(self, batch: int) -> Path | None:
        """The list of a micro-batch; every tenth has all that went before."""
        for name in (f"{batch}", f"{batch}.compact"):
            if (self._log / name).exists():
                return self._log / name
        # Lists that a later one has made needless are removed in time.
        later = [int(name.partition(".")[0]) for name in _names(self._log) if name[0].isdigit()]
        if later and min(later) > batch:
            self._next = min(later)
            return self._listed(self._next)
        return None


def _rows(path: str) -> list[dict[str, Any]]:
    parquet: Any = pyarrow.parquet
    return parquet.read_table(path).to_pylist()


def _names(folder: Path) -> list[str]:
    return os.listdir(folder) if folder.is_dir() else []


class Alerts:
    """The alerts of a topic from now on, the newest last; `with` starts it."""

    def __init__(self, servers: str, topic: str) -> None:
        self.latest: deque[dict[str, Any]] = deque(maxlen=SHOWN_ALERTS)
        self._topic = topic
        self._consumer = Consumer({"bootstrap.servers": servers, "auto.offset.reset": "latest"})

    def __enter__(self) -> "Alerts":
        self._consumer.__enter__()
        self._consumer.assign(*partitions(self._topic))
        return self

    def __exit__(self, *exception: object) -> None:
        self._consumer.__exit__(None, None, None)

    def look(self) -> None:
        """Read what is new."""
        for record in self._consumer.poll(0.01):
            alert = _alert(record.value or b"")
            if alert is not None:
                self.latest.append(alert)


def _alert(value: bytes) -> dict[str, Any] | None:
    """An alert of the job; None when somebody else has written to its topic."""
    try:
        told: object = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict):
        return None
    found = cast("dict[str, Any]", told)
    words = all(_is_word(found.get(name)) for name in ("device", "at", "signal"))
    numbers = all(_is_number(found.get(name)) for name in ("value", "mean", "deviation"))
    return found if words and numbers else None


def _is_word(told: object) -> bool:
    """Whether it is a text that can be shown: JSON has halves of characters, too."""
    if not isinstance(told, str):
        return False
    try:
        told.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_number(told: object) -> bool:
    """Whether it is a number that can be shown: JSON has some that no float can hold."""
    if isinstance(told, bool) or not isinstance(told, int | float):
        return False
    try:
        float(told)
    except OverflowError:
        return False
    return True


def written(admin: Admin) -> dict[str, int]:
    """How many records were ever written to each topic."""
    wanted = {one: OffsetAt.LATEST for topic in PARTITIONS for one in partitions(topic)}
    ends = admin.list_offsets(wanted).or_raise()
    return {topic: sum(ends[one].offset or 0 for one in partitions(topic)) for topic in PARTITIONS}


def last_ms(admin: Admin, topic: str) -> int | None:
    """The time of the newest record of a topic."""
    wanted = dict.fromkeys(partitions(topic), OffsetAt.MAX_TIMESTAMP)
    newest = admin.list_offsets(wanted).or_raise().values()
    return max((one.timestamp_ms for one in newest if one.timestamp_ms is not None), default=None)
