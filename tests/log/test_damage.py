"""Damage below the recovery point is never truncated and never served (rule C4)."""

from collections.abc import Iterator, Set
from random import Random
from typing import NamedTuple

import pytest

from cases import each_case
from log.logs import FOLDER, SMALL, append, contents, end, fill, made, new_log, opened, raw
from ottla.errors import ErrorCode, RequestError, StorageExhausted, StorageFailure
from ottla.ids import LeaderEpoch, Offset, ProducerId
from ottla.log.damage import Damage, format_damage, offset_ranges, parse_damage
from ottla.log.disk import read_whole
from ottla.log.errors import CorruptText
from ottla.log.log_config import LogConfig
from ottla.log.names import DAMAGED_OFFSETS
from ottla.log.partition_log import OpenedLog, PartitionLog
from ottla.records.batch import BatchHeader, batches
from ottla.records.errors import CorruptRecords
from ottla.testing.disk import Crashed, Loss, SimulatedDisk, finish
from sampling import sample

BYTES_SAMPLED = 12  # of each batch
BITS_SAMPLED = 16
LENGTHS_SAMPLED = 40
RUNS_SAMPLED = 12

END = 60


async def no_pause(_: int) -> None:
    """Scrub without a pause."""


class BatchPosition(NamedTuple):
    """The position of a batch in a file."""

    header: BatchHeader
    position: int

    @property
    def end(self) -> int:
        return self.position + self.header.size


class DamagedLog:
    """A log whose records are all on the device, with damage in one of its files."""

    def __init__(self, segment: str, *, clean: bool, rules: LogConfig = SMALL) -> None:
        self.clean = clean
        self.rules = rules
        self.disk = SimulatedDisk()
        log = new_log(self.disk, rules)
        number = 0
        while log.log_end_offset < END:
            values = [bytes([7 * number % 256]) * (number % 5 * 9)] * (1 + number % 3)
            sequence = log.log_end_offset if number % 2 else 0
            append(
                log,
                *values,
                timestamp=10 * number,
                producer_id=number if number % 2 else -1,
                sequence=sequence,
            )
            number += 1
        finish(log.close() if clean else log.flush())
        self.expected = {one.header.base_offset: one.data for one in batches(raw(log))}
        files = [one.file.path for one in log.segments]
        assert len(files) >= 4
        self.name = files[-1 if segment == "active" else 1].rsplit("/", 1)[1]
        self.end = log.log_end_offset
        self.file = read_whole(self.disk, f"{FOLDER}/{self.name}")
        self.places: list[BatchPosition] = []
        for batch in batches(self.file):
            at = self.places[-1].end if self.places else 0
            self.places.append(BatchPosition(batch.header, at))
        self.disk.sync_directory(FOLDER)

    def with_file(self, data: bytes) -> SimulatedDisk:
        """A copy of the disk on which the file has other content."""
        disk = self.disk.after_crash(Loss.ALL, Random(0))
        disk.remove(f"{FOLDER}/{self.name}")
        disk.open(f"{FOLDER}/{self.name}", create=True).write([data], 0)
        return disk

    def opened(self, disk: SimulatedDisk, *, clean: bool | None = None) -> OpenedLog:
        return opened(
            disk,
            self.rules,
            clean=self.clean if clean is None else clean,
            recovery_point=self.end,
        )

    def check(self, log: PartitionLog, hit: Set[int]) -> None:
        """Check that damaged batches are refused and that all others are served unchanged."""
        assert log.log_end_offset >= self.end
        for base_offset, data in self.expected.items():
            if base_offset in hit:
                assert code_of(log, base_offset) is ErrorCode.CORRUPT_MESSAGE
                last = base_offset + next(batches(data)).header.last_offset_delta
                assert code_of(log, last) is ErrorCode.CORRUPT_MESSAGE
            else:
                found = finish(finish(log.read(base_offset, self.end, 1)).read())
                assert found == data
        known = {o for one in log.damaged for o in range(one.first_offset, one.end_offset)}
        assert known & set(self.expected) == hit

    def endure(self, data: bytes, hit: Set[int], *, scrubbed: bool) -> None:
        """Open and scrub the log, and open it again after a clean and after an unclean shutdown."""
        disk = self.with_file(data)
        log = self.opened(disk).log
        for base_offset in self.expected:
            code_of(log, base_offset)  # any answer is allowed, but no exception
        if scrubbed:
            finish(log.scrub(no_pause))
        self.check(log, hit)
        log.begin_epoch(LeaderEpoch(1))
        append(log, b"more", timestamp=10_000)
        assert contents(log, self.end)[-1][1] == b"more"
        point = log.recovery_point
        killed = opened(disk, self.rules, clean=False, recovery_point=point).log
        self.check(killed, hit)
        assert killed.log_end_offset == self.end + 1
        finish(killed.close())
        again = opened(disk, self.rules, recovery_point=killed.recovery_point).log
        self.check(again, hit)
        assert read_whole(disk, f"{FOLDER}/{self.name}")[: len(data)] == data
        assert contents(again, self.end)[-1][1] == b"more"


