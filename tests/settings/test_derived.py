from cases import each_case
from ottla.settings import topic
from ottla.settings.config import Config
from ottla.settings.config_def import Setting
from ottla.settings.config_parser import broker_config, client_config
from ottla.settings.config_types import LONG_MAX
from ottla.settings.derived import (
    broker_id,
    delivery_timeout_ms,
    idempotence,
    log_dirs,
    topic_default,
    zookeeper_connection_timeout_ms,
)
from ottla.settings.producer import PRODUCER
from ottla.settings.properties import read_properties

HOUR_MS = 3_600_000


def read(*lines: str) -> Config:
    return broker_config(read_properties("\n".join(lines), "server.properties"))


MS, MINUTES, HOURS = "log.retention.ms=7", "log.retention.minutes=2", "log.retention.hours=3"


@each_case(
    ("setting", "lines", "value"),
    [
        (topic.RETENTION_MS, [], 168 * HOUR_MS),
        (topic.RETENTION_MS, [HOURS], 3 * HOUR_MS),
        (topic.RETENTION_MS, [HOURS, MINUTES], 120_000),
        (topic.RETENTION_MS, [MS, MINUTES, HOURS], 7),
        (topic.RETENTION_MS, ["log.retention.hours=-1"], -1),
        (topic.RETENTION_MS, ["log.retention.minutes=-1", HOURS], -1),
        (topic.RETENTION_MS, ["log.retention.ms=-1", MINUTES], -1),
        (topic.RETENTION_MS, ["log.retention.hours=2147483647"], 2147483647 * HOUR_MS),
        (topic.SEGMENT_MS, [], 168 * HOUR_MS),
        (topic.SEGMENT_MS, ["log.roll.hours=2"], 2 * HOUR_MS),
        (topic.SEGMENT_MS, ["log.roll.hours=2", "log.roll.ms=9"], 9),
        (topic.SEGMENT_JITTER_MS, [], 0),
        (topic.SEGMENT_JITTER_MS, ["log.roll.jitter.hours=2"], 2 * HOUR_MS),
        (topic.SEGMENT_JITTER_MS, ["log.roll.jitter.hours=2", "log.roll.jitter.ms=0"], 0),
        (topic.FLUSH_MS, [], LONG_MAX),
        (topic.FLUSH_MS, ["log.flush.scheduler.interval.ms=5"], 5),
        (topic.FLUSH_MS, ["log.flush.scheduler.interval.ms=5", "log.flush.interval.ms=0"], 0),
        (topic.MAX_MESSAGE_BYTES, ["message.max.bytes=77"], 77),
    ],
)
def test_topic_defaults_of_a_broker(setting: Setting[int], lines: list[str], value: int) -> None:
    assert topic_default(read(*lines), setting) == value


def test_topic_setting_without_fallback_has_own_default() -> None:
    assert topic_default(read(), topic.LEADER_REPLICATION_THROTTLED_REPLICAS) == ()


@each_case(
    ("lines", "number"),
    [
        ([], None),
        (["broker.id=-1"], None),
        (["broker.id=0"], 0),
        (["node.id=0"], 0),
        (["node.id=4", "broker.id=4"], 4),
        (["node.id=4", "broker.id=-1"], 4),
    ],
)
def test_broker_id_by_either_name(lines: list[str], number: int | None) -> None:
    assert broker_id(read(*lines)) == number


def test_directories() -> None:
    assert log_dirs(read()) == (".ottla/data",)
    assert log_dirs(read("log.dir=/a")) == ("/a",)
    assert log_dirs(read("log.dir=/a", "log.dirs=/b, /c")) == ("/b", "/c")


def test_zookeeper_connection_timeout() -> None:
    assert zookeeper_connection_timeout_ms(read()) == 9_000
    assert zookeeper_connection_timeout_ms(read("zookeeper.session.timeout.ms=5")) == 5
    assert zookeeper_connection_timeout_ms(read("zookeeper.connection.timeout.ms=6")) == 6


@each_case(
    ("given", "on"),
    [
        ({}, True),
        ({"acks": "-1"}, True),
        ({"acks": "1"}, False),
        ({"retries": 0}, False),
        ({"max.in.flight.requests.per.connection": 5}, True),
        ({"max.in.flight.requests.per.connection": 6}, False),
        ({"enable.idempotence": False}, False),
    ],
)
def test_idempotence(given: dict[str, object], on: bool) -> None:
    assert idempotence(client_config(PRODUCER, given, bootstrap_servers="a:1")) is on


def test_effective_delivery_timeout() -> None:
    config = client_config(PRODUCER, bootstrap_servers="a:1", request_timeout_ms=200_000)
    assert delivery_timeout_ms(config) == 200_005
    assert delivery_timeout_ms(client_config(PRODUCER, bootstrap_servers="a:1")) == 120_000
