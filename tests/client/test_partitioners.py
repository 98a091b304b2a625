"""Partitioners choose as documented; the comparison with Java is in test_kafka_partitioners.py."""

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from cases import each_case
from ottla.client.partitioners import (
    KeyPartitioner,
    OwnPartitioner,
    Partitioner,
    Partitions,
    RoundRobinPartitioner,
    weights,
)
from ottla.errors import RequestError

THREE = Partitions(3, (0, 1, 2))


def random_values(*chances: float) -> Callable[[], float]:
    """Return a random function with these values; one call too many is an error."""
    given = iter(chances)
    return lambda: next(given)


def test_key_keeps_its_partition_whatever_the_leaders() -> None:
    partitioner = KeyPartitioner(100, random_values())
    chosen = {
        partitioner.choose("t", b"tea", None, Partitions(12, available))
        for available in ((), (3,), tuple(range(12)))
    }
    assert len(chosen) == 1


def test_empty_key_is_a_key() -> None:
    partitioner = KeyPartitioner(100, random_values())
    assert partitioner.choose("t", b"", None, Partitions(1000, ())) == 681 % 1000


def test_keys_can_be_ignored() -> None:
    partitioner = KeyPartitioner(100, random_values(0.5), ignore_keys=True)
    assert {partitioner.choose("t", bytes([key]), None, THREE) for key in range(50)} == {1}


def test_sticky_partition_changes_after_a_batch_of_bytes() -> None:
    partitioner = KeyPartitioner(100, random_values(0.0, 0.9))
    assert [partitioner.choose("t", None, b"v", THREE) for _ in range(5)] == [0] * 5
    partitioner.batch_closed("t", 0, 99)
    assert partitioner.choose("t", None, b"v", THREE) == 0
    partitioner.batch_closed("t", 0, 1)
    assert partitioner.choose("t", None, b"v", THREE) == 2
    partitioner.batch_closed("t", 2, 99)  # the count starts again
    assert partitioner.choose("t", None, b"v", THREE) == 2


def test_batches_of_other_partitions_do_not_count() -> None:
    partitioner = KeyPartitioner(100, random_values(0.0))
    partitioner.choose("t", None, None, THREE)
    partitioner.batch_closed("t", 1, 1000)
    partitioner.batch_closed("u", 0, 1000)
    assert partitioner.choose("t", None, None, THREE) == 0


def test_each_topic_has_its_own_sticky_partition() -> None:
    partitioner = KeyPartitioner(100, random_values(0.0, 0.9))
    assert partitioner.choose("t", None, None, THREE) == 0
    assert partitioner.choose("u", None, None, THREE) == 2
    assert partitioner.choose("t", None, None, THREE) == 0


def test_batch_size_zero_switches_with_every_batch() -> None:
    partitioner = KeyPartitioner(0, random_values(0.0, 0.9))
    partitioner.choose("t", None, None, THREE)
    partitioner.batch_closed("t", 0, 1)
    assert partitioner.choose("t", None, None, THREE) == 2


def test_leaderless_sticky_partition_is_left_at_once() -> None:
    partitioner = KeyPartitioner(100, random_values(0.9, 0.9))
    assert partitioner.choose("t", None, None, THREE) == 2
    assert partitioner.choose("t", None, None, Partitions(3, (0, 1))) == 1


def test_changes_of_other_partitions_keep_the_sticky_one() -> None:
    partitioner = KeyPartitioner(100, random_values(0.0, 0.9))
    assert partitioner.choose("t", None, None, THREE) == 0
    partitioner.batch_closed("t", 0, 60)
    for news in (Partitions(3, (0, 1)), Partitions(5, (0, 1, 2, 3, 4)), Partitions(5, ())):
        assert partitioner.choose("t", None, None, news) == 0
    partitioner.batch_closed("t", 0, 60)  # the bytes counted before still count
    assert partitioner.choose("t", None, None, Partitions(5, (0, 1, 2, 3, 4))) == 4


def test_without_leaders_any_partition_may_be_chosen() -> None:
    partitioner = KeyPartitioner(1, Random(3).random)
    nobody = Partitions(3, ())
    chosen: set[int] = set()
    for _ in range(100):
        at = partitioner.choose("t", None, None, nobody)
        chosen.add(at)
        partitioner.batch_closed("t", at, 1)
    assert chosen == {0, 1, 2}


