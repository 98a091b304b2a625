# pyright: reportPrivateUsage=false
"""Each rule of parts A, B, C and F has a test that notices when the rule is broken.

A mutant patches the smallest function that keeps a rule. The rule's own test, named after it, must
then fail. docs/rules.md names both; tests/test_rules.py compares the page with this table.
"""

import dataclasses
import inspect
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from msgspec import structs

from broker import test_hand_over, test_leadership, test_replica_fetch, test_replica_selection
from cluster import test_election, test_registration
from controller import (
    test_control_requests,
    test_elector,
    test_elector_sessions,
    test_failure_detector,
    test_lease,
    test_outage,
    test_partition_changes,
    test_plan,
    test_producer_ids,
    test_reassignment_failover,
)
from controller.lossy_session import Loss
from groups import test_promises
from log import (
    test_damage,
    test_directory,
    test_files,
    test_partition_log,
)
from log.cleaner import test_cleanable
from log.recovery import test_log_recovery
from ottla.broker.fetch_read import FetchRead
from ottla.broker.node import Node
from ottla.broker.replica_roles import ReplicaRoles
from ottla.broker.replica_selection import FollowerReads
from ottla.cluster import election, reassignment, registration
from ottla.cluster.registration import BrokerChanges
from ottla.cluster.znodes import broker_path
from ottla.controller import lease, partition_changes, plan
from ottla.controller.control_update import update_error
from ottla.controller.controller import Controller
from ottla.controller.elector import ControllerElector
from ottla.controller.failure_detector import FailureDetector
from ottla.controller.lease import ControllerLease
from ottla.controller.plan import brokers_to_spare
from ottla.controller.producer_ids import ProducerIds
from ottla.controller.store import ClusterStore
from ottla.coordination.operations import Delete, SetData
from ottla.errors import ErrorCode, OttlaError
from ottla.groups import join, rebalance
from ottla.groups.coordinator import Coordinator
from ottla.groups.group import ClassicGroup
from ottla.groups.offset_commit import offsets_stored
from ottla.groups.roster import Roster
from ottla.ids import BrokerId, LeaderEpoch, Offset
from ottla.log import appender, directory, files
from ottla.log.cleaner import cleanable
from ottla.log.epochs import EpochHistory
from ottla.log.flusher import FlushPlan
from ottla.log.log_manager import LogManager
from ottla.log.log_state import LogState
from ottla.log.recovery import batch_scan, crash_cleanup
from ottla.replication import truncation
from ottla.replication.fetcher import ReplicaFetcher
from ottla.replication.follower import FollowerPartition
from ottla.replication.in_sync_replicas import Follower, InSyncReplicas
from ottla.replication.partition import Partition
from replication import (
    test_fetcher,
    test_in_sync_replicas,
    test_partition,
    test_replicated_partition,
    test_truncation,
)

Patch = pytest.MonkeyPatch

FAILURES = (
    AssertionError,
    BaseExceptionGroup,
    FileNotFoundError,
    KeyError,
    OttlaError,
    pytest.fail.Exception,
)
"""How a test fails. A mutant that is itself wrong raises something else, such as a TypeError."""


class Mutant(NamedTuple):
    """A way to break a rule, and the test that must notice it."""

    rule: str
    name: str  # of the test
    mutate: Callable[[Patch], None]
    test: Callable[..., None]


MUTANTS: list[Mutant] = []


def caught_by(
    test: Callable[..., None], *args: object, **options: object
) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    """Register a mutant; the rule is in the name of the test that notices it."""
    rule = test.__name__.split("_")[1].upper()

    def register(mutate: Callable[[Patch], None]) -> Callable[[Patch], None]:
        run = partial(test, *args, **options)
        MUTANTS.append(Mutant(rule, test.__name__, mutate, run))
        return mutate

    return register


def everywhere(patch: Patch, function: Callable[..., Any], mutated: Callable[..., Any]) -> None:
    """Replace a function in every module that has imported it."""
    name = function.__name__
    for module in [*sys.modules.values()]:
        if vars(module).get(name) is function:
            patch.setattr(module, name, mutated)


