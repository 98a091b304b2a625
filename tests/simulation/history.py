"""What clients observed, and whether it is consistent.

Times are arrival times of responses. A power failure drops everything in flight, so all that a
client knows then is from before.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.ids import Uuid

FLUSHED_AFTER_SECONDS = 8.0  # flush.ms plus the check interval plus a slow disk

Place = tuple[str, int]


@dataclass(frozen=True)
class Kind:
    """The guarantees of a topic."""

    name: str
    partitions: int
    config: dict[str, str]
    flushed: bool = True  # before they are acknowledged
    compacted: bool = False
    retention_ms: int | None = None


@dataclass(frozen=True)
class Sent:
    """A unique record."""

    producer: str
    number: int  # among the producer's records in this partition
    key: bytes
    timestamp_ms: int

    @property
    def value(self) -> bytes:
        return f"{self.producer} {self.number}".encode()


@dataclass(frozen=True)
class Acked:
    record: Sent
    at_s: float


@dataclass
class PartitionHistory:
    kind: Kind
    acked: dict[int, Acked] = field(default_factory=dict[int, Acked])
    seen: dict[int, bytes] = field(default_factory=dict[int, bytes])
    deleted_until: int = 0  # as the broker returned it
    asked_to_delete: int = 0


@dataclass(frozen=True)
class Found:
    """A record that was read at the end of the run."""

    offset: int
    key: bytes
    value: bytes


@dataclass
class CommitHistory:
    """The offsets that a group may find committed for a partition."""

    acked: int | None = None
    order: tuple[int, int] = (-1, -1)  # generation and number of the acknowledged commit
    open: dict[int, int] = field(default_factory=dict[int, int])  # in flight: offset by number

    @property
    def possible(self) -> set[int | None]:
        return {self.acked, *self.open.values()}


class Incarnation(NamedTuple):
    """When a static member sent its join, and when it got the response."""

    sent_s: float
    answered_s: float


class History:
    def __init__(self) -> None:
        self.violations: list[str] = []
        self.partitions: dict[Place, PartitionHistory] = {}
        self.commits: dict[tuple[str, Place], CommitHistory] = {}
        self.generations: dict[str, int] = {}  # the newest that a member has seen
        self.owners: dict[tuple[str, int, Place], str] = {}
        self.topics: dict[str, set[Uuid | None]] = {}  # the topic ids that may exist
        self.counts: dict[str, int] = {}  # minimum number of partitions
        self.settings: dict[tuple[int, str, str], set[str | None]] = {}
        self.producer_ids: set[int] = set()
        self.repeated: set[tuple[Place, bytes]] = set()  # by producers without an id
        self.shares: dict[tuple[str, int, str], frozenset[Place]] = {}
        self.incarnations: dict[tuple[str, str], dict[str, Incarnation]] = {}  # by instance
        self.acknowledged = 0
        self.power_cuts = 0
        self._commit_number = 0

    def wrong(self, text: str) -> None:
        self.violations.append(text)

    def partition(self, kind: Kind, index: int) -> PartitionHistory:
        return self.partitions.setdefault((kind.name, index), PartitionHistory(kind))

    # Records.

    def ack(self, place: Place, base_offset: int, records: Iterable[Sent], now_s: float) -> None:
        history = self.partitions[place]
        for offset, record in enumerate(records, base_offset):
            self.acknowledged += 1
            before = history.acked.get(offset)
            if before is not None and before.record != record:
                self.wrong(f"{place}: {offset} acknowledged for {before.record} and {record}")
            seen = history.seen.get(offset)
            if seen is not None and seen != record.value:
                self.wrong(f"{place}: at {offset} {seen!r} was read, {record.value!r} acknowledged")
            history.acked[offset] = Acked(record, now_s)

    def read(self, place: Place, offset: int, value: bytes) -> None:
        history = self.partitions[place]
        acked = history.acked.get(offset)
        if acked is not None and acked.record.value != value:
            self.wrong(f"{place}: read {value!r} at {offset}, where {acked.record} is")
        seen = history.seen.setdefault(offset, value)
        if seen != value:
            self.wrong(f"{place}: read {value!r} at {offset}, where {seen!r} was")

    def power_cut(self, now_s: float, running_since_s: float) -> None:
        """Unflushed records may be lost and their offsets reused."""
        self.power_cuts += 1
        for history in self.partitions.values():
            if not history.kind.flushed:
                history.acked = {
                    offset: acked
                    for offset, acked in history.acked.items()
                    if now_s - max(acked.at_s, running_since_s) > FLUSHED_AFTER_SECONDS
                }
            history.seen = {
                offset: value for offset, value in history.seen.items() if offset in history.acked
            }

    def log_start(self, place: Place, log_start: int, deleted_until: int) -> None:
        """Check the log start against the deletions acknowledged before the request."""
        if log_start < deleted_until:
            self.wrong(f"{place}: starts at {log_start}, deleted up to {deleted_until}")

    def compare(
        self, place: Place, found: list[Found], log_start: int, end: int, now_ms: int
    ) -> None:
        """Compare the final content of a partition with the history."""
        history = self.partitions[place]
        kind = history.kind
        self.log_start(place, log_start, history.deleted_until)
        offsets = [one.offset for one in found]
        if offsets != sorted(set(offsets)):
            self.wrong(f"{place}: offsets out of order: {offsets}")
        if not kind.compacted and offsets != list(range(log_start, end)):
            self.wrong(f"{place}: {log_start} to {end}, but there are {offsets}")
        self._compare_producers(place, found, whole=not kind.compacted and log_start == 0)
        there = {one.offset: one for one in found}
        last_of_key = {one.key: one.offset for one in found}
        for offset, acked in history.acked.items():
            record = acked.record
            if offset in there:
                if there[offset].value != record.value:
                    self.wrong(f"{place}: {there[offset]} where {record} was acknowledged")
                continue
            if offset < history.asked_to_delete:
                continue
            if kind.compacted and last_of_key.get(record.key, -1) > offset:
                continue
            age_ms = now_ms - record.timestamp_ms
            if kind.retention_ms is not None and age_ms > kind.retention_ms:
                continue
            self.wrong(f"{place}: {record}, acknowledged at {offset}, is lost; ends at {end}")

    def _compare_producers(self, place: Place, found: list[Found], *, whole: bool) -> None:
        last: dict[str, int] = {}
        seen: set[bytes] = set()
        for one in found:
            if (place, one.value) in self.repeated and (one.value in seen or not whole):
                continue  # a duplicate, or possibly one whose original is lost
            seen.add(one.value)
            name, _, number = one.value.decode().rpartition(" ")
            if int(number) == last.get(name, -1):
                self.wrong(f"{place}: {one} is there twice")
            elif int(number) < last.get(name, -1):
                self.wrong(f"{place}: {one} comes after number {last[name]}")
            last[name] = int(number)

    # Groups.

    def synced(self, group: str, generation: int, member: str, mine: Iterable[Place]) -> None:
        """Record the assignment of a member, or of a static member's instance."""
        self.generations[group] = max(self.generations.get(group, -1), generation)
        share = frozenset(mine)
        before = self.shares.setdefault((group, generation, member), share)
        if before != share:
            self.wrong(f"{group}: {member} had {before} in {generation}, and has {share}")
        for place in sorted(share):
            owner = self.owners.setdefault((group, generation, place), member)
            if owner != member:
                self.wrong(f"{group}: {place} is {owner}'s and {member}'s in {generation}")

    def incarnated(
        self, group: str, instance: str, member: str, sent_s: float, answered_s: float
    ) -> None:
        """Record that a static member joined with this member id."""
        known = self.incarnations.setdefault((group, instance), {})
        known.setdefault(member, Incarnation(sent_s, answered_s))

    def is_replaced(self, group: str, instance: str, member: str) -> bool:
        """Whether another member joined with this instance after this one had its response."""
        known = self.incarnations[group, instance]
        return any(one.sent_s > known[member].answered_s for one in known.values())

    def shared_out(self, group: str, generation: int) -> set[Place]:
        """Return the partitions that members know to be assigned in a generation."""
        return {
            place for name, number, place in self.owners if (name, number) == (group, generation)
        }

    def committing(self, group: str, place: Place, offset: int) -> int:
        self._commit_number += 1
        commits = self.commits.setdefault((group, place), CommitHistory())
        commits.open[self._commit_number] = offset
        return self._commit_number

    def committed(
        self, group: str, place: Place, number: int, generation: int, newest_when_sent: int
    ) -> None:
        commits = self.commits[group, place]
        offset = commits.open.get(number)
        if generation < newest_when_sent:
            self.wrong(f"{group}: {place}: {generation} commits after {newest_when_sent} began")
        if offset is None or (generation, number) < commits.order:
            return  # a later commit was acknowledged meanwhile
        commits.acked, commits.order = offset, (generation, number)
        commits.open = {other: value for other, value in commits.open.items() if other > number}

    def refused(self, group: str, place: Place, number: int) -> None:
        self.commits[group, place].open.pop(number, None)

    def found_committed(self, group: str, place: Place, offset: int) -> None:
        commits = self.commits.get((group, place))
        possible = {None} if commits is None else commits.possible
        if (None if offset < 0 else offset) not in possible:
            self.wrong(f"{group}: {place}: {offset} is committed, it can be {possible}")
