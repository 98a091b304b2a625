"""Record output of Kafka's console consumer, set by the properties of its formatter.

Invariant: records are printed as Java prints them. If a part of a record cannot be deserialized,
the parts before it are printed and the error is returned.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.cli.kafka.console.deserializers import deserializer
from ottla.cli.kafka.coordinator_json import formatted
from ottla.cli.kafka.flags import NotDone
from ottla.cli.records.cells import Cells, Taken
from ottla.cli.records.format import Column, Looks, Part, header_texts, numbers, rendered
from ottla.cli.records.forms import ToBytes
from ottla.protocol import offsets_topic, transactions_topic
from ottla.protocol.coordinator_records import CoordinatorRecordTypes
from ottla.records import TimestampType

DEFAULT_FORMATTER: Final = "org.apache.kafka.tools.consumer.DefaultMessageFormatter"
_PACKAGE: Final = "org.apache.kafka.tools.consumer."
_LIKE_DEFAULT: Final = ("DefaultMessageFormatter", "LoggingMessageFormatter")
_SILENT: Final = "NoOpMessageFormatter"

# Names of the classes before Kafka 4.0.
_OLD_NAMES: Final = {
    "kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter": (
        "OffsetsMessageFormatter"
    ),
    "kafka.coordinator.group.GroupMetadataManager$GroupMetadataMessageFormatter": (
        "GroupMetadataMessageFormatter"
    ),
    "kafka.coordinator.transaction.TransactionLog$TransactionLogMessageFormatter": (
        "TransactionLogMessageFormatter"
    ),
}
_OF_COORDINATORS: Final[Mapping[str, tuple[CoordinatorRecordTypes, Container[int]]]] = {
    "OffsetsMessageFormatter": (offsets_topic.TYPES, {0, 1}),
    "GroupMetadataMessageFormatter": (offsets_topic.TYPES, {2}),
    "TransactionLogMessageFormatter": (transactions_topic.TYPES, {0}),
}
"""The record types that a formatter prints; it prints nothing for others."""

_TYPES: Final = {
    TimestampType.CREATE_TIME: b"CreateTime:",
    TimestampType.LOG_APPEND_TIME: b"LogAppendTime:",
}


@dataclass(frozen=True, slots=True)
class Formatter:
    """Formats records."""

    parts: Sequence[Part]
    looks: Looks

    def shown(self, cells: Cells) -> bytes:
        """Format all records; raises ValueError if one cannot be deserialized."""
        return rendered(self.parts, self.looks, cells)

    def some(self, taken: Taken, row: int) -> tuple[bytes, Exception | None]:
        """Format one record up to the first part that fails; returns the error as well."""
        cells = Cells(taken, row, row + 1)
        pieces: list[bytes] = []
        for part in self.parts:
            try:
                column = part if isinstance(part, bytes) else part(cells, self.looks)
            except Exception as error:  # deserializers may raise anything
                return b"".join(pieces), error
            pieces.append(column if isinstance(column, bytes) else column[0])
        return b"".join(pieces), None


def formatter_of(
    name: str, properties: Mapping[str, str], complain: Callable[[str], object]
) -> Formatter:
    """Return the formatter of this class with these properties."""
    short = _OLD_NAMES.get(name) or name.removeprefix(_PACKAGE).removeprefix("kafka.tools.")
    if short == _SILENT:
        return Formatter((), Looks())
    if short in _OF_COORDINATORS:
        return Formatter((_coordinator_record(*_OF_COORDINATORS[short]),), Looks())
    if short not in _LIKE_DEFAULT:
        raise NotDone(
            f"kafka-console-consumer: formatter {name} is not supported, use one of "
            f"{', '.join((*_LIKE_DEFAULT, _SILENT, *_OF_COORDINATORS))}"
        )

    def printer(part: str, *, is_key: bool) -> ToBytes | None:
        if (known := properties.get(f"{part}.deserializer")) is None:
            return None
        prefix = f"{part}.deserializer."
        own = {
            one.removeprefix(prefix): text
            for one, text in properties.items()
            if one.startswith(prefix)
        }
        try:
            found = deserializer(known, own, is_key=is_key)
        except LookupError as error:
            complain(f"Unable to instantiate a deserializer from {known}: {error}")
            return None
        if found is None:
            complain(f"Unable to instantiate a deserializer from {known}")
        return found

    looks = Looks(
        printer("key", is_key=True),
        printer("value", is_key=False),
        properties.get("null.literal", "null").encode(),
        printer("headers", is_key=False),
        header_is=b":",
        header_and=properties.get("headers.separator", ",").encode(),
        no_headers=b"NO_HEADERS",
    )
    return Formatter(_parts(properties), looks)


def _parts(properties: Mapping[str, str]) -> list[Part]:
    """Return the parts to print in Java's order, with their separators and the line end."""
    between = properties.get("key.separator", "\t").encode()
    behind = properties.get("line.separator", "\n").encode()
    wanted = [
        part
        for name, is_default, part in _PARTS
        if properties.get(f"print.{name}", is_default).strip().lower() == "true"
    ]
    parts: list[Part] = []
    for part in wanted:
        parts += [part, between]
    return [*parts[:-1], behind] if parts else []


def _coordinator_record(types: CoordinatorRecordTypes, allowed: Container[int]) -> Part:
    """Return the part that prints a record of an internal topic as JSON.

    As in Kafka, no line end follows.
    """

    def part(cells: Cells, looks: Looks) -> Column:
        records = zip(cells.keys(), cells.values(), cells.offsets(), strict=True)
        return [formatted(types, allowed, *one).encode() for one in records]

    return part


def _timestamp(cells: Cells, looks: Looks) -> Column:
    times = numbers(cells.timestamps())
    return [_TYPES[kind] + time for kind, time in zip(cells.timestamp_types(), times, strict=True)]


def _partition(cells: Cells, looks: Looks) -> Column:
    return b"Partition:%d" % cells.partition.partition


def _offset(cells: Cells, looks: Looks) -> Column:
    return [b"Offset:" + one for one in numbers(cells.offsets())]


def _epoch(cells: Cells, looks: Looks) -> Column:
    return b"Epoch:NOT_PRESENT"  # Java's tool does not pass the epoch to its formatter


def _delivery(cells: Cells, looks: Looks) -> Column:
    return b"Delivery:NOT_PRESENT"


def _headers(cells: Cells, looks: Looks) -> Column:
    if looks.header_value is None:
        return header_texts(cells, looks)
    make, null = looks.header_value, looks.null
    return [
        looks.header_and.join(
            name + looks.header_is + make(null if value is None else value) for name, value in pairs
        )
        or looks.no_headers
        for pairs in cells.headers()
    ]


def _key(cells: Cells, looks: Looks) -> Column:
    return _read(cells.keys(), looks.key, looks.null)


def _value(cells: Cells, looks: Looks) -> Column:
    return _read(cells.values(), looks.value, looks.null)


def _read(data: list[bytes | None], make: ToBytes | None, null: bytes) -> list[bytes]:
    found = [null if one is None else one for one in data]
    # Java deserializes the null literal as well.
    return found if make is None else [make(one) for one in found]


_PARTS: Final[Sequence[tuple[str, str, Part]]] = (
    ("timestamp", "false", _timestamp),
    ("partition", "false", _partition),
    ("offset", "false", _offset),
    ("delivery", "false", _delivery),
    ("epoch", "false", _epoch),
    ("headers", "false", _headers),
    ("key", "false", _key),
    ("value", "true", _value),
)
