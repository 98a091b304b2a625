"""Creates, changes and deletes topics on the controller: decide, store, then carry out.

Invariant: one change at a time, and a change is finished even if its client disconnects. A decision
is stored before it is carried out, and clients see it when it is complete; the next controller
completes a change that was interrupted.
"""

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from itertools import takewhile
from types import CoroutineType
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, TypeVar

from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.effective_config import EffectiveConfig, described_changes
from ottla.broker.group_coordinator import OFFSETS_TOPIC
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.replica_manager import ReplicaManager
from ottla.broker.replica_roles import ReplicaRoles
from ottla.broker.shutdown import Shutdown
from ottla.clock import Clock
from ottla.cluster.existing_topics import ExistingTopics
from ottla.cluster.image import INTERNAL_TOPICS, Broker, PartitionState, Topic
from ottla.cluster.internal_topics import (
    check_internal_config,
    internal_partitions,
    required_config,
    reserved_partitions,
)
from ottla.cluster.naming import check_policy
from ottla.cluster.partition_limit import PartitionLimit, PartitionLimits, check_limit
from ottla.cluster.placement import Assignment
from ottla.cluster.reassignment import target_of
from ottla.cluster.topic_creation import (
    AskedTopic,
    TopicDefaults,
    added_partitions,
    assignment_of,
    check_added,
    check_made,
    check_name,
)
from ottla.cluster.znodes import TopicNode
from ottla.controller.control_update import Configs, Failures
from ottla.controller.controller import Controller
from ottla.controller.lease import BATCH_BYTES_MAX, Resigned, operations_bytes
from ottla.controller.loading import StoredCluster
from ottla.controller.plan import ElectionOutcome, ElectionType, ReassignmentOutcome
from ottla.controller.propagation import Propagation
from ottla.controller.store import NewTopic
from ottla.coordination.errors import CoordinationError, NodeError
from ottla.errors import ErrorCode, RequestError, StorageExhausted, StorageFailure
from ottla.ids import BrokerId, PartitionIndex, TopicPartition, Uuid
from ottla.log.names import META_PROPERTIES
from ottla.log.shield import shielded
from ottla.metrics import ControllerCounts
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.settings import broker
from ottla.settings.broker import BROKER
from ottla.settings.config_parser import HINTS_MAX
from ottla.settings.topic import TOPIC
from ottla.transport.broker_channels import ControllerChannel

_LOG = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

