"""The requests of a controller to brokers: encoded, read again, and checked."""

from types import MappingProxyType
from typing import TypeVar

import pytest
from msgspec.structs import replace

from ottla.cluster.image import (
    Address,
    Broker,
    ClusterImage,
    PartitionState,
    Topic,
)
from ottla.controller.control_requests import (
    RequestType,
    deleted_topics,
    failures_of,
    image_with,
    leader_and_isr_request,
    leader_and_isr_response,
    requests_of,
    states_of,
    stop_replica_requests,
    stopped_of,
    update_metadata_requests,
    update_of,
)
from ottla.controller.control_update import (
    EPOCH_DURING_DELETE,
    NO_EPOCH,
    ControlUpdate,
    ReplicaState,
    StoppedReplica,
    is_newer,
    is_same_topic,
    stop_error,
    update_error,
)
from ottla.errors import ErrorCode, ProtocolViolation, RequestError
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
from ottla.protocol.message import Message
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest

M = TypeVar("M", bound=Message)


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def topic_id(number: int) -> Uuid:
    return Uuid(bytes(15) + bytes([number]))


def key(topic: str, index: int) -> TopicPartition:
    return TopicPartition(topic, PartitionIndex(index))


def broker(number: int) -> Broker:
    addresses = {"EXTERNAL": Address("h", 9000 + number), "INTERNAL": Address("::1", 9100 + number)}
    known = BrokerEpoch(10 * number)
    host = None if number == 3 else f"host-{number}"
    return Broker(BrokerId(number), known, MappingProxyType(addresses), f"rack-{number}", host)


def state(*replicas: int, isr: tuple[int, ...] | None = None, version: int = 7) -> PartitionState:
    in_sync = ids(*(replicas if isr is None else isr))
    leader = in_sync[0] if in_sync else NO_BROKER
    return PartitionState(ids(*replicas), leader, LeaderEpoch(5), in_sync, version)


MOVING = replace(state(3, 1, isr=(1,)), adding=ids(3), removing=ids(1))
SMALL = replace(state(1, 2, isr=(2,)), elr=ids(1))
LEADERLESS = replace(state(3, isr=()), last_known_elr=ids(3))
ORDERS = Topic("orders", topic_id(1), (state(1, 2, 3), state(2, 3), LEADERLESS))
LOGS = Topic("logs", topic_id(2), (MOVING, SMALL))
IMAGE = (
    ClusterImage("c", controller_epoch=ControllerEpoch(4))
    .with_topics([ORDERS, LOGS])
    .with_brokers([broker(1), broker(2), broker(3)], BrokerId(2))
)


def sent(message: M) -> M:
    """Return a message as its receiver reads it, in the newest version."""
    assert message.API is not None
    version = message.API.versions.high
    read = type(message).decode(message.encode(version), version)
    assert read.encode(version) == message.encode(version)
    return read


# LeaderAndIsr.


REPLICAS = [
    ReplicaState("orders", topic_id(1), PartitionIndex(0), ORDERS.partitions[0]),
    ReplicaState("orders", topic_id(1), PartitionIndex(1), ORDERS.partitions[1]),
    ReplicaState("orders", topic_id(1), PartitionIndex(2), state(3, isr=())),
    ReplicaState("logs", topic_id(2), PartitionIndex(0), MOVING, is_new=True),
]


def leader_and_isr() -> LeaderAndIsrRequest:
    return sent(leader_and_isr_request(IMAGE, BrokerId(3), REPLICAS, is_full=True))


def test_replicas_are_the_same_after_a_request() -> None:
    request = leader_and_isr()
    assert (request.controller_id, request.controller_epoch, request.broker_epoch) == (2, 4, 30)
    assert request.type == RequestType.FULL
    assert states_of(request) == REPLICAS
    some = sent(leader_and_isr_request(IMAGE, BrokerId(2), REPLICAS[1:2]))
    assert (some.broker_epoch, some.type) == (20, RequestType.INCREMENTAL)
    assert states_of(some) == REPLICAS[1:2]


