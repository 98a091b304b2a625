"""`ottla log`: what is in the files of a log, and whether they are right.

It reads and never writes, takes no lock, and may look at the files of a broker that runs.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from ottla.cli.dump_lines import (
    Payloads,
    entry_line,
    entry_object,
    finding_line,
    finding_object,
    summary_line,
    summary_object,
)
from ottla.cli.escapes import escaped
from ottla.cli.output import Output, OutputOption
from ottla.cli.payloads import Decoder, Form, Json, records_of
from ottla.errors import StorageFailure
from ottla.log.files import Disk, OsDisk
from ottla.log.inspection.directory_check import check_directory, check_file, check_partition
from ottla.log.inspection.entries import Entry, FileEntry
from ottla.log.inspection.findings import Finding, Level, capped
from ottla.log.inspection.listing import (
    FileProgress,
    View,
    is_data_directory,
    is_partition,
    list_directory,
    list_file,
    list_partition,
)
from ottla.log.inspection.segment_check import Tally
from ottla.log.names import parse_folder

app = typer.Typer(help="Look into the files of a log.", no_args_is_help=True)

PROGRESS_BYTES_MIN: Final = 64 * 1024 * 1024  # smaller files are done before one has read the line

_COLORS: Final = {Level.DAMAGE: "red", Level.INCOMPLETE: "yellow", Level.NOTE: "bright_black"}
_OFFSET_MAX: Final = 2**63 - 1


@app.callback()
def log() -> None:
    """Look into the files of a log."""


@app.command("dump")
def dump(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE|DIR…",
            help="Files of a log, partitions' folders, data directories.",
            exists=True,
            show_default=False,
        ),
    ],
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Check everything and show only what is wrong; exit with 1 on damage."
        ),
    ] = False,
    records: Annotated[
        bool, typer.Option("--records", help="Show the records too, not only their batches.")
    ] = False,
    keys: Annotated[
        Form | None, typer.Option("--keys", help="Show records with their keys in this form.")
    ] = None,
    values: Annotated[
        Form | None, typer.Option("--values", help="Show records with their values in this form.")
    ] = None,
    decode: Annotated[
        Decoder | None,
        typer.Option(
            "--decode",
            help="Decode the records of an internal topic; auto goes by the name of the folder.",
        ),
    ] = None,
    from_offset: Annotated[
        int | None, typer.Option("--from-offset", min=0, help="Leave out what is below it.")
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", min=0, help="Stop before it.")
    ] = None,
    entries_max: Annotated[
        int | None, typer.Option("-n", min=1, help="Show so many entries of each file.")
    ] = None,
    compacted: Annotated[
        bool,
        typer.Option("--compacted", help="With --verify: missing offsets are no damage."),
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show what is in the files of a log, or check them.

    Nothing is written or locked, so it may run beside a broker. Exit code: 0 when nothing is
    damaged, 1 when something is, 2 for a wrong use. An unfinished batch at the end of the newest
    segment is reported as incomplete and is no damage, unless the data directory says that the
    broker stopped cleanly or that these records were on the device.
    """
    shows_entries = any(
        option is not None for option in (keys, values, decode, from_offset, to_offset, entries_max)
    )
    if verify and (records or shows_entries):
        raise typer.BadParameter("--verify checks everything; it goes with --compacted and -o only")
    if compacted and not verify:
        raise typer.BadParameter("--compacted goes with --verify")
    deep = records or keys is not None or values is not None or decode is not None
    view = View(
        records=deep,
        from_offset=from_offset or 0,
        to_offset=_OFFSET_MAX if to_offset is None else to_offset,
        entries_max=entries_max,
    )
    disk = OsDisk(read_only=True)
    progress = Progress(visible=sys.stderr.isatty() and (verify or not sys.stdout.isatty()))
    printer = Printer(output, keys, values, decode, progress)
    tally = Tally()
    try:
        for path in paths:
            absolute = os.path.abspath(path)
            if verify:
                printer.show(capped(_findings(disk, absolute, tally, progress.show, compacted)))
            else:
                printer.show(capped(_listing(disk, absolute, view, progress.show)))
        if verify:
            printer.summary(tally)
    except StorageFailure as error:
        progress.clear()
        typer.echo(escaped(str(error)), err=True)
        raise typer.Exit(1) from None
    finally:
        progress.clear()
        disk.close()
    if printer.levels[Level.DAMAGE]:
        raise typer.Exit(1)


