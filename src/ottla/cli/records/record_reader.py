"""Reading records and showing them: the work of `ottla consume`.

Invariant: what was shown has left before the group hears that it was read. While nothing more is
there, all that came has been written.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ottla.cli.offsets.positions import Position, PositionKind
from ottla.cli.output import Output
from ottla.cli.records.cells import Cells
from ottla.cli.records.form_names import Seen
from ottla.cli.records.format import Looks, parse, rendered
from ottla.cli.records.forms import SchemaFile, to_bytes
from ottla.cli.records.objects import Objects, written
from ottla.cli.records.output import RecordOutput
from ottla.cli.records.places import Limits
from ottla.cli.records.stream import ColumnConsumer, begin_at, join, taken
from ottla.cli.result import complain

Show: TypeAlias = Callable[[Cells], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What is to be read."""

    topic: str
    partitions: Sequence[int]
    position: Position
    count: int | None
    stops: bool
    """Whether it ends at the end."""

    group: str | None


def text_shown(
    format_: str,
    key: Seen,
    value: Seen,
    key_schema: SchemaFile | None,
    value_schema: SchemaFile | None,
    *,
    null: str,
) -> Show:
    """What prints records by a format; BadFormat or ValueError when it is not right."""
    parts = parse(format_)
    looks = Looks(
        to_bytes(key, key_schema),
        to_bytes(value, value_schema),
        null.encode("utf-8", "surrogateescape"),
    )
    return lambda cells: rendered(parts, looks, cells)


def objects_shown(
    output: Output,
    key: Seen,
    value: Seen,
    key_schema: SchemaFile | None,
    value_schema: SchemaFile | None,
) -> Show:
    """What prints records as objects; ValueError when a schema is not right."""
    objects = Objects(key, value, key_schema, value_schema)
    return lambda cells: written(objects.made(cells), output)


async def read_to(
    settings: Mapping[str, str], reading: ReadOptions, show: Show, output: RecordOutput
) -> int:
    """Read what is wanted, and show it; how many records that were."""
    limits = Limits(reading.count)
    async with ColumnConsumer(_settings(settings, reading)) as consumer:
        if reading.group is not None:
            await consumer.known_partitions(reading.topic)
            if not await join(consumer, reading.topic, limits, stops=reading.stops):
                complain(
                    f"nothing was read: other members of {reading.group} own all partitions of "
                    f"{reading.topic}"
                )
        else:
            limits.ends = await begin_at(
                consumer,
                reading.topic,
                reading.partitions,
                reading.position,
                stops=reading.stops,
            )
        return await show_all(consumer, limits, show, output, is_group=reading.group is not None)


async def show_all(
    consumer: ColumnConsumer,
    limits: Limits,
    show: Show,
    output: RecordOutput,
    *,
    is_group: bool,
    idle_s: float | None = None,
) -> int:
    """Show what comes until the limits are reached; how many records that were."""
    count = 0
    async for found in taken(consumer, limits, idle_s=idle_s):
        if found is None:
            await output.flush()
            continue
        chunk, rows = found
        for cells in chunk.stretches(rows):
            await output.write(show(cells))
        count += rows
        if is_group:
            await output.flush()
    await output.flush()
    return count


def _settings(settings: Mapping[str, str], reading: ReadOptions) -> dict[str, str]:
    found = {"allow.auto.create.topics": "false", **settings}
    if reading.group is not None:
        reset = "latest" if reading.position.kind is PositionKind.END else "earliest"
        found |= {"group.id": reading.group, "auto.offset.reset": reset}
    else:
        found["auto.offset.reset"] = "earliest"  # what was there and is gone begins later
    return found
