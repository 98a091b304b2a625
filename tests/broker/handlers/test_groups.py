"""The requests ListGroups, DescribeGroups, DeleteGroups, LeaveGroup and OffsetDelete."""

from pathlib import Path

from broker.members import group_broker, join
from broker.nodes import Client, run
from ottla.errors import ErrorCode
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)


async def commit(client: Client, group: str, offset: int) -> int:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
    )
    answer = await client.ask(request, OffsetCommitResponse, 9)
    return answer.topics[0].partitions[0].error_code


async def listed(client: Client, *states: str) -> dict[str, str]:
    request = ListGroupsRequest(states_filter=list(states), types_filter=[])
    answer = await client.ask(request, ListGroupsResponse)
    assert answer.error_code == 0
    return {one.group_id: one.group_state for one in answer.groups}


async def delete_groups(client: Client, *names: str) -> dict[str, int]:
    request = DeleteGroupsRequest(groups_names=list(names))
    answer = await client.ask(request, DeleteGroupsResponse)
    return {one.group_id: one.error_code for one in answer.results}


async def leave(client: Client, member: str, version: int = 5) -> tuple[int, list[int]]:
    if version < 3:
        request = LeaveGroupRequest(group_id="g", member_id=member)
    else:
        request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member)])
    answer = await client.ask(request, LeaveGroupResponse, version)
    return answer.error_code, [one.error_code for one in answer.members]


async def delete_offsets(client: Client, *asked: tuple[str, int]) -> tuple[int, list[int]]:
    request = OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index)]
            )
            for name, index in asked
        ],
    )
    answer = await client.ask(request, OffsetDeleteResponse)
    return answer.error_code, [p.error_code for one in answer.topics for p in one.partitions]


def test_groups_are_listed_by_state_and_described(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            client = await running.client()
            assert await listed(client) == {}
            member = (await join(client)).id
            assert await commit(client, "simple", 5) == 0
            assert await listed(client) == {"g": "CompletingRebalance", "simple": "Empty"}
            assert await listed(client, "empty") == {"simple": "Empty"}
            request = DescribeGroupsRequest(groups=["g", "nobody"])
            found = (await client.ask(request, DescribeGroupsResponse)).groups
            assert [one.error_code for one in found] == [0, ErrorCode.GROUP_ID_NOT_FOUND]
            assert [one.group_state for one in found] == ["CompletingRebalance", "Dead"]
            assert [one.member_id for one in found[0].members] == [member]
            old = (await client.ask(request, DescribeGroupsResponse, 5)).groups
            assert [one.error_code for one in old] == [0, 0]

    run(scenario)


def test_only_empty_groups_are_deleted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            client = await running.client()
            member = (await join(client)).id
            assert await commit(client, "simple", 5) == 0
            assert await delete_groups(client, "g", "simple", "nobody", "simple") == {
                "g": ErrorCode.NON_EMPTY_GROUP,
                "simple": 0,
                "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
            }
            assert await leave(client, member) == (0, [0])
            assert await listed(client) == {"g": "Empty"}
            assert await delete_groups(client, "g") == {"g": 0}
            assert await listed(client) == {}

    run(scenario)


def test_unknown_member_cannot_leave(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            client = await running.client()
            member = (await join(client)).id
            unknown = ErrorCode.UNKNOWN_MEMBER_ID
            assert await leave(client, "nobody") == (0, [unknown])
            assert await leave(client, "nobody", 2) == (unknown, [])
            assert await leave(client, member, 2) == (0, [])
            assert await leave(client, member, 2) == (unknown, [])

    run(scenario)


def test_offsets_are_deleted_per_partition(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            client = await running.client()
            missing = ErrorCode.GROUP_ID_NOT_FOUND
            assert await delete_offsets(client, ("t", 0)) == (missing, [])
            assert await commit(client, "g", 5) == 0
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await delete_offsets(client, ("t", 7), ("nowhere", 0)) == (0, [unknown] * 2)
            assert await listed(client) == {"g": "Empty"}
            assert await delete_offsets(client, ("t", 0)) == (0, [0])

    run(scenario)
