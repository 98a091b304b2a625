"""Every operation on a log, on a disk that becomes full at one of its calls.

`make test` takes a sample of the calls; `make soak` takes all of them. The operation fails with
DiskFull. The log is then as before or as after the operation, a restarted broker finds the same,
and everything continues once there is space.
"""

from collections.abc import Callable, Coroutine
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple

from cases import each_case
from log.log_model import no_pause
from log.logs import FOLDER, append, end, made, opened
from ottla.errors import (
    DescriptorsExhausted,
    DiskFull,
    ErrorCode,
    RequestError,
    StorageExhausted,
)
from ottla.ids import LeaderEpoch, Offset
from ottla.log.cleaner.cleaner_runners import CleaningFailed, LocalCleaner
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.records.batch import batches
from ottla.testing.disk import SimulatedDisk, SimulatedFile, finish
from sampling import sample

RULES = LogConfig(segment_bytes=600, index_interval_bytes=150, retention_ms=20)
COMPACTED = replace(RULES, compact=True, delete=False)


class FillingDisk(SimulatedDisk):
    """Fails to create, write and rename to longer names from one of its calls on.

    Or fails to open files, as for a process that has too many open files.
    """

    full_from: int | None = None
    opens_left: int | None = None
    opens: int = 0

    def refuse(self, what: str, path: str) -> None:
        if self.full_from is not None and len(self.calls) >= self.full_from:
            raise DiskFull(f"{path}: {what}: no space left on the disk")

    def call(self, what: str, path: str) -> None:
        if what in ("create", "write"):
            self.refuse(what, path)
        super().call(what, path)

    def open(self, path: str, *, create: bool = False, private: bool = False) -> SimulatedFile:
        self.opens += 1
        if self.opens_left is not None:
            if not self.opens_left:
                raise DescriptorsExhausted(f"{path}: open: too many open files")
            self.opens_left -= 1
        return super().open(path, create=create, private=private)

    def rename(self, old: str, new: str) -> None:
        if len(new) > len(old):
            self.refuse("rename", old)
        super().rename(old, new)


class OpenLog(NamedTuple):
    """A log with the arguments that opened it."""

    disk: FillingDisk
    log: PartitionLog


def situation(rules: LogConfig, *, rotten: bool) -> OpenLog:
    """A log with several segments, epochs, producers, an aborted and an open transaction, and
    damage.
    """
    disk = FillingDisk()
    log = opened(disk, rules).log
    log.begin_epoch(LeaderEpoch(0))
    for number in range(8):
        append(log, b"%d" % number + bytes(50), keys=[b"%d" % (number % 3)], timestamp=number)
    append(log, b"a", b"b", producer_id=1, transactional=True, timestamp=8)
    end(log, 1, commit=False)
    log.begin_epoch(LeaderEpoch(2))
    for number in range(11, 20):
        append(log, b"%d" % number + bytes(50), keys=[b"%d" % (number % 3)], timestamp=number)
        append(log, b"p", producer_id=2, sequence=number - 11, timestamp=number)
    finish(log.flush())
    if rotten:
        disk.rot(f"{FOLDER}/00000000000000000000.log", 70)
        disk.rot(log.segments.active.file.path, 70)
        assert len(finish(log.scrub(no_pause))) == 2
    log.begin_epoch(LeaderEpoch(4))
    append(log, b"x" * 50, producer_id=3, transactional=True, timestamp=30)
    append(log, b"y" * 50, b"z" * 50, timestamp=31)
    return OpenLog(disk, log)


