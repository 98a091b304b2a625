"""The settings of a topic as its logs use them."""

from ottla.log.log_config import LogConfig
from ottla.settings.config import Config
from ottla.settings.config_parser import topic_overrides
from ottla.settings.topic import TOPIC


def test_defaults_equal_the_settings() -> None:
    assert LogConfig.of(Config(TOPIC, {})) == LogConfig()


def test_topic_settings_override_defaults() -> None:
    config = topic_overrides(
        {
            "cleanup.policy": "compact",
            "segment.bytes": "2000000",
            "segment.jitter.ms": "7",
            "retention.ms": "-1",
            "min.cleanable.dirty.ratio": "0.25",
            "flush.messages": "1",
            "preallocate": "true",
        }
    )
    assert LogConfig.of(config) == LogConfig(
        compact=True,
        delete=False,
        segment_bytes=2_000_000,
        segment_jitter_ms=7,
        retention_ms=-1,
        min_cleanable_dirty_ratio=0.25,
        flush_messages=1,
        preallocate=True,
    )


def test_cleanup_policy_can_have_both_values() -> None:
    rules = LogConfig.of(topic_overrides({"cleanup.policy": "compact,delete"}))
    assert rules.compact
    assert rules.delete


def test_compacted_topic_rolls_within_max_compaction_lag() -> None:
    """Only closed segments are compacted, so segments roll in time, as in Kafka."""
    sets = {"cleanup.policy": "compact", "segment.ms": "9000", "max.compaction.lag.ms": "700"}
    assert LogConfig.of(topic_overrides(sets)).segment_ms == 700
    assert LogConfig.of(topic_overrides(sets | {"cleanup.policy": "delete"})).segment_ms == 9000
    later = sets | {"max.compaction.lag.ms": "10000"}
    assert LogConfig.of(topic_overrides(later)).segment_ms == 9000
