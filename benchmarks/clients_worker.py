"""Runs one client with one piece of work, and prints its cost as JSON.

Invariant: only the client's own code runs while it is measured. The first records of a consumer are
not counted for any client, because it has to connect, and some buffer a lot before they return
records.
"""

import inspect
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, Final

LINGER_MS: Final = 5
BATCH_BYTES: Final = 65_536
PARTITIONS: Final = 6
TRIPS_UNCOUNTED: Final = 200
UNCOUNTED: Final = 0.1  # of the consumed records


class Stopwatch:
    """A stopwatch that starts when it is created."""

    def __init__(self) -> None:
        self.begun_s, self.cpu_s = time.perf_counter(), time.process_time()

    def figures(self, count: int) -> dict[str, float]:
        """The rate and the cost of a number of records."""
        seconds = time.perf_counter() - self.begun_s
        cpu_s = time.process_time() - self.cpu_s
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "rate": count / seconds,
            "cpu_us": cpu_s / count * 1e6,
            "memory_bytes": used.ru_maxrss * 1024,
        }


def trips(times_s: list[float]) -> dict[str, float]:
    ms = sorted(1000 * one for one in times_s[TRIPS_UNCOUNTED:])
    return {"p50_ms": statistics.median(ms), "p99_ms": ms[int(len(ms) * 0.99)]}


# Our client.


def settings(servers: str, **more: object) -> dict[str, object]:
    return {"bootstrap.servers": servers, "batch.size": BATCH_BYTES, **more}


async def ottla_produce(servers: str, topic: str, size: int, count: int) -> dict[str, float]:
    from ottla.client.producer.producer import Producer

    value = b"x" * size
    async with Producer(settings(servers, **{"linger.ms": LINGER_MS})) as producer:
        await (await producer.send(topic, value))
        watch = Stopwatch()
        send = producer.send
        for _ in range(count):
            await send(topic, value)
        await producer.flush()
        return watch.figures(count)


async def ottla_consume(servers: str, topic: str, size: int, count: int) -> dict[str, float]:
    from ottla.client.consumer.consumer import Consumer

    given = {"bootstrap.servers": servers, "auto.offset.reset": "earliest"}
    async with Consumer(given) as consumer:
        consumer.assign(*((topic, index) for index in range(PARTITIONS)))
        left = int(count * UNCOUNTED)
        async for _ in consumer:
            left -= 1
            if not left:
                break
        left = counted = count - int(count * UNCOUNTED)
        watch = Stopwatch()
        async for _ in consumer:
            left -= 1
            if not left:
                break
        return watch.figures(counted)


def ottla_sync_produce(servers: str, topic: str, size: int, count: int) -> dict[str, float]:
    from ottla.sync import Producer

    value = b"x" * size
    with Producer(settings(servers, **{"linger.ms": LINGER_MS})) as producer:
        producer.send(topic, value).result()
        watch = Stopwatch()
        send = producer.send
        for _ in range(count):
            send(topic, value)
        producer.flush()
        return watch.figures(count)


def ottla_sync_consume(servers: str, topic: str, size: int, count: int) -> dict[str, float]:
    from ottla.sync import Consumer

    given = {"bootstrap.servers": servers, "auto.offset.reset": "earliest"}
    with Consumer(given) as consumer:
        consumer.assign(*((topic, index) for index in range(PARTITIONS)))
        left = int(count * UNCOUNTED)
        for _ in consumer:
            left -= 1
            if not left:
                break
        left = counted = count - int(count * UNCOUNTED)
        watch = Stopwatch()
        for _ in consumer:
            left -= 1
            if not left:
                break
        return watch.figures(counted)


async def ottla_round_trip(servers: str, topic: str, size: int, count: int) -> dict[str, float]:
    from ottla.client.producer.producer import Producer

    value = b"x" * size
    times: list[float] = []
    async with Producer(settings(servers, **{"linger.ms": 0})) as producer:
        for _ in range(count):
            begun = time.perf_counter()
            await (await producer.send(topic, value))
            times.append(time.perf_counter() - begun)
    return trips(times)


async def ottla_read_trip(servers: str, topic: str, size: int, count: int) -> dict[str, float]:
    """A round trip in which each record is read before the next is sent."""
    from ottla.client.consumer.consumer import Consumer
    from ottla.client.producer.producer import Producer

    value = b"x" * size
    times: list[float] = []
    async with (
        Consumer({"bootstrap.servers": servers, "auto.offset.reset": "latest"}) as consumer,
        Producer({"bootstrap.servers": servers, "linger.ms": 0}) as producer,
    ):
        consumer.assign((topic, 0))
        await consumer.position((topic, 0))
        for _ in range(count):
            begun = time.perf_counter()
            written = await (await producer.send(topic, value, partition=0))
            times.append(time.perf_counter() - begun)
            while all(one.offset < written.offset for one in await consumer.poll(1.0)):
                pass
    return trips(times)


