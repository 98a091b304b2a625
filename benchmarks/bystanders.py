"""The latency of a well-behaved client while another client misbehaves.

Invariant: each kind of bad input gets a new broker process. A bystander process produces a record
and lists the end offset, again and again. This process sends the bad input for the same time, RATE
times per second if it is repeated. The figure is the bystander's p99, compared with the p99 without
bad input, measured before and after; and the peak memory of the broker. To show the effect of the
machine itself, the same input is also sent to a second broker that the bystander does not use.
"""

import argparse
import multiprocessing
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Final

from rich.console import Console
from rich.table import Table

from harness import write_report
from ottla.protocol.conversation import ClientConversation
from ottla.protocol.message import Message
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.builder import BatchBuilder
from ottla.records.compression import Compression

QUESTION: Final = "What do others notice of a client that does its worst?"
RATE: Final = 200
RATIO_MAX: Final = 2.0
GROWTH_BYTES_MAX: Final = 64 << 20
MB: Final = 1 << 20


class Client:
    """A blocking connection."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 30)
        self._conversation = ClientConversation("bench")

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exception: object) -> None:
        self.socket.close()

    def encode(self, message: Message, version: int) -> bytes:
        """Encode a valid request."""
        return b"".join(self._conversation.send(message, version)[1])

    def ask(self, message: Message, version: int) -> None:
        """Send a request and return its response."""
        self.socket.sendall(self.encode(message, version))
        while data := self.socket.recv(MB):
            if self._conversation.receive(data):
                return
        raise EOFError


def batch(size: int, compression: Compression = Compression.NONE) -> bytes:
    """A batch of one record."""
    builder = BatchBuilder(200 * MB, compression)
    builder.append(time.time_ns() // 1_000_000, b"k", bytes(size))
    return builder.build()


def produce(topic: str, records: bytes) -> ProduceRequest:
    """A produce request with acknowledgement."""
    data = PartitionProduceData(index=0, records=records)
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics)


def watch(port: int, pipe: Connection) -> None:
    """The bystander: for each duration that it receives, it sends back all latencies."""
    asked = ListOffsetsTopic(
        name="bystander", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
    )
    end = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[asked])
    with Client(port) as client:
        while seconds := pipe.recv():
            taken: list[float] = []
            until = time.perf_counter() + seconds
            while (began := time.perf_counter()) < until:
                client.ask(produce("bystander", batch(100)), 12)
                client.ask(end, 7)
                taken.append(time.perf_counter() - began)
                time.sleep(0.001)
            pipe.send(taken)


# Bad input. Each function gets the port and an exit stack, and returns the next action.

Deed = Callable[[], None]
Wrong = Callable[[int, ExitStack], Deed]


def sends(*frames: bytes) -> Wrong:
    """Send bytes on a new connection each time, and ignore the outcome."""

    def begin(port: int, stack: ExitStack) -> Deed:
        def do() -> None:
            with Client(port) as client, suppress(OSError):
                for frame in frames:
                    client.socket.sendall(frame)
                client.socket.recv(1024)

        return do

    return begin


def request(key: int, version: int, body: bytes) -> bytes:
    """A valid header followed by any body."""
    header = struct.pack(">hhih", key, version, 1, 4) + b"evil"
    return struct.pack(">i", len(header) + len(body)) + header + body


def produces(records: Callable[[], bytes], topic: str = "t") -> Wrong:
    """Send the same batch again and again."""

    def begin(port: int, stack: ExitStack) -> Deed:
        client = stack.enter_context(Client(port))
        message = produce(topic, records())
        return lambda: client.ask(message, 12)

    return begin


def once(start: Callable[[int, ExitStack], None]) -> Wrong:
    """Do something once that lasts for the whole time."""

    def begin(port: int, stack: ExitStack) -> Deed:
        start(port, stack)
        return lambda: None

    return begin


def claim(port: int, stack: ExitStack) -> None:
    for _ in range(200):
        client = stack.enter_context(Client(port))
        client.socket.sendall(struct.pack(">i", 100 * MB) + bytes(8))


def half(port: int, stack: ExitStack) -> None:
    for _ in range(8):
        client = stack.enter_context(Client(port))
        client.socket.settimeout(0.2)
        with suppress(OSError):
            client.socket.sendall(struct.pack(">i", 100 * MB) + bytes(50 * MB))


def never_read(port: int, stack: ExitStack, count: int = 20) -> None:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50 * MB)
    message = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=50 * MB,
        topics=[FetchTopic(topic="full", partitions=[partition])],
    )
    for _ in range(count):
        client = stack.enter_context(Client(port))
        client.socket.sendall(client.encode(message, 11) * 10)


def noise() -> Wrong:
    random = Random(7)
    frames = [
        request(random.randrange(80), random.randrange(14), random.randbytes(random.randrange(200)))
        for _ in range(200)
    ]

    def begin(port: int, stack: ExitStack) -> Deed:
        def do() -> None:
            sends(random.choice(frames) + b"\xff" * 4)(port, stack)()

        return do

    return begin


def damaged() -> bytes:
    good = batch(100_000)
    return good[:-1] + b"X"


def flood(port: int, stack: ExitStack) -> Deed:
    def do() -> None:
        Client(port).socket.close()

    return do


def come_and_go(port: int, stack: ExitStack) -> Deed:
    """Create and delete a topic with many partitions, again and again."""
    client = stack.enter_context(Client(port))
    topic = CreatableTopic(
        name="wide", num_partitions=1000, replication_factor=1, assignments=[], configs=[]
    )

    def do() -> None:
        client.ask(CreateTopicsRequest(topics=[topic]), 7)
        client.ask(DeleteTopicsRequest(topic_names=["wide"], timeout_ms=60_000), 5)

    return do


ROWS: Final[dict[str, Wrong]] = {
    "a length that cannot be": sends(struct.pack(">i", -1)),
    "200 frames that are only claimed": once(claim),
    "8 frames of 100 MB, half sent": once(half),
    "a count that the bytes cannot hold": sends(request(3, 1, struct.pack(">i", 2**31 - 1))),
    "an unknown API": sends(request(9999, 0, b"")),
    "noise": noise(),
    "100 KB with a wrong CRC": produces(damaged),
    "a batch that is too large": produces(lambda: batch(1_100_000)),
    "a compression bomb": produces(lambda: batch(40 * MB, Compression.GZIP), "bombs"),
    "connections that come and go": flood,
    "1,000 partitions that come and go": come_and_go,
    "20 that ask for 50 MB and never read": once(never_read),
    "100 that ask for 50 MB and never read": once(partial(never_read, count=100)),
}


@contextmanager
def broker(folder: Path) -> Generator[tuple[int, int]]:
    """The port and the process of a broker."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = int(held.getsockname()[1])
    command = [str(Path(sys.executable).parent / "ottla"), "broker"]
    for one in ("node.id=1", f"listeners=PLAINTEXT://127.0.0.1:{port}", f"log.dirs={folder}/data"):
        command += ["--override", one]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            while True:
                with suppress(ConnectionRefusedError):
                    Client(port).socket.close()
                    break
                assert process.poll() is None, (folder / "log").read_text()
                time.sleep(0.02)
            yield port, process.pid
        finally:
            process.terminate()


