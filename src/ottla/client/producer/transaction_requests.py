"""Requests of a transaction and the error codes in their responses.

Invariant: translation only; no error code of a response is left out.
"""

from collections.abc import Iterable, Iterator, Mapping

from ottla.client.group.interfaces import GroupMember
from ottla.client.group.offsets import OffsetAndMetadata
from ottla.client.partitions import by_topic, rows_by_topic
from ottla.client.producer.identity import Identity
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)


def initialize(
    transactional_id: str, before: Identity, timeout_ms: int, is_two_phase: bool
) -> InitProducerIdRequest:
    """Build InitProducerId, for a first or a new epoch."""
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=before.producer_id,
        producer_epoch=before.epoch,
        enable2_pc=is_two_phase,
    )


def add_partitions(
    transactional_id: str, identity: Identity, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    """Build AddPartitionsToTxn."""
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=indexes)
            for topic, indexes in by_topic(sorted(partitions)).items()
        ],
    )


def codes_of_partitions(answer: AddPartitionsToTxnResponse) -> Iterator[int]:
    """Return the error codes; those first that explain why others were not tried."""
    codes = [
        one.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for one in topic.results_by_partition
    ]
    yield from sorted(codes, key=lambda code: code == ErrorCode.OPERATION_NOT_ATTEMPTED)


def add_offsets(transactional_id: str, identity: Identity, group: str) -> AddOffsetsToTxnRequest:
    """Build AddOffsetsToTxn."""
    return AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        group_id=group,
    )


def commit_offsets(
    transactional_id: str,
    identity: Identity,
    member: GroupMember,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> TxnOffsetCommitRequest:
    """Build TxnOffsetCommit."""

    def row(where: TopicPartition) -> TxnOffsetCommitRequestPartition:
        return TxnOffsetCommitRequestPartition(
            partition_index=where.partition,
            committed_offset=offsets[where].offset,
            committed_leader_epoch=offsets[where].leader_epoch,
            committed_metadata=offsets[where].metadata,
        )

    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=member.group_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        topics=[
            TxnOffsetCommitRequestTopic(name=topic, partitions=ones)
            for topic, ones in rows_by_topic(offsets, row).items()
        ],
    )


def end_transaction(transactional_id: str, identity: Identity, *, commit: bool) -> EndTxnRequest:
    """Build EndTxn."""
    return EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        committed=commit,
    )


def codes_of_offsets(answer: TxnOffsetCommitResponse) -> Iterator[int]:
    """Return the error codes; non-retriable ones first."""
    codes = [one.error_code for topic in answer.topics for one in topic.partitions]
    yield from sorted(codes, key=lambda code: ErrorCode.of(code).retriable)
