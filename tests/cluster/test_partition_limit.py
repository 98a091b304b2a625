"""The limit on the partitions of a broker: its default, and what it refuses."""

from collections.abc import Mapping

import pytest

from ottla.cluster.existing_topics import ExistingTopics
from ottla.cluster.image import PartitionState, Topic
from ottla.cluster.partition_limit import (
    DEFAULT_MAX,
    DEFAULT_MIN,
    PartitionLimit,
    PartitionLimits,
    check_limit,
    default_limit,
    partition_limit,
)
from ottla.cluster.placement import Assignment
from ottla.errors import ErrorCode, RequestError
from ottla.ids import BrokerId, Uuid

GIB = 1024**3
ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


def topic(name: str, *replicas: tuple[BrokerId, ...]) -> Topic:
    return Topic(name, Uuid(name.encode().ljust(16)), tuple(map(PartitionState, replicas)))


def check(
    topics: list[Topic],
    added: Assignment,
    limit: PartitionLimit,
    internal: int = 0,
    registered: Mapping[BrokerId, int] | None = None,
) -> None:
    count = sum(len(one.partitions) for one in topics)
    existing = ExistingTopics({one.name: one for one in topics}, count)
    check_limit(existing, added, PartitionLimits(limit, registered or {}), internal)


@pytest.mark.parametrize(
    ("open_files", "memory", "expected"),
    [
        (None, None, PartitionLimit(DEFAULT_MAX, "the default")),
        (1_048_576, 64 * GIB, PartitionLimit(DEFAULT_MAX, "the default")),
        (20_000, 64 * GIB, PartitionLimit(2_500, "the default for 20000 open files")),
        (1_048_576, GIB // 2, PartitionLimit(2_048, "the default for 512 MiB of memory")),
        (4_096, GIB // 4, PartitionLimit(512, "the default for 4096 open files")),
        (256, None, PartitionLimit(DEFAULT_MIN, "the default for 256 open files")),
    ],
)
def test_default_is_what_descriptors_and_memory_allow(
    open_files: int | None, memory: int | None, expected: PartitionLimit
) -> None:
    assert default_limit(open_files, memory) == expected


@pytest.mark.parametrize(
    ("setting", "open_files", "expected", "origin"),
    [
        (5_000, None, 5_000, ""),
        (5_000, 8_000, 5_000, ""),
        (5_000, 600, 375, "600 open files do not allow 5000"),
        (150, 64, DEFAULT_MIN, "64 open files do not allow 150"),
        (7, 64, 7, ""),
        (None, 4_096, 512, "the default for 4096 open files"),
    ],
)
def test_setting_is_limited_by_descriptors(
    setting: int | None, open_files: int | None, expected: int, origin: str
) -> None:
    limit = partition_limit(setting, open_files, GIB)
    assert (limit.partitions, limit.origin) == (expected, origin)


def test_limit_is_reached_and_not_exceeded() -> None:
    topics = [topic("a", (ONE,), (ONE,)), topic("b", (ONE,))]
    check(topics, ((ONE,), (ONE,)), PartitionLimit(5))
    for limit, text in (
        (PartitionLimit(4), "ottla.partitions.max=4"),
        (PartitionLimit(2, "the default"), "ottla.partitions.max=2 (the default)"),
    ):
        with pytest.raises(RequestError) as refused:
            check(topics, ((ONE,), (ONE,)), limit)
        assert refused.value.code is ErrorCode.POLICY_VIOLATION
        assert refused.value.message == (
            f"Broker 1 has 3 partition(s), and 2 more would exceed {text}. Delete topics, or raise "
            "ottla.partitions.max in the properties file."
        )


def test_partitions_of_internal_topics_are_reserved() -> None:
    topics = [topic("a", (ONE,), (ONE,))]
    check(topics, ((ONE,),) * 3, PartitionLimit(10), internal=5)
    with pytest.raises(RequestError) as refused:
        check(topics, ((ONE,),) * 4, PartitionLimit(10), internal=5)
    assert refused.value.message == (
        "Broker 1 has 2 partition(s), and 4 more would exceed ottla.partitions.max=10, of which 5 "
        "are reserved for internal topics. Delete topics, or raise ottla.partitions.max in the "
        "properties file."
    )
    check(topics, ((ONE,),) * 7, PartitionLimit(9), internal=5)  # too low to reserve any


def test_limit_counts_the_replicas_of_each_broker() -> None:
    topics = [topic("a", (ONE, TWO), (TWO, ONE), (ONE, TWO))]
    limit = PartitionLimit(4)
    check(topics, ((THREE,), (THREE,), (THREE,), (THREE,)), limit)
    check(topics, ((ONE, THREE), (TWO, THREE)), limit)
    with pytest.raises(RequestError, match="Broker 2 has 3 partition"):
        check(topics, ((THREE, TWO), (TWO, THREE)), limit)


def test_each_broker_has_the_limit_that_it_registered() -> None:
    topics = [topic("a", (ONE, TWO), (TWO, ONE), (ONE, TWO))]
    registered = {TWO: 4, THREE: 200}
    check(topics, ((ONE, TWO),), PartitionLimit(100), registered=registered)
    check(topics, ((ONE, THREE),) * 97, PartitionLimit(100), registered=registered)
    check(topics, ((THREE,),) * 150, PartitionLimit(100), internal=50, registered=registered)
    with pytest.raises(RequestError) as refused:
        check(topics, ((ONE, TWO), (THREE, TWO)), PartitionLimit(100), registered=registered)
    assert refused.value.message == (
        "Broker 2 has 3 partition(s), and 2 more would exceed ottla.partitions.max=4 (the limit of "
        "broker 2). Delete topics, or raise ottla.partitions.max in the properties file of that "
        "broker."
    )
