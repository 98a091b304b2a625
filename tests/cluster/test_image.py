"""The cluster image."""

import pytest

from ottla.cluster.image import Address, Broker, ClusterImage, PartitionState, Topic
from ottla.ids import BrokerEpoch, BrokerId, Uuid

ONE = BrokerId(1)


def topic(name: str, number: int) -> Topic:
    return Topic(name, Uuid(bytes(15) + bytes([number])), (PartitionState((ONE,)),))


def test_image_is_immutable() -> None:
    empty = ClusterImage("c")
    one = empty.with_topics([topic("a", 1), topic("b", 2)])
    two = one.without_topics(["a"])
    assert (empty.version, one.version, two.version) == (0, 1, 2)
    assert (len(empty.topics), len(one.topics), len(two.topics)) == (0, 2, 1)
    assert one.topic_of_id(topic("a", 1).id) is one.topics["a"]
    assert two.topic_of_id(topic("a", 1).id) is None
    with pytest.raises(TypeError):
        one.topics["c"] = topic("c", 3)  # pyright: ignore[reportIndexIssue]


def test_partition_is_found_by_index() -> None:
    image = ClusterImage("c").with_topics([topic("a", 1)])
    assert image.state("a", 0) is not None
    assert [image.state("a", n) for n in (-1, 1)] == [None, None]
    assert image.state("b", 0) is None


def test_new_leader_has_a_new_epoch() -> None:
    first = PartitionState((ONE,)).led_by(ONE, (ONE,))
    second = first.led_by(ONE, (ONE,))
    assert [(one.leader, one.leader_epoch, one.version) for one in (first, second)] == [
        (1, 0, 0),
        (1, 1, 1),
    ]


def test_brokers_and_internal_topics() -> None:
    broker = Broker(ONE, BrokerEpoch(5), {"PLAINTEXT": Address("h", 9)})
    image = ClusterImage("c").with_brokers([broker], ONE)
    assert image.brokers[ONE] is broker
    assert image.controller == ONE
    assert topic("__consumer_offsets", 1).internal
    assert not topic("a", 1).internal


def test_two_topics_do_not_share_an_id() -> None:
    with pytest.raises(AssertionError):
        ClusterImage("c").with_topics([topic("a", 1), topic("b", 1)])
