"""What a file of a simulated disk holds: as it is, as it is on the device, and what lies between.

Invariant: after a crash there is what was synced, and of what was done since then some part that
the mode allows.
"""

from enum import Enum
from random import Random
from typing import NamedTuple


class Loss(Enum):
    """What becomes of writes, and of changes of names, that were not synced."""

    ALL = "nothing of them is there"
    TORN = "some are there, the last of these in part"
    HOLES = "any of them are there, in whole or in part, with zeros where others should be"


class Write(NamedTuple):
    """Bytes that were put somewhere."""

    position: int
    data: bytes


class Cut(NamedTuple):
    """The file was given another size."""

    size: int


class Content:
    """A file's content: as it is, as it is on the device, and what lies between."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = b""
        self.pending: list[Write | Cut] = []

    def do(self, change: Write | Cut) -> None:
        """Change what the file holds; the device may learn of it or not."""
        _apply(self.data, change)
        self.pending.append(change)

    def sync(self) -> None:
        """What it holds now stays."""
        self.synced = bytes(self.data)
        self.pending.clear()

    def after(self, loss: Loss, random: Random) -> bytes:
        """What is there after a crash."""
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
