"""`ottla perf`: throughput and latency of a cluster.

Modules are imported on use, so that other commands start fast.
"""

from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ottla.cli.completion import topic_names
from ottla.cli.declaration import streams
from ottla.cli.failures import Failed, Misused
from ottla.cli.output import Json
from ottla.cli.records.produce import Acks, Codec
from ottla.cli.result import Result, Table
from ottla.cli.session import Session
from ottla.client.arguments import PARTITION_MAX

if TYPE_CHECKING:
    from ottla.cli.perf.load import Latencies, Span

VALUE_BYTES_MAX: Final = (1 << 31) - 1
"""The limit of a batch's length field; producers accept less, see max.request.size."""

app = typer.Typer(help="Measure throughput and latency.", no_args_is_help=True)

TopicArgument = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC", help="Name of the topic.", show_default=False, autocompletion=topic_names
    ),
]
SizeOption = Annotated[
    int,
    typer.Option(
        "--size",
        metavar="BYTES",
        min=0,
        max=VALUE_BYTES_MAX,
        help="Write values of this size in bytes.",
    ),
]

# Client settings that have an option of their own.
_LOAD_OPTIONS = {
    "acks": "use --acks",
    "batch.size": "use --batch",
    "compression.type": "use --compression",
    "linger.ms": "use --linger",
}
_NO_TRANSACTION = {"transactional.id": "transactions are not supported here"}
_NO_GROUP = {"group.id": "it reads without a group and commits nothing"}
_NO_LINGER = {"linger.ms": "records are sent one at a time, without a linger"}


@app.callback()
def perf() -> None:
    """Measure write throughput, read throughput and latency."""


@app.command("produce")
@streams
async def produce(
    session: Session,
    topic: TopicArgument,
    *,
    records: Annotated[
        int,
        typer.Option("--records", "-n", metavar="COUNT", min=1, help="Write this many records."),
    ] = 1_000_000,
    size: SizeOption = 100,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate", metavar="NUMBER", min=1, help="Write at most this many records per second."
        ),
    ] = None,
    batch: Annotated[
        int,
        typer.Option(
            "--batch",
            metavar="BYTES",
            min=0,
            help="Set batch.size, the maximum batch size in bytes.",
        ),
    ] = 65_536,
    linger: Annotated[
        int,
        typer.Option(
            "--linger",
            metavar="MS",
            min=0,
            help=(
                "Set linger.ms, the time in milliseconds for which a batch waits for more records."
            ),
        ),
    ] = 5,
    compression: Annotated[
        Codec, typer.Option("--compression", "-z", help="Compress batches with this codec.")
    ] = Codec.NONE,
    acks: Annotated[
        Acks, typer.Option("--acks", help="Required acknowledgements: all, 1 (leader) or 0.")
    ] = Acks.ALL,
) -> Result:
    """Write records as fast as possible, or at a fixed rate, and measure throughput and latency.

    Latency is the time from the send call to the acknowledgement. With --rate, the command measures
    the latency of every record. Otherwise it measures one record in 1000, but at least 200 records.
    If a record cannot be written, the command stops and exits with code 1.
    """
    from ottla.cli.perf.load import Sender, Sending, same
    from ottla.cli.progress import progress
    from ottla.cli.records.sending import NotAllSent
    from ottla.client.producer.producer import Producer

    if rate is not None and not isfinite(rate):
        raise Misused(f"--rate {rate}: must be a positive number")
    settings = {
        **session.target.settings_of("producer", but={**_LOAD_OPTIONS, **_NO_TRANSACTION}),
        "batch.size": str(batch),
        "linger.ms": str(linger),
        "compression.type": compression,
        "acks": acks,
    }
    if acks is not Acks.ALL:
        settings["enable.idempotence"] = "false"
    await session.probe()
    async with Producer[bytes, bytes](settings) as producer:
        producer.check_size(size)
        sending = Sending(topic=topic, count=records, payloads=same(size), rate=rate, report_s=0.2)
        await producer.partitions(topic)
        try:
            with progress(records) as advance:
                span, _ = await Sender(producer, sending).run(lambda span: advance(span.records))
        except NotAllSent as error:
            told = f"{error.written} of {records} records were written to {topic}"
            why = str(error).removesuffix(".")
            raise Failed(f"{why}; {told}", error.code) from error
    return _told("produce", topic, span, {"latency_ms": _latencies(span.latencies)})


