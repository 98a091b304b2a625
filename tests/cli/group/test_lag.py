"""Lag of a group, and since when it lags."""

from dataclasses import replace

from ottla.cli.group.lag import PartitionLag, earliest, first_unread, partition_lags, total
from ottla.client.admin.group_descriptions import MemberDescription
from ottla.client.admin.group_offsets import CommittedOffset


def member(name: str, *assignment: tuple[str, int]) -> MemberDescription:
    return MemberDescription(name, None, f"client-{name}", "/127.0.0.1", assignment)


A, B, C, D = (("orders", number) for number in range(4))
ENDS = dict.fromkeys((A, B, C, D), 10)


def test_partitions_of_busy_members_come_first() -> None:
    idle, one, two = member("idle"), member("one", C), member("two", B, A)
    committed = {C: CommittedOffset(4), D: CommittedOffset(10), A: None}
    found = partition_lags([idle, one, two], committed, {}, ENDS)
    assert [(row.partition, row.member and row.member.id, row.lag) for row in found] == [
        (A, "two", None),
        (B, "two", None),
        (C, "one", 6),
        (D, None, 0),
    ]
    assert total(found) == 6
    assert total(found[:2]) is None


def test_partition_without_an_end_offset_has_no_lag() -> None:
    (row,) = partition_lags([], {A: CommittedOffset(4)}, {}, {})
    assert (row.end, row.lag) == (None, None)
    assert first_unread([row]) == {}


def test_first_unread_record_still_exists() -> None:
    at = {A: CommittedOffset(4), B: CommittedOffset(4), C: CommittedOffset(10)}
    found = partition_lags([], at, {A: 0, B: 7, C: 0}, ENDS)
    assert first_unread(found) == {A: 4, B: 7}


def test_group_lags_since_its_earliest_partition() -> None:
    row = PartitionLag(A, CommittedOffset(4), 0, 10, None)
    assert earliest([row]) is None
    assert earliest([row, replace(row, since_ms=5), replace(row, since_ms=3)]) == 3
