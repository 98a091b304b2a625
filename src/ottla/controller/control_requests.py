"""LeaderAndIsr, UpdateMetadata and StopReplica requests: what a controller sends to brokers.

Each function that builds requests has an inverse that a broker uses to read them. Brokers check a
request before they apply it (rule B4).

A broker learns addresses and configs from UpdateMetadata only, so it gets such a request before any
LeaderAndIsr request that names an unknown leader or topic. Brokers of Ottla alone send these
requests, so UpdateMetadata has fields that Kafka's has not: see `protocol/messages`.

Invariant: what a broker reads from a full request is what the controller's image has, except for
the last known leaders. An incremental request changes only the partitions in it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from ottla.cluster.image import (
    Address,
    Broker,
    ClusterImage,
    PartitionState,
    Topic,
)
from ottla.controller.control_update import (
    EPOCH_DURING_DELETE,
    ControlUpdate,
    Failures,
    ReplicaState,
    StoppedReplica,
    is_same_topic,
)
from ottla.errors import ErrorCode, ProtocolViolation, RequestError
from ottla.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionIndex,
    TopicPartition,
    Uuid,
)
from ottla.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from ottla.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from ottla.protocol.messages.update_metadata import (
    BrokerConfigs,
    ConfigEntry,
    TopicConfigs,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

_NOTHING: Final[Mapping[str, Uuid]] = MappingProxyType({})

ControlRequest = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest

LEADER_DURING_DELETE: Final = -2  # the leader of a deleted partition, as in Kafka


class RequestType(IntEnum):
    """The type of a LeaderAndIsr or UpdateMetadata request."""

    UNKNOWN = 0
    INCREMENTAL = 1
    FULL = 2


# LeaderAndIsr.


def leader_and_isr_request(
    image: ClusterImage,
    broker: BrokerId,
    replicas: Iterable[ReplicaState],
    *,
    is_full: bool = False,
) -> LeaderAndIsrRequest:
    """Return the request for one broker; a full one has all partitions that the broker has."""
    epoch = image.controller_epoch
    topics: dict[str, tuple[ReplicaState, list[LeaderAndIsrPartitionState]]] = {}
    for one in replicas:
        found = topics.get(one.topic)
        if found is None:
            found = topics[one.topic] = one, []
        state = one.state
        found[1].append(
            LeaderAndIsrPartitionState(
                partition_index=one.index,
                controller_epoch=epoch,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=state.in_sync,
                partition_epoch=state.version,
                replicas=state.replicas,
                adding_replicas=state.adding,
                removing_replicas=state.removing,
                is_new=one.is_new,
            )
        )
    return LeaderAndIsrRequest(
        controller_id=image.controller,
        controller_epoch=epoch,
        broker_epoch=image.brokers[broker].epoch,
        type=RequestType.FULL if is_full else RequestType.INCREMENTAL,
        topic_states=[
            LeaderAndIsrTopicState(
                topic_name=name, topic_id=first.topic_id, partition_states=partitions
            )
            for name, (first, partitions) in topics.items()
        ],
        live_leaders=(),
    )


def states_of(request: LeaderAndIsrRequest) -> list[ReplicaState]:
    """Return the partitions of a request, in its order."""
    broker_ids = _tuples()
    return [
        ReplicaState(
            topic.topic_name,
            topic.topic_id,
            PartitionIndex(one.partition_index),
            PartitionState(
                broker_ids(one.replicas),
                BrokerId(one.leader),
                LeaderEpoch(one.leader_epoch),
                broker_ids(one.isr),
                one.partition_epoch,
                adding=broker_ids(one.adding_replicas),
                removing=broker_ids(one.removing_replicas),
            ),
            one.is_new,
        )
        for topic in request.topic_states
        for one in topic.partition_states
    ]


def leader_and_isr_response(
    request: LeaderAndIsrRequest, failures: Failures
) -> LeaderAndIsrResponse:
    """Return the response of a broker that applied a request, except for some partitions."""

    def code(topic: str, index: int) -> int:
        failure = failures.get(_key(topic, index))
        return int(ErrorCode.NONE if failure is None else failure.code)

    topics = [
        LeaderAndIsrTopicError(
            topic_id=topic.topic_id,
            partition_errors=[
                LeaderAndIsrPartitionError(
                    partition_index=one.partition_index,
                    error_code=code(topic.topic_name, one.partition_index),
                )
                for one in topic.partition_states
            ],
        )
        for topic in request.topic_states
    ]
    return LeaderAndIsrResponse(error_code=int(ErrorCode.NONE), topics=topics)


def failures_of(
    request: LeaderAndIsrRequest, response: LeaderAndIsrResponse
) -> dict[TopicPartition, RequestError]:
    """Return what failed on a broker; raises RequestError if it refused the request."""
    if response.error_code != ErrorCode.NONE:
        raise RequestError(ErrorCode(response.error_code))
    names = {topic.topic_id: topic.topic_name for topic in request.topic_states}
    return {
        _key(names[topic.topic_id], one.partition_index): RequestError(ErrorCode(one.error_code))
        for topic in response.topics
        for one in topic.partition_errors
        if one.error_code != ErrorCode.NONE
    }


# UpdateMetadata.


def update_metadata_requests(
    image: ClusterImage,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    deleted: Mapping[str, Uuid] = _NOTHING,
    brokers: Iterable[BrokerId] | None = None,
) -> dict[BrokerId, UpdateMetadataRequest]:
    """Return the requests for some brokers, or for all that are alive.

    With `partitions` None the requests are full: brokers forget all other topics.
    """
    topics = [
        *_topic_states(image, partitions),
        *(_deleted_topic(image, name, topic_id) for name, topic_id in deleted.items()),
    ]
    alive = [
        UpdateMetadataBroker(
            id=one.id,
            endpoints=[
                # The receiver knows the security protocols of listeners from its own settings.
                UpdateMetadataEndpoint(
                    port=address.port, host=address.host, listener=name, security_protocol=0
                )
                for name, address in one.addresses.items()
            ],
            rack=one.rack,
            epoch=one.epoch,
            host=one.host or "",
        )
        for one in image.brokers.values()
    ]
    return {
        broker: UpdateMetadataRequest(
            controller_id=image.controller,
            type=RequestType.FULL if partitions is None else RequestType.INCREMENTAL,
            controller_epoch=image.controller_epoch,
            broker_epoch=image.brokers[broker].epoch,
            topic_states=topics,
            live_brokers=alive,
        )
        for broker in (image.brokers if brokers is None else brokers)
    }


def _topic_states(
    image: ClusterImage,
    partitions: Iterable[TopicPartition] | None,
) -> list[UpdateMetadataTopicState]:
    indexes: dict[str, Iterable[int]]
    if partitions is None:
        indexes = {name: range(len(topic.partitions)) for name, topic in image.topics.items()}
    else:
        some: defaultdict[str, set[int]] = defaultdict(set)
        for name, index in partitions:
            some[name].add(index)
        indexes = {name: sorted(found) for name, found in some.items()}
    epoch, alive, failed = image.controller_epoch, image.brokers.keys(), image.failed
    states: list[UpdateMetadataTopicState] = []
    for name, some_indexes in indexes.items():
        topic = image.topics[name]
        rows: list[UpdateMetadataPartitionState] = []
        for index in some_indexes:
            state = topic.partitions[index]
            rows.append(
                UpdateMetadataPartitionState(
                    partition_index=index,
                    controller_epoch=epoch,
                    leader=state.leader,
                    leader_epoch=state.leader_epoch,
                    isr=state.in_sync,
                    zk_version=state.version,
                    replicas=state.replicas,
                    offline_replicas=()
                    if not failed and alive >= {*state.replicas}
                    else image.offline_replicas(name, index, state),
                    elr=state.elr,
                    last_known_elr=state.last_known_elr,
                    adding_replicas=state.adding,
                    removing_replicas=state.removing,
                )
            )
        states.append(
            UpdateMetadataTopicState(topic_name=name, topic_id=topic.id, partition_states=rows)
        )
    return states


def _deleted_topic(image: ClusterImage, name: str, topic_id: Uuid) -> UpdateMetadataTopicState:
    """Return the mark of a deleted topic: a partition with Kafka's leader for deletion."""
    mark = UpdateMetadataPartitionState(
        partition_index=0,
        controller_epoch=image.controller_epoch,
        leader=LEADER_DURING_DELETE,
        leader_epoch=EPOCH_DURING_DELETE,
        isr=(),
        zk_version=-1,
        replicas=(),
    )
    return UpdateMetadataTopicState(topic_name=name, topic_id=topic_id, partition_states=[mark])


