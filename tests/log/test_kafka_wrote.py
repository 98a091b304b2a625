"""Ottla opens a data directory that a real Kafka wrote, and finds what Kafka answers about it.

One broker writes everything. Its answers are recorded, and it is killed. Then it is started again,
asked again and stopped cleanly. Ottla opens a copy of the directory after the kill and one after
the clean stop.
"""

import asyncio
import shutil
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka_java import kafka_broker
from log.kafka_agreement import assert_agree, raw
from log.kafka_answers import EPOCHS, KafkaAnswers, ask_all
from log.kafka_directory import open_directory, rules_of
from log.kafka_topics import (
    INTERNAL,
    PARTITIONS,
    SETTINGS,
    TOPICS,
    write_all,
    write_codecs,
)
from ottla.ids import BrokerEpoch, Offset, TopicPartition
from ottla.inspection.directory_check import check_directory
from ottla.inspection.findings import Level
from ottla.inspection.segment_check import Tally
from ottla.log.checkpoints import (
    parse_clean_shutdown,
    parse_meta_properties,
    parse_offsets,
    parse_partition_metadata,
)
from ottla.log.epochs import EpochHistory
from ottla.log.files import OsDisk
from ottla.log.names import (
    CLEAN_SHUTDOWN,
    CLEANED_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
)
from ottla.log.partition_log import OpenedLog, open_log
from ottla.log.producer_snapshot import read_snapshot
from ottla.records.batch import batches

ALL = [*PARTITIONS, *INTERNAL]
OURS = pytest.mark.parametrize("partition", ALL, ids=str)
AFTER = pytest.mark.parametrize("end", ["killed", "stopped"])


@dataclass(frozen=True, slots=True)
class KafkaDirectory:
    """The directory that a broker left, and its answers before that."""

    data: Path
    answers: dict[TopicPartition, KafkaAnswers]


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> dict[str, KafkaDirectory]:
    copies = tmp_path_factory.mktemp("kafka")
    with kafka_broker(SETTINGS) as kafka:
        write_all(kafka)
        answers = ask_all(kafka, ALL)
        kafka.kill()
        killed = KafkaDirectory(shutil.copytree(kafka.data, copies / "killed"), answers)
        kafka.start()
        write_codecs(kafka, range(200, 260))  # in another leader epoch
        answers = ask_all(kafka, ALL)
        kafka.stop()
        stopped = KafkaDirectory(shutil.copytree(kafka.data, copies / "stopped"), answers)
    return {"killed": killed, "stopped": stopped}


@pytest.fixture
def disk() -> Generator[OsDisk]:
    disk = OsDisk()
    yield disk
    disk.close()


def offsets(data: Path, name: str) -> dict[TopicPartition, Offset]:
    return parse_offsets((data / name).read_text())


def opened(
    disk: OsDisk, left: KafkaDirectory, partition: TopicPartition, copy: Path, *, clean: bool
) -> OpenedLog:
    """Open a copy of a partition as a broker that finds this directory."""
    return open_log(
        disk,
        str(shutil.copytree(left.data / str(partition), copy / str(partition))),
        rules_of(partition.topic),
        recovery_point=offsets(left.data, RECOVERY_POINTS).get(partition, 0),
        log_start_offset=offsets(left.data, LOG_START_OFFSETS).get(partition, 0),
        clean=clean,
        now_ms=0,
        random=lambda: 0.0,
    )


def has_empty_segment(folder: Path) -> bool:
    """Whether compaction emptied a segment.

    Then Kafka finds no timestamp up to the modification time of that file. It takes that time for
    the timestamp of the records, searches this segment, and no further one.
    """
    *closed, _ = sorted(folder.glob("*.log"))
    return any(not path.stat().st_size for path in closed)


@AFTER
@OURS
def test_log_equals_the_answers_of_kafka(
    left: dict[str, KafkaDirectory],
    disk: OsDisk,
    end: str,
    partition: TopicPartition,
    tmp_path: Path,
) -> None:
    directory = left[end]
    recovered = opened(disk, directory, partition, tmp_path, clean=end == "stopped")
    assert [note for note in recovered.notes if "leftover" not in note] == []
    assert_agree(
        recovered.log,
        directory.answers[partition],
        # A rebuilt transaction index lacks the transactions of which only the marker is left.
        aborted_lost=end == "killed" and partition.topic == "compacted",
        times_wrong=has_empty_segment(directory.data / str(partition)),
    )


