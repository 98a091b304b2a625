"""Consumer metrics with Kafka's names.

Invariant: a snapshot is immutable, and its totals never decrease. Counters are updated per
response, never per record.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from ottla.client.metrics.tally import NOT_YET, Tally
from ottla.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class ConsumerMetrics:
    """A snapshot; names are Kafka's with _ for -. Names ending in _total count from the start."""

    records_consumed_total: int = 0
    """Records received, handed out or not; whole batches count, hidden records do not."""

    bytes_consumed_total: int = 0
    """Bytes of received records, compressed or not."""

    fetch_total: int = 0
    """Fetches that were answered or failed."""

    fetch_latency_avg: float = NOT_YET
    """Milliseconds from a fetch to its response, which the broker may delay by fetch.max.wait.ms.
    """

    fetch_latency_max: float = NOT_YET
    fetch_size_avg: float = NOT_YET
    """Bytes of records per response."""

    fetch_size_max: float = NOT_YET
    records_per_request_avg: float = NOT_YET
    fetch_throttle_time_avg: float = NOT_YET
    """Milliseconds of throttling after a fetch."""

    fetch_throttle_time_max: float = NOT_YET
    buffered_bytes: int = 0
    """Bytes received and not handed out; not in Kafka."""

    records_lag: Mapping[TopicPartition, int] = field(
        default_factory=lambda: MappingProxyType(dict[TopicPartition, int]())
    )
    """Lag per partition as of the last response; absent before that."""

    records_lag_max: float = NOT_YET
    assigned_partitions: int = 0
    commit_total: int = 0
    """Commit requests that were answered or failed."""

    commit_error_total: int = 0
    """Commit requests in which a partition failed; not in Kafka."""

    commit_latency_avg: float = NOT_YET
    """Milliseconds from a commit request to its response."""

    commit_latency_max: float = NOT_YET
    rebalance_total: int = 0
    """Completed rebalances, also those that kept the assignment."""

    rebalance_latency_avg: float = NOT_YET
    """Milliseconds of a rebalance, with callbacks and the wait for other members."""

    rebalance_latency_max: float = NOT_YET
    rebalance_latency_last: float = NOT_YET
    """Of the last one; not in Kafka."""

    heartbeat_total: int = 0
    """Heartbeats that were answered or failed."""

    heartbeat_response_time_max: float = NOT_YET
    """Milliseconds."""


class FetchCounts:
    """Counters of the fetcher."""

    __slots__ = ("answer_bytes", "answer_records", "latency_ms", "throttle_ms")

    def __init__(self) -> None:
        self.latency_ms: Final = Tally()
        self.answer_bytes: Final = Tally()
        self.answer_records: Final = Tally()
        self.throttle_ms: Final = Tally()


class GroupCounts:
    """Counters of memberships and commits."""

    __slots__ = ("commit_errors", "commit_ms", "heartbeat_ms", "rebalance_ms")

    def __init__(self) -> None:
        self.commit_errors = 0
        self.commit_ms: Final = Tally()
        self.heartbeat_ms: Final = Tally()
        self.rebalance_ms: Final = Tally()


def consumer_metrics(
    fetches: FetchCounts,
    group: GroupCounts,
    *,
    buffered_bytes: int,
    lags: Mapping[TopicPartition, int],
    assigned: int,
) -> ConsumerMetrics:
    """Return the metrics now, with the state of the partitions."""
    return ConsumerMetrics(
        records_consumed_total=int(fetches.answer_records.total),
        bytes_consumed_total=int(fetches.answer_bytes.total),
        fetch_total=fetches.latency_ms.count,
        fetch_latency_avg=fetches.latency_ms.average,
        fetch_latency_max=fetches.latency_ms.largest,
        fetch_size_avg=fetches.answer_bytes.average,
        fetch_size_max=fetches.answer_bytes.largest,
        records_per_request_avg=fetches.answer_records.average,
        fetch_throttle_time_avg=fetches.throttle_ms.average,
        fetch_throttle_time_max=fetches.throttle_ms.largest,
        buffered_bytes=buffered_bytes,
        records_lag=MappingProxyType({**lags}),
        records_lag_max=max(lags.values(), default=NOT_YET),
        assigned_partitions=assigned,
        commit_total=group.commit_ms.count,
        commit_error_total=group.commit_errors,
        commit_latency_avg=group.commit_ms.average,
        commit_latency_max=group.commit_ms.largest,
        rebalance_total=group.rebalance_ms.count,
        rebalance_latency_avg=group.rebalance_ms.average,
        rebalance_latency_max=group.rebalance_ms.largest,
        rebalance_latency_last=group.rebalance_ms.last,
        heartbeat_total=group.heartbeat_ms.count,
        heartbeat_response_time_max=group.heartbeat_ms.largest,
    )
