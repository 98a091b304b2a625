"""DescribeGroups: groups and their members."""

from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.group_coordinator import GroupCoordinators
from ottla.broker.handlers.metadata import NOT_ASKED
from ottla.errors import ErrorCode, RequestError
from ottla.groups.responses import GroupDescription
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.transport.connection import Connection, DeferredResponse

_TELLS_MISSING = 6  # the first version in which a missing group is an error
# Read, delete, describe; describe and alter configs.
_OPERATIONS = sum(1 << bit for bit in (3, 6, 8, 10, 11))


def handle(
    request: Request,
    connection: Connection,
    *,
    groups: GroupCoordinators,
    scheduler: CooperativeScheduler,
) -> Response | DeferredResponse:
    """Describe each group."""
    message = request.message
    assert isinstance(message, DescribeGroupsRequest)
    return DeferredResponse(_answer(message, request.version, groups, scheduler))


async def _answer(
    message: DescribeGroupsRequest,
    version: int,
    groups: GroupCoordinators,
    scheduler: CooperativeScheduler,
) -> Response:
    operations = _OPERATIONS if message.include_authorized_operations else NOT_ASKED
    return DescribeGroupsResponse(
        groups=[
            _group(_describe(groups, name), version, operations)
            async for name in scheduler.new_loop().over(message.groups)
        ]
    )


def _describe(groups: GroupCoordinators, name: str) -> GroupDescription:
    try:
        return groups.of(name).groups.describe(name)
    except RequestError as error:
        return GroupDescription(name, error.code)


def _group(found: GroupDescription, version: int, operations: int) -> DescribedGroup:
    code, text = found.error, None
    if code is ErrorCode.GROUP_ID_NOT_FOUND:
        if version >= _TELLS_MISSING:
            text = f"Group {found.group_id} not found."
        else:
            code = ErrorCode.NONE
    return DescribedGroup(
        error_code=int(code),
        error_message=text,
        group_id=found.group_id,
        group_state=found.state,
        protocol_type=found.protocol_type,
        protocol_data=found.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=one.member_id,
                group_instance_id=one.instance_id,
                client_id=one.client_id,
                client_host=one.client_host,
                member_metadata=one.metadata,
                member_assignment=one.assignment,
            )
            for one in found.members
        ],
        authorized_operations=operations if code is ErrorCode.NONE else NOT_ASKED,
    )
