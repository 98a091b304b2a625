"""Heartbeat: a member says that it is alive."""

from ottla.broker.state import BrokerState
from ottla.errors import RequestError
from ottla.groups.answers import HeartbeatAnswer
from ottla.groups.events import Heartbeat
from ottla.protocol.conversation import Answer, Request
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.transport.connection import Connection, Later


def handle(state: BrokerState, request: Request, connection: Connection) -> Answer | Later:
    """Answer whether all is well."""
    message = request.message
    assert isinstance(message, HeartbeatRequest)
    return Later(_answer(state, message))


async def _answer(state: BrokerState, message: HeartbeatRequest) -> Answer:
    try:
        answer = await state.coordinator(message.group_id).ask(
            lambda token: Heartbeat(
                token,
                message.group_id,
                message.member_id,
                message.group_instance_id,
                message.generation_id,
            )
        )
    except RequestError as error:
        answer = HeartbeatAnswer(error.code)
    assert isinstance(answer, HeartbeatAnswer)
    return HeartbeatResponse(error_code=int(answer.error))
