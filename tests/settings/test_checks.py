# ruff: noqa: E501 - messages are compared as they are printed.
import pytest

from cases import each_case
from ottla.settings.admin import ADMIN
from ottla.settings.broker import BROKER
from ottla.settings.checks import CHECKS, findings
from ottla.settings.config import Config, Given
from ottla.settings.config_def import ConfigDef
from ottla.settings.config_parser import (
    TABLES,
    broker_config,
    client_config,
    resolve,
    topic_overrides,
)
from ottla.settings.consumer import CONSUMER
from ottla.settings.invalid_settings import InvalidSettings
from ottla.settings.producer import PRODUCER
from ottla.settings.properties import read_properties

SASL = "sasl.enabled.mechanisms=PLAIN"


def broker_problems(*lines: str) -> list[str]:
    try:
        broker_config(read_properties("\n".join(lines), "f"))
    except InvalidSettings as error:
        return str(error).splitlines()
    return []


def future_problems(*lines: str) -> list[str]:
    """Return the problems apart from those that Ottla does not support yet."""
    try:
        resolve(BROKER, read_properties("\n".join(lines), "f").entries)
    except InvalidSettings as error:
        return str(error).splitlines()
    return []


def broker_notices(*lines: str) -> list[str]:
    return [str(each) for each in broker_config(read_properties("\n".join(lines), "f")).notices]


def client_problems(table: ConfigDef, **given: object) -> list[str]:
    try:
        client_config(table, bootstrap_servers="a:1", **given)
    except InvalidSettings as error:
        return str(error).splitlines()
    return []


@each_case("table", TABLES, ids=lambda table: table.scope)
def test_defaults_are_consistent(table: ConfigDef) -> None:
    given = {"bootstrap.servers": Given(("a:1",))} if "bootstrap.servers" in table.settings else {}
    assert not list(findings(Config(table, given)))
    assert CHECKS[table.scope]


def test_node_id_and_broker_id_must_be_equal() -> None:
    assert broker_problems("node.id=1", "broker.id=2") == [
        'f:2: broker.id: invalid value "2": must equal node.id, which is 1'
    ]
    assert not broker_problems("node.id=2", "broker.id=2")


@each_case(
    ("low", "high", "strict"),
    [
        ("group.min.session.timeout.ms", "group.max.session.timeout.ms", False),
        ("group.consumer.min.session.timeout.ms", "group.consumer.session.timeout.ms", False),
        ("group.consumer.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms", False),
        ("group.share.assignment.interval.ms", "group.share.max.assignment.interval.ms", False),
        ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms", False),
        ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms", False),
        ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms", False),
        ("connection.failed.authentication.delay.ms", "connections.max.idle.ms", True),
    ],
)
def test_limits_must_be_in_order(low: str, high: str, strict: bool) -> None:
    # Use values that satisfy all other checks, so that only one problem remains.
    wrong = broker_problems(f"{low}=12000", f"{high}=11000")
    relation = "less than" if strict else "at most"
    problem = f'invalid value "12000": must be {relation} {high}, which is 11000'
    assert f"f:1: {low}: {problem}" in wrong
    equal = broker_problems(f"{low}=11000", f"{high}=11000")
    assert any(f"f:1: {low}:" in each and high in each for each in equal) is strict


def test_problem_has_line_of_the_explicit_setting() -> None:
    assert broker_problems("# max only", "group.max.session.timeout.ms=100") == [
        (
            'f:2: group.max.session.timeout.ms: invalid value "100": must be at least '
            "group.min.session.timeout.ms, which is 6000"
        )
    ]


def test_invalid_value_is_reported_once() -> None:
    assert broker_problems(
        "group.max.session.timeout.ms=x", "group.min.session.timeout.ms=1900000"
    ) == ['f:1: group.max.session.timeout.ms: invalid value "x": expected an integer of at least 1']


def test_dedupe_buffer_has_a_minimum_per_cleaner() -> None:
    assert broker_problems("log.cleaner.dedupe.buffer.size=1048575") == [
        (
            'f:1: log.cleaner.dedupe.buffer.size: invalid value "1048575": must be at least 1048576, '
            "which is 1048576 for each of log.cleaner.threads"
        )
    ]
    assert broker_problems("log.cleaner.dedupe.buffer.size=1048576", "log.cleaner.threads=2")
    assert not broker_problems("log.cleaner.dedupe.buffer.size=2097152", "log.cleaner.threads=2")
    assert not broker_problems("log.cleaner.dedupe.buffer.size=1", "log.cleaner.threads=0")


