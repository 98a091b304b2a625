"""The controller: carries out decisions for the cluster, one at a time.

A decision is stored in coordination first, then it is in the controller's image, then the brokers
hear of it (rule B9). Only the empty logs of this broker's new partitions are created before, so
that a partition with a leader has a log. `controller/plan.py` decides; this module stores, tells
and waits.

Invariant: `image` is what coordination holds, apart from partitions whose leader could not take
over: those have no leader in the image until a later attempt. Only the holder of `turn` changes it.
`turn` is free while a change waits for other brokers, so that a dead broker does not hold up its
own replacement.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final

from msgspec.structs import replace

from ottla.clock import Clock
from ottla.cluster.election import is_unclean
from ottla.cluster.image import Broker, ClusterImage, PartitionChange, PartitionState, Topic
from ottla.cluster.reassignment import StepKind, is_reassigning
from ottla.cluster.registration import Registered, broker_changes, unclean_restarts
from ottla.controller import plan
from ottla.controller.broker_link import BrokerLink
from ottla.controller.control_update import (
    EPOCH_DURING_DELETE,
    BrokerConfigs,
    Configs,
    ControlUpdate,
    Failures,
    ReplicaState,
    StoppedReplica,
)
from ottla.controller.directory_report import DirectoryReport
from ottla.controller.lease import Resigned
from ottla.controller.loading import StoredCluster
from ottla.controller.partition_changes import Conflict
from ottla.controller.propagation import Propagation, Updates
from ottla.controller.store import ClusterStore
from ottla.coordination.errors import CoordinationError
from ottla.coordination.session import WatchEvent
from ottla.errors import ErrorCode, RequestError, StorageFailure
from ottla.ids import (
    NO_BROKER,
    ZERO_UUID,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionIndex,
    TopicPartition,
    Uuid,
)
from ottla.metrics import ControllerCounts
from ottla.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

_LOG = logging.getLogger(__name__)

STORED_AT_ONCE: Final = 100  # partitions whose state is stored in one write
STORED_AT_START: Final = 2000  # the same at the start, when no request waits
APPLY_SECONDS: Final = 30.0  # how long a change waits for the slowest broker
# How long a step of a request waits for the next broker, at least: one that is cut off must not
# hold up the others. A broker that is only slow gets twice the time that the others took. The
# response waits for all brokers, until the timeout of the request.
STEP_SECONDS: Final = 2.0
RETRY_SECONDS: Final = 0.5  # after coordination failed
PLANS_MAX: Final = 10  # attempts to store a decision while others change the same partitions

Apply = Callable[[ControlUpdate], Awaitable[Failures]]

CreateLogs = Callable[[ControllerEpoch, Sequence[ReplicaState]], Awaitable[Failures]]
"""Creates this broker's logs of new partitions; returns those that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """The settings that decide on leaders and ISRs."""

    min_isr: Callable[[str], int]  # of a topic, as configured
    unclean: Callable[[str], bool]  # whether a topic allows unclean elections
    session_timeout_s: float  # how long brokers that answer may be without a registration


