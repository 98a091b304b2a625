"""One Kafka for all tests of a process that need no special settings.

It starts with the first test that uses the fixture `shared_kafka` and keeps its ports. Every test
uses its own names for topics, groups and users, and resets what it changes for all.

- Topics are created on demand, with three partitions, and keep records of any age.
- Clients without a login may do everything, and so may `alice`, `ann`, `carol` and the TLS client.
  Other users need ACLs. `alice` and `ann` have SCRAM passwords; tests add more users.
- There is a listener of each kind, with its certificates: `LISTENERS`.
- Sessions and heartbeats of consumer groups may be as short as tests need.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from certificates import Authority
from judges.kafka_broker import KafkaBroker
from kafka_java import kafka_broker
from ottla.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PASSWORD: Final = "alice, her=secret"
SCRAM_PASSWORD: Final = "scram-secret"
ANNS_PASSWORD: Final = "her-secret"
SESSION_MS: Final = 3000
"""The lifetime of a login on the listener BRIEF."""

LISTENERS: Final = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "ELSEWHERE": "SSL",
    "SASL": "SASL_PLAINTEXT",
    "BOTH": "SASL_SSL",
    "BRIEF": "SASL_PLAINTEXT",
    "SCRAMONLY": "SASL_PLAINTEXT",
}
"""ELSEWHERE has the certificate of another host; MUTUAL requires a client certificate."""

_UPGRADE, _SAFE_DOWNGRADE = 1, 2
_JAAS = "org.apache.kafka.common.security"
_GROUPS: dict[str, object] = {
    "group.min.session.timeout.ms": 100,
    "group.consumer.min.heartbeat.interval.ms": 50,
    "group.consumer.heartbeat.interval.ms": 50,
    "group.consumer.min.session.timeout.ms": 500,
    "group.consumer.session.timeout.ms": 6000,
    "group.consumer.assignment.interval.ms": 0,
}


@dataclass(frozen=True)
class SharedKafka:
    """The broker with its certificates."""

    broker: KafkaBroker
    authority: Authority
    client: Path
    """A certificate for the listener MUTUAL."""

    directories: tuple[str, str]

    @property
    def bootstrap(self) -> str:
        """Its address for clients without a login."""
        return self.broker.bootstrap


@contextmanager
def started(folder: Path) -> Generator[SharedKafka]:
    """A running broker, with its certificates and data in a directory."""
    authority = Authority(folder)
    directories = str(folder / "first"), str(folder / "second")
    settings = {
        **_GROUPS,
        **_security(authority),
        "auto.create.topics.enable": "true",
        "num.partitions": 3,
        "log.dirs": ",".join(directories),
        "log.retention.ms": -1,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
    }
    users = [
        word
        for name, password in (("alice", SCRAM_PASSWORD), ("ann", ANNS_PASSWORD))
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for word in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
    ]
    with kafka_broker(
        settings, listeners=LISTENERS, formatting=tuple(users), keeps_ports=True
    ) as broker:
        yield SharedKafka(broker, authority, authority.issue("client"), directories)


@contextmanager
def explicit_transactions(broker: KafkaBroker) -> Generator[None]:
    """Require producers to add partitions to a transaction before they write: transaction.version
    1.
    """
    _update_transactions(broker, 1, _SAFE_DOWNGRADE)
    yield
    _update_transactions(broker, 2, _UPGRADE)


def _update_transactions(broker: KafkaBroker, level: int, kind: int) -> None:
    update = FeatureUpdateKey(
        feature="transaction.version", max_version_level=level, upgrade_type=kind
    )
    with broker.wire() as wire:
        request = UpdateFeaturesRequest(feature_updates=[update])
        answer = wire.ask(request, 1, UpdateFeaturesResponse)
    assert answer.error_code == 0, answer.error_message


def _security(authority: Authority) -> dict[str, object]:
    settings: dict[str, object] = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice;User:ann;User:carol;User:CN=client",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.issue("broker", "IP:127.0.0.1", "DNS:localhost"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.path,
        "listener.name.elsewhere.ssl.keystore.location": authority.issue(
            "elsewhere", "DNS:elsewhere.example"
        ),
        "listener.name.elsewhere.ssl.keystore.type": "PEM",
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.scramonly.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.brief.connections.max.reauth.ms": SESSION_MS,
    }
    for mechanism in MECHANISMS:
        settings[f"listener.name.brief.{mechanism.lower()}.connections.max.reauth.ms"] = SESSION_MS
    for listener in ("sasl", "both", "brief", "scramonly"):
        of = f"listener.name.{listener}"
        settings |= {
            f"{of}.plain.sasl.jaas.config": (
                f'{_JAAS}.plain.PlainLoginModule required user_alice="{PASSWORD}";'
            ),
            f"{of}.scram-sha-256.sasl.jaas.config": f"{_JAAS}.scram.ScramLoginModule required;",
            f"{of}.scram-sha-512.sasl.jaas.config": f"{_JAAS}.scram.ScramLoginModule required;",
            f"{of}.oauthbearer.sasl.jaas.config": (
                f"{_JAAS}.oauthbearer.OAuthBearerLoginModule required "
                'unsecuredLoginStringClaim_sub="broker";'
            ),
        }
    return settings
