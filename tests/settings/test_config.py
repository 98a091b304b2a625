from typing import assert_type

import pytest

from cases import each_case
from ottla.settings import admin, broker, connection, producer, security, topic
from ottla.settings.config import Config, Given, ListenerName, split_listener_name
from ottla.settings.config_types import Secret
from ottla.settings.invalid_settings import Origin


def test_values_have_the_type_of_their_row() -> None:
    config = Config(broker.BROKER, {"log.dirs": Given(("/a", "/b"), Origin("f", 3))})
    assert_type(config[broker.NUM_PARTITIONS], int)
    assert_type(config[broker.LOG_DIRS], tuple[str, ...] | None)
    assert_type(config[broker.LOG_RETENTION_MS], int | None)
    assert_type(config[broker.LOG_CLEANER_MIN_CLEANABLE_RATIO], float)
    assert_type(config[broker.AUTO_CREATE_TOPICS_ENABLE], bool)
    assert_type(config[broker.SECURITY_INTER_BROKER_PROTOCOL], str)
    assert_type(config[security.SSL_KEY_PASSWORD], Secret | None)
    assert config[broker.LOG_DIRS] == ("/a", "/b")
    assert config.is_set(broker.LOG_DIRS)
    assert not config.is_set(broker.LOG_DIR)
    assert config.origin(broker.LOG_DIRS) == Origin("f", 3)
    assert config.origin(broker.LOG_DIR) is None


def test_shared_setting_has_default_of_client() -> None:
    assert Config(admin.ADMIN, {})[connection.CONNECTIONS_MAX_IDLE_MS] == 300_000
    assert Config(producer.PRODUCER, {})[connection.CONNECTIONS_MAX_IDLE_MS] == 540_000


def test_texts_of_values() -> None:
    given = {
        "log.dirs": Given(("/a", "/b")),
        "ssl.key.password": Given(Secret("hunter2")),
        "log.preallocate": Given(True),
    }
    config = Config(broker.BROKER, given)
    assert config.text(broker.LOG_DIRS) == "/a,/b"
    assert config.text(broker.LOG_PREALLOCATE) == "true"
    assert config.text(broker.LOG_CLEANER_IO_MAX_BYTES_PER_SECOND) == "1.7976931348623157E308"
    assert config.text(broker.LOG_RETENTION_MS) is None
    assert config.text(security.SSL_KEY_PASSWORD) == "[hidden]"
    assert "hunter2" not in repr(config) + repr(config.given)


def test_config_is_immutable() -> None:
    given = {"num.partitions": Given(3)}
    config = Config(broker.BROKER, given)
    given["num.partitions"] = Given(4)
    assert config[broker.NUM_PARTITIONS] == 3
    with pytest.raises(TypeError):
        config.given["num.partitions"] = Given(5)  # pyright: ignore[reportIndexIssue]


def test_setting_of_another_scope_raises() -> None:
    with pytest.raises(KeyError):
        Config(topic.TOPIC, {})[broker.NUM_PARTITIONS]
    with pytest.raises(AssertionError):
        Config(producer.PRODUCER, {})[connection.BOOTSTRAP_SERVERS]


@each_case(
    ("name", "parts"),
    [
        ("listener.name.a.ssl.key.password", ListenerName("a", None, "ssl.key.password")),
        ("listener.name.A.PLAIN.sasl.jaas.config", ListenerName("a", "plain", "sasl.jaas.config")),
        ("listener.name.a.plain", ListenerName("a", None, "plain")),
        ("listener.name.a", None),
        ("listener.name..x", None),
        ("listeners", None),
    ],
)
def test_names_of_listeners_settings(name: str, parts: ListenerName | None) -> None:
    assert split_listener_name(name, security.MECHANISMS) == parts
    if parts:
        assert str(parts).lower() == name.lower()


def test_listener_cannot_override_broker_setting() -> None:
    config = Config(broker.BROKER, {"listener.name.a.num.partitions": Given(7)})
    assert config.listener("a")[broker.NUM_PARTITIONS] == 1