def returning(value: object) -> Callable[..., Any]:
    """Return a function that always returns this."""
    return lambda *args, **options: value


# A. Replication of a partition.


@caught_by(test_replicated_partition.test_a1_epoch_without_records_has_its_start_in_the_history)
def epochs_without_records_are_not_noted(patch: Patch) -> None:
    def begin_epoch(self: LogState, epoch: LeaderEpoch) -> None:
        self.leader_epoch = epoch

    patch.setattr(LogState, "begin_epoch", begin_epoch)


@caught_by(test_truncation.test_a2_unknown_epoch_is_cut_to_the_next_lower_one)
def follower_truncates_to_the_end_of_the_leader(patch: Patch) -> None:
    def after_divergence(diverging: Any, epochs: object, log_end: Offset) -> object:
        return truncation.TruncateTo(Offset(min(diverging.end_offset, log_end)))

    everywhere(patch, truncation.after_divergence, after_divergence)


@caught_by(test_partition.test_a3_request_with_another_leader_epoch_is_fenced)
def epochs_of_requests_are_not_compared(patch: Patch) -> None:
    patch.setattr(Partition, "check_epoch", returning(None))


@caught_by(test_in_sync_replicas.test_a4_shrink_that_is_not_committed_still_counts_the_slow_replica)
def proposed_shrink_moves_the_high_watermark(patch: Patch) -> None:
    propose = InSyncReplicas._propose

    def trusting(self: InSyncReplicas, proposal: Any) -> None:
        propose(self, proposal)
        if proposal is not None:
            self._maximal = frozenset(proposal.in_sync)

    patch.setattr(InSyncReplicas, "_propose", trusting)


@caught_by(test_fetcher.test_a5_high_watermark_is_bounded_by_the_own_log)
def follower_takes_the_high_watermark_of_the_leader(patch: Patch) -> None:
    def unbounded(self: FollowerPartition, offset: int) -> None:
        self.hosted.high_watermark = Offset(offset)

    patch.setattr(FollowerPartition, "_set_high_watermark", unbounded)


@caught_by(test_replicated_partition.test_a6_consumers_read_below_the_high_watermark)
def consumers_read_up_to_the_log_end(patch: Patch) -> None:
    def upper_offset(self: Partition, *, committed: bool) -> Offset:
        return self.log.log_end_offset

    patch.setattr(Partition, "upper_offset", upper_offset)


@caught_by(test_replicated_partition.test_a7_latest_is_not_available_before_the_epoch_start)
def latest_offset_is_returned_at_once(patch: Patch) -> None:
    patch.setattr(Partition, "_start_of_epoch", returning(Offset(0)))


@caught_by(test_replicated_partition.test_a8_waits_end_when_the_isr_falls_below_the_minimum)
def too_small_isr_acknowledges(patch: Patch) -> None:
    patch.setattr(InSyncReplicas, "is_below_min", False)


@caught_by(test_in_sync_replicas.test_a9_slow_follower_leaves_the_isr_after_the_lag_time)
def slow_followers_stay(patch: Patch) -> None:
    patch.setattr(Follower, "is_caught_up", returning(True))


@caught_by(test_in_sync_replicas.test_a10_broker_must_be_registered_in_the_epoch_of_its_fetch)
def any_incarnation_joins(patch: Patch) -> None:
    init = InSyncReplicas.__init__

    def trusting(self: InSyncReplicas, *args: Any, **options: Any) -> None:
        init(self, *args, **{**options, "is_eligible": returning(True)})

    patch.setattr(InSyncReplicas, "__init__", trusting)


@caught_by(test_partition_changes.test_a10_broker_that_registered_again_does_not_join)
def joins_do_not_check_the_registration(patch: Patch) -> None:
    def operations(self: Any, writes: Any, moved: Any) -> list[Any]:
        return [one for write in writes for one in write.operations]

    patch.setattr(partition_changes._Writer, "_operations", operations)


