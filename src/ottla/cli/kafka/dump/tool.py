"""`kafka-dump-log`: print the contents of log files like Kafka's tool.

Invariant: files are opened read-only. Mismatches are printed on stderr, after the contents of all
files.
"""

import asyncio
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from ottla.cli.escapes import escaped
from ottla.cli.kafka.coordinator_json import shown
from ottla.cli.kafka.dump.index import Check, IndexDump
from ottla.cli.kafka.dump.lines import aborted_line, producer_line
from ottla.cli.kafka.dump.segment import BYTES_MAX, Contents, SegmentDump, SegmentView
from ottla.cli.kafka.flags import BadFlags, Flag, Given, NotDone, Usage
from ottla.cli.kafka.hash_order import in_hash_order
from ottla.cli.kafka.tool import run_tool
from ottla.errors import OttlaError
from ottla.inspection.findings import Finding
from ottla.inspection.index_files import aborted_entries
from ottla.inspection.snapshot_file import producer_entries
from ottla.log.disk import Disk, File
from ottla.log.files import OsDisk
from ottla.protocol import offsets_topic, transactions_topic
from ottla.protocol.coordinator_records import CoordinatorRecordTypes

USAGE = Usage(
    "kafka-dump-log",
    "Print the contents of log files.",
    [
        Flag(
            "files",
            "file,…",
            "Print these .log, .index, .timeindex, .txnindex and .snapshot files. Required.",
        ),
        Flag("print-data-log", help="Print batches and their records with keys and values."),
        Flag("deep-iteration", help="Print batches and their records."),
        Flag(
            "skip-record-metadata",
            help="Print only the keys and values of records, without their metadata.",
        ),
        Flag(
            "verify-index-only",
            help="Verify indexes against the records, without printing entries.",
        ),
        Flag("index-sanity-check", help="Check whether a broker would accept the indexes."),
        Flag("max-bytes", "bytes", "Read at most this many bytes of each .log file."),
        Flag(
            "max-message-size",
            "bytes",
            "Accepted for compatibility; the tool reads batches of any size.",
        ),
        Flag(
            "key-decoder-class",
            "class",
            "Decode keys like this Java class: StringDecoder (default), IntegerDecoder or "
            "LongDecoder.",
            optional=True,
        ),
        Flag(
            "value-decoder-class",
            "class",
            "Decode values like this Java class: StringDecoder (default), IntegerDecoder or "
            "LongDecoder.",
            optional=True,
        ),
        Flag("offsets-decoder", help="Decode the records of __consumer_offsets."),
        Flag("transaction-log-decoder", help="Decode the records of __transaction_state."),
        Flag("cluster-metadata-decoder", help="Decode KRaft metadata records.", done=False),
        Flag("remote-log-metadata-decoder", help="Decode tiered storage records.", done=False),
        Flag("share-group-state-decoder", help="Decode share group records.", done=False),
    ],
)
DECODERS: Final = ("StringDecoder", "IntegerDecoder", "LongDecoder")
LINES_AT_ONCE: Final = 1000
_NUMBER_BYTES: Final = {"IntegerDecoder": 4, "LongDecoder": 8}


@dataclass(slots=True)
class Dump:
    """What to print of the files, and their mismatches."""

    disk: Disk
    view: SegmentView
    check: Check
    indexes: IndexDump = field(default_factory=IndexDump)
    gaps: dict[str, dict[int, int]] = field(default_factory=dict[str, dict[int, int]])

    def lines(self, named: str) -> Iterator[str]:
        """Return the lines of one file."""
        yield f"Dumping {named}"
        name = os.path.basename(named)
        stem, dot, _ = name.partition(".")
        if not dot:
            raise OttlaError(f"{named}: unknown file type: the name has no suffix")
        match "." + name.rpartition(".")[2]:
            case ".log":
                yield f"Log starting offset: {_base(stem, named)}"
                segment = SegmentDump(self._open(named), self.view)
                yield from segment.lines()
                if segment.gaps:
                    self.gaps[os.path.abspath(named)] = segment.gaps
            case ".index":
                records = self._open(named, ".log")
                yield from self.indexes.offset_lines(
                    named, self._open(named), records, _base(stem, named), self.check
                )
            case ".timeindex":
                records, offsets = self._open(named, ".log"), self._open(named, ".index")
                yield from self.indexes.time_lines(
                    named, self._open(named), offsets, records, _base(stem, named), self.check
                )
            case ".snapshot":
                for entry in producer_entries(self._open(named), None):
                    if isinstance(entry, Finding):
                        print(f"{named}: {entry.problem}", file=sys.stderr)
                    else:
                        yield producer_line(entry)
            case ".txnindex":
                for one in aborted_entries(self._open(named), _base(stem, named)):
                    if isinstance(one, Finding):
                        raise OttlaError(f"{named}: {one.problem}")
                    yield aborted_line(one)
            case ".checkpoint":
                raise NotDone(f"kafka-dump-log: {named}: KRaft snapshots are not supported yet")
            case _:
                print(f"Ignoring unknown file {named}", file=sys.stderr)

    def complaints(self) -> Iterator[str]:
        """Return the mismatches of all files."""
        yield from self.indexes.complaints()
        for path in in_hash_order(self.gaps, is_computed=True):
            yield f"Non-consecutive offsets in {path}"
            for before, behind in sorted(self.gaps[path].items()):
                yield f"  {before} is followed by {behind}"

    def _open(self, named: str, suffix: str | None = None) -> File:
        """Open a file, or with a suffix the other file of the same segment."""
        path = os.path.abspath(named)
        if suffix is not None:
            folder, name = os.path.split(path)
            path = os.path.join(folder, name.partition(".")[0] + suffix)
        try:
            return self.disk.open(path)
        except FileNotFoundError:
            raise OttlaError(f"{path}: no such file") from None


