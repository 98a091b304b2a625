"""The metrics page of a broker in use: every value matches the traffic that caused it."""

import asyncio
import logging
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from broker.members import group_broker, single_member
from broker.nodes import Client, RunningBroker, broker, closed, run
from broker.replicas import Replicas
from broker.test_node import batch, create, produce
from broker.test_offset_commits import commit
from ottla.errors import ErrorCode, StorageFailure
from ottla.ids import ZERO_UUID, BrokerId
from ottla.metrics import METRICS
from ottla.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.records.builder import BatchBuilder

PAGE = "ottla.metrics.listener=127.0.0.1:0"

Page = Mapping[tuple[str, tuple[str, ...]], float]


async def get(node: RunningBroker, path: str, status: str = "200 OK") -> str:
    where = node.node.metrics
    assert where is not None
    reader, writer = await asyncio.open_connection(where.host, where.port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {where.host}\r\n\r\n".encode())
    head, _, text = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    assert head.startswith(f"HTTP/1.1 {status}\r\n")
    return text


async def scrape(node: RunningBroker) -> Page:
    text = await get(node, "/metrics")
    labels = {metric.name: metric.labels for metric in METRICS}
    found: dict[tuple[str, tuple[str, ...]], float] = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            assert family.name in labels or f"{family.name}_total" in labels, one
            values = {key: value for key, value in one.labels.items() if key != "le"}
            expected = labels.get(family.name) or labels.get(f"{family.name}_total", ())
            assert tuple(values) == expected, one
            if not one.name.endswith("_bucket"):
                found[one.name, tuple(values.values())] = one.value
    return found


def test_text_of_clients_cannot_control_a_terminal(tmp_path: Path) -> None:
    """Neither the client id, which is part of the member id, nor the group id."""
    hostile = 'h\x1b]0;x\x07\x1b[2J\r\n# "\\\x9b31m\x7f'

    async def scenario() -> None:
        async with group_broker(tmp_path, PAGE) as running:
            client = await running.client(hostile)
            assert (await single_member(client, hostile)).id.startswith(hostile)
            assert await commit(client, 0, group=hostile) == ErrorCode.UNKNOWN_MEMBER_ID
            assert await commit(client, 5, group=f"{hostile}2") == 0
            text = await get(running, "/metrics")
            assert not [one for one in text if one != "\n" and not one.isprintable()]
            shown = 'h␛]0;x␇␛[2J␍\n# "\\\ufffd31m␡'
            page = await scrape(running)
            assert page["ottla_group_members", (shown,)] == 1
            assert page["ottla_group_lag_records", (f"{shown}2", "t", "0")] == 0

    run(scenario)


# Any: aiokafka's types are incomplete.


async def produce_and_consume(address: str) -> None:
    """Produce 200 records to a topic, and read them in a group that commits 150 of them."""
    producer: Any = aiokafka.AIOKafkaProducer(bootstrap_servers=address, linger_ms=5)
    await producer.start()
    await asyncio.gather(
        *[
            await producer.send("orders", b"%d" % number, partition=number % 2)
            for number in range(200)
        ]
    )
    await producer.stop()
    consumer: Any = aiokafka.AIOKafkaConsumer(
        "orders",
        bootstrap_servers=address,
        group_id="readers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    seen = 0
    while seen < 200:
        found = await consumer.getmany(timeout_ms=200)
        seen += sum(map(len, found.values()))
    zero, one = (aiokafka.TopicPartition("orders", n) for n in range(2))
    await consumer.commit({zero: 100, one: 50})
    await consumer.stop()


def test_metrics_match_the_traffic_of_a_real_client(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(
            tmp_path, PAGE, "num.partitions=2", "group.initial.rebalance.delay.ms=0",
            "offsets.topic.replication.factor=1", "offsets.topic.num.partitions=3",
        ) as running:  # fmt: skip
            await produce_and_consume(f"127.0.0.1:{running.port}")
            page = await scrape(running)
            assert page["ottla_topic_records_in_total", ("orders",)] == 200
            assert page["ottla_topic_records_out_total", ("orders",)] == 200
            stored = page["ottla_topic_bytes_in_total", ("orders",)]
            assert stored == page["ottla_topic_bytes_out_total", ("orders",)]
            assert stored == page["ottla_topic_log_bytes", ("orders",)]
            files = (tmp_path / "data").glob("orders-*/*.log")
            assert stored == sum(file.stat().st_size for file in files)
            assert page["ottla_topic_partitions", ("orders",)] == 2
            assert page["ottla_topic_partitions", ("__consumer_offsets",)] == 3
            assert page["ottla_leader_partitions", ()] == 5
            assert page["ottla_group_lag_records", ("readers", "orders", "0")] == 0
            assert page["ottla_group_lag_records", ("readers", "orders", "1")] == 50
            assert page["ottla_groups", ("Empty",)] == 1
            assert page["ottla_group_members", ("readers",)] == 0
            assert page["ottla_request_seconds_count", ("Produce",)] >= 1
            assert page["ottla_request_seconds_sum", ("Fetch",)] > 0
            assert page["ottla_under_replicated_partitions", ()] == 0
            assert page["ottla_under_min_isr_partitions", ()] == 0
            assert page["ottla_at_min_isr_partitions", ()] == 5, "one of one replica is in sync"
            assert page["ottla_offline_partitions", ()] == 0
            assert page["ottla_active_controllers", ()] == 1
            assert page["ottla_data_directories", ("online",)] == 1
            assert page["ottla_data_directories", ("offline",)] == 0
            assert page["ottla_connections_accepted_total", ("PLAINTEXT",)] >= 2
            assert page["ottla_connections_refused_total", ("PLAINTEXT",)] == 0

    run(scenario)


def test_every_declared_metric_is_shown(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(
            tmp_path, PAGE, "num.partitions=2", "offsets.topic.num.partitions=1"
        ) as running:
            await produce_and_consume(f"127.0.0.1:{running.port}")
            client = await running.client()
            assert (await produce(client, "nowhere", batch(b"x")))[0] == 3
            text = await get(running, "/metrics")
            shown = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
            assert shown == [metric.name for metric in METRICS]

    run(scenario)


def test_compaction_is_in_the_metrics(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(
            tmp_path, PAGE, "log.cleaner.backoff.ms=100", "log.roll.ms=20"
        ) as running:
            client = await running.client()
            await create(client, "t", cleanup_policy="compact", min_cleanable_dirty_ratio="0")
            page = await scrape(running)
            assert page["ottla_log_cleaner_cleanings_total", ()] == 0
            assert page["ottla_log_cleaner_read_bytes_total", ()] == 0
            while not page["ottla_log_cleaner_cleanings_total", ()]:
                builder = BatchBuilder()
                builder.append(running.parts.clock.now_ms(), b"key", bytes(1000))
                assert (await produce(client, "t", builder.build()))[0] == 0
                await asyncio.sleep(0.05)
                page = await scrape(running)
            read = page["ottla_log_cleaner_read_bytes_total", ()]
            written = page["ottla_log_cleaner_written_bytes_total", ()]
            assert 1000 < written <= read
            assert 0 < page["ottla_log_cleaner_recopy_percent", ()] <= 100
            assert 0 <= page["ottla_log_cleaner_max_dirty_percent", ()] <= 100
            assert page["ottla_log_cleaner_time_since_last_run_seconds", ()] < 60
            assert page["ottla_log_cleaner_uncleanable_partitions", ()] == 0

    run(scenario)


def test_dirty_percent_is_of_the_dirtiest_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, PAGE, "log.cleaner.backoff.ms=100") as running:
            client = await running.client()
            await create(client, "t", 3, cleanup_policy="compact", segment_bytes="1048576")
            records = batch(bytes(700_000))  # a segment holds one
            assert (await produce(client, "t", records, index=2))[0] == 0  # stays clean
            for count, cleanings, percent in (
                (2, 1, 0),  # the first segment is cleaned, the active one never is
                (1, 1, 50),  # not above min.cleanable.dirty.ratio
                (1, 2, 0),
            ):
                for _ in range(count):
                    assert (await produce(client, "t", records, index=1))[0] == 0
                shown: tuple[float, float] | None = None
                while shown != (cleanings, percent):
                    await asyncio.sleep(0.05)
                    page = await scrape(running)
                    shown = (
                        page["ottla_log_cleaner_cleanings_total", ()],
                        page["ottla_log_cleaner_max_dirty_percent", ()],
                    )

    run(scenario)


def test_time_since_the_last_run_increases_until_the_next(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, PAGE, "log.cleaner.backoff.ms=100") as running:

            async def seconds() -> float:
                await asyncio.sleep(0.02)
                return (await scrape(running))["ottla_log_cleaner_time_since_last_run_seconds", ()]

            while await seconds() >= await seconds():
                pass
            while await seconds() <= await seconds():
                pass

    run(scenario)


def test_errors_are_counted_by_api_and_name(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, PAGE) as running:
            client = await running.client()
            await create(client, "t")
            for _ in range(3):
                await produce(client, "nowhere", batch(b"x"))
            await produce(client, "t", batch(b"x"))
            beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
            await client.ask(beat, HeartbeatResponse)
            page = await scrape(running)
            errors = {key[1]: count for key, count in page.items() if "errors" in key[0]}
            assert errors == {
                ("Produce", "UNKNOWN_TOPIC_OR_PARTITION"): 3,
                ("Heartbeat", "NOT_COORDINATOR"): 1,
            }
            assert page["ottla_request_seconds_count", ("Produce",)] == 4
            assert page["ottla_request_seconds_count", ("Heartbeat",)] == 1
            assert ("ottla_request_seconds_count", ("Fetch",)) not in page

    run(scenario)


def test_duplicates_and_deleted_topics_are_not_counted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, PAGE) as running:
            client = await running.client()
            await create(client, "t")
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
            given = await client.ask(request, InitProducerIdResponse)
            data = batch(b"a", b"b", producer_id=given.producer_id, sequence=0)
            assert await produce(client, "t", data) == await produce(client, "t", data) == (0, 0)
            page = await scrape(running)
            assert page["ottla_topic_records_in_total", ("t",)] == 2
            assert page["ottla_topic_bytes_in_total", ("t",)] == len(data)
            await delete(client, "t")
            page = await scrape(running)
            assert not [key for key in page if key[1] == ("t",)]

    run(scenario)


async def delete(client: Client, name: str) -> None:
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID)], timeout_ms=1000
    )
    (result,) = (await client.ask(request, DeleteTopicsResponse)).responses
    assert result.error_code == 0


