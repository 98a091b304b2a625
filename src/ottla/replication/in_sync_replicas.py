"""The in-sync replicas of a partition as its leader knows them, without I/O.

The leader notes what each follower has fetched. From this it derives the high watermark (rule A4),
and asks the controller to remove slow followers from the ISR (rule A9) or to add followers that
have caught up (rule A10).

Invariant: at most one change of the ISR is in flight (rule A11). Until its outcome is known, the
high watermark waits for the members of the committed ISR and of the proposed one.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import Final

from ottla.cluster.election import effective_min
from ottla.cluster.image import PartitionState
from ottla.errors import ErrorCode
from ottla.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset

NO_BROKER_EPOCH: Final = BrokerEpoch(-1)
"""The broker epoch of a member that has not fetched; the controller does not check it."""

LAG_SECONDS: Final = 30.0
"""The default of replica.lag.time.max.ms."""

Eligible = Callable[[BrokerId, BrokerEpoch], bool]
"""Whether a broker is registered in this epoch and not shutting down, as far as is known here."""


@dataclass(slots=True)
class Follower:
    """What the leader knows of a follower in the current leader epoch."""

    log_end_offset: Offset | None = None  # None: it has not fetched in this leader epoch
    log_start_offset: Offset | None = None
    caught_up_s: float = -inf  # when it last had every record of the leader
    fetched_s: float = -inf  # time of its last fetch
    leader_end_offset: int = -1  # the leader's log end offset at that fetch
    broker_epoch: BrokerEpoch = NO_BROKER_EPOCH

    def note_fetch(self, offset: Offset, leader_end_offset: Offset, now_s: float) -> None:
        """Note a fetch from an offset: the follower has every record below it."""
        if offset >= leader_end_offset:
            self.caught_up_s = max(self.caught_up_s, now_s)
        elif offset >= self.leader_end_offset:
            # It has got everything that there was at its last fetch.
            self.caught_up_s = max(self.caught_up_s, self.fetched_s)
        self.log_end_offset = offset
        self.leader_end_offset = max(self.leader_end_offset, leader_end_offset)
        self.fetched_s = now_s

    def note_unchanged(self, fetched_s: float) -> None:
        """Note that it had every record at its last fetch, which did not name the partition."""
        self.caught_up_s = max(self.caught_up_s, fetched_s)
        self.fetched_s = max(self.fetched_s, fetched_s)

    def is_caught_up(self, leader_end_offset: Offset, now_s: float, lag_s: float) -> bool:
        """Whether it has every record now, or had within the allowed time (rule A9)."""
        return self.log_end_offset == leader_end_offset or now_s - self.caught_up_s <= lag_s


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """A change of the ISR that the leader asks the controller for."""

    in_sync: tuple[BrokerId, ...]
    broker_epochs: tuple[BrokerEpoch, ...]  # of `in_sync`, from their fetches; -1 for the leader
    leader_epoch: LeaderEpoch
    partition_epoch: int  # of the committed state that it changes
    is_expansion: bool = False  # whether a follower joins; otherwise some leave

    @property
    def members(self) -> Iterable[tuple[BrokerId, BrokerEpoch]]:
        """The broker ids with their epochs."""
        return zip(self.in_sync, self.broker_epochs, strict=True)


_REVERTED: Final = frozenset((ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED))
"""Refusals after which the committed ISR certainly stays."""


class InSyncReplicas:
    """The ISR of a partition with several replicas, at its leader."""

    __slots__ = (
        "_epoch_start",
        "_is_eligible",
        "_lag_s",
        "_maximal",
        "_node_id",
        "followers",
        "in_sync_min",
        "proposed",
        "state",
    )

    def __init__(
        self,
        state: PartitionState,
        node_id: BrokerId,
        *,
        in_sync_min: int,
        epoch_start: Offset,
        now_s: float,
        lag_s: float = LAG_SECONDS,
        is_eligible: Eligible = lambda broker_id, epoch: True,
    ) -> None:
        self._node_id = node_id
        self._lag_s = lag_s
        self._is_eligible = is_eligible
        self._epoch_start = epoch_start
        self.in_sync_min = in_sync_min
        self.state = state  # the committed one
        self.proposed: IsrProposal | None = None  # in flight, or with an unknown outcome
        self.followers: dict[BrokerId, Follower] = {}
        self._maximal = frozenset(state.in_sync)
        self._begin_epoch(now_s)

    # State of the cluster.

    @property
    def committed(self) -> tuple[BrokerId, ...]:
        """The ISR that the controller has stored."""
        return self.state.in_sync

    @property
    def maximal(self) -> frozenset[BrokerId]:
        """The committed and the proposed ISR together."""
        return self._maximal

    @property
    def is_below_min(self) -> bool:
        """Whether the committed ISR is smaller than the effective minimum (rule A8)."""
        return len(self.state.in_sync) < self.effective_min

    @property
    def effective_min(self) -> int:
        """The in-sync replicas that acks=all needs (rule A8)."""
        return effective_min(self.in_sync_min, len(self.state.replicas))

    def update(self, state: PartitionState, epoch_start: Offset, now_s: float) -> bool:
        """Take over a newer committed state; return whether it is newer.

        It ends a proposal whose outcome was unknown (rule A11). In a new leader epoch the log ends
        of the followers are unknown again (rule A4).
        """
        before = self.state
        if state.version <= before.version or state.leader_epoch < before.leader_epoch:
            return False
        self.state = state
        self._propose(None)
        if state.leader_epoch > before.leader_epoch:
            self._epoch_start = epoch_start
            self._begin_epoch(now_s)
        elif state.replicas != before.replicas:
            # A replica that was removed and is added again starts without a state (rule A15).
            kept = self.followers
            self.followers = {
                broker_id: kept.get(broker_id) or self._new_follower(broker_id, now_s)
                for broker_id in state.replicas
                if broker_id != self._node_id
            }
        return True

    def _begin_epoch(self, now_s: float) -> None:
        self.followers = {
            broker_id: self._new_follower(broker_id, now_s)
            for broker_id in self.state.replicas
            if broker_id != self._node_id
        }

    def _new_follower(self, broker_id: BrokerId, now_s: float) -> Follower:
        # A member of the ISR has the whole lag time to fetch for the first time.
        in_sync = broker_id in self.state.in_sync
        return Follower(caught_up_s=now_s if in_sync else -inf)

    # Fetches and the high watermark.

    def fetched(
        self,
        broker_id: BrokerId,
        broker_epoch: BrokerEpoch,
        offset: Offset,
        log_start_offset: Offset,
        *,
        leader_end_offset: Offset,
        now_s: float,
    ) -> bool:
        """Note the fetch of a follower; False if an earlier incarnation of its broker sent it."""
        follower = self.followers[broker_id]
        if 0 <= broker_epoch < follower.broker_epoch:
            return False
        follower.broker_epoch = broker_epoch
        follower.log_start_offset = log_start_offset
        follower.note_fetch(offset, leader_end_offset, now_s)
        return True

    def high_watermark(self, current: Offset, log_end_offset: Offset, now_s: float) -> Offset:
        """Return the high watermark: the lowest log end offset of the replicas that count (A4).

        These are the maximal ISR, and followers that have caught up and will join it. The high
        watermark never falls. It does not move while the ISR is too small, or while the log end
        offset of a member is unknown.
        """
        if self.is_below_min:
            return current
        lowest = log_end_offset
        for broker_id, follower in self.followers.items():
            end = follower.log_end_offset
            if end is not None and end >= lowest:
                continue
            if broker_id in self._maximal:
                if end is None:
                    return current
                lowest = end
            elif end is not None and self._will_join(broker_id, follower, log_end_offset, now_s):
                lowest = end
        return max(current, lowest)

    def _will_join(
        self, broker_id: BrokerId, follower: Follower, log_end_offset: Offset, now_s: float
    ) -> bool:
        return follower.is_caught_up(log_end_offset, now_s, self._lag_s) and self._is_eligible(
            broker_id, follower.broker_epoch
        )

    def have_fetched_since(self, time_s: float) -> bool:
        """Whether every other member of the ISR has fetched in this leader epoch after a time."""
        return all(
            follower.fetched_s > time_s
            for broker_id, follower in self.followers.items()
            if broker_id in self._maximal
        )

    def low_watermark(
        self, log_start_offset: Offset, is_alive: Callable[[BrokerId], bool]
    ) -> Offset:
        """Return the lowest log start offset of the live replicas; unknown ones count as 0."""
        lowest = log_start_offset
        for broker_id, follower in self.followers.items():
            start = follower.log_start_offset
            if (start is None or start < lowest) and is_alive(broker_id):
                lowest = Offset(0) if start is None else start
        return lowest

    # Changes of the ISR.

    def shrink(self, log_end_offset: Offset, now_s: float) -> IsrProposal | None:
        """Propose an ISR without the followers that are not caught up (rule A9)."""
        if self.proposed is not None:
            return None
        followers = self.followers
        kept = tuple(
            broker_id
            for broker_id in self.state.in_sync
            if (follower := followers.get(broker_id)) is None
            or follower.is_caught_up(log_end_offset, now_s, self._lag_s)
        )
        return None if len(kept) == len(self.state.in_sync) else self._proposal(kept)

    def expand(self, broker_id: BrokerId, high_watermark: Offset) -> IsrProposal | None:
        """Propose an ISR with a follower that has caught up (rule A10)."""
        if self.proposed is not None or broker_id in self.state.in_sync:
            return None
        follower = self.followers[broker_id]
        end = follower.log_end_offset
        if end is None or end < high_watermark or end < self._epoch_start:
            return None
        if not self._is_eligible(broker_id, follower.broker_epoch):
            return None
        return self._proposal((*self.state.in_sync, broker_id))

    def expand_caught_up(
        self, high_watermark: Offset, leader_end_offset: Offset, now_s: float
    ) -> IsrProposal | None:
        """Do the same with the first follower that has caught up and may join."""
        for broker_id, follower in self.followers.items():
            if follower.is_caught_up(leader_end_offset, now_s, self._lag_s):
                proposal = self.expand(broker_id, high_watermark)
                if proposal is not None:
                    return proposal
        return None

    def _proposal(self, in_sync: tuple[BrokerId, ...]) -> IsrProposal:
        followers = self.followers
        epochs = tuple(
            NO_BROKER_EPOCH if one not in followers else followers[one].broker_epoch
            for one in in_sync
        )
        state = self.state
        is_expansion = len(in_sync) > len(state.in_sync)
        proposal = IsrProposal(in_sync, epochs, state.leader_epoch, state.version, is_expansion)
        self._propose(proposal)
        return proposal

    def refuse(self, code: ErrorCode) -> bool:
        """Note that the controller refused the proposal; return whether it is dropped.

        With most errors it stays until newer metadata arrives (rule A11): the controller has
        another state, in which the proposed ISR may be committed.
        """
        if code not in _REVERTED:
            return False
        self._propose(None)
        return True

    def _propose(self, proposal: IsrProposal | None) -> None:
        self.proposed = proposal
        in_sync = self.state.in_sync
        self._maximal = frozenset(in_sync if proposal is None else (*in_sync, *proposal.in_sync))
