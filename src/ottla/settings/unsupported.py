# ruff: noqa: E501 - a row reads best on one line.
"""Settings of Kafka that Ottla does not have, each with the reason and what there is instead.

Invariant: a refused setting stops the start, so nobody believes in a protection, a plugin or a
limit that is not there. The value is never looked up, loaded, or shown.
"""

from typing import Final

from ottla.settings.config_def import Unsupported

_NO_JAVA: Final = "it names a Java class, and Ottla is Python"
_NO_KERBEROS: Final = "there is no Kerberos"
_NO_KRAFT: Final = (
    "there is no KRaft quorum; ZooKeeper coordinates, or the broker itself when it is alone"
)
_NO_REMOTE: Final = "there is no remote storage"
_NO_TOKENS: Final = "there are no delegation tokens"
_NO_STREAMS: Final = "there are no streams groups"
_NO_SIGNING: Final = "Ottla does not sign assertions"
_INTERNAL: Final = "it is internal to Kafka and not documented there"
_NO_ZK_TLS: Final = "TLS to ZooKeeper is not built"
_PEM_ONLY: Final = "only JKS and PKCS12 stores have a password of their own, and Ottla reads PEM"

_USE_SCRAM: Final = "use SASL with SCRAM-SHA-512 or OAUTHBEARER"
_USE_METRICS: Final = "collect the metrics over HTTP"
_USE_SIGNED: Final = "have it signed elsewhere and name the file in sasl.oauthbearer.assertion.file"
_USE_LISTENERS: Final = "write it into listeners, as PLAINTEXT://host:port"
_USE_ADVERTISED: Final = "write it into advertised.listeners, as PLAINTEXT://host:port"
_USE_SESSION: Final = "zookeeper.session.timeout.ms says when a silent broker is given up"

_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer."

# fmt: off
# Brokers and clients alike: plugins, Kerberos, what only Java has.
_EVERYWHERE: Final = (
    Unsupported("config.providers", _NO_JAVA, "write values out, or let what starts Ottla fill them in", harmless=("",)),
    Unsupported("config.providers.*", _NO_JAVA, "write values out, or let what starts Ottla fill them in"),
    Unsupported("metric.reporters", _NO_JAVA, _USE_METRICS, harmless=("",)),
    Unsupported("sasl.client.callback.handler.class", _NO_JAVA, "give credentials in sasl.jaas.config", harmless=("",)),
    Unsupported("sasl.login.callback.handler.class", _NO_JAVA, "for OAUTHBEARER set sasl.oauthbearer.token.endpoint.url",
        harmless=("", f"{_OAUTH}OAuthBearerLoginCallbackHandler", f"{_OAUTH}secured.OAuthBearerLoginCallbackHandler")),
    Unsupported("sasl.login.class", _NO_JAVA, harmless=("",)),
    Unsupported("sasl.kerberos.kinit.cmd", _NO_KERBEROS, _USE_SCRAM),
    Unsupported("sasl.kerberos.min.time.before.relogin", _NO_KERBEROS, _USE_SCRAM),
    Unsupported("sasl.kerberos.service.name", _NO_KERBEROS, _USE_SCRAM),
    Unsupported("sasl.kerberos.ticket.renew.jitter", _NO_KERBEROS, _USE_SCRAM),
    Unsupported("sasl.kerberos.ticket.renew.window.factor", _NO_KERBEROS, _USE_SCRAM),
    Unsupported("sasl.oauthbearer.assertion.algorithm", _NO_SIGNING, _USE_SIGNED),
    Unsupported("sasl.oauthbearer.assertion.claim.aud", _NO_SIGNING, _USE_SIGNED),
    Unsupported("sasl.oauthbearer.assertion.claim.exp.seconds", _NO_SIGNING, _USE_SIGNED),
    Unsupported("sasl.oauthbearer.assertion.claim.iss", _NO_SIGNING, _USE_SIGNED),
    Unsupported("sasl.oauthbearer.assertion.claim.jti.include", _NO_SIGNING, _USE_SIGNED),
    Unsupported("sasl.oauthbearer.assertion.claim.nbf.seconds", _NO_SIGNING, _USE_SIGNED),
    Unsupported("sasl.oauthbearer.assertion.claim.sub", _NO_SIGNING, _USE_SIGNED),
    Unsupported("sasl.oauthbearer.assertion.private.key.file", _NO_SIGNING, _USE_SIGNED),
    Unsupported("sasl.oauthbearer.assertion.private.key.passphrase", _NO_SIGNING, _USE_SIGNED),
    Unsupported("sasl.oauthbearer.assertion.template.file", _NO_SIGNING, _USE_SIGNED),
    Unsupported("sasl.oauthbearer.jwt.retriever.class", _NO_JAVA, "what is set decides where tokens come from: the token endpoint with a secret or an assertion",
        harmless=("", f"{_OAUTH}DefaultJwtRetriever")),
    Unsupported("sasl.oauthbearer.jwt.validator.class", _NO_JAVA, "brokers check tokens against sasl.oauthbearer.jwks.endpoint.url",
        harmless=("", f"{_OAUTH}DefaultJwtValidator")),
    Unsupported("security.providers", _NO_JAVA, harmless=("",)),
    Unsupported("ssl.engine.factory.class", _NO_JAVA, "give PEM files in ssl.keystore.location and ssl.truststore.location", harmless=("",)),
    Unsupported("ssl.keystore.password", _PEM_ONLY, "an encrypted key is opened by ssl.key.password"),
    Unsupported("ssl.provider", "TLS is OpenSSL's, not Java's", harmless=("",)),
    Unsupported("ssl.truststore.password", _PEM_ONLY, "certificates in PEM are not secret and need none"),
)

