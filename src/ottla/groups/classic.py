"""The classic protocol: applies events to one group.

Invariant: every request gets a response, at once or by a later event. Every member and every
assigned member id has a session timer or a pending request.
"""

from ottla.errors import ErrorCode
from ottla.groups.effects import StaticMemberStored
from ottla.groups.events import UNKNOWN_MEMBER, Heartbeat, Join, Leave, Leaver, Sync
from ottla.groups.group import ClassicGroup
from ottla.groups.join import join, static_member_not_stored, static_member_stored
from ottla.groups.member_expiration import session_expired
from ottla.groups.rebalance import (
    answer_waiting,
    assignments_not_stored,
    assignments_stored,
    complete_if_all_joined,
    drop_member,
    drop_pending,
    join_time_over,
    prepare,
    rebalance,
    restart_session,
    sync,
    sync_time_over,
)
from ottla.groups.responses import HeartbeatResult, LeaveResult, LeaverResult
from ottla.groups.states import State
from ottla.groups.step_context import StepContext
from ottla.groups.types import AssignmentStored, Timer, TimerKind


def step(group: ClassicGroup, event: Join | Sync | Heartbeat | Leave, context: StepContext) -> None:
    """Handle a member's request."""
    assert group.state is not State.DEAD
    match event:
        case Join():
            join(group, event, context)
        case Sync():
            sync(group, event, context)
        case Heartbeat():
            context.respond(event.token, HeartbeatResult(_heartbeat(group, event, context)))
        case Leave():
            context.respond(event.token, LeaveResult(leavers=_leave(group, event, context)))


def timer_fired(group: ClassicGroup, timer: Timer, context: StepContext) -> None:
    """Handle an expired timer."""
    match timer.kind:
        case TimerKind.JOIN:
            join_time_over(group, context)
        case TimerKind.SYNC:
            sync_time_over(group, context)
        case TimerKind.SESSION:
            session_expired(group, timer.member_id, context)
        case TimerKind.EXPIRY:
            raise AssertionError("offsets expire for all groups at once")


def stored(
    group: ClassicGroup, then: AssignmentStored | StaticMemberStored, context: StepContext
) -> None:
    """Continue after a successful append."""
    if isinstance(then, AssignmentStored):
        assignments_stored(group, then, context)
    else:
        static_member_stored(group, then, context)


def not_stored(
    group: ClassicGroup,
    then: AssignmentStored | StaticMemberStored,
    error: ErrorCode,
    context: StepContext,
) -> None:
    """Continue after a failed append."""
    if isinstance(then, AssignmentStored):
        assignments_not_stored(group, then, error, context)
    else:
        static_member_not_stored(group, then, error, context)


def loaded(group: ClassicGroup, context: StepContext) -> None:
    """Start a full session for every member of a loaded group (rule F6)."""
    for member in group.roster:
        restart_session(group, member, context)
    if len(group.roster) > context.rules.members_max:
        prepare(group, context)  # the limit was lowered: the last to join are removed


def unload(group: ClassicGroup, context: StepContext) -> None:
    """Answer pending requests with NOT_COORDINATOR: the group has moved (rule F1)."""
    for member in group.roster:
        answer_waiting(member, ErrorCode.NOT_COORDINATOR, context)
    cancel_timers(group, context)
    group.move_to(State.DEAD, context.now_ms)


def cancel_timers(group: ClassicGroup, context: StepContext) -> None:
    """Cancel all timers of the group."""
    context.cancel_timer(group.join_timer)
    context.cancel_timer(group.sync_timer)
    for member in group.roster:
        context.cancel_timer(group.session_timer(member.member_id))
    for member_id in group.roster.pending:
        context.cancel_timer(group.session_timer(member_id))


def committed(group: ClassicGroup, member_id: str, context: StepContext) -> None:
    """Restart the session of a member that commits."""
    member = group.roster.get(member_id)
    if member is not None and group.state in (State.STABLE, State.PREPARING_REBALANCE):
        restart_session(group, member, context)


def _heartbeat(group: ClassicGroup, event: Heartbeat, context: StepContext) -> ErrorCode:
    if problem := group.roster.problem(event.member_id, event.instance_id):
        return problem
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    restart_session(group, group.roster[event.member_id], context)
    if group.state is State.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _leave(group: ClassicGroup, event: Leave, context: StepContext) -> tuple[LeaverResult, ...]:
    members_before = len(group.roster)
    answers = tuple(
        LeaverResult(leaver.member_id, leaver.instance_id, _leave_one(group, leaver, context))
        for leaver in event.leavers
    )
    if len(group.roster) < members_before:
        rebalance(group, context)
    else:
        complete_if_all_joined(group, context)  # an assigned member id may have been given up
    return answers


def _leave_one(group: ClassicGroup, leaver: Leaver, context: StepContext) -> ErrorCode:
    member_id = leaver.member_id
    if member_id == UNKNOWN_MEMBER:  # an administrator removes a static member
        known = group.roster.static_id(leaver.instance_id)
        if known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = known
    elif member_id in group.roster.pending:
        drop_pending(group, member_id, context)
        return ErrorCode.NONE
    elif problem := group.roster.problem(member_id, leaver.instance_id):
        return problem
    drop_member(group, member_id, context)
    return ErrorCode.NONE
