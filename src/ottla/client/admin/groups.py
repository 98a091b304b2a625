"""Groups: list, describe, delete, and remove members.

Invariant: groups of both protocols have the same description; a missing group is an error with
every broker version.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.client.admin.calls import Calls
from ottla.client.admin.group_descriptions import (
    CONSUMER,
    GroupDescription,
    classic_described,
    modern_described,
)
from ottla.client.arguments import many_of, name_of
from ottla.client.calls.caller import ApiCall
from ottla.client.calls.results import Listing, Results, check, refused
from ottla.client.partitions import names
from ottla.errors import ErrorCode, RequestError
from ottla.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

_STATES_SINCE: Final = 4  # the first versions of ListGroups with filters
_TYPES_SINCE: Final = 5
_OPERATIONS_SINCE: Final = 3  # of DescribeGroups
_MEMBERS_SINCE: Final = 3  # of LeaveGroup, with members other than the sender

# Not a KIP-848 group, or a broker without them: it may be a classic group.
_NOT_NEW: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """An existing group."""

    id: str
    protocol_type: str
    """"consumer" for consumers, "" for a group that only commits offsets."""

    state: str | None
    """None if the broker does not return it."""

    type: str | None
    """"classic", "consumer", "share" or "streams"; None if the broker does not return it."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a classic group, by member id or, if static, by instance id."""

    id: str = ""
    instance_id: str | None = None


class GroupCalls(Calls):
    """Calls about groups."""

    async def list_groups(
        self,
        *,
        states: Iterable[str] = (),
        types: Iterable[str] = (),
        timeout_s: float | None = None,
    ) -> Listing[ListedGroup]:
        """List all groups, or those in some states ("Stable") and of some types ("consumer")."""
        wanted = many_of(states, str, 'a list of states such as ["Stable"]')
        kinds = many_of(types, str, 'a list of types such as ["consumer"]')
        return await self._asking.listing(
            lambda _: ListGroupsRequest(states_filter=wanted, types_filter=kinds),
            ListGroupsResponse,
            listed,
            timeout_s,
            since=_TYPES_SINCE if kinds else _STATES_SINCE if wanted else 0,
        )

    async def describe_groups(
        self,
        groups: str | Iterable[str],
        *,
        include_operations: bool = False,
        timeout_s: float | None = None,
    ) -> Results[str, GroupDescription]:
        """Describe consumer groups and other classic groups with their members."""
        asking = self._asking
        deadline_s = asking.deadline_s(timeout_s)
        wanted = names(groups)
        new = ApiCall[str, ConsumerGroupDescribeResponse, GroupDescription](
            request=lambda ids, _: ConsumerGroupDescribeRequest(
                group_ids=ids, include_authorized_operations=include_operations
            ),
            answer=ConsumerGroupDescribeResponse,
            read=lambda _, answer: modern_described(answer, CONSUMER),
        )
        told = await asking.many(self._asking.to_group, wanted, new, asking.left_s(deadline_s))
        maybe = [group for group, error in told.failed.items() if error.code in _NOT_NEW]
        classic = ApiCall[str, DescribeGroupsResponse, GroupDescription](
            request=lambda ids, terms: DescribeGroupsRequest(
                groups=ids,
                include_authorized_operations=include_operations
                and terms.version >= _OPERATIONS_SINCE,
            ),
            answer=DescribeGroupsResponse,
            read=lambda _, answer: classic_described(answer),
        )
        rest = await asking.many(self._asking.to_group, maybe, classic, asking.left_s(deadline_s))
        return Results({**told.told, **rest.told})

    async def describe_group(
        self, group: str, *, timeout_s: float | None = None
    ) -> GroupDescription:
        """Describe one group with its members."""
        name_of(group, "a group")
        return (await self.describe_groups(group, timeout_s=timeout_s))[group]

    async def delete_groups(
        self, groups: str | Iterable[str], *, timeout_s: float | None = None
    ) -> Results[str, None]:
        """Delete groups without members, with their committed offsets."""
        question = ApiCall(
            request=lambda ids, _: DeleteGroupsRequest(groups_names=ids),
            answer=DeleteGroupsResponse,
            read=lambda _, answer: {
                one.group_id: refused(one.error_code, one.group_id) for one in answer.results
            },
        )
        return await self._asking.many(self._asking.to_group, names(groups), question, timeout_s)

    async def remove_group_members(
        self,
        group: str,
        members: Iterable[GroupMember] | None = None,
        *,
        reason: str | None = None,
        timeout_s: float | None = None,
    ) -> Results[GroupMember, None]:
        """Remove members from a classic group; all of them if none are named."""
        asking = self._asking
        deadline_s = asking.deadline_s(timeout_s)
        name_of(group, "a group")
        if members is not None:
            members = many_of(members, GroupMember, 'a list of members such as [GroupMember("id")]')
        else:
            found = await self.describe_group(group, timeout_s=asking.left_s(deadline_s))
            members = [GroupMember(one.id, one.instance_id) for one in found.members]
        leaving = [*dict.fromkeys(members)]
        if not leaving:
            return Results[GroupMember, None]({})
        told = await asking.about(
            group,
            asking.to_group,
            lambda _: leave_request(group, leaving, reason),
            LeaveGroupResponse,
            lambda answer: left(group, leaving, answer),
            asking.left_s(deadline_s),
            since=_MEMBERS_SINCE,
        )
        return Results[GroupMember, None](told)


def listed(answer: ListGroupsResponse) -> tuple[ListedGroup, ...]:
    """Return the groups of one broker."""
    check(answer.error_code, "groups")
    return tuple(
        ListedGroup(
            one.group_id, one.protocol_type, one.group_state or None, one.group_type or None
        )
        for one in answer.groups
    )


def leave_request(
    group: str, members: Iterable[GroupMember], reason: str | None
) -> LeaveGroupRequest:
    """Build LeaveGroup."""
    return LeaveGroupRequest(
        group_id=group,
        members=[
            # The broker looks up the id of a static member, which changes on restart.
            MemberIdentity(
                member_id="" if one.instance_id is not None else one.id,
                group_instance_id=one.instance_id,
                reason=reason,
            )
            for one in members
        ],
    )


def left(
    group: str, members: Sequence[GroupMember], answer: LeaveGroupResponse
) -> dict[GroupMember, RequestError | None]:
    """Return the result of each member."""
    check(answer.error_code, group)
    told = {
        one.group_instance_id or one.member_id: refused(
            one.error_code, f"{group}, {one.group_instance_id or one.member_id}"
        )
        for one in answer.members
    }
    silent = RequestError(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        f"{group}: the coordinator's response does not contain this member",
    )
    return {one: told.get(one.instance_id or one.id, silent) for one in members}
