# ruff: noqa: E501 - one line per row
"""The table of metrics, the counters of requests and partitions, and the Prometheus text format.

Invariant: every exported metric is in the table, with the labels and the unit of its row. Counters
are plain numbers that never decrease; they are formatted only when the page is requested.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias


class Kind(StrEnum):
    """The Prometheus type of a metric."""

    COUNTER = "counter"  # only increases
    GAUGE = "gauge"  # current value
    HISTOGRAM = "histogram"  # counts per bucket


class Metric(NamedTuple):
    """One row: name with the unit last, type, labels and documentation."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    doc: str
    kafka: str = ""  # the MBean of the same metric in Kafka


# fmt: off
BROKER_INFO: Final = Metric("ottla_broker_info", Kind.GAUGE, ("node", "cluster", "version", "kernel"),
    "Always 1. The labels identify the broker, the cluster, the release and whether the kernel is compiled.")
START_TIME: Final = Metric("ottla_start_time_seconds", Kind.GAUGE, (),
    "Start time of the broker in seconds since the epoch.")
CONNECTIONS: Final = Metric("ottla_connections", Kind.GAUGE, ("listener",),
    "Number of open connections.", "kafka.server:type=socket-server-metrics,connection-count")
ACCEPTED: Final = Metric("ottla_connections_accepted_total", Kind.COUNTER, ("listener",),
    "Number of accepted connections.", "kafka.server:type=socket-server-metrics,connection-creation-total")
REFUSED: Final = Metric("ottla_connections_refused_total", Kind.COUNTER, ("listener",),
    "Number of connections that were rejected because of a connection limit.")
CLOSED: Final = Metric("ottla_connections_closed_by_broker_total", Kind.COUNTER, ("listener", "reason"),
    "Number of connections that the broker closed, by reason: `violation` (invalid request), `overdue` (idle or too slow), `crowded` (longest idle at the connection limit), `unauthenticated` (refused login), `failure` (internal error, see the log).")
REQUESTS_QUEUED: Final = Metric("ottla_requests_queued_bytes", Kind.GAUGE, (),
    "Memory in bytes of large requests that are being received or processed, limited by queued.max.request.bytes.", "kafka.network:type=SocketServer,name=MemoryPoolUsed")
RESPONSES_QUEUED: Final = Metric("ottla_responses_queued_bytes", Kind.GAUGE, (),
    "Memory in bytes of responses that clients have not read, limited by ottla.queued.max.response.bytes.")
REQUEST_SECONDS: Final = Metric("ottla_request_seconds", Kind.HISTOGRAM, ("api",),
    "Time in seconds to process a request, including the wait of a Fetch for records and of a JoinGroup for members. The rate of `_count` is the request rate.", "kafka.network:type=RequestMetrics,name=TotalTimeMs and RequestsPerSec")
REQUEST_ERRORS: Final = Metric("ottla_request_errors_total", Kind.COUNTER, ("api", "error"),
    "Number of errors in responses, counted per partition or group.", "kafka.network:type=RequestMetrics,name=ErrorsPerSec")
BYTES_IN: Final = Metric("ottla_topic_bytes_in_total", Kind.COUNTER, ("topic",),
    "Bytes of appended batches, as stored. Duplicates of idempotent producers are not counted.", "kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec")
RECORDS_IN: Final = Metric("ottla_topic_records_in_total", Kind.COUNTER, ("topic",),
    "Number of appended records.", "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec")
BYTES_OUT: Final = Metric("ottla_topic_bytes_out_total", Kind.COUNTER, ("topic",),
    "Bytes of batches sent to consumers.", "kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec")
RECORDS_OUT: Final = Metric("ottla_topic_records_out_total", Kind.COUNTER, ("topic",),
    "Number of records in batches sent to consumers. A fetch that starts inside a batch returns the whole batch.")
TOPIC_PARTITIONS: Final = Metric("ottla_topic_partitions", Kind.GAUGE, ("topic",),
    "Number of partitions of the topic on this broker.")
LOG_BYTES: Final = Metric("ottla_topic_log_bytes", Kind.GAUGE, ("topic",),
    "Size in bytes of the log files of the topic on this broker.", "kafka.log:type=Log,name=Size")
PARTITIONS: Final = Metric("ottla_partitions", Kind.GAUGE, (),
    "Number of partitions that this broker leads or follows.", "kafka.server:type=ReplicaManager,name=PartitionCount")
LEADERS: Final = Metric("ottla_leader_partitions", Kind.GAUGE, (),
    "Number of partitions that this broker leads.", "kafka.server:type=ReplicaManager,name=LeaderCount")
UNDER_REPLICATED: Final = Metric("ottla_under_replicated_partitions", Kind.GAUGE, (),
    "Number of led partitions with fewer in-sync replicas than replicas. Replicas that a reassignment adds do not count. It should be 0.", "kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions")
