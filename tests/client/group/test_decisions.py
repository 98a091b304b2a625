"""The pure decisions of a member: heartbeat timer, error actions and request contents."""

from math import inf

import pytest

from cases import each_case
from client.group.harness import Ledger, Owner, all_of, tp
from ottla.client.group.config import GroupConfig
from ottla.client.group.error_actions import ErrorAction, error_action
from ottla.client.group.heartbeat_state import HeartbeatState, by_topic, heartbeat_request
from ottla.client.group.heartbeat_timer import HeartbeatTimer
from ottla.client.group.interfaces import GroupMember
from ottla.client.group.leadership import divide, layouts, subscriptions, topics_of
from ottla.client.group.owned_partitions import OwnedPartitions
from ottla.client.group.requests import join_request, leave_request
from ottla.client.network.cluster_view import BrokerView, ClusterView, PartitionView, TopicView
from ottla.errors import ErrorCode, RequestError
from ottla.groups.assignors.assignor import (
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RebalanceProtocol,
    StickyAssignor,
)
from ottla.groups.assignors.messages import read_assignment, read_subscription, subscription_bytes
from ottla.groups.assignors.subscription import Assignment, Subscription, TopicLayout
from ottla.ids import BrokerId, LeaderEpoch, PartitionIndex, Uuid
from ottla.protocol.messages.join_group import JoinGroupResponseMember
from ottla.testing.disk import finish
from ottla.transport.backoff import Backoff

RULES = GroupConfig(
    group_id="g",
    instance_id=None,
    is_modern=False,
    rack="r1",
    session_timeout_s=45,
    heartbeat_interval_s=3,
    poll_interval_s=300,
    request_timeout_s=30,
    backoff=Backoff(0.1, 1, lambda: 0.5),
)
A, B = Uuid(bytes(15) + b"a"), Uuid(bytes(15) + b"b")


# The heartbeat timer.


def test_heartbeat_is_due_after_its_interval() -> None:
    timer = HeartbeatTimer(interval_s=3, session_s=45, poll_interval_s=300, polled_s=100)
    timer.begin(100)
    assert timer.next_s() == 103
    timer.heard(104, asked_s=103)
    assert timer.next_s() == 107
    timer.failed(110, pause_s=0.1)
    assert timer.next_s() == 110.1
    timer.hurry()
    assert timer.next_s() == -inf


def test_session_counts_from_the_last_answered_heartbeat() -> None:
    """The coordinator counts from the arrival, which is later: so the member expires first."""
    timer = HeartbeatTimer(interval_s=3, session_s=45, poll_interval_s=300, polled_s=100)
    timer.begin(100)
    timer.heard(120, asked_s=103)
    assert not timer.is_lost(147)
    assert timer.is_lost(148)
    assert timer.end_s() == 148


def test_poll_is_late_after_its_interval() -> None:
    timer = HeartbeatTimer(interval_s=3, session_s=inf, poll_interval_s=300, polled_s=100)
    timer.begin(390)
    assert timer.end_s() == 400
    assert not timer.is_late(399)
    assert timer.is_late(400)
    timer.polled_s = 400
    assert not timer.is_late(500)


# Error actions.


@each_case(
    ("error", "expected"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorAction.AGAIN),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorAction.ELSEWHERE),
        (ErrorCode.NOT_COORDINATOR, ErrorAction.ELSEWHERE),
        (ErrorCode.NETWORK_EXCEPTION, ErrorAction.ELSEWHERE),
        (ErrorCode.REBALANCE_IN_PROGRESS, ErrorAction.REJOIN),
        (ErrorCode.ILLEGAL_GENERATION, ErrorAction.REGENERATE),
        (ErrorCode.UNKNOWN_MEMBER_ID, ErrorAction.RENEW),
        (ErrorCode.FENCED_MEMBER_EPOCH, ErrorAction.RENEW),
        (ErrorCode.FENCED_INSTANCE_ID, ErrorAction.FINAL),
        (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorAction.FINAL),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorAction.FINAL),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorAction.FINAL),
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorAction.FINAL),
        (ErrorCode.INVALID_SESSION_TIMEOUT, ErrorAction.FINAL),
    ],
)
def test_every_error_has_the_action_of_java(error: ErrorCode, expected: ErrorAction) -> None:
    assert error_action(error) is expected


# Requests of the classic protocol.


def test_join_request_lists_assignors_and_owned_partitions() -> None:
    member = GroupMember("g", 7, "m")
    sticky = StickyAssignor()
    sticky.on_assignment([tp("t", 1)], 7)
    request = join_request(
        RULES,
        member,
        [sticky, RangeAssignor()],
        frozenset({"t", "a"}),
        all_of("t", 2),
        "because " * 100,
    )
    assert [one.name for one in request.protocols] == ["sticky", "range"]
    result = read_subscription(request.protocols[0].metadata)
    assert (result.topics, result.owned, result.generation, result.rack) == (
        ("a", "t"),
        (tp("t", 0), tp("t", 1)),
        7,
        "r1",
    )
    assert result.user_data == sticky.user_data()
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (45_000, 300_000)
    assert request.reason is not None
    assert len(request.reason) == 255
    assert RULES.join_timeout_s == 305


@each_case("version", range(6))
def test_leave_request_is_encoded_in_every_version(version: int) -> None:
    request = leave_request(GroupMember("g", 7, "m"), "why", version)
    assert request.encode(version)
    assert (request.member_id or request.members[0].member_id) == "m"


