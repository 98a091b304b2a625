"""What a connection holds, and what its client earns by taking its answers."""

from ottla.transport.memory import (
    BYTES_PER_SECOND_MIN,
    PROVEN_BYTES,
    STALL_SECONDS,
    UNPROVEN_STALL_SECONDS,
    ConnectionMemory,
    MemoryPool,
    MemoryPools,
)


class Owner:
    """A connection."""

    def memory_available(self) -> None:
        raise AssertionError("nobody waits for a frame here")


class Waiting:
    """Who waits for memory."""

    def memory_available(self) -> None:
        pass


LIMIT = 1000


def fill(budget: MemoryPool) -> None:
    """No memory is left, also not for one that may have too much, and somebody waits."""
    budget.hold(Owner(), budget.limit)
    budget.hold(Owner(), 1)
    budget.wait(Waiting())


def full() -> MemoryPools:
    """None is left for anybody, be it known or not."""
    memory = MemoryPools(response_bytes=LIMIT)
    fill(memory.responses)
    fill(memory.unproven_responses)
    return memory


def test_who_took_enough_is_known() -> None:
    memory = MemoryPools(response_bytes=LIMIT)
    client = ConnectionMemory(memory, Owner())
    client.account_response(PROVEN_BYTES - 1, None)
    assert (client.is_proven, client.responses) == (False, memory.unproven_responses)
    # What is not taken yet does not count, and is given back where it was held.
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


def test_the_known_are_given_more_time() -> None:
    stranger, known = ConnectionMemory(full(), Owner()), ConnectionMemory(full(), Owner())
    known.account_response(PROVEN_BYTES, None)
    for one in (stranger, known):
        one.account_response(100_000, 0.0)
        assert one.stall_reason(None, 100_000, UNPROVEN_STALL_SECONDS) is None
    assert stranger.stall_reason(None, 100_000, UNPROVEN_STALL_SECONDS + 0.1) is not None
    assert known.stall_reason(None, 100_000, STALL_SECONDS) is None
    assert known.stall_reason(None, 100_000, STALL_SECONDS + 0.1) is not None


def test_who_moves_is_given_time_whoever_it_is() -> None:
    stranger = ConnectionMemory(full(), Owner())
    unsent = 100 * BYTES_PER_SECOND_MIN
    stranger.account_response(unsent, 0.0)
    for second in range(1, 60):
        unsent -= BYTES_PER_SECOND_MIN
        assert stranger.stall_reason(None, unsent, float(second)) is None


def test_nobody_is_in_a_hurry_for_memory_of_others() -> None:
    memory = MemoryPools(response_bytes=LIMIT)
    fill(memory.responses)
    stranger = ConnectionMemory(memory, Owner())
    stranger.account_response(100, 0.0)
    assert stranger.stall_reason(None, 100, 1e6) is None
