"""Properties of the assignors, over groups whose members come and go."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import each_case
from groups.assignors.histories import KINDS, ROUNDS, Kind, Round, history, partition
from ottla.groups.assignors.assignor import (
    ASSIGNORS,
    RangeAssignor,
    RebalanceProtocol,
    RoundRobinAssignor,
    StickyAssignor,
    rebalance_protocol,
)
from ottla.groups.assignors.sticky import assign_cooperatively, assign_sticky
from ottla.groups.assignors.subscription import Assignment, Subscription, TopicLayout
from ottla.groups.assignors.user_data import read_sticky
from ottla.ids import TopicPartition
from ottla.settings.consumer import PARTITION_ASSIGNMENT_STRATEGY
from sampling import examples

SEEDS = st.integers(0, 2**32)
ANY = st.sampled_from(KINDS)
ORDERLY = st.sampled_from([kind for kind in KINDS if not kind.disorder])
ALIKE = Kind(alike=True)
COOPERATIVE = "cooperative-sticky"
some = settings(max_examples=examples(20, usual=40))


def wanted(each: Round) -> set[TopicPartition]:
    """Return every partition with a subscriber."""
    topics = {topic for member in each.members.values() for topic in member.topics}
    return {
        partition(topic, index)
        for topic in topics & each.topics.keys()
        for index in range(each.topics[topic].partitions)
    }


def owners(assignment: Assignment) -> dict[TopicPartition, str]:
    return {found: key for key, partitions in assignment.items() for found in partitions}


def sizes(each: Round, topic: str | None = None) -> list[int]:
    """Return the members' partition counts; for one topic only those of its subscribers."""
    return [
        sum(topic in (None, found.topic) for found in partitions)
        for key, partitions in each.assignment.items()
        if topic is None or topic in each.members[key].topics
    ]


# Every partition is assigned once, to a subscriber.


@pytest.mark.parametrize("name", ASSIGNORS)
@some
@given(kind=ANY, seed=SEEDS)
def test_every_partition_goes_to_one_subscriber(name: str, kind: Kind, seed: int) -> None:
    for each in history(name, kind, seed):
        given_out = [found for partitions in each.assignment.values() for found in partitions]
        assert len(given_out) == len(set(given_out))
        if name != COOPERATIVE:
            assert set(given_out) == wanted(each)
        assert each.assignment.keys() == each.members.keys()
        for key, partitions in each.assignment.items():
            assert {found.topic for found in partitions} <= set(each.members[key].topics)


@some
@given(kind=ANY, seed=SEEDS)
def test_cooperative_leaves_out_only_owned_partitions(kind: Kind, seed: int) -> None:
    for each in history(COOPERATIVE, kind, seed):
        owned = {found for member in each.members.values() for found in member.owned}
        assert wanted(each) - owners(each.assignment).keys() <= owned


@some
@given(kind=ORDERLY, seed=SEEDS)
def test_cooperative_assigns_no_partition_owned_by_another(kind: Kind, seed: int) -> None:
    for each in history(COOPERATIVE, kind, seed):
        owner_of = {found: key for key, member in each.members.items() for found in member.owned}
        for found, key in owners(each.assignment).items():
            assert owner_of.get(found, key) == key


# Balance.


@some
@given(kind=ANY, seed=SEEDS)
def test_range_splits_each_topic_evenly(kind: Kind, seed: int) -> None:
    for each in history("range", kind, seed):
        for topic in {found.topic for found in wanted(each)}:
            assert max(sizes(each, topic)) - min(sizes(each, topic)) <= 1


@some
@given(seed=SEEDS)
def test_range_splits_equal_topics_alike(seed: int) -> None:
    for each in history("range", ALIKE, seed):
        readers: dict[tuple[int, int], str] = {}
        for found, key in owners(each.assignment).items():
            place = (each.topics[found.topic].partitions, found.partition)
            assert readers.setdefault(place, key) == key


