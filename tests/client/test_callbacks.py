"""Rebalance callbacks: records wait for them, and each failure is raised once."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from client.consumer_scenarios import take, write
from client.rebalance_scenarios import member
from client.scenario_runner import run, until
from ottla.client.consumer.consumer import Consumer
from ottla.client.group.interfaces import Rebalance
from ottla.errors import RequestError
from ottla.ids import TopicPartition
from ottla.testing import Cluster

Scenario = Callable[[str], Coroutine[Any, Any, None]]


class FailingCallbacks:
    """Callbacks that raise an error with their name and record their calls."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def assigned(self, came: frozenset[TopicPartition], why: Rebalance) -> None:
        self.called.append("assigned")
        raise LookupError("assigned")

    def revoked(self, gone: frozenset[TopicPartition], why: Rebalance) -> None:
        self.called.append("revoked")
        raise LookupError("revoked")

    async def until_called(self, count: int = 1) -> None:
        await until(lambda: len(self.called) >= count)
        await asyncio.sleep(0)  # so that the callback has raised


def on_a_cluster(scenario: Scenario) -> None:
    async def whole() -> None:
        async with Cluster(settings={"num.partitions": 2}) as cluster:
            await write(cluster.bootstrap_servers, "t", 3)
            await scenario(cluster.bootstrap_servers)

    run(whole())


async def ends(ours: Consumer[bytes, bytes], how: str) -> None:
    await (ours.close() if how == "close" else ours.unsubscribe())


@pytest.mark.parametrize("how", ["close", "unsubscribe"])
def test_unraised_callback_error_is_raised_at_the_end(how: str) -> None:
    async def scenario(servers: str) -> None:
        fails = FailingCallbacks()
        async with member(servers, "g") as ours:
            ours.subscribe("t", on_assigned=fails.assigned)
            await fails.until_called()
            with pytest.raises(RequestError, match="callback failed: LookupError: assigned") as one:
                await ends(ours, how)
            assert isinstance(one.value.__cause__, LookupError)
            await ends(ours, "close")  # the error was raised once, and the consumer has closed

    on_a_cluster(scenario)


def test_error_raised_by_a_poll_is_not_raised_again() -> None:
    async def scenario(servers: str) -> None:
        fails = FailingCallbacks()
        async with member(servers, "g") as ours:
            ours.subscribe("t", on_assigned=fails.assigned)
            with pytest.raises(RequestError, match="callback failed"):
                await ours.poll(20)
            await ours.close()

    on_a_cluster(scenario)


def test_first_error_has_the_later_ones_as_notes() -> None:
    async def scenario(servers: str) -> None:
        fails = FailingCallbacks()
        async with member(servers, "g") as ours:
            ours.subscribe("t", on_assigned=fails.assigned, on_revoked=fails.revoked)
            await fails.until_called()
            with pytest.raises(RequestError, match="LookupError: assigned") as one:
                await ours.close()
            assert "LookupError: revoked" in one.value.__notes__[0]
        assert fails.called == ["assigned", "revoked"]

    on_a_cluster(scenario)


def test_errors_of_two_rebalances_are_raised_by_one_poll() -> None:
    async def scenario(servers: str) -> None:
        fails = FailingCallbacks()
        async with member(servers, "g") as ours, member(servers, "g") as other:
            ours.subscribe("t", on_assigned=fails.assigned, on_revoked=fails.revoked)
            await fails.until_called()
            other.subscribe("t")
            await fails.until_called(3)
            with pytest.raises(RequestError, match="LookupError: assigned") as one:
                await ours.poll(20)
            assert "LookupError: revoked" in one.value.__notes__[0]
            await other.close()
            await fails.until_called(5)
            with pytest.raises(RequestError, match="LookupError: revoked"):
                await ours.close()

    on_a_cluster(scenario)


def test_callback_error_does_not_hide_an_error_of_the_block() -> None:
    async def scenario(servers: str) -> None:
        async def fail() -> None:
            fails = FailingCallbacks()
            async with member(servers, "g") as ours:
                ours.subscribe("t", on_assigned=fails.assigned)
                await fails.until_called()
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError) as first:
            await fail()
        assert "LookupError: assigned" in first.value.__notes__[0]

    on_a_cluster(scenario)


def test_no_record_is_returned_before_the_callback_returns() -> None:
    """The callback may seek when records of the old position are already fetched."""

    async def scenario(servers: str) -> None:
        await write(servers, "long", 100)
        async with member(servers, "g") as ours:

            async def to_fifty(came: frozenset[TopicPartition], why: Rebalance) -> None:
                ours.seek(("long", 0), 90)
                await until(lambda: ours.metrics().buffered_bytes > 0)
                ours.pause(("long", 0))
                ours.resume(("long", 0))
                # The waiting poll gets several iterations of the event loop.
                await asyncio.sleep(0.01)
                assert await ours.position(("long", 0)) == 90
                ours.seek(("long", 0), 50)

            ours.subscribe("long", on_assigned=to_fifty)
            assert (await take(ours, 1))[0].offset == 50

    on_a_cluster(scenario)


def test_waiting_poll_returns_records_after_the_callback() -> None:
    async def scenario(servers: str) -> None:
        async with member(servers, "g", fetch_max_wait_ms=30_000) as ours:

            async def slowly(came: frozenset[TopicPartition], why: Rebalance) -> None:
                ours.seek(("t", 0), 1)
                await until(lambda: ours.metrics().buffered_bytes > 0)

            ours.subscribe("t", on_assigned=slowly)
            assert (await take(ours, 1))[0].offset == 1

    on_a_cluster(scenario)
