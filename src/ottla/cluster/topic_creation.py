"""Checks for creating and growing topics.

Invariant: these functions change nothing. A refusal has an error code and a message that says what
to do. The replicas of a partition are on different, known brokers, and partitions are numbered from
0 without gaps.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.cluster.existing_topics import ExistingTopics
from ottla.cluster.image import INTERNAL_TOPICS, Broker
from ottla.cluster.placement import Assignment, place_replicas
from ottla.errors import ErrorCode, RequestError
from ottla.ids import BrokerId, topic_name_problem, topic_names_collide
from ottla.protocol.metadata_topic import METADATA_TOPIC

UNSET: Final = -1

PARTITIONS_MAX: Final = 10_000
"""Partitions that one request may create, as in Kafka, or add; more would delay other requests."""


class TopicDefaults(NamedTuple):
    """Defaults for values that a request leaves open."""

    partitions: int
    replication_factor: int


class AskedTopic(NamedTuple):
    """A topic of a CreateTopics request; -1 means the default."""

    name: str
    partitions: int = UNSET
    replication_factor: int = UNSET
    assignment: Mapping[int, Sequence[int]] = {}


def check_made(numbers: Iterable[int]) -> None:
    """Refuse a request that creates topics with too many partitions in total."""
    if sum(one for one in numbers if one > 0) > PARTITIONS_MAX:
        raise RequestError(
            ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
        )


def check_added(totals: Iterable[tuple[int, int]]) -> None:
    """Refuse a request that adds too many partitions; `totals` has the old and new counts."""
    if sum(max(0, after - before) for before, after in totals) > PARTITIONS_MAX:
        raise RequestError(
            ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
        )


def check_name(name: str, existing: ExistingTopics) -> None:
    """Refuse a topic name that is invalid, taken, or collides with another name.

    It must not collide with an internal topic either, even if that is not created yet: then it
    could not be created any more, and no group could commit.
    """
    if problem := topic_name_problem(name):
        raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if name == METADATA_TOPIC:  # in a data directory this is KRaft's metadata log, not a topic
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited."
        )
    for other in INTERNAL_TOPICS:
        if name != other and topic_names_collide(name, other):
            raise RequestError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with internal topic: {other}",
            )
    if name in existing:
        raise RequestError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if (other := existing.colliding(name)) is not None:
        raise RequestError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {other}",
        )


def assignment_of(
    asked: AskedTopic, defaults: TopicDefaults, brokers: Sequence[Broker], start: int
) -> Assignment:
    """Place the partitions of a new topic on brokers that may get partitions.

    The random number `start` spreads topics. A manual assignment is checked and returned as it is.
    """
    if asked.assignment:
        return _given(asked, brokers)
    partitions = defaults.partitions if asked.partitions == UNSET else asked.partitions
    factor = (
        defaults.replication_factor
        if asked.replication_factor == UNSET
        else asked.replication_factor
    )
    if partitions <= 0:
        raise RequestError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    if factor <= 0:
        raise RequestError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor was set to an invalid non-positive value.",
        )
    return place_replicas(brokers, range(partitions), factor, start)


def _given(asked: AskedTopic, brokers: Sequence[Broker]) -> Assignment:
    if asked.replication_factor != UNSET:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to "
            "-1.",
        )
    if asked.partitions != UNSET:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    if sorted(asked.assignment) != list(range(len(asked.assignment))):
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    rows = [asked.assignment[index] for index in range(len(asked.assignment))]
    return checked(rows, {one.id for one in brokers}, len(rows[0]))


def checked(rows: Sequence[Sequence[int]], known: Collection[BrokerId], factor: int) -> Assignment:
    """Check and return a manual assignment to known brokers."""
    for row in rows:
        if not row:
            problem = "The manual partition assignment includes an empty replica list."
        elif len(set(row)) != len(row):
            problem = (
                "The manual partition assignment includes the broker "
                f"{max(row, key=list(row).count)} more than once."
            )
        elif unknown := sorted(set(row).difference(known)):
            problem = (
                f"The manual partition assignment includes broker {unknown[0]}, but no such "
                "broker is registered."
            )
        elif len(row) != factor:
            problem = (
                f"The manual partition assignment includes a partition with {len(row)} "
                f"replica(s), but this is not consistent with previous partitions, which have "
                f"{factor} replica(s)."
            )
        else:
            continue
        raise RequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    return tuple(tuple(BrokerId(broker) for broker in row) for row in rows)


def added_partitions(
    present: Sequence[Sequence[BrokerId]],
    count: int,
    assignments: Sequence[Sequence[int]] | None,
    brokers: Sequence[Broker],
    start: int,
) -> Assignment:
    """Place the partitions that a topic gets when it grows to `count`."""
    if count == len(present):
        raise RequestError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {count} partition(s).")
    if count < len(present):
        raise RequestError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic currently has {len(present)} partition(s); {count} would not be an "
            "increase.",
        )
    factor = len(present[0])
    if assignments is None:
        leaders = (replicas[0] for replicas in present)
        return place_replicas(brokers, range(len(present), count), factor, start, leaders)
    if len(assignments) != count - len(present):
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {count - len(present)} additional partition(s), but only "
            f"{len(assignments)} assignment(s) were specified.",
        )
    return checked(assignments, {one.id for one in brokers}, factor)
