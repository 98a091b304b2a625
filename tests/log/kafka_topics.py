"""Topics with everything that a log may hold, written to a real Kafka by a real client.

Timestamps also decrease, so that lookups are not trivial. They are of the last hour, because Kafka
forgets producers whose records are a day old. Segments are small, so that every topic has several.
"""

import importlib
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from judges.kafka_broker import KafkaBroker
from ottla.ids import Offset, PartitionIndex, TopicPartition
from ottla.log.checkpoints import parse_offsets
from ottla.log.names import CLEANED_OFFSETS, LOG_START_OFFSETS, Kind, parse_offset_file
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.records.builder import BatchBuilder

# The type checker has the stubs of an earlier version.
kafka_python: Any = importlib.import_module("kafka")

START_MS = int(time.time()) * 1000 - 3_600_000
SEGMENT_BYTES = 8_000
INDEX_INTERVAL_BYTES = 500
CODECS = (None, "gzip", "snappy", "lz4", "zstd")

SETTINGS = {
    "log.index.size.max.bytes": 65536,
    "log.cleaner.backoff.ms": 100,
    # Kafka deletes segments and writes checkpoints during the test, not a minute later.
    "log.initial.task.delay.ms": 100,
    "log.retention.check.interval.ms": 200,
    "log.flush.offset.checkpoint.interval.ms": 200,
    "log.flush.start.offset.checkpoint.interval.ms": 200,
}

COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "86400000",
}
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "codecs": (len(CODECS), {}),
    "stamped": (2, {"message.timestamp.type": "LogAppendTime"}),
    "transactions": (2, {}),
    "compacted": (2, COMPACTED),
    "forgetful": (1, {**COMPACTED, "delete.retention.ms": "0"}),
    "trimmed": (1, {}),
    "odd": (1, {}),
    "empty": (1, {}),
}
PARTITIONS = [
    TopicPartition(topic, PartitionIndex(index))
    for topic, (count, _) in TOPICS.items()
    for index in range(count)
]
INTERNAL = [
    TopicPartition(topic, PartitionIndex(0))
    for topic in ("__consumer_offsets", "__transaction_state")
]


def create(kafka: KafkaBroker, topics: dict[str, tuple[int, dict[str, str]]]) -> None:
    """Create topics with small segments, and wait until they have leaders."""
    small = {
        "internal.segment.bytes": str(SEGMENT_BYTES),
        "index.interval.bytes": str(INDEX_INTERVAL_BYTES),
    }
    admin = kafka_python.KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    try:
        wanted = {
            topic: {"num_partitions": count, "replication_factor": 1, "configs": {**small, **own}}
            for topic, (count, own) in topics.items()
        }
        admin.create_topics(wanted, wait_for_metadata=True)
    finally:
        admin.close()


@contextmanager
def producer(kafka: KafkaBroker, **settings: object) -> Generator[Any]:
    """A producer of small batches."""
    made = kafka_python.KafkaProducer(
        bootstrap_servers=kafka.bootstrap, linger_ms=5, batch_size=1000, **settings
    )
    try:
        yield made
    finally:
        made.close(timeout=5)


def send(producer: Any, topic: str, partition: int, number: int, **given: object) -> None:
    """Send a record that differs from its neighbours in every field."""
    record: dict[str, object] = {
        "key": None if number % 7 == 3 else b"key-%d" % number,
        "value": b"value-%d-" % number + b"x" * (number * 37 % 190),
        "headers": [(f"h{each}", b"%d" % number) for each in range(number % 3)],
        "timestamp_ms": timestamp(number),
        **given,
    }
    if record["key"] is not None and number % 11 == 5:
        record["value"] = None
    producer.send(topic, partition=partition, **record)


def timestamp(number: int) -> int:
    """Timestamps that increase, with some steps back."""
    return START_MS + 1000 * number - 7300 * (number % 5 == 4)


def write_all(kafka: KafkaBroker) -> None:
    """Fill the topics, and wait until Kafka has compacted and deleted segments."""
    create(kafka, TOPICS)
    write_codecs(kafka, range(200))
    _write_stamped(kafka)
    _write_transactions(kafka)
    _write_compacted(kafka)
    _write_trimmed(kafka)
    _write_odd(kafka)
    _commit_offsets(kafka)
    for topic, partition in (("compacted", 0), ("compacted", 1), ("forgetful", 0)):
        _wait_until(lambda t=topic, p=partition: _is_cleaned(kafka, t, p), kafka)
    # The first cleaning sets the delete horizon of a tombstone; the next one removes it.
    _write_forgetful(kafka, range(400, 800))
    _wait_until(lambda: _is_cleaned(kafka, "forgetful", 0), kafka)
    _wait_until(lambda: any((kafka.data / "trimmed-0").glob("*.deleted")), kafka)
    _wait_until(lambda: bool(_checkpoint(kafka, LOG_START_OFFSETS)), kafka)


def write_codecs(kafka: KafkaBroker, numbers: range) -> None:
    """Write each codec to its own partition; all producers but the first are idempotent."""
    for partition, codec in enumerate(CODECS):
        with producer(
            kafka, compression_type=codec, enable_idempotence=codec is not None
        ) as sender:
            for number in numbers:
                send(sender, "codecs", partition, number)
                if number % 20 == 19:
                    sender.flush()


def _write_stamped(kafka: KafkaBroker) -> None:
    for partition, codec in enumerate((None, "zstd")):
        with producer(kafka, compression_type=codec) as sender:
            for number in range(120):
                send(sender, "stamped", partition, number)
                if number % 10 == 9:
                    sender.flush()


