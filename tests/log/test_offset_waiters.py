"""Waiters for offsets, and the group commit that finishes them."""

import asyncio
from dataclasses import dataclass

import pytest

from ottla.errors import DiskFull, StorageFailure
from ottla.ids import Offset
from ottla.log.flusher import GroupCommit
from ottla.log.log_config import LogConfig
from ottla.log.offset_waiters import OffsetWaiters


@dataclass(eq=False)
class Waiter:
    offset: int
    finished: list[tuple["Waiter", Exception | None]]

    def finish(self, failure: Exception | None) -> None:
        self.finished.append((self, failure))


def test_waiters_are_finished_once_and_in_order() -> None:
    finished: list[tuple[Waiter, Exception | None]] = []
    first, second, third, late = (Waiter(offset, finished) for offset in (5, 9, 9, 7))
    waiters = OffsetWaiters()
    for waiter in (first, second, third, late):  # a duplicate waits for its original's offset
        waiters.add(waiter)
    assert (len(waiters), waiters.offset_max) == (4, 9)
    waiters.finish_up_to(4)
    assert not finished
    waiters.finish_up_to(8)
    assert finished == [(first, None), (late, None)]
    waiters.finish_up_to(8)
    waiters.remove(first)  # is finished already
    failure = StorageFailure("broken on purpose")
    waiters.remove(second)
    waiters.fail_all(failure)
    assert finished[2:] == [(third, failure)]
    waiters.finish_up_to(100)
    assert len(finished) == 3


def test_waiter_may_remove_another_one_while_it_is_finished() -> None:
    finished: list[tuple[Waiter, Exception | None]] = []
    waiters = OffsetWaiters()
    last = Waiter(9, finished)

    class Removing(Waiter):
        def finish(self, failure: Exception | None) -> None:
            waiters.remove(last)

    waiters.add(Removing(5, finished))
    waiters.add(last)
    waiters.finish_up_to(5)
    waiters.finish_up_to(9)
    assert not finished


class Log:
    """A log whose flushes the test ends."""

    def __init__(self, end: int) -> None:
        self.end = end
        self.recovery_point = Offset(0)
        self.config = LogConfig()
        self.flushes: list[asyncio.Future[None]] = []

    async def flush(self) -> None:
        upto = self.end
        self.flushes.append(asyncio.get_running_loop().create_future())
        await self.flushes[-1]
        self.recovery_point = Offset(upto)


async def idle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_one_flush_finishes_all_waiters_that_came_before_it() -> None:
    async def scenario() -> None:
        finished: list[tuple[Waiter, Exception | None]] = []
        log = Log(end=3)
        commit = GroupCommit(log)
        before = len(asyncio.all_tasks())
        waiters = [Waiter(offset, finished) for offset in range(1, 7)]
        for waiter in waiters[:3]:
            commit.add(waiter)
        assert len(asyncio.all_tasks()) == before + 1  # one task for all of them
        await idle()
        assert not finished
        log.end = 6
        for waiter in waiters[3:]:
            commit.add(waiter)
        commit.remove(waiters[4])
        log.flushes[0].set_result(None)
        await idle()
        assert finished == [(one, None) for one in waiters[:3]]
        assert len(log.flushes) == 2
        log.flushes[1].set_result(None)
        await idle()
        assert finished[3:] == [(waiters[3], None), (waiters[5], None)]
        assert len(asyncio.all_tasks()) == before

    asyncio.run(scenario())


@pytest.mark.parametrize("failure", [DiskFull("full"), RuntimeError("broken on purpose")], ids=str)
def test_failed_flush_fails_only_those_that_it_was_for(failure: Exception) -> None:
    async def scenario() -> None:
        finished: list[tuple[Waiter, Exception | None]] = []
        log = Log(end=2)
        commit = GroupCommit(log)
        waiters = [Waiter(offset, finished) for offset in (1, 2, 3)]
        commit.add(waiters[0])
        commit.add(waiters[1])
        await idle()
        log.end = 3
        commit.add(waiters[2])
        log.recovery_point = Offset(1)  # a periodic flush got that far
        log.flushes[0].set_exception(failure)
        await idle()
        assert finished == [(waiters[0], None), (waiters[1], failure)]
        log.flushes[1].set_result(None)
        await idle()
        assert finished[2:] == [(waiters[2], None)]

    asyncio.run(scenario())


def test_truncation_fails_what_waits_for_a_flush() -> None:
    async def scenario() -> None:
        finished: list[tuple[Waiter, Exception | None]] = []
        log = Log(end=5)
        commit = GroupCommit(log)
        before = Waiter(5, finished)
        commit.add(before)
        waiting = asyncio.ensure_future(commit.durable(5))
        await idle()
        failure = RuntimeError("truncated")
        commit.fail(failure)
        assert finished == [(before, failure)]
        log.end = 3
        after = Waiter(3, finished)
        commit.add(after)
        log.flushes[0].set_result(None)
        await idle()
        assert finished == [(before, failure), (after, None)]
        with pytest.raises(RuntimeError, match="truncated"):
            await waiting
        assert len(log.flushes) == 1  # nobody flushes for an offset that the log lost
        log.end, log.recovery_point = 4, Offset(3)
        durable = asyncio.ensure_future(commit.durable(4))
        await idle()
        log.flushes[1].set_result(None)
        await durable  # an earlier failure does not count

    asyncio.run(asyncio.wait_for(scenario(), 5))
