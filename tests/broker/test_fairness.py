"""A client that reads its responses is served in time, however many others do not read."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from broker.nodes import Client, RunningBroker, broker, run
from broker.test_node import batch, create, produce
from ottla.protocol.conversation import ClientConversation
from ottla.protocol.message import Message
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.records.batch import batches
from ottla.transport import memory_pool
from ottla.transport.memory_pool import PROVEN_BYTES, UNPROVEN_STALL_SECONDS

MB = 1 << 20
BATCH_BYTES = 900_000
BATCHES = 12
LIMIT_BYTES = 4 * MB
SOON_SECONDS = 0.75 * UNPROVEN_STALL_SECONDS  # no connection has been closed for stalling by then


def request(offset: int) -> FetchRequest:
    one = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=50 * MB)
    topics = [FetchTopic(topic="t", partitions=[one])]
    return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=50 * MB, topics=topics)


@asynccontextmanager
async def clients_that_never_read(
    port: int, count: int, message: Message | None = None, version: int = 11
) -> AsyncGenerator[None]:
    """Open connections that each request more than the socket buffers hold."""
    loop = asyncio.get_running_loop()
    frame = b"".join(ClientConversation("never").send(message or request(0), version)[1])
    asked = frame * (1 if message else BATCHES)
    with ExitStack() as stack:
        for _ in range(count):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await loop.sock_connect(one, ("127.0.0.1", port))
            await loop.sock_sendall(one, asked)
        yield


async def wait_until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.005)


async def fill_topic(running: RunningBroker) -> Client:
    """Produce some batches and return a client of the broker."""
    client = await running.client()
    await create(client, "t")
    for _ in range(BATCHES):
        await produce(client, "t", batch(bytes(BATCH_BYTES)))
    return client


async def read_all(client: Client) -> int:
    """Read the whole topic and return how many fetches it took."""
    offset = fetches = 0
    while offset < BATCHES:
        answer = await client.ask(request(offset), FetchResponse, 11)
        offset += len([*batches(answer.responses[0].partitions[0].records or b"")])
        fetches += 1
    return fetches


@pytest.mark.parametrize("broken", [False, True])
def test_proven_client_is_not_delayed_by_stalled_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    if broken:
        monkeypatch.setattr(memory_pool, "PROVEN_BYTES", 1 << 62)  # no client becomes proven

    async def scenario() -> None:
        async with broker(tmp_path, f"ottla.queued.max.response.bytes={LIMIT_BYTES}") as running:
            client = await fill_topic(running)
            await read_all(client)
            assert BATCHES * BATCH_BYTES > PROVEN_BYTES
            async with clients_that_never_read(running.port, 30):
                await wait_until(lambda: running.node.memory.unproven_responses.has_waiters)
                async with asyncio.timeout(SOON_SECONDS):
                    await read_all(client)
                assert running.node.memory.responses_held <= LIMIT_BYTES + 2 * MB

    if broken:
        with pytest.raises(TimeoutError):
            run(scenario)
    else:
        run(scenario)


def test_new_client_is_served_before_most_stalled_ones(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, f"ottla.queued.max.response.bytes={LIMIT_BYTES}") as running:
            await fill_topic(running)
            memory = running.node.memory
            async with clients_that_never_read(running.port, 60):
                await wait_until(lambda: memory.unproven_responses.has_waiters)
                newcomer = await running.client()
                # The pool holds two batches, so most of the sixty clients still wait when the
                # broker closes the first stalled ones.
                async with asyncio.timeout(UNPROVEN_STALL_SECONDS + 2):
                    answer = await newcomer.ask(request(0), FetchResponse, 11)
                assert answer.responses[0].partitions[0].records
                assert memory.unproven_responses.has_waiters
                assert memory.responses_held <= LIMIT_BYTES + 2 * MB

    run(scenario)


def test_small_fetch_does_not_wait_for_memory(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, f"ottla.queued.max.response.bytes={LIMIT_BYTES}") as running:
            client = await fill_topic(running)
            await create(client, "small")
            for _ in range(20):
                await produce(client, "small", batch(bytes(5000)))
            async with clients_that_never_read(running.port, 30):
                await wait_until(lambda: running.node.memory.unproven_responses.has_waiters)
                newcomer = await running.client()
                asked = request(0)
                asked.topics[0].topic = "small"
                async with asyncio.timeout(SOON_SECONDS):
                    answer = await newcomer.ask(asked, FetchResponse, 11)
                # The response has as many batches as need no memory from the pool, not only the
                # first.
                found = [*batches(answer.responses[0].partitions[0].records or b"")]
                assert 4 <= len(found) <= 6

    run(scenario)


def describe(count: int) -> DescribeConfigsRequest:
    """Return a request whose response has 5 KB per resource."""
    one = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=None)
    return DescribeConfigsRequest(
        resources=[one] * count, include_synonyms=True, include_documentation=True
    )


def test_large_responses_wait_for_unread_ones(
    tmp_path: Path,
) -> None:
    count, answer_bytes = 1200, 6 * MB

    async def scenario() -> None:
        async with broker(tmp_path, f"ottla.queued.max.response.bytes={LIMIT_BYTES}") as running:
            client = await running.client()
            await create(client, "t")
            memory = running.node.memory
            most = 0

            async def watch() -> None:
                nonlocal most
                while True:
                    most = max(most, memory.responses_held)
                    await asyncio.sleep(0.005)

            watching = asyncio.create_task(watch())
            async with clients_that_never_read(running.port, 6, describe(count), 4):
                await wait_until(lambda: memory.unproven_responses.has_waiters)
                # Small requests are answered at once.
                async with asyncio.timeout(SOON_SECONDS):
                    assert (await client.ask(describe(1), DescribeConfigsResponse, 4)).results
                # Large requests are answered when memory is available.
                newcomer = await running.client()
                answer = await newcomer.ask(describe(count), DescribeConfigsResponse, 4)
                assert len(answer.results) == count
                assert len(answer.encode(4)) < answer_bytes
                # One response may exceed the limit; six of them would take 34 MB.
                watching.cancel()
                assert most <= LIMIT_BYTES + 2 * answer_bytes

    run(scenario)