def test_load_factor_must_be_in_range() -> None:
    for wrong in ("0.0", "1.5", "-1.0"):
        (problem,) = broker_problems(f"log.cleaner.io.buffer.load.factor={wrong}")
        assert problem.endswith(f'invalid value "{wrong}": must be greater than 0 and at most 1')
    assert not broker_problems("log.cleaner.io.buffer.load.factor=1")


def test_min_isr_above_replication_factor_warns() -> None:
    (notice,) = broker_notices("min.insync.replicas=2")
    assert notice.startswith("f:1: min.insync.replicas: 2 exceeds default.replication.factor")
    assert not resolve(
        BROKER,
        read_properties("min.insync.replicas=2\ndefault.replication.factor=3", "f").entries,
    ).notices


def test_settings_that_count_on_other_brokers_warn() -> None:
    notices = broker_notices(
        "default.replication.factor=3",
        "min.insync.replicas=2",
        "offsets.topic.replication.factor=3",
        "transaction.state.log.replication.factor=1",
    )
    factor = (
        "f:1: default.replication.factor: 3 exceeds the number of brokers, which is 1: creating a "
        "topic fails unless the request has a replication factor"
    )
    assert notices == [
        factor,
        "f:2: min.insync.replicas: no effect with a single broker: acks=all waits for one replica",
        "f:3: offsets.topic.replication.factor: no effect with a single broker: 1 applies",
    ]


def test_settings_of_features_to_come_warn() -> None:
    assert broker_notices(
        "ssl.client.auth=required",
        "ssl.truststore.location=trust.pem",
        "sasl.enabled.mechanisms=PLAIN",
        "transaction.max.timeout.ms=5",
        "transaction.state.log.min.isr=1",
        "quota.window.num=3",
        "group.share.max.size=7",
        "num.replica.fetchers=3",
    ) == [
        "f:1: ssl.client.auth: no effect: TLS is not supported yet",
        "f:2: ssl.truststore.location: no effect: TLS is not supported yet",
        "f:3: sasl.enabled.mechanisms: no effect: SASL is not supported yet",
        "f:4: transaction.max.timeout.ms: no effect: transactions are not supported yet",
        "f:6: quota.window.num: no effect: quotas are not supported yet",
        "f:7: group.share.max.size: no effect: share groups are not supported yet",
    ]


def test_super_users_without_authorizer_warn() -> None:
    (notice,) = broker_notices("super.users=User:admin")
    assert notice == (
        "f:1: super.users: no effect, because authorizer.class.name is empty: all requests are allowed"
    )
    acl = read_properties("super.users=User:admin\nauthorizer.class.name=acl", "f").entries
    assert not resolve(BROKER, acl).notices


