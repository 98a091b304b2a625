"""Placement of replicas: Kafka's order, and different racks and machines."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cluster.image import Broker
from ottla.cluster.placement import Assignment, place_replicas
from ottla.errors import ErrorCode, RequestError
from ottla.ids import BrokerEpoch, BrokerId


def broker(number: int, rack: str | None = None, host: str | None = None) -> Broker:
    return Broker(BrokerId(number), BrokerEpoch(number), {}, rack, host)


def kafkas_placement(
    racks: Mapping[int, str], partitions: int, factor: int, start: int, shift: int
) -> list[list[int]]:
    """Kafka's AdminUtils.assignReplicasToBrokersRackAware, step by step."""
    by_rack = {
        rack: iter(sorted(one for one in racks if racks[one] == rack))
        for rack in sorted(set(racks.values()))
    }
    arranged: list[int] = []
    while len(arranged) < len(racks):
        for brokers in by_rack.values():
            arranged += [one for one in [next(brokers, None)] if one is not None]
    count, found = len(arranged), list[list[int]]()
    for partition in range(partitions):
        if partition > 0 and partition % count == 0:
            shift += 1
        first = (partition + start) % count
        row = [arranged[first]]
        used = {racks[arranged[first]]}
        k = 0
        while len(row) < factor:
            step = 1 + (shift * len(by_rack) + k) % (count - 1)
            one = arranged[(first + step) % count]
            k += 1
            if (racks[one] not in used or len(used) == len(by_rack)) and one not in row:
                row.append(one)
                used.add(racks[one])
        found.append(row)
    return found


@given(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=9),
    st.booleans(),
    st.integers(1, 40),
    st.integers(0, 2**31),
    st.data(),
)
def test_placement_is_kafkas_if_every_broker_has_a_machine(
    racks: list[str], has_racks: bool, partitions: int, start: int, data: st.DataObject
) -> None:
    count = len(racks)
    factor = data.draw(st.integers(1, count))
    given_racks: list[str | None] = [*racks] if has_racks else [None] * count
    brokers = [broker(n, rack, f"host-{-n}") for n, rack in enumerate(given_racks)]
    found = place_replicas(brokers, range(partitions), factor, start)
    known = {n: rack or "" for n, rack in enumerate(given_racks)}
    assert [*map(list, found)] == kafkas_placement(
        known, partitions, factor, start % count, start // count
    )


def test_leaders_take_turns_and_followers_are_staggered() -> None:
    brokers = [broker(n) for n in range(5)]
    # The example in the documentation of Kafka's AdminUtils.
    assert place_replicas(brokers, range(10), 3, 0) == (
        (0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 0), (4, 0, 1),
        (0, 2, 3), (1, 3, 4), (2, 4, 0), (3, 0, 1), (4, 1, 2),
    )  # fmt: skip


def test_replicas_are_on_different_machines_without_racks() -> None:
    brokers = [broker(n, None, f"m{n // 2}") for n in range(6)]
    found = place_replicas(brokers, range(12), 3, 0)
    assert all(len({one // 2 for one in row}) == 3 for row in found)
    assert set(Counter(one for row in found for one in row).values()) == {6}


PLACES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=10)


def spread_over(row: Sequence[int], places: Mapping[int, object]) -> int:
    return len({places[one] for one in row})


@given(PLACES, st.integers(1, 30), st.integers(0, 2**31), st.data())
def test_replicas_share_no_rack_or_machine_while_they_can(
    places: list[tuple[int, int]], partitions: int, start: int, data: st.DataObject
) -> None:
    racks = {n: rack for n, (rack, _) in enumerate(places)}
    machines = {n: f"{rack}-{host}" for n, (rack, host) in enumerate(places)}
    brokers = [broker(n, f"rack-{racks[n]}", machines[n]) for n in racks]
    factor = data.draw(st.integers(1, len(brokers)))
    found = place_replicas(brokers, range(partitions), factor, start)
    assert len(found) == partitions
    for row in found:
        assert len(set(row)) == factor
        assert spread_over(row, racks) == min(factor, len(set(racks.values())))
        assert spread_over(row, machines) == min(factor, len(set(machines.values())))
    assert_even_leaders(found, brokers)


def assert_even_leaders(found: Assignment, brokers: Sequence[Broker]) -> None:
    counts = Counter(row[0] for row in found)
    numbers = [counts[one.id] for one in brokers]
    assert max(numbers) - min(numbers) <= 1


@given(
    st.integers(1, 7), st.integers(1, 20), st.integers(1, 20), st.tuples(*[st.integers(0, 99)] * 2)
)
def test_grown_topic_keeps_its_leaders_even(
    count: int, before: int, more: int, starts: tuple[int, int]
) -> None:
    brokers = [broker(n) for n in range(count)]
    first = place_replicas(brokers, range(before), 1, starts[0])
    leaders = [row[0] for row in first]
    added = place_replicas(brokers, range(before, before + more), 1, starts[1], leaders)
    assert len(added) == more
    assert_even_leaders((*first, *added), brokers)


def test_more_replicas_than_brokers_are_refused() -> None:
    for brokers in ([], [broker(1)]):
        with pytest.raises(RequestError, match=f"only {len(brokers)} broker") as error:
            place_replicas(brokers, range(1), 2, 0)
        assert error.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
