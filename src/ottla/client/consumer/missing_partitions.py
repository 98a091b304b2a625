"""Assigned partitions that do not exist.

Invariant: the application is told of a missing partition once per period in which it is missing.
The partition may still be created, so the consumer keeps looking for it.
"""

import logging
from collections.abc import Mapping
from typing import Final

from ottla.client.consumer.cursor import Cursor
from ottla.client.network.cluster_view import ClusterView
from ottla.errors import ErrorCode, RequestError
from ottla.ids import TopicPartition

PATIENCE_S: Final = 30.0
"""How long a partition may be missing before that is an error: it may be being created."""

NO_TOPIC: Final = "the topic does not exist"

_log: Final = logging.getLogger(__name__)


class MissingPartitions:
    """Since when partitions are missing."""

    def __init__(self) -> None:
        self._since_s: dict[TopicPartition, float] = {}

    def missed(
        self, cursors: Mapping[TopicPartition, Cursor], view: ClusterView, now_s: float
    ) -> list[Cursor]:
        """Return the cursors whose partitions are missing for too long, with the error."""
        away = {
            where: why
            for where in cursors
            # A missing topic is waited for; the metadata log a warning.
            if (why := why_absent(where, view)) not in (None, NO_TOPIC)
        }
        for where in self._since_s.keys() - away.keys():
            del self._since_s[where]
        late: list[Cursor] = []
        for where, why in away.items():
            if where not in self._since_s:
                _log.warning("partition not found, waiting for it: %s: %s", where, why)
            if now_s - self._since_s.setdefault(where, now_s) >= PATIENCE_S:
                self._since_s[where] = now_s
                cursors[where].failure = RequestError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{where}: {why}"
                )
                late.append(cursors[where])
        return late


def why_absent(where: TopicPartition, view: ClusterView) -> str | None:
    """Return why a partition cannot be read, as far as known; None if it exists or is unknown."""
    topic = view.topics.get(where.topic)
    if topic is None:
        return None
    if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return NO_TOPIC
    if topic.partitions and where.partition not in topic.partitions:
        return f"the topic has {len(topic.partitions)} partitions, numbered from 0"
    return None
