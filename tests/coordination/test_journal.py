"""Damage to the file of the embedded store."""

import pytest

from cases import each_case
from coordination.store_model import PATH, Owner
from ottla.coordination import journal
from ottla.coordination.errors import StoreRefused
from ottla.coordination.journal import Journal, whole_file
from ottla.coordination.operations import Create, SetData
from ottla.coordination.tree import Kept, Made, NodeChange, Removed, Replaced, Transaction, Tree
from ottla.log.disk import read_whole, write_atomically
from ottla.testing.disk import SimulatedDisk


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
        assert bool(opened.notes) == (size != whole)
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
            with pytest.raises(StoreRefused, match="restore a backup"):
                Journal.open(disk, PATH)
            assert read_whole(disk, PATH) == damaged


def test_bit_flip_in_the_last_frame_is_an_unfinished_write() -> None:
    data, ends = written()
    for position in range(ends[-2], ends[-1]):
        damaged = bytearray(data)
        damaged[position] ^= 16
        opened, tree = Journal.open(disk_with(bytes(damaged)), PATH)
        assert len(tree) == 3
        assert opened.notes == [
            f"{PATH}: truncated {ends[-1] - ends[-2]} bytes of an unfinished write"
        ]


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
