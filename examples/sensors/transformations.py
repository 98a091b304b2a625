"""What the job does with rows: functions from a DataFrame to a DataFrame.

Invariant: every row of the topic is either a reading or a dead letter. How rows are shared out
among micro-batches matters to averages only for what comes later than the watermark allows, and to
alerts not at all: they look at readings in the order in which they came.
"""

from collections.abc import Iterator
from math import sqrt
from typing import Any, Final, NamedTuple

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.state import GroupStateTimeout

READING: Final = "device STRING, at TIMESTAMP, temperature DOUBLE, vibration DOUBLE"
ALERT: Final = {
    "device": "STRING",
    "at": "TIMESTAMP",
    "signal": "STRING",
    "value": "DOUBLE",
    "mean": "DOUBLE",
    "deviation": "DOUBLE",
}
WINDOW: Final = "10 seconds"
LATENESS: Final = "5 seconds"

MEMORY: Final = 100.0
"""A running mean is over about so many readings; a float, for Spark keeps no int in a DOUBLE."""

WARM_UP: Final = 25
"""Before so many readings a device has no mean that anything could be compared with."""

DEVIATIONS: Final = 6
"""What is so many deviations away from the mean is an anomaly."""

SIGNALS: Final = {"temperature": 0.1, "vibration": 0.02}
"""What is watched, with the least deviation that is believed."""


def checked(raw: DataFrame) -> DataFrame:
    """Rows of the topic with what they say, and `reason`: why they cannot be used, or null."""
    text = f.col("value").cast("string")
    parsed = f.from_json(text, f"{READING}, broken STRING", {"columnNameOfCorruptRecord": "broken"})
    # In a list of one: else Spark parses anew for each field that the reason looks at.
    both = f.transform(
        f.array(parsed),
        lambda said: f.struct(said.alias("said"), _reason(said).alias("reason")),
    )
    return raw.withColumn("checked", both[0]).select(*raw.columns, "checked.*")


def _reason(said: Column) -> Column:
    key, value = f.col("key").cast("string"), f.col("value")
    problems = [
        (value.isNull() | (f.length(value) == 0), "there is no value"),
        (said.isNull() | said["broken"].isNotNull(), "it is not a reading in JSON"),
        (said["device"].isNull(), "device is missing"),
        (said["at"].isNull(), "at is missing"),
        (said["temperature"].isNull(), "temperature is missing"),
        (said["vibration"].isNull(), "vibration is missing"),
        (key.isNull() | (key != said["device"]), "its key is not its device"),
    ]
    return f.coalesce(*(f.when(wrong, f.lit(text)) for wrong, text in problems))


def readings(raw: DataFrame) -> DataFrame:
    """What could be read."""
    right = checked(raw).where("reason IS NULL")
    return right.select("said.device", "said.at", "said.temperature", "said.vibration", "offset")


def dead_letters(raw: DataFrame) -> DataFrame:
    """What could not, as it came, with the reason and where it came from in its headers."""
    wrong = checked(raw).where("reason IS NOT NULL")
    origin = {
        "reason": f.col("reason"),
        "origin.topic": f.col("topic"),
        "origin.partition": f.col("partition").cast("string"),
        "origin.offset": f.col("offset").cast("string"),
        "origin.timestamp": f.col("timestamp").cast("string"),
    }
    headers = [
        f.struct(f.lit(name).alias("key"), value.cast("binary").alias("value"))
        for name, value in origin.items()
    ]
    return wrong.select("key", "value", f.array(*headers).alias("headers"))


def averages(rows: DataFrame) -> DataFrame:
    """The means of each device over ten seconds, once nothing more is expected for them."""
    window = f.window("at", WINDOW)
    found = (
        rows.withWatermark("at", LATENESS)
        .groupBy(window.alias("window"), "device")
        .agg(
            f.avg("temperature").alias("temperature"),
            f.avg("vibration").alias("vibration"),
            f.count("*").alias("readings"),
        )
    )
    return found.select(
        f.col("window.start").alias("start"),
        f.col("window.end").alias("end"),
        *("device", "temperature", "vibration", "readings"),
    )


def alerts(rows: DataFrame) -> DataFrame:
    """Readings that are far from what their device usually measures."""
    kept = [f"{signal}_{part}" for signal in SIGNALS for part in USUAL]
    found = rows.groupBy("device").applyInPandasWithState(
        anomalies,
        outputStructType=", ".join(f"{name} {kind}" for name, kind in ALERT.items()),
        stateStructType=", ".join(f"{name} DOUBLE" for name in kept),
        outputMode="append",
        timeoutConf=GroupStateTimeout.NoTimeout,
    )
    return found.select(f.col("device").alias("key"), f.to_json(f.struct("*")).alias("value"))


class Usual(NamedTuple):
    """What a device usually measures: the running mean of a signal, and its variance."""

    seen: float = 0.0
    mean: float = 0.0
    variance: float = 0.0

    def and_then(self, value: float) -> "Usual":
        """The same after another value."""
        seen = min(self.seen + 1, MEMORY)
        away = value - self.mean
        mean = self.mean + away / seen
        return Usual(seen, mean, self.variance + (away * (value - mean) - self.variance) / seen)


def anomalies(
    key: tuple[str], frames: Iterator[pd.DataFrame], state: Any
) -> Iterator[pd.DataFrame]:
    """The anomalies of a device in a micro-batch; `state` is what is usual for it."""
    rows: Any = pd.concat(frames).sort_values("offset")  # as they came
    kept: tuple[float, ...] = state.get if state.exists else ()
    found: list[tuple[Any, ...]] = []
    after: list[float] = []
    for number, (signal, least) in enumerate(SIGNALS.items()):
        usual = Usual(*kept[len(USUAL) * number : len(USUAL) * (number + 1)])
        for at, value in zip(rows["at"], rows[signal].tolist(), strict=True):
            deviation = max(sqrt(usual.variance), least)
            if usual.seen >= WARM_UP and abs(value - usual.mean) > DEVIATIONS * deviation:
                found.append((key[0], at, signal, value, usual.mean, deviation))
            usual = usual.and_then(value)
        after += usual
    state.update(tuple(after))
    if found:
        table: Any = pd.DataFrame
        yield table(found, columns=list(ALERT))


USUAL: Final = Usual._fields
