"""Handles JoinGroup.

Invariant: a refused request changes no member. A client without a member id gets a new one and
becomes a member when it returns with it, except for static members and old clients.
"""

from msgspec.structs import replace

from ottla.errors import ErrorCode
from ottla.groups.config import NEW_MEMBER_JOIN_TIMEOUT_MS, PENDING_MEMBERS_MAX
from ottla.groups.effects import StaticMemberStored
from ottla.groups.events import UNKNOWN_MEMBER, Join
from ottla.groups.group import ClassicGroup
from ottla.groups.member import Member
from ottla.groups.rebalance import (
    answer_waiting,
    await_next_generation,
    complete_if_all_joined,
    drop_member,
    drop_pending,
    rebalance,
    restart_session,
)
from ottla.groups.records import group_record
from ottla.groups.responses import JoinResult
from ottla.groups.states import State
from ottla.groups.step_context import StepContext


def join(group: ClassicGroup, event: Join, context: StepContext) -> None:
    """Add a member to the next generation, or refuse it."""
    known = group.roster.static_id(event.instance_id) or event.member_id
    if not (
        group.has_room_for(known, context.rules.members_max)
        and group.has_memory_for(known, event.protocols)
    ):
        _send_away(group, event, context)
    elif not group.supports(event.protocol_type, event.protocols):
        _refuse(event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, context)
    elif event.member_id == UNKNOWN_MEMBER:
        _join_without_id(group, event, context)
    elif event.member_id in group.roster.pending and event.instance_id is None:
        _add_member(group, event, event.member_id, context)
    elif problem := group.roster.problem(event.member_id, event.instance_id):
        _refuse(event, problem, context)
    else:
        _join_again(group, event, group.roster[event.member_id], context)


def _refuse(event: Join, error: ErrorCode, context: StepContext) -> None:
    context.respond(event.token, JoinResult(error, event.member_id))


def _send_away(group: ClassicGroup, event: Join, context: StepContext) -> None:
    context.respond(event.token, JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED))
    if event.member_id in group.roster:
        drop_member(group, event.member_id, context)
    elif event.member_id in group.roster.pending:
        drop_pending(group, event.member_id, context)
    complete_if_all_joined(group, context)


def _join_without_id(group: ClassicGroup, event: Join, context: StepContext) -> None:
    known = group.roster.static_id(event.instance_id)
    if known is not None:
        _replace_static_member(group, event, known, context)
    elif event.instance_id is None and event.member_id_required:
        _hand_out_id(group, event, context)
    else:
        _add_member(group, event, event.new_member_id, context)


def _hand_out_id(group: ClassicGroup, event: Join, context: StepContext) -> None:
    """Assign a member id to return with, so that a retry is not a second member (KIP-394)."""
    if len(group.roster.pending) >= PENDING_MEMBERS_MAX:
        drop_pending(group, next(iter(group.roster.pending)), context)
    group.roster.pending[event.new_member_id] = None
    context.set_timer(group.session_timer(event.new_member_id), event.session_timeout_ms)
    answer = JoinResult(ErrorCode.MEMBER_ID_REQUIRED, event.new_member_id)
    context.respond(event.token, answer)


def _add_member(group: ClassicGroup, event: Join, member_id: str, context: StepContext) -> None:
    if not len(group.roster):
        group.protocol_type = event.protocol_type
    if group.initial_delay is not None:
        group.initial_delay.member_added = True
    group.roster.add(_member_of(event, member_id))
    context.set_timer(group.session_timer(member_id), NEW_MEMBER_JOIN_TIMEOUT_MS)
    rebalance(group, context)


def _member_of(event: Join, member_id: str) -> Member:
    return Member(
        member_id=member_id,
        instance_id=event.instance_id,
        client_id=event.client_id,
        client_host=event.client_host,
        session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=_rebalance_timeout_ms(event),
        protocols=event.protocols,
        join_token=event.token,
        is_new=True,
    )


