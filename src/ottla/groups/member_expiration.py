"""Removes members whose session has expired, or whose client has left."""

from ottla.groups.group import ClassicGroup
from ottla.groups.rebalance import (
    complete_if_all_joined,
    drop_member,
    drop_pending,
    rebalance,
    restart_session,
)
from ottla.groups.step_context import StepContext
from ottla.groups.types import RequestToken


def session_expired(group: ClassicGroup, member_id: str, context: StepContext) -> None:
    """Remove a member whose session has ended, unless it waits for a response."""
    if member_id in group.roster.pending:
        drop_pending(group, member_id, context)
        complete_if_all_joined(group, context)
    elif not group.roster[member_id].waits:
        drop_member(group, member_id, context)
        rebalance(group, context)


def request_dropped(group: ClassicGroup, token: RequestToken, context: StepContext) -> None:
    """Handle the end of a client that waits for a response.

    A member that has not been in a generation is removed at once. A member of a generation has its
    session timeout to return.
    """
    member = group.roster.waiting(token)
    if member is None:
        return
    if member.join_token == token and member.is_new:
        drop_member(group, member.member_id, context)
        rebalance(group, context)
        return
    if member.join_token == token:
        group.roster.set_join_token(member, None)
    else:
        group.roster.set_sync_token(member, None)
    restart_session(group, member, context)
