"""A data directory: its lock, its owner, its checkpoints and its clean shutdown file."""

import asyncio
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from ottla.errors import StorageFailure
from ottla.ids import BrokerEpoch, BrokerId, Offset, PartitionIndex, TopicPartition, Uuid
from ottla.log.directory import DataDirectory, DirectoryRefused, read_meta
from ottla.log.disk import Disk, read_whole, write_atomically
from ottla.log.files import OsDisk
from ottla.log.names import CLEAN_SHUTDOWN, META_PROPERTIES, RECOVERY_POINTS
from ottla.testing.disk import Loss, SimulatedDisk, finish

ID = Uuid(bytes(range(100, 116)))
PARTITION = TopicPartition("t", PartitionIndex(0))


def claim(disk: Disk, path: str = "/data", cluster: str = "c", node: int = 1) -> DataDirectory:
    return DataDirectory.claim(
        disk, path, cluster_id=cluster, node_id=BrokerId(node), new_id=lambda: ID
    )


def test_new_directory_has_meta_properties() -> None:
    disk = SimulatedDisk()
    directory = claim(disk, "/a/b/data")
    assert directory.id == ID
    text = read_whole(disk, "/a/b/data/meta.properties").decode()
    assert text == f"version=1\ncluster.id=c\nnode.id=1\ndirectory.id={ID}\n"
    directory.release()
    calls = len(disk.calls)
    again = DataDirectory.claim(
        disk, "/a/b/data", cluster_id="c", node_id=BrokerId(1), new_id=lambda: Uuid(bytes(16))
    )
    assert again.id == ID
    assert disk.calls[calls:] == []


def test_c9_directory_is_locked_once() -> None:
    disk = SimulatedDisk()
    first = claim(disk)
    with pytest.raises(DirectoryRefused, match="in use by another process"):
        claim(disk)
    first.release()
    claim(disk)


