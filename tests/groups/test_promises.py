"""The rules about groups by number: F1 to F7."""

import pytest

from groups.harness import (
    DELAY_MS,
    ORDERS,
    RANGE,
    ROUND_ROBIN,
    SESSION_MS,
    Entry,
    Harness,
    partition,
)
from ottla.errors import ErrorCode
from ottla.groups.config import GroupConfig
from ottla.groups.coordinator import Phase
from ottla.groups.effects import Respond, SetTimer, TopicRecord
from ottla.groups.events import TransactionEnded
from ottla.groups.responses import SyncResult
from ottla.ids import NO_PRODUCER_ID, LeaderEpoch, Offset, ProducerId

BILLS = partition("bills")


def test_f1_failover_during_a_load_restarts_the_load() -> None:
    harness = Harness()
    harness.commit(5)
    harness.stable(1)
    coordinator, now_ms = harness.coordinator, harness.now_ms
    old, new = LeaderEpoch(5), LeaderEpoch(7)
    harness.carry_out(coordinator.lead(old, now_ms))
    assert coordinator.phase is Phase.LOADING
    assert coordinator.ledger.groups == {}
    record = harness.log[0].record
    assert record is not None
    assert coordinator.replay(old, Offset(0), *record)
    # Another broker leads for a moment, then this one again, before the first load has finished.
    coordinator.resign(LeaderEpoch(6), now_ms)
    coordinator.lead(new, now_ms)
    assert coordinator.ledger.groups == {}
    assert not coordinator.replay(old, Offset(1), *record)
    assert not coordinator.replay_marker(old, ProducerId(1), committed=True)
    assert coordinator.finish_loading(old, now_ms) == []
    assert coordinator.phase is Phase.LOADING
    assert harness.joined(harness.join()).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert coordinator.ledger.groups == {}
    harness.epoch = new
    harness.load()
    assert harness.offset() == 5
    assert harness.state == "Stable"


def test_f1_newer_epoch_drops_state_that_is_not_in_the_log() -> None:
    harness = Harness()
    harness.stable(1)
    harness.join_twice()
    assert harness.state == "PreparingRebalance"
    harness.begin()
    assert harness.state == "Stable"
    assert harness.group.roster.pending == {}


