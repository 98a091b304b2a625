"""`kafka-delete-records`: delete the records before the offsets in a JSON file.

Invariant: if the file has an error, nothing is deleted.
"""

import sys
from json import JSONDecodeError, loads
from typing import Any, Final, cast

from ottla.cli.kafka.flags import BadFlags, Flag, Given, Usage
from ottla.cli.kafka.tool import FAILED, run_tool, settings_of
from ottla.client.arguments import OFFSET_MAX, PARTITION_MAX
from ottla.errors import OttlaError
from ottla.settings.invalid_settings import InvalidSettings

_VERSION: Final = 1

USAGE: Final = Usage(
    "kafka-delete-records",
    "Delete the records before given offsets.",
    [
        Flag("bootstrap-server", "host:port,…", "Connect to these bootstrap servers. Required."),
        Flag(
            "offset-json-file",
            "file",
            "Delete the records before the offsets in this JSON file; the offset -1 means the end "
            "of the partition. Format: "
            '{"partitions": [{"topic": "t", "partition": 0, "offset": 10}], "version": 1}. '
            "Required.",
        ),
        Flag("command-config", "file", "Read client settings from this properties file."),
    ],
)


class BadOffsets(OttlaError):
    """The JSON file has an error."""


def run() -> None:
    """Run the console script."""
    run_tool(USAGE, act)


async def act(given: Given) -> int:
    """Delete the records."""
    for name in ("bootstrap-server", "offset-json-file"):
        if name not in given:
            raise BadFlags(f'Missing required argument "[{name}]"')
    try:
        await _deleted(given)
    except (OttlaError, InvalidSettings) as error:
        print(error, file=sys.stderr)
        return FAILED
    return 0


async def _deleted(given: Given) -> None:
    from ottla.cli.kafka import java_errors
    from ottla.cli.offsets.admin import OffsetAdmin
    from ottla.cli.probe import probe
    from ottla.client.partitions import partition

    path = given.one("offset-json-file") or ""
    settings = settings_of(given)
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            before = parse_offsets(file.read())
    except OSError as error:
        raise BadOffsets(f"{path}: {error.strerror}") from None
    if why := await probe(settings):
        raise OttlaError(why)
    print("Executing records delete operation")
    async with OffsetAdmin(settings) as admin:
        told = await admin.delete_records(before)
    print("Records delete operation completed:")
    for where in sorted(told):
        name = partition(*where)
        if (error := told.failed.get(where)) is not None:
            print(f"partition: {name}\terror: {java_errors.text(error, name)}")
        else:
            print(f"partition: {name}\tlow_watermark: {told[where]}")


def parse_offsets(text: str) -> dict[tuple[str, int], int]:
    """Parse the offset of each partition before which records are deleted."""
    try:
        found: Any = loads(text)
    except (JSONDecodeError, RecursionError):
        raise BadOffsets("The input string is not a valid JSON") from None
    if not isinstance(found, dict):
        raise BadOffsets(f"Expected JSON object, received {text.strip()}")
    whole = cast("dict[str, Any]", found)
    version: object = whole.get("version", _VERSION)
    if isinstance(version, bool) or version != _VERSION:
        raise BadOffsets(f"Not supported version field value {version}")
    if "partitions" not in whole:
        raise BadOffsets("Missing partitions field")
    if not isinstance(whole["partitions"], list):
        raise BadOffsets("The partitions field is not a list")
    before: dict[tuple[str, int], int] = {}
    twice: list[str] = []
    for one in cast("list[Any]", whole["partitions"]):
        topic, number, offset = _row(one)
        if (topic, number) in before:
            twice.append(f"{topic}-{number}")
        before[topic, number] = offset
    if twice:
        names = ",".join(sorted({*twice}))
        raise BadOffsets(f"Offset json file contains duplicate topic partitions: {names}")
    return before


def _row(given: Any) -> tuple[str, int, int]:
    if not isinstance(given, dict):
        raise BadOffsets(f"Expected JSON object, received {given!r}")
    row = cast("dict[str, Any]", given)
    for name, kind in (("topic", str), ("partition", int), ("offset", int)):
        if name not in row:
            raise BadOffsets(f"No such field exists: `{name}`")
        if not isinstance(row[name], kind) or isinstance(row[name], bool):
            raise BadOffsets(f"Expected `{kind.__name__}` as {name}, received {row[name]!r}")
    # For a negative partition, Java's tool waits a minute for the leader.
    if not 0 <= row["partition"] <= PARTITION_MAX:
        raise BadOffsets(f"Expected `Integer` as partition, received {row['partition']}")
    if not -OFFSET_MAX <= row["offset"] <= OFFSET_MAX:
        raise BadOffsets(f"Expected `Long` as offset, received {row['offset']}")
    return row["topic"], row["partition"], row["offset"]
