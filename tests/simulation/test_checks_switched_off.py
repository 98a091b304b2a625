"""The simulation detects every check that is disabled.

A check is disabled by patching the product's code in the test process, never by a setting. One of
the first hundred seeds must then find a violation. The first such seed is recorded next to the
check and tried first, so that most checks take one run. A recorded seed that has become wrong costs
time, and `make soak` fails until it is corrected. `make test` takes a sample of the checks.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from ottla.broker.group_coordinator import OFFSETS_TOPIC
from ottla.broker.replica_roles import ReplicaRoles
from ottla.broker.topics import Topics
from ottla.controller.control_update import ReplicaState
from ottla.controller.producer_ids import ProducerIds
from ottla.coordination import journal
from ottla.coordination.journal import Journal
from ottla.coordination.tree import Transaction
from ottla.errors import ErrorCode
from ottla.groups import coordinator as groups
from ottla.groups import join
from ottla.groups.group import ClassicGroup
from ottla.groups.rebalance import rebalance
from ottla.groups.states import State
from ottla.groups.types import TimerKind
from ottla.log import loading
from ottla.log.appender import Appended
from ottla.log.directory import DataDirectory
from ottla.log.disk import Disk, read_whole, write_atomically
from ottla.log.epochs import EpochStart
from ottla.log.flusher import FlushPlan
from ottla.log.loading import HostedLog
from ottla.log.log_config import LogConfig
from ottla.log.log_manager import LogManager
from ottla.log.names import CLEAN_SHUTDOWN, LOG_START_OFFSETS
from ottla.log.offset_waiters import OffsetWaiters
from ottla.log.partition_log import open_log
from ottla.log.producer_state_manager import ProducerStateManager
from ottla.log.recovery import batch_scan, log_recovery
from ottla.log.recovery.scan_rebuild import ScanRebuild
from ottla.log.segment.segment import Indexes, Segment
from ottla.log.snapshots import Snapshots
from ottla.replication.partition import Partition
from sampling import SOAK, sample
from simulation.scenario import run

SEEDS_MAX = 100  # most need one; damage to a synced segment is rare
SWITCHES_SAMPLED = 8

Switch = Callable[[pytest.MonkeyPatch], None]


def answering(answer: object) -> Callable[..., Any]:
    """Return a function that always returns this."""

    def answered(*args: object, **options: object) -> object:
        return answer

    return answered


def repeats_are_recognised(patch: pytest.MonkeyPatch) -> None:
    """Rule D1: duplicates are detected."""
    patch.setattr(ProducerStateManager, "check", answering(None))


def what_is_acknowledged_is_flushed(patch: pytest.MonkeyPatch) -> None:
    """Rule C5, where flush.messages requires it."""
    patch.setattr(Partition, "must_flush", False)


def what_the_leader_acknowledges_is_flushed(patch: pytest.MonkeyPatch) -> None:
    """Rule C5 for acks=1, where flush.messages requires it."""
    append, asked = Partition.append, Partition.must_flush.fget
    assert asked is not None
    wanted: dict[str, int] = {}

    def noting(self: Partition, *args: Any, acks: int, **options: Any) -> Appended:
        wanted[repr(self)] = acks
        return append(self, *args, acks=acks, **options)

    def of_others(self: Partition) -> bool:
        return wanted.get(repr(self)) != 1 and asked(self)

    patch.setattr(Partition, "append", noting)
    patch.setattr(Partition, "must_flush", property(of_others))


def a_flush_acknowledges_only_what_it_covers(patch: pytest.MonkeyPatch) -> None:
    """Rule C5 for records that are appended during a flush."""
    finish = OffsetWaiters.finish_up_to

    def finish_all(self: OffsetWaiters, offset: int, failure: Exception | None = None) -> None:
        finish(self, max(offset, 2**62), failure)

    patch.setattr(OffsetWaiters, "finish_up_to", finish_all)


def commits_are_answered_when_they_are_durable(patch: pytest.MonkeyPatch) -> None:
    """Rule F7: a commit is acknowledged when it is durable."""
    asked = Partition.must_flush.fget
    assert asked is not None

    def of_others(self: Partition) -> bool:
        return self.name.topic != OFFSETS_TOPIC and asked(self)

    patch.setattr(Partition, "must_flush", property(of_others))


class _Anything(int):
    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


def the_crc_counts_in_recovery(patch: pytest.MonkeyPatch) -> None:
    """Rule C3: recovery checks CRCs."""

    def none_at_once(chunk: bytes, at: int, **rest: object) -> tuple[list[object], int]:
        return [], at

    patch.setattr(batch_scan, "crc32c", answering(_Anything()))
    patch.setattr(batch_scan, "crc_of", answering(_Anything()))
    patch.setattr(batch_scan, "scan_headers", none_at_once)


def a_log_is_checked_after_an_unclean_stop(patch: pytest.MonkeyPatch) -> None:
    """Rule C3: a log is recovered after an unclean shutdown."""

    def trusting(*args: Any, **options: Any) -> object:
        return open_log(*args, **{**options, "clean": True})

    patch.setattr(loading, "open_log", trusting)


def a_crash_is_not_taken_for_a_clean_stop(patch: pytest.MonkeyPatch) -> None:
    """Rule C2: the clean-shutdown mark is deleted before the first write."""
    begin = DataDirectory.begin

    def keeping_the_mark(self: DataDirectory) -> None:
        path = f"{self.path}/{CLEAN_SHUTDOWN}"
        mark = read_whole(self.disk, path) if self.disk.exists(path) else None
        begin(self)
        if mark is not None:
            write_atomically(self.disk, path, mark)

    patch.setattr(DataDirectory, "begin", keeping_the_mark)


def a_flush_covers_the_names_in_the_folder(patch: pytest.MonkeyPatch) -> None:
    """Rule C1: a flush syncs the directory."""

    carry_out = FlushPlan.carry_out

    def without_names(self: FlushPlan, disk: Disk, snapshots: Snapshots) -> list[Indexes]:
        with pytest.MonkeyPatch.context() as flush:
            flush.setattr(disk, "sync_directory", answering(None))
            return carry_out(self, disk, snapshots)

    patch.setattr(FlushPlan, "carry_out", without_names)


def producers_are_learnt_from_the_log(patch: pytest.MonkeyPatch) -> None:
    """Rule D3: producer state is rebuilt from the log."""

    def forgetful(
        segment: Segment, interval_bytes: int, starts: list[EpochStart], producers: object
    ) -> ScanRebuild:
        return ScanRebuild(segment, interval_bytes, starts, None)

    def nobody(*args: object) -> ProducerStateManager:
        return ProducerStateManager()

    patch.setattr(log_recovery, "replay_producers", nobody)
    patch.setattr(log_recovery, "ScanRebuild", forgetful)


def coordination_is_on_the_device_when_it_answers(patch: pytest.MonkeyPatch) -> None:
    """The durability of the embedded store."""

    def append(self: Any, transactions: Sequence[Transaction]) -> None:
        frame = journal._frame(transactions)  # pyright: ignore[reportPrivateUsage]
        self._size = self._file.write([frame], self._size)

    patch.setattr(Journal, "append", append)


def members_that_are_silent_are_put_out(patch: pytest.MonkeyPatch) -> None:
    """Session timeouts."""
    fired = groups.timer_fired

    def ignoring(group: ClassicGroup, timer: Any, turn: Any) -> None:
        if timer.kind is not TimerKind.SESSION:
            fired(group, timer, turn)

    patch.setattr(groups, "timer_fired", ignoring)


def a_commit_shows_its_generation(patch: pytest.MonkeyPatch) -> None:
    """Rule F2: a commit with an old generation is fenced."""
    patch.setattr(ClassicGroup, "commit_problem", answering(ErrorCode.NONE))


def a_static_member_that_was_replaced_is_fenced(patch: pytest.MonkeyPatch) -> None:
    """Rule F5: a replaced static member is fenced."""
    problem = ClassicGroup.commit_problem

    def of_the_instance(
        self: ClassicGroup, member: str, instance: str | None, generation: int, **options: Any
    ) -> ErrorCode:
        member = self.roster.static_id(instance) or member
        return problem(self, member, instance, generation, **options)

    patch.setattr(ClassicGroup, "commit_problem", of_the_instance)


def a_static_member_that_is_back_in_time_keeps_its_place(patch: pytest.MonkeyPatch) -> None:
    """KIP-345: the other members do not rejoin."""
    replace_static = join._replace_static_member  # pyright: ignore[reportPrivateUsage]

    def rebalancing(group: ClassicGroup, event: Any, known: str, turn: Any) -> None:
        replace_static(group, event, known, turn)
        if group.state is State.STABLE:
            rebalance(group, turn)

    patch.setattr(join, "_replace_static_member", rebalancing)


def what_was_deleted_stays_deleted(patch: pytest.MonkeyPatch) -> None:
    """DeleteRecords stores the log start before the response."""
    store = LogManager.store

    async def without_starts(self: LogManager, name: str, directory: DataDirectory) -> None:
        if name != LOG_START_OFFSETS:
            await store(self, name, directory)

    patch.setattr(LogManager, "store", without_starts)


def a_producer_id_is_reserved_before_it_is_given(patch: pytest.MonkeyPatch) -> None:
    """Rule B12: ids are reserved before they are issued."""

    async def reserve(self: Any) -> None:
        self._next, self._end = 0, 1000

    patch.setattr(ProducerIds, "_reserve", reserve)


def a_log_belongs_to_one_topic(patch: pytest.MonkeyPatch) -> None:
    """By topic id, not by name, where an interrupted deletion left a directory."""
    host, take_over = ReplicaRoles._host, Topics.take_over  # pyright: ignore[reportPrivateUsage]

    async def hosting(self: ReplicaRoles, one: ReplicaState, config: LogConfig) -> HostedLog:
        return await host(self, replace(one, is_new=False), config)  # every topic id is accepted

    async def left_alone(self: Any, names: Any) -> dict[Any, Any]:
        return {}

    async def taking_over(self: Topics, *args: Any, **how: Any) -> None:
        with pytest.MonkeyPatch.context() as start:
            start.setattr(ReplicaRoles, "_delete_topics", left_alone)
            start.setattr(Topics, "_end_deletion", left_alone)
            await take_over(self, *args, **how)

    patch.setattr(loading, "_topic_id", answering((None, list[str]())))
    patch.setattr(ReplicaRoles, "_host", hosting)
    patch.setattr(Topics, "take_over", taking_over)


# Each check, and the first seed that detects that it is missing.
SWITCHES: dict[Switch, int] = {
    repeats_are_recognised: 0,
    what_is_acknowledged_is_flushed: 3,
    what_the_leader_acknowledges_is_flushed: 2,
    a_flush_acknowledges_only_what_it_covers: 2,
    commits_are_answered_when_they_are_durable: 0,
    the_crc_counts_in_recovery: 2,
    a_log_is_checked_after_an_unclean_stop: 8,
    a_crash_is_not_taken_for_a_clean_stop: 45,
    a_flush_covers_the_names_in_the_folder: 0,
    producers_are_learnt_from_the_log: 0,
    coordination_is_on_the_device_when_it_answers: 0,
    members_that_are_silent_are_put_out: 0,
    a_commit_shows_its_generation: 2,
    a_static_member_that_was_replaced_is_fenced: 12,
    a_static_member_that_is_back_in_time_keeps_its_place: 0,
    what_was_deleted_stays_deleted: 0,
    a_producer_id_is_reserved_before_it_is_given: 0,
    a_log_belongs_to_one_topic: 3,
}


@pytest.mark.parametrize(
    "switch", sample(SWITCHES, SWITCHES_SAMPLED), ids=lambda switch: switch.__name__
)
def test_simulation_detects_a_missing_check(
    switch: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch(monkeypatch)
    first = SWITCHES[switch]
    if SOAK:
        found = next((seed for seed in range(SEEDS_MAX) if run(seed).violations), None)
        assert found == first, "write down the first seed that notices it"
    else:
        seeds = [first, *(seed for seed in range(SEEDS_MAX) if seed != first)]
        assert any(run(seed).violations for seed in seeds), "nothing was noticed"
