"""Registers the data source and a progress listener in a Spark session.

Invariant: a second registration changes nothing. Spark also finds the source by its name, without a
registration (`pyspark_ottla`): reads and writes are the same, but group offsets are committed one
micro-batch late. A program that ends, with or without `spark.stop()`, has committed all offsets.
Filters are pushed down only on request: Spark 4.2 keeps the plan of the last filter of a DataFrame,
and uses it for every later action on that DataFrame.
"""

# It cannot be imported during interpreter shutdown, when the last commit needs it.
import concurrent.futures.thread  # noqa: F401 # pyright: ignore[reportUnusedImport]
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from ottla.pipeline.filters import FilteringSource
from ottla.pipeline.fork_server import forked_python
from ottla.pipeline.lag import LagListener
from ottla.pipeline.source import RegisteredSource

LISTENER: Final = "_ottla_lag"  # attribute of a registered session
PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
RUNNER_VARIABLES: Final = (
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
    "SPARK_LOCAL_DIRS",
    "SPARK_PYTHON_RUNTIME",
)
"""The environment variables that Spark sets for each Python process of a data source.

All queries of a session share the map of these variables, which is a HashMap without a lock. If
several queries start at once and each adds the variables, the map can be damaged for good: then no
task can be sent any more (java.io.OptionalDataException). Replacing a value is safe.
"""

DRAIN_MS_MAX: Final = 10_000
"""How long a program that ends waits for the last events of Spark, and again for their commits."""


def register(spark: SparkSession, *, push_filters: bool = False) -> None:
    """Let a session read and write topics with `format("ottla")`.

    Its streams commit their offsets to consumer groups after each micro-batch. With `push_filters`,
    batch reads fetch only records that match filters on partition, offset and timestamp. Then use
    each DataFrame with one filter only, and `load()` another DataFrame for the next filter.
    """
    if push_filters:
        spark.conf.set(PUSHDOWN, "true")
    environment: Any = spark.sparkContext.environment
    for name in RUNNER_VARIABLES:
        environment.setdefault(name, "")  # Spark replaces it before a process starts
    with _forked_python(spark.sparkContext):
        spark.dataSource.register(FilteringSource if push_filters else RegisteredSource)
    if LISTENER not in spark.__dict__:
        spark.__dict__[LISTENER] = listener = LagListener(spark)
        spark.streams.addListener(listener)
        # Not a daemon: the end of the program waits for it while the listener still works.
        arguments = (spark, listener)
        threading.Thread(target=_drain_events, args=arguments, name="ottla spark events").start()


@contextmanager
def _forked_python(context: SparkContext) -> Generator[None]:
    """Let the Python processes of a data source that is registered now be forked."""
    before = context.pythonExec
    context.pythonExec = forked_python(context) or before
    try:
        yield
    finally:
        context.pythonExec = before


def _drain_events(spark: SparkSession, listener: LagListener) -> None:
    """Wait for Spark's last events and for the commits of their offsets when a program ends."""
    threading.main_thread().join()
    context: Any = spark.sparkContext
    if context._jsc is not None:  # otherwise Spark was stopped and has sent all events  # noqa: SLF001
        with suppress(Exception):  # Java has ended or is too slow: nobody reads an error now
            context._jsc.sc().listenerBus().waitUntilEmpty(DRAIN_MS_MAX)  # noqa: SLF001
    listener.wait(DRAIN_MS_MAX / 1000)
