"""Registration: what `register(spark)` makes a session able to do.

Invariant: registering twice is as good as once. Without it Spark finds the source by its name
(`pyspark_ottla`), which reads and writes alike, but tells groups of a stream's progress one
micro-batch late. A program that ends without `spark.stop()` has told them all the same. Filters are
pushed down only for who asks: Spark 4.2 keeps the plan of the last filter for a DataFrame, and
reads by it whatever else is asked of the same one.
"""

# To import it is not possible any more when a program ends.
import concurrent.futures.thread  # noqa: F401 # pyright: ignore[reportUnusedImport]
import threading
from contextlib import suppress
from typing import Any, Final

from pyspark.sql import SparkSession

from ottla.pipeline.filters import FilteringSource
from ottla.pipeline.lag import LagListener
from ottla.pipeline.source import RegisteredSource

LISTENS: Final = "_ottla_lag"  # what a session has that was registered
PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
TOLD_MS_MAX: Final = 10_000
"""So long a program that ends waits for the last of what Spark tells."""


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
        # No daemon: the end of a program waits for it, and Spark still finds who listens.
        threading.Thread(target=_hear_out, args=(spark,), name="last words of Spark").start()


def _hear_out(spark: SparkSession) -> None:
    """Let Spark tell what it has to tell, when a program ends that did not stop it."""
    threading.main_thread().join()
    context: Any = spark.sparkContext
    if context._jsc is None:  # it was stopped, and told all  # noqa: SLF001
        return
    with suppress(Exception):  # Java has ended, or is too slow: there is nobody to say it to
        context._jsc.sc().listenerBus().waitUntilEmpty(TOLD_MS_MAX)  # noqa: SLF001
