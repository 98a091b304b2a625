"""Transactions and producers: list, describe, abort and fence.

Invariant: a transaction is described by the coordinator of its id, a producer by the partition
leader.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.client.admin.calls import Calls
from ottla.client.arguments import many_of
from ottla.client.calls.caller import ONE_EACH, ApiCall, Terms
from ottla.client.calls.results import Listing, Results, check, or_none, refused
from ottla.client.partitions import (
    Partition,
    by_topic,
    each_once,
    in_order,
    names,
    rows,
)
from ottla.errors import ErrorCode, RequestError
from ottla.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from ottla.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from ottla.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from ottla.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_DURATION_SINCE: Final = 1  # the first versions of ListTransactions with more filters
_PATTERN_SINCE: Final = 2


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """A transactional id known to a coordinator."""

    id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """The latest transaction of an id."""

    id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    """None if no transaction is open."""

    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class ProducerDescription:
    """A producer that recently wrote to a partition."""

    id: int
    epoch: int
    last_sequence: int | None
    last_timestamp_ms: int | None
    coordinator_epoch: int | None
    transaction_start_offset: int | None
    """Of its open transaction in this partition; None if there is none."""


@dataclass(frozen=True, slots=True)
class FencedProducer:
    """The state of a transactional id after fencing."""

    producer_id: int
    producer_epoch: int


class TransactionCalls(Calls):
    """Calls about transactions."""

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int | None = None,
        id_pattern: str | None = None,
        timeout_s: float | None = None,
    ) -> Listing[ListedTransaction]:
        """List transactional ids, all or filtered: by state ("Ongoing"), by duration..."""
        request = ListTransactionsRequest(
            state_filters=many_of(states, str, 'a list of states such as ["Ongoing"]'),
            producer_id_filters=many_of(
                producer_ids, int, "a list of producer ids such as [1000, 1001]"
            ),
            duration_filter=-1 if longer_than_ms is None else longer_than_ms,
            transactional_id_pattern=id_pattern,
        )
        since = 0 if longer_than_ms is None else _DURATION_SINCE
        return await self._asking.listing(
            lambda _: request,
            ListTransactionsResponse,
            listed,
            timeout_s,
            since=since if id_pattern is None else _PATTERN_SINCE,
        )

    async def describe_transactions(
        self, ids: str | Iterable[str], *, timeout_s: float | None = None
    ) -> Results[str, TransactionDescription]:
        """Return the latest transaction of each id."""
        question = ApiCall(
            request=lambda keys, _: DescribeTransactionsRequest(transactional_ids=keys),
            answer=DescribeTransactionsResponse,
            read=lambda _, answer: described(answer),
        )
        route = self._asking.to_transaction
        return await self._asking.many(route, names(ids), question, timeout_s)

    async def describe_producers(
        self,
        partitions: Iterable[Partition],
        *,
        broker: int | None = None,
        timeout_s: float | None = None,
    ) -> Results[Partition, tuple[ProducerDescription, ...]]:
        """Return the recent producers of partitions, from the leaders or one broker."""
        question = ApiCall(
            request=lambda keys, _: producers_request(keys),
            answer=DescribeProducersResponse,
            read=lambda _, answer: producers(answer),
        )
        asking, wanted = self._asking, each_once(partitions)
        if broker is None:
            return await asking.many(asking.to_leaders, wanted, question, timeout_s)
        return await asking.many(asking.to_one(broker), wanted, question, timeout_s)

    async def abort_transaction(
        self,
        where: Partition,
        producer: ProducerDescription,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Abort a producer's transaction in a partition that no coordinator knows."""
        question = ApiCall(
            request=lambda keys, _: abort_request(keys, producer),
            answer=WriteTxnMarkersResponse,
            read=lambda _, answer: aborted(answer),
        )
        (key,) = wanted = each_once([where])
        told = await self._asking.many(self._asking.to_leaders, wanted, question, timeout_s)
        return told[key]

    async def fence_producers(
        self, ids: str | Iterable[str], *, timeout_s: float | None = None
    ) -> Results[str, FencedProducer]:
        """Fence the producers of transactional ids and abort their open transactions."""
        question = ApiCall(
            request=fence_request,
            answer=InitProducerIdResponse,
            read=fenced,
            batched_since=ONE_EACH,
        )
        route = self._asking.to_transaction
        return await self._asking.many(route, names(ids), question, timeout_s)


