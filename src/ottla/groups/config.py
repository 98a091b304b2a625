"""The group settings of a broker.

Invariant: a config is immutable; its defaults are Kafka's.
"""

from typing import Final, Self

from msgspec import Struct

from ottla.records.compression import Compression
from ottla.settings import broker
from ottla.settings.config import Config
from ottla.settings.config_types import INT_MAX

_MINUTE_MS: Final = 60_000

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * _MINUTE_MS
"""How long a new member may wait for its first JoinGroup response. It cannot send heartbeats
before, and a disconnected one must not block the group forever."""

PENDING_MEMBERS_MAX: Final = 10_000
"""Assigned member ids in one group that have not joined yet (rule F4). Above this the oldest is
dropped: refusing the newest would let a flood of half joins lock everyone out."""

METADATA_BYTES_MAX: Final = 16 * 1024 * 1024
"""The metadata of all members of a group, for all their protocols. The coordinator keeps it in
memory. The record of a group has it for one protocol, and is limited to about a megabyte."""


class GroupConfig(Struct, frozen=True):
    """The settings of a broker that groups use."""

    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 1_800_000
    members_max: int = INT_MAX
    initial_rebalance_delay_ms: int = 3_000
    offset_metadata_length_max: int = 4_096
    offsets_retention_ms: int = 10_080 * _MINUTE_MS
    offsets_retention_check_interval_ms: int = 600_000
    commit_timeout_ms: int = 5_000
    compression: Compression = Compression.NONE
    load_bytes: int = 5_242_880

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the group settings of a broker's config."""
        assert config.table is broker.BROKER
        return cls(
            session_timeout_ms_min=config[broker.GROUP_MIN_SESSION_TIMEOUT_MS],
            session_timeout_ms_max=config[broker.GROUP_MAX_SESSION_TIMEOUT_MS],
            members_max=config[broker.GROUP_MAX_SIZE],
            initial_rebalance_delay_ms=config[broker.GROUP_INITIAL_REBALANCE_DELAY_MS],
            offset_metadata_length_max=config[broker.OFFSET_METADATA_MAX_BYTES],
            offsets_retention_ms=config[broker.OFFSETS_RETENTION_MINUTES] * _MINUTE_MS,
            offsets_retention_check_interval_ms=config[broker.OFFSETS_RETENTION_CHECK_INTERVAL_MS],
            commit_timeout_ms=config[broker.OFFSETS_COMMIT_TIMEOUT_MS],
            compression=Compression(config[broker.OFFSETS_TOPIC_COMPRESSION_CODEC]),
            load_bytes=config[broker.OFFSETS_LOAD_BUFFER_SIZE],
        )
