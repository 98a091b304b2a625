"""All groups of a partition: leadership, loading, queries."""

import pytest

from cases import each_case
from groups.harness import DELAY_MS, GROUP, ORDERS, SESSION_MS, Harness, partition, subscription
from ottla.errors import ErrorCode, ProtocolViolation
from ottla.groups.config import GroupConfig
from ottla.groups.coordinator import Coordinator, Phase, partition_for
from ottla.groups.effects import Respond
from ottla.groups.events import Appended, AppendFailed, PartitionsDeleted
from ottla.groups.responses import (
    DescribedMember,
    GroupDescription,
    GroupErrors,
    GroupList,
    JoinResult,
    ListedGroup,
    PartitionErrors,
    SyncResult,
)
from ottla.ids import LeaderEpoch, Offset
from ottla.protocol.offsets_topic import (
    TYPES,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)

# Java's "…".hashCode(), and Kafka's partition for it with 50 partitions.
HASHED = {
    "": (0, 0),
    "a": (97, 47),
    "billing": (-109829509, 9),
    "größe😀": (423021364, 14),
    "polygenelubricants": (-2147483648, 0),  # has no absolute value in 32 bits
}


@each_case("group_id", HASHED)
def test_partition_of_a_group_is_kafkas(group_id: str) -> None:
    hashed, of_50 = HASHED[group_id]
    assert partition_for(group_id, 50) == of_50
    if hashed != -(2**31):
        assert partition_for(group_id, 2**31) == abs(hashed)


# Requests that are refused before they reach a group.


@each_case(
    ("session_ms", "allowed"),
    [(5_999, False), (6_000, True), (1_800_000, True), (1_800_001, False)],
)
def test_session_timeout_has_bounds(session_ms: int, allowed: bool) -> None:
    harness = Harness()
    answer = harness.joined(harness.join(session_ms=session_ms))
    if allowed:
        assert answer.error is ErrorCode.MEMBER_ID_REQUIRED
    else:
        assert answer == JoinResult(ErrorCode.INVALID_SESSION_TIMEOUT, "")
        assert harness.coordinator.ledger.groups == {}


def refusals(harness: Harness) -> list[ErrorCode]:
    """Return the error of each request, except heartbeats."""
    deleted = harness.answer(harness.delete_groups("g"), GroupErrors)
    return [
        harness.joined(harness.join()).error,
        harness.synced(harness.sync("m", 1)).error,
        harness.leave("m").error,
        harness.commit(),
        harness.commit(producer_id=1),
        harness.delete_offsets(ORDERS).error,
        deleted.groups[0][1],
        harness.coordinator.fetch_offsets("g", None).error,
        harness.coordinator.describe("g").error,
    ]


def test_requests_during_the_load_get_a_retriable_error() -> None:
    harness = Harness()
    harness.epoch = LeaderEpoch(2)
    harness.carry_out(harness.coordinator.lead(harness.epoch, harness.now_ms))
    assert harness.coordinator.phase is Phase.LOADING
    assert set(refusals(harness)) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    assert harness.heartbeat("m", 1) is ErrorCode.NONE
    loading = GroupList(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ())
    assert harness.coordinator.list_groups() == loading


def test_requests_without_leadership_get_not_coordinator() -> None:
    harness = Harness()
    harness.commit(5)
    harness.carry_out(harness.coordinator.resign(LeaderEpoch(2), harness.now_ms))
    assert set(refusals(harness)) == {ErrorCode.NOT_COORDINATOR}
    assert harness.heartbeat("m", 1) is ErrorCode.NOT_COORDINATOR
    assert harness.coordinator.list_groups() == GroupList(ErrorCode.NONE, ())
    assert harness.timers == {}


def test_pending_requests_get_not_coordinator_on_resign() -> None:
    harness = Harness()
    leader, follower = harness.completing(2)
    waiting = harness.sync(follower, 1)
    harness.carry_out(harness.coordinator.resign(None, harness.now_ms))
    assert harness.synced(waiting) == SyncResult(ErrorCode.NOT_COORDINATOR)
    harness.begin()
    member_id, rejoin = harness.join_twice()
    harness.join()
    harness.carry_out(harness.coordinator.resign(None, harness.now_ms))
    assert harness.joined(rejoin) == JoinResult(ErrorCode.NOT_COORDINATOR, member_id)
    assert harness.timers == {}
    assert leader != follower


@pytest.mark.parametrize("epoch", [0, 1])
def test_events_of_old_epochs_change_nothing(epoch: int) -> None:
    harness = Harness()
    harness.commit(5)
    assert harness.coordinator.lead(LeaderEpoch(epoch), 0) == []
    assert harness.coordinator.resign(LeaderEpoch(epoch), 0) == []
    assert harness.offset() == 5