def test_c9_second_process_is_rejected(tmp_path: Path) -> None:
    disk = OsDisk()
    first = claim(disk, str(tmp_path))
    program = (
        "import sys; from ottla.ids import *; from ottla.log.files import OsDisk\n"
        "from ottla.log.directory import *\n"
        "try:\n"
        "    DataDirectory.claim(OsDisk(), sys.argv[1], cluster_id='c', node_id=BrokerId(1),\n"
        "        new_id=lambda: None)\n"
        "except DirectoryRefused as refused: print(refused); sys.exit(3)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 3, refused.stderr
    assert "in use by another process" in refused.stdout
    with pytest.raises(DirectoryRefused):  # a second broker in the same process, too
        claim(disk, str(tmp_path))
    first.release()
    assert subprocess.run(command, check=False).returncode == 0
    disk.close()


def test_c9_lock_excludes_java_after_a_second_claim(tmp_path: Path) -> None:
    disk = OsDisk()
    first = claim(disk, str(tmp_path))
    with pytest.raises(DirectoryRefused):
        claim(disk, str(tmp_path))
    # Java's FileChannel.lock is a POSIX lock.
    program = (
        "import fcntl, sys; file = open(sys.argv[1], 'r+')\n"
        "try: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except OSError: sys.exit(3)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / ".lock")]
    assert subprocess.run(command, check=False).returncode == 3
    first.release()
    assert subprocess.run(command, check=False).returncode == 0
    disk.close()


@pytest.mark.parametrize(
    ("cluster", "node", "told"),
    [("other", 1, "belongs to cluster c, this broker to other"), ("c", 2, "set node.id to 1")],
)
def test_b12_directory_of_another_cluster_or_broker_is_refused(
    cluster: str, node: int, told: str
) -> None:
    disk = SimulatedDisk()
    claim(disk).release()
    with pytest.raises(DirectoryRefused, match=told):
        claim(disk, cluster=cluster, node=node)
    claim(disk)


def test_directory_of_version_0_is_upgraded() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/data")
    path = f"/data/{META_PROPERTIES}"
    write_atomically(disk, path, b"#Mon\nversion=0\nbroker.id=1\ncluster.id=c\nextra=x\n")
    assert claim(disk).id == ID
    meta = read_meta(disk, "/data")
    assert meta is not None
    assert (meta.version, meta.node_id, meta.cluster_id) == (1, 1, "c")
    assert meta.other == (("extra", "x"),)


def test_damaged_meta_properties_are_rejected() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/data")
    write_atomically(disk, f"/data/{META_PROPERTIES}", b"version=1\nnode.id=x\ncluster.id=c\n")
    with pytest.raises(DirectoryRefused, match="repair the file"):
        claim(disk)


def test_meta_properties_without_ids_are_written_again() -> None:
    for content, problem in (
        (None, "the file is missing"),
        (b"", "the file is empty"),
        (b"\x00\xff{garbage}\n= \n", "the file has no cluster.id and no node.id"),
        (b"versioo=1\ncluster.id=c\nnode.id=1\n", "the file has no node.id"),
        (b"version=0\nbroker.id=1\n", "the file has no cluster.id"),
    ):
        disk = SimulatedDisk()
        claim(disk).release()
        expected = read_whole(disk, f"/data/{META_PROPERTIES}")
        disk.remove(f"/data/{META_PROPERTIES}")
        if content is None:
            disk.make_directory("/data/elsewhere-1")  # without records: not a partition
            directory = claim(disk)
            assert directory.meta_repair is None
            directory.release()
            disk.remove(f"/data/{META_PROPERTIES}")
        else:
            write_atomically(disk, f"/data/{META_PROPERTIES}", content)
        disk.make_directory("/data/t-0")
        write_atomically(disk, f"/data/t-0/{0:020d}.log", b"")
        directory = claim(disk)
        copy = f"/data/{META_PROPERTIES}.damaged" if content else ""
        assert directory.meta_repair == (problem, 1, copy)
        assert not copy or read_whole(disk, copy) == content
        assert read_whole(disk, f"/data/{META_PROPERTIES}") == expected
        directory.release()
        assert claim(disk).meta_repair is None


def test_damaged_checkpoint_is_read_as_empty() -> None:
    disk = SimulatedDisk()
    directory = claim(disk)
    assert directory.read_offsets(RECOVERY_POINTS) == {}
    finish(directory.store_offsets(RECOVERY_POINTS, lambda: {PARTITION: Offset(7)}))
    assert directory.read_offsets(RECOVERY_POINTS) == {PARTITION: 7}
    assert directory.notes == []
    write_atomically(disk, f"/data/{RECOVERY_POINTS}", b"0\n2\nt 0 7\n")
    assert directory.read_offsets(RECOVERY_POINTS) == {}
    assert "expected 2 entries" in directory.notes[0]


def test_one_checkpoint_write_serves_those_that_wait(tmp_path: Path) -> None:
    async def scenario() -> None:
        directory, written, offset = claim(OsDisk(), str(tmp_path)), list[int](), 0

        def offsets() -> dict[TopicPartition, Offset]:
            written.append(offset)
            return {PARTITION: Offset(offset)}

        async def advance() -> None:
            nonlocal offset
            offset += 1
            mine = offset
            await directory.store_offsets(RECOVERY_POINTS, offsets)
            assert directory.read_offsets(RECOVERY_POINTS)[PARTITION] >= mine

        await asyncio.gather(*(advance() for _ in range(100)))
        assert len(written) <= 2
        await advance()
        assert written[-1] == 101

    asyncio.run(scenario())


def test_failed_checkpoint_write_serves_nobody(tmp_path: Path) -> None:
    async def scenario() -> None:
        directory, attempts = claim(OsDisk(), str(tmp_path)), 0

        def offsets() -> dict[TopicPartition, Offset]:
            nonlocal attempts
            attempts += 1
            if attempts == 2:
                raise StorageFailure("it burns")
            return {PARTITION: Offset(7)}

        stores = (directory.store_offsets(RECOVERY_POINTS, offsets) for _ in range(4))
        first, failed, *stored = await asyncio.gather(*stores, return_exceptions=True)
        assert isinstance(failed, StorageFailure)
        assert [first, *stored] == [None, None, None]
        assert attempts == 3
        assert directory.read_offsets(RECOVERY_POINTS) == {PARTITION: 7}

    asyncio.run(scenario())


def test_c2_clean_shutdown_file_is_removed_first() -> None:
    disk = SimulatedDisk()
    directory = claim(disk)
    directory.begin()
    assert not directory.stopped_cleanly
    finish(directory.mark_clean(BrokerEpoch(5)))
    directory.release()
    again = claim(disk)
    again.begin()
    assert (again.stopped_cleanly, again.clean_epoch) == (True, 5)
    assert not disk.exists(f"/data/{CLEAN_SHUTDOWN}")
    for loss in Loss:  # the removal is on the device
        assert not disk.after_crash(loss, Random(0)).exists(f"/data/{CLEAN_SHUTDOWN}")
    again.release()
    once_more = claim(disk)
    once_more.begin()
    assert not once_more.stopped_cleanly


def test_unreadable_clean_shutdown_file_means_unclean() -> None:
    disk = SimulatedDisk()
    directory = claim(disk)
    write_atomically(disk, f"/data/{CLEAN_SHUTDOWN}", b"{")
    directory.begin()
    assert not directory.stopped_cleanly
    assert "ignored" in directory.notes[0]


def test_failed_directory_stores_nothing() -> None:
    disk = SimulatedDisk()
    directory = claim(disk)
    directory.failure = StorageFailure("it burns")
    with pytest.raises(StorageFailure, match="it burns"):
        finish(directory.store_offsets(RECOVERY_POINTS, lambda: {PARTITION: Offset(7)}))
    assert not disk.exists(f"/data/{RECOVERY_POINTS}")


def test_failed_creation_is_a_storage_failure(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    disk = OsDisk()
    with pytest.raises(StorageFailure, match="file/data: mkdir"):
        claim(disk, f"{tmp_path}/file/data")
    disk.close()
