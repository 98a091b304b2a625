"""The content of a file on a simulated disk: current, synced, and the changes in between.

Invariant: after a crash the file has the synced content plus a part of the later changes, as the
loss mode allows.
"""

from enum import Enum
from random import Random
from typing import NamedTuple


class Loss(Enum):
    """What a crash does to writes and renames that were not synced."""

    ALL = "none survive"
    TORN = "a prefix survives, its last write in part"
    HOLES = "any survive, whole or in part; holes read as zeros"


class Write(NamedTuple):
    """Bytes written at a position."""

    position: int
    data: bytes


class Cut(NamedTuple):
    """A truncation or extension to a size."""

    size: int


class Content:
    """Current content, synced content and the unsynced changes of a file."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = b""
        self.pending: list[Write | Cut] = []

    def do(self, change: Write | Cut) -> None:
        """Apply a change without syncing it."""
        _apply(self.data, change)
        self.pending.append(change)

    def sync(self) -> None:
        """Make the current content durable."""
        self.synced = bytes(self.data)
        self.pending.clear()

    def after(self, loss: Loss, random: Random) -> bytes:
        """Return the content after a crash."""
        data = bytearray(self.synced)
        if loss is Loss.TORN and self.pending:
            kept = random.randrange(len(self.pending) + 1)
            for number, change in enumerate(self.pending[:kept]):
                _apply(data, _torn(change, random) if number == kept - 1 else change)
        elif loss is Loss.HOLES:
            for change in self.pending:
                if random.random() < 0.7:
                    _apply(data, _torn(change, random) if random.random() < 0.3 else change)
        return bytes(data)


def _apply(data: bytearray, change: Write | Cut) -> None:
    if isinstance(change, Cut):
        del data[change.size :]
        data.extend(bytes(change.size - len(data)))
        return
    end = change.position + len(change.data)
    if end > len(data):
        data.extend(bytes(end - len(data)))
    data[change.position : end] = change.data


def _torn(change: Write | Cut, random: Random) -> Write | Cut:
    if isinstance(change, Cut):
        return change
    return Write(change.position, change.data[: random.randrange(len(change.data) + 1)])
