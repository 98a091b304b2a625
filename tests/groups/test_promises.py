"""The rules about groups, each by its number: F1 to F7."""

import pytest

from groups.stage import (
    DELAY_MS,
    ORDERS,
    RANGE,
    ROUND_ROBIN,
    SESSION_MS,
    Entry,
    Stage,
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


def test_f1_a_fail_over_during_a_load_loses_what_was_read_and_reads_anew() -> None:
    stage = Stage()
    stage.commit(5)
    stage.stable(1)
    coordinator, now_ms = stage.coordinator, stage.now_ms
    old, new = LeaderEpoch(5), LeaderEpoch(7)
    stage.carry_out(coordinator.lead(old, now_ms))
    assert coordinator.phase is Phase.LOADING
    assert coordinator.ledger.groups == {}
    record = stage.log[0].record
    assert record is not None
    assert coordinator.replay(old, Offset(0), *record)
    # Another broker leads for a moment, then this one again, before the first load is over.
    coordinator.resign(LeaderEpoch(6), now_ms)
    coordinator.lead(new, now_ms)
    assert coordinator.ledger.groups == {}
    assert not coordinator.replay(old, Offset(1), *record)
    assert not coordinator.replay_marker(old, ProducerId(1), committed=True)
    assert coordinator.finish_loading(old, now_ms) == []
    assert coordinator.phase is Phase.LOADING
    assert stage.joined(stage.join()).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert coordinator.ledger.groups == {}
    stage.epoch = new
    stage.load()
    assert stage.offset() == 5
    assert stage.state == "Stable"


def test_f1_a_newer_epoch_forgets_what_the_log_does_not_have() -> None:
    stage = Stage()
    stage.stable(1)
    stage.join_twice()
    assert stage.state == "PreparingRebalance"
    stage.begin()
    assert stage.state == "Stable"
    assert stage.group.roster.pending == {}


def test_f2_a_commit_of_the_last_generation_is_fenced() -> None:
    stage = Stage()
    leader, follower = stage.stable(2)
    assert stage.commit(5, member_id=leader, generation=1) is ErrorCode.NONE
    stage.join(leader)
    # While members join, those of the current generation may still commit what they have done.
    assert stage.commit(6, member_id=follower, generation=1) is ErrorCode.NONE
    stage.join(follower)
    assert stage.generation == 2
    assert stage.commit(7, member_id=follower, generation=2) is ErrorCode.REBALANCE_IN_PROGRESS
    stage.sync_all([leader, follower])
    assert stage.commit(8, member_id=leader, generation=1) is ErrorCode.ILLEGAL_GENERATION
    assert stage.commit(9, member_id="ghost", generation=2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.commit(10, generation=-1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.heartbeat(leader, 1) is ErrorCode.ILLEGAL_GENERATION
    assert stage.synced(stage.sync(leader, 1)).error is ErrorCode.ILLEGAL_GENERATION
    assert stage.offset() == 6
    stage.leave(leader, follower)
    assert stage.commit(11, generation=-1) is ErrorCode.NONE


def test_f3_nobody_has_an_assignment_that_the_log_does_not_have() -> None:
    stage = Stage(auto=False)
    leader, follower = stage.completing(2)
    waiting = stage.sync(follower, 1)
    leading = stage.sync(leader, 1, {leader: b"one", follower: b"two"})
    assert stage.appends
    assert stage.waits(waiting)
    assert stage.waits(leading)
    assert all(member.assignment == b"" for member in stage.group.roster)
    # Nobody who asks meanwhile gets one either.
    again = stage.sync(follower, 1)
    assert stage.waits(again)
    # The broker is killed between: the next coordinator knows nothing of it, and nobody has it.
    stage.crash()
    assert not any(
        isinstance(effect, Respond)
        and isinstance(effect.answer, SyncResult)
        and effect.answer.assignment
        for effect in stage.told
    )
    assert stage.heartbeat(leader, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_f3_killed_after_the_append_the_next_coordinator_hands_it_out() -> None:
    stage = Stage(auto=False)
    leader, follower = stage.completing(2)
    leading = stage.sync(leader, 1, {leader: b"one", follower: b"two"})
    stage.write(stage.appends[0])
    stage.crash()
    assert stage.waits(leading)
    assert stage.synced(stage.sync(leader, 1)).assignment == b"one"
    assert stage.synced(stage.sync(follower, 1)).assignment == b"two"


def test_f3_an_id_of_a_static_member_is_in_the_log_before_it_is_used() -> None:
    stage = Stage()
    token = stage.join(instance_id="a")
    stage.advance(DELAY_MS)
    stage.sync_all([stage.joined(token).member_id])
    stage.auto = False
    back = stage.join(instance_id="a")
    assert stage.waits(back)
    stage.commit_append()
    assert stage.joined(back).error is ErrorCode.NONE


def test_f4_ten_thousand_half_joins_leave_no_members() -> None:
    stage = Stage()
    for _ in range(10_000):
        assert stage.joined(stage.join()).error is ErrorCode.MEMBER_ID_REQUIRED
    assert stage.members() == []
    assert stage.state == "Empty"
    stage.advance(SESSION_MS)
    assert stage.coordinator.ledger.groups == {}
    assert len(stage.timers) == 1  # that of the expiry of offsets
    assert stage.log == []


def test_f4_a_client_that_retries_its_first_join_is_one_member() -> None:
    stage = Stage()
    stage.join()
    retried = stage.joined(stage.join()).member_id
    token = stage.join(retried)
    stage.advance(SESSION_MS)
    assert len(stage.joined(token).members) == 1


def test_f5_of_two_with_one_instance_id_the_older_is_fenced() -> None:
    stage = Stage()
    first = stage.join(instance_id="a")
    stage.advance(DELAY_MS)
    old = stage.joined(first).member_id
    stage.sync_all([old])
    new = stage.joined(stage.join(instance_id="a")).member_id
    assert new != old
    assert (stage.state, stage.generation) == ("Stable", 1)
    assert stage.heartbeat(old, 1, "a") is ErrorCode.FENCED_INSTANCE_ID
    assert stage.heartbeat(new, 1, "a") is ErrorCode.NONE
    refused = stage.commit(5, member_id=old, generation=1, instance_id="a")
    assert refused is ErrorCode.FENCED_INSTANCE_ID


def test_f5_a_restart_inside_the_session_is_no_rebalance() -> None:
    stage = Stage()
    tokens = [stage.join(instance_id=name) for name in "ab"]
    stage.advance(2 * DELAY_MS)
    a, b = (stage.joined(token).member_id for token in tokens)
    stage.sync_all([a, b])
    stage.advance(SESSION_MS - 1)
    assert stage.heartbeat(a, 1, "a") is ErrorCode.NONE
    back = stage.joined(stage.join(instance_id="b")).member_id
    stage.advance(SESSION_MS - 1)
    assert stage.heartbeat(a, 1, "a") is ErrorCode.NONE, "no rebalance"
    share = stage.synced(stage.sync(back, 1, instance_id="b")).assignment
    assert share == f"share of {b}".encode()


def test_f5_with_another_protocol_there_is_a_rebalance() -> None:
    stage = Stage()
    both = (RANGE, ROUND_ROBIN)
    tokens = [stage.join(instance_id=name, protocols=both) for name in "ab"]
    stage.advance(2 * DELAY_MS)
    a, b = (stage.joined(token).member_id for token in tokens)
    stage.sync_all([a, b])
    stage.join(instance_id="b", protocols=(ROUND_ROBIN,))
    assert stage.state == "PreparingRebalance"
    assert stage.heartbeat(a, 1, "a") is ErrorCode.REBALANCE_IN_PROGRESS


def test_f6_a_fail_over_gives_every_member_a_full_session_and_no_rebalance() -> None:
    stage = Stage()
    ids = stage.stable(3)
    stage.advance(SESSION_MS - 1)
    told = len(stage.told)
    stage.crash()
    timers = [effect for effect in stage.told[told:] if isinstance(effect, SetTimer)]
    sessions = {timer.timer.member_id: timer.at_ms for timer in timers if timer.timer.member_id}
    assert sessions == dict.fromkeys(ids, stage.now_ms + SESSION_MS)
    stage.advance(SESSION_MS - 1)
    for member_id in ids:
        assert stage.heartbeat(member_id, 1) is ErrorCode.NONE
    assert (stage.state, stage.generation) == ("Stable", 1)


GONE = Entry(TopicRecord(b"\x7f\xff", None))  # keeps its place, so that offsets stay what they were


def compacted(log: list[Entry]) -> list[Entry]:
    """What compaction may leave: markers, what is in transactions, the last record of a key."""
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
    stage = Stage(GroupConfig(offsets_retention_ms=60_000, offsets_retention_check_interval_ms=1))
    stage.commit(1)
    stage.commit(2)
    stage.commit(3, at=BILLS)
    stage.commit(4, at=BILLS, producer_id=1)
    stage.commit(5, at=partition("done"), producer_id=2)
    stage.log.append(Entry(None, ProducerId(2), committed=True))
    stage.do(TransactionEnded(ProducerId(2), committed=True))
    stage.commit(6, group_id="deleted")
    stage.deleted("deleted")
    stage.commit(7, at=partition("forgotten"))
    stage.delete_offsets(partition("forgotten"))

    def offsets(group_id: str) -> dict[str, int]:
        fetched = stage.coordinator.fetch_offsets(group_id, None, require_stable=False).offsets
        return {str(at): found.offset for at, found in fetched.items()}

    before = offsets("billing")
    assert before == {"orders-0": 2, "bills-0": 3, "done-0": 5}
    if compact:
        stage.log = compacted(stage.log)
    stage.crash()
    assert offsets("billing") == before
    assert offsets("deleted") == {}
    assert stage.fetch(BILLS, stable=True).error is ErrorCode.UNSTABLE_OFFSET_COMMIT
    stage.advance(60_000)
    # What waits for a transaction does not expire.
    assert offsets("billing") == {"bills-0": 3}
    stage.crash()
    assert offsets("billing") == {"bills-0": 3}


def test_f7_an_offset_is_committed_when_all_replicas_have_it() -> None:
    stage = Stage(auto=False)
    token = stage.send_commit(5)
    assert stage.waits(token)
    assert stage.offset() == -1
    stage.commit_append()
    assert not stage.waits(token)
    assert stage.fetch(ORDERS).offset == 5
