"""Messages per second that Ottla encodes and decodes, compared with other Python implementations.

All candidates of a case use the same bytes, which is checked before anything is measured. They
decode to objects with accessible fields and encode from them. A peer encodes the value that it
decoded.

kio has every version. kafka-python has the versions of the cases, but also decodes the records of a
Fetch response. aiokafka has Metadata up to version 5, which is a case of its own. The last rows
compare the hand-written codecs of Produce and Fetch with the compiled ones.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from io import BytesIO
from typing import Any, NamedTuple

from kio.serial import entity_reader, entity_writer

from harness import Candidate, Case, run
from ottla.ids import Uuid
from ottla.protocol.apis import API_OF_KEY
from ottla.protocol.hot import fetch as hot_fetch
from ottla.protocol.hot import produce as hot_produce
from ottla.protocol.message import OBJECTS_MAX, HotCodec, Message
from ottla.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ottla.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.protocol.primitives import Buffer
from ottla.protocol.reader import Reader, compile_reader, has_records
from ottla.protocol.writer import Writer, compile_writer

TOPICS = 100
PARTITIONS = 10
BROKERS = (1, 2, 3)
BATCH = bytes(1_000_000)
COMPILED = "compiled"

# Targets: 2 ms for the metadata of 1,000 partitions, 5 µs for a batch.
METADATA_RATE = 1 / 2e-3
PRODUCE_RATE = 1 / 5e-6


def topic_id(number: int) -> Uuid:
    return Uuid((number + 1).to_bytes(16, "big"))


def metadata() -> MetadataResponse:
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=id_, host=f"broker-{id_}.example", port=9092, rack="r")
            for id_ in BROKERS
        ],
        cluster_id="GSbNqoYzSaq2bXL5xLU_qg",
        controller_id=1,
        topics=[
            MetadataResponseTopic(
                error_code=0,
                name=f"topic-{number}",
                topic_id=topic_id(number),
                partitions=[
                    MetadataResponsePartition(
                        error_code=0,
                        partition_index=index,
                        leader_id=1 + index % 3,
                        leader_epoch=5,
                        replica_nodes=BROKERS,
                        isr_nodes=BROKERS,
                    )
                    for index in range(PARTITIONS)
                ],
            )
            for number in range(TOPICS)
        ],
    )


def metadata_without_ids() -> MetadataResponse:
    """The fields of Metadata 5."""
    message = metadata()
    for topic in message.topics:
        topic.topic_id = Uuid(bytes(16))
        for partition in topic.partitions:
            partition.leader_epoch = -1
    return message


def produce(records: bytes = BATCH, partitions: int = 1) -> ProduceRequest:
    return ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name="topic-1",
                partition_data=[
                    PartitionProduceData(index=index, records=records)
                    for index in range(partitions)
                ],
            )
        ],
    )


def produce_response(partitions: int) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name="topic-1",
                partition_responses=[
                    PartitionProduceResponse(
                        index=index, error_code=0, base_offset=1_000_000, log_start_offset=0
                    )
                    for index in range(partitions)
                ],
            )
        ]
    )


def fetch_request(topics: int = 10, partitions: int = PARTITIONS) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        topics=[
            FetchTopic(
                topic_id=topic_id(number),
                partitions=[
                    FetchPartition(
                        partition=index,
                        current_leader_epoch=5,
                        fetch_offset=1_000_000,
                        partition_max_bytes=1_048_576,
                    )
                    for index in range(partitions)
                ],
            )
            for number in range(topics)
        ],
    )


def fetch_response(partitions: int = 10) -> FetchResponse:
    """A response with 100 KB per partition."""
    return FetchResponse(
        throttle_time_ms=0,
        responses=[
            FetchableTopicResponse(
                topic_id=topic_id(1),
                partitions=[
                    PartitionData(
                        partition_index=index,
                        error_code=0,
                        high_watermark=1_000_000,
                        last_stable_offset=1_000_000,
                        log_start_offset=0,
                        aborted_transactions=None,
                        records=BATCH[:100_000],
                    )
                    for index in range(partitions)
                ],
            )
        ],
    )


def api_versions() -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code=0,
        api_keys=[
            ApiVersion(
                api_key=api.key,
                min_version=api.advertised.low,
                max_version=api.advertised.high,
            )
            for api in API_OF_KEY.values()
        ],
        supported_features=[
            SupportedFeatureKey(name="group.version", min_version=0, max_version=1)
        ],
        finalized_features_epoch=1,
        finalized_features=[
            FinalizedFeatureKey(name="group.version", max_version_level=1, min_version_level=1)
        ],
    )


class Peer(NamedTuple):
    """The decoder of a peer, and its encoder of the decoded value."""

    name: str
    read: Callable[[bytes], Any]
    write: Callable[[Any], bytes]


def their(module: str, name: str) -> Any:  # Any: the peers have no types
    return getattr(import_module(module), name)


def kio_peer(message: Message, version: int) -> Peer:
    api = message.API
    assert api is not None
    kind = "request" if isinstance(message, api.request) else "response"
    entity = their(f"kio.schema.{api.module}.v{version}.{kind}", type(message).__name__)
    read_entity: Any = entity_reader(entity)
    write_entity: Any = entity_writer(entity)

    def read(raw: bytes) -> Any:
        return read_entity(raw, 0)[0]

    def write(value: Any) -> bytes:
        out = BytesIO()
        write_entity(out, value)
        return out.getvalue()

    return Peer("kio", read, write)


KAFKA_PYTHON: dict[type[Message], str] = {
    MetadataResponse: "kafka.protocol.metadata.metadata",
    ProduceRequest: "kafka.protocol.producer.produce",
    FetchRequest: "kafka.protocol.consumer.fetch",
    ApiVersionsResponse: "kafka.protocol.metadata.api_versions",
}


def kafka_python_peer(message: Message, version: int) -> Peer | None:
    module = KAFKA_PYTHON.get(type(message))
    if module is None:
        return None  # it also decodes the records of a fetch
    cls = their(module, type(message).__name__)

    def read(raw: bytes) -> Any:
        return cls.decode(raw, version=version)

    def write(value: Any) -> bytes:
        value._header = None  # noqa: SLF001 - it encodes only objects that have a header
        return value.encode(version=version)

    return Peer("kafka-python", read, write)


def aiokafka_peer() -> Peer:
    cls = their("aiokafka.protocol.metadata", "MetadataResponse_v5")

    def write(value: Any) -> bytes:
        return value.encode()

    return Peer("aiokafka", cls.decode, write)


class Pair(NamedTuple):
    """The candidates that decode and encode a message."""

    read: dict[str, Candidate]
    write: dict[str, Candidate]


def pair(message: Message, version: int, *more: Peer) -> Pair:
    raw = message.encode(version)
    cls = type(message)
    ours = cls.decode(raw, version)
    assert ours.encode(version) == raw
    read: dict[str, Candidate] = {"ottla": lambda: cls.decode(raw, version)}
    write: dict[str, Candidate] = {"ottla": lambda: message.encode(version)}
    for peer in (kio_peer(message, version), kafka_python_peer(message, version), *more):
        if peer is None:
            continue
        value = peer.read(raw)
        assert peer.write(value) == raw, f"{peer.name} writes other bytes"
        read[peer.name] = _reading(peer, raw)
        write[peer.name] = _writing(peer, value)
    return Pair(read, write)


def _reading(peer: Peer, raw: bytes) -> Candidate:
    return lambda: peer.read(raw)


def _writing(peer: Peer, value: object) -> Candidate:
    return lambda: peer.write(value)


HOT: dict[type[Message], HotCodec] = {
    ProduceRequest: HotCodec(hot_produce.request_reader, hot_produce.request_writer),
    ProduceResponse: HotCodec(hot_produce.response_reader, hot_produce.response_writer),
    FetchRequest: HotCodec(hot_fetch.request_reader, hot_fetch.request_writer),
    FetchResponse: HotCodec(hot_fetch.response_reader, hot_fetch.response_writer),
}


def ours_alone(message: Message, version: int) -> Pair:
    """Ottla's codecs: the hand-written one and the compiled one."""
    cls = type(message)
    raw = message.encode(version)
    data = memoryview(raw) if has_records(cls) else raw
    reader = compile_reader(cls, version, cls.FLEXIBLE)
    writer = compile_writer(cls, version, cls.FLEXIBLE)

    def reading(read: Reader) -> Candidate:
        assert read(data, 0, OBJECTS_MAX)[1] == len(raw)
        return lambda: read(data, 0, OBJECTS_MAX)

    def writing(write: Writer) -> Candidate:
        buffers: list[Buffer] = []
        write(message, buffers)
        assert b"".join(buffers) == raw
        return lambda: write(message, [])

    return Pair(
        {"ottla": reading(HOT[cls].reader(version, reader)), COMPILED: reading(reader)},
        {"ottla": writing(HOT[cls].writer(version, writer)), COMPILED: writing(writer)},
    )


