"""Partition reassignments and leader elections.

Invariant: a call starts a reassignment and returns; `list_reassignments` shows its progress.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ottla.client.admin.calls import Calls
from ottla.client.calls.caller import ApiCall, Terms
from ottla.client.calls.results import Results, check, refused
from ottla.client.partitions import (
    P,
    Partition,
    by_partition,
    by_topic,
    each_once,
    partition,
    rows,
    rows_by_topic,
)
from ottla.errors import ErrorCode, RequestError
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)

_FACTOR_SINCE: Final = 1  # the first version that can refuse a changed replication factor
_KINDS_SINCE: Final = 1  # the first version of ElectLeaders with unclean elections


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A reassignment in progress."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Election(IntEnum):
    """The kind of an election, as on the wire."""

    PREFERRED = 0
    """The first replica, if it is in sync."""

    UNCLEAN = 1
    """Any live replica if none is in sync: records may be lost."""


class ReassignmentCalls(Calls):
    """Calls about reassignments and elections."""

    async def alter_reassignments(
        self,
        replicas: Mapping[P, Sequence[int] | None],
        *,
        allow_factor_change: bool = True,
        timeout_s: float | None = None,
    ) -> Results[Partition, None]:
        """Move the replicas of partitions to these brokers; None cancels a reassignment."""
        wanted = by_partition(replicas)
        question = ApiCall(
            request=lambda keys, terms: alter_request(
                {key: wanted[key] for key in keys}, terms, allow_factor_change=allow_factor_change
            ),
            answer=AlterPartitionReassignmentsResponse,
            read=lambda _, answer: altered(answer),
            since=0 if allow_factor_change else _FACTOR_SINCE,
        )
        return await self._asking.many(self._asking.to_controller, wanted, question, timeout_s)

    async def list_reassignments(
        self, partitions: Iterable[Partition] | None = None, *, timeout_s: float | None = None
    ) -> dict[Partition, Reassignment]:
        """Return the reassignments in progress, all or of some partitions."""
        wanted = None if partitions is None else by_topic(each_once(partitions))
        return await self._asking.one(
            self._asking.to_controller,
            lambda terms: list_request(wanted, terms),
            ListPartitionReassignmentsResponse,
            listed,
            timeout_s,
        )

    async def elect_leaders(
        self,
        kind: Election = Election.PREFERRED,
        partitions: Iterable[Partition] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Results[Partition, bool]:
        """Elect leaders of partitions, or of all that need one; False where nothing changed.

        For all partitions, only those with an election are returned.
        """
        asking = self._asking
        since = _KINDS_SINCE if kind is Election.UNCLEAN else 0
        if partitions is None:
            told = await asking.one(
                asking.to_controller,
                lambda terms: elect_request(kind, None, terms),
                ElectLeadersResponse,
                elected,
                timeout_s,
                since=since,
            )
            return Results(told)
        question = ApiCall(
            request=lambda keys, terms: elect_request(kind, keys, terms),
            answer=ElectLeadersResponse,
            read=lambda _, answer: elected(answer),
            since=since,
        )
        return await asking.many(asking.to_controller, each_once(partitions), question, timeout_s)


def alter_request(
    replicas: Mapping[Partition, Sequence[int] | None], terms: Terms, *, allow_factor_change: bool
) -> AlterPartitionReassignmentsRequest:
    """Build AlterPartitionReassignments."""

    def row(one: Partition) -> ReassignablePartition:
        return ReassignablePartition(partition_index=one[1], replicas=replicas[one])

    return AlterPartitionReassignmentsRequest(
        timeout_ms=terms.timeout_ms,
        allow_replication_factor_change=allow_factor_change,
        topics=[
            ReassignableTopic(name=topic, partitions=ones)
            for topic, ones in rows_by_topic(replicas, row).items()
        ],
    )


def altered(answer: AlterPartitionReassignmentsResponse) -> dict[Partition, RequestError | None]:
    """Return the result of each partition."""
    check(answer.error_code, None, answer.error_message)
    topics = ((topic.name, topic.partitions) for topic in answer.responses)
    return {key: refused(one.error_code, key, one.error_message) for key, one in rows(topics)}


def list_request(
    topics: Mapping[str, Sequence[int]] | None, terms: Terms
) -> ListPartitionReassignmentsRequest:
    """Build ListPartitionReassignments."""
    return ListPartitionReassignmentsRequest(
        timeout_ms=terms.timeout_ms,
        topics=None
        if topics is None
        else [
            ListPartitionReassignmentsTopics(name=topic, partition_indexes=indexes)
            for topic, indexes in topics.items()
        ],
    )


def listed(answer: ListPartitionReassignmentsResponse) -> dict[Partition, Reassignment]:
    """Return the reassignments."""
    check(answer.error_code, None, answer.error_message)
    return {
        key: Reassignment(
            tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas)
        )
        for key, one in rows((topic.name, topic.partitions) for topic in answer.topics)
    }


def elect_request(
    kind: Election, wanted: Iterable[Partition] | None, terms: Terms
) -> ElectLeadersRequest:
    """Build ElectLeaders."""
    return ElectLeadersRequest(
        election_type=kind,
        topic_partitions=None
        if wanted is None
        else [
            TopicPartitions(topic=topic, partitions=indexes)
            for topic, indexes in by_topic(wanted).items()
        ],
        timeout_ms=terms.timeout_ms,
    )


def elected(answer: ElectLeadersResponse) -> dict[Partition, bool | RequestError]:
    """Return whether each partition had an election."""
    check(answer.error_code, None)
    told: dict[Partition, bool | RequestError] = {}
    for topic in answer.replica_election_results:
        for one in topic.partition_result:
            key = partition(topic.topic, one.partition_id)
            error = refused(one.error_code, key, one.error_message)
            if error is None or error.code is ErrorCode.ELECTION_NOT_NEEDED:
                told[key] = error is None
            else:
                told[key] = error
    return told
