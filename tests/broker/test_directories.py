"""The data directories in which new partitions are created."""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path
from shutil import rmtree

import pytest

from broker.handlers.test_delete_topics import delete
from broker.members import find_coordinator
from broker.nodes import Client, broker, run
from broker.test_configs import BROKER_RESOURCE, set_one
from broker.test_naming import create_error
from broker.test_node import batch, create, fetch, produce
from broker.test_offset_commits import commit, committed
from ottla.clock import SystemClock
from ottla.controller.adoption import adopt
from ottla.coordination.errors import StoreRefused
from ottla.errors import ErrorCode, StorageFailure
from ottla.ids import ZERO_UUID
from ottla.log import maintenance
from ottla.log.files import OsDisk
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.testing.troubled_disk import TroubledDisk

CORDONED = "cordoned.log.dirs"

MISSING_PARTITIONS = "missing partitions created empty"
FOREIGN_PARTITIONS = "partitions of other brokers left offline"


def folders(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.is_dir())


def test_cordoned_directory_gets_no_new_partitions(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"

    async def scenario() -> None:
        settings = (f"log.dirs={one},{two}", f"{CORDONED}={one}")
        async with broker(tmp_path, *settings) as running:
            client = await running.client()
            await create(client, "a", 3)
            assert (folders(one), folders(two)) == ([], ["a-0", "a-1", "a-2"])
            assert await set_one(client, BROKER_RESOURCE, "1", CORDONED, str(two)) == 0
            await create(client, "b", 2)
            assert folders(one) == ["b-0", "b-1"]
            assert await set_one(client, BROKER_RESOURCE, "1", CORDONED, "*") == 0
            code, _ = await create_error(client, "c")
            assert code == ErrorCode.INVALID_REPLICATION_FACTOR
            assert await set_one(client, BROKER_RESOURCE, "1", CORDONED, "") == 0
            await create(client, "c")

    run(scenario)


def test_partition_in_offline_directory_is_not_recreated(
    tmp_path: Path,
) -> None:
    one, two, away = tmp_path / "one", tmp_path / "two", tmp_path / "away"
    settings = f"log.dirs={one},{two}"

    async def scenario() -> None:
        async with broker(tmp_path, settings) as running:
            client = await running.client()
            topic_id = await create(client, "a", 2)
            assert await produce(client, "a", batch(b"x")) == (0, 0)
            assert (one / "a-0").is_dir()
        one.rename(away)
        one.write_text("no directory")
        async with broker(tmp_path, settings) as running:
            client = await running.client()
            code, _ = await produce(client, "a", batch(b"y"))
            assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert await produce(client, "a", batch(b"y"), index=1) == (0, 0)
            assert not (two / "a-0").exists()
            await create(client, "b", 1)
            assert (two / "b-0").is_dir()
        one.unlink()
        away.rename(one)
        async with broker(tmp_path, settings) as running:
            assert await fetch(await running.client(), topic_id) == [b"x"]

    run(scenario)


class KilledDisk(TroubledDisk):
    """A disk from which the broker is cut off after a number of changes."""

    def __init__(self) -> None:
        super().__init__(lambda: False)
        self.changes_left = sys.maxsize

    def check_there(self, what: str, path: str) -> None:
        self.changes_left -= 1
        if self.changes_left < 0:
            self.take_away()
        super().check_there(what, path)


@pytest.mark.parametrize("is_killed", [False, True])
def test_missing_partition_folder_is_recreated_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_killed: bool
) -> None:
    async def scenario() -> None:
        disk, topic_id = KilledDisk(), ZERO_UUID
        with suppress(StorageFailure):
            async with broker(tmp_path, disk=disk) as running:
                client = await running.client()
                topic_id = await create(client, "a", 2)
                assert await produce(client, "a", batch(b"x")) == (0, 0)
                if is_killed:  # so young that no checkpoint has the partition
                    disk.take_away()
        if not is_killed:
            async with broker(tmp_path):
                pass
        assert MISSING_PARTITIONS not in caplog.messages
        rmtree(tmp_path / "data" / "a-0")
        async with broker(tmp_path) as running:
            assert await fetch(await running.client(), topic_id) == []
        (line,) = [record for record in caplog.records if record.message == MISSING_PARTITIONS]
        assert isinstance(line.args, dict)
        assert line.levelname == "ERROR"
        assert (line.args["partitions"], line.args["names"]) == (1, "a-0")
        assert line.args["missing_directories"] == "none: only directories of partitions"

    run(scenario)


