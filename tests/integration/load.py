"""Clients of three kinds that produce and consume during failures, and the check of their history.

librdkafka, Java and aiokafka each run an idempotent producer with acks=all and the member of a
consumer group that commits. Producers number their records. `Load.verify` reads the topic and
checks that every acknowledged record is there, once, in the order of its producer, that every group
has read all of them, and that no group has lost a committed offset.
"""

import asyncio
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import aiokafka
import aiokafka.errors
import confluent_kafka

import sampling
from integration.process_cluster import PATIENCE_S, wait_until
from judges.java import source_command
from kafka_java import judge_needed
from ottla.testing.client_history import ClientHistory

# Any here and below: the clients' types are not complete.
CONFLUENT: Any = confluent_kafka
AIOKAFKA: Any = aiokafka
AIOKAFKA_ERROR: type[Exception] = aiokafka.errors.KafkaError

TOPIC: Final = "load"
PARTITIONS: Final = 3
# Serving these clients was half of the processor time of the tests: `make test` runs them slowly.
AT_ONCE: Final = 6  # records that a producer sends: two for each partition
IN_FLIGHT: Final = (10 if sampling.SOAK else 5) * AT_ONCE  # records that are not acknowledged
PAUSE_S: Final = 0.05 if sampling.SOAK else 0.12  # between them
POLL_S: Final = 0.25 if sampling.SOAK else 0.5  # of consumers: a commit covers several batches
FETCH_WAIT_MS: Final = 200 if sampling.SOAK else 500
FETCHES: Final = {"fetch.min.bytes": 4000, "fetch.wait.max.ms": FETCH_WAIT_MS}
REQUEST_TIMEOUT_MS: Final = 5000  # until a client gives up a broker that does not respond
DELIVERY_TIMEOUT_MS: Final = int(PATIENCE_S * 1000)
JAVA_SOURCE: Final = Path(__file__).with_name("JavaClients.java")


class ProducerLog:
    """What a producer was told; called from any thread."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.acks: deque[tuple[int, int, int]] = deque()  # partition, offset, number
        self.failures: list[str] = []
        self._count = 0
        self._last = [-1] * PARTITIONS

    def value(self, number: int) -> bytes:
        return f"{self.name} {number}".encode()

    def acknowledged(self, partition: int, offset: int, number: int) -> None:
        self.acks.append((partition, offset, number))
        self._count += 1
        self._last[partition] = number

    def progress(self) -> Callable[[], bool]:
        """Return whether each partition has acknowledged a record that was sent after this call."""
        sent_at_most = self._count + IN_FLIGHT
        return lambda: min(self._last) >= sent_at_most


class GroupLog:
    """What the only member of a group has read and committed; called from one thread."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.reads: deque[tuple[int, int, bytes]] = deque()
        self.committed = [0] * PARTITIONS
        self.assignments = 0
        self.violations: list[str] = []
        self._attempted = [0] * PARTITIONS
        self._positions: list[int | None] = [None] * PARTITIONS

    def assigned(self, partitions: Sequence[int]) -> None:
        """The member starts at committed offsets."""
        self.assignments += 1
        for partition in partitions:
            self._positions[partition] = None

    def read(self, partition: int, offset: int, value: bytes) -> None:
        self.reads.append((partition, offset, value))
        expected = self._positions[partition]
        first, last = self.committed[partition], self._attempted[partition]
        if expected is None and not first <= offset <= last:
            self.violations.append(
                f"group {self.name}: partition {partition} continues at {offset}, {first} is "
                f"committed, and nothing after {last}"
            )
        elif expected not in (None, offset):
            self.violations.append(
                f"group {self.name}: partition {partition}: {offset} follows {expected} - 1"
            )
        self._positions[partition] = offset + 1

    def commit(self) -> Mapping[int, int]:
        """Return the offsets to commit, by partition."""
        new = {
            partition: offset
            for partition, offset in enumerate(self._positions)
            if offset is not None and offset > self.committed[partition]
        }
        self.committing(new)
        return new

    def has_committed(self, ends: Sequence[int]) -> bool:
        return all(map(int.__ge__, self.committed, ends))

    def committing(self, offsets: Mapping[int, int]) -> None:
        for partition, offset in offsets.items():
            self._attempted[partition] = max(offset, self._attempted[partition])

    def commit_acknowledged(self, offsets: Mapping[int, int]) -> None:
        for partition, offset in offsets.items():
            self.committed[partition] = offset


