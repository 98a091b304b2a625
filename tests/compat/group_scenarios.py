"""Requests about groups and their offsets.

tests/groups/test_kafka_agrees.py compares the errors of group requests in each state. Here the
whole responses are compared, in every version.
"""

from compat.response_comparison import Asker
from compat.topic_scenarios import STRANGER
from ottla.ids import ZERO_UUID, Uuid
from ottla.protocol.consumer_protocol import ConsumerProtocolSubscription, encode_embedded
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

METADATA = encode_embedded(ConsumerProtocolSubscription(topics=("grouped",)), 1)
SHARE = b"a share"


def coordinated(ask: Asker, group_id: str = "any") -> None:
    """Wait until the group has a coordinator; Kafka creates a topic first."""
    ask.until(
        lambda answer: answer.coordinators[0].error_code == 0,
        FindCoordinatorRequest(coordinator_keys=(group_id,)),
    )
    ask.answers.pop()
    ask.until(
        lambda answer: answer.groups[0].error_code not in (14, 15, 16),
        DescribeGroupsRequest(groups=(group_id,)),
    )
    ask.answers.pop()


def find_coordinator(ask: Asker) -> None:
    coordinated(ask)
    for version in range(4):
        for key in ("any", ""):
            ask(FindCoordinatorRequest(key=key), version)
    for version in range(4, 7):
        ask(FindCoordinatorRequest(coordinator_keys=("any", "other", "")), version)
        ask(FindCoordinatorRequest(coordinator_keys=("any", "any")), version)
        ask(FindCoordinatorRequest(coordinator_keys=()), version)
    for version in (1, 3):
        ask(FindCoordinatorRequest(key="any", key_type=7), version)
    for version in (4, 6):
        ask(FindCoordinatorRequest(coordinator_keys=("any",), key_type=7), version)
        ask(FindCoordinatorRequest(coordinator_keys=("any",), key_type=-1), version)


def transactions(ask: Asker) -> None:
    ask.until(
        lambda answer: answer.coordinators[0].error_code != 15,
        FindCoordinatorRequest(coordinator_keys=("mine",), key_type=1),
    )
    # Kafka loads the transactions of a new partition before it responds.
    ask.until(
        lambda answer: answer.error_code not in (14, 15, 16),
        InitProducerIdRequest(transactional_id="mine", transaction_timeout_ms=1000),
        4,
    )


def more_homes_of_groups(ask: Asker) -> None:
    coordinated(ask)
    one = CreatePartitionsTopic(name="__consumer_offsets", count=60, assignments=None)
    ask(CreatePartitionsRequest(topics=[one], timeout_ms=10_000, validate_only=True), 3)


def join(
    group_id: str,
    member_id: str = "",
    *,
    instance_id: str | None = None,
    protocol_type: str = "consumer",
    protocols: tuple[str, ...] = ("range",),
    session_ms: int = 10_000,
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=METADATA) for name in protocols],
    )


def sync(group_id: str, member_id: str, generation: int = 1) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=generation,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=SHARE)],
    )


def one_member(ask: Asker) -> None:
    """A group with one member, which is formed, described and left in each version."""
    ask.topic("grouped", 2)
    coordinated(ask)
    for version in range(2, 10):
        group_id = f"one-{version}"
        member_id = member_of(ask, group_id, version)
        ask(sync(group_id, member_id), min(version, 5))
        for lacking in ("protocol_type", "protocol_name"):
            unnamed = sync(group_id, member_id)
            setattr(unnamed, lacking, None)
            ask(unnamed, min(version, 5))
        beat = HeartbeatRequest(group_id=group_id, generation_id=1, member_id=member_id)
        ask(beat, min(version, 4))
        beat.generation_id = 7
        ask(beat, min(version, 4))
        ask(DescribeGroupsRequest(groups=(group_id,)), min(version, 6))
        identity = MemberIdentity(member_id=member_id)
        if version < 3:
            ask(LeaveGroupRequest(group_id=group_id, member_id=member_id), version)
        else:
            strange = MemberIdentity(member_id="strange")
            leave = LeaveGroupRequest(group_id=group_id, members=[identity, strange])
            ask(leave, min(version, 5))
        ask(DescribeGroupsRequest(groups=(group_id,)), min(version, 6))


