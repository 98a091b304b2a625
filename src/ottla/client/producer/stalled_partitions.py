"""Partitions whose records are not acknowledged for long: the sender logs them with the reason.

Invariant: a partition is stalled while its oldest batch is the same for `STALLED_S`. So neither a
full buffer nor a slow broker is reported while batches are acknowledged.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Final

from ottla.client.producer.partition_queue import PartitionQueue
from ottla.client.producer.producer_batch import ProducerBatch
from ottla.errors import ErrorCode, RequestError
from ottla.ids import TopicPartition

STALLED_S: Final = 5.0
LOOK_S: Final = 1.0

_log: Final = logging.getLogger(__name__)


class StalledPartitions:
    """Looks at the queues once per second while there are batches, and logs each change."""

    def __init__(self, reason: Callable[[PartitionQueue, ProducerBatch], RequestError]) -> None:
        """`reason` returns why a batch is not acknowledged yet."""
        self._reason = reason
        self._next_s = inf
        self._looked_s = 0.0
        self._oldest: dict[TopicPartition, tuple[ProducerBatch, float]] = {}
        self._reported: tuple[ProducerBatch, ErrorCode] | None = None

    def look(self, queues: Iterable[PartitionQueue], now_s: float, linger_s: float) -> float:
        """Look, if it is time; returns when to look again."""
        if self._next_s == inf:
            self._next_s, self._looked_s = now_s + LOOK_S, now_s
        if now_s < self._next_s:
            return self._next_s
        before, self._oldest = self._oldest, {}
        stalled: list[tuple[PartitionQueue, ProducerBatch]] = []
        for queue in queues:
            batch = queue.oldest
            if batch is None or (batch is queue.open and now_s < batch.began_s + linger_s):
                continue
            known, since_s = before.get(queue.partition, (None, self._looked_s))
            if known is not batch:
                since_s = max(self._looked_s, batch.began_s)
            self._oldest[queue.partition] = (batch, since_s)
            if now_s - since_s >= STALLED_S:
                stalled.append((queue, batch))
        self._looked_s = now_s
        self._next_s = now_s + LOOK_S if self._oldest else inf
        self._log(stalled)
        return self._next_s

    def _log(self, stalled: Sequence[tuple[PartitionQueue, ProducerBatch]]) -> None:
        if not stalled:
            reported, self._reported = self._reported, None
            if reported is not None and reported[0].failure is None:
                _log.warning("the brokers acknowledge records again")
            return
        queue, batch = stalled[0]
        reason = self._reason(queue, batch)
        # The text is not compared, because it can have an offset that changes.
        if self._reported is not None and self._reported[1] is reason.code:
            return
        self._reported = (batch, reason.code)
        others = len(stalled) - 1
        and_others = f" and {others} other partition{'s' if others > 1 else ''}" if others else ""
        _log.warning(
            "still waiting for acknowledgements of %s%s: %s", queue.partition, and_others, reason
        )
