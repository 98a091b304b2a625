"""Heartbeat: tells a member whether its generation is current."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

import pytest

from broker.members import Member, group_broker, join_request, single_member
from broker.nodes import Client, broker, run
from ottla.errors import ErrorCode
from ottla.groups.types import Timer, TimerKind
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupResponse

VERSIONS = range(5)


async def send_heartbeat(
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


def test_heartbeat_of_current_member_succeeds(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            client = await running.client()
            member = await single_member(client)
            static = await single_member(client, "static", instance="i")
            for version in VERSIONS:
                assert await send_heartbeat(client, member, version=version) == 0
                if version >= 3:
                    result = await send_heartbeat(
                        client, static, "static", instance="i", version=version
                    )
                    assert result == 0

    run(scenario)


def test_invalid_heartbeats_are_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            client = await running.client()
            member = await single_member(client, instance="i")
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
                    result = await send_heartbeat(
                        client, asked, group, instance=instance, version=version
                    )
                    assert result == code, (asked, group, instance)

    run(scenario)


def test_heartbeat_reports_a_rebalance(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            one, two = await running.client(), await running.client()
            member = await single_member(one)
            joining = asyncio.create_task(two.ask(join_request(), JoinGroupResponse, 3))
            while not await send_heartbeat(one, member):
                pass
            for version in VERSIONS:
                result = await send_heartbeat(one, member, version=version)
                assert result == ErrorCode.REBALANCE_IN_PROGRESS
            joining.cancel()

    run(scenario)


def test_expired_member_is_logged_when_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="ottla.broker.group_coordinator")

    def expired_members() -> list[object]:
        facts = [one.args for one in caplog.records if one.msg == "member expired"]
        return [one["member"] for one in facts if isinstance(one, Mapping)]

    async def scenario() -> None:
        async with group_broker(tmp_path, "group.min.session.timeout.ms=1") as running:
            (coordinator,) = running.parts.groups
            one, two, three = [await running.client() for _ in range(3)]
            member = await single_member(one)
            newcomer = join_request()
            newcomer.member_id = (await two.ask(newcomer, JoinGroupResponse, 9)).member_id
            again = join_request(member=member.id)
            again.session_timeout_ms = 1
            # The member waits, longer than a session, for the other member, which has an id but has
            # not joined.
            waiting = asyncio.create_task(one.ask(again, JoinGroupResponse, 9))
            while not await send_heartbeat(three, member):
                pass
            session = Timer(TimerKind.SESSION, "g", member.id)
            while session in coordinator.groups.timers:
                await asyncio.sleep(0.001)
            assert not expired_members()
            assert (await two.ask(newcomer, JoinGroupResponse, 9)).error_code == 0
            assert (await waiting).error_code == 0
            while not expired_members():
                await asyncio.sleep(0.001)
            assert expired_members() == [member.id]

    run(scenario)


def test_not_coordinator_is_reported(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            for version in VERSIONS:
                result = await send_heartbeat(client, Member("m", 1), version=version)
                assert result == ErrorCode.NOT_COORDINATOR

    run(scenario)