@each_case(
    ("lines", "problem"),
    [
        (
            ["listeners=nonsense"],
            'f:1: listeners: invalid value "nonsense" (not name://host:port): expected name://host:port,...',
        ),
        (
            ["listeners=INTERNAL://a:1"],
            (
                'f:1: listeners: invalid value "INTERNAL://a:1" (INTERNAL is not in '
                "listener.security.protocol.map): expected name://host:port,..."
            ),
        ),
        (
            ["listener.security.protocol.map=A:TLS"],
            (
                'f:1: listener.security.protocol.map: invalid value "A:TLS" (TLS is not one of PLAINTEXT, '
                "SSL, SASL_PLAINTEXT, SASL_SSL): expected name:protocol,name:protocol,..."
            ),
        ),
        (
            ["listener.security.protocol.map=A:SSL,A:PLAINTEXT"],
            (
                'f:1: listener.security.protocol.map: invalid value "A:SSL,A:PLAINTEXT" (A has two '
                "protocols): expected name:protocol,name:protocol,..."
            ),
        ),
        (
            ["listeners=PLAINTEXT://a:1,plaintext://a:2"],
            "f:1: listeners: duplicate listener name PLAINTEXT",
        ),
        (
            ["listeners=PLAINTEXT://a:1,SASL_PLAINTEXT://:1", SASL],
            "f:1: listeners: PLAINTEXT://a:1 and SASL_PLAINTEXT://:1 have the same port",
        ),
        (
            [
                "listeners=PLAINTEXT://0.0.0.0:1,SASL_PLAINTEXT://127.0.0.1:1",
                "advertised.listeners=PLAINTEXT://a:1",
                SASL,
            ],
            "f:1: listeners: PLAINTEXT://0.0.0.0:1 and SASL_PLAINTEXT://127.0.0.1:1 have the same port",
        ),
        (
            ["listeners=PLAINTEXT://0.0.0.0:1"],
            (
                "f:1: listeners: clients cannot connect to PLAINTEXT://0.0.0.0:1; set "
                "advertised.listeners to a host name or address of this broker"
            ),
        ),
        (
            ["listeners=PLAINTEXT://:1", "advertised.listeners=PLAINTEXT://[::]:1"],
            (
                "f:2: advertised.listeners: clients cannot connect to PLAINTEXT://[::]:1; set "
                "advertised.listeners to a host name or address of this broker"
            ),
        ),
        (
            ["advertised.listeners=SASL_PLAINTEXT://a:1"],
            "f:1: advertised.listeners: SASL_PLAINTEXT is not one of listeners",
        ),
        (
            ["advertised.listeners=a:1"],
            'f:1: advertised.listeners: invalid value "a:1" (not name://host:port): expected name://host:port,...',
        ),
        (
            ["controller.listener.names=PLAINTEXT"],
            "f:1: listeners: controller.listener.names contains all listeners of the broker",
        ),
        (
            ["inter.broker.listener.name=PLAINTEXT", "security.inter.broker.protocol=PLAINTEXT"],
            (
                "f:1: inter.broker.listener.name: conflicts with security.inter.broker.protocol; "
                "set only one of them"
            ),
        ),
        (
            ["inter.broker.listener.name=INTERNAL"],
            (
                "f:1: inter.broker.listener.name: no inter-broker listener: expected one of "
                "[PLAINTEXT]"
            ),
        ),
        (
            ["listeners=SASL_PLAINTEXT://a:1", "sasl.enabled.mechanisms=PLAIN,OAUTHBEARER"],
            (
                "f:2: sasl.mechanism.inter.broker.protocol: not set: expected one of "
                "sasl.enabled.mechanisms [PLAIN, OAUTHBEARER]"
            ),
        ),
        (
            [
                "listeners=SASL_PLAINTEXT://a:1",
                SASL,
                "sasl.mechanism.inter.broker.protocol=OAUTHBEARER",
            ],
            (
                'f:3: sasl.mechanism.inter.broker.protocol: invalid value "OAUTHBEARER": expected one '
                "of sasl.enabled.mechanisms [PLAIN]"
            ),
        ),
        (
            ["ssl.keystore.key=k"],
            "f:1: ssl.keystore.key: requires ssl.keystore.certificate.chain",
        ),
        (
            ["ssl.keystore.certificate.chain=c"],
            "f:1: ssl.keystore.certificate.chain: requires ssl.keystore.key",
        ),
        (
            ["ssl.truststore.certificates=c", "ssl.truststore.location=/t.pem"],
            (
                "f:1: ssl.truststore.certificates: conflicts with ssl.truststore.location; set only "
                "one of them"
            ),
        ),
    ],
)
def test_listeners_that_cannot_work(lines: list[str], problem: str) -> None:
    assert future_problems(*lines) == [problem]


@each_case(
    "lines",
    [
        ["listeners=PLAINTEXT://a:0,SASL_PLAINTEXT://a:0", SASL],
        ["listeners=PLAINTEXT://127.0.0.1:1,SASL_PLAINTEXT://[::1]:1", SASL],
        ["listeners=PLAINTEXT://a:1,SASL_PLAINTEXT://b:1", SASL],
        ["listeners=SSL://a:1", "ssl.keystore.location=/k.pem"],
        ["listeners=SSL://a:1", "ssl.keystore.key=k", "ssl.keystore.certificate.chain=c"],
        ["listeners=SSL://a:1", "listener.name.ssl.ssl.keystore.location=/k.pem"],
        ["listeners=PLAINTEXT://0.0.0.0:1", "advertised.listeners=PLAINTEXT://a:1"],
        [
            "listeners=PLAINTEXT://0.0.0.0:1,SASL_PLAINTEXT://[::1]:1",
            "advertised.listeners=PLAINTEXT://a:1",
            SASL,
        ],
    ],
)
def test_listeners_that_work(lines: list[str]) -> None:
    assert not future_problems(*lines)


