"""Our group coordinator, compared with Kafka's.

Recorded are the errors that Kafka returns in every state of a group, and how it treats static
members. `make judge` asks a real Kafka again. It also lets Kafka read groups that we wrote, and
reads Kafka's.
"""

from collections.abc import Callable, Generator
from contextlib import ExitStack
from itertools import count
from time import monotonic, time

import pytest

from groups.error_table import CASES, REQUESTS
from groups.harness import DELAY_MS, GROUP, RANGE, SESSION_MS, Harness, partition
from judges.kafka_broker import KafkaBroker
from judges.recording import Json, Scenario
from judges.wire import Wire
from kafka_java import kafka_broker
from ottla.errors import ErrorCode
from ottla.groups.config import GroupConfig
from ottla.groups.ledger import Ledger
from ottla.groups.queries import describe
from ottla.groups.responses import JoinedMember, JoinResult
from ottla.ids import NO_PRODUCER_ID, Offset, ProducerId
from ottla.log.names import CLEAN_SHUTDOWN
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from ottla.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from ottla.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from ottla.records.batch import batches
from ottla.records.builder import BatchBuilder
from ottla.records.control import read_control, read_end_txn_marker
from recorded import recording, scenario

__all__ = ["recording", "scenario"]  # fixtures

TOPIC = "orders"
PATIENCE_S = 30


@pytest.fixture(scope="module")
def kafka() -> Generator[KafkaBroker]:
    # The table commits in transactions that were not started.
    with kafka_broker({"transaction.partition.verification.enable": "false"}) as broker:
        with broker.wire() as wire:
            topic = CreatableTopic(
                name=TOPIC, num_partitions=1, replication_factor=1, assignments=(), configs=()
            )
            asked = CreateTopicsRequest(topics=(topic,), timeout_ms=10_000)
            made = wire.ask(asked, 7, CreateTopicsResponse)
            assert made.topics[0].error_code == 0
            find = FindCoordinatorRequest(coordinator_keys=("any",))
            until(
                lambda: wire.ask(find, 4, FindCoordinatorResponse).coordinators[0].error_code == 0
            )
            until(lambda: wire.ask(ListGroupsRequest(), 5, ListGroupsResponse).error_code == 0)
        with ExitStack() as connections:
            first = KafkaSituation(broker, "none", connections)
            until(lambda: first.commit_alone() is ErrorCode.NONE)
        yield broker


def until(true: Callable[[], bool]) -> None:
    """Poll until it is true; Kafka takes a moment to create its topics and to change state."""
    end_s = monotonic() + PATIENCE_S
    while not true():
        assert monotonic() < end_s, "Kafka takes too long"


