"""What a connection holds, and what its client earns by taking its answers."""

from ottla.transport.memory import (
    BYTES_PER_SECOND_MIN,
    KNOWN_BYTES,
    SLOW_SECONDS,
    STRANGER_SECONDS,
    ConnectionMemory,
    MemoryPool,
    MemoryPools,
)


class Owner:
    """A connection."""

    def go_on(self) -> None:
        raise AssertionError("nobody waits for a frame here")


class Waiting:
    """Who waits for memory."""

    def go_on(self) -> None:
        pass


LIMIT = 1000


def fill(budget: MemoryPool) -> None:
    """No memory is left, also not for one that may have too much, and somebody waits."""
    budget.hold(Owner(), budget.limit)
    budget.hold(Owner(), 1)
    budget.wait(Waiting())


def full() -> MemoryPools:
    """None is left for anybody, be it known or not."""
    memory = MemoryPools(answer_bytes=LIMIT)
    fill(memory.answers)
    fill(memory.first_answers)
    return memory


def test_who_took_enough_is_known() -> None:
    memory = MemoryPools(answer_bytes=LIMIT)
    client = ConnectionMemory(memory, Owner())
    client.note_answer(KNOWN_BYTES - 1, None)
    assert (client.is_known, client.answers) == (False, memory.first_answers)
    # What is not taken yet does not count, and is given back where it was held.
    client.note_answer(1, 0.0)
    assert not client.is_known
    assert (memory.first_answers.held, memory.answers.held) == (1, 0)
    client.note_taken()
    assert memory.answers_held == 0
    assert (client.is_known, client.answers) == (True, memory.answers)
    client.note_answer(5, 0.0)
    assert (memory.first_answers.held, memory.answers.held) == (0, 5)
    client.let_go()
    assert memory.answers_held == 0


def test_the_known_are_given_more_time() -> None:
    stranger, known = ConnectionMemory(full(), Owner()), ConnectionMemory(full(), Owner())
    known.note_answer(KNOWN_BYTES, None)
    for one in (stranger, known):
        one.note_answer(100_000, 0.0)
        assert one.stuck(None, 100_000, STRANGER_SECONDS) is None
    assert stranger.stuck(None, 100_000, STRANGER_SECONDS + 0.1) is not None
    assert known.stuck(None, 100_000, SLOW_SECONDS) is None
    assert known.stuck(None, 100_000, SLOW_SECONDS + 0.1) is not None


def test_who_moves_is_given_time_whoever_it_is() -> None:
    stranger = ConnectionMemory(full(), Owner())
    unsent = 100 * BYTES_PER_SECOND_MIN
    stranger.note_answer(unsent, 0.0)
    for second in range(1, 60):
        unsent -= BYTES_PER_SECOND_MIN
        assert stranger.stuck(None, unsent, float(second)) is None


def test_nobody_is_in_a_hurry_for_memory_of_others() -> None:
    memory = MemoryPools(answer_bytes=LIMIT)
    fill(memory.answers)
    stranger = ConnectionMemory(memory, Owner())
    stranger.note_answer(100, 0.0)
    assert stranger.stuck(None, 100, 1e6) is None
