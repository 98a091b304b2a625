"""Listing and checking the files of a data directory, and the limits of both."""

import os
import resource
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from cases import each_case
from inspection.inspected_directory import (
    DATA,
    OTHER,
    PARTITIONS,
    checked,
    content,
    damage,
    data_directory,
    each,
    history,
    ignore_progress,
    paths,
    put,
    write_offsets,
)
from log.logs import FOLDER, append, fill, made, new_log
from ottla.errors import StorageFailure
from ottla.inspection.contents import Content, identify
from ottla.inspection.directory_check import check_file
from ottla.inspection.entries import (
    AbortedEntry,
    BatchEntry,
    CheckpointEntry,
    Entry,
    EpochEntry,
    FactsEntry,
    FileEntry,
    OffsetIndexEntry,
    ProducerStateEntry,
    RecordEntry,
    TimeIndexEntry,
)
from ottla.inspection.findings import FINDINGS_PER_FILE_MAX, Finding, Level, capped
from ottla.inspection.listing import View, list_directory, list_file, list_partition
from ottla.inspection.segment_check import Tally
from ottla.log.files import OsDisk
from ottla.log.names import CLEANED_OFFSETS, HIGH_WATERMARKS, RECOVERY_POINTS
from ottla.records.batch import HEADER_SIZE, write_header
from ottla.records.compression import Compression, compress
from ottla.testing.disk import SimulatedDisk, finish

FIRST = f"{FOLDER}/00000000000000000000"
SECOND = f"{FOLDER}/00000000000000000017"
ACTIVE = f"{FOLDER}/00000000000000000026"


def listed(disk: SimulatedDisk, view: View | None = None) -> list[Entry | Finding]:
    return list(list_directory(disk, DATA, view or View(), ignore_progress))


# Listing.


def test_every_file_is_listed_once_in_order() -> None:
    disk = data_directory()
    files = [entry.path for entry in listed(disk) if isinstance(entry, FileEntry)]
    assert sorted(files) == sorted(paths(disk))
    names = [path.removeprefix(f"{DATA}/") for path in files]
    assert names[:2] == ["meta.properties", ".kafka_cleanshutdown"]
    of_first = [name for name in names if name.startswith("t-0")]
    assert of_first[:6] == [
        "t-0/partition.metadata",
        "t-0/leader-epoch-checkpoint",
        "t-0/00000000000000000000.log",
        "t-0/00000000000000000000.index",
        "t-0/00000000000000000000.timeindex",
        "t-0/00000000000000000000.txnindex",
    ]


def test_listing_has_the_content_of_the_files() -> None:
    found = listed(data_directory(), View(records=True))
    assert [entry for entry in found if isinstance(entry, Finding)] == []
    offsets = [entry.offset for entry in found if isinstance(entry, RecordEntry)]
    assert offsets == [*range(31), 0, 1]
    aborted = [entry for entry in found if isinstance(entry, AbortedEntry)]
    assert aborted == [AbortedEntry(0, 6, 6, 16, 4), AbortedEntry(0, 5, 4, 23, 24)]
    assert [e for e in found if isinstance(e, EpochEntry)] == [
        EpochEntry(0, 2),
        EpochEntry(2, 7),
        EpochEntry(0, 0),
    ]
    assert CheckpointEntry("t", 0, 31) in found
    facts = [dict(entry.facts) for entry in found if isinstance(entry, FactsEntry)]
    assert facts[0]["cluster_id"] == "kmTz0oq_QEuTJkbO1bVnOg"
    assert facts[1] == {"broker_epoch": 21}
    producers = [entry for entry in found if isinstance(entry, ProducerStateEntry)]
    assert [p.transaction_first_offset for p in producers if p.producer_id == 8] == [29]
    markers = [e.control for e in found if isinstance(e, RecordEntry) and e.control is not None]
    assert len(markers) == 2
    sequences = [e.sequence for e in found if isinstance(e, RecordEntry) and e.offset in (24, 25)]
    assert sequences == [0, 1]


