"""What the nodes of the coordination hold: Kafka's paths, and Kafka's JSON in them.

Invariant: what is written is read back equal. Fields that this version does not know are kept by
whoever rewrites a node, for a later version may have put them there.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

from ottla.errors import OttlaError
from ottla.ids import BrokerId, LeaderEpoch, Uuid

BROKER_IDS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER_ID: Final = "/cluster/id"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
TOPIC_CONFIGS: Final = "/config/topics"
BROKER_CONFIGS: Final = "/config/brokers"
DEFAULT_ENTITY: Final = "<default>"  # the settings of all brokers

PERSISTENT_PATHS: Final = (
    "/brokers", BROKER_IDS, TOPICS, "/cluster", "/config", TOPIC_CONFIGS, BROKER_CONFIGS,
)  # fmt: skip


class BadNode(OttlaError):
    """A node holds what was not written by us or by Kafka."""


def topic_path(topic: str) -> str:
    """Where a topic's assignment is."""
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """Below it the states of a topic's partitions are."""
    return f"{TOPICS}/{topic}/partitions"


def state_path(topic: str, partition: int) -> str:
    """Where the state of a partition is."""
    return f"{partitions_path(topic)}/{partition}/state"


def topic_config_path(topic: str) -> str:
    """Where a topic's own settings are."""
    return f"{TOPIC_CONFIGS}/{topic}"


def broker_config_path(broker: BrokerId | None) -> str:
    """Where the dynamic settings of a broker are, or (None) those of all."""
    return f"{BROKER_CONFIGS}/{DEFAULT_ENTITY if broker is None else broker}"


class TopicNode(NamedTuple):
    """A topic's id and the replicas of its partitions."""

    id: Uuid
    partitions: tuple[tuple[BrokerId, ...], ...]
    other: Mapping[str, Any] = {}

    def format(self) -> bytes:
        """As Kafka writes it."""
        rows = {str(index): list(row) for index, row in enumerate(self.partitions)}
        return _json(
            {
                "removing_replicas": {},
                "adding_replicas": {},
                **self.other,
                "partitions": rows,
                "topic_id": str(self.id),
                "version": 3,
            }
        )


def parse_topic(data: bytes, path: str) -> TopicNode:
    """What a topic's node says."""
    found = _read(data, path)
    try:
        rows: Mapping[str, list[int]] = found.pop("partitions")
        partitions = tuple(
            tuple(BrokerId(int(broker)) for broker in rows[str(index)])
            for index in range(len(rows))
        )
        topic_id = Uuid.parse(found.pop("topic_id"))
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise BadNode(f"{path}: {error!r}") from error
    found.pop("version", None)
    return TopicNode(topic_id, partitions, found)


class StateNode(NamedTuple):
    """Who leads a partition, in which epoch, and who follows in sync."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    in_sync: tuple[BrokerId, ...]
    controller_epoch: int
    other: Mapping[str, Any] = {}

    def format(self) -> bytes:
        """As Kafka writes it."""
        return _json(
            {
                **self.other,
                "controller_epoch": self.controller_epoch,
                "leader": self.leader,
                "version": 1,
                "leader_epoch": self.leader_epoch,
                "isr": list(self.in_sync),
            }
        )


def parse_state(data: bytes, path: str) -> StateNode:
    """What the node of a partition's state says."""
    found = _read(data, path)
    try:
        node = StateNode(
            BrokerId(int(found.pop("leader"))),
            LeaderEpoch(int(found.pop("leader_epoch"))),
            tuple(BrokerId(int(broker)) for broker in found.pop("isr")),
            int(found.pop("controller_epoch")),
        )
    except (LookupError, ValueError, TypeError) as error:
        raise BadNode(f"{path}: {error!r}") from error
    found.pop("version", None)
    return node._replace(other=found)


def format_config(values: Mapping[str, str]) -> bytes:
    """The settings of a topic or a broker."""
    return _json({"version": 1, "config": dict(values)})


def parse_config(data: bytes, path: str) -> dict[str, str]:
    """The settings that a node holds."""
    found = _read(data, path).get("config", {})
    if not isinstance(found, dict):
        raise BadNode(f"{path}: the settings are no object")
    return {str(name): str(value) for name, value in cast("dict[Any, Any]", found).items()}


def format_cluster_id(cluster_id: str) -> bytes:
    """The id of the cluster."""
    return _json({"version": "1", "id": cluster_id})


def parse_cluster_id(data: bytes) -> str:
    """The id of the cluster."""
    found = _read(data, CLUSTER_ID).get("id")
    if not isinstance(found, str):
        raise BadNode(f"{CLUSTER_ID}: no id")
    return found


class ProducerIdBlock(NamedTuple):
    """The producer ids that a broker took last."""

    broker: BrokerId
    first: int
    last: int

    def format(self) -> bytes:
        """As Kafka writes it."""
        return _json(
            {
                "version": 1,
                "broker": self.broker,
                "block_start": str(self.first),
                "block_end": str(self.last),
            }
        )


def parse_producer_id_block(data: bytes) -> ProducerIdBlock:
    """The block that was taken last."""
    found = _read(data, PRODUCER_ID_BLOCK)
    try:
        return ProducerIdBlock(
            BrokerId(int(found["broker"])), int(found["block_start"]), int(found["block_end"])
        )
    except (LookupError, ValueError, TypeError) as error:
        raise BadNode(f"{PRODUCER_ID_BLOCK}: {error!r}") from error


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _read(data: bytes, path: str) -> dict[str, Any]:
    try:
        found: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadNode(f"{path}: {error}") from error
    if not isinstance(found, dict):
        raise BadNode(f"{path}: no object")
    return cast("dict[str, Any]", found)
