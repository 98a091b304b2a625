"""Sends a request to a broker, and compares the responses of two brokers.

Invariant: every request of a scenario is kept with its response as plain values. Values that differ
each time are left out: addresses, throttle times, disk sizes. Ids that brokers choose are replaced
by names. Of an error message only its presence is compared.
"""

from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import ExitStack, contextmanager
from time import monotonic, sleep
from typing import Any, NamedTuple, Protocol, cast

from judges.recording import Json
from judges.wire import Wire
from ottla.ids import ZERO_UUID, Uuid
from ottla.protocol.message import Message
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.schema import Struct
from ottla.protocol.writer import EncodingError

PATIENCE_S = 30

LEFT_OUT = {"throttle_time_ms", "host", "port", "cluster_id", "log_dir", "client_host"} | {
    "total_bytes", "usable_bytes"
}  # fmt: skip
CHOSEN = {"producer_id", "finalized_features_epoch"}
TEXTS = {"error_message", "documentation", "batch_index_error_message"}

# Fields that identify the elements of a list, so that their order does not matter.
KEYS = (
    "name", "topic", "topic_id", "api_key", "resource_name", "group_id", "partition_index",
    "partition", "index", "node_id", "broker_id", "member_id", "key",
)  # fmt: skip
# Settings that depend on where the test started a broker.
PLACES = ("listeners", "log.dirs", "controller.listener.names", "controller.quorum.voters")
ORDERED = {"synonyms"}

EMPTY = "an empty list"
MISSING = "missing"

# Any below: the fields of a response depend on the API.


class Broker(Protocol):
    """A broker of either kind."""

    def wire(self) -> Wire:
        """Connect to the broker."""
        ...


class Exchange(NamedTuple):
    """A request and its response, by field path."""

    api: str
    version: int
    fields: dict[str, object]
    asked: Json


