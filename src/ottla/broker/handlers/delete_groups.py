"""DeleteGroups: delete groups without members, with their committed offsets."""

from functools import partial

from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.group_coordinator import GroupCoordinators, PendingResponse
from ottla.errors import ErrorCode, RequestError
from ottla.groups.events import DeleteGroups
from ottla.groups.responses import GroupErrors
from ottla.groups.types import RequestToken
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from ottla.transport.connection import Connection, DeferredResponse


def handle(
    request: Request,
    connection: Connection,
    *,
    groups: GroupCoordinators,
    scheduler: CooperativeScheduler,
) -> Response | DeferredResponse:
    """Delete each group independently."""
    message = request.message
    assert isinstance(message, DeleteGroupsRequest)
    return DeferredResponse(_answer(message, groups, scheduler))


async def _answer(
    message: DeleteGroupsRequest,
    groups: GroupCoordinators,
    scheduler: CooperativeScheduler,
) -> Response:
    turns = scheduler.new_loop()
    names = [*dict.fromkeys(message.groups_names)]
    deletions = [(name, partial(_deletion, name)) for name in names]
    responses = await groups.submit_all(deletions, turns)
    return DeleteGroupsResponse(
        throttle_time_ms=0,
        results=[
            DeletableGroupResult(group_id=name, error_code=int(await _error(name, response)))
            async for name, response in turns.over(zip(names, responses, strict=True))
        ],
    )


def _deletion(name: str, token: RequestToken) -> DeleteGroups:
    return DeleteGroups(token, (name,))


async def _error(name: str, response: PendingResponse) -> ErrorCode:
    try:
        answer = await response()
    except RequestError as error:
        return error.code
    assert isinstance(answer, GroupErrors)
    return dict(answer.groups)[name]
