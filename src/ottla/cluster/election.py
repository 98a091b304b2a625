"""Decides who leads a partition, and who is in its ISR and its ELR, after an event.

Invariant: the leader is in the ISR, or there is no leader. While the ISR is empty, the ELR or the
last known leader says who can lead next. Each function returns the next state, with the next leader
epoch and the next version, or the same object if nothing changes. Only an unclean election and the
election of the last known leader can lose acknowledged records.
"""

from collections.abc import Collection, Iterable
from typing import Final

from msgspec.structs import replace

from ottla.cluster.image import PartitionState
from ottla.ids import NO_BROKER, BrokerId, LeaderEpoch

_NOBODY: Final = frozenset[BrokerId]()


def effective_min(in_sync_min: int, replicas: int) -> int:
    """Return min.insync.replicas, which counts at most as many as there are replicas (rule A8).

    Leader and controller use the same minimum: the ELR is complete only as long as the leader does
    not move the high watermark with fewer ISR members (rules A4 and A14).
    """
    return min(in_sync_min, replicas)


def elect_first(before: PartitionState, electable: Collection[BrokerId]) -> PartitionState:
    """Elect the first leader of a new partition; all electable replicas are in its ISR.

    The partition remains without a state while none of its replicas is electable.
    """
    in_sync = tuple(broker for broker in before.replicas if broker in electable)
    return before.led_by(in_sync[0], in_sync) if in_sync else before


def elect_after_departure(
    before: PartitionState,
    leaving: Collection[BrokerId],
    *,
    electable: Collection[BrokerId],
    min_isr: int,
    lost: Collection[BrokerId] = _NOBODY,
    restarted: Collection[BrokerId] = _NOBODY,
    unclean: bool = False,
) -> PartitionState:
    """Remove brokers from the ISR, and elect a leader if the partition needs one.

    `leaving` brokers are dead or cannot serve the partition. `lost` brokers may have lost records,
    so they leave the ELR as well. A leader in `restarted` needs a new epoch, although it stays in
    the ISR. `min_isr` is the configured minimum, and `unclean` allows an unclean election.

    The first of these leads: the present leader, the first electable replica of the ISR and then of
    the ELR in the order of the assignment (rules A14 and B9), the last known leader, and with
    `unclean` any electable replica (rule A13).
    """
    in_sync = tuple(
        broker for broker in before.in_sync if broker not in leaving and broker not in lost
    )
    minimum = effective_min(min_isr, len(before.replicas))
    elr = eligible_leaders(before, in_sync, minimum, lost)
    leader = before.leader
    if leader in in_sync and leader not in restarted:
        if in_sync == before.in_sync and elr == before.elr:
            return before
        return _next(before, leader, in_sync, elr)
    last_known = _last_known_leader(before)
    leader = _first(before.replicas, in_sync, electable)
    if leader == NO_BROKER and (leader := _first(before.replicas, elr, electable)) != NO_BROKER:
        in_sync = (leader,)
        elr = eligible_leaders(before, in_sync, minimum, lost)
    if leader == NO_BROKER and not in_sync:
        if not elr and last_known and last_known[0] in electable:
            leader = last_known[0]
        elif unclean:
            candidates = _unclean_candidates(before)
            leader = _first(candidates, candidates, electable)
        if leader != NO_BROKER:  # other replicas may differ from it, so none is eligible
            in_sync, elr = (leader,), ()
    if leader == NO_BROKER:
        after = _next(before, leader, in_sync, elr, last_known)
        return before if _equal(before, after) else after
    return _next(before, leader, in_sync, elr)


def elect_preferred(before: PartitionState, electable: Collection[BrokerId]) -> PartitionState:
    """Elect the preferred leader, the first replica, if it is electable and in the ISR."""
    preferred = before.replicas[0]
    if before.leader == preferred or preferred not in electable or preferred not in before.in_sync:
        return before
    return _next(before, preferred, before.in_sync, before.elr)


def hand_over(
    before: PartitionState, broker: BrokerId, *, electable: Collection[BrokerId], min_isr: int
) -> PartitionState:
    """Remove a live broker from the ISR; its leadership goes to another ISR member.

    Without an electable ISR member the broker stays leader: nobody else has all its records.
    """
    if broker not in before.in_sync:
        return before
    others = {other for other in electable if other != broker}
    if before.leader == broker and others.isdisjoint(before.in_sync):
        return before
    return elect_after_departure(before, (broker,), electable=others, min_isr=min_isr)


