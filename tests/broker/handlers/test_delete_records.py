"""DeleteRecords: records below an offset are deleted, also after a restart."""

from pathlib import Path

import pytest

from broker.nodes import Client, broker, run
from broker.test_node import batch, create, fetch, fetch_request, produce
from ottla.errors import ErrorCode
from ottla.ids import Offset
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.fetch import FetchResponse
from ottla.replication.partition import Partition


async def delete(client: Client, topic: str, *asked: tuple[int, int]) -> list[tuple[int, int]]:
    partitions = [DeleteRecordsPartition(partition_index=n, offset=offset) for n, offset in asked]
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=partitions)], timeout_ms=1000
    )
    (answer,) = (await client.ask(request, DeleteRecordsResponse)).topics
    return [(one.error_code, one.low_watermark) for one in answer.partitions]


def test_deleted_records_stay_deleted_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            topic_id = await create(client, "t", 2)
            for value in (b"a", b"b", b"c"):
                await produce(client, "t", batch(value))
            assert await delete(client, "t", (0, 1)) == [(0, 1)]
            stored = (tmp_path / "data" / "log-start-offset-checkpoint").read_text()
            assert "t 0 1" in stored.splitlines(), "on the device before the answer"
            assert await fetch(client, topic_id, 1) == [b"b", b"c"]
            answer = await client.ask(fetch_request(topic_id, 0), FetchResponse)
            code = answer.responses[0].partitions[0].error_code
            assert code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert await delete(client, "t", (0, 0)) == [(0, 1)], (
                "the log start offset never decreases"
            )
        async with broker(tmp_path) as running:
            client = await running.client()
            assert await fetch(client, topic_id, 1) == [b"b", b"c"]
            assert await delete(client, "t", (0, -1), (1, -1)) == [(0, 3), (0, 0)]
            assert await produce(client, "t", batch(b"d")) == (0, 3)

    run(scenario)


def test_errors_are_reported_per_partition(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t")
            await create(client, "compacted", cleanup_policy="compact")
            await produce(client, "t", batch(b"a"))
            unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
            beyond = (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
            assert await delete(client, "t", (0, 2), (9, 0)) == [beyond, unknown]
            assert await delete(client, "t", (0, -2)) == [beyond]
            assert await delete(client, "nowhere", (0, 0)) == [unknown]
            refused = (ErrorCode.POLICY_VIOLATION, -1)
            assert await delete(client, "compacted", (0, 0)) == [refused]

    run(scenario)


def test_last_entry_of_a_partition_counts_as_in_kafka(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t", 2)
            for value in (b"a", b"b", b"c"):
                await produce(client, "t", batch(value))
            asked = (DeleteRecordsTopic(name="t", partitions=part) for part in entries)
            request = DeleteRecordsRequest(topics=[*asked], timeout_ms=1000)
            answer = await client.ask(request, DeleteRecordsResponse)
            found = [
                (topic.name, one.partition_index, one.low_watermark, one.error_code)
                for topic in answer.topics
                for one in topic.partitions
            ]
            assert found == [("t", 0, 1, ErrorCode.NONE), ("t", 1, 0, ErrorCode.NONE)]

    entries = [
        [
            DeleteRecordsPartition(partition_index=0, offset=3),
            DeleteRecordsPartition(partition_index=1, offset=9),
            DeleteRecordsPartition(partition_index=1, offset=0),
        ],
        [],
        [DeleteRecordsPartition(partition_index=0, offset=1)],
    ]
    run(scenario)


def test_repeated_entries_delete_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deleted: list[int] = []
    delete_records = Partition.delete_records

    async def counted(self: Partition, offset: int) -> Offset:
        deleted.append(offset)
        return await delete_records(self, offset)

    monkeypatch.setattr(Partition, "delete_records", counted)

    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t", 2)
            await produce(client, "t", batch(b"a"))
            asked = [(number % 2, -1) for number in range(5000)]
            assert await delete(client, "t", *asked) == [(0, 1), (0, 0)]
            assert deleted == [-1, -1]

    run(scenario)
