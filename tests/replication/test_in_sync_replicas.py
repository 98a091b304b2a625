"""The ISR at a leader: the high watermark, slow followers, joining ones, and changes in flight."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ottla.cluster.image import PartitionState
from ottla.errors import ErrorCode
from ottla.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset
from ottla.replication.in_sync_replicas import (
    NO_BROKER_EPOCH,
    Follower,
    InSyncReplicas,
    IsrProposal,
    effective_min,
)

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
LEADER = ONE
LAG_S = 30.0


def state(
    *in_sync: int, version: int = 5, epoch: int = 7, replicas: tuple[int, ...] = (1, 2, 3)
) -> PartitionState:
    return PartitionState(
        tuple(map(BrokerId, replicas)),
        LEADER,
        LeaderEpoch(epoch),
        tuple(map(BrokerId, in_sync)),
        version,
    )


class Scene:
    """A leader whose log end offset the test sets."""

    def __init__(
        self,
        *in_sync: int,
        in_sync_min: int = 1,
        log_end: int = 10,
        high_watermark: int = 0,
        epoch_start: int = 0,
        is_eligible: Callable[[BrokerId, BrokerEpoch], bool] = lambda broker, epoch: True,
    ) -> None:
        self.now_s = 1000.0
        self.log_end = Offset(log_end)
        self.high_watermark = Offset(high_watermark)
        self.replicas = InSyncReplicas(
            state(*in_sync),
            LEADER,
            in_sync_min=in_sync_min,
            epoch_start=Offset(epoch_start),
            now_s=self.now_s,
            lag_s=LAG_S,
            is_eligible=is_eligible,
        )

    def fetch(self, broker_id: int, offset: int, *, epoch: int = 4, start: int = 0) -> bool:
        return self.replicas.fetched(
            BrokerId(broker_id),
            BrokerEpoch(epoch),
            Offset(offset),
            Offset(start),
            leader_end_offset=self.log_end,
            now_s=self.now_s,
        )

    def advance(self) -> int:
        self.high_watermark = self.replicas.high_watermark(
            self.high_watermark, self.log_end, self.now_s
        )
        return self.high_watermark

    def shrink(self) -> IsrProposal | None:
        return self.replicas.shrink(self.log_end, self.now_s)

    def expand(self, broker_id: int) -> IsrProposal | None:
        return self.replicas.expand(BrokerId(broker_id), self.high_watermark)

    def commit(self, *in_sync: int, version: int = 6, epoch: int = 7) -> bool:
        newer = state(*in_sync, version=version, epoch=epoch)
        return self.replicas.update(newer, self.log_end, self.now_s)


# The high watermark.


def test_a4_high_watermark_is_the_lowest_log_end_of_the_isr() -> None:
    scene = Scene(1, 2, 3)
    scene.fetch(2, 8)
    assert scene.advance() == 0, "the log end of broker 3 is unknown"
    scene.fetch(3, 6)
    assert scene.advance() == 6
    scene.fetch(3, 9)
    assert scene.advance() == 8
    scene.fetch(2, 3)  # it has lost its tail
    assert scene.advance() == 8, "the high watermark never falls"


def test_a4_replicas_outside_the_isr_do_not_count() -> None:
    scene = Scene(1, 2)
    scene.fetch(2, 10)
    scene.fetch(3, 2)
    assert scene.advance() == 10


def test_a4_caught_up_follower_outside_the_isr_is_waited_for() -> None:
    scene = Scene(1, 2, log_end=10)
    scene.fetch(3, 10)
    scene.log_end = Offset(20)
    scene.fetch(2, 20)
    assert scene.advance() == 10, "broker 3 is about to join"
    scene.now_s += LAG_S + 1
    assert scene.advance() == 20


def test_a4_shrink_that_is_not_committed_still_counts_the_slow_replica() -> None:
    scene = Scene(1, 2, 3)
    scene.fetch(2, 10)
    scene.fetch(3, 4)
    assert scene.advance() == 4
    scene.now_s += LAG_S + 1
    scene.fetch(2, 10)
    proposal = scene.shrink()
    assert proposal is not None
    assert proposal.in_sync == (1, 2)
    assert scene.advance() == 4, "the controller may elect broker 3"
    assert scene.replicas.maximal == {1, 2, 3}
    scene.commit(1, 2)
    assert scene.advance() == 10


def test_a4_proposed_member_counts_before_it_is_committed() -> None:
    scene = Scene(1, 2, high_watermark=5)
    scene.fetch(2, 10)
    scene.fetch(3, 5)
    assert scene.expand(3) is not None
    scene.now_s += LAG_S + 1  # it is not caught up any more
    assert scene.advance() == 5, "the controller may have committed it"


def test_a4_high_watermark_is_frozen_below_the_minimum() -> None:
    scene = Scene(1, in_sync_min=2)
    assert scene.replicas.is_below_min
    assert scene.advance() == 0
    scene.commit(1, 2)
    scene.fetch(2, 9)
    assert scene.advance() == 9


def test_a4_log_ends_are_unknown_again_in_a_new_epoch() -> None:
    scene = Scene(1, 2, 3)
    scene.fetch(2, 5)
    scene.fetch(3, 5)
    assert scene.advance() == 5
    scene.commit(1, 2, 3, epoch=8)
    scene.fetch(2, 10)
    assert scene.advance() == 5
    scene.fetch(3, 10)
    assert scene.advance() == 10


@pytest.mark.parametrize(
    ("configured", "replicas", "found"), [(1, 3, 1), (2, 3, 2), (3, 3, 3), (4, 3, 3), (2, 1, 1)]
)
def test_a8_effective_minimum(configured: int, replicas: int, found: int) -> None:
    assert effective_min(configured, replicas) == found


# Shrinking.


def test_a9_slow_follower_leaves_the_isr_after_the_lag_time() -> None:
    scene = Scene(1, 2, 3)
    scene.fetch(2, 10)
    scene.fetch(3, 9)
    scene.now_s += LAG_S
    assert scene.shrink() is None
    scene.now_s += 0.001
    proposal = scene.shrink()
    assert proposal == IsrProposal(
        (ONE, TWO), (NO_BROKER_EPOCH, BrokerEpoch(4)), LeaderEpoch(7), 5
    ), "broker 2 has every record, however long ago it fetched"


def test_a9_follower_that_never_fetched_leaves_the_isr() -> None:
    scene = Scene(1, 2)
    scene.now_s += LAG_S + 1
    proposal = scene.shrink()
    assert proposal is not None
    assert proposal.in_sync == (1,)


def test_a9_caught_up_means_the_log_end_of_this_fetch_or_the_last() -> None:
    follower = Follower()
    follower.note_fetch(Offset(10), Offset(10), 1.0)
    assert follower.caught_up_s == 1.0
    follower.note_fetch(Offset(10), Offset(20), 2.0)  # it had all that was there at 1.0
    assert follower.caught_up_s == 1.0
    follower.note_fetch(Offset(20), Offset(30), 3.0)  # it has all that was there at 2.0
    assert follower.caught_up_s == 2.0
    follower.note_fetch(Offset(25), Offset(40), 4.0)
    assert follower.caught_up_s == 2.0
    follower.note_fetch(Offset(39), Offset(50), 5.0)
    assert follower.caught_up_s == 2.0
    follower.note_fetch(Offset(50), Offset(60), 6.0)
    assert follower.caught_up_s == 5.0


def test_a9_follower_behind_a_busy_leader_stays() -> None:
    """It never reaches the log end, and yet always has what was there at its last fetch."""
    scene = Scene(1, 2)
    for _ in range(100):
        scene.fetch(2, scene.log_end - 5)
        scene.log_end = Offset(scene.log_end + 5)
        scene.now_s += 1
        assert scene.shrink() is None


def test_a9_idle_session_counts_as_a_fetch() -> None:
    follower = Follower()
    follower.note_fetch(Offset(10), Offset(10), 1.0)
    follower.note_unchanged(50.0)
    assert not follower.is_caught_up(Offset(11), 81.0, LAG_S)
    assert follower.is_caught_up(Offset(11), 80.0, LAG_S)
    follower.note_fetch(Offset(10), Offset(12), 90.0)
    assert follower.caught_up_s == 50.0


# Expanding.


def test_a10_follower_joins_at_the_high_watermark_and_the_epoch_start() -> None:
    scene = Scene(1, 2, high_watermark=6, epoch_start=8)
    assert scene.expand(3) is None, "it has not fetched in this epoch"
    scene.fetch(3, 5)
    assert scene.expand(3) is None
    scene.fetch(3, 7)
    assert scene.expand(3) is None, "the leader's epoch starts later"
    scene.fetch(3, 8, epoch=9)
    assert scene.expand(3) == IsrProposal(
        (ONE, TWO, THREE),
        (NO_BROKER_EPOCH, NO_BROKER_EPOCH, BrokerEpoch(9)),
        LeaderEpoch(7),
        5,
        is_expansion=True,
    )
    scene = Scene(1, 2, high_watermark=9, epoch_start=8)
    scene.fetch(3, 8)
    assert scene.expand(3) is None, "records below the high watermark are missing"


def test_a10_broker_must_be_registered_in_the_epoch_of_its_fetch() -> None:
    registered = BrokerEpoch(5)
    scene = Scene(1, 2, is_eligible=lambda broker, epoch: epoch == registered)
    scene.fetch(3, 10, epoch=4)
    assert scene.expand(3) is None, "that incarnation may have lost its tail"
    scene.fetch(3, 10, epoch=5)
    assert scene.expand(3) is not None


def test_a10_fetch_of_an_earlier_incarnation_is_refused() -> None:
    scene = Scene(1, 2, 3)
    assert scene.fetch(3, 2, epoch=5)
    assert not scene.fetch(3, 10, epoch=4), "it was in flight while the broker restarted"
    assert scene.replicas.followers[THREE].log_end_offset == 2
    assert scene.fetch(3, 3, epoch=5)


def test_a10_new_epoch_needs_a_new_fetch() -> None:
    scene = Scene(1, 2)
    scene.fetch(3, 10)
    scene.commit(1, 2, epoch=8)
    assert scene.expand(3) is None


# Changes in flight.


def test_a11_one_change_at_a_time() -> None:
    scene = Scene(1, 2)
    scene.fetch(3, 10)
    assert scene.expand(3) is not None
    scene.now_s += LAG_S + 1
    assert scene.shrink() is None
    assert scene.expand(3) is None


def test_a11_unknown_outcome_stays_until_newer_metadata() -> None:
    scene = Scene(1, 2, 3)
    scene.fetch(2, 10)
    scene.now_s += LAG_S + 1
    assert scene.shrink() is not None
    for code in (
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.REQUEST_TIMED_OUT,
    ):
        assert not scene.replicas.refuse(code), code
    assert scene.replicas.maximal == {1, 2, 3}
    assert not scene.commit(1, 2, version=5), "it is not newer"
    assert scene.replicas.proposed is not None
    assert scene.commit(1, 2, version=6)
    assert scene.replicas.proposed is None
    assert scene.replicas.maximal == {1, 2}


def test_a11_refused_change_is_dropped() -> None:
    for code in (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED):
        scene = Scene(1, 2)
        scene.fetch(3, 10)
        assert scene.expand(3) is not None
        assert scene.replicas.refuse(code)
        assert scene.replicas.maximal == {1, 2}
        assert scene.expand(3) is not None, "the next fetch may propose it again"


def test_older_state_is_ignored() -> None:
    scene = Scene(1, 2, 3)
    assert not scene.commit(1, version=4)
    assert not scene.commit(1, version=6, epoch=6)
    assert scene.replicas.committed == (1, 2, 3)


def test_a15_removed_and_added_replica_starts_without_a_state() -> None:
    scene = Scene(1, 2, 3)
    scene.fetch(2, 5)
    scene.fetch(3, 10)
    now_s = scene.now_s
    without = state(1, 2, version=6, replicas=(1, 2))
    assert scene.replicas.update(without, Offset(0), now_s)
    assert set(scene.replicas.followers) == {2}
    assert scene.replicas.update(replace(without, replicas=(ONE, TWO, THREE), version=7), Offset(0),
                                 now_s)  # fmt: skip
    assert scene.replicas.followers[TWO].log_end_offset == 5
    assert scene.replicas.followers[THREE].log_end_offset is None


def test_a17_low_watermark_is_the_lowest_log_start_of_live_replicas() -> None:
    scene = Scene(1, 2, 3)
    alive: set[int] = {1, 2, 3}

    def low() -> int:
        return scene.replicas.low_watermark(Offset(7), lambda broker: broker in alive)

    assert low() == 0, "nothing is known of the followers"
    scene.fetch(2, 10, start=7)
    scene.fetch(3, 10, start=4)
    assert low() == 4
    alive.remove(3)
    assert low() == 7


# Random histories.

EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("fetch"), st.sampled_from((2, 3)), st.integers(0, 12)),
        st.tuples(st.just("append"), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, 40), st.just(0)),
        st.tuples(st.just("shrink"), st.just(0), st.just(0)),
        st.tuples(st.just("expand"), st.sampled_from((2, 3)), st.just(0)),
        st.tuples(st.just("commit"), st.just(0), st.just(0)),
        st.tuples(st.just("refuse"), st.just(0), st.just(0)),
        st.tuples(st.just("epoch"), st.just(0), st.just(0)),
    ),
    max_size=40,
)


@given(EVENTS, st.integers(1, 3))
def test_a4_every_possible_leader_has_the_committed_records(
    events: list[tuple[str, int, int]], in_sync_min: int
) -> None:
    """Each replica that the controller can elect has reported every record that is committed."""
    scene = Scene(1, 2, 3, in_sync_min=in_sync_min, log_end=3)
    replicas = scene.replicas
    reported: dict[int, int] = {}  # the log ends that followers have reported in this epoch
    floor = 0  # the high watermark when the epoch began
    version, epoch = 5, 7
    for kind, number, offset in events:
        before = scene.high_watermark
        below_min = len(replicas.committed) < in_sync_min
        if kind == "fetch":
            # A follower does not lose records that it has reported in this epoch.
            end = min(max(offset, reported.get(number, 0), floor), scene.log_end)
            reported[number] = end
            scene.fetch(number, end)
        elif kind == "append":
            scene.log_end = Offset(scene.log_end + number)
        elif kind == "wait":
            scene.now_s += number
        elif kind == "shrink":
            scene.shrink()
        elif kind == "expand" and number in reported:
            scene.expand(number)
        elif kind == "commit" and replicas.proposed is not None:
            version += 1
            assert scene.commit(*replicas.proposed.in_sync, version=version, epoch=epoch)
        elif kind == "refuse":
            replicas.refuse(ErrorCode.INELIGIBLE_REPLICA)
        elif kind == "epoch":
            version, epoch = version + 1, epoch + 1
            scene.commit(*replicas.committed, version=version, epoch=epoch)
            reported.clear()
            floor = before
        after = scene.advance()
        assert before <= after <= scene.log_end
        if len(replicas.committed) < in_sync_min and below_min:
            assert after == before
        assert ONE in replicas.committed
        for member in replicas.maximal - {ONE}:
            assert after <= max(reported.get(member, 0), floor), member
