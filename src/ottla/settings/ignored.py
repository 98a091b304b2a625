# ruff: noqa: E501 - one line per row
"""Settings of Kafka that Ottla accepts and ignores, with the reason.

Invariant: ignoring them affects neither data safety nor security. Ottla logs a warning for each.
The broker settings of Kafka 4.3 are full rows: the broker validates, stores and describes them as
Kafka does. Names that Kafka 4.3 does not know have no type; a name that ends in `.*` is a prefix.
"""

from typing import Final, TypeVar

from ottla.settings.config_def import (
    CLUSTER_WIDE,
    PER_BROKER,
    READ_ONLY,
    Dynamic,
    Ignored,
    Setting,
)
from ottla.settings.config_types import (
    BOOLEAN,
    DOUBLE,
    INT,
    INT_MAX,
    LIST,
    LONG,
    LONG_MAX,
    PASSWORD,
    STRING,
    ConfigType,
)
from ottla.settings.validators import NON_EMPTY, Validator, at_least, between, one_of, some_of

V = TypeVar("V")

_ONE_LOOP: Final = "a broker is one event loop without thread pools; run one broker per core"
_NO_PURGATORY: Final = "completed requests are removed from the purgatory immediately"
_RATES_ELSEWHERE: Final = "metrics are plain counters; the monitoring system computes rates"
_NO_REPORTERS: Final = (
    "Ottla cannot load Java classes; scrape the metrics over HTTP (ottla.metrics.listener)"
)
_NO_TELEMETRY: Final = "client telemetry is not supported"
_OPENSSL: Final = "Ottla uses OpenSSL instead of Java's TLS"
_PEM_ONLY: Final = (
    "Ottla supports PEM only, which has no store password; ssl.key.password is for an encrypted key"
)
_ONE_APPEND: Final = "records of one event loop iteration are written in one append"
_NO_BUFFER: Final = "write buffers are not cached"
_NO_MOVES: Final = "replicas cannot be moved between data directories"
_NO_KRAFT: Final = (
    "Ottla has no KRaft quorum; it uses ZooKeeper, or embedded coordination on a single broker"
)
_NO_KERBEROS: Final = "Kerberos is not supported"
_NO_TOKENS: Final = "delegation tokens are not supported"
_NO_SIGNING: Final = (
    "Ottla does not sign assertions; sign them externally and set sasl.oauthbearer.assertion.file"
)
_NO_STREAMS: Final = "streams groups are not supported"
_NO_REMOTE: Final = "tiered storage is not supported"
_KAZOO: Final = "Ottla uses another ZooKeeper client than Kafka"
_ONE_FORMAT: Final = "Ottla writes record format v2 only and never converts"
_INTERNAL: Final = "undocumented internal setting of Kafka"
_NOT_KAFKA: Final = "not a setting of Apache Kafka"


def _ignored(
    reason: str,
    name: str,
    kind: ConfigType[V],
    default: V | None,
    validator: Validator[V] | None = None,
    *,
    dynamic: Dynamic = READ_ONLY,
    per_listener: bool = False,
    kafka_default: str | None = None,
) -> Setting[V] | Setting[V | None]:
    """Return the row of a broker setting that has no effect in Ottla."""
    return Setting(
        name,
        kind,
        default,
        validator,
        doc=f"No effect in Ottla: {reason}.",
        dynamic=dynamic,
        per_listener=per_listener,
        kafka_default=kafka_default,
        no_effect=reason,
    )


# fmt: off
# Required in a KRaft configuration. The checks read them: one server only.
PROCESS_ROLES = Setting("process.roles", LIST, (), some_of("broker", "controller"), kafka_default="(required)", no_effect="every broker can become the controller",
    doc="Roles of a KRaft node. It must include broker, and has no other effect: every broker can become the controller.")
CONTROLLER_QUORUM_VOTERS = Setting("controller.quorum.voters", LIST, (), no_effect=_NO_KRAFT,
    doc="Controllers of a KRaft quorum. One entry is accepted and has no effect; several need a multi-broker cluster, which is not supported yet.")
