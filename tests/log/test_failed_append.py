"""Appends that fail after the write, and indexes that are copied during an append."""

import sys
from collections.abc import Callable
from itertools import count
from types import FrameType
from typing import TYPE_CHECKING

import pytest

from cases import each_case
from log.logs import append, contents, end, made, new_log, opened
from ottla.errors import StorageFailure
from ottla.ids import Offset, Position, ProducerId
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.segment.index import Index, OffsetIndex, TimeIndex
from ottla.log.segment.txn_index import AbortedTransaction, TransactionIndex
from ottla.testing.disk import SimulatedDisk, finish

if TYPE_CHECKING:
    from _typeshed import TraceFunction

RULES = LogConfig(index_interval_bytes=0)  # an entry for every batch but the first


def offsets() -> tuple[Index, Callable[[int], object]]:
    index = OffsetIndex(Offset(0))
    return index, lambda number: index.append(Offset(number), Position(number))


def times() -> tuple[Index, Callable[[int], object]]:
    index = TimeIndex(Offset(0))
    return index, lambda number: index.append(number, Offset(number))


def aborted() -> tuple[Index, Callable[[int], object]]:
    index, nobody = TransactionIndex(Offset(0)), ProducerId(1)
    return index, lambda number: index.append(
        AbortedTransaction(nobody, Offset(number), Offset(number), Offset(number))
    )


@pytest.mark.parametrize("kind", [offsets, times, aborted])
def test_index_can_grow_while_a_thread_copies_it(
    kind: Callable[[], tuple[Index, Callable[[int], object]]],
) -> None:
    """A scrub copies the index in a thread while the event loop appends batches."""
    index, grow = kind()
    numbers = count(1)
    for _ in range(3):
        grow(next(numbers))

    def step(frame: FrameType, event: str, argument: object) -> "TraceFunction":
        frame.f_trace_opcodes = True
        grow(next(numbers))
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        copied = index.to_bytes()
    finally:
        sys.settrace(before)
    assert index.entries > 10
    assert index.to_bytes().startswith(copied)
    assert len(copied) >= 3 * index.ENTRY.size
    assert len(copied) % index.ENTRY.size == 0


def by_client(log: PartitionLog) -> None:
    append(log, b"cut short")


def by_coordinator(log: PartitionLog) -> None:
    end(log, 1, commit=False)


def by_leader(log: PartitionLog) -> None:
    data = made([b"cut"], base_offset=log.log_end_offset, leader_epoch=0)
    data += made([b"short"], base_offset=log.log_end_offset + 1, leader_epoch=0)
    log.append_replicated(data, fetched_offset=log.log_end_offset, now_ms=0)


@each_case("appending", [by_client, by_coordinator, by_leader])
@each_case("index", [OffsetIndex, TimeIndex])
def test_c6_partial_append_fails_the_log(
    appending: Callable[[PartitionLog], None],
    index: type[Index],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SimulatedDisk()
    log = new_log(disk, RULES)
    for number in range(5):
        append(log, b"%d" % number, timestamp=number - 10, producer_id=1, sequence=number)
    before, size = contents(log), log.segments.active.size

    def fails(*arguments: object) -> None:
        raise MemoryError("ordered")

    with monkeypatch.context() as ordered:
        ordered.setattr(index, "append", fails)
        with pytest.raises(MemoryError):
            appending(log)
    assert (contents(log), log.segments.active.size) == (before, size)
    for another in (by_client, by_coordinator, by_leader):
        with pytest.raises(StorageFailure, match="failed midway"):
            another(log)
    with pytest.raises(StorageFailure, match="failed midway"):
        finish(log.close())
    again = opened(disk, RULES, clean=False).log
    assert contents(again)[:5] == before
    assert [offset for offset, _ in contents(again)] == [*range(len(contents(again)))]


def test_c6_failed_write_is_undone() -> None:
    disk = SimulatedDisk()
    log = new_log(disk, RULES)
    append(log, b"a")
    disk.fails = lambda what, path: what == "write"
    for appending in (by_client, by_coordinator, by_leader):
        with pytest.raises(StorageFailure, match="injected failure"):
            appending(log)
    disk.fails = lambda what, path: False
    append(log, b"b")
    assert contents(log) == [(0, b"a"), (1, b"b")]
