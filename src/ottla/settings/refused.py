# ruff: noqa: E501 - a row reads best on one line.
"""Settings of Kafka that Ottla does not have, each with the reason and what there is instead.

Invariant: a refused setting stops the start, so nobody believes in a protection, a plugin or a
limit that is not there. The value is never looked up, loaded, or shown.
"""

from typing import Final

from ottla.settings.table import Refused

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
    Refused("config.providers", _NO_JAVA, "write values out, or let what starts Ottla fill them in", harmless=("",)),
    Refused("config.providers.*", _NO_JAVA, "write values out, or let what starts Ottla fill them in"),
    Refused("metric.reporters", _NO_JAVA, _USE_METRICS, harmless=("",)),
    Refused("sasl.client.callback.handler.class", _NO_JAVA, "give credentials in sasl.jaas.config", harmless=("",)),
    Refused("sasl.login.callback.handler.class", _NO_JAVA, "for OAUTHBEARER set sasl.oauthbearer.token.endpoint.url",
        harmless=("", f"{_OAUTH}OAuthBearerLoginCallbackHandler", f"{_OAUTH}secured.OAuthBearerLoginCallbackHandler")),
    Refused("sasl.login.class", _NO_JAVA, harmless=("",)),
    Refused("sasl.kerberos.kinit.cmd", _NO_KERBEROS, _USE_SCRAM),
    Refused("sasl.kerberos.min.time.before.relogin", _NO_KERBEROS, _USE_SCRAM),
    Refused("sasl.kerberos.service.name", _NO_KERBEROS, _USE_SCRAM),
    Refused("sasl.kerberos.ticket.renew.jitter", _NO_KERBEROS, _USE_SCRAM),
    Refused("sasl.kerberos.ticket.renew.window.factor", _NO_KERBEROS, _USE_SCRAM),
    Refused("sasl.oauthbearer.assertion.algorithm", _NO_SIGNING, _USE_SIGNED),
    Refused("sasl.oauthbearer.assertion.claim.aud", _NO_SIGNING, _USE_SIGNED),
    Refused("sasl.oauthbearer.assertion.claim.exp.seconds", _NO_SIGNING, _USE_SIGNED),
    Refused("sasl.oauthbearer.assertion.claim.iss", _NO_SIGNING, _USE_SIGNED),
    Refused("sasl.oauthbearer.assertion.claim.jti.include", _NO_SIGNING, _USE_SIGNED),
    Refused("sasl.oauthbearer.assertion.claim.nbf.seconds", _NO_SIGNING, _USE_SIGNED),
    Refused("sasl.oauthbearer.assertion.claim.sub", _NO_SIGNING, _USE_SIGNED),
    Refused("sasl.oauthbearer.assertion.private.key.file", _NO_SIGNING, _USE_SIGNED),
    Refused("sasl.oauthbearer.assertion.private.key.passphrase", _NO_SIGNING, _USE_SIGNED),
    Refused("sasl.oauthbearer.assertion.template.file", _NO_SIGNING, _USE_SIGNED),
    Refused("sasl.oauthbearer.jwt.retriever.class", _NO_JAVA, "what is set decides where tokens come from: the token endpoint with a secret or an assertion",
        harmless=("", f"{_OAUTH}DefaultJwtRetriever")),
    Refused("sasl.oauthbearer.jwt.validator.class", _NO_JAVA, "brokers check tokens against sasl.oauthbearer.jwks.endpoint.url",
        harmless=("", f"{_OAUTH}DefaultJwtValidator")),
    Refused("security.providers", _NO_JAVA, harmless=("",)),
    Refused("ssl.engine.factory.class", _NO_JAVA, "give PEM files in ssl.keystore.location and ssl.truststore.location", harmless=("",)),
    Refused("ssl.keystore.password", _PEM_ONLY, "an encrypted key is opened by ssl.key.password"),
    Refused("ssl.provider", "TLS is OpenSSL's, not Java's", harmless=("",)),
    Refused("ssl.truststore.password", _PEM_ONLY, "certificates in PEM are not secret and need none"),
)

