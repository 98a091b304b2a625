"""Lines of `kafka-consumer-groups`: Kafka's headings and widths."""

from ottla.cli.group.lag import PartitionLag
from ottla.cli.group.view import GroupView
from ottla.cli.kafka.groups.lines import (
    forgotten_lines,
    list_lines,
    member_lines,
    offset_lines,
    reset_lines,
    state_lines,
)
from ottla.client.admin.group_descriptions import GroupDescription, MemberDescription
from ottla.client.admin.group_offsets import CommittedOffset
from ottla.client.admin.groups import ListedGroup
from ottla.client.network.cluster_view import BrokerView
from ottla.ids import BrokerId

STATIC = MemberDescription(
    "a-member-with-a-long-id", "static", "client", "/127.0.0.1", (("t", 1), ("t", 0), ("s", 0))
)
OTHER = MemberDescription("b", None, "client", "/127.0.0.1", ())


def view(*members: MemberDescription) -> GroupView:
    told = GroupDescription("g", "classic", "Stable", "consumer", "range", members)
    return GroupView(told, BrokerView(BrokerId(1), "127.0.0.1", 9092), ())


def test_list_has_type_and_state_on_request() -> None:
    groups = [ListedGroup("g", "consumer", "Stable", "classic"), ListedGroup("h", "", None, None)]
    assert list_lines(groups, with_type=False, with_state=False) == ["g", "h"]
    heads, first, second = list_lines(groups, with_type=True, with_state=True)
    assert heads == f"{'GROUP':25} {'TYPE':20} {'STATE':20}"
    assert first == f"{'g':25} {'Classic':20} {'Stable':20}"
    assert second == f"{'h':25} {'Unknown':20} {'Unknown':20}"


def test_offsets_are_shown_with_and_without_a_member() -> None:
    rows = [
        PartitionLag(("t", 0), CommittedOffset(3, "", 7), None, 10, STATIC),
        PartitionLag(("t", 1), None, None, 10, STATIC),
        PartitionLag(("u", 0), CommittedOffset(3), None, None, None),
    ]
    blank, heads, *lines = offset_lines("g", rows, is_verbose=True)
    assert blank == ""
    assert heads.split()[3:6] == ["LEADER-EPOCH", "CURRENT-OFFSET", "LOG-END-OFFSET"]
    member = ["a-member-with-a-long-id", "/127.0.0.1", "client"]
    assert [line.split() for line in lines] == [
        ["g", "t", "0", "7", "3", "10", "7", *member],
        ["g", "t", "1", "-", "-", "10", "-", *member],
        ["g", "u", "0", "-", "3", "-", "-", "-", "-", "-"],
    ]
    assert "LEADER-EPOCH" not in offset_lines("g", rows, is_verbose=False)[1]


def test_static_members_add_a_column() -> None:
    _, heads, first, second = member_lines(view(STATIC, OTHER), is_verbose=True)
    assert heads.split()[2] == "GROUP-INSTANCE-ID"
    assert first.split()[-4:] == ["-", "s:0;t:0,1", "-", "-"]
    assert second.split()[-5:] == ["0", "-", "-", "-", "-"]
    assert heads.index("CURRENT-ASSIGNMENT") == first.index("s:0;t:0,1")
    assert "GROUP-INSTANCE-ID" not in member_lines(view(OTHER), is_verbose=False)[1]


def test_state_has_coordinator_and_members() -> None:
    _, heads, row = state_lines(view(STATIC), is_verbose=False)
    assert heads.endswith("STATE                #MEMBERS")
    assert row.split() == ["g", "127.0.0.1:9092", "(1)", "range", "Stable", "1"]
    _, heads, row = state_lines(view(), is_verbose=True)
    assert row.split()[-3:] == ["-", "-", "0"]


def test_reset_plan_and_deleted_offsets_are_tables() -> None:
    assert reset_lines({}) == [""]
    _, heads, row = reset_lines({"g": {("t", 0): 5}})
    assert heads.split() == ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]
    assert heads.index("NEW-OFFSET") == row.index("5")
    told = {("t", 10): "Successful", ("t", 2): "Error: x", ("s", -1): "Error: y"}
    assert [line.split()[:3] for line in forgotten_lines(told)[2:]] == [
        ["s", "-", "Error:"],
        ["t", "10", "Successful"],
        ["t", "2", "Error:"],
    ]
