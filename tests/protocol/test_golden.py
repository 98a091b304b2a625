"""Messages that kio does not have, compared with bytes of Kafka's own classes.

golden.txt has one line per case and version. Each line was written by the generated classes of
Kafka 4.3.1, or of 3.9.2 for the four inter-broker APIs that 4.0 removed, with the same field
values. Fields that a version does not have were omitted.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from cases import each_case
from ottla.ids import Uuid
from ottla.log.producer_snapshot import ProducerEntry, ProducerSnapshot
from ottla.protocol.message import Message
from ottla.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from ottla.protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from ottla.protocol.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from ottla.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)
from ottla.protocol.offsets_topic import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    PartitionMetadata,
    TopicMetadata,
    TopicPartition,
    TopicPartitions,
)
from ottla.protocol.schema import Kind, Struct
from ottla.protocol.transactions_topic import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from protocol_values import MESSAGES

ID: Final = Uuid(bytes(range(16)))
OTHER_ID: Final = Uuid(bytes(range(240, 256)))


def leader_state(**more: Any) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(
        partition_index=7,
        controller_epoch=3,
        leader=1,
        leader_epoch=258,
        isr=(1, 2),
        partition_epoch=5,
        replicas=(1, 2, 3),
        adding_replicas=(3,),
        removing_replicas=(),
        is_new=True,
        **more,
    )


LIVE_LEADERS: Final = (
    LeaderAndIsrLiveLeader(broker_id=1, host_name="eins.example", port=9092),
    LeaderAndIsrLiveLeader(broker_id=2, host_name="zwei.example", port=65_535),
)


def leader_and_isr(**more: Any) -> LeaderAndIsrRequest:
    return LeaderAndIsrRequest(
        controller_id=4, controller_epoch=3, broker_epoch=2**40, live_leaders=LIVE_LEADERS, **more
    )


def metadata_state(topic: str) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        topic_name=topic,
        partition_index=0,
        controller_epoch=3,
        leader=-2,
        leader_epoch=9,
        isr=(),
        zk_version=17,
        replicas=(1, 2),
        offline_replicas=(2,),
    )


BROKERS: Final = (
    UpdateMetadataBroker(
        id=1,
        v0_host="eins.example",
        v0_port=9092,
        endpoints=(
            UpdateMetadataEndpoint(
                port=9092, host="eins.example", listener="PLAINTEXT", security_protocol=0
            ),
            UpdateMetadataEndpoint(port=9093, host="ünö", listener="TLS", security_protocol=1),
        ),
        rack="r1",
    ),
    UpdateMetadataBroker(id=2, v0_host="", v0_port=0, endpoints=(), rack=None),
)


def update_metadata(**more: Any) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        controller_id=4, controller_epoch=3, broker_epoch=-1, live_brokers=BROKERS, **more
    )


def member(classic: ClassicMemberMetadata | None, **more: Any) -> ConsumerGroupMemberMetadataValue:
    return ConsumerGroupMemberMetadataValue(
        client_id="client",
        client_host="/127.0.0.1",
        subscribed_topic_names=("orders", "payments"),
        rebalance_timeout_ms=300_000,
        classic_member_metadata=classic,
        **more,
    )


NOBODY: Final[dict[str, Any]] = {
    "instance_id": None,
    "rack_id": None,
    "subscribed_topic_regex": None,
    "server_assignor": None,
}
SOMEBODY: Final[dict[str, Any]] = {
    "instance_id": "static-1",
    "rack_id": "r1",
    "subscribed_topic_regex": "ord.*",
    "server_assignor": "uniform",
}


def group_member(name: str, instance: str | None) -> MemberMetadata:
    return MemberMetadata(
        member_id=name,
        group_instance_id=instance,
        client_id="client",
        client_host="/10.0.0.1",
        rebalance_timeout=60_000,
        session_timeout=45_000,
        subscription=b"\0\1sub",
        assignment=b"",
    )


# Name of a case, its versions, its value.
CASES: Final[dict[str, tuple[range, Message]]] = {
    "leader-and-isr-ungrouped": (
        range(2),
        leader_and_isr(
            ungrouped_partition_states=(
                leader_state(topic_name="orders"),
                leader_state(topic_name=""),
            )
        ),
    ),
    "leader-and-isr-by-topic": (
        range(2, 5),
        leader_and_isr(
            topic_states=(
                LeaderAndIsrTopicState(
                    topic_name="orders", topic_id=ID, partition_states=(leader_state(),)
                ),
                LeaderAndIsrTopicState(topic_name="empty", topic_id=ID, partition_states=()),
            )
        ),
    ),
    "leader-and-isr-typed": (
        range(5, 6),
        leader_and_isr(
            type=2,
            topic_states=(
                LeaderAndIsrTopicState(
                    topic_name="orders", topic_id=ID, partition_states=(leader_state(),)
                ),
            ),
        ),
    ),
    "leader-and-isr-recovering": (
        range(6, 8),
        leader_and_isr(
            type=1,
            topic_states=(
                LeaderAndIsrTopicState(
                    topic_name="orders",
                    topic_id=OTHER_ID,
                    partition_states=(leader_state(leader_recovery_state=1), leader_state()),
                ),
            ),
        ),
    ),
    "leader-and-isr-kraft": (range(7, 8), leader_and_isr(is_kraft_controller=True)),
    "leader-and-isr-answer": (
        range(5),
        LeaderAndIsrResponse(
            error_code=0,
            partition_errors=(
                LeaderAndIsrPartitionError(topic_name="orders", partition_index=0, error_code=0),
                LeaderAndIsrPartitionError(topic_name="orders", partition_index=1, error_code=-1),
            ),
        ),
    ),
    "leader-and-isr-answer-by-topic": (
        range(5, 8),
        LeaderAndIsrResponse(
            error_code=11,
            topics=(
                LeaderAndIsrTopicError(
                    topic_id=ID,
                    partition_errors=(
                        LeaderAndIsrPartitionError(partition_index=3, error_code=56),
                    ),
                ),
                LeaderAndIsrTopicError(topic_id=OTHER_ID, partition_errors=()),
            ),
        ),
    ),
    "stop-replica-ungrouped": (
        range(1),
        StopReplicaRequest(
            controller_id=1,
            controller_epoch=2,
            broker_epoch=3,
            delete_partitions=True,
            ungrouped_partitions=(
                StopReplicaPartitionV0(topic_name="orders", partition_index=0),
                StopReplicaPartitionV0(topic_name="payments", partition_index=9),
            ),
        ),
    ),
    "stop-replica-by-topic": (
        range(1, 3),
        StopReplicaRequest(
            controller_id=1,
            controller_epoch=2,
            broker_epoch=3,
            delete_partitions=True,
            topics=(
                StopReplicaTopicV1(name="orders", partition_indexes=tuple(range(20))),
                StopReplicaTopicV1(name="", partition_indexes=()),
            ),
        ),
    ),
    "stop-replica-by-state": (
        range(3, 5),
        StopReplicaRequest(
            controller_id=1,
            controller_epoch=2,
            broker_epoch=3,
            topic_states=(
                StopReplicaTopicState(
                    topic_name="orders",
                    partition_states=(
                        StopReplicaPartitionState(partition_index=1, delete_partition=False),
                        StopReplicaPartitionState(
                            partition_index=2, leader_epoch=-2, delete_partition=True
                        ),
                    ),
                ),
            ),
        ),
    ),
    "stop-replica-kraft": (
        range(4, 5),
        StopReplicaRequest(controller_id=1, is_kraft_controller=True, controller_epoch=2),
    ),
    "stop-replica-answer": (
        range(5),
        StopReplicaResponse(
            error_code=77,
            partition_errors=(
                StopReplicaPartitionError(topic_name="orders", partition_index=1, error_code=74),
                StopReplicaPartitionError(topic_name="é", partition_index=-1, error_code=0),
            ),
        ),
    ),
    "update-metadata-ungrouped": (
        range(5),
        update_metadata(ungrouped_partition_states=(metadata_state("orders"), metadata_state("p"))),
    ),
    "update-metadata-by-topic": (
        range(5, 9),
        update_metadata(
            topic_states=(
                UpdateMetadataTopicState(
                    topic_name="orders", topic_id=ID, partition_states=(metadata_state(""),)
                ),
            )
        ),
    ),
    "update-metadata-kraft": (range(8, 9), update_metadata(is_kraft_controller=True, type=2)),
    "update-metadata-answer": (range(9), UpdateMetadataResponse(error_code=11)),
    "controlled-shutdown": (
        range(4),
        ControlledShutdownRequest(broker_id=2, broker_epoch=2**33),
    ),
    "controlled-shutdown-answer": (
        range(4),
        ControlledShutdownResponse(
            error_code=0,
            remaining_partitions=(
                RemainingPartition(topic_name="orders", partition_index=1),
                RemainingPartition(topic_name="payments", partition_index=2),
            ),
        ),
    ),
    "offset-key": (range(1), OffsetCommitKey(group="group", topic="orders", partition=12)),
    "offset": (
        range(5),
        OffsetCommitValue(
            offset=2**33,
            leader_epoch=6,
            metadata="note",
            commit_timestamp=1_700_000_000_000,
            expire_timestamp=1_700_000_600_000,
        ),
    ),
    "offset-with-topic-id": (
        range(4, 5),
        OffsetCommitValue(offset=0, metadata="", commit_timestamp=-1, topic_id=OTHER_ID),
    ),
    "group-key": (range(1), GroupMetadataKey(group="gr\u00fcppe")),
    "group": (
        range(5),
        GroupMetadataValue(
            protocol_type="consumer",
            generation=4,
            protocol="range",
            leader="member-1",
            current_state_timestamp=1_700_000_000_000,
            members=(group_member("member-1", "static-1"), group_member("member-2", None)),
        ),
    ),
    "group-empty": (
        range(5),
        GroupMetadataValue(
            protocol_type="consumer", generation=0, protocol=None, leader=None, members=()
        ),
    ),
    "consumer-group-key": (range(1), ConsumerGroupMetadataKey(group_id="group")),
    "consumer-group": (range(1), ConsumerGroupMetadataValue(epoch=10)),
    "consumer-group-hashed": (
        range(1),
        ConsumerGroupMetadataValue(epoch=10, metadata_hash=-(2**62)),
    ),
    "partition-metadata-key": (range(1), ConsumerGroupPartitionMetadataKey(group_id="group")),
    "partition-metadata": (
        range(1),
        ConsumerGroupPartitionMetadataValue(
            topics=(
                TopicMetadata(
                    topic_id=ID,
                    topic_name="orders",
                    num_partitions=3,
                    partition_metadata=(
                        PartitionMetadata(partition=0, racks=("r1", "r2")),
                        PartitionMetadata(partition=1, racks=()),
                    ),
                ),
            )
        ),
    ),
    "member-key": (
        range(1),
        ConsumerGroupMemberMetadataKey(group_id="group", member_id="member"),
    ),
    "member-without-classic": (range(1), member(None, **NOBODY)),
    "member-with-empty-classic": (range(1), member(ClassicMemberMetadata(), **SOMEBODY)),
    "member-with-classic": (
        range(1),
        member(
            ClassicMemberMetadata(
                session_timeout_ms=45_000,
                supported_protocols=(
                    ClassicProtocol(name="range", metadata=b"\0\1\2"),
                    ClassicProtocol(name="sticky", metadata=b""),
                ),
            ),
            **SOMEBODY,
        ),
    ),
    "member-with-timeout-alone": (
        range(1),
        member(ClassicMemberMetadata(session_timeout_ms=1), **NOBODY),
    ),
    "target-key": (range(1), ConsumerGroupTargetAssignmentMetadataKey(group_id="group")),
    "target": (range(1), ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=5)),
    "target-timed": (
        range(1),
        ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=5, assignment_timestamp=1_700_000_000_000
        ),
    ),
    "target-member-key": (
        range(1),
        ConsumerGroupTargetAssignmentMemberKey(group_id="group", member_id="member"),
    ),
    "target-member": (
        range(1),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=(
                TopicPartition(topic_id=ID, partitions=(0, 1, 2)),
                TopicPartition(topic_id=OTHER_ID, partitions=tuple(range(130))),
            )
        ),
    ),
    "current-key": (
        range(1),
        ConsumerGroupCurrentMemberAssignmentKey(group_id="group", member_id="member"),
    ),
    "current": (
        range(1),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=5,
            previous_member_epoch=4,
            state=2,
            assigned_partitions=(
                TopicPartitions(topic_id=ID, partitions=(1, 2)),
                TopicPartitions(topic_id=ID, partitions=(1, 2), assignment_epochs=(7, 8)),
                TopicPartitions(topic_id=ID, partitions=(), assignment_epochs=None),
            ),
            partitions_pending_revocation=(TopicPartitions(topic_id=OTHER_ID, partitions=(3,)),),
        ),
    ),
    "expression-key": (
        range(1),
        ConsumerGroupRegularExpressionKey(group_id="group", regular_expression="ord.*"),
    ),
    "expression": (
        range(1),
        ConsumerGroupRegularExpressionValue(topics=("orders", "é"), version=2**40, timestamp=-1),
    ),
    "transaction-key": (range(1), TransactionLogKey(transactional_id="tx-\u20ac")),
    "transaction": (
        range(2),
        TransactionLogValue(
            producer_id=4_000,
            producer_epoch=3,
            transaction_timeout_ms=60_000,
            transaction_status=1,
            transaction_partitions=(
                PartitionsSchema(topic="orders", partition_ids=(0, 5)),
                PartitionsSchema(topic="__consumer_offsets", partition_ids=(49,)),
            ),
            transaction_last_update_timestamp_ms=1_700_000_000_000,
            transaction_start_timestamp_ms=1_600_000_000_000,
        ),
    ),
    "transaction-empty": (
        range(2),
        TransactionLogValue(
            producer_id=4_000,
            producer_epoch=-1,
            transaction_timeout_ms=60_000,
            transaction_status=0,
            transaction_partitions=None,
            transaction_last_update_timestamp_ms=1,
            transaction_start_timestamp_ms=-1,
        ),
    ),
    "transaction-second-version": (
        range(1, 2),
        TransactionLogValue(
            producer_id=4_001,
            previous_producer_id=4_000,
            next_producer_id=4_002,
            producer_epoch=3,
            next_producer_epoch=0,
            transaction_timeout_ms=60_000,
            transaction_status=4,
            transaction_partitions=(),
            transaction_last_update_timestamp_ms=1,
            transaction_start_timestamp_ms=1,
            client_transaction_version=2,
        ),
    ),
    "snapshot": (
        range(1, 2),
        ProducerSnapshot(
            crc=0xFEDCBA98,
            producer_entries=(
                ProducerEntry(
                    producer_id=4_000,
                    epoch=1,
                    last_sequence=99,
                    last_offset=2**33,
                    offset_delta=9,
                    timestamp=1_700_000_000_000,
                    coordinator_epoch=-1,
                    current_txn_first_offset=-1,
                ),
                ProducerEntry(
                    producer_id=4_001,
                    epoch=32_767,
                    last_sequence=-1,
                    last_offset=-1,
                    offset_delta=0,
                    timestamp=-1,
                    coordinator_epoch=5,
                    current_txn_first_offset=12,
                ),
            ),
        ),
    ),
}


def golden() -> Iterator[tuple[str, int, bytes]]:
    for line in (Path(__file__).parent / "golden.txt").read_text().splitlines():
        if not line.startswith("#"):
            name, version, raw = line.split()
            yield name, int(version), bytes.fromhex(raw)


GOLDEN: Final = list(golden())


def as_read(value: Any, version: int) -> Any:
    """Return the value as read in a version: missing fields have their defaults."""
    if isinstance(value, tuple):
        return tuple(as_read(item, version) for item in value)  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(value, Struct):
        return value
    present = {
        field.name: as_read(getattr(value, field.name), version)
        for field in value.FIELDS
        if version in field.versions
    }
    return type(value)(**present)


def test_every_case_has_golden_bytes_in_every_version() -> None:
    expected = [(name, version) for name, (versions, _) in CASES.items() for version in versions]
    assert sorted(expected) == sorted((name, version) for name, version, _ in GOLDEN)


def test_messages_unknown_to_kio_have_golden_bytes() -> None:
    covered = {(type(CASES[name][1]), version) for name, version, _ in GOLDEN}
    names = {cls.__name__ for cls, _ in covered}
    for cls in MESSAGES:
        if cls.__name__ in names:
            assert {version for c, version in covered if c is cls} == set(cls.VERSIONS), cls
    between_brokers = {"LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown"}
    for cls in MESSAGES:
        if cls.API is None or cls.API.name in between_brokers:
            assert cls.__name__ in names or cls.__name__.startswith("ConsumerProtocol")


@each_case(
    ("name", "version", "raw"), GOLDEN, ids=[f"{name}-v{version}" for name, version, _ in GOLDEN]
)
def test_bytes_match_kafka(name: str, version: int, raw: bytes) -> None:
    _, value = CASES[name]
    assert value.encode(version).hex() == raw.hex()
    assert type(value).decode(raw, version) == as_read(value, version)


def test_golden_cases_cover_known_pitfalls() -> None:
    """Null and non-null values in every nullable field of the messages above."""
    seen: dict[tuple[str, str], set[bool]] = {}
    for _, value in CASES.values():
        for owner, name, item in nullables(value):
            seen.setdefault((owner, name), set()).add(item is None)
    missing = {key for key, values in seen.items() if values != {True, False}}
    assert not missing


def nullables(value: Struct) -> Iterator[tuple[str, str, Any]]:
    for field in value.FIELDS:
        item: Any = getattr(value, field.name)
        if field.nullable.high >= 0:
            yield type(value).__name__, field.name, item
        if field.struct is not None and item is not None:
            for inside in item if field.kind is Kind.ARRAY else (item,):
                yield from nullables(inside)