class Asker:
    """Sends the requests of a scenario to one broker."""

    def __init__(self, broker: Broker, connections: ExitStack) -> None:
        self.answers: list[Exchange] = []
        self.meanings: dict[object, str] = {}
        self.producer_ids: set[int] = set()
        self._broker = broker
        self._connections = connections
        self._wire = connections.enter_context(broker.wire())

    def another(self) -> "Asker":
        """An asker with its own connection whose responses are kept with these."""
        other = Asker(self._broker, self._connections)
        other.answers, other.meanings = self.answers, self.meanings
        other.producer_ids = self.producer_ids
        return other

    def __call__(self, request: Message, version: int | None = None) -> Any:
        """Send a request, keep the response, and return it."""
        version = newest(request) if version is None else version
        self.send(request, version)
        return self.receive(request, version)

    def send(self, request: Message, version: int) -> None:
        """Send a request without waiting for its response."""
        self._wire.send(request, version)

    def receive(self, request: Message, version: int) -> Any:
        """Receive the response to a sent request; None if the broker closes the connection."""
        assert request.API is not None
        try:
            answer = self._wire.receive(request.API.response)
        except ConnectionError:
            self._keep(request, version, {"connection": "closed"})
            self._wire = self._connections.enter_context(self._broker.wire())
            return None
        self._keep(request, version, flat(answer, version, self.meanings))
        return answer

    def every(self, request: Message) -> None:
        """Send a request in every version that the broker serves and that can carry it."""
        assert request.API is not None
        for version in request.API.advertised:
            try:
                request.encode(version)
            except EncodingError:
                continue
            self(request, version)

    def until(
        self, true: Callable[[Any], bool], request: Message, version: int | None = None
    ) -> Any:
        """Repeat a request until a condition holds, because Kafka takes a moment. Keep the last
        response.
        """
        end_s = monotonic() + PATIENCE_S
        while True:
            answer = self(request, version)
            if true(answer):
                return answer
            assert monotonic() < end_s, f"never came true: {answer}"
            self.answers.pop()
            sleep(0.02)

    def prepare(self, request: Message, version: int | None = None) -> Any:
        """Send a request whose response is not compared."""
        answer = self(request, version)
        self.answers.pop()
        return answer

    def topic(self, name: str, partitions: int = 1, **configs: str) -> Uuid:
        """Create a topic and wait for its leaders; underscores in setting names become dots."""
        asked = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=(),
            configs=[
                CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        made = self.prepare(CreateTopicsRequest(topics=(asked,))).topics[0]
        assert made.error_code == 0, made
        self.means(made.topic_id, f"the id of {name}")
        self.wait_for_leaders(name)
        return made.topic_id

    def wait_for_leaders(self, name: str) -> None:
        """Wait until all brokers know a topic and its partitions have leaders."""
        request = MetadataRequest(topics=(MetadataRequestTopic(name=name),))
        described = self.until(lambda answer: answer.topics[0].error_code == 0, request)
        self.answers.pop()
        # Kafka returns a partition before it has a leader.
        ends = [
            ListOffsetsPartition(partition_index=one.partition_index, timestamp=-1)
            for one in described.topics[0].partitions
        ]
        topic = ListOffsetsTopic(name=name, partitions=ends)
        self.until(
            lambda answer: not any(one.error_code for one in answer.topics[0].partitions),
            ListOffsetsRequest(replica_id=-1, topics=[topic]),
        )
        self.answers.pop()

    def means(self, value: object, meaning: str) -> None:
        """Compare this value, which the broker chose, by a name from now on."""
        self.meanings[value] = meaning

    def _keep(self, request: Message, version: int, fields: dict[str, object]) -> None:
        assert request.API is not None
        asked: Json = {
            "api": request.API.name,
            "version": version,
            **_question(request, version, self.meanings, self.producer_ids),
        }
        self.answers.append(Exchange(request.API.name, version, fields, asked))


@contextmanager
def asker(broker: Broker) -> Generator[Asker]:
    """An asker whose connection is closed at the end."""
    with ExitStack() as connections:
        yield Asker(broker, connections)


def newest(request: Message) -> int:
    """The newest version that the broker serves."""
    assert request.API is not None
    return request.API.advertised.high


def flat(message: Struct, version: int, meanings: dict[object, str]) -> dict[str, object]:
    """The fields of a response by path."""
    fields: dict[str, object] = {}
    _walk("", message, version, meanings, fields)
    return fields


def _walk(
    path: str,
    value: Any,
    version: int,
    meanings: dict[object, str],
    fields: dict[str, object],
) -> None:
    if isinstance(value, Struct):
        for field in value.FIELDS:
            if version in field.versions and field.name not in LEFT_OUT:
                inner = getattr(value, field.name)
                if field.name in TEXTS:
                    inner = bool(inner)
                elif field.name in CHOSEN and inner >= 0:
                    inner = "one that the broker chose"
                _walk(f"{path}.{field.name}", inner, version, meanings, fields)
    elif isinstance(value, (list, tuple)):
        _walk_list(path, cast("Sequence[Any]", value), version, meanings, fields)
    else:
        fields[path.removeprefix(".")] = _meaning(value, meanings)


def _walk_list(
    path: str,
    values: Sequence[Any],
    version: int,
    meanings: dict[object, str],
    fields: dict[str, object],
) -> None:
    seen: set[str] = set()
    ordered = path.rpartition(".")[2] in ORDERED
    for index, one in enumerate(values):
        key = str(index)
        if isinstance(one, Struct) and not ordered:
            named = next((each for each in KEYS if getattr(one, each, None)), None)
            key = str(_meaning(getattr(one, named), meanings)) if named else "0"
            while key in seen:
                key += "'"
            seen.add(key)
        _walk(f"{path}[{key}]", one, version, meanings, fields)
    if not values:
        fields[path.removeprefix(".")] = EMPTY


def _meaning(value: Any, meanings: dict[object, str]) -> object:
    if isinstance(value, memoryview):
        value = value.tobytes()
    if isinstance(value, (Uuid, str, int)) and value in meanings:
        return meanings[value]
    if isinstance(value, Uuid):
        return "none" if value == ZERO_UUID else "an unknown id"
    return value


# The recorded form: JSON in which each structure of a response is a row.


def _question(
    request: Struct, version: int, meanings: dict[object, str], producer_ids: Collection[int]
) -> dict[str, Json]:
    """The fields of a request that differ from their defaults."""

    def plain(name: str, value: Any) -> Json:
        if isinstance(value, Struct):
            return _question(value, version, meanings, producer_ids)
        if isinstance(value, (list, tuple)):
            return [plain(name, one) for one in cast("Sequence[Any]", value)]
        if name in CHOSEN and value >= 0:
            return "one that the broker chose"
        found = _meaning(value, meanings)
        if isinstance(found, bytes):
            return {"hex": _without_producer(found, producer_ids).hex()}
        assert found is None or isinstance(found, (str, int, float)), found
        return found

    given = {field: getattr(request, field.name) for field in request.FIELDS}
    return {
        field.name: plain(field.name, value)
        for field, value in given.items()
        if version in field.versions and (field.required or value != field.default)
    }


def _without_producer(batch: bytes, producer_ids: Collection[int]) -> bytes:
    """A batch without the producer id that the broker chose, and without its CRC."""
    crc, producer = slice(17, 21), slice(43, 51)
    if int.from_bytes(batch[producer]) not in producer_ids:
        return batch
    return batch[: crc.start] + bytes(4) + batch[crc.stop : producer.start] + bytes(8) + batch[51:]


def rows(fields: dict[str, object]) -> Json:
    """The fields of a response as recorded: grouped by structure."""
    found: dict[str, dict[str, Json]] = {}
    for path in sorted(fields):
        structure, _, name = path.rpartition(".")
        found.setdefault(structure, {})[name] = _recordable(path, fields[path])
    return {structure: {**row} for structure, row in found.items()}


def fields_of(recorded: Json) -> dict[str, object]:
    """The fields of a recorded response."""
    assert isinstance(recorded, dict)
    found: dict[str, object] = {}
    for structure, row in recorded.items():
        assert isinstance(row, dict)
        for name, value in row.items():
            path = f"{structure}.{name}" if structure else name
            found[path] = bytes.fromhex(str(value["hex"])) if isinstance(value, dict) else value
    return found


def _recordable(path: str, value: object) -> Json:
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if _is_place(path) and path.endswith(".value"):
        return "an address or a directory"
    assert value is None or isinstance(value, (str, int, float)), value
    return value


class Difference(NamedTuple):
    """A field that differs between two brokers; None if one response does not have it."""

    scenario: str
    number: int  # of the request in its scenario
    api: str
    version: int
    path: str
    ours: object
    kafkas: object


def differences(
    scenario: str, ours: Sequence[Exchange], kafkas: Sequence[Exchange]
) -> list[Difference]:
    """The differences between two responses to every request of a scenario."""
    assert [one[:2] for one in ours] == [one[:2] for one in kafkas]
    found: dict[tuple[int, str], Difference] = {}
    for number, (left, right) in enumerate(zip(ours, kafkas, strict=True)):
        for path in left.fields.keys() | right.fields.keys():
            mine, other = left.fields.get(path, MISSING), right.fields.get(path, MISSING)
            # Missing elements already show that a list is empty.
            if mine == other or {mine, other} == {MISSING, EMPTY} or _is_place(path):
                continue
            if other == MISSING:
                path, mine = _absent(path, right.fields), "present"
            elif mine == MISSING:
                path, other = _absent(path, left.fields), "present"
            found[number, path] = Difference(
                scenario, number, left.api, left.version, path, mine, other
            )
    return [found[key] for key in sorted(found)]


def _is_place(path: str) -> bool:
    return any(f".configs[{name}]." in path for name in PLACES)


def _absent(path: str, fields: dict[str, object]) -> str:
    """The outermost missing element of a path."""
    end = path.find("]")
    while end >= 0:
        element = path[: end + 1]
        if not any(each.startswith(element) for each in fields):
            return element
        end = path.find("]", end + 1)
    return path
