"""DeleteGroups: delete groups without members, with their committed offsets."""

from ottla.broker.cooperative import CooperativeLoop
from ottla.broker.state import BrokerState
from ottla.errors import ErrorCode, RequestError
from ottla.groups.events import DeleteGroups
from ottla.groups.responses import GroupErrors
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from ottla.transport.connection import Connection, DeferredResponse


def handle(
    state: BrokerState, request: Request, connection: Connection
) -> Response | DeferredResponse:
    """Delete each group independently."""
    message = request.message
    assert isinstance(message, DeleteGroupsRequest)
    return DeferredResponse(_answer(state, message))


async def _answer(state: BrokerState, message: DeleteGroupsRequest) -> Response:
    return DeleteGroupsResponse(
        throttle_time_ms=0,
        results=[
            DeletableGroupResult(group_id=name, error_code=int(await _delete(state, name)))
            async for name in CooperativeLoop(state).over(dict.fromkeys(message.groups_names))
        ],
    )


async def _delete(state: BrokerState, name: str) -> ErrorCode:
    try:
        answer = await state.coordinator(name).ask(lambda token: DeleteGroups(token, (name,)))
    except RequestError as error:
        return error.code
    assert isinstance(answer, GroupErrors)
    return dict(answer.groups)[name]
