"""The watch: looks at everything that runs, and tells what is to be seen.

Invariant: it counts what has come since it began, and changes nothing of what it looks at.
"""

import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.sync import Admin
from sensors.findings import Alerts, Averages, written
from sensors.folders import AVERAGES, CHECKPOINTS
from sensors.progress import progress_of
from sensors.topics import ALERTS, DEAD_LETTERS, READINGS
from sensors.view import Sight

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

RATE_LOOKS: Final = 10
"""A rate is over so many looks."""


class Watch:
    """Looks when it is asked to."""

    def __init__(
        self,
        broker: str,
        admin: Admin,
        alerts: Alerts,
        folder: Path,
        data: Path,
        before: Mapping[str, int],
    ) -> None:
        """Counts what is in topics from `before` on."""
        self.queries: Mapping[str, StreamingQuery] = {}
        self._broker = broker
        self._admin = admin
        self._alerts = alerts
        self._averages = Averages(folder / AVERAGES)
        self._averages.look()
        self._averages_before = self._averages.count
        self._before = before
        self._begun_s = time.monotonic()
        self._readings: deque[tuple[float, int]] = deque([(self._begun_s, 0)], RATE_LOOKS)
        self._places = {
            "averages": str(folder / AVERAGES),
            "checkpoints": str(folder / CHECKPOINTS),
            "topics": str(data / "data"),
            "logs": str(folder / "*.log"),
        }

    def look(self) -> Sight:
        """How things are now."""
        self._averages.look()
        self._alerts.look()
        now_s = time.monotonic()
        in_topics = written(self._admin)
        counts = {topic: now - self._before[topic] for topic, now in in_topics.items()}
        self._readings.append((now_s, counts[READINGS]))
        then_s, then = self._readings[0]
        return Sight(
            broker=self._broker,
            in_topic=in_topics[READINGS],
            elapsed_s=now_s - self._begun_s,
            places=self._places,
            readings=counts[READINGS],
            readings_per_s=(counts[READINGS] - then) / max(now_s - then_s, 0.001),
            averages=self._averages.count - self._averages_before,
            alerts=counts[ALERTS],
            dead_letters=counts[DEAD_LETTERS],
            latest_averages=self._averages.latest,
            latest_alerts=tuple(self._alerts.latest),
            queries=[progress_of(name, query.lastProgress) for name, query in self.queries.items()],
        )