def deleted_topics(request: UpdateMetadataRequest) -> dict[str, Uuid]:
    """Return the topics that a request marks as deleted, with their ids.

    Earlier versions of Ottla send ZERO_UUID for the id.
    """
    return {
        topic.topic_name: topic.topic_id
        for topic in request.topic_states
        if topic.partition_states and topic.partition_states[0].leader == LEADER_DURING_DELETE
    }


def image_with(request: UpdateMetadataRequest, image: ClusterImage) -> ClusterImage:
    """Return the image of a broker after a request.

    A partition whose version is lower than the known one keeps its state (rule B4). The image keeps
    what the request has no room for, as long as it is not outdated.
    """
    is_full = request.type == RequestType.FULL
    topics = {} if is_full else dict(image.topics)
    for name, topic_id in deleted_topics(request).items():
        known = topics.get(name)
        if known is not None and is_same_topic(known.id, topic_id):
            del topics[name]
    broker_ids = _tuples()
    for one in request.topic_states:
        if one.partition_states and one.partition_states[0].leader == LEADER_DURING_DELETE:
            continue
        known = image.topics.get(one.topic_name)
        states = [*known.partitions] if known is not None and known.id == one.topic_id else []
        for row in one.partition_states:
            index = row.partition_index
            if index > len(states):
                raise ProtocolViolation(
                    f"UpdateMetadata has partition {index} of {one.topic_name}, but this broker "
                    f"knows {len(states)}"
                )
            state = _newer(states[index] if index < len(states) else None, row, broker_ids)
            states[index : index + 1] = (state,)
        topics[one.topic_name] = Topic(one.topic_name, one.topic_id, tuple(states))
    brokers = {BrokerId(one.id): _broker(one) for one in request.live_brokers}
    failed = {} if is_full else {key: one for key, one in image.failed.items() if key[0] in topics}
    for one in request.topic_states:
        for row in one.partition_states:
            if row.offline_replicas or failed:  # almost never
                key = _key(one.topic_name, row.partition_index)
                failed.pop(key, None)
                if offline := brokers.keys() & broker_ids(row.offline_replicas):
                    failed[key] = frozenset(offline)
    return ClusterImage(
        image.cluster_id,
        BrokerId(request.controller_id),
        MappingProxyType(brokers),
        MappingProxyType(topics),
        MappingProxyType({topic.id: name for name, topic in topics.items()}),
        image.version + 1,
        ControllerEpoch(request.controller_epoch),
        MappingProxyType(failed),
        sum(len(topic.partitions) for topic in topics.values()),
    )