def view() -> ClusterView:
    def partition(index: int, *replicas: int) -> PartitionView:
        ids = tuple(BrokerId(one) for one in replicas)
        return PartitionView(PartitionIndex(index), ids[0], LeaderEpoch(0), ids)

    brokers = {
        BrokerId(number): BrokerView(BrokerId(number), "h", 1, rack)
        for number, rack in ((1, "r1"), (2, "r2"), (3, None))
    }
    parts = {1: partition(1, 2, 3), 0: partition(0, 1, 2, 9)}
    return ClusterView(brokers=brokers, topics={"t": TopicView("t", A, parts)})


def test_layout_has_existing_topics_with_racks() -> None:
    assert layouts(view(), ["t", "absent"], with_racks=True) == {
        "t": TopicLayout(2, (frozenset({"r1", "r2"}), frozenset({"r2"})))
    }
    assert layouts(view(), ["t"], with_racks=False) == {"t": TopicLayout(2)}


def test_leader_assigns_every_member() -> None:
    told = [
        JoinGroupResponseMember(
            member_id=name, metadata=subscription_bytes(Subscription(topics=(topic,)))
        )
        for name, topic in (("one", "t"), ("two", "u"))
    ]
    members = subscriptions(told)
    assert topics_of(members) == {"t", "u"}
    handed = divide(RangeAssignor(), RebalanceProtocol.EAGER, {"t": TopicLayout(2)}, members)
    assert {one.member_id: read_assignment(one.assignment) for one in handed} == {
        "one": (tp("t", 0), tp("t", 1)),
        "two": (),
    }


class HastyAssignor(Assignor):
    """An assignor that assigns partitions that another member still owns."""

    name = "hasty"
    protocols = (RebalanceProtocol.COOPERATIVE,)

    def assign(self, topics: object, members: object) -> Assignment:
        return {"one": (), "two": (tp("t", 0),)}


def test_cooperative_assignor_may_not_move_owned_partitions() -> None:
    members = {
        "one": Subscription(("t",), owned=(tp("t", 0),)),
        "two": Subscription(("t",)),
    }
    topics = {"t": TopicLayout(1)}
    with pytest.raises(RequestError, match="hasty assigns t-0 to two while one still owns it"):
        divide(HastyAssignor(), RebalanceProtocol.COOPERATIVE, topics, members)
    divide(HastyAssignor(), RebalanceProtocol.EAGER, topics, members)
    divide(CooperativeStickyAssignor(), RebalanceProtocol.COOPERATIVE, topics, members)


# Requests of the KIP-848 protocol.

NOW = HeartbeatState(frozenset({"t", "a"}), None, "uniform", {A: frozenset({1, 0})})


def test_first_heartbeat_contains_all_fields() -> None:
    request = heartbeat_request(RULES, GroupMember("g", 0, "m"), NOW, NOW)
    assert request.rebalance_timeout_ms == 300_000
    assert (request.rack_id, request.server_assignor) == ("r1", "uniform")
    assert request.subscribed_topic_names == ["a", "t"]
    assert request.topic_partitions is not None
    assert [*request.topic_partitions[0].partitions] == [0, 1]


def test_later_heartbeats_contain_only_changes() -> None:
    member = GroupMember("g", 5, "m")
    silent = heartbeat_request(RULES, member, NOW, NOW)
    assert silent.rebalance_timeout_ms == -1
    assert silent.subscribed_topic_names is silent.topic_partitions is None
    assert silent.subscribed_topic_regex is silent.server_assignor is silent.rack_id is None
    less = HeartbeatState(NOW.topics, NOW.pattern, NOW.assignor, {})
    assert heartbeat_request(RULES, member, less, NOW).topic_partitions == []
    everything = heartbeat_request(RULES, member, NOW, None)
    assert everything.subscribed_topic_names == ["a", "t"]
    assert everything.topic_partitions


def test_empty_pattern_removes_the_pattern() -> None:
    member = GroupMember("g", 5, "m")
    by_pattern = HeartbeatState(frozenset(), "t.*", None, {})
    assert heartbeat_request(RULES, member, by_pattern, NOW).subscribed_topic_regex == "t.*"
    by_name = HeartbeatState(frozenset({"t"}), None, None, {})
    back = heartbeat_request(RULES, member, by_name, by_pattern)
    assert (back.subscribed_topic_regex, back.subscribed_topic_names) == ("", ["t"])


def test_partitions_are_grouped_by_topic() -> None:
    owned = {tp("t", 0): A, tp("u", 3): B, tp("t", 2): A}
    assert by_topic(owned) == {A: frozenset({0, 2}), B: frozenset({3})}
    assert by_topic({}) == {}


# Owned partitions.


def test_reassigned_partition_has_a_new_holding() -> None:
    async def scenario() -> None:
        ledger: Ledger = {}
        holdings = OwnedPartitions(Owner(["t"], "g", ledger))
        await holdings.assign({tp("t", 0), tp("t", 1)}, "first")
        before = holdings.held(tp("t", 0))
        assert before is not None
        await holdings.assign({tp("t", 2)}, "more")
        assert holdings.held(tp("t", 0)) == before
        await holdings.revoke({tp("t", 0)}, "gone")
        assert holdings.held(tp("t", 0)) is None
        await holdings.assign({tp("t", 0)}, "back")
        assert holdings.held(tp("t", 0)) not in (None, before)
        await holdings.lose("lost")
        assert holdings.held(tp("t", 1)) is None

    finish(scenario())