@each_case(
    ("lines", "problems"),
    [
        (["listeners=SSL://a:1"], ["f:1: listeners: listener SSL: SSL"]),
        (
            [
                "listeners=A://a:1",
                "listener.security.protocol.map=A:SASL_SSL",
                "inter.broker.listener.name=a",
                "advertised.listeners=A://b:1",
                "sasl.enabled.mechanisms=GSSAPI",
            ],
            [
                "f:1: listeners: listener A: SASL_SSL",
                "f:3: inter.broker.listener.name: listener A: SASL_SSL",
                "f:4: advertised.listeners: listener A: SASL_SSL",
                "f:5: sasl.enabled.mechanisms: invalid value",
            ],
        ),
        (
            [
                "listeners=SSL://0.0.0.0:1",
                "security.inter.broker.protocol=SSL",
                "ssl.keystore.type=JKS",
            ],
            [
                "f:1: listeners: listener SSL: SSL",
                "f:1: listeners: clients cannot connect to SSL://0.0.0.0:1",
                "f:2: security.inter.broker.protocol: SSL",
                "f:3: ssl.keystore.type: invalid value",
            ],
        ),
        (["authorizer.class.name=acl"], ["f:1: authorizer.class.name: ACLs"]),
        (
            ["authorizer.class.name=acl", "listener.security.protocol.map=A:B"],
            ["f:1: authorizer.class.name: ACLs", "f:2: listener.security.protocol.map: invalid"],
        ),
        (["zookeeper.connect=zk1:port"], ['f:1: zookeeper.connect: invalid value "zk1:port"']),
        (["process.roles=controller"], ['f:1: process.roles: invalid value "controller"']),
        (
            ["controller.quorum.voters=1@a:9093,2@b:9093,3@c:9093"],
            ["f:1: controller.quorum.voters: Ottla has no KRaft quorum; set zookeeper.connect"],
        ),
        (
            ["controller.quorum.bootstrap.servers=a:9093,b:9093"],
            ["f:1: controller.quorum.bootstrap.servers: Ottla has no KRaft quorum; set zookeeper"],
        ),
    ],
)
def test_what_is_not_supported_yet_is_refused_at_once(
    lines: list[str], problems: list[str]
) -> None:
    found = broker_problems(*lines)
    assert [one[: len(expected)] for one, expected in zip(found, problems, strict=True)] == problems


@each_case(
    "line",
    [
        "process.roles=broker,controller",
        "controller.quorum.voters=1@a:9093",
        "controller.quorum.bootstrap.servers=a:9093",
    ],
)
def test_settings_of_a_cluster_of_one_only_warn(line: str) -> None:
    (notice,) = broker_notices(line)
    assert notice.startswith(f"f:1: {line.partition('=')[0]}: ignored: ")


@each_case(
    "servers",
    ["localhost", "zk1:2181,zk2:2181, zk3:2181/kafka", "127.0.0.1:2181/kafka/a", "[::1]:2181"],
)
def test_settings_of_several_brokers_fit_zookeeper(servers: str) -> None:
    lines = (
        "default.replication.factor=3",
        "min.insync.replicas=2",
        "offsets.topic.replication.factor=3",
    )
    assert not broker_notices(f"zookeeper.connect={servers}", *lines)
    assert len(broker_notices(*lines)) == 3  # a single broker


def test_controller_listener_may_use_tls() -> None:
    assert not broker_problems(
        "listeners=PLAINTEXT://a:1,CONTROLLER://a:2",
        "controller.listener.names=CONTROLLER",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:SSL",
    )


def test_settings_of_a_listener_that_is_not_open_only_warn() -> None:
    (notice,) = broker_notices("listener.name.sasl_ssl.ssl.client.auth=required")
    assert notice == (
        "f:1: listener.name.sasl_ssl.ssl.client.auth: no effect, because listeners does not contain sasl_ssl"
    )


def test_min_compaction_lag_must_not_exceed_max() -> None:
    with pytest.raises(InvalidSettings, match=r"at most max\.compaction\.lag\.ms, which is 5"):
        topic_overrides({"min.compaction.lag.ms": 6, "max.compaction.lag.ms": 5})


@each_case("table", [PRODUCER, CONSUMER, ADMIN], ids=lambda table: table.scope)
def test_sasl_requires_a_mechanism(table: ConfigDef) -> None:
    assert client_problems(table, security_protocol="sasl_ssl") == [
        (
            "sasl.mechanism: required, because security.protocol is SASL_SSL: expected (case insensitive) "
            "[PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER]"
        )
    ]
    assert not client_problems(table, security_protocol="SASL_SSL", sasl_mechanism="oauthbearer")
    assert client_problems(table, ssl_keystore_key="k")