@caught_by(test_in_sync_replicas.test_a11_one_change_at_a_time)
def second_change_does_not_wait(patch: Patch) -> None:
    expand = InSyncReplicas.expand

    def impatient(self: InSyncReplicas, *args: Any) -> object:
        self.proposed = None
        return expand(self, *args)

    patch.setattr(InSyncReplicas, "expand", impatient)


@caught_by(test_replica_fetch.test_a12_consumer_learns_where_its_log_was_truncated)
def epochs_of_consumers_are_not_compared(patch: Patch) -> None:
    patch.setattr(FetchRead, "_is_diverging", returning(False))


@caught_by(test_election.test_a13_partition_is_offline_until_the_last_isr_member_returns)
def elections_are_unclean_by_default(patch: Patch) -> None:
    elect = election.elect_after_departure

    def unclean(*args: Any, **options: Any) -> object:
        return elect(*args, **{**options, "unclean": True})

    everywhere(patch, elect, unclean)


@caught_by(test_election.test_a13_unclean_leader_is_the_only_isr_member_in_a_new_epoch)
def unclean_elections_are_not_counted(patch: Patch) -> None:
    everywhere(patch, election.is_unclean, returning(False))


@caught_by(test_election.test_a14_power_cut_of_the_last_isr_member_loses_nothing)
def nobody_is_eligible(patch: Patch) -> None:
    everywhere(patch, election.eligible_leaders, returning(()))


@caught_by(test_election.test_a14_unclean_restart_leaves_isr_and_elr)
def unclean_restarts_are_not_noticed(patch: Patch) -> None:
    elect = election.elect_after_departure

    def trusting(*args: Any, **options: Any) -> object:
        return elect(*args, **{**options, "lost": ()})

    everywhere(patch, elect, trusting)


@caught_by(test_reassignment_failover.test_a15_removed_replica_is_deleted_last, ())
def reassignment_does_not_wait_for_new_replicas(patch: Patch) -> None:
    patch.setattr(reassignment, "_is_caught_up", returning(True))


@caught_by(test_reassignment_failover.test_a15_controller_killed_at_each_step, stores=False)
def removed_replica_is_deleted_before_it_leaves_the_isr(patch: Patch) -> None:
    decide = reassignment.next_step

    def hasty(state: Any, **conditions: Any) -> object:
        step = decide(state, **conditions)
        if step is None or step.kind is not reassignment.StepKind.SHRINK_ISR:
            return step
        return structs.replace(step, delete=state.removing)

    everywhere(patch, decide, hasty)


@caught_by(test_partition_log.test_a16_follower_rejects_unexpected_batches)
def follower_does_not_check_batches(patch: Patch) -> None:
    def unchecked(data: Any, expected: Offset) -> list[Any]:
        return [one.header for one in appender.batches(data)]

    patch.setattr(appender, "replicated_headers", unchecked)


@caught_by(test_truncation.test_a17_out_of_range)
def follower_keeps_what_the_leader_has_deleted(patch: Patch) -> None:
    everywhere(patch, truncation.after_out_of_range, returning(None))


@caught_by(test_replicated_partition.test_a18_position_is_refused_when_the_isr_has_fetched_twice)
def leaders_are_certain_of_themselves(patch: Patch) -> None:
    patch.setattr(Partition, "_is_certain", returning(True))


@caught_by(test_replica_selection.test_a18_follower_sends_consumers_to_the_leader)
def followers_know_which_offsets_exist(patch: Patch) -> None:
    patch.setattr(FollowerReads, "check_out_of_range", returning(None))


# B. Coordination and the controller.


@caught_by(test_lease.test_b1_id_of_another_process_is_refused)
def broker_takes_the_id_of_another_one(patch: Patch) -> None:
    async def accepted(*args: object) -> None:
        pass

    patch.setattr(lease, "_check_own", accepted)


