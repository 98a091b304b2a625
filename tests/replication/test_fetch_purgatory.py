"""A waiting fetch is woken by new records, once, and leaves no waiter."""

import asyncio

import pytest

from broker.nodes import run
from ottla.replication.fetch_purgatory import DelayedFetch, FetchWaiter

LONG_S = 60.0


class Watched:
    def __init__(self) -> None:
        self.waiting: dict[FetchWaiter, None] = {}


def test_enough_bytes_over_several_partitions_wake_a_fetch() -> None:
    async def scenario() -> None:
        one, two = Watched(), Watched()
        awaited = DelayedFetch([one, two], 10)
        waiting = asyncio.create_task(awaited.wait(LONG_S))
        awaited.note(6)
        await asyncio.sleep(0)
        assert not waiting.done()
        assert awaited in one.waiting
        assert awaited in two.waiting
        awaited.note(4)
        await waiting
        assert not one.waiting
        assert not two.waiting

    run(scenario)


def test_bytes_appended_before_the_wait_are_counted() -> None:
    async def scenario() -> None:
        awaited = DelayedFetch([Watched()], 1)
        awaited.note(5)
        awaited.note(5)
        awaited.wake()
        await awaited.wait(LONG_S)

    run(scenario)


def test_wait_ends_at_its_timeout() -> None:
    async def scenario() -> None:
        watched = Watched()
        await DelayedFetch([watched], 1).wait(0.01)
        assert not watched.waiting

    run(scenario)


def test_cancelled_wait_is_removed() -> None:
    async def scenario() -> None:
        watched = Watched()
        waiting = asyncio.create_task(DelayedFetch([watched], 1).wait(LONG_S))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not watched.waiting

    run(scenario)
