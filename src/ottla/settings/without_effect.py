# ruff: noqa: E501 - a row reads best on one line.
"""Settings of Kafka that a file may keep though they change nothing here, with the reason.

Invariant: nothing in these rows protects data or access; what would is honoured or refused.
Whoever sets one gets a warning, so nothing is ignored in silence.
"""

from typing import Final

from ottla.settings.table import WithoutEffect
from ottla.settings.valid import AT_MOST_ONE, including, some_of

_ONE_LOOP: Final = "a broker is one event loop without threads; run one broker per core instead"
_NO_PURGATORY: Final = (
    "requests that wait are dropped the moment they are answered, so nothing piles up to be purged"
)
_RATES_ELSEWHERE: Final = "metrics are plain counters, and whoever collects them takes the rates"
_NO_TELEMETRY: Final = "clients do not send their metrics to brokers"
_OPENSSL: Final = "TLS is OpenSSL's, not Java's"
_ONE_APPEND: Final = "what is ready in one turn of the event loop is written in one append already"
_NO_BUFFER: Final = "no write buffers are kept between appends"
_NO_MOVES: Final = "replicas are not moved between directories"
_NO_QUORUM: Final = "there is no controller quorum; a single server is taken as a cluster of one, several need zookeeper.connect"
_ONE_FORMAT: Final = "Ottla writes the one record format of Kafka 4 and never converts"

# fmt: off
_JAVA_TLS: Final = (
    WithoutEffect("ssl.keymanager.algorithm", _OPENSSL),
    WithoutEffect("ssl.trustmanager.algorithm", _OPENSSL),
    WithoutEffect("ssl.secure.random.implementation", _OPENSSL),
    WithoutEffect("ssl.protocol", f"{_OPENSSL}; ssl.enabled.protocols decides"),
)
_METRICS: Final = (
    WithoutEffect("metrics.num.samples", _RATES_ELSEWHERE),
    WithoutEffect("metrics.sample.window.ms", _RATES_ELSEWHERE),
    WithoutEffect("metrics.recording.level", "all metrics are always counted"),
)

BROKER: Final = (
    *_JAVA_TLS,
    *_METRICS,
    # Threads and queues.
    WithoutEffect("background.threads", _ONE_LOOP),
    WithoutEffect("group.coordinator.background.threads", _ONE_LOOP),
    WithoutEffect("group.coordinator.threads", _ONE_LOOP),
    WithoutEffect("num.io.threads", _ONE_LOOP),
    WithoutEffect("num.network.threads", _ONE_LOOP),
    WithoutEffect("num.replica.alter.log.dirs.threads", _NO_MOVES),
    WithoutEffect("queued.max.requests", "requests are not queued; each connection has one at a time"),
    WithoutEffect("share.coordinator.threads", _ONE_LOOP),
    WithoutEffect("delete.records.purgatory.purge.interval.requests", _NO_PURGATORY),
    WithoutEffect("fetch.purgatory.purge.interval.requests", _NO_PURGATORY),
    WithoutEffect("producer.purgatory.purge.interval.requests", _NO_PURGATORY),
    WithoutEffect("share.fetch.purgatory.purge.interval.requests", _NO_PURGATORY),
    # Details of how Kafka does it.
    WithoutEffect("alter.log.dirs.replication.quota.window.num", _NO_MOVES),
    WithoutEffect("alter.log.dirs.replication.quota.window.size.seconds", _NO_MOVES),
    WithoutEffect("group.coordinator.append.linger.ms", _ONE_APPEND),
    WithoutEffect("group.coordinator.cached.buffer.max.bytes", _NO_BUFFER),
    WithoutEffect("kafka.metrics.polling.interval.secs", _RATES_ELSEWHERE),
    WithoutEffect("log.dir.failure.timeout.ms", "a broker that loses a directory gives up its leaderships through coordination, without a wait"),
    WithoutEffect("share.coordinator.append.linger.ms", _ONE_APPEND),
    WithoutEffect("share.coordinator.cached.buffer.max.bytes", _NO_BUFFER),
    WithoutEffect("telemetry.max.bytes", _NO_TELEMETRY),
    # What a file for KRaft cannot do without.
    WithoutEffect("process.roles", "every broker can become the controller", including("broker", some_of("broker", "controller"))),
    WithoutEffect("controller.quorum.bootstrap.servers", _NO_QUORUM, AT_MOST_ONE),
    WithoutEffect("controller.quorum.voters", _NO_QUORUM, AT_MOST_ONE),
    # Settings that Kafka itself has dropped, and whose absence harms nobody.
    WithoutEffect("broker.id.generation.enable", "a broker without an id always gets one"),
    WithoutEffect("controller.message.queue.size", "the controller's queue has no size to set"),
    WithoutEffect("inter.broker.protocol.version", "brokers agree on the version of each request by themselves"),
    WithoutEffect("leader.imbalance.per.broker.percentage", "every leader that is not the preferred one is moved back, as in Kafka 4"),
    WithoutEffect("log.message.downconversion.enable", _ONE_FORMAT),
    WithoutEffect("log.message.format.version", _ONE_FORMAT),
    WithoutEffect("reserved.broker.max.id", "ids that are chosen and ids that are given do not need separate ranges"),
    WithoutEffect("zookeeper.max.in.flight.requests", "requests to ZooKeeper follow one another without a limit to set"),
    WithoutEffect("zookeeper.sync.time.ms", "Kafka itself stopped using it"),
)

TOPIC: Final = (
    WithoutEffect("message.downconversion.enable", _ONE_FORMAT),
    WithoutEffect("message.format.version", _ONE_FORMAT),
)

_CLIENT: Final = (
    *_JAVA_TLS,
    *_METRICS,
    WithoutEffect("enable.metrics.push", _NO_TELEMETRY),
)

PRODUCER: Final = _CLIENT
CONSUMER: Final = _CLIENT
ADMIN: Final = _CLIENT
# fmt: on
