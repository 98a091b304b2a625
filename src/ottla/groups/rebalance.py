"""Rebalances a classic group: members join, the leader assigns, all sync.

Invariant: no member gets an assignment that the log does not have (rule F3). No pending request is
forgotten: it is answered when its generation starts, ends or loses the member. A member has a
session timer, or a pending request whose response starts one.
"""

from ottla.errors import ErrorCode
from ottla.groups.effects import EmptyGenerationStored
from ottla.groups.events import Sync
from ottla.groups.group import ClassicGroup, InitialDelay
from ottla.groups.member import Member
from ottla.groups.records import group_record
from ottla.groups.responses import JoinResult, SyncResult
from ottla.groups.states import State
from ottla.groups.step_context import StepContext
from ottla.groups.types import AssignmentStored, RequestToken


def restart_session(group: ClassicGroup, member: Member, context: StepContext) -> None:
    """Start a full session of a member."""
    context.set_timer(group.session_timer(member.member_id), member.session_timeout_ms)


def drop_member(group: ClassicGroup, member_id: str, context: StepContext) -> None:
    """Remove a member and answer its pending requests: it may return as a new member."""
    member = group.roster.remove(member_id)
    group.unsynced.discard(member_id)
    context.cancel_timer(group.session_timer(member_id))
    answer_waiting(member, ErrorCode.UNKNOWN_MEMBER_ID, context)


def drop_pending(group: ClassicGroup, member_id: str, context: StepContext) -> None:
    """Forget an assigned member id."""
    del group.roster.pending[member_id]
    context.cancel_timer(group.session_timer(member_id))


def answer_waiting(member: Member, error: ErrorCode, context: StepContext) -> None:
    """Answer the requests of a member that was removed."""
    if member.join_token is not None:
        lost = error is ErrorCode.UNKNOWN_MEMBER_ID
        member_id = "" if lost else member.member_id
        context.respond(member.join_token, JoinResult(error, member_id))
    if member.sync_token is not None:
        context.respond(member.sync_token, SyncResult(error))


def await_next_generation(
    group: ClassicGroup, member: Member, token: RequestToken, context: StepContext
) -> None:
    """Let a request wait for the next generation; of two the later gets the response."""
    before = group.roster.set_join_token(member, token)
    if before is not None:
        answer = JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        context.respond(before, answer)


# Join phase.


def rebalance(group: ClassicGroup, context: StepContext) -> None:
    """Start a rebalance, or complete the one in progress if all have joined."""
    if group.state is State.PREPARING_REBALANCE:
        complete_if_all_joined(group, context)
    else:
        prepare(group, context)


def prepare(group: ClassicGroup, context: StepContext) -> None:
    """Prepare the next generation."""
    if group.state is State.COMPLETING_REBALANCE:
        _withdraw_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS, context)
    group.unsynced.clear()
    context.cancel_timer(group.sync_timer)
    first = group.is_empty
    group.move_to(State.PREPARING_REBALANCE, context.now_ms)
    if first:
        delay_ms = context.rules.initial_rebalance_delay_ms
        remaining_ms = max(group.roster.rebalance_timeout_ms - delay_ms, 0)
        group.initial_delay = InitialDelay(delay_ms, remaining_ms)
        context.set_timer(group.join_timer, delay_ms)
    elif group.roster.all_joined:
        _begin_generation(group, context)
    else:
        context.set_timer(group.join_timer, group.roster.rebalance_timeout_ms)


def complete_if_all_joined(group: ClassicGroup, context: StepContext) -> None:
    """Start the generation if all have joined; an empty group always waits for its delay."""
    forming = group.state is State.PREPARING_REBALANCE and group.initial_delay is None
    if forming and group.roster.all_joined:
        _begin_generation(group, context)


def join_time_over(group: ClassicGroup, context: StepContext) -> None:
    """Start the generation with those who joined; the initial delay is extended meanwhile."""
    initial = group.initial_delay
    if initial is not None and initial.member_added and initial.remaining_ms:
        delay_ms = min(context.rules.initial_rebalance_delay_ms, initial.remaining_ms)
        remaining_ms = max(initial.remaining_ms - initial.delay_ms, 0)
        group.initial_delay = InitialDelay(delay_ms, remaining_ms)
        context.set_timer(group.join_timer, delay_ms)
    else:
        _begin_generation(group, context)


