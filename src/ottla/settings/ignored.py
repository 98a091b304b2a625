# ruff: noqa: E501 - a row reads best on one line.
"""Settings of Kafka that a file may keep though they change nothing here, with the reason.

Invariant: nothing in these rows protects data or access; what would is honoured or refused.
Whoever sets one gets a warning, so nothing is ignored in silence.
"""

from typing import Final

from ottla.settings.config_def import Ignored
from ottla.settings.validators import AT_MOST_ONE, including, some_of

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
    Ignored("ssl.keymanager.algorithm", _OPENSSL),
    Ignored("ssl.trustmanager.algorithm", _OPENSSL),
    Ignored("ssl.secure.random.implementation", _OPENSSL),
    Ignored("ssl.protocol", f"{_OPENSSL}; ssl.enabled.protocols decides"),
)
_METRICS: Final = (
    Ignored("metrics.num.samples", _RATES_ELSEWHERE),
    Ignored("metrics.sample.window.ms", _RATES_ELSEWHERE),
    Ignored("metrics.recording.level", "all metrics are always counted"),
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
    Ignored("queued.max.requests", "requests are not queued; each connection has one at a time"),
    Ignored("share.coordinator.threads", _ONE_LOOP),
    Ignored("delete.records.purgatory.purge.interval.requests", _NO_PURGATORY),
    Ignored("fetch.purgatory.purge.interval.requests", _NO_PURGATORY),
    Ignored("producer.purgatory.purge.interval.requests", _NO_PURGATORY),
    Ignored("share.fetch.purgatory.purge.interval.requests", _NO_PURGATORY),
    # Details of how Kafka does it.
    Ignored("alter.log.dirs.replication.quota.window.num", _NO_MOVES),
    Ignored("alter.log.dirs.replication.quota.window.size.seconds", _NO_MOVES),
    Ignored("group.coordinator.append.linger.ms", _ONE_APPEND),
    Ignored("group.coordinator.cached.buffer.max.bytes", _NO_BUFFER),
    Ignored("kafka.metrics.polling.interval.secs", _RATES_ELSEWHERE),
    Ignored("log.dir.failure.timeout.ms", "a broker that loses a directory gives up its leaderships through coordination, without a wait"),
    Ignored("share.coordinator.append.linger.ms", _ONE_APPEND),
    Ignored("share.coordinator.cached.buffer.max.bytes", _NO_BUFFER),
    Ignored("telemetry.max.bytes", _NO_TELEMETRY),
    # What a file for KRaft cannot do without.
    Ignored("process.roles", "every broker can become the controller", including("broker", some_of("broker", "controller"))),
    Ignored("controller.quorum.bootstrap.servers", _NO_QUORUM, AT_MOST_ONE),
    Ignored("controller.quorum.voters", _NO_QUORUM, AT_MOST_ONE),
    # Settings that Kafka itself has dropped, and whose absence harms nobody.
    Ignored("broker.id.generation.enable", "a broker without an id always gets one"),
    Ignored("controller.message.queue.size", "the controller's queue has no size to set"),
    Ignored("inter.broker.protocol.version", "brokers agree on the version of each request by themselves"),
    Ignored("leader.imbalance.per.broker.percentage", "every leader that is not the preferred one is moved back, as in Kafka 4"),
    Ignored("log.message.downconversion.enable", _ONE_FORMAT),
    Ignored("log.message.format.version", _ONE_FORMAT),
    Ignored("reserved.broker.max.id", "ids that are chosen and ids that are given do not need separate ranges"),
    Ignored("zookeeper.max.in.flight.requests", "requests to ZooKeeper follow one another without a limit to set"),
    Ignored("zookeeper.sync.time.ms", "Kafka itself stopped using it"),
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