@caught_by(test_lease.test_b1_process_replaces_its_earlier_session)
def process_that_registers_again_is_a_new_one(patch: Patch) -> None:
    def is_unclean(last: Any, new: Any) -> bool:
        return last is None or new.last_clean_epoch != last.epoch

    everywhere(patch, registration.is_unclean, is_unclean)


@caught_by(test_registration.test_b1_clean_restart_needs_the_last_broker_epoch)
def any_clean_shutdown_counts(patch: Patch) -> None:
    def is_unclean(last: Any, new: Any) -> bool:
        return last is None or (new.incarnation != last.incarnation and new.last_clean_epoch < 0)

    everywhere(patch, registration.is_unclean, is_unclean)


@caught_by(test_lease.test_b1_counter_outlives_registrations_and_judges_them)
def counter_forgets_the_last_registration(patch: Patch) -> None:
    format_counter = registration.format_counter

    def forgetful(last: object, new: Any) -> bytes:
        return format_counter(None, new)

    everywhere(patch, format_counter, forgetful)


@caught_by(test_lease.test_b2_one_controller_and_the_next_has_a_higher_epoch)
def controller_epoch_stays(patch: Patch) -> None:
    patch.setattr(lease, "ControllerEpoch", returning(1))


@caught_by(test_lease.test_b3_superseded_controller_changes_nothing)
def changes_do_not_check_the_controller_epoch(patch: Patch) -> None:
    async def commit(self: ControllerLease, operations: Sequence[Any]) -> None:
        await self.session.multi(operations)

    patch.setattr(ControllerLease, "commit", commit)


@caught_by(test_control_requests.test_b4_recorded_requests_change_nothing_after_a_restart)
def requests_to_an_earlier_incarnation_are_carried_out(patch: Patch) -> None:
    everywhere(patch, update_error, returning(ErrorCode.NONE))


@caught_by(test_partition_changes.test_b5_change_at_a_stale_version_stops_no_other)
def changes_are_stored_at_any_version(patch: Patch) -> None:
    def unconditional(path: str, data: bytes, version: int | None = None) -> SetData:
        return SetData(path, data)

    patch.setattr(partition_changes, "SetData", unconditional)


@caught_by(test_lease.test_b6_lost_change_is_made_once, losses=[Loss.RESPONSE])
def lost_response_is_taken_for_a_failure(patch: Patch) -> None:
    async def failed(self: ControllerLease, operations: object) -> bool:
        return False

    patch.setattr(ControllerLease, "_have_effect", failed)


@caught_by(test_registration.test_b7_same_id_with_another_epoch_died_and_was_born)
def broker_that_bounced_is_the_same(patch: Patch) -> None:
    def by_id(before: Any, after: Any) -> BrokerChanges:
        died, born = sorted({*before} - {*after}), sorted({*after} - {*before})
        return BrokerChanges(tuple(died), tuple(born))

    everywhere(patch, test_registration.broker_changes, by_id)


@caught_by(test_elector_sessions.test_b8_expired_controller_resigns_before_it_stands_again)
def expired_controller_goes_on(patch: Patch) -> None:
    async def ignored(self: ControllerElector) -> None:
        pass

    patch.setattr(ControllerElector, "lose", ignored)


@caught_by(test_election.test_b9_first_live_isr_member_in_assignment_order_leads)
def last_live_member_leads(patch: Patch) -> None:
    first = election._first

    def last(replicas: Any, among: Any, electable: Any) -> object:
        return first([*replicas][::-1], among, electable)

    patch.setattr(election, "_first", last)


@caught_by(test_plan.test_b10_brokers_that_answer_are_not_dead_after_an_outage)
def unregistered_brokers_are_dead(patch: Patch) -> None:
    everywhere(patch, brokers_to_spare, returning(frozenset[BrokerId]()))


@caught_by(test_plan.test_b11_leaders_do_not_move_to_a_broker_that_shuts_down)
def leaders_move_to_brokers_that_shut_down(patch: Patch) -> None:
    def electable(self: plan.Conditions) -> frozenset[Any]:
        return frozenset(self.alive)

    patch.setattr(plan.Conditions, "electable", electable)