def test_refused_and_violating_connections_are_counted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, PAGE, "max.connections.per.ip=2") as running:
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert await reader.read() == b""
            writer.close()
            for _ in range(2):
                await running.client()
            extra = await asyncio.open_connection("127.0.0.1", running.port)
            assert await closed(extra[0])
            extra[1].close()
            page = await scrape(running)
            at = ("PLAINTEXT",)
            assert page["ottla_connections", at] == 2
            assert page["ottla_connections_accepted_total", at] == 3
            assert page["ottla_connections_refused_total", at] == 1
            assert page["ottla_connections_closed_by_broker_total", (*at, "violation")] == 1
            assert page["ottla_connections_closed_by_broker_total", (*at, "failure")] == 0

    run(scenario)


def test_failed_directory_makes_the_broker_unhealthy(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, PAGE) as running:
            client = await running.client()
            await create(client, "t", 3)
            assert await get(running, "/healthz") == "ok\n"
            logs = running.parts.replica_manager.logs
            logs.fail(logs.directories[0], StorageFailure("the disk is gone"))
            result = await get(running, "/healthz", "503 Service Unavailable")
            assert result == "all data directories are offline\n"
            page = await scrape(running)
            assert page["ottla_data_directories", ("online",)] == 0
            assert page["ottla_data_directories", ("offline",)] == 1
            assert page["ottla_offline_partitions", ()] == 3
            assert page["ottla_offline_replicas", ()] == 3
            assert page["ottla_under_replicated_partitions", ()] == 0

    run(scenario)


