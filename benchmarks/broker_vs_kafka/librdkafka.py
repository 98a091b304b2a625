"""Load by a librdkafka client in its own process: `librdkafka.py JOB`, JSON in and out.

Invariant: only acknowledged or fetched records count. A paced load is timed from when each record
was due, not from when the client sent it.
"""

import json
import sys
import time
from typing import Any

import confluent_kafka

# Any: the client has no types.
_CLIENT: Any = confluent_kafka
_TICK_S = 0.001


def produce(job: dict[str, Any]) -> dict[str, float]:
    """Produce records with several producers in turns."""
    producers = [_CLIENT.Producer(job["settings"]) for _ in range(job["connections"])]
    value, topic, records = bytes(job["size"]), job["topic"], job["records"]
    failed: list[str] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(str(error))

    for producer in producers:  # connect before the measurement
        producer.produce(topic, value, on_delivery=delivered)
        producer.flush()
    began_s = time.perf_counter()
    for sent in range(records):
        producer = producers[sent % len(producers)]
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.001)
    for producer in producers:
        producer.flush()
    taken_s = time.perf_counter() - began_s
    assert not failed, failed[0]
    return {"rate": records / taken_s}


def consume(job: dict[str, Any]) -> dict[str, float]:
    """Consume records of a topic with one consumer."""
    consumer = _CLIENT.Consumer({**job["settings"], "auto.offset.reset": "earliest"})
    consumer.subscribe([job["topic"]])
    got = len(consumer.consume(1, 60))
    assert got, "nothing came"
    began_s = time.perf_counter()
    while got < job["records"]:
        got += len(consumer.consume(10_000, 1))
    taken_s = time.perf_counter() - began_s
    consumer.close()
    return {"rate": job["records"] / taken_s}


def pace(job: dict[str, Any]) -> dict[str, float]:
    """Send records at a steady rate; the delay of each acknowledgement from when it was due."""
    producer = _CLIENT.Producer(job["settings"])
    value, topic, rate, seconds = bytes(job["size"]), job["topic"], job["rate"], job["seconds"]
    producer.produce(topic, value)
    producer.flush()
    late_s: list[float] = []
    clock = time.perf_counter
    began_s = clock()

    def delivery(due_s: float) -> Any:
        def delivered(error: Any, message: Any) -> None:
            assert error is None, error
            late_s.append(clock() - due_s)

        return delivered

    sent = 0
    while (elapsed_s := clock() - began_s) < seconds:
        while sent < rate * elapsed_s:
            producer.produce(topic, value, on_delivery=delivery(began_s + sent / rate))
            sent += 1
        producer.poll(_TICK_S)
    producer.flush()
    late_s.sort()
    return {
        "rate": sent / seconds,
        "p50_ms": late_s[len(late_s) // 2] * 1000,
        "p99_ms": late_s[len(late_s) * 99 // 100] * 1000,
    }


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    print(json.dumps({"produce": produce, "consume": consume, "pace": pace}[asked["load"]](asked)))