class KafkaSituation:
    """A group of Kafka's, brought into a state by client requests."""

    names = count(1)

    def __init__(self, broker: KafkaBroker, state: str, connections: ExitStack) -> None:
        self.broker = broker
        self.connections = connections
        self.group_id = f"{state}-{next(self.names)}"
        self.wire = self.connect()
        self.leader = self.member = "nobody"
        self.generation = 0
        if state == "simple":
            assert self.commit_alone() is ErrorCode.NONE
        elif state != "none":
            self.form()
        if state in ("empty", "preparing", "stable"):
            self.assign()
        if state == "empty":
            assert self.leave(self.leader) is self.leave(self.member) is ErrorCode.NONE
            self.member, self.generation = "nobody", self.generation + 1
        elif state == "preparing":
            self.send_join(self.connect(), self.new_id())
            until(lambda: self.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS)

    def connect(self) -> Wire:
        return self.connections.enter_context(self.broker.wire())

    # Reaching a state.

    def new_id(self) -> str:
        self.send_join(self.wire, "")
        answer = self.wire.receive(JoinGroupResponse)
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return answer.member_id

    def form(self) -> None:
        """Create two members that have joined; the first leads."""
        first = self.connect()
        self.leader = self.new_id()
        self.send_join(first, self.leader)
        alone = first.receive(JoinGroupResponse)
        assert (alone.error_code, alone.leader) == (0, self.leader)
        self.generation = alone.generation_id
        self.member = self.new_id()
        second = self.connect()
        self.send_join(second, self.member)
        until(lambda: self.heartbeat(self.leader) is ErrorCode.REBALANCE_IN_PROGRESS)
        self.send_join(first, self.leader)
        joined = [wire.receive(JoinGroupResponse) for wire in (first, second)]
        assert [(answer.error_code, answer.leader) for answer in joined] == [(0, self.leader)] * 2
        self.generation = joined[0].generation_id

    def assign(self) -> None:
        for member_id in (self.leader, self.member):
            answer = self.ask_sync(self.wire, member_id, self.generation)
            assert answer.error_code == 0

    def send_join(self, wire: Wire, member_id: str, instance_id: str | None = None) -> None:
        protocol = JoinGroupRequestProtocol(name=RANGE.name, metadata=RANGE.metadata)
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocols=(protocol,),
        )
        wire.send(request, 9)

    def sync_request(
        self, member_id: str, generation: int, protocol_type: str, protocol_name: str
    ) -> SyncGroupRequest:
        shares = tuple(
            SyncGroupRequestAssignment(member_id=each, assignment=f"share of {each}".encode())
            for each in (self.leader, self.member)
        )
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=generation,
            member_id=member_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=shares if member_id == self.leader else (),
        )

    def ask_sync(self, wire: Wire, member_id: str, generation: int) -> SyncGroupResponse:
        request = self.sync_request(member_id, generation, "consumer", "range")
        return wire.ask(request, 5, SyncGroupResponse)

    # Requests.

    def join(self, member_id: str) -> ErrorCode:
        waiting = self.connect()
        self.send_join(waiting, member_id)
        if member_id == self.member and self.group_id.startswith("preparing"):
            self.send_join(self.connect(), self.leader)  # starts the generation
        return ErrorCode(waiting.receive(JoinGroupResponse).error_code)

    def sync(
        self,
        member_id: str | None = None,
        *,
        ahead: int = 0,
        protocol_type: str = "consumer",
        protocol_name: str = "range",
    ) -> ErrorCode:
        generation = self.generation + ahead
        request = self.sync_request(
            member_id or self.member, generation, protocol_type, protocol_name
        )
        waiting = self.connect()
        waiting.send(request, 5)
        if self.group_id.startswith("completing") and request.member_id == self.member:
            self.ask_sync(self.wire, self.leader, self.generation)  # the others get theirs
        return ErrorCode(waiting.receive(SyncGroupResponse).error_code)

    def heartbeat(self, member_id: str | None = None, *, ahead: int = 0) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation + ahead,
            member_id=member_id or self.member,
        )
        return ErrorCode(self.wire.ask(request, 4, HeartbeatResponse).error_code)

    def leave(self, member_id: str | None = None) -> ErrorCode:
        leaver = MemberIdentity(member_id=member_id or self.member)
        request = LeaveGroupRequest(group_id=self.group_id, members=(leaver,))
        answer = self.wire.ask(request, 5, LeaveGroupResponse)
        assert answer.error_code == 0
        return ErrorCode(answer.members[0].error_code)

    def commit(
        self, member_id: str | None = None, *, ahead: int = 0, producer_id: int | None = None
    ) -> ErrorCode:
        generation = self.generation + ahead
        return self.send_commit(member_id or self.member, generation, producer_id)

    def commit_alone(self, member_id: str = "", *, producer_id: int | None = None) -> ErrorCode:
        return self.send_commit(member_id, -1, producer_id)

    def send_commit(self, member_id: str, generation: int, producer_id: int | None) -> ErrorCode:
        if producer_id is not None:
            return self.send_commit_in_transaction(member_id, generation, producer_id)
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=5, committed_leader_epoch=2, committed_metadata="n"
        )
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=(OffsetCommitRequestTopic(name=TOPIC, partitions=(partition,)),),
        )
        answer = self.wire.ask(request, 9, OffsetCommitResponse)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def send_commit_in_transaction(
        self, member_id: str, generation: int, producer_id: int
    ) -> ErrorCode:
        partition = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=6, committed_leader_epoch=2, committed_metadata="t"
        )
        request = TxnOffsetCommitRequest(
            transactional_id="t",
            group_id=self.group_id,
            producer_id=producer_id,
            producer_epoch=0,
            generation_id=generation,
            member_id=member_id,
            topics=(TxnOffsetCommitRequestTopic(name=TOPIC, partitions=(partition,)),),
        )
        answer = self.wire.ask(request, 3, TxnOffsetCommitResponse)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def delete(self) -> ErrorCode:
        request = DeleteGroupsRequest(groups_names=(self.group_id,))
        answer = self.wire.ask(request, 2, DeleteGroupsResponse)
        return ErrorCode(answer.results[0].error_code)

    def delete_offsets(self) -> ErrorCode:
        partition = OffsetDeleteRequestPartition(partition_index=0)
        topic = OffsetDeleteRequestTopic(name=TOPIC, partitions=(partition,))
        request = OffsetDeleteRequest(group_id=self.group_id, topics=(topic,))
        return ErrorCode(self.wire.ask(request, 0, OffsetDeleteResponse).error_code)


@pytest.mark.recorded
@pytest.mark.parametrize(("name", "state", "expected"), CASES)
def test_table_has_the_error_that_kafka_answers(
    request: pytest.FixtureRequest,
    scenario: Scenario,
    name: str,
    state: str,
    expected: ErrorCode | None,
) -> None:
    def ask() -> str:
        kafka: KafkaBroker = request.getfixturevalue("kafka")
        with ExitStack() as connections:
            answer = REQUESTS[name](KafkaSituation(kafka, state, connections))
        assert isinstance(answer, ErrorCode)
        return answer.name

    # A pending request gets its response, without an error, when the generation proceeds.
    assert scenario.answer([name, state], ask) == (expected or ErrorCode.NONE).name