@caught_by(test_hand_over.test_b11_stop_flushes_marks_and_ends_its_session_last)
def clean_shutdown_is_marked_before_the_flush(patch: Patch) -> None:
    close = LogManager.close

    async def hasty(self: LogManager, broker_epoch: Any) -> Any:
        for one in self.directories:
            await one.mark_clean(broker_epoch)
        return await close(self, broker_epoch)

    patch.setattr(LogManager, "close", hasty)


@caught_by(test_hand_over.test_b11_stop_flushes_marks_and_ends_its_session_last)
def session_ends_before_the_flush(patch: Patch) -> None:
    async def hasty(self: Node, session: Any, *rest: Any) -> None:
        await session.close()

    patch.setattr(Node, "_hand_over", hasty)


@caught_by(test_leadership.test_b12_strays_wait_for_all_replicas_and_the_image)
def strays_are_set_aside_with_any_image(patch: Patch) -> None:
    apply = ReplicaRoles.apply

    async def hasty(self: ReplicaRoles, update: Any) -> Any:
        self._are_strays_due = True
        return await apply(self, update)

    patch.setattr(ReplicaRoles, "apply", hasty)


@caught_by(
    test_directory.test_b12_directory_of_another_cluster_or_broker_is_refused,
    "other",
    1,
    "belongs to cluster",
)
def directories_of_any_cluster_are_used(patch: Patch) -> None:
    identify = directory.DataDirectory._identify

    def trusting(self: Any, *args: Any) -> None:
        with suppress(directory.DirectoryRefused):
            identify(self, *args)

    patch.setattr(directory.DataDirectory, "_identify", trusting)


@caught_by(test_producer_ids.test_b12_rest_of_a_block_is_never_issued)
def producer_ids_are_not_reserved(patch: Patch) -> None:
    async def reserve(self: Any) -> None:
        self._next, self._end = 0, 1000

    patch.setattr(ProducerIds, "_reserve", reserve)


@caught_by(test_outage.test_b8_disconnected_controller_decides_and_sends_nothing)
def disconnected_controller_goes_on(patch: Patch) -> None:
    init: Callable[..., None] = Controller.__init__

    def connected(self: Controller, *, acts: object, **options: Any) -> None:
        init(self, **options)

    patch.setattr(Controller, "__init__", connected)


@caught_by(test_lease.test_b13_registration_of_a_restarted_broker_is_not_deleted)
def dead_brokers_are_removed_without_their_counter(patch: Patch) -> None:
    async def unregister(self: Any, broker: Any) -> bool:
        await self._lease.change([Delete(broker_path(broker.registration.broker.id))])
        return True

    patch.setattr(ClusterStore, "unregister", unregister)


@caught_by(test_failure_detector.test_b13_silence_and_failed_logins_prove_nothing)
def every_failed_connection_proves_death(patch: Patch) -> None:
    async def is_refused(self: object, address: object) -> bool:
        return True

    patch.setattr(FailureDetector, "_is_refused", is_refused)


@caught_by(test_elector.test_b13_controller_that_restarted_is_not_dead)
def controller_is_dead_in_any_broker_epoch(patch: Patch) -> None:
    async def dead_controller(self: Any) -> object:
        return await lease.read_controller(self._session)

    patch.setattr(ControllerElector, "_dead_controller", dead_controller)


@caught_by(test_elector.test_b13_dead_controller_is_replaced_once_per_session_timeout)
def controller_is_replaced_again_and_again(patch: Patch) -> None:
    patch.setattr(ControllerElector, "_may_replace", returning(True))


@caught_by(test_failure_detector.test_b13_broker_that_was_taken_for_dead_is_spared)
def broker_is_taken_for_dead_again_and_again(patch: Patch) -> None:
    everywhere(patch, plan.may_be_removed, returning(True))


# C. Log and disk.