async def ottla_columns_produce(
    servers: str, topic: str, size: int, count: int
) -> dict[str, float]:
    import pyarrow

    from ottla.client.producer.producer import Producer

    pa: Any = pyarrow
    rows = 100_000
    batch = pa.RecordBatch.from_arrays([pa.array([b"x" * size] * rows, pa.binary())], ["value"])
    async with Producer(settings(servers, **{"linger.ms": LINGER_MS})) as producer:
        await (await producer.send(topic, b"first"))
        watch = Stopwatch()
        for _ in range(count // rows):
            await producer.send_arrow(topic, batch, key=None)
        await producer.flush()
        return watch.figures(count // rows * rows)


async def ottla_columns_consume(
    servers: str, topic: str, size: int, count: int
) -> dict[str, float]:
    from ottla.client.consumer.consumer import Consumer

    given = {"bootstrap.servers": servers, "auto.offset.reset": "earliest"}
    async with Consumer(given) as consumer:
        consumer.assign(*((topic, index) for index in range(PARTITIONS)))
        taken = 0
        async for batch in consumer.arrow():
            taken += batch.num_rows
            if taken >= count * UNCOUNTED:
                break
        first, watch = taken, Stopwatch()
        async for batch in consumer.arrow():
            taken += batch.num_rows
            if taken >= count:
                break
        return watch.figures(taken - first)


# Other clients.


def confluent_produce(servers: str, topic: str, size: int, count: int) -> dict[str, float]:
    from confluent_kafka import Producer

    given: dict[str, Any] = {
        "bootstrap.servers": servers,
        "acks": "all",
        "linger.ms": LINGER_MS,
        "batch.size": BATCH_BYTES,
        "queue.buffering.max.messages": 1_000_000,
    }
    producer = Producer(given)
    value = b"x" * size
    producer.produce(topic, value)
    producer.flush()
    watch = Stopwatch()
    for n in range(count):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.01)
        if not n % 1000:
            producer.poll(0)
    producer.flush()
    return watch.figures(count)


def confluent_consume(servers: str, topic: str, size: int, count: int) -> dict[str, float]:
    from confluent_kafka import Consumer, TopicPartition

    given: dict[str, Any] = {
        "bootstrap.servers": servers,
        "group.id": "bench",
        "enable.auto.commit": False,
        "fetch.queue.backoff.ms": 0,  # by default it pauses a second when 100,000 records wait
    }
    consumer = Consumer(given)
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    first, watch = 0, Stopwatch()
    taken = 0
    while taken < count:
        for message in consumer.consume(500, 1.0):
            message.value()
            taken += 1
        if not first and taken >= count * UNCOUNTED:
            first, watch = taken, Stopwatch()
    figures = watch.figures(taken - first)
    consumer.close()
    return figures


def confluent_round_trip(servers: str, topic: str, size: int, count: int) -> dict[str, float]:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 0})
    value = b"x" * size
    times: list[float] = []
    for _ in range(count):
        begun = time.perf_counter()
        producer.produce(topic, value)
        producer.flush()
        times.append(time.perf_counter() - begun)
    return trips(times)


async def aiokafka_produce(servers: str, topic: str, size: int, count: int) -> dict[str, float]:
    from aiokafka import AIOKafkaProducer

    producer: Any = AIOKafkaProducer(
        bootstrap_servers=servers, acks="all", linger_ms=LINGER_MS, max_batch_size=BATCH_BYTES
    )
    await producer.start()
    value = b"x" * size
    await producer.send_and_wait(topic, value)
    watch = Stopwatch()
    for _ in range(count):
        await producer.send(topic, value)
    await producer.flush()
    figures = watch.figures(count)
    await producer.stop()
    return figures


async def aiokafka_consume(servers: str, topic: str, size: int, count: int) -> dict[str, float]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer: Any = AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    await consumer.start()
    consumer.assign([TopicPartition(topic, index) for index in range(PARTITIONS)])
    first, watch = 0, Stopwatch()
    taken = 0
    while taken < count:
        for records in (await consumer.getmany(timeout_ms=1000)).values():
            for _ in records:
                taken += 1
        if not first and taken >= count * UNCOUNTED:
            first, watch = taken, Stopwatch()
    figures = watch.figures(taken - first)
    await consumer.stop()
    return figures


def kafka_python_produce(servers: str, topic: str, size: int, count: int) -> dict[str, float]:
    from kafka import KafkaProducer

    producer: Any = KafkaProducer(
        bootstrap_servers=servers, acks="all", linger_ms=LINGER_MS, batch_size=BATCH_BYTES
    )
    value = b"x" * size
    producer.send(topic, value).get(10)
    watch = Stopwatch()
    for _ in range(count):
        producer.send(topic, value)
    producer.flush()
    figures = watch.figures(count)
    producer.close()
    return figures


def kafka_python_consume(servers: str, topic: str, size: int, count: int) -> dict[str, float]:
    import kafka

    peer: Any = kafka

    consumer: Any = peer.KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    consumer.assign([peer.TopicPartition(topic, index) for index in range(PARTITIONS)])
    first, watch = 0, Stopwatch()
    taken = 0
    while taken < count:
        for records in consumer.poll(timeout_ms=1000).values():
            for _ in records:
                taken += 1
        if not first and taken >= count * UNCOUNTED:
            first, watch = taken, Stopwatch()
    figures = watch.figures(taken - first)
    consumer.close()
    return figures


def main() -> None:
    asked: dict[str, Any] = json.loads(sys.argv[1])
    client, work = asked.pop("client"), asked.pop("work")
    name = f"{client} {work}".replace("confluent-kafka", "confluent")
    function: Callable[..., Any] = globals()[name.replace(" ", "_").replace("-", "_")]
    if inspect.iscoroutinefunction(function):
        import uvloop

        figures = uvloop.run(function(**asked))
    else:
        figures = function(**asked)
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
