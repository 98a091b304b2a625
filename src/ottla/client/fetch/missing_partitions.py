"""MissingPartitions: partitions that an application chose and their topics do not have.

Invariant: who chose a partition that is not there hears of it, once in each while that it is away
without a break; it may come, so it is looked for further.
"""

import logging
from collections.abc import Mapping
from typing import Final

from ottla.client.fetch.cursor import Cursor
from ottla.client.network.cluster_view import ClusterView
from ottla.errors import ErrorCode, RequestError
from ottla.ids import TopicPartition

PATIENCE_S: Final = 30.0
"""So long a partition may be away before that is an error: it may be being made."""

NO_TOPIC: Final = "there is no such topic"

_log: Final = logging.getLogger(__name__)


class MissingPartitions:
    """Since when partitions are not there."""

    def __init__(self) -> None:
        self._since_s: dict[TopicPartition, float] = {}

    def missed(
        self, cursors: Mapping[TopicPartition, Cursor], view: ClusterView, now_s: float
    ) -> list[Cursor]:
        """Those whose partitions are away for too long, each with its failure."""
        away = {
            where: why
            for where in cursors
            # A topic is waited for, with a warning of who asks for metadata.
            if (why := why_absent(where, view)) not in (None, NO_TOPIC)
        }
        for where in self._since_s.keys() - away.keys():
            del self._since_s[where]
        late: list[Cursor] = []
        for where, why in away.items():
            if where not in self._since_s:
                _log.warning("%s: %s; it is looked for further", where, why)
            if now_s - self._since_s.setdefault(where, now_s) >= PATIENCE_S:
                self._since_s[where] = now_s
                cursors[where].failure = RequestError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{where}: {why}"
                )
                late.append(cursors[where])
        return late


def why_absent(where: TopicPartition, view: ClusterView) -> str | None:
    """Why a partition cannot be read, as far as brokers told; None when it is there, or unknown."""
    topic = view.topics.get(where.topic)
    if topic is None:
        return None
    if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return NO_TOPIC
    if topic.partitions and where.partition not in topic.partitions:
        return f"the topic has {len(topic.partitions)} partitions, from 0 on"
    return None