class Clients(ABC):
    """A producer and the member of a group, in threads or in a process."""

    def __init__(self, name: str) -> None:
        self.producer = ProducerLog(name)
        self.group = GroupLog(name)
        self.stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    @abstractmethod
    def start(self, bootstrap: str) -> None:
        """Start to produce and to consume."""

    def stop(self) -> None:
        """Wait until everything that was sent is acknowledged."""
        self.stopping.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), f"a client of {self.producer.name} does not end"

    def in_thread(self, work: Callable[[str], None], bootstrap: str) -> None:
        def run() -> None:
            try:
                work(bootstrap)
            except Exception as error:
                self.producer.failures.append(repr(error))

        thread = threading.Thread(target=run, name=self.producer.name, daemon=True)
        self._threads.append(thread)
        thread.start()


class LibrdkafkaClients(Clients):
    """confluent-kafka."""

    def __init__(self) -> None:
        super().__init__("librdkafka")

    def start(self, bootstrap: str) -> None:
        self.in_thread(self._produce, bootstrap)
        self.in_thread(self._consume, bootstrap)

    def _common(self, bootstrap: str) -> dict[str, object]:
        return {
            "bootstrap.servers": bootstrap,
            "socket.timeout.ms": REQUEST_TIMEOUT_MS,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }

    def _produce(self, bootstrap: str) -> None:
        client = CONFLUENT.Producer(
            {
                **self._common(bootstrap),
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "message.timeout.ms": DELIVERY_TIMEOUT_MS,
                "error_cb": self._on_error,
            }
        )
        number = 0
        while not self.stopping.is_set():
            for _ in range(AT_ONCE):
                if len(client) < IN_FLIGHT:
                    client.produce(
                        TOPIC,
                        self.producer.value(number),
                        partition=number % PARTITIONS,
                        on_delivery=self._delivered,
                    )
                    number += 1
            client.poll(0)
            time.sleep(PAUSE_S)
        client.flush(PATIENCE_S)

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            self.producer.failures.append(str(error))

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.producer.failures.append(str(error))
            return
        number = int(message.value().rpartition(b" ")[2])
        # None: librdkafka concludes from a later acknowledgement that the record is stored.
        offset = message.offset()
        self.producer.acknowledged(message.partition(), -1 if offset is None else offset, number)

    def _consume(self, bootstrap: str) -> None:
        client = CONFLUENT.Consumer(
            {
                **self._common(bootstrap),
                "group.id": self.group.name,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **FETCHES,
            }
        )
        client.subscribe([TOPIC], on_assign=self._assigned)
        while not self.stopping.is_set():
            for message in client.consume(1000, POLL_S):
                if message.error() is None:
                    self.group.read(message.partition(), message.offset(), message.value())
            if new := self.group.commit():
                self._commit(client, new)
        client.close()

    def _assigned(self, client: Any, partitions: Any) -> None:
        self.group.assigned([one.partition for one in partitions])

    def _commit(self, client: Any, offsets: Mapping[int, int]) -> None:
        places = [CONFLUENT.TopicPartition(TOPIC, *one) for one in offsets.items()]
        try:
            done = client.commit(offsets=places, asynchronous=False)
        except CONFLUENT.KafkaException:
            return  # the next commit has the same offsets or higher ones
        self.group.commit_acknowledged(
            {one.partition: one.offset for one in done if one.error is None}
        )