def listed(answer: ListTransactionsResponse) -> tuple[ListedTransaction, ...]:
    """Return the transactions of one coordinator."""
    check(answer.error_code, "transactions")
    if answer.unknown_state_filters:
        states = ", ".join(answer.unknown_state_filters)
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"the broker does not know the transaction states {states}"
        )
    return tuple(
        ListedTransaction(one.transactional_id, one.producer_id, one.transaction_state)
        for one in answer.transaction_states
    )


def described(
    answer: DescribeTransactionsResponse,
) -> dict[str, TransactionDescription | RequestError]:
    """Return the transaction of each id."""
    return {
        one.transactional_id: refused(one.error_code, one.transactional_id)
        or TransactionDescription(
            one.transactional_id,
            one.transaction_state,
            one.producer_id,
            one.producer_epoch,
            one.transaction_timeout_ms,
            or_none(one.transaction_start_time_ms),
            in_order((topic.topic, topic.partitions) for topic in one.topics),
        )
        for one in answer.transaction_states
    }


def producers_request(keys: Iterable[Partition]) -> DescribeProducersRequest:
    """Build DescribeProducers."""
    return DescribeProducersRequest(
        topics=[
            TopicRequest(name=topic, partition_indexes=indexes)
            for topic, indexes in by_topic(keys).items()
        ]
    )


def producers(
    answer: DescribeProducersResponse,
) -> dict[Partition, tuple[ProducerDescription, ...] | RequestError]:
    """Return the producers of each partition."""
    return {
        key: refused(one.error_code, key, one.error_message)
        or tuple(map(_producer, one.active_producers))
        for key, one in rows((topic.name, topic.partitions) for topic in answer.topics)
    }


def _producer(told: ProducerState) -> ProducerDescription:
    return ProducerDescription(
        told.producer_id,
        told.producer_epoch,
        or_none(told.last_sequence),
        or_none(told.last_timestamp),
        or_none(told.coordinator_epoch),
        or_none(told.current_txn_start_offset),
    )


def abort_request(
    keys: Iterable[Partition], producer: ProducerDescription
) -> WriteTxnMarkersRequest:
    """Build WriteTxnMarkers with an abort; with coordinator epoch 0 if it is not known."""
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                transaction_result=False,
                topics=[
                    WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
                    for topic, indexes in by_topic(keys).items()
                ],
                coordinator_epoch=producer.coordinator_epoch or 0,
            )
        ]
    )


def aborted(answer: WriteTxnMarkersResponse) -> dict[Partition, RequestError | None]:
    """Return the result of each partition."""
    topics = ((one.name, one.partitions) for marker in answer.markers for one in marker.topics)
    return {key: refused(one.error_code, key) for key, one in rows(topics)}


def fence_request(keys: Sequence[str], terms: Terms) -> InitProducerIdRequest:
    """Build InitProducerId, which fences the producers of an id."""
    (key,) = keys
    return InitProducerIdRequest(
        transactional_id=key, transaction_timeout_ms=max(1, terms.timeout_ms)
    )


def fenced(
    keys: Sequence[str], answer: InitProducerIdResponse
) -> dict[str, FencedProducer | RequestError]:
    """Return the new state of the id."""
    (key,) = keys
    error = refused(answer.error_code, key)
    return {key: error or FencedProducer(answer.producer_id, answer.producer_epoch)}