def test_appends_of_an_old_epoch_only_get_a_response() -> None:
    harness = Harness(auto=False)
    tokens = [harness.send_commit(5), harness.send_commit(6)]
    first, second = harness.appends
    harness.appends.clear()
    harness.begin()
    harness.do(Appended(first, Offset(0)))
    harness.do(AppendFailed(second, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    errors = [harness.answer(token, PartitionErrors).partitions[0][1] for token in tokens]
    assert errors == [ErrorCode.NONE, ErrorCode.NOT_COORDINATOR]
    assert harness.offset() == -1


def test_deletions_of_an_old_epoch_get_a_response() -> None:
    harness = Harness()
    harness.commit(5)
    harness.commit(5, group_id="other")
    harness.auto = False
    tokens = [harness.delete_groups(GROUP), harness.delete_groups("other")]
    first, second = harness.appends
    harness.begin()
    harness.do(Appended(first, Offset(9)))
    harness.do(AppendFailed(second, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    errors = [harness.answer(token, GroupErrors).groups[0][1] for token in tokens]
    assert errors == [ErrorCode.NONE, ErrorCode.NOT_COORDINATOR]
    assert harness.offset() == 5


def test_assignment_of_an_old_epoch_is_discarded() -> None:
    harness = Harness(auto=False)
    (leader,) = harness.completing(1)
    harness.sync(leader, 1, {leader: b"old"})
    append = harness.appends.pop()
    harness.begin()
    assert harness.coordinator.step(Appended(append, Offset(0)), harness.now_ms) == []


def test_partition_deleted_during_the_load_loses_its_offsets() -> None:
    harness = Harness()
    harness.commit(5)
    harness.epoch = LeaderEpoch(harness.epoch + 1)
    harness.carry_out(harness.coordinator.lead(harness.epoch, harness.now_ms))
    harness.do(PartitionsDeleted(frozenset({ORDERS})))
    harness.load()
    harness.commit_append()
    assert harness.offset() == -1


# Loading.


def load(*records: tuple[bytes, bytes | None]) -> Coordinator:
    coordinator = Coordinator(GroupConfig())
    coordinator.lead(LeaderEpoch(1), 0)
    for offset, (key, value) in enumerate(records):
        assert coordinator.replay(LeaderEpoch(1), Offset(offset), key, value)
    coordinator.finish_loading(LeaderEpoch(1), 0)
    return coordinator


GROUP_KEY = TYPES.encode_key(GroupMetadataKey(group=GROUP))
OFFSET_KEY = TYPES.encode_key(OffsetCommitKey(group=GROUP, topic="orders", partition=0))


@each_case("version", range(5))
def test_groups_of_every_release_are_read(version: int) -> None:
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=4,
        protocol="range",
        leader="m",
        members=[
            MemberMetadata(
                member_id="m",
                group_instance_id="i",
                client_id="c",
                client_host="h",
                rebalance_timeout=70_000,
                session_timeout=9_000,
                subscription=subscription("orders"),
                assignment=b"share",
            )
        ],
    )
    group = load((GROUP_KEY, TYPES.encode_value(value, version))).ledger.groups[GROUP]
    member = group.roster["m"]
    assert (group.generation, group.protocol_name, group.roster.leader) == (4, "range", "m")
    assert (member.session_timeout_ms, member.assignment) == (9_000, b"share")
    # Without a rebalance timeout, a member has its session timeout.
    assert member.rebalance_timeout_ms == (70_000 if version >= 1 else 9_000)
    assert member.instance_id == ("i" if version >= 3 else None)
    assert group.subscribed == {"orders"}


@each_case("version", range(5))
def test_offsets_of_every_release_are_read(version: int) -> None:
    value = OffsetCommitValue(
        offset=5, leader_epoch=3, metadata="n", commit_timestamp=10, expire_timestamp=20
    )
    coordinator = load((OFFSET_KEY, TYPES.encode_value(value, version)))
    committed = coordinator.ledger.offsets.of(GROUP)[ORDERS]
    assert (committed.offset, committed.metadata, committed.committed_ms) == (5, "n", 10)
    assert committed.leader_epoch == (3 if version >= 3 else -1)
    assert committed.expires_ms == (20 if version == 1 else None)
    assert coordinator.describe(GROUP).state == "Empty"


def test_loaded_leader_must_be_a_member() -> None:
    member = MemberMetadata(
        member_id="m", client_id="", client_host="", session_timeout=9, subscription=b"",
        assignment=b"",
    )  # fmt: skip
    value = GroupMetadataValue(
        protocol_type="consumer", generation=1, protocol=None, leader="gone", members=[member]
    )
    group = load((GROUP_KEY, TYPES.encode_value(value, 3))).ledger.groups[GROUP]
    assert group.roster.leader == "m"


def test_offsets_survive_a_tombstone_of_only_their_group() -> None:
    offset = OffsetCommitValue(offset=5, metadata="", commit_timestamp=0)
    coordinator = load((OFFSET_KEY, TYPES.encode_value(offset, 3)), (GROUP_KEY, None))
    assert coordinator.fetch_offsets(GROUP, [ORDERS]).offsets[ORDERS].offset == 5
    assert len(coordinator.list_groups().groups) == 1


def test_records_of_other_types_and_later_releases_are_skipped() -> None:
    other = TYPES.encode_key(ConsumerGroupMetadataKey(group_id="new"))
    value = TYPES.encode_value(ConsumerGroupMetadataValue(epoch=1), 0)
    later = b"\x7f\0" + value[2:]
    coordinator = load((other, value), (other, later), (b"\x7f\0later", b"value"))
    assert coordinator.list_groups().groups == ()


def test_corrupt_record_is_rejected_and_changes_nothing() -> None:
    coordinator = Coordinator(GroupConfig())
    coordinator.lead(LeaderEpoch(1), 0)
    for key in (GROUP_KEY, OFFSET_KEY, b"\0"):
        with pytest.raises(ProtocolViolation):
            coordinator.replay(LeaderEpoch(1), Offset(0), key, b"\0\3")
    coordinator.finish_loading(LeaderEpoch(1), 0)
    assert coordinator.list_groups().groups == ()


def test_known_member_can_rejoin_after_a_load() -> None:
    harness = Harness()
    leader, follower = harness.stable(2)
    harness.crash()
    assert harness.joined(harness.join(follower)).generation == 1
    assert harness.waits(harness.join(leader))


# Queries.


def test_stable_group_is_described_with_assignments() -> None:
    harness = Harness()
    (member,) = harness.stable(1)
    assert harness.coordinator.describe(GROUP) == GroupDescription(
        GROUP,
        state="Stable",
        protocol_type="consumer",
        protocol_name="range",
        members=(
            DescribedMember(
                member,
                None,
                "client",
                "/10.0.0.1",
                subscription("orders"),
                f"share of {member}".encode(),
            ),
        ),
    )


@pytest.mark.parametrize("state", ["preparing", "completing"])
def test_rebalancing_group_is_described_without_assignments(state: str) -> None:
    harness = Harness()
    getattr(harness, state)(1)
    described = harness.coordinator.describe(GROUP)
    assert described.protocol_name == ""
    assert described.members[0].metadata == b""


def test_missing_group_is_described_as_dead() -> None:
    described = Harness().coordinator.describe("ghost")
    assert described == GroupDescription("ghost", ErrorCode.GROUP_ID_NOT_FOUND, "Dead")


def test_groups_are_listed_by_state_and_type() -> None:
    harness = Harness()
    harness.stable(1)
    harness.commit(5, group_id="simple")
    listed = {
        GROUP: ListedGroup(GROUP, "consumer", "Stable", "classic"),
        "simple": ListedGroup("simple", "", "Empty", "classic"),
    }

    def names(states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> set[str]:
        groups = harness.coordinator.list_groups(states, types).groups
        assert all(listed[group.group_id] == group for group in groups)
        return {group.group_id for group in groups}

    assert names() == {GROUP, "simple"}
    assert names((" sTaBLe ",)) == {GROUP}
    assert names(("Empty", "Dead")) == {"simple"}
    assert names(("nonsense",)) == set()
    assert names((), ("Classic",)) == {GROUP, "simple"}
    assert names(("Empty",), ("classic", "consumer")) == {"simple"}
    assert names((), ("consumer",)) == set()


def test_groups_are_independent() -> None:
    harness = Harness()
    harness.stable(1)
    harness.join(group_id="other")
    harness.advance(DELAY_MS)
    assert harness.state == "Stable"
    harness.advance(SESSION_MS)
    assert harness.state == "Empty"
    assert "other" not in harness.coordinator.ledger.groups


def test_query_changes_nothing() -> None:
    harness = Harness()
    harness.coordinator.describe("a")
    harness.coordinator.fetch_offsets("b", [partition("t")])
    harness.coordinator.list_groups()
    assert harness.coordinator.ledger.groups == {}
    assert not any(isinstance(effect, Respond) for effect in harness.told)
