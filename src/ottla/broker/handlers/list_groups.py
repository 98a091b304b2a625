"""ListGroups: the groups that this broker coordinates."""

from ottla.broker.group_coordinator import GroupCoordinators
from ottla.errors import ErrorCode
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from ottla.transport.connection import Connection


def handle(request: Request, connection: Connection, *, groups: GroupCoordinators) -> Response:
    """List the groups that match the filters."""
    message = request.message
    assert isinstance(message, ListGroupsRequest)
    error = ErrorCode.NONE
    listed: list[ListedGroup] = []
    for coordinator in groups:
        found = coordinator.groups.list_groups(message.states_filter, message.types_filter)
        error = error or found.error
        listed += [
            ListedGroup(
                group_id=one.group_id,
                protocol_type=one.protocol_type,
                group_state=one.state,
                group_type=one.group_type,
            )
            for one in found.groups
        ]
    return ListGroupsResponse(error_code=int(error), groups=[] if error else listed)