def code_of(log: PartitionLog, offset: int) -> ErrorCode | None:
    try:
        found = finish(log.read(offset, log.log_end_offset, 10**6))
    except RequestError as error:
        return error.code
    finish(found.read())
    return None


@pytest.fixture(params=["rolled", "active"])
def segment(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=[True, False], ids=["clean", "unclean"])
def clean(request: pytest.FixtureRequest) -> bool:
    return request.param


def test_c4_every_byte_flip_is_handled(segment: str, clean: bool) -> None:
    damaged = DamagedLog(segment, clean=clean)
    scrubbed = clean or segment == "rolled"
    for number in (0, 2, len(damaged.places) - 1):
        header, position = damaged.places[number]
        for at in sample(range(position, position + header.size), BYTES_SAMPLED):
            data = bytearray(damaged.file)
            data[at] ^= 1 << (at % 8)
            if 12 <= at - position < 16:
                continue  # no CRC covers the leader epoch; the records are undamaged
            damaged.endure(bytes(data), {header.base_offset}, scrubbed=scrubbed)


@pytest.mark.parametrize("bits", [0x01, 0x02, 0x04, 0x08, 0x10, 0x80, 0xFF])
def test_c4_flipped_framing_fields_are_handled(segment: str, clean: bool, bits: int) -> None:
    """Base offset, length and magic: the bytes that locate the next batch."""
    damaged = DamagedLog(segment, clean=clean)
    scrubbed = clean or segment == "rolled"
    header, position = damaged.places[2]
    for at in (*range(12), 16):
        data = bytearray(damaged.file)
        data[position + at] ^= bits
        damaged.endure(bytes(data), {header.base_offset}, scrubbed=scrubbed)


