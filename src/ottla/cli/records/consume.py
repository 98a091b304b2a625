r"""`ottla consume`: prints the records of a topic.

Modules are imported on use, so that other commands start fast.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.completion import group_names, topic_names
from ottla.cli.declaration import streams
from ottla.cli.failures import Misused
from ottla.cli.output import Output
from ottla.cli.records.form_names import Seen
from ottla.cli.session import Session
from ottla.client.arguments import PARTITION_MAX

if TYPE_CHECKING:
    from ottla.cli.records.forms import SchemaFile


@streams
async def consume(
    session: Session,
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC", help="Topic to read.", show_default=False, autocompletion=topic_names
        ),
    ],
    *,
    offset: Annotated[
        str | None,
        typer.Option(
            "--offset",
            metavar="POSITION",
            help=(
                "Start at this position: start (default); end; 42 (an offset); -10 (10 offsets "
                "before the end); +10 (10 offsets after the start); @2026-11-01T00:00 (a time, UTC "
                "unless it has a zone); or @-1h (one hour ago). With --group, only start and end "
                "are valid, and they apply to partitions without a committed offset."
            ),
        ),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition",
            "-p",
            metavar="NUMBER",
            min=0,
            max=PARTITION_MAX,
            help="Read only this partition; repeat for several.",
        ),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option("-n", "--count", metavar="COUNT", min=1, help="Exit after this many records."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="Read as a member of this group and commit offsets.",
            autocompletion=group_names,
        ),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "-f",
            "--format",
            metavar="FORMAT",
            help=(
                "Format each record with these fields: %t topic, %p partition, %o offset, %k key, "
                "%v or %s value, %h headers, %T timestamp in milliseconds, %d timestamp as a UTC "
                "date, %K key size, %V or %S value size, %e leader epoch, %% percent sign. Use "
                "\\n, \\t and \\xHH (for example \\x1f) as escapes. Default: %v\\n."
            ),
        ),
    ] = None,
    key: Annotated[
        Seen,
        typer.Option("--key", help="Key format; keys that cannot be decoded are printed as text."),
    ] = Seen.TEXT,
    value: Annotated[
        Seen,
        typer.Option(
            "--value", help="Value format; values that cannot be decoded are printed as text."
        ),
    ] = Seen.TEXT,
    key_schema: Annotated[
        str | None,
        typer.Option(
            "--key-schema", metavar="FILE", help="Read the Avro schema for keys from this file."
        ),
    ] = None,
    value_schema: Annotated[
        str | None,
        typer.Option(
            "--value-schema",
            metavar="FILE",
            help="Read the Avro schema for values from this file.",
        ),
    ] = None,
    null: Annotated[
        str, typer.Option("--null", metavar="TEXT", help="Print this text for null.")
    ] = "null",
    exits: Annotated[
        bool,
        typer.Option(
            "--exit",
            "-e",
            help="Exit at the end of the topic (default if stdout is not a terminal).",
        ),
    ] = False,
    follows: Annotated[
        bool,
        typer.Option(
            "--follow",
            help=(
                "Wait for more records at the end of the topic (default if stdout is a terminal)."
            ),
        ),
    ] = False,
) -> None:
    """Print the records of a topic.

    With `-o json`, the command prints each record as a JSON object on its own line. The object has
    the fields topic, partition, offset, timestamp, key, value and headers.

    With `--group`, the command commits the offsets of printed records. After Ctrl-C or SIGTERM, it
    leaves the group and exits. A second signal ends the command at once.
    """
    import time

    from ottla.cli.offsets.positions import END, START, BadPosition, PositionKind, parse_position
    from ottla.cli.records.format import DEFAULT, BadFormat
    from ottla.cli.records.output import stdout
    from ottla.cli.records.record_reader import ReadOptions, objects_shown, read_to, text_shown

    if group == "":
        raise Misused("the group name must not be empty")
    if group is not None and partition:
        raise Misused("--group and --partition exclude each other: the group assigns partitions")
    if format_ is not None and session.output is not Output.TABLE:
        raise Misused(f"-f and -o {session.output.value} exclude each other")
    if exits and follows:
        raise Misused("--exit and --follow exclude each other")
    for name, path, seen in (("key", key_schema, key), ("value", value_schema, value)):
        if path is not None and seen is not Seen.AVRO:
            raise Misused(f"--{name}-schema requires --{name} avro")
    schemas = [_schema(path) for path in (key_schema, value_schema)]
    try:
        position = START if offset is None else parse_position(offset, int(time.time() * 1000))
        if offset == "-0":  # none before the end
            position = END
        if session.output is Output.TABLE:
            show = text_shown(
                DEFAULT if format_ is None else format_, key, value, *schemas, null=null
            )
        else:
            show = objects_shown(session.output, key, value, *schemas)
    except (BadPosition, BadFormat, ValueError, ModuleNotFoundError) as error:
        raise Misused(str(error)) from None
    if group is not None and position.kind not in (PositionKind.START, PositionKind.END):
        raise Misused(
            "a group continues at its committed offsets; use `ottla group seek` to move it"
        )
    output = stdout()
    reading = ReadOptions(
        topic=topic,
        partitions=partition or (),
        position=position,
        count=count,
        stops=exits or not (follows or output.is_terminal),
        group=group,
    )
    settings = session.target.settings_of(
        "consumer",
        but={"group.id": "use --group", "auto.offset.reset": "use --offset"},
    )
    await session.probe()
    await read_to(settings, reading, show, output)


def _schema(path: str | None) -> "SchemaFile | None":
    from ottla.cli.records.forms import SchemaFile

    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            return SchemaFile(path, file.read())
    except OSError as error:
        raise Misused(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise Misused(f"{path}: not UTF-8 at byte {error.start}") from None