def test_missing_data_directory_is_an_error_with_a_remedy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As in Kafka, the directory is created; the error names it and what was in it."""
    one, two = tmp_path / "one", tmp_path / "two"
    settings = f"log.dirs={one},{two}"

    async def scenario() -> None:
        async with broker(tmp_path, settings) as running:
            await create(await running.client(), "a", 16)
        assert (two / "a-1").is_dir()
        two.rename(tmp_path / "unmounted")
        async with broker(tmp_path, settings):
            pass
        (line,) = [one for one in caplog.records if one.message == MISSING_PARTITIONS]
        assert isinstance(line.args, dict)
        assert line.levelname == "ERROR"
        assert (line.args["partitions"], line.args["missing_directories"]) == (8, str(two))
        assert line.args["names"] == "a-1, a-3, a-5, a-7, a-9, …"
        assert "bring the directory back" in str(line.args["remedy"])

    run(scenario)


def test_adoption_replaces_a_damaged_journal(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            topic_id = await create(client, "t", 2)
            assert await produce(client, "t", batch(b"x")) == (0, 0)
            await find_coordinator(client)
            assert await commit(client, 7) == 0
        (tmp_path / "coordination").write_bytes(b"damaged")
        with pytest.raises(StoreRefused, match="run `ottla log adopt`"):
            async with broker(tmp_path):
                pass
        (tmp_path / "coordination").unlink()
        disk = OsDisk()
        adopted = await adopt(disk, SystemClock(), [str(tmp_path / "data")], "journal")
        disk.close()
        assert adopted.topics[-1].settings == {"retention.ms": "-1"}
        (tmp_path / "data" / "journal").rename(tmp_path / "coordination")
        async with broker(tmp_path) as running:
            client = await running.client()
            assert await fetch(client, topic_id) == [b"x"]
            await find_coordinator(client)
            assert await committed(client) == 7

    run(scenario)


def test_partitions_of_other_brokers_are_logged_at_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            await create(await running.client(), "a", 2)
        async with broker(tmp_path):
            assert FOREIGN_PARTITIONS not in caplog.messages
        meta = tmp_path / "data" / "meta.properties"
        meta.write_text(meta.read_text().replace("node.id=1", "node.id=2"))
        async with broker(tmp_path, "node.id=2"):
            pass
        (line,) = [record for record in caplog.records if record.message == FOREIGN_PARTITIONS]
        assert isinstance(line.args, dict)
        assert line.levelname == "WARNING"
        assert (line.args["partitions"], line.args["replicas_on"]) == (2, "1")

    run(scenario)


def test_deletion_removes_offsets_of_offline_partitions(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    settings = (f"log.dirs={one},{two}", "offsets.topic.num.partitions=1")

    async def scenario() -> None:
        async with broker(tmp_path, *settings) as running:
            client = await running.client()
            await create(client, "t", 2)
            assert (one / "t-0").is_dir()
            # The committed offsets must be in the directory that stays online.
            assert await set_one(client, BROKER_RESOURCE, "1", CORDONED, str(one)) == 0
            await find_coordinator(client)
            assert await commit(client, 7) == 0
            assert (two / "__consumer_offsets-0").is_dir()
        one.rename(tmp_path / "away")
        one.write_text("no directory")
        async with broker(tmp_path, *settings) as running:
            client = await running.client()
            await find_coordinator(client)
            assert await committed(client) == 7
            assert await delete(client, ("t", ZERO_UUID)) == [0]
            assert await committed(client) == -1

    run(scenario)


def test_partitions_are_spread_over_directories(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"

    async def scenario() -> None:
        async with broker(tmp_path, f"log.dirs={one},{two}") as running:
            client = await running.client()
            await create(client, "a", 4)
            assert (len(folders(one)), len(folders(two))) == (2, 2)
            await create(client, "b", 3)
            await create(client, "c", 3)
            assert (len(folders(one)), len(folders(two))) == (5, 5)

    run(scenario)


@pytest.mark.parametrize("name", ["data", "data/a-0"])
def test_c10_produce_to_removed_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(maintenance, "IN_PLACE_INTERVAL_MS", 10)

    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "a")
            assert await produce(client, "a", batch(b"x")) == (0, 0)
            rmtree(tmp_path / name)
            code = 0
            while code == 0:  # until the broker has noticed
                code, _ = await produce(client, "a", batch(b"y"))
                await asyncio.sleep(0.01)
            assert code == ErrorCode.KAFKA_STORAGE_ERROR
            assert running.node.given_up  # it was the last data directory
        assert list(running.node.unclean) == [str(tmp_path / "data")]

    run(scenario)


def test_c10_removal_of_everything_is_logged_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The journal is gone, too: the controller cannot be elected again."""
    monkeypatch.setattr(maintenance, "IN_PLACE_INTERVAL_MS", 10)

    def is_over() -> bool:
        return any(one.exc_info or "election failed" in one.message for one in caplog.records)

    async def scenario() -> None:
        async with broker(tmp_path) as running:
            await create(await running.client(), "a")
            rmtree(tmp_path)
            while not (running.node.given_up and is_over()):
                await asyncio.sleep(0.001)
        assert list(running.node.unclean) == [str(tmp_path / "data")]

    run(scenario)
    assert [one for one in caplog.records if one.exc_info] == []


def test_c10_stop_after_the_removal_of_everything_reports_the_directory(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "a")
            assert await produce(client, "a", batch(b"x")) == (0, 0)
            rmtree(tmp_path)
        assert list(running.node.unclean) == [str(tmp_path / "data")]

    run(scenario)


async def create_codes(client: Client, *names: str) -> list[int]:
    """Create topics with one request; return the error codes."""
    topics = [
        CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        for name in names
    ]
    answer = await client.ask(CreateTopicsRequest(topics=topics), CreateTopicsResponse)
    return [one.error_code for one in answer.topics]


@pytest.mark.parametrize("names", [["a"], ["a", "b"]])
def test_interrupted_creation_is_not_reported_as_a_loss(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, names: list[str]
) -> None:
    """No record was acknowledged: the partitions had no leader before the broker was killed."""

    async def scenario() -> None:
        made, codes = 0, [-1]
        while any(codes):
            folder, disk = tmp_path / str(made), KilledDisk()
            with suppress(StorageFailure):  # the stop needs the disk
                async with broker(folder, disk=disk) as running:
                    client = await running.client()
                    disk.changes_left = made
                    codes = await create_codes(client, *names)
            async with broker(folder) as running:
                client = await running.client()
                codes_again = await create_codes(client, *names)
                made_before = [code == ErrorCode.TOPIC_ALREADY_EXISTS for code in codes_again]
                assert all(made_before) or any(codes)
                for name in names:
                    assert await produce(client, name, batch(b"x")) == (0, 0)
            made += 1
        assert made > 10
        assert MISSING_PARTITIONS not in caplog.messages

    run(scenario)
