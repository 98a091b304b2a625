"""SyncGroup: each member gets the assignment that the leader sent, after it is stored."""

import asyncio
from pathlib import Path

from broker.members import (
    Member,
    group_broker,
    join,
    join_request,
    single_member,
    sync_request,
)
from broker.nodes import broker, run
from ottla.errors import ErrorCode
from ottla.protocol.messages.join_group import JoinGroupResponse
from ottla.protocol.messages.sync_group import SyncGroupResponse

VERSIONS = range(6)
NOBODY = Member("nobody", 1)


def test_leader_gets_its_assignment_in_every_version(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            client = await running.client()
            for version in VERSIONS:
                group = f"g{version}"
                member = await join(client, group)
                request = sync_request(member, group, shares={member.id: b"mine", "x": b"lost"})
                for _ in range(2):  # the second request returns the stored assignment
                    answer = await client.ask(request, SyncGroupResponse, version)
                    assert (answer.error_code, answer.assignment) == (0, b"mine")
                    if version >= 5:
                        result = (answer.protocol_type, answer.protocol_name)
                        assert result == ("consumer", "range")
                    request.assignments = []

    run(scenario)


def test_followers_wait_for_the_leader_assignment(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            one, two = await running.client(), await running.client()
            # Before version 4 a member gets its id without a second request.
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


def test_invalid_sync_requests_are_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            client = await running.client()
            member = await single_member(client, instance="i")
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


def test_missing_protocol_is_refused_from_version_5(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            client = await running.client()
            member = await single_member(client)
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


def test_sync_during_a_rebalance_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            one, two = await running.client(), await running.client()
            member = await single_member(one)
            joining = asyncio.create_task(two.ask(join_request(), JoinGroupResponse, 3))
            code = 0
            while not code:
                code = (await one.ask(sync_request(member), SyncGroupResponse)).error_code
            assert code == ErrorCode.REBALANCE_IN_PROGRESS
            joining.cancel()

    run(scenario)


def test_not_coordinator_is_reported(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            for version in VERSIONS:
                answer = await client.ask(sync_request(NOBODY), SyncGroupResponse, version)
                assert answer.error_code == ErrorCode.NOT_COORDINATOR

    run(scenario)