BROKER: Final = (
    *_EVERYWHERE,
    # Plugins.
    Refused("alter.config.policy.class.name", _NO_JAVA, "ACLs say who may alter settings", harmless=("",)),
    Refused("client.quota.callback.class", _NO_JAVA, "quotas per user and client id are built in", harmless=("",)),
    Refused("create.topic.policy.class.name", _NO_JAVA, "ottla.topic.name.policy says which names are allowed", harmless=("",)),
    Refused("kafka.metrics.reporters", _NO_JAVA, _USE_METRICS, harmless=("",)),
    Refused("principal.builder.class", _NO_JAVA, "ssl.principal.mapping.rules turns certificates into names",
        harmless=("", "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder")),
    Refused("sasl.server.callback.handler.class", _NO_JAVA, "users and their passwords are kept by the cluster, for OAUTHBEARER set sasl.oauthbearer.jwks.endpoint.url",
        harmless=("", f"{_OAUTH}OAuthBearerValidatorCallbackHandler", f"{_OAUTH}secured.OAuthBearerValidatorCallbackHandler")),
    # Kerberos, delegation tokens, streams groups.
    Refused("sasl.kerberos.principal.to.local.rules", _NO_KERBEROS, _USE_SCRAM),
    Refused("delegation.token.expiry.check.interval.ms", _NO_TOKENS, _USE_SCRAM),
    Refused("delegation.token.expiry.time.ms", _NO_TOKENS, _USE_SCRAM),
    Refused("delegation.token.master.key", _NO_TOKENS, _USE_SCRAM),
    Refused("delegation.token.max.lifetime.ms", _NO_TOKENS, _USE_SCRAM),
    Refused("delegation.token.secret.key", _NO_TOKENS, _USE_SCRAM),
    Refused("group.streams.assignment.interval.ms", _NO_STREAMS),
    Refused("group.streams.heartbeat.interval.ms", _NO_STREAMS),
    Refused("group.streams.initial.rebalance.delay.ms", _NO_STREAMS),
    Refused("group.streams.max.assignment.interval.ms", _NO_STREAMS),
    Refused("group.streams.max.heartbeat.interval.ms", _NO_STREAMS),
    Refused("group.streams.max.session.timeout.ms", _NO_STREAMS),
    Refused("group.streams.max.size", _NO_STREAMS),
    Refused("group.streams.max.standby.replicas", _NO_STREAMS),
    Refused("group.streams.min.assignment.interval.ms", _NO_STREAMS),
    Refused("group.streams.min.heartbeat.interval.ms", _NO_STREAMS),
    Refused("group.streams.min.session.timeout.ms", _NO_STREAMS),
    Refused("group.streams.num.standby.replicas", _NO_STREAMS),
    Refused("group.streams.session.timeout.ms", _NO_STREAMS),
    # KRaft.
    Refused("broker.heartbeat.interval.ms", _NO_KRAFT, _USE_SESSION),
    Refused("broker.session.timeout.ms", _NO_KRAFT, _USE_SESSION),
    Refused("controller.quorum.append.linger.ms", _NO_KRAFT),
    Refused("controller.quorum.auto.join.enable", _NO_KRAFT, harmless=("false",)),
    Refused("controller.quorum.election.backoff.max.ms", _NO_KRAFT),
    Refused("controller.quorum.election.timeout.ms", _NO_KRAFT),
    Refused("controller.quorum.fetch.max.bytes", _NO_KRAFT),
    Refused("controller.quorum.fetch.snapshot.max.bytes", _NO_KRAFT),
    Refused("controller.quorum.fetch.timeout.ms", _NO_KRAFT),
    Refused("controller.quorum.request.timeout.ms", _NO_KRAFT),
    Refused("controller.quorum.retry.backoff.ms", _NO_KRAFT),
    Refused("early.start.listeners", _NO_KRAFT, harmless=("",)),
    Refused("initial.broker.registration.timeout.ms", _NO_KRAFT, "zookeeper.connection.timeout.ms limits the wait at start"),
    Refused("metadata.log.dir", _NO_KRAFT),
    Refused("metadata.log.max.record.bytes.between.snapshots", _NO_KRAFT),
    Refused("metadata.log.max.snapshot.interval.ms", _NO_KRAFT),
    Refused("metadata.log.segment.bytes", _NO_KRAFT),
    Refused("metadata.log.segment.ms", _NO_KRAFT),
    Refused("metadata.max.idle.interval.ms", _NO_KRAFT),
    Refused("metadata.max.retention.bytes", _NO_KRAFT),
    Refused("metadata.max.retention.ms", _NO_KRAFT),
    Refused("sasl.mechanism.controller.protocol", _NO_KRAFT, "brokers log in to each other by sasl.mechanism.inter.broker.protocol"),
    Refused("zookeeper.metadata.migration.enable", _NO_KRAFT, harmless=("false",)),
    # Remote storage.
    Refused("follower.fetch.last.tiered.offset.enable", _NO_REMOTE, harmless=("false",)),
    Refused("log.local.retention.bytes", _NO_REMOTE, "log.retention.bytes limits what is kept", harmless=("-2",)),
    Refused("log.local.retention.ms", _NO_REMOTE, "log.retention.ms limits what is kept", harmless=("-2",)),
    Refused("remote.fetch.max.wait.ms", _NO_REMOTE),
    Refused("remote.list.offsets.request.timeout.ms", _NO_REMOTE),
    Refused("remote.log.index.file.cache.total.size.bytes", _NO_REMOTE),
    Refused("remote.log.manager.copier.thread.pool.size", _NO_REMOTE),
    Refused("remote.log.manager.copy.max.bytes.per.second", _NO_REMOTE),
    Refused("remote.log.manager.copy.quota.window.num", _NO_REMOTE),
    Refused("remote.log.manager.copy.quota.window.size.seconds", _NO_REMOTE),
    Refused("remote.log.manager.expiration.thread.pool.size", _NO_REMOTE),
    Refused("remote.log.manager.fetch.max.bytes.per.second", _NO_REMOTE),
    Refused("remote.log.manager.fetch.quota.window.num", _NO_REMOTE),
    Refused("remote.log.manager.fetch.quota.window.size.seconds", _NO_REMOTE),
    Refused("remote.log.manager.follower.thread.pool.size", _NO_REMOTE),
    Refused("remote.log.manager.task.interval.ms", _NO_REMOTE),
    Refused("remote.log.manager.thread.pool.size", _NO_REMOTE),
    Refused("remote.log.metadata.custom.metadata.max.bytes", _NO_REMOTE),
    Refused("remote.log.metadata.manager.class.name", _NO_REMOTE),
    Refused("remote.log.metadata.manager.class.path", _NO_REMOTE),
    Refused("remote.log.metadata.manager.impl.prefix", _NO_REMOTE),
    Refused("remote.log.metadata.manager.listener.name", _NO_REMOTE),
    Refused("remote.log.reader.max.pending.tasks", _NO_REMOTE),
    Refused("remote.log.reader.threads", _NO_REMOTE),
    Refused("remote.log.storage.manager.class.name", _NO_REMOTE),
    Refused("remote.log.storage.manager.class.path", _NO_REMOTE),
    Refused("remote.log.storage.manager.impl.prefix", _NO_REMOTE),
    Refused("remote.log.storage.system.enable", _NO_REMOTE, harmless=("false",)),
    Refused("rlmm.config.*", _NO_REMOTE),
    Refused("rsm.config.*", _NO_REMOTE),
    # What Kafka itself has dropped.
    Refused("advertised.host.name", "Kafka dropped it in 3.0", _USE_ADVERTISED),
    Refused("advertised.port", "Kafka dropped it in 3.0", _USE_ADVERTISED),
    Refused("control.plane.listener.name", "orders of the controller come over the listener between brokers", "use inter.broker.listener.name"),
    Refused("host.name", "Kafka dropped it in 3.0", _USE_LISTENERS),
    Refused("port", "Kafka dropped it in 3.0", _USE_LISTENERS),
    Refused("log.message.timestamp.difference.max.ms", "Kafka dropped it in 4.0", "use log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms"),
    Refused("quota.consumer.default", "Kafka dropped it in 3.0", "set a default quota for clients with the quota tools"),
    Refused("quota.producer.default", "Kafka dropped it in 3.0", "set a default quota for clients with the quota tools"),
    Refused("replica.lag.max.messages", "counting messages takes a burst for a lagging replica", "use replica.lag.time.max.ms"),
    # ZooKeeper beyond the address.
    Refused("zookeeper.clientCnxnSocket", _NO_JAVA, harmless=("",)),
    Refused("zookeeper.set.acl", "nodes in ZooKeeper get no ACLs yet", "keep ZooKeeper on a network of its own", harmless=("false",)),
    Refused("zookeeper.ssl.client.enable", _NO_ZK_TLS, "keep ZooKeeper on a network of its own", harmless=("false",)),
    Refused("zookeeper.ssl.*", _NO_ZK_TLS, "keep ZooKeeper on a network of its own"),
    # What Kafka knows and does not document.
    Refused("controller.performance.always.log.threshold.ms", _INTERNAL),
    Refused("controller.performance.sample.period.ms", _INTERNAL),
    Refused("group.consumer.regex.refresh.interval.ms", _INTERNAL),
    Refused("group.share.initialize.retry.interval.ms", _INTERNAL),
    Refused("group.share.persister.class.name", _INTERNAL),
    Refused("internal.metadata.delete.delay.millis", _INTERNAL),
    Refused("internal.metadata.log.segment.bytes", _INTERNAL),
    Refused("internal.metadata.max.batch.size.in.bytes", _INTERNAL),
    Refused("log.initial.task.delay.ms", _INTERNAL),
    Refused("producer.id.expiration.check.interval.ms", _INTERNAL),
    Refused("server.max.startup.time.ms", _INTERNAL),
    Refused("share.coordinator.cold.partition.snapshot.interval.ms", _INTERNAL),
    Refused("share.coordinator.state.topic.prune.interval.ms", _INTERNAL),
    Refused("unclean.leader.election.interval.ms", _INTERNAL),
    Refused("unstable.api.versions.enable", _INTERNAL),
    Refused("unstable.feature.versions.enable", _INTERNAL),
    Refused("remote.log.index.file.cache.ttl.ms", _NO_REMOTE),
    Refused("remote.log.manager.task.retry.backoff.max.ms", _NO_REMOTE),
    Refused("remote.log.manager.task.retry.backoff.ms", _NO_REMOTE),
    Refused("remote.log.manager.task.retry.jitter", _NO_REMOTE),
)

