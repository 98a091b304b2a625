"""The group settings of a broker."""

from ottla.groups.config import GroupConfig
from ottla.settings.broker import BROKER
from ottla.settings.config import Config
from ottla.settings.config_parser import broker_config
from ottla.settings.properties import read_properties


def test_group_config_defaults_equal_the_settings() -> None:
    assert GroupConfig.of(Config(BROKER, {})) == GroupConfig()


def test_broker_settings_are_used() -> None:
    text = """
        group.min.session.timeout.ms=10
        group.max.session.timeout.ms=20
        group.max.size=3
        group.initial.rebalance.delay.ms=0
        offset.metadata.max.bytes=7
        offsets.retention.minutes=2
        offsets.retention.check.interval.ms=5
    """
    assert GroupConfig.of(broker_config(read_properties(text, "test"))) == GroupConfig(
        session_timeout_ms_min=10,
        session_timeout_ms_max=20,
        members_max=3,
        initial_rebalance_delay_ms=0,
        offset_metadata_length_max=7,
        offsets_retention_ms=120_000,
        offsets_retention_check_interval_ms=5,
    )
