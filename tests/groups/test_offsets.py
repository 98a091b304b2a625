"""The store of offsets alone, with updates in any order."""

from groups.harness import ORDERS, partition
from ottla.groups.offsets import CommittedOffset, Offsets
from ottla.groups.responses import FetchedOffset
from ottla.ids import Offset, ProducerId

BILLS = partition("bills")


def committed(offset: int, record_offset: int) -> CommittedOffset:
    return CommittedOffset(offset, -1, "", 0, record_offset=Offset(record_offset))


def offset_in(offsets: Offsets) -> int:
    fetched = offsets.fetch("g", [ORDERS], require_stable=False, topic_ids={})
    return fetched[ORDERS].offset


def test_later_record_of_two_commits_wins() -> None:
    offsets = Offsets()
    offsets.commit("g", ORDERS, committed(7, 2))
    offsets.commit("g", ORDERS, committed(5, 1))
    assert offset_in(offsets) == 7


def test_deletion_spares_later_commits() -> None:
    offsets = Offsets()
    offsets.commit("g", ORDERS, committed(7, 2))
    offsets.commit_pending(ProducerId(1), "g", ORDERS, committed(8, 3))
    offsets.delete("g", ORDERS, Offset(1))
    assert offset_in(offsets) == 7
    assert offsets.is_unstable("g", ORDERS)
    offsets.delete("g", ORDERS, Offset(4))
    assert offset_in(offsets) == -1
    assert not offsets.touches("g")


def test_commits_in_flight_are_counted() -> None:
    offsets = Offsets()
    offsets.send("g", [ORDERS, BILLS])
    offsets.send("g", [ORDERS])
    offsets.settle("g", [ORDERS, BILLS])
    assert offsets.is_unstable("g", ORDERS)
    assert not offsets.is_unstable("g", BILLS)
    offsets.settle("g", [ORDERS])
    assert not offsets.touches("g")


def test_end_of_a_transaction_returns_its_groups() -> None:
    offsets = Offsets()
    offsets.commit_pending(ProducerId(1), "g", ORDERS, committed(1, 1))
    offsets.commit_pending(ProducerId(1), "h", ORDERS, committed(2, 2))
    offsets.commit_pending(ProducerId(2), "i", ORDERS, committed(3, 3))
    assert offsets.end_transaction(ProducerId(1), committed=True) == {"g", "h"}
    assert offsets.end_transaction(ProducerId(1), committed=True) == set()
    assert offset_in(offsets) == 1
    assert offsets.is_pending("i")


def test_tombstone_removes_pending_offsets() -> None:
    offsets = Offsets()
    offsets.commit_pending(ProducerId(1), "g", ORDERS, committed(1, 1))
    offsets.delete("g", ORDERS, Offset(2))
    offsets.end_transaction(ProducerId(1), committed=True)
    fetched = offsets.fetch("g", None, require_stable=True, topic_ids={})
    assert fetched == dict[object, FetchedOffset]()