def _begin_generation(group: ClassicGroup, context: StepContext) -> None:
    context.cancel_timer(group.join_timer)
    # A static member may be away until its session expires; others have to join in time.
    for member in [m for m in group.roster if m.join_token is None and m.instance_id is None]:
        drop_member(group, member.member_id, context)
    if len(group.roster) and not group.roster.elect_joined():
        # Nobody joined, and the remaining members may: their sessions decide.
        context.set_timer(group.join_timer, group.roster.rebalance_timeout_ms)
        return
    group.generation += 1
    group.choose_protocol()
    if len(group.roster):
        _answer_joined(group, context)
    else:
        group.move_to(State.EMPTY, context.now_ms)
        group.stored = True
        context.append((group_record(group),), EmptyGenerationStored(group.group_id))


def _answer_joined(group: ClassicGroup, context: StepContext) -> None:
    group.move_to(State.COMPLETING_REBALANCE, context.now_ms)
    for member in group.roster:
        token = group.roster.set_join_token(member, None)
        if token is not None:
            context.respond(token, group.join_answer(member.member_id))
        member.is_new = False
        group.unsynced.add(member.member_id)
        restart_session(group, member, context)
    context.set_timer(group.sync_timer, group.roster.rebalance_timeout_ms)


# Sync phase.


def sync(group: ClassicGroup, event: Sync, context: StepContext) -> None:
    """Handle SyncGroup; the leader's request stores all assignments."""
    problem = _sync_problem(group, event)
    if problem:
        context.respond(event.token, SyncResult(problem))
        return
    member = group.roster[event.member_id]
    group.unsynced.discard(event.member_id)
    if not group.unsynced:
        context.cancel_timer(group.sync_timer)
    if group.state is State.STABLE:
        context.respond(event.token, _assignment_of(group, member))
        return
    before = group.roster.set_sync_token(member, event.token)
    if before is not None:
        context.respond(before, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
    if group.roster.leader == event.member_id and group.in_flight is None:
        _store_assignments(group, event, context)


def _sync_problem(group: ClassicGroup, event: Sync) -> ErrorCode:
    if problem := group.roster.problem(event.member_id, event.instance_id):
        return problem
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differ(event.protocol_type, group.protocol_type) or _differ(
        event.protocol_name, group.protocol_name
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is State.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _differ(said: str | None, known: str | None) -> bool:
    return said is not None and known is not None and said != known


def _assignment_of(group: ClassicGroup, member: Member) -> SyncResult:
    return SyncResult(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def _store_assignments(group: ClassicGroup, event: Sync, context: StepContext) -> None:
    """Append the generation. A repeated request of the leader waits for it.

    A second, different set of assignments in the log would be what the next coordinator loads,
    while the members have the first.
    """
    assignments = {
        member.member_id: event.assignments.get(member.member_id, b"") for member in group.roster
    }
    group.in_flight = AssignmentStored(group.group_id, group.generation, assignments)
    group.stored = True
    context.append((group_record(group, assignments),), group.in_flight)


def assignments_stored(group: ClassicGroup, stored: AssignmentStored, context: StepContext) -> None:
    """Send the assignments after the append (rule F3)."""
    if group.in_flight is not stored:
        return  # members have changed meanwhile, or it is another group
    for member in group.roster:
        member.assignment = stored.assignments[member.member_id]
    group.move_to(State.STABLE, context.now_ms)
    for member in group.roster:
        if (token := group.roster.set_sync_token(member, None)) is not None:
            context.respond(token, _assignment_of(group, member))
            restart_session(group, member, context)


def assignments_not_stored(
    group: ClassicGroup, lost: AssignmentStored, error: ErrorCode, context: StepContext
) -> None:
    """Rebalance again after a failed append: nobody gets an assignment."""
    if group.in_flight is not lost:
        return
    _withdraw_assignments(group, error, context)
    prepare(group, context)


def _withdraw_assignments(group: ClassicGroup, error: ErrorCode, context: StepContext) -> None:
    for member in group.roster:
        member.assignment = b""
        if (token := group.roster.set_sync_token(member, None)) is not None:
            context.respond(token, SyncResult(error))
            restart_session(group, member, context)


def sync_time_over(group: ClassicGroup, context: StepContext) -> None:
    """Remove members that have not synced in time."""
    if group.state in (State.COMPLETING_REBALANCE, State.STABLE) and group.unsynced:
        for member_id in sorted(group.unsynced):
            drop_member(group, member_id, context)
        prepare(group, context)
