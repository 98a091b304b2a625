import pytest

from cases import each_case
from ottla.settings import broker, security, topic
from ottla.settings.config_def import CLUSTER_WIDE, PER_BROKER
from ottla.settings.config_parser import broker_config, dynamic_config, topic_overrides
from ottla.settings.dynamic_broker_config import ConfigEntry, ConfigSource, DynamicBrokerConfig
from ottla.settings.invalid_settings import InvalidSettings
from ottla.settings.properties import read_properties

TOPIC, BROKER, CLUSTER, STATIC, DEFAULT = ConfigSource


def layers(
    static: str = "", cluster: dict[str, str] | None = None, own: dict[str, str] | None = None
) -> DynamicBrokerConfig:
    return DynamicBrokerConfig(
        broker_config(read_properties(static, "f")),
        cluster=dynamic_config(cluster or {}, CLUSTER_WIDE).given,
        broker=dynamic_config(own or {}, PER_BROKER).given,
    )


def described(
    layers: DynamicBrokerConfig, name: str, overrides: dict[str, str] | None = None
) -> ConfigEntry:
    found = layers.describe_topic(topic_overrides(overrides or {}))
    return next(each for each in found if each.name == name)


def of_broker(layers: DynamicBrokerConfig, name: str) -> ConfigEntry:
    return next(each for each in layers.describe_broker() if each.name == name)


def sources(each: ConfigEntry) -> list[tuple[str, str | None, ConfigSource]]:
    return [(synonym.name, synonym.text, synonym.source) for synonym in each.synonyms]


def test_sources_have_the_numbers_of_the_protocol() -> None:
    assert [(each.name, each.value) for each in ConfigSource] == [
        ("DYNAMIC_TOPIC_CONFIG", 1),
        ("DYNAMIC_BROKER_CONFIG", 2),
        ("DYNAMIC_DEFAULT_BROKER_CONFIG", 3),
        ("STATIC_BROKER_CONFIG", 4),
        ("DEFAULT_CONFIG", 5),
    ]


def test_synonyms_are_listed_by_precedence() -> None:
    all_of_them = layers(
        "log.segment.bytes=4000000",
        {"log.segment.bytes": "3000000"},
        {"log.segment.bytes": "2000000"},
    )
    each = described(all_of_them, "segment.bytes", {"segment.bytes": "1048576"})
    assert (each.text, each.source) == ("1048576", TOPIC)
    assert sources(each) == [
        ("segment.bytes", "1048576", TOPIC),
        ("log.segment.bytes", "2000000", BROKER),
        ("log.segment.bytes", "3000000", CLUSTER),
        ("log.segment.bytes", "4000000", STATIC),
        ("log.segment.bytes", "1073741824", DEFAULT),
    ]


@each_case(
    ("static", "cluster", "own", "overrides", "value", "source"),
    [
        ("", {}, {}, {}, 604_800_000, DEFAULT),
        ("log.retention.hours=1", {}, {}, {}, 3_600_000, STATIC),
        ("log.retention.hours=1\nlog.retention.minutes=1", {}, {}, {}, 60_000, STATIC),
        ("log.retention.ms=9\nlog.retention.minutes=1", {}, {}, {}, 9, STATIC),
        ("log.retention.hours=-1", {}, {}, {}, -1, STATIC),
        ("log.retention.ms=9", {"log.retention.ms": "8"}, {}, {}, 8, CLUSTER),
        ("log.retention.hours=1", {"log.retention.ms": "8"}, {}, {}, 8, CLUSTER),
        ("", {"log.retention.ms": "8"}, {"log.retention.ms": "7"}, {}, 7, BROKER),
        ("", {"log.retention.ms": "8"}, {"log.retention.ms": "7"}, {"retention.ms": "6"}, 6, TOPIC),
    ],
)
def test_strongest_source_wins(
    static: str,
    cluster: dict[str, str],
    own: dict[str, str],
    overrides: dict[str, str],
    value: int,
    source: ConfigSource,
) -> None:
    found = layers(static, cluster, own)
    assert found.topic(topic_overrides(overrides))[topic.RETENTION_MS] == value
    each = described(found, "retention.ms", overrides)
    assert (each.text, each.source) == (str(value), source)


def test_synonym_in_hours_is_converted() -> None:
    found = layers("log.retention.hours=2\nlog.retention.minutes=5", {"log.retention.ms": "1"})
    each = described(found, "retention.ms")
    assert [(one.name, one.text, one.converted, one.source) for one in each.synonyms] == [
        ("log.retention.ms", "1", "1", CLUSTER),
        ("log.retention.minutes", "5", "300000", STATIC),
        ("log.retention.hours", "2", "7200000", STATIC),
        ("log.retention.hours", "168", "604800000", DEFAULT),
    ]


