"""A light load of one connection: ready-made requests, several in flight, answers hardly read.

    python generator.py '{"load": "produce", "host": "127.0.0.1", "port": 9092, "topic": "t", …}'

It costs little, so that a server pinned to one core is the limit, and not the load on the other.

Invariant: every answer is checked to be without an error and, for a fetch, to have the batches that
were asked for. A record counts when its answer has arrived, and the first tenth does not count.
"""

import json
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

# The module path of a script has only its own directory, not the repository.
sys.path.append(str(Path(__file__).parents[2]))

from ottla.protocol.conversation import ClientConversation
from ottla.protocol.message import Message
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.records.builder import BatchBuilder

IN_FLIGHT = 5
LEADER_SECONDS = 20
PRODUCE_VERSION, FETCH_VERSION = 9, 12  # both name topics, and every broker supports them
FETCH_BYTES = 1024 * 1024
FETCH_PASSES = 5  # over the topic: one takes a quarter of a second
RECEIVE_BYTES = 4 * 1024 * 1024
PARTITION_BYTES = 33  # of a partition without an error in a Produce response
_LENGTH = struct.Struct(">i")
_CODE = struct.Struct(">h")


@dataclass(frozen=True, slots=True)
class Job:
    """What to do."""

    load: str  # "produce", or "fetch" for what a job with the same numbers produced
    host: str
    port: int
    topic: str
    records: int
    size: int  # of a record
    batch_bytes: int
    batches: int = 1  # per request, each for its own partition
    partitions: int = 6
    core: int = -1  # to run on; -1: any


def batch(job: Job) -> tuple[bytes, int]:
    """A full batch, and its number of records."""
    builder = BatchBuilder(job.batch_bytes)
    value, count = os.urandom(job.size), 0
    while builder.append(time.time_ns() // 1_000_000, None, value):
        count += 1
    return builder.build(), count


def frame(message: Message, version: int) -> bytes:
    return b"".join(ClientConversation("generator").send(message, version)[1])


class Connection:
    """Sends frames and returns the size and the first bytes of each answer."""

    def __init__(self, job: Job) -> None:
        self._socket = socket.create_connection((job.host, job.port), 60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._memory = bytearray(RECEIVE_BYTES)
        self._used = self._start = 0

    def send(self, frames: Sequence[bytes]) -> None:
        """Send ready-made frames."""
        sent = self._socket.sendmsg(frames)
        if sent < sum(map(len, frames)):
            self._socket.sendall(b"".join(frames)[sent:])

    def arrived(self) -> memoryview | None:
        """The next answer if it has arrived; valid until the next call."""
        arrived = self._used - self._start
        if arrived < 4:
            return None
        (length,) = _LENGTH.unpack_from(self._memory, self._start)
        if arrived < 4 + length:
            return None
        begin = self._start + 4
        self._start = begin + length
        return memoryview(self._memory)[begin : begin + length]

    def answer(self) -> memoryview:
        """The next answer; valid until the next call."""
        while True:
            if (found := self.arrived()) is not None:
                return found
            arrived = self._used - self._start
            if self._start:
                self._memory[:arrived] = self._memory[self._start : self._used]
                self._start, self._used = 0, arrived
            with memoryview(self._memory)[self._used :] as room:
                count = self._socket.recv_into(room)
            assert count, "the broker closed the connection"
            self._used += count

    def run(
        self, frames: Callable[[int], bytes], count: int, check: Callable[[memoryview], None]
    ) -> float:
        """Send a number of frames; the seconds for all but the first tenth of the answers.

        A frame follows each answer. Those after answers that arrived together are sent together,
        so that the generator costs less when it is the slower one.
        """
        sent = min(IN_FLIGHT, count)
        self.send([frames(number) for number in range(sent)])
        began = time.perf_counter()
        answered = 0
        while answered < count:
            before = answered
            answer: memoryview | None = self.answer()
            while answer is not None:
                check(answer)
                if answered == count // 10:
                    began = time.perf_counter()
                answered += 1
                answer = self.arrived()
            following = range(sent, min(count, sent + answered - before))
            if following:
                self.send([frames(number) for number in following])
                sent = following.stop
        return time.perf_counter() - began


def produce(job: Job) -> float:
    """Records per second."""
    records, per_batch = batch(job)

    def ready(partitions: Sequence[int]) -> bytes:
        data = [PartitionProduceData(index=index, records=records) for index in partitions]
        topic = TopicProduceData(name=job.topic, partition_data=data)
        return frame(
            ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), PRODUCE_VERSION
        )

    made = [
        ready([(first + more) % job.partitions for more in range(job.batches)])
        for first in range(0, job.partitions, job.batches)
    ]
    count = max(20, job.records // (per_batch * job.batches))
    # Correlation id, no tagged fields, one topic, its name, its number of partitions.
    first_code = 4 + 1 + 1 + 1 + len(job.topic) + 1 + 4

    def codes(answer: memoryview) -> Iterator[int]:
        for number in range(job.batches):
            yield _CODE.unpack_from(answer, first_code + number * PARTITION_BYTES)[0]

    def check(answer: memoryview) -> None:
        for code in codes(answer):
            assert not code, f"error {code}"

    connection = Connection(job)
    for first in made:  # Kafka leads the partitions of a new topic after a moment
        deadline = time.monotonic() + LEADER_SECONDS
        connection.send([first])
        while any(codes(connection.answer())) and time.monotonic() < deadline:
            time.sleep(0.05)
            connection.send([first])
    seconds = connection.run(lambda number: made[number % len(made)], count, check)
    return (count - count // 10 - 1) * job.batches * per_batch / seconds


def fetch(job: Job) -> float:
    """Records per second of a topic that `produce` has filled, partition by partition."""
    records, per_batch = batch(job)
    batches = max(1, FETCH_BYTES // len(records))
    requests = max(20, job.records // (per_batch * job.batches))  # those of `produce`
    per_partition = requests * job.batches // job.partitions // batches
    assert per_partition, "the topic has less than one fetch per partition"

    def ready(number: int) -> bytes:
        index, turn = divmod(number, per_partition)
        partition = FetchPartition(
            partition=index,
            fetch_offset=turn * batches * per_batch,
            partition_max_bytes=FETCH_BYTES,
        )
        return frame(
            FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=FETCH_BYTES,
                session_id=0,
                session_epoch=-1,
                topics=[FetchTopic(topic=job.topic, partitions=[partition])],
            ),
            FETCH_VERSION,
        )

    def check(answer: memoryview) -> None:
        assert len(answer) > batches * len(records), f"only {len(answer)} bytes"

    count = per_partition * job.partitions
    made = [ready(number) for number in range(count)]
    count *= FETCH_PASSES
    seconds = Connection(job).run(lambda number: made[number % len(made)], count, check)
    return (count - count // 10 - 1) * batches * per_batch / seconds


def main(asked: str) -> None:
    job = Job(**json.loads(asked))
    if job.core >= 0:
        os.sched_setaffinity(0, {job.core})
    print(json.dumps({"rate": {"produce": produce, "fetch": fetch}[job.load](job)}))


if __name__ == "__main__":
    main(sys.argv[1])
