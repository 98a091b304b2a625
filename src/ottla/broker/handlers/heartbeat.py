"""Heartbeat: keeps a member of a classic group alive."""

from ottla.broker.group_coordinator import GroupCoordinators
from ottla.errors import RequestError
from ottla.groups.events import Heartbeat
from ottla.groups.responses import HeartbeatResult
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.transport.connection import Connection, DeferredResponse


def handle(
    request: Request,
    connection: Connection,
    *,
    groups: GroupCoordinators,
) -> Response | DeferredResponse:
    """Return the state of the member's group."""
    message = request.message
    assert isinstance(message, HeartbeatRequest)
    return DeferredResponse(_answer(groups, message))


async def _answer(groups: GroupCoordinators, message: HeartbeatRequest) -> Response:
    try:
        answer = await groups.of(message.group_id).ask(
            lambda token: Heartbeat(
                token,
                message.group_id,
                message.member_id,
                message.group_instance_id,
                message.generation_id,
            )
        )
    except RequestError as error:
        answer = HeartbeatResult(error.code)
    assert isinstance(answer, HeartbeatResult)
    return HeartbeatResponse(error_code=int(answer.error))
