"""The memory that all clients together can make a broker hold, measured.

The broker is a process of its own. It holds what queued.max.request.bytes and
ottla.queued.max.response.bytes allow, plus one request that is larger than that.
"""

import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import pytest

from broker.wire import Wire
from judges.ottla_broker import OttlaBroker
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.records.batch import batches
from ottla.records.builder import BatchBuilder

MB = 1 << 20
TOPIC = "t"
BATCHES = 64
BATCH_BYTES = 900_000
LIMIT_BYTES = 32 * MB  # the default of both settings
WAIT_SECONDS = 60.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[tuple[OttlaBroker, int]]:
    # A broker per test: memory that one test leaves free in the process would serve the next.
    with OttlaBroker(tmp_path, "node.id=1", "ottla.metrics.listener=127.0.0.1:0") as process:
        process.start()
        with Wire(process.port) as wire:
            create(wire, TOPIC)
            create(wire, "large", str(100 * MB))
            for number in range(BATCHES):
                assert produce(wire, TOPIC, batch(number)) == (0, number)
            assert produce(wire, "large", batch(0)) == (0, 0)
        process.forget_peak()
        yield process, process.resident_bytes()
        wait_until(lambda: held_bytes(process) == (0, 0))
        assert process.stop() == 0


def grown_bytes(broker: tuple[OttlaBroker, int]) -> int:
    process, before = broker
    return process.resident_peak_bytes() - before


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def held_bytes(process: OttlaBroker) -> tuple[int, int]:
    """Return the bytes held for requests and for responses, from the metrics."""
    (port,) = process.ports() - {process.port}
    with urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        rows = dict(line.rsplit(" ", 1) for line in page.read().decode().splitlines())
    return int(rows["ottla_requests_queued_bytes"]), int(rows["ottla_responses_queued_bytes"])


def batch(number: int, size: int = BATCH_BYTES) -> bytes:
    builder = BatchBuilder(200 * MB)
    builder.append(time.time_ns() // 1_000_000, b"%d" % number, bytes(size))
    return builder.build()


def create(wire: Wire, name: str, bytes_max: str = "1048588") -> None:
    configs = [CreatableTopicConfig(name="max.message.bytes", value=bytes_max)]
    topic = CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=configs
    )
    answer = wire.ask(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse)
    assert answer.topics[0].error_code == 0


def produce_request(topic: str, records: bytes) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )


def produce(wire: Wire, topic: str, records: bytes) -> tuple[int, int]:
    answer = wire.ask(produce_request(topic, records), ProduceResponse, 12)
    (partition,) = answer.responses[0].partition_responses
    return partition.error_code, partition.base_offset


def fetch_request(
    offset: int, topic: str = TOPIC, *, bytes_min: int = 0, wait_ms: int = 0
) -> FetchRequest:
    one = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=50 * MB)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=bytes_min,
        max_bytes=50 * MB,
        topics=[FetchTopic(topic=topic, partitions=[one])],
    )


def read_all(wire: Wire) -> list[bytes | None]:
    keys: list[bytes | None] = []
    while len(keys) < BATCHES:
        answer = wire.ask(fetch_request(len(keys)), FetchResponse, 11)
        records = answer.responses[0].partitions[0].records or b""
        keys += [record.key for one in batches(records) for record in one.records()]
    return keys


def test_partial_frames_hold_bounded_memory(broker: tuple[OttlaBroker, int]) -> None:
    process = broker[0]
    half = 50 * MB
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(process.port)) for _ in range(8)]
        for wire in wires:
            wire.socket.setblocking(False)
        left = dict.fromkeys(wires, half)
        heads = {wire: struct.pack(">i", 100 * MB) for wire in wires}

        def push() -> bool:
            """Send what the broker accepts; return whether it accepted any bytes."""
            taken = 0
            for wire in wires:
                data = heads.pop(wire, b"") or bytes(min(left[wire], MB))
                try:
                    count = wire.socket.send(data)
                except BlockingIOError:
                    continue
                except ConnectionError:
                    count = 0
                left[wire] -= count
                taken += count
            return taken > 0

        # One frame holds all that it sent; the others wait. The broker may close that frame's
        # silent connection at any time after that and let the next one in.
        held = 0
        deadline = time.monotonic() + WAIT_SECONDS
        while held < half:
            assert time.monotonic() < deadline, held
            for _ in range(20):
                if not push():
                    time.sleep(0.01)
            held, _ = held_bytes(process)
            assert held <= half + 5 * MB
        # All eight frames would take 400 MB.
        assert grown_bytes(broker) <= 64 * MB
        # Requests of ordinary size are not delayed.
        with Wire(process.port) as wire:
            began = time.monotonic()
            assert produce(wire, "large", batch(1))[0] == 0
            assert time.monotonic() - began < 5
        # Larger requests wait until the stalled connections are closed.
        with Wire(process.port, WAIT_SECONDS) as wire:
            assert produce(wire, "large", batch(2, 30 * MB))[0] == 0
        assert sum(wire.socket.fileno() >= 0 for wire in wires) == 8
    assert process.log.read_text().count("request stalled after") >= 1


