# ruff: noqa: E501 - messages are compared as they are printed.
import pytest

from cases import each_case
from ottla.settings import broker, connection, consumer, producer, security, topic
from ottla.settings.admin import ADMIN
from ottla.settings.broker import BROKER
from ottla.settings.config import Config
from ottla.settings.config_def import CLUSTER_WIDE, PER_BROKER
from ottla.settings.config_parser import (
    broker_config,
    client_config,
    dynamic_config,
    resolve,
    topic_overrides,
)
from ottla.settings.config_types import Secret
from ottla.settings.consumer import CONSUMER
from ottla.settings.invalid_settings import InvalidSettings
from ottla.settings.producer import PRODUCER
from ottla.settings.properties import read_properties

# Kafka 4's config/server.properties without comments.
KAFKA_4_FILE = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
KAFKA_3_FILE = """\
broker.id=0
num.network.threads=3
num.io.threads=8
log.dirs=/tmp/kafka-logs
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""


def read(text: str, *overrides: str) -> Config:
    return broker_config(read_properties(text, "server.properties"), overrides)


def future(text: str) -> Config:
    """Read a file without the checks for what Ottla does not support yet."""
    return resolve(BROKER, read_properties(text, "server.properties").entries)


def problems(text: str, *overrides: str) -> list[str]:
    with pytest.raises(InvalidSettings) as caught:
        read(text, *overrides)
    assert str(caught.value).splitlines() == [str(each) for each in caught.value.problems]
    return str(caught.value).splitlines()


def client_problems(settings: dict[str, object], table: object = PRODUCER) -> list[str]:
    assert table in (PRODUCER, CONSUMER, ADMIN)
    with pytest.raises(InvalidSettings) as caught:
        client_config(table, settings)  # pyright: ignore[reportArgumentType]
    return str(caught.value).splitlines()


def test_properties_file_of_kafka_4_works_with_warnings() -> None:
    config = read(KAFKA_4_FILE)
    assert config[broker.NODE_ID] == 1
    assert [str(each).split(": ignored")[0] for each in config.notices] == [
        "server.properties:1: process.roles",
        "server.properties:3: controller.quorum.bootstrap.servers",
        "server.properties:9: num.network.threads",
        "server.properties:10: num.io.threads",
    ]


def test_properties_file_of_kafka_3_works_with_warnings() -> None:
    config = read(KAFKA_3_FILE)
    assert config[broker.ZOOKEEPER_CONNECT] == "localhost:2181"
    assert [each.name for each in config.notices] == [
        "num.network.threads",
        "num.io.threads",
    ]


def test_empty_config_has_defaults() -> None:
    config = broker_config()
    assert config[broker.LISTENERS] == ("PLAINTEXT://127.0.0.1:9092",)
    assert config[broker.NUM_PARTITIONS] == 1
    assert not config.notices


def test_every_problem_of_a_file_is_reported_at_once() -> None:
    assert problems(
        "num.partitions=zero\n"
        "\n"
        "log.segment.bytes=5\n"
        "auto.create.topics.enable=yes\n"
        "num.partition=3\n"
        "create.topic.policy.class.name=com.example.Policy\n"
        "broker.rack=\\u12\n"
        "offsets.topic.replication.factor=40000\n"
        "authorizer.class.name=kafka.security.authorizer.AclAuthorizer\n"
        "zookeeper.connect=zk1:2181,zk2:\n",
        "compression.type=zip",
        "nonsense",
    ) == [
        'server.properties:1: num.partitions: invalid value "zero": expected an integer of at least 1',
        'server.properties:3: log.segment.bytes: invalid value "5": expected an integer of at least 1048576',
        'server.properties:4: auto.create.topics.enable: invalid value "yes": expected boolean, true or false',
        "server.properties:5: num.partition: unknown setting, did you mean num.partitions?",
        (
            "server.properties:6: create.topic.policy.class.name: not supported: Ottla cannot load "
            "Java classes; use ottla.topic.name.policy to restrict topic names"
        ),
        "server.properties:7: broker.rack: malformed \\uXXXX: expected four hexadecimal digits",
        (
            'server.properties:8: offsets.topic.replication.factor: invalid value "40000" '
            "(out of range for type short): expected an integer of at least 1"
        ),
        (
            "server.properties:9: authorizer.class.name: ACLs are not supported yet; remove the "
            "setting and use a trusted network"
        ),
        (
            'server.properties:10: zookeeper.connect: invalid value "zk1:2181,zk2:": expected '
            "string, host:port,host:port,.../path"
        ),
        "--override: expected key=value",
        (
            '--override: compression.type: invalid value "zip": expected string, [uncompressed, zstd, lz4, '
            "snappy, gzip, producer]"
        ),
    ]


def test_override_takes_precedence_over_the_file() -> None:
    config = read("num.partitions=zero", "num.partitions=3", "num.partitions = 4")
    assert config[broker.NUM_PARTITIONS] == 4
    assert str(config.origin(broker.NUM_PARTITIONS)) == "--override"


def test_parser_warnings_are_included() -> None:
    config = read("num.partitions=2\nnum.partitions=3")
    assert config[broker.NUM_PARTITIONS] == 3
    assert [str(each) for each in config.notices] == [
        "server.properties:2: num.partitions: set twice, in lines 1 and 2; the last value applies"
    ]


@each_case(
    ("name", "hint"),
    [
        (
            "retention.ms",
            "topic setting, not valid for the broker; the broker setting is log.retention.ms",
        ),
        ("linger.ms", "producer setting, not valid for the broker"),
        ("Num.Partitions", "unknown setting, did you mean num.partitions?"),
        ("log_dirs", "unknown setting, did you mean log.dirs?"),
        ("zookeeper.conect", "unknown setting, did you mean zookeeper.connect?"),
        ("entirely.different", "unknown setting"),
    ],
)
def test_unknown_names(name: str, hint: str) -> None:
    assert problems(f"{name}=hunter2") == [f"server.properties:1: {name}: {hint}"]


@each_case(
    "line",
    [
        "ssl.key.passwrd=hunter2",
        "listener.name.plaintext.ssl.key.pasword=hunter2",
        "zookeeper.ssl.keystore.password=hunter2",
        "ssl.keystore.key=hunter2",  # without its certificate
    ],
)
def test_problems_contain_no_secrets(line: str) -> None:
    assert problems(line)
    assert "hunter2" not in "\n".join(problems(line))


@each_case(
    "line",
    [
        "ssl.keystore.password=hunter2",
        "delegation.token.secret.key=hunter2",
        "confluent.license=hunter2",
        "password.encoder.secret=hunter2",
    ],
)
def test_warnings_contain_no_secrets(line: str) -> None:
    config = read(line)
    (notice,) = config.notices
    assert "hunter2" not in str(notice)
    assert "hunter2" not in str(config.given)


@each_case(
    ("line", "reason"),
    [
        ("sasl.kerberos.service.name=kafka", "Kerberos is not supported"),
        ("controller.quorum.election.timeout.ms=5", "no KRaft quorum"),
        ("group.streams.max.size=5", "streams groups are not supported"),
        ("rlmm.config.x=5", "tiered storage is not supported"),
        ("metric.reporters=com.example.Reporter", "Java classes"),
        ("confluent.balancer.enable=true", "not a setting of Apache Kafka"),
        ("num.io.threads=many", "one event loop"),  # a value that Kafka would refuse
        ("replica.lag.max.messages=4000", "replica.lag.time.max.ms"),
    ],
)
def test_settings_without_effect_only_warn(line: str, reason: str) -> None:
    (notice,) = read(line).notices
    assert notice.what.startswith("ignored: ")
    assert reason in notice.what
    assert str(notice).startswith(f"server.properties:1: {line.partition('=')[0]}: ")


def test_secret_of_the_wrong_type_is_not_shown() -> None:
    found = client_problems({"bootstrap.servers": "a:1", "ssl.key.password": b"hunter2"})
    assert found == ["ssl.key.password: invalid value [hidden]: expected password"]


def test_described_values_have_a_maximum_length() -> None:
    long = "x" * 32_768
    (told,) = problems(f"advertised.listeners=PLAINTEXT://{long}:1")
    assert told.endswith("value is longer than 32,767 bytes")
    broker_config(overrides=[f"ssl.truststore.certificates={long}"])
    config = client_config(CONSUMER, {"bootstrap.servers": "a:1", "client.id": long})
    assert config[connection.CLIENT_ID] == long


def test_found_values_are_short_and_on_one_line() -> None:
    (problem,) = problems("num.partitions=" + "a\\nb\\u001b" * 1000)
    assert len(problem) < 300
    assert "\n" not in problem
    assert "\x1b" not in problem


@each_case(
    "line",
    [
        "remote.log.storage.system.enable=false",
        "principal.builder.class=org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "config.providers=",
        "zookeeper.set.acl=false",
        "quota.producer.default=9223372036854775807",
    ],
)
def test_harmless_values_of_unsupported_settings(line: str) -> None:
    config = read(line)
    assert not config.notices
    assert not config.given


@each_case(
    ("line", "reason"),
    [
        ("remote.log.storage.system.enable=true", "tiered storage is not supported"),
        ("principal.builder.class=com.example.Builder", "Java classes"),
        ("zookeeper.ssl.client.enable=true", "TLS to ZooKeeper"),
        ("zookeeper.ssl.truststore.type=PEM", "TLS to ZooKeeper"),
        ("host.name=a", "use listeners"),
        ("advertised.port=9092", "use advertised.listeners"),
        ("create.topic.policy.class.name=a.B", "ottla.topic.name.policy"),
        ("quota.producer.default=1048576", "client quotas are not supported yet"),
    ],
)
def test_unsupported_settings_give_the_reason(line: str, reason: str) -> None:
    (problem,) = problems(line)
    assert "not supported: " in problem
    assert reason in problem


@each_case(
    ("line", "value"),
    [
        ("authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "acl"),
        ("authorizer.class.name=kafka.security.authorizer.AclAuthorizer", "acl"),
        ("authorizer.class.name=acl", "acl"),
        ("authorizer.class.name=", ""),
    ],
)
def test_kafka_authorizer_classes_are_aliases(line: str, value: str) -> None:
    assert future(line)[broker.AUTHORIZER_CLASS_NAME] == value


def test_unknown_authorizer_is_rejected() -> None:
    [refused] = problems("authorizer.class.name=com.example.AllowAll")
    assert "ACLs are not supported yet" in refused


def test_kafka_replica_selector_class_is_an_alias() -> None:
    line = "replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector"
    assert read(line)[broker.REPLICA_SELECTOR_CLASS] == "rack-aware"


def test_assignors_by_short_and_by_java_names() -> None:
    java = "org.apache.kafka.clients.consumer."
    strategy = f"{java}CooperativeStickyAssignor,range,{java}RangeAssignor, roundrobin"
    given = {"bootstrap.servers": "a:1", "partition.assignment.strategy": strategy}
    config = client_config(CONSUMER, given)
    assert config[consumer.PARTITION_ASSIGNMENT_STRATEGY] == (
        "cooperative-sticky",
        "range",
        "roundrobin",
    )
    assert client_problems({**given, "partition.assignment.strategy": "com.example.Mine"}, CONSUMER)


def test_settings_of_one_listener() -> None:
    config = future(
        "listeners=INTERNAL://127.0.0.1:9092,EXTERNAL://127.0.0.1:9093\n"
        "listener.security.protocol.map=INTERNAL:SSL,EXTERNAL:SASL_SSL\n"
        "inter.broker.listener.name=INTERNAL\n"
        "ssl.keystore.location=/all.pem\n"
        "listener.name.internal.ssl.keystore.location=/internal.pem\n"
        "listener.name.EXTERNAL.sasl.enabled.mechanisms=plain,scram-sha-256\n"
        "listener.name.external.sasl.jaas.config=listener\n"
        "listener.name.external.scram-sha-256.sasl.jaas.config=mechanism\n"
        "listener.name.external.max.connections=7\n"
    )
    assert config[security.SSL_KEYSTORE_LOCATION] == "/all.pem"
    assert config.listener("INTERNAL")[security.SSL_KEYSTORE_LOCATION] == "/internal.pem"
    external = config.listener("External")
    assert external[security.SSL_KEYSTORE_LOCATION] == "/all.pem"
    assert external[broker.SASL_ENABLED_MECHANISMS] == ("PLAIN", "SCRAM-SHA-256")
    assert external[broker.MAX_CONNECTIONS] == 7
    assert external[security.SASL_JAAS_CONFIG] == Secret("listener")
    scram = config.listener("EXTERNAL", "SCRAM-SHA-256")
    assert scram[security.SASL_JAAS_CONFIG] == Secret("mechanism")
    assert config[security.SASL_JAAS_CONFIG] is None


@each_case(
    ("name", "what"),
    [
        (
            "listener.name.plaintext.num.partitions",
            "num.partitions cannot be set per listener",
        ),
        (
            "listener.name.plaintext.ssl.keystore.loction",
            "unknown listener setting, did you mean ssl.keystore.location?",
        ),
        ("listener.name.plaintext", "unknown setting"),
        (
            "listener.name.other.max.connections",
            'unknown listener "other": expected one of [plaintext]',
        ),
    ],
)
def test_invalid_listener_settings(name: str, what: str) -> None:
    assert problems(f"{name}=1") == [f"server.properties:1: {name}: {what}"]


def test_only_sasl_settings_can_be_set_per_mechanism() -> None:
    (problem,) = problems("listener.name.plaintext.plain.ssl.key.password=hunter2")
    assert problem.endswith("ssl.key.password cannot be set per SASL mechanism")
    config = read("listener.name.plaintext.plain.connections.max.reauth.ms=5")
    assert config.listener("PLAINTEXT", "PLAIN")[broker.CONNECTIONS_MAX_REAUTH_MS] == 5
    assert config.listener("PLAINTEXT")[broker.CONNECTIONS_MAX_REAUTH_MS] == 0


def test_invalid_listener_value_names_full_setting() -> None:
    (problem,) = problems("listener.name.plaintext.max.connections=-5")
    assert problem == (
        'server.properties:1: listener.name.plaintext.max.connections: invalid value "-5": expected an integer of at least 0'
    )


def test_ignored_setting_is_ignored_per_listener() -> None:
    (notice,) = read("listener.name.plaintext.num.network.threads=3").notices
    assert notice.name == "listener.name.plaintext.num.network.threads"


def test_client_config_from_names_and_keywords() -> None:
    config = client_config(
        PRODUCER,
        {"bootstrap.servers": ["a:1", "b:2"], "linger.ms": "7"},
        acks=1,
        batch_size=10,
        transactional_id=None,
        enable_idempotence=False,
    )
    assert config[connection.BOOTSTRAP_SERVERS] == ("a:1", "b:2")
    assert config[producer.LINGER_MS] == 7
    assert config[producer.ACKS] == "1"
    assert config[producer.BATCH_SIZE] == 10
    assert config[producer.TRANSACTIONAL_ID] is None
    assert config[producer.ENABLE_IDEMPOTENCE] is False


def test_unknown_client_setting_gets_a_hint() -> None:
    assert client_problems({"bootstrap.servers": "a:1", "linger.msec": 5}) == [
        "linger.msec: unknown setting, did you mean linger.ms?"
    ]
    assert client_problems({"bootstrap.servers": "a:1", "group.id": "g"}) == [
        "group.id: consumer setting, not valid for the producer"
    ]
    assert client_problems({"bootstrap.servers": "a:1", "sasl.mechanisms": "PLAIN"}) == [
        "sasl.mechanisms: not supported: setting of another client library; use sasl.mechanism"
    ]


def test_missing_required_setting_is_reported() -> None:
    assert client_problems({}) == [
        "bootstrap.servers: required setting is missing: expected a non-empty list"
    ]
    assert client_problems({"bootstrap.servers": ""}) == [
        'bootstrap.servers: invalid value "": expected a non-empty list'
    ]


def test_setting_by_name_and_keyword_is_rejected() -> None:
    with pytest.raises(
        InvalidSettings, match=r"linger\.ms: set twice, also as keyword argument linger_ms"
    ):
        client_config(PRODUCER, {"linger.ms": 5}, linger_ms=6, bootstrap_servers="a:1")


def test_none_is_rejected_where_null_is_invalid() -> None:
    assert client_problems({"bootstrap.servers": "a:1", "linger.ms": None}) == [
        'linger.ms: invalid value "None": expected an integer of at least 0'
    ]


def test_java_serializers_are_unsupported() -> None:
    name = "org.apache.kafka.common.serialization.StringSerializer"
    (problem,) = client_problems({"bootstrap.servers": "a:1", "key.serializer": name})
    assert "pass a Python function" in problem


def test_client_config_from_a_properties_file() -> None:
    entries = read_properties("bootstrap.servers=a:1\nlinger.ms=x", "client.properties").entries
    with pytest.raises(InvalidSettings, match=r'client.properties:2: linger.ms: invalid value "x"'):
        resolve(PRODUCER, entries)


def test_topic_overrides_are_validated() -> None:
    overrides = topic_overrides({"retention.ms": "-1", "cleanup.policy": "compact,delete"})
    assert overrides[topic.RETENTION_MS] == -1
    assert overrides[topic.CLEANUP_POLICY] == ("compact", "delete")
    with pytest.raises(
        InvalidSettings,
        match=r"retention\.ms: invalid value \"-2\": expected an integer of at least -1",
    ):
        topic_overrides({"retention.ms": "-2"})
    with pytest.raises(InvalidSettings, match=r"remote\.storage\.enable: not supported"):
        topic_overrides({"remote.storage.enable": "true"})
    assert not topic_overrides({"remote.storage.enable": "false"}).given


def test_broker_setting_hints_at_the_topic_setting() -> None:
    with pytest.raises(InvalidSettings) as caught:
        topic_overrides({"log.retention.hours": "1"})
    assert str(caught.value) == (
        "log.retention.hours: broker setting, not valid for the topic; "
        "the topic setting is retention.ms"
    )


@each_case(
    ("line", "valid"),
    [
        ("ottla.topic.name.policy={env}.{team}.{name},test-{name}", True),
        ("ottla.topic.name.policy=", True),
        ("ottla.topic.name.policy={env:dev|prod}.{team}.{name}", True),
        ("ottla.topic.name.policy={env.{team}", False),
        ("ottla.topic.name.policy={env:}.{team}", False),
        ("ottla.topic.name.policy={env:dev||prod}.{team}", False),
        ("ottla.topic.name.policy={:dev}.{team}", False),
        ("ottla.topic.name.policy={env:de v}.{team}", False),
        ("ottla.topic.name.policy={}", False),
        ("ottla.topic.name.policy={env} {team}", False),
        ("ottla.metrics.listener=127.0.0.1:9192", True),
        ("ottla.metrics.listener=[::1]:9192", True),
        ("ottla.metrics.listener=:9192", True),
        ("ottla.metrics.listener=", True),
        ("ottla.metrics.listener=9192", False),
        ("ottla.metrics.listener=http://127.0.0.1:9192", False),
        ("ottla.metrics.listener=::1:9192", False),
        ("sasl.oauthbearer.jwks.endpoint.url=https://keys.example/jwks", True),
        ("sasl.oauthbearer.jwks.endpoint.url=file:///etc/passwd", False),
        ("zookeeper.connect=localhost:2181/kafka/one", True),
        ("zookeeper.connect=a:2181,,b:2181", False),
        ("max.connections.per.ip.overrides=a:1, [::1]:2", True),
        ("max.connections.per.ip.overrides=a", False),
        (f"max.connections.per.ip.overrides=a:{1:05000}", False),
        ("super.users=User:a;User:CN=b,O=c", True),
        ("super.users=a", False),
        ("listener.security.protocol.map=PLAINTEXT", False),
        ("ssl.keystore.type=JKS", False),
        ("ssl.enabled.protocols=TLSv1.1,TLSv1.2", False),
        ("sasl.enabled.mechanisms=GSSAPI", False),
        ("group.coordinator.rebalance.protocols=classic,consumer,share", True),
        ("group.coordinator.rebalance.protocols=classic,streams", False),
        ("log.retention.hours=0", False),
        ("log.cleanup.policy=", True),
    ],
)
def test_forms_of_single_settings(line: str, valid: bool) -> None:
    if valid:
        assert line.partition("=")[0] in read(line).given
    else:
        (problem,) = problems(line)
        assert problem.startswith(f"server.properties:1: {line.partition('=')[0]}: invalid value ")


def test_only_dynamic_settings_change_at_runtime() -> None:
    assert dynamic_config({"log.retention.ms": "5"}, CLUSTER_WIDE)[broker.LOG_RETENTION_MS] == 5
    assert dynamic_config({"log.retention.ms": "5"}, PER_BROKER)[broker.LOG_RETENTION_MS] == 5
    own = dynamic_config({"listener.name.a.ssl.keystore.location": "/a.pem"}, PER_BROKER)
    assert own.listener("a")[security.SSL_KEYSTORE_LOCATION] == "/a.pem"
    with pytest.raises(InvalidSettings, match="only be changed for a single broker"):
        dynamic_config({"ssl.keystore.location": "/a.pem"}, CLUSTER_WIDE)
    with pytest.raises(InvalidSettings, match="restart"):
        dynamic_config({"num.partitions": "5"}, PER_BROKER)
    with pytest.raises(
        InvalidSettings,
        match=r'log\.retention\.ms: invalid value "0": expected an integer of at least 1, or -1',
    ):
        dynamic_config({"log.retention.ms": "0"}, CLUSTER_WIDE)


def test_number_of_hints_is_limited() -> None:
    """A search for the nearest name is slow, and clients send names, too."""
    with pytest.raises(InvalidSettings) as raised:
        topic_overrides({f"min.insync.replica{number}": "1" for number in range(50)})
    hints = [problem for problem in raised.value.problems if "did you mean" in problem.what]
    assert len(raised.value.problems) == 50
    assert len(hints) == 10


def test_problem_is_one_line_for_any_name() -> None:
    with pytest.raises(InvalidSettings) as raised:
        broker_config(read_properties("a\\u000ab\\u001b[31m=1\n" + "x" * 5000 + "=2\n", "f"))
    lines = str(raised.value).splitlines()
    assert len(lines) == 2
    assert "\x1b" not in lines[0]
    assert all(len(line) < 200 for line in lines)