def test_f2_commit_of_the_previous_generation_is_fenced() -> None:
    harness = Harness()
    leader, follower = harness.stable(2)
    assert harness.commit(5, member_id=leader, generation=1) is ErrorCode.NONE
    harness.join(leader)
    # During the join phase, members of the current generation may still commit.
    assert harness.commit(6, member_id=follower, generation=1) is ErrorCode.NONE
    harness.join(follower)
    assert harness.generation == 2
    assert harness.commit(7, member_id=follower, generation=2) is ErrorCode.REBALANCE_IN_PROGRESS
    harness.sync_all([leader, follower])
    assert harness.commit(8, member_id=leader, generation=1) is ErrorCode.ILLEGAL_GENERATION
    assert harness.commit(9, member_id="ghost", generation=2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.commit(10, generation=-1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.heartbeat(leader, 1) is ErrorCode.ILLEGAL_GENERATION
    assert harness.synced(harness.sync(leader, 1)).error is ErrorCode.ILLEGAL_GENERATION
    assert harness.offset() == 6
    harness.leave(leader, follower)
    assert harness.commit(11, generation=-1) is ErrorCode.NONE


def test_f3_assignment_is_sent_only_after_it_is_in_the_log() -> None:
    harness = Harness(auto=False)
    leader, follower = harness.completing(2)
    waiting = harness.sync(follower, 1)
    leading = harness.sync(leader, 1, {leader: b"one", follower: b"two"})
    assert harness.appends
    assert harness.waits(waiting)
    assert harness.waits(leading)
    assert all(member.assignment == b"" for member in harness.group.roster)
    # Requests in between do not get one either.
    again = harness.sync(follower, 1)
    assert harness.waits(again)
    # The broker is killed in between: the next coordinator does not know it, and no member has it.
    harness.crash()
    assert not any(
        isinstance(effect, Respond)
        and isinstance(effect.answer, SyncResult)
        and effect.answer.assignment
        for effect in harness.told
    )
    assert harness.heartbeat(leader, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_f3_next_coordinator_sends_the_appended_assignment() -> None:
    harness = Harness(auto=False)
    leader, follower = harness.completing(2)
    leading = harness.sync(leader, 1, {leader: b"one", follower: b"two"})
    harness.write(harness.appends[0])
    harness.crash()
    assert harness.waits(leading)
    assert harness.synced(harness.sync(leader, 1)).assignment == b"one"
    assert harness.synced(harness.sync(follower, 1)).assignment == b"two"


def test_f3_static_member_id_is_in_the_log_before_its_use() -> None:
    harness = Harness()
    token = harness.join(instance_id="a")
    harness.advance(DELAY_MS)
    harness.sync_all([harness.joined(token).member_id])
    harness.auto = False
    back = harness.join(instance_id="a")
    assert harness.waits(back)
    harness.commit_append()
    assert harness.joined(back).error is ErrorCode.NONE


def test_f4_ten_thousand_half_joins_create_no_members() -> None:
    harness = Harness()
    for _ in range(10_000):
        assert harness.joined(harness.join()).error is ErrorCode.MEMBER_ID_REQUIRED
    assert harness.members() == []
    assert harness.state == "Empty"
    harness.advance(SESSION_MS)
    assert harness.coordinator.ledger.groups == {}
    assert len(harness.timers) == 1  # the expiry timer
    assert harness.log == []


def test_f4_client_that_retries_its_first_join_is_one_member() -> None:
    harness = Harness()
    harness.join()
    retried = harness.joined(harness.join()).member_id
    token = harness.join(retried)
    harness.advance(SESSION_MS)
    assert len(harness.joined(token).members) == 1


def test_f5_older_member_with_the_same_instance_id_is_fenced() -> None:
    harness = Harness()
    first = harness.join(instance_id="a")
    harness.advance(DELAY_MS)
    old = harness.joined(first).member_id
    harness.sync_all([old])
    new = harness.joined(harness.join(instance_id="a")).member_id
    assert new != old
    assert (harness.state, harness.generation) == ("Stable", 1)
    assert harness.heartbeat(old, 1, "a") is ErrorCode.FENCED_INSTANCE_ID
    assert harness.heartbeat(new, 1, "a") is ErrorCode.NONE
    refused = harness.commit(5, member_id=old, generation=1, instance_id="a")
    assert refused is ErrorCode.FENCED_INSTANCE_ID


def test_f5_restart_within_the_session_causes_no_rebalance() -> None:
    harness = Harness()
    tokens = [harness.join(instance_id=name) for name in "ab"]
    harness.advance(2 * DELAY_MS)
    a, b = (harness.joined(token).member_id for token in tokens)
    harness.sync_all([a, b])
    harness.advance(SESSION_MS - 1)
    assert harness.heartbeat(a, 1, "a") is ErrorCode.NONE
    back = harness.joined(harness.join(instance_id="b")).member_id
    harness.advance(SESSION_MS - 1)
    assert harness.heartbeat(a, 1, "a") is ErrorCode.NONE, "no rebalance"
    share = harness.synced(harness.sync(back, 1, instance_id="b")).assignment
    assert share == f"share of {b}".encode()


def test_f5_restart_with_another_protocol_rebalances() -> None:
    harness = Harness()
    both = (RANGE, ROUND_ROBIN)
    tokens = [harness.join(instance_id=name, protocols=both) for name in "ab"]
    harness.advance(2 * DELAY_MS)
    a, b = (harness.joined(token).member_id for token in tokens)
    harness.sync_all([a, b])
    harness.join(instance_id="b", protocols=(ROUND_ROBIN,))
    assert harness.state == "PreparingRebalance"
    assert harness.heartbeat(a, 1, "a") is ErrorCode.REBALANCE_IN_PROGRESS


def test_f6_failover_restarts_sessions_without_a_rebalance() -> None:
    harness = Harness()
    ids = harness.stable(3)
    harness.advance(SESSION_MS - 1)
    told = len(harness.told)
    harness.crash()
    timers = [effect for effect in harness.told[told:] if isinstance(effect, SetTimer)]
    sessions = {timer.timer.member_id: timer.at_ms for timer in timers if timer.timer.member_id}
    assert sessions == dict.fromkeys(ids, harness.now_ms + SESSION_MS)
    harness.advance(SESSION_MS - 1)
    for member_id in ids:
        assert harness.heartbeat(member_id, 1) is ErrorCode.NONE
    assert (harness.state, harness.generation) == ("Stable", 1)


GONE = Entry(TopicRecord(b"\x7f\xff", None))  # keeps its position, so that offsets do not change


def compacted(log: list[Entry]) -> list[Entry]:
    """Return what compaction may leave: markers, transactional records, last records of keys."""
    last: dict[bytes, Entry] = {}
    for entry in log:
        if entry.record is not None and entry.producer_id == NO_PRODUCER_ID:
            last[entry.record.key] = entry
    return [
        entry
        if entry.record is None
        or entry.producer_id != NO_PRODUCER_ID
        or last[entry.record.key] is entry
        else GONE
        for entry in log
    ]


@pytest.mark.parametrize("compact", [False, True])
def test_f7_offsets_are_the_same_after_compaction_and_restart(compact: bool) -> None:
    harness = Harness(
        GroupConfig(offsets_retention_ms=60_000, offsets_retention_check_interval_ms=1)
    )
    harness.commit(1)
    harness.commit(2)
    harness.commit(3, at=BILLS)
    harness.commit(4, at=BILLS, producer_id=1)
    harness.commit(5, at=partition("done"), producer_id=2)
    harness.log.append(Entry(None, ProducerId(2), committed=True))
    harness.do(TransactionEnded(ProducerId(2), committed=True))
    harness.commit(6, group_id="deleted")
    harness.deleted("deleted")
    harness.commit(7, at=partition("forgotten"))
    harness.delete_offsets(partition("forgotten"))

    def offsets(group_id: str) -> dict[str, int]:
        fetched = harness.coordinator.fetch_offsets(group_id, None, require_stable=False).offsets
        return {str(at): found.offset for at, found in fetched.items()}

    before = offsets("billing")
    assert before == {"orders-0": 2, "bills-0": 3, "done-0": 5}
    if compact:
        harness.log = compacted(harness.log)
    harness.crash()
    assert offsets("billing") == before
    assert offsets("deleted") == {}
    assert harness.fetch(BILLS, stable=True).error is ErrorCode.UNSTABLE_OFFSET_COMMIT
    harness.advance(60_000)
    # Offsets that wait for a transaction do not expire.
    assert offsets("billing") == {"bills-0": 3}
    harness.crash()
    assert offsets("billing") == {"bills-0": 3}


def test_f7_offset_is_committed_when_all_replicas_have_it() -> None:
    harness = Harness(auto=False)
    token = harness.send_commit(5)
    assert harness.waits(token)
    assert harness.offset() == -1
    harness.commit_append()
    assert not harness.waits(token)
    assert harness.fetch(ORDERS).offset == 5