class AiokafkaClients(Clients):
    """aiokafka, both clients on one event loop."""

    def __init__(self) -> None:
        super().__init__("aiokafka")
        self._in_flight = 0
        self._cancel: Callable[[], object] = _nothing

    def start(self, bootstrap: str) -> None:
        self.in_thread(lambda servers: asyncio.run(self._run(servers)), bootstrap)

    def stop(self) -> None:
        try:
            super().stop()
        finally:
            self._cancel()  # a thread that stays would disturb other tests of this process
            for thread in self._threads:
                thread.join(PAUSE_S)

    async def _run(self, bootstrap: str) -> None:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._produce(bootstrap))
                group.create_task(self._consume(bootstrap))
        finally:
            self._cancel = _nothing

    async def _produce(self, bootstrap: str) -> None:
        producer = AIOKAFKA.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            acks="all",
            retry_backoff_ms=50,
            metadata_max_age_ms=5000,
            request_timeout_ms=DELIVERY_TIMEOUT_MS,  # of a batch, too
        )
        async with producer:
            number = 0
            while not self.stopping.is_set():
                for _ in range(AT_ONCE):
                    if self._in_flight < IN_FLIGHT:
                        value, partition = self.producer.value(number), number % PARTITIONS
                        sent = await producer.send(TOPIC, value, partition=partition)
                        self._in_flight += 1
                        sent.add_done_callback(self._told(number))
                        number += 1
                await asyncio.sleep(PAUSE_S)
            await producer.flush()

    def _told(self, number: int) -> Callable[[Any], None]:
        def told(done: Any) -> None:
            self._in_flight -= 1
            if (error := done.exception()) is not None:
                self.producer.failures.append(repr(error))
                return
            found = done.result()
            self.producer.acknowledged(found.partition, found.offset, number)

        return told

    async def _consume(self, bootstrap: str) -> None:
        consumer = AIOKAFKA.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=self.group.name,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            retry_backoff_ms=50,
            metadata_max_age_ms=5000,
            fetch_min_bytes=FETCHES["fetch.min.bytes"],
            fetch_max_wait_ms=FETCHES["fetch.wait.max.ms"],
        )
        group = self.group

        class Listener(AIOKAFKA.ConsumerRebalanceListener):  # type: ignore[misc]
            async def on_partitions_revoked(self, revoked: Any) -> None:
                """Commit nothing: the records are read again."""

            async def on_partitions_assigned(self, assigned: Any) -> None:
                group.assigned([one.partition for one in assigned])

        async with consumer:
            consumer.subscribe([TOPIC], listener=Listener())
            while not self.stopping.is_set():
                try:
                    found = await consumer.getmany(timeout_ms=int(POLL_S * 1000))
                    for records in found.values():
                        for one in records:
                            group.read(one.partition, one.offset, one.value)
                    if new := group.commit():
                        place = AIOKAFKA.TopicPartition
                        await consumer.commit({place(TOPIC, one): new[one] for one in new})
                        group.commit_acknowledged(new)
                except AIOKAFKA_ERROR:
                    continue  # the next commit has the same offsets or higher ones