BROKER: Final = (
    *_EVERYWHERE,
    # Plugins.
    Unsupported("alter.config.policy.class.name", _NO_JAVA, "ACLs say who may alter settings", harmless=("",)),
    Unsupported("client.quota.callback.class", _NO_JAVA, "quotas per user and client id are built in", harmless=("",)),
    Unsupported("create.topic.policy.class.name", _NO_JAVA, "ottla.topic.name.policy says which names are allowed", harmless=("",)),
    Unsupported("kafka.metrics.reporters", _NO_JAVA, _USE_METRICS, harmless=("",)),
    Unsupported("principal.builder.class", _NO_JAVA, "ssl.principal.mapping.rules turns certificates into names",
        harmless=("", "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder")),
    Unsupported("sasl.server.callback.handler.class", _NO_JAVA, "users and their passwords are kept by the cluster, for OAUTHBEARER set sasl.oauthbearer.jwks.endpoint.url",
        harmless=("", f"{_OAUTH}OAuthBearerValidatorCallbackHandler", f"{_OAUTH}secured.OAuthBearerValidatorCallbackHandler")),
    # Kerberos, delegation tokens, streams groups.
    Unsupported("sasl.kerberos.principal.to.local.rules", _NO_KERBEROS, _USE_SCRAM),
    Unsupported("delegation.token.expiry.check.interval.ms", _NO_TOKENS, _USE_SCRAM),
    Unsupported("delegation.token.expiry.time.ms", _NO_TOKENS, _USE_SCRAM),
    Unsupported("delegation.token.master.key", _NO_TOKENS, _USE_SCRAM),
    Unsupported("delegation.token.max.lifetime.ms", _NO_TOKENS, _USE_SCRAM),
    Unsupported("delegation.token.secret.key", _NO_TOKENS, _USE_SCRAM),
    Unsupported("group.streams.assignment.interval.ms", _NO_STREAMS),
    Unsupported("group.streams.heartbeat.interval.ms", _NO_STREAMS),
    Unsupported("group.streams.initial.rebalance.delay.ms", _NO_STREAMS),
    Unsupported("group.streams.max.assignment.interval.ms", _NO_STREAMS),
    Unsupported("group.streams.max.heartbeat.interval.ms", _NO_STREAMS),
    Unsupported("group.streams.max.session.timeout.ms", _NO_STREAMS),
    Unsupported("group.streams.max.size", _NO_STREAMS),
    Unsupported("group.streams.max.standby.replicas", _NO_STREAMS),
    Unsupported("group.streams.min.assignment.interval.ms", _NO_STREAMS),
    Unsupported("group.streams.min.heartbeat.interval.ms", _NO_STREAMS),
    Unsupported("group.streams.min.session.timeout.ms", _NO_STREAMS),
    Unsupported("group.streams.num.standby.replicas", _NO_STREAMS),
    Unsupported("group.streams.session.timeout.ms", _NO_STREAMS),
    # KRaft.
    Unsupported("broker.heartbeat.interval.ms", _NO_KRAFT, _USE_SESSION),
    Unsupported("broker.session.timeout.ms", _NO_KRAFT, _USE_SESSION),
    Unsupported("controller.quorum.append.linger.ms", _NO_KRAFT),
    Unsupported("controller.quorum.auto.join.enable", _NO_KRAFT, harmless=("false",)),
    Unsupported("controller.quorum.election.backoff.max.ms", _NO_KRAFT),
    Unsupported("controller.quorum.election.timeout.ms", _NO_KRAFT),
    Unsupported("controller.quorum.fetch.max.bytes", _NO_KRAFT),
    Unsupported("controller.quorum.fetch.snapshot.max.bytes", _NO_KRAFT),
    Unsupported("controller.quorum.fetch.timeout.ms", _NO_KRAFT),
    Unsupported("controller.quorum.request.timeout.ms", _NO_KRAFT),
    Unsupported("controller.quorum.retry.backoff.ms", _NO_KRAFT),
    Unsupported("early.start.listeners", _NO_KRAFT, harmless=("",)),
    Unsupported("initial.broker.registration.timeout.ms", _NO_KRAFT, "zookeeper.connection.timeout.ms limits the wait at start"),
    Unsupported("metadata.log.dir", _NO_KRAFT),
    Unsupported("metadata.log.max.record.bytes.between.snapshots", _NO_KRAFT),
    Unsupported("metadata.log.max.snapshot.interval.ms", _NO_KRAFT),
    Unsupported("metadata.log.segment.bytes", _NO_KRAFT),
    Unsupported("metadata.log.segment.ms", _NO_KRAFT),
    Unsupported("metadata.max.idle.interval.ms", _NO_KRAFT),
    Unsupported("metadata.max.retention.bytes", _NO_KRAFT),
    Unsupported("metadata.max.retention.ms", _NO_KRAFT),
    Unsupported("sasl.mechanism.controller.protocol", _NO_KRAFT, "brokers log in to each other by sasl.mechanism.inter.broker.protocol"),
    Unsupported("zookeeper.metadata.migration.enable", _NO_KRAFT, harmless=("false",)),
    # Remote storage.
    Unsupported("follower.fetch.last.tiered.offset.enable", _NO_REMOTE, harmless=("false",)),
    Unsupported("log.local.retention.bytes", _NO_REMOTE, "log.retention.bytes limits what is kept", harmless=("-2",)),
    Unsupported("log.local.retention.ms", _NO_REMOTE, "log.retention.ms limits what is kept", harmless=("-2",)),
    Unsupported("remote.fetch.max.wait.ms", _NO_REMOTE),
    Unsupported("remote.list.offsets.request.timeout.ms", _NO_REMOTE),
    Unsupported("remote.log.index.file.cache.total.size.bytes", _NO_REMOTE),
    Unsupported("remote.log.manager.copier.thread.pool.size", _NO_REMOTE),
    Unsupported("remote.log.manager.copy.max.bytes.per.second", _NO_REMOTE),
    Unsupported("remote.log.manager.copy.quota.window.num", _NO_REMOTE),
    Unsupported("remote.log.manager.copy.quota.window.size.seconds", _NO_REMOTE),
    Unsupported("remote.log.manager.expiration.thread.pool.size", _NO_REMOTE),
    Unsupported("remote.log.manager.fetch.max.bytes.per.second", _NO_REMOTE),
    Unsupported("remote.log.manager.fetch.quota.window.num", _NO_REMOTE),
    Unsupported("remote.log.manager.fetch.quota.window.size.seconds", _NO_REMOTE),
    Unsupported("remote.log.manager.follower.thread.pool.size", _NO_REMOTE),
    Unsupported("remote.log.manager.task.interval.ms", _NO_REMOTE),
    Unsupported("remote.log.manager.thread.pool.size", _NO_REMOTE),
    Unsupported("remote.log.metadata.custom.metadata.max.bytes", _NO_REMOTE),
    Unsupported("remote.log.metadata.manager.class.name", _NO_REMOTE),
    Unsupported("remote.log.metadata.manager.class.path", _NO_REMOTE),
    Unsupported("remote.log.metadata.manager.impl.prefix", _NO_REMOTE),
    Unsupported("remote.log.metadata.manager.listener.name", _NO_REMOTE),
    Unsupported("remote.log.reader.max.pending.tasks", _NO_REMOTE),
    Unsupported("remote.log.reader.threads", _NO_REMOTE),
    Unsupported("remote.log.storage.manager.class.name", _NO_REMOTE),
    Unsupported("remote.log.storage.manager.class.path", _NO_REMOTE),
    Unsupported("remote.log.storage.manager.impl.prefix", _NO_REMOTE),
    Unsupported("remote.log.storage.system.enable", _NO_REMOTE, harmless=("false",)),
    Unsupported("rlmm.config.*", _NO_REMOTE),
    Unsupported("rsm.config.*", _NO_REMOTE),
    # What Kafka itself has dropped.
    Unsupported("advertised.host.name", "Kafka dropped it in 3.0", _USE_ADVERTISED),
    Unsupported("advertised.port", "Kafka dropped it in 3.0", _USE_ADVERTISED),
    Unsupported("control.plane.listener.name", "orders of the controller come over the listener between brokers", "use inter.broker.listener.name"),
    Unsupported("host.name", "Kafka dropped it in 3.0", _USE_LISTENERS),
    Unsupported("port", "Kafka dropped it in 3.0", _USE_LISTENERS),
    Unsupported("log.message.timestamp.difference.max.ms", "Kafka dropped it in 4.0", "use log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms"),
    Unsupported("quota.consumer.default", "Kafka dropped it in 3.0", "set a default quota for clients with the quota tools"),
    Unsupported("quota.producer.default", "Kafka dropped it in 3.0", "set a default quota for clients with the quota tools"),
    Unsupported("replica.lag.max.messages", "counting messages takes a burst for a lagging replica", "use replica.lag.time.max.ms"),
    # ZooKeeper beyond the address.
    Unsupported("zookeeper.clientCnxnSocket", _NO_JAVA, harmless=("",)),
    Unsupported("zookeeper.set.acl", "nodes in ZooKeeper get no ACLs yet", "keep ZooKeeper on a network of its own", harmless=("false",)),
    Unsupported("zookeeper.ssl.client.enable", _NO_ZK_TLS, "keep ZooKeeper on a network of its own", harmless=("false",)),
    Unsupported("zookeeper.ssl.*", _NO_ZK_TLS, "keep ZooKeeper on a network of its own"),
    # What Kafka knows and does not document.
    Unsupported("controller.performance.always.log.threshold.ms", _INTERNAL),
    Unsupported("controller.performance.sample.period.ms", _INTERNAL),
    Unsupported("group.consumer.regex.refresh.interval.ms", _INTERNAL),
    Unsupported("group.share.initialize.retry.interval.ms", _INTERNAL),
    Unsupported("group.share.persister.class.name", _INTERNAL),
    Unsupported("internal.metadata.delete.delay.millis", _INTERNAL),
    Unsupported("internal.metadata.log.segment.bytes", _INTERNAL),
    Unsupported("internal.metadata.max.batch.size.in.bytes", _INTERNAL),
    Unsupported("log.initial.task.delay.ms", _INTERNAL),
    Unsupported("producer.id.expiration.check.interval.ms", _INTERNAL),
    Unsupported("server.max.startup.time.ms", _INTERNAL),
    Unsupported("share.coordinator.cold.partition.snapshot.interval.ms", _INTERNAL),
    Unsupported("share.coordinator.state.topic.prune.interval.ms", _INTERNAL),
    Unsupported("unclean.leader.election.interval.ms", _INTERNAL),
    Unsupported("unstable.api.versions.enable", _INTERNAL),
    Unsupported("unstable.feature.versions.enable", _INTERNAL),
    Unsupported("remote.log.index.file.cache.ttl.ms", _NO_REMOTE),
    Unsupported("remote.log.manager.task.retry.backoff.max.ms", _NO_REMOTE),
    Unsupported("remote.log.manager.task.retry.backoff.ms", _NO_REMOTE),
    Unsupported("remote.log.manager.task.retry.jitter", _NO_REMOTE),
)

