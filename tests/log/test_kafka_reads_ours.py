"""A real Kafka opens partitions that Ottla wrote, serves them and appends to them.

Our directory replaces that of a topic while Kafka is stopped; only the topic id stays.
"""

import asyncio
import shutil
from collections.abc import Generator
from pathlib import Path

import pytest

from judges.kafka_broker import KafkaBroker
from kafka_java import kafka_broker
from log.kafka_agreement import assert_agree
from log.kafka_answers import ask_all
from log.kafka_directory import open_directory
from log.kafka_topics import (
    INDEX_INTERVAL_BYTES,
    SEGMENT_BYTES,
    START_MS,
    create,
    producer,
    send,
    timestamp,
)
from ottla.ids import (
    BrokerEpoch,
    LeaderEpoch,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from ottla.log.files import OsDisk
from ottla.log.log_config import LogConfig
from ottla.log.names import CLEAN_SHUTDOWN, PARTITION_METADATA
from ottla.log.partition_log import PartitionLog, open_log
from ottla.records.builder import BatchBuilder
from ottla.records.compression import Compression
from ottla.records.control import EndTxnMarker
from ottla.records.validation import ValidationConfig, validate

RULES = LogConfig(segment_bytes=SEGMENT_BYTES, index_interval_bytes=INDEX_INTERVAL_BYTES)
CLEAN = TopicPartition("clean", PartitionIndex(0))
CRASHED = TopicPartition("crashed", PartitionIndex(0))
SHARED = TopicPartition("shared", PartitionIndex(0))

# Kafka assigns producer ids from 0 on.
IDEMPOTENT, COMMITTING, ABORTING, OPEN = (ProducerId(900_000 + number) for number in range(4))


@pytest.fixture(scope="module")
def kafka() -> Generator[KafkaBroker]:
    with kafka_broker() as kafka:
        create(kafka, {CLEAN.topic: (1, {}), CRASHED.topic: (1, {}), SHARED.topic: (1, {})})
        kafka.stop()
        yield kafka


@pytest.fixture
def disk() -> Generator[OsDisk]:
    disk = OsDisk()
    yield disk
    disk.close()


def opened(disk: OsDisk, folder: Path, *, clean: bool = True) -> PartitionLog:
    recovered = open_log(disk, str(folder), RULES, clean=clean, now_ms=START_MS, random=lambda: 0.0)
    return recovered.log


class Writer:
    """Appends to a log as a leader does, with a sequence for each producer."""

    def __init__(self, log: PartitionLog, leader_epoch: int = 0) -> None:
        self.log = log
        self.leader_epoch = leader_epoch
        self.number = 0
        self.sequences: dict[ProducerId, int] = {}

    def batch(self, producer_id: int = -1, *, transactional: bool = False) -> bytes:
        """The next batch; each has another codec and another number of records."""
        builder = BatchBuilder(compression=list(Compression)[self.number % 5])
        count = 1 + self.number % 7
        for each in range(count):
            number = 10 * self.number + each
            builder.append(
                timestamp(number),
                None if number % 7 == 3 else b"key-%d" % number,
                None if number % 11 == 5 else b"value-%d-" % number + b"x" * (number * 37 % 190),
                [(f"h{each}", b"%d" % number)] * (number % 3),
            )
        self.number += 1
        has_producer = producer_id >= 0
        sequence = self.sequences.get(ProducerId(producer_id), 0)
        self.sequences[ProducerId(producer_id)] = sequence + count
        return builder.build(
            producer_id=producer_id,
            producer_epoch=0 if has_producer else -1,
            base_sequence=sequence if has_producer else -1,
            transactional=transactional,
        )

    def append(self, producer_id: int = -1, *, transactional: bool = False) -> None:
        data = self.batch(producer_id, transactional=transactional)
        now_ms = timestamp(10 * self.number)
        valid = validate(data, ValidationConfig(), now_ms=now_ms, produce_version=12)
        self.log.append(valid, memoryview(data), leader_epoch=self.leader_epoch, now_ms=now_ms)

    def end(self, producer_id: ProducerId, *, commit: bool) -> None:
        self.log.append_marker(
            EndTxnMarker(commit=commit, coordinator_epoch=0),
            producer_id=producer_id,
            producer_epoch=ProducerEpoch(0),
            transaction_version=1,
            leader_epoch=self.leader_epoch,
            now_ms=timestamp(10 * self.number),
        )

    def write(self, turns: int) -> None:
        """Append plain, idempotent and transactional batches in turn."""
        for turn in range(turns):
            for _ in range(3):
                self.append()
                self.append(IDEMPOTENT)
                self.append(COMMITTING, transactional=True)
                self.append(ABORTING, transactional=True)
            self.end(COMMITTING, commit=True)
            self.end(ABORTING, commit=turn % 4 == 3)


def written(disk: OsDisk, folder: Path) -> Writer:
    log = opened(disk, folder)
    log.begin_epoch(LeaderEpoch(0))
    writer = Writer(log)
    writer.write(6)
    asyncio.run(log.flush())
    writer.write(6)
    writer.append(OPEN, transactional=True)
    writer.append(IDEMPOTENT)
    assert len(log.segments) > 5
    return writer


def put(kafka: KafkaBroker, folder: Path, partition: TopicPartition) -> None:
    """Replace the directory of a partition with ours."""
    if kafka.running:  # an earlier test failed
        kafka.kill()
    theirs = kafka.data / str(partition)
    shutil.copy(theirs / PARTITION_METADATA, folder)
    shutil.rmtree(theirs)
    shutil.copytree(folder, theirs)


def assert_goes_on(
    kafka: KafkaBroker, disk: OsDisk, partition: TopicPartition, copy: Path, end: int
) -> None:
    """Check that Kafka appends to our log, and that Ottla opens the result."""
    with producer(kafka) as sender:
        for number in range(1000, 1050):
            send(sender, partition.topic, 0, number)
    answers = ask_all(kafka, [partition])[partition]
    assert answers.high_watermark == end + 50
    kafka.stop()
    shutil.copytree(kafka.data / str(partition), copy)
    assert_agree(opened(disk, copy), answers)


def test_kafka_serves_a_log_after_a_clean_shutdown(
    kafka: KafkaBroker, disk: OsDisk, tmp_path: Path
) -> None:
    folder = tmp_path / str(CLEAN)
    asyncio.run(written(disk, folder).log.close())
    log = opened(disk, shutil.copytree(folder, tmp_path / "ours"))
    put(kafka, folder, CLEAN)
    assert (kafka.data / CLEAN_SHUTDOWN).exists()  # so Kafka trusts our indexes and snapshots
    kafka.start()
    assert_agree(log, ask_all(kafka, [CLEAN])[CLEAN])
    assert_goes_on(kafka, disk, CLEAN, tmp_path / "back", log.log_end_offset)


@pytest.mark.judge
def test_kafka_serves_a_log_after_a_crash(kafka: KafkaBroker, disk: OsDisk, tmp_path: Path) -> None:
    folder = tmp_path / str(CRASHED)
    writer = written(disk, folder)
    log = writer.log
    torn = writer.batch()[:-5]
    put(kafka, folder, CRASHED)
    active = kafka.data / str(CRASHED) / Path(log.segments.active.file.path).name
    with active.open("ab") as file:
        file.write(torn)
    (kafka.data / CLEAN_SHUTDOWN).unlink()
    kafka.start()
    assert_agree(log, ask_all(kafka, [CRASHED])[CRASHED])
    assert_goes_on(kafka, disk, CRASHED, tmp_path / "back", log.log_end_offset)


@pytest.mark.judge
def test_kafka_takes_over_a_directory_of_ottla(
    kafka: KafkaBroker, disk: OsDisk, tmp_path: Path
) -> None:
    """The directory has checkpoints and a clean shutdown file, and both brokers accept them."""
    if kafka.running:
        kafka.stop()
    kafka.start()
    with producer(kafka) as sender:
        for number in range(50):
            send(sender, SHARED.topic, 0, number)
    before = ask_all(kafka, [SHARED])[SHARED]
    kafka.stop()
    logs = asyncio.run(open_directory(disk, kafka.data, lambda topic: RULES))
    log = logs[SHARED].log
    assert log.log_end_offset == 50
    latest = log.epochs.latest
    assert latest is not None
    log.begin_epoch(latest.epoch)
    Writer(log, latest.epoch).write(4)
    asyncio.run(logs.close(BrokerEpoch(1)))
    assert (kafka.data / CLEAN_SHUTDOWN).exists()
    log = opened(disk, shutil.copytree(kafka.data / str(SHARED), tmp_path / "ours"))
    kafka.start()
    answers = ask_all(kafka, [SHARED])[SHARED]
    assert answers.raw.startswith(before.raw)
    assert answers.log_start == 0
    assert_agree(log, answers)
    assert_goes_on(kafka, disk, SHARED, tmp_path / "back", log.log_end_offset)
