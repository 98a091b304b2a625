"""Moves a partition to other brokers in steps (rule A15, KIP-455).

The steps are: add the new replicas, wait until they are in the ISR, move the leader to a replica
that stays, remove the others from the ISR, delete their logs, and store the final assignment.

Invariant: the stored state alone says which step is next, so that a new controller continues where
the last one stopped. Until the last step, `replicas` has the target first and then `removing`.
A replica is deleted only when it is not in the ISR and cannot become leader any more.
"""

from collections.abc import Collection, Sequence
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from ottla.cluster.election import effective_min, eligible_leaders
from ottla.cluster.image import PartitionState
from ottla.errors import ErrorCode, RequestError
from ottla.ids import NO_BROKER, BrokerId, LeaderEpoch


class StepKind(Enum):
    """What a step of a reassignment does."""

    MOVE_LEADER = "move the leader to a replica that stays"
    SHRINK_ISR = "remove the other replicas from the ISR"
    FINISH = "delete the other replicas and store the final assignment"


class Step(Struct, frozen=True):
    """The next step of a reassignment."""

    kind: StepKind
    after: PartitionState
    delete: tuple[BrokerId, ...] = ()  # replicas that are deleted before `after` is stored


def is_reassigning(state: PartitionState) -> bool:
    """Whether a reassignment of the partition is in progress."""
    return bool(state.adding or state.removing)


def target_of(state: PartitionState) -> tuple[BrokerId, ...]:
    """Return the replicas of a partition when its reassignment is complete."""
    return tuple(broker for broker in state.replicas if broker not in state.removing)


def original_of(state: PartitionState) -> tuple[BrokerId, ...]:
    """Return the replicas that a partition has if its reassignment is cancelled."""
    return tuple(broker for broker in state.replicas if broker not in state.adding)


def begin_reassignment(before: PartitionState, target: Sequence[BrokerId]) -> PartitionState:
    """Add the replicas of a target; the same object is returned if it is the present target.

    A reassignment in progress gets the new target. A replica that only the old target had is
    removed like the others. Raises RequestError if the partition has never had a leader.
    """
    if before.version < 0:
        raise RequestError(
            ErrorCode.LEADER_NOT_AVAILABLE,
            "The partition has no leader yet. Start a broker that has a replica of it.",
        )
    target = tuple(target)
    original = original_of(before)
    adding = tuple(broker for broker in target if broker not in original)
    removing = tuple(broker for broker in before.replicas if broker not in target)
    replicas = target + removing
    if (replicas, adding, removing) == (before.replicas, before.adding, before.removing):
        return before
    return _next(before, replicas=replicas, adding=adding, removing=removing)


def next_step(
    state: PartitionState, *, electable: Collection[BrokerId], min_isr: int
) -> Step | None:
    """Return the next step of a reassignment; None if there is none, or it has to wait.

    A reassignment waits until all new replicas are in the ISR, and the ISR without the replicas
    that leave has the minimum of the target.
    """
    target = target_of(state)
    staying = tuple(broker for broker in state.in_sync if broker in target)
    if not is_reassigning(state) or not _is_caught_up(state, target, staying, min_isr):
        return None
    if state.leader not in staying:
        leader = next((one for one in target if one in staying and one in electable), NO_BROKER)
        if leader == NO_BROKER:
            return None
        return Step(StepKind.MOVE_LEADER, _next(state, leader=leader))
    if staying != state.in_sync or not set(state.removing).isdisjoint(state.elr):
        elr = tuple(broker for broker in state.elr if broker in target)
        return Step(StepKind.SHRINK_ISR, _next(state, in_sync=staying, elr=elr))
    # The ISR has the minimum of the target, so there is no ELR.
    done = _next(state, replicas=target, elr=(), adding=(), removing=())
    return Step(StepKind.FINISH, done, state.removing)


def can_join(state: PartitionState, broker: BrokerId, *, min_isr: int) -> bool:
    """Whether the reassignment lets a broker join the ISR.

    When the target has taken over, a replica that leaves must not return: the controller may
    already have told its broker to delete the log.
    """
    if broker not in state.removing:
        return True
    target = target_of(state)
    staying = tuple(broker for broker in state.in_sync if broker in target)
    return state.leader not in staying or not _is_caught_up(state, target, staying, min_isr)


def _is_caught_up(
    state: PartitionState,
    target: Collection[BrokerId],
    staying: Collection[BrokerId],
    min_isr: int,
) -> bool:
    """Whether enough replicas of the target are in the ISR, with all that are new."""
    is_enough = len(staying) >= effective_min(min_isr, len(target))
    return is_enough and set(staying).issuperset(state.adding)


def cancel_reassignment(
    before: PartitionState, *, electable: Collection[BrokerId], min_isr: int
) -> PartitionState:
    """Return to the replicas before the reassignment, in one step; raises RequestError.

    The replicas in `before.adding` are deleted after the result is stored.
    """
    if not is_reassigning(before):
        raise RequestError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    original = original_of(before)
    in_sync = tuple(broker for broker in before.in_sync if broker in original)
    last_known = tuple(broker for broker in before.last_known_elr if broker in original)
    minimum = effective_min(min_isr, len(original))
    elr = eligible_leaders(replace(before, replicas=original), in_sync, minimum)
    leader = before.leader
    if leader not in in_sync:
        leader = next((one for one in original if one in in_sync and one in electable), NO_BROKER)
        goes_offline = leader == NO_BROKER and before.leader != NO_BROKER
        if goes_offline or not (in_sync or elr or last_known):
            raise RequestError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "The reassignment cannot be cancelled, because none of the original replicas is "
                "alive and in sync. Wait until it completes.",
            )
    return PartitionState(
        original,
        leader,
        LeaderEpoch(before.leader_epoch + 1),
        in_sync,
        before.version + 1,
        elr,
        last_known if leader == NO_BROKER else (),
    )


def _next(
    before: PartitionState,
    *,
    replicas: tuple[BrokerId, ...] | None = None,
    leader: BrokerId | None = None,
    in_sync: tuple[BrokerId, ...] | None = None,
    elr: tuple[BrokerId, ...] | None = None,
    adding: tuple[BrokerId, ...] | None = None,
    removing: tuple[BrokerId, ...] | None = None,
) -> PartitionState:
    """Return the next state in a new leader epoch; None keeps a value."""
    leader = before.leader if leader is None else leader
    return PartitionState(
        before.replicas if replicas is None else replicas,
        leader,
        LeaderEpoch(before.leader_epoch + 1),
        before.in_sync if in_sync is None else in_sync,
        before.version + 1,
        before.elr if elr is None else elr,
        before.last_known_elr if leader == NO_BROKER else (),
        before.adding if adding is None else adding,
        before.removing if removing is None else removing,
    )
