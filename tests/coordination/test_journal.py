"""Damage to the file of the embedded store."""

from random import Random

import pytest

from cases import each_case
from coordination.store_model import PATH, Owner, StoppedClock
from ottla.coordination import journal
from ottla.coordination.embedded import EmbeddedStore
from ottla.coordination.errors import StoreRefused
from ottla.coordination.journal import (
    END_MARK,
    Journal,
    Repair,
    whole_file,
    whole_file_size,
)
from ottla.coordination.operations import Create, SetData
from ottla.coordination.tree import Kept, Made, NodeChange, Removed, Replaced, Transaction, Tree
from ottla.log.disk import read_whole, write_atomically
from ottla.testing.disk import Crashed, Loss, SimulatedDisk, finish


def written() -> tuple[bytes, list[int]]:
    """Return a file of four frames, and the end position of each."""
    owner = Owner(SimulatedDisk())
    ends = [len(read_whole(owner.disk, PATH))]
    for number in range(3):
        owner.multi([Create(f"/n{number}", b"x" * 9), SetData("/", b"%d" % number)])
        ends.append(len(read_whole(owner.disk, PATH)))
    return read_whole(owner.disk, PATH), ends


def disk_with(data: bytes) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/data")
    write_atomically(disk, PATH, data)
    return disk


def test_truncated_file_keeps_its_whole_frames() -> None:
    data, ends = written()
    for size in range(ends[0], len(data) + 1):
        disk = disk_with(data[:size])
        opened, tree = Journal.open(disk, PATH)
        whole = max(end for end in ends if end <= size)
        assert len(tree) == 1 + ends.index(whole)
        assert (opened.repair is not None) == (size != whole)
        assert read_whole(disk, PATH) == data[:whole]


def test_file_without_header_is_refused() -> None:
    data, ends = written()
    for size in range(ends[0]):
        disk = disk_with(data[:size])
        with pytest.raises(StoreRefused, match=f"{PATH} is damaged"):
            Journal.open(disk, PATH)
        assert read_whole(disk, PATH) == data[:size]


def test_bit_flip_before_the_last_frame_is_refused() -> None:
    data, ends = written()
    for position in range(ends[-2]):
        for bit in (1, 128):
            damaged = bytearray(data)
            damaged[position] ^= bit
            disk = disk_with(bytes(damaged))
            with pytest.raises(StoreRefused, match="Restore a backup"):
                Journal.open(disk, PATH)
            assert read_whole(disk, PATH) == damaged


def flipped(data: bytes, *positions: int) -> bytes:
    damaged = bytearray(data)
    for position in positions:
        damaged[position] ^= 16
    return bytes(damaged)


def test_bit_flip_in_the_last_frame_is_an_unfinished_write() -> None:
    data, ends = written()
    length = range(ends[-2] + 4, ends[-2] + 8)  # a smaller one looks like two frames
    for position in range(ends[-2], ends[-1]):
        disk = disk_with(flipped(data, position))
        opened, tree = Journal.open(disk, PATH)
        assert len(tree) == 3
        assert opened.repair is not None
        if position not in length:
            assert opened.repair == Repair("unfinished write", ends[-1] - ends[-2], "")
            assert disk.names("/data") == ["coordination"]


def test_damage_after_a_clean_stop_is_not_an_unfinished_write() -> None:
    data, ends = written()
    stopped = data + END_MARK
    for position in range(ends[-2], ends[-1]):
        damaged = flipped(stopped, position)
        disk = disk_with(damaged)
        opened, tree = Journal.open(disk, PATH)
        assert len(tree) == 3
        assert opened.repair is not None
        assert opened.repair.problem == "damaged after the broker had stopped cleanly"
        assert "acknowledged changes" in opened.repair.missing
        assert read_whole(disk, opened.repair.copy) == damaged
        assert read_whole(disk, PATH) == data[: ends[-2]]
        assert Journal.open(disk, PATH)[0].repair is None
    for position in range(ends[-1], len(stopped)):  # the mark itself
        opened, tree = Journal.open(disk_with(flipped(stopped, position)), PATH)
        assert len(tree) == 4
        problem = "damaged end mark, the broker had stopped cleanly"
        assert opened.repair == Repair(problem, len(END_MARK), "")


def test_damage_of_several_frames_is_not_an_unfinished_write() -> None:
    data, ends = written()
    for position in (ends[-3], ends[-3] + 9, ends[-2] - 1):
        for later in (ends[-2] + 9, ends[-1] - 1):
            damaged = flipped(data, position, later)
            disk = disk_with(damaged)
            opened, tree = Journal.open(disk, PATH)
            assert len(tree) == 2
            assert opened.repair is not None
            assert opened.repair.problem == "damaged before the last write"
            assert opened.repair.missing
            assert read_whole(disk, opened.repair.copy) == damaged


def test_crash_during_the_repair_keeps_the_damaged_file() -> None:
    data, ends = written()
    damaged = flipped(data + END_MARK, ends[-1] - 1)
    crash_at, ended = 0, False
    while not ended:
        disk = disk_with(damaged)
        disk.crash_at = len(disk.calls) + crash_at
        try:
            Journal.open(disk, PATH)
            ended = True
        except Crashed:
            pass
        for loss in Loss:
            after = disk.after_crash(loss, Random(crash_at))
            assert len(Journal.open(after, PATH)[1]) == 3
            assert read_whole(after, f"{PATH}.damaged") == damaged
            assert not after.exists(f"{PATH}.damaged-2")
        crash_at += 1
    assert crash_at > 5


