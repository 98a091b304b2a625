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

app = typer.Typer(help="Print or verify log files, and adopt Kafka's data.", no_args_is_help=True)


@app.callback()
def log() -> None:
    """Print or verify log files, and adopt Kafka's data."""


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
            "--verify",
            help="Verify all files and print only problems; exit with code 1 if there is damage.",
        ),
    ] = False,
    records: Annotated[
        bool, typer.Option("--records", help="Print batches and their records.")
    ] = False,
    keys: Annotated[
        Form | None,
        typer.Option("--keys", help="Print records, with their keys in this format."),
    ] = None,
    values: Annotated[
        Form | None,
        typer.Option("--values", help="Print records, with their values in this format."),
    ] = None,
    decode: Annotated[
        Decoder | None,
        typer.Option(
            "--decode",
            help=(
                "Decode the records of an internal topic. auto selects the decoder by directory "
                "name: __consumer_offsets or __transaction_state."
            ),
        ),
    ] = None,
    from_offset: Annotated[
        int | None,
        typer.Option("--from-offset", metavar="OFFSET", min=0, help="Start at this offset."),
    ] = None,
    to_offset: Annotated[
        int | None,
        typer.Option("--to-offset", metavar="OFFSET", min=0, help="Stop before this offset."),
    ] = None,
    entries_max: Annotated[
        int | None,
        typer.Option(
            "-n",
            metavar="COUNT",
            min=1,
            help="Print at most this many batches or records per file.",
        ),
    ] = None,
    compacted: Annotated[
        bool,
        typer.Option(
            "--compacted",
            help="With --verify: do not report gaps between offsets (for compacted topics).",
        ),
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print or verify log files.

    The command only reads the files and takes no locks, so you can use it while a broker runs. It
    reports an incomplete batch at the end of the newest segment. After a crash, such a batch is
    normal. It counts as damage if the broker stopped cleanly, or if the batch is below the recovery
    point, up to which all data was flushed to disk.

    Exit codes: 0 if there is no damage; 1 if there is damage or a file cannot be read; 2 for wrong
    usage or a path without log files; 74 if the output cannot be written; 141 for a broken pipe
    (SIGPIPE).
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
            help="All data directories of the Kafka broker, in the order of its log.dirs.",
            exists=True,
            file_okay=False,
            show_default=False,
        ),
    ],
    check: Annotated[
        bool,
        typer.Option("--check", help="Show what would be adopted without changing anything."),
    ] = False,
    node_id: Annotated[
        int | None,
        typer.Option(
            "--node-id",
            metavar="ID",
            min=0,
            help="Fail unless the data belongs to the broker with this id.",
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Take over the data of a single-broker Kafka cluster.

    Stop the Kafka broker first. Topics keep their ids and records, and groups keep their committed
    offsets. Topics keep their settings if the broker was also the KRaft controller
    (process.roles=broker,controller). The command does not change the log files. It adds the file
    ottla-coordination.journal to the first directory. To undo the adoption, delete this file before
    you start an Ottla broker with the directory.

    Exit codes: 0 if the data was adopted or, with --check, can be adopted; 1 if it cannot be
    adopted; 2 for wrong usage.
    """
    from ottla.cli.log.adopt import run

    raise typer.Exit(run(directories, node_id=node_id, check_only=check, output=output))
