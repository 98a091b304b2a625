"""Invalid and hostile input to a running broker, grouped by kind.

The broker is a process of its own. During each test a bystander produces and fetches, and must be
served. The broker's memory must never grow by more than 64 MB after it has warmed up.
"""

import gzip
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random

import pytest

from broker.wire import Wire
from judges.ottla_broker import OttlaBroker
from ottla.errors import ErrorCode
from ottla.ids import ZERO_UUID, Uuid
from ottla.protocol import apis
from ottla.protocol.apis import API_OF_KEY
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from ottla.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.records.batch import batches
from ottla.records.builder import BatchBuilder
from ottla.records.compression import Compression
from ottla.settings.broker import OTTLA_METRICS_LISTENER
from ottla.settings.config_parser import broker_config

MEMORY_BYTES_MAX = 64 << 20
ANSWER_SECONDS_MAX = 10.0  # on a busy machine
TOPIC = "t"


class Bystander:
    """A well-behaved client that must be served while the tests run."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._thread = threading.Thread(target=self._run)
        self._stop = threading.Event()
        self.failure: BaseException | None = None
        self.served = 0

    def __enter__(self) -> "Bystander":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with Wire(self._port, ANSWER_SECONDS_MAX) as wire:
                while not self._stop.is_set() or not self.served:
                    code, _ = produce(wire, batch(b"x"), topic="bystander")
                    assert code == 0
                    assert end_of(wire, "bystander") > 0
                    self.served += 1
                    self._stop.wait(0.02)
        except BaseException as failure:
            self.failure = failure


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OttlaBroker, int]]:
    folder = tmp_path_factory.mktemp("bad-input")
    settings = ("node.id=1", "group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=1")
    with OttlaBroker(folder, *settings, "offsets.topic.replication.factor=1") as process:
        process.start()
        with Wire(process.port) as wire:
            create(wire, TOPIC)
            create(wire, "compacted", cleanup_policy="compact")
            create(wire, "bystander")
            large = BatchBuilder()
            large.append(now_ms(), b"k", bytes(900_000))
            for compression in Compression:  # allocations that happen once per codec
                large.compression = compression
                assert produce(wire, large.build())[0] == 0
        yield process, process.resident_bytes()
        assert process.stop() == 0


@pytest.fixture(autouse=True)
def check_bystander(broker: tuple[OttlaBroker, int]) -> Iterator[None]:
    process, before = broker
    process.forget_peak()
    with Bystander(process.port) as bystander:
        yield
    assert bystander.failure is None
    assert bystander.served
    assert process.resident_peak_bytes() - before <= MEMORY_BYTES_MAX


@pytest.fixture
def wire(broker: tuple[OttlaBroker, int]) -> Iterator[Wire]:
    with Wire(broker[0].port) as wire:
        yield wire


# Requests of a well-behaved client.


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def batch(*values: bytes, **how: int) -> bytes:
    builder = BatchBuilder()
    for value in values:
        builder.append(now_ms(), b"k", value)
    return builder.build(**how)  # pyright: ignore[reportArgumentType]


def create(wire: Wire, name: str, **config: str) -> None:
    configs = [
        CreatableTopicConfig(name=key.replace("_", "."), value=value)
        for key, value in config.items()
    ]
    topic = CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=configs
    )
    answer = wire.ask(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse)
    assert answer.topics[0].error_code == 0


def produce_request(records: bytes, topic: str = TOPIC, acks: int = -1) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )


def produce(wire: Wire, records: bytes, topic: str = TOPIC) -> tuple[int, int]:
    """Produce a batch and return the error code and the base offset."""
    answer = wire.ask(produce_request(records, topic), ProduceResponse, 12)
    (partition,) = answer.responses[0].partition_responses
    return partition.error_code, partition.base_offset


def end_of(wire: Wire, topic: str = TOPIC, timestamp: int = -1) -> int:
    one = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    asked = ListOffsetsTopic(name=topic, partitions=[one])
    answer = wire.ask(
        ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[asked]), ListOffsetsResponse, 7
    )
    found = answer.topics[0].partitions[0]
    assert found.error_code == 0
    return found.offset


def fetch_request(offset: int, topic: str = TOPIC, replica_id: int = -1) -> FetchRequest:
    one = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic=topic, partitions=[one])],
        replica_id=replica_id,
    )


# A length below 0 or above socket.request.max.bytes closes the connection before any allocation.


@pytest.mark.parametrize("length", [-1, -(2**31), 100 * 2**20 + 1, 2**31 - 1])
def test_invalid_length_closes_the_connection(wire: Wire, length: int) -> None:
    wire.send(struct.pack(">i", length))
    assert wire.is_closed()


def test_announced_frames_allocate_no_memory(
    broker: tuple[OttlaBroker, int],
) -> None:
    process, before = broker
    with ExitStack() as stack:
        for _ in range(200):
            wire = stack.enter_context(Wire(process.port))
            wire.send(struct.pack(">i", 100 * 2**20) + bytes(8))
        # The last connection is answered, so the broker has read all frames before it.
        assert end_of(stack.enter_context(Wire(process.port)), "bystander") >= 0
        assert process.resident_peak_bytes() - before <= MEMORY_BYTES_MAX


# Counts larger than the bytes can hold, -1 where null is not allowed, and too many objects.

METADATA, PRODUCE, LIST_OFFSETS, CREATE_TOPICS, FETCH = 3, 0, 2, 19, 1
INT_MAX = struct.pack(">i", 2**31 - 1)
HUGE_VARINT = b"\xff\xff\xff\xff\x0f"


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        (METADATA, 1, INT_MAX),
        (METADATA, 12, HUGE_VARINT),
        (METADATA, 1, struct.pack(">i", 1000) + bytes(1998)),  # an element takes at least two bytes
        (LIST_OFFSETS, 1, struct.pack(">ii", -1, -1)),
        (LIST_OFFSETS, 7, struct.pack(">ib", -1, 0) + b"\0"),
        (CREATE_TOPICS, 2, INT_MAX),
        (CREATE_TOPICS, 5, HUGE_VARINT),
        (PRODUCE, 8, struct.pack(">hhi", -1, -1, 1000) + INT_MAX),
        (PRODUCE, 9, b"\0" + struct.pack(">hi", -1, 1000) + HUGE_VARINT),
        (FETCH, 4, struct.pack(">iiiib", -1, 0, 0, 0, 0) + INT_MAX),
        (METADATA, 12, b"\x00\x01\x00" + HUGE_VARINT),  # tagged fields
        (METADATA, 12, b"\x00\x01\x00\x01\x00" + HUGE_VARINT),  # the size of a tagged field
    ],
)
def test_impossible_count_closes_the_connection(
    wire: Wire, key: int, version: int, body: bytes
) -> None:
    wire.send_request(
        key, version, body, flexible=API_OF_KEY[key].request_header_version(version) > 1
    )
    assert wire.is_closed()


def test_too_many_objects_close_the_connection(wire: Wire) -> None:
    count = 4_000_000  # empty names of two bytes each, all of them present
    wire.send_request(METADATA, 1, struct.pack(">i", count) + bytes(2 * count))
    assert wire.is_closed()


# Unknown APIs and versions.


def test_future_api_versions_version_gets_the_served_range(wire: Wire) -> None:
    wire.send_request(18, 99, b"whatever comes then", flexible=True)
    answer = wire.raw_answer()
    assert struct.unpack(">ih", answer[:6]) == (1, ErrorCode.UNSUPPORTED_VERSION)
    result = ApiVersionsResponse.decode(answer[4:], 0)
    (known,) = result.api_keys
    assert (known.api_key, known.min_version, known.max_version) == (18, 0, 4)
    # The connection stays usable.
    assert wire.ask(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0


@pytest.mark.parametrize(
    ("key", "version"),
    [(9999, 0), (-1, 0), (32767, 32767), (METADATA, 99), (METADATA, -1), (PRODUCE, 2), (FETCH, 3)],
)
def test_unknown_api_or_version_closes_the_connection(wire: Wire, key: int, version: int) -> None:
    wire.send_request(key, version, b"")
    assert wire.is_closed()


# Trailing and missing bytes, varints that are too long, and invalid UTF-8.


def heartbeat(wire: Wire) -> bytes:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    return wire.encode(request, 4)[4:]


SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "trailing": lambda body: body + b"\0",
    "cut off": lambda body: body[:-3],
    "cut off in the header": lambda body: body[:3],
    "empty": lambda body: b"",
    "varint": lambda body: body.replace(b"\x02g", b"\x82\x80\x80\x80\x80\x00g"),
    "text": lambda body: body.replace(b"\x02g", b"\x02\xff"),
    "client id": lambda body: body.replace(b"wire", b"\xff\xfe\xfd\xfc"),
}


@pytest.mark.parametrize("name", SPOILT)
def test_malformed_request_closes_the_connection(wire: Wire, name: str) -> None:
    good = heartbeat(wire)
    spoilt = SPOILT[name](good)
    assert spoilt != good
    wire.send_frame(spoilt)
    assert wire.is_closed()


def test_random_bytes_do_not_harm_the_broker(broker: tuple[OttlaBroker, int]) -> None:
    random = Random(7)
    for _ in range(300):
        with Wire(broker[0].port) as wire:
            key, version = random.randrange(80), random.randrange(14)
            wire.send_request(key, version, random.randbytes(random.randrange(200)))
            wire.socket.shutdown(socket.SHUT_WR)
            wire.read_to_the_end()


def test_repeated_violations_are_logged_once(broker: tuple[OttlaBroker, int]) -> None:
    process = broker[0]

    def lines() -> int:
        return process.log.read_text().count("connection closed")

    before = lines()
    for _ in range(500):
        with Wire(process.port) as wire:
            wire.send_frame(b"\0")
            assert wire.is_closed()
    assert lines() - before <= 1


# Topic names, and other values that could become a path.

NAMES = ["", ".", "..", "a" * 250, "a/b", "../../etc/passwd", "a b", "käse", "a\0b", "a\n", "a:b"]


@pytest.mark.parametrize("name", NAMES)
def test_invalid_topic_name_is_refused(
    broker: tuple[OttlaBroker, int], wire: Wire, name: str
) -> None:
    folder = broker[0].log.parent
    before = sorted(path for path in folder.rglob("*") if path.is_dir())
    topic = CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    made = wire.ask(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse)
    assert made.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    asked = MetadataRequest(
        topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True
    )
    found = wire.ask(asked, MetadataResponse)
    assert found.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    code, _ = produce(wire, batch(b"x"), topic=name)
    assert code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)
    for kind in (2, 4):  # a topic, a broker
        assert describe_code(wire, kind, name) != ErrorCode.NONE or (kind, name) == (4, "")
        assert alter_code(wire, kind, name, "retention.ms", "5000") != ErrorCode.NONE
    assert sorted(path for path in folder.rglob("*") if path.is_dir()) == before


def describe_code(wire: Wire, kind: int, name: str) -> int:
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    answer = wire.ask(DescribeConfigsRequest(resources=[asked]), DescribeConfigsResponse)
    return answer.results[0].error_code


def alter_code(wire: Wire, kind: int, name: str, key: str, value: str) -> int:
    change = AlterableConfig(name=key, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    return wire.ask(request, IncrementalAlterConfigsResponse).responses[0].error_code


def test_clients_cannot_produce_to_internal_topics(wire: Wire) -> None:
    find_coordinator(wire)  # creates the offsets topic
    code, _ = produce(wire, batch(b"not what a group would write"), topic="__consumer_offsets")
    assert code == ErrorCode.INVALID_TOPIC_EXCEPTION


def find_coordinator(wire: Wire) -> None:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    while wire.ask(request, FindCoordinatorResponse).coordinators[0].error_code:
        time.sleep(0.05)


# Batches with inconsistent contents.


def with_header_bytes(data: bytes, position: int, new: bytes) -> bytes:
    """Return the batch with changed header bytes and a recomputed CRC."""
    from fastcrc.crc32 import iscsi as crc32c

    changed = data[:position] + new + data[position + len(new) :]
    return changed[:17] + struct.pack(">I", crc32c(changed[21:])) + changed[21:]


GOOD = batch(b"a", b"b")
BATCHES = {
    "CRC": (GOOD[:-1] + b"X", ErrorCode.CORRUPT_MESSAGE),
    "magic 0": (GOOD[:16] + b"\0" + GOOD[17:], ErrorCode.INVALID_RECORD),
    "magic 1": (GOOD[:16] + b"\1" + GOOD[17:], ErrorCode.INVALID_RECORD),
    "magic 3": (GOOD[:16] + b"\3" + GOOD[17:], ErrorCode.CORRUPT_MESSAGE),
    "base offset": (struct.pack(">q", 5) + GOOD[8:], ErrorCode.INVALID_RECORD),
    "count": (with_header_bytes(GOOD, 57, struct.pack(">i", 3)), ErrorCode.INVALID_RECORD),
    "count below zero": (
        with_header_bytes(GOOD, 57, struct.pack(">i", -2)),
        ErrorCode.INVALID_RECORD,
    ),
    "last offset delta": (
        with_header_bytes(GOOD, 23, struct.pack(">i", 7)),
        ErrorCode.INVALID_RECORD,
    ),
    "several": (GOOD + GOOD, ErrorCode.INVALID_RECORD),
    "control": (with_header_bytes(GOOD, 21, struct.pack(">h", 0x20)), ErrorCode.INVALID_RECORD),
    "no codec": (
        with_header_bytes(GOOD, 21, struct.pack(">h", 7)),
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ),
    "not compressed": (with_header_bytes(GOOD, 21, struct.pack(">h", 1)), ErrorCode.INVALID_RECORD),
    "sequence": (
        with_header_bytes(GOOD, 43, struct.pack(">qhi", 5, 0, -1)),
        ErrorCode.INVALID_RECORD,
    ),
    "epoch": (with_header_bytes(GOOD, 43, struct.pack(">qhi", 5, -1, 0)), ErrorCode.INVALID_RECORD),
    "length": (GOOD[:8] + struct.pack(">i", 7) + GOOD[12:], ErrorCode.CORRUPT_MESSAGE),
    "cut off": (GOOD[:-5], ErrorCode.INVALID_RECORD),
    "a few bytes": (GOOD[:10], ErrorCode.INVALID_RECORD),
    "nothing": (b"", ErrorCode.INVALID_RECORD),
    "no records": (
        with_header_bytes(GOOD[:61], 57, struct.pack(">i", 2)),
        ErrorCode.CORRUPT_MESSAGE,
    ),
}


@pytest.mark.parametrize("name", BATCHES)
def test_inconsistent_batch_is_not_appended(wire: Wire, name: str) -> None:
    data, code = BATCHES[name]
    before = end_of(wire)
    if name == "no records":
        data = data[:8] + struct.pack(">i", len(data) - 12) + data[12:]
        code = ErrorCode.INVALID_RECORD
    assert produce(wire, data) == (code, -1)
    assert end_of(wire) == before


def test_transactional_batch_is_refused(wire: Wire) -> None:
    # If it were appended, read_committed consumers could never read past it.
    before = end_of(wire)
    builder = BatchBuilder()
    builder.append(now_ms(), b"k", b"v")
    data = builder.build(producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    code, _ = produce(wire, data)
    assert code == ErrorCode.INVALID_TXN_STATE
    assert end_of(wire) == before
    given = wire.ask(
        InitProducerIdRequest(transactional_id="mine", transaction_timeout_ms=1000),
        InitProducerIdResponse,
    )
    assert given.error_code != 0


# Decompression bombs.


@pytest.mark.parametrize("compression", [one for one in Compression if one is not Compression.NONE])
def test_compression_bomb_is_refused_in_bounded_memory(
    broker: tuple[OttlaBroker, int], wire: Wire, compression: Compression
) -> None:
    builder = BatchBuilder(1 << 30, compression)
    builder.append(now_ms(), b"k", bytes(80 << 20))
    bomb = builder.build()
    create(wire, f"bombs-{compression.name}", max_message_bytes=str(100 << 20))
    before = end_of(wire)
    started = time.monotonic()
    code, _ = produce(wire, bomb, topic=f"bombs-{compression.name}")
    assert code == ErrorCode.MESSAGE_TOO_LARGE
    assert time.monotonic() - started < ANSWER_SECONDS_MAX
    assert end_of(wire) == before


def test_gzip_bomb_with_many_members_is_refused(wire: Wire) -> None:
    # Many gzip members, each of them small.
    member = gzip.compress(bytes(10 << 20))
    data = with_header_bytes(GOOD[:61], 21, struct.pack(">h", Compression.GZIP)) + member * 20
    data = data[:8] + struct.pack(">i", len(data) - 12) + data[12:]
    code, _ = produce(wire, with_header_bytes(data, 21, data[21:23]))
    assert code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD)


# Records that are too large, have a future timestamp, or have no key.


def test_too_large_batch_is_refused(wire: Wire) -> None:
    builder = BatchBuilder(1 << 22)
    builder.append(now_ms(), b"k", bytes(1_100_000))
    before = end_of(wire)
    assert produce(wire, builder.build()) == (ErrorCode.MESSAGE_TOO_LARGE, -1)
    assert end_of(wire) == before


@pytest.mark.parametrize("ahead_ms", [86_400_000, 2**62])
def test_record_with_future_timestamp_is_refused(wire: Wire, ahead_ms: int) -> None:
    builder = BatchBuilder()
    builder.append(now_ms() + ahead_ms, b"k", b"v")
    assert produce(wire, builder.build()) == (ErrorCode.INVALID_TIMESTAMP, -1)


def test_compacted_topic_refuses_records_without_a_key(wire: Wire) -> None:
    builder = BatchBuilder()
    builder.append(now_ms(), None, b"v")
    assert produce(wire, builder.build(), topic="compacted") == (ErrorCode.INVALID_RECORD, -1)


# Too many connections, slow connections, and clients that never read.


def test_connection_flood_from_one_address_is_refused(tmp_path: Path) -> None:
    with OttlaBroker(tmp_path, "node.id=1", "max.connections.per.ip=20") as process:
        process.start()
        with ExitStack() as stack:
            wires = [stack.enter_context(Wire(process.port)) for _ in range(20)]
            for one in wires:
                assert one.ask(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0
            for _ in range(200):
                with Wire(process.port) as refused:
                    assert refused.is_closed()
            assert wires[0].ask(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0
        assert process.log.read_text().count("connection refused") <= 10


def test_silent_connection_is_closed(tmp_path: Path) -> None:
    with OttlaBroker(tmp_path, "node.id=1", "connections.max.idle.ms=500") as process:
        process.start()
        with Wire(process.port) as silent:
            assert silent.is_closed()


def test_client_that_never_reads_takes_bounded_memory(
    broker: tuple[OttlaBroker, int], wire: Wire
) -> None:
    process, before = broker
    request = wire.encode(fetch_request(0), 11)
    wire.socket.settimeout(1)
    sent = 0
    with suppress(TimeoutError):
        while sent < 200 << 20:
            wire.socket.sendall(request * 1000)
            sent += 1000 * len(request)
    assert sent < 100 << 20
    assert process.resident_peak_bytes() - before <= MEMORY_BYTES_MAX


# A client that pretends to be a replica or the controller.


@pytest.mark.parametrize("replica", [0, 1, 2])
def test_fake_replica_is_refused(wire: Wire, replica: int) -> None:
    end = end_of(wire)
    by_name, by_id = fetch_request(0, replica_id=replica), fetch_request(0)
    by_id.replica_state = ReplicaState(replica_id=replica, replica_epoch=1)
    by_id.topics[0].topic_id = topic_id(wire)
    for request, version in ((by_name, 4), (by_name, 11), (by_id, 15)):
        answer = wire.ask(request, FetchResponse, version)
        partition = answer.responses[0].partitions[0]
        assert partition.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert not partition.records
        assert partition.high_watermark == -1
    asked = ListOffsetsTopic(
        name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
    )
    offsets = ListOffsetsRequest(replica_id=replica, isolation_level=0, topics=[asked])
    found = wire.ask(offsets, ListOffsetsResponse, 7).topics[0].partitions[0]
    assert (found.error_code, found.offset) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)
    epochs = OffsetForLeaderEpochRequest(
        replica_id=replica,
        topics=[
            OffsetForLeaderTopic(
                topic=TOPIC, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)]
            )
        ],
    )
    end_offset = wire.ask(epochs, OffsetForLeaderEpochResponse, 4).topics[0].partitions[0]
    assert end_offset.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert end_offset.end_offset == -1
    assert produce(wire, batch(b"x")) == (0, end)


def topic_id(wire: Wire) -> Uuid:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
    return wire.ask(asked, MetadataResponse).topics[0].topic_id


@pytest.mark.parametrize(
    "api",
    [
        apis.WRITE_TXN_MARKERS,
        *(API_OF_KEY[key] for key in (4, 5, 6, 7, 56) if key in API_OF_KEY),
    ],
    ids=lambda api: api.name,
)
def test_fake_controller_is_disconnected(wire: Wire, api: apis.Api) -> None:
    response = wire.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
    assert api.key not in {one.api_key for one in response.api_keys}
    wire.send_request(api.key, api.versions.high, bytes(64))
    assert wire.is_closed()


# Settings changed by clients.


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("log.dirs", "/tmp/elsewhere"),
        ("log.dir", "/tmp/elsewhere"),
        ("authorizer.class.name", "org.example.Anything"),
        ("sasl.jaas.config", "com.sun.security.auth.module.JndiLoginModule required;"),
        ("ssl.keystore.location", "/etc/passwd"),
        ("node.id", "7"),
        ("config.providers", "env"),
        ("num.partitions", "${env:HOME}"),
        ("no.such.setting", "1"),
    ],
)
def test_unsafe_settings_are_refused_from_clients(wire: Wire, name: str, value: str) -> None:
    for resource in ("", "1"):
        assert alter_code(wire, 4, resource, name, value) != ErrorCode.NONE
    assert alter_code(wire, 2, TOPIC, name, value) != ErrorCode.NONE


def test_class_of_an_ignored_setting_is_not_used(wire: Wire) -> None:
    """As in Kafka the setting is dynamic; Ottla stores it, logs a warning and loads nothing."""
    assert alter_code(wire, 4, "", "metric.reporters", "org.example.Anything") == ErrorCode.NONE
    assert alter_code(wire, 4, "", "metric.reporters", "") == ErrorCode.NONE


def test_config_variables_are_not_expanded(wire: Wire) -> None:
    assert alter_code(wire, 2, TOPIC, "retention.ms", "${env:UID}") == ErrorCode.INVALID_CONFIG
    assert (
        alter_code(wire, 2, TOPIC, "cleanup.policy", "${file:/etc/passwd:root}") != ErrorCode.NONE
    )


# The port of the metrics page.


def test_only_listener_ports_are_open_by_default(broker: tuple[OttlaBroker, int]) -> None:
    assert broker_config()[OTTLA_METRICS_LISTENER] == ""
    assert broker[0].ports() == {broker[0].port}


# A buffer that is reused while it is still needed (the CRC does not cover the topic).


def test_later_bytes_do_not_change_a_request(broker: tuple[OttlaBroker, int]) -> None:
    port = broker[0].port
    topics = [f"mixed-{number}" for number in range(4)]
    with Wire(port) as wire:
        for topic in topics:
            create(wire, topic)
    written: dict[str, list[bytes]] = {topic: [] for topic in topics}
    random = Random(3)
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(port)) for _ in topics]
        for number in range(40):
            for topic, wire in zip(topics, wires, strict=True):
                value = f"{topic}-{number}-".encode() + random.randbytes(random.randrange(40_000))
                written[topic].append(value)
                data = wire.encode(produce_request(batch(value), topic), 12)
                cut = random.randrange(len(data))  # send the request in two parts
                wire.send(data[:cut])
                wire.send(data[cut:])
        for wire in wires:
            for _ in range(40):
                answer = wire.answer(ProduceResponse)
                assert answer.responses[0].partition_responses[0].error_code == 0
    with Wire(port) as wire:
        for topic in topics:
            assert values(wire, topic) == written[topic]


def values(wire: Wire, topic: str) -> list[bytes | None]:
    found: list[bytes | None] = []
    while len(found) < end_of(wire, topic):
        answer = wire.ask(fetch_request(len(found), topic), FetchResponse, 11)
        for one in batches(answer.responses[0].partitions[0].records or b""):
            found += [record.value for record in one.records() if record.offset >= len(found)]
    return found


# Zombies: fenced producers and expired consumers.


def test_zombie_producer_is_fenced(wire: Wire) -> None:
    create(wire, "zombies")
    given = wire.ask(
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0),
        InitProducerIdResponse,
    )

    def send(epoch: int, sequence: int) -> int:
        how = {"producer_id": given.producer_id, "producer_epoch": epoch}
        return produce(wire, batch(b"v", **how, base_sequence=sequence), topic="zombies")[0]

    assert send(1, 0) == 0
    assert send(0, 0) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(0, 1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(1, 5) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(2, 1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(1, 1) == 0
    assert end_of(wire, "zombies") == 2


def test_zombie_consumer_is_fenced(wire: Wire) -> None:
    find_coordinator(wire)
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=7, committed_metadata=""
    )
    commit = OffsetCommitRequest(
        group_id="zombies",
        generation_id_or_member_epoch=3,
        member_id="gone",
        topics=[OffsetCommitRequestTopic(name=TOPIC, topic_id=ZERO_UUID, partitions=[partition])],
    )
    answer = wire.ask(commit, OffsetCommitResponse, 8)
    assert answer.topics[0].partitions[0].error_code in (
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
    )
    beat = HeartbeatRequest(group_id="zombies", generation_id=3, member_id="gone")
    assert wire.ask(beat, HeartbeatResponse, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
