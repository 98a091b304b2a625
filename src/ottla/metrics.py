# ruff: noqa: E501 - a row reads best with its facts on one line.
"""What is counted: the table of metrics, the counts that requests add to, and their text.

Invariant: a metric that is not in the table is on no page, and one that is has the labels and the
unit that the table says. Whoever serves a request adds to plain numbers; they become text only
when somebody asks for the page. A count never becomes less while its broker runs.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias


class Kind(StrEnum):
    """How a metric behaves."""

    COUNTER = "counter"  # grows; its rate is of interest
    GAUGE = "gauge"  # is what it is now
    HISTOGRAM = "histogram"  # counts by size


class Metric(NamedTuple):
    """One row: the name with its unit last, the labels, and what it says."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    doc: str
    kafka: str = ""  # Kafka's name of the same, as its MBean


# fmt: off
BROKER_INFO: Final = Metric("ottla_broker_info", Kind.GAUGE, ("node", "cluster", "version", "kernel"),
    "Always 1; the labels say which broker this is, which release, and whether its kernel is compiled.")
START_TIME: Final = Metric("ottla_start_time_seconds", Kind.GAUGE, (),
    "When the broker began to serve, in seconds since 1970.")
CONNECTIONS: Final = Metric("ottla_connections", Kind.GAUGE, ("listener",),
    "Connections that are open.", "kafka.server:type=socket-server-metrics,connection-count")
ACCEPTED: Final = Metric("ottla_connections_accepted_total", Kind.COUNTER, ("listener",),
    "Connections that were let in.", "kafka.server:type=socket-server-metrics,connection-creation-total")
REFUSED: Final = Metric("ottla_connections_refused_total", Kind.COUNTER, ("listener",),
    "Connections that were one too many.")
SENT_AWAY: Final = Metric("ottla_connections_sent_away_total", Kind.COUNTER, ("listener", "reason"),
    "Connections that the broker closed: `violation` for bytes that are no request, `overdue` for one that was idle or too slow, `crowded` for the most silent one where there are too many, `failure` for a mistake of ours, which is in the log.")
REQUESTS_HELD: Final = Metric("ottla_requests_held_bytes", Kind.GAUGE, (),
    "Memory of large requests that have not come whole or are being served; queued.max.request.bytes limits it.", "kafka.network:type=SocketServer,name=MemoryPoolUsed")
ANSWERS_HELD: Final = Metric("ottla_answers_held_bytes", Kind.GAUGE, (),
    "Memory of answers that clients have not taken; ottla.queued.max.response.bytes limits it.")
REQUEST_SECONDS: Final = Metric("ottla_request_seconds", Kind.HISTOGRAM, ("api",),
    "Seconds from the turn of a request to its answer; a Fetch waits for records in them, and a JoinGroup for the other members. The rate of `_count` is the rate of requests.", "kafka.network:type=RequestMetrics,name=TotalTimeMs and RequestsPerSec")
REQUEST_ERRORS: Final = Metric("ottla_request_errors_total", Kind.COUNTER, ("api", "error"),
    "Errors in answers, each partition and each group for itself.", "kafka.network:type=RequestMetrics,name=ErrorsPerSec")
BYTES_IN: Final = Metric("ottla_topic_bytes_in_total", Kind.COUNTER, ("topic",),
    "Bytes of the batches that were appended, as they are stored. A repeat of an idempotent producer is not appended again.", "kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec")
RECORDS_IN: Final = Metric("ottla_topic_records_in_total", Kind.COUNTER, ("topic",),
    "Records that were appended.", "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec")
BYTES_OUT: Final = Metric("ottla_topic_bytes_out_total", Kind.COUNTER, ("topic",),
    "Bytes of the batches that were given to consumers.", "kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec")
RECORDS_OUT: Final = Metric("ottla_topic_records_out_total", Kind.COUNTER, ("topic",),
    "Records in the batches that were given to consumers. A consumer that begins within a batch is given the whole of it.")
TOPIC_PARTITIONS: Final = Metric("ottla_topic_partitions", Kind.GAUGE, ("topic",),
    "Partitions of the topic whose logs are here.")
