"""The session of the job, with what the job needs of Spark whoever starts it.

Invariant: what the caller says counts before what is here.
"""

from typing import Any, Final

from pyspark.sql import SparkSession

NAME: Final = "sensors"
SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    # 200, if nobody says. Each has a state of its own to keep: few are better for 200 devices.
    "spark.sql.shuffle.partitions": "2",
}


def session(name: str = NAME, **settings: str) -> SparkSession:
    """Spark, where spark-submit or `settings` say."""
    builder: Any = SparkSession.builder
    builder = builder.appName(name)
    for setting, value in {**SETTINGS, **settings}.items():
        builder = builder.config(setting, value)
    return builder.getOrCreate()