def _write_transactions(kafka: KafkaBroker) -> None:
    """Write with two producers at a time: committed and aborted transactions, and one open at the
    end of partition 1.

    Kafka aborts a transaction that is open for too long, but only after the end of this test.
    """
    patience = {"transaction_timeout_ms": 900_000}
    with (
        producer(kafka, transactional_id="one", **patience) as one,
        producer(kafka, transactional_id="two", compression_type="lz4", **patience) as two,
    ):
        one.init_transactions()
        two.init_transactions()
        for turn in range(12):
            one.begin_transaction()
            two.begin_transaction()
            for number in range(10):
                for partition in (0, 1):
                    send(one, "transactions", partition, 20 * turn + number)
                    if number % 3 == 0 or partition == 1:
                        send(two, "transactions", partition, 20 * turn + 10 + number)
                if number % 4 == 0:
                    one.flush()
                    two.flush()
            (one.abort_transaction if turn % 3 == 1 else one.commit_transaction)()
            (two.abort_transaction if turn % 4 in (1, 2) else two.commit_transaction)()
    _leave_open(kafka, "three")


def _leave_open(kafka: KafkaBroker, transactional_id: str) -> None:
    sender = kafka_python.KafkaProducer(
        bootstrap_servers=kafka.bootstrap,
        transactional_id=transactional_id,
        transaction_timeout_ms=900_000,
    )
    sender.init_transactions()
    sender.begin_transaction()
    send(sender, "transactions", 1, 1000)
    sender.flush()
    with producer(kafka) as other:
        for number in range(1001, 1010):
            send(other, "transactions", 1, number)
    # Closing the producer would abort the transaction. So its connections are cut, as if its
    # process died.
    sender._sender.force_close()
    sender._sender.join(10)


def _write_forgetful(kafka: KafkaBroker, numbers: range, topic: str = "forgetful") -> None:
    """Write many values of few keys; some keys end with tombstones that are compacted soon."""
    with producer(kafka, compression_type="gzip") as sender:
        for number in numbers:
            gone = number % 23 in (3, 4)
            if gone and number >= 280:
                continue
            sender.send(
                topic,
                key=b"key-%d" % (number % 23),
                value=None if gone and number > 200 else b"%d" % number * 9,
                partition=0,
                timestamp_ms=timestamp(number),
            )
            if number % 8 == 7:
                sender.flush()


def _write_compacted(kafka: KafkaBroker) -> None:
    """Write the same to two topics; partition 1 of one has transactions, some of them aborted."""
    _write_forgetful(kafka, range(400))
    _write_forgetful(kafka, range(400), "compacted")
    with producer(kafka, transactional_id="compacting") as sender:
        sender.init_transactions()
        for turn in range(40):
            sender.begin_transaction()
            for number in range(8):
                key, value = b"key-%d" % (number + turn % 5), b"%d" % (turn * 100 + number) * 9
                sender.send("compacted", value, key, partition=1, timestamp_ms=timestamp(turn))
            sender.flush()
            (sender.abort_transaction if turn % 3 == 2 else sender.commit_transaction)()


def _write_trimmed(kafka: KafkaBroker) -> None:
    with producer(kafka) as sender:
        for number in range(300):
            send(sender, "trimmed", 0, number)
            if number % 10 == 9:
                sender.flush()
    admin = kafka_python.KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    try:
        # This is within a batch: ten records were sent at once.
        admin.delete_records({kafka_python.TopicPartition("trimmed", 0): 154})
    finally:
        admin.close()


def _write_odd(kafka: KafkaBroker) -> None:
    """Write records that the client refuses: without key and value, with null headers, without
    timestamp.
    """
    builder = BatchBuilder()
    builder.append(START_MS, None, None)
    builder.append(START_MS + 5, b"", b"", [("", None), ("ž", b"")])
    builder.append(START_MS - 5, None, b"v" * 3000)
    data = TopicProduceData(
        name="odd", partition_data=[PartitionProduceData(index=0, records=builder.build())]
    )
    with kafka.wire() as wire:
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])
        answer = wire.ask(request, 9, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == 0


def _commit_offsets(kafka: KafkaBroker) -> None:
    consumer = kafka_python.KafkaConsumer(
        bootstrap_servers=kafka.bootstrap, group_id="readers", enable_auto_commit=False
    )
    partition = kafka_python.TopicPartition("codecs", 0)
    consumer.assign([partition])
    consumer.seek(partition, 7)
    consumer.commit({partition: kafka_python.OffsetAndMetadata(7, "", -1)})
    consumer.close()


def _is_cleaned(kafka: KafkaBroker, topic: str, index: int) -> bool:
    """Whether Kafka has compacted all but the active segment."""
    partition = TopicPartition(topic, PartitionIndex(index))
    files = map(parse_offset_file, (path.name for path in (kafka.data / str(partition)).iterdir()))
    active = max(file.offset for file in files if file and file.kind is Kind.RECORDS)
    return _checkpoint(kafka, CLEANED_OFFSETS).get(partition) == active > 0


def _checkpoint(kafka: KafkaBroker, name: str) -> dict[TopicPartition, Offset]:
    path = kafka.data / name
    return parse_offsets(path.read_text()) if path.exists() else {}


def _wait_until(done: Callable[[], bool], kafka: KafkaBroker) -> None:
    deadline_s = time.monotonic() + kafka.timeout_s
    while not done():
        assert time.monotonic() < deadline_s, "Kafka has not come so far"
        time.sleep(0.05)