def test_second_damaged_file_does_not_replace_the_first() -> None:
    data, ends = written()
    disk = disk_with(data)
    copies: list[str] = []
    for position in (ends[-1] - 1, ends[-1] - 2):
        write_atomically(disk, PATH, flipped(data + END_MARK, position))
        repair = Journal.open(disk, PATH)[0].repair
        assert repair is not None
        assert read_whole(disk, repair.copy) == flipped(data + END_MARK, position)
        copies.append(repair.copy)
    assert copies == [f"{PATH}.damaged", f"{PATH}.damaged-2"]


def test_repair_is_logged_with_what_may_be_missing(caplog: pytest.LogCaptureFixture) -> None:
    data, ends = written()
    last, mark = ends[-1] - ends[-2], len(END_MARK)
    changes = "the last acknowledged changes of topics, settings and producer ids"
    kinds: list[tuple[bytes, str, int, str]] = [
        (data[:-1], "unfinished write", last - 1, ""),
        (flipped(data, ends[-1] - 1), "unfinished write", last, ""),
        (
            flipped(data + END_MARK, ends[-1]),
            "damaged end mark, the broker had stopped cleanly",
            mark,
            "",
        ),
        (
            flipped(data + END_MARK, ends[-1] - 1),
            "damaged after the broker had stopped cleanly",
            last + mark,
            changes,
        ),
        (
            flipped(data, ends[-3], ends[-1] - 1),
            "damaged before the last write",
            ends[-1] - ends[-3],
            changes,
        ),
    ]
    for damaged, problem, size, missing in kinds:
        caplog.clear()
        disk = disk_with(damaged)
        EmbeddedStore.open(disk, PATH, StoppedClock())
        (told,) = [one for one in caplog.records if one.msg == "coordination journal repaired"]
        facts = {"file": PATH, "problem": problem, "truncated_bytes": size}
        if missing:
            copy = f"{PATH}.damaged"
            remedy = (
                "check the topics and settings; restore a backup of the file if some are missing"
            )
            facts |= {"missing": missing, "copy": copy, "remedy": remedy}
            assert read_whole(disk, copy) == damaged
        else:
            facts |= {"missing": "nothing acknowledged"}
        assert (told.levelname, told.args) == ("ERROR" if missing else "WARNING", facts)
    caplog.clear()
    EmbeddedStore.open(disk_with(data + END_MARK), PATH, StoppedClock())
    assert not caplog.records


def test_stopped_store_has_an_end_mark() -> None:
    owner = Owner(SimulatedDisk())
    for _ in range(3):
        owner.restart()
        assert read_whole(owner.disk, PATH).endswith(END_MARK)
        owner.multi([Create("/n-", sequence=True)])
        assert not read_whole(owner.disk, PATH).endswith(END_MARK)
    finish(owner.store.close())
    assert read_whole(owner.disk, PATH).endswith(END_MARK)


@each_case(
    "change",
    [
        Made("/n0", b"", 0),
        Made("/none/a", b"", 0),
        Made("/", b"", 0),
        Replaced("/none", b""),
        Removed("/none"),
        Removed("/"),
        Kept("/", b"", 0, 0, 0, 0, 0),
        Kept("/n0", b"", 0, 0, 0, 0, 0),
    ],
    ids=repr,
)
def test_change_that_does_not_fit_the_tree_is_refused(change: NodeChange) -> None:
    disk = disk_with(written()[0])
    opened, tree = Journal.open(disk, PATH)
    opened.append([Transaction(tree.zxid + 1, [change])])
    with pytest.raises(StoreRefused, match="is invalid"):
        Journal.open(disk, PATH)


def test_decreasing_zxid_is_refused() -> None:
    disk = disk_with(written()[0])
    opened, tree = Journal.open(disk, PATH)
    opened.append([Transaction(tree.zxid - 1, [Made("/new", b"", 0)])])
    with pytest.raises(StoreRefused, match="comes after"):
        Journal.open(disk, PATH)


def test_grown_file_is_rewritten_with_the_same_tree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journal, "REWRITE_BYTES_MIN", 1000)
    owner = Owner(SimulatedDisk())
    largest = 0
    for number in range(100):
        owner.multi([SetData("/", b"%d" % number * 30), Create(f"/{number % 5}-", sequence=True)])
        largest = max(largest, len(read_whole(owner.disk, PATH)))
        owner.check()
    tree = Journal.open(owner.disk, PATH)[1]
    assert largest < 1000 + journal.REWRITE_FACTOR * len(whole_file(tree))
    renames = [what for what, _ in owner.disk.calls].count("rename")
    assert 2 < renames < 20


def test_file_is_rewritten_after_many_short_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journal, "REWRITE_BYTES_MIN", 1000)
    disk, largest = SimulatedDisk(), 0
    for number in range(60):
        owner = Owner(disk)
        owner.multi([SetData("/", b"%03d" % number * 100)])
        largest = max(largest, len(read_whole(disk, PATH)))
        disk = disk.after_kill()
    tree = Journal.open(disk, PATH)[1]
    assert largest < 1000 + journal.REWRITE_FACTOR * len(whole_file(tree))


def test_empty_tree_is_a_small_file() -> None:
    assert len(whole_file(Tree())) < 100


def test_size_of_the_rewritten_file_is_known() -> None:
    tree = Tree()
    assert whole_file_size(tree) == len(whole_file(tree))
    for path, data in (("/a", b"one"), ("/a/\u00fc", b""), ("/b", bytes(1000))):
        tree.commit([Create(path, data)], 1)
        assert whole_file_size(tree) == len(whole_file(tree))
