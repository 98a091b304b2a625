"""The metrics page: the broker's counters and gauges at the time of the request.

Invariant: rendering changes nothing and does not wait.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from ottla import __version__, metrics
from ottla.broker.fetch_sessions import FetchSessions
from ottla.broker.group_coordinator import GroupCoordinators
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.replica_manager import ReplicaManager
from ottla.broker.replica_roles import ReplicaRoles
from ottla.broker.request_metrics import RequestMetrics
from ottla.broker.self_balancer import SelfBalancer
from ottla.broker.topics import Topics
from ottla.cluster.reassignment import is_reassigning
from ottla.errors import ErrorCode
from ottla.groups.coordinator import Coordinator, Phase
from ottla.ids import NO_BROKER, BrokerId, PartitionIndex, TopicPartition
from ottla.log.log_cleaner import LogCleaner
from ottla.log.log_manager import LogManager
from ottla.metrics import Family, TrafficCounts, Value
from ottla.protocol.apis import API_OF_KEY
from ottla.records import COMPILED
from ottla.transport.http_pages import Page, Pages
from ottla.transport.listener import Listener
from ottla.transport.log_rate_limit import CloseReason
from ottla.transport.memory_pool import MemoryPools

METRICS_PATH: Final = "/metrics"
HEALTH_PATH: Final = "/healthz"

Values = Iterator[tuple[Sequence[str], Value]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsPage:
    """The HTTP pages of a running broker."""

    node_id: BrokerId
    started_ms: int
    listeners: Sequence[Listener]
    memory: MemoryPools
    metadata_cache: MetadataCache
    replica_manager: ReplicaManager
    roles: ReplicaRoles
    topics: Topics
    self_balancer: SelfBalancer
    log_cleaner: LogCleaner
    groups: GroupCoordinators
    fetch_sessions: FetchSessions
    request_metrics: RequestMetrics

    def pages(self) -> Pages:
        """Return the pages by path."""
        return {METRICS_PATH: self._metrics, HEALTH_PATH: self._health}

    def _metrics(self) -> Page:
        return Page(metrics.exposition(self._families()), metrics.CONTENT_TYPE)

    def _health(self) -> Page:
        if self.replica_manager.logs.online:
            return Page("ok\n")
        reason = "all data directories are offline\n"
        return Page(reason, status=HTTPStatus.SERVICE_UNAVAILABLE)

    def _families(self) -> Iterable[Family]:
        info = (
            str(self.node_id),
            self.metadata_cache.image.cluster_id,
            __version__,
            "compiled" if COMPILED else "python",
        )
        yield metrics.BROKER_INFO, [(info, 1)]
        yield _one(metrics.START_TIME, self.started_ms / 1000)
        yield from _of_listeners(self.listeners)
        yield _one(metrics.REQUESTS_QUEUED, self.memory.requests_held)
        yield _one(metrics.RESPONSES_QUEUED, self.memory.responses_held)
        yield metrics.REQUEST_SECONDS, _by_api(self.request_metrics)
        yield metrics.REQUEST_ERRORS, _errors(self.request_metrics)
        yield from _of_topics(self.replica_manager)
        yield from self._of_partitions()
        yield from self._of_controller()
        yield metrics.DIRECTORIES, _directories(self.replica_manager.logs)
        yield from _of_log_cleaner(self.log_cleaner)
        yield _one(metrics.FETCH_SESSIONS, len(self.fetch_sessions))
        yield from self._of_groups()

    def _of_partitions(self) -> Iterator[Family]:
        manager = self.replica_manager
        led, counts = manager.partitions, manager.replication
        under_replicated = at_min = under_min = reassigning = 0
        for one in led.values():
            under_replicated += one.is_under_replicated
            at_min += one.in_sync_count == one.in_sync_min
            under_min += one.in_sync_count < one.in_sync_min
            reassigning += one.in_sync is not None and is_reassigning(one.in_sync.state)
        yield _one(metrics.PARTITIONS, len(led) + len(manager.followers))
        yield _one(metrics.LEADERS, len(led))
        yield _one(metrics.UNDER_REPLICATED, under_replicated)
        yield _one(metrics.AT_MIN_ISR, at_min)
        yield _one(metrics.UNDER_MIN_ISR, under_min)
        yield _one(metrics.REASSIGNING, reassigning)
        yield _one(metrics.OFFLINE_REPLICAS, len(self.roles.offline()))
        yield _one(metrics.ISR_SHRINKS, counts.isr_shrinks)
        yield _one(metrics.ISR_EXPANDS, counts.isr_expands)
        yield _one(metrics.ISR_FAILURES, counts.isr_failures)
        yield _one(metrics.REPLICA_LAG, manager.max_lag)
        yield _one(metrics.REPLICATION_IN, counts.bytes_in)
        yield _one(metrics.REPLICATION_OUT, counts.bytes_out)
        throttled = {"leader": counts.throttled_bytes_out, "follower": counts.throttled_bytes_in}
        yield metrics.THROTTLED_BYTES, [((side,), count) for side, count in throttled.items()]

    def _of_controller(self) -> Iterator[Family]:
        manager, topics = self.replica_manager, self.topics
        # In failed directories, until the controller has stored that they have no leader.
        failed = {
            hosted.partition
            for hosted in manager.logs
            if hosted.directory.failure is not None and hosted.partition in manager.partitions
        }
        offline = imbalance = 0
        if topics.is_controller:
            for topic in topics.controller.image.topics.values():
                for index, state in enumerate(topic.partitions):
                    if state.leader == NO_BROKER:
                        offline += 1
                        failed.discard(TopicPartition(topic.name, PartitionIndex(index)))
                    imbalance += state.leader != state.replicas[0]
        offline += len(failed)
        yield _one(metrics.ACTIVE_CONTROLLER, int(topics.is_controller))
        yield _one(metrics.OFFLINE, offline)
        yield _one(metrics.IMBALANCE, imbalance)
        yield _one(metrics.UNCLEAN_ELECTIONS, topics.controller_counts.unclean_elections)
        counts = topics.controller_counts
        yield _one(metrics.DEAD_BROKERS_REMOVED, counts.dead_brokers_removed)
        yield _one(metrics.BALANCE_PENDING, self.self_balancer.pending)
        yield _one(metrics.BALANCE_MOVES, counts.balance_moves)
        yield _one(metrics.BALANCE_BYTES, counts.balance_bytes)

    def _of_groups(self) -> Iterator[Family]:
        active = [one.groups for one in self.groups if one.groups.phase is Phase.ACTIVE]
        groups = [group for one in active for group in one.ledger.groups.values()]
        states = Counter(group.state.value for group in groups)
        yield metrics.GROUPS, (((name,), count) for name, count in states.items())
        yield metrics.GROUP_MEMBERS, (((one.group_id,), len(one.roster)) for one in groups)
        yield metrics.GROUP_LAG, (lag for one in active for lag in self._lags(one))

    def _lags(self, coordinator: Coordinator) -> Values:
        for group_id in coordinator.ledger.groups:
            for partition, committed in coordinator.ledger.offsets.of(group_id).items():
                led = self.replica_manager.partitions.get(partition)
                if led is not None:
                    labels = (group_id, partition.topic, str(partition.partition))
                    yield labels, max(led.high_watermark - committed.offset, 0)


def _one(metric: metrics.Metric, value: Value) -> Family:
    return metric, [((), value)]


def _of_listeners(listeners: Sequence[Listener]) -> Iterator[Family]:
    yield metrics.CONNECTIONS, (((one.name,), len(one.connections)) for one in listeners)
    yield metrics.ACCEPTED, (((one.name,), one.accepted) for one in listeners)
    yield metrics.REFUSED, (((one.name,), one.refused) for one in listeners)
    yield (
        metrics.CLOSED,
        (((one.name, fault), one.closed[fault]) for one in listeners for fault in CloseReason),
    )


def _by_api(requests: RequestMetrics) -> Values:
    for key, counts in requests.by_key.items():
        if any(counts.buckets):
            yield (API_OF_KEY[key].name,), counts


def _errors(requests: RequestMetrics) -> Values:
    for key, counts in requests.by_key.items():
        for code, count in counts.errors.items():
            yield (API_OF_KEY[key].name, ErrorCode(code).name), count


def _of_topics(replica_manager: ReplicaManager) -> Iterator[Family]:
    shown: tuple[tuple[metrics.Metric, Callable[[TrafficCounts], int]], ...] = (
        (metrics.BYTES_IN, lambda counts: counts.bytes_in),
        (metrics.RECORDS_IN, lambda counts: counts.records_in),
        (metrics.BYTES_OUT, lambda counts: counts.bytes_out),
        (metrics.RECORDS_OUT, lambda counts: counts.records_out),
    )
    for metric, count in shown:
        yield (
            metric,
            [
                ((topic,), sum(map(count, partitions.values())))
                for topic, partitions in replica_manager.traffic.items()
            ],
        )
    partitions: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for hosted in replica_manager.logs:
        partitions[hosted.partition.topic] += 1
        sizes[hosted.partition.topic] += sum(one.size for one in hosted.log.segments)
    yield metrics.TOPIC_PARTITIONS, (((topic,), count) for topic, count in partitions.items())
    yield metrics.LOG_BYTES, (((topic,), size) for topic, size in sizes.items())


def _directories(logs: LogManager) -> Values:
    online = len(logs.online)
    yield ("online",), online
    yield ("offline",), len(logs.directories) - online + len(logs.missing)


def _of_log_cleaner(log_cleaner: LogCleaner) -> Iterator[Family]:
    stats = log_cleaner.stats
    yield _one(metrics.CLEANER_DIRTY, round(stats.max_dirty_ratio * 100, 1))
    yield _one(metrics.CLEANER_DELAY, stats.max_compaction_delay_ms / 1000)
    yield _one(metrics.CLEANER_BACKLOG, stats.backlog_partitions)
    yield _one(metrics.CLEANER_BACKLOG_BYTES, stats.backlog_bytes)
    yield _one(metrics.CLEANER_UNCLEANABLE, log_cleaner.suspended_count)
    yield _one(metrics.CLEANER_LAST_RUN, round(log_cleaner.since_last_run_s, 3))
    yield _one(metrics.CLEANINGS, stats.cleanings)
    yield _one(metrics.CLEANER_READ, stats.bytes_read)
    yield _one(metrics.CLEANER_WRITTEN, stats.bytes_written)
    yield _one(metrics.CLEANER_RECOPY, round(stats.recopy_ratio * 100, 1))
    yield _one(metrics.CLEANER_SECONDS, stats.last_clean_ms / 1000)