def cases_by_hand() -> Iterator[Case]:
    for partitions in (1, 10):
        of = f"{partitions} partition{'s' if partitions > 1 else ''}"
        messages: list[tuple[str, Message, int]] = [
            (f"Produce 9, {of}", produce(BATCH[:100_000], partitions), 9),
            (f"Produce 9, {of}, response", produce_response(partitions), 9),
            (f"Fetch 17, {of}", fetch_request(1, partitions), 17),
            (f"Fetch 17, {of}, response", fetch_response(partitions), 17),
        ]
        for name, message, version in messages:
            read, write = ours_alone(message, version)
            yield Case(f"{name}: decode by hand", read, 1.0, 1.0)
            yield Case(f"{name}: encode by hand", write, 1.0, 1.0)


def cases() -> Iterator[Case]:
    read, write = pair(metadata(), 12)
    yield Case("Metadata 12, 1,000 partitions: write", write, 1.0, None, METADATA_RATE)
    yield Case("Metadata 12, 1,000 partitions: read", read, 1.0, None, METADATA_RATE)
    read, write = pair(metadata_without_ids(), 5, aiokafka_peer())
    yield Case("Metadata 5, 1,000 partitions: write", write, 1.0)
    yield Case("Metadata 5, 1,000 partitions: read", read, 1.0)
    read, write = pair(produce(), 9)
    yield Case("Produce 9, a batch of 1 MB: read", read, 1.0, None, PRODUCE_RATE)
    request = produce()
    write["ottla"] = lambda: request.buffers(9)
    yield Case("Produce 9, a batch of 1 MB: write (ours as buffers)", write, 1.0)
    read, write = pair(fetch_request(), 17)
    yield Case("Fetch 17, 100 partitions: read the request", read, 1.0)
    yield Case("Fetch 17, 100 partitions: write the request", write, 1.0)
    read, write = pair(fetch_response(), 17)
    response = fetch_response()
    write["ottla"] = lambda: response.buffers(17)
    yield Case("Fetch 17, 10 partitions, 1 MB: write the response (ours as buffers)", write, 1.0)
    yield Case("Fetch 17, 10 partitions, 1 MB: read the response", read, 1.0)
    read, write = pair(api_versions(), 4)
    yield Case("ApiVersions 4: write the response", write, 1.0)
    yield Case("ApiVersions 4: read the response", read, 1.0)
    yield from cases_by_hand()


if __name__ == "__main__":
    run(
        __file__,
        "How many messages per second are encoded and decoded?",
        cases(),
        "messages",
        ("kio", "kafka-python", "aiokafka"),
    )