def test_isr_is_compared_with_the_replicas_and_the_minimum(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, PAGE) as running:
            await create(await running.client(), "t")
            replicas = Replicas(running, in_sync_min=2)
            names = ("under_replicated", "at_min_isr", "under_min_isr", "reassigning")
            for in_sync, adding, expected in (
                ((1, 2, 3), (), (0, 0, 0, 0)),
                ((1, 2), (), (1, 1, 0, 0)),
                ((1,), (), (1, 0, 1, 0)),
                ((1, 2), (3,), (0, 1, 0, 1)),  # as in Kafka, it should have two
                ((1,), (3,), (1, 0, 1, 1)),
            ):
                replicas.state = replace(replicas.state, adding=tuple(map(BrokerId, adding)))
                replicas.change(*in_sync)
                page = await scrape(running)
                found = tuple(page[f"ottla_{name}_partitions", ()] for name in names)
                assert found == expected, (in_sync, adding)

    run(scenario)


def test_metrics_port_in_use_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as holder:
            port = holder.getsockname()[1]
            setting = f"ottla.metrics.listener=127.0.0.1:{port}"
            async with broker(tmp_path, setting) as running:
                assert running.node.metrics is None
                client = await running.client()
                await create(client, "t")
                assert await produce(client, "t", batch(b"x")) == (0, 0)
        (record,) = [one for one in caplog.records if one.levelno == logging.WARNING]
        assert record.getMessage() == "metrics page not started"
        assert isinstance(record.args, Mapping)
        assert str(port) in str(record.args["listener"])
        assert "pid" in str(record.args["owner"])

    run(scenario)


def test_metrics_page_is_off_by_default(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            assert running.node.metrics is None

    run(scenario)
