"""Group members, built from single requests."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from broker.nodes import Client, RunningBroker, broker
from broker.test_node import create
from ottla.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from ottla.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

SETTINGS = ("offsets.topic.num.partitions=1", "group.initial.rebalance.delay.ms=0")


async def find_coordinator(client: Client, group: str = "g") -> None:
    """Make the broker coordinate a group."""
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    (found,) = (await client.ask(request, FindCoordinatorResponse)).coordinators
    assert found.error_code == 0


@asynccontextmanager
async def group_broker(folder: Path, *settings: str) -> AsyncGenerator[RunningBroker]:
    """Start a broker with topic t that coordinates groups."""
    async with broker(folder, *SETTINGS, *settings) as running:
        client = await running.client()
        await create(client, "t", 2)
        await find_coordinator(client)
        yield running


def join_request(
    group: str = "g", member: str = "", *, instance: str | None = None, protocol: str = "range"
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name=protocol, metadata=b"m")],
    )


class Member(NamedTuple):
    id: str
    generation: int


async def join(
    client: Client, group: str = "g", *, instance: str | None = None, version: int = 9
) -> Member:
    """Join a group and return a member that has no assignment yet."""
    request = join_request(group, instance=instance)
    answer = await client.ask(request, JoinGroupResponse, version)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        request.member_id = answer.member_id
        answer = await client.ask(request, JoinGroupResponse, version)
    assert answer.error_code == 0
    return Member(answer.member_id, answer.generation_id)


def sync_request(
    member: Member,
    group: str = "g",
    *,
    instance: str | None = None,
    shares: Mapping[str, bytes] | None = None,
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group,
        generation_id=member.generation,
        member_id=member.id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[
            SyncGroupRequestAssignment(member_id=one, assignment=share)
            for one, share in (shares or {}).items()
        ],
    )


async def single_member(client: Client, group: str = "g", *, instance: str | None = None) -> Member:
    """Join a group as its only member and sync an assignment."""
    member = await join(client, group, instance=instance)
    request = sync_request(member, group, instance=instance, shares={member.id: b"share"})
    assert (await client.ask(request, SyncGroupResponse)).error_code == 0
    return member
