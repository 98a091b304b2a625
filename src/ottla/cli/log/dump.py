"""The work of `ottla log dump`: look at each path, print what is there, and say how it went.

Invariant: files are only read. Stdout carries the entries and findings in the form that was asked
for, stderr what is for people alone.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import typer

from ottla.cli.escapes import escaped
from ottla.cli.log.dump_lines import (
    Payloads,
    entry_line,
    entry_object,
    finding_line,
    finding_object,
    summary_line,
    summary_object,
)
from ottla.cli.output import Json, Output
from ottla.cli.records.form_names import Decoder, Form
from ottla.cli.records.payloads import records_of
from ottla.cli.result import Failure, show_failure
from ottla.errors import StorageFailure
from ottla.inspection.contents import identify
from ottla.inspection.directory_check import check_directory, check_file, check_partition
from ottla.inspection.entries import Entry, FileEntry
from ottla.inspection.findings import Finding, Level, capped
from ottla.inspection.listing import (
    FileProgress,
    View,
    has_directory_files,
    is_partition,
    list_directory,
    list_file,
    list_partition,
    partition_folders,
)
from ottla.inspection.segment_check import Tally
from ottla.log.disk import Disk
from ottla.log.files import OsDisk
from ottla.log.names import parse_partition_directory

PROGRESS_BYTES_MIN: Final = 64 * 1024 * 1024  # smaller files are done before one has read the line

_COLORS: Final = {Level.DAMAGE: "red", Level.INCOMPLETE: "yellow", Level.NOTE: "bright_black"}
_OFFSET_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the user asked for."""

    paths: Sequence[Path]
    verify: bool
    records: bool
    keys: Form | None
    values: Form | None
    decode: Decoder | None
    from_offset: int | None
    to_offset: int | None
    entries_max: int | None
    compacted: bool
    output: Output

    @property
    def view(self) -> View:
        """How much is listed."""
        return View(
            records=self.records,
            from_offset=self.from_offset or 0,
            to_offset=_OFFSET_MAX if self.to_offset is None else self.to_offset,
            entries_max=self.entries_max,
        )


def run(request: Request) -> int:
    """Do it; returns the exit code."""
    disk = OsDisk(read_only=True)
    verify = request.verify
    progress = Progress(visible=sys.stderr.isatty() and (verify or not sys.stdout.isatty()))
    printer = Printer(request, progress)
    tally = Tally()
    strange = False
    try:
        for path in map(os.path.abspath, request.paths):
            if not _is_of_a_log(disk, path):
                progress.clear()
                show_failure(Failure(f"{path}: no log files found"), request.output)
                strange = True
                continue
            if verify:
                found = _findings(disk, path, tally, progress.show, request.compacted)
            else:
                found = _listing(disk, path, request.view, progress.show)
            printer.show(capped(found))
        if verify:
            printer.summary(tally)
    except StorageFailure as error:
        progress.clear()
        show_failure(Failure(str(error)), request.output)
        return 1
    finally:
        progress.clear()
        disk.close()
    if printer.levels[Level.DAMAGE]:
        return 1
    return 2 if strange else 0


def _is_of_a_log(disk: Disk, path: str) -> bool:
    """Whether a path that was named can be looked at: to pass one over would look like success."""
    name = os.path.basename(path)
    if not os.path.isdir(path):
        return identify(name) is not None
    names = disk.names(path)
    return (
        is_partition(names)
        or has_directory_files(names)
        or (not names and bool(parse_partition_directory(name)))
        or any(_can_be_partition(disk, f"{path}/{one}") for one in partition_folders(names))
    )


def _can_be_partition(disk: Disk, path: str) -> bool:
    """Whether what has the name of a partition can be one: many a folder is called java-17."""
    if not os.path.isdir(path):
        return False
    try:
        return _is_partition(disk, path)
    except (FileNotFoundError, StorageFailure):
        return True  # which is told when it is looked at


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
    return is_partition(names) or not names


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

    def __init__(self, request: Request, progress: Progress) -> None:
        self.levels: Counter[Level] = Counter()
        self._output = request.output
        self._request = request
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
        request, types = self._request, None
        if request.decode is not None:
            folder = parse_partition_directory(os.path.basename(os.path.dirname(path)))
            types = records_of(request.decode, folder.partition.topic if folder else None)
        return Payloads(request.keys, request.values, types)

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
