"""The log of a group notices lost offsets and records."""

from integration.load import GroupLog


def read(group: GroupLog, *offsets: int) -> None:
    for offset in offsets:
        group.read(0, offset, b"")


def committed(*offsets: int) -> GroupLog:
    """Return a group that has read records from the start, and committed them."""
    group = GroupLog("readers")
    group.assigned([0])
    read(group, *offsets)
    group.commit_acknowledged(group.commit())
    return group


def test_group_continues_where_it_committed() -> None:
    group = committed(0, 1)
    read(group, 2, 3)
    group.assigned([0])
    read(group, 2, 3)
    assert not group.violations
    group.commit()  # without a response: it may be stored
    group.assigned([0])
    read(group, 4)
    assert not group.violations


def test_lost_offset_of_a_group_is_noticed() -> None:
    group = committed(0, 1)
    group.assigned([0])
    read(group, 0)
    assert group.violations == [
        "group readers: partition 0 continues at 0, 2 is committed, and nothing after 2"
    ]


def test_record_that_a_group_skips_is_noticed() -> None:
    group = committed(0, 1)
    read(group, 3)
    group.assigned([0])
    read(group, 3)
    assert len(group.violations) == 2
