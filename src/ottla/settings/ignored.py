# ruff: noqa: E501 - one line per row
"""Settings of Kafka that Ottla accepts and ignores, with the reason.

Invariant: ignoring them affects neither data safety nor security. Ottla logs a warning for each.
"""

from typing import Final

from ottla.settings.config_def import Ignored
from ottla.settings.validators import AT_MOST_ONE, including, some_of

_ONE_LOOP: Final = "a broker is one event loop without thread pools; run one broker per core"
_NO_PURGATORY: Final = "completed requests are removed from the purgatory immediately"
_RATES_ELSEWHERE: Final = "metrics are plain counters; the monitoring system computes rates"
_NO_TELEMETRY: Final = "client telemetry is not supported"
_OPENSSL: Final = "Ottla uses OpenSSL instead of Java's TLS"
_ONE_APPEND: Final = "records of one event loop iteration are written in one append"
_NO_BUFFER: Final = "write buffers are not cached"
_NO_MOVES: Final = "replicas cannot be moved between data directories"
_NO_QUORUM: Final = "Ottla has no KRaft quorum; one server is a cluster of one broker, several require zookeeper.connect"
_ONE_FORMAT: Final = "Ottla writes record format v2 only and never converts"

# fmt: off
_JAVA_TLS: Final = (
    Ignored("ssl.keymanager.algorithm", _OPENSSL),
    Ignored("ssl.trustmanager.algorithm", _OPENSSL),
    Ignored("ssl.secure.random.implementation", _OPENSSL),
    Ignored("ssl.protocol", f"{_OPENSSL}; use ssl.enabled.protocols"),
)
_METRICS: Final = (
    Ignored("metrics.num.samples", _RATES_ELSEWHERE),
    Ignored("metrics.sample.window.ms", _RATES_ELSEWHERE),
    Ignored("metrics.recording.level", "all metrics are always recorded"),
)

BROKER: Final = (
    *_JAVA_TLS,
    *_METRICS,
    # Threads and queues.
    Ignored("background.threads", _ONE_LOOP),
    Ignored("group.coordinator.background.threads", _ONE_LOOP),
    Ignored("group.coordinator.threads", _ONE_LOOP),
    Ignored("num.io.threads", _ONE_LOOP),
    Ignored("num.network.threads", _ONE_LOOP),
    Ignored("num.replica.alter.log.dirs.threads", _NO_MOVES),
    Ignored("queued.max.requests", "there is no request queue; each connection processes one request at a time"),
    Ignored("share.coordinator.threads", _ONE_LOOP),
    Ignored("delete.records.purgatory.purge.interval.requests", _NO_PURGATORY),
    Ignored("fetch.purgatory.purge.interval.requests", _NO_PURGATORY),
    Ignored("producer.purgatory.purge.interval.requests", _NO_PURGATORY),
    Ignored("share.fetch.purgatory.purge.interval.requests", _NO_PURGATORY),
    # Internals of Kafka.
    Ignored("alter.log.dirs.replication.quota.window.num", _NO_MOVES),
    Ignored("alter.log.dirs.replication.quota.window.size.seconds", _NO_MOVES),
    Ignored("group.coordinator.append.linger.ms", _ONE_APPEND),
    Ignored("group.coordinator.cached.buffer.max.bytes", _NO_BUFFER),
    Ignored("kafka.metrics.polling.interval.secs", _RATES_ELSEWHERE),
    Ignored("log.dir.failure.timeout.ms", "a broker with a failed directory gives up its leaderships immediately"),
    Ignored("share.coordinator.append.linger.ms", _ONE_APPEND),
    Ignored("share.coordinator.cached.buffer.max.bytes", _NO_BUFFER),
    Ignored("telemetry.max.bytes", _NO_TELEMETRY),
    # Required in a KRaft configuration.
    Ignored("process.roles", "every broker can become the controller", including("broker", some_of("broker", "controller"))),
    Ignored("controller.quorum.bootstrap.servers", _NO_QUORUM, AT_MOST_ONE),
    Ignored("controller.quorum.voters", _NO_QUORUM, AT_MOST_ONE),
    # Removed from Kafka.
    Ignored("broker.id.generation.enable", "a broker without an id always generates one"),
    Ignored("controller.message.queue.size", "the controller queue has no configurable size"),
    Ignored("inter.broker.protocol.version", "brokers negotiate the version of each request"),
    Ignored("leader.imbalance.per.broker.percentage", "leadership always moves back to the preferred replica, as in Kafka 4"),
    Ignored("log.message.downconversion.enable", _ONE_FORMAT),
    Ignored("log.message.format.version", _ONE_FORMAT),
    Ignored("reserved.broker.max.id", "generated and configured ids need no separate ranges"),
    Ignored("zookeeper.max.in.flight.requests", "the number of in-flight requests to ZooKeeper is not configurable"),
    Ignored("zookeeper.sync.time.ms", "unused in Kafka"),
)

TOPIC: Final = (
    Ignored("message.downconversion.enable", _ONE_FORMAT),
    Ignored("message.format.version", _ONE_FORMAT),
)

_CLIENT: Final = (
    *_JAVA_TLS,
    *_METRICS,
    Ignored("enable.metrics.push", _NO_TELEMETRY),
)

PRODUCER: Final = _CLIENT
CONSUMER: Final = _CLIENT
ADMIN: Final = _CLIENT
# fmt: on
