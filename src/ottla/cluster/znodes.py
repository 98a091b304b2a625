"""The content of the coordination nodes: Kafka's paths and Kafka's JSON.

Invariant: parsing returns what was formatted. A rewrite of a node keeps the fields that this
version does not know, because a later version may have written them.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, cast

from ottla.errors import OttlaError
from ottla.ids import BrokerId, LeaderEpoch, Uuid

BROKER_IDS: Final = "/brokers/ids"
BROKER_SEQUENCE: Final = "/brokers/seqid"  # its version is the number of generated broker ids
TOPICS: Final = "/brokers/topics"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER_ID: Final = "/cluster/id"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
TOPIC_CONFIGS: Final = "/config/topics"
BROKER_CONFIGS: Final = "/config/brokers"
CREDENTIAL: Final = "/ottla/credential"
DEFAULT_ENTITY: Final = "<default>"  # the entity that holds the default of all brokers
DELETIONS: Final = "/admin/delete_topics"
REGISTRATIONS: Final = "/ottla/registrations"
UNCLEAN_RESTARTS: Final = "/ottla/unclean_restarts"

CREDENTIAL_CHARACTERS_MIN: Final = 32
"""A shorter password is not one that a broker has generated."""

PERSISTENT_PATHS: Final = (
    "/brokers", BROKER_IDS, TOPICS, "/cluster", "/config", TOPIC_CONFIGS, BROKER_CONFIGS,
    "/admin", DELETIONS, "/ottla", REGISTRATIONS,
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


def broker_path(broker: BrokerId) -> str:
    """Return the path of a broker's registration."""
    return f"{BROKER_IDS}/{broker}"


def counter_path(broker: BrokerId) -> str:
    """Return the path of a broker's registration counter, which outlives the registration."""
    return f"{REGISTRATIONS}/{broker}"


def deletion_path(topic: str) -> str:
    """Return the path of the record that a topic is being deleted."""
    return f"{DELETIONS}/{topic}"


def topic_config_path(topic: str) -> str:
    """Return the path of a topic's configuration overrides."""
    return f"{TOPIC_CONFIGS}/{topic}"


def broker_config_path(broker: BrokerId | None) -> str:
    """Return the path of a broker's dynamic settings, or of the cluster-wide default (None)."""
    return f"{BROKER_CONFIGS}/{DEFAULT_ENTITY if broker is None else broker}"


Replicas = tuple[BrokerId, ...]


class TopicNode(NamedTuple):
    """A topic's id, the replicas of its partitions and their reassignments."""

    id: Uuid
    partitions: tuple[Replicas, ...]
    adding: Mapping[int, Replicas] = {}  # by partition, replicas that a reassignment adds
    removing: Mapping[int, Replicas] = {}  # by partition, replicas that a reassignment removes
    other: Mapping[str, Any] = {}

    def format(self) -> bytes:
        """Encode as Kafka does."""
        return to_json(
            {
                **self.other,
                "removing_replicas": _rows(self.removing.items()),
                "partitions": _rows(enumerate(self.partitions)),
                "topic_id": str(self.id),
                "adding_replicas": _rows(self.adding.items()),
                "version": 3,
            }
        )


def parse_topic(data: bytes, path: str) -> TopicNode:
    """Parse the data of a topic's node."""
    found = read_json(data, path)
    try:
        rows: Mapping[str, list[int]] = found.pop("partitions")
        partitions = tuple(_brokers(rows[str(index)]) for index in range(len(rows)))
        topic_id = Uuid.parse(found.pop("topic_id"))
        adding = _parse_rows(found.pop("adding_replicas", {}))
        removing = _parse_rows(found.pop("removing_replicas", {}))
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise BadNode(f"{path}: {error!r}") from error
    found.pop("version", None)
    return TopicNode(topic_id, partitions, adding, removing, found)


class StateNode(NamedTuple):
    """Leader, leader epoch, ISR and ELR of a partition, with the controller epoch.

    Kafka has no ELR in this node. An empty one is not written, so that the node is Kafka's.
    """

    leader: BrokerId
    leader_epoch: LeaderEpoch
    in_sync: Replicas
    controller_epoch: int
    elr: Replicas = ()
    last_known_elr: Replicas = ()
    other: Mapping[str, Any] = {}

    def format(self) -> bytes:
        """Encode as Kafka does."""
        return to_json(
            {
                **self.other,
                "controller_epoch": self.controller_epoch,
                "leader": self.leader,
                "version": 1,
                "leader_epoch": self.leader_epoch,
                "isr": list(self.in_sync),
                **({"elr": list(self.elr)} if self.elr else {}),
                **({"last_known_elr": list(self.last_known_elr)} if self.last_known_elr else {}),
            }
        )


