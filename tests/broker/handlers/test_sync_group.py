"""SyncGroup: everybody gets the share that the leader brought, once it is stored."""

import asyncio
from pathlib import Path

from broker.members import (
    Member,
    grouped,
    join,
    join_request,
    settled,
    sync_request,
)
from broker.nodes import broker, run
from ottla.errors import ErrorCode
from ottla.protocol.messages.join_group import JoinGroupResponse
from ottla.protocol.messages.sync_group import SyncGroupResponse

VERSIONS = range(6)
NOBODY = Member("nobody", 1)


def test_the_leaders_share_comes_back_in_every_version(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with grouped(tmp_path) as running:
            client = await running.client()
            for version in VERSIONS:
                group = f"g{version}"
                member = await join(client, group)
                request = sync_request(member, group, shares={member.id: b"mine", "x": b"lost"})
                for _ in range(2):  # the second time it is known
                    answer = await client.ask(request, SyncGroupResponse, version)
                    assert (answer.error_code, answer.assignment) == (0, b"mine")
                    if version >= 5:
                        told = (answer.protocol_type, answer.protocol_name)
                        assert told == ("consumer", "range")
                    request.assignments = []

    run(scenario)


def test_everybody_gets_its_own_share_when_the_leader_has_brought_all(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with grouped(tmp_path) as running:
            one, two = await running.client(), await running.client()
            # Old members need no second request to have an id.
            first = await one.ask(join_request(), JoinGroupResponse, 3)
            joining = asyncio.create_task(two.ask(join_request(), JoinGroupResponse, 3))
            leading = first
            while len(leading.members) < 2:
                again = join_request(member=first.member_id)
                leading = await one.ask(again, JoinGroupResponse, 3)
            following = await joining
            leader = Member(first.member_id, leading.generation_id)
            follower = Member(following.member_id, following.generation_id)
            waiting = asyncio.create_task(two.ask(sync_request(follower), SyncGroupResponse))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            shares = {leader.id: b"one", follower.id: b"two"}
            answer = await one.ask(sync_request(leader, shares=shares), SyncGroupResponse)
            assert answer.assignment == b"one"
            assert (await waiting).assignment == b"two"

    run(scenario)


def test_who_may_not_sync_is_told_why(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with grouped(tmp_path) as running:
            client = await running.client()
            member = await settled(client, instance="i")
            other_type, other_name = (sync_request(member, instance="i") for _ in range(2))
            other_type.protocol_type = "connect"
            other_name.protocol_name = "sticky"
            for request, code, since in (
                (sync_request(NOBODY), ErrorCode.UNKNOWN_MEMBER_ID, 0),
                (sync_request(NOBODY, "absent"), ErrorCode.UNKNOWN_MEMBER_ID, 0),
                (sync_request(NOBODY, ""), ErrorCode.INVALID_GROUP_ID, 0),
                (
                    sync_request(Member(member.id, 7), instance="i"),
                    ErrorCode.ILLEGAL_GENERATION,
                    3,
                ),
                (sync_request(NOBODY, instance="i"), ErrorCode.FENCED_INSTANCE_ID, 3),
                (sync_request(NOBODY, instance="j"), ErrorCode.UNKNOWN_MEMBER_ID, 3),
                (other_type, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, 5),
                (other_name, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, 5),
            ):
                for version in VERSIONS[since:]:
                    answer = await client.ask(request, SyncGroupResponse, version)
                    assert (answer.error_code, answer.assignment) == (code, b"")

    run(scenario)


def test_who_does_not_name_its_protocol_is_refused_once_it_has_to(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with grouped(tmp_path) as running:
            client = await running.client()
            member = await settled(client)
            for lacking in ("protocol_type", "protocol_name"):
                request = sync_request(member)
                setattr(request, lacking, None)
                for version in VERSIONS:
                    answer = await client.ask(request, SyncGroupResponse, version)
                    expected = (0, b"share")
                    if version >= 5:
                        expected = (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, b"")
                    assert (answer.error_code, answer.assignment) == expected

    run(scenario)


def test_while_a_group_forms_again_there_is_no_share(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with grouped(tmp_path) as running:
            one, two = await running.client(), await running.client()
            member = await settled(one)
            joining = asyncio.create_task(two.ask(join_request(), JoinGroupResponse, 3))
            code = 0
            while not code:
                code = (await one.ask(sync_request(member), SyncGroupResponse)).error_code
            assert code == ErrorCode.REBALANCE_IN_PROGRESS
            joining.cancel()

    run(scenario)


def test_who_asks_somebody_who_coordinates_nothing_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            for version in VERSIONS:
                answer = await client.ask(sync_request(NOBODY), SyncGroupResponse, version)
                assert answer.error_code == ErrorCode.NOT_COORDINATOR

    run(scenario)