def served(log: PartitionLog) -> list[tuple[int, bytes]]:
    """The batches that can be read, and the errors where the log reports damage."""
    found: list[tuple[int, bytes]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            piece = finish(finish(log.read(offset, log.log_end_offset, 1)).read())
        except RequestError as error:
            if error.code is not ErrorCode.CORRUPT_MESSAGE:
                raise
            offset = next(one.end_offset for one in log.damaged if one.end_offset > offset)
            found.append((offset, b"damaged"))
            continue
        if not piece:
            break
        (batch,) = batches(piece)
        found.append((batch.header.base_offset, bytes(piece)))
        offset = batch.header.next_offset
    return found


def facts(log: PartitionLog) -> dict[str, object]:
    """The whole observable state of a log."""
    last = log.log_end_offset
    return {
        "offsets": (log.log_start_offset, last),
        "served": served(log),
        "epochs": list(log.epochs),
        "producers": sorted(
            (p.producer_id, p.epoch, p.last_sequence, str(p.last_offset)) for p in log.producers
        ),
        "stable": log.last_stable_offset(last),
        "aborted": log.aborted_transactions(log.log_start_offset, last),
        "damaged": log.damaged,
    }


def check_kill(now: OpenLog, rules: LogConfig) -> None:
    """Check that the next process, with free space, finds the state of this one."""
    disk = deepcopy(now.disk).after_kill()
    assert isinstance(disk, FillingDisk)
    disk.full_from = disk.opens_left = None
    found = opened(
        disk,
        rules,
        clean=False,
        recovery_point=now.log.recovery_point,
        log_start=now.log.log_start_offset,
    )
    then, expected = facts(found.log), facts(now.log)
    for log, told in ((found.log, then), (now.log, expected)):
        # An epoch without records begins again with its leader.
        told["epochs"] = [e for e in log.epochs if e.start_offset < log.log_end_offset]
    if now.log.snapshots.due:
        # If all records are deleted, only the next flush stores their producers.
        then["producers"] = expected["producers"] = None
    assert then == expected


async def compact(log: PartitionLog) -> None:
    log.config = replace(log.config, segment_bytes=100_000)  # one group: swaps all or none
    await log.compact(
        LocalCleaner(),
        None,
        high_watermark=log.log_end_offset,
        secret=bytes(16),
        clock_ms=lambda: 1000,
    )


async def delete_records(log: PartitionLog, upto: int) -> None:
    log.advance_log_start(Offset(upto))
    await log.delete_old_segments(high_watermark=log.log_end_offset, now_ms=0)


async def find_damage(log: PartitionLog) -> None:
    assert isinstance(log.disk, SimulatedDisk)
    log.disk.rot(list(log.segments)[1].file.path, 70)
    await log.scrub(no_pause)


async def fetch(log: PartitionLog, size: int) -> None:
    data = made([bytes(size)], base_offset=log.log_end_offset, leader_epoch=5)
    log.append_replicated(data, fetched_offset=log.log_end_offset, now_ms=0)


async def produce(log: PartitionLog, size: int) -> None:
    append(log, bytes(size), timestamp=32, producer_id=2, sequence=9)


async def end_transaction(log: PartitionLog) -> None:
    end(log, 3, commit=False)


async def roll(log: PartitionLog) -> None:
    log.roll(0)


async def retain(log: PartitionLog, now_ms: int) -> None:
    await log.delete_old_segments(high_watermark=log.log_end_offset, now_ms=now_ms)
    await log.purge(now_ms + RULES.file_delete_delay_ms)


async def begin_epoch(log: PartitionLog) -> None:
    log.begin_epoch(LeaderEpoch(7))


async def truncate_pinned(log: PartitionLog, offset: int) -> None:
    assert isinstance(log.disk, SimulatedDisk)
    log.disk.pinned = True
    await log.truncate_to(offset)


OPERATIONS: dict[str, Callable[[PartitionLog], Coroutine[Any, Any, object]]] = {
    "append": lambda log: produce(log, 10),
    "append to the next segment": lambda log: produce(log, 500),
    "end a transaction": end_transaction,
    "append what was fetched": lambda log: fetch(log, 10),
    "append what was fetched to the next segment": lambda log: fetch(log, 500),
    "roll": roll,
    "flush": lambda log: log.flush(),
    "begin an epoch": begin_epoch,
    "cut the last batch": lambda log: log.truncate_to(log.log_end_offset - 1),
    "cut to an earlier epoch": lambda log: log.truncate_to(13),
    "cut in the first segment": lambda log: log.truncate_to(3),
    "cut everything": lambda log: log.truncate_to(0),
    "cut what was sent from its file": lambda log: truncate_pinned(log, 13),
    "cut everything that was sent from its file": lambda log: truncate_pinned(log, 0),
    "forget an epoch without records": lambda log: log.truncate_to(log.log_end_offset),
    "restart at an offset": lambda log: log.truncate_fully_and_start_at(Offset(1000)),
    "restart at the first offset": lambda log: log.truncate_fully_and_start_at(Offset(0)),
    "delete records": lambda log: delete_records(log, 12),
    "delete all records": lambda log: delete_records(log, log.log_end_offset),
    "delete what is old": lambda log: retain(log, 34),
    "delete all that is old": lambda log: retain(log, 1000),
    "find damage": find_damage,
    "compact": compact,
}


# These delete segments whose producers are in a durable snapshot; other segments wait.
GRADUAL = {"delete all records", "delete all that is old"}


def check_part_way(before: dict[str, Any], found: dict[str, Any], after: dict[str, Any]) -> None:
    """Check that only a prefix of the records to delete is gone."""
    assert before["offsets"][0] <= found["offsets"][0] <= after["offsets"][0]
    assert found["offsets"][1] == after["offsets"][1]
    assert found["served"] == before["served"][len(before["served"]) - len(found["served"]) :]
    assert len(found["served"]) >= len(after["served"])
    assert {*after["damaged"]} <= {*found["damaged"]} <= {*before["damaged"]}
    assert found["producers"] == before["producers"]


def done(operation: str, now: OpenLog) -> bool:
    """Whether the operation did not fail with DiskFull."""
    try:
        finish(OPERATIONS[operation](now.log))
    except (StorageExhausted, CleaningFailed):
        return False
    return True


@each_case("rotten", [False, True])
@each_case("operation", list(OPERATIONS))
def test_c6_operations_fail_on_a_full_disk_and_recover(operation: str, rotten: bool) -> None:
    rules = COMPACTED if operation == "compact" else RULES
    rotten = rotten and operation != "compact"  # damaged segments are not cleaned
    start = situation(rules, rotten=rotten)
    if operation == "forget an epoch without records":
        start.log.begin_epoch(LeaderEpoch(6))
    before, first, opens = facts(start.log), len(start.disk.calls), start.disk.opens
    undisturbed = deepcopy(start)
    assert done(operation, undisturbed)
    after, last = facts(undisturbed.log), len(undisturbed.disk.calls)
    full = [(at, None) for at in range(first, last + 1)]
    too_many = [(None, left) for left in range(undisturbed.disk.opens - opens)]
    check_kill(undisturbed, rules)
    for full_from, opens_left in (*sample(full, 6), *sample(too_many, 3)):
        now = deepcopy(start)
        now.disk.full_from, now.disk.opens_left = full_from, opens_left
        was_done = done(operation, now)
        found = facts(now.log)
        if operation in GRADUAL and found not in (before, after):
            check_part_way(before, found, after)
            was_done = False
        assert was_done or operation in GRADUAL or found in (before, after), (full_from, opens_left)
        assert found == after or not was_done, (full_from, opens_left)
        if not now.log.flush_retry_due:
            check_kill(now, rules)
        now.disk.full_from = now.disk.opens_left = None
        finish(now.log.flush())
        assert facts(now.log) == found
        assert not now.log.flush_retry_due
        check_kill(now, rules)
        if not was_done:
            assert done(operation, now)
            assert facts(now.log) == after, (full_from, opens_left)
        epoch = LeaderEpoch(9)
        now.log.begin_epoch(epoch)
        base = append(now.log, b"there is room").base_offset
        assert served(now.log)[-1][0] == base
        whole = facts(now.log)
        finish(now.log.close())
        again = opened(
            now.disk,
            rules,
            recovery_point=now.log.recovery_point,
            log_start=now.log.log_start_offset,
        )
        assert facts(again.log) == whole
