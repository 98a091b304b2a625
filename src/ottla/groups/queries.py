"""Queries about groups: lists and descriptions.

Invariant: a query changes nothing.
"""

from collections.abc import Collection
from typing import Final

from ottla.errors import ErrorCode
from ottla.groups.group import ClassicGroup
from ottla.groups.ledger import Ledger
from ottla.groups.responses import DescribedMember, GroupDescription, ListedGroup
from ottla.groups.states import State

CLASSIC: Final = "classic"
"""The group type of this protocol in ListGroups."""


def describe(ledger: Ledger, group_id: str) -> GroupDescription:
    """Return a group and its members; assignments only if it is stable."""
    group = ledger.groups.get(group_id)
    if group is None:
        return GroupDescription(group_id, ErrorCode.GROUP_ID_NOT_FOUND, state=State.DEAD.value)
    protocol_name = group.protocol_name if group.state is State.STABLE else None
    return GroupDescription(
        group_id,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_name=protocol_name or "",
        members=_members(group, protocol_name),
    )


def _members(group: ClassicGroup, protocol_name: str | None) -> tuple[DescribedMember, ...]:
    return tuple(
        DescribedMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            b"" if protocol_name is None else member.metadata(protocol_name),
            member.assignment,
        )
        for member in group.roster
    )


def list_groups(
    ledger: Ledger, states: Collection[str] = (), types: Collection[str] = ()
) -> tuple[ListedGroup, ...]:
    """Return the groups that match states and types; without a filter all match."""
    states = {state.strip().lower() for state in states}
    types = {kind.strip().lower() for kind in types}
    if types and CLASSIC not in types:
        return ()
    return tuple(
        ListedGroup(group.group_id, group.protocol_type or "", group.state.value, CLASSIC)
        for group in ledger.groups.values()
        if not states or group.state.value.lower() in states
    )