def test_recreated_smaller_topic_gets_a_valid_partition() -> None:
    partitioner = KeyPartitioner(1, random_values(0.9, 0.9, 0.9))
    assert partitioner.choose("t", None, None, THREE) == 2
    partitioner.waiting("t", {0: 9, 1: 9, 2: 0}, 3)
    assert partitioner.choose("t", None, None, Partitions(2, (0, 1))) == 1
    partitioner.batch_closed("t", 1, 1)
    assert partitioner.choose("t", None, None, Partitions(2, (0, 1))) == 1


@each_case(
    ("batches", "count", "expected"),
    [
        ({0: 0, 1: 3, 2: 1}, 3, ((0, 1, 2), (4, 5, 8))),
        ({0: 2, 1: 2, 2: 2}, 3, None),  # equal weights
        ({0: 2, 2: 2}, 3, ((0, 2), (1, 2))),  # equal weights, but one partition is left out
        ({1: 5}, 3, ((1,), (1,))),
        ({}, 3, None),
        ({0: 5}, 1, None),
    ],
)
def test_partition_with_more_queued_batches_weighs_less(
    batches: dict[int, int], count: int, expected: object
) -> None:
    assert weights(batches, count) == expected


def test_adaptive_partitioning_avoids_long_queues() -> None:
    for adaptive, shares in ((True, (4, 1, 3)), (False, (1, 1, 1))):
        partitioner = KeyPartitioner(1, Random(5).random, adaptive=adaptive)
        chosen: Counter[int] = Counter()
        for _ in range(8000):
            at = partitioner.choose("t", None, None, THREE)
            chosen[at] += 1
            partitioner.waiting("t", {0: 0, 1: 3, 2: 1}, 3)
            partitioner.batch_closed("t", at, 1)
        for partition, share in enumerate(shares):
            assert chosen[partition] / 8000 == pytest.approx(share / sum(shares), abs=0.03)


def test_highest_random_value_chooses_the_last_partition() -> None:
    just_below_one = 1 - 2**-53
    for count in range(1, 2000):
        partitions = Partitions(count, tuple(range(count)))
        partitioner = KeyPartitioner(1, lambda: just_below_one)
        assert partitioner.choose("t", None, None, partitions) == count - 1


def test_round_robin_ignores_keys_and_counts_per_topic() -> None:
    partitioner = RoundRobinPartitioner()
    taken = [partitioner.choose("t", b"same", None, THREE) for _ in range(4)]
    assert taken == [0, 1, 2, 0]
    assert partitioner.choose("u", b"same", None, THREE) == 0
    assert partitioner.choose("t", None, None, Partitions(3, (2,))) == 2


def test_custom_function_gets_all_arguments() -> None:
    def by_value(topic: str, key: bytes | None, value: bytes | None, partitions: Partitions) -> int:
        assert (topic, key, partitions) == ("t", b"k", THREE)
        return len(value or b"") % partitions.count

    assert OwnPartitioner(by_value).choose("t", b"k", b"four", THREE) == 1


@each_case("chosen", [-1, 3, 1.0, None, True, "1"])
def test_partition_out_of_range_is_refused(chosen: int) -> None:
    partitioner = OwnPartitioner(lambda topic, key, value, partitions: chosen)
    with pytest.raises(
        RequestError,
        match=r"the partitioner returned .* for topic 't', which has partitions 0 to 2",
    ):
        partitioner.choose("t", None, None, THREE)


@pytest.mark.parametrize(
    "partitioner",
    [
        KeyPartitioner(10, Random(1).random),
        RoundRobinPartitioner(),
        OwnPartitioner(lambda topic, key, value, partitions: partitions.count - 1),
    ],
)
def test_every_partitioner_chooses_a_valid_partition(
    partitioner: Partitioner,
) -> None:
    random = Random(2)
    for _ in range(500):
        count = random.randrange(1, 6)
        partitions = Partitions(
            count, tuple(sorted(random.sample(range(count), random.randrange(count + 1))))
        )
        for _ in range(5):
            key = random.choice((None, random.randbytes(3)))
            at = partitioner.choose("t", key, None, partitions)
            assert 0 <= at < count
            partitioner.batch_closed("t", at, random.randrange(20))
            batches = {partition: random.randrange(3) for partition in partitions.available}
            partitioner.waiting("t", batches, count)