LOG_BYTES: Final = Metric("ottla_topic_log_bytes", Kind.GAUGE, ("topic",),
    "Bytes in the records files of the topic.", "kafka.log:type=Log,name=Size")
LEADERS: Final = Metric("ottla_leader_partitions", Kind.GAUGE, (),
    "Partitions that this broker leads.", "kafka.server:type=ReplicaManager,name=LeaderCount")
UNDER_REPLICATED: Final = Metric("ottla_under_replicated_partitions", Kind.GAUGE, (),
    "Partitions led here that have fewer replicas in sync than replicas. It should be 0.", "kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions")
UNDER_MIN_ISR: Final = Metric("ottla_under_min_isr_partitions", Kind.GAUGE, (),
    "Partitions led here that have fewer replicas in sync than min.insync.replicas, so that acks=all is refused. It should be 0.", "kafka.server:type=ReplicaManager,name=UnderMinIsrPartitionCount")
OFFLINE: Final = Metric("ottla_offline_partitions", Kind.GAUGE, (),
    "Partitions of the cluster that nobody leads, or whose data directory here has failed. It should be 0.", "kafka.controller:type=KafkaController,name=OfflinePartitionsCount")
DIRECTORIES: Final = Metric("ottla_data_directories", Kind.GAUGE, ("state",),
    "Data directories that are `online`, and that are `offline` because they failed.", "kafka.log:type=LogManager,name=OfflineLogDirectoryCount")
FETCH_SESSIONS: Final = Metric("ottla_fetch_sessions", Kind.GAUGE, (),
    "Fetch sessions that are remembered.", "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions")
GROUPS: Final = Metric("ottla_groups", Kind.GAUGE, ("state",),
    "Groups that this broker coordinates, by their state.", "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups")
GROUP_MEMBERS: Final = Metric("ottla_group_members", Kind.GAUGE, ("group",),
    "Members of the group.")
GROUP_LAG: Final = Metric("ottla_group_lag_records", Kind.GAUGE, ("group", "topic", "partition"),
    "Records behind what the group has committed, where this broker leads the partition.")
# fmt: on

METRICS: Final = (
    BROKER_INFO, START_TIME, CONNECTIONS, ACCEPTED, REFUSED, SENT_AWAY, REQUESTS_HELD,
    ANSWERS_HELD, REQUEST_SECONDS, REQUEST_ERRORS, BYTES_IN, RECORDS_IN, BYTES_OUT, RECORDS_OUT, TOPIC_PARTITIONS, LOG_BYTES,
    LEADERS, UNDER_REPLICATED, UNDER_MIN_ISR, OFFLINE, DIRECTORIES, FETCH_SESSIONS, GROUPS,
    GROUP_MEMBERS, GROUP_LAG,
)  # fmt: skip
"""All there are, in the order of the page."""


# What is counted while requests are served.

LATENCY_SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # fmt: skip
"""The upper bounds of the buckets; one more is without a bound."""


@dataclass(slots=True, eq=False)
class ApiCounts:
    """The requests of one API."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_SECONDS) + 1))
    seconds: float = 0.0
    errors: dict[int, int] = field(default_factory=dict[int, int])  # by code

    def note(self, seconds: float) -> None:
        """A request was answered."""
        self.buckets[bisect_left(LATENCY_SECONDS, seconds)] += 1
        self.seconds += seconds

    def note_error(self, code: int, count: int = 1) -> None:
        """An answer tells of an error, once or several times."""
        self.errors[code] = self.errors.get(code, 0) + count


@dataclass(slots=True, eq=False)
class TopicCounts:
    """What went into a topic and out of it, on this broker."""

    bytes_in: int = 0
    records_in: int = 0
    bytes_out: int = 0
    records_out: int = 0


# Their text.

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Value: TypeAlias = "int | float | ApiCounts"
Family: TypeAlias = "tuple[Metric, Iterable[tuple[Sequence[str], Value]]]"
"""A metric with its values, each under the values of the labels."""


def exposition(families: Iterable[Family]) -> str:
    """The page, in the text format of Prometheus; a family without a value is left out."""
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


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _braced(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""
