"""Transactions, which are not supported: requests are refused, and nothing is left half done."""

from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from broker.nodes import broker, run
from broker.test_node import create, fetch, fetch_request
from log.logs import append, end, opened
from ottla.errors import ErrorCode
from ottla.ids import LeaderEpoch
from ottla.log.files import OsDisk
from ottla.log.log_config import LogConfig
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.records.builder import BatchBuilder


def test_transactional_producer_fails_permanently(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            asked = FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"])
            (found,) = (await client.ask(asked, FindCoordinatorResponse)).coordinators
            assert found.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            assert found.error_message == "transactions are not supported by this broker"
            request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000)
            given = await client.ask(request, InitProducerIdResponse)
            assert given.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            producer: Any = AIOKafkaProducer(
                bootstrap_servers=f"127.0.0.1:{running.port}", transactional_id="tx"
            )
            with pytest.raises(KafkaError):
                await producer.start()
            await producer.stop()

    run(scenario)


def test_transactional_batch_does_not_block_read_committed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            topic_id = await create(client, "t")
            builder = BatchBuilder()
            builder.append(1_700_000_000_000, b"k", b"v")
            records = builder.build(
                producer_id=5, producer_epoch=0, base_sequence=0, transactional=True
            )
            data = PartitionProduceData(index=0, records=records)
            request = ProduceRequest(
                transactional_id="tx",
                acks=-1,
                timeout_ms=1000,
                topic_data=[TopicProduceData(name="t", partition_data=[data])],
            )
            answer = await client.ask(request, ProduceResponse, 9)
            (partition,) = answer.responses[0].partition_responses
            assert partition.error_code == ErrorCode.INVALID_TXN_STATE
            assert await fetch(client, topic_id) == []

    run(scenario)


def test_fetch_returns_aborted_transactions_of_its_range(tmp_path: Path) -> None:
    """A log that Kafka wrote can contain transactions."""

    def write() -> None:
        disk = OsDisk()
        rules = LogConfig(index_interval_bytes=100)
        log = opened(disk, rules, folder=f"{tmp_path}/data/t-0").log
        log.begin_epoch(LeaderEpoch(0))
        for producer in range(1, 21):
            append(log, bytes(200), producer_id=producer, transactional=True)
            end(log, producer, commit=False)
        run(log.close)
        disk.close()

    async def make() -> None:
        async with broker(tmp_path) as running:
            await create(await running.client(), "t")

    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            (topic,) = (await client.ask(MetadataRequest(topics=None), MetadataResponse)).topics
            request = fetch_request(topic.topic_id, 10)
            request.isolation_level = 1
            request.topics[0].partitions[0].partition_max_bytes = 800
            answer = await client.ask(request, FetchResponse)
            (partition,) = answer.responses[0].partitions
            assert partition.last_stable_offset == 40
            told = [one.first_offset for one in partition.aborted_transactions or ()]
            assert told[0] == 10
            assert 2 <= len(told) <= 5

    run(make)
    write()
    run(scenario)
