"""The index files of a segment held against its batches, in one pass over both.

Invariant: every entry is compared with the batch that it speaks of, and an entry that no batch
bears out is damage: a look-up by it would miss records or tell something else than the records do.
An entry that only makes a look-up begin earlier than it need is a note.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from ottla.inspection.entries import AbortedEntry, OffsetIndexEntry, TimeIndexEntry
from ottla.inspection.findings import FINDINGS_PER_FILE_MAX, Finding, Level
from ottla.log.segment.index import OffsetIndex, TimeIndex
from ottla.log.segment.txn_index import TransactionIndex
from ottla.records.batch import NO_TIMESTAMP

E = TypeVar("E", OffsetIndexEntry, TimeIndexEntry, AbortedEntry)

# Kafka wrote entries like these until it indexed each batch of an append by itself.
_EARLIER_KAFKA: Final = "as Kafka wrote it before 4.0; look-ups find the same"


class Cursor(Generic[E]):
    """The next entry of an index, and what was wrong on the way to it."""

    def __init__(self, path: str, entry_size: int, entries: Iterator[E | Finding]) -> None:
        self.path = path
        self.current: E | None = None
        self._entries = entries
        self._entry_size = entry_size
        self._taken = 0
        self._findings: list[Finding] = []
        self.advance()

    def advance(self) -> None:
        """Go to the next entry."""
        self.current = None
        for item in self._entries:
            self._taken += 1
            if not isinstance(item, Finding):
                self.current = item
                return
            if len(self._findings) <= FINDINGS_PER_FILE_MAX:
                self._findings.append(item)

    def found(self) -> list[Finding]:
        """What was wrong since this was asked last."""
        findings, self._findings = self._findings, []
        return findings

    def finding(self, problem: str, level: Level = Level.DAMAGE) -> Finding:
        """A finding about the current entry."""
        return Finding(level, self.path, problem, (self._taken - 1) * self._entry_size)

    def drained(self) -> Iterator[Finding]:
        """What is wrong with the rest, none of which is compared."""
        while self.current is not None:
            self.advance()
            yield from self.found()
        yield from self.found()


class OffsetIndexCheck:
    """Each entry names a batch by its position and its last offset."""

    def __init__(self, path: str, entries: Iterator[OffsetIndexEntry | Finding]) -> None:
        self.cursor = Cursor(path, OffsetIndex.ENTRY.size, entries)
        self._ahead: tuple[int, Finding, Finding] | None = None

    def at_batch(self, position: int, last_offset: int) -> Iterator[Finding]:
        """Compare the entries up to a batch; called with each batch in turn."""
        cursor = self.cursor
        if self._ahead is not None and last_offset >= self._ahead[0]:
            offset, harmless, harmful = self._ahead
            yield harmless if offset == last_offset else harmful
            self._ahead = None
        while (entry := cursor.current) is not None and entry.position <= position:
            where = f"offset {entry.offset} is said to be at {entry.position}"
            if entry.position < position:
                yield cursor.finding(f"{where}, where no batch begins")
            elif entry.offset > last_offset:
                yield from self._unborne()
                # An append of several batches had one entry: its place, and its last offset.
                self._ahead = (
                    entry.offset,
                    cursor.finding(
                        f"{where}, a batch before its own, {_EARLIER_KAFKA}", Level.NOTE
                    ),
                    cursor.finding(f"{where}, the batch there ends with {last_offset}"),
                )
            elif entry.offset < last_offset:
                yield cursor.finding(f"{where}, the batch there ends with {last_offset}")
            cursor.advance()
        yield from cursor.found()

    def _unborne(self) -> Iterator[Finding]:
        if self._ahead is not None:
            yield self._ahead[2]
            self._ahead = None

    def at_end(self, size: int, growing: bool) -> Iterator[Finding]:
        """Compare what is left with the end of the records, unless these are being written."""
        yield from self._unborne()
        while (entry := self.cursor.current) is not None and not growing:
            yield self.cursor.finding(
                f"offset {entry.offset} is said to be at {entry.position}, "
                f"the records end at {size}"
            )
            self.cursor.advance()
        yield from self.cursor.drained()


class TimeIndexCheck:
    """Each entry says how late the records are up to its offset, and that this one is as late."""

    def __init__(self, path: str, entries: Iterator[TimeIndexEntry | Finding]) -> None:
        self.cursor = Cursor(path, TimeIndex.ENTRY.size, entries)
        self._largest = NO_TIMESTAMP
        self._indexed = NO_TIMESTAMP

    def at_batch(self, base_offset: int, last_offset: int, max_timestamp: int) -> Iterator[Finding]:
        """Compare the entries up to a batch; called with each batch in turn."""
        cursor = self.cursor
        is_later = max_timestamp > self._largest
        self._largest = max(self._largest, max_timestamp)
        while (entry := cursor.current) is not None and entry.offset <= last_offset:
            says = f"{entry.timestamp} is said to be the latest up to offset {entry.offset}"
            if entry.offset < base_offset:
                yield cursor.finding(f"{says}, which no batch holds")
            elif not is_later or entry.timestamp != max_timestamp:
                yield cursor.finding(
                    f"{says}, the batch there has {max_timestamp} and {self._largest} is the latest"
                )
            elif entry.offset != last_offset:
                yield cursor.finding(
                    f"{says}, not the last of its batch, {_EARLIER_KAFKA}", Level.NOTE
                )
            self._indexed = entry.timestamp
            cursor.advance()
        yield from cursor.found()

    def at_end(self, *, lacking: Level | None, growing: bool) -> Iterator[Finding]:
        """Compare what is left. The index of a closed segment ends with the latest time of all.

        `lacking` is what it is if it does not; None while the segment is written to.
        """
        while (entry := self.cursor.current) is not None and not growing:
            yield self.cursor.finding(
                f"{entry.timestamp} is said to be the latest up to offset {entry.offset}, "
                "which is behind the records"
            )
            self.cursor.advance()
        yield from self.cursor.drained()
        if lacking is not None and self._indexed < self._largest:
            problem = f"{self._largest}, the latest time, is missing"
            yield Finding(lacking, self.cursor.path, problem)


@dataclass(frozen=True, slots=True)
class Abort:
    """A transaction that a marker ended, as far as the records tell."""

    producer_id: int
    first_offset: int
    marker_offset: int
    last_stable_offset: int
    exact: bool  # False: it may have begun before the records that are there


class AbortedIndexCheck:
    """Each entry belongs to the marker of a transaction that was aborted with its records."""

    def __init__(self, path: str, entries: Iterator[AbortedEntry | Finding]) -> None:
        self.cursor = Cursor(path, TransactionIndex.ENTRY.size, entries)

    def at_batch(self, base_offset: int) -> Iterator[Finding]:
        """No entry is left over from before a batch."""
        cursor = self.cursor
        while (entry := cursor.current) is not None and entry.last_offset < base_offset:
            yield cursor.finding(f"there is no abort at offset {entry.last_offset}")
            cursor.advance()
        yield from cursor.found()

    def at_abort(self, abort: Abort, lacking: Level | None) -> Iterator[Finding]:
        """Compare the entry of an abort marker; `lacking` as for the time index."""
        entry, cursor = self.cursor.current, self.cursor
        if entry is None or entry.last_offset != abort.marker_offset:
            if lacking is not None and abort.exact:
                problem = f"the transaction aborted at offset {abort.marker_offset} is missing"
                yield Finding(lacking, cursor.path, problem)
            return
        first, stable = abort.first_offset, abort.last_stable_offset
        right = entry.producer_id == abort.producer_id and (
            (entry.first_offset, entry.last_stable_offset) == (first, stable)
            if abort.exact
            else entry.first_offset <= first and entry.last_stable_offset <= stable
        )
        if not right:
            yield cursor.finding(
                f"producer {entry.producer_id} from {entry.first_offset}, stable to "
                f"{entry.last_stable_offset}; records say {abort.producer_id}, {first} and {stable}"
            )
        cursor.advance()
        yield from cursor.found()

    def pass_over(self, last_offset: int) -> None:
        """Take the entries up to an offset as they are: compaction removed what they tell of."""
        while (entry := self.cursor.current) is not None and entry.last_offset <= last_offset:
            self.cursor.advance()

    def at_end(self, *, growing: bool) -> Iterator[Finding]:
        """Nothing is left, unless records are being written."""
        while (entry := self.cursor.current) is not None and not growing:
            yield self.cursor.finding(f"there is no abort at offset {entry.last_offset}")
            self.cursor.advance()
        yield from self.cursor.drained()
