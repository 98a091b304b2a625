"""Kafka's dump tool reads the files that Ottla writes."""

import asyncio
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from kafka_tools import KafkaTools
from ottla.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from ottla.log.cleaner.cleaner_runners import LocalCleaner
from ottla.log.files import OsDisk
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import open_log
from ottla.records.batch import Batch, batches
from ottla.records.builder import BatchBuilder
from ottla.records.compression import Compression
from ottla.records.control import EndTxnMarker
from ottla.records.validation import ValidationConfig, validate

NOW_MS = 1_700_000_000_000
DUMP = "kafka-dump-log"
RECORD = re.compile(
    r"\| offset: (\d+) CreateTime: (\d+) keySize: -?\d+ valueSize: -?\d+ sequence: (-?\d+) "
    r"headerKeys: \[(.*?)\](?: key: (\S+) payload: (\S+)| endTxnMarker: (\w+) .*)"
)
BATCH = re.compile(r"baseOffset: (\d+) .* compresscodec: (\w+) crc: \d+ isvalid: (\w+)")


class WrittenRecord(NamedTuple):
    offset: int
    timestamp: int
    sequence: int
    headers: str
    key: str | None
    value: str | None
    marker: str | None


async def write_log(folder: Path) -> list[WrittenRecord]:
    """Write segments with every codec, an idempotent producer and ended transactions."""
    written: list[WrittenRecord] = []
    disk = OsDisk()
    log = open_log(
        disk,
        str(folder),
        LogConfig(segment_bytes=5_000, index_interval_bytes=500),
        recovery_point=Offset(0),
        log_start_offset=Offset(0),
        clean=True,
        now_ms=NOW_MS,
        random=lambda: 0.0,
    ).log
    log.begin_epoch(LeaderEpoch(3))
    sequence = 0
    for number in range(60):
        builder = BatchBuilder(compression=list(Compression)[number % 5])
        transactional = number % 10 in (3, 4)
        idempotent = transactional or number % 3 == 0
        first = sequence if idempotent else -1
        for each in range(10):
            timestamp = NOW_MS + 1000 * number + each
            key, value = f"k{number}", f"value-{number}-{each}-{'x' * (number % 40)}"
            builder.append(timestamp, key.encode(), value.encode(), [("h", b"1")] * (each % 2))
            written.append(
                WrittenRecord(
                    log.log_end_offset + each,
                    timestamp,
                    first + each if idempotent else -1,
                    "h" * (each % 2),
                    key,
                    value,
                    None,
                )
            )
        raw = builder.build(
            producer_id=9 if idempotent else -1,
            producer_epoch=0 if idempotent else -1,
            base_sequence=first,
            transactional=transactional,
        )
        sequence += 10 if idempotent else 0
        now_ms = NOW_MS + 1000 * number
        valid = validate(raw, ValidationConfig(), now_ms=now_ms, produce_version=9)
        log.append(valid, memoryview(raw), leader_epoch=3, now_ms=now_ms)
        if number % 10 == 4:
            commit = number % 20 == 4
            marker = log.append_marker(
                EndTxnMarker(commit=commit, coordinator_epoch=1),
                producer_id=ProducerId(9),
                producer_epoch=ProducerEpoch(0),
                transaction_version=1,
                leader_epoch=3,
                now_ms=now_ms,
            )
            word = "COMMIT" if commit else "ABORT"
            written.append(WrittenRecord(marker.base_offset, now_ms, -1, "", None, None, word))
    await log.close()
    disk.close()
    return written


@pytest.fixture(scope="module")
def log_folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[WrittenRecord]]:
    folder = tmp_path_factory.mktemp("data") / "events-0"
    folder.mkdir()
    return folder, asyncio.run(write_log(folder))


def files(folder: Path, *suffixes: str) -> str:
    return ",".join(sorted(str(path) for path in folder.iterdir() if path.suffix in suffixes))


def test_every_record_is_dumped_as_written(
    java_tools: KafkaTools, log_folder: tuple[Path, list[WrittenRecord]]
) -> None:
    folder, written = log_folder
    arguments = ("--deep-iteration", "--print-data-log", "--files", files(folder, ".log"))
    done = java_tools.run(DUMP, *arguments)
    assert done.code == 0, done.err
    dumped = [
        WrittenRecord(
            int(offset), int(time), int(sequence), headers, key or None, value or None, mark
        )
        for offset, time, sequence, headers, key, value, mark in (
            found.groups() for found in RECORD.finditer(done.out)
        )
    ]
    assert dumped == written
    found = BATCH.findall(done.out)
    assert len(found) == 60 + 6
    assert {valid for _, _, valid in found} == {"true"}
    assert {codec for _, codec, _ in found} == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert len(list(folder.glob("*.log"))) >= 3


