"""SyncGroup: a member requests its assignment; the leader sends all assignments."""

from typing import Final

from ottla.broker.group_coordinator import GroupCoordinators
from ottla.errors import ErrorCode, RequestError
from ottla.groups.events import Sync
from ottla.groups.responses import SyncResult
from ottla.groups.types import RequestToken
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.transport.connection import Connection, DeferredResponse

_NAMES_PROTOCOL: Final = 5  # the first version in which the member names its protocol


def handle(
    request: Request,
    connection: Connection,
    *,
    groups: GroupCoordinators,
) -> Response | DeferredResponse:
    """Respond when the assignment is known and stored."""
    message = request.message
    assert isinstance(message, SyncGroupRequest)
    if request.version >= _NAMES_PROTOCOL and None in (
        message.protocol_type,
        message.protocol_name,
    ):
        return SyncGroupResponse(
            error_code=int(ErrorCode.INCONSISTENT_GROUP_PROTOCOL), assignment=b""
        )
    return DeferredResponse(_answer(groups, message))


async def _answer(groups: GroupCoordinators, message: SyncGroupRequest) -> Response:
    def event(token: RequestToken) -> Sync:
        return Sync(
            token,
            message.group_id,
            message.member_id,
            message.group_instance_id,
            message.generation_id,
            message.protocol_type,
            message.protocol_name,
            {one.member_id: bytes(one.assignment) for one in message.assignments},
        )

    try:
        answer = await groups.of(message.group_id).ask(event)
    except RequestError as error:
        answer = SyncResult(error.code)
    assert isinstance(answer, SyncResult)
    return SyncGroupResponse(
        error_code=int(answer.error),
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )
