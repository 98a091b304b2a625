"""Filters that Spark pushes down: on partition, offset and timestamp of a batch.

Invariant: a filter that is taken narrows what is read and Spark filters again what comes, so that a
filter can make a read smaller and never wrong.
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
    """Narrowed by a filter, as far as it tells anything."""
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
    """Reads a batch, and of it what filters leave."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Narrow what is read; Spark filters what comes all the same."""
        for one in filters:
            self.narrowing = narrowed(self.narrowing, one)
        return filters


class FilteringSource(RegisteredSource):
    """The source that is registered: its batches take filters, which Spark has to be told."""

    batch_reader = FilteringReader