def test_listing_selects_a_range_of_offsets() -> None:
    view = View(records=True, from_offset=6, to_offset=18)
    found = list(list_partition(data_directory(), FOLDER, view, ignore_progress))
    assert [e.offset for e in found if isinstance(e, RecordEntry)] == list(range(6, 18))
    batches = [e.header for e in found if isinstance(e, BatchEntry)]
    assert (batches[0].base_offset, batches[-1].last_offset) == (6, 17)
    indexed = [e.offset for e in found if isinstance(e, OffsetIndexEntry | TimeIndexEntry)]
    assert indexed
    assert all(6 <= offset < 18 for offset in indexed)
    assert not any(e.path.startswith(ACTIVE + ".log") for e in found if isinstance(e, FileEntry))


def test_listing_limits_the_entries_of_each_file() -> None:
    counts: Counter[str] = Counter()
    path = ""
    for entry in listed(data_directory(), View(entries_max=2)):
        if isinstance(entry, FileEntry):
            path = entry.path
        else:
            counts[path] += 1
    assert max(counts.values()) == 2
    records = listed(data_directory(), View(records=True, entries_max=3))
    assert [e.offset for e in records if isinstance(e, RecordEntry)][:4] == [0, 1, 2, 17]


def test_listing_continues_after_damage() -> None:
    disk = data_directory()
    data = bytearray(content(disk, f"{FIRST}.log"))
    data[100] ^= 1
    put(disk, f"{FIRST}.log", bytes(data))
    found = list(list_file(disk, f"{FIRST}.log", View(), ignore_progress))
    assert [e.crc_ok for e in found if isinstance(e, BatchEntry)] == [False, *[True] * 7]
    assert [(e.position, e.problem) for e in found if isinstance(e, Finding)] == [(0, "wrong CRC")]


@each_case(
    ("name", "content"),
    [
        ("00000000000000000005.log", Content.RECORDS),
        ("00000000000000000005.log.deleted", Content.RECORDS),
        ("00000000000000000005.timeindex.cleaned", Content.TIME_INDEX),
        ("00000000000000000005.snapshot", Content.PRODUCER_SNAPSHOT),
        ("copy of a.log", Content.RECORDS),
        ("leader-epoch-checkpoint", Content.LEADER_EPOCHS),
        ("recovery-point-offset-checkpoint", Content.OFFSETS),
        (".lock", None),
        ("notes.txt", None),
    ],
)
def test_files_are_recognised_by_name(name: str, content: Content | None) -> None:
    identity = identify(name)
    assert (identity and identity.content) == content


def test_check_changes_and_locks_nothing() -> None:
    disk = data_directory()
    held = disk.lock(f"{DATA}/.lock")
    calls = list(disk.calls)
    listed(disk, View(records=True))
    checked(disk)
    assert disk.calls == calls
    assert held is not None
    assert disk.lock(f"{DATA}/.lock") is None


# Checking directories as brokers, crashes and operators leave them.


def test_log_that_is_being_written_has_no_damage() -> None:
    """The index files of the active segment are written when it is closed."""
    disk = SimulatedDisk()
    disk.make_directory(DATA)
    history(disk)
    assert damage(disk, FOLDER) == []


def test_cleaner_files_and_unknown_files_are_notes() -> None:
    disk = data_directory()
    for name in (
        "00000000000000000017.log.deleted",
        "00000000000000000026.index.cleaned",
        "00000000000000000026.log.truncated",
        "00000000000000000026.log.truncated-2",
        "damaged",
    ):
        put(disk, f"{FOLDER}/{name}", b"whatever")
    disk.make_directory(f"{DATA}/old-0.0123456789abcdef-delete")
    found = checked(disk)
    assert {one.level for one in found} == {Level.NOTE}
    assert len(found) == 6


def test_segment_in_the_swap_state_is_checked() -> None:
    disk = data_directory()
    for kind in ("log", "index", "timeindex"):
        put(disk, f"{SECOND}.{kind}.swap", content(disk, f"{SECOND}.{kind}"))
    assert checked(disk) == []
    data = content(disk, f"{SECOND}.log")
    put(disk, f"{SECOND}.log.swap", data[:-1])
    assert [one.path for one in damage(disk)] == [f"{SECOND}.log.swap"]


def test_missing_offsets_are_damage_unless_compacted() -> None:
    disk = data_directory()
    data = content(disk, f"{FIRST}.log")
    put(disk, f"{FIRST}.log", data[137:])
    for kind in ("index", "timeindex", "txnindex"):  # as compaction leaves them
        disk.remove(f"{FIRST}.{kind}")
    missing = [one for one in damage(disk) if one.path == f"{FIRST}.log"]
    assert "expected 0" in missing[0].problem
    assert "--compacted" in missing[0].problem
    assert not [one for one in damage(disk, compacted=True) if one.path.endswith(".log")]
    write_offsets(disk, CLEANED_OFFSETS, {PARTITIONS[0]: 20})
    assert not [one for one in damage(disk) if one.path.endswith(".log")]


