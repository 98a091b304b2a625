"""JoinGroup: adds members to the next generation, in all versions."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

from broker.members import group_broker, join, join_request, single_member
from broker.nodes import Client, broker, run
from cases import each_case
from ottla.errors import ErrorCode
from ottla.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)

VERSIONS = range(10)
UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


async def joined(client: Client) -> JoinGroupResponse:
    request = join_request()
    request.member_id = (await client.ask(request, JoinGroupResponse)).member_id
    return await client.ask(request, JoinGroupResponse)


def test_only_member_leads_in_every_version(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            client = await running.client()
            for version in VERSIONS:
                request = join_request(f"g{version}")
                answer = await client.ask(request, JoinGroupResponse, version)
                if version >= 4:  # KIP-394
                    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
                    assert (answer.generation_id, answer.leader, len(answer.members)) == (-1, "", 0)
                    # No protocol was chosen; null is allowed from version 7.
                    assert answer.protocol_name == (None if version >= 7 else "")
                    request.member_id = answer.member_id
                    answer = await client.ask(request, JoinGroupResponse, version)
                    assert answer.member_id == request.member_id
                assert (answer.error_code, answer.generation_id) == (0, 1)
                assert (answer.leader, answer.protocol_name) == (answer.member_id, "range")
                assert re.fullmatch(f"test-{UUID}", answer.member_id)
                (member,) = answer.members
                assert (member.member_id, member.metadata) == (answer.member_id, b"m")
                assert member.group_instance_id is None
                assert not answer.skip_assignment
                if version >= 7:
                    assert answer.protocol_type == "consumer"

    run(scenario)


def test_member_metadata_is_stored(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            client = await running.client()
            member = await join(client, instance="i")
            assert re.fullmatch(f"i-{UUID}", member.id)
            asked = DescribeGroupsRequest(groups=["g"])
            (group,) = (await client.ask(asked, DescribeGroupsResponse)).groups
            assert group.protocol_type == "consumer"
            (result,) = group.members
            assert (result.member_id, result.group_instance_id) == (member.id, "i")
            assert (result.client_id, result.client_host) == ("test", "/127.0.0.1")

    run(scenario)


def test_only_the_leader_gets_the_member_list(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            one, two = await running.client(), await running.client()
            first = await join(one)
            joining = asyncio.create_task(joined(two))
            while True:  # the first member joins again when its heartbeat reports the second
                again = join_request(member=first.id)
                again.protocols = [
                    *again.protocols,
                    JoinGroupRequestProtocol(name="sticky", metadata=b""),
                ]
                leading = await one.ask(again, JoinGroupResponse)
                if len(leading.members) == 2:
                    break
            following = await joining
            assert leading.leader == following.leader == first.id
            assert leading.generation_id == following.generation_id
            assert {each.member_id for each in leading.members} == {first.id, following.member_id}
            assert list(following.members) == []
            assert following.protocol_name == "range", "every member supports it"

    run(scenario)


def test_static_member_rejoins_without_a_rebalance(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            client = await running.client()
            for version in VERSIONS[5:]:
                group = f"g{version}"
                before = await single_member(client, group, instance="i")
                request = join_request(group, instance="i")
                back = await client.ask(request, JoinGroupResponse, version)
                assert (back.error_code, back.generation_id) == (0, before.generation)
                assert back.member_id != before.id
                if version >= 9:  # KIP-814: the member leads and skips the assignment
                    assert (back.leader, back.skip_assignment) == (back.member_id, True)
                    assert [one.group_instance_id for one in back.members] == ["i"]
                else:
                    assert (back.leader, list(back.members)) == (before.id, [])
                request.member_id = before.id
                fenced = await client.ask(request, JoinGroupResponse, version)
                assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID

    run(scenario)


def with_fields(**changes: object) -> Callable[[JoinGroupRequest], None]:
    def change(request: JoinGroupRequest) -> None:
        for name, value in changes.items():
            setattr(request, name, value)

    return change


@each_case(
    ("change", "code"),
    [
        (with_fields(group_id=""), ErrorCode.INVALID_GROUP_ID),
        (with_fields(session_timeout_ms=1), ErrorCode.INVALID_SESSION_TIMEOUT),
        (with_fields(session_timeout_ms=10**9), ErrorCode.INVALID_SESSION_TIMEOUT),
        (with_fields(member_id="strange"), ErrorCode.UNKNOWN_MEMBER_ID),
        (with_fields(protocols=[]), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (with_fields(protocol_type=""), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (with_fields(protocol_type="connect"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (
            with_fields(protocols=[JoinGroupRequestProtocol(name="other", metadata=b"")]),
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ),
    ],
)
def test_invalid_join_requests_are_refused(
    tmp_path: Path, change: Callable[[JoinGroupRequest], None], code: int
) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            client = await running.client()
            await single_member(client)
            for version in VERSIONS:
                request = join_request()
                change(request)
                answer = await client.ask(request, JoinGroupResponse, version)
                assert answer.error_code == code
                assert (answer.generation_id, answer.member_id) == (-1, request.member_id)
                assert (answer.leader, list(answer.members)) == ("", [])
                assert answer.protocol_name == (None if version >= 7 else "")

    run(scenario)


def test_full_group_refuses_new_members(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path, "group.max.size=1") as running:
            client = await running.client()
            await single_member(client)
            for version in VERSIONS:
                answer = await client.ask(join_request(), JoinGroupResponse, version)
                assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED

    run(scenario)


def test_not_coordinator_is_reported(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            for version in VERSIONS:
                answer = await client.ask(join_request(member="m"), JoinGroupResponse, version)
                assert (answer.error_code, answer.member_id) == (ErrorCode.NOT_COORDINATOR, "m")

    run(scenario)


def test_shutdown_answers_members_that_are_joining(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            one, two = await running.client(), await running.client()
            await single_member(one)
            waiting = asyncio.create_task(joined(two))
            await asyncio.sleep(0.05)
            assert not waiting.done(), "the first member has not rejoined"
            running.parts.groups.close()
            assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR

    run(scenario)
