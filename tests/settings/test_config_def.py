"""The settings match Kafka's, and every row is valid."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cases import each_case
from ottla.settings import (
    admin,
    broker,
    compression,
    connection,
    consumer,
    producer,
    security,
    topic,
)
from ottla.settings.config_def import (
    REQUIRED,
    ConfigDef,
    Ignored,
    Required,
    Setting,
    Unsupported,
    in_hours,
    in_minutes,
    settings_in,
)
from ottla.settings.config_parser import TABLES
from ottla.settings.config_types import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    SHORT,
    STRING,
    BadValue,
    Secret,
)
from ottla.settings.validators import at_least


class KafkaSetting(NamedTuple):
    scope: str
    name: str
    kind: str
    default: str
    valid: str
    mode: str


LINE = re.compile(
    r"(\S+)  (\S+)  default (.*?)(?:  valid (.*?))?(?:  (read-only|per-broker|cluster-wide))?"
)
DATA = Path(__file__).with_name("kafka-4.3-settings.txt").read_text(encoding="utf-8")
SCOPES = {table.scope: table for table in TABLES}


def kafka_settings() -> Iterator[KafkaSetting]:
    scope = ""
    for line in DATA.splitlines():
        if line.startswith("# "):
            scope = line[2:]
        elif line and scope in SCOPES:
            found = LINE.fullmatch(line)
            assert found, line
            name, kind, default, valid, mode = found.groups(default="")
            yield KafkaSetting(scope, name, kind, default.strip(), valid, mode)


def kafka_fallbacks() -> dict[str, tuple[str, ...]]:
    section = DATA.split("# topic setting = broker settings it falls back to\n")[1].split("\n\n")[0]
    split = (line.split(" = ") for line in section.splitlines())
    return {name: tuple(fallbacks.split()) for name, fallbacks in split}


KAFKA = list(kafka_settings())
HONOURED = [each for each in KAFKA if each.name in SCOPES[each.scope].settings]
every_row = each_case(
    ("table", "row"),
    [(table, row) for table in TABLES for row in table.settings.values()],
    ids=lambda one: one.scope if isinstance(one, ConfigDef) else one.name,
)

# Settings for which Ottla's valid values are more precise than Kafka's documentation, or fewer.
OTHER_VALID = {
    "acks",  # -1 is parsed as all
    "authorizer.class.name",
    "controller.quorum.bootstrap.servers",  # empty is the default, also in Kafka
    "controller.quorum.voters",
    "group.coordinator.rebalance.protocols",  # streams is missing
    "share.acquire.mode",  # case-insensitive, because Kafka's default is in capitals
}
# Defaults that only look different.
OTHER_DEFAULT = {
    "bootstrap.servers",  # Kafka's admin client can use controllers instead
    "partition.assignment.strategy",  # short names instead of Java classes
    "share.acquire.mode",  # lower case
}


def kafka_list(default: str) -> str:
    return default.removeprefix("[").removesuffix("]").replace(", ", ",")


def test_number_of_kafka_settings() -> None:
    counts = {scope: sum(each.scope == scope for each in KAFKA) for scope in SCOPES}
    assert counts == {"broker": 340, "topic": 33, "producer": 113, "consumer": 115, "admin": 91}


@each_case("kafka", KAFKA, ids=lambda each: f"{each.scope}-{each.name}")
def test_every_setting_of_kafka_is_classified_once(kafka: KafkaSetting) -> None:
    table = SCOPES[kafka.scope]
    places = [
        kafka.name in table.settings,
        kafka.name in {row.name for row in table.ignored},
        kafka.name in {row.name for row in table.unsupported},
    ]
    assert places.count(True) == 1


@each_case("kafka", HONOURED, ids=lambda each: f"{each.scope}-{each.name}")
def test_supported_settings_match_kafka(kafka: KafkaSetting) -> None:
    row = SCOPES[kafka.scope].settings[kafka.name]
    assert row.kind.name == kafka.kind
    if kafka.mode:
        assert row.dynamic.value == kafka.mode
    if kafka.valid and kafka.name not in OTHER_VALID:
        assert row.range_text.lower() == kafka.valid.lower()
    theirs = kafka_list(kafka.default) if kafka.kind == "list" else kafka.default
    if row.kafka_default is not None:
        assert row.kafka_default == theirs
        assert isinstance(row.default, Required) or row.default_text != theirs
    elif isinstance(row.default, Required):
        assert theirs == "(required)" or kafka.name in OTHER_DEFAULT
    elif kafka.name not in OTHER_DEFAULT:
        assert ("null" if row.default_text is None else row.default_text) == theirs


def test_settings_unknown_to_kafka_have_these_defaults() -> None:
    known = {(each.scope, each.name) for each in KAFKA}
    assert {
        (table.scope, name): row.default
        for table in TABLES
        for name, row in table.settings.items()
        if (table.scope, name) not in known
    } == {
        ("broker", "broker.id.generation.enable"): True,
        ("broker", "reserved.broker.max.id"): 1000,
        ("broker", "zookeeper.connect"): None,
        ("broker", "zookeeper.session.timeout.ms"): 9_000,
        ("broker", "zookeeper.connection.timeout.ms"): None,
        ("broker", "super.users"): "",
        ("broker", "allow.everyone.if.no.acl.found"): False,
        ("broker", "leader.imbalance.per.broker.percentage"): 10,
        # Kafka has them as dynamic settings only.
        ("broker", "leader.replication.throttled.rate"): 2**63 - 1,
        ("broker", "follower.replication.throttled.rate"): 2**63 - 1,
        ("broker", "ottla.metrics.listener"): "",
        ("broker", "ottla.broker.host"): None,
        ("broker", "ottla.balance.check.interval.ms"): 60_000,
        ("broker", "ottla.balance.enable"): False,
        ("broker", "ottla.balance.goal.percent"): 120,
        ("broker", "ottla.balance.partitions.max"): 10,
        ("broker", "ottla.balance.stable.ms"): 300_000,
        ("broker", "ottla.balance.throttle.bytes.per.second"): 10 << 20,
        ("broker", "ottla.balance.traffic.min.bytes.per.second"): 1_000_000,
        ("broker", "ottla.balance.window.ms"): 300_000,
        ("broker", "ottla.fast.failover.enable"): True,
        ("broker", "ottla.partitions.max"): None,
        ("broker", "ottla.queued.max.response.bytes"): 32 << 20,
        ("broker", "ottla.topic.name.policy"): (),
        ("broker", "max.decompressed.message.bytes"): 32 << 20,  # from a later Kafka
        **{(scope, "sasl.username"): None for scope in ("producer", "consumer", "admin")},
        **{(scope, "sasl.password"): None for scope in ("producer", "consumer", "admin")},
    }


def test_defaults_that_differ_from_kafka_are_listed() -> None:
    # A set of pairs: several tables have some of the settings, with the same default.
    assert {
        (row.name, row.default)
        for table in TABLES
        for row in table.settings.values()
        if row.kafka_default or row.name in OTHER_DEFAULT
    } == {
        ("bootstrap.servers", REQUIRED),
        ("controller.listener.names", ()),
        ("group.coordinator.rebalance.protocols", ("classic", "consumer")),
        ("listeners", ("PLAINTEXT://127.0.0.1:9092",)),
        ("log.dir", (".ottla/data",)),
        ("metric.reporters", ()),
        ("node.id", None),
        ("partition.assignment.strategy", ("range", "cooperative-sticky")),
        ("process.roles", ()),
        ("queued.max.request.bytes", 32 << 20),
        ("sasl.enabled.mechanisms", ()),
        ("sasl.mechanism", None),
        ("sasl.mechanism.inter.broker.protocol", None),
        ("share.acquire.mode", "batch_optimized"),
        ("socket.listen.backlog.size", 4096),
        ("socket.receive.buffer.bytes", -1),
        ("socket.send.buffer.bytes", -1),
        ("ssl.keystore.type", "PEM"),
        ("ssl.truststore.type", "PEM"),
        ("zookeeper.session.timeout.ms", 9_000),
    }


def test_topics_fall_back_as_in_kafka() -> None:
    ours = {
        row.name: tuple(each.setting.name for each in row.falls_back)
        for row in topic.TOPIC.settings.values()
        if row.falls_back
    }
    honoured = {name: row for name, row in kafka_fallbacks().items() if name in ours}
    unsupported = {row.name for row in topic.TOPIC.unsupported}
    assert ours == honoured
    assert set(kafka_fallbacks()) - set(ours) <= unsupported


@every_row
def test_fallbacks_are_broker_settings_with_same_default(
    table: ConfigDef, row: Setting[Any]
) -> None:
    for fallback in row.falls_back:
        assert broker.BROKER.settings[fallback.setting.name] is fallback.setting
        assert fallback.setting.kind.name == row.kind.name or fallback.unit_ms > 1
    defaults = [each for each in row.falls_back if each.setting.default is not None]
    if defaults:
        assert defaults[0].convert(defaults[0].setting.default) == row.default


def test_units_of_fallbacks() -> None:
    units = {
        each.setting.name: each.unit_ms
        for row in topic.TOPIC.settings.values()
        for each in row.falls_back
        if each.unit_ms > 1
    }
    assert units == {
        "log.retention.minutes": 60_000,
        "log.retention.hours": 3_600_000,
        "log.roll.hours": 3_600_000,
        "log.roll.jitter.hours": 3_600_000,
    }


@every_row
def test_defaults_are_valid(table: ConfigDef, row: Setting[Any]) -> None:
    if isinstance(row.default, Required):
        return
    assert row.convert(row.default) == row.default
    if row.default_text is not None:
        assert row.parse(row.default_text) == row.default


# More values than the defaults, to find rows that lose information in their text.
SAMPLES: dict[str, list[Any]] = {
    BOOLEAN.name: [True, False],
    SHORT.name: [-1, 0, 1, 2, 5, 100, 2**15 - 1],
    INT.name: [-1, 0, 1, 2, 5, 9, 100, 500, 2000, 5000, 30_000, 2**31 - 1],
    LONG.name: [-2, -1, 0, 1, 5, 5000, 2**31, 2**63 - 1],
    DOUBLE.name: [0.0, 0.05, 0.5, 0.75, 1.0, 1e-5, 1.5e300],
    STRING.name: ["", "a", "all", "none", "PLAIN", "lz4", "latest", "a:1", "User:a;User:b"],
    LIST.name: [(), ("a",), ("PLAIN",), ("delete", "compact"), ("0:1", "2:3"), ("*",)],
}


@every_row
def test_value_round_trips_through_text(table: ConfigDef, row: Setting[Any]) -> None:
    if row.sensitive:
        assert row.parse(Secret("a b").reveal()) == Secret("a b")
        return
    for sample in SAMPLES[row.kind.name]:
        try:
            value = row.convert(sample)
        except BadValue:
            continue
        text = row.format(value)
        assert text is not None
        assert row.parse(text) == value


@every_row
def test_only_settings_with_null_default_accept_null(table: ConfigDef, row: Setting[Any]) -> None:
    if row.nullable:
        assert row.convert(None) is None
        assert row.format(None) is None
    else:
        with pytest.raises(BadValue):
            row.convert(None)


@every_row
def test_every_setting_is_documented(table: ConfigDef, row: Setting[Any]) -> None:
    assert row.doc[0].isupper() or row.doc[0] == "`"
    assert row.doc.endswith(".")
    assert "  " not in row.doc
    assert 20 <= len(row.doc) <= 320


def test_shared_rows_are_declared_once() -> None:
    declared = [
        row
        for module in (broker, compression, connection, consumer, producer, security, topic)
        for row in settings_in(vars(module))
    ]
    docs = [row.doc for row in declared if not row.falls_back]
    assert len(docs) == len(set(docs))
    for table in (producer.PRODUCER, consumer.CONSUMER, admin.ADMIN):
        assert {row.name for row in connection.ROWS} <= set(table.settings)


def test_constant_is_named_after_its_setting() -> None:
    for module in (broker, compression, connection, consumer, producer, security, topic):
        for row in settings_in(vars(module)):
            assert vars(module)[row.name.upper().replace(".", "_")] is row


def test_keywords_map_to_names() -> None:
    for table in TABLES:
        for row in table.settings.values():
            assert row.keyword.isidentifier()
            assert row.keyword.replace("_", ".") == row.name


def test_clients_share_rows_and_defaults() -> None:
    receive, idle = connection.RECEIVE_BUFFER_BYTES, connection.CONNECTIONS_MAX_IDLE_MS
    assert producer.PRODUCER.settings[receive.name].default == 32_768
    assert consumer.CONSUMER.settings[receive.name].default == 65_536
    assert admin.ADMIN.settings[idle.name].default == 300_000
    assert producer.PRODUCER.settings[idle.name].default == 540_000


def test_duplicate_setting_names_raise() -> None:
    row = Setting("a", INT, 1, at_least(1), doc="A.")
    ConfigDef("broker", [row], ignored=[], unsupported=[])
    with pytest.raises(AssertionError):
        ConfigDef("broker", [row], ignored=[Ignored("a", "x")], unsupported=[])
    with pytest.raises(AssertionError):
        ConfigDef(
            "broker", [], ignored=[], unsupported=[Unsupported("a", "x"), Unsupported("a", "y")]
        )


def test_prefix_matches_names() -> None:
    assert isinstance(broker.BROKER.find("rsm.config.bucket"), Ignored)
    assert broker.BROKER.find("rsm.configuration") is None
    assert isinstance(broker.BROKER.find("zookeeper.ssl.protocol"), Unsupported)
    assert isinstance(broker.BROKER.find("confluent.balancer.enable"), Ignored)
    assert broker.BROKER.find("confluent") is None


def test_negative_time_means_unlimited_in_any_unit() -> None:
    assert in_hours(broker.LOG_RETENTION_HOURS).convert(-1) == -1
    assert in_minutes(broker.LOG_RETENTION_MINUTES).convert(2) == 120_000
    assert in_hours(broker.LOG_RETENTION_HOURS).convert(0) == 0


def test_no_supported_value_is_a_java_class() -> None:
    classes = [each for each in KAFKA if each.kind == "class"]
    assert classes
    assert not [each for each in classes if each.name in SCOPES[each.scope].settings]