@caught_by(test_partition_log.test_c1_recovery_point_moves_after_the_sync)
def recovery_point_moves_without_a_sync(patch: Patch) -> None:
    carry_out = FlushPlan.carry_out

    def unsynced(self: FlushPlan, *args: Any) -> list[Any]:
        return carry_out(dataclasses.replace(self, files=()), *args)

    patch.setattr(FlushPlan, "carry_out", unsynced)


@caught_by(test_directory.test_c2_clean_shutdown_file_is_removed_first)
def clean_shutdown_file_stays(patch: Patch) -> None:
    patch.setattr(directory.DataDirectory, "begin", returning(None))


@caught_by(test_log_recovery.test_c3_segments_after_damage_are_dropped)
def recovery_does_not_check_crcs(patch: Patch) -> None:
    class Anything(int):
        def __ne__(self, other: object) -> bool:
            return False

        __hash__ = int.__hash__

    def none_at_once(chunk: bytes, at: int, **rest: object) -> tuple[list[object], int]:
        return [], at

    patch.setattr(batch_scan, "crc32c", returning(Anything()))
    patch.setattr(batch_scan, "crc_of", returning(Anything()))
    patch.setattr(batch_scan, "scan_headers", none_at_once)


@caught_by(test_damage.test_c4_repair_refuses_what_does_not_fit)
def repair_takes_other_epochs(patch: Patch) -> None:
    patch.setattr(EpochHistory, "epoch_of", returning(None))


@caught_by(test_damage.test_c4_readers_find_damage_without_a_scrub)
def damage_ends_the_log(patch: Patch) -> None:
    patch.setattr(batch_scan.BatchScan, "_next_valid", returning((1 << 62, None)))


@caught_by(test_partition_log.test_c5_failed_sync_breaks_the_log)
def failed_sync_is_retried(patch: Patch) -> None:
    async def run_retryable(self: LogState, call: Callable[[], Any]) -> Any:
        return await self.disk.blocking(call)

    patch.setattr(LogState, "run_retryable", run_retryable)


@caught_by(test_fetcher.test_c5_flush_messages_delays_the_report_of_the_log_end)
def follower_reports_its_log_end_before_the_flush(patch: Patch) -> None:
    unready = ReplicaFetcher._unready

    def hasty(self: ReplicaFetcher) -> tuple[Any, list[Any]]:
        return unready(self)[0], []

    patch.setattr(ReplicaFetcher, "_unready", hasty)


@caught_by(
    test_replicated_partition.test_c5_high_watermark_waits_for_the_leaders_flush, (1, 2, 3), 0
)
def high_watermark_does_not_wait_for_the_leaders_flush(patch: Patch) -> None:
    def advance(self: Partition, now_s: float | None = None) -> None:
        assert self.in_sync is not None
        at_s = self._clock.elapsed_s() if now_s is None else now_s
        end = self.log.log_end_offset
        self._set_high_watermark(self.in_sync.high_watermark(self.high_watermark, end, at_s))

    patch.setattr(Partition, "_advance_high_watermark", advance)


@caught_by(test_plan.test_c6_full_leader_hands_over_to_an_isr_member)
def full_leader_stays(patch: Patch) -> None:
    everywhere(patch, plan.directory_full, returning([]))


@caught_by(test_plan.test_c6_failed_directory_gives_up_its_partitions)
def failed_directory_keeps_its_leaders(patch: Patch) -> None:
    everywhere(patch, plan.directory_failed, returning([]))


@caught_by(test_files.test_c6_write_that_does_not_fit_is_undone)
def failed_write_is_not_undone(patch: Patch) -> None:
    patch.setattr(files.OsFile, "_undo_write", returning(None))


@caught_by(
    inspect.unwrap(test_log_recovery.test_c7_interrupted_cleaning_is_completed_or_discarded),
    step=test_log_recovery.STEPS - 6,
    clean=False,
)
def interrupted_swap_is_not_completed(patch: Patch) -> None:
    def unfinished(disk: object, path: object, found: Any, notes: object) -> Any:
        return found

    patch.setattr(crash_cleanup, "_finish_swap", unfinished)