@pytest.mark.parametrize("name", ["roundrobin", "sticky"])
@some
@given(kind=ANY, seed=SEEDS)
def test_counts_differ_by_at_most_one_for_equal_subscriptions(
    name: str, kind: Kind, seed: int
) -> None:
    for each in history(name, replace(kind, alike=True), seed):
        assert max(sizes(each)) - min(sizes(each)) <= 1


def could_be_more_even(each: Round) -> bool:
    """Whether a member could read a partition of a member that has at least two more."""
    return any(
        len(each.assignment[owner]) > len(each.assignment[key]) + 1
        for found, owner in owners(each.assignment).items()
        for key, member in each.members.items()
        if found.topic in member.topics
    )


@some
@given(kind=ORDERLY, seed=SEEDS)
def test_sticky_is_as_even_as_subscriptions_allow(kind: Kind, seed: int) -> None:
    for each in history("sticky", kind, seed):
        assert not could_be_more_even(each)


# In these groups a partition moves back and forth between the same members; Java does not end.
@each_case(
    ("name", "racks", "seed"),
    [
        ("sticky", False, 2171216854),
        ("sticky", True, 2028670567),
        ("sticky", True, 2922716317),
        (COOPERATIVE, True, 237814662),
    ],
)
def test_assignment_with_circular_moves_ends(name: str, racks: bool, seed: int) -> None:
    found = history(name, Kind(alike=False, racks=racks), seed)
    assert len(found) == ROUNDS
    if name == "sticky":
        assert not any(could_be_more_even(each) for each in found)


# Stickiness.


def again(each: Round) -> Assignment:
    """Repeat the rebalance without any change."""
    members = {
        key: replace(member, owned=each.assignment[key], generation=each.generation)
        for key, member in each.members.items()
    }
    return assign_cooperatively(each.topics, members).assignment


@some
@given(seed=SEEDS)
def test_cooperative_assignment_settles_in_the_next_rebalance(seed: int) -> None:
    # If subscriptions differ or racks matter, more moves may follow, as in Java.
    for each in history(COOPERATIVE, ALIKE, seed):
        second = replace(each, assignment=again(each))
        assert owners(second.assignment).keys() == wanted(each)
        assert owners(again(second)) == owners(second.assignment)


@some
@given(seed=SEEDS)
def test_new_member_causes_no_other_moves(seed: int) -> None:
    for each in history("sticky", ALIKE, seed):
        topics = next(iter(each.members.values())).topics
        members = {**after(each), "new": Subscription(topics)}
        before = owners(each.assignment)
        now = owners(assign_sticky(each.topics, members).assignment)
        assert {now[found] for found in now if now[found] != before[found]} <= {"new"}


@some
@given(seed=SEEDS)
def test_other_members_keep_partitions_when_one_leaves(seed: int) -> None:
    for each in history("sticky", ALIKE, seed):
        if len(each.members) > 1:
            members = after(each)
            gone, _ = members.popitem()
            before = owners(each.assignment)
            now = owners(assign_sticky(each.topics, members).assignment)
            assert all(now[found] == key for found, key in before.items() if key != gone)


def after(each: Round) -> dict[str, Subscription]:
    """Return the subscriptions of sticky members after a rebalance."""
    found: dict[str, Subscription] = {}
    for key, member in each.members.items():
        assignor = StickyAssignor()
        assignor.on_assignment(each.assignment[key], each.generation)
        found[key] = replace(member, user_data=assignor.user_data())
    return found


# Single cases.


def test_member_on_the_rack_of_a_replica_gets_the_partition() -> None:
    racks = tuple(frozenset({rack}) for rack in ("x", "y", "x", "y"))
    members = {
        "a": Subscription(("t",), rack="y"),
        "b": Subscription(("t",), rack="x"),
    }
    for name in ("range", "sticky", COOPERATIVE):
        found = ASSIGNORS[name]().assign({"t": TopicLayout(4, racks)}, members)
        assert found == {
            "a": (partition("t", 1), partition("t", 3)),
            "b": (partition("t", 0), partition("t", 2)),
        }


