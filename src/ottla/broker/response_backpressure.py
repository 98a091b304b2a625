"""Large answers of other requests than Fetch, while there is no memory for them.

Invariant: an answer that is larger than what a connection may have unsent is given away only when
there is memory for it, or made anew when there is: nothing of it is kept meanwhile. So what
clients do not take is bounded, whatever they ask for. What is small waits for nobody. Only what
changes nothing is made twice.
"""

from collections.abc import Callable
from typing import Final

from ottla.broker.state import BrokerState
from ottla.protocol import apis
from ottla.protocol.conversation import Request, Response, WideRequest
from ottla.protocol.message import Message
from ottla.transport.connection import WRITE_BUFFER_BYTES, Connection, DeferredResponse
from ottla.transport.memory import MemoryWaiter

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
"""What is asked, and may be asked again."""

PATIENCE_SECONDS: Final = 20.0
"""Whoever waits so long for memory is closed; it may come again."""


def may_need_backpressure(request: Request, connection: Connection) -> bool:
    """Whether an answer may have to wait, should it be large."""
    # By the time a wide request is answered others may have taken the memory that there is now.
    return request.api in REPEATABLE and (
        isinstance(request, WideRequest) or not connection.memory.responses.has_memory(connection)
    )


async def response_with_backpressure(
    state: BrokerState,
    request: Request,
    connection: Connection,
    make: Callable[[], Response | DeferredResponse | None],
) -> Response | None:
    """The answer, when it is small or there is memory for it; it is made twice at most."""
    waiter = MemoryWaiter(connection.memory, state.clock)
    answer = await _made(make)
    if answer is None or waiter.has_memory:
        return answer
    size = _size(answer, request.version)
    if size <= WRITE_BUFFER_BYTES:
        return answer
    answer = None
    deadline = state.clock.elapsed_s() + PATIENCE_SECONDS
    while not (waiter.has_memory or state.stopping):
        if not await waiter.wait(deadline - state.clock.elapsed_s()):
            connection.close()
            return None
    # What it will take is held from now on, so that those who wait do not all make theirs.
    waiter.pool.hold(waiter, size)
    try:
        return await _made(make)
    finally:
        waiter.pool.release(waiter, size)


async def _made(make: Callable[[], Response | DeferredResponse | None]) -> Response | None:
    answer = make()
    return await answer.response if isinstance(answer, DeferredResponse) else answer


def _size(answer: Response, version: int) -> int:
    return sum(map(len, answer.buffers(version) if isinstance(answer, Message) else answer))
