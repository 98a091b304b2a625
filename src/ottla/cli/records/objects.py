"""Records as JSON lines or YAML documents.

Invariant: every record has the same keys. A key or value that is not text is {"base64": …}, unless
another format is requested; `ottla produce --json` accepts it.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from ottla.cli.output import Json, Output
from ottla.cli.records.cells import Cells
from ottla.cli.records.form_names import Seen
from ottla.cli.records.forms import SchemaFile, ToJson, to_json


class Objects:
    """Converts keys and values; raises ValueError at once for a bad schema."""

    def __init__(
        self,
        key: Seen = Seen.TEXT,
        value: Seen = Seen.TEXT,
        key_schema: SchemaFile | None = None,
        value_schema: SchemaFile | None = None,
    ) -> None:
        self.key = key
        self.value = value
        self._key = to_json(key, key_schema)
        self._value = to_json(value, value_schema)

    def made(self, cells: Cells) -> list[dict[str, Json]]:
        """Return an object per record."""
        topic, partition = cells.partition
        return [
            {
                "topic": topic,
                "partition": partition,
                "offset": offset,
                "timestamp": timestamp,
                "key": key,
                "value": value,
                "headers": headers,
            }
            for offset, timestamp, key, value, headers in zip(
                cells.offsets(),
                cells.timestamps(),
                told(cells.keys(), self.key, self._key),
                told(cells.values(), self.value, self._value),
                _headers(cells),
                strict=True,
            )
        ]


def written(objects: Sequence[dict[str, Json]], output: Output) -> bytes:
    """Encode objects for stdout."""
    if output is Output.JSON:
        return msgspec.json.Encoder().encode_lines(objects)
    import yaml

    dump = cast("Callable[..., str]", cast("Any", yaml).safe_dump)

    def document(one: dict[str, Json]) -> bytes:
        try:
            return dump(one, sort_keys=False, allow_unicode=True).encode()
        except RecursionError:  # JSON is YAML, and its writer nests deeper
            return msgspec.json.encode(one) + b"\n"

    return b"".join(b"---\n" + document(one) for one in objects)


def told(data: list[bytes | None], form: Seen, make: ToJson) -> Sequence[Json]:
    """Convert bytes; None for null."""
    if form is Seen.TEXT:
        try:
            return [None if one is None else one.decode() for one in data]
        except UnicodeDecodeError:
            pass  # one by one
    return [None if one is None else make(one) for one in data]


def _headers(cells: Cells) -> list[list[dict[str, Json]]]:
    make = to_json(Seen.TEXT)
    return [
        [
            {
                "key": name.decode("utf-8", "replace"),
                "value": None if value is None else make(value),
            }
            for name, value in pairs
        ]
        for pairs in cells.headers()
    ]
