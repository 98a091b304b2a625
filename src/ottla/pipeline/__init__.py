"""Topics in Spark: `register(spark)`, then `format("ottla")` reads and writes without a jar."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: "SparkSession", *, push_filters: bool = False) -> None:
    """Let a session read and write topics by `format("ottla")`, and groups hear of its streams.

    With `push_filters`, batch reads fetch only what filters on partition, offset and timestamp
    leave. Use each DataFrame with one filter then, and `load()` another one for the next.
    """
    from ottla.pipeline.registration import register as registered

    registered(spark, push_filters=push_filters)
