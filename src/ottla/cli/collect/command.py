"""`ottla collect`: copies data from outside into a topic.

Modules are imported on use, so that other commands start fast.
"""

from pathlib import Path
from typing import Annotated, Final

import typer

from ottla.cli.completion import topic_names
from ottla.cli.declaration import streams
from ottla.cli.failures import Failed, Misused
from ottla.cli.output import Output
from ottla.cli.records.produce import Codec
from ottla.cli.result import Result, complain
from ottla.cli.session import Session
from ottla.errors import RequestError

STOP_S: Final = 0.5
"""How long acknowledgements may take after a signal; without them, lines are sent again later."""

FOREVER_MS: Final = "2147483647"
"""The longest timeout of a producer, 24 days."""

TOPIC_MS: Final = "20000"
"""How long the topic may take to appear."""

BUFFER_BYTES: Final = 16 << 20
BATCH_BYTES: Final = 128 << 10
"""Larger than the default of producers: a file has many lines for one partition."""

app = typer.Typer(help="Copy data from outside into a topic.", no_args_is_help=True)


@app.callback()
def collect() -> None:
    """Copy data from outside into a topic."""


@app.command("files")
@streams
async def files(
    session: Session,
    patterns: Annotated[
        list[str],
        typer.Argument(
            metavar="GLOB…",
            help="Files, or quoted patterns such as 'logs/*.log'; ** matches directories.",
            show_default=False,
        ),
    ],
    *,
    topic: Annotated[
        str,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            help="Topic to write to.",
            show_default=False,
            autocompletion=topic_names,
        ),
    ],
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            metavar="DIR",
            help="Store the positions in this directory; default: .ottla/collect/TOPIC.",
        ),
    ] = None,
    from_beginning: Annotated[
        bool,
        typer.Option(
            "--from-beginning/--from-end",
            help=(
                "At the first start, collect the lines that are in the files already (default), "
                "or only lines that are written later."
            ),
        ),
    ] = True,
    once: Annotated[
        bool, typer.Option("--once", help="Exit when all complete lines are collected.")
    ] = False,
    line_bytes: Annotated[
        int,
        typer.Option(
            "--line-bytes",
            metavar="BYTES",
            min=1,
            help="Write a line that is longer than this in several records.",
        ),
    ] = 1_000_000,
    close_after: Annotated[
        float,
        typer.Option(
            "--close-after",
            metavar="SECONDS",
            min=0,
            help="Close a renamed or deleted file after this many seconds without new lines.",
        ),
    ] = 30.0,
    compression: Annotated[
        Codec | None,
        typer.Option("--compression", "-z", help="Compress batches with this codec."),
    ] = None,
) -> Result:
    """Follow files, and write each line that is added to them as a record.

    The command looks for new files every second. For each file, it stores the position up to which
    the brokers have acknowledged the lines. When you start the command again, it continues at the
    stored positions. It writes each line at least once: after `kill -9`, it writes the lines after
    the stored position again.

    The key of a record is the absolute path at which the command first found the file. The key does
    not change when the file is renamed. All lines of a file are therefore in one partition, in
    order. The header `file` is the same path as the key, and the header `host` is the name of this
    machine.

    The command reads a renamed file to its end. It reads a truncated file from its start. If the
    former content was first copied to a file in the same directory, as `copytruncate` of logrotate
    does, the command reads the rest of this content from the copy.

    The command recognises renamed files and copies by their content. If files can be rotated more
    than once while the command does not run, use a pattern that also matches the rotated files,
    such as 'logs/app.log*'. The command ignores compressed files.

    If the last line of a file has no newline yet, the command waits for the newline. If it closes
    the file before that (--close-after), it writes the unfinished line. A line longer than
    `--line-bytes` becomes several records. Their header `part` is 1, 2 and so on; the last one also
    has the header `parts`, the number of the parts.

    If the brokers are unreachable, the command waits, and reads at most 16 MB ahead; -X
    buffer.memory=BYTES changes this limit. After Ctrl-C or SIGTERM, the command exits with code 0
    within a second. If a line cannot be written, it exits with code 1.
    """
    import asyncio
    import socket
    from contextlib import suppress
    from math import isfinite

    from ottla.cli.collect.collector import Collector, CollectorConfig
    from ottla.cli.collect.disk import LocalDisk
    from ottla.cli.collect.progress_line import ProgressLine
    from ottla.cli.collect.state import CollectorState
    from ottla.cli.collect.tracker import Tracker, TrackerConfig
    from ottla.cli.stop_request import StopRequest
    from ottla.client.producer.producer import Producer
    from ottla.clock import SystemClock

    if not isfinite(close_after):
        raise Misused(f"--close-after {close_after}: must be a number of seconds")
    given = session.target.settings_of(
        "producer",
        but={
            "acks": "lines are stored as collected when all in-sync replicas have them",
            "enable.idempotence": "the order of lines needs it",
            "transactional.id": "transactions are not supported here",
        },
    )
    if compression is not None:
        given["compression.type"] = compression
    settings = {
        "batch.size": str(BATCH_BYTES),
        "buffer.memory": str(BUFFER_BYTES),
        "max.block.ms": FOREVER_MS,
        "delivery.timeout.ms": FOREVER_MS,
        **given,
        "acks": "all",
        "enable.idempotence": "true",
    }
    clock = SystemClock()
    kept = CollectorState(state or Path(".ottla") / "collect" / topic, topic)
    tracker = Tracker(
        LocalDisk(), TrackerConfig(patterns, line_bytes_max=line_bytes, close_after_s=close_after)
    )
    await session.probe()
    async with Producer[bytes, bytes]({"max.block.ms": TOPIC_MS, **given}) as first:
        first.check_size(line_bytes)
        await first.partitions(topic)
    with kept.locked(), StopRequest() as stop:
        async with Producer[bytes, bytes](settings) as producer:
            config = CollectorConfig(
                topic, socket.gethostname(), int(settings["buffer.memory"]), once=once
            )
            collector = Collector(producer, tracker, kept, clock, config)
            await collector.start(at_end=not from_beginning)
            if not collector.counts().files:
                sought = " or ".join(patterns)
                complain(f"no file matches {sought}" + ("" if once else "; waiting for one"))

            async def show(line: ProgressLine) -> None:
                while True:
                    line.show(collector.counts(), clock.elapsed_s())
                    await clock.sleep(0.5)

            async def run() -> None:
                shown = asyncio.create_task(show(line))
                try:
                    await collector.run(lambda: stop.number is not None)
                finally:
                    shown.cancel()

            failure: RequestError | None = None
            with ProgressLine(topic, is_quiet=session.output is not Output.TABLE) as line:
                try:
                    await stop.may_end(run(), STOP_S)
                except RequestError as error:
                    failure = error
                line.show(collector.counts(), clock.elapsed_s())
            await producer.close()  # do not wait for lines that are not acknowledged
            with suppress(TimeoutError):
                await collector.finish()
            counts = collector.counts()
    lines = "1 line" if counts.lines == 1 else f"{counts.lines} lines"
    if failure is not None:
        why = (failure.message or failure.code.text).removesuffix(".")
        raise Failed(f"{why}; {lines} were written to {topic}", failure.code.name) from failure
    what = "1 file" if counts.files == 1 else f"{counts.files} files"
    shown = [f"Wrote {lines} of {what} to {topic}."]
    if counts.unacknowledged_lines:
        shown.append(
            f"{counts.unacknowledged_lines} lines are not acknowledged; the next run writes them."
        )
    return Result(
        {
            "topic": topic,
            "files": counts.files,
            "lines": counts.lines,
            "bytes": counts.bytes,
            "unacknowledged_lines": counts.unacknowledged_lines,
        },
        shown,
    )
