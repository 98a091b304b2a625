"""Reads and prints records for `ottla consume`.

Invariant: records are printed before the group commits them. While there is nothing more to read,
everything received is printed. After a signal the consumer leaves its group, so that other members
get its partitions at once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ottla.cli.failures import Stopped
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
from ottla.cli.stop_request import StopRequest
from ottla.errors import OttlaError

Show: TypeAlias = Callable[[Cells], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What to read."""

    topic: str
    partitions: Sequence[int]
    position: Position
    count: int | None
    stops: bool
    """Whether to stop at the end."""

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
    """Return the printer for a format; raises BadFormat or ValueError."""
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
    """Return the printer for objects; raises ValueError for a bad schema."""
    objects = Objects(key, value, key_schema, value_schema)
    return lambda cells: written(objects.made(cells), output)


async def read_to(
    settings: Mapping[str, str], reading: ReadOptions, show: Show, output: RecordOutput
) -> None:
    """Read and print records; raises Stopped after a signal, when the group has been left."""
    with StopRequest() as stop:
        async with ColumnConsumer(_settings(settings, reading)) as consumer:
            await stop.may_end(_read(consumer, reading, show, output))
            if stop.number is not None:
                # The last records may not be printed yet. Those before them are done.
                await consumer.close(is_done=False)
    if stop.number is not None:
        raise Stopped("interrupted", stop.number)


async def _read(
    consumer: ColumnConsumer, reading: ReadOptions, show: Show, output: RecordOutput
) -> None:
    limits = Limits(reading.count)
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
    await show_all(consumer, limits, show, output, is_group=reading.group is not None)


async def show_all(
    consumer: ColumnConsumer,
    limits: Limits,
    show: Show,
    output: RecordOutput,
    *,
    is_group: bool,
) -> None:
    """Print what arrives until the limits are reached, or an error: also what came before it."""
    try:
        async for found in taken(consumer, limits):
            if found is None:
                await output.flush()
                continue
            chunk, rows = found
            for cells in chunk.stretches(rows):
                await output.write(show(cells))
            if is_group:
                await output.flush()
    except OttlaError:
        await output.flush()
        raise
    await output.flush()


def _settings(settings: Mapping[str, str], reading: ReadOptions) -> dict[str, str]:
    found = {"allow.auto.create.topics": "false", **settings}
    if reading.group is not None:
        reset = "latest" if reading.position.kind is PositionKind.END else "earliest"
        found |= {"group.id": reading.group, "auto.offset.reset": reset}
    else:
        found["auto.offset.reset"] = "earliest"  # deleted records are skipped
    return found