AT_MIN_ISR: Final = Metric("ottla_at_min_isr_partitions", Kind.GAUGE, (),
    "Number of led partitions with exactly as many in-sync replicas as min.insync.replicas requires. If one of these replicas fails, they reject acks=all. Partitions with one replica always count.", "kafka.server:type=ReplicaManager,name=AtMinIsrPartitionCount")
UNDER_MIN_ISR: Final = Metric("ottla_under_min_isr_partitions", Kind.GAUGE, (),
    "Number of led partitions with fewer in-sync replicas than min.insync.replicas, which reject acks=all. It should be 0.", "kafka.server:type=ReplicaManager,name=UnderMinIsrPartitionCount")
REASSIGNING: Final = Metric("ottla_reassigning_partitions", Kind.GAUGE, (),
    "Number of led partitions whose replicas are being moved to other brokers.", "kafka.server:type=ReplicaManager,name=ReassigningPartitions")
OFFLINE_REPLICAS: Final = Metric("ottla_offline_replicas", Kind.GAUGE, (),
    "Number of replicas in failed data directories of this broker. It should be 0.", "kafka.server:type=ReplicaManager,name=OfflineReplicaCount")
ISR_SHRINKS: Final = Metric("ottla_isr_shrinks_total", Kind.COUNTER, (),
    "Number of times that this broker, as a leader, removed slow followers from an ISR. Followers that the controller removes, because their broker failed, do not count.", "kafka.server:type=ReplicaManager,name=IsrShrinksPerSec")
ISR_EXPANDS: Final = Metric("ottla_isr_expands_total", Kind.COUNTER, (),
    "Number of times that this broker, as a leader, added a follower to an ISR.", "kafka.server:type=ReplicaManager,name=IsrExpandsPerSec")
ISR_FAILURES: Final = Metric("ottla_isr_update_failures_total", Kind.COUNTER, (),
    "Number of ISR changes of this broker that the controller refused.", "kafka.server:type=ReplicaManager,name=FailedIsrUpdatesPerSec")
REPLICA_LAG: Final = Metric("ottla_replica_max_lag_records", Kind.GAUGE, (),
    "Largest number of records by which a partition that this broker follows is behind the high watermark of its leader.", "kafka.server:type=ReplicaFetcherManager,name=MaxLag,clientId=Replica")
REPLICATION_IN: Final = Metric("ottla_replication_bytes_in_total", Kind.COUNTER, (),
    "Bytes of batches that this broker fetched from leaders and appended.", "kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesInPerSec")
REPLICATION_OUT: Final = Metric("ottla_replication_bytes_out_total", Kind.COUNTER, (),
    "Bytes of batches sent to followers.", "kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesOutPerSec")
THROTTLED_BYTES: Final = Metric("ottla_throttled_replication_bytes_total", Kind.COUNTER, ("side",),
    "Bytes of throttled replicas, by `side`: sent as their `leader`, or fetched as their `follower`. They are counted while the rate is limited.", "kafka.server:type=LeaderReplication,name=byte-rate")
ACTIVE_CONTROLLER: Final = Metric("ottla_active_controllers", Kind.GAUGE, (),
    "1 if this broker is the controller, else 0. The sum over all brokers should be 1.", "kafka.controller:type=KafkaController,name=ActiveControllerCount")
OFFLINE: Final = Metric("ottla_offline_partitions", Kind.GAUGE, (),
    "Number of partitions without a leader, on the controller, and of partitions that this broker leads in a failed data directory. The sum over all brokers counts each partition once. It should be 0.", "kafka.controller:type=KafkaController,name=OfflinePartitionsCount")
IMBALANCE: Final = Metric("ottla_preferred_leader_imbalance_partitions", Kind.GAUGE, (),
    "Number of partitions that their preferred leader, the first replica, does not lead. It is 0 on brokers that are not the controller.", "kafka.controller:type=KafkaController,name=PreferredReplicaImbalanceCount")
UNCLEAN_ELECTIONS: Final = Metric("ottla_unclean_leader_elections_total", Kind.COUNTER, (),
    "Number of leaders that this broker elected, as the controller, although they may lack acknowledged records. It should be 0.", "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec")
DEAD_BROKERS_REMOVED: Final = Metric("ottla_dead_brokers_removed_total", Kind.COUNTER, (),
    "Number of brokers that this broker, as the controller, replaced before their session expired, because their process was dead.")
BALANCE_PENDING: Final = Metric("ottla_balance_pending_partitions", Kind.GAUGE, (),
    "Number of partitions of the current balance plan (ottla.balance.enable) whose moves are not complete. It is 0 on brokers that are not the controller.")