@AFTER
def test_log_manager_opens_the_directory_of_kafka(
    left: dict[str, KafkaDirectory], disk: OsDisk, end: str, tmp_path: Path
) -> None:
    """After a clean shutdown, the next broker finds the same without recovery."""
    answers = left[end].answers
    data = shutil.copytree(left[end].data, tmp_path / "data")
    for _ in range(2):
        logs = asyncio.run(open_directory(disk, data, rules_of))
        assert {hosted.partition: hosted.log.log_end_offset for hosted in logs} == {
            partition: one.high_watermark for partition, one in answers.items()
        }
        for hosted in logs:
            text = (left[end].data / str(hosted.partition) / PARTITION_METADATA).read_text()
            assert hosted.topic_id == parse_partition_metadata(text)
            assert hosted.high_watermark <= hosted.log.log_end_offset
            assert raw(hosted.log, hosted.log.log_end_offset) == answers[hosted.partition].raw
        asyncio.run(logs.close(BrokerEpoch(1)))


@AFTER
def test_checkpoints_of_kafka_are_read(left: dict[str, KafkaDirectory], end: str) -> None:
    data, answers = left[end].data, left[end].answers
    meta = parse_meta_properties((data / META_PROPERTIES).read_text())
    assert (meta.node_id, meta.version, meta.other) == (1, 1, ())
    assert meta.directory_id is not None
    assert parse_partition_metadata((data / "codecs-0" / PARTITION_METADATA).read_text())
    starts, cleaned = offsets(data, LOG_START_OFFSETS), offsets(data, CLEANED_OFFSETS)
    assert starts == {p: one.log_start for p, one in answers.items() if one.log_start}
    assert {p for p in PARTITIONS if "cleanup.policy" in TOPICS[p.topic][1]} <= set(cleaned)
    points, marks = offsets(data, RECOVERY_POINTS), offsets(data, HIGH_WATERMARKS)
    for partition, one in answers.items():
        assert points.get(partition, 0) <= one.high_watermark
        assert marks.get(partition, 0) <= one.high_watermark
    ends = {p: Offset(one.high_watermark) for p, one in answers.items()}
    if end == "stopped":
        assert points == ends
        assert marks == ends
        assert parse_clean_shutdown((data / CLEAN_SHUTDOWN).read_text()) is not None
    for partition in ALL:
        folder = data / str(partition)
        epochs, end_offset = (
            EpochHistory.parse((folder / LEADER_EPOCHS).read_text()),
            ends[partition],
        )
        found = {epoch: epochs.end_offset(epoch, end_offset) for epoch in EPOCHS}
        assert found == answers[partition].epoch_ends
        for snapshot in folder.glob("*.snapshot"):
            read_snapshot(snapshot.read_bytes())
    assert any((data / "transactions-0").glob("*.snapshot"))


def test_kafka_wrote_every_kind_of_record(left: dict[str, KafkaDirectory]) -> None:
    """Without these, the other tests would check less than they claim."""
    answers = left["stopped"].answers
    by_name = {str(partition): one for partition, one in answers.items()}
    codecs = {
        batch.header.compression.name.lower()
        for index in range(5)
        for batch in batches(by_name[f"codecs-{index}"].raw)
    }
    assert codecs == {"none", "gzip", "snappy", "lz4", "zstd"}
    open_one = by_name["transactions-1"]
    assert open_one.last_stable < open_one.high_watermark
    assert len(open_one.aborted) > 5
    assert len(by_name["transactions-0"].committed) < len(by_name["transactions-0"].seen)
    for name in ("compacted-0", "compacted-1", "forgetful-0"):
        assert len(by_name[name].seen) < by_name[name].high_watermark / 2
    assert any(one.value is None for one in by_name["compacted-0"].seen)
    assert not any(one.value is None for one in by_name["forgetful-0"].seen)
    assert by_name["trimmed-0"].log_start == 154
    assert by_name["empty-0"].high_watermark == 0
    epochs = {batch.header.leader_epoch for batch in batches(by_name["codecs-4"].raw)}
    assert len(epochs) == 2
    for name in ("codecs-0", "transactions-0", "stamped-0", "trimmed-0"):
        assert len(list((left["stopped"].data / name).glob("*.log"))) > 1


@AFTER
def test_check_finds_no_damage_in_a_kafka_directory(
    left: dict[str, KafkaDirectory], end: str
) -> None:
    """The directory has compacted and trimmed logs, open transactions, preallocated indexes."""
    tally = Tally()
    disk = OsDisk(read_only=True)
    data = str(left[end].data)
    found = list(check_directory(disk, data, tally, lambda path, done, total: None))
    disk.close()
    assert [one for one in found if one.level is Level.DAMAGE] == []
    assert tally.batches > 500