@app.command("consume")
@streams
async def consume(
    session: Session,
    topic: TopicArgument,
    *,
    records: Annotated[
        int | None,
        typer.Option(
            "--records",
            "-n",
            metavar="COUNT",
            min=1,
            help=(
                "Read this many records; default: all records that are in the topic when the "
                "command starts."
            ),
        ),
    ] = None,
    columns: Annotated[
        bool, typer.Option("--columns", help="Read Arrow columns instead of single records.")
    ] = False,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            min=0.1,
            help="Fail if no record arrives for this many seconds.",
        ),
    ] = 10.0,
) -> Result:
    """Read a topic from its start as fast as possible, and measure the throughput."""
    from ottla.cli.offsets.positions import START
    from ottla.cli.perf.load import has_reached, read_load
    from ottla.cli.progress import progress
    from ottla.cli.records.stream import ColumnConsumer, begin_at

    if not isfinite(timeout):
        raise Misused(f"--timeout {timeout}: must be a positive number of seconds")
    settings = {
        "allow.auto.create.topics": "false",
        **session.target.settings_of("consumer", but=_NO_GROUP),
    }
    await session.probe()
    async with ColumnConsumer(settings) as consumer:
        ends = await begin_at(consumer, topic, (), START, stops=records is None)
        count = records or 0
        if ends is not None:
            first = await consumer.beginning_offsets(*ends)
            count = sum(ends.values()) - sum(first.values())
        if not count:
            raise Failed(f"{topic} has no records")
        with progress(count) as advance:
            span = await read_load(
                consumer,
                count,
                timeout,
                columns=columns,
                ends=ends,
                report_s=0.2,
                report=lambda window, whole: advance(window.records),
            )
        is_all = span.records >= count or (ends is not None and has_reached(consumer, ends))
    if not is_all:
        raise Failed(f"received {span.records} of {count} records, and none for {timeout:g} s")
    return _told("consume", topic, span, {"columns": columns})


@app.command("latency")
@streams
async def latency(
    session: Session,
    topic: TopicArgument,
    *,
    records: Annotated[
        int,
        typer.Option("--records", "-n", metavar="COUNT", min=1, help="Measure this many records."),
    ] = 2_000,
    size: SizeOption = 100,
    partition: Annotated[
        int,
        typer.Option(
            "--partition",
            "-p",
            metavar="NUMBER",
            min=0,
            max=PARTITION_MAX,
            help="Write to and read from this partition.",
        ),
    ] = 0,
) -> Result:
    """Write and read one record at a time, and measure the latency.

    The topic must exist. The command measures the time until the acknowledgement and the time until
    the record is read. Before that, it writes and reads COUNT / 10 other records as a warm-up,
    without measuring them.
    """
    from ottla.cli.offsets.positions import END
    from ottla.cli.perf.load import round_trips
    from ottla.cli.records.stream import ColumnConsumer, begin_at
    from ottla.client.producer.producer import Producer

    but = {**_NO_GROUP, **_NO_LINGER, **_NO_TRANSACTION}
    sent = session.target.settings_of("producer", "consumer", but=but)
    read = session.target.settings_of("consumer", "producer", but=but)
    await session.probe()
    async with (
        ColumnConsumer({"allow.auto.create.topics": "false", **read}) as consumer,
        Producer[bytes, bytes]({**sent, "linger.ms": "0"}) as producer,
    ):
        producer.check_size(size)
        await begin_at(consumer, topic, (partition,), END, stops=False)
        [where] = consumer.assignment
        trips = await round_trips(producer, consumer, where, records, size, records // 10)
    rows = [("acknowledged", trips.acked), ("read", trips.read)]
    return Result(
        {
            "topic": topic,
            "records": records,
            "acked_ms": _latencies(trips.acked),
            "read_ms": _latencies(trips.read),
        },
        [
            Table(
                ("UNTIL", "RECORDS", *(head for head, _ in _SHARES), "MAX MS"),
                [
                    (name, records, *(f"{one:.2f}" for one in _latencies(found).values()))
                    for name, found in rows
                ],
            )
        ],
    )


_SHARES = (("AVERAGE MS", None), ("P50 MS", 0.5), ("P95 MS", 0.95), ("P99 MS", 0.99))


def _latencies(latencies: "Latencies") -> dict[str, float]:
    return {
        "average": round(latencies.average, 3),
        "p50": round(latencies.at(0.5), 3),
        "p95": round(latencies.at(0.95), 3),
        "p99": round(latencies.at(0.99), 3),
        "max": round(latencies.largest, 3),
    }


def _told(what: str, topic: str, span: "Span", more: Mapping[str, Json]) -> Result:
    value: dict[str, Json] = {
        "test": what,
        "topic": topic,
        "records": span.records,
        "bytes": span.bytes,
        "seconds": round(span.seconds, 6),
        "records_per_s": round(span.rate, 1),
        "mb_per_s": round(span.mb_rate, 3),
        **more,
    }
    heads = ["RECORDS", "SECONDS", "RECORDS/S", "MB/S"]
    row = [f"{span.records}", f"{span.seconds:.2f}", f"{span.rate:.0f}", f"{span.mb_rate:.2f}"]
    found = more.get("latency_ms")
    if isinstance(found, Mapping):
        heads += [*(head for head, _ in _SHARES), "MAX MS"]
        row += [f"{one:.2f}" for one in found.values() if isinstance(one, float)]
    return Result(value, [Table(heads, [row])])
