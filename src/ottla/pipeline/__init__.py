"""The Spark data source `format("ottla")`, which reads and writes topics without a jar."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: "SparkSession", *, push_filters: bool = False) -> None:
    """Let a session read and write topics with `format("ottla")`.

    Its streams commit their offsets to consumer groups after each micro-batch. With `push_filters`,
    batch reads fetch only records that match filters on partition, offset and timestamp. Then use
    each DataFrame with one filter only, and `load()` another DataFrame for the next filter.
    """
    from ottla.pipeline.registration import register as register_session

    register_session(spark, push_filters=push_filters)
