"""Ottla: event streaming in Python, with Kafka's wire protocol and file formats.

The names of the client are here, and in `ottla.sync` for code without an event loop. They are
imported on first use, so that a broker starts without the client.
"""

from ottla.release import RELEASE

TYPE_CHECKING = False  # importing typing would slow down the start of a command
if TYPE_CHECKING:
    from typing import Final

    from ottla.client.admin import Admin, NewPartitions, NewTopic
    from ottla.client.consumer.consumer import Consumer
    from ottla.client.consumer.partition_reader import FetchedColumns, PartitionReader
    from ottla.client.consumer.record import Record
    from ottla.client.consumer.subscription import BrokerPattern
    from ottla.client.group.commits import CommitFailed
    from ottla.client.group.interfaces import GroupMember, Rebalance
    from ottla.client.group.offsets import OffsetAndMetadata
    from ottla.client.metrics.consumer_metrics import ConsumerMetrics
    from ottla.client.metrics.producer_metrics import ProducerMetrics
    from ottla.client.network.tokens import Token
    from ottla.client.producer.producer import Producer
    from ottla.client.producer.producer_batch import Ack, Written
    from ottla.client.producer.row_ack import RowsAck, RowsNotWritten, WrittenRows
    from ottla.client.producer.transaction import Transaction
    from ottla.client.producer.transaction_state import OutcomeUnknown
    from ottla.client.serializers import DeserializationFailed, Serde, SerializationFailed
    from ottla.errors import ErrorCode, RequestError
    from ottla.ids import TopicPartition
    from ottla.records.errors import InvalidRecords
    from ottla.settings.invalid_settings import InvalidSettings
    from ottla.transport.channel import Disconnected, TimedOut
    from ottla.transport.failures import AuthenticationFailed, NotRunning, NotSupported

__all__ = [
    "Ack",
    "Admin",
    "AuthenticationFailed",
    "BrokerPattern",
    "CommitFailed",
    "Consumer",
    "ConsumerMetrics",
    "DeserializationFailed",
    "Disconnected",
    "ErrorCode",
    "FetchedColumns",
    "GroupMember",
    "InvalidRecords",
    "InvalidSettings",
    "NewPartitions",
    "NewTopic",
    "NotRunning",
    "NotSupported",
    "OffsetAndMetadata",
    "OutcomeUnknown",
    "PartitionReader",
    "Producer",
    "ProducerMetrics",
    "Rebalance",
    "Record",
    "RequestError",
    "RowsAck",
    "RowsNotWritten",
    "Serde",
    "SerializationFailed",
    "TimedOut",
    "Token",
    "TopicPartition",
    "Transaction",
    "Written",
    "WrittenRows",
    "__version__",
]

__version__: "Final" = RELEASE

_MODULES: "Final" = {
    "Ack": "ottla.client.producer.producer_batch",
    "Admin": "ottla.client.admin",
    "AuthenticationFailed": "ottla.transport.failures",
    "BrokerPattern": "ottla.client.consumer.subscription",
    "CommitFailed": "ottla.client.group.commits",
    "Consumer": "ottla.client.consumer.consumer",
    "ConsumerMetrics": "ottla.client.metrics.consumer_metrics",
    "DeserializationFailed": "ottla.client.serializers",
    "Disconnected": "ottla.transport.channel",
    "ErrorCode": "ottla.errors",
    "FetchedColumns": "ottla.client.consumer.partition_reader",
    "GroupMember": "ottla.client.group.interfaces",
    "InvalidRecords": "ottla.records.errors",
    "InvalidSettings": "ottla.settings.invalid_settings",
    "NewPartitions": "ottla.client.admin",
    "NewTopic": "ottla.client.admin",
    "NotRunning": "ottla.transport.failures",
    "NotSupported": "ottla.transport.failures",
    "OffsetAndMetadata": "ottla.client.group.offsets",
    "OutcomeUnknown": "ottla.client.producer.transaction_state",
    "PartitionReader": "ottla.client.consumer.partition_reader",
    "Producer": "ottla.client.producer.producer",
    "ProducerMetrics": "ottla.client.metrics.producer_metrics",
    "Rebalance": "ottla.client.group.interfaces",
    "Record": "ottla.client.consumer.record",
    "RequestError": "ottla.errors",
    "RowsAck": "ottla.client.producer.row_ack",
    "RowsNotWritten": "ottla.client.producer.row_ack",
    "Serde": "ottla.client.serializers",
    "SerializationFailed": "ottla.client.serializers",
    "TimedOut": "ottla.transport.channel",
    "Token": "ottla.client.network.tokens",
    "TopicPartition": "ottla.ids",
    "Transaction": "ottla.client.producer.transaction",
    "Written": "ottla.client.producer.producer_batch",
    "WrittenRows": "ottla.client.producer.row_ack",
}


if not TYPE_CHECKING:  # otherwise a type checker would accept any name

    def __getattr__(name: str) -> object:
        module = _MODULES.get(name)
        if module is None:
            raise AttributeError(f"module 'ottla' has no attribute {name!r}")
        from importlib import import_module

        found = globals()[name] = getattr(import_module(module), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