BALANCE_MOVES: Final = Metric("ottla_balance_moves_total", Kind.COUNTER, (),
    "Number of partitions whose replicas or leaders this broker, as the controller, began to move to balance the cluster.")
BALANCE_BYTES: Final = Metric("ottla_balance_moved_bytes_total", Kind.COUNTER, (),
    "Bytes that these moves copy between brokers, as planned.")
DIRECTORIES: Final = Metric("ottla_data_directories", Kind.GAUGE, ("state",),
    "Number of data directories by state: `online`, or `offline` after a failure.", "kafka.log:type=LogManager,name=OfflineLogDirectoryCount")
CLEANER_DIRTY: Final = Metric("ottla_log_cleaner_max_dirty_percent", Kind.GAUGE, (),
    "Highest dirty ratio in percent of the logs with cleanup.policy=compact, at the last check every log.cleaner.backoff.ms. Logs that are being cleaned do not count.", "kafka.log:type=LogCleanerManager,name=max-dirty-percent")
CLEANER_DELAY: Final = Metric("ottla_log_cleaner_max_compaction_delay_seconds", Kind.GAUGE, (),
    "Longest time in seconds by which a log exceeds max.compaction.lag.ms, at the last check. It should be 0.", "kafka.log:type=LogCleaner,name=max-compaction-delay-secs")
CLEANER_BACKLOG: Final = Metric("ottla_log_cleaner_backlog_partitions", Kind.GAUGE, (),
    "Number of logs that are due for a cleaning and wait for a cleaner (log.cleaner.threads), at the last check.")
CLEANER_BACKLOG_BYTES: Final = Metric("ottla_log_cleaner_backlog_bytes", Kind.GAUGE, (),
    "Dirty bytes of the logs in the backlog.")
CLEANER_UNCLEANABLE: Final = Metric("ottla_log_cleaner_uncleanable_partitions", Kind.GAUGE, (),
    "Number of logs that are suspended for ten minutes because their cleaning failed, see the log. It should be 0.", "kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count")
CLEANER_LAST_RUN: Final = Metric("ottla_log_cleaner_time_since_last_run_seconds", Kind.GAUGE, (),
    "Time in seconds since a free cleaner last looked for a log to clean. It increases while all cleaners are busy or log.cleaner.enable is false.", "kafka.log:type=LogCleanerManager,name=time-since-last-run-ms")
CLEANINGS: Final = Metric("ottla_log_cleaner_cleanings_total", Kind.COUNTER, (),
    "Number of completed cleanings. The other totals of the log cleaner are of these cleanings.")
CLEANER_READ: Final = Metric("ottla_log_cleaner_read_bytes_total", Kind.COUNTER, (),
    "Bytes of the batches that the log cleaner read to clean them. The reads that map the keys do not count.")
CLEANER_WRITTEN: Final = Metric("ottla_log_cleaner_written_bytes_total", Kind.COUNTER, (),
    "Bytes of the batches that the log cleaner recopied to new segments.")
CLEANER_RECOPY: Final = Metric("ottla_log_cleaner_recopy_percent", Kind.GAUGE, (),
    "Bytes that the last cleaning wrote, in percent of the bytes that it read.", "kafka.log:type=LogCleaner,name=cleaner-recopy-percent")
CLEANER_SECONDS: Final = Metric("ottla_log_cleaner_last_clean_time_seconds", Kind.GAUGE, (),
    "Duration in seconds of the last cleaning.", "kafka.log:type=LogCleaner,name=max-clean-time-secs")
FETCH_SESSIONS: Final = Metric("ottla_fetch_sessions", Kind.GAUGE, (),
    "Number of cached fetch sessions.", "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions")
GROUPS: Final = Metric("ottla_groups", Kind.GAUGE, ("state",),
    "Number of groups that this broker coordinates, by state.", "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups")
GROUP_MEMBERS: Final = Metric("ottla_group_members", Kind.GAUGE, ("group",),
    "Number of members of the group.")
GROUP_LAG: Final = Metric("ottla_group_lag_records", Kind.GAUGE, ("group", "topic", "partition"),
    "Number of records after the committed offset of the group, for partitions that this broker leads.")
# fmt: on

