"""Heartbeat: a member hears whether its generation still counts."""

import asyncio
from pathlib import Path

from broker.members import Member, grouped, join_request, settled
from broker.nodes import Client, broker, run
from ottla.errors import ErrorCode
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


def test_who_asks_somebody_who_coordinates_nothing_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            for version in VERSIONS:
                told = await beat(client, Member("m", 1), version=version)
                assert told == ErrorCode.NOT_COORDINATOR

    run(scenario)
