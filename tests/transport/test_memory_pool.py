"""The memory pool that connections share, tested without connections."""

from random import Random

import pytest

from cases import each_case
from ottla.transport.memory_pool import (
    BYTES_PER_SECOND_MIN,
    STALL_SECONDS,
    MemoryPool,
    MemoryPools,
    Pace,
)


class Frame:
    """A frame that reserves `wanted` bytes in pieces and then releases all of them."""

    def __init__(self, budget: MemoryPool, wanted: int, *, ordinary: bool = True) -> None:
        self.budget = budget
        self.wanted = wanted
        self.ordinary = ordinary
        self.has = 0
        self.told = 0
        self.waits = False

    def grow(self, count: int) -> bool:
        rest = self.wanted - self.has
        self.waits = not self.budget.reserve(self, count, rest, ordinary=self.ordinary)
        if not self.waits:
            self.has += count
        return not self.waits

    def memory_available(self) -> None:
        self.told += 1
        self.waits = False

    def finish(self) -> None:
        count, self.has = self.has, 0
        self.budget.release(self, count)


def test_one_frame_may_exceed_the_limit() -> None:
    budget = MemoryPool(100)
    first, second, third = (Frame(budget, 100) for _ in range(3))
    assert first.grow(60)
    assert second.grow(40)
    assert budget.left == 0
    assert second.grow(70)  # no other frame exceeds the limit
    assert budget.held == 170
    assert not first.grow(1)
    assert not third.grow(1)
    assert second.grow(500)  # the frame above the limit may continue to grow
    assert budget.has_waiters
    second.finish()
    assert (first.told, third.told) == (1, 1)
    assert not budget.has_waiters
    assert (budget.held, budget.left) == (60, 40)


class EagerFrame(Frame):
    """A frame that reserves memory as soon as it is notified."""

    def __init__(self, budget: MemoryPool, claimed: int, told: list[Frame]) -> None:
        super().__init__(budget, claimed)
        self._order = told

    def memory_available(self) -> None:
        self._order.append(self)
        self.grow(150)


def test_waiter_that_needs_least_memory_is_served_first() -> None:
    budget = MemoryPool(100)
    told: list[Frame] = []
    large = Frame(budget, 150)
    second, first = EagerFrame(budget, 160, told), EagerFrame(budget, 150, told)
    assert large.grow(150)
    assert not second.grow(150)
    assert not first.grow(150)
    large.finish()
    assert told == [first]  # a second frame above the limit has to wait
    assert second.waits
    first.finish()
    assert told == [first, second]
    assert budget.held == 150


def test_proven_and_then_newest_frames_are_served_first() -> None:
    budget = MemoryPool(100)
    full, privileged, proven, old, new = (Frame(budget, 100) for _ in range(5))
    assert full.grow(100)
    assert privileged.grow(60)
    assert not budget.reserve(old, 10, 10, newness=1)
    assert not budget.reserve(new, 20, 20, newness=2)
    assert not budget.reserve(proven, 70, 70)
    full.has = 60
    budget.release(full, 40)
    # The others would fit, but do not pass it.
    assert (proven.told, new.told, old.told) == (0, 0, 0)
    full.finish()
    assert (proven.told, new.told, old.told) == (1, 1, 1)


def test_reservation_does_not_pass_a_waiting_frame() -> None:
    budget = MemoryPool(100)
    full, privileged, waiting, other = (Frame(budget, 100) for _ in range(4))
    assert full.grow(90)
    assert privileged.grow(20)
    assert not budget.reserve(waiting, 20, 20, newness=2)
    assert not budget.reserve(other, 5, 5, newness=1)
    assert budget.reserve(other, 5, 5, newness=3)  # a newer one passes
    assert privileged.grow(20)
    full.finish()
    assert waiting.told == 1


def test_large_frames_leave_memory_for_ordinary_ones() -> None:
    budget = MemoryPool(100, kept=25)
    huge, other = Frame(budget, 0, ordinary=False), Frame(budget, 0, ordinary=False)
    small = Frame(budget, 0)
    assert huge.grow(75)
    assert other.grow(10)  # as the one frame that may exceed the limit
    assert not huge.grow(1)
    assert other.grow(500)
    assert small.grow(25)  # the other frame's excess does not count against this one
    assert not Frame(budget, 0).grow(1)
    other.finish()
    assert huge.told == 1


def test_frames_above_the_limit_take_turns() -> None:
    budget = MemoryPool(100, kept=25)
    first, second = (Frame(budget, 300, ordinary=False) for _ in range(2))
    other, small = Frame(budget, 60, ordinary=False), Frame(budget, 5)
    assert first.grow(10)
    assert not second.grow(10)  # although memory is left
    assert other.grow(60)
    assert small.grow(5)
    small.finish()
    other.finish()
    # Memory is left again, but the first frame above the limit is not finished.
    assert second.told == 0
    assert not second.grow(10)
    assert first.grow(290)
    first.finish()
    assert second.told == 1
    assert second.grow(300)
    second.finish()
    assert budget.held == 0
    assert other.grow(60)