def parse_state(data: bytes, path: str) -> StateNode:
    """Parse the data of a partition's state node."""
    found = read_json(data, path)
    try:
        node = StateNode(
            BrokerId(int(found.pop("leader"))),
            LeaderEpoch(int(found.pop("leader_epoch"))),
            _brokers(found.pop("isr")),
            int(found.pop("controller_epoch")),
            _brokers(found.pop("elr", ())),
            _brokers(found.pop("last_known_elr", ())),
        )
    except (LookupError, ValueError, TypeError) as error:
        raise BadNode(f"{path}: {error!r}") from error
    found.pop("version", None)
    return node._replace(other=found)


def format_config(values: Mapping[str, str]) -> bytes:
    """Encode the settings of a topic or a broker."""
    return to_json({"version": 1, "config": dict(values)})


def changed_config(data: bytes, path: str, values: Mapping[str, str]) -> bytes:
    """Replace the settings in the data of a topic or a broker."""
    return to_json({**read_json(data, path), "config": dict(values)})


def parse_config(data: bytes, path: str) -> dict[str, str]:
    """Parse the settings of a topic or a broker."""
    found = read_json(data, path).get("config", {})
    if not isinstance(found, dict):
        raise BadNode(f"{path}: config is not a JSON object")
    return {str(name): str(value) for name, value in cast("dict[Any, Any]", found).items()}


def format_controller(broker: BrokerId, now_ms: int) -> bytes:
    """Encode the broker that is the controller."""
    return to_json({"version": 2, "brokerid": broker, "timestamp": str(now_ms)})


def parse_controller(data: bytes) -> BrokerId:
    """Parse the broker that is the controller."""
    try:
        return BrokerId(int(read_json(data, CONTROLLER)["brokerid"]))
    except (LookupError, ValueError, TypeError) as error:
        raise BadNode(f"{CONTROLLER}: {error!r}") from error


def format_cluster_id(cluster_id: str) -> bytes:
    """Encode the cluster id."""
    return to_json({"version": "1", "id": cluster_id})


def parse_cluster_id(data: bytes) -> str:
    """Parse the cluster id."""
    found = read_json(data, CLUSTER_ID).get("id")
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
        return to_json(
            {
                "version": 1,
                "broker": self.broker,
                "block_start": str(self.first),
                "block_end": str(self.last),
            }
        )


def parse_producer_id_block(data: bytes) -> ProducerIdBlock:
    """Parse the block that was reserved last."""
    found = read_json(data, PRODUCER_ID_BLOCK)
    try:
        return ProducerIdBlock(
            BrokerId(int(found["broker"])), int(found["block_start"]), int(found["block_end"])
        )
    except (LookupError, ValueError, TypeError) as error:
        raise BadNode(f"{PRODUCER_ID_BLOCK}: {error!r}") from error


def format_credential(password: str) -> bytes:
    """Encode the credential of the cluster."""
    return to_json({"version": 1, "password": password})


def parse_credential(data: bytes) -> str:
    """Parse the credential of the cluster; no error contains any of it."""
    try:
        found = read_json(data, CREDENTIAL).get("password")
    except BadNode:
        found = None
    if not isinstance(found, str) or len(found) < CREDENTIAL_CHARACTERS_MIN:
        raise BadNode(f"{CREDENTIAL}: no password")
    return found


def _rows(rows: Iterable[tuple[int, Replicas]]) -> dict[str, list[BrokerId]]:
    return {str(index): list(row) for index, row in rows}


def _parse_rows(rows: Mapping[str, list[int]]) -> dict[int, Replicas]:
    return {int(index): _brokers(row) for index, row in rows.items()}


def _brokers(row: Iterable[Any]) -> Replicas:
    return tuple(BrokerId(int(broker)) for broker in row)


def to_json(value: Mapping[str, Any]) -> bytes:
    """Encode the data of a node."""
    return json.dumps(value, separators=(",", ":")).encode()


def read_json(data: bytes, path: str) -> dict[str, Any]:
    """Parse the data of a node."""
    try:
        found: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadNode(f"{path}: {error}") from error
    if not isinstance(found, dict):
        raise BadNode(f"{path}: not a JSON object")
    return cast("dict[str, Any]", found)
