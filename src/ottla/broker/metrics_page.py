"""The metrics page: the broker's counters and gauges at the time of the request.

Invariant: rendering changes nothing and does not wait.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from http import HTTPStatus
from typing import Final

from ottla import __version__, metrics
from ottla.broker.state import BrokerState
from ottla.errors import ErrorCode
from ottla.groups.coordinator import Coordinator, Phase
from ottla.ids import PartitionIndex, TopicPartition
from ottla.metrics import ApiCounts, Family, TopicCounts, Value
from ottla.protocol.apis import API_OF_KEY
from ottla.records import COMPILED
from ottla.transport.http_pages import Page, Pages
from ottla.transport.listener import Listener
from ottla.transport.log_rate_limit import CloseReason

METRICS_PATH: Final = "/metrics"
HEALTH_PATH: Final = "/healthz"

Values = Iterator[tuple[Sequence[str], Value]]


def pages(state: BrokerState, listeners: Sequence[Listener]) -> Pages:
    """Return the HTTP pages of a running broker."""
    started_ms = state.clock.now_ms()

    def measured() -> Page:
        families = _families(state, listeners, started_ms)
        return Page(metrics.exposition(families), metrics.CONTENT_TYPE)

    def health() -> Page:
        if state.logs.online:
            return Page("ok\n")
        reason = "all data directories are offline\n"
        return Page(reason, status=HTTPStatus.SERVICE_UNAVAILABLE)

    return {METRICS_PATH: measured, HEALTH_PATH: health}


def _families(
    state: BrokerState, listeners: Sequence[Listener], started_ms: int
) -> Iterable[Family]:
    info = (
        str(state.id),
        state.image.cluster_id,
        __version__,
        "compiled" if COMPILED else "python",
    )
    yield metrics.BROKER_INFO, [(info, 1)]
    yield _one(metrics.START_TIME, started_ms / 1000)
    yield from _of_listeners(listeners)
    yield _one(metrics.REQUESTS_QUEUED, state.memory.requests.held)
    yield _one(metrics.RESPONSES_QUEUED, state.memory.responses_held)
    yield metrics.REQUEST_SECONDS, _by_api(state.requests)
    yield metrics.REQUEST_ERRORS, _errors(state.requests)
    yield from _of_topics(state)
    yield from _of_partitions(state)
    yield metrics.DIRECTORIES, _directories(state)
    yield _one(metrics.FETCH_SESSIONS, len(state.sessions))
    yield from _of_groups(state)


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


def _by_api(requests: dict[int, ApiCounts]) -> Values:
    for key, counts in requests.items():
        if any(counts.buckets):
            yield (API_OF_KEY[key].name,), counts


def _errors(requests: dict[int, ApiCounts]) -> Values:
    for key, counts in requests.items():
        for code, count in counts.errors.items():
            yield (API_OF_KEY[key].name, ErrorCode(code).name), count


def _of_topics(state: BrokerState) -> Iterator[Family]:
    shown: tuple[tuple[metrics.Metric, Callable[[TopicCounts], int]], ...] = (
        (metrics.BYTES_IN, lambda counts: counts.bytes_in),
        (metrics.RECORDS_IN, lambda counts: counts.records_in),
        (metrics.BYTES_OUT, lambda counts: counts.bytes_out),
        (metrics.RECORDS_OUT, lambda counts: counts.records_out),
    )
    for metric, count in shown:
        yield metric, [((topic,), count(one)) for topic, one in state.traffic.items()]
    partitions: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for hosted in state.logs:
        partitions[hosted.partition.topic] += 1
        sizes[hosted.partition.topic] += sum(one.size for one in hosted.log.segments)
    yield metrics.TOPIC_PARTITIONS, (((topic,), count) for topic, count in partitions.items())
    yield metrics.LOG_BYTES, (((topic,), size) for topic, size in sizes.items())


def _of_partitions(state: BrokerState) -> Iterator[Family]:
    under_replicated = under_min = offline = 0
    for topic in state.image.topics.values():
        for index, one in enumerate(topic.partitions):
            if one.leader < 0:
                offline += 1
            elif one.leader == state.id:
                under_replicated += len(one.in_sync) < len(one.replicas)
                led = state.partitions.get(TopicPartition(topic.name, PartitionIndex(index)))
                under_min += led is not None and len(one.in_sync) < led.in_sync_min
    offline += sum(hosted.directory.failure is not None for hosted in state.logs)
    yield _one(metrics.LEADERS, len(state.partitions))
    yield _one(metrics.UNDER_REPLICATED, under_replicated)
    yield _one(metrics.UNDER_MIN_ISR, under_min)
    yield _one(metrics.OFFLINE, offline)


def _directories(state: BrokerState) -> Values:
    online = len(state.logs.online)
    yield ("online",), online
    yield ("offline",), len(state.logs.directories) - online + len(state.logs.missing)


def _of_groups(state: BrokerState) -> Iterator[Family]:
    active = [one.groups for one in state.groups if one.groups.phase is Phase.ACTIVE]
    groups = [group for one in active for group in one.ledger.groups.values()]
    states = Counter(group.state.value for group in groups)
    yield metrics.GROUPS, (((name,), count) for name, count in states.items())
    yield metrics.GROUP_MEMBERS, (((one.group_id,), len(one.roster)) for one in groups)
    yield metrics.GROUP_LAG, (lag for one in active for lag in _lags(state, one))


def _lags(state: BrokerState, coordinator: Coordinator) -> Values:
    for group_id in coordinator.ledger.groups:
        for partition, committed in coordinator.ledger.offsets.of(group_id).items():
            led = state.partitions.get(partition)
            if led is not None:
                labels = (group_id, partition.topic, str(partition.partition))
                yield labels, max(led.high_watermark - committed.offset, 0)