@caught_by(test_cleanable.test_c8_cleaning_stays_below_the_last_stable_offset)
def open_transactions_are_cleaned(patch: Patch) -> None:
    find = cleanable.find_cleanable

    def unbounded(*args: Any, **options: Any) -> object:
        return find(*args, **{**options, "last_stable": 1 << 62, "high_watermark": 1 << 62})

    everywhere(patch, find, unbounded)


@caught_by(test_directory.test_c9_directory_is_locked_once)
def lock_is_not_respected(patch: Patch) -> None:
    class Free:
        def release(self) -> None:
            pass

    patch.setattr(test_directory.SimulatedDisk, "lock", returning(Free()))


@caught_by(test_files.test_c10_sync_of_a_removed_file_fails)
def removed_file_is_synced(patch: Patch) -> None:
    def sync(self: files.OsFile) -> None:
        pass

    patch.setattr(files.OsFile, "sync", sync)


# F. Consumer groups.


@caught_by(test_promises.test_f1_failover_during_a_load_restarts_the_load)
def earlier_load_counts(patch: Patch) -> None:
    patch.setattr(Coordinator, "_loads", returning(True))


@caught_by(test_promises.test_f2_commit_of_the_previous_generation_is_fenced)
def any_generation_commits(patch: Patch) -> None:
    patch.setattr(ClassicGroup, "commit_problem", returning(ErrorCode.NONE))


@caught_by(test_promises.test_f3_assignment_is_sent_only_after_it_is_in_the_log)
def assignment_is_sent_at_once(patch: Patch) -> None:
    store = rebalance._store_assignments

    def hasty(group: ClassicGroup, event: Any, context: Any) -> None:
        store(group, event, context)
        assert group.in_flight is not None
        rebalance.assignments_stored(group, group.in_flight, context)

    patch.setattr(rebalance, "_store_assignments", hasty)


@caught_by(test_promises.test_f4_client_that_retries_its_first_join_is_one_member)
def first_join_adds_a_member(patch: Patch) -> None:
    def add(group: ClassicGroup, event: Any, context: Any) -> None:
        join._add_member(group, event, event.new_member_id, context)

    patch.setattr(join, "_hand_out_id", add)


@caught_by(test_promises.test_f5_older_member_with_the_same_instance_id_is_fenced)
def replaced_static_member_is_not_fenced(patch: Patch) -> None:
    patch.setattr(Roster, "problem", returning(ErrorCode.NONE))


@caught_by(test_promises.test_f6_failover_restarts_sessions_without_a_rebalance)
def loaded_members_have_no_session(patch: Patch) -> None:
    patch.setattr(sys.modules[Coordinator.__module__], "loaded", returning(None))


@caught_by(test_promises.test_f7_offset_is_committed_when_all_replicas_have_it)
def offset_is_committed_before_the_append(patch: Patch) -> None:
    module: ModuleType = sys.modules[offsets_stored.__module__]
    commit = module.commit

    def hasty(ledger: Any, event: Any, context: Any) -> None:
        commit(ledger, event, context)
        append = context.effects[-1]
        offsets_stored(ledger, append.then, Offset(0), context)

    everywhere(patch, commit, hasty)


def _arguments(test: Callable[..., None], tmp_path: Path) -> dict[str, object]:
    """Return the fixtures that a test needs."""
    known = {"tmp_path": tmp_path, "disk": files.OsDisk()}
    return {name: known[name] for name in inspect.signature(test).parameters if name in known}


@pytest.mark.parametrize(
    "mutant", MUTANTS, ids=lambda mutant: f"{mutant.rule}-{mutant.mutate.__name__}"
)
def test_mutant_of_a_rule_is_caught(
    mutant: Mutant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant.mutate(monkeypatch)
    with pytest.raises(FAILURES):
        mutant.test(**_arguments(mutant.test, tmp_path))
