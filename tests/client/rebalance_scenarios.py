"""Consumer group scenarios that run on Ottla and on Apache Kafka."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from math import isnan
from typing import Any, TypeAlias

import pytest

from client.consumer_scenarios import (
    FROM_START,
    Scenario,
    consumer,
    numbers,
    ours_partition,
    take,
    write,
)
from client.scenario_runner import FAST, until
from ottla.client.consumer.consumer import Consumer
from ottla.client.group.interfaces import Rebalance
from ottla.client.group.offsets import OffsetAndMetadata
from ottla.errors import ErrorCode, RequestError
from ottla.ids import TopicPartition

Member: TypeAlias = Consumer[bytes, bytes]

PARTITIONS = 3
SOON: dict[str, object] = {"heartbeat.interval.ms": 100, "session.timeout.ms": 6000}


def member(servers: str, group: str, **arguments: object) -> Consumer[bytes, bytes]:
    named = {name.replace("_", "."): value for name, value in arguments.items()}
    settings = {**FAST, **FROM_START, "bootstrap.servers": servers, "group.id": group}
    if named.get("group.protocol") != "consumer":  # there the broker sets the interval
        settings |= SOON
    return Consumer({**settings, **named})


async def write_to_all(servers: str, topic: str, count: int, start: int = 0) -> None:
    for partition in range(PARTITIONS):
        await write(servers, topic, count, partition=partition, start=start)


class Worker:
    """A member that reads until it is stopped; `seen` has what it read."""

    def __init__(self, ours: Consumer[bytes, bytes], topic: str, pause_s: float = 0.0) -> None:
        self.ours = ours
        self.seen: list[tuple[int, int]] = []
        self.came: list[tuple[frozenset[TopicPartition], Rebalance]] = []
        self.went: list[tuple[frozenset[TopicPartition], Rebalance]] = []
        self._topic = topic
        self._pause_s = pause_s
        self._is_in = False
        self._task = asyncio.create_task(self._work())

    async def _work(self) -> None:
        async with self.ours as ours:
            self._is_in = True
            ours.subscribe(
                self._topic,
                on_assigned=lambda came, why: self.came.append((came, why)),
                on_revoked=lambda went, why: self.went.append((went, why)),
            )
            async for record in ours:
                self.seen.append((record.partition, record.offset))
                await asyncio.sleep(self._pause_s)

    @property
    def partitions(self) -> set[int]:
        return {one.partition for one in self.ours.assignment} if self._is_in else set()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def share(workers: list[Worker]) -> bool:
    """Return whether each partition has exactly one reader."""
    owned = [one for worker in workers for one in worker.partitions]
    return sorted(owned) == [*range(PARTITIONS)]


async def group_reads_every_record_once(servers: str, topic: str) -> None:
    await write_to_all(servers, topic, 100)
    async with member(servers, topic) as ours:
        ours.subscribe(topic)
        records = await take(ours, 300)
        assert {(record.partition, record.offset) for record in records} == {
            (partition, offset) for partition in range(PARTITIONS) for offset in range(100)
        }
        assert {one.partition for one in ours.assignment} == {0, 1, 2}
        assert ours.group_member.is_member
    await write_to_all(servers, topic, 10, start=100)
    async with member(servers, topic) as ours:  # resumes where the first one ended
        ours.subscribe(topic)
        assert sorted(set(numbers(await take(ours, 30)))) == [*range(100, 110)]


async def failed_record_is_read_again(servers: str, topic: str) -> None:
    await write(servers, topic, 100)

    async def fail_at_57() -> None:
        async with member(servers, topic) as ours:
            ours.subscribe(topic)
            async for record in ours:
                if record.offset == 57:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_at_57()
    async with member(servers, topic) as ours:
        ours.subscribe(topic)
        assert (await take(ours, 1))[0].offset == 57


async def failed_batch_is_read_again(servers: str, topic: str) -> None:
    """However the records were fetched: once, the last batch was committed although it failed."""
    await write(servers, topic, 3)

    async def polled(ours: Member) -> int:
        return (await ours.poll(60))[0].offset

    async def batch(ours: Member) -> int:
        return (await anext(ours.batches()))[0].offset

    async def columns(ours: Member) -> int:
        return (await ours.poll_arrow(60)).column("offset")[0].as_py()

    async def fail(ask: Callable[[Member], Awaitable[int]]) -> None:
        async with member(servers, topic) as ours:
            ours.subscribe(topic)
            assert await ask(ours) == 0
            raise ZeroDivisionError

    for ask in (polled, batch, columns, polled):
        with pytest.raises(ZeroDivisionError):
            await fail(ask)
    ours = member(servers, topic)
    async with ours:
        ours.subscribe(topic)
        assert await polled(ours) == 0
        await ours.close(is_done=False)
    async with ours:  # the next call means that the records before it are done
        seen = 0
        while seen < 3:
            seen += len(await ours.poll(60))
        assert await ours.poll(0.05) == []
        await ours.close(is_done=False)
    async with consumer(servers, group_id=topic) as other:
        kept = (await other.committed((topic, 0)))[ours_partition((topic, 0))]
        assert kept is not None
        assert kept.offset == 3


async def processed_records_are_committed_automatically(servers: str, topic: str) -> None:
    await write(servers, topic, 100)
    async with member(servers, topic, auto_commit_interval_ms=20) as ours:
        ours.subscribe(topic)
        await take(ours, 50)  # the last of them may still be in progress
        async with consumer(servers, group_id=topic) as other:
            kept: int | None = None
            async with asyncio.timeout(20):
                while kept != 49:
                    found = (await other.committed((topic, 0)))[ours_partition((topic, 0))]
                    kept = None if found is None else found.offset
                    assert kept is None or kept <= 49


async def members_come_and_go(servers: str, topic: str) -> None:
    await write_to_all(servers, topic, 300)
    workers = [Worker(member(servers, topic), topic, 0.005)]
    try:
        await until(lambda: bool(workers[0].seen))
        workers.append(Worker(member(servers, topic), topic, 0.005))
        await until(lambda: share(workers) and all(worker.partitions for worker in workers))
        workers.append(Worker(member(servers, topic), topic, 0.005))
        # One member more than partitions.
        workers.append(Worker(member(servers, topic), topic, 0.005))
        await until(lambda: share(workers) and sum(bool(one.partitions) for one in workers) == 3)
        await workers.pop(0).stop()
        await until(lambda: share(workers))
        assert all(str(why) for worker in workers for _, why in (*worker.came, *worker.went))
    finally:
        for worker in workers:
            await worker.stop()


async def nothing_is_missed_while_members_change(servers: str, topic: str) -> None:
    """Every record is read at least once."""
    await write_to_all(servers, topic, 400)
    workers = [Worker(member(servers, topic), topic, 0.001)]
    seen: set[tuple[int, int]] = set()

    def all_seen() -> bool:
        return len(seen.union(*(worker.seen for worker in workers))) == 400 * PARTITIONS

    try:
        for _ in range(3):
            workers.append(Worker(member(servers, topic), topic, 0.001))
            await asyncio.sleep(0.3)
            gone = workers.pop(0)
            await gone.stop()
            seen |= {*gone.seen}
        await until(all_seen, seconds=40)
    finally:
        for worker in workers:
            await worker.stop()


async def cooperative_members_keep_remaining_partitions(servers: str, topic: str) -> None:
    settings: dict[str, Any] = {"partition_assignment_strategy": "cooperative-sticky"}
    first = Worker(member(servers, topic, **settings), topic)
    try:
        await write(servers, topic, 1)
        await until(lambda: first.partitions == {0, 1, 2})
        second = Worker(member(servers, topic, **settings), topic)
        try:
            await until(lambda: share([first, second]) and bool(second.partitions))
            gone = frozenset[TopicPartition]().union(*(went for went, _ in first.went))
            assert {one.partition for one in gone} == second.partitions
        finally:
            await second.stop()
    finally:
        await first.stop()


async def pattern_finds_topics_at_once(servers: str, topic: str) -> None:
    """The pattern once matched nothing until metadata.max.age.ms, which is five minutes."""
    await write(servers, f"{topic}-a", 1)
    await write(servers, f"{topic}-b", 1)
    async with member(servers, topic) as ours:
        ours.subscribe(pattern=re.escape(topic) + "-a")
        assert [one.topic for one in await take(ours, 1)] == [f"{topic}-a"]
        ours.subscribe(f"{topic}-a")
        ours.subscribe(pattern=re.escape(topic) + "-b")
        assert [one.topic for one in await take(ours, 1)] == [f"{topic}-b"]


async def pattern_finds_topics_created_later(servers: str, topic: str) -> None:
    await write(servers, f"{topic}-a", 1)
    async with member(servers, topic, metadata_max_age_ms=200) as ours:
        ours.subscribe(pattern=re.escape(topic) + "-.*")
        assert [one.topic for one in await take(ours, 1)] == [f"{topic}-a"]
        await write(servers, f"{topic}-b", 1)
        assert [one.topic for one in await take(ours, 1)] == [f"{topic}-b"]
        assert {one.topic for one in ours.assignment} == {f"{topic}-a", f"{topic}-b"}


async def subscription_can_change_and_end(servers: str, topic: str) -> None:
    other = f"{topic}-other"
    await write(servers, topic, 1)
    await write(servers, other, 1)
    async with member(servers, topic) as ours:
        ours.subscribe(topic)
        assert [one.topic for one in await take(ours, 1)] == [topic]
        ours.subscribe(other)
        assert [one.topic for one in await take(ours, 1)] == [other]
        await until(lambda: {one.topic for one in ours.assignment} == {other})
        await ours.unsubscribe()
        assert ours.assignment == frozenset()
        ours.assign((topic, 0))
        ours.seek_to_beginning()
        assert [one.topic for one in await take(ours, 1)] == [topic]


async def failed_callback_is_raised(servers: str, topic: str) -> None:
    def fails(came: frozenset[TopicPartition], why: Rebalance) -> None:
        raise ZeroDivisionError

    await write(servers, topic, 1)
    async with member(servers, topic) as ours:
        ours.subscribe(topic, on_assigned=fails)
        with pytest.raises(RequestError, match="callback failed: ZeroDivisionError") as caught:
            await take(ours, 1)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert len(await take(ours, 1)) == 1


async def failed_callback_at_the_end_is_raised(servers: str, topic: str) -> None:
    def fails(gone: frozenset[TopicPartition], why: Rebalance) -> None:
        raise ZeroDivisionError

    async def read(expected: int, error: Exception | None = None) -> None:
        async with member(servers, topic) as ours:
            ours.subscribe(topic, on_revoked=fails)
            assert (await take(ours, 1))[0].offset == expected
            if error is not None:
                raise error

    await write(servers, topic, 3)
    with pytest.raises(RequestError, match="callback failed: ZeroDivisionError") as caught:
        await read(0)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(LookupError) as first:  # the callback error does not hide the first error
        await read(1, LookupError())
    assert "callback failed: ZeroDivisionError" in first.value.__notes__[0]
    async with member(servers, topic) as ours:
        ours.subscribe(topic, on_revoked=fails)
        await take(ours, 1)
        with pytest.raises(RequestError, match="callback failed"):
            await ours.unsubscribe()
        assert ours.assignment == frozenset()


async def assignment_callback_may_seek(servers: str, topic: str) -> None:
    await write(servers, topic, 100)
    async with member(servers, topic) as ours:

        async def to_ninety(came: frozenset[TopicPartition], why: Rebalance) -> None:
            await asyncio.sleep(0.05)
            ours.seek((topic, 0), 90)

        ours.subscribe(topic, on_assigned=to_ninety)
        assert (await take(ours, 1))[0].offset == 90


async def subscribe_and_assign_exclude_each_other(servers: str, topic: str) -> None:
    async with consumer(servers) as ours:
        with pytest.raises(RequestError, match=r"group\.id") as caught:
            ours.subscribe(topic)
        assert caught.value.code is ErrorCode.INVALID_GROUP_ID
    async with member(servers, topic) as ours:
        ours.subscribe(topic)
        with pytest.raises(RuntimeError, match=r"assign\(\) is not allowed after subscribe"):
            ours.assign((topic, 0))
    async with member(servers, topic) as ours:
        ours.assign((topic, 0))
        with pytest.raises(RuntimeError, match=r"subscribe\(\) is not allowed after assign"):
            ours.subscribe(topic)
        with pytest.raises(ValueError, match="either topics or a pattern"):
            ours.subscribe()
    async with member(servers, topic) as ours:
        with pytest.raises(ValueError, match=r"invalid pattern of topics '\[oops'"):
            ours.subscribe(pattern="[oops")


async def consumer_metrics_count_its_work(servers: str, topic: str) -> None:
    await write_to_all(servers, topic, 100)
    async with member(servers, topic) as ours:
        before = ours.metrics()
        assert (before.records_consumed_total, before.rebalance_total) == (0, 0)
        assert isnan(before.fetch_latency_avg)
        assert isnan(before.records_lag_max)
        ours.subscribe(topic)
        await take(ours, 300)
        await ours.commit()
        with pytest.raises(RequestError):
            await ours.commit({(topic, 0): OffsetAndMetadata(1, "long" * 2500)})
        await until(lambda: ours.metrics().heartbeat_total > 0)
        await until(lambda: ours.metrics().records_lag_max == 0)
        after = ours.metrics()
    assert after.records_consumed_total == 300
    assert after.bytes_consumed_total > 300
    assert after.fetch_total >= 1
    assert 0 < after.fetch_latency_avg <= after.fetch_latency_max
    assert 0 < after.fetch_size_avg <= after.fetch_size_max
    assert 0 < after.records_per_request_avg <= 300
    assert after.buffered_bytes >= 0
    assert after.records_lag == {ours_partition((topic, one)): 0 for one in range(PARTITIONS)}
    assert after.assigned_partitions == PARTITIONS
    assert after.commit_total >= 2
    assert after.commit_error_total == 1
    assert 0 < after.commit_latency_avg <= after.commit_latency_max
    assert after.rebalance_total >= 1
    assert 0 < after.rebalance_latency_last <= after.rebalance_latency_max
    assert after.heartbeat_response_time_max > 0


TOGETHER: list[Scenario] = [
    consumer_metrics_count_its_work,
    group_reads_every_record_once,
    failed_record_is_read_again,
    failed_batch_is_read_again,
    processed_records_are_committed_automatically,
    members_come_and_go,
    nothing_is_missed_while_members_change,
    cooperative_members_keep_remaining_partitions,
    pattern_finds_topics_at_once,
    pattern_finds_topics_created_later,
    subscription_can_change_and_end,
    failed_callback_is_raised,
    failed_callback_at_the_end_is_raised,
    assignment_callback_may_seek,
    subscribe_and_assign_exclude_each_other,
]