# Static members.


def static_story(join: Callable[[str, str], JoinResult], sync: Callable[[str], bytes]) -> Json:
    """A static member joins twice, then the first one returns with its member id."""
    first = join("", "a")
    share = sync(first.member_id)
    second = join("", "a")
    assert second.member_id not in ("", first.member_id)
    fenced = join(first.member_id, "a")
    stranger = join(second.member_id, "b")
    return [
        [first.error.name, first.generation, first.leader == first.member_id, len(first.members)],
        share.decode(),
        [second.error.name, second.generation, second.leader == second.member_id],
        [second.skip_assignment, [member.instance_id for member in second.members]],
        [fenced.error.name, fenced.member_id == first.member_id, fenced.generation],
        [stranger.error.name, stranger.member_id == second.member_id],
        sync(second.member_id).decode(),
    ]


@pytest.mark.recorded
def test_static_members_are_treated_as_by_kafka(
    request: pytest.FixtureRequest, scenario: Scenario
) -> None:
    harness = Harness(GroupConfig(initial_rebalance_delay_ms=0))

    def our_join(member_id: str, instance_id: str) -> JoinResult:
        token = harness.join(member_id, instance_id=instance_id)
        harness.advance(0)
        return harness.joined(token)

    def our_sync(member_id: str) -> bytes:
        token = harness.sync(member_id, 1, {member_id: b"share"}, instance_id="a")
        return harness.synced(token).assignment

    def kafkas_story() -> Json:
        with ExitStack() as connections:
            kafka: KafkaBroker = request.getfixturevalue("kafka")
            return story_of(KafkaSituation(kafka, "none", connections))

    assert static_story(our_join, our_sync) == scenario.answer("static_story", kafkas_story)


def story_of(theirs: KafkaSituation) -> Json:
    def their_join(member_id: str, instance_id: str) -> JoinResult:
        theirs.send_join(theirs.wire, member_id, instance_id)
        return join_answer(theirs.wire.receive(JoinGroupResponse))

    def their_sync(member_id: str) -> bytes:
        share = SyncGroupRequestAssignment(member_id=member_id, assignment=b"share")
        request = SyncGroupRequest(
            group_id=theirs.group_id,
            generation_id=1,
            member_id=member_id,
            group_instance_id="a",
            protocol_type="consumer",
            protocol_name="range",
            assignments=(share,),
        )
        return theirs.wire.ask(request, 5, SyncGroupResponse).assignment

    return static_story(their_join, their_sync)


def join_answer(told: JoinGroupResponse) -> JoinResult:
    members = tuple(
        JoinedMember(member.member_id, member.group_instance_id, member.metadata)
        for member in told.members
    )
    return JoinResult(
        ErrorCode(told.error_code),
        told.member_id,
        told.generation_id,
        told.protocol_type,
        told.protocol_name,
        told.leader,
        told.skip_assignment,
        members,
    )


# Records that Kafka wrote.


def described_by(wire: Wire, group_id: str) -> DescribedGroup:
    request = DescribeGroupsRequest(groups=(group_id,))
    (described,) = wire.ask(request, 6, DescribeGroupsResponse).groups
    return described


def committed_by(wire: Wire, group_id: str) -> dict[tuple[str, int], tuple[int, int, str | None]]:
    group = OffsetFetchRequestGroup(group_id=group_id, topics=None)
    answer = wire.ask(OffsetFetchRequest(groups=(group,)), 9, OffsetFetchResponse).groups[0]
    assert answer.error_code == 0
    return {
        (topic.name, found.partition_index): (
            found.committed_offset,
            found.committed_leader_epoch,
            found.metadata,
        )
        for topic in answer.topics
        for found in topic.partitions
    }


def ledger_of(broker: KafkaBroker) -> Ledger:
    """Return the groups in the files of Kafka's offsets topic."""
    ledger = Ledger()
    for path in sorted((broker.data / "__consumer_offsets-0").glob("*.log")):
        for batch in batches(path.read_bytes(), lenient=True):
            header = batch.header
            if header.is_control:
                control = read_control(batch)
                marker = read_end_txn_marker(control) if control else None
                if marker is not None:
                    ledger.end_transaction(ProducerId(header.producer_id), committed=marker.commit)
                continue
            producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
            for record in batch.records():
                ledger.replay(Offset(record.offset), record.key, record.value, producer_id)
    return ledger


