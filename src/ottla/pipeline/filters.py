"""Pushes filters on partition, offset and timestamp down to the reader of a batch.

Invariant: Spark applies every filter again to the rows, so that a pushed filter can make a read
smaller but never wrong.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from ottla.pipeline.pushdown import Pushdown
from ottla.pipeline.source import OttlaReader, RegisteredSource


def narrowed(before: Pushdown, one: Filter) -> Pushdown:
    """Return the pushdown narrowed by a filter, or unchanged if the filter cannot be pushed."""
    path: tuple[str, ...] = getattr(one, "attribute", ())
    match path, one:
        case (("partition",), EqualTo(_, value)) if isinstance(value, int):
            return before.among({value})
        case (("partition",), In(_, values)):
            return before.among({value for value in values if isinstance(value, int)})
        case (("offset",), EqualTo(_, value)) if isinstance(value, int):
            return before.offsets_from(value).offsets_until(value)
        case (("offset",), GreaterThan(_, value)) if isinstance(value, int):
            return before.offsets_from(value + 1)
        case (("offset",), GreaterThanOrEqual(_, value)) if isinstance(value, int):
            return before.offsets_from(value)
        case (("offset",), LessThan(_, value)) if isinstance(value, int):
            return before.offsets_until(value - 1)
        case (("offset",), LessThanOrEqual(_, value)) if isinstance(value, int):
            return before.offsets_until(value)
        case (
            ("timestamp",),
            EqualTo(_, value) | GreaterThan(_, value) | GreaterThanOrEqual(_, value),
        ) if isinstance(value, datetime):
            return before.since(_ms(value))
        case _:
            return before


def _ms(value: datetime) -> int:
    return int(value.astimezone(UTC).timestamp() * 1000)


class FilteringReader(OttlaReader):
    """Reads the records of a batch that can match the filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Narrow the read; return all filters, for Spark to apply them to the rows."""
        for one in filters:
            self.pushdown = narrowed(self.pushdown, one)
        return filters


class FilteringSource(RegisteredSource):
    """The data source of a session with filter pushdown; Spark requires the setting for it."""

    batch_reader = FilteringReader
