"""The content of the coordination nodes: Kafka's paths and Kafka's JSON.

Invariant: parsing returns what was formatted. A rewrite of a node keeps the fields that this
version does not know, because a later version may have written them.
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
DEFAULT_ENTITY: Final = "<default>"  # the entity that holds the default of all brokers

PERSISTENT_PATHS: Final = (
    "/brokers", BROKER_IDS, TOPICS, "/cluster", "/config", TOPIC_CONFIGS, BROKER_CONFIGS,
)  # fmt: skip


class BadNode(OttlaError):
    """A node's data was written neither by Ottla nor by Kafka."""


def topic_path(topic: str) -> str:
    """Return the path of a topic's assignment."""
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """Return the path that holds the states of a topic's partitions."""
    return f"{TOPICS}/{topic}/partitions"


def state_path(topic: str, partition: int) -> str:
    """Return the path of a partition's state."""
    return f"{partitions_path(topic)}/{partition}/state"


def topic_config_path(topic: str) -> str:
    """Return the path of a topic's configuration overrides."""
    return f"{TOPIC_CONFIGS}/{topic}"


def broker_config_path(broker: BrokerId | None) -> str:
    """Return the path of a broker's dynamic settings, or of the cluster-wide default (None)."""
    return f"{BROKER_CONFIGS}/{DEFAULT_ENTITY if broker is None else broker}"


class TopicNode(NamedTuple):
    """A topic's id and the replicas of its partitions."""

    id: Uuid
    partitions: tuple[tuple[BrokerId, ...], ...]
    other: Mapping[str, Any] = {}

    def format(self) -> bytes:
        """Encode as Kafka does."""
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
    """Parse the data of a topic's node."""
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
    """Leader, leader epoch and ISR of a partition, with the controller epoch."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    in_sync: tuple[BrokerId, ...]
    controller_epoch: int
    other: Mapping[str, Any] = {}

    def format(self) -> bytes:
        """Encode as Kafka does."""
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
    """Parse the data of a partition's state node."""
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
    """Encode the settings of a topic or a broker."""
    return _json({"version": 1, "config": dict(values)})


def parse_config(data: bytes, path: str) -> dict[str, str]:
    """Parse the settings of a topic or a broker."""
    found = _read(data, path).get("config", {})
    if not isinstance(found, dict):
        raise BadNode(f"{path}: config is not a JSON object")
    return {str(name): str(value) for name, value in cast("dict[Any, Any]", found).items()}


def format_cluster_id(cluster_id: str) -> bytes:
    """Encode the cluster id."""
    return _json({"version": "1", "id": cluster_id})


def parse_cluster_id(data: bytes) -> str:
    """Parse the cluster id."""
    found = _read(data, CLUSTER_ID).get("id")
    if not isinstance(found, str):
        raise BadNode(f"{CLUSTER_ID}: no id")
    return found


class ProducerIdBlock(NamedTuple):
    """The block of producer ids that was reserved last."""

    broker: BrokerId
    first: int
    last: int

    def format(self) -> bytes:
        """Encode as Kafka does."""
        return _json(
            {
                "version": 1,
                "broker": self.broker,
                "block_start": str(self.first),
                "block_end": str(self.last),
            }
        )


def parse_producer_id_block(data: bytes) -> ProducerIdBlock:
    """Parse the block that was reserved last."""
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
        raise BadNode(f"{path}: not a JSON object")
    return cast("dict[str, Any]", found)