class Controller:
    """The cluster, as its controller knows and changes it."""

    def __init__(
        self,
        *,
        node_id: BrokerId,
        clock: Clock,
        store: ClusterStore,
        epoch: ControllerEpoch,
        cluster_id: str,
        config: ControllerConfig,
        connect: Callable[[Broker], Apply],
        latest_epoch: Callable[[TopicPartition], LeaderEpoch],
        create_logs: CreateLogs,
        refusal: Callable[[], RequestError | None],
        on_resigned: Callable[[], None],
        counts: ControllerCounts | None = None,
        acts: asyncio.Event | None = None,
    ) -> None:
        """A controller that has won the election of this epoch.

        `connect` returns the object that sends control requests to a broker. `latest_epoch` returns
        the newest leader epoch in this broker's own logs, and `create_logs` creates such logs.
        `refusal` returns an error once the broker stops. `on_resigned` is called when a write has
        shown that another broker has been elected. While `acts` is not set, the session is
        disconnected: the controller then decides nothing and sends nothing to other brokers,
        because it may be superseded (rule B8).
        """
        self._node_id = node_id
        self._clock = clock
        self.store = store
        self.epoch = epoch
        self._config = config
        self._connect = connect
        self._latest_epoch = latest_epoch
        self._create_logs = create_logs
        self._refusal = refusal
        self.on_resigned = on_resigned
        self._counts = counts or ControllerCounts()
        if acts is None:
            acts = asyncio.Event()
            acts.set()
        self._acts = acts
        self._brokers_changed = asyncio.Event()
        self._watching: tuple[asyncio.Task[None], ...] = ()
        self._links: dict[BrokerId, BrokerLink] = {}
        self._registered: Mapping[BrokerId, Registered] = {}
        self.partition_limits: Mapping[BrokerId, int] = {}  # that other brokers have registered
        self._known_since_s: dict[BrokerId, float] = {}  # when the registration was read first
        self._answering: Mapping[BrokerId, Broker] = {}  # without a registration (rule B10)
        self._began_s = 0.0
        self._sparing_ended = asyncio.Event()
        self._handled_restarts: Mapping[BrokerId, BrokerEpoch] = {}
        self._shutting_down: set[BrokerId] = set()
        self._offline: dict[BrokerId, frozenset[TopicPartition]] = {}  # in failed directories
        self._unable: dict[BrokerId, dict[TopicPartition, None]] = {}  # not led or followed
        self._unable_changed = asyncio.Event()
        self._reassigning: set[TopicPartition] = set()  # partitions with a reassignment in progress
        self._reassignments_changed = asyncio.Event()  # a step may have become possible
        self._deleting: dict[BrokerId, Counter[TopicPartition]] = {}  # updates that may delete them
        self._topic_configs: dict[str, Mapping[str, str]] = {}
        self._broker_configs: dict[BrokerId | None, Mapping[str, str]] = {}
        self._lower_minima: list[Mapping[str, int]] = []  # of changes in progress, by topic
        self._is_stored = True  # whether every change of the last decision was stored
        self.image = ClusterImage(cluster_id, controller=node_id, controller_epoch=epoch)
        self.turn = asyncio.Lock()  # held by the change in progress

    @property
    def _conditions(self) -> plan.Conditions:
        return plan.Conditions(
            alive=frozenset(self._registered),
            answering=frozenset(self._spared()),
            min_isr=self._min_isr if self._lower_minima else self._config.min_isr,
            unclean=self._config.unclean,
            shutting_down=frozenset(self._shutting_down),
            offline=self._offline,
            deleting=self._deleting,
        )

    @property
    def acts(self) -> bool:
        """Whether it is connected to coordination."""
        return self._acts.is_set()

    # Start and end.

    async def load(self) -> StoredCluster:
        """Read the whole cluster, and follow its brokers from now on (rule B7)."""
        return await self.store.load_cluster(self._note_brokers)

    def _note_brokers(self, event: WatchEvent) -> None:
        self._brokers_changed.set()

    async def start(
        self,
        found: StoredCluster,
        *,
        is_first: bool,
        answering: Mapping[BrokerId, Broker] | None = None,
    ) -> Failures:
        """Take over the cluster: elect leaders, and send every broker everything.

        With `is_first`, this broker has just started, and what it led gets a new epoch. After an
        outage of coordination, brokers that are `answering` do not count as dead for one session
        timeout, although they are not registered (rule B10). The caller holds `turn`.
        """
        self._began_s = self._clock.elapsed_s()
        self._answering = answering or {}
        ids = {one.topic.name: one.topic.id for one in found.topics}
        deleted = {name: ids.get(name, ZERO_UUID) for name in found.deletions}
        topics = [one for one in found.topics if one.topic.name not in deleted]
        self.image = self.image.with_topics([one.topic for one in topics])
        self._topic_configs = {one.topic.name: one.config for one in topics}
        self._broker_configs = {**found.broker_configs}
        self._handled_restarts = found.handled_restarts
        self._reassigning = {one for one in found.reassignments if one.topic not in deleted}
        self._follow(found.registrations)
        lost = unclean_restarts(found.registrations, found.handled_restarts)
        restarted = {self._node_id} if is_first else set[BrokerId]()
        failures = await self._commit(
            lambda: plan.brokers_changed(
                self.image, self._conditions, restarted=restarted, lost=lost
            ),
            at_once=STORED_AT_START,
            born=found.registrations,
            deleted=deleted,
            waits=False,  # one of them may be dead, and only its session does not know it yet
        )
        await self._note_handled(lost)
        self._watching = tuple(
            asyncio.get_running_loop().create_task(self._whenever(changed, act))
            for changed, act in (
                (self._brokers_changed, self._follow_brokers),
                (self._unable_changed, self._move_unable),
                (self._reassignments_changed, self._advance_reassignments),
                (self._sparing_ended, self._end_sparing),
            )
        )
        if self._answering:
            self._watching += (asyncio.get_running_loop().create_task(self._time_sparing()),)
        return failures

    def _spared(self) -> dict[BrokerId, Broker]:
        """Return the brokers that are not registered yet, and do not count as dead."""
        spared = plan.brokers_to_spare(
            self._answering,
            controller_for_s=self._clock.elapsed_s() - self._began_s,
            session_timeout_s=self._config.session_timeout_s,
        )
        return {one: self._answering[one] for one in spared - self._registered.keys()}

    async def _time_sparing(self) -> None:
        await self._clock.sleep(self._config.session_timeout_s)
        self._sparing_ended.set()

    async def _end_sparing(self) -> None:
        """Count brokers that have not registered in time as dead; a failure is repeated."""
        async with self.turn:
            if dead := self._answering.keys() - self._registered.keys():
                _LOG.warning("brokers not registered in time", {"brokers": _ids(dead)})
            self._answering = {}
            self._follow(self._registered)
            await self._commit(
                lambda: plan.brokers_changed(self.image, self._conditions), waits=False
            )

    async def _follow_brokers(self) -> None:
        """Read the registered brokers, and act on what has changed."""
        found = await self.store.read_registrations(self._note_brokers)
        async with self.turn:
            await self.brokers_changed(found)

    async def _whenever(
        self, changed: asyncio.Event, act: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Act whenever the event is set, and again after a failure, until this broker resigns."""
        while True:
            await changed.wait()
            await self._acts.wait()
            changed.clear()
            try:
                await act()
            except Resigned:
                self.on_resigned()
                return
            except (CoordinationError, StorageFailure) as error:
                _LOG.warning("controller delayed", {"reason": str(error)})
            except Exception:
                _LOG.exception("controller failed")
            else:
                continue
            await self._clock.sleep(RETRY_SECONDS)
            changed.set()

    async def close(self) -> None:
        """Stop telling brokers: another controller may have been elected."""
        for task in self._watching:
            if task is not asyncio.current_task():
                task.cancel()
                await asyncio.wait((task,))
        for link in self._links.values():
            await link.close()
        self._links.clear()

    # Brokers.

    async def brokers_changed(self, found: Mapping[BrokerId, Registered]) -> None:
        """Follow brokers that died, registered or registered again (rules A14, B7 and B9)."""
        died, born = broker_changes(self._registered, found)
        if not died and not born:
            return
        restarted = {
            broker
            for broker in born
            if (before := self._registered.get(broker)) is None
            or before.registration.incarnation != found[broker].registration.incarnation
        }
        _LOG.info("brokers changed", {"died": _ids(died), "registered": _ids(born)})
        for broker in {*died, *born}:
            if self._offline.pop(broker, None):  # it reports them again
                self.image = self.image.with_failed(self._conditions.offline_replicas())
        for broker in died:
            self._shutting_down.discard(broker)
            if (link := self._links.pop(broker, None)) is not None:
                await link.close()
        self._follow(found)
        lost = unclean_restarts(found, self._handled_restarts)
        await self._commit(
            lambda: plan.brokers_changed(
                self.image, self._conditions, restarted=restarted, lost=lost
            ),
            born=born,
            waits=False,
        )
        await self._note_handled(lost)

    def _follow(self, found: Mapping[BrokerId, Registered]) -> None:
        """Take over who is registered, and link the brokers that are new."""
        for broker, one in found.items():
            if (known := self._registered.get(broker)) is None or known.epoch != one.epoch:
                self._known_since_s[broker] = self._clock.elapsed_s()
        self._registered = found
        self.partition_limits = {
            broker: limit
            for broker, one in found.items()
            if broker != self._node_id and (limit := one.registration.partitions_max) is not None
        }
        brokers = {broker: one.registration.broker for broker, one in found.items()}
        self.image = self.image.with_brokers(
            [*brokers.values(), *self._spared().values()], self._node_id
        )
        for broker, one in brokers.items():
            if broker not in self._links:
                # This broker applies its own decisions at once: the change in progress waits.
                acts = None if broker == self._node_id else self._acts
                self._links[broker] = BrokerLink(broker, self._connect(one), self._clock, acts)

    async def remove_dead(self, broker: BrokerId, epoch: BrokerEpoch) -> None:
        """Delete the registration of a broker that is proven dead (rule B13).

        The registrations are then read again, as after a session has expired. The caller repeats
        this if it has no effect. A broker that shuts down has handed over: it refuses connections
        while it flushes its logs, and ends its session itself (rule B11).
        """
        found = self._registered.get(broker)
        if found is None or found.epoch != epoch or not self._may_be_removed(found):
            return
        if broker in self._shutting_down or not self.acts:
            return
        try:
            if await self.store.unregister(found):
                _LOG.warning("registration of a dead broker deleted", {"broker": broker})
                self._counts.dead_brokers_removed += 1
        except Resigned:
            self.on_resigned()
        except (CoordinationError, StorageFailure) as error:
            about = {"broker": broker, "reason": str(error)}
            _LOG.warning("registration of a dead broker not deleted", about)
        else:
            self._brokers_changed.set()

    async def without_dead(
        self, found: StoredCluster, dead: Mapping[BrokerId, BrokerEpoch]
    ) -> StoredCluster:
        """Delete the registrations of brokers that are proven dead, before the start (rule B13).

        The brokers that have just been read may include the controller before this one.
        """
        left = dict(found.registrations)
        for broker, epoch in [*dead.items()]:  # others are proven dead meanwhile
            one = left.get(broker)
            if one is None or one.epoch != epoch or one.registration.was_taken_for_dead:
                continue
            if await self.store.unregister(one):
                _LOG.warning("registration of a dead broker deleted", {"broker": broker})
                self._counts.dead_brokers_removed += 1
                del left[broker]
        return found._replace(registrations=left)

    def _may_be_removed(self, found: Registered) -> bool:
        since_s = self._known_since_s[found.registration.broker.id]
        return plan.may_be_removed(
            found,
            known_for_s=self._clock.elapsed_s() - since_s,
            session_timeout_s=self._config.session_timeout_s,
        )

    async def _note_handled(self, lost: Mapping[BrokerId, BrokerEpoch]) -> None:
        """Store that brokers which restarted uncleanly have left every ISR and ELR (rule A14)."""
        if lost and self._is_stored:
            await self.store.store_handled_restarts(lost)
            self._handled_restarts = {**self._handled_restarts, **lost}

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Change ISRs as their leader proposes (KIP-497)."""
        epochs = {broker: self.image.brokers[broker].epoch for broker in self._registered}
        outcomes = plan.alter_partition(self.image, request, self._conditions, epochs)
        if isinstance(outcomes, ErrorCode):
            return plan.alter_partition_response(outcomes)
        changes = [one.change for one in outcomes if one.change is not None]
        stored = await self._store(changes)
        done = {(one.topic, one.index) for one in stored}
        answers = [
            one
            if one.change is None or (one.change.topic, one.change.index) in done
            else replace(one, error=self._conflict(one.change), state=None, change=None)
            for one in outcomes
        ]
        if stored:
            self._check_reassignments()
            await self._tell(changed=_topics(stored), waits=False)
        return plan.alter_partition_response(answers)

    def _conflict(self, change: PartitionChange) -> ErrorCode:
        """Return why a proposed ISR was not stored.

        If the partition is as before, a broker that joins has registered again. The leader must
        know that the ISR stays: it would wait for newer metadata otherwise, and there is none.
        """
        state = self.image.state(change.topic, change.index)
        if state is not None and state.version == change.before.version:
            return ErrorCode.INELIGIBLE_REPLICA
        return ErrorCode.INVALID_UPDATE_VERSION

    async def controlled_shutdown(
        self, broker: BrokerId, epoch: BrokerEpoch
    ) -> Sequence[TopicPartition]:
        """Move the leaderships of a broker that stops; return those that remain (rule B11)."""
        known = self.image.brokers.get(broker) if broker in self._registered else None
        if known is None or (epoch >= 0 and epoch != known.epoch):
            raise RequestError(ErrorCode.STALE_BROKER_EPOCH)
        self._shutting_down.add(broker)
        await self._commit(
            lambda: [
                *plan.controlled_shutdown(self.image, self._conditions, broker).changes,
            ],
            waits=False,
        )
        return plan.controlled_shutdown(self.image, self._conditions, broker).remaining

    # Failed and full data directories (rule C6).

    async def directories_changed(
        self, broker: BrokerId, epoch: BrokerEpoch, report: DirectoryReport
    ) -> None:
        """Move leaderships away from directories of a broker, and replicas out of ISRs.

        As in Kafka, a partition without a replica in another directory has no leader until the
        broker restarts.
        """
        known = self.image.brokers.get(broker) if broker in self._registered else None
        if known is None or known.epoch != epoch:
            raise RequestError(ErrorCode.STALE_BROKER_EPOCH)
        self._offline[broker] = self._offline.get(broker, frozenset()).union(report.failed)
        self.image = self.image.with_failed(self._conditions.offline_replicas())
        about = {"broker": broker, "failed": len(report.failed), "full": len(report.full)}
        _LOG.warning("data directories reported", about)
        await self._commit(
            lambda: [
                *plan.directory_failed(self.image, self._conditions, broker, report.failed),
                *plan.directory_full(self.image, self._conditions, broker, report.full),
            ],
            changed=[one.topic for one in report.failed],
            waits=False,
        )

    def _replicas(self, key: TopicPartition) -> int:
        state = self.image.state(*key)
        return 0 if state is None else len(state.replicas)

    def _note_unable(self, broker: BrokerId, sent: "asyncio.Future[Failures]") -> None:
        """Note what a broker could not lead or follow; a task lets other replicas lead it."""
        if sent.cancelled():
            return
        if (error := sent.exception()) is not None:
            _LOG.error("control update failed", {"broker": broker}, exc_info=error)
            return
        if unable := [key for key in sent.result() if self._replicas(key)]:
            self._add_unable(broker, unable)

    def _add_unable(self, broker: BrokerId, unable: Iterable[TopicPartition]) -> None:
        self._unable.setdefault(broker, {}).update(dict.fromkeys(unable))
        self._unable_changed.set()

    async def _move_unable(self) -> None:
        async with self.turn:
            await self._replace_unable(waits=False)

    async def _replace_unable(self, *, waits: bool) -> None:
        """Let other replicas lead what a broker could not; the caller holds `turn`.

        Others may hold it while this waits for brokers: each takes the broker that it handles.
        """
        while self._unable:
            broker = next(iter(self._unable))
            unable = self._unable.pop(broker)
            epochs = self._led_by(broker, unable)
            _LOG.warning("replicas not opened", {"broker": broker, "partitions": len(unable)})
            try:
                await self._commit(
                    lambda: plan.directory_full(self.image, self._conditions, broker, unable),  # noqa: B023
                    waits=waits,
                )
            except CoordinationError:
                self._add_unable(broker, unable)  # it is tried again
                raise
            after = self._led_by(broker, unable)
            left = [key for key, epoch in epochs.items() if after.get(key) == epoch]
            if left:  # nobody else can lead them
                self._note_leaderless(left)
                await self._tell(changed=[*{key.topic for key in left}], waits=waits)

    def _led_by(
        self, broker: BrokerId, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, LeaderEpoch]:
        """Return the partitions that a broker leads, with their leader epochs."""
        return {
            key: state.leader_epoch
            for key in partitions
            if (state := self.image.state(*key)) is not None and state.leader == broker
        }

    async def elect_leaders(
        self,
        election: plan.ElectionType,
        partitions: Iterable[TopicPartition] | None,
        propagation: Propagation | None = None,
    ) -> list[plan.ElectionOutcome]:
        """Elect the preferred leaders, or leaders that may lack records, as asked."""
        outcomes = plan.elect_leaders(self.image, self._conditions, election, partitions)
        await self._commit(
            lambda: [
                one.change
                for one in outcomes
                if one.change is not None
                and self.image.state(one.topic, one.index) == one.change.before
            ],
            propagation=propagation,
        )
        return outcomes

    async def balance_leaders(self, percentage: int) -> None:
        """Move leaderships back to the preferred leaders, if too many are elsewhere."""
        await self._commit(
            lambda: plan.preferred_imbalance(self.image, self._conditions, percentage=percentage),
            waits=False,
        )

    # Reassignments (rule A15).

    @property
    def reassigning(self) -> Collection[TopicPartition]:
        """The partitions with a reassignment in progress."""
        return self._reassigning

    async def alter_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        can_change_factor: bool = True,
    ) -> dict[TopicPartition, plan.ReassignmentOutcome]:
        """Begin reassignments to target replicas, or cancel those in progress with None."""
        outcomes: dict[TopicPartition, plan.ReassignmentOutcome] = {}

        def decide() -> list[PartitionChange]:
            for key, target in targets.items():
                if (known := outcomes.get(key)) is None or self._is_undone(known):
                    outcomes[key] = plan.alter_reassignment(
                        self.image,
                        self._conditions,
                        key,
                        target,
                        can_change_factor=can_change_factor,
                    )
            return [
                one.change
                for one in outcomes.values()
                if one.change is not None and self._is_undone(one)
            ]

        failures = await self._commit(decide, waits=False)
        for key, one in outcomes.items():
            if self._is_undone(one):
                error = failures.get(key) or RequestError(ErrorCode.NOT_CONTROLLER)
                outcomes[key] = replace(one, error=error.code, message=error.message, change=None)
            elif (change := one.change) is not None:
                about = {"partition": str(key), "replicas": _ids(change.after.replicas)}
                if one.delete:
                    _LOG.info("reassignment cancelled", about)
                else:
                    about |= {"adding": _ids(change.after.adding)}
                    about |= {"removing": _ids(change.after.removing)}
                    _LOG.info("reassignment begun", about)
        self._delete_replicas(
            (broker, key)
            for key, one in outcomes.items()
            if one.change is not None
            for broker in one.delete
        )
        return outcomes

    def _is_undone(self, outcome: plan.ReassignmentOutcome) -> bool:
        """Whether the change of an outcome is not stored."""
        change = outcome.change
        return change is not None and (
            (state := self.image.state(change.topic, change.index)) is None
            or _assignment(state) != _assignment(change.after)
        )

    def _check_reassignments(self) -> None:
        """Let a task take the steps that may have become possible."""
        if self._reassigning:
            self._reassignments_changed.set()

    async def _advance_reassignments(self) -> None:
        """Take all steps that can be taken.

        Replicas are deleted before the final assignment is stored. `turn` is free while their
        brokers do so, and a replica that may be deleted cannot join the ISR meanwhile. A broker
        that is dead, or that does not answer in time, sets the log aside when it hears of the final
        assignment.
        """
        failed: set[TopicPartition] = set()
        deleted: dict[TopicPartition, PartitionState] = {}  # the states before the last steps
        while True:
            async with self.turn:
                steps = [
                    one
                    for one in plan.reassignment_steps(
                        self.image, self._conditions, sorted(self._reassigning)
                    )
                    if _partition(one.change) not in failed
                ]
                if not steps:
                    return
                ready = [
                    one
                    for one in steps
                    if not one.delete or deleted.get(_partition(one.change)) == one.change.before
                ]
                if ready:
                    failed.update(await self._take_steps(ready))
                    continue
                deleted = {_partition(one.change): one.change.before for one in steps}
                sent = self._delete_replicas(
                    (broker, _partition(one.change)) for one in steps for broker in one.delete
                )
            if sent:
                await asyncio.wait(sent, timeout=APPLY_SECONDS)

    async def _take_steps(self, steps: Sequence[plan.ReassignmentStep]) -> Failures:
        failures = await self._commit(
            lambda: [
                one.change
                for one in steps
                if self.image.state(one.change.topic, one.change.index) == one.change.before
            ],
            waits=False,
            is_step=True,
        )
        for one in steps:
            key = _partition(one.change)
            if one.kind is StepKind.FINISH and key not in self._reassigning:
                replicas = _ids(one.change.after.replicas)
                _LOG.info("partition reassigned", {"partition": str(key), "replicas": replicas})
        return failures

    def _delete_replicas(
        self, replicas: Iterable[tuple[BrokerId, TopicPartition]]
    ) -> "list[asyncio.Future[Failures]]":
        """Tell live brokers to delete replicas; the futures are done when they have."""
        stopped: dict[BrokerId, list[StoppedReplica]] = {}
        for broker, key in replicas:
            if broker in self._links:
                state = self.image.state(*key)
                epoch = EPOCH_DURING_DELETE if state is None else state.leader_epoch
                one = StoppedReplica(key, delete=True, leader_epoch=epoch)
                stopped.setdefault(broker, []).append(one)
        updates = {
            broker: replace(self._update(broker), stopped=some) for broker, some in stopped.items()
        }
        return [*self._send(updates).values()]

    def _guard_deleted(
        self, broker: BrokerId, update: ControlUpdate, sent: "asyncio.Future[Failures]"
    ) -> None:
        """Keep replicas that an update may delete out of ISRs, until it is applied.

        A full update is the first that a registration of a broker gets from this controller. Before
        it, the broker may apply what an earlier controller has sent.
        """
        keys = [one.partition for one in update.stopped]
        if update.is_full and self._reassigning:
            keys += [
                key
                for key in self._reassigning
                if (state := self.image.state(*key)) is not None and broker in state.removing
            ]
        if not keys:
            return
        deleting = self._deleting.setdefault(broker, Counter())
        deleting.update(keys)

        def applied(sent: "asyncio.Future[Failures]") -> None:
            for key in keys:
                deleting[key] -= 1
                if not deleting[key]:
                    del deleting[key]

        sent.add_done_callback(applied)

    # Topics and configs; the caller holds `turn`.

    def propagation(self, timeout_s: float = APPLY_SECONDS) -> Propagation:
        """Return what the changes of a request with this timeout need to wait for brokers."""
        return Propagation(self._clock, timeout_s)

    async def add_topics(
        self,
        topics: Collection[Topic],
        configs: Configs,
        propagation: Propagation | None = None,
    ) -> Failures:
        """Elect leaders for topics that are stored."""
        self._topic_configs |= configs
        self.image = self.image.with_topics(topics)
        return await self._lead_new([one.name for one in topics], configs, propagation)

    async def grow_topic(self, topic: Topic, propagation: Propagation | None = None) -> Failures:
        """Elect leaders for partitions that were added to a topic."""
        self.image = self.image.with_topics([topic])
        return await self._lead_new([topic.name], None, propagation)

    async def _lead_new(
        self,
        names: Sequence[str],
        topic_configs: Configs | None,
        propagation: Propagation | None,
    ) -> Failures:
        failures = await self._commit(
            lambda: plan.new_partitions(self.image, self._conditions, names),
            is_new=True,
            topic_configs=topic_configs,
            propagation=propagation or self.propagation(),
        )
        if failures and self._unable:
            await self._replace_unable(waits=True)
        return {
            key: one
            for key, one in failures.items()
            if (state := self.image.state(*key)) is None or state.leader == NO_BROKER
        }

    def leaders_to_be(self, name: str) -> dict[int, BrokerId]:
        """Return who could lead the partitions of a topic that could not be led before."""
        conditions = self._conditions
        electable = conditions.electable()
        topic = self.image.topics.get(name)
        return {
            index: candidates[0]
            for index, state in enumerate(topic.partitions if topic else ())
            if state.leader == NO_BROKER
            and (
                candidates := [
                    one
                    for one in state.replicas
                    if (one in state.in_sync or state.version < 0)
                    and one in electable
                    and not conditions.is_offline(name, index, one)
                ]
            )
        }

    async def lead(self, name: str, indexes: Iterable[int]) -> Failures:
        """Try again to elect leaders for partitions that could not be led."""
        wanted = {*indexes}

        def elected() -> list[PartitionChange]:
            return [
                PartitionChange(name, index, state, state.led_by(leader, state.in_sync))
                for index, leader in self.leaders_to_be(name).items()
                if index in wanted
                and (state := self.image.topics[name].partitions[index]).version >= 0
            ] + [
                change
                for change in plan.new_partitions(self.image, self._conditions, [name])
                if change.index in wanted
            ]

        return await self._commit(elected)

    async def delete_topics(
        self, names: Collection[str], propagation: Propagation | None = None
    ) -> Failures:
        """Delete topics on all brokers; their deletion is stored."""
        deleted: dict[str, Uuid] = {}
        for name in names:
            self._topic_configs.pop(name, None)
            topic = self.image.topics.get(name)
            deleted[name] = ZERO_UUID if topic is None else topic.id
        self.image = self.image.without_topics(names)
        for broker, offline in self._offline.items():
            self._offline[broker] = frozenset(one for one in offline if one.topic not in deleted)
        self._reassigning = {one for one in self._reassigning if one.topic not in deleted}
        return await self._tell(deleted=deleted, changed=(), propagation=propagation)

    async def set_min_isr(
        self, min_isr: Mapping[str, int], propagation: Propagation | None = None
    ) -> Mapping[str, int]:
        """Prepare topics for another min.insync.replicas, before leaders use it (rule A14).

        Until `set_configs` gets the result and all brokers have the new minimum, the lower one of
        the old and the new minimum counts: some leaders acknowledge records with the lower one.
        """
        lower = {name: min(minimum, self._min_isr(name)) for name, minimum in min_isr.items()}
        self._lower_minima.append(lower)
        await self._commit(
            lambda: plan.min_isr_changed(self.image, self._conditions, min_isr),
            propagation=propagation,
        )
        return lower

    def _min_isr(self, topic: str) -> int:
        """Return the lowest min.insync.replicas of a topic that a leader may use."""
        minimum = self._config.min_isr(topic)
        for lower in self._lower_minima:  # almost never
            minimum = min(minimum, lower.get(topic, minimum))
        return minimum

    def broker_config(self, broker: BrokerId | None) -> Mapping[str, str]:
        """Return the stored dynamic configs of a broker, or for None the cluster-wide defaults."""
        return self._broker_configs.get(broker, {})

    async def set_configs(
        self,
        topic_configs: Configs | None = None,
        broker_configs: BrokerConfigs | None = None,
        minima: Mapping[str, int] | None = None,
        propagation: Propagation | None = None,
    ) -> None:
        """Apply configs that are stored, on all brokers; `minima` is what `set_min_isr` returned.

        The lower minima count until all brokers have applied the configs.
        """
        self._topic_configs |= topic_configs or {}
        self._broker_configs |= broker_configs or {}
        propagation = propagation or self.propagation()
        await self._tell(
            topic_configs=topic_configs,
            broker_configs=broker_configs,
            changed=(),
            propagation=propagation,
        )
        if minima is not None:
            self._end_minima(minima, propagation.late)
        self._check_reassignments()  # min.insync.replicas may have changed

    def _end_minima(self, minima: Mapping[str, int], late: Updates) -> None:
        """Let the new minima count when the late brokers have applied them, too."""
        left = {*late}

        def applied(broker: BrokerId, sent: "asyncio.Future[Failures]") -> None:
            if not sent.cancelled() and sent.exception() is None:
                left.discard(broker)
                if not left:
                    end()

        def end() -> None:
            self._lower_minima = [one for one in self._lower_minima if one is not minima]
            self._check_reassignments()

        for broker, sent in late.items():
            sent.add_done_callback(partial(applied, broker))
        if not late:
            end()

    # Store and tell.

    async def _commit(
        self,
        decide: Callable[[], list[PartitionChange]],
        *,
        at_once: int = 0,
        is_new: bool = False,
        born: Collection[BrokerId] = (),
        topic_configs: Configs | None = None,
        deleted: Mapping[str, Uuid] | None = None,
        changed: Iterable[str] = (),
        waits: bool = True,
        is_step: bool = False,
        propagation: Propagation | None = None,
    ) -> Failures:
        """Decide, store in lots, and tell the brokers; return what failed on its way.

        `born` brokers are sent all partitions. All brokers are sent the new image at the end, even
        if an error ended the work early. The image includes the `changed` topics. Unless the change
        `is_step`, the controller looks for the next steps of reassignments afterwards.
        """
        failures: dict[TopicPartition, RequestError] = {}
        names: dict[str, None] = dict.fromkeys(changed)
        settled: set[TopicPartition] = set()  # stored, or refused
        configs = topic_configs or {}
        self._is_stored = False
        try:
            for _ in range(PLANS_MAX):
                changes = [
                    one
                    for one in map(self._in_new_epoch, decide())
                    if _partition(one) not in settled
                ]
                names |= dict.fromkeys(one.topic for one in changes)
                left, conflicts = iter(changes), False
                while lot := [*islice(left, at_once or STORED_AT_ONCE)]:
                    error = self._refusal()
                    stored: list[PartitionChange] = []
                    if error is None:
                        unmade = await self._make_logs(lot)
                        failures |= unmade
                        settled.update(unmade)
                        lot = [one for one in lot if _partition(one) not in unmade]
                        try:
                            stored = await self._store(lot)
                        except StorageFailure as failure:
                            error = RequestError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
                    if error is not None:
                        lost = [*map(_partition, [*lot, *left])]
                        failures |= dict.fromkeys(lost, error)
                        settled.update(lost)
                        break
                    conflicts = conflicts or len(stored) < len(lot)
                    settled.update(map(_partition, stored))
                    failures |= await self._tell_replicas(
                        stored, born, is_new, configs, waits, propagation
                    )
                    configs = {}
                if not conflicts:
                    self._is_stored = not failures
                    break
        finally:
            self._note_leaderless(failures)
            told = await self._tell(
                born=born,
                topic_configs=topic_configs,  # also to brokers without a replica
                deleted=deleted,
                changed=[*names],
                waits=waits,
                propagation=propagation,
            )
            failures |= told
            if told:
                self._note_leaderless(told)
                await self._tell(changed=[*{key.topic for key in told}], waits=waits)
            if not is_step:
                self._check_reassignments()
        return failures

    async def _make_logs(self, changes: Sequence[PartitionChange]) -> Failures:
        """Create this broker's logs of new partitions before their first leaders are stored.

        So a partition with a leader has a log, also after a crash between the two. A partition
        whose only log cannot be created remains new; others may be led by another replica.
        """
        new = [
            ReplicaState(one.topic, self.image.topics[one.topic].id, _index(one), one.after, True)
            for one in changes
            if one.before.version < 0 and self._node_id in one.after.replicas
        ]
        if not new:
            return {}
        failures = await self._create_logs(self.epoch, new)
        return {key: one for key, one in failures.items() if self._replicas(key) == 1}

    def _in_new_epoch(self, change: PartitionChange) -> PartitionChange:
        """Return a change whose leader epoch is also new to this broker's own log.

        The epoch before may have started while there was no disk space to store the leader.
        """
        after = change.after
        if after.leader == self._node_id and after.leader_epoch > change.before.leader_epoch:
            latest = self._latest_epoch(_partition(change))
            if latest >= after.leader_epoch:
                return replace(change, after=replace(after, leader_epoch=LeaderEpoch(latest + 1)))
        return change

    async def _store(self, changes: Sequence[PartitionChange]) -> list[PartitionChange]:
        """Store changes and update the image; return those that were stored.

        The others conflict with what was stored before: the image has what was read again.
        """
        if not changes:
            return []
        stored: list[PartitionChange] = []
        read: list[PartitionChange] = []
        for outcome in await self.store.store_changes(changes):
            change = outcome.change
            if not isinstance(outcome, Conflict):
                stored.append(replace(change, after=outcome.state))
            elif outcome.state is not None:
                read.append(replace(change, after=outcome.state))
        self._note([*stored, *read])
        self._count_unclean(stored)
        return stored

    def _count_unclean(self, stored: Sequence[PartitionChange]) -> None:
        """Count the leaders that may lack acknowledged records (rule A13)."""
        lost = unclean_restarts(self._registered, self._handled_restarts)
        unclean = [one for one in stored if is_unclean(one.before, one.after, lost)]
        self._counts.unclean_elections += len(unclean)
        # The only replica of a partition leads again after every crash: there is no choice.
        if chosen := [one for one in unclean if len(one.after.replicas) > 1]:
            about = {"partitions": len(chosen), "first": str(_partition(chosen[0]))}
            _LOG.warning("unclean leaders elected", about)

    def _note(self, changes: Sequence[PartitionChange]) -> None:
        """Update the image."""
        self.image = plan.with_changes(self.image, changes)
        for one in changes:
            if is_reassigning(one.after):
                self._reassigning.add(_partition(one))
            elif self._reassigning:
                self._reassigning.discard(_partition(one))

    def _note_leaderless(self, failures: Iterable[TopicPartition]) -> None:
        """Show partitions whose leader could not take over as partitions without a leader."""
        self._note(
            [
                PartitionChange(key.topic, key.partition, before, replace(before, leader=NO_BROKER))
                for key in failures
                if (before := self.image.state(key.topic, key.partition)) is not None
            ]
        )

    async def _tell_replicas(
        self,
        changes: Sequence[PartitionChange],
        born: Collection[BrokerId],
        is_new: bool,
        configs: Configs,
        waits: bool,
        propagation: Propagation | None,
    ) -> Failures:
        """Tell the replicas of changed partitions, apart from brokers that will hear of all."""
        by_broker: dict[BrokerId, list[ReplicaState]] = {}
        for one in changes:
            topic = self.image.topics[one.topic]
            state = ReplicaState(one.topic, topic.id, _index(one), one.after, is_new)
            for broker in one.after.replicas:
                if broker in self._links and broker not in born:
                    is_added = broker not in one.before.replicas
                    told = replace(state, is_new=True) if is_added else state
                    by_broker.setdefault(broker, []).append(told)
        return await self._applied(
            {
                broker: replace(self._update(broker), replicas=replicas, topic_configs=configs)
                for broker, replicas in by_broker.items()
            },
            waits,
            propagation,
        )

    async def _tell(
        self,
        *,
        born: Collection[BrokerId] = (),
        topic_configs: Configs | None = None,
        broker_configs: BrokerConfigs | None = None,
        deleted: Mapping[str, Uuid] | None = None,
        changed: Sequence[str] = (),
        waits: bool = True,
        propagation: Propagation | None = None,
    ) -> Failures:
        """Tell all brokers the new image, and what else has changed."""
        updates: dict[BrokerId, ControlUpdate] = {}
        all_replicas = self._all_replicas(born) if born else {}
        for broker in self._links:
            update = replace(self._update(broker), image=self.image, deleted=deleted or {})
            if broker in born:
                updates[broker] = replace(
                    update,
                    topic_configs=self._topic_configs,
                    broker_configs=self._broker_configs,
                    replicas=all_replicas.get(broker, ()),
                    is_full=True,
                )
            else:
                updates[broker] = replace(
                    update,
                    topic_configs=topic_configs or {},
                    broker_configs=broker_configs or {},
                    changed=changed,
                )
        return await self._applied(updates, waits, propagation)

    def _all_replicas(self, brokers: Collection[BrokerId]) -> dict[BrokerId, list[ReplicaState]]:
        found: dict[BrokerId, list[ReplicaState]] = {broker: [] for broker in brokers}
        for topic in self.image.topics.values():
            for index, state in enumerate(topic.partitions):
                if state.version < 0:
                    continue  # it has no leader yet, and so no replica has a log
                one = ReplicaState(topic.name, topic.id, PartitionIndex(index), state)
                for broker in state.replicas:
                    if broker in found:
                        found[broker].append(one)
        return found

    def _update(self, broker: BrokerId) -> ControlUpdate:
        return ControlUpdate(
            controller=self._node_id,
            controller_epoch=self.epoch,
            broker_epoch=self.image.brokers[broker].epoch,
        )

    async def _applied(
        self,
        updates: Mapping[BrokerId, ControlUpdate],
        waits: bool,
        propagation: Propagation | None = None,
    ) -> Failures:
        """Send updates; return what failed on the leaders.

        With `propagation`, this is a step of a request: it does not wait long for a broker that is
        later than the others, and notes it, and does not wait for brokers that were late before.
        """
        started_s = self._clock.elapsed_s()
        sent = self._send(updates)
        failures: dict[TopicPartition, RequestError] = {}
        own = sent.pop(self._node_id, None)
        if own is not None:
            failures |= self._failed(self._node_id, await own)
        if propagation is not None:
            sent = propagation.without_late(sent)
        if not waits or not sent:
            return failures
        self.turn.release()
        try:
            done = await self._waited(sent.values(), started_s, propagation)
        finally:
            await self.turn.acquire()
        if late := {broker: one for broker, one in sent.items() if one not in done}:
            if propagation is None or not propagation.has_client_left:
                _LOG.warning("change not applied yet", {"brokers": _ids(late)})
            if propagation is not None:
                propagation.note_late(late)
        for broker, one in sent.items():
            if one in done:
                failures |= self._failed(broker, one.result())
        return failures

    async def _waited(
        self,
        sent: Collection["asyncio.Future[Failures]"],
        started_s: float,
        propagation: Propagation | None,
    ) -> "set[asyncio.Future[Failures]]":
        """Wait for brokers; return which have applied their updates."""
        if propagation is None:
            return (await asyncio.wait(sent, timeout=APPLY_SECONDS))[0]
        done: set[asyncio.Future[Failures]] = set()
        left = {*sent}
        more = left
        while left and more:  # until nobody else applies it for a while
            took_s = self._clock.elapsed_s() - started_s
            more = await propagation.next_applied(left, max(STEP_SECONDS, 2 * took_s))
            done |= more
            left = left - more
        return done

    def _send(
        self, updates: Mapping[BrokerId, ControlUpdate]
    ) -> "dict[BrokerId, asyncio.Future[Failures]]":
        sent = {broker: self._links[broker].send(one) for broker, one in updates.items()}
        for broker, one in sent.items():
            one.add_done_callback(partial(self._note_unable, broker))
            self._guard_deleted(broker, updates[broker], one)
        return sent

    def _failed(self, broker: BrokerId, failures: Failures) -> Failures:
        """Return what failed on the leader; a follower that failed is not in the ISR."""
        return {key: one for key, one in failures.items() if self._leads(broker, key)}

    def _leads(self, broker: BrokerId, key: TopicPartition) -> bool:
        state = self.image.state(key.topic, key.partition)
        return state is None or state.leader == broker


def _index(change: PartitionChange) -> PartitionIndex:
    return PartitionIndex(change.index)


def _partition(change: PartitionChange) -> TopicPartition:
    return TopicPartition(change.topic, _index(change))


def _assignment(state: PartitionState) -> tuple[object, ...]:
    return state.replicas, state.adding, state.removing


def _topics(changes: Iterable[PartitionChange]) -> list[str]:
    return [*dict.fromkeys(one.topic for one in changes)]


def _ids(brokers: Iterable[BrokerId]) -> str:
    return ",".join(map(str, brokers))