def member_of(ask: Asker, group_id: str, version: int) -> str:
    """Join as the only member; its id is compared by a name."""
    request = join(group_id)
    answer = ask.prepare(request, version)
    if version >= 4:
        assert answer.error_code == 79
        request.member_id = answer.member_id
        ask.means(answer.member_id, f"the member of {group_id}")
        answer = ask(request, version)
    assert answer.error_code == 0
    ask.means(answer.member_id, f"the member of {group_id}")
    found = answer.member_id
    assert isinstance(found, str)
    return found


def refused_members(ask: Asker) -> None:
    coordinated(ask)
    for request in (
        join(""),
        join("refused", "strange"),
        join("refused", session_ms=1),
        join("refused", session_ms=10**9),
        join("refused", protocols=()),
        join("refused", protocol_type=""),
        join("refused", "strange", instance_id="static"),
    ):
        for version in (3, 9):
            if version < 5 and request.group_instance_id is not None:
                continue
            ask(request, version)
    for group_id in ("", "absent"):
        ask(HeartbeatRequest(group_id=group_id, generation_id=1, member_id="m"), 4)
        ask(sync(group_id, "m"), 5)
        ask(LeaveGroupRequest(group_id=group_id, members=[MemberIdentity(member_id="m")]), 5)
        ask(LeaveGroupRequest(group_id=group_id, member_id="m"), 2)
        for version in range(7):
            ask(DescribeGroupsRequest(groups=(group_id,)), version)
        for version in range(3, 7):
            described = DescribeGroupsRequest(
                groups=(group_id,), include_authorized_operations=True
            )
            ask(described, version)
        for version in range(3):
            ask(DeleteGroupsRequest(groups_names=(group_id,)), version)
    ask(DeleteGroupsRequest(groups_names=("absent", "absent")), 2)
    ask(DeleteGroupsRequest(groups_names=()), 2)
    ask(DescribeGroupsRequest(groups=()), 6)


def static_member(ask: Asker) -> None:
    coordinated(ask)
    answer = ask.prepare(join("static", instance_id="first"), 9)
    assert answer.error_code == 0
    ask.means(answer.member_id, "the static member")
    first = answer.member_id
    request = sync("static", first)
    request.group_instance_id = "first"
    ask(request, 5)
    request.member_id = "strange"
    ask(request, 5)
    beat = HeartbeatRequest(
        group_id="static", generation_id=1, member_id=first, group_instance_id="first"
    )
    ask(beat, 4)
    beat.group_instance_id = "second"
    ask(beat, 4)
    again = ask.prepare(join("static", instance_id="first"), 9)
    ask.means(again.member_id, "the static member, come again")
    assert again.error_code == 0
    beat.group_instance_id = "first"
    ask(beat, 4)
    ask(DescribeGroupsRequest(groups=("static",), include_authorized_operations=True), 6)
    leave = LeaveGroupRequest(
        group_id="static",
        members=[
            MemberIdentity(member_id="", group_instance_id="second"),
            MemberIdentity(member_id=first, group_instance_id="first"),
        ],
    )
    ask(leave, 5)
    leave.members = [MemberIdentity(member_id="", group_instance_id="first")]
    ask(leave, 5)


def commit(
    group_id: str,
    name: str,
    offset: int = 5,
    index: int = 0,
    *,
    topic_id: Uuid = ZERO_UUID,
    metadata: str | None = "note",
    generation: int = -1,
    member_id: str = "",
) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=offset,
        committed_leader_epoch=0,
        committed_metadata=metadata,
    )
    topic = OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=[partition])
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[topic],
    )


