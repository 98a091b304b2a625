"""DeleteGroups: delete groups without members, with their committed offsets."""

from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.group_coordinator import GroupCoordinators
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
    return DeleteGroupsResponse(
        throttle_time_ms=0,
        results=[
            DeletableGroupResult(group_id=name, error_code=int(await _delete(groups, name)))
            async for name in scheduler.new_loop().over(dict.fromkeys(message.groups_names))
        ],
    )


async def _delete(groups: GroupCoordinators, name: str) -> ErrorCode:
    try:
        answer = await groups.of(name).ask(lambda token: DeleteGroups(token, (name,)))
    except RequestError as error:
        return error.code
    assert isinstance(answer, GroupErrors)
    return dict(answer.groups)[name]