TOPIC: Final = (
    Unsupported("local.retention.bytes", _NO_REMOTE, "use retention.bytes", harmless=("-2",)),
    Unsupported("local.retention.ms", _NO_REMOTE, "use retention.ms", harmless=("-2",)),
    Unsupported("message.timestamp.difference.max.ms", "Kafka dropped it in 4.0", "use message.timestamp.before.max.ms and message.timestamp.after.max.ms"),
    Unsupported("internal.segment.bytes", _INTERNAL, "use segment.bytes"),
    Unsupported("remote.log.copy.disable", _NO_REMOTE, harmless=("false",)),
    Unsupported("remote.log.delete.on.disable", _NO_REMOTE, harmless=("false",)),
    Unsupported("remote.storage.enable", _NO_REMOTE, harmless=("false",)),
)

# Clients: plugins, and names of other libraries that people bring along.
_CLIENT: Final = (
    *_EVERYWHERE,
    Unsupported("metadata.broker.list", "it is another library's name", "use bootstrap.servers"),
    Unsupported("sasl.mechanisms", "it is another library's name", "use sasl.mechanism"),
    Unsupported("socket.timeout.ms", "it is another library's name", "use request.timeout.ms"),
    Unsupported("ssl.ca.location", "it is another library's name", "use ssl.truststore.location, a PEM file as well"),
    Unsupported("ssl.certificate.location", "it is another library's name", "use ssl.keystore.location, with key and certificate in one PEM file"),
    Unsupported("ssl.key.location", "it is another library's name", "use ssl.keystore.location, with key and certificate in one PEM file"),
)