def _findings(
    disk: Disk, path: str, tally: Tally, progress: FileProgress, compacted: bool
) -> Iterator[Finding]:
    if not os.path.isdir(path):
        return check_file(disk, path, tally, progress, compacted=compacted)
    if _is_partition(disk, path):
        return check_partition(disk, path, tally, progress, compacted=compacted)
    return check_directory(disk, path, tally, progress, compacted=compacted)


def _listing(
    disk: Disk, path: str, view: View, progress: FileProgress
) -> Iterator[Entry | Finding]:
    if not os.path.isdir(path):
        return list_file(disk, path, view, progress)
    if _is_partition(disk, path):
        return list_partition(disk, path, view, progress)
    return list_directory(disk, path, view, progress)


def _is_partition(disk: Disk, path: str) -> bool:
    names = disk.names(path)
    if is_partition(names) or (not names and parse_folder(os.path.basename(path))):
        return True
    if not is_data_directory(names):
        raise StorageFailure(f"{path}: there is nothing of a log in it")
    return False


class Progress:
    """How far a large file is, on a line of stderr that is written over."""

    def __init__(self, *, visible: bool) -> None:
        self._visible = visible
        self._shown = ""

    def show(self, path: str, done: int, total: int) -> None:
        """Tell of a file; a small one is not worth the line."""
        if not self._visible or total < PROGRESS_BYTES_MIN:
            return
        line = f"{done * 100 // total:3d} % {escaped(os.path.basename(path))}"
        if line != self._shown:
            sys.stderr.write(f"\r{line}")
            sys.stderr.flush()
            self._shown = line

    def clear(self) -> None:
        """Leave no trace of it."""
        if self._shown:
            sys.stderr.write("\r" + " " * len(self._shown) + "\r")
            sys.stderr.flush()
            self._shown = ""


@dataclass(slots=True)
class _Place:
    """The file whose entries are being shown."""

    path: str
    payloads: Payloads


class Printer:
    """Writes entries and findings in one form, and counts the findings."""

    def __init__(
        self,
        output: Output,
        keys: Form | None,
        values: Form | None,
        decode: Decoder | None,
        progress: Progress,
    ) -> None:
        self.levels: Counter[Level] = Counter()
        self._output = output
        self._keys = keys
        self._values = values
        self._decode = decode
        self._progress = progress
        self._place = _Place("", Payloads())
        self._colored = sys.stdout.isatty() and not os.environ.get("NO_COLOR")

    def show(self, items: Iterator[Entry | Finding]) -> None:
        """Show each as it comes."""
        for item in items:
            if isinstance(item, Finding):
                self._show_finding(item)
            else:
                self._show_entry(item)

    def summary(self, tally: Tally) -> None:
        """Say what a check came to."""
        levels = {level.value: self.levels[level] for level in Level}
        if self._output is Output.TABLE:
            self._write(summary_line(tally, levels))
        else:
            self._write_object(summary_object(tally, levels))

    def _show_finding(self, finding: Finding) -> None:
        self.levels[finding.level] += 1
        self._progress.clear()
        if self._output is not Output.TABLE:
            self._write_object(finding_object(finding))
            return
        line = finding_line(finding)
        self._write(typer.style(line, fg=_COLORS[finding.level]) if self._colored else line)

    def _show_entry(self, entry: Entry) -> None:
        if isinstance(entry, FileEntry):
            self._place = _Place(entry.path, self._payloads(entry.path))
        place = self._place
        if self._output is Output.TABLE:
            self._write(entry_line(entry, place.payloads))
        else:
            self._write_object(entry_object(entry, place.path, place.payloads))

    def _payloads(self, path: str) -> Payloads:
        types = None
        if self._decode is not None:
            folder = parse_folder(os.path.basename(os.path.dirname(path)))
            types = records_of(self._decode, folder.partition.topic if folder else None)
        return Payloads(self._keys, self._values, types)

    def _write_object(self, found: dict[str, Json]) -> None:
        if self._output is Output.JSON:
            self._write(json.dumps(found))
        else:
            # A JSON value is a YAML value, whatever characters it holds.
            self._write("---")
            for name, value in found.items():
                self._write(f"{name}: {json.dumps(value)}")

    def _write(self, line: str) -> None:
        sys.stdout.write(line + "\n")  # typer.echo would flush each line