def test_indexes_pass_the_checks_of_the_tool(
    java_tools: KafkaTools, log_folder: tuple[Path, list[WrittenRecord]]
) -> None:
    folder, _ = log_folder
    indexes = files(folder, ".index", ".timeindex")
    done = java_tools.run(DUMP, "--index-sanity-check", "--files", indexes)
    assert done.code == 0, done.err
    assert done.out.count("passed sanity check") == indexes.count(",") + 1
    # Without the option the tool looks up every entry in the records.
    done = java_tools.run(DUMP, "--verify-index-only", "--files", indexes)
    assert done.code == 0, done.err
    assert "mismatch" not in (done.out + done.err).lower()


def test_transactions_and_producers_are_dumped(
    java_tools: KafkaTools, log_folder: tuple[Path, list[WrittenRecord]]
) -> None:
    folder, written = log_folder
    done = java_tools.run(DUMP, "--files", files(folder, ".txnindex", ".snapshot"))
    assert done.code == 0, done.err
    aborts = [each.offset for each in written if each.marker == "ABORT"]
    assert [int(n) for n in re.findall(r"lastOffset: (\d+) lastStableOffset", done.out)] == aborts
    last = [each for each in written if each.sequence >= 0][-1]
    assert f"lastSequence: {last.sequence} lastOffset: {last.offset} " in done.out


async def compact_log(folder: Path) -> list[Batch]:
    """Clean that log, with a tombstone for one of its keys."""
    disk = OsDisk()
    rules = LogConfig(segment_bytes=5_000, index_interval_bytes=500, compact=True, delete=False)
    log = open_log(disk, str(folder), rules, clean=True, now_ms=NOW_MS, random=lambda: 0.0).log
    log.begin_epoch(LeaderEpoch(4))
    for key, value in [(b"k7", None), (b"k57", b"last")]:
        builder = BatchBuilder(compression=Compression.LZ4)
        builder.append(NOW_MS, b"other-" + key, b"x")
        builder.append(NOW_MS + 70_000, key, value)
        raw = builder.build()
        valid = validate(raw, ValidationConfig(), now_ms=NOW_MS, produce_version=9)
        log.append(valid, memoryview(raw), leader_epoch=4, now_ms=NOW_MS)
    log.roll(NOW_MS)
    done = await log.compact(
        LocalCleaner(),
        None,
        high_watermark=log.log_end_offset,
        secret=bytes(16),
        clock_ms=lambda: NOW_MS,
    )
    assert done is not None
    assert done.records_kept < done.records_read // 5
    await log.purge(NOW_MS + rules.file_delete_delay_ms)
    left: list[Batch] = []
    while piece := await (await log.read(_end(left), log.log_end_offset, 1 << 20)).read():
        left += batches(piece)
    await log.close()
    disk.close()
    return left


def _end(found: list[Batch]) -> int:
    return found[-1].header.next_offset if found else 0


def test_compacted_log_is_dumped_as_ottla_reads_it(java_tools: KafkaTools, tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    folder.mkdir()
    asyncio.run(write_log(folder))
    left = asyncio.run(compact_log(folder))
    arguments = ("--deep-iteration", "--print-data-log", "--files", files(folder, ".log"))
    done = java_tools.run(DUMP, *arguments)
    assert done.code == 0, done.err
    found = re.findall(r"\| offset: (\d+) CreateTime: (\d+) ", done.out)
    assert found == [(str(r.offset), str(r.timestamp)) for b in left for r in b.records()]
    dumped = re.findall(
        r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .* isTransactional: .* isControl: "
        r".* deleteHorizonMs: (\S+) .* isvalid: (\w+)",
        done.out,
    )
    assert dumped == [
        (
            str(h.base_offset),
            str(h.last_offset),
            str(h.record_count),
            "OptionalLong.empty"
            if h.delete_horizon_ms is None
            else f"OptionalLong[{h.delete_horizon_ms}]",
            "true",
        )
        for h in (batch.header for batch in left)
    ]
    horizons = [batch for batch in left if batch.header.delete_horizon_ms is not None]
    assert [r.value for batch in horizons for r in batch.records()].count(None) == 1
    assert any(not batch.header.record_count for batch in left)  # keeps a sequence
    indexes = files(folder, ".index", ".timeindex")
    done = java_tools.run(DUMP, "--index-sanity-check", "--files", indexes)
    sound = re.findall(r"passed sanity check|is empty", done.out)
    assert len(sound) == indexes.count(",") + 1, done.err
    assert "passed sanity check" in sound
    done = java_tools.run(DUMP, "--verify-index-only", "--files", indexes)
    assert done.code == 0, done.err
    assert "mismatch" not in (done.out + done.err).lower()
    if aborted := files(folder, ".txnindex"):
        done = java_tools.run(DUMP, "--files", aborted)
        assert done.code == 0, done.err
