"""Backpressure for large responses other than Fetch.

Invariant: a response larger than a connection's write buffer is sent only when there is memory for
it. While there is none, it is dropped and made again later. What clients do not read is thus
bounded, whatever they request. Small responses do not wait. Only requests that change nothing are
executed twice.
"""

from collections.abc import Callable
from typing import Final

from ottla.broker.shutdown import Shutdown
from ottla.clock import Clock
from ottla.protocol import apis
from ottla.protocol.conversation import LargeRequest, Request, Response
from ottla.protocol.message import Message
from ottla.transport.connection import WRITE_BUFFER_BYTES, Connection, DeferredResponse, Served
from ottla.transport.memory_pool import MemoryWaiter
from ottla.transport.pending_acks import PendingAck

REPEATABLE: Final = frozenset(
    (
        apis.DESCRIBE_CLUSTER,
        apis.DESCRIBE_CONFIGS,
        apis.DESCRIBE_GROUPS,
        apis.DESCRIBE_LOG_DIRS,
        apis.DESCRIBE_TOPIC_PARTITIONS,
        apis.LIST_GROUPS,
        apis.LIST_OFFSETS,
        apis.METADATA,
        apis.OFFSET_FETCH,
        apis.OFFSET_FOR_LEADER_EPOCH,
    )
)
"""Read-only requests, which may be executed twice."""

PATIENCE_SECONDS: Final = 20.0
"""A request that waits this long for memory gets its connection closed; the client reconnects."""


def may_need_backpressure(request: Request, connection: Connection) -> bool:
    """Whether the response may have to wait for memory if it is large."""
    # By the time a large request is handled, others may have taken the memory that is free now.
    return request.api in REPEATABLE and (
        isinstance(request, LargeRequest) or not connection.memory.responses.has_memory(connection)
    )


async def response_with_backpressure(
    request: Request,
    connection: Connection,
    make: Callable[[], Served],
    *,
    clock: Clock,
    shutdown: Shutdown,
) -> Response | None:
    """Return the response once it is small or there is memory for it; makes it at most twice."""
    waiter = MemoryWaiter(connection.memory, clock)
    answer = await _made(make)
    if answer is None or waiter.has_memory:
        return answer
    size = _size(answer, request.version)
    if size <= WRITE_BUFFER_BYTES:
        return answer
    answer = None
    deadline = clock.elapsed_s() + PATIENCE_SECONDS
    while not (waiter.has_memory or shutdown.begun):
        if not await waiter.wait(deadline - clock.elapsed_s()):
            connection.close()
            return None
    # Reserve its memory first, so that not all waiting requests make their responses at once.
    waiter.pool.hold(waiter, size)
    try:
        return await _made(make)
    finally:
        waiter.pool.release(waiter, size)


async def _made(make: Callable[[], Served]) -> Response | None:
    answer = make()
    assert not isinstance(answer, PendingAck), "only Produce requests wait for acknowledgements"
    return await answer.response if isinstance(answer, DeferredResponse) else answer


def _size(answer: Response, version: int) -> int:
    return sum(map(len, answer.buffers(version) if isinstance(answer, Message) else answer))