def test_leaders_do_not_get_the_elr() -> None:
    """LeaderAndIsr has no field for it; UpdateMetadata has one, for DescribeTopicPartitions."""
    replica = ReplicaState("logs", topic_id(2), PartitionIndex(1), SMALL)
    request = sent(leader_and_isr_request(IMAGE, BrokerId(1), [replica]))
    assert states_of(request)[0].state == replace(SMALL, elr=())


def test_failures_are_named_in_the_response() -> None:
    request = leader_and_isr()
    failures = {
        key("orders", 1): RequestError(ErrorCode.KAFKA_STORAGE_ERROR),
        key("logs", 0): RequestError(ErrorCode.STALE_CONTROLLER_EPOCH),
    }
    response = sent(leader_and_isr_response(request, failures))
    found = failures_of(request, response)
    assert {one: failure.code for one, failure in found.items()} == {
        one: failure.code for one, failure in failures.items()
    }
    refused = type(response)(error_code=int(ErrorCode.STALE_BROKER_EPOCH))
    with pytest.raises(RequestError) as error:
        failures_of(request, refused)
    assert error.value.code is ErrorCode.STALE_BROKER_EPOCH


# UpdateMetadata.


def metadata(image: ClusterImage, *partitions: TopicPartition) -> UpdateMetadataRequest:
    return sent(update_metadata_requests(image, partitions)[BrokerId(1)])


def full_metadata(image: ClusterImage) -> UpdateMetadataRequest:
    return sent(update_metadata_requests(image)[BrokerId(1)])


def test_full_metadata_replaces_the_image() -> None:
    old = ClusterImage("c", version=9).with_topics([Topic("gone", topic_id(9), (state(1),))])
    image = image_with(full_metadata(IMAGE), old)
    assert (image.cluster_id, image.controller, image.controller_epoch) == ("c", 2, 4)
    assert image.version == old.version + 1
    assert image.topics["orders"] == ORDERS
    assert image.topics["logs"] == LOGS
    assert set(image.topics) == {"orders", "logs"}
    assert image.topic_of_id(topic_id(2)) is image.topics["logs"]
    assert image.brokers == IMAGE.brokers


def test_incremental_metadata_changes_only_its_partitions() -> None:
    newer = state(2, 3, isr=(3,), version=8)
    partitions = (ORDERS.partitions[0], newer, ORDERS.partitions[2], state(1))
    changed = IMAGE.with_topics([replace(ORDERS, partitions=partitions)])
    image = image_with(metadata(changed, key("orders", 3), key("orders", 1)), IMAGE)
    assert image.topics["orders"].partitions == partitions
    assert image.topics["orders"].partitions[0] is ORDERS.partitions[0]
    assert image.topics["logs"] is LOGS
    with pytest.raises(ProtocolViolation, match="partition 3 of orders"):
        image_with(metadata(changed, key("orders", 3)), ClusterImage("c"))


def test_metadata_without_topics_changes_the_brokers() -> None:
    alone = IMAGE.with_brokers([broker(1)], BrokerId(1))
    image = image_with(metadata(alone), IMAGE)
    assert (set(image.brokers), image.controller, image.topics) == ({1}, 1, IMAGE.topics)


def test_deleted_topic_leaves_the_image() -> None:
    without = IMAGE.without_topics(["logs"])
    deleted = {"logs": topic_id(2)}
    requests = update_metadata_requests(without, [], deleted=deleted, brokers=[BrokerId(3)])
    assert list(requests) == [3]
    request = sent(requests[BrokerId(3)])
    assert deleted_topics(request) == deleted
    image = image_with(request, IMAGE)
    assert (set(image.topics), image.topic_of_id(topic_id(2))) == ({"orders"}, None)
    again = IMAGE.with_topics([Topic("logs", topic_id(7), (state(1, version=0),))])
    assert image_with(request, again).topics == again.topics


def test_topic_that_was_created_again_replaces_the_old_one() -> None:
    again = Topic("logs", topic_id(7), (state(1, version=0),))
    image = image_with(metadata(IMAGE.with_topics([again]), key("logs", 0)), IMAGE)
    assert image.topics["logs"] == again
    assert image.topic_of_id(topic_id(2)) is None