@pytest.mark.judge
def test_our_ledger_reads_what_kafka_wrote(kafka: KafkaBroker) -> None:
    with ExitStack() as connections:
        known = {
            state: KafkaSituation(kafka, state, connections)
            for state in ("simple", "empty", "stable")
        }
        assert known["stable"].commit() is ErrorCode.NONE
        deleted = KafkaSituation(kafka, "simple", connections)
        assert deleted.delete() is ErrorCode.NONE
        wire = known["stable"].wire
        ids = tuple(situation.group_id for situation in known.values())
        described = [described_by(wire, group_id) for group_id in ids]
        offsets = {group_id: committed_by(wire, group_id) for group_id in ids}
        ledger = ledger_of(kafka)
    assert deleted.group_id not in ledger.groups
    for told in described:
        compare(told, ledger)
        assert offsets[told.group_id] == {
            (at.topic, at.partition): (found.offset, found.leader_epoch, found.metadata)
            for at, found in ledger.offsets.of(told.group_id).items()
        }
    stable = known["stable"].group_id
    assert ledger.groups[stable].generation == known["stable"].generation
    assert offsets[stable] == {(TOPIC, 0): (5, 2, "n")}
    assert offsets[known["simple"].group_id] == {(TOPIC, 0): (5, 2, "n")}


@pytest.mark.judge
def test_kafka_reads_what_we_wrote(kafka: KafkaBroker) -> None:
    harness = our_groups()
    kafka.stop()
    append_to(kafka, harness)
    kafka.start()
    with kafka.wire() as wire:
        until(lambda: described_by(wire, GROUP).error_code == 0)
        for ours in harness.coordinator.list_groups().groups:
            compare(described_by(wire, ours.group_id), harness.coordinator.ledger)
            fetched = harness.coordinator.fetch_offsets(ours.group_id, None).offsets
            assert committed_by(wire, ours.group_id) == {
                (at.topic, at.partition): (found.offset, found.leader_epoch, found.metadata)
                for at, found in fetched.items()
            }
        # A member continues with Kafka as its coordinator, as if nothing had happened.
        member = next(iter(harness.group.roster))
        beat = HeartbeatRequest(
            group_id=GROUP,
            generation_id=harness.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
        )
        assert wire.ask(beat, 4, HeartbeatResponse).error_code == 0
        gone = described_by(wire, "deleted")
        assert (gone.error_code, gone.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")


def our_groups() -> Harness:
    """Create a stable group with a static member, an empty one, a simple one and a deleted one."""
    harness = Harness()
    harness.now_ms = int(time() * 1000)  # the records must not have expired when Kafka reads them
    for instance_id in ("a", None):
        but = {"member_id_required": False}
        harness.join(instance_id=instance_id, session_ms=600_000, but=but)
    harness.advance(2 * DELAY_MS)
    harness.sync_all(harness.members())
    leader = harness.members()[0]
    assert harness.commit(7, member_id=leader, instance_id="a", generation=1) is ErrorCode.NONE
    assert harness.commit(8, group_id="simple") is ErrorCode.NONE
    old = {"retention_ms": 900_000}
    assert harness.commit(9, group_id="simple", at=partition("bills"), but=old) is ErrorCode.NONE
    assert harness.commit(10, group_id="deleted") is ErrorCode.NONE
    assert harness.deleted("deleted") == [ErrorCode.NONE]
    harness.join(group_id="left", but={"member_id_required": False})
    harness.advance(DELAY_MS)
    harness.leave("client-3", group_id="left")
    states = {group.group_id: group.state for group in harness.coordinator.list_groups().groups}
    assert states == {GROUP: "Stable", "simple": "Empty", "left": "Empty"}
    harness.crash()  # both know only the log
    return harness


def append_to(broker: KafkaBroker, harness: Harness) -> None:
    """Append our records to Kafka's log while Kafka is stopped."""
    path = max((broker.data / "__consumer_offsets-0").glob("*.log"))
    headers = [batch.header for batch in batches(path.read_bytes())]
    next_offset, leader_epoch = headers[-1].next_offset, headers[-1].leader_epoch
    builder = BatchBuilder()
    for entry in harness.log:
        assert entry.record is not None
        assert builder.append(harness.now_ms, entry.record.key, entry.record.value)
    with path.open("ab") as file:
        file.write(builder.build(base_offset=next_offset, leader_epoch=leader_epoch))
    # Without the clean-shutdown mark Kafka reads its logs to the end.
    (broker.data / CLEAN_SHUTDOWN).unlink()


def compare(told: DescribedGroup, ledger: Ledger) -> None:
    read = describe(ledger, told.group_id)
    assert (read.error, read.state) == (told.error_code, told.group_state)
    assert (read.protocol_type, read.protocol_name) == (told.protocol_type, told.protocol_data)
    assert {tuple(member) for member in read.members} == {
        (
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.member_metadata,
            member.member_assignment,
        )
        for member in told.members
    }
