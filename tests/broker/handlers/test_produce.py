"""Produce: a result per partition, and acknowledgements as requested (rule A8)."""

import asyncio
from pathlib import Path

import pytest

from broker.disks import FaultyDisk, HeldDisk
from broker.members import find_coordinator
from broker.nodes import Client, RunningBroker, broker, run
from broker.test_node import batch, create, fetch, produce
from ottla.errors import ErrorCode
from ottla.ids import ZERO_UUID, PartitionIndex, TopicPartition, Uuid
from ottla.protocol.apis import PRODUCE
from ottla.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.records.builder import BatchBuilder

VERSIONS = range(3, 14)
STRANGER = Uuid(b"0123456789abcdef")
EVERY_MESSAGE = "log.flush.interval.messages=1"


def request(topic: str | Uuid, *data: tuple[int, bytes | None], acks: int = -1) -> ProduceRequest:
    named = TopicProduceData(
        name=topic if isinstance(topic, str) else "",
        topic_id=topic if isinstance(topic, Uuid) else ZERO_UUID,
        partition_data=[PartitionProduceData(index=index, records=one) for index, one in data],
    )
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[named])


async def send(
    client: Client,
    topic: str | Uuid,
    records: bytes | None,
    version: int,
    *,
    index: int = 0,
    acks: int = -1,
) -> PartitionProduceResponse:
    asked = request(topic, (index, records), acks=acks)
    (response,) = (await client.ask(asked, ProduceResponse, version)).responses
    assert (response.topic_id if version >= 13 else response.name) == topic
    (one,) = response.partition_responses
    assert one.index == index
    return one


def errors(running: RunningBroker) -> dict[str, int]:
    """Return the counted errors by name."""
    return {
        ErrorCode(code).name: n
        for code, n in running.parts.request_metrics.of(PRODUCE).errors.items()
    }


