"""The requests of a controller to brokers: encoded, read again, and checked."""

from types import MappingProxyType
from typing import TypeVar

import pytest
from msgspec.structs import replace

from ottla.cluster.image import (
    Address,
    Broker,
    ClusterImage,
    PartitionChange,
    PartitionState,
    Topic,
)
from ottla.controller.control_requests import (
    EPOCH_DURING_DELETE,
    NO_EPOCH,
    RequestType,
    deleted_topics,
    failures_of,
    full_leader_and_isr_request,
    image_with,
    is_newer,
    leader_and_isr_requests,
    leader_and_isr_response,
    request_error,
    requests_of,
    state_error,
    states_of,
    stop_error,
    stop_replica_requests,
    stopped_of,
    update_metadata_requests,
    update_of,
)
from ottla.controller.control_update import ControlUpdate, ReplicaState, StoppedReplica
from ottla.errors import ErrorCode, ProtocolViolation, RequestError
from ottla.ids import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionIndex,
    TopicPartition,
    Uuid,
)
from ottla.protocol.message import Message
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


def test_full_request_has_every_replica_of_a_broker() -> None:
    request = sent(full_leader_and_isr_request(IMAGE, BrokerId(3)))
    assert (request.controller_id, request.controller_epoch, request.broker_epoch) == (2, 4, 30)
    assert request.type == RequestType.FULL
    assert states_of(request) == [
        ReplicaState("orders", topic_id(1), PartitionIndex(0), ORDERS.partitions[0]),
        ReplicaState("orders", topic_id(1), PartitionIndex(1), ORDERS.partitions[1]),
        ReplicaState("orders", topic_id(1), PartitionIndex(2), state(3, isr=())),
        ReplicaState("logs", topic_id(2), PartitionIndex(0), MOVING),
    ]
    unborn = IMAGE.with_topics([Topic("new", topic_id(3), (PartitionState(ids(3)),))])
    assert full_leader_and_isr_request(unborn, BrokerId(3)) == full_leader_and_isr_request(
        IMAGE, BrokerId(3)
    )


def test_changes_are_sent_to_the_live_replicas() -> None:
    after = state(1, 2, 3, isr=(2, 3), version=8)
    dead = IMAGE.with_brokers([broker(2), broker(3)], BrokerId(2))
    changes = [
        PartitionChange("orders", 0, ORDERS.partitions[0], after),
        PartitionChange("logs", 1, PartitionState(ids(1, 2)), LOGS.partitions[1]),
    ]
    requests = leader_and_isr_requests(dead, changes)
    assert sorted(requests) == [2, 3]
    assert [(request.broker_epoch, request.type) for request in requests.values()] == [
        (20, RequestType.INCREMENTAL),
        (30, RequestType.INCREMENTAL),
    ]
    told = ReplicaState("orders", topic_id(1), PartitionIndex(0), after)
    led = replace(SMALL, elr=())
    new = ReplicaState("logs", topic_id(2), PartitionIndex(1), led, is_new=True)
    assert states_of(sent(requests[BrokerId(2)])) == [told, new]  # without its ELR
    assert states_of(sent(requests[BrokerId(3)])) == [told]


def test_replica_that_a_reassignment_adds_is_new_to_its_broker() -> None:
    change = PartitionChange("logs", 0, state(1), MOVING)
    requests = leader_and_isr_requests(IMAGE, [change])
    assert {broker: [one.is_new for one in states_of(r)] for broker, r in requests.items()} == {
        1: [False],
        3: [True],
    }
    later = PartitionChange("logs", 0, MOVING, replace(MOVING, version=8))
    (first, second) = leader_and_isr_requests(IMAGE, [later]).values()
    assert not states_of(first)[0].is_new
    assert not states_of(second)[0].is_new


def test_leaders_do_not_get_the_elr() -> None:
    """LeaderAndIsr has no field for it; UpdateMetadata has one, for DescribeTopicPartitions."""
    requests = leader_and_isr_requests(IMAGE, [PartitionChange("logs", 1, SMALL, SMALL)])
    assert states_of(requests[BrokerId(1)])[0].state == replace(SMALL, elr=())