def _rebalance_timeout_ms(event: Join) -> int:
    return (
        event.session_timeout_ms if event.rebalance_timeout_ms < 0 else event.rebalance_timeout_ms
    )


def _join_again(group: ClassicGroup, event: Join, member: Member, context: StepContext) -> None:
    """Handle a repeated join, which may only ask for a missed response."""
    same = member.protocols == event.protocols
    leads = group.roster.leader == member.member_id
    # The leader of a stable group rejoins if something changed that only it knows.
    if same and (
        group.state is State.COMPLETING_REBALANCE or (group.state is State.STABLE and not leads)
    ):
        context.respond(event.token, group.join_answer(member.member_id))
        return
    group.roster.update(
        member, event.protocols, event.session_timeout_ms, _rebalance_timeout_ms(event)
    )
    await_next_generation(group, member, event.token, context)
    rebalance(group, context)


# Static members (KIP-345).


def _replace_static_member(
    group: ClassicGroup, event: Join, known: str, context: StepContext
) -> None:
    """Replace a returning static member; the old member id is fenced (rule F5)."""
    leader_before = group.roster.leader or ""
    before = _exchange(group, event, known, context)
    if group.state is not State.STABLE:
        # The leader is assigning for the old id, so that generation is useless.
        rebalance(group, context)
    elif group.roster.choose_protocol() != group.protocol_name:
        rebalance(group, context)
    else:
        group.learn_subscriptions()
        group.stored = True
        then = StaticMemberStored(
            group.group_id,
            event.token,
            event.new_member_id,
            before,
            leader_before,
            event.skips_assignment,
        )
        context.append((group_record(group),), then)


def _exchange(group: ClassicGroup, event: Join, known: str, context: StepContext) -> Member:
    """Replace the member and return the old one."""
    old = group.roster[known]
    new = _member_of(event, event.new_member_id)
    new.assignment = old.assignment
    new.is_new = False
    group.roster.exchange(known, new)
    if known in group.unsynced:
        group.unsynced.remove(known)
        group.unsynced.add(new.member_id)
    context.cancel_timer(group.session_timer(known))
    answer_waiting(old, ErrorCode.FENCED_INSTANCE_ID, context)
    restart_session(group, new, context)
    return replace(old, join_token=None, sync_token=None)


def _static_answer(group: ClassicGroup, stored: StaticMemberStored) -> JoinResult:
    """Return its response: a leader must not assign again (KIP-814)."""
    answer = group.join_answer(stored.member_id)
    if stored.skips_assignment:
        return replace(answer, skip_assignment=group.roster.leader == stored.member_id)
    # Older clients get the previous leader, so that they do not assign.
    return replace(answer, leader=stored.leader_before, members=())


def static_member_stored(
    group: ClassicGroup, stored: StaticMemberStored, context: StepContext
) -> None:
    """Continue after the append: the member keeps its assignment."""
    member = _still_waiting(group, stored)
    if member is not None:
        group.roster.set_join_token(member, None)
        context.respond(stored.token, _static_answer(group, stored))
        restart_session(group, member, context)


def static_member_not_stored(
    group: ClassicGroup, lost: StaticMemberStored, error: ErrorCode, context: StepContext
) -> None:
    """Restore the old member after a failed append."""
    member = _still_waiting(group, lost)
    if member is not None:
        group.roster.exchange(member.member_id, replace(lost.before))
        if member.member_id in group.unsynced:
            group.unsynced.remove(member.member_id)
            group.unsynced.add(lost.before.member_id)
        group.learn_subscriptions()
        context.cancel_timer(group.session_timer(member.member_id))
        restart_session(group, lost.before, context)
        answer = replace(group.join_answer(""), error=error, members=())
        context.respond(lost.token, answer)


def _still_waiting(group: ClassicGroup, stored: StaticMemberStored) -> Member | None:
    """Return the member, unless a rebalance answers it."""
    member = group.roster.get(stored.member_id)
    if member is None or member.join_token != stored.token or group.state is not State.STABLE:
        return None
    return member
