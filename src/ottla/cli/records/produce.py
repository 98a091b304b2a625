"""`ottla produce`: writes records from lines.

Modules are imported on use, so that other commands start fast.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.completion import topic_names
from ottla.cli.declaration import streams
from ottla.cli.failures import Failed, Misused, Stopped
from ottla.cli.result import Result
from ottla.cli.session import Session
from ottla.client.arguments import PARTITION_MAX


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
        typer.Argument(help="Topic to write to.", show_default=False, autocompletion=topic_names),
    ],
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE…]",
            help="Files with one record per line; default: stdin.",
            show_default=False,
        ),
    ] = None,
    *,
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            help=(
                'Each line is JSON: {"key": …, "value": …, "headers": {…}, "partition": 0, '
                '"timestamp": ms}, all optional, as `ottla consume -o json` prints it.'
            ),
        ),
    ] = False,
    key: Annotated[
        str | None, typer.Option("--key", "-k", help="Key of records without a key of their own.")
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", help="Separator between key and value in a line."),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="Header to add to all records."),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition", "-p", min=0, max=PARTITION_MAX, help="Partition of all records."
        ),
    ] = None,
    null: Annotated[
        str | None, typer.Option("--null", help="Text that stands for a null key or value.")
    ] = None,
    compression: Annotated[
        Codec | None, typer.Option("--compression", "-z", help="Compression codec of batches.")
    ] = None,
    acks: Annotated[
        Acks | None, typer.Option("--acks", help="Required acknowledgements: all, 1 (leader) or 0.")
    ] = None,
) -> Result:
    """Write one record per line of stdin or of files.

    After a line that is not valid, or a record that cannot be written, it stops with exit code 1
    and prints how many records were written. On Ctrl-C it writes what it has read and stops; a
    second Ctrl-C stops at once.

    With `--json`, text keys and values are written as they are. Other values are written as JSON
    without spaces; of duplicate names the last one counts, and numbers with a fraction or exponent
    become doubles. Use text to keep every character.
    """
    from ottla.cli.records.input import BadLine, LineForm, header_of
    from ottla.cli.records.sending import (
        NotAllSent,
        lines_of,
        send_lines,
        split_lines,
    )
    from ottla.cli.records.sources import opened
    from ottla.cli.stop_request import StopRequest

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
                try:
                    sent = await send_lines(producer, topic, blocks, form)
                except NotAllSent as error:
                    told = _told(error.written, topic)
                    raise Failed(f"{error}; {told}", error.code) from error
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