class JavaClients(Clients):
    """Kafka's Java clients in a process, which prints what happens."""

    def __init__(self) -> None:
        super().__init__("java")
        self._process: subprocess.Popen[str] | None = None

    def start(self, bootstrap: str) -> None:
        with judge_needed():
            command = source_command(JAVA_SOURCE, log_level="off")
        words = (bootstrap, TOPIC, PARTITIONS, IN_FLIGHT, AT_ONCE, int(PAUSE_S * 1000))
        limits = (int(POLL_S * 1000), REQUEST_TIMEOUT_MS, DELIVERY_TIMEOUT_MS, FETCH_WAIT_MS)
        self._process = subprocess.Popen(
            [*command, *map(str, (*words, *limits))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.in_thread(self._listen, bootstrap)

    def stop(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            super().stop()
        finally:
            self._process.kill()
            self._process.wait()

    def _listen(self, bootstrap: str) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._note(line.rstrip("\n"))
        assert self._process.wait(PATIENCE_S) == 0

    def _note(self, line: str) -> None:
        what, _, rest = line.partition(" ")
        match what:
            case "ack":
                partition, offset, number = map(int, rest.split())
                self.producer.acknowledged(partition, offset, number)
            case "assigned":
                self.group.assigned([int(word) for word in rest.split()])
            case "read":
                partition, offset, value = rest.split(" ", 2)
                self.group.read(int(partition), int(offset), value.encode())
            case "committing":
                self.group.committing(_offsets(rest))
            case "committed":
                self.group.commit_acknowledged(_offsets(rest))
            case _:
                self.producer.failures.append(line)


def _nothing() -> None:
    """Cancel nothing."""


def _offsets(words: str) -> dict[int, int]:
    """Parse `PARTITION:OFFSET ...`."""
    pairs = (word.split(":") for word in words.split())
    return {int(partition): int(offset) for partition, offset in pairs}


class Load:
    """Clients that run during a `with`."""

    def __init__(self, bootstrap: str, *clients: Clients) -> None:
        self._bootstrap = bootstrap
        self._clients = clients
        self._history = ClientHistory()
        self._unplaced: set[bytes] = set()  # acknowledged without an offset
        self._stored = [list[tuple[int, bytes]]() for _ in range(PARTITIONS)]

    def __enter__(self) -> Self:
        for one in self._clients:
            one.start(self._bootstrap)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        with ExitStack() as stops:  # all of them, also if one fails
            for one in self._clients:
                stops.callback(one.stop)

    def progress(self, *names: str) -> None:
        """Wait until each of some producers (of all by default) gets through to each partition."""
        producers = [one.producer for one in self._clients]
        chosen = [one for one in producers if not names or one.name in names]
        waits = [(one, one.progress()) for one in chosen]
        for producer, is_through in waits:
            wait_until(f"{producer.name} gets acknowledgements", partial(self._goes_on, is_through))

    def _goes_on(self, condition: Callable[[], bool]) -> bool:
        failures = [
            f"{one.producer.name}: {one.producer.failures[:3]}"
            for one in self._clients
            if one.producer.failures
        ]
        assert not failures, failures
        return condition()

    def verify(self) -> None:
        """Check everything that was acknowledged and read before this call."""
        ends = self._collect()
        self._read_to(ends)
        for partition, found in enumerate(self._stored):
            self._history.compare((TOPIC, partition), found)
        there = {value for found in self._stored for _, value in found}
        assert not self._history.violations, self._history.violations[:10]
        assert self._unplaced <= there, sorted(self._unplaced - there)[:10]
        for one in self._clients:
            wait_until(
                f"group {one.group.name} commits {ends}, it has committed {one.group.committed}",
                partial(self._goes_on, partial(one.group.has_committed, ends)),
            )
            violations, one.group.violations = one.group.violations, []
            assert not violations, violations[:10]

    def _collect(self) -> list[int]:
        """Add what the clients have seen to the history; return the ends of the partitions."""
        ends = [len(found) for found in self._stored]
        for one in self._clients:
            for _ in range(len(one.producer.acks)):
                partition, offset, number = one.producer.acks.popleft()
                value = one.producer.value(number)
                if offset < 0:
                    self._unplaced.add(value)
                    continue
                self._history.ack((TOPIC, partition), offset, value, 0.0)
                ends[partition] = max(ends[partition], offset + 1)
            for _ in range(len(one.group.reads)):
                partition, offset, value = one.group.reads.popleft()
                self._history.read((TOPIC, partition), offset, value)
                ends[partition] = max(ends[partition], offset + 1)
        return ends

    def _read_to(self, ends: Sequence[int]) -> None:
        """Read the partitions at least up to some offsets."""
        consumer = CONFLUENT.Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": "verify", "log_level": 0}
        )
        starts = [len(found) for found in self._stored]
        consumer.assign([CONFLUENT.TopicPartition(TOPIC, *one) for one in enumerate(starts)])

        def is_read() -> bool:
            for message in consumer.consume(5000, POLL_S):
                if message.error() is None:
                    found: tuple[int, bytes] = message.offset(), message.value()
                    partition: int = message.partition()
                    self._stored[partition].append(found)
            return all(len(found) >= end for found, end in zip(self._stored, ends, strict=True))

        try:
            wait_until(f"acknowledged records are readable up to {ends}", is_read)
        finally:
            consumer.close()
