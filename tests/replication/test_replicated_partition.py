"""A partition with several replicas, at its leader."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from msgspec.structs import replace

from ottla.errors import ErrorCode, RequestError
from ottla.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset
from ottla.log.epochs import EpochEnd
from ottla.log.log_config import LogConfig
from ottla.log.segment.timestamps import FoundOffset
from ottla.records.batch import batches
from ottla.replication import partition
from ottla.replication.fetch_purgatory import DelayedFetch, ReplicaWatch
from ottla.replication.partition import EARLIEST, LATEST, LeaderMoved, Partition
from replication.leaders import EPOCH, LAG_S, Leader, replicated, run
from replication.test_partition import read, refused, refused_later


class Waiter:
    """Waits for an offset; records how the wait ended."""

    def __init__(self, led: Partition, offset: int) -> None:
        self.offset = offset
        self.ended: list[Exception | None] = []
        led.commit_waiters.add(self)

    def finish(self, failure: Exception | None) -> None:
        self.ended.append(failure)

    @property
    def code(self) -> ErrorCode | None:
        """The error that ended it; NONE without an error; None while it waits."""
        if not self.ended:
            return None
        (failure,) = self.ended
        if failure is None:
            return ErrorCode.NONE
        assert isinstance(failure, RequestError)
        return failure.code


# Epochs and the high watermark.


def test_a1_epoch_without_records_has_its_start_in_the_history() -> None:
    async def scenario(leader: Leader) -> None:
        led = leader.led
        assert led.epoch_start == 3
        led.update(leader.changed(1, 2, 3, leader_epoch=LeaderEpoch(4)))
        led.update(leader.changed(1, 2, 3, leader_epoch=LeaderEpoch(6)))
        assert (led.leader_epoch, led.epoch_start) == (6, 3)
        # A follower with a tail of epoch 3 or 5 finds its cut where epoch 1 ends.
        for epoch in (1, 3, 5):
            assert led.log.end_offset(epoch) == EpochEnd(LeaderEpoch(1), Offset(3)), epoch
        leader.append(b"x")
        (batch,) = batches(led.log.read_cached(3, 4, 1 << 20).cached() or b"")
        assert batch.header.leader_epoch == 6
        assert led.log.end_offset(6) == EpochEnd(LeaderEpoch(6), Offset(4))

    run(scenario, replicated(1, 2, 3), before=3)


def test_a4_high_watermark_starts_at_the_replicas_own() -> None:
    async def scenario(leader: Leader) -> None:
        assert leader.led.high_watermark == 2
        leader.fetch(2)
        leader.fetch(3, 2)
        assert leader.led.high_watermark == 2
        leader.fetch(3)
        assert leader.led.high_watermark == 5

    run(scenario, replicated(1, 2, 3), before=5, high_watermark=2)


def test_a4_leader_that_is_alone_commits_at_once() -> None:
    async def scenario(leader: Leader) -> None:
        assert leader.led.high_watermark == 2
        leader.append()
        assert leader.led.high_watermark == 3

    run(scenario, replicated(1), before=2)


@pytest.mark.parametrize("in_sync", [(1,), (1, 2, 3)], ids=["alone", "three"])
@pytest.mark.parametrize("before", [0, 4])
def test_c5_high_watermark_waits_for_the_leaders_flush(
    in_sync: tuple[int, ...], before: int
) -> None:
    """Otherwise a consumer reads records that the leader loses with its power."""

    async def scenario(leader: Leader) -> None:
        led = leader.led
        if not before:
            leader.append()
        waiter = Waiter(led, led.log.log_end_offset)
        for follower in (2, 3):
            leader.fetch(follower)
        assert (led.high_watermark, led.log.recovery_point, waiter.code) == (0, 0, None)
        await leader.clock.sleep(0.1)
        assert led.high_watermark == led.log.recovery_point == led.log.log_end_offset
        assert waiter.code == ErrorCode.NONE
        leader.append()
        led.resign(leader.changed(2, 3, leader=BrokerId(2)))
        await leader.clock.sleep(0.1)
        assert led.high_watermark == led.log.log_end_offset - 1

    run(scenario, replicated(*in_sync), rules=LogConfig(flush_messages=1), before=before)


def test_c5_failed_flush_of_the_leader_fails_its_producers() -> None:
    async def scenario(leader: Leader) -> None:
        led = leader.led
        leader.disk.fails = lambda name, path: name == "sync"
        leader.append()
        waiter = Waiter(led, 1)
        for follower in (2, 3):
            leader.fetch(follower)
        await leader.clock.sleep(0.1)
        assert (led.high_watermark, waiter.code) == (0, ErrorCode.KAFKA_STORAGE_ERROR)

    run(scenario, replicated(1, 2, 3), rules=LogConfig(flush_messages=1))


def test_a4_refused_shrink_keeps_acknowledged_records_on_the_slow_replica() -> None:
    async def scenario(leader: Leader) -> None:
        led = leader.led
        leader.append()
        leader.fetch(2)
        leader.fetch(3)
        leader.append()
        await leader.clock.sleep(LAG_S + 1)
        leader.fetch(2)
        led.check_isr(leader.clock.elapsed_s())
        assert [one.in_sync for one in leader.proposals] == [(1, 2)]
        waiter = Waiter(led, 2)
        leader.fetch(2)
        assert (led.high_watermark, waiter.code) == (1, None)
        led.isr_answered(ErrorCode.INELIGIBLE_REPLICA)
        leader.fetch(2)
        assert (led.high_watermark, waiter.code) == (1, None), "broker 3 may be elected"
        leader.fetch(3)
        assert (led.high_watermark, waiter.code) == (2, ErrorCode.NONE)

    run(scenario, replicated(1, 2, 3))


def test_a5_next_role_continues_at_the_high_watermark() -> None:
    async def scenario(leader: Leader) -> None:
        leader.append()
        leader.append()
        leader.fetch(2, 1)
        leader.fetch(3)
        leader.led.resign(leader.changed(2, 3, leader=BrokerId(2)))
        assert leader.logs[leader.led.name].high_watermark == 1

    run(scenario, replicated(1, 2, 3))


def test_a6_consumers_read_below_the_high_watermark() -> None:
    async def scenario(leader: Leader) -> None:
        led = leader.led
        leader.append(b"a")
        leader.append(b"b")
        for offset in range(3):
            assert read(led, offset) == [], "there is nothing to read yet, and no error"
        refused(ErrorCode.OFFSET_OUT_OF_RANGE, lambda: read(led, 3))
        woken = asyncio.create_task(DelayedFetch([led], 1).wait(60))
        leader.append(b"c")
        await asyncio.sleep(0)
        assert not woken.done(), "consumers wait for the high watermark"
        leader.fetch(2)
        leader.fetch(3, 2)
        await woken
        assert read(led) == [b"a", b"b"]
        assert led.last_stable_offset == 2

    run(scenario, replicated(1, 2, 3))


def test_waiting_consumers_count_the_bytes_that_are_committed() -> None:
    async def scenario(leader: Leader) -> None:
        led = leader.led
        for _ in range(4):
            leader.append(b"x" * 100)
        size = led.traffic.bytes_in
        many = asyncio.create_task(DelayedFetch([led], size).wait(60))
        few = asyncio.create_task(DelayedFetch([led], size // 2).wait(60))
        leader.fetch(2, 2)
        await asyncio.sleep(0)
        await few
        assert not many.done()
        leader.fetch(2)
        await many

    run(scenario, replicated(1, 2, replicas=(1, 2)))


def test_a7_latest_is_not_available_before_the_epoch_start() -> None:
    async def scenario(leader: Leader) -> None:
        led = leader.led
        behind = ErrorCode.OFFSET_NOT_AVAILABLE
        await refused_later(behind, led.find(LATEST, committed=False))
        await refused_later(behind, led.find(LATEST, committed=True))
        await refused_later(behind, led.find(1, committed=False))
        assert await led.find(EARLIEST, committed=False) is not None
        assert await led.find(0, committed=False) is not None
        leader.append()
        leader.fetch(2, 2)
        leader.fetch(3, 2)
        await refused_later(behind, led.find(LATEST, committed=False))
        leader.fetch(2, 3)
        leader.fetch(3, 3)
        assert await led.find(LATEST, committed=False) == FoundOffset(Offset(3), -1, EPOCH)

    run(scenario, replicated(1, 2, 3), before=3, high_watermark=1)


# Acknowledgements.


def test_a8_too_few_in_sync_replicas_append_nothing() -> None:
    async def scenario(leader: Leader) -> None:
        led = leader.led
        said = refused(ErrorCode.NOT_ENOUGH_REPLICAS, leader.append)
        assert said == "min.insync.replicas is 2, 1 replica is in sync"
        assert led.log.log_end_offset == 0
        assert leader.append(acks=1) == 0
        assert led.high_watermark == 0, "frozen below the minimum"
        leader.fetch(2)
        leader.commit(1, 2)
        assert led.high_watermark == 1
        assert leader.append() == 1

    run(scenario, replicated(1), in_sync_min=2)


def test_a8_waits_end_when_the_isr_falls_below_the_minimum() -> None:
    async def scenario(leader: Leader) -> None:
        led = leader.led
        leader.append()
        waiter = Waiter(led, 1)
        leader.fetch(2)
        leader.commit(1, 2)
        assert waiter.code is ErrorCode.NONE
        leader.append()
        waiter = Waiter(led, 2)
        leader.commit(1)
        assert waiter.code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert led.high_watermark == 1

    run(scenario, replicated(1, 2, 3), in_sync_min=2)


def test_a8_waits_end_when_the_minimum_is_raised() -> None:
    async def scenario(leader: Leader) -> None:
        led = leader.led
        leader.append()
        waiter = Waiter(led, 1)
        led.set_in_sync_min(9)
        assert led.in_sync_min == 3, "capped by the number of replicas"
        assert waiter.code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        led.set_in_sync_min(1)
        leader.fetch(2)
        assert led.high_watermark == 1

    run(scenario, replicated(1, 2))


def test_a8_demotion_fails_waits_with_the_new_leader() -> None:
    async def scenario(leader: Leader) -> None:
        led = leader.led
        leader.append()
        waiter = Waiter(led, 1)
        committed = asyncio.create_task(led.committed(1))
        consumer = asyncio.create_task(DelayedFetch([led], 1).wait(60))
        await asyncio.sleep(0)
        led.resign(leader.changed(2, 3, leader=BrokerId(2), leader_epoch=LeaderEpoch(8)))
        assert waiter.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        (moved,) = waiter.ended
        assert isinstance(moved, LeaderMoved)
        assert (moved.leader, moved.leader_epoch) == (2, 8)
        await refused_later(ErrorCode.NOT_LEADER_OR_FOLLOWER, _awaited(committed))
        await consumer

    run(scenario, replicated(1, 2, 3))


async def _awaited(task: "asyncio.Task[None]") -> None:
    await task


def test_a8_epoch_that_keeps_the_leader_keeps_the_waits() -> None:
    async def scenario(leader: Leader) -> None:
        led = leader.led
        leader.append()
        waiter = Waiter(led, 1)
        leader.fetch(2)
        led.update(leader.changed(1, 2, 3, leader_epoch=LeaderEpoch(3)))
        leader.fetch(3)
        assert waiter.code is None, "broker 2 has not fetched in this epoch"
        leader.fetch(2)
        assert waiter.code is ErrorCode.NONE

    run(scenario, replicated(1, 2, 3))


def test_appends_of_the_broker_wait_until_they_are_committed() -> None:
    async def scenario(leader: Leader) -> None:
        led = leader.led
        await led.committed(0)
        leader.append()
        committed = asyncio.create_task(led.committed(1))
        cancelled = asyncio.create_task(led.committed(1))
        await asyncio.sleep(0)
        cancelled.cancel()
        leader.fetch(2)
        await asyncio.sleep(0)
        assert not committed.done()
        leader.fetch(3)
        await committed
        assert cancelled.cancelled()
        assert not led.commit_waiters

    run(scenario, replicated(1, 2, 3))


def test_d1_duplicate_is_not_committed_before_its_original() -> None:
    async def scenario(leader: Leader) -> None:
        led = leader.led
        how: dict[str, Any] = {"producer_id": 7, "epoch": 0, "sequence": 0}
        first = leader.append(b"x", **how)
        assert leader.append(b"x", **how) == first
        assert (led.log.log_end_offset, led.high_watermark) == (1, 0)

    run(scenario, replicated(1, 2, 3))


def numbered(leader: Leader, sequence: int, producer_id: int = 7) -> ErrorCode:
    """Append a batch with a sequence number; return the error."""
    try:
        leader.append(b"x", producer_id=producer_id, epoch=0, sequence=sequence)
    except RequestError as error:
        return error.code
    return ErrorCode.NONE


async def followed(leader: Leader, *brokers: int) -> None:
    """Let followers fetch a second later."""
    await leader.clock.sleep(1)
    for broker in brokers:
        leader.fetch(broker)


def test_d5_sequence_is_refused_for_good_when_all_in_sync_replicas_have_fetched_twice() -> None:
    gap, unproven = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.LEADER_NOT_AVAILABLE

    async def scenario(leader: Leader) -> None:
        assert numbered(leader, 0) is ErrorCode.NONE
        await followed(leader, 2, 3)
        assert numbered(leader, 5) is unproven, "fetches before the refusal prove nothing"
        await followed(leader, 2)
        assert numbered(leader, 5) is unproven
        await followed(leader, 3)
        assert numbered(leader, 5) is unproven, "these fetches may have been sent before"
        await followed(leader, 3)
        assert numbered(leader, 5) is unproven
        await followed(leader, 2)
        assert numbered(leader, 5) is gap
        assert numbered(leader, 5) is unproven, "each refusal needs a proof of its own"
        assert numbered(leader, 1) is ErrorCode.NONE

    run(scenario, replicated(1, 2, 3))


def test_d5_proof_is_of_one_batch_and_one_epoch() -> None:
    unproven = ErrorCode.LEADER_NOT_AVAILABLE

    async def scenario(leader: Leader) -> None:
        numbered(leader, 0)
        assert numbered(leader, 5) is unproven
        await followed(leader, 2, 3)
        assert numbered(leader, 5) is unproven
        await followed(leader, 2, 3)
        assert numbered(leader, 6) is unproven, "another batch"
        await followed(leader, 2, 3)
        assert numbered(leader, 6) is unproven
        await leader.clock.sleep(1)
        leader.led.update(leader.changed(1, 2, 3, leader_epoch=LeaderEpoch(3)))
        assert numbered(leader, 6) is unproven, "nobody follows the new epoch"

    run(scenario, replicated(1, 2, 3))


def test_d5_leader_that_is_alone_in_the_isr_needs_no_proof() -> None:
    async def scenario(leader: Leader) -> None:
        leader.led.set_in_sync_min(1)
        numbered(leader, 0)
        assert numbered(leader, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    run(scenario, replicated(1))


def test_d5_idle_followers_fetch_at_once_for_a_refusal() -> None:
    async def scenario(leader: Leader) -> None:
        watch = ReplicaWatch(BrokerId(2))
        watch.register(leader.led, ("t", 0))
        waiter = watch.waiter = DelayedFetch([], 1)
        numbered(leader, 0)
        await followed(leader, 2, 3)
        watch.unmark(("t", 0), watch.marks)
        numbered(leader, 5)
        assert watch.is_marked(leader.led)
        async with asyncio.timeout(1):
            await waiter.wait(3600)

    run(scenario, replicated(1, 2, 3))


def test_d5_remembered_refusals_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "_REFUSALS_MAX", 2)

    async def scenario(leader: Leader) -> None:
        for producer_id in (7, 8, 9):
            numbered(leader, 0, producer_id)
            assert numbered(leader, 5, producer_id) is ErrorCode.LEADER_NOT_AVAILABLE
        refusals = leader.led._refusals  # pyright: ignore[reportPrivateUsage]
        assert [*refusals] == [("producer", 8), ("producer", 9)]

    run(scenario, replicated(1, 2, 3))


def position(leader: Leader, offset: int) -> ErrorCode:
    """Return the error for a consumer whose position is not in the log."""
    try:
        leader.led.check_out_of_range(offset)
    except RequestError as error:
        return error.code
    return ErrorCode.OFFSET_OUT_OF_RANGE


def test_a18_position_is_refused_when_the_isr_has_fetched_twice() -> None:
    refused, unproven = ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NOT_LEADER_OR_FOLLOWER

    async def scenario(leader: Leader) -> None:
        await followed(leader, 2, 3)
        assert position(leader, 5) is unproven, "fetches before the refusal prove nothing"
        await followed(leader, 2)
        assert position(leader, 5) is unproven
        await followed(leader, 3)
        assert position(leader, 5) is unproven, "these fetches may have been sent before"
        assert position(leader, 6) is unproven, "another position may be newer"
        await followed(leader, 2, 3)
        assert position(leader, 5) is refused
        assert position(leader, 6) is unproven

    run(scenario, replicated(1, 2, 3))


def test_a18_leader_refuses_deleted_positions_at_once() -> None:
    """It has the highest log start offset that it has told to anyone."""

    async def scenario(leader: Leader) -> None:
        leader.append(b"x")
        await followed(leader, 2, 3)
        await leader.led.delete_records(1)
        assert position(leader, 0) is ErrorCode.OFFSET_OUT_OF_RANGE

    run(scenario, replicated(1, 2, 3))


def test_a18_leader_without_followers_in_sync_refuses_at_once() -> None:
    async def scenario(leader: Leader) -> None:
        assert position(leader, 5) is ErrorCode.OFFSET_OUT_OF_RANGE

    run(scenario, replicated(1))


# The ISR.


def test_a3_broker_that_is_not_a_replica_is_refused() -> None:
    async def scenario(leader: Leader) -> None:
        led = leader.led
        led.check_replica(BrokerId(2), EPOCH)
        unknown, elsewhere = ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER
        refused(unknown, lambda: led.check_replica(BrokerId(4), EPOCH))
        refused(elsewhere, lambda: led.check_replica(BrokerId(4), -1))
        refused(unknown, lambda: leader.fetch(4))
        refused(unknown, lambda: leader.fetch(1))

    run(scenario, replicated(1, 2, 3))


def test_a9_wall_clock_does_not_count() -> None:
    async def scenario(leader: Leader) -> None:
        led, clock = leader.led, leader.clock
        leader.fetch(2)
        leader.fetch(3)
        leader.append()
        clock.jump_ms = 3_600_000
        led.check_isr(clock.elapsed_s())
        assert not leader.proposals
        await clock.sleep(LAG_S + 1)
        leader.fetch(2)
        led.check_isr(clock.elapsed_s())
        led.check_isr(clock.elapsed_s())
        assert [one.in_sync for one in leader.proposals] == [(1, 2)], "once"
        leader.commit(1, 2)
        assert led.high_watermark == 1

    run(scenario, replicated(1, 2, 3))


def test_a9_fetches_of_an_idle_session_count() -> None:
    async def scenario(leader: Leader) -> None:
        led, clock = leader.led, leader.clock
        watch = ReplicaWatch(BrokerId(2))
        watch.register(led, ("t", 0))
        leader.fetch(2)
        await clock.sleep(LAG_S * 10)
        watch.fetched_s = clock.elapsed_s()  # a fetch that did not name the partition
        await clock.sleep(LAG_S - 1)
        leader.append()
        led.check_isr(clock.elapsed_s())
        assert not leader.proposals
        await clock.sleep(2)
        watch.fetched_s = clock.elapsed_s()  # the partition is marked: this fetch has to name it
        led.check_isr(clock.elapsed_s())
        assert [one.in_sync for one in leader.proposals] == [(1,)]

    run(scenario, replicated(1, 2, replicas=(1, 2)))


def test_a10_follower_is_proposed_when_it_has_caught_up() -> None:
    async def scenario(leader: Leader) -> None:
        led = leader.led
        leader.fetch(2)
        leader.fetch(3, 2)
        assert not leader.proposals
        leader.fetch(3, 4)
        (proposal,) = leader.proposals
        assert proposal.in_sync == (1, 2, 3)
        assert [*proposal.members][-1] == (3, BrokerEpoch(9))
        leader.append()
        leader.fetch(2)
        assert led.high_watermark == 4, "the proposed member counts"
        leader.commit(1, 2, 3)
        leader.fetch(3)
        assert led.high_watermark == 5
        assert len(leader.proposals) == 1

    run(scenario, replicated(1, 2), before=4, high_watermark=1)


def test_a10_idle_follower_joins_after_a_change_in_flight() -> None:
    async def scenario(leader: Leader) -> None:
        leader.fetch(2)
        leader.fetch(3)
        (first,) = leader.proposals
        assert first.in_sync == (1, 2)
        leader.commit(1, 2)  # nobody fetches the partition again
        assert leader.proposals[-1].in_sync == (1, 2, 3)

    run(scenario, replicated(1, replicas=(1, 2, 3)))


def test_a10_idle_follower_joins_when_its_registration_is_known() -> None:
    async def scenario(leader: Leader) -> None:
        leader.eligible = False
        leader.fetch(2)
        leader.led.expand_isr()
        assert not leader.proposals
        leader.eligible = True
        leader.led.expand_isr()
        (proposal,) = leader.proposals
        assert proposal.in_sync == (1, 2)

    run(scenario, replicated(1, replicas=(1, 2)))


def test_a10_idle_follower_is_proposed_again_after_a_refusal() -> None:
    async def scenario(leader: Leader) -> None:
        leader.fetch(2)
        leader.led.isr_answered(ErrorCode.INELIGIBLE_REPLICA, leader.proposals[-1])
        assert len(leader.proposals) == 1
        leader.led.check_isr(leader.clock.elapsed_s())
        assert [one.in_sync for one in leader.proposals] == [(1, 2), (1, 2)]

    run(scenario, replicated(1, replicas=(1, 2)))


def test_a10_slow_follower_is_not_proposed_again_after_a_shrink() -> None:
    async def scenario(leader: Leader) -> None:
        leader.fetch(2)
        leader.append()
        await leader.clock.sleep(LAG_S + 1)
        leader.led.check_isr(leader.clock.elapsed_s())
        (shrink,) = leader.proposals
        assert shrink.in_sync == (1,)
        leader.commit(1)
        leader.led.expand_isr()
        assert len(leader.proposals) == 1

    run(scenario, replicated(1, 2, replicas=(1, 2)))


def test_a10_fetch_of_a_broker_that_has_restarted_is_refused() -> None:
    async def scenario(leader: Leader) -> None:
        leader.append()
        leader.fetch(2, 0, epoch=12)
        stale = ErrorCode.NOT_LEADER_OR_FOLLOWER
        refused(stale, lambda: leader.fetch(2, 1, epoch=9))
        assert leader.led.high_watermark == 0

    run(scenario, replicated(1, 2, replicas=(1, 2)))


def test_a11_lost_reply_keeps_the_change_until_newer_metadata() -> None:
    async def scenario(leader: Leader) -> None:
        led, clock = leader.led, leader.clock
        leader.append()
        leader.fetch(2)
        await clock.sleep(LAG_S + 1)
        leader.fetch(2)
        led.check_isr(clock.elapsed_s())
        (proposal,) = leader.proposals
        for outcome in (None, ErrorCode.INVALID_UPDATE_VERSION):
            led.isr_answered(outcome, proposal)
            led.check_isr(clock.elapsed_s())
            leader.fetch(2)
            assert (led.high_watermark, len(leader.proposals)) == (0, 1)
        led.update(leader.changed(1, 2))
        assert led.high_watermark == 1
        led.check_isr(clock.elapsed_s())
        assert led.in_sync is not None
        assert led.in_sync.proposed is None

    run(scenario, replicated(1, 2, 3))


def test_a11_answer_to_an_earlier_change_is_ignored() -> None:
    async def scenario(leader: Leader) -> None:
        led = leader.led
        leader.fetch(3)
        (first,) = leader.proposals
        answer = leader.changed(1, 2, 3)
        led.update(answer)
        led.update(leader.changed(1, 2))
        leader.fetch(3)
        assert led.in_sync is not None
        second = led.in_sync.proposed
        assert second is not None
        assert second is not first
        led.isr_answered(ErrorCode.INELIGIBLE_REPLICA, first)
        led.isr_answered(answer, first)
        assert led.in_sync.proposed is second
        led.isr_answered(ErrorCode.INELIGIBLE_REPLICA, second)
        assert led.in_sync.proposed is None

    run(scenario, replicated(1, 2))


def test_answer_of_another_epoch_is_ignored() -> None:
    async def scenario(leader: Leader) -> None:
        led = leader.led
        for fields in ({"leader_epoch": LeaderEpoch(1)}, {"leader": BrokerId(2)}):
            led.isr_answered(leader.changed(1, **fields))
            assert led.in_sync_count == 3

    run(scenario, replicated(1, 2, 3))


# Reassignment and deletion.


def test_partition_grows_to_several_replicas_and_back() -> None:
    async def scenario(leader: Leader) -> None:
        led = leader.led
        assert led.in_sync is None
        leader.append()
        assert led.high_watermark == 1
        state = replicated(1)
        led.update(replace(state, version=6))
        assert led.in_sync is not None
        leader.append()
        assert led.high_watermark == 2
        led.update(replace(state, in_sync=(BrokerId(1), BrokerId(2)), version=7))
        leader.append()
        waiter = Waiter(led, 3)
        assert led.high_watermark == 2
        led.update(replace(state, replicas=(BrokerId(1),), version=8))
        assert led.in_sync is None
        assert (led.high_watermark, waiter.code) == (3, ErrorCode.NONE)
        leader.append()
        assert led.high_watermark == 4

    run(scenario, replicated(1, replicas=(1,)))


def test_a17_deletion_waits_for_the_log_start_of_live_replicas() -> None:
    async def scenario(leader: Leader) -> None:
        led = leader.led
        leader.append()
        leader.append()
        leader.fetch(2)
        leader.fetch(3)
        watch = ReplicaWatch(BrokerId(2))
        watch.register(led, ("t", 0))
        assert await led.delete_records(1) == 1
        assert watch.is_marked(led), "the follower learns of it with its next fetch"
        deleted = asyncio.create_task(led.deleted(1))
        leader.fetch(2, start=1)
        await asyncio.sleep(0)
        assert not deleted.done()
        leader.fetch(3, start=1)
        await deleted
        assert led.low_watermark == 1
        await led.deleted(1)

    run(scenario, replicated(1, 2, 3))


def test_a17_dead_replica_does_not_hold_up_a_deletion() -> None:
    async def scenario(leader: Leader) -> None:
        leader.append()
        leader.fetch(2, start=1)
        leader.fetch(3)
        leader.alive.remove(3)
        await leader.led.delete_records(1)
        await leader.led.deleted(1)

    run(scenario, replicated(1, 2, 3))


@pytest.mark.parametrize("deleted", [False, True])
def test_resigning_ends_deletions_that_wait(deleted: bool) -> None:
    async def scenario(leader: Leader) -> None:
        led = leader.led
        leader.append()
        leader.fetch(2)
        leader.fetch(3)
        await led.delete_records(1)
        waiting: Coroutine[Any, Any, None] = led.deleted(1)
        task = asyncio.create_task(waiting)
        await asyncio.sleep(0)
        led.resign(None if deleted else leader.changed(2, leader=BrokerId(2)))
        await refused_later(ErrorCode.NOT_LEADER_OR_FOLLOWER, _awaited(task))

    run(scenario, replicated(1, 2, 3))
