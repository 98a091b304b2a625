"""Consumers that are closed while they join: no member is left, and no rebalance waits for them."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from client.consumer_scenarios import FAST, FROM_START
from client.scenario_runner import run, until
from client.scripted_broker import HOST, ScriptedBroker
from ottla.client.admin import Admin
from ottla.client.consumer.consumer import Consumer
from ottla.errors import ErrorCode
from ottla.protocol.message import Message
from ottla.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.testing import Cluster
from ottla.transport.network import Connector
from proxy import Detour

COUNT = 80
GROUPS = 4
SETTINGS: dict[str, object] = {
    **FAST,
    **FROM_START,
    "heartbeat.interval.ms": 20,
    "session.timeout.ms": 45_000,
}
"""A session longer than the test, so that a member that did not leave is noticed."""


def member(servers: str, group: str, network: Connector | None = None) -> Consumer[bytes, bytes]:
    settings = {**SETTINGS, "bootstrap.servers": servers, "group.id": group}
    return Consumer(settings, "t", network=network)


async def turns_to_join(servers: str) -> int:
    """Return how many event loop iterations it takes to get partitions, in a group of one."""
    turns = 0
    async with member(servers, f"group-{time.monotonic_ns()}") as ours:
        while not ours.assignment:
            await asyncio.sleep(0)
            turns += 1
    return turns


@asynccontextmanager
async def resident(servers: str, group: str) -> AsyncGenerator[Consumer[bytes, bytes]]:
    """A member that stays, and rejoins for each of the other members."""
    async with member(servers, group) as ours:
        reading = asyncio.create_task(read(ours))
        try:
            await until(lambda: bool(ours.assignment))
            yield ours
        finally:
            reading.cancel()


async def read(ours: Consumer[bytes, bytes]) -> None:
    async for _ in ours:
        pass


@pytest.mark.parametrize("together", [False, True], ids=["one-by-one", "together"])
def test_consumer_closed_while_joining_is_not_a_member(together: bool) -> None:
    async def scenario() -> None:
        chance = random.Random(4)
        async with Cluster(settings={"num.partitions": 2}) as cluster, AsyncExitStack() as stack:
            servers = cluster.bootstrap_servers
            await turns_to_join(servers)  # this creates the internal topics
            whole = await turns_to_join(servers)
            groups = [f"g-{number}" for number in range(GROUPS)]
            stay = [await stack.enter_async_context(resident(servers, name)) for name in groups]

            async def join_and_close(number: int) -> None:
                async with member(servers, groups[number % GROUPS]):
                    for _ in range(chance.randrange(2 * whole)):
                        await asyncio.sleep(0)

            if together:
                await asyncio.gather(*map(join_and_close, range(COUNT)))
            else:
                for number in range(COUNT):
                    await join_and_close(number)
            async with Admin({**FAST, "bootstrap.servers": servers}) as admin:
                result = (await admin.describe_groups(groups)).or_raise()
            assert [len(one.members) for one in result.values()] == [1] * GROUPS
            # A member that got an id and did not leave would delay the next rebalance.
            for group, before in zip(groups, stay, strict=True):
                async with member(servers, group) as ours:
                    both = (before, ours)
                    await until(lambda both=both: all(len(one.assignment) == 1 for one in both))

    run(scenario())


def coordinator(joined: list[JoinGroupRequest], *, answers: bool) -> ScriptedBroker:
    """Return a coordinator that assigns member ids and never completes a rebalance."""

    def found(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        one = Coordinator(
            key="g", node_id=1, host=HOST, port=broker.place.port, error_code=0, error_message=None
        )
        return FindCoordinatorResponse(coordinators=[one])

    def join(request: JoinGroupRequest) -> JoinGroupResponse | None:
        joined.append(request)
        if request.member_id or not answers:
            return None
        return JoinGroupResponse(
            error_code=ErrorCode.MEMBER_ID_REQUIRED,
            generation_id=-1,
            protocol_name="",
            leader="",
            member_id="an-id",
            members=[],
        )

    broker = ScriptedBroker(
        {
            FindCoordinatorRequest: found,
            JoinGroupRequest: join,
            LeaveGroupRequest: lambda _: LeaveGroupResponse(error_code=0, members=[]),
        }
    )
    return broker


def test_close_waits_for_the_member_id_and_leaves() -> None:
    async def scenario() -> None:
        joined: list[JoinGroupRequest] = []
        async with coordinator(joined, answers=True) as broker, Detour() as detour:
            ours = member(broker.bootstrap_servers, "g", detour)
            await ours.__aenter__()
            answer = broker.answers[JoinGroupRequest]

            def held(request: JoinGroupRequest) -> Message | None:
                detour.trouble.freeze()
                return answer(request)

            broker.answers[JoinGroupRequest] = held
            await until(lambda: bool(joined))
            closing = asyncio.create_task(ours.close())
            await asyncio.sleep(0.05)  # so that the join is in progress
            assert not closing.done()
            detour.trouble.thaw()
            await closing
            assert [one.member_id for one in joined] == [""]
            left = [one for one in broker.asked if isinstance(one, LeaveGroupRequest)]
            assert [one.member_id for leave in left for one in leave.members] == ["an-id"]

    run(scenario())


def test_next_membership_does_not_wait_for_the_last_one() -> None:
    """The coordinator never responds to the JoinGroup of the member that left, as Kafka may."""

    async def scenario() -> None:
        joined: list[JoinGroupRequest] = []
        async with (
            coordinator(joined, answers=True) as broker,
            member(broker.bootstrap_servers, "g") as ours,
        ):
            for number in (1, 2, 3):
                await until(lambda number=number: len(joined) == 2 * number)
                await ours.unsubscribe()
                ours.subscribe("t")
            assert [one.member_id for one in joined[:6]] == ["", "an-id"] * 3

    run(scenario())


def test_close_does_not_wait_for_a_silent_coordinator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ottla.client.consumer.subscription_state.LAST_COMMIT_S", 0.2)

    async def scenario() -> None:
        joined: list[JoinGroupRequest] = []
        async with coordinator(joined, answers=False) as broker:
            async with member(broker.bootstrap_servers, "g"):
                await until(lambda: bool(joined))
            assert not broker.count(LeaveGroupRequest)  # the client does not know its member id

    run(scenario())