def offsets(ask: Asker) -> None:
    topic_id = ask.topic("committed", 2)
    coordinated(ask)
    for version in range(2, 11):
        ask(commit("offsets", "committed", version, topic_id=topic_id), version)
    for version in (2, 9):
        ask(commit("offsets", "absent"), version)
        ask(commit("offsets", "committed", index=7), version)
        ask(commit("offsets", "committed", index=-1), version)
        ask(commit("offsets", "committed", -1), version)
        ask(commit("offsets", "committed", metadata=None, index=1), version)
        ask(commit("offsets", "committed", metadata="x" * 5000), version)
        ask(commit("offsets", "committed", generation=3), version)
        ask(commit("offsets", "committed", generation=3, member_id="strange"), version)
        ask(commit("", "committed"), version)
        ask(OffsetCommitRequest(group_id="offsets", member_id="", topics=[]), version)
        twice = commit("offsets", "committed")
        twice.topics[0].partitions = [*twice.topics[0].partitions] * 2
        ask(twice, version)
        twice.member_id = "strange"
        ask(twice, version)
    ask(commit("offsets", "", topic_id=STRANGER), 10)
    ask(commit("offsets", "", index=9, topic_id=topic_id), 10)
    for version in range(1, 8):
        wanted = [
            OffsetFetchRequestTopic(name="committed", partition_indexes=[0, 1, 7]),
            OffsetFetchRequestTopic(name="absent", partition_indexes=[0]),
        ]
        for group_id in ("offsets", "absent", ""):
            ask(OffsetFetchRequest(group_id=group_id, topics=wanted), version)
            if version >= 2:
                ask(OffsetFetchRequest(group_id=group_id, topics=None), version)
        ask(OffsetFetchRequest(group_id="offsets", topics=()), version)
    for version in range(8, 11):
        ask_offsets(ask, version, topic_id)


def ask_offsets(ask: Asker, version: int, topic_id: Uuid) -> None:
    topics = [
        OffsetFetchRequestTopics(name="committed", topic_id=topic_id, partition_indexes=[0, 1, 7]),
        OffsetFetchRequestTopics(name="absent", topic_id=STRANGER, partition_indexes=[0]),
    ]
    groups = [
        OffsetFetchRequestGroup(group_id="offsets", topics=topics),
        OffsetFetchRequestGroup(group_id="absent", topics=topics),
    ]
    ask(OffsetFetchRequest(groups=groups), version)
    ask(OffsetFetchRequest(groups=groups, require_stable=True), version)
    everything = [OffsetFetchRequestGroup(group_id=one, topics=None) for one in ("offsets", "x")]
    ask(OffsetFetchRequest(groups=everything), version)
    ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="", topics=None)]), version)
    ask(OffsetFetchRequest(groups=()), version)
    stranger = OffsetFetchRequestGroup(
        group_id="offsets", member_id="strange", member_epoch=1, topics=None
    )
    ask(OffsetFetchRequest(groups=[stranger]), version)


def offsets_forgotten(ask: Asker) -> None:
    ask.topic("forgotten", 2)
    coordinated(ask)
    for index in (0, 1):
        assert ask.prepare(commit("forgetting", "forgotten", index=index), 9)

    def forget(group_id: str, name: str, *indexes: int) -> None:
        partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
        topic = OffsetDeleteRequestTopic(name=name, partitions=partitions)
        ask(OffsetDeleteRequest(group_id=group_id, topics=[topic]), 0)

    forget("forgetting", "forgotten", 0, 7)
    forget("forgetting", "forgotten", 0)
    forget("forgetting", "absent", 0)
    forget("absent", "forgotten", 0)
    forget("", "forgotten", 0)
    ask(OffsetDeleteRequest(group_id="forgetting", topics=[]), 0)
    ask(OffsetFetchRequest(group_id="forgetting", topics=None), 7)
    ask(DeleteGroupsRequest(groups_names=("forgetting", "forgetting-2")), 2)
    ask(DescribeGroupsRequest(groups=("forgetting",)), 6)


def list_groups(ask: Asker) -> None:
    ask.topic("listing")
    coordinated(ask)
    for version in range(6):
        ask(ListGroupsRequest(), version)
    for states in (["Empty"], ["Stable"], ["empty", "DEAD"], ["no such"], [""]):
        ask(ListGroupsRequest(states_filter=states), 5)
    for types in (["classic"], ["Classic"], ["consumer"], ["no such"]):
        ask(ListGroupsRequest(types_filter=types), 5)


def new_protocol(ask: Asker) -> None:
    coordinated(ask)
    for epoch in (0, -1):  # join and leave
        ask(
            ConsumerGroupHeartbeatRequest(
                group_id="new-protocol",
                member_id="one",
                member_epoch=epoch,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=("new-protocol",),
                topic_partitions=(),
            ),
            1,
        )


SCENARIOS = (
    find_coordinator,
    transactions,
    more_homes_of_groups,
    one_member,
    refused_members,
    static_member,
    offsets,
    offsets_forgotten,
    list_groups,
    new_protocol,
)