PRODUCER: Final = (
    *_CLIENT,
    Unsupported("interceptor.classes", _NO_JAVA, "wrap the producer in Python", harmless=("",)),
    Unsupported("key.serializer", _NO_JAVA, "hand the producer a Python function as its key_serializer"),
    Unsupported("partitioner.class", _NO_JAVA, "hand the producer a Python function as its partitioner", harmless=("",)),
    Unsupported("value.serializer", _NO_JAVA, "hand the producer a Python function as its value_serializer"),
    Unsupported("block.on.buffer.full", "Kafka dropped it long ago", "use max.block.ms"),
    Unsupported("message.timeout.ms", "it is another library's name", "use delivery.timeout.ms"),
    Unsupported("metadata.fetch.timeout.ms", "Kafka dropped it long ago", "use max.block.ms"),
    Unsupported("queue.buffering.max.kbytes", "it is another library's name", "use buffer.memory, which is in bytes"),
    Unsupported("queue.buffering.max.ms", "it is another library's name", "use linger.ms"),
    Unsupported("request.required.acks", "it is another library's name", "use acks"),
    Unsupported("timeout.ms", "Kafka dropped it long ago", "use request.timeout.ms"),
)

CONSUMER: Final = (
    *_CLIENT,
    Unsupported("internal.throw.on.fetch.stable.offset.unsupported", _INTERNAL),
    Unsupported("interceptor.classes", _NO_JAVA, "wrap the consumer in Python", harmless=("",)),
    Unsupported("key.deserializer", _NO_JAVA, "hand the consumer a Python function as its key deserializer"),
    Unsupported("value.deserializer", _NO_JAVA, "hand the consumer a Python function as its value deserializer"),
    Unsupported("enable.auto.offset.store", "it is another library's name", "turn enable.auto.commit off and commit what is done"),
    Unsupported("fetch.message.max.bytes", "it is another library's name", "use max.partition.fetch.bytes"),
    Unsupported("fetch.wait.max.ms", "it is another library's name", "use fetch.max.wait.ms"),
    Unsupported("zookeeper.connect", "consumers talk to brokers alone", "use bootstrap.servers"),
)

ADMIN: Final = (
    *_CLIENT,
    Unsupported("bootstrap.controllers", "controllers have no listeners of their own", "use bootstrap.servers", harmless=("",)),
)
# fmt: on
