"""Everything that the controller decides about partitions, as functions without I/O.

A function takes the cluster image and the conditions of the moment, and returns changes. The
controller stores a change with a compare-and-set on `before.version` (rule B5), and only then
notifies the brokers (rule B9). If another change was stored first, the controller plans again with
the state that it read.

Invariants of every change:

- `after.version == before.version + 1`, and the leader epoch never falls. Each decision of the
  controller has a new leader epoch; an ISR change that the leader proposed keeps it.
- The leader is in the ISR, or there is no leader.
- The ISR is empty only while the ELR or the last known leader says who can lead (rules A14, B9).
- A leader comes from the ISR or the ELR. The last known leader is elected if both are empty, and
  any other replica only if the topic allows unclean elections (rule A13).
- The brokers of ISR, ELR, `adding` and `removing` are replicas of the partition.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Final

from msgspec import Struct, field

from ottla.cluster.election import (
    change_in_sync,
    elect_after_departure,
    elect_first,
    elect_preferred,
    hand_over,
    trust_in_sync_only,
)
from ottla.cluster.image import ClusterImage, PartitionChange, PartitionState, Topic
from ottla.cluster.reassignment import (
    StepKind,
    begin_reassignment,
    can_join,
    cancel_reassignment,
    next_step,
    original_of,
    target_of,
)
from ottla.cluster.registration import Registered
from ottla.cluster.topic_creation import checked
from ottla.errors import ErrorCode, RequestError
from ottla.ids import NO_BROKER, BrokerEpoch, BrokerId, PartitionIndex, TopicPartition, Uuid
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
    PartitionData,
)


def _never(topic: str) -> bool:
    return False


class Conditions(Struct, frozen=True):
    """Which brokers can lead and stay in sync, and the settings of topics that matter for it."""

    alive: Collection[BrokerId]
    """The registered brokers, also while they shut down."""

    min_isr: Callable[[str], int]
    """Returns the configured min.insync.replicas of a topic."""

    unclean: Callable[[str], bool] = _never
    """Returns whether a topic allows unclean elections (unclean.leader.election.enable)."""

    shutting_down: Collection[BrokerId] = frozenset()
    """Brokers in a controlled shutdown: they keep what they lead, and are not elected."""

    answering: Collection[BrokerId] = frozenset()
    """Brokers that answer and are not registered yet (rule B10); see `brokers_to_spare`."""

    offline: Mapping[BrokerId, Collection[TopicPartition]] = field(
        default_factory=dict[BrokerId, Collection[TopicPartition]]
    )
    """Replicas in failed data directories of live brokers."""

    deleting: Mapping[BrokerId, Collection[TopicPartition]] = field(
        default_factory=dict[BrokerId, Collection[TopicPartition]]
    )
    """Replicas that a live broker deletes, or may still be told to delete (rule A15)."""

    def in_service(self) -> frozenset[BrokerId]:
        """Return the brokers that keep their places in ISRs, and their leaderships."""
        return frozenset(self.alive).union(self.answering)

    def electable(self) -> frozenset[BrokerId]:
        """Return the brokers that can be elected."""
        return frozenset(self.alive).difference(self.shutting_down)

    def is_offline(self, topic: str, index: int, broker: BrokerId) -> bool:
        """Whether the replica of a live broker is in a failed data directory."""
        return TopicPartition(topic, index) in self.offline.get(broker, ())

    def is_deleted(self, topic: str, index: int, broker: BrokerId) -> bool:
        """Whether a live broker deletes its replica, or may be about to."""
        return TopicPartition(topic, index) in self.deleting.get(broker, ())

    def offline_replicas(self) -> dict[TopicPartition, frozenset[BrokerId]]:
        """Return by partition the live brokers whose replica is in a failed data directory."""
        found: defaultdict[TopicPartition, set[BrokerId]] = defaultdict(set)
        for broker, partitions in self.offline.items():
            for partition in partitions:
                found[partition].add(broker)
        return {partition: frozenset(brokers) for partition, brokers in found.items()}


_NOBODY: Final = frozenset[BrokerId]()


def brokers_to_spare(
    answering: Collection[BrokerId], *, controller_for_s: float, session_timeout_s: float
) -> frozenset[BrokerId]:
    """Return the unregistered brokers that do not count as dead (rule B10).

    After an outage of ZooKeeper all sessions have expired. The first broker that registers becomes
    controller, and must not remove from every ISR the brokers that are about to register. So for
    one session timeout, a broker that answers the new controller is spared.
    """
    return frozenset(answering) if controller_for_s < session_timeout_s else _NOBODY


def may_be_removed(registered: Registered, *, known_for_s: float, session_timeout_s: float) -> bool:
    """Whether the registration of a broker that refuses connections may be deleted (rule B13).

    A live broker behind a firewall that refuses registers again. For one session timeout, only its
    session decides on it, so that it does not lose its leaderships over and over.
    """
    return not registered.registration.was_taken_for_dead or known_for_s >= session_timeout_s


def with_changes(image: ClusterImage, changes: Iterable[PartitionChange]) -> ClusterImage:
    """Return the next image, with changes that were stored."""
    by_topic: defaultdict[str, list[PartitionChange]] = defaultdict(list)
    for change in changes:
        by_topic[change.topic].append(change)
    topics: list[Topic] = []
    for name, some in by_topic.items():
        topic = image.topics[name]
        partitions = list(topic.partitions)
        for change in some:
            partitions[change.index] = change.after
        topics.append(Topic(name, topic.id, tuple(partitions)))
    return image.with_topics(topics) if topics else image


# Events.


def new_partitions(
    image: ClusterImage, conditions: Conditions, topics: Iterable[str] | None = None
) -> list[PartitionChange]:
    """Elect the first leaders of new partitions, of some topics or of all.

    A topic that was deleted meanwhile has none. A partition without an electable replica remains
    new until `brokers_changed` finds one.
    """
    electable = conditions.electable()
    changes: list[PartitionChange] = []
    names = image.topics if topics is None else topics
    for topic in [image.topics[name] for name in names if name in image.topics]:
        for index, before in enumerate(topic.partitions):
            if before.version < 0:
                after = elect_first(before, electable)
                if after is not before:
                    changes.append(PartitionChange(topic.name, index, before, after))
    return changes


def brokers_changed(
    image: ClusterImage,
    conditions: Conditions,
    *,
    restarted: Collection[BrokerId] = (),
    lost: Collection[BrokerId] = (),
) -> list[PartitionChange]:
    """Plan everything that follows from the brokers which are alive now.

    Dead brokers leave the ISRs, and partitions without a leader get one. `restarted` brokers are
    new incarnations since the last call: what they led gets a new epoch. `lost` brokers are those
    whose last stop was not clean: they leave every ISR and ELR (rules A14 and B1). A broker that
    registered again in the same incarnation is in neither.

    The result is empty if nothing must change, so the controller can call this at any time: also
    when it takes over, and when a topic starts to allow unclean elections.
    """
    electable, in_service = conditions.electable(), conditions.in_service()
    gone = frozenset(lost)
    restarts = gone.union(restarted)
    complete = in_service - gone  # brokers that stay in the ISRs
    leading = complete - restarts  # brokers that continue to lead
    offline = conditions.offline_replicas()
    changes: list[PartitionChange] = []
    for topic in image.topics.values():
        name, min_isr, unclean = topic.name, 0, False
        for index, before in enumerate(topic.partitions):
            failed = _failed(offline, name, index)
            if (
                before.leader in leading
                and complete.issuperset(before.in_sync)
                and (not failed or failed.isdisjoint(before.in_sync))
                and (not gone or gone.isdisjoint(before.elr))
            ):
                continue
            if before.version < 0:
                after = elect_first(before, electable - failed)
            else:
                if not min_isr:
                    min_isr, unclean = conditions.min_isr(name), conditions.unclean(name)
                after = elect_after_departure(
                    before,
                    frozenset(before.in_sync) - (in_service - failed),
                    electable=electable - failed,
                    min_isr=min_isr,
                    lost=gone,
                    restarted=restarts,
                    unclean=unclean,
                )
            if after is not before:
                changes.append(PartitionChange(name, index, before, after))
    return changes


class ControlledShutdown(Struct, frozen=True):
    """What a broker that shuts down gives up, and what it still leads."""

    changes: list[PartitionChange]
    remaining: list[TopicPartition]  # the broker asks again until this is empty, or gives up


def controlled_shutdown(
    image: ClusterImage, conditions: Conditions, broker: BrokerId
) -> ControlledShutdown:
    """Move the leaderships of a broker that shuts down, and remove it from ISRs (rule B11).

    It keeps leading the partitions without another live ISR member. As in Kafka, those with one
    replica do not count as remaining: waiting for them would not help.
    """
    electable = conditions.electable() - {broker}
    offline = conditions.offline_replicas()
    changes: list[PartitionChange] = []
    remaining: list[TopicPartition] = []
    for topic in image.topics.values():
        for index, before in enumerate(topic.partitions):
            if broker not in before.in_sync:
                continue
            after = hand_over(
                before,
                broker,
                electable=electable - _failed(offline, topic.name, index),
                min_isr=conditions.min_isr(topic.name),
            )
            if after is not before:
                changes.append(PartitionChange(topic.name, index, before, after))
            elif len(before.replicas) > 1:
                remaining.append(TopicPartition(topic.name, PartitionIndex(index)))
    return ControlledShutdown(changes, remaining)


def directory_failed(
    image: ClusterImage,
    conditions: Conditions,
    broker: BrokerId,
    partitions: Iterable[TopicPartition],
) -> list[PartitionChange]:
    """Remove replicas in a failed directory from ISRs, and move their leaderships (rule C6).

    Unlike a full directory, a failed one serves nothing: a partition without another replica has
    no leader. `conditions.offline` must have the replicas from now on, until the broker restarts.
    """
    electable = conditions.electable() - {broker}
    offline = conditions.offline_replicas()
    changes: list[PartitionChange] = []
    for topic, index, before in _known(image, partitions):
        if broker in before.in_sync:
            after = elect_after_departure(
                before,
                (broker,),
                electable=electable - _failed(offline, topic, index),
                min_isr=conditions.min_isr(topic),
                unclean=conditions.unclean(topic),
            )
            changes.append(PartitionChange(topic, index, before, after))
    return changes


def directory_full(
    image: ClusterImage,
    conditions: Conditions,
    broker: BrokerId,
    partitions: Iterable[TopicPartition],
) -> list[PartitionChange]:
    """Remove replicas in a full directory from ISRs, and move their leaderships (rule C6).

    The broker returns to these ISRs when it has space to follow again. Without another live ISR
    member it stays, because it still serves reads, and nobody else has all records.
    """
    electable = conditions.electable() - {broker}
    offline = conditions.offline_replicas()
    changes: list[PartitionChange] = []
    for topic, index, before in _known(image, partitions):
        others = electable - _failed(offline, topic, index)
        if others.isdisjoint(before.in_sync):
            continue
        after = hand_over(before, broker, electable=others, min_isr=conditions.min_isr(topic))
        if after is not before:
            changes.append(PartitionChange(topic, index, before, after))
    return changes


def min_isr_changed(
    image: ClusterImage, conditions: Conditions, topics: Iterable[str]
) -> list[PartitionChange]:
    """Clear the ELRs that a new min.insync.replicas makes worthless (rule A14).

    With a lower minimum, leaders acknowledge records that the ELR lacks. So these changes must be
    stored before any leader gets the new minimum, which `conditions.min_isr` returns.
    """
    changes: list[PartitionChange] = []
    for name in topics:
        min_isr = conditions.min_isr(name)
        for index, before in enumerate(image.topics[name].partitions):
            after = trust_in_sync_only(before, min_isr=min_isr)
            if after is not before:
                changes.append(PartitionChange(name, index, before, after))
    return changes


def _failed(
    offline: Mapping[TopicPartition, frozenset[BrokerId]], topic: str, index: int
) -> frozenset[BrokerId]:
    if not offline:  # almost always
        return _NOBODY
    return offline.get(TopicPartition(topic, PartitionIndex(index)), _NOBODY)


def _known(
    image: ClusterImage, partitions: Iterable[TopicPartition]
) -> Iterator[tuple[str, int, PartitionState]]:
    """Yield the partitions that have a stored state."""
    for topic, index in partitions:
        state = image.state(topic, index)
        if state is not None and state.version >= 0:
            yield topic, index, state


# Elections on request.


class ElectionType(IntEnum):
    """The election type of an ElectLeaders request."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectionOutcome(Struct, frozen=True):
    """The outcome of an ElectLeaders request for one partition."""

    topic: str
    index: int
    error: ErrorCode
    message: str | None = None  # None: the text of the error
    change: PartitionChange | None = None  # None: there is nothing to store


