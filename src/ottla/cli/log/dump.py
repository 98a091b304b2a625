"""`ottla log dump`: prints or verifies paths.

Invariant: files are only read. Stdout carries entries and findings in the requested format, stderr
only messages.
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
    partition_directories,
)
from ottla.inspection.segment_check import Tally
from ottla.log.disk import Disk
from ottla.log.files import OsDisk
from ottla.log.names import parse_partition_directory

PROGRESS_BYTES_MIN: Final = 64 * 1024 * 1024  # smaller files finish before a user has read the line

_COLORS: Final = {Level.DAMAGE: "red", Level.INCOMPLETE: "yellow", Level.NOTE: "bright_black"}
_OFFSET_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The options of the command."""

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
        """The range to list."""
        return View(
            records=self.records,
            from_offset=self.from_offset or 0,
            to_offset=_OFFSET_MAX if self.to_offset is None else self.to_offset,
            entries_max=self.entries_max,
        )


def run(request: Request) -> int:
    """Dump and return the exit code."""
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
    """Whether a named path contains log files: skipping it would look like success."""
    name = os.path.basename(path)
    if not os.path.isdir(path):
        return identify(name) is not None
    names = disk.names(path)
    return (
        is_partition(names)
        or has_directory_files(names)
        or (not names and bool(parse_partition_directory(name)))
        or any(_can_be_partition(disk, f"{path}/{one}") for one in partition_directories(names))
    )


def _can_be_partition(disk: Disk, path: str) -> bool:
    """Whether a directory with a partition-like name is a partition; java-17 may not be."""
    if not os.path.isdir(path):
        return False
    try:
        return _is_partition(disk, path)
    except (FileNotFoundError, StorageFailure):
        return True  # reported when it is read


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
    """Progress of a large file, on one line of stderr."""

    def __init__(self, *, visible: bool) -> None:
        self._visible = visible
        self._shown = ""

    def show(self, path: str, done: int, total: int) -> None:
        """Show progress, except for small files."""
        if not self._visible or total < PROGRESS_BYTES_MIN:
            return
        line = f"{done * 100 // total:3d} % {escaped(os.path.basename(path))}"
        if line != self._shown:
            sys.stderr.write(f"\r{line}")
            sys.stderr.flush()
            self._shown = line

    def clear(self) -> None:
        """Clear the line."""
        if self._shown:
            sys.stderr.write("\r" + " " * len(self._shown) + "\r")
            sys.stderr.flush()
            self._shown = ""


@dataclass(slots=True)
class _Place:
    """The file whose entries are printed."""

    path: str
    payloads: Payloads


class Printer:
    """Prints entries and findings in one format and counts the findings."""

    def __init__(self, request: Request, progress: Progress) -> None:
        self.levels: Counter[Level] = Counter()
        self._output = request.output
        self._request = request
        self._progress = progress
        self._place = _Place("", Payloads())
        self._colored = sys.stdout.isatty() and not os.environ.get("NO_COLOR")

    def show(self, items: Iterator[Entry | Finding]) -> None:
        """Print each item."""
        for item in items:
            if isinstance(item, Finding):
                self._show_finding(item)
            else:
                self._show_entry(item)

    def summary(self, tally: Tally) -> None:
        """Print the result of a verification."""
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
            # JSON is valid YAML, whatever characters it contains.
            self._write("---")
            for name, value in found.items():
                self._write(f"{name}: {json.dumps(value)}")

    def _write(self, line: str) -> None:
        sys.stdout.write(line + "\n")  # typer.echo would flush each line