def test_failures_are_named_in_the_response() -> None:
    request = sent(full_leader_and_isr_request(IMAGE, BrokerId(3)))
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
    requests = update_metadata_requests(without, [], deleted=["logs"], brokers=[BrokerId(3)])
    assert list(requests) == [3]
    request = sent(requests[BrokerId(3)])
    assert deleted_topics(request) == ["logs"]
    image = image_with(request, IMAGE)
    assert (set(image.topics), image.topic_of_id(topic_id(2))) == ({"orders"}, None)


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
        StoppedReplica(key("orders", 1), delete=False),
        StoppedReplica(key("logs", 0), delete=True),
        StoppedReplica(key("gone", 4), delete=True),
    ]
    requests = stop_replica_requests(IMAGE, {BrokerId(1): stopped, BrokerId(9): stopped})
    assert list(requests) == [1]
    request = sent(requests[BrokerId(1)])
    assert (request.controller_epoch, request.broker_epoch) == (4, 10)
    assert list(stopped_of(request).items()) == [
        (stopped[0], 5),
        (stopped[1], 5),
        (stopped[2], EPOCH_DURING_DELETE),
    ]


# Updates.


def test_update_is_the_same_after_its_requests() -> None:
    """A broker applies one kind of update, whether it comes over a connection or not."""
    replicas = states_of(full_leader_and_isr_request(IMAGE, BrokerId(1)))
    stopped = [StoppedReplica(key("logs", 1), delete=True)]
    update = ControlUpdate(
        controller=BrokerId(2),
        controller_epoch=ControllerEpoch(4),
        broker_epoch=BrokerEpoch(10),
        topic_configs={"orders": {"retention.ms": "1"}, "logs": {}},
        broker_configs={None: {"a": "b"}, BrokerId(3): {"c": "d"}},
        deleted=["gone"],
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
    assert (first.deleted, first.changed) == (["gone"], [])
    assert [*stop.stopped] == stopped
    assert (lead.replicas, lead.is_full, lead.image) == (replicas, True, None)
    assert told.image == replace(IMAGE, version=known.version + 1)
    assert (told.deleted, told.changed, told.stopped) == ([], None, ())
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
    request = full_leader_and_isr_request(IMAGE, BrokerId(1))  # controller epoch 4, broker epoch 10
    cases = {
        (4, 10): ErrorCode.NONE,
        (3, 9): ErrorCode.NONE,  # the broker does not know its new registration yet
        (5, 10): ErrorCode.STALE_CONTROLLER_EPOCH,
        (4, 11): ErrorCode.STALE_BROKER_EPOCH,
    }
    found = {
        (controller, own): request_error(
            request,
            controller_epoch=ControllerEpoch(controller),
            broker_epoch=BrokerEpoch(own),
        )
        for controller, own in cases
    }
    assert found == cases


def test_b4_recorded_requests_change_nothing_after_a_restart() -> None:
    """Every request of an earlier registration of the broker is refused."""
    recorded = [
        *leader_and_isr_requests(
            IMAGE, [PartitionChange("logs", 1, PartitionState(ids(1, 2)), LOGS.partitions[1])]
        ).values(),
        *update_metadata_requests(IMAGE).values(),
        *stop_replica_requests(
            IMAGE, {BrokerId(1): [StoppedReplica(key("logs", 0), delete=True)]}
        ).values(),
    ]
    assert len(recorded) == 6
    for request in recorded:
        restarted = BrokerEpoch(request.broker_epoch + 1)
        error = request_error(
            sent(request), controller_epoch=ControllerEpoch(4), broker_epoch=restarted
        )
        assert error is ErrorCode.STALE_BROKER_EPOCH


def test_b4_lower_leader_epoch_is_refused() -> None:
    known = replace(state(1, 2), leader_epoch=LeaderEpoch(5), version=7)
    cases = {
        (4, 6): (ErrorCode.STALE_CONTROLLER_EPOCH, False),
        (4, 8): (ErrorCode.STALE_CONTROLLER_EPOCH, False),
        (5, 6): (ErrorCode.NONE, False),  # the ISR before the leader's own change
        (5, 7): (ErrorCode.NONE, False),  # repeated
        (5, 8): (ErrorCode.NONE, True),
        (6, 8): (ErrorCode.NONE, True),
    }
    found = {
        (epoch, version): (state_error(known, told), is_newer(known, told))
        for epoch, version in cases
        if (told := replace(known, leader_epoch=LeaderEpoch(epoch), version=version))
    }
    assert found == cases
    assert (state_error(None, known), is_newer(None, known)) == (ErrorCode.NONE, True)


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