def test_missing_segment_is_detected() -> None:
    disk = data_directory()
    for kind in ("log", "index", "timeindex", "txnindex"):
        disk.remove(f"{SECOND}.{kind}")
    (found,) = [one for one in damage(disk) if one.path == f"{ACTIVE}.log"]
    assert "ends at offset 17" in found.problem


def test_reordered_and_duplicated_batches_are_detected() -> None:
    disk = data_directory()
    data = content(disk, f"{FIRST}.log")
    for changed in (data[137:274] + data[:137] + data[274:], data[:137] + data):
        put(disk, f"{FIRST}.log", changed)
        assert any("base offset" in one.problem for one in damage(disk))


def test_checkpoints_are_compared_with_the_log() -> None:
    disk = data_directory()
    write_offsets(disk, RECOVERY_POINTS, {PARTITIONS[0]: 32, PARTITIONS[1]: 2})
    write_offsets(disk, HIGH_WATERMARKS, {PARTITIONS[0]: 31, PARTITIONS[1]: 3})
    problems = {one.problem for one in damage(disk)}
    assert problems == {
        "the log end offset 31 is below the recovery point 32: records are missing",
        "t-1 has offset 3, but its log end offset is 2",
    }


def test_missing_end_below_the_recovery_point_is_damage() -> None:
    disk = data_directory(clean=False)
    data = content(disk, f"{ACTIVE}.log")
    put(disk, f"{ACTIVE}.log", data[:-137])
    (found,) = [one for one in damage(disk) if one.path == FOLDER]
    assert found.problem == (
        "the log end offset 30 is below the recovery point 31: records are missing"
    )


def test_zeros_after_the_records_are_incomplete_or_damage() -> None:
    for clean, level in ((True, Level.DAMAGE), (False, Level.INCOMPLETE)):
        disk = data_directory(clean=clean)
        put(disk, f"{ACTIVE}.log", content(disk, f"{ACTIVE}.log") + bytes(3_000_000))
        (found,) = checked(disk)
        assert found.level is level
        assert "3000000 bytes of zeros" in found.problem


def test_zeros_before_other_bytes_are_damage() -> None:
    disk = data_directory(clean=False)
    put(disk, f"{ACTIVE}.log", content(disk, f"{ACTIVE}.log") + bytes(1000) + b"x")
    (found,) = checked(disk)
    assert found.level is Level.DAMAGE


def test_compacted_segment_ends_before_the_next() -> None:
    disk = data_directory()
    data = bytearray(content(disk, f"{FIRST}.log"))
    last = len(data) - 78
    assert int.from_bytes(data[last : last + 8], "big") == 16
    data[last + 7] = 40
    put(disk, f"{FIRST}.log", bytes(data))
    problems = [one.problem for one in damage(disk, compacted=True)]
    assert "last offset 40, but the next segment starts at 17" in problems


def test_next_batch_after_damage_is_found() -> None:
    disk = data_directory()
    data = content(disk, f"{FIRST}.log")
    for destroyed in (data[:137] + bytes(137) + data[274:], data[:145] + b"\x7f" + data[146:]):
        put(disk, f"{FIRST}.log", destroyed)
        found = list(list_file(disk, f"{FIRST}.log", View(records=True), ignore_progress))
        assert [e.offset for e in found if isinstance(e, RecordEntry)] == [0, *range(2, 17)]
        (hole,) = [e for e in found if isinstance(e, Finding)]
        assert (hole.level, hole.position) == (Level.DAMAGE, 137)
        assert "137 bytes before the next batch" in hole.problem
        assert {one.path for one in damage(disk)} == {f"{FIRST}.log"}
    # Two damaged ranges are both reported.
    put(disk, f"{FIRST}.log", data[:137] + bytes(137) + data[274:-1] + b"?")
    assert len([one for one in damage(disk) if one.path == f"{FIRST}.log"]) == 2


