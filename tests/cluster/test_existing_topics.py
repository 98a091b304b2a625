"""The existing topics are counted and indexed once, however many topics a request asks for."""

from collections.abc import Iterator

import pytest

from ottla.cluster.existing_topics import LOOKED_UP_PARTS_MAX, ExistingTopics
from ottla.cluster.image import PartitionState, Topic
from ottla.cluster.partition_limit import PartitionLimit, PartitionLimits, check_limit
from ottla.cluster.topic_creation import check_name
from ottla.errors import RequestError
from ottla.ids import BrokerId, Uuid

ONE, TWO = BrokerId(1), BrokerId(2)
PARTS = ".".join("x" * (LOOKED_UP_PARTS_MAX + 9))


def topic(name: str, *replicas: tuple[BrokerId, ...]) -> Topic:
    return Topic(name, Uuid(name.encode()[-16:].ljust(16)), tuple(map(PartitionState, replicas)))


class CountedTopics(dict[str, Topic]):
    """Topics that count how often something loops over them."""

    loops = 0

    def __iter__(self) -> Iterator[str]:
        self.loops += 1
        return super().__iter__()

    def values(self):  # pyright: ignore[reportIncompatibleMethodOverride, reportUnknownParameterType]
        self.loops += 1
        return super().values()


def test_topics_are_counted_once_for_many_refused_topics() -> None:
    topics = CountedTopics({name: topic(name, (ONE, TWO)) for name in "abc"})
    existing = ExistingTopics(topics, 3)
    for _ in range(20):
        with pytest.raises(RequestError, match=r"Broker 2 has 3 partition\(s\), and 1 more"):
            check_limit(existing, ((TWO,),), PartitionLimits(PartitionLimit(3)))
    assert topics.loops == 1


def test_topics_are_indexed_once_for_many_names_of_many_parts() -> None:
    taken = PARTS.replace(".", "_")
    topics = CountedTopics({name: topic(name, (ONE,)) for name in ("a", taken)})
    existing = ExistingTopics(topics, 2)
    for number in range(20):
        check_name(f"{PARTS}.{number}", existing)
    with pytest.raises(RequestError, match=f"collides with existing topic: {taken}"):
        check_name(PARTS, existing)
    assert topics.loops == 1


def test_added_topics_exist_collide_and_count() -> None:
    for first_looked_up in (True, False):
        existing = ExistingTopics({"a": topic("a", (ONE,))}, 1)
        if first_looked_up:
            assert (existing.replicas_on(ONE), existing.replicas_on(TWO)) == (1, 0)
            assert existing.colliding(PARTS) is None
        existing.add(topic(PARTS, (ONE, TWO), (TWO, ONE)))
        assert PARTS in existing
        assert existing.partition_count == 3
        assert (existing.replicas_on(ONE), existing.replicas_on(TWO)) == (3, 2)
        assert existing.colliding(PARTS.replace(".", "_")) == PARTS
