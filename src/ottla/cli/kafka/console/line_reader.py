"""Line reader of Kafka's console producer, set by the reader's properties.

Invariant: a line becomes the same record as in Java, also if it is not UTF-8. Otherwise BadLine has
Java's message.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.cli.records.input import BadLine, Draft, HeaderPairs
from ottla.client.serializers.text import string
from ottla.errors import OttlaError

DEFAULT_READER: Final = "org.apache.kafka.tools.LineMessageReader"

_TEXT: Final = string()
_ENDS: Final = re.compile(rb"\r\n|\n|\r")


@dataclass(slots=True)
class LineReader:
    """Parses lines to records."""

    parse_key: bool = False
    parse_headers: bool = False
    ignore_error: bool = False
    key_separator: str = "\t"
    headers_delimiter: str = "\t"
    headers_separator: str = ","
    headers_key_separator: str = ":"
    null_marker: str | None = None
    key: None = None
    partition: None = None
    number: int = 0

    @property
    def is_plain(self) -> bool:
        """Whether each line is a value without key and headers."""
        return not self.parse_key and not self.parse_headers and self.null_marker is None

    def draft(self, line: bytes) -> Draft:
        """Parse a line to a record."""
        self.number += 1
        text = _TEXT.deserialize("", line)
        at = 0
        headers: str | None = None
        key: str | None = None
        if self.parse_headers:
            headers = self._before(text, at, self.headers_delimiter, "headers delimiter")
            at += 0 if headers is None else len(headers) + len(self.headers_delimiter)
        if self.parse_key:
            key = self._before(text, at, self.key_separator, "key separator")
            at += 0 if key is None else len(key) + len(self.key_separator)
        pairs: HeaderPairs = ()
        if headers is not None and headers != self.null_marker:
            pairs = tuple(map(self._header, self._split(headers)))
        return Draft(self._bytes(key), self._bytes(text[at:]), pairs)

    def _before(self, text: str, at: int, mark: str, name: str) -> str | None:
        found = text.find(mark, at)
        if found >= 0:
            return text[at:found]
        if self.ignore_error:
            return None
        raise BadLine(f"No {name} found on line number {self.number}: '{text}'")

    def _split(self, headers: str) -> list[str]:
        found = re.split(self.headers_separator, headers)
        while len(found) > 1 and not found[-1]:  # Java drops empty strings at the end
            found.pop()
        return found

    def _header(self, pair: str) -> tuple[str, bytes | None]:
        name, mark, value = pair.partition(self.headers_key_separator)
        if not mark:
            if self.ignore_error:
                return pair, None
            raise BadLine(
                f"No header key separator found in pair '{pair}' on line number {self.number}"
            )
        if name == self.null_marker:
            raise BadLine(
                f"Header keys should not be equal to the null marker '{self.null_marker}' as they "
                "can't be null"
            )
        return name, self._bytes(value)

    def _bytes(self, text: str | None) -> bytes | None:
        if text is None or text == self.null_marker:
            return None
        return _TEXT.serialize("", text)


def reader_of(properties: Mapping[str, str]) -> LineReader:
    """Return a reader with these properties; raises OttlaError if they conflict."""

    def is_true(name: str) -> bool:
        return properties.get(name, "").strip().lower() == "true"

    reader = LineReader(
        is_true("parse.key"),
        is_true("parse.headers"),
        is_true("ignore.error"),
        properties.get("key.separator", "\t"),
        properties.get("headers.delimiter", "\t"),
        properties.get("headers.separator", ","),
        properties.get("headers.key.separator", ":"),
        properties.get("null.marker"),
    )
    marks = {
        "headers.delimiter": reader.headers_delimiter,
        "headers.separator": reader.headers_separator,
        "headers.key.separator": reader.headers_key_separator,
    }
    for one, other in (
        ("headers.delimiter", "headers.separator"),
        ("headers.delimiter", "headers.key.separator"),
        ("headers.separator", "headers.key.separator"),
    ):
        if marks[one] == marks[other]:
            raise OttlaError(f"{one} and {other} may not be equal")
    for name, mark in {
        "key.separator": reader.key_separator,
        "headers.separator": reader.headers_separator,
        "headers.delimiter": reader.headers_delimiter,
        "headers.key.separator": reader.headers_key_separator,
    }.items():
        if mark == reader.null_marker:
            raise OttlaError(f"null.marker and {name} may not be equal")
    return reader


def split_as_java(data: bytes) -> tuple[list[bytes], bytes]:
    r"""Split at \n, \r and \r\n; returns the lines and the rest, which keeps a last \r."""
    if b"\r" not in data:
        lines = data.split(b"\n")
        rest = lines.pop()
    else:
        held = b"\r" if data.endswith(b"\r") else b""
        lines = _ENDS.split(data[: len(data) - len(held)])
        rest = lines.pop() + held
    return [_sound(line) for line in lines], rest


def _sound(line: bytes) -> bytes:
    """Replace bytes that are not UTF-8, like Java."""
    if line.isascii():
        return line
    try:
        line.decode()
    except UnicodeDecodeError:
        return _TEXT.serialize("", _TEXT.deserialize("", line)) or b""
    return line