def _newer(
    known: PartitionState | None,
    row: UpdateMetadataPartitionState,
    broker_ids: "_Tuples",
) -> PartitionState:
    if known is not None and known.version >= row.zk_version:
        same = known.leader == row.leader and known.in_sync == row.isr
        if known.version > row.zk_version or (same and known.replicas == row.replicas):
            return known
    return PartitionState(
        broker_ids(row.replicas),
        BrokerId(row.leader),
        LeaderEpoch(row.leader_epoch),
        broker_ids(row.isr),
        row.zk_version,
        broker_ids(row.elr),
        broker_ids(row.last_known_elr),
        adding=broker_ids(row.adding_replicas),
        removing=broker_ids(row.removing_replicas),
    )


def _broker(row: UpdateMetadataBroker) -> Broker:
    broker = BrokerId(row.id)
    addresses = {one.listener: Address(one.host, one.port) for one in row.endpoints}
    return Broker(
        broker, BrokerEpoch(row.epoch), MappingProxyType(addresses), row.rack, row.host or None
    )


# StopReplica.


def stop_replica_requests(
    image: ClusterImage, stopped: Mapping[BrokerId, Iterable[StoppedReplica]]
) -> dict[BrokerId, StopReplicaRequest]:
    """Return the requests that stop replicas, by live broker."""
    requests: dict[BrokerId, StopReplicaRequest] = {}
    for broker, some in stopped.items():
        if broker not in image.brokers:
            continue
        topics: defaultdict[str, list[StopReplicaPartitionState]] = defaultdict(list)
        for one in some:
            name, index = one.partition
            topics[name].append(
                StopReplicaPartitionState(
                    partition_index=index,
                    leader_epoch=one.leader_epoch,
                    delete_partition=one.delete,
                )
            )
        requests[broker] = StopReplicaRequest(
            controller_id=image.controller,
            controller_epoch=image.controller_epoch,
            broker_epoch=image.brokers[broker].epoch,
            topic_states=[
                StopReplicaTopicState(topic_name=name, partition_states=partitions)
                for name, partitions in topics.items()
            ],
        )
    return requests


