"""LeaveGroup: members leave or are removed."""

from ottla.broker.group_coordinator import GroupCoordinators
from ottla.errors import RequestError
from ottla.groups.events import Leave, Leaver
from ottla.groups.responses import LeaveResult
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from ottla.transport.connection import Connection, DeferredResponse

_BATCHED = 3  # the first version with several members


def handle(
    request: Request,
    connection: Connection,
    *,
    groups: GroupCoordinators,
) -> Response | DeferredResponse:
    """Remove members from a group."""
    message = request.message
    assert isinstance(message, LeaveGroupRequest)
    return DeferredResponse(_answer(groups, message, request.version))


async def _answer(groups: GroupCoordinators, message: LeaveGroupRequest, version: int) -> Response:
    leavers = (
        tuple(Leaver(one.member_id, one.group_instance_id) for one in message.members)
        if version >= _BATCHED
        else (Leaver(message.member_id),)
    )
    try:
        answer = await groups.of(message.group_id).ask(
            lambda token: Leave(token, message.group_id, leavers)
        )
    except RequestError as error:
        answer = LeaveResult(error.code)
    assert isinstance(answer, LeaveResult)
    if version < _BATCHED:
        code = answer.error or (answer.leavers[0].error if answer.leavers else answer.error)
        return LeaveGroupResponse(error_code=int(code))
    return LeaveGroupResponse(
        error_code=int(answer.error),
        members=[
            MemberResponse(
                member_id=one.member_id,
                group_instance_id=one.instance_id,
                error_code=int(one.error),
            )
            for one in answer.leavers
        ],
    )