def test_c4_damaged_base_offset_is_not_served_before_a_scrub(segment: str) -> None:
    """No CRC covers it, but its neighbours and the index contradict it."""
    damaged = DamagedLog(segment, clean=True)
    served: list[tuple[int, int]] = []
    for header, position in damaged.places:
        for bit in sample(range(64), BITS_SAMPLED):
            data = bytearray(damaged.file)
            data[position + bit // 8] ^= 1 << (bit % 8)
            log = damaged.opened(damaged.with_file(bytes(data))).log
            if code_of(log, header.base_offset) is not ErrorCode.CORRUPT_MESSAGE:
                served.append((header.base_offset, bit))
    assert served == []


def test_damage_that_a_fetch_finds_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    damaged = DamagedLog("rolled", clean=True)
    header, position = damaged.places[2]
    data = bytearray(damaged.file)
    data[position + 3] ^= 0x40  # of the base offset
    disk = damaged.with_file(bytes(data))
    log = damaged.opened(disk).log
    for _ in range(3):
        assert code_of(log, header.base_offset) is ErrorCode.CORRUPT_MESSAGE
    finish(log.close())
    again = damaged.opened(disk).log
    assert code_of(again, header.base_offset) is ErrorCode.CORRUPT_MESSAGE
    (line,) = [one for one in caplog.records if one.msg == "damage found"]
    assert line.levelname == "ERROR"
    assert line.args == {
        "partition": "t-0",
        "file": f"{FOLDER}/{damaged.name}",
        "offsets": f"{header.base_offset} to {header.last_offset}",
        "bytes": header.size,
    }


def test_damaged_ranges_of_a_log_line_are_limited() -> None:
    ranges = [Damage(Offset(10 * n), Offset(10 * n + 2), 100 * n, 50) for n in range(12)]
    assert offset_ranges(ranges[:2]) == "0 to 1, 10 to 11"
    assert offset_ranges(ranges).endswith(", 90 to 91 and 2 more ranges")


def runs(damaged: DamagedLog) -> Iterator[tuple[int, int]]:
    size = len(damaged.file)
    every = [
        (start, min(start + length, size))
        for length in (1, 8, 61, 150, 400)
        for start in range(0, size, 37)
    ]
    yield from sample(every, RUNS_SAMPLED)
    yield 0, size


@pytest.mark.parametrize("byte", [0x00, 0x02, 0xFF])
def test_c4_runs_of_one_byte_are_handled(segment: str, clean: bool, byte: int) -> None:
    damaged = DamagedLog(segment, clean=clean)
    scrubbed = clean or segment == "rolled"
    for start, stop in runs(damaged):
        data = damaged.file[:start] + bytes([byte]) * (stop - start) + damaged.file[stop:]
        hit = {
            place.header.base_offset
            for place in damaged.places
            if differs(damaged.file, data, place)
        }
        damaged.endure(data, hit, scrubbed=scrubbed)


def differs(before: bytes, after: bytes, place: BatchPosition) -> bool:
    """Whether a batch differs by more than its leader epoch."""
    pieces = (slice(place.position, place.position + 12), slice(place.position + 16, place.end))
    return any(before[piece] != after[piece] for piece in pieces)


def test_c4_every_truncated_length_is_handled(segment: str, clean: bool) -> None:
    damaged = DamagedLog(segment, clean=clean)
    scrubbed = clean or segment == "rolled"
    ends = [place.end for place in damaged.places]
    for length in {*sample(range(len(damaged.file)), LENGTHS_SAMPLED), *ends[:-1], 0}:
        if length in ends and not (clean and segment == "active"):
            continue  # see below
        if not length and not clean and segment == "active":
            continue  # the log ends before it
        hit = {p.header.base_offset for p in damaged.places if p.end > length}
        damaged.endure(damaged.file[:length], hit, scrubbed=scrubbed)


def test_c4_index_reveals_a_truncation_between_batches() -> None:
    damaged = DamagedLog("rolled", clean=True)
    place = damaged.places[-3]
    hit = {p.header.base_offset for p in damaged.places if p.end > place.end}
    damaged.endure(damaged.file[: place.end], hit, scrubbed=False)


@pytest.mark.parametrize("lost", ["index", "timeindex", ""])
def test_c4_emptied_segment_is_noticed_at_the_start(lost: str, clean: bool) -> None:
    """Its indexes still have entries; one of them is enough."""
    damaged = DamagedLog("rolled", clean=clean)
    if lost:
        damaged.disk.remove(f"{FOLDER}/{damaged.name[:20]}.{lost}")
        damaged.disk.sync_directory(FOLDER)
    first, last = damaged.places[0].header, damaged.places[-1].header
    offsets = f"{first.base_offset} to {last.last_offset}"
    (note,) = damaged.opened(damaged.with_file(b"")).notes
    assert note == f"{FOLDER}/{damaged.name}: offsets {offsets} are damaged and not served"
    hit = {place.header.base_offset for place in damaged.places}
    damaged.endure(b"", hit, scrubbed=False)


def test_c4_emptied_segment_is_noticed_after_a_crash_of_the_start() -> None:
    """The old indexes stay until the damage is stored: they are the only evidence."""
    damaged = DamagedLog("rolled", clean=True)
    hit = {place.header.base_offset for place in damaged.places}
    disk = damaged.with_file(b"")
    disk.sync_directory(FOLDER)
    whole = disk.after_crash(Loss.ALL, Random(0))
    before = len(whole.calls)
    damaged.opened(whole)
    crashes = range(before, len(whole.calls))
    assert len(crashes) >= 8
    for loss in Loss:
        for crash_at in crashes:
            crashed = disk.after_crash(Loss.ALL, Random(0))
            crashed.crash_at = crash_at
            with pytest.raises(Crashed):
                damaged.opened(crashed)
            damaged.check(damaged.opened(crashed.after_crash(loss, Random(0))).log, hit)


def test_empty_segment_without_index_entries_is_not_damaged() -> None:
    """Ottla's cleaner and Kafka's leave one if they keep no record of a segment."""
    damaged = DamagedLog("rolled", clean=True)
    disk = damaged.with_file(b"")
    for suffix in ("index", "timeindex"):
        disk.open(f"{FOLDER}/{damaged.name[:20]}.{suffix}").truncate(0)
    found = damaged.opened(disk)
    assert found.notes == []
    assert found.log.damaged == ()
    assert code_of(found.log, damaged.places[0].header.base_offset) is None


def test_c4_damage_is_found_without_an_index() -> None:
    damaged = DamagedLog("rolled", clean=True)
    header, position = damaged.places[3]
    data = bytearray(damaged.file)
    data[position + 10] ^= 1
    for suffix in ("index", "timeindex"):
        damaged.disk.remove(f"{FOLDER}/{damaged.name[:20]}.{suffix}")
    damaged.disk.sync_directory(FOLDER)
    damaged.endure(bytes(data), {header.base_offset}, scrubbed=False)


@pytest.mark.parametrize("how", ["garbage", "zeros", "cut"])
def test_c4_wrong_index_does_not_mislead_readers(how: str) -> None:
    damaged = DamagedLog("rolled", clean=True)
    path = f"{FOLDER}/{damaged.name[:20]}.index"
    index = read_whole(damaged.disk, path)
    wrong = {"garbage": b"\xff" * len(index), "zeros": bytes(len(index)), "cut": index[:-3]}[how]
    damaged.disk.remove(path)
    damaged.disk.open(path, create=True).write([wrong], 0)
    damaged.disk.open(path).sync()
    damaged.disk.sync_directory(FOLDER)
    header, position = damaged.places[3]
    data = bytearray(damaged.file)
    data[position + 10] ^= 1
    damaged.endure(bytes(data), {header.base_offset}, scrubbed=True)


def test_c4_several_damaged_batches_are_handled(segment: str, clean: bool) -> None:
    damaged = DamagedLog(segment, clean=clean)
    data = bytearray(damaged.file)
    hit: set[int] = set()
    for number in range(1, len(damaged.places), 2):
        header, position = damaged.places[number]
        data[position + 16 + number % 40] ^= 0x40
        hit.add(header.base_offset)
    damaged.endure(bytes(data), hit, scrubbed=True)


def test_c4_batch_inside_a_damaged_batch_is_not_served() -> None:
    """Its framing agrees with its neighbours, but it is the value of a record."""
    disk = SimulatedDisk()
    log = new_log(disk)
    fill(log, 3)
    inner = made([b"forged"], base_offset=4)
    first = append(log, b"x", inner, b"y").base_offset
    fill(log, 3)
    finish(log.flush())
    path = log.segments.active.file.path
    data = bytearray(read_whole(disk, path))
    at = data.index(inner)
    data[at - 5] ^= 1  # in the first record
    disk.remove(path)
    disk.open(path, create=True).write([bytes(data)], 0)
    log = opened(disk, clean=False, recovery_point=log.log_end_offset).log
    assert [(d.first_offset, d.end_offset) for d in log.damaged] == [(first, first + 3)]


def test_c4_readers_find_damage_without_a_scrub() -> None:
    """Without a scrub: a reader that finds no batch makes the log scan the segment."""
    damaged = DamagedLog("rolled", clean=True)
    header, position = damaged.places[1]
    data = bytearray(damaged.file)
    data[position + 8 : position + 12] = b"\xff\xff\xff\xff"
    disk = damaged.with_file(bytes(data))
    log = damaged.opened(disk).log
    assert log.damaged == ()
    behind = damaged.places[2].header.base_offset
    assert finish(finish(log.read(behind, damaged.end, 1)).read()) == damaged.expected[behind]
    assert [one.first_offset for one in log.damaged] == [header.base_offset]
    assert DAMAGED_OFFSETS in disk.names(FOLDER)
    damaged.check(log, {header.base_offset})


def test_c4_timestamp_lookup_works_around_damage() -> None:
    damaged = DamagedLog("rolled", clean=True)
    header, position = damaged.places[2]
    for at in (position + 10, position + 40, position + header.size - 1):
        data = bytearray(damaged.file)
        data[at] ^= 0x10
        log = damaged.opened(damaged.with_file(bytes(data))).log
        before, behind = damaged.places[1].header, damaged.places[3].header
        for wanted, answer in (
            (before.base_timestamp, before.base_offset),
            (header.base_timestamp, behind.base_offset),
            (behind.base_timestamp, behind.base_offset),
        ):
            found = finish(log.find_timestamp(wanted))
            assert found is not None
            assert found.offset == answer
        latest = finish(log.find_max_timestamp())
        assert latest is not None
        assert latest.offset < END + 3


def test_c4_torn_batch_above_recovery_point_is_truncated() -> None:
    damaged = DamagedLog("active", clean=False)
    for number in range(1, len(damaged.places)):
        header, position = damaged.places[number]
        for at in (0, 9, 16, 30, header.size - 1):
            data = bytearray(damaged.file)
            data[position + at] ^= 0x40
            disk = damaged.with_file(bytes(data))
            log = opened(disk, clean=False, recovery_point=header.base_offset).log
            assert log.log_end_offset == header.base_offset
            assert log.damaged == ()


def test_c4_damage_across_the_recovery_point_keeps_flushed() -> None:
    damaged = DamagedLog("active", clean=False)
    first, second, third = damaged.places[1:4]
    point = second.header.base_offset
    data = bytearray(damaged.file)
    data[first.position : second.end] = bytes(second.end - first.position)
    disk = damaged.with_file(bytes(data))
    log = opened(disk, clean=False, recovery_point=point).log
    assert log.log_end_offset == point
    assert [(d.first_offset, d.end_offset) for d in log.damaged] == [
        (first.header.base_offset, point)
    ]
    assert read_whole(disk, f"{FOLDER}/{damaged.name}") == bytes(data[: third.position])
    assert code_of(log, first.header.base_offset) is ErrorCode.CORRUPT_MESSAGE
    log.begin_epoch(LeaderEpoch(1))
    append(log, b"new")
    assert contents(log, point) == [(point, b"new")]


# Damage that is truncated, deleted or repaired.


def damage_not_found_yet() -> tuple[SimulatedDisk, PartitionLog]:
    damaged = DamagedLog("rolled", clean=True)
    data = bytearray(damaged.file)
    data[damaged.places[2].position + 30] ^= 1
    disk = damaged.with_file(bytes(data))
    return disk, damaged.opened(disk).log


def one_damage() -> tuple[SimulatedDisk, PartitionLog, Damage]:
    disk, log = damage_not_found_yet()
    (damage,) = finish(log.scrub(no_pause))
    log.begin_epoch(LeaderEpoch(1))
    return disk, log, damage


def stored(disk: SimulatedDisk) -> str | None:
    if DAMAGED_OFFSETS not in disk.names(FOLDER):
        return None
    return read_whole(disk, f"{FOLDER}/{DAMAGED_OFFSETS}").decode()


def test_c4_truncation_removes_damage() -> None:
    for back in (0, 1, -1):
        disk, log, damage = one_damage()
        finish(log.truncate_to(log.log_end_offset - 1))
        assert log.damaged == (damage,)
        finish(log.truncate_to(damage.end_offset))
        assert log.damaged == (damage,)
        assert stored(disk) is not None
        finish(log.truncate_to(damage.first_offset - back))
        assert log.log_end_offset <= damage.first_offset
        assert log.damaged == ()
        assert stored(disk) is None
        log.begin_epoch(LeaderEpoch(2))
        fill(log, 3)
        assert len(contents(log)) == log.log_end_offset


def test_c4_retention_removes_damage() -> None:
    disk, log, damage = one_damage()
    following = next(s.base_offset for s in log.segments if s.base_offset > damage.first_offset)
    log.advance_log_start(Offset(following))
    finish(log.delete_old_segments(high_watermark=log.log_end_offset, now_ms=0))
    assert log.damaged == ()
    assert stored(disk) is None
    disk, log, _ = one_damage()
    finish(log.truncate_fully_and_start_at(Offset(100)))
    assert log.damaged == ()
    assert stored(disk) is None


def test_c4_repaired_batches_are_served_again() -> None:
    disk, log, damage = one_damage()
    path = log.segments.from_offset(damage.first_offset)[0].file.path
    data = bytearray(read_whole(disk, path))
    data[damage.position + 30] ^= 1
    disk.open(path).write([bytes(data)], 0)
    assert code_of(log, damage.first_offset) is ErrorCode.CORRUPT_MESSAGE
    assert finish(log.scrub(no_pause)) == ()
    assert code_of(log, damage.first_offset) is None
    assert stored(disk) is None


def test_c4_repair_takes_the_batches_of_another_replica(segment: str, clean: bool) -> None:
    damaged = DamagedLog(segment, clean=clean)
    for first, stop in ((0, 1), (2, 3), (1, 4), (0, len(damaged.places))):
        data, start, end = bytearray(damaged.file), damaged.places[first].position, 0
        for place in damaged.places[first:stop]:
            end = place.end
            data[place.position + 8] ^= 0x20
            data[place.end - 1] ^= 1
        disk = damaged.with_file(bytes(data))
        log = damaged.opened(disk).log
        (damage,) = finish(log.scrub(no_pause))
        assert (damage.position, damage.end) == (start, end)
        assert finish(log.repair(damage, damaged.file[start:end])) is None
        damaged.check(log, set())
        assert (log.damaged, stored(disk)) == ((), None)
        assert finish(log.scrub(no_pause)) == ()
        killed = disk.after_crash(Loss.ALL, Random(0))  # the repair is on the device
        assert read_whole(killed, f"{FOLDER}/{damaged.name}")[: len(damaged.file)] == damaged.file
        damaged.check(damaged.opened(killed, clean=False).log, set())


def test_c4_repair_in_parts_keeps_the_rest_damaged() -> None:
    damaged = DamagedLog("rolled", clean=True)
    first, second, third = damaged.places[1:4]
    data = bytearray(damaged.file)
    data[first.position : third.end] = bytes(third.end - first.position)
    disk = damaged.with_file(bytes(data))
    log = damaged.opened(disk).log
    (damage,) = finish(log.scrub(no_pause))
    left = finish(log.repair(damage, damaged.file[first.position : first.end]))
    assert log.damaged == (left,)
    damaged.check(log, {second.header.base_offset, third.header.base_offset})
    again = damaged.opened(disk).log
    assert again.damaged == (left,)
    assert left is not None
    assert finish(again.repair(left, damaged.file[second.position : third.end])) is None
    damaged.check(again, set())
    assert stored(disk) is None


def test_c4_repair_restores_records_that_are_missing_at_the_end() -> None:
    damaged = DamagedLog("rolled", clean=True)
    for place, cut in zip(damaged.places, (5, 20, 61, 1), strict=False):
        disk = damaged.with_file(damaged.file[: place.position + cut])
        log = damaged.opened(disk).log
        finish(log.scrub(no_pause))
        (damage,) = log.damaged
        assert damage.size == cut
        left = finish(log.repair(damage, damaged.file[place.position : place.end]))
        assert left is not None
        assert log.damaged == (left,)
        assert finish(log.repair(left, damaged.file[place.end :])) is None
        damaged.check(log, set())
        assert read_whole(disk, f"{FOLDER}/{damaged.name}") == damaged.file
        finish(log.close())
        damaged.check(opened(disk, damaged.rules, recovery_point=damaged.end).log, set())


def test_c4_repair_refuses_what_does_not_fit() -> None:
    damaged = DamagedLog("rolled", clean=True)
    before, place, behind = damaged.places[1:4]
    data = bytearray(damaged.file)
    data[place.end - 1] ^= 1
    disk = damaged.with_file(bytes(data))
    log = damaged.opened(disk).log
    (damage,) = finish(log.scrub(no_pause))
    right = damaged.file[place.position : place.end]
    other_epoch = right[:12] + (place.header.leader_epoch + 1).to_bytes(4, "big") + right[16:]
    for records in (
        b"",
        bytes(data[place.position : place.end]),  # the other replica has the same damage
        right[:-1],
        damaged.file[before.position : before.end],
        damaged.file[behind.position : behind.end],
        damaged.file[place.position : behind.end],
        other_epoch,
    ):
        with pytest.raises(CorruptRecords):
            finish(log.repair(damage, records))
        assert log.damaged == (damage,)
        assert read_whole(disk, f"{FOLDER}/{damaged.name}") == bytes(data)
    assert finish(log.repair(damage, right)) is None
    with pytest.raises(CorruptRecords, match="no longer has"):
        finish(log.repair(damage, right))


def test_c4_repair_is_repeated_after_a_full_disk() -> None:
    damaged = DamagedLog("rolled", clean=True)
    at = damaged.places[2].position
    disk = damaged.with_file(damaged.file[: at + 5])
    log = damaged.opened(disk).log
    finish(log.scrub(no_pause))
    (damage,) = log.damaged
    disk.fill()
    with pytest.raises(StorageExhausted):
        finish(log.repair(damage, damaged.file[at:]))
    assert log.damaged == (damage,)
    disk.capacity_bytes = None
    assert finish(log.repair(damage, damaged.file[at:])) is None
    damaged.check(log, set())


def test_c4_scrub_pauses_as_its_caller_requests() -> None:
    _, log, _ = one_damage()
    told: list[int] = []

    async def pause(size: int) -> None:
        told.append(size)

    finish(log.scrub(pause))
    assert sum(told) == log.segments.size


def test_c4_truncation_during_a_scrub_marks_no_damage() -> None:
    _, log, damage = one_damage()
    segment = log.segments.from_offset(damage.first_offset)[0]
    segment.damaged = ()
    cut = False

    async def pause(_: int) -> None:
        nonlocal cut
        if not cut:
            cut = True
            await log.truncate_to(damage.first_offset)

    finish(log.scrub(pause))
    assert log.damaged == ()
    assert log.log_end_offset == damage.first_offset


def test_c4_producers_are_rebuilt_from_undamaged_batches() -> None:
    damaged = DamagedLog("active", clean=False)
    odd = [place for place in damaged.places if place.header.producer_id >= 0]
    header, position = odd[1]
    data = bytearray(damaged.file)
    data[position + 10] ^= 1
    log = damaged.opened(damaged.with_file(bytes(data))).log
    assert log.producers.get(header.producer_id) is None
    assert log.producers.get(odd[0].header.producer_id) is not None
    assert log.producers.get(odd[2].header.producer_id) is not None


def test_c4_damaged_marker_leaves_its_transaction_open() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    append(log, b"t", producer_id=5, transactional=True)
    marker = end(log, 5, commit=False).base_offset
    fill(log, 2)
    finish(log.flush())
    path = log.segments.active.file.path
    data = bytearray(read_whole(disk, path))
    second = next(batches(bytes(data))).header.size
    data[second + 65] ^= 1
    disk.open(path).write([bytes(data)], 0)
    log = opened(disk, clean=False, recovery_point=4).log
    assert [one.first_offset for one in log.damaged] == [marker]
    assert log.producers.first_open_offset == 0
    assert log.last_stable_offset(log.log_end_offset) == 0
    assert log.producers.get(ProducerId(5)) is not None


# The file of damaged ranges.


class Marked(NamedTuple):
    base_offset: Offset
    damaged: tuple[Damage, ...]


def test_damage_file_round_trips() -> None:
    damages = (Damage(Offset(3), Offset(3), 10, 20), Damage(Offset(5), Offset(9), 30, 0))
    segments = [Marked(Offset(0), damages), Marked(Offset(9), ()), Marked(Offset(20), damages[:1])]
    assert parse_damage(format_damage(segments)) == {0: damages, 20: damages[:1]}
    assert format_damage(segments[1:2]) == ""
    assert parse_damage("") == {}


@each_case(
    "lines",
    [
        "0 1 2 3",
        "0 1 2 3 x",
        "0 1 2 3 -1",
        "0 1 2 5 4",
        "0 9 2 0 1\n0 10 2 1 2",
        "0 9 0 0 1\n0 10 2 1 2",
    ],
)
def test_invalid_damage_file_is_rejected(lines: str) -> None:
    count = len(lines.splitlines())
    with pytest.raises(CorruptText):
        parse_damage(f"0\n{count}\n{lines}\n")


def test_unreadable_damage_file_is_reported_and_rewritten() -> None:
    disk, log, damage = one_damage()
    finish(log.close())
    path = f"{FOLDER}/{DAMAGED_OFFSETS}"
    disk.open(path).write([b"nonsense"], 0)
    again = opened(disk, recovery_point=log.recovery_point)
    assert any(DAMAGED_OFFSETS in note for note in again.notes)
    assert again.log.damaged == ()
    assert stored(disk) is None
    assert finish(again.log.scrub(no_pause)) == (damage,)


def test_damage_outside_of_the_files_is_ignored() -> None:
    disk, log, damage = one_damage()
    finish(log.close())
    path = f"{FOLDER}/{DAMAGED_OFFSETS}"
    text = stored(disk)
    assert text is not None
    base = log.segments.from_offset(damage.first_offset)[0].base_offset
    more = f"{base} 900000 10 {damage.end_offset} {damage.end_offset}\n99999 0 10 99999 99999\n"
    disk.remove(path)
    disk.open(path, create=True).write([(text.replace("\n1\n", "\n3\n") + more).encode()], 0)
    again = opened(disk, recovery_point=log.recovery_point)
    assert again.log.damaged == (damage,)
    assert stored(disk) == text


def test_disk_failure_while_storing_damage_fails_the_log() -> None:
    disk, log = damage_not_found_yet()
    log.begin_epoch(LeaderEpoch(1))
    disk.fails = lambda what, path: what == "sync"
    with pytest.raises(StorageFailure):
        finish(log.scrub(no_pause))
    with pytest.raises(StorageFailure):
        append(log, b"x")
