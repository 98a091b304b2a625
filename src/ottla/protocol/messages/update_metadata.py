"""UpdateMetadata: the controller sends brokers the cluster metadata.

Only brokers of Ottla send it to each other, so fields with tags from 100 on are Ottla's own:
what Kafka's brokers read from ZooKeeper.
"""

from collections.abc import Sequence

from ottla.ids import ZERO_UUID, Uuid
from ottla.protocol.apis import UPDATE_METADATA
from ottla.protocol.message import Message
from ottla.protocol.schema import (
    INT32S,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    nullable_string,
    string,
    uuid,
)


class UpdateMetadataPartitionState(Struct):
    topic_name: str = string("0-4", default="", ignorable=True)
    partition_index: int = int32("0+")
    controller_epoch: int = int32("0+")
    leader: int = int32("0+")
    leader_epoch: int = int32("0+")
    isr: Sequence[int] = array(INT32S, "0+")
    zk_version: int = int32("0+")
    replicas: Sequence[int] = array(INT32S, "0+")
    offline_replicas: Sequence[int] = array(INT32S, "4+", default=(), ignorable=True)
    elr: Sequence[int] = array(INT32S, "6+", default=(), tag=100, ignorable=True)
    adding_replicas: Sequence[int] = array(INT32S, "6+", default=(), tag=101, ignorable=True)
    removing_replicas: Sequence[int] = array(INT32S, "6+", default=(), tag=102, ignorable=True)
    last_known_elr: Sequence[int] = array(INT32S, "6+", default=(), tag=103, ignorable=True)


class UpdateMetadataTopicState(Struct):
    topic_name: str = string("5+")
    topic_id: Uuid = uuid("7+", default=ZERO_UUID, ignorable=True)
    partition_states: Sequence[UpdateMetadataPartitionState] = array(
        UpdateMetadataPartitionState, "5+"
    )


class UpdateMetadataEndpoint(Struct):
    port: int = int32("1+")
    host: str = string("1+")
    listener: str = string("3+", default="", ignorable=True)
    security_protocol: int = int16("1+")


class UpdateMetadataBroker(Struct):
    id: int = int32("0+")
    v0_host: str = string("0", default="", ignorable=True)
    v0_port: int = int32("0", default=0, ignorable=True)
    endpoints: Sequence[UpdateMetadataEndpoint] = array(
        UpdateMetadataEndpoint, "1+", default=(), ignorable=True
    )
    rack: str | None = nullable_string("2+", default="", ignorable=True)
    epoch: int = int64("6+", default=-1, tag=100, ignorable=True)
    host: str = string("6+", default="", tag=101, ignorable=True)


class ConfigEntry(Struct):
    name: str = string("6+")
    value: str = string("6+")


class TopicConfigs(Struct):
    topic_name: str = string("6+")
    entries: Sequence[ConfigEntry] = array(ConfigEntry, "6+")


class BrokerConfigs(Struct):
    broker_id: int = int32("6+")  # -1: the default of all brokers
    entries: Sequence[ConfigEntry] = array(ConfigEntry, "6+")


class UpdateMetadataRequest(Message, api=UPDATE_METADATA):
    controller_id: int = int32("0+")
    is_kraft_controller: bool = boolean("8+", default=False)
    type: int = int8("8+", default=0, tag=0)
    controller_epoch: int = int32("0+")
    broker_epoch: int = int64("5+", default=-1, ignorable=True)
    ungrouped_partition_states: Sequence[UpdateMetadataPartitionState] = array(
        UpdateMetadataPartitionState, "0-4", default=()
    )
    topic_states: Sequence[UpdateMetadataTopicState] = array(
        UpdateMetadataTopicState, "5+", default=()
    )
    live_brokers: Sequence[UpdateMetadataBroker] = array(UpdateMetadataBroker, "0+")
    topic_configs: Sequence[TopicConfigs] = array(
        TopicConfigs, "6+", default=(), tag=100, ignorable=True
    )
    broker_configs: Sequence[BrokerConfigs] = array(
        BrokerConfigs, "6+", default=(), tag=101, ignorable=True
    )


class UpdateMetadataResponse(Message, api=UPDATE_METADATA):
    error_code: int = int16("0+")