def test_search_for_the_next_batch_terminates() -> None:
    """Each position looks like a batch, but none is one."""
    disk = data_directory()
    fake = bytearray(made([b"?"])[:HEADER_SIZE])
    fake[:8] = (31).to_bytes(8, "big")
    fake[8:12] = (49).to_bytes(4, "big")
    size = len(content(disk, f"{ACTIVE}.log"))
    good = content(disk, f"{ACTIVE}.log")
    put(disk, f"{ACTIVE}.log", good + b"?" * 61 + bytes(fake) * 3000 + good)
    (found,) = [one for one in damage(disk) if one.path == f"{ACTIVE}.log"]
    assert found.position == size
    assert "bytes are skipped" in found.problem


def test_topic_has_one_id() -> None:
    disk = data_directory()
    text = content(disk, f"{OTHER}/partition.metadata")
    put(disk, f"{OTHER}/partition.metadata", text.replace(b"AAEC", b"BBEC"))
    (found,) = damage(disk)
    assert found.path == OTHER


def test_decreasing_epoch_is_reported_with_its_line() -> None:
    disk = data_directory()
    put(disk, f"{FOLDER}/leader-epoch-checkpoint", b"0\n2\n2 7\n0 2\n")
    found = [one for one in damage(disk) if one.line is not None]
    assert [(one.path, one.line) for one in found] == [(f"{FOLDER}/leader-epoch-checkpoint", 4)]


def test_epochs_above_the_recovery_point_need_no_checkpoint() -> None:
    disk = data_directory(clean=False)
    checkpoint = f"{OTHER}/leader-epoch-checkpoint"
    disk.remove(checkpoint)
    flushed = {PARTITIONS[0]: 30, PARTITIONS[1]: 0}
    write_offsets(disk, RECOVERY_POINTS, flushed)
    assert [one for one in checked(disk) if one.path == checkpoint] == []
    write_offsets(disk, RECOVERY_POINTS, flushed | {PARTITIONS[1]: 1})
    (found,) = (one for one in checked(disk) if one.path == checkpoint)
    assert found.level is Level.NOTE
    assert found.problem == "the log start offset is 0, but the first epoch starts at 2"


def test_check_continues_after_an_unreadable_file() -> None:
    disk = data_directory()

    class Unreadable(SimulatedDisk):
        def names(self, directory: str) -> list[str]:
            return disk.names(directory)

        def exists(self, path: str) -> bool:
            return disk.exists(path)

        def open(self, path: str, *, create: bool = False, private: bool = False):
            if path == f"{SECOND}.log":
                raise StorageFailure(f"{path}: open: Input/output error")
            return disk.open(path)

    found = damage(Unreadable())
    assert (f"{SECOND}.log", "open: Input/output error") in {(o.path, o.problem) for o in found}


def test_number_of_findings_is_limited() -> None:
    crowd = (Finding(Level.DAMAGE, "f", str(n)) for n in range(1000))
    shown = list(capped(crowd))
    assert len(shown) == FINDINGS_PER_FILE_MAX + 1


# A single file.


def test_single_file_is_checked_with_its_neighbours() -> None:
    disk = data_directory()
    for path in paths(disk):
        assert [one for one in checked(disk, path) if one.level is not Level.NOTE] == [], path
    index = bytearray(content(disk, f"{FIRST}.index"))
    index[7] ^= 1
    put(disk, f"{FIRST}.index", bytes(index))
    assert damage(disk, f"{FIRST}.index")
    assert not damage(disk, f"{FIRST}.log")


def test_copy_outside_of_a_directory_is_checked() -> None:
    disk = data_directory()
    disk.make_directory("/copies")
    put(disk, "/copies/saved.log", content(disk, f"{SECOND}.log"))
    put(disk, "/copies/saved.timeindex", content(disk, f"{SECOND}.timeindex"))
    assert checked(disk, "/copies/saved.log") == []
    put(disk, "/copies/saved.log", content(disk, f"{SECOND}.log")[:-1])
    assert [one.level for one in checked(disk, "/copies/saved.log")] == [Level.INCOMPLETE]


def test_index_without_records_is_checked() -> None:
    disk = data_directory()
    disk.remove(f"{FIRST}.log")
    assert [one.level for one in checked(disk, f"{FIRST}.index")] == [Level.NOTE]
    put(disk, f"{FIRST}.index", content(disk, f"{FIRST}.index")[::-1])
    assert damage(disk, f"{FIRST}.index")


# Limits.