CONTROLLER_QUORUM_BOOTSTRAP_SERVERS = Setting("controller.quorum.bootstrap.servers", LIST, (), no_effect=_NO_KRAFT,
    doc="Addresses of KRaft controllers. One entry is accepted and has no effect; several need a multi-broker cluster, which is not supported yet.")

# As in Kafka, a running broker changes these by at most a factor of two.
BACKGROUND_THREADS = Setting("background.threads", INT, 10, at_least(1), dynamic=CLUSTER_WIDE, no_effect=_ONE_LOOP,
    doc=f"No effect in Ottla: {_ONE_LOOP}.")
NUM_IO_THREADS = Setting("num.io.threads", INT, 8, at_least(1), dynamic=CLUSTER_WIDE, no_effect=_ONE_LOOP,
    doc=f"No effect in Ottla: {_ONE_LOOP}.")
NUM_NETWORK_THREADS = Setting("num.network.threads", INT, 3, at_least(1), dynamic=CLUSTER_WIDE, per_listener=True, no_effect=_ONE_LOOP,
    doc=f"No effect in Ottla: {_ONE_LOOP}.")

BROKER_SETTINGS: Final = (
    PROCESS_ROLES,
    CONTROLLER_QUORUM_VOTERS,
    CONTROLLER_QUORUM_BOOTSTRAP_SERVERS,
    # Threads and queues.
    BACKGROUND_THREADS,
    _ignored(_NO_PURGATORY, "delete.records.purgatory.purge.interval.requests", INT, 1),
    _ignored(_NO_PURGATORY, "fetch.purgatory.purge.interval.requests", INT, 1000),
    _ignored(_ONE_LOOP, "group.coordinator.background.threads", INT, 2, at_least(1)),
    _ignored(_ONE_LOOP, "group.coordinator.threads", INT, 4, at_least(1)),
    NUM_IO_THREADS,
    NUM_NETWORK_THREADS,
    _ignored(_NO_MOVES, "num.replica.alter.log.dirs.threads", INT, None),
    _ignored(_NO_PURGATORY, "producer.purgatory.purge.interval.requests", INT, 1000),
    _ignored("there is no request queue; each connection processes one request at a time", "queued.max.requests", INT, 500, at_least(1)),
    _ignored(_ONE_LOOP, "share.coordinator.threads", INT, 1, at_least(1)),
    _ignored(_NO_PURGATORY, "share.fetch.purgatory.purge.interval.requests", INT, 1000),
    # Metrics and telemetry.
    _ignored(_RATES_ELSEWHERE, "kafka.metrics.polling.interval.secs", INT, 10, at_least(1)),
    _ignored(_NO_REPORTERS, "kafka.metrics.reporters", LIST, ()),
    _ignored(_NO_REPORTERS, "metric.reporters", LIST, (), kafka_default="org.apache.kafka.common.metrics.JmxReporter", dynamic=CLUSTER_WIDE),
    _ignored(_RATES_ELSEWHERE, "metrics.num.samples", INT, 2, at_least(1)),
    _ignored("all metrics are always recorded", "metrics.recording.level", STRING, "INFO"),
    _ignored(_RATES_ELSEWHERE, "metrics.sample.window.ms", LONG, 30_000, at_least(1)),
    _ignored(_NO_TELEMETRY, "telemetry.max.bytes", INT, 1_048_576, at_least(1)),
    # Internals of Kafka.
    _ignored(_NO_MOVES, "alter.log.dirs.replication.quota.window.num", INT, 11, at_least(1)),
    _ignored(_NO_MOVES, "alter.log.dirs.replication.quota.window.size.seconds", INT, 1, at_least(1)),
    _ignored(_ONE_APPEND, "group.coordinator.append.linger.ms", INT, -1, at_least(-1)),
    _ignored(_NO_BUFFER, "group.coordinator.cached.buffer.max.bytes", INT, 1_048_588, at_least(524_288), dynamic=CLUSTER_WIDE),
    _ignored("a broker with a failed directory gives up its leaderships immediately", "log.dir.failure.timeout.ms", LONG, 30_000, at_least(1)),
    _ignored(_ONE_APPEND, "share.coordinator.append.linger.ms", INT, -1, at_least(-1)),
    _ignored(_NO_BUFFER, "share.coordinator.cached.buffer.max.bytes", INT, 1_048_588, at_least(524_288), dynamic=CLUSTER_WIDE),
    # TLS of Java.
    _ignored(_OPENSSL, "ssl.keymanager.algorithm", STRING, "SunX509", dynamic=PER_BROKER, per_listener=True),
    _ignored(_PEM_ONLY, "ssl.keystore.password", PASSWORD, None, dynamic=PER_BROKER, per_listener=True),
    _ignored(f"{_OPENSSL}; use ssl.enabled.protocols", "ssl.protocol", STRING, "TLSv1.3", dynamic=PER_BROKER, per_listener=True),
    _ignored(_OPENSSL, "ssl.secure.random.implementation", STRING, None, dynamic=PER_BROKER, per_listener=True),
    _ignored(_OPENSSL, "ssl.trustmanager.algorithm", STRING, "PKIX", dynamic=PER_BROKER, per_listener=True),
    _ignored(_PEM_ONLY, "ssl.truststore.password", PASSWORD, None, dynamic=PER_BROKER, per_listener=True),
    # Kerberos, delegation tokens, signed assertions.
    _ignored(_NO_TOKENS, "delegation.token.expiry.check.interval.ms", LONG, 3_600_000, at_least(1)),
    _ignored(_NO_TOKENS, "delegation.token.expiry.time.ms", LONG, 86_400_000, at_least(1)),
    _ignored(_NO_TOKENS, "delegation.token.max.lifetime.ms", LONG, 604_800_000, at_least(1)),
    _ignored(_NO_TOKENS, "delegation.token.secret.key", PASSWORD, None),
    _ignored(_NO_KERBEROS, "sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", dynamic=PER_BROKER, per_listener=True),
    _ignored(_NO_KERBEROS, "sasl.kerberos.min.time.before.relogin", LONG, 60_000, dynamic=PER_BROKER, per_listener=True),
    _ignored(_NO_KERBEROS, "sasl.kerberos.principal.to.local.rules", LIST, ("DEFAULT",), dynamic=PER_BROKER, per_listener=True),
    _ignored(_NO_KERBEROS, "sasl.kerberos.service.name", STRING, None, dynamic=PER_BROKER, per_listener=True),
    _ignored(_NO_KERBEROS, "sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05, dynamic=PER_BROKER, per_listener=True),
    _ignored(_NO_KERBEROS, "sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8, dynamic=PER_BROKER, per_listener=True),
    _ignored(_NO_SIGNING, "sasl.oauthbearer.assertion.algorithm", STRING, "RS256", one_of("ES256", "RS256", any_case=True), per_listener=True),
    _ignored(_NO_SIGNING, "sasl.oauthbearer.assertion.claim.aud", STRING, None, per_listener=True),
    _ignored(_NO_SIGNING, "sasl.oauthbearer.assertion.claim.exp.seconds", INT, 300, between(0, 86_400), per_listener=True),
    _ignored(_NO_SIGNING, "sasl.oauthbearer.assertion.claim.iss", STRING, None, per_listener=True),
    _ignored(_NO_SIGNING, "sasl.oauthbearer.assertion.claim.jti.include", BOOLEAN, False, per_listener=True),
    _ignored(_NO_SIGNING, "sasl.oauthbearer.assertion.claim.nbf.seconds", INT, 60, between(0, 3600), per_listener=True),
    _ignored(_NO_SIGNING, "sasl.oauthbearer.assertion.claim.sub", STRING, None, per_listener=True),
    _ignored(_NO_SIGNING, "sasl.oauthbearer.assertion.private.key.file", STRING, None, per_listener=True),
    _ignored(_NO_SIGNING, "sasl.oauthbearer.assertion.private.key.passphrase", PASSWORD, None, per_listener=True),
    _ignored(_NO_SIGNING, "sasl.oauthbearer.assertion.template.file", STRING, None, per_listener=True),
    # Streams groups.
    _ignored(_NO_STREAMS, "group.streams.assignment.interval.ms", INT, 1000, at_least(0), dynamic=CLUSTER_WIDE),
    _ignored(_NO_STREAMS, "group.streams.heartbeat.interval.ms", INT, 5000, at_least(1)),
    _ignored(_NO_STREAMS, "group.streams.initial.rebalance.delay.ms", INT, 3000, at_least(0)),
    _ignored(_NO_STREAMS, "group.streams.max.assignment.interval.ms", INT, 15_000, at_least(0)),
    _ignored(_NO_STREAMS, "group.streams.max.heartbeat.interval.ms", INT, 15_000, at_least(1)),
    _ignored(_NO_STREAMS, "group.streams.max.session.timeout.ms", INT, 60_000, at_least(1)),
    _ignored(_NO_STREAMS, "group.streams.max.size", INT, INT_MAX, at_least(1)),
    _ignored(_NO_STREAMS, "group.streams.max.standby.replicas", INT, 2, at_least(0)),
    _ignored(_NO_STREAMS, "group.streams.min.assignment.interval.ms", INT, 0, at_least(0)),
    _ignored(_NO_STREAMS, "group.streams.min.heartbeat.interval.ms", INT, 5000, at_least(1)),
    _ignored(_NO_STREAMS, "group.streams.min.session.timeout.ms", INT, 45_000, at_least(1)),
    _ignored(_NO_STREAMS, "group.streams.num.standby.replicas", INT, 0, at_least(0)),
    _ignored(_NO_STREAMS, "group.streams.session.timeout.ms", INT, 45_000, at_least(1)),
    # KRaft.
    _ignored(_NO_KRAFT, "broker.heartbeat.interval.ms", INT, 2000),
    _ignored(_NO_KRAFT, "broker.session.timeout.ms", INT, 9000),
    _ignored(_NO_KRAFT, "controller.quorum.append.linger.ms", INT, 25, at_least(0)),
    _ignored(_NO_KRAFT, "controller.quorum.auto.join.enable", BOOLEAN, False),
    _ignored(_NO_KRAFT, "controller.quorum.election.backoff.max.ms", INT, 1000, at_least(0)),
    _ignored(_NO_KRAFT, "controller.quorum.election.timeout.ms", INT, 1000, at_least(0)),
    _ignored(_NO_KRAFT, "controller.quorum.fetch.max.bytes", INT, 1_048_576, at_least(1)),
    _ignored(_NO_KRAFT, "controller.quorum.fetch.snapshot.max.bytes", INT, 1_048_576, at_least(1)),
    _ignored(_NO_KRAFT, "controller.quorum.fetch.timeout.ms", INT, 2000, at_least(0)),
    _ignored(_NO_KRAFT, "controller.quorum.request.timeout.ms", INT, 2000, at_least(0)),
    _ignored(_NO_KRAFT, "controller.quorum.retry.backoff.ms", INT, 20, at_least(0)),
    _ignored(_NO_KRAFT, "early.start.listeners", LIST, None),
    _ignored(_NO_KRAFT, "initial.broker.registration.timeout.ms", INT, 60_000),
    _ignored(_NO_KRAFT, "metadata.log.dir", STRING, None),
    _ignored(_NO_KRAFT, "metadata.log.max.record.bytes.between.snapshots", LONG, 20_971_520, at_least(1)),
    _ignored(_NO_KRAFT, "metadata.log.max.snapshot.interval.ms", LONG, 3_600_000, at_least(0)),
    _ignored(_NO_KRAFT, "metadata.log.segment.bytes", INT, 1_073_741_824, at_least(8_388_608)),
    _ignored(_NO_KRAFT, "metadata.log.segment.ms", LONG, 604_800_000),
    _ignored(_NO_KRAFT, "metadata.max.idle.interval.ms", INT, 500, at_least(0)),
    _ignored(_NO_KRAFT, "metadata.max.retention.bytes", LONG, 104_857_600),
    _ignored(_NO_KRAFT, "metadata.max.retention.ms", LONG, 604_800_000),
    _ignored(_NO_KRAFT, "sasl.mechanism.controller.protocol", STRING, "GSSAPI", per_listener=True),
    # Tiered storage.
    _ignored(_NO_REMOTE, "follower.fetch.last.tiered.offset.enable", BOOLEAN, False, dynamic=CLUSTER_WIDE),
    _ignored(_NO_REMOTE, "log.local.retention.bytes", LONG, -2, at_least(-2), dynamic=CLUSTER_WIDE),
    _ignored(_NO_REMOTE, "log.local.retention.ms", LONG, -2, at_least(-2), dynamic=CLUSTER_WIDE),
    _ignored(_NO_REMOTE, "remote.fetch.max.wait.ms", INT, 500, at_least(1), dynamic=CLUSTER_WIDE),
    _ignored(_NO_REMOTE, "remote.list.offsets.request.timeout.ms", LONG, 30_000, at_least(1), dynamic=CLUSTER_WIDE),
    _ignored(_NO_REMOTE, "remote.log.index.file.cache.total.size.bytes", LONG, 1_073_741_824, at_least(1), dynamic=CLUSTER_WIDE),
    _ignored(_NO_REMOTE, "remote.log.manager.copier.thread.pool.size", INT, 10, at_least(1), dynamic=CLUSTER_WIDE),
    _ignored(_NO_REMOTE, "remote.log.manager.copy.max.bytes.per.second", LONG, LONG_MAX, at_least(1), dynamic=CLUSTER_WIDE),
    _ignored(_NO_REMOTE, "remote.log.manager.copy.quota.window.num", INT, 11, at_least(1)),
    _ignored(_NO_REMOTE, "remote.log.manager.copy.quota.window.size.seconds", INT, 1, at_least(1)),
    _ignored(_NO_REMOTE, "remote.log.manager.expiration.thread.pool.size", INT, 10, at_least(1), dynamic=CLUSTER_WIDE),
    _ignored(_NO_REMOTE, "remote.log.manager.fetch.max.bytes.per.second", LONG, LONG_MAX, at_least(1), dynamic=CLUSTER_WIDE),
    _ignored(_NO_REMOTE, "remote.log.manager.fetch.quota.window.num", INT, 11, at_least(1)),
    _ignored(_NO_REMOTE, "remote.log.manager.fetch.quota.window.size.seconds", INT, 1, at_least(1)),
    _ignored(_NO_REMOTE, "remote.log.manager.follower.thread.pool.size", INT, 2, at_least(1), dynamic=CLUSTER_WIDE),
    _ignored(_NO_REMOTE, "remote.log.manager.task.interval.ms", LONG, 30_000, at_least(1)),
    _ignored(_NO_REMOTE, "remote.log.manager.thread.pool.size", INT, 2, at_least(1)),
    _ignored(_NO_REMOTE, "remote.log.metadata.custom.metadata.max.bytes", INT, 128, at_least(0)),
    _ignored(_NO_REMOTE, "remote.log.metadata.manager.class.name", STRING, "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager", NON_EMPTY),
    _ignored(_NO_REMOTE, "remote.log.metadata.manager.class.path", STRING, None),
    _ignored(_NO_REMOTE, "remote.log.metadata.manager.impl.prefix", STRING, "rlmm.config.", NON_EMPTY),
    _ignored(_NO_REMOTE, "remote.log.metadata.manager.listener.name", STRING, None, NON_EMPTY),
    _ignored(_NO_REMOTE, "remote.log.reader.max.pending.tasks", INT, 100, at_least(1)),
    _ignored(_NO_REMOTE, "remote.log.reader.threads", INT, 10, at_least(1), dynamic=CLUSTER_WIDE),
    _ignored(_NO_REMOTE, "remote.log.storage.manager.class.name", STRING, None, NON_EMPTY),
    _ignored(_NO_REMOTE, "remote.log.storage.manager.class.path", STRING, None),
    _ignored(_NO_REMOTE, "remote.log.storage.manager.impl.prefix", STRING, "rsm.config.", NON_EMPTY),
)

BROKER: Final = (
    # Removed from Kafka.
    Ignored("auto.include.jmx.reporter", "Ottla has no JMX"),
    Ignored("control.plane.listener.name", "the controller uses the inter-broker listener"),
    Ignored("controlled.shutdown.max.retries", "a controlled shutdown is not repeated"),
    Ignored("controlled.shutdown.retry.backoff.ms", "a controlled shutdown is not repeated"),
    Ignored("controller.message.queue.size", "the controller queue has no configurable size"),
    Ignored("delegation.token.master.key", _NO_TOKENS),
    Ignored("group.coordinator.new.enable", "there is one group coordinator"),
    Ignored("inter.broker.protocol.version", "brokers negotiate the version of each request"),
    Ignored("log.message.downconversion.enable", _ONE_FORMAT),
    Ignored("log.message.format.version", _ONE_FORMAT),
    Ignored("offsets.commit.required.acks", "offset commits are always acknowledged by all in-sync replicas, as in Kafka 4"),
    Ignored("password.encoder.*", "passwords that are set at runtime are stored in a file that only the broker's user can read"),
    Ignored("replica.lag.max.messages", "removed in Kafka 0.9; replica.lag.time.max.ms takes its place"),
    Ignored("zookeeper.clientCnxnSocket", _KAZOO),
    Ignored("zookeeper.max.in.flight.requests", _KAZOO),
    Ignored("zookeeper.metadata.migration.min.batch.size", _NO_KRAFT),
    Ignored("zookeeper.sync.time.ms", "unused in Kafka"),
    # Undocumented settings of Kafka.
    Ignored("controller.performance.always.log.threshold.ms", _INTERNAL),
    Ignored("controller.performance.sample.period.ms", _INTERNAL),
    Ignored("eligible.leader.replicas.enable", _INTERNAL),
    Ignored("group.consumer.regex.refresh.interval.ms", _INTERNAL),
    Ignored("group.share.initialize.retry.interval.ms", _INTERNAL),
    Ignored("group.share.persister.class.name", _INTERNAL),
    Ignored("internal.metadata.delete.delay.millis", _INTERNAL),
    Ignored("internal.metadata.log.segment.bytes", _INTERNAL),
    Ignored("internal.metadata.max.batch.size.in.bytes", _INTERNAL),
    Ignored("log.initial.task.delay.ms", _INTERNAL),
    Ignored("producer.id.expiration.check.interval.ms", _INTERNAL),
    Ignored("remote.log.index.file.cache.ttl.ms", _NO_REMOTE),
    Ignored("remote.log.manager.task.retry.backoff.max.ms", _NO_REMOTE),
    Ignored("remote.log.manager.task.retry.backoff.ms", _NO_REMOTE),
    Ignored("remote.log.manager.task.retry.jitter", _NO_REMOTE),
    Ignored("server.max.startup.time.ms", _INTERNAL),
    Ignored("share.coordinator.cold.partition.snapshot.interval.ms", _INTERNAL),
    Ignored("share.coordinator.state.topic.prune.interval.ms", _INTERNAL),
    Ignored("unclean.leader.election.interval.ms", _INTERNAL),
    Ignored("unstable.api.versions.enable", _INTERNAL),
    Ignored("unstable.feature.versions.enable", _INTERNAL),
    Ignored("unstable.metadata.versions.enable", _INTERNAL),
    # Settings of plugins and distributions of Kafka.
    Ignored("confluent.*", _NOT_KAFKA),
    Ignored("cruise.control.metrics.*", _NOT_KAFKA),
    Ignored("kafka.csv.metrics.*", _NO_REPORTERS),
    Ignored("rlmm.config.*", _NO_REMOTE),
    Ignored("rsm.config.*", _NO_REMOTE),
)

TOPIC: Final = (
    Ignored("message.downconversion.enable", _ONE_FORMAT),
    Ignored("message.format.version", _ONE_FORMAT),
)

_CLIENT: Final = (
    Ignored("ssl.keymanager.algorithm", _OPENSSL),
    Ignored("ssl.trustmanager.algorithm", _OPENSSL),
    Ignored("ssl.secure.random.implementation", _OPENSSL),
    Ignored("ssl.protocol", f"{_OPENSSL}; use ssl.enabled.protocols"),
    Ignored("metrics.num.samples", _RATES_ELSEWHERE),
    Ignored("metrics.sample.window.ms", _RATES_ELSEWHERE),
    Ignored("metrics.recording.level", "all metrics are always recorded"),
    Ignored("enable.metrics.push", _NO_TELEMETRY),
)

PRODUCER: Final = _CLIENT
CONSUMER: Final = _CLIENT
ADMIN: Final = _CLIENT
# fmt: on
