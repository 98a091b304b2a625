"""The records that a declared test gives to a source, as lines of JSON that Spark reads.

Invariant: a line has all columns of `format("ottla")`. Binary columns are base64, as Spark's JSON
reader expects them. Row after row, offsets count from 0 over all micro-batches of a source.
"""

import csv
import io
import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ottla.pipeline.avro_values import encoded_value
from ottla.pipeline.spec.model import Row, Source
from ottla.pipeline.spec.schema_ddl import parse_columns

COLUMNS: Final = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset LONG, timestamp TIMESTAMP, "
    "timestampType INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
TIMESTAMP: Final = "2026-01-01T00:00:00Z"
"""The timestamp of a record whose row has no `_timestamp`."""

_METADATA: Final = ("_key", "_topic", "_partition", "_offset", "_timestamp", "_headers")


def record_lines(source: Source, batches: Sequence[Sequence[Row]]) -> list[str]:
    """Return the records of each micro-batch as lines of JSON."""
    topic = source.topic if isinstance(source.topic, str) else (source.topic or ["given"])[0]
    offset = 0
    texts: list[str] = []
    for batch in batches:
        lines: list[str] = []
        for row in batch:
            metadata = {} if isinstance(row, str) else {name: row.get(name) for name in _METADATA}
            line = {
                "key": _binary(metadata.get("_key")),
                "value": _binary(record_value(source, row)),
                "topic": metadata.get("_topic") or topic,
                "partition": metadata.get("_partition") or 0,
                "offset": offset if metadata.get("_offset") is None else metadata["_offset"],
                "timestamp": metadata.get("_timestamp") or TIMESTAMP,
                "timestampType": 0,
                "headers": [*_headers(metadata.get("_headers"))],
            }
            lines.append(json.dumps(line))
            offset += 1
        texts.append("".join(f"{line}\n" for line in lines))
    return texts


def spaced_batches(batches: Sequence[Sequence[Row]]) -> list[Sequence[Row]]:
    """Return the micro-batches with an empty one after each of them, except after the last.

    Spark drops a row as late by the watermark of the micro-batch before the last one. A stream that
    waits for records runs an empty micro-batch when the watermark has moved, and so does a test.
    """
    found = [one for batch in batches for one in (batch, ())]
    return found[:-1]


def record_value(source: Source, row: Row) -> str | bytes | None:
    """Return the value of the record that a source parses to this row."""
    if isinstance(row, str):
        return row
    columns = {name: value for name, value in row.items() if name not in _METADATA}
    if source.json is not None:
        return json.dumps(columns, ensure_ascii=False)
    if source.csv is not None:
        return _csv_line(source, columns)
    if source.avro is not None:
        return encoded_value(source.avro, columns)
    column = source.text if source.text is not None else source.binary
    assert column is not None, "a checked source has a format"
    value = columns.get(column)
    return None if value is None else str(value)


def _csv_line(source: Source, columns: Mapping[str, Any]) -> str:
    assert source.csv is not None
    separator = source.parse.get("sep", source.parse.get("delimiter", ","))
    names = [column.name for column in parse_columns(source.csv)]
    values = ["" if (value := columns.get(name)) is None else _cell(value) for name in names]
    written = io.StringIO()
    csv.writer(written, delimiter=separator, lineterminator="").writerow(values)
    return written.getvalue()


def _cell(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _binary(value: object) -> str | None:
    if value is None:
        return None
    data = value if isinstance(value, bytes) else str(value).encode()
    return b64encode(data).decode()


def _headers(given: object) -> Iterator[dict[str, str | None]]:
    if isinstance(given, Mapping):
        for name, value in given.items():  # pyright: ignore[reportUnknownVariableType]
            yield {"key": str(name), "value": _binary(value)}  # pyright: ignore[reportUnknownArgumentType]
