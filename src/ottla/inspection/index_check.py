"""Compares the index files of a segment with its batches, in one pass over both.

Invariant: every entry is compared with its batch. An entry that contradicts the batches is damage:
a lookup would miss records. An entry that only makes a lookup start too early is a note.
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

# Before 4.0 Kafka added one entry per append, which may have several batches.
_EARLIER_KAFKA: Final = "as Kafka wrote it before 4.0; lookups still work"


class Cursor(Generic[E]):
    """The current entry of an index, and the findings on the way to it."""

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
        """The findings since the last call."""
        findings, self._findings = self._findings, []
        return findings

    def finding(self, problem: str, level: Level = Level.DAMAGE) -> Finding:
        """A finding about the current entry."""
        return Finding(level, self.path, problem, (self._taken - 1) * self._entry_size)

    def drained(self) -> Iterator[Finding]:
        """The findings of the remaining entries, which are not compared."""
        while self.current is not None:
            self.advance()
            yield from self.found()
        yield from self.found()


class OffsetIndexCheck:
    """Checks that each entry has the position and the last offset of a batch."""

    def __init__(self, path: str, entries: Iterator[OffsetIndexEntry | Finding]) -> None:
        self.cursor = Cursor(path, OffsetIndex.ENTRY.size, entries)
        self._ahead: tuple[int, Finding, Finding] | None = None

    def at_batch(self, position: int, last_offset: int) -> Iterator[Finding]:
        """Compare the entries up to a batch; called for each batch in order."""
        cursor = self.cursor
        if self._ahead is not None and last_offset >= self._ahead[0]:
            offset, harmless, harmful = self._ahead
            yield harmless if offset == last_offset else harmful
            self._ahead = None
        while (entry := cursor.current) is not None and entry.position <= position:
            where = f"entry: offset {entry.offset} at position {entry.position}"
            if entry.position < position:
                yield cursor.finding(f"{where}, but no batch starts there")
            elif entry.offset > last_offset:
                yield from self._flush_ahead()
                # An append of several batches had one entry: its position and last offset.
                self._ahead = (
                    entry.offset,
                    cursor.finding(
                        f"{where}, which is an earlier batch, {_EARLIER_KAFKA}", Level.NOTE
                    ),
                    cursor.finding(f"{where}, but that batch ends with offset {last_offset}"),
                )
            elif entry.offset < last_offset:
                yield cursor.finding(f"{where}, but that batch ends with offset {last_offset}")
            cursor.advance()
        yield from cursor.found()

    def _flush_ahead(self) -> Iterator[Finding]:
        if self._ahead is not None:
            yield self._ahead[2]
            self._ahead = None

    def at_end(self, size: int, growing: bool) -> Iterator[Finding]:
        """Compare the remaining entries with the end of the records, unless these grow."""
        yield from self._flush_ahead()
        while (entry := self.cursor.current) is not None and not growing:
            yield self.cursor.finding(
                f"entry: offset {entry.offset} at position {entry.position}, "
                f"but the records end at position {size}"
            )
            self.cursor.advance()
        yield from self.cursor.drained()


class TimeIndexCheck:
    """Checks that each entry has the largest timestamp up to its offset."""

    def __init__(self, path: str, entries: Iterator[TimeIndexEntry | Finding]) -> None:
        self.cursor = Cursor(path, TimeIndex.ENTRY.size, entries)
        self._largest = NO_TIMESTAMP
        self._indexed = NO_TIMESTAMP

    def at_batch(self, base_offset: int, last_offset: int, max_timestamp: int) -> Iterator[Finding]:
        """Compare the entries up to a batch; called for each batch in order."""
        cursor = self.cursor
        is_later = max_timestamp > self._largest
        self._largest = max(self._largest, max_timestamp)
        while (entry := cursor.current) is not None and entry.offset <= last_offset:
            says = f"entry: largest timestamp {entry.timestamp} up to offset {entry.offset}"
            if entry.offset < base_offset:
                yield cursor.finding(f"{says}, but no batch has that offset")
            elif not is_later or entry.timestamp != max_timestamp:
                yield cursor.finding(
                    f"{says}, but the batch has {max_timestamp} and the largest is {self._largest}"
                )
            elif entry.offset != last_offset:
                yield cursor.finding(
                    f"{says}, not the last offset of a batch, {_EARLIER_KAFKA}", Level.NOTE
                )
            self._indexed = entry.timestamp
            cursor.advance()
        yield from cursor.found()

    def at_end(self, *, missing_level: Level | None, growing: bool) -> Iterator[Finding]:
        """Compare the remaining entries; the last one must have the largest timestamp.

        `missing_level` is the level of the finding if it does not; None while the segment is
        written.
        """
        while (entry := self.cursor.current) is not None and not growing:
            yield self.cursor.finding(
                f"entry: largest timestamp {entry.timestamp} up to offset {entry.offset}, "
                "but the records end before it"
            )
            self.cursor.advance()
        yield from self.cursor.drained()
        if missing_level is not None and self._indexed < self._largest:
            problem = f"the largest timestamp {self._largest} is missing"
            yield Finding(missing_level, self.cursor.path, problem)


@dataclass(frozen=True, slots=True)
class Abort:
    """A transaction that a marker aborted, according to the records."""

    producer_id: int
    first_offset: int
    marker_offset: int
    last_stable_offset: int
    exact: bool  # False: it may have started before the first record


class AbortedIndexCheck:
    """Checks that each entry belongs to an abort marker with records."""

    def __init__(self, path: str, entries: Iterator[AbortedEntry | Finding]) -> None:
        self.cursor = Cursor(path, TransactionIndex.ENTRY.size, entries)

    def at_batch(self, base_offset: int) -> Iterator[Finding]:
        """Report entries before a batch that have no marker."""
        cursor = self.cursor
        while (entry := cursor.current) is not None and entry.last_offset < base_offset:
            yield cursor.finding(f"there is no abort marker at offset {entry.last_offset}")
            cursor.advance()
        yield from cursor.found()

    def at_abort(self, abort: Abort, missing_level: Level | None) -> Iterator[Finding]:
        """Compare the entry of an abort marker; `missing_level` as for the time index."""
        entry, cursor = self.cursor.current, self.cursor
        if entry is None or entry.last_offset != abort.marker_offset:
            if missing_level is not None and abort.exact:
                problem = f"the transaction aborted at offset {abort.marker_offset} is missing"
                yield Finding(missing_level, cursor.path, problem)
            return
        first, stable = abort.first_offset, abort.last_stable_offset
        right = entry.producer_id == abort.producer_id and (
            (entry.first_offset, entry.last_stable_offset) == (first, stable)
            if abort.exact
            else entry.first_offset <= first and entry.last_stable_offset <= stable
        )
        if not right:
            yield cursor.finding(
                f"producer {entry.producer_id}, first offset {entry.first_offset}, "
                f"last stable offset {entry.last_stable_offset}; "
                f"the records have {abort.producer_id}, {first} and {stable}"
            )
        cursor.advance()
        yield from cursor.found()

    def pass_over(self, last_offset: int) -> None:
        """Accept the entries up to an offset: compaction removed their records."""
        while (entry := self.cursor.current) is not None and entry.last_offset <= last_offset:
            self.cursor.advance()

    def at_end(self, *, growing: bool) -> Iterator[Finding]:
        """Report remaining entries, unless records are being written."""
        while (entry := self.cursor.current) is not None and not growing:
            yield self.cursor.finding(f"there is no abort marker at offset {entry.last_offset}")
            self.cursor.advance()
        yield from self.cursor.drained()