def elect_leaders(
    image: ClusterImage,
    conditions: Conditions,
    election: ElectionType,
    partitions: Iterable[TopicPartition] | None,
) -> list[ElectionOutcome]:
    """Elect leaders that an administrator asks for.

    With `partitions` None all partitions are meant. As in Kafka, the outcome then lacks those that
    need no election.
    """
    if partitions is not None:
        return [_elect_leader(image, conditions, election, one) for one in partitions]
    every = (
        TopicPartition(topic.name, PartitionIndex(index))
        for topic in image.topics.values()
        for index in range(len(topic.partitions))
    )
    outcomes = (_elect_leader(image, conditions, election, one) for one in every)
    return [one for one in outcomes if one.error is not ErrorCode.ELECTION_NOT_NEEDED]


def _elect_leader(
    image: ClusterImage, conditions: Conditions, election: ElectionType, partition: TopicPartition
) -> ElectionOutcome:
    name, index = partition
    topic, before = image.topics.get(name), image.state(name, index)
    if topic is None or before is None:
        missing = (
            f"No such topic as {name}" if topic is None else f"No such partition as {partition}"
        )
        return ElectionOutcome(name, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, missing)
    in_service = conditions.in_service()
    electable = frozenset(
        broker
        for broker in conditions.electable()
        if not conditions.is_offline(name, index, broker)
    )
    if election is ElectionType.PREFERRED:
        if before.leader == before.replicas[0]:
            return ElectionOutcome(name, index, ErrorCode.ELECTION_NOT_NEEDED)
        after = elect_preferred(before, electable)
        if after is before:
            return ElectionOutcome(name, index, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
    else:
        if before.leader in in_service:
            return ElectionOutcome(name, index, ErrorCode.ELECTION_NOT_NEEDED)
        if before.version < 0:
            after = elect_first(before, electable)
        else:
            after = elect_after_departure(
                before,
                frozenset(before.in_sync) - in_service,
                electable=electable,
                min_isr=conditions.min_isr(name),
                unclean=True,
            )
        if after.leader == NO_BROKER:
            return ElectionOutcome(name, index, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    change = PartitionChange(name, index, before, after)
    return ElectionOutcome(name, index, ErrorCode.NONE, change=change)


def preferred_imbalance(
    image: ClusterImage, conditions: Conditions, *, percentage: int
) -> list[PartitionChange]:
    """Move leaderships back to preferred leaders (auto.leader.rebalance.enable).

    A broker gets its partitions back if other brokers lead more than `percentage` of them
    (leader.imbalance.per.broker.percentage). Reassignments in progress are left alone.
    """
    electable = conditions.electable()
    preferred: defaultdict[BrokerId, int] = defaultdict(int)
    elsewhere: defaultdict[BrokerId, list[tuple[str, int, PartitionState]]] = defaultdict(list)
    for topic in image.topics.values():
        for index, before in enumerate(topic.partitions):
            first = before.replicas[0]
            preferred[first] += 1
            if before.leader != first:
                elsewhere[first].append((topic.name, index, before))
    changes: list[PartitionChange] = []
    for broker, partitions in elsewhere.items():
        if broker not in electable or len(partitions) * 100 <= percentage * preferred[broker]:
            continue
        for name, index, before in partitions:
            is_moving = before.adding or before.removing
            if is_moving or conditions.is_offline(name, index, broker):
                continue
            after = elect_preferred(before, electable)
            if after is not before:
                changes.append(PartitionChange(name, index, before, after))
    return changes


# Reassignments.


class ReassignmentOutcome(Struct, frozen=True):
    """The outcome of an AlterPartitionReassignments request for one partition."""

    topic: str
    index: int
    error: ErrorCode
    message: str | None = None
    change: PartitionChange | None = None  # None: there is nothing to store
    delete: tuple[BrokerId, ...] = ()  # replicas that are deleted after the change is stored


def alter_reassignment(
    image: ClusterImage,
    conditions: Conditions,
    partition: TopicPartition,
    target: Sequence[int] | None,
    *,
    can_change_factor: bool = True,
) -> ReassignmentOutcome:
    """Begin a reassignment to a target, or cancel the one in progress with None (KIP-455)."""
    name, index = partition
    before = image.state(name, index)
    try:
        if before is None:
            missing = (
                f"partition {name}:{index}" if name in image.topics else f"a topic named {name}"
            )
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find {missing}.")
        min_isr = conditions.min_isr(name)
        if target is None:
            offline = _failed(conditions.offline_replicas(), name, index)
            electable = conditions.electable() - offline
            after = cancel_reassignment(before, electable=electable, min_isr=min_isr)
            delete = before.adding
        else:
            after = begin_reassignment(before, _checked_target(before, conditions, target))
            delete = ()
            factor = len(target_of(before))
            if not can_change_factor and len(target) != factor:
                raise RequestError(
                    ErrorCode.INVALID_REPLICATION_FACTOR,
                    f"The replication factor is changed from {factor} to {len(target)}.",
                )
    except RequestError as error:
        return ReassignmentOutcome(name, index, error.code, error.message)
    if after is before:
        return ReassignmentOutcome(name, index, ErrorCode.NONE)
    change = PartitionChange(name, index, before, after)
    return ReassignmentOutcome(name, index, ErrorCode.NONE, change=change, delete=delete)


def _checked_target(
    before: PartitionState, conditions: Conditions, target: Sequence[int]
) -> tuple[BrokerId, ...]:
    # A broker that has died since the partition was placed there may stay a replica.
    known = {*conditions.alive, *original_of(before)}
    (checked_target,) = checked([target], known, len(target))
    return checked_target


class ReassignmentStep(Struct, frozen=True):
    """The next step of one reassignment."""

    kind: StepKind
    change: PartitionChange
    delete: tuple[BrokerId, ...]  # replicas that are deleted before the change is stored


def reassignment_steps(
    image: ClusterImage, conditions: Conditions, partitions: Iterable[TopicPartition]
) -> list[ReassignmentStep]:
    """Return the next steps of the reassignments of these partitions (rule A15).

    The controller calls this when it takes over, and after each change of brokers, ISRs and minima
    and each step.
    """
    electable = conditions.electable()
    offline = conditions.offline_replicas()
    steps: list[ReassignmentStep] = []
    for name, index, before in _known(image, partitions):
        step = next_step(
            before,
            electable=electable - _failed(offline, name, index),
            min_isr=conditions.min_isr(name),
        )
        if step is not None:
            change = PartitionChange(name, index, before, step.after)
            steps.append(ReassignmentStep(step.kind, change, step.delete))
    return steps


# AlterPartition.


class AlteredPartition(Struct, frozen=True):
    """The outcome for one partition of an AlterPartition request."""

    topic_id: Uuid
    index: int
    error: ErrorCode
    state: PartitionState | None = None  # with error NONE: the state after the request
    change: PartitionChange | None = None  # None: there is nothing to store


def alter_partition(
    image: ClusterImage,
    request: AlterPartitionRequest,
    conditions: Conditions,
    epochs: Mapping[BrokerId, BrokerEpoch],
) -> list[AlteredPartition] | ErrorCode:
    """Decide on the ISRs that a leader proposes (KIP-497, rules A10 and B5).

    `epochs` are the broker epochs of the registered brokers. An error for the whole request is
    returned instead of a list. A change that cannot be stored later gets INVALID_UPDATE_VERSION if
    the partition has changed, and INELIGIBLE_REPLICA if a broker that joins has.
    """
    if epochs.get(BrokerId(request.broker_id)) != request.broker_epoch:
        return ErrorCode.STALE_BROKER_EPOCH
    broker = BrokerId(request.broker_id)
    return [
        _altered(
            image.topic_of_id(topic.topic_id), topic.topic_id, asked, broker, conditions, epochs
        )
        for topic in request.topics
        for asked in topic.partitions
    ]


def alter_partition_response(
    outcomes: Iterable[AlteredPartition] | ErrorCode,
) -> AlterPartitionResponse:
    """Return the response to an AlterPartition request."""
    if isinstance(outcomes, ErrorCode):
        return AlterPartitionResponse(throttle_time_ms=0, error_code=int(outcomes), topics=())
    by_topic: defaultdict[Uuid, list[AlterPartitionResponsePartitionData]] = defaultdict(list)
    for one in outcomes:
        state = one.state or _NO_STATE
        by_topic[one.topic_id].append(
            AlterPartitionResponsePartitionData(
                partition_index=one.index,
                error_code=int(one.error),
                leader_id=state.leader,
                leader_epoch=state.leader_epoch,
                isr=state.in_sync,
                partition_epoch=state.version,
            )
        )
    topics = [
        AlterPartitionResponseTopicData(topic_id=topic_id, partitions=partitions)
        for topic_id, partitions in by_topic.items()
    ]
    return AlterPartitionResponse(throttle_time_ms=0, error_code=0, topics=topics)


_NO_STATE: Final = PartitionState(())


def _altered(
    topic: Topic | None,
    topic_id: Uuid,
    asked: PartitionData,
    broker: BrokerId,
    conditions: Conditions,
    epochs: Mapping[BrokerId, BrokerEpoch],
) -> AlteredPartition:
    index = asked.partition_index
    if topic is None:
        return AlteredPartition(topic_id, index, ErrorCode.UNKNOWN_TOPIC_ID)
    before = topic.partition(index)
    if before is None:
        return AlteredPartition(topic.id, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    proposed = dict(_proposed(asked))
    error = _refusal(before, asked, broker, proposed)
    if error is not None:
        return AlteredPartition(topic.id, index, error)
    in_sync = tuple(proposed)
    if set(in_sync) == set(before.in_sync):  # the request was repeated after a lost response
        return AlteredPartition(topic.id, index, ErrorCode.NONE, before)
    if asked.partition_epoch < before.version:
        return AlteredPartition(topic.id, index, ErrorCode.INVALID_UPDATE_VERSION)
    min_isr = conditions.min_isr(topic.name)
    for member, epoch in proposed.items():
        if member not in before.in_sync and (
            epochs.get(member) != epoch
            or member in conditions.shutting_down
            or conditions.is_offline(topic.name, index, member)
            or conditions.is_deleted(topic.name, index, member)
            or not can_join(before, member, min_isr=min_isr)
        ):
            return AlteredPartition(topic.id, index, ErrorCode.INELIGIBLE_REPLICA)
    after = change_in_sync(before, in_sync, min_isr=min_isr)
    change = PartitionChange(topic.name, index, before, after)
    return AlteredPartition(topic.id, index, ErrorCode.NONE, after, change)


def _proposed(asked: PartitionData) -> Iterator[tuple[BrokerId, BrokerEpoch]]:
    """Yield the members of the proposed ISR, with the broker epochs of their fetches.

    Version 2 has no epochs. Without the epoch of its fetch, a replica cannot join (rule A10).
    """
    for state in asked.new_isr_with_epochs:
        yield BrokerId(state.broker_id), BrokerEpoch(state.broker_epoch)
    for member in asked.new_isr:
        yield BrokerId(member), BrokerEpoch(-1)


def _refusal(
    before: PartitionState,
    asked: PartitionData,
    broker: BrokerId,
    in_sync: Collection[BrokerId],
) -> ErrorCode | None:
    """Return why a proposal is refused whatever the ISR is now, or None."""
    if asked.leader_epoch > before.leader_epoch or asked.partition_epoch > before.version:
        return ErrorCode.NOT_CONTROLLER  # a newer controller has told the leader more
    if asked.leader_epoch < before.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker != before.leader or broker not in in_sync or asked.leader_recovery_state != 0:
        return ErrorCode.INVALID_REQUEST
    if not set(before.replicas).issuperset(in_sync):
        return ErrorCode.INVALID_REQUEST
    return None
