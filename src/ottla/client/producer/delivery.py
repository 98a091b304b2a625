"""Delivery settings of a producer, and the Produce request.

Invariant: the config does not change while a producer runs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ottla.client.producer.producer_batch import ProducerBatch
from ottla.ids import Uuid
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.transport.backoff import Backoff


@dataclass(frozen=True, slots=True)
class SenderConfig:
    """How batches are sent."""

    acks: int
    """0, 1, or -1 for all."""

    is_idempotent: bool
    is_transactional: bool
    linger_s: float
    in_flight_max: int
    request_bytes_max: int
    request_timeout_s: float
    delivery_timeout_s: float
    retries: int
    backoff: Backoff


def produce_request(
    batches: Iterable[ProducerBatch],
    ids: Mapping[str, Uuid],
    rules: SenderConfig,
    transactional_id: str | None,
) -> ProduceRequest:
    """Build the Produce request for batches, at most one per partition."""
    topics: dict[str, list[PartitionProduceData]] = {}
    for batch in batches:
        topic, partition = batch.partition
        records = batch.bytes_to_send(transactional=transactional_id is not None)
        data = PartitionProduceData(index=partition, records=records)
        topics.setdefault(topic, []).append(data)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=rules.acks,
        timeout_ms=int(rules.request_timeout_s * 1000),
        topic_data=[
            TopicProduceData(name=topic, topic_id=ids[topic], partition_data=data)
            for topic, data in topics.items()
        ],
    )