def test_cancelled_waiter_is_not_notified() -> None:
    budget = MemoryPool(10)
    large, gone = Frame(budget, 0), Frame(budget, 0)
    assert large.grow(5)
    assert large.grow(20)
    assert not gone.grow(6)
    budget.stop_waiting(gone)
    assert not budget.has_waiters
    large.finish()
    assert gone.told == 0


def test_releasing_twice_raises() -> None:
    budget = MemoryPool(10)
    one = Frame(budget, 0)
    assert one.grow(5)
    one.finish()
    with pytest.raises(AssertionError):
        budget.release(one, 5)


@pytest.mark.parametrize("limit", [0, -1])
def test_limit_of_zero_or_less_means_no_limit(limit: int) -> None:
    memory = MemoryPools(limit, limit)
    for budget in (memory.requests, memory.responses, memory.unproven_responses):
        for _ in range(3):
            assert Frame(budget, 0, ordinary=False).grow(1 << 40)


@each_case("seed", range(20))
def test_every_frame_completes_within_bounded_memory(seed: int) -> None:
    random = Random(seed)
    budget = MemoryPool(1000, kept=250)
    frames = [
        Frame(budget, size, ordinary=size <= 100)
        for size in (random.choice((5, 60, 100, 400, 900, 3000)) for _ in range(60))
    ]
    left = [*frames]
    turns = 0
    while left:
        turns += 1
        assert turns < 100_000, "no frame makes progress"
        ready = [one for one in left if not one.waits]
        assert ready, "every frame waits"
        one = random.choice(ready)
        if one.has == one.wanted:
            one.finish()
            left.remove(one)
        else:
            one.grow(min(random.randint(1, 100), one.wanted - one.has))
        assert budget.held == sum(frame.has for frame in frames)
        assert budget.held <= budget.limit + max(frame.has for frame in frames)
        # At most one frame that cannot fit within the limit holds memory.
        assert sum(frame.has > 0 for frame in frames if frame.wanted > 750) <= 1
    assert budget.held == 0
    assert not budget.has_waiters


def test_pace_below_the_minimum_is_stalled_and_late() -> None:
    pace = Pace()
    assert not pace.is_late(0, 1e9)
    assert not pace.is_stalled(0, 1e9)
    pace.begin(100)
    moved, now = 0, 100.0
    for _ in range(60):
        now += 1
        moved += BYTES_PER_SECOND_MIN
        assert not pace.is_late(moved, now)
        assert not pace.is_stalled(moved, now)
    # A single byte per second is too slow.
    for _ in range(int(STALL_SECONDS)):
        now += 1
        moved += 1
        assert not pace.is_late(moved, now)
    assert pace.is_stalled(moved, now + 1)
    assert pace.is_late(moved, now + 1)


def test_proven_and_unproven_responses_each_get_half() -> None:
    for limit in (1, 2, 7, 1000):
        memory = MemoryPools(response_bytes=limit)
        assert limit <= memory.responses.limit + memory.unproven_responses.limit <= limit + 1
    memory = MemoryPools(response_bytes=1000)
    unproven = [Frame(memory.unproven_responses, 0) for _ in range(3)]
    assert [one.grow(500) for one in unproven] == [True, True, False]  # one may exceed the limit
    assert Frame(memory.responses, 0).grow(500)
    assert memory.responses_held == 1500


def test_pace_can_use_a_shorter_stall_timeout() -> None:
    pace = Pace()
    pace.begin(0)
    assert not pace.is_stalled(0, 2, 2)
    assert pace.is_stalled(2 * BYTES_PER_SECOND_MIN - 1, 3, 2)
    assert not pace.is_stalled(2 * BYTES_PER_SECOND_MIN, 3, 2)


def test_fast_transfer_may_pause_until_it_is_stalled() -> None:
    pace = Pace()
    pace.begin(0)
    moved = 100 * BYTES_PER_SECOND_MIN
    assert not pace.is_stalled(moved, 1)
    assert not pace.is_late(moved, 109)
    assert pace.is_stalled(moved, 12)
    assert pace.is_late(moved, 111)


def test_skipped_time_does_not_count_against_the_pace() -> None:
    pace = Pace()
    pace.begin(0)
    pace.skip(1000)
    assert not pace.is_late(0, 1009)
    assert not pace.is_stalled(0, 1009)
    assert pace.is_late(0, 1011)
    assert pace.is_stalled(0, 1011)
    pace.end()
    pace.skip(5)
    assert not pace.is_late(0, 1e9)