ConfigChange = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Maps the present configs to the new ones; raises RequestError."""

CREATION_TIMEOUT_MS: Final = 5_000  # of a topic that is created when it is first used
TIMEOUT_SECONDS_MAX: Final = 60.0  # of a request, whatever its client allows
CHANGED_AT_ONCE: Final = 100  # topics that are created or deleted together
HINTED_TOPICS_MAX: Final = 10  # misspelt configs of others get no suggestion: the search is slow
DELETED_PARTITIONS_MAX: Final = 500  # of topics that are deleted together; one may have more
MIN_ISR: Final = "min.insync.replicas"
RETRY_SECONDS: Final = 5.0  # between two attempts to become leader


def _change(
    method: Callable[Concatenate["Topics", P], Coroutine[Any, Any, T]],
) -> "Callable[Concatenate[Topics, P], CoroutineType[Any, Any, T]]":
    """Decorate a method that changes topics: it runs under the lock and to its end.

    An unexpected failure becomes a RequestError.
    """

    @wraps(method)
    async def change(self: "Topics", *args: P.args, **kwargs: P.kwargs) -> T:
        async def unless_stopping(_controller: Controller) -> T:
            if self.shutdown.begun:  # the changes that wait must not delay the stop
                raise self.shutdown.refusal()
            return await method(self, *args, **kwargs)

        return await self.in_turn(unless_stopping)

    return change


class WantedTopic(NamedTuple):
    """A topic that a client wants, with its own configs."""

    asked: AskedTopic
    values: Mapping[str, str]


class UnwantedTopic(NamedTuple):
    """A topic that a client wants to delete; with an id, only the topic of that id."""

    name: str
    topic_id: Uuid | None = None


class PartlyLed(RequestError):
    """Some partitions of an existing topic have no leader.

    The error is not retriable: the request was executed, and the remaining partitions get a leader
    when there is disk space.
    """

    def __init__(self, name: str, count: int, failures: Failures) -> None:
        reason = next(iter(failures.values()))
        super().__init__(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"topic {name} exists, but {len(failures)} of {count} partitions have no leader yet: "
            f"{reason}",
        )


class Topics:
    """The topics of the cluster, on the controller.

    Methods that change topics raise RequestError if the change is refused.
    """

    def __init__(
        self,
        *,
        node_id: BrokerId,
        clock: Clock,
        settings: EffectiveConfig,
        metadata_cache: MetadataCache,
        replica_manager: ReplicaManager,
        roles: ReplicaRoles,
        partition_limit: PartitionLimit,
        new_id: Callable[[], Uuid],
        random: Callable[[], float],
        shutdown: Shutdown,
        forward_channel: ControllerChannel,
    ) -> None:
        self._node_id = node_id
        self._clock = clock
        self._settings = settings
        self._metadata_cache = metadata_cache
        self._replica_manager = replica_manager
        self._roles = roles
        self.partition_limit = partition_limit
        self._new_id = new_id
        self._random = random
        self.shutdown = shutdown
        self._forward_channel = forward_channel
        self.controller_counts = ControllerCounts()
        self._scheduler = CooperativeScheduler(clock, shutdown)
        self._existing_topics = ExistingTopics({}, 0)  # of the newest image
        self._controller: Controller | None = None  # while this broker is the controller
        self._offsets_topic_failure = ""  # why it was not created; the log says so once

    # The controller.

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the controller."""
        return self._controller is not None

    @property
    def controller(self) -> Controller:
        """The controller; raises NOT_CONTROLLER if another broker is."""
        if self._controller is None:
            raise RequestError(ErrorCode.NOT_CONTROLLER)
        return self._controller

    def propagation(self, timeout_ms: int) -> Propagation:
        """Return what the changes of a request with this timeout share, while they are applied."""
        return Propagation(
            self._clock,
            min(timeout_ms / 1000, TIMEOUT_SECONDS_MAX),
            begin_within_s=TIMEOUT_SECONDS_MAX,
        )

    async def in_turn(self, act: Callable[[Controller], Coroutine[Any, Any, T]]) -> T:
        """Let the controller do something to its end, while it does nothing else.

        A caller that is cancelled before its turn changes nothing. An unexpected failure becomes a
        RequestError. A controller that is not connected to coordination refuses (rule B8).
        """
        controller = self.controller

        async def act_if_connected() -> T:
            if not controller.acts:
                raise RequestError(ErrorCode.NOT_CONTROLLER, "the controller is disconnected")
            return await act(controller)

        try:
            if not controller.acts:
                return await act_if_connected()
            async with controller.turn:
                return await shielded(act_if_connected())
        except StorageFailure as failure:
            raise RequestError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)) from failure
        except Resigned as error:
            controller.on_resigned()
            raise RequestError(ErrorCode.NOT_CONTROLLER, str(error)) from error
        except CoordinationError as error:
            raise RequestError(ErrorCode.NOT_CONTROLLER, str(error)) from error

    async def take_over(
        self,
        controller: Controller,
        found: StoredCluster,
        *,
        is_first: bool,
        answering: Mapping[BrokerId, Broker],
    ) -> None:
        """Become the controller: elect leaders, and finish what was interrupted.

        With `is_first`, this broker has just started. Brokers that are `answering` are about to
        register (rule B10).
        """
        # The controller decides by the minimum that the leaders use (rule A14).
        self._roles.set_broker_configs(found.broker_configs)
        self._settings.know((one.topic.name, one.config) for one in found.topics)
        async with controller.turn:
            self._controller = controller
            await controller.store.delete_topics(found.deletions)
            failures = await controller.start(found, is_first=is_first, answering=answering)
            by_topic: dict[str, RequestError] = {}
            for key, failure in failures.items():
                by_topic.setdefault(key.topic, failure)
            for name, failure in by_topic.items():
                about = {"topic": name, "reason": str(failure)}
                if name in found.deletions:
                    _LOG.error("deleted topic not removed", about)
                else:  # its partitions get a leader later
                    _LOG.error("partitions left without leader", about)
            with suppress(StorageExhausted):  # nothing is left; the next start detects it
                await controller.store.end_deletions(
                    [name for name in found.deletions if name not in by_topic]
                )
        if is_first:
            self._tell_unknown()
            self._tell_foreign()
        count, limit = len(self._replica_manager.logs), self.partition_limit
        if count > limit.partitions:
            _LOG.warning("partition limit exceeded", {"partitions": count, "limit": str(limit)})

    async def resign(self) -> None:
        """Stop controlling after the change in progress; later changes are refused."""
        if (controller := self._controller) is not None:
            async with controller.turn:
                self._controller = None
                await controller.close()

    def _tell_unknown(self) -> None:
        known = {
            TopicPartition(name, PartitionIndex(index))
            for name, one in self._metadata_cache.image.topics.items()
            for index in range(len(one.partitions))
        }
        for hosted in self._replica_manager.logs:
            if hosted.partition not in known:
                _LOG.warning(
                    "unknown partition directory ignored",
                    {"directory": hosted.log.directory},
                )

    def _tell_foreign(self) -> None:
        """Log how many partitions have all replicas on other brokers: they stay offline."""
        foreign = [
            one
            for topic in self._metadata_cache.image.topics.values()
            for one in topic.partitions
            if self._metadata_cache.image.brokers.keys().isdisjoint(one.replicas)
        ]
        if foreign:
            owners = sorted({owner for one in foreign for owner in one.replicas})
            _LOG.warning(
                "partitions of other brokers left offline",
                {
                    "node": self._node_id,
                    "partitions": len(foreign),
                    "replicas_on": ",".join(map(str, owners)),
                    "remedy": f"if the node.id in {META_PROPERTIES} was changed, restore it",
                },
            )

    async def keep_leading(self) -> None:
        """Elect leaders for partitions that lacked disk space, until cancelled."""
        while True:
            await self._clock.sleep(RETRY_SECONDS)
            for name in [*self._metadata_cache.image.topics]:
                # This broker may resign while the partitions of a topic get leaders.
                if self.is_controller and self.unled(name):
                    with suppress(RequestError):  # logged when it began
                        await self._lead_rest(name)

    async def keep_balanced(self) -> None:
        """Move leaderships back to the preferred leaders, until cancelled."""
        while True:
            config = self._settings.broker
            await self._clock.sleep(config[broker.LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS])
            config = self._settings.broker
            if config[broker.AUTO_LEADER_REBALANCE_ENABLE] and self.is_controller:
                with suppress(RequestError):  # it is tried again
                    await self._balance(config[broker.LEADER_IMBALANCE_PER_BROKER_PERCENTAGE])

    @_change
    async def _balance(self, percentage: int) -> None:
        await self.controller.balance_leaders(percentage)

    @_change
    async def elect_leaders(
        self,
        election: ElectionType,
        partitions: Sequence[TopicPartition] | None,
        propagation: Propagation,
    ) -> list[ElectionOutcome]:
        """Elect leaders that an administrator asks for."""
        propagation.begin()
        return await self.controller.elect_leaders(election, partitions, propagation)

    @_change
    async def alter_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        can_change_factor: bool,
    ) -> Mapping[TopicPartition, ReassignmentOutcome]:
        """Begin reassignments to target replicas, or cancel those in progress with None."""
        controller = self.controller
        self._check_limit(
            self._existing(),
            tuple(
                tuple(BrokerId(one) for one in target if one not in state.replicas)
                for key, target in targets.items()
                if target and (state := controller.image.state(*key)) is not None
            ),
        )
        return await controller.alter_reassignments(targets, can_change_factor=can_change_factor)

    def unled(self, name: str) -> list[int]:
        """Return the partitions of a topic that have no leader, and that a broker could lead."""
        image = self.controller.image
        return [
            index
            for index, leader in self.controller.leaders_to_be(name).items()
            if leader != self._node_id
            or self._roles.can_lead(
                TopicPartition(name, PartitionIndex(index)), image.topics[name].partitions[index]
            )
        ]

    @_change
    async def _lead_rest(self, name: str) -> None:
        if unled := self.unled(name):  # otherwise it changed meanwhile
            failures = await self.controller.lead(name, unled)
            if len(failures) < len(unled):
                led = len(unled) - len(failures)
                _LOG.info("partitions led", {"topic": name, "partitions": led})

    # Changes.

    async def create(
        self,
        asked: AskedTopic,
        values: Mapping[str, str],
        propagation: Propagation | None = None,
    ) -> Topic:
        """Create a topic."""
        (made,) = await self.create_some([WantedTopic(asked, values)], propagation=propagation)
        if isinstance(made, RequestError):
            raise made
        return made

    @_change
    async def create_some(
        self,
        wanted: Sequence[WantedTopic],
        *,
        validate_only: bool = False,
        propagation: Propagation | None = None,
    ) -> list[Topic | RequestError]:
        """Create topics, or with validate_only return what would be created.

        Returns the outcomes of as many as one transaction creates: at least of the first. As with
        the other changes, `propagation` has the brokers that have not applied it yet.
        """
        if propagation is not None:
            propagation.check_time()
        controller = self.controller
        outcomes: list[Topic | RequestError] = []
        new: dict[str, NewTopic] = {}
        made: dict[str, Topic] = {}
        existing, with_room, size, misconfigured = self._existing(), self._with_room(), 0, 0
        # Topics change only in turn, also while others run.
        async for one in self._scheduler.new_loop().over(wanted[:CHANGED_AT_ONCE]):
            try:
                hints_max = HINTS_MAX if misconfigured < HINTED_TOPICS_MAX else 0
                topic, values = self._planned(one, existing, with_room, hints_max)
            except RequestError as error:
                outcomes.append(error)
                misconfigured += error.code is ErrorCode.INVALID_CONFIG
                continue
            assignment = tuple(state.replicas for state in topic.partitions)
            added = NewTopic(topic.name, TopicNode(topic.id, assignment), values)
            size += operations_bytes(added.operations())
            if new and size > BATCH_BYTES_MAX:
                break
            new[topic.name], made[topic.name] = added, topic
            existing.add(topic)
            outcomes.append(topic)
        if validate_only or not new:
            return outcomes
        propagation = propagation or controller.propagation()
        propagation.begin()
        try:
            stored = await self._stored([*new.values()])
        except NodeError as error:
            first = next(index for index, one in enumerate(outcomes) if isinstance(one, Topic))
            return [*outcomes[:first], RequestError(ErrorCode.NOT_CONTROLLER, str(error))]
        outcomes = [
            *takewhile(lambda one: not isinstance(one, Topic) or one.name in stored, outcomes)
        ]
        self._settings.know(stored.items())  # before a leader uses them (rule A14)
        failures = await controller.add_topics([made[name] for name in stored], stored, propagation)
        return [
            self._created(one, stored[one.name], failures) if isinstance(one, Topic) else one
            for one in outcomes
        ]

    def _planned(
        self,
        wanted: WantedTopic,
        existing: ExistingTopics,
        with_room: Sequence[Broker],
        hints_max: int,
    ) -> tuple[Topic, Mapping[str, str]]:
        """Return a topic to create and its own configs."""
        asked = wanted.asked
        check_name(asked.name, existing)
        check_made([len(asked.assignment) or asked.partitions])
        values = {**wanted.values, **self.required_config(asked.name)}
        internal = internal_partitions(
            asked.name, len(asked.assignment) or asked.partitions, self._settings.broker
        )
        defaults = self._defaults()
        if internal is not None:
            defaults = defaults._replace(partitions=internal)
        assignment = assignment_of(asked, defaults, with_room, self._start())
        self._check_limit(existing, assignment, is_internal=internal is not None)
        self._settings.checked_overrides(values, hints_max=hints_max)
        self._check_internal(asked.name, {}, values, assignment)
        check_policy(asked.name, self._settings.broker[broker.OTTLA_TOPIC_NAME_POLICY])
        return Topic(asked.name, self._new_id(), tuple(map(PartitionState, assignment))), values

    async def _stored(self, topics: Sequence[NewTopic]) -> Configs:
        """Store new topics in one transaction; return the configs of those that are stored.

        If a node of one of them is in the way, only the first is stored, or NodeError is raised for
        it: each fails on its own.
        """
        store = self.controller.store
        try:
            await store.create_topics(topics)
        except NodeError:
            topics = topics[:1]
            await store.create_topics(topics)
        return {one.name: one.config for one in topics}

    def _created(
        self, made: Topic, values: Mapping[str, str], failures: Failures
    ) -> Topic | RequestError:
        """Return the outcome of a topic that is stored."""
        failed = {key: one for key, one in failures.items() if key.topic == made.name}
        if failed:
            return PartlyLed(made.name, len(made.partitions), failed)
        _LOG.info(
            "topic created",
            {
                "topic": made.name,
                "id": made.id,
                "partitions": len(made.partitions),
                "settings": described_changes({}, values, TOPIC),
            },
        )
        current = self.controller.image.topics.get(made.name)
        # It may have been deleted while the brokers applied its creation.
        return made if current is None or current.id != made.id else current

    async def create_missing(self, name: str) -> None:
        """Create a topic with default configs, or __consumer_offsets with its own.

        Other internal topics are refused: default retention would delete their data.
        """
        if name == OFFSETS_TOPIC:
            await self.create_offsets_topic()
        elif name in INTERNAL_TOPICS:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            await self._create_once(AskedTopic(name), {})

    async def create_offsets_topic(self) -> None:
        """Create __consumer_offsets when the first group asks for it."""
        try:
            await self._create_offsets_topic()
        except PartlyLed:
            raise
        except RequestError as error:
            if str(error) != self._offsets_topic_failure:
                self._offsets_topic_failure = str(error)
                _LOG.warning("offsets topic not created", {"reason": str(error)})
            raise
        self._offsets_topic_failure = ""

    async def _create_offsets_topic(self) -> None:
        config = self._settings.broker
        factor = broker.OFFSETS_TOPIC_REPLICATION_FACTOR
        replicas, alive = config[factor], len(self._metadata_cache.image.brokers)
        if self._is_single_broker:
            replicas = 1
        elif replicas > alive:
            raise RequestError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{factor.name}={replicas}, but only {alive} brokers are alive",
            )
        asked = AskedTopic(OFFSETS_TOPIC, config[broker.OFFSETS_TOPIC_NUM_PARTITIONS], replicas)
        await self._create_once(asked, {})

    @property
    def _is_single_broker(self) -> bool:
        """Whether the cluster has no other broker, as far as this one knows."""
        image = self._metadata_cache.image
        return not self._settings.broker[broker.ZOOKEEPER_CONNECT] and {self._node_id} == {
            *image.brokers,
            *(
                replica
                for topic in image.topics.values()
                for one in topic.partitions
                for replica in one.replicas
            ),
        }

    def required_config(self, name: str) -> dict[str, str]:
        """Return the configs that an internal topic must have; none for other topics."""
        return required_config(name, self._settings.broker)

    def _check_internal(
        self,
        name: str,
        before: Mapping[str, str],
        after: Mapping[str, str],
        assignment: Sequence[Sequence[BrokerId]],
    ) -> None:
        check_internal_config(
            name,
            before,
            after,
            required=self.required_config(name),
            replication_factor=min(map(len, assignment)),
        )

    async def _create_once(self, asked: AskedTopic, values: Mapping[str, str]) -> None:
        try:
            if self.is_controller:
                propagation = self.propagation(CREATION_TIMEOUT_MS)
                change = self.create(asked, values, propagation=propagation)
                await propagation.carry_out(change)
            else:
                await self._ask_controller(asked)
        except RequestError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    async def _ask_controller(self, asked: AskedTopic) -> None:
        """Let the controller create a topic."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=asked.name,
                    num_partitions=asked.partitions,
                    replication_factor=asked.replication_factor,
                    assignments=(),
                    configs=(),
                )
            ],
            timeout_ms=CREATION_TIMEOUT_MS,
        )
        response = await self._forward_channel.ask(request, CreateTopicsResponse)
        for one in response.topics:
            # At the timeout, the topic exists; some broker has not applied that yet.
            if one.error_code not in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT):
                raise RequestError(ErrorCode(one.error_code), one.error_message)

    async def delete(
        self, name: str, topic_id: Uuid | None = None, propagation: Propagation | None = None
    ) -> None:
        """Delete a topic with all its records; with an id, only the topic of that id."""
        (error,) = await self.delete_some([UnwantedTopic(name, topic_id)], propagation)
        if error is not None:
            raise error

    @_change
    async def delete_some(
        self, unwanted: Sequence[UnwantedTopic], propagation: Propagation | None = None
    ) -> list[RequestError | None]:
        """Delete topics with all their records.

        Returns the outcomes of as many as are deleted together: at least of the first.
        """
        if propagation is not None:
            propagation.check_time()
        controller = self.controller
        outcomes: list[RequestError | None] = []
        gone: dict[str, Topic] = {}
        count = 0
        for one in unwanted[:CHANGED_AT_ONCE]:
            try:
                topic = self._deletable(one)
            except RequestError as error:
                outcomes.append(error)
                continue
            count += len(topic.partitions)
            if gone and count > DELETED_PARTITIONS_MAX:
                break
            gone[one.name] = topic
            outcomes.append(None)
        if not gone:
            return outcomes
        propagation = propagation or controller.propagation()
        propagation.begin()
        await controller.store.begin_deletions([*gone])
        failed: dict[str, Exception] = {}
        try:
            failures = await controller.delete_topics([*gone], propagation)
            failed |= {key.topic: failure for key, failure in failures.items()}
            await controller.store.delete_topics(
                [*gone], [one for one in gone if one not in failed]
            )
        except StorageFailure as failure:
            failed |= dict.fromkeys(gone, failure)
        for name, topic in gone.items():
            if name not in failed:
                _LOG.info("topic deleted", {"topic": name, "id": topic.id})
        return [
            _left_over(one.name, failed[one.name])
            if error is None and one.name in failed
            else error
            for one, error in zip(unwanted, outcomes, strict=False)
        ]

    def _deletable(self, unwanted: UnwantedTopic) -> Topic:
        name, topic_id = unwanted
        found = self.controller.image.topics.get(name)
        if topic_id is not None and (found is None or found.id != topic_id):
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_ID)
        if found is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if name in INTERNAL_TOPICS:
            raise RequestError(
                ErrorCode.INVALID_REQUEST, f"{name} is an internal topic and cannot be deleted."
            )
        return found

    @_change
    async def grow(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None,
        *,
        validate_only: bool = False,
        propagation: Propagation | None = None,
    ) -> None:
        """Add partitions to a topic."""
        if propagation is not None:
            propagation.check_time()
        image = self.controller.image
        found = image.topics.get(name)
        if found is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if found.internal:
            raise RequestError(
                ErrorCode.INVALID_PARTITIONS,
                f"The partition count of {name} cannot change: it determines the partition of "
                "each group or transactional id.",
            )
        # During a reassignment, the replication factor is that of its target.
        present = [target_of(one) for one in found.partitions]
        check_added([(len(present), count)])  # here too: the topic may be younger than the request
        added = added_partitions(present, count, assignments, self._with_room(), self._start())
        self._check_limit(self._existing(), added)
        if validate_only:
            return
        node = TopicNode(found.id, (*(one.replicas for one in found.partitions), *added))
        controller = self.controller
        propagation = propagation or controller.propagation()
        propagation.begin()
        await controller.store.grow_topic(name, node)
        grown = Topic(name, found.id, (*found.partitions, *map(PartitionState, added)))
        failures = await controller.grow_topic(grown, propagation)
        if failures:
            raise PartlyLed(name, count, failures)
        _LOG.info("partitions added", {"topic": name, "from": len(present), "to": count})

    @_change
    async def set_config(
        self, name: str, change: ConfigChange, propagation: Propagation, *, validate_only: bool
    ) -> None:
        """Change a topic's own configs; they take effect at once."""
        propagation.check_time()
        found = self.controller.image.topics.get(name)
        if found is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        before = self._settings.topic_values(name)
        values = change(before)
        overrides = self._settings.checked_overrides(values)
        self._check_internal(name, before, values, [one.replicas for one in found.partitions])
        if validate_only:
            return
        controller = self.controller
        propagation.begin()
        minimum = self._settings.in_sync_min_with(name, overrides)
        minima: Mapping[str, int] | None = None
        if minimum != self._settings.in_sync_min(name):
            minima = await controller.set_min_isr({name: minimum}, propagation)
        await controller.store.set_topic_config(name, values)
        changes = described_changes(before, values, TOPIC)
        await controller.set_configs(
            topic_configs={name: values}, minima=minima, propagation=propagation
        )
        _LOG.info("settings changed", {"topic": name, "settings": changes})

    @_change
    async def set_broker_config(
        self,
        change: ConfigChange,
        propagation: Propagation,
        *,
        whose: BrokerId | None,
        validate_only: bool,
    ) -> None:
        """Change the dynamic configs of a broker, or for None the cluster-wide defaults, at once.

        Another broker also checks them against its properties file, and logs a conflict.
        """
        propagation.check_time()
        controller, own = self.controller, whose is not None
        if whose in (None, self._node_id):
            before = self._settings.broker_values(own=own)
        else:
            before = controller.broker_config(whose)
        values = change(before)
        self._settings.check_broker(values, own=own)
        if validate_only:
            return
        propagation.begin()
        minima: Mapping[str, int] | None = None
        if not own and before.get(MIN_ISR) != values.get(MIN_ISR):
            minima = await controller.set_min_isr(
                self._settings.in_sync_mins_after(controller.image.topics, values), propagation
            )
        await controller.store.set_broker_config(whose, values)
        changes = described_changes(before, values, BROKER)
        await controller.set_configs(
            broker_configs={whose: values}, minima=minima, propagation=propagation
        )
        about = {"broker": "all" if whose is None else str(whose), "settings": changes}
        _LOG.info("settings changed", about)

    # Implementation.

    def _defaults(self) -> TopicDefaults:
        config = self._settings.broker
        return TopicDefaults(
            config[broker.NUM_PARTITIONS], config[broker.DEFAULT_REPLICATION_FACTOR]
        )

    def _check_limit(
        self, existing: ExistingTopics, added: Assignment, *, is_internal: bool = False
    ) -> None:
        limits = PartitionLimits(self.partition_limit, self.controller.partition_limits)
        internal = 0 if is_internal else reserved_partitions(existing, self._settings.broker)
        check_limit(existing, added, limits, internal)

    def _existing(self) -> ExistingTopics:
        """Return the topics of the image; changes that are refused share its counts."""
        image = self.controller.image
        if not self._existing_topics.is_of(image.topics):
            self._existing_topics = ExistingTopics(image.topics, image.partition_count)
        return self._existing_topics

    def _with_room(self) -> list[Broker]:
        """Return the brokers with a directory that is not cordoned."""
        full = self._roles.cordoned()
        has_space = any(one.path not in full for one in self._replica_manager.logs.online)
        return [
            one
            for number, one in sorted(self.controller.image.brokers.items())
            if (has_space if number == self._node_id else not self._is_drained(number))
        ]

    def _is_drained(self, number: BrokerId) -> bool:
        """Whether the settings of another broker exclude all its directories."""
        paths = self.controller.broker_config(number).get(broker.CORDONED_LOG_DIRS.name, "")
        return "*" in (one.strip() for one in paths.split(","))

    def _start(self) -> int:
        return int(self._random() * 2**31)


def _left_over(name: str, failure: Exception) -> RequestError:
    """Return the error of a deletion that is not complete.

    It is not retriable: a retry would find that the topic does not exist.
    """
    return RequestError(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        f"{name} is deleted, but some of its files remain until the broker restarts: {failure}",
    )