TOPIC: Final = (
    Refused("local.retention.bytes", _NO_REMOTE, "use retention.bytes", harmless=("-2",)),
    Refused("local.retention.ms", _NO_REMOTE, "use retention.ms", harmless=("-2",)),
    Refused("message.timestamp.difference.max.ms", "Kafka dropped it in 4.0", "use message.timestamp.before.max.ms and message.timestamp.after.max.ms"),
    Refused("internal.segment.bytes", _INTERNAL, "use segment.bytes"),
    Refused("remote.log.copy.disable", _NO_REMOTE, harmless=("false",)),
    Refused("remote.log.delete.on.disable", _NO_REMOTE, harmless=("false",)),
    Refused("remote.storage.enable", _NO_REMOTE, harmless=("false",)),
)

# Clients: plugins, and names of other libraries that people bring along.
_CLIENT: Final = (
    *_EVERYWHERE,
    Refused("metadata.broker.list", "it is another library's name", "use bootstrap.servers"),
    Refused("sasl.mechanisms", "it is another library's name", "use sasl.mechanism"),
    Refused("socket.timeout.ms", "it is another library's name", "use request.timeout.ms"),
    Refused("ssl.ca.location", "it is another library's name", "use ssl.truststore.location, a PEM file as well"),
    Refused("ssl.certificate.location", "it is another library's name", "use ssl.keystore.location, with key and certificate in one PEM file"),
    Refused("ssl.key.location", "it is another library's name", "use ssl.keystore.location, with key and certificate in one PEM file"),
)

