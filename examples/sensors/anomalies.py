"""The step `alerts` of the pipeline: finds readings far from the running mean of their device.

Invariant: the alerts of a device depend only on its readings in the order of their offsets, not on
how Spark divides them into micro-batches.
"""

from collections.abc import Iterator
from math import sqrt
from typing import Any, Final, NamedTuple

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupStateTimeout

ALERT: Final = {
    "device": "STRING",
    "at": "TIMESTAMP",
    "signal": "STRING",
    "value": "DOUBLE",
    "mean": "DOUBLE",
    "deviation": "DOUBLE",
}
SIGNALS: Final = {"temperature": 0.1, "vibration": 0.02}
"""The signals that can raise alerts, each with the lowest deviation that is assumed."""

MEAN_READINGS: Final = 100.0
"""A running mean covers about so many readings. A float, because the state has only DOUBLE."""

WARM_UP: Final = 25
"""A device raises no alerts before so many readings."""

MEAN_EXPIRES_S: Final = 30.0
"""After so long without readings the means of a device are forgotten: its values may have changed.
It is longer than the 20 s that MEAN_READINGS cover."""

DEVIATIONS: Final = 6
"""A value raises an alert if it is more than so many deviations from the mean."""


def alerts(rows: DataFrame) -> DataFrame:
    """Return the readings that are far from the running mean of their device."""
    means = [f"{signal}_{field}" for signal in SIGNALS for field in RunningMean._fields]
    return rows.groupBy("device").applyInPandasWithState(
        find_anomalies,
        outputStructType=", ".join(f"{name} {kind}" for name, kind in ALERT.items()),
        stateStructType=", ".join(f"{name} DOUBLE" for name in ("newest_s", *means)),
        outputMode="append",
        timeoutConf=GroupStateTimeout.NoTimeout,
    )


class RunningMean(NamedTuple):
    """The running mean and variance of a signal, in which recent values count more."""

    readings: float = 0.0  # up to MEAN_READINGS
    mean: float = 0.0
    variance: float = 0.0

    def add(self, value: float) -> "RunningMean":
        """Return the mean and variance with another value."""
        readings = min(self.readings + 1, MEAN_READINGS)
        difference = value - self.mean
        mean = self.mean + difference / readings
        change = difference * (value - mean) - self.variance
        return RunningMean(readings, mean, self.variance + change / readings)


def find_anomalies(
    key: tuple[str], frames: Iterator[pd.DataFrame], state: Any
) -> Iterator[pd.DataFrame]:
    """Yield the anomalies of a device in a micro-batch, and update its means in the state."""
    # By offset, so that the result does not depend on how Spark divides the rows.
    rows: Any = pd.concat(frames).sort_values("_offset")
    newest_s, *before = state.get if state.exists else (0.0,)
    # A reading can be older than the one before it, because some readings are late.
    expired: list[bool] = []
    for at in rows["at"]:
        expired.append(at.timestamp() - newest_s > MEAN_EXPIRES_S)
        newest_s = max(newest_s, at.timestamp())
    size = len(RunningMean._fields)
    found: list[tuple[Any, ...]] = []
    after: list[float] = [newest_s]
    for number, (signal, deviation_min) in enumerate(SIGNALS.items()):
        mean = RunningMean(*before[size * number : size * (number + 1)])
        for at, is_expired, value in zip(rows["at"], expired, rows[signal].tolist(), strict=True):
            if is_expired:
                mean = RunningMean()
            deviation = max(sqrt(mean.variance), deviation_min)
            if mean.readings >= WARM_UP and abs(value - mean.mean) > DEVIATIONS * deviation:
                found.append((key[0], at, signal, value, mean.mean, deviation))
            mean = mean.add(value)
        after += mean
    state.update(tuple(after))
    if found:
        table: Any = pd.DataFrame
        yield table(found, columns=list(ALERT))