def stopped_of(request: StopReplicaRequest) -> list[StoppedReplica]:
    """Return the replicas that a request stops."""
    return [
        StoppedReplica(
            _key(topic.topic_name, one.partition_index),
            one.delete_partition,
            LeaderEpoch(one.leader_epoch),
        )
        for topic in request.topic_states
        for one in topic.partition_states
    ]


# Both sides.


def requests_of(
    update: ControlUpdate, image: ClusterImage, broker: BrokerId
) -> list[ControlRequest]:
    """Return the requests that send an update to a broker, in order."""
    requests: list[ControlRequest] = []
    first = update.topic_configs or update.broker_configs or update.deleted or update.is_full
    if first:
        (request,) = update_metadata_requests(
            image, (), deleted=update.deleted, brokers=[broker]
        ).values()
        request.topic_configs = [
            TopicConfigs(topic_name=name, entries=_entries(values))
            for name, values in update.topic_configs.items()
        ]
        request.broker_configs = [
            BrokerConfigs(broker_id=-1 if whose is None else whose, entries=_entries(values))
            for whose, values in update.broker_configs.items()
        ]
        requests.append(request)
    if update.stopped:
        requests += stop_replica_requests(image, {broker: update.stopped}).values()
    if update.replicas or update.is_full:
        is_full = update.is_full
        requests.append(leader_and_isr_request(image, broker, update.replicas, is_full=is_full))
    if update.image is not None and (update.changed is None or update.changed or not first):
        told, partitions = update.image, None
        if update.changed is not None:
            partitions = [
                _key(name, index)
                for name in update.changed
                if name in told.topics
                for index in range(len(told.topics[name].partitions))
            ]
        requests += update_metadata_requests(told, partitions, brokers=[broker]).values()
    return requests


def _entries(values: Mapping[str, str]) -> list[ConfigEntry]:
    return [ConfigEntry(name=name, value=value) for name, value in values.items()]


def update_of(request: ControlRequest, image: ClusterImage) -> ControlUpdate:
    """Return the update that a broker with this image applies when it gets a request."""
    controller = BrokerId(request.controller_id)
    controller_epoch = ControllerEpoch(request.controller_epoch)
    broker_epoch = BrokerEpoch(request.broker_epoch)
    if isinstance(request, LeaderAndIsrRequest):
        return ControlUpdate(
            controller=controller,
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
            replicas=states_of(request),
            is_full=request.type == RequestType.FULL,
            changed=(),
        )
    if isinstance(request, StopReplicaRequest):
        return ControlUpdate(
            controller=controller,
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
            stopped=stopped_of(request),
            changed=(),
        )
    deleted = deleted_topics(request)
    is_full = request.type == RequestType.FULL
    changed = [one.topic_name for one in request.topic_states if one.topic_name not in deleted]
    return ControlUpdate(
        controller=controller,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        topic_configs={one.topic_name: _values(one.entries) for one in request.topic_configs},
        broker_configs={
            None if one.broker_id < 0 else BrokerId(one.broker_id): _values(one.entries)
            for one in request.broker_configs
        },
        deleted=deleted,
        image=image_with(request, image),
        changed=None if is_full else changed,
    )


def _values(entries: Iterable[ConfigEntry]) -> dict[str, str]:
    return {one.name: one.value for one in entries}


def _key(topic: str, index: int) -> TopicPartition:
    return TopicPartition(topic, PartitionIndex(index))


_Tuples = Callable[[Sequence[int]], tuple[BrokerId, ...]]


def _tuples() -> _Tuples:
    """Return a function that makes tuples of broker ids; equal ones are one object.

    The partitions of a request have few different sets of replicas.
    """
    known: dict[tuple[int, ...], tuple[BrokerId, ...]] = {}

    def broker_ids(numbers: Sequence[int]) -> tuple[BrokerId, ...]:
        numbers = tuple(numbers)
        found = known.get(numbers)
        if found is None:
            found = known[numbers] = tuple(map(BrokerId, numbers))
        return found

    return broker_ids