PRODUCER: Final = (
    *_CLIENT,
    Refused("interceptor.classes", _NO_JAVA, "wrap the producer in Python", harmless=("",)),
    Refused("key.serializer", _NO_JAVA, "hand the producer a Python function as its key_serializer"),
    Refused("partitioner.class", _NO_JAVA, "hand the producer a Python function as its partitioner", harmless=("",)),
    Refused("value.serializer", _NO_JAVA, "hand the producer a Python function as its value_serializer"),
    Refused("block.on.buffer.full", "Kafka dropped it long ago", "use max.block.ms"),
    Refused("message.timeout.ms", "it is another library's name", "use delivery.timeout.ms"),
    Refused("metadata.fetch.timeout.ms", "Kafka dropped it long ago", "use max.block.ms"),
    Refused("queue.buffering.max.kbytes", "it is another library's name", "use buffer.memory, which is in bytes"),
    Refused("queue.buffering.max.ms", "it is another library's name", "use linger.ms"),
    Refused("request.required.acks", "it is another library's name", "use acks"),
    Refused("timeout.ms", "Kafka dropped it long ago", "use request.timeout.ms"),
)

CONSUMER: Final = (
    *_CLIENT,
    Refused("internal.throw.on.fetch.stable.offset.unsupported", _INTERNAL),
    Refused("interceptor.classes", _NO_JAVA, "wrap the consumer in Python", harmless=("",)),
    Refused("key.deserializer", _NO_JAVA, "hand the consumer a Python function as its key deserializer"),
    Refused("value.deserializer", _NO_JAVA, "hand the consumer a Python function as its value deserializer"),
    Refused("enable.auto.offset.store", "it is another library's name", "turn enable.auto.commit off and commit what is done"),
    Refused("fetch.message.max.bytes", "it is another library's name", "use max.partition.fetch.bytes"),
    Refused("fetch.wait.max.ms", "it is another library's name", "use fetch.max.wait.ms"),
    Refused("zookeeper.connect", "consumers talk to brokers alone", "use bootstrap.servers"),
)

ADMIN: Final = (
    *_CLIENT,
    Refused("bootstrap.controllers", "controllers have no listeners of their own", "use bootstrap.servers", harmless=("",)),
)
# fmt: on
