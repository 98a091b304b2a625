"""`ottla produce`: writes records from lines.

Modules are imported on use, so that other commands start fast.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from ottla.cli.completion import topic_names
from ottla.cli.declaration import streams
from ottla.cli.failures import Failed, Misused, Stopped
from ottla.cli.result import Result
from ottla.cli.session import Session
from ottla.client.arguments import PARTITION_MAX

STOP_SECONDS: Final = 5.0
"""How long the lines that were read may take after a signal: less than `docker stop` waits."""


class Codec(StrEnum):
    """The compression codecs."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    """Required acknowledgements."""

    ALL = "all"
    ONE = "1"
    NONE = "0"


@streams
async def produce(
    session: Session,
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC",
            help="Topic to write to.",
            show_default=False,
            autocompletion=topic_names,
        ),
    ],
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE…]",
            help="Files to read, with one record per line; default: stdin.",
            show_default=False,
        ),
    ] = None,
    *,
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            help=(
                'Read each line as a JSON object: {"key": …, "value": …, "headers": {…}, '
                '"partition": 0, "timestamp": ms}. All fields are optional. The output of '
                "`ottla consume -o json` is valid input."
            ),
        ),
    ] = False,
    key: Annotated[
        str | None,
        typer.Option(
            "--key", "-k", metavar="TEXT", help="Use this key for records that have no key."
        ),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator",
            "-K",
            metavar="TEXT",
            help="Split each line into key and value at the first occurrence of this text.",
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            "-H",
            metavar="NAME=VALUE",
            help="Add this header to all records; repeat for several.",
        ),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition",
            "-p",
            metavar="NUMBER",
            min=0,
            max=PARTITION_MAX,
            help="Write all records to this partition.",
        ),
    ] = None,
    null: Annotated[
        str | None,
        typer.Option(
            "--null", metavar="TEXT", help="Write null for a key or value that equals this text."
        ),
    ] = None,
    compression: Annotated[
        Codec | None,
        typer.Option("--compression", "-z", help="Compress batches with this codec."),
    ] = None,
    acks: Annotated[
        Acks | None, typer.Option("--acks", help="Required acknowledgements: all, 1 (leader) or 0.")
    ] = None,
) -> Result:
    """Write each line of stdin or of files as a record.

    If a line is invalid or a record cannot be written, the command prints the number of written
    records and exits with code 1. After Ctrl-C or SIGTERM, the command writes the lines that it has
    read, for at most 5 seconds, then exits. A second signal ends the command at once.

    With `--json`, the command writes a key or value as text if it is a string, as bytes if it is
    {"base64": …}, as null if it is null, and otherwise as compact JSON. If an object repeats a
    name, the last value wins. Numbers with a fraction or exponent are read as doubles and can lose
    digits. To write JSON text unchanged, omit `--json` or pass the text as a JSON string.
    """
    from ottla.cli.records.input import BadLine, LineForm, header_of
    from ottla.cli.records.sending import (
        NotAllSent,
        Sent,
        lines_of,
        send_lines,
        split_lines,
    )
    from ottla.cli.records.sources import opened
    from ottla.cli.stop_request import StopRequest

    if not topic:
        raise Misused("the topic name must not be empty")
    if json and (key_separator is not None or null is not None):
        raise Misused("--json cannot be combined with --key-separator or --null")
    if key is not None and key_separator is not None:
        raise Misused("--key and --key-separator exclude each other")
    try:
        form = LineForm(
            json=json,
            key=_bytes(key),
            key_separator=_bytes(key_separator),
            headers=tuple(map(header_of, header or ())),
            partition=partition,
            null=_bytes(null),
        )
    except BadLine as error:
        raise Misused(str(error)) from None
    settings = session.target.settings_of(
        "producer", but={"transactional.id": "transactions are not supported here"}
    )
    if compression is not None:
        settings["compression.type"] = compression
    if acks is not None:
        settings["acks"] = acks
        if acks is not Acks.ALL:
            settings["enable.idempotence"] = "false"
    from ottla.client.producer.producer import Producer

    with opened(files or ()) as sources:
        await session.probe()
        async with Producer(settings) as producer:
            with StopRequest() as stop:
                blocks = lines_of(sources.descriptors, split_lines, stop, sources.read)
                sent: Sent | None = None

                async def send() -> None:
                    nonlocal sent
                    sent = await send_lines(producer, topic, blocks, form)

                try:
                    await stop.may_end(send(), STOP_SECONDS)
                except NotAllSent as error:
                    told = _told(error.written, topic)
                    why = str(error).removesuffix(".")
                    raise Failed(f"{why}; {told}", error.code) from error
                if sent is None:
                    assert stop.number is not None
                    told = _told(producer.metrics().record_send_total, topic)
                    await producer.close()  # do not wait for the rest
                    why = f"the broker did not confirm the rest within {STOP_SECONDS:g} seconds"
                    raise Stopped(f"interrupted; {told}; {why}", stop.number)
    if stop.number is not None:
        raise Stopped(f"interrupted; {_told(sent.records, topic)}", stop.number)
    what = "1 record" if sent.records == 1 else f"{sent.records} records"
    return Result(
        {"topic": topic, "records": sent.records, "bytes": sent.bytes},
        [f"Wrote {what} to {topic}."],
    )


def _told(records: int, topic: str) -> str:
    return f"{'1 record was' if records == 1 else f'{records} records were'} written to {topic}"


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "surrogateescape")