def test_static_members_come_first() -> None:
    members = {
        "a": Subscription(("t",)),
        "z": Subscription(("t",), group_instance_id="i"),
    }
    for assignor in (RangeAssignor(), RoundRobinAssignor()):
        found = assignor.assign({"t": TopicLayout(1)}, members)
        assert found == {"a": (), "z": (partition("t", 0),)}


@each_case("name", ASSIGNORS)
def test_no_members_or_partitions_gives_empty_assignments(name: str) -> None:
    assert ASSIGNORS[name]().assign({"t": TopicLayout(1)}, {}) == {}
    members = {"a": Subscription(("t",)), "b": Subscription(("u", "t")), "c": Subscription(())}
    assert ASSIGNORS[name]().assign({"u": TopicLayout(0)}, members) == {"a": (), "b": (), "c": ()}


def test_later_claim_wins_and_equal_generations_are_disputed() -> None:
    topics = {"t": TopicLayout(2)}
    zero, one = partition("t", 0), partition("t", 1)
    members = {
        "a": Subscription(("t",), (zero,), generation=4),
        "b": Subscription(("t",), (zero, one), generation=3),
    }
    assert assign_cooperatively(topics, members).assignment == {"a": (zero,), "b": (one,)}
    members = {
        "a": Subscription(("t",), (zero,), generation=4),
        "b": Subscription(("t",), (zero, one), generation=4),
    }
    # Both owners must revoke it before it is assigned.
    assert assign_cooperatively(topics, members).assignment == {"a": (), "b": (one,)}


def test_leader_remembers_the_newest_generation() -> None:
    seen = assign_sticky({"t": TopicLayout(1)}, {"a": Subscription(("t",))}, 7)
    assert seen.generation_max == 7


# Table and encoding.


def test_names_and_protocols() -> None:
    assert list(ASSIGNORS) == ["range", "roundrobin", "sticky", "cooperative-sticky"]
    assert PARTITION_ASSIGNMENT_STRATEGY.default == ("range", "cooperative-sticky")
    found = {name: rebalance_protocol([each()]) for name, each in ASSIGNORS.items()}
    assert found.pop(COOPERATIVE) is RebalanceProtocol.COOPERATIVE
    assert set(found.values()) == {RebalanceProtocol.EAGER}
    both = [ASSIGNORS[COOPERATIVE](), ASSIGNORS["range"]()]
    assert rebalance_protocol(both) is RebalanceProtocol.EAGER


def test_user_data() -> None:
    assert {name: each().user_data() for name, each in ASSIGNORS.items()} == {
        "range": None,
        "roundrobin": None,
        "sticky": None,
        "cooperative-sticky": b"\xff\xff\xff\xff",
    }
    assignor = StickyAssignor()
    assignor.on_assignment([partition("t", 5), partition("t", 2)], 9)
    data = assignor.user_data() or b""
    assert data == bytes.fromhex("00000001 000174 00000002 00000005 00000002 00000009")
    assert read_sticky(data).partitions == (partition("t", 5), partition("t", 2))
    assert read_sticky(data).generation == 9
    # User data of the older format, without a generation.
    assert read_sticky(data[:-4]).partitions == (partition("t", 5), partition("t", 2))
    assert read_sticky(data[:-4]).generation == -1
    for size in range(len(data) - 4):
        assert read_sticky(data[:size]) == read_sticky(None)
    for broken in ("ffffffff", "7fffffff", "00000001 ffff", "00000001 000174 ffffffff"):
        assert read_sticky(bytes.fromhex(broken)) == read_sticky(None)


def test_cooperative_user_data_has_the_generation() -> None:
    assignor = ASSIGNORS[COOPERATIVE]()
    assignor.on_assignment([partition("t", 5)], 9)
    assert assignor.user_data() == b"\0\0\0\x09"