def test_topic_setting_without_broker_default() -> None:
    each = described(layers(), "leader.replication.throttled.replicas")
    assert (each.text, each.source, each.synonyms) == ("", DEFAULT, ())
    each = described(layers(), each.name, {each.name: "0:1,1:2"})
    assert (each.text, each.source) == ("0:1,1:2", TOPIC)


def test_topic_is_described_in_full_and_can_be_changed() -> None:
    found = layers().describe_topic(topic_overrides({}))
    assert {each.name for each in found} == set(topic.TOPIC.settings)
    assert not any(each.read_only for each in found)


def test_topic_defaults_equal_the_broker_settings() -> None:
    config = layers().topic(topic_overrides({}))
    for setting in topic.TOPIC.settings.values():
        assert config[setting] == setting.default


def test_topic_values_must_match_inherited_ones() -> None:
    found = layers("log.cleaner.max.compaction.lag.ms=10")
    own = topic_overrides({"min.compaction.lag.ms": "11"})
    with pytest.raises(InvalidSettings, match=r"min.compaction.lag.ms: invalid value \"11\""):
        found.check_topic(own)
    assert found.topic(own)[topic.MIN_COMPACTION_LAG_MS] == 11  # the broker's value came later


def test_dynamic_value_hides_synonyms_of_weaker_sources() -> None:
    found = layers("log.retention.hours=1", {"log.retention.ms": "8"})
    assert found.config[broker.LOG_RETENTION_MS] == 8
    assert not found.config.is_set(broker.LOG_RETENTION_HOURS)


def test_brokers_values_and_their_sources() -> None:
    found = layers(
        "num.partitions=3\nmin.insync.replicas=2\ndefault.replication.factor=3",
        {"min.insync.replicas": "1"},
    )
    assert found.config[broker.MIN_INSYNC_REPLICAS] == 1
    assert sources(of_broker(found, "min.insync.replicas")) == [
        ("min.insync.replicas", "1", CLUSTER),
        ("min.insync.replicas", "2", STATIC),
        ("min.insync.replicas", "1", DEFAULT),
    ]
    each = of_broker(found, "num.partitions")
    assert (each.text, each.source, each.read_only) == ("3", STATIC, True)
    assert not of_broker(found, "min.insync.replicas").read_only


def test_null_default_has_no_source() -> None:
    each = of_broker(layers(), "log.retention.ms")
    assert (each.text, each.source, each.synonyms) == (None, DEFAULT, ())
    each = of_broker(layers(), "broker.rack")
    assert (each.text, each.source, each.synonyms) == (None, DEFAULT, ())


def test_synonyms_of_a_broker_begin_with_the_name_itself() -> None:
    found = layers("log.retention.ms=9\nlog.retention.hours=2")
    assert [one.name for one in of_broker(found, "log.retention.hours").synonyms] == [
        "log.retention.hours",
        "log.retention.hours",
    ]
    assert [one.text for one in of_broker(found, "log.retention.ms").synonyms] == ["9", "2", "168"]


def test_listener_setting_is_described_by_full_name() -> None:
    name = "listener.name.plaintext.max.connections"
    found = layers("max.connections=9", {}, {name: "7"})
    each = of_broker(found, name)
    assert sources(each) == [
        (name, "7", BROKER),
        ("max.connections", "9", STATIC),
        ("max.connections", "2147483647", DEFAULT),
    ]
    assert found.config.listener("PLAINTEXT")[broker.MAX_CONNECTIONS] == 7
    assert of_broker(found, "max.connections").text == "9"


def test_descriptions_contain_no_secrets() -> None:
    found = layers("ssl.key.password=hunter2", {}, {"ssl.key.password": "hunter3"})
    each = of_broker(found, "ssl.key.password")
    assert (each.text, each.sensitive) == (None, True)
    assert [one.text for one in each.synonyms] == [None, None]
    assert "hunter" not in repr(found.describe_broker())
    password = found.config[security.SSL_KEY_PASSWORD]
    assert password is not None
    assert password.reveal() == "hunter3"


def test_effective_config_is_checked() -> None:
    with pytest.raises(InvalidSettings, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        layers("log.cleaner.dedupe.buffer.size=1048576", {"log.cleaner.threads": "2"})
