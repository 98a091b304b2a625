"""What the clients of a simulated cluster observed, and whether it is consistent.

A record has a value that no other record has: the name of its producer and a number that rises in
each partition. An acknowledged record must be found at its offset at the end, once, and after the
records that its producer sent before. A record that a consumer has read must still be there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

Place = tuple[str, int]


@dataclass
class _PartitionHistory:
    acked: dict[int, bytes] = field(default_factory=dict[int, bytes])
    read: dict[int, bytes] = field(default_factory=dict[int, bytes])


class ClientHistory:
    """The records that clients wrote and read."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.acknowledged = 0
        self.failed = 0
        self.slowest_s = 0.0
        self._partitions: dict[Place, _PartitionHistory] = {}

    def wrong(self, text: str) -> None:
        """Note a violation."""
        self.violations.append(text)

    def partition(self, place: Place) -> _PartitionHistory:
        """Return the history of a partition."""
        return self._partitions.setdefault(place, _PartitionHistory())

    @property
    def places(self) -> list[Place]:
        """The partitions with a history."""
        return [*self._partitions]

    def ack(self, place: Place, offset: int, value: bytes, seconds: float) -> None:
        """Note that a record was acknowledged."""
        history = self.partition(place)
        self.acknowledged += 1
        self.slowest_s = max(self.slowest_s, seconds)
        before = history.acked.setdefault(offset, value)
        if before != value:
            self.wrong(f"{place}: offset {offset} was acknowledged for {before!r} and {value!r}")
        seen = history.read.get(offset, value)
        if seen != value:
            self.wrong(f"{place}: at {offset} {seen!r} was read, {value!r} is acknowledged")

    def read(self, place: Place, offset: int, value: bytes) -> None:
        """Note that a consumer has read a record."""
        history = self.partition(place)
        acked = history.acked.get(offset, value)
        if acked != value:
            self.wrong(f"{place}: read {value!r} at {offset}, where {acked!r} was acknowledged")
        seen = history.read.setdefault(offset, value)
        if seen != value:
            self.wrong(f"{place}: read {value!r} at {offset}, where {seen!r} was read before")

    def compare(self, place: Place, found: Sequence[tuple[int, bytes]]) -> None:
        """Compare the content of a partition at the end."""
        history = self.partition(place)
        offsets = [offset for offset, _ in found]
        if offsets != list(range(len(offsets))):
            self.wrong(f"{place}: the offsets have gaps: {offsets}")
        there = dict(found)
        for kind, known in (("acknowledged", history.acked), ("read", history.read)):
            for offset, value in known.items():
                if there.get(offset) != value:
                    self.wrong(
                        f"{place}: {value!r} was {kind} at {offset}, {there.get(offset)!r} is there"
                    )
        last: dict[bytes, int] = {}
        for offset, value in found:
            name, _, number = value.rpartition(b" ")
            if int(number) <= last.get(name, -1):
                what = "is there twice" if int(number) == last[name] else "is out of order"
                self.wrong(f"{place}: {value!r} at {offset} {what}")
            last[name] = int(number)

    def unread(self, place: Place, read: set[int]) -> list[int]:
        """Return the acknowledged offsets that a consumer has not read."""
        return sorted(self.partition(place).acked.keys() - read)