def test_dead_and_failed_replicas_are_offline() -> None:
    alone = IMAGE.with_brokers([broker(1), broker(2)], BrokerId(1))
    alone = alone.with_failed({key("logs", 1): frozenset(ids(2))})
    (request, _) = update_metadata_requests(alone).values()
    learned = image_with(sent(request), ClusterImage("c"))
    assert learned.failed == alone.failed
    mended = alone.with_failed({})
    (request_after, _) = update_metadata_requests(mended, [key("logs", 1)]).values()
    assert image_with(sent(request_after), learned).failed == {}
    (request, _) = update_metadata_requests(alone).values()
    found = {
        (topic.topic_name, one.partition_index): list(one.offline_replicas)
        for topic in sent(request).topic_states
        for one in topic.partition_states
    }
    assert found == {
        ("orders", 0): [3],
        ("orders", 1): [3],
        ("orders", 2): [3],
        ("logs", 0): [3],
        ("logs", 1): [2],
    }


# StopReplica.


def test_stopped_replicas_carry_their_leader_epoch() -> None:
    stopped = [
        StoppedReplica(key("orders", 1), delete=False, leader_epoch=LeaderEpoch(5)),
        StoppedReplica(key("logs", 0), delete=True, leader_epoch=LeaderEpoch(4)),
        StoppedReplica(key("gone", 4), delete=True, leader_epoch=EPOCH_DURING_DELETE),
    ]
    requests = stop_replica_requests(IMAGE, {BrokerId(1): stopped, BrokerId(9): stopped})
    assert list(requests) == [1]
    request = sent(requests[BrokerId(1)])
    assert (request.controller_epoch, request.broker_epoch) == (4, 10)
    assert stopped_of(request) == stopped


# Updates.


def test_update_is_the_same_after_its_requests() -> None:
    """A broker applies one kind of update, whether it comes over a connection or not."""
    replicas = REPLICAS[:2]
    stopped = [StoppedReplica(key("logs", 1), delete=True, leader_epoch=LeaderEpoch(5))]
    update = ControlUpdate(
        controller=BrokerId(2),
        controller_epoch=ControllerEpoch(4),
        broker_epoch=BrokerEpoch(10),
        topic_configs={"orders": {"retention.ms": "1"}, "logs": {}},
        broker_configs={None: {"a": "b"}, BrokerId(3): {"c": "d"}},
        deleted={"gone": topic_id(9)},
        stopped=stopped,
        replicas=replicas,
        is_full=True,
        image=IMAGE,
    )
    known = IMAGE.with_topics([Topic("gone", topic_id(9), (state(1),))])
    requests = requests_of(update, IMAGE, BrokerId(1))
    first, stop, lead, told = (update_of(sent(one), known) for one in requests)
    assert (first.topic_configs, first.broker_configs) == (
        update.topic_configs,
        update.broker_configs,
    )
    assert (first.deleted, first.changed) == ({"gone": topic_id(9)}, [])
    assert [*stop.stopped] == stopped
    assert (lead.replicas, lead.is_full, lead.image) == (replicas, True, None)
    assert told.image == replace(IMAGE, version=known.version + 1)
    assert (told.deleted, told.changed, told.stopped) == ({}, None, ())
    for one in (first, stop, lead, told):
        assert (one.controller, one.controller_epoch, one.broker_epoch) == (2, 4, 10)


def test_update_of_some_topics_is_one_request() -> None:
    update = ControlUpdate(
        controller=BrokerId(2),
        controller_epoch=ControllerEpoch(4),
        broker_epoch=BrokerEpoch(10),
        image=IMAGE,
        changed=["logs", "deleted meanwhile"],
    )
    (request,) = requests_of(update, IMAGE, BrokerId(1))
    found = update_of(sent(request), ClusterImage("c"))
    assert found.image is not None
    assert (found.changed, dict(found.image.topics)) == (["logs"], {"logs": LOGS})
    assert requests_of(replace(update, image=None), IMAGE, BrokerId(1)) == []


