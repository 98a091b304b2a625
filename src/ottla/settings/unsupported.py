# ruff: noqa: E501 - one line per row
"""Settings of Kafka that Ottla does not support, with the reason and the alternative.

Invariant: an unsupported setting is an error, so that nobody relies on a protection, a plugin or a
limit that does not exist. Its value is never loaded or shown. A broker setting whose absence
weakens nothing belongs into `ignored`: it must not stop the start of a broker.
"""

from typing import Final

from ottla.settings.config_def import Unsupported

_NO_JAVA: Final = "Ottla cannot load Java classes"
_NO_KERBEROS: Final = "Kerberos is not supported"
_NO_KRAFT: Final = (
    "Ottla has no KRaft quorum; it uses ZooKeeper, or embedded coordination on a single broker"
)
_NO_REMOTE: Final = "tiered storage is not supported"
_NO_SIGNING: Final = "Ottla does not sign assertions"
_INTERNAL: Final = "undocumented internal setting of Kafka"
_NO_ZK_TLS: Final = "TLS to ZooKeeper is not supported"
_PEM_ONLY: Final = "Ottla supports PEM only, which has no store password"
_NO_QUOTAS: Final = "client quotas are not supported yet"

_USE_TRUST: Final = "remove the setting and use a trusted network"
_USE_SCRAM: Final = "use SASL with SCRAM-SHA-512 or OAUTHBEARER"
_USE_METRICS: Final = "scrape the metrics over HTTP (ottla.metrics.listener)"
_USE_SIGNED: Final = "sign the assertion externally and set sasl.oauthbearer.assertion.file"
_USE_LIMITS: Final = (
    "remove the setting; max.connections.per.ip and max.connection.creation.rate limit connections"
)
_USE_LISTENERS: Final = "use listeners, for example PLAINTEXT://host:port"
_USE_ADVERTISED: Final = "use advertised.listeners, for example PLAINTEXT://host:port"

_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer."

# fmt: off
# Brokers and clients: plugins, Java features.
_EVERYWHERE: Final = (
    Unsupported("config.providers", _NO_JAVA, "write the values into the file, or substitute them before the start", harmless=("",)),
    Unsupported("config.providers.*", _NO_JAVA, "write the values into the file, or substitute them before the start"),
    Unsupported("sasl.client.callback.handler.class", _NO_JAVA, "set the credentials in sasl.jaas.config", harmless=("",)),
    Unsupported("sasl.login.callback.handler.class", _NO_JAVA, "for OAUTHBEARER set sasl.oauthbearer.token.endpoint.url",
        harmless=("", f"{_OAUTH}OAuthBearerLoginCallbackHandler", f"{_OAUTH}secured.OAuthBearerLoginCallbackHandler")),
    Unsupported("sasl.login.class", _NO_JAVA, harmless=("",)),
    Unsupported("sasl.oauthbearer.jwt.retriever.class", _NO_JAVA, "Ottla uses the token endpoint with a client secret or an assertion, depending on the settings",
        harmless=("", f"{_OAUTH}DefaultJwtRetriever")),
    Unsupported("sasl.oauthbearer.jwt.validator.class", _NO_JAVA, "brokers validate tokens with sasl.oauthbearer.jwks.endpoint.url",
        harmless=("", f"{_OAUTH}DefaultJwtValidator")),
    Unsupported("security.providers", _NO_JAVA, harmless=("",)),
    Unsupported("ssl.engine.factory.class", _NO_JAVA, "use PEM files in ssl.keystore.location and ssl.truststore.location", harmless=("",)),
    Unsupported("ssl.provider", "Ottla uses OpenSSL instead of Java's TLS", harmless=("",)),
)

BROKER: Final = (
    *_EVERYWHERE,
    # Plugins.
    Unsupported("alter.config.policy.class.name", _NO_JAVA, _USE_TRUST, harmless=("",)),
    Unsupported("client.quota.callback.class", _NO_QUOTAS, _USE_LIMITS, harmless=("",)),
    Unsupported("create.topic.policy.class.name", _NO_JAVA, "use ottla.topic.name.policy to restrict topic names", harmless=("",)),
    Unsupported("principal.builder.class", _NO_JAVA, _USE_TRUST,
        harmless=("", "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder")),
    Unsupported("sasl.server.callback.handler.class", _NO_JAVA, _USE_TRUST,
        harmless=("", f"{_OAUTH}OAuthBearerValidatorCallbackHandler", f"{_OAUTH}secured.OAuthBearerValidatorCallbackHandler")),
    # KRaft and tiered storage.
    Unsupported("zookeeper.metadata.migration.enable", _NO_KRAFT, harmless=("false",)),
    Unsupported("remote.log.storage.system.enable", _NO_REMOTE, harmless=("false",)),
    # Removed from Kafka.
    Unsupported("advertised.host.name", "removed in Kafka 3.0", _USE_ADVERTISED),
    Unsupported("advertised.port", "removed in Kafka 3.0", _USE_ADVERTISED),
    Unsupported("host.name", "removed in Kafka 3.0", _USE_LISTENERS),
    Unsupported("port", "removed in Kafka 3.0", _USE_LISTENERS),
    Unsupported("log.message.timestamp.difference.max.ms", "removed in Kafka 4.0", "use log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms", harmless=("9223372036854775807",)),
    Unsupported("quota.consumer.default", _NO_QUOTAS, _USE_LIMITS, harmless=("9223372036854775807",)),
    Unsupported("quota.producer.default", _NO_QUOTAS, _USE_LIMITS, harmless=("9223372036854775807",)),
    # ZooKeeper client.
    Unsupported("zookeeper.set.acl", "ACLs on znodes are not supported yet", "run ZooKeeper on a separate network", harmless=("false",)),
    Unsupported("zookeeper.ssl.client.enable", _NO_ZK_TLS, "run ZooKeeper on a separate network", harmless=("false",)),
    Unsupported("zookeeper.ssl.*", _NO_ZK_TLS, "run ZooKeeper on a separate network"),
)

