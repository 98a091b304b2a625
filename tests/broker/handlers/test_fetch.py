"""Fetch: returns records up to the limits, at once or when enough bytes are available."""

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from broker.disks import FaultyDisk
from broker.nodes import Client, RunningBroker, broker, run
from broker.test_node import batch, create, fetch, produce
from cases import each_case
from ottla.broker.consumer_fetch_path import ConsumerFetchPath
from ottla.errors import ErrorCode
from ottla.ids import ZERO_UUID, PartitionIndex, TopicPartition, Uuid
from ottla.log.cached_reads import RecordSlice
from ottla.log.disk import Reader
from ottla.protocol.apis import FETCH
from ottla.protocol.conversation import Response
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from ottla.protocol.primitives import Buffer
from ottla.records.batch import batches
from ottla.transport.connection import Connection, DeferredResponse

VERSIONS = range(4, 19)
STRANGER = Uuid(b"0123456789abcdef")
LARGE = 1 << 20


@pytest.fixture(autouse=True, params=["handler", "fast path"])
def with_or_without_fast_path(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Serve ordinary requests with the fast path, or all requests with the handler."""

    def dispatched(self: ConsumerFetchPath, frame: memoryview, connection: Connection) -> None:
        """Leave a request to the handler."""

    if request.param == "handler":
        monkeypatch.setattr(ConsumerFetchPath, "serve", dispatched)


class FetchSpec(NamedTuple):
    topic: str | Uuid
    number: int = 0
    offset: int = 0
    bytes_max: int = LARGE
    leader_epoch: int = -1
    last_epoch: int = -1


def request(
    *wanted: FetchSpec,
    wait_ms: int = 0,
    bytes_min: int = 1,
    bytes_max: int = LARGE,
    session: tuple[int, int] = (0, -1),
    forgotten: Sequence[tuple[str | Uuid, int]] = (),
    isolation: int = 0,
) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=bytes_min,
        max_bytes=bytes_max,
        isolation_level=isolation,
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            FetchTopic(
                topic=one.topic if isinstance(one.topic, str) else "",
                topic_id=one.topic if isinstance(one.topic, Uuid) else ZERO_UUID,
                partitions=[
                    FetchPartition(
                        partition=one.number,
                        current_leader_epoch=one.leader_epoch,
                        fetch_offset=one.offset,
                        last_fetched_epoch=one.last_epoch,
                        partition_max_bytes=one.bytes_max,
                    )
                ],
            )
            for one in wanted
        ],
        forgotten_topics_data=[
            ForgottenTopic(
                topic=topic if isinstance(topic, str) else "",
                topic_id=topic if isinstance(topic, Uuid) else ZERO_UUID,
                partitions=[index],
            )
            for topic, index in forgotten
        ],
    )


async def fetch_partitions(
    client: Client, asked: FetchRequest, version: int = 12
) -> list[PartitionData]:
    """Return all partitions of the response, in order."""
    answer = await client.ask(asked, FetchResponse, version)
    assert answer.error_code == 0
    return [one for topic in answer.responses for one in topic.partitions]


async def one(client: Client, wanted: FetchSpec, version: int = 12) -> PartitionData:
    (found,) = await fetch_partitions(client, request(wanted), version)
    return found


def size(data: PartitionData) -> int:
    return len(data.records or b"")


def values(data: PartitionData) -> list[bytes | None]:
    return [record.value for each in batches(data.records or b"") for record in each.records()]


def errors(running: RunningBroker) -> dict[str, int]:
    """Return the counted errors by name."""
    counts = running.parts.request_metrics.of(FETCH)
    return {ErrorCode(code).name: count for code, count in counts.errors.items()}


def test_records_are_returned_in_every_version(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            known = await create(client, "t", 2)
            for value in (b"a", b"b", b"c"):
                await produce(client, "t", batch(value), index=1)
            await running.parts.replica_manager.leader_partition("t", 1).delete_records(1)
            for version in VERSIONS:
                topic = known if version >= 13 else "t"
                asked = request(FetchSpec(topic, 1, 1), FetchSpec(topic, 0))
                answer = await client.ask(asked, FetchResponse, version)
                assert (answer.error_code, answer.session_id) == (0, 0)
                (result,) = answer.responses
                assert (result.topic_id if version >= 13 else result.topic) == topic
                full, empty = result.partitions
                assert (full.partition_index, full.error_code) == (1, 0)
                assert values(full) == [b"b", b"c"]
                assert (full.high_watermark, full.last_stable_offset) == (3, 3)
                assert full.log_start_offset == (1 if version >= 5 else -1)
                assert full.aborted_transactions is None
                assert (full.diverging_epoch, full.current_leader) == (None, None)
                assert full.preferred_read_replica == -1
                assert (empty.partition_index, empty.error_code, size(empty)) == (0, 0, 0)
                assert empty.high_watermark == 0
            traffic = running.parts.replica_manager.traffic["t"]
            assert traffic[1].records_out == 2 * len(VERSIONS)

    run(scenario)


# Waiting.


def test_fetch_waits_for_records(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            reader, writer = await running.client(), await running.client()
            topic_id = await create(writer, "t")
            waiting = asyncio.create_task(fetch(reader, topic_id, wait_ms=30_000))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            await produce(writer, "t", batch(b"at last"))
            assert await waiting == [b"at last"]
            assert await fetch(reader, topic_id, 1, wait_ms=20) == []

    run(scenario)


def test_append_between_read_and_wait_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        appended, looked = asyncio.Event(), asyncio.Event()

        def held(wait: Coroutine[Any, Any, Response | None]) -> DeferredResponse:
            async def held_wait() -> Response | None:
                looked.set()
                await appended.wait()
                return await wait

            return DeferredResponse(held_wait())

        async with broker(tmp_path) as running:
            reader, writer = await running.client(), await running.client()
            await create(writer, "t")
            monkeypatch.setattr("ottla.broker.handlers.fetch.DeferredResponse", held)
            # A version that the handler always serves.
            asked = request(FetchSpec("t"), wait_ms=120_000)
            waiting = asyncio.create_task(fetch_partitions(reader, asked, 11))
            await looked.wait()
            await produce(writer, "t", batch(b"in between"))
            appended.set()
            assert [values(each) for each in await waiting] == [[b"in between"]]

    run(scenario)


def test_fetch_waits_for_min_bytes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            reader, writer = await running.client(), await running.client()
            await create(writer, "t", 2)
            records = batch(b"x")
            asked = request(
                FetchSpec("t", 0), FetchSpec("t", 1), wait_ms=50_000, bytes_min=2 * len(records) + 1
            )
            waiting = asyncio.create_task(fetch_partitions(reader, asked))
            for index in (0, 1):
                await produce(writer, "t", records, index=index)
                await asyncio.sleep(0.02)
                assert not waiting.done()
            await produce(writer, "t", records)
            assert [size(each) for each in await waiting] == [2 * len(records), len(records)]

    run(scenario)


def test_fetch_returns_available_records_at_max_wait(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t")
            await produce(client, "t", batch(b"x"))
            for wait_ms in (0, 30):
                began_s = running.parts.clock.elapsed_s()
                (found,) = await fetch_partitions(
                    client, request(FetchSpec("t"), wait_ms=wait_ms, bytes_min=LARGE)
                )
                assert values(found) == [b"x"]
                assert running.parts.clock.elapsed_s() - began_s >= wait_ms / 1000

    run(scenario)


def test_error_is_returned_without_waiting(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t")
            await produce(client, "t", batch(b"x"))
            for bad in (
                FetchSpec("nowhere"),
                FetchSpec("t", 0, 9),
                FetchSpec("t", 0, 0, LARGE, -1, 9),
            ):
                asked = request(FetchSpec("t", 0), bad, wait_ms=50_000, bytes_min=LARGE)
                assert len(await fetch_partitions(client, asked)) == 2
            assert await fetch_partitions(client, request(wait_ms=50_000)) == []
            # A broker that stops does not delay fetches.
            running.parts.shutdown.begun = True
            asked = request(FetchSpec("t"), wait_ms=50_000, bytes_min=LARGE)
            assert len(await fetch_partitions(client, asked)) == 1

    run(scenario)


# Limits.


def test_limits_apply_to_whole_batches_except_the_first(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t", 3)
            records = batch(b"x" * 50)
            each = len(records)
            for index in range(3):
                for _ in range(3):
                    await produce(client, "t", records, index=index)
            for of_partition, overall, expected in (
                (LARGE, LARGE, [3, 3, 3]),
                (0, LARGE, [1, 0, 0]),
                (1, LARGE, [1, 0, 0]),
                (2 * each, LARGE, [2, 2, 2]),
                (2 * each + 1, LARGE, [2, 2, 2]),
                (LARGE, 0, [1, 0, 0]),
                (LARGE, each, [1, 0, 0]),
                (LARGE, 4 * each, [3, 1, 0]),
                (2 * each, 5 * each, [2, 2, 1]),
            ):
                wanted = [FetchSpec("t", index, 0, of_partition) for index in (2, 0, 1)]
                found = await fetch_partitions(client, request(*wanted, bytes_max=overall))
                assert [part.partition_index for part in found] == [2, 0, 1]
                counts = [size(part) // each for part in found]
                assert counts == expected, (of_partition, overall)
                assert [size(part) % each for part in found] == [0, 0, 0]

    run(scenario)


def test_broker_limits_the_response_size(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, "fetch.max.bytes=1024") as running:
            client = await running.client()
            await create(client, "t")
            records = batch(bytes(400))
            for _ in range(4):
                await produce(client, "t", records)
            assert size(await one(client, FetchSpec("t"))) == 2 * len(records)

    run(scenario)


@each_case("cold", [False, True])
@each_case(
    ("bytes_min", "of_partition", "overall", "expected"),
    [
        (20_000, 20_000, LARGE, 1),  # the limit of the partition
        (20_000, LARGE, 20_000, 1),
        (LARGE, LARGE, 25_000, 2),  # more than the limit of the response
        (30_000, 30_000, LARGE, 2),
        (LARGE, LARGE, 1, 1),
    ],
)
def test_fetch_does_not_wait_for_more_than_its_limits(
    tmp_path: Path, bytes_min: int, of_partition: int, overall: int, expected: int, cold: bool
) -> None:
    disk = FaultyDisk()

    async def scenario() -> None:
        async with broker(tmp_path, disk=disk) as running:
            client = await running.client()
            await create(client, "t")
            for _ in range(6):
                await produce(client, "t", batch(bytes(12_000)))
            disk.cold = cold
            asked = request(
                FetchSpec("t", 0, 0, of_partition),
                wait_ms=50_000,
                bytes_min=bytes_min,
                bytes_max=overall,
            )
            (found,) = await asyncio.wait_for(fetch_partitions(client, asked), 20)
            assert len(values(found)) == expected

    run(scenario)


def test_full_partition_counts_as_its_limit(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            reader, writer = await running.client(), await running.client()
            await create(writer, "t", 2)
            for _ in range(3):
                await produce(writer, "t", batch(bytes(12_000)))
            asked = request(
                FetchSpec("t", 0, 0, 20_000),
                FetchSpec("t", 1, 0, 20_000),
                wait_ms=50_000,
                bytes_min=30_000,
            )
            waiting = asyncio.create_task(fetch_partitions(reader, asked))
            await produce(writer, "t", batch(bytes(1000)), index=1)
            await asyncio.sleep(0.02)
            assert not waiting.done()
            await produce(writer, "t", batch(bytes(9000)), index=1)
            assert [len(values(each)) for each in await waiting] == [1, 2]

    run(scenario)


# Errors.


def test_errors_are_reported_per_partition(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            known = await create(client, "t")
            await produce(client, "t", batch(b"x"))
            for wanted, code, since in (
                (FetchSpec("nowhere"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 4),
                (FetchSpec("t", 7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 4),
                (FetchSpec("t", -1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 4),
                (FetchSpec("t", 0, 2), ErrorCode.OFFSET_OUT_OF_RANGE, 4),
                (FetchSpec("t", 0, -1), ErrorCode.OFFSET_OUT_OF_RANGE, 4),
                (FetchSpec("t", leader_epoch=1), ErrorCode.UNKNOWN_LEADER_EPOCH, 9),
            ):
                for version in range(since, 13):
                    good, bad = await fetch_partitions(
                        client, request(FetchSpec("t"), wanted), version
                    )
                    assert (good.error_code, values(good)) == (0, [b"x"])
                    assert (bad.error_code, size(bad)) == (code, 0), wanted
                    assert (bad.high_watermark, bad.last_stable_offset) == (-1, -1)
                    assert (bad.log_start_offset, bad.current_leader) == (-1, None)
                    nowhere = code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    assert bad.aborted_transactions == (() if nowhere else None)
            for version in VERSIONS[9:]:
                good, bad = await fetch_partitions(
                    client, request(FetchSpec(known), FetchSpec(STRANGER)), version
                )
                assert (good.error_code, values(good)) == (0, [b"x"])
                assert bad.error_code == ErrorCode.UNKNOWN_TOPIC_ID
                assert bad.aborted_transactions == ()
            assert errors(running) == {
                "UNKNOWN_TOPIC_OR_PARTITION": 27,
                "OFFSET_OUT_OF_RANGE": 18,
                "UNKNOWN_LEADER_EPOCH": 4,
                "UNKNOWN_TOPIC_ID": 6,
            }

    run(scenario)


def test_current_leader_is_returned_with_epoch_errors(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            await create(await running.client(), "t")
        async with broker(tmp_path) as running:  # each start has a new leader epoch
            client = await running.client()

            async def expect(code: ErrorCode) -> None:
                for version in range(9, 13):
                    found = await one(client, FetchSpec("t", leader_epoch=0), version)
                    assert found.error_code == code
                    hint = found.current_leader
                    if version >= 12:  # KIP-951
                        assert hint is not None
                        assert (hint.leader_id, hint.leader_epoch) == (1, 1)
                    else:
                        assert hint is None

            await expect(ErrorCode.FENCED_LEADER_EPOCH)
            del running.parts.replica_manager.partitions[TopicPartition("t", PartitionIndex(0))]
            await expect(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    run(scenario)


def test_diverging_epoch_is_returned(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t")
            await produce(client, "t", batch(b"a", b"b"))
        async with broker(tmp_path) as running:
            client = await running.client()
            await produce(client, "t", batch(b"c"))
            for wanted, diverging in (
                (FetchSpec("t", 0, 2, last_epoch=0), None),
                (FetchSpec("t", 0, 3, last_epoch=1), None),
                (FetchSpec("t", 0, 3, last_epoch=0), (0, 2)),
            ):
                found = await one(client, wanted)
                assert found.error_code == 0
                result = found.diverging_epoch
                assert (result and (result.epoch, result.end_offset)) == diverging
                assert (found.high_watermark, found.last_stable_offset) == (3, 3)
                assert found.log_start_offset == 0
                assert size(found) == 0 or not diverging
            # The log has no entry for an epoch later than its own.
            found = await one(client, FetchSpec("t", 0, 1, last_epoch=9))
            assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    run(scenario)


def test_read_committed_returns_aborted_transactions(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t")
            await produce(client, "t", batch(b"x"))
            (found,) = await fetch_partitions(client, request(FetchSpec("t"), isolation=1))
            assert (found.aborted_transactions, values(found)) == ((), [b"x"])

    run(scenario)


def test_uncached_records_are_read_from_the_device(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = FaultyDisk()
        async with broker(tmp_path, disk=disk) as running:
            client = await running.client()
            await create(client, "t", 2)
            for index in (0, 1):
                await produce(client, "t", batch(b"x"), index=index)
            disk.cold = True
            for isolation in (0, 1):
                wanted = [FetchSpec("t", index) for index in (1, 0)]
                found = await fetch_partitions(client, request(*wanted, isolation=isolation))
                assert [values(each) for each in found] == [[b"x"], [b"x"]]
                assert [each.high_watermark for each in found] == [1, 1]
                assert [each.aborted_transactions for each in found] == [
                    () if isolation else None
                ] * 2
            few = await fetch_partitions(client, request(*wanted, bytes_max=1))
            assert [values(each) for each in few] == [[b"x"], []]

    run(scenario)


@pytest.mark.parametrize("cold", [False, True])
def test_full_response_reads_no_more_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cold: bool
) -> None:
    disk, sizes = FaultyDisk(), list[int]()
    cached, read = RecordSlice.cached, RecordSlice.read

    def counted(self: RecordSlice) -> Buffer | None:
        data = cached(self)
        if data:
            sizes.append(len(data))
        return data

    async def counted_cold(self: RecordSlice, reader: Reader) -> Buffer:
        data = await read(self, reader)
        sizes.append(len(data))
        return data

    async def scenario() -> None:
        async with broker(tmp_path, disk=disk) as running:
            client = await running.client()
            await create(client, "t", 5)
            data = batch(b"x" * 1000)
            for index in range(4):
                await produce(client, "t", data, index=index)
            disk.cold = cold
            monkeypatch.setattr(RecordSlice, "cached", counted)
            monkeypatch.setattr(RecordSlice, "read", counted_cold)
            wanted = [
                FetchSpec("t", 0),
                FetchSpec("t", 1),
                FetchSpec("t", 2, offset=9),
                FetchSpec("t", 3),
            ]
            found = await fetch_partitions(
                client, request(*wanted, FetchSpec("t", 4), bytes_max=len(data) + 99)
            )
            assert sizes == [len(data)]
            result = {each.partition_index: each for each in found}
            assert [size(result[index]) for index in range(5)] == [len(data), 0, 0, 0, 0]
            # Partitions without records still return their other fields.
            assert [result[index].high_watermark for index in range(5)] == [1, 1, -1, 1, 0]
            codes = [result[index].error_code for index in range(5)]
            assert codes == [0, 0, ErrorCode.OFFSET_OUT_OF_RANGE, 0, 0]

    run(scenario)


@pytest.mark.parametrize("cold", [False, True])
def test_failed_device_is_reported_and_others_are_read(tmp_path: Path, cold: bool) -> None:
    async def scenario() -> None:
        disk = FaultyDisk()
        one_path, two_path = tmp_path / "one", tmp_path / "two"
        async with broker(tmp_path, f"log.dirs={one_path},{two_path}", disk=disk) as running:
            client = await running.client()
            await create(client, "t", 2)
            await produce(client, "t", batch(b"x"))
            await produce(client, "t", batch(b"y"), index=1)
            disk.cold, disk.broken = cold, frozenset(("read",))
            asked = request(FetchSpec("t", 0), FetchSpec("t", 1, 1), wait_ms=50_000)
            bad, good = await fetch_partitions(client, asked)
            assert (bad.error_code, size(bad)) == (ErrorCode.KAFKA_STORAGE_ERROR, 0)
            assert (good.error_code, good.high_watermark) == (0, 1)
            disk.cold, disk.broken = False, frozenset()
            offline = [
                each.path for each in running.parts.replica_manager.logs.directories if each.failure
            ]
            assert len(offline) == 1, "its directory, and no other"
            assert errors(running) == {"KAFKA_STORAGE_ERROR": 1}

    run(scenario)


# Fetch sessions (KIP-227). test_fetch_sessions tests the sessions themselves.


@each_case("version", [7, 12, 13, 18])
def test_session_returns_only_changes(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            known = await create(client, "t", 2)
            topic: str | Uuid = known if version >= 13 else "t"
            await produce(client, "t", batch(b"x"))
            first = await client.ask(
                request(FetchSpec(topic, 0), FetchSpec(topic, 1), session=(0, 0)),
                FetchResponse,
                version,
            )
            session = first.session_id
            assert session > 0
            assert [len(each.partitions) for each in first.responses] == [2]
            epoch = 0

            async def more(
                *wanted: FetchSpec, forgotten: Sequence[tuple[str | Uuid, int]] = ()
            ) -> list[tuple[int, list[bytes | None]]]:
                nonlocal epoch
                epoch += 1
                asked = request(*wanted, session=(session, epoch), forgotten=forgotten)
                answer = await client.ask(asked, FetchResponse, version)
                assert (answer.error_code, answer.session_id) == (0, session)
                parts = [part for each in answer.responses for part in each.partitions]
                return [(part.partition_index, values(part)) for part in parts]

            assert await more() == [(0, [b"x"])]
            assert await more(FetchSpec(topic, 0, 1)) == []
            await produce(client, "t", batch(b"y"), index=1)
            assert await more() == [(1, [b"y"])]
            assert await more(forgotten=[(topic, 1)]) == []
            await produce(client, "t", batch(b"z"))
            assert await more() == [(0, [b"z"])]
            # An error is returned in every response.
            for _ in range(2):
                assert await more(FetchSpec(topic, 0, 9)) == [(0, [])]

    run(scenario)


def test_invalid_session_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            known = await create(client, "t")

            async def opened() -> int:
                asked = request(FetchSpec("t"), session=(0, 0))
                return (await client.ask(asked, FetchResponse, 12)).session_id

            session = await opened()
            for asked, version, code in (
                (request(session=(12345, 1)), 12, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
                (request(session=(session, 7)), 12, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
                (
                    request(FetchSpec(known), session=(session, 1)),
                    13,
                    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                ),
            ):
                answer = await client.ask(asked, FetchResponse, version)
                assert (answer.error_code, answer.session_id) == (code, 0)
                assert list(answer.responses) == []
            assert errors(running) == {
                "FETCH_SESSION_ID_NOT_FOUND": 1,
                "INVALID_FETCH_SESSION_EPOCH": 1,
                "FETCH_SESSION_TOPIC_ID_ERROR": 1,
            }
            # The final epoch closes the session.
            ended = await client.ask(
                request(FetchSpec("t"), session=(session, -1)), FetchResponse, 12
            )
            assert (ended.error_code, ended.session_id, len(ended.responses)) == (0, 0, 1)
            assert len(running.parts.fetch_sessions) == 0

    run(scenario)


def test_closed_session_has_no_id(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t", 2)
            both = [FetchSpec("t", 0), FetchSpec("t", 1)]
            opened = await client.ask(request(*both, session=(0, 0)), FetchResponse, 12)
            assert opened.session_id > 0
            # The broker responds at once although the request allows it to wait: no partition is
            # left.
            forgets = request(
                session=(opened.session_id, 1), forgotten=[("t", 0), ("t", 1)], wait_ms=50_000
            )
            ended = await client.ask(forgets, FetchResponse, 12)
            assert (ended.error_code, ended.session_id, ended.responses) == (0, 0, ())
            gone = await client.ask(
                request(FetchSpec("t"), session=(opened.session_id, 2)), FetchResponse, 12
            )
            assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    run(scenario)