def one_file(tmp_path: Path, data: bytes, name: str = "00000000000000000000.log") -> list[Finding]:
    path = tmp_path / name
    path.write_bytes(data)
    disk = OsDisk(read_only=True)
    try:
        return list(check_file(disk, str(path), Tally(), ignore_progress))
    finally:
        disk.close()


def test_decompression_bomb_is_not_decompressed(tmp_path: Path) -> None:
    bomb = compress(Compression.ZSTD, bytes(200 * 1024 * 1024))
    assert len(bomb) < 100_000
    batch = bytearray(HEADER_SIZE) + bomb
    write_header(
        batch,
        record_count=1,
        last_offset_delta=0,
        base_timestamp=0,
        max_timestamp=0,
        attributes=Compression.ZSTD,
    )
    (found,) = one_file(tmp_path, bytes(batch))
    assert found.level is Level.NOTE
    assert "has more than" in found.problem


def test_unparseable_records_with_a_valid_crc_are_damage(tmp_path: Path) -> None:
    for count, delta in ((2, 1), (1, 3), (2**31 - 1, 2**31 - 2)):
        batch = bytearray(made([b"value"]))
        write_header(
            batch,
            record_count=count,
            last_offset_delta=delta,
            base_timestamp=0,
            max_timestamp=0,
        )
        found = one_file(tmp_path, bytes(batch))
        if (count, delta) == (1, 3):  # as compaction leaves it
            assert found == []
        else:
            assert [one.level for one in found] == [Level.DAMAGE, Level.NOTE]


CHECK = """
import resource, sys
from ottla.log.files import OsDisk
from ottla.inspection.directory_check import check_file
from ottla.inspection.listing import View, list_file
from ottla.inspection.segment_check import Tally
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
disk = OsDisk(read_only=True)
ignore_progress = lambda path, done, total: None
for finding in check_file(disk, sys.argv[1], Tally(), ignore_progress):
    print(finding.level, finding.position, finding.problem)
for entry in list_file(disk, sys.argv[1], View(records=True), ignore_progress):
    pass
print("grown", (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize("size", [2**31 + 11, 2**31 - 1000])
def test_batch_of_2_gib_needs_little_memory(tmp_path: Path, size: int) -> None:
    """Real or only claimed: the file is sparse, so it uses no disk space."""
    path = tmp_path / "00000000000000000000.log"
    header = bytearray(made([b"value"])[:HEADER_SIZE])
    header[8:12] = (2**31 - 1).to_bytes(4, "big")
    path.write_bytes(header)
    os.truncate(path, size)
    done = subprocess.run(
        [sys.executable, "-c", CHECK, str(path)], capture_output=True, text=True, check=True
    )
    *found, grown = done.stdout.splitlines()
    expected = (
        "damage 0 wrong CRC"
        if size > 2**31
        else "incomplete 0 incomplete batch: 2147482648 of 2147483659 bytes"
    )
    assert found[0].startswith(expected)
    assert int(grown.split()[1]) < 64


def test_check_needs_no_write_permission(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(made([b"value"]))
    path.chmod(0o400)
    before = path.stat()
    disk = OsDisk(read_only=True)
    file = disk.open(str(path))
    with pytest.raises(StorageFailure):
        file.write([b"x"], 0)
    assert list(check_file(disk, str(path), Tally(), ignore_progress)) == []
    disk.close()
    after = path.stat()
    assert (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size)


def test_oversized_text_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.touch()
    os.truncate(path, 2**40)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    disk = OsDisk(read_only=True)
    found = [
        e for e in list_file(disk, str(path), View(), ignore_progress) if isinstance(e, Finding)
    ]
    disk.close()
    assert "too large" in found[0].problem
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


def test_progress_reaches_the_total() -> None:
    disk = SimulatedDisk()
    disk.make_directory(DATA)
    log = new_log(disk)
    fill(log, 5)
    append(log, b"x")
    finish(log.close())
    told: list[tuple[str, int, int]] = []
    path = f"{FIRST}.log"
    list(check_file(disk, path, Tally(), lambda path, done, of: told.append((path, done, of))))
    size = len(content(disk, path))
    assert told[-1] == (path, size, size)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)


def test_checked_files_are_counted() -> None:
    tally = Tally()
    assert list(each(data_directory(), tally=tally)) == []
    assert (tally.records, tally.files) == (33, len(paths(data_directory())))
    assert tally.batches == 23
