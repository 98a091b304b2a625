"""`ottla log`: dump, verify and adopt.

Modules are imported on use, so that other commands start fast.
"""

from pathlib import Path
from typing import Annotated

import typer

from ottla.cli import gc_freeze
from ottla.cli.declaration import OutputOption
from ottla.cli.output import Output
from ottla.cli.records.form_names import Decoder, Form

app = typer.Typer(help="Inspect log files.", no_args_is_help=True)


@app.callback()
def log() -> None:
    """Inspect log files and adopt Kafka's data."""


@app.command("dump")
def dump(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE|DIR…",
            help="Log files, partition directories or data directories.",
            exists=True,
            show_default=False,
        ),
    ],
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Verify all files and print only problems; exit with 1 on damage."
        ),
    ] = False,
    records: Annotated[
        bool, typer.Option("--records", help="Print records, not only batches.")
    ] = False,
    keys: Annotated[
        Form | None, typer.Option("--keys", help="Print records with keys in this format.")
    ] = None,
    values: Annotated[
        Form | None, typer.Option("--values", help="Print records with values in this format.")
    ] = None,
    decode: Annotated[
        Decoder | None,
        typer.Option(
            "--decode",
            help="Decode the records of an internal topic; auto: by the name of the directory.",
        ),
    ] = None,
    from_offset: Annotated[
        int | None, typer.Option("--from-offset", min=0, help="First offset to print.")
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", min=0, help="Stop before this offset.")
    ] = None,
    entries_max: Annotated[
        int | None, typer.Option("-n", min=1, help="Maximum number of entries per file.")
    ] = None,
    compacted: Annotated[
        bool,
        typer.Option("--compacted", help="With --verify: do not report missing offsets."),
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print or verify the files of a log.

    Files are only read and not locked, so a broker may be running. Exit code: 0 without damage, 1
    with damage, 2 for wrong usage or a path without log files, 74 if the output cannot be written,
    141 if its reader closed. An incomplete batch at the end of the newest segment is reported as
    incomplete; it is damage only after a clean shutdown or below the recovery point.
    """
    shows_entries = any(
        option is not None for option in (keys, values, decode, from_offset, to_offset, entries_max)
    )
    if verify and (records or shows_entries):
        raise typer.BadParameter("--verify can only be combined with --compacted and -o")
    if compacted and not verify:
        raise typer.BadParameter("--compacted requires --verify")
    from ottla.cli.log.dump import Request, run

    request = Request(
        paths=paths,
        verify=verify,
        records=records or keys is not None or values is not None or decode is not None,
        keys=keys,
        values=values,
        decode=decode,
        from_offset=from_offset,
        to_offset=to_offset,
        entries_max=entries_max,
        compacted=compacted,
        output=output,
    )
    gc_freeze.release()
    raise typer.Exit(run(request))


@app.command("adopt")
def adopt(
    directories: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR…",
            help="All data directories of the broker, in the order of log.dirs.",
            exists=True,
            file_okay=False,
            show_default=False,
        ),
    ],
    check: Annotated[
        bool, typer.Option("--check", help="Show what would be done; change nothing.")
    ] = False,
    node_id: Annotated[
        int | None,
        typer.Option("--node-id", min=0, help="Refuse the data of any other broker id."),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Take over the data of a stopped single Kafka broker.

    Topics keep their ids, records, settings and committed offsets. The log files do not change. One
    file is added to the first directory; removing it undoes the adoption, until an Ottla broker has
    served from there. Exit code: 0 on success, or if --check finds no obstacle, 1 if refused, 2 for
    wrong usage.
    """
    from ottla.cli.log.adopt import run

    raise typer.Exit(run(directories, node_id=node_id, check_only=check, output=output))