METRICS: Final = (
    BROKER_INFO, START_TIME, CONNECTIONS, ACCEPTED, REFUSED, CLOSED, REQUESTS_QUEUED,
    RESPONSES_QUEUED, REQUEST_SECONDS, REQUEST_ERRORS, BYTES_IN, RECORDS_IN, BYTES_OUT, RECORDS_OUT, TOPIC_PARTITIONS, LOG_BYTES,
    PARTITIONS, LEADERS, UNDER_REPLICATED, AT_MIN_ISR, UNDER_MIN_ISR, REASSIGNING, OFFLINE_REPLICAS,
    ISR_SHRINKS, ISR_EXPANDS, ISR_FAILURES, REPLICA_LAG, REPLICATION_IN, REPLICATION_OUT, THROTTLED_BYTES,
    ACTIVE_CONTROLLER, OFFLINE, IMBALANCE, UNCLEAN_ELECTIONS, DEAD_BROKERS_REMOVED, BALANCE_PENDING, BALANCE_MOVES, BALANCE_BYTES,
    DIRECTORIES, CLEANER_DIRTY, CLEANER_DELAY,
    CLEANER_BACKLOG, CLEANER_BACKLOG_BYTES, CLEANER_UNCLEANABLE, CLEANER_LAST_RUN, CLEANINGS,
    CLEANER_READ, CLEANER_WRITTEN, CLEANER_RECOPY, CLEANER_SECONDS, FETCH_SESSIONS, GROUPS,
    GROUP_MEMBERS, GROUP_LAG,
)  # fmt: skip
"""All metrics, in the order of the page."""


# Counters of requests and partitions.

LATENCY_SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # fmt: skip
"""The upper bounds of the buckets; the last bucket is unbounded."""


@dataclass(slots=True, eq=False)
class ApiCounts:
    """The counters of one API."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_SECONDS) + 1))
    seconds: float = 0.0
    errors: dict[int, int] = field(default_factory=dict[int, int])  # by code

    def note(self, seconds: float) -> None:
        """Count a request and its processing time."""
        self.buckets[bisect_left(LATENCY_SECONDS, seconds)] += 1
        self.seconds += seconds

    def note_error(self, code: int, count: int = 1) -> None:
        """Count errors of a response."""
        self.errors[code] = self.errors.get(code, 0) + count


@dataclass(slots=True, eq=False)
class TrafficCounts:
    """Traffic of clients with a partition on this broker."""

    bytes_in: int = 0
    records_in: int = 0
    bytes_out: int = 0
    records_out: int = 0


@dataclass(slots=True, eq=False)
class ReplicationCounts:
    """What this broker did as a follower and as a leader."""

    fetches: int = 0
    fetch_failures: int = 0  # requests without a usable response
    bytes_in: int = 0
    bytes_out: int = 0  # sent to followers
    throttled_bytes_in: int = 0  # of replicas with a quota
    throttled_bytes_out: int = 0
    truncations: int = 0
    isr_shrinks: int = 0
    isr_expands: int = 0
    isr_failures: int = 0  # changes that the controller refused
    errors: dict[int, int] = field(default_factory=dict[int, int])  # of partitions, by code

    def note_error(self, code: int) -> None:
        """Count a partition that could not be fetched."""
        self.errors[code] = self.errors.get(code, 0) + 1


@dataclass(slots=True, eq=False)
class ControllerCounts:
    """What this broker did as the controller, each time that it was."""

    unclean_elections: int = 0
    dead_brokers_removed: int = 0
    balance_moves: int = 0  # of ottla.balance.enable
    balance_bytes: int = 0


# Prometheus text format.

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Value: TypeAlias = "int | float | ApiCounts"
Family: TypeAlias = "tuple[Metric, Iterable[tuple[Sequence[str], Value]]]"
"""A metric, and its values with their label values."""


def exposition(families: Iterable[Family]) -> str:
    """Return the metrics in the Prometheus text format; a family without values is omitted."""
    lines: list[str] = []
    for metric, values in families:
        head = len(lines)
        form = ",".join(f'{label}="%s"' for label in metric.labels)
        for labels, value in values:
            named = form % tuple(map(_escaped, labels))
            if isinstance(value, ApiCounts):
                lines += _histogram(metric.name, named, value)
            else:
                lines.append(f"{metric.name}{_braced(named)} {value}")
        if len(lines) > head:
            doc = metric.doc.replace("\\", "\\\\").replace("\n", "\\n")
            lines[head:head] = (
                f"# HELP {metric.name} {doc}",
                f"# TYPE {metric.name} {metric.kind}",
            )
    return "\n".join((*lines, ""))


def _histogram(name: str, labels: str, counts: ApiCounts) -> Iterable[str]:
    bounds = (*map(str, LATENCY_SECONDS), "+Inf")
    total = 0
    for bound, count in zip(bounds, counts.buckets, strict=True):
        total += count
        yield f'{name}_bucket{{{labels},le="{bound}"}} {total}'
    yield f"{name}_sum{_braced(labels)} {counts.seconds}"
    yield f"{name}_count{_braced(labels)} {total}"


# Clients choose group ids, and a terminal obeys control characters: their pictures are shown.
_PICTURES: Final = {
    **{code: 0x2400 + code for code in range(0x20) if code != ord("\n")},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}


def _escaped(value: str) -> str:
    value = value.translate(_PICTURES)
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _braced(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""