# Checks.


def test_b4_requests_of_an_old_controller_are_refused() -> None:
    update = update_of(leader_and_isr(), IMAGE)  # controller epoch 4, broker epoch 30
    cases = {
        (4, 30): ErrorCode.NONE,
        (3, 29): ErrorCode.NONE,  # the broker does not know its new registration yet
        (5, 30): ErrorCode.STALE_CONTROLLER_EPOCH,
        (4, 31): ErrorCode.STALE_BROKER_EPOCH,
    }
    found = {
        (controller, own): update_error(
            update,
            controller_epoch=ControllerEpoch(controller),
            broker_epoch=BrokerEpoch(own),
        )
        for controller, own in cases
    }
    assert found == cases


def test_b4_recorded_requests_change_nothing_after_a_restart() -> None:
    """Every request of an earlier registration of the broker is refused."""
    stopped = StoppedReplica(key("logs", 0), delete=True, leader_epoch=LeaderEpoch(5))
    recorded = [
        leader_and_isr(),
        *map(sent, update_metadata_requests(IMAGE).values()),
        *map(sent, stop_replica_requests(IMAGE, {BrokerId(1): [stopped]}).values()),
    ]
    assert len(recorded) == 5
    for request in recorded:
        restarted = BrokerEpoch(request.broker_epoch + 1)
        update = update_of(request, IMAGE)
        error = update_error(update, controller_epoch=ControllerEpoch(4), broker_epoch=restarted)
        assert error is ErrorCode.STALE_BROKER_EPOCH


def test_b4_lower_leader_epoch_is_refused() -> None:
    known = replace(state(1, 2), leader_epoch=LeaderEpoch(5), version=7)
    cases = {
        (4, 6): False,
        (4, 8): False,
        (5, 6): False,  # the ISR before the leader's own change
        (5, 7): False,  # repeated
        (5, 8): True,
        (6, 8): True,
    }
    found = {
        (epoch, version): is_newer(known, told)
        for epoch, version in cases
        if (told := replace(known, leader_epoch=LeaderEpoch(epoch), version=version))
    }
    assert found == cases
    assert is_newer(None, known)


def test_b4_replica_is_not_stopped_in_an_earlier_epoch() -> None:
    known = state(1, 2)
    cases = {
        LeaderEpoch(4): ErrorCode.FENCED_LEADER_EPOCH,
        LeaderEpoch(5): ErrorCode.NONE,
        LeaderEpoch(6): ErrorCode.NONE,
        NO_EPOCH: ErrorCode.NONE,
        EPOCH_DURING_DELETE: ErrorCode.NONE,
    }
    assert {epoch: stop_error(known, epoch) for epoch in cases} == cases
    assert stop_error(None, LeaderEpoch(0)) is ErrorCode.NONE


def test_b4_topic_is_deleted_by_its_id() -> None:
    assert is_same_topic(topic_id(1), topic_id(1))
    assert not is_same_topic(topic_id(7), topic_id(1))
    assert is_same_topic(None, topic_id(1))  # the broker does not know the id
    assert is_same_topic(topic_id(1), ZERO_UUID)  # the controller does not know it


def test_b4_older_metadata_does_not_replace_newer_metadata() -> None:
    older = IMAGE.with_topics(
        [replace(LOGS, partitions=(MOVING, state(1, 2, isr=(1,), version=6)))]
    )
    image = image_with(metadata(older, key("logs", 1)), IMAGE)
    assert image.topics["logs"].partitions[1] is LOGS.partitions[1]
    # The controller shows a partition without a leader that could not take over.
    leaderless = replace(LOGS.partitions[1], leader=NO_BROKER)
    failed = IMAGE.with_topics([replace(LOGS, partitions=(MOVING, leaderless))])
    image = image_with(metadata(failed, key("logs", 1)), IMAGE)
    assert image.topics["logs"].partitions[1].leader == NO_BROKER
    assert image.topics["logs"].partitions[0] is MOVING
