"""Heartbeat: a member hears whether its generation still counts."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

import pytest

from broker.members import Member, grouped, join_request, settled
from broker.nodes import Client, broker, run
from ottla.errors import ErrorCode
from ottla.groups.types import Timer, TimerKind
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupResponse

VERSIONS = range(5)


async def beat(
    client: Client,
    member: Member,
    group: str = "g",
    *,
    instance: str | None = None,
    version: int = 4,
) -> int:
    request = HeartbeatRequest(
        group_id=group,
        generation_id=member.generation,
        member_id=member.id,
        group_instance_id=instance,
    )
    return (await client.ask(request, HeartbeatResponse, version)).error_code


def test_a_member_of_the_generation_is_well(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with grouped(tmp_path) as running:
            client = await running.client()
            member = await settled(client)
            static = await settled(client, "static", instance="i")
            for version in VERSIONS:
                assert await beat(client, member, version=version) == 0
                if version >= 3:
                    told = await beat(client, static, "static", instance="i", version=version)
                    assert told == 0

    run(scenario)


def test_who_is_not_in_it_is_told_why(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with grouped(tmp_path) as running:
            client = await running.client()
            member = await settled(client, instance="i")
            nobody = Member("nobody", 1)
            for asked, group, instance, code, since in (
                (Member(member.id, 7), "g", None, ErrorCode.ILLEGAL_GENERATION, 0),
                (nobody, "g", None, ErrorCode.UNKNOWN_MEMBER_ID, 0),
                (nobody, "absent", None, ErrorCode.UNKNOWN_MEMBER_ID, 0),
                (nobody, "", None, ErrorCode.INVALID_GROUP_ID, 0),
                (nobody, "g", "i", ErrorCode.FENCED_INSTANCE_ID, 3),
                (member, "g", "j", ErrorCode.UNKNOWN_MEMBER_ID, 3),
            ):
                for version in VERSIONS[since:]:
                    told = await beat(client, asked, group, instance=instance, version=version)
                    assert told == code, (asked, group, instance)

    run(scenario)


def test_a_member_hears_that_it_has_to_join_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with grouped(tmp_path) as running:
            one, two = await running.client(), await running.client()
            member = await settled(one)
            joining = asyncio.create_task(two.ask(join_request(), JoinGroupResponse, 3))
            while not await beat(one, member):
                pass
            for version in VERSIONS:
                told = await beat(one, member, version=version)
                assert told == ErrorCode.REBALANCE_IN_PROGRESS
            joining.cancel()

    run(scenario)


def test_the_log_tells_of_members_not_heard_of_when_they_are_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="ottla.broker.group_coordinator")

    def not_heard_of() -> list[object]:
        facts = [one.args for one in caplog.records if one.msg == "member expired"]
        return [one["member"] for one in facts if isinstance(one, Mapping)]

    async def scenario() -> None:
        async with grouped(tmp_path, "group.min.session.timeout.ms=1") as running:
            (coordinator,) = running.state.groups
            one, two, three = [await running.client() for _ in range(3)]
            member = await settled(one)
            newcomer = join_request()
            newcomer.member_id = (await two.ask(newcomer, JoinGroupResponse, 9)).member_id
            again = join_request(member=member.id)
            again.session_timeout_ms = 1
            # It waits for the one that has its id and does not come yet, longer than a session.
            waiting = asyncio.create_task(one.ask(again, JoinGroupResponse, 9))
            while not await beat(three, member):
                pass
            session = Timer(TimerKind.SESSION, "g", member.id)
            while session in coordinator.groups.timers:
                await asyncio.sleep(0.001)
            assert not not_heard_of()
            assert (await two.ask(newcomer, JoinGroupResponse, 9)).error_code == 0
            assert (await waiting).error_code == 0
            while not not_heard_of():
                await asyncio.sleep(0.001)
            assert not_heard_of() == [member.id]

    run(scenario)


def test_who_asks_somebody_who_coordinates_nothing_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            for version in VERSIONS:
                told = await beat(client, Member("m", 1), version=version)
                assert told == ErrorCode.NOT_COORDINATOR

    run(scenario)