def change_in_sync(
    before: PartitionState, in_sync: tuple[BrokerId, ...], *, min_isr: int
) -> PartitionState:
    """Set the ISR that the leader proposed; the leader and its epoch stay (KIP-497)."""
    minimum = effective_min(min_isr, len(before.replicas))
    elr = eligible_leaders(before, in_sync, minimum)
    after = _next(before, before.leader, in_sync, elr)
    return replace(after, leader_epoch=before.leader_epoch)


def trust_in_sync_only(before: PartitionState, *, min_isr: int) -> PartitionState:
    """Clear the ELR if the ISR has the minimum, which may be a new one (rule A14)."""
    if not before.elr or len(before.in_sync) < effective_min(min_isr, len(before.replicas)):
        return before
    return _next(before, before.leader, before.in_sync, (), before.last_known_elr)


def eligible_leaders(
    before: PartitionState,
    in_sync: Collection[BrokerId],
    minimum: int,
    lost: Collection[BrokerId] = _NOBODY,
) -> tuple[BrokerId, ...]:
    """Return the ELR after the ISR changes to `in_sync` (rule A14).

    While the ISR is smaller than the minimum, the high watermark stays where it is. So a replica
    that was in the ISR has every acknowledged record until the ISR is large enough again.
    """
    if len(in_sync) >= minimum:
        return ()
    elr = before.elr if len(before.in_sync) < minimum else ()
    return tuple(
        broker
        for broker in before.replicas
        if (broker in before.in_sync or broker in elr)
        and broker not in in_sync
        and broker not in lost
    )


def is_unclean(
    before: PartitionState, after: PartitionState, lost: Collection[BrokerId] = _NOBODY
) -> bool:
    """Whether an election chose a leader that may lack acknowledged records (rule A13)."""
    if after.leader == NO_BROKER or before.version < 0:
        return False
    if after.leader not in before.in_sync and after.leader not in before.elr:
        return True
    return after.leader in lost and after.leader_epoch > before.leader_epoch


def _last_known_leader(before: PartitionState) -> tuple[BrokerId, ...]:
    """Return who leads if ISR and ELR become empty (rule A14)."""
    if before.leader != NO_BROKER:
        return (before.leader,)
    # A state that Kafka stored has a last ISR member, and no last known leader.
    return before.last_known_elr[:1] or before.in_sync[:1] or before.elr[:1]


def _unclean_candidates(before: PartitionState) -> tuple[BrokerId, ...]:
    """Return the replicas that an unclean election may take, in its order.

    A replica that a reassignment adds may be empty, so it comes last. The log of one that it
    removes may be deleted, unless such a replica is still in the ISR or the ELR (rule A15).
    """
    adding, removing = before.adding, before.removing
    if not adding and not removing:
        return before.replicas
    old = [one for one in before.replicas if one not in adding and one not in removing]
    if any(one in before.in_sync or one in before.elr for one in removing):
        old += removing
    return (*old, *adding)


def _first(
    replicas: Iterable[BrokerId], among: Collection[BrokerId], electable: Collection[BrokerId]
) -> BrokerId:
    for broker in replicas:
        if broker in among and broker in electable:
            return broker
    return NO_BROKER


def _next(
    before: PartitionState,
    leader: BrokerId,
    in_sync: tuple[BrokerId, ...],
    elr: tuple[BrokerId, ...],
    last_known_elr: tuple[BrokerId, ...] = (),
) -> PartitionState:
    return PartitionState(
        before.replicas,
        leader,
        LeaderEpoch(before.leader_epoch + 1),
        in_sync,
        before.version + 1,
        elr,
        last_known_elr,
        before.adding,
        before.removing,
    )


def _equal(one: PartitionState, other: PartitionState) -> bool:
    """Whether two states differ at most in their epochs."""
    return (
        one.leader == other.leader
        and one.in_sync == other.in_sync
        and one.elr == other.elr
        and one.last_known_elr == other.last_known_elr
    )