def test_explicit_idempotence_must_be_possible() -> None:
    assert client_problems(PRODUCER, enable_idempotence=True, acks=1) == [
        "enable.idempotence: not possible, because acks is 1"
    ]
    assert client_problems(PRODUCER, transactional_id="t", acks=0) == [
        "enable.idempotence: not possible, because acks is 0"
    ]
    assert client_problems(PRODUCER, transactional_id="t", enable_idempotence=False) == [
        'enable.idempotence: invalid value "false": must be true, because transactional.id is set'
    ]
    config = client_config(PRODUCER, bootstrap_servers="a:1", acks=1)
    assert [str(each) for each in config.notices] == [
        "enable.idempotence: disabled, because acks is 1"
    ]


def test_delivery_takes_at_least_one_request() -> None:
    assert client_problems(PRODUCER, delivery_timeout_ms=30_004) == [
        (
            'delivery.timeout.ms: invalid value "30004": must be at least linger.ms plus '
            "request.timeout.ms, which is 30005"
        )
    ]
    assert not client_problems(PRODUCER, delivery_timeout_ms=30_005)
    config = client_config(PRODUCER, bootstrap_servers="a:1", request_timeout_ms=200_000)
    assert "raised to 200005" in str(config.notices[0])


def test_two_phase_commit_conflicts_with_timeout() -> None:
    two_phase = {"transactional_id": "t", "transaction_two_phase_commit_enable": True}
    assert not client_problems(PRODUCER, **two_phase)
    assert client_problems(PRODUCER, **two_phase, transaction_timeout_ms=5) == [
        (
            "transaction.timeout.ms: conflicts with transaction.two.phase.commit.enable, whose "
            "transactions have no timeout"
        )
    ]


def test_heartbeat_must_be_less_than_session_timeout() -> None:
    assert client_problems(CONSUMER, heartbeat_interval_ms=45_000) == [
        'heartbeat.interval.ms: invalid value "45000": must be less than session.timeout.ms, which is 45000'
    ]


@each_case(
    "given",
    [
        {"session_timeout_ms": 10_000},
        {"heartbeat_interval_ms": 1000},
        {"partition_assignment_strategy": "range"},
    ],
)
def test_classic_settings_conflict_with_consumer_protocol(given: dict[str, object]) -> None:
    (problem,) = client_problems(CONSUMER, group_protocol="consumer", **given)
    assert "not allowed with group.protocol=consumer: the broker configures it" in problem
    assert not client_problems(CONSUMER, group_protocol="classic", **given)


def test_remote_assignor_requires_consumer_protocol() -> None:
    assert client_problems(CONSUMER, group_remote_assignor="range")
    assert not client_problems(CONSUMER, group_remote_assignor="range", group_protocol="consumer")


def test_auto_commit_requires_a_group() -> None:
    assert client_problems(CONSUMER, enable_auto_commit=True) == [
        'enable.auto.commit: invalid value "true": must be false, because group.id is not set'
    ]
    assert not client_problems(CONSUMER, enable_auto_commit=True, group_id="g")
    assert not client_problems(CONSUMER)


def test_no_check_shows_a_secret() -> None:
    config = Config(BROKER, {"ssl.keystore.key": Given("hunter2")})
    assert all("hunter2" not in each.what for each in findings(config))


def test_too_many_listeners_are_rejected() -> None:
    names = [f"L{number}" for number in range(101)]
    listeners = ",".join(f"{name}://127.0.0.1:{9000 + at}" for at, name in enumerate(names))
    protocols = ",".join(f"{name}:PLAINTEXT" for name in names)
    text = f"listeners={listeners}\nlistener.security.protocol.map={protocols}\n"
    with pytest.raises(InvalidSettings, match="101 listeners exceed the maximum of 100"):
        broker_config(read_properties(text, "f"))


def test_duplicate_data_directory_is_rejected() -> None:
    (problem,) = broker_problems("log.dirs=/x,/y,/x/")
    assert "log.dirs" in problem
    assert '"/x/" and "/x" are the same directory' in problem
    assert broker_problems("log.dir=/x/./a,/x//a")
    assert not broker_problems("log.dirs=/x,/y")
    # Kafka accepts a duplicate entry and warns.
    (notice,) = broker_notices("log.dirs=/x,/y, /x")
    assert "log.dirs" in notice
    assert "duplicate entries are ignored: /x" in notice
