"""Registration: what `register(spark)` makes a session able to do.

Invariant: registering twice is as good as once. Without it Spark finds the source by its name
(`pyspark_ottla`), which reads and writes alike, but tells groups of a stream's progress one
micro-batch late. Filters are pushed down only for who asks: Spark 4.2 keeps the plan of the last
filter for a DataFrame, and reads by it whatever else is asked of the same one.
"""

from typing import Final

from pyspark.sql import SparkSession

from ottla.pipeline.filters import FilteringSource
from ottla.pipeline.lag import LagListener
from ottla.pipeline.source import RegisteredSource

LISTENS: Final = "_ottla_lag"  # what a session has that was registered
PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession, *, push_filters: bool = False) -> None:
    """Let a session read and write topics by `format("ottla")`.

    With `push_filters`, batch reads fetch only what filters on partition, offset and timestamp
    leave. Use each DataFrame with one filter then, and `load()` another one for the next.
    """
    if push_filters:
        spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(FilteringSource if push_filters else RegisteredSource)
    if LISTENS not in spark.__dict__:
        spark.__dict__[LISTENS] = listener = LagListener(spark)
        spark.streams.addListener(listener)
