"""JoinGroup: join the next generation of a classic group."""

from collections.abc import Callable

from ottla.broker.group_coordinator import GroupCoordinators
from ottla.errors import RequestError
from ottla.groups.events import Join
from ottla.groups.responses import JoinResult
from ottla.groups.types import Protocol, RequestToken
from ottla.ids import Uuid
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from ottla.transport.connection import Connection, DeferredResponse


def handle(
    request: Request,
    connection: Connection,
    *,
    groups: GroupCoordinators,
    new_id: Callable[[], Uuid],
) -> Response | DeferredResponse:
    """Join; the response waits until all members have joined."""
    message = request.message
    assert isinstance(message, JoinGroupRequest)
    return DeferredResponse(_answer(request, message, connection.address, groups, new_id))


async def _answer(
    request: Request,
    message: JoinGroupRequest,
    host: str,
    groups: GroupCoordinators,
    new_id: Callable[[], Uuid],
) -> Response:
    version, client_id = request.version, request.header.client_id or ""
    stem = message.group_instance_id or client_id
    new_member_id = f"{stem}-{_dashed(new_id().hex())}"

    def event(token: RequestToken) -> Join:
        return Join(
            token,
            message.group_id,
            message.member_id,
            message.group_instance_id,
            client_id,
            f"/{host}",
            message.session_timeout_ms,
            message.rebalance_timeout_ms,
            message.protocol_type,
            tuple(Protocol(one.name, bytes(one.metadata)) for one in message.protocols),
            new_member_id,
            member_id_required=version >= 4,
            skips_assignment=version >= 9,
        )

    try:
        answer = await groups.of(message.group_id).ask(event)
    except RequestError as error:
        answer = JoinResult(error.code, message.member_id)
    assert isinstance(answer, JoinResult)
    return JoinGroupResponse(
        error_code=int(answer.error),
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name if version >= 7 else answer.protocol_name or "",
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=one.member_id,
                group_instance_id=one.instance_id,
                metadata=one.metadata,
            )
            for one in answer.members
        ],
    )


def _dashed(digits: str) -> str:
    """Format an id like Java's UUID."""
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
