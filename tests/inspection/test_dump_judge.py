"""Our check agrees with Kafka's dump tool on good and damaged files."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from judges.java import source_command
from kafka_java import judge_needed
from log.test_dump_tool import write_log
from ottla.cli.main import app
from ottla.inspection.directory_check import check_partition
from ottla.inspection.findings import Finding, Level
from ottla.inspection.segment_check import Tally
from ottla.log.files import OsDisk
from ottla.log.producer_snapshot import read_snapshot
from ottla.log.producer_state_manager import CACHED_BATCHES

JUDGE = Path(__file__).with_name("DumpJudge.java")

Change = Callable[[bytes], bytes]


def at(position: int, mask: int = 0x01) -> Change:
    """Change a byte; a negative position counts from the end."""

    def change(data: bytes) -> bytes:
        changed = bytearray(data)
        changed[position] ^= mask
        return bytes(changed)

    return change


# The name of the damaged file, and the damage. In the first segment, batch 0 has 271 bytes, and
# index entries have 8 and 12 bytes.
DAMAGES: list[tuple[str, str, Change]] = [
    ("a value", "00000000000000000000.log", at(100)),
    ("a compressed batch", "00000000000000000000.log", at(271 + 80)),
    ("a CRC", "00000000000000000202.log", at(17)),
    ("a shorter length", "00000000000000000000.log", at(11, 0x02)),
    ("a length beyond the file", "00000000000000000000.log", at(9)),
    ("a negative length", "00000000000000000000.log", at(8, 0x80)),
    ("a raised base offset", "00000000000000000000.log", at(271 + 7, 0x40)),
    ("a number of records", "00000000000000000000.log", at(60)),
    ("a last offset delta", "00000000000000000202.log", at(26)),
    ("an end that is missing", "00000000000000000202.log", lambda data: data[:-7]),
    ("bytes after the end", "00000000000000000202.log", lambda data: data + b"\1\2\3"),
    ("zeros for a page", "00000000000000000000.log", lambda d: d[:300] + bytes(900) + d[1200:]),
    ("a batch twice", "00000000000000000000.log", lambda data: data[:271] + data),
    ("an indexed offset", "00000000000000000000.index", at(3, 0x02)),
    ("an indexed position", "00000000000000000000.index", at(7)),
    ("a position after the file", "00000000000000000000.index", at(-3, 0x40)),
    ("an indexed time", "00000000000000000202.timeindex", at(7)),
    ("a time that falls", "00000000000000000202.timeindex", at(12 + 4, 0x01)),
    ("the offset of a time", "00000000000000000202.timeindex", at(11, 0x20)),
    ("a snapshot", "00000000000000000202.snapshot", at(20)),
    ("the checksum of a snapshot", "00000000000000000202.snapshot", at(3)),
]  # fmt: skip

# Damage that Kafka's tool does not check for.
UNSEEN_BY_KAFKA: list[tuple[str, str, Change]] = [
    ("a magic", "00000000000000000000.log", at(16, 0x40)),
    ("the version of an abort", "00000000000000000202.txnindex", at(1)),
    ("a leader epoch", "00000000000000000000.log", at(15)),
    ("the start of an abort", "00000000000000000000.txnindex", at(17)),
    ("a stable offset", "00000000000000000000.txnindex", at(33)),
    ("a last time that is missing", "00000000000000000000.timeindex", lambda data: data[:-12]),
]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a broker after a clean shutdown, with one partition."""
    data = tmp_path_factory.mktemp("good")
    (data / "events-0").mkdir()
    asyncio.run(write_log(data / "events-0"))
    (data / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    (data / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    return data / "events-0"


def damaged_copies(
    good: Path, folder: Path, damages: list[tuple[str, str, Change]]
) -> Iterator[Path]:
    """The damaged file of each case, each in its own copy of the directory."""
    for number, (_, name, change) in enumerate(damages):
        copy = folder / str(number) / good.name
        shutil.copytree(good.parent, copy.parent)
        (copy / name).write_bytes(change((good / name).read_bytes()))
        yield copy / name


def run_judge(*arguments: str) -> subprocess.CompletedProcess[str]:
    with judge_needed():
        command = source_command(JUDGE, *arguments)
    return subprocess.run(command, capture_output=True, text=True, check=False)


def kafka_says(paths: list[Path]) -> list[str]:
    done = run_judge("dump", *map(str, paths))
    assert done.returncode == 0, done.stderr
    verdicts = [line for line in done.stdout.splitlines() if line in ("sound", "damaged")]
    assert len(verdicts) == len(paths)
    return verdicts


def we_say(paths: list[Path]) -> list[str]:
    check, run = ["log", "dump", "--verify"], app(["log"])
    codes = [CliRunner().invoke(run, [*check, str(path)]).exit_code for path in paths]
    return [{0: "sound", 1: "damaged"}[code] for code in codes]


def test_both_accept_good_files(good: Path) -> None:
    kinds = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    paths = sorted(path for path in good.iterdir() if path.suffix in kinds)
    assert len(paths) >= 15
    snapshots = [read_snapshot(path.read_bytes()) for path in paths if path.suffix == ".snapshot"]
    assert any(len(one.batches) == CACHED_BATCHES for producers in snapshots for one in producers)
    assert kafka_says(paths) == ["sound"] * len(paths)
    assert we_say(paths) == ["sound"] * len(paths)


def test_both_detect_damaged_files(good: Path, tmp_path: Path) -> None:
    paths = list(damaged_copies(good, tmp_path, DAMAGES))
    verdicts = zip((what for what, _, _ in DAMAGES), kafka_says(paths), we_say(paths), strict=True)
    assert [verdict for verdict in verdicts if verdict[1:] != ("damaged", "damaged")] == []


def test_check_detects_more_damage_than_kafkas_tool(good: Path, tmp_path: Path) -> None:
    paths = list(damaged_copies(good, tmp_path, UNSEEN_BY_KAFKA))
    assert kafka_says(paths) == ["sound"] * len(paths)
    assert we_say([path.parent for path in paths]) == ["damaged"] * len(paths)


def test_open_log_of_kafka_has_no_damage(tmp_path: Path) -> None:
    """The directory has preallocated index files and a segment that was never closed."""
    folder = tmp_path / "events-3"
    folder.mkdir()
    done = run_judge("write", str(folder))
    assert done.returncode == 0, done.stderr
    assert (folder / "00000000000000000136.index").stat().st_size > 1_000_000
    tally = Tally()
    disk = OsDisk(read_only=True)
    found = list(check_partition(disk, str(folder), tally, ignore_progress))
    disk.close()
    assert [one for one in found if one.level is not Level.NOTE] == []
    assert (tally.batches, tally.records) == (24, 72)
    for name in ("00000000000000000136.index", "00000000000000000136.timeindex"):
        path = folder / name
        data = path.read_bytes()
        path.write_bytes(at(len(data) // 2)(data))
        disk = OsDisk(read_only=True)
        damage = [
            one for one in check_partition(disk, str(folder), Tally(), ignore_progress) if bad(one)
        ]
        disk.close()
        assert [os.path.basename(one.path) for one in damage] == [name]
        assert "after the zeros" in damage[0].problem
        path.write_bytes(data)


def ignore_progress(path: str, done: int, total: int) -> None:
    """Ignore the progress."""


def bad(finding: Finding) -> bool:
    return finding.level is Level.DAMAGE
