"""Creation and growth of topics."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cases import each_case
from ottla.cluster.existing_topics import ExistingTopics
from ottla.cluster.image import Broker, PartitionState, Topic
from ottla.cluster.topic_creation import (
    AskedTopic,
    TopicDefaults,
    added_partitions,
    assignment_of,
    check_name,
)
from ottla.errors import ErrorCode, RequestError
from ottla.ids import BrokerEpoch, BrokerId, Uuid

BROKERS = tuple(Broker(BrokerId(n), BrokerEpoch(n), {}) for n in (1, 2, 3))
DEFAULTS = TopicDefaults(2, 1)


def existing(*names: str) -> ExistingTopics:
    topics = {name: Topic(name, Uuid(bytes(16)), (PartitionState(()),)) for name in names}
    return ExistingTopics(topics, len(topics))


@each_case("name", ["", ".", "..", "a b", "ä", "x" * 250, "a/b", "a\n"])
def test_invalid_topic_name_is_refused(name: str) -> None:
    with pytest.raises(RequestError) as error:
        check_name(name, existing())
    assert error.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_taken_or_colliding_topic_name_is_refused() -> None:
    check_name("x" * 249, existing("a.b", "c"))
    with pytest.raises(RequestError) as taken:
        check_name("c", existing("a.b", "c"))
    assert taken.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    with pytest.raises(RequestError, match=r"collides with existing topic: a\.b") as alike:
        check_name("a_b", existing("a.b", "c"))
    assert alike.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


@given(st.text("ab._", min_size=1, max_size=8), st.sets(st.text("ab._", min_size=1), max_size=40))
def test_names_collide_that_differ_only_in_dots_and_underscores(name: str, names: set[str]) -> None:
    assume(name not in (".", ".."))
    alike = {one.replace(".", "_") for one in names}
    topics = existing(*names)
    if name.replace(".", "_") not in alike:
        check_name(name, topics)
        return
    with pytest.raises(RequestError) as refused:
        check_name(name, topics)
    taken = refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert taken == (name in names)


def test_name_that_an_internal_topic_needs_is_refused() -> None:
    for name in ("__consumer.offsets", "_.consumer_offsets", "__transaction.state"):
        with pytest.raises(RequestError, match="collides with internal topic: __") as refused:
            check_name(name, existing())
        assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    check_name("__consumer_offsets", existing("c"))


def test_defaults_fill_unset_values() -> None:
    assert assignment_of(AskedTopic("t"), DEFAULTS, BROKERS, 0) == ((1,), (2,))
    assert assignment_of(AskedTopic("t", 1, 3), DEFAULTS, BROKERS, 1) == ((2, 3, 1),)


@each_case(
    ("asked", "code"),
    [
        (AskedTopic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (AskedTopic("t", -2), ErrorCode.INVALID_PARTITIONS),
        (AskedTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (AskedTopic("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (AskedTopic("t", -1, 1, {0: [1]}), ErrorCode.INVALID_REQUEST),
        (AskedTopic("t", 1, -1, {0: [1]}), ErrorCode.INVALID_REQUEST),
        (AskedTopic("t", -1, -1, {1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (AskedTopic("t", -1, -1, {0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (AskedTopic("t", -1, -1, {0: [1, 1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (AskedTopic("t", -1, -1, {0: [9]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (AskedTopic("t", -1, -1, {0: [1, 2], 1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_invalid_assignment_is_refused_with_its_code(asked: AskedTopic, code: ErrorCode) -> None:
    with pytest.raises(RequestError) as error:
        assignment_of(asked, DEFAULTS, BROKERS, 0)
    assert error.value.code is code
    assert error.value.message


def test_manual_assignment_is_used() -> None:
    asked = AskedTopic("t", assignment={1: [2, 3], 0: [3, 1]})
    assert assignment_of(asked, DEFAULTS, BROKERS, 7) == ((3, 1), (2, 3))


def test_partition_count_can_only_grow() -> None:
    present = [(BrokerId(1),), (BrokerId(2),)]
    assert len(added_partitions(present, 5, None, BROKERS, 0)) == 3
    assert added_partitions(present, 3, [[2]], BROKERS, 0) == ((2,),)
    for count in (2, 1, 0):
        with pytest.raises(RequestError) as error:
            added_partitions(present, count, None, BROKERS, 0)
        assert error.value.code is ErrorCode.INVALID_PARTITIONS
    with pytest.raises(RequestError) as error:
        added_partitions(present, 4, [[2]], BROKERS, 0)
    assert error.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
