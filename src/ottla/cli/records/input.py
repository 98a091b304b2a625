"""Parses records from lines of text or JSON.

Invariant: a line becomes one record, or raises BadLine with the reason. The output of `ottla
consume -o json` is accepted.
"""

import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias, cast

import msgspec

from ottla.errors import OttlaError

HeaderPairs: TypeAlias = tuple[tuple[str, bytes | None], ...]

TIMESTAMP_MAX: Final = 2**63 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_KNOWN: Final = frozenset({"key", "value", "headers", "partition", "timestamp", "topic", "offset"})
_PAIR: Final = re.compile(rb"(?i:\\\\|\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2})")
_HALF: Final = re.compile(rb"(?i:\\ud[89a-f][0-9a-f]{2})")


class BadLine(OttlaError):
    """A line that is not a record."""


class Draft(NamedTuple):
    """A record to write."""

    key: bytes | None
    value: bytes | None
    headers: HeaderPairs = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LineForm:
    """The format of lines, and what all records have."""

    json: bool = False
    key: bytes | None = None
    key_separator: bytes | None = None
    headers: HeaderPairs = ()
    partition: int | None = None
    null: bytes | None = None
    """The text that stands for null."""

    @property
    def is_plain(self) -> bool:
        """Whether a line is only a value."""
        no_parts = self.key_separator is None and not self.headers and self.null is None
        return no_parts and not self.json

    def draft(self, line: bytes) -> Draft:
        """Return the record of a line."""
        if self.json:
            try:
                return self._said(line)
            except RecursionError:  # on reading, writing or reporting it
                raise BadLine("JSON is nested too deeply") from None
        key, value = self.key, line
        if self.key_separator is not None:
            key, found, value = line.partition(self.key_separator)
            if not found:
                separator = self.key_separator.decode("utf-8", "backslashreplace")
                raise BadLine(f"no {separator!r} after a key")
        return Draft(self._null(key), self._null(value), self.headers, self.partition)

    def _null(self, data: bytes | None) -> bytes | None:
        return None if data == self.null else data

    def _said(self, line: bytes) -> Draft:
        try:
            said = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            if _HALF.search(_PAIR.sub(b"", line)):
                half = "unpaired surrogate (\\ud800 to \\udfff)"
                raise BadLine(half) from None
            raise BadLine(f"not JSON: {error}") from None
        if not isinstance(said, dict):
            raise BadLine("not an object with key, value, headers, partition and timestamp")
        fields = cast("dict[str, Any]", said)
        if unknown := fields.keys() - _KNOWN:
            raise BadLine(f"unknown field: {', '.join(sorted(unknown))}")
        return Draft(
            _bytes(fields["key"]) if "key" in fields else self.key,
            _bytes(fields.get("value")),
            (*self.headers, *_headers(fields.get("headers"))),
            self.partition if self.partition is not None else _partition(fields.get("partition")),
            timestamp_of(fields.get("timestamp")),
        )


def header_of(text: str) -> tuple[str, bytes | None]:
    """Parse name=value; a name alone has a null value."""
    name, equals, value = text.partition("=")
    if not name:
        raise BadLine(f"{text!r} is not a header: use name=value")
    return name, value.encode("utf-8", "surrogateescape") if equals else None


def _bytes(said: Any) -> bytes | None:
    """Encode text as UTF-8, {"base64": …} as its bytes, anything else as JSON."""
    match said:
        case None:
            return None
        case str():
            return said.encode()
        case {"base64": str(text), **rest} if not rest:
            try:
                return b64decode(text, validate=True)
            except ValueError:
                raise BadLine(f"not base64: {text!r:.40}") from None
        case _:
            return msgspec.json.encode(said)


def _headers(said: Any) -> HeaderPairs:
    match said:
        case None:
            return ()
        case Mapping():
            pairs = cast("Mapping[str, Any]", said)
            return tuple((name, _bytes(value)) for name, value in pairs.items())
        case Sequence() if not isinstance(said, str):
            return tuple(map(_header, cast("Sequence[Any]", said)))
        case _:
            raise BadLine('headers must be {"name": "value"} or a list of {"key": …, "value": …}')


def _header(said: Any) -> tuple[str, bytes | None]:
    match said:
        case {"key": str(name), "value": value}:
            return name, _bytes(value)
        case [str(name), value]:
            return name, _bytes(value)
        case _:
            raise BadLine('a header must be {"key": "name", "value": "value"}')


def _partition(said: Any) -> int | None:
    if said is None or (type(said) is int and 0 <= said < 2**31):
        return said
    raise BadLine(f"{said!r} is not a partition number")


def timestamp_of(said: Any) -> int | None:
    """Parse milliseconds since 1970 or a date such as 2026-11-01T00:00:00Z."""
    if said is None:
        return None
    if type(said) is int and 0 <= said <= TIMESTAMP_MAX:
        return said
    if isinstance(said, str):
        try:
            found = datetime.fromisoformat(said)
        except ValueError:
            pass
        else:
            found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
            if found >= _EPOCH:
                return (found - _EPOCH) // timedelta(milliseconds=1)
    raise BadLine(
        f"{said!r} is not a timestamp: use milliseconds since 1970 or 2026-11-01T00:00:00Z"
    )
