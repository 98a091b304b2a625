"""The connections of a started broker serve Produce by the fast path, also for other clients.

Without it everything works as well, only slower: no other test would notice.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import confluent_kafka
import pytest

from broker.nodes import broker, run
from broker.test_node import create, produce
from cases import Cases
from ottla import Admin, NewTopic
from ottla.broker import node
from ottla.broker.produce_fast_path import ProduceFastPath
from ottla.records.builder import BatchBuilder
from ottla.records.compression import Compression
from ottla.testing import Cluster
from ottla.transport.pending_acks import PendingAck

CONFLUENT: Any = confluent_kafka  # Any: the client's types are not complete
RECORDS = 40


class CountedFastPath:
    """A fast path, and how many requests it served."""

    def __init__(self, **parts: Any) -> None:
        path = ProduceFastPath(**parts)
        self.appended = path.appended
        self.served = 0
        self.served_replicated = 0
        self._serve = path.serve

    def serve(self, frame: memoryview) -> bytes | PendingAck | None:
        response = self._serve(frame)
        self.served += response is not None
        self.served_replicated += isinstance(response, PendingAck)
        return response


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> list[CountedFastPath]:
    """The fast paths of the brokers that the test starts."""
    made: list[CountedFastPath] = []

    def new(**parts: Any) -> ProduceFastPath:
        made.append(CountedFastPath(**parts))
        return cast("ProduceFastPath", made[-1])

    monkeypatch.setattr(node, "ProduceFastPath", new)
    return made


def confluent_produce(address: str, topic: str, config: Mapping[str, object]) -> list[int]:
    """Produce with librdkafka, a request per record; return the offsets."""
    offsets: list[int] = []
    producer = CONFLUENT.Producer({"bootstrap.servers": address, "linger.ms": 0, **config})

    def note(error: object, message: Any) -> None:
        assert error is None, error
        offsets.append(message.offset())

    for number in range(RECORDS):
        producer.produce(topic, b"%d " % number * 200, partition=0, on_delivery=note)
        assert producer.flush(30) == 0
    return offsets


def test_connections_serve_produce_by_the_fast_path(
    tmp_path: Path, paths: list[CountedFastPath]
) -> None:
    cases = Cases()

    async def scenario() -> None:
        async with broker(tmp_path) as running:
            (path,) = paths
            client = await running.client()
            await create(client, "t")
            for offset, codec in enumerate(Compression):
                with cases.case(codec.name):
                    builder = BatchBuilder(compression=codec)
                    builder.append(1_700_000_000_000, b"k", bytes(1000))
                    assert await produce(client, "t", builder.build()) == (0, offset)
                    assert path.served == offset + 1

    run(scenario)
    cases.check()


def test_fast_path_serves_librdkafka(tmp_path: Path, paths: list[CountedFastPath]) -> None:
    cases = Cases()

    async def scenario() -> None:
        async with broker(tmp_path) as running:
            (path,) = paths
            client, address = await running.client(), f"127.0.0.1:{running.port}"
            for codec in ("none", "lz4", "zstd"):
                for idempotent in (False, True):
                    with cases.case(codec, "idempotent" if idempotent else ""):
                        topic = f"{codec}-{idempotent}"
                        await create(client, topic)
                        before = path.served
                        config = {"compression.type": codec, "enable.idempotence": idempotent}
                        offsets = await asyncio.to_thread(confluent_produce, address, topic, config)
                        assert offsets == [*range(RECORDS)]
                        # The first batch of a producer id is not ordinary.
                        assert path.served - before == RECORDS - idempotent

    run(scenario)
    cases.check()


def test_fast_path_serves_acks_all_with_replicas(paths: list[CountedFastPath]) -> None:
    async def scenario() -> None:
        async with Cluster(3) as cluster:
            await cluster.settled()
            address = cluster.bootstrap_servers
            async with Admin({"bootstrap.servers": address}) as admin:
                await admin.create_topics([NewTopic("t", 1, 3)])
                await cluster.settled()
            offsets = await asyncio.to_thread(confluent_produce, address, "t", {"acks": "all"})
            assert offsets == [*range(RECORDS)]

    run(scenario)
    assert len(paths) == 3
    assert sum(path.served_replicated for path in paths) == RECORDS