def prepare(port: int) -> None:
    """Create the topics and fill them."""
    with Client(port) as client:
        for name in ("bystander", "t", "full", "bombs"):
            configs = [CreatableTopicConfig(name="max.message.bytes", value=str(MB))]
            topic = CreatableTopic(
                name=name, num_partitions=1, replication_factor=1, assignments=[], configs=configs
            )
            client.ask(CreateTopicsRequest(topics=[topic]), 7)
        for _ in range(64):
            client.ask(produce("full", batch(900_000)), 12)


def resident_bytes(pid: int, name: str) -> int:
    """A memory figure of Linux for a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def measure(port: int, pipe: Connection, wrong: Wrong | None, seconds: float) -> list[float]:
    """The sorted latencies of the bystander while another client runs."""
    with ExitStack() as stack:
        deed = wrong(port, stack) if wrong is not None else lambda: None
        pipe.send(seconds)
        while not pipe.poll(1 / RATE):
            with suppress(OSError, EOFError):
                deed()
        taken: list[float] = pipe.recv()
    return sorted(taken)


def at(taken: list[float], share: float) -> float:
    """Milliseconds at a percentile of all latencies."""
    return 1000 * taken[min(int(len(taken) * share), len(taken) - 1)]


@contextmanager
def watched() -> Generator[tuple[int, int, Connection]]:
    """A broker with a warmed-up bystander: the port, the process, and a function that asks."""
    ours, theirs = multiprocessing.Pipe()
    with tempfile.TemporaryDirectory() as folder, broker(Path(folder)) as (port, pid):
        prepare(port)
        bystander = multiprocessing.Process(target=watch, args=(port, theirs))
        bystander.start()
        try:
            measure(port, ours, None, 0.5)
            yield port, pid, ours
        finally:
            ours.send(0)
            bystander.join()


@contextmanager
def neighbour() -> Generator[int]:
    """The port of another broker with the same topics."""
    with tempfile.TemporaryDirectory() as folder, broker(Path(folder)) as (port, _):
        prepare(port)
        yield port


def main() -> None:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--quick", action="store_true", help="a short run, for a first look")
    parser.add_argument("--only", default="", help="rows whose name has this in it")
    given = parser.parse_args()
    quick: bool = given.quick
    seconds = 1.0 if quick else 3.0
    figures: list[dict[str, object]] = []
    table = Table(
        title=QUESTION,
        caption=f"ms; p99 at most {RATIO_MAX:g} x that alone, memory at most 64 MB; "
        "elsewhere: p99 while it is done to another broker on this machine",
    )
    for name in ("case", "p50", "p99", "alone", "elsewhere", "ratio", "memory MB", "met?"):
        table.add_column(name, justify="left" if name == "case" else "right")
    for name, wrong in ((name, wrong) for name, wrong in ROWS.items() if given.only in name):
        with watched() as (port, pid, ours), neighbour() as other:
            alone = measure(port, ours, None, seconds)
            Path(f"/proc/{pid}/clear_refs").write_text("5")
            before = resident_bytes(pid, "VmRSS")
            beside = measure(port, ours, wrong, seconds)
            grown = max(resident_bytes(pid, "VmHWM") - before, 0)
            alone = sorted(alone + measure(port, ours, None, seconds))
            elsewhere = measure(other, ours, wrong, seconds)
            ratio = at(beside, 0.99) / at(alone, 0.99)
            met = ratio <= RATIO_MAX and grown <= GROWTH_BYTES_MAX
            table.add_row(
                name,
                f"{at(beside, 0.5):.2f}",
                f"{at(beside, 0.99):.2f}",
                f"{at(alone, 0.99):.2f}",
                f"{at(elsewhere, 0.99):.2f}",
                f"{ratio:.2f} x",
                f"{grown // MB}",
                "yes" if met else "[bold]no[/bold]",
            )
            figures.append(
                {
                    "case": name,
                    "p50_ms": at(beside, 0.5),
                    "p99_ms": at(beside, 0.99),
                    "alone_p50_ms": at(alone, 0.5),
                    "alone_p99_ms": at(alone, 0.99),
                    "elsewhere_p99_ms": at(elsewhere, 0.99),
                    "ratio": ratio,
                    "memory_bytes": grown,
                    "met": met,
                }
            )
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)
    path = write_report(Path(__file__), {"question": QUESTION, "quick": quick, "cases": figures})
    console.print(f"figures: {path}", soft_wrap=True)


if __name__ == "__main__":
    main()
