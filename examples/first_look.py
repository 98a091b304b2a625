"""A first look at what Ottla can do today, without a server: run it with `make tour`.

A client and a server conversation are joined without a socket, records are put into a batch and
read back one at a time and by columns, a log is killed and opened again, and a setting with a wrong
value is explained.
"""

import asyncio
import os
import tempfile
from time import perf_counter

from rich.console import Console
from rich.syntax import Syntax

from ottla.errors import ErrorCode
from ottla.ids import LeaderEpoch
from ottla.log.files import OsDisk
from ottla.log.log_config import LogConfig
from ottla.log.recovery import Recovered, open_log
from ottla.protocol.apis import API_OF_KEY
from ottla.protocol.conversation import ClientConversation, ServerConversation
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.records import Batch, BatchBuilder, Compression, TopicRules, decode, validate
from ottla.settings import InvalidSettings
from ottla.settings.broker import BROKER
from ottla.settings.properties import read_properties
from ottla.settings.resolution import broker_config

console = Console(highlight=False)


def heading(text: str) -> None:
    console.print(f"\n[bold]{text}[/bold]")


def build_a_batch(count: int) -> bytes:
    heading(f"1. A batch of {count:,} records")
    builder = BatchBuilder(limit=2_000_000, compression=Compression.LZ4)
    for number in range(count):
        key = b"device-%d" % (number % 200)
        value = b'{"celsius": %d.5, "n": %d}' % (number % 40, number)
        assert builder.append(1_700_000_000_000 + number, key, value)
    batch = builder.build()
    console.print(f"   {builder.size:,} bytes, {len(batch):,} with lz4")
    return batch


def send_it_without_a_socket(batch: bytes) -> None:
    heading("2. Produced: a client's bytes go into a server's conversation, and the reverse")
    client, server = ClientConversation("first-look"), ServerConversation()
    partition = PartitionProduceData(index=0, records=batch)
    topic = TopicProduceData(name="readings", partition_data=[partition])
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
    _, buffers = client.send(request, version=12)
    (received,) = server.receive(b"".join(buffers))
    assert isinstance(received.message, ProduceRequest)
    records = received.message.topic_data[0].partition_data[0].records
    assert records is not None
    checked = validate(
        records, TopicRules(), now_ms=1_700_000_100_000, produce_version=received.version
    )
    console.print(f"   the server checked {checked.record_count:,} records")
    done = PartitionProduceResponse(index=0, error_code=ErrorCode.NONE, base_offset=0)
    answer = ProduceResponse(
        responses=[TopicProduceResponse(name="readings", partition_responses=[done])]
    )
    (response,) = client.receive(b"".join(server.send(received, answer)))
    console.print(f"   the client reads: {response.message}")


def read_it_back(batch: bytes) -> None:
    heading("3. Read one record at a time, and by columns")
    start = perf_counter()
    *_, last = Batch(batch).records()
    one_at_a_time = perf_counter() - start
    console.print(f"   the last record: {last.key!r} {last.value!r}")
    start = perf_counter()
    columns = decode(batch)
    by_columns = perf_counter() - start
    for what, seconds in (("one at a time", one_at_a_time), ("by columns", by_columns)):
        console.print(f"   {what:14} {columns.rows / seconds / 1e6:6.1f} million records/s")


def keep_it(batch: bytes) -> None:
    heading("4. A log keeps it, in Kafka's files, and survives being killed")
    with tempfile.TemporaryDirectory() as folder:
        disk = OsDisk()

        def opened(*, clean: bool) -> Recovered:
            now_ms, path = 1_700_000_000_000, f"{folder}/events-0"
            return open_log(disk, path, LogConfig(), clean=clean, now_ms=now_ms, random=lambda: 0.5)

        log = opened(clean=True).log
        asyncio.run(log.begin_epoch(LeaderEpoch(0)))
        valid = validate(batch, TopicRules(), now_ms=1_700_000_000_000, produce_version=12)
        for _ in range(3):
            log.append(valid, memoryview(batch), leader_epoch=0, now_ms=1_700_000_000_000)
        size = log.segments.active.size
        os.truncate(log.segments.active.file.path, size - 1000)  # as a crash might leave it
        again = opened(clean=False)
        console.print(f"   written   {log.next_offset:,} records, then the last batch was torn")
        console.print(f"   opened    {again.log.next_offset:,} records, all of them whole")
        for note in again.notes:
            console.print(f"   told      {note.removeprefix(folder + '/')}", soft_wrap=True)
        disk.close()


def explain_a_mistake() -> None:
    heading("5. A wrong setting says what is wrong, and where")
    text = (
        "broker.id=1\nlog.retention.hours=a week\nnum.partition=3\nreplica.lag.max.messages=4000\n"
    )
    console.print(
        Syntax(text.rstrip(), "properties", background_color="default", line_numbers=True)
    )
    try:
        broker_config(read_properties(text, "server.properties"))
    except InvalidSettings as mistakes:
        for problem in mistakes.problems:
            console.print(f"   {problem}", style="red", soft_wrap=True)


def what_comes_next() -> None:
    heading("What there is so far")
    console.print(
        f"   {len(API_OF_KEY)} APIs, {sum(len(list(a.versions)) for a in API_OF_KEY.values())} "
        f"versions, {len(ErrorCode)} error codes, {len(BROKER.settings)} broker settings."
    )
    console.print(
        "   A broker that Kafka's clients use: `.venv/bin/ottla dev`.\n"
        "   The client and the pipelines are being built.\n"
        "   docs/ARCHITECTURE.md is the map; docs/reference/ has the tables."
    )


if __name__ == "__main__":
    made = build_a_batch(20_000)
    send_it_without_a_socket(made)
    read_it_back(made)
    keep_it(made)
    explain_a_mistake()
    what_comes_next()