def test_closed_connection_releases_its_partial_frame(
    broker: tuple[OttlaBroker, int],
) -> None:
    process = broker[0]
    for _ in range(12):
        with ExitStack() as stack:
            for _ in range(40):
                wire = stack.enter_context(Wire(process.port))
                wire.socket.sendall(struct.pack(">i", 4 * MB) + bytes(MB // 2))
            wait_until(lambda: held_bytes(process)[0] > 0)
        wait_until(lambda: held_bytes(process)[0] == 0)
    # This is the size of a few of the 480 partial frames: peak memory, with what malloc keeps.
    assert grown_bytes(broker) <= LIMIT_BYTES + 64 * MB


def test_frame_larger_than_the_request_memory_is_served(
    broker: tuple[OttlaBroker, int],
) -> None:
    with Wire(broker[0].port, WAIT_SECONDS) as wire:
        assert produce(wire, "large", batch(3, 60 * MB))[0] == 0


def test_unread_responses_hold_bounded_memory(broker: tuple[OttlaBroker, int]) -> None:
    process = broker[0]
    with ExitStack() as stack:
        small = stack.enter_context(Wire(process.port))
        create(small, "small")
        assert produce(small, "small", batch(0, 1000)) == (0, 0)
        for _ in range(30):
            wire = stack.enter_context(Wire(process.port))
            wire.send(wire.encode(fetch_request(0), 11) * 10)
        wait_until(lambda: held_bytes(process)[1] >= LIMIT_BYTES / 2)
        # A client that reads little is not delayed.
        began = time.monotonic()
        for _ in range(20):
            assert small.ask(fetch_request(0, "small"), FetchResponse, 11).responses[0].partitions
        assert time.monotonic() - began < 5
        # A client that reads much gets everything.
        with Wire(process.port, WAIT_SECONDS) as reader:
            assert read_all(reader) == [b"%d" % number for number in range(BATCHES)]
        assert held_bytes(process)[1] <= LIMIT_BYTES + 2 * MB
        assert grown_bytes(broker) <= 2 * LIMIT_BYTES


def test_waiting_fetches_hold_no_memory(broker: tuple[OttlaBroker, int]) -> None:
    process = broker[0]
    with ExitStack() as stack:
        for _ in range(20):
            wire = stack.enter_context(Wire(process.port))
            request = fetch_request(BATCHES - 4, bytes_min=50 * MB, wait_ms=60_000)
            wire.send(wire.encode(request, 11))
        with Wire(process.port, WAIT_SECONDS) as reader:
            assert len(read_all(reader)) == BATCHES
        assert grown_bytes(broker) <= LIMIT_BYTES


def test_fetch_with_huge_limits_is_answered(
    broker: tuple[OttlaBroker, int],
) -> None:
    with Wire(broker[0].port) as wire:
        began = time.monotonic()
        wire.ask(fetch_request(0, bytes_min=45 * MB, wait_ms=20_000), FetchResponse, 11)
        assert time.monotonic() - began < 10


def test_client_that_does_not_read_is_closed_for_others(tmp_path: Path) -> None:
    settings = ("node.id=1", "ottla.queued.max.response.bytes=1048576")
    with OttlaBroker(tmp_path, *settings) as process:
        process.start()
        with ExitStack() as stack:
            wire = stack.enter_context(Wire(process.port))
            create(wire, TOPIC)
            for number in range(BATCHES):
                assert produce(wire, TOPIC, batch(number)) == (0, number)
            idle = [stack.enter_context(Wire(process.port)) for _ in range(5)]
            for one in idle:
                one.send(one.encode(fetch_request(0), 11) * 50)
            reader = stack.enter_context(Wire(process.port, WAIT_SECONDS))
            assert len(read_all(reader)) == BATCHES
        assert process.log.read_text().count("not read while others wait") >= 1
        assert process.stop() == 0
