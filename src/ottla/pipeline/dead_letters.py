"""Dead letters: records and rows that a pipeline cannot process, as records of a topic.

A dead letter of a source is the original record: its key, its value and its headers. A dead letter
of a step is the row as JSON, without a key. The reason is in headers whose names begin with
`ottla.`.

Invariant: headers of an earlier attempt are replaced, and `ottla.attempts` counts on. So a record
that is sent back to its topic and fails again has its headers once.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ottla.pipeline.parsing import ERROR
from ottla.pipeline.redrive_decision import ATTEMPTS, PREFIX

RECORD: Final = "_record"
"""The column with the original record, as a struct: a schema may have columns of the same names."""

_HEADERS: Final = "array<struct<key:string,value:binary>>"


def dead_records(failed: DataFrame, pipeline: str, source: str) -> DataFrame:
    """Return the records of a source that have an error, with it and their origin in headers."""
    record = f.col(RECORD)
    values = {
        "error": f.col(ERROR),
        "topic": record["topic"],
        "partition": record["partition"],
        "offset": record["offset"],
        "timestamp": _time(record["timestamp"]),
        "attempts": _attempts(record["headers"]) + 1,
    }
    before = f.coalesce(record["headers"], f.array().cast(_HEADERS))
    kept = f.filter(before, lambda header: ~header["key"].startswith(PREFIX))
    headers = f.concat(kept, _headers(pipeline, source, values)).alias("headers")
    return failed.select(record["key"].alias("key"), record["value"].alias("value"), headers)


def dead_rows(failed: DataFrame, pipeline: str, step: str) -> DataFrame:
    """Return the rows of a step that have an error, as JSON."""
    columns = [column for column in failed.columns if column != ERROR]
    headers = _headers(pipeline, step, {"error": f.col(ERROR)})
    return failed.select(f.to_json(f.struct(*columns)).alias("value"), headers.alias("headers"))


def _headers(pipeline: str, step: str, values: dict[str, Column]) -> Column:
    every = {
        "pipeline": f.lit(pipeline),
        "step": f.lit(step),
        **values,
        "time": _time(f.current_timestamp()),
    }
    return f.array(
        *(
            f.struct(
                f.lit(f"{PREFIX}{name}").alias("key"),
                value.cast("string").cast("binary").alias("value"),
            )
            for name, value in every.items()
        )
    )


def _time(timestamp: Column) -> Column:
    """Return a time as ISO 8601 in UTC, whatever the time zone of the session."""
    utc = f.to_utc_timestamp(timestamp, f.current_timezone())
    return f.date_format(utc, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")


def _attempts(headers: Column) -> Column:
    """Return how often a record has been a dead letter before."""
    found = f.filter(headers, lambda header: header["key"] == ATTEMPTS)
    number = f.try_element_at(found, f.lit(1))["value"].cast("string")
    return f.coalesce(number.try_cast("int"), f.lit(0))
