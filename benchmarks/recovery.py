"""The speed of opening logs: after a kill, with every batch checked, and after a clean shutdown.

Invariant: nothing of the recovered log was flushed, so all of it is checked. Its files are in the
page cache, so the device is not measured. Each round has the directory of a killed broker: records
without indexes.

`write_killed` and `write_clean` create the directories, also to measure a peer on them.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness import Case, run
from ottla.ids import LeaderEpoch, Offset
from ottla.log.files import OsDisk
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog, open_log
from ottla.records.builder import BatchBuilder

NOW_MS = 1_700_000_000_000
FETCH_BYTES = 1024 * 1024  # the bytes of one write, as by a follower


def opened(disk: OsDisk, folder: Path, *, clean: bool, recovery_point: int = 0) -> PartitionLog:
    """Open a log as a broker does."""
    return open_log(
        disk,
        str(folder),
        LogConfig(),
        recovery_point=recovery_point,
        clean=clean,
        now_ms=NOW_MS,
        random=lambda: 0.0,
    ).log


def batch(records: int, value: bytes, base_offset: int, *, idempotent: bool) -> bytes:
    """A batch; an idempotent one continues the sequence of a producer."""
    builder = BatchBuilder(2 * records * (len(value) + 100))
    for _ in range(records):
        builder.append(NOW_MS, None, value)
    return builder.build(
        base_offset=base_offset,
        leader_epoch=0,
        producer_id=1 if idempotent else -1,
        producer_epoch=0 if idempotent else -1,
        base_sequence=base_offset % 2**31 if idempotent else -1,
    )


def write_killed(
    disk: OsDisk, folder: Path, size: int, *, batch_bytes: int, idempotent: bool
) -> PartitionLog:
    """Write the log of a killed broker: nothing was flushed, and there is no index."""
    log = opened(disk, folder, clean=True)
    log.begin_epoch(LeaderEpoch(0))
    value = os.urandom(1000)
    records = max(1, batch_bytes // 1010)
    while log.segments.size < size:
        fetched, offset = bytearray(), log.log_end_offset
        while len(fetched) < FETCH_BYTES:
            fetched += batch(records, value, offset, idempotent=idempotent)
            offset = Offset(offset + records)
        log.append_replicated(bytes(fetched), fetched_offset=log.log_end_offset, now_ms=NOW_MS)
    return log


def write_clean(disk: OsDisk, folder: Path, partitions: int) -> list[Path]:
    """Write the partitions of a stopped broker, each with some records of a producer."""
    folders = [folder / f"clean-{number}" for number in range(partitions)]
    for one in folders:
        log = opened(disk, one, clean=True)
        log.begin_epoch(LeaderEpoch(0))
        for _ in range(8):
            data = batch(10, b"x" * 100, log.log_end_offset, idempotent=True)
            log.append_replicated(data, fetched_offset=log.log_end_offset, now_ms=NOW_MS)
        asyncio.run(log.close())
    return folders


def recover(disk: OsDisk, folder: Path, end: int) -> None:
    """Open the log of `write_killed`."""
    for suffix in ("index", "timeindex"):
        for path in folder.glob(f"*.{suffix}"):
            path.unlink()
    assert opened(disk, folder, clean=False).log_end_offset == end


def cases(disk: OsDisk, size: int, partitions: int) -> Iterator[Case]:
    """Yield one case at a time, so that the disk holds only its files."""
    for name, batch_bytes, idempotent in (
        ("recover, batches of 16 KB", 16 * 1024, False),
        ("recover, batches of 16 KB, idempotent", 16 * 1024, True),
        ("recover, batches of 1 KB, idempotent", 1024, True),
        ("recover, batches of 1 MB, idempotent", 1024 * 1024, True),
    ):
        with tempfile.TemporaryDirectory() as parent:
            folder = Path(parent) / "killed-0"
            log = write_killed(disk, folder, size, batch_bytes=batch_bytes, idempotent=idempotent)
            end, written = log.log_end_offset, log.segments.size
            candidate = lambda folder=folder, end=end: recover(disk, folder, end)  # noqa: E731
            yield Case(f"{name} (GB)", {"ottla": candidate}, written / 1e9)
    with tempfile.TemporaryDirectory() as parent:
        folders = write_clean(disk, Path(parent), partitions)

        def open_all() -> None:
            for one in folders:
                opened(disk, one, clean=True, recovery_point=80)

        yield Case(f"open {partitions:,} clean partitions", {"ottla": open_all}, partitions)


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--size-gb", type=float, help="of the log that is recovered")
    options, sys.argv[1:] = parser.parse_known_args()
    quick = "--quick" in sys.argv
    size_gb: float = options.size_gb or (0.2 if quick else 2.0)
    disk = OsDisk()
    found = cases(disk, int(size_gb * 1e9), 200 if quick else 2000)
    run(__file__, "How fast is a log opened?", found, "amount", ("fastcrc",))
    disk.close()


if __name__ == "__main__":
    main()