def _base(stem: str, named: str) -> int:
    if not stem.isascii() or not stem.isdigit():
        raise OttlaError(f"{named}: the name does not start with an offset")
    return int(stem)


async def act(given: Given) -> int:
    """Print each file, then the mismatches."""
    files = given.one("files")
    if files is None:
        raise BadFlags('Missing required argument "[files]"')
    disk = OsDisk(read_only=True)
    try:
        dump = Dump(disk, _view(given), _check(given))
        for named in files.split(","):
            for number, line in enumerate(dump.lines(named)):
                sys.stdout.write(line + "\n")
                if not number % LINES_AT_ONCE:
                    await asyncio.sleep(0)  # lets Ctrl-C interrupt
        sys.stdout.flush()
        for line in dump.complaints():
            print(line, file=sys.stderr)
    finally:
        sys.stdout.flush()
        disk.close()
    return 0


def _check(given: Given) -> Check:
    if "index-sanity-check" in given:
        return Check.SANITY
    return Check.COMPARE if "verify-index-only" in given else Check.SHOW


def _view(given: Given) -> SegmentView:
    decoders = ("offsets-decoder", "transaction-log-decoder", "key-decoder-class",
                "value-decoder-class")  # fmt: skip
    prints = "print-data-log" in given or any(name in given for name in decoders)
    return SegmentView(
        records=prints or "deep-iteration" in given,
        heads="skip-record-metadata" not in given,
        contents=_contents(given) if prints else None,
        bytes_max=_number(given, "max-bytes", BYTES_MAX),
    )


def _number(given: Given, name: str, default: int) -> int:
    text = given.one(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit():
        raise BadFlags(f"Cannot parse argument '{text}' of option {name}")
    return min(int(text), BYTES_MAX)


def _contents(given: Given) -> Contents:
    for flag, types in (
        ("offsets-decoder", offsets_topic.TYPES),
        ("transaction-log-decoder", transactions_topic.TYPES),
    ):
        if flag in given:
            return _decoded(types)
    keys, values = (_decoder(given, f"{what}-decoder-class") for what in ("key", "value"))
    return lambda offset, key, value: (_text(key, keys), _text(value, values))


def _decoded(types: CoordinatorRecordTypes) -> Contents:
    def contents(
        offset: int, key: bytes | None, value: bytes | None
    ) -> tuple[str | None, str | None]:
        return shown(types, key, value, offset)

    return contents


def _decoder(given: Given, flag: str) -> str:
    name = (given.one(flag) or DECODERS[0]).rpartition(".")[2]
    if name not in DECODERS:
        raise NotDone(f"kafka-dump-log: --{flag}: only {', '.join(DECODERS)} are supported")
    return name


def _text(data: bytes | None, decoder: str) -> str | None:
    """Decode a key or a value; on a terminal, control characters are escaped."""
    if data is None:
        return None
    if (width := _NUMBER_BYTES.get(decoder)) is not None:
        if len(data) != width:
            raise OttlaError(f"{decoder}: {len(data)} bytes are not a number of {width} bytes")
        return str(int.from_bytes(data, "big", signed=True))
    text = data.decode("utf-8", "replace")
    return escaped(text) if sys.stdout.isatty() else text


def run() -> None:
    """Run the console script."""
    run_tool(USAGE, act)