def test_base_offset_is_returned_in_every_version(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            known = await create(client, "t")
            for number, version in enumerate(VERSIONS):
                topic = known if version >= 13 else "t"
                one = await send(client, topic, batch(b"a", b"b"), version)
                assert (one.error_code, one.base_offset) == (0, 2 * number)
                assert one.log_append_time_ms == -1
                assert (list(one.record_errors), one.error_message) == ([], None)
                assert one.current_leader is None
                assert one.log_start_offset == (0 if version >= 5 else -1)
            assert len(await fetch(client, known)) == 2 * len(VERSIONS)
            assert errors(running) == {}

    run(scenario)


def test_log_start_and_append_time_are_returned(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t", message_timestamp_type="LogAppendTime")
            before_ms = running.parts.clock.now_ms()
            for version in VERSIONS[:-1]:
                one = await send(client, "t", batch(b"a"), version)
                assert before_ms <= one.log_append_time_ms <= running.parts.clock.now_ms()
            await running.parts.replica_manager.leader_partition("t", 0).delete_records(4)
            assert (await send(client, "t", batch(b"a"), 12)).log_start_offset == 4
            first = await send(client, "t", batch(b"a", producer_id=5, sequence=7), 12)
            assert first.error_code == 0, "an unknown producer may start at any sequence"
            refused = await send(client, "t", batch(b"a", producer_id=5, sequence=9), 12)
            assert refused.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert refused.log_start_offset == 4, "the check read the log"

    run(scenario)


@pytest.mark.parametrize("acks", [-2, 2, 100])
def test_invalid_acks_are_refused(tmp_path: Path, acks: int) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            known = await create(client, "t", 2)
            for version in VERSIONS:
                topic = known if version >= 13 else "t"
                data = [(index, batch(b"x")) for index in (0, 1)]
                answer = await client.ask(
                    request(topic, *data, acks=acks), ProduceResponse, version
                )
                (result,) = answer.responses
                assert (result.topic_id if version >= 13 else result.name) == topic
                assert [one.index for one in result.partition_responses] == [0, 1]
                for one in result.partition_responses:
                    assert one.error_code == ErrorCode.INVALID_REQUIRED_ACKS
                    assert (one.base_offset, one.log_start_offset) == (-1, -1)
                    assert bool(one.error_message) == (version >= 8)
            assert await fetch(client, known) == []
            assert errors(running) == {"INVALID_REQUIRED_ACKS": 2 * len(VERSIONS)}

    run(scenario)


def test_duplicate_batch_gets_its_first_offset(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t")
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
            given = await client.ask(request, InitProducerIdResponse)
            first = batch(b"a", producer_id=given.producer_id, sequence=0)
            assert await produce(client, "t", first) == (0, 0)
            assert await produce(client, "t", first) == (0, 0)
            gap = batch(b"c", producer_id=given.producer_id, sequence=2)
            code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert await produce(client, "t", gap) == (code, -1)
            other = await client.ask(request, InitProducerIdResponse)
            assert other.producer_id > given.producer_id

    run(scenario)


def test_one_bad_partition_does_not_fail_the_others(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t", 2)
            broken = bytearray(batch(b"x"))
            broken[-1] ^= 1
            request = ProduceRequest(
                acks=-1,
                timeout_ms=1000,
                topic_data=[
                    TopicProduceData(
                        name="t",
                        partition_data=[
                            PartitionProduceData(index=0, records=bytes(broken)),
                            PartitionProduceData(index=1, records=batch(b"y")),
                            PartitionProduceData(index=2, records=batch(b"z")),
                        ],
                    ),
                    TopicProduceData(
                        name="nope",
                        partition_data=[PartitionProduceData(index=0, records=batch(b"y"))],
                    ),
                ],
            )
            answer = await client.ask(request, ProduceResponse, 9)
            codes = [one.error_code for t in answer.responses for one in t.partition_responses]
            assert codes == [
                ErrorCode.CORRUPT_MESSAGE,
                ErrorCode.NONE,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ]

    run(scenario)


def test_failure_with_acks_0_closes_the_connection(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            topic_id = await create(client, "t")

            def unacknowledged(topic: str) -> ProduceRequest:
                data = PartitionProduceData(index=0, records=batch(b"x"))
                return ProduceRequest(
                    acks=0,
                    timeout_ms=0,
                    topic_data=[TopicProduceData(name=topic, partition_data=[data])],
                )

            await client.send(unacknowledged("t"), 9)
            assert await fetch(client, topic_id, wait_ms=1000) == [b"x"]
            await client.send(unacknowledged("nope"), 9)
            with pytest.raises(EOFError):
                await fetch(client, topic_id)

    run(scenario)


def test_unknown_topic_id_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            known = await create(client, "t")
            for topic, index, code in (
                (STRANGER, 0, ErrorCode.UNKNOWN_TOPIC_ID),
                (ZERO_UUID, 0, ErrorCode.UNKNOWN_TOPIC_ID),
                (known, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                (known, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ):
                one = await send(client, topic, batch(b"x"), 13, index=index)
                assert (one.error_code, one.base_offset) == (code, -1)
                assert one.log_start_offset == -1

    run(scenario)


def test_current_leader_is_returned_from_version_10(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            known = await create(client, "t")
            del running.parts.replica_manager.partitions[TopicPartition("t", PartitionIndex(0))]
            for version in VERSIONS:
                topic = known if version >= 13 else "t"
                one = await send(client, topic, batch(b"x"), version)
                assert one.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                assert one.log_start_offset == -1
                hint = one.current_leader
                if version >= 10:  # KIP-951
                    assert hint is not None
                    assert (hint.leader_id, hint.leader_epoch) == (1, 0)
                else:
                    assert hint is None

    run(scenario)


def keyless() -> bytes:
    builder = BatchBuilder()
    for key in (b"k", None, None):
        builder.append(1_700_000_000_000, key, b"v")
    return builder.build()


def test_invalid_records_are_named(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            known = await create(client, "t", cleanup_policy="compact")
            for version in VERSIONS:
                topic = known if version >= 13 else "t"
                one = await send(client, topic, keyless(), version)
                assert (one.error_code, one.base_offset) == (ErrorCode.INVALID_RECORD, -1)
                assert one.log_start_offset == (0 if version >= 5 else -1)
                named = [
                    (each.batch_index, each.batch_index_error_message) for each in one.record_errors
                ]
                if version >= 8:
                    assert [index for index, _ in named] == [1, 2]
                    assert all(text for _, text in named)
                    assert one.error_message
                else:
                    assert (named, one.error_message) == ([], None)
            assert await fetch(client, known) == []

    run(scenario)


def test_early_errors_do_not_return_the_log_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, "offsets.topic.num.partitions=1") as running:
            client = await running.client()
            await find_coordinator(client)
            await create(client, "t", max_message_bytes="100")
            broken = bytearray(batch(b"x"))
            broken[-1] ^= 1
            for records, code in (
                (None, ErrorCode.INVALID_RECORD),
                (b"", ErrorCode.INVALID_RECORD),
                (bytes(broken), ErrorCode.CORRUPT_MESSAGE),
                (batch(bytes(200)), ErrorCode.MESSAGE_TOO_LARGE),
                (batch(b"x") * 2, ErrorCode.INVALID_RECORD),
            ):
                for version in (3, 8, 12):
                    one = await send(client, "t", records, version)
                    assert (one.error_code, one.base_offset) == (code, -1)
                    assert one.log_start_offset == -1
            one = await send(client, "__consumer_offsets", batch(b"x"), 12)
            assert one.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
            assert one.log_start_offset == 0
            assert errors(running) == {
                "INVALID_RECORD": 9,
                "CORRUPT_MESSAGE": 3,
                "MESSAGE_TOO_LARGE": 3,
                "INVALID_TOPIC_EXCEPTION": 1,
            }

    run(scenario)


def test_not_enough_replicas_fails_acks_all(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t")
            running.parts.replica_manager.leader_partition("t", 0).in_sync_min = 2
            for version in VERSIONS[:-1]:
                one = await send(client, "t", batch(b"x"), version)
                assert one.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
                assert one.log_start_offset == (0 if version >= 5 else -1)
            assert (await send(client, "t", batch(b"x"), 12, acks=1)).error_code == 0

    run(scenario)


def test_acknowledgement_waits_for_a_required_sync(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = HeldDisk()
        async with broker(tmp_path, disk=disk) as running:
            client = await running.client()
            known = await create(client, "t", flush_messages="1")
            await create(client, "lax")
            disk.free.clear()
            assert (await send(client, "lax", batch(b"x"), 12)).error_code == 0
            for acks in (-1, 1):
                disk.free.clear()
                waiting = asyncio.create_task(send(client, "t", batch(b"x"), 12, acks=acks))
                await asyncio.sleep(0.05)
                assert not waiting.done()
                disk.free.set()
                assert (await waiting).error_code == 0
            assert running.parts.replica_manager.leader_partition("t", 0).log.recovery_point == 2
            assert await fetch(client, known) == [b"x", b"x"]

    run(scenario)


def test_failed_device_acknowledges_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = FaultyDisk()
        one, two = tmp_path / "one", tmp_path / "two"
        settings = (f"log.dirs={one},{two}", EVERY_MESSAGE)
        async with broker(tmp_path, *settings, disk=disk) as running:
            client = await running.client()
            await create(client, "t")
            await create(client, "u")
            disk.broken = frozenset(("sync",))
            # The batch is appended but not synced.
            failed = await send(client, "t", batch(b"x"), 12)
            assert (failed.error_code, failed.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
            assert failed.error_message
            disk.broken = frozenset()
            # From then on the directory is offline; the other directory is online.
            failed = await send(client, "t", batch(b"x"), 12)
            assert (failed.error_code, failed.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
            assert failed.log_start_offset == -1
            assert (await send(client, "u", batch(b"x"), 12)).error_code == 0
            disk.broken = frozenset(("write",))
            failed = await send(client, "u", batch(b"x"), 12)
            assert (failed.error_code, failed.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
            assert errors(running) == {"KAFKA_STORAGE_ERROR": 3}
            disk.broken = frozenset()

    run(scenario)
