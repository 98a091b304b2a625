"""The memory that a connection holds, and how a client that reads its responses becomes proven."""

from ottla.transport.memory_pool import (
    BYTES_PER_SECOND_MIN,
    PROVEN_BYTES,
    STALL_SECONDS,
    UNPROVEN_STALL_SECONDS,
    ConnectionMemory,
    MemoryPool,
    MemoryPools,
)


class Owner:
    """A connection that never waits for memory."""

    def memory_available(self) -> None:
        raise AssertionError("nobody waits for a frame here")


class Waiter:
    """A connection that waits for memory."""

    def memory_available(self) -> None:
        pass


LIMIT = 1000


def fill(budget: MemoryPool) -> None:
    """Exhaust a pool, including the one reservation that may exceed its limit, and add a waiter."""
    budget.hold(Owner(), budget.limit)
    budget.hold(Owner(), 1)
    budget.wait(Waiter())


def exhausted_pools() -> MemoryPools:
    """Return pools that are exhausted for proven and for unproven clients."""
    memory = MemoryPools(response_bytes=LIMIT)
    fill(memory.responses)
    fill(memory.unproven_responses)
    return memory


def test_client_that_reads_enough_is_proven() -> None:
    memory = MemoryPools(response_bytes=LIMIT)
    client = ConnectionMemory(memory, Owner())
    client.account_response(PROVEN_BYTES - 1, None)
    assert (client.is_proven, client.responses) == (False, memory.unproven_responses)
    # Bytes that the client has not read yet do not count. They are released to the pool that held
    # them.
    client.account_response(1, 0.0)
    assert not client.is_proven
    assert (memory.unproven_responses.held, memory.responses.held) == (1, 0)
    client.release_response()
    assert memory.responses_held == 0
    assert (client.is_proven, client.responses) == (True, memory.responses)
    client.account_response(5, 0.0)
    assert (memory.unproven_responses.held, memory.responses.held) == (0, 5)
    client.release_all()
    assert memory.responses_held == 0


def test_proven_client_has_a_longer_stall_timeout() -> None:
    unproven, proven = (
        ConnectionMemory(exhausted_pools(), Owner()),
        ConnectionMemory(exhausted_pools(), Owner()),
    )
    proven.account_response(PROVEN_BYTES, None)
    for one in (unproven, proven):
        one.account_response(100_000, 0.0)
        assert one.stall_reason(None, 100_000, UNPROVEN_STALL_SECONDS) is None
    assert unproven.stall_reason(None, 100_000, UNPROVEN_STALL_SECONDS + 0.1) is not None
    assert proven.stall_reason(None, 100_000, STALL_SECONDS) is None
    assert proven.stall_reason(None, 100_000, STALL_SECONDS + 0.1) is not None


def test_unproven_client_that_makes_progress_is_not_stalled() -> None:
    unproven = ConnectionMemory(exhausted_pools(), Owner())
    unsent = 100 * BYTES_PER_SECOND_MIN
    unproven.account_response(unsent, 0.0)
    for second in range(1, 60):
        unsent -= BYTES_PER_SECOND_MIN
        assert unproven.stall_reason(None, unsent, float(second)) is None


def test_waiters_of_another_pool_do_not_cause_a_stall() -> None:
    memory = MemoryPools(response_bytes=LIMIT)
    fill(memory.responses)
    unproven = ConnectionMemory(memory, Owner())
    unproven.account_response(100, 0.0)
    assert unproven.stall_reason(None, 100, 1e6) is None


def test_broker_has_memory_when_clients_have_used_up_theirs() -> None:
    memory = MemoryPools(LIMIT, LIMIT, LIMIT)
    for pool in (memory.requests, memory.responses, memory.unproven_responses):
        fill(pool)
    broker = ConnectionMemory(memory, Owner())
    broker.hold_request(10)
    before = memory.requests.held
    broker.use_broker_pools()
    assert memory.requests.held == before - 10
    broker.hold_request(100)
    broker.account_response(200, 0.0)
    assert (memory.broker_requests.held, memory.broker_responses.held) == (100, 200)
    assert broker.responses is memory.broker_responses
    assert broker.responses.has_memory(Owner())
    broker.release_all()
    assert (memory.broker_requests.held, memory.broker_responses.held) == (0, 0)
