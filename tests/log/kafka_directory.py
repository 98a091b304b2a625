"""A data directory of Kafka, opened by Ottla."""

import random
from collections.abc import Callable
from pathlib import Path

from log.kafka_topics import INDEX_INTERVAL_BYTES, SEGMENT_BYTES, TOPICS
from ottla.clock import SystemClock
from ottla.ids import BrokerId, Uuid
from ottla.log.checkpoints import parse_meta_properties
from ottla.log.files import OsDisk
from ottla.log.log_config import LogConfig
from ottla.log.log_manager import LogManager
from ottla.log.names import META_PROPERTIES


def rules_of(topic: str) -> LogConfig:
    """The settings of a topic for our logs; internal topics are compacted too."""
    policy = TOPICS.get(topic, (0, {"cleanup.policy": "compact"}))[1].get("cleanup.policy")
    return LogConfig(
        segment_bytes=SEGMENT_BYTES,
        index_interval_bytes=INDEX_INTERVAL_BYTES,
        compact=policy == "compact",
    )


async def open_directory(
    disk: OsDisk, data: Path, rules_of: Callable[[str], LogConfig]
) -> LogManager:
    """Open the directory as a broker of the cluster that it belongs to."""
    meta = parse_meta_properties((data / META_PROPERTIES).read_text())
    assert meta.cluster_id is not None
    return await LogManager.open(
        disk,
        [str(data)],
        rules_of,
        cluster_id=meta.cluster_id,
        node_id=BrokerId(1),
        clock=SystemClock(),
        random=random.random,
        new_id=lambda: Uuid(random.randbytes(16)),
    )