TOPIC: Final = (
    Unsupported("local.retention.bytes", _NO_REMOTE, "use retention.bytes", harmless=("-2",)),
    Unsupported("local.retention.ms", _NO_REMOTE, "use retention.ms", harmless=("-2",)),
    Unsupported("message.timestamp.difference.max.ms", "removed in Kafka 4.0", "use message.timestamp.before.max.ms and message.timestamp.after.max.ms"),
    Unsupported("internal.segment.bytes", _INTERNAL, "use segment.bytes"),
    Unsupported("remote.log.copy.disable", _NO_REMOTE, harmless=("false",)),
    Unsupported("remote.log.delete.on.disable", _NO_REMOTE, harmless=("false",)),
    Unsupported("remote.storage.enable", _NO_REMOTE, harmless=("false",)),
)

# Clients: what brokers ignore, and settings of other libraries.
_CLIENT: Final = (
    *_EVERYWHERE,
    Unsupported("metric.reporters", _NO_JAVA, _USE_METRICS, harmless=("",)),
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
    Unsupported("ssl.keystore.password", _PEM_ONLY, "use ssl.key.password for an encrypted key"),
    Unsupported("ssl.truststore.password", _PEM_ONLY, "certificates in PEM need no password"),
    Unsupported("metadata.broker.list", "setting of another client library", "use bootstrap.servers"),
    Unsupported("sasl.mechanisms", "setting of another client library", "use sasl.mechanism"),
    Unsupported("socket.timeout.ms", "setting of another client library", "use request.timeout.ms"),
    Unsupported("ssl.ca.location", "setting of another client library", "use ssl.truststore.location with the PEM file"),
    Unsupported("ssl.certificate.location", "setting of another client library", "use ssl.keystore.location with key and certificate in one PEM file"),
    Unsupported("ssl.key.location", "setting of another client library", "use ssl.keystore.location with key and certificate in one PEM file"),
)

PRODUCER: Final = (
    *_CLIENT,
    Unsupported("interceptor.classes", _NO_JAVA, "wrap the producer in Python code", harmless=("",)),
    Unsupported("key.serializer", _NO_JAVA, "pass a Python function as key_serializer"),
    Unsupported("partitioner.class", _NO_JAVA, "pass a Python function as partitioner", harmless=("",)),
    Unsupported("value.serializer", _NO_JAVA, "pass a Python function as value_serializer"),
    Unsupported("block.on.buffer.full", "removed from Kafka", "use max.block.ms"),
    Unsupported("message.timeout.ms", "setting of another client library", "use delivery.timeout.ms"),
    Unsupported("metadata.fetch.timeout.ms", "removed from Kafka", "use max.block.ms"),
    Unsupported("queue.buffering.max.kbytes", "setting of another client library", "use buffer.memory (in bytes)"),
    Unsupported("queue.buffering.max.ms", "setting of another client library", "use linger.ms"),
    Unsupported("request.required.acks", "setting of another client library", "use acks"),
    Unsupported("timeout.ms", "removed from Kafka", "use request.timeout.ms"),
)

CONSUMER: Final = (
    *_CLIENT,
    Unsupported("internal.throw.on.fetch.stable.offset.unsupported", _INTERNAL),
    Unsupported("interceptor.classes", _NO_JAVA, "wrap the consumer in Python code", harmless=("",)),
    Unsupported("key.deserializer", _NO_JAVA, "pass a Python function as key_deserializer"),
    Unsupported("value.deserializer", _NO_JAVA, "pass a Python function as value_deserializer"),
    Unsupported("enable.auto.offset.store", "setting of another client library", "set enable.auto.commit=false and commit processed offsets"),
    Unsupported("fetch.message.max.bytes", "setting of another client library", "use max.partition.fetch.bytes"),
    Unsupported("fetch.wait.max.ms", "setting of another client library", "use fetch.max.wait.ms"),
    Unsupported("zookeeper.connect", "consumers connect to brokers only", "use bootstrap.servers"),
)

ADMIN: Final = (
    *_CLIENT,
    Unsupported("bootstrap.controllers", "controllers have no listeners", "use bootstrap.servers", harmless=("",)),
)
# fmt: on
