"""The embedded store on a full disk: it opens, refuses changes without space, and continues."""

import asyncio

import pytest

from coordination.backends import Watched
from coordination.store_model import PATH, Owner, StoppedClock, ignore
from ottla.coordination import journal
from ottla.coordination.embedded import EmbeddedStore
from ottla.coordination.errors import NoNode
from ottla.coordination.journal import Journal
from ottla.coordination.operations import Create, Delete, SetData
from ottla.coordination.session import Change, WatchEvent
from ottla.errors import DescriptorsExhausted, DiskFull, StorageFailure
from ottla.testing.disk import SimulatedDisk, SimulatedFile, finish


def fill_up(disk: SimulatedDisk) -> None:
    room = disk.room("/")
    disk.capacity_bytes = room.total_bytes - room.usable_bytes


def opened(disk: SimulatedDisk) -> EmbeddedStore:
    return EmbeddedStore.open(disk, PATH, StoppedClock())


def test_full_disk_rolls_back_and_the_store_continues() -> None:
    owner = Owner(SimulatedDisk())
    owner.multi([Create("/a", b"1"), Create("/b")])
    fill_up(owner.disk)
    for operations in (
        [SetData("/a", b"2"), Create("/a/c"), Delete("/b")],
        [Create("/b/s-", sequence=True), Create("/e", ephemeral=True)],
        [Delete("/b"), Create("/b", b"another")],
    ):
        with pytest.raises(DiskFull, match=PATH):
            owner.multi(operations)
        owner.check()
    owner.disk.capacity_bytes = None
    owner.multi([SetData("/a", b"3"), Create("/a/c")])
    owner.check()
    owner.sequences()
    owner.restart()
    owner.check()


def test_requests_of_one_group_are_refused_together() -> None:
    async def program() -> None:
        disk = SimulatedDisk()
        session = await opened(disk).connect(ignore)
        fill_up(disk)
        asked = (session.create(f"/{number}") for number in range(3))
        failures = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(one) for one in failures] == [DiskFull] * 3
        disk.capacity_bytes = None
        for number in range(3):
            assert await session.create(f"/{number}") == f"/{number}"

    asyncio.run(program())


def test_watch_does_not_fire_for_rolled_back_change() -> None:
    async def program() -> None:
        disk = SimulatedDisk()
        session = await opened(disk).connect(ignore)
        data, children = Watched(), Watched()
        await session.create("/a")
        await session.get("/a", data)
        await session.children("/", children)
        fill_up(disk)
        with pytest.raises(DiskFull):
            await session.multi([SetData("/a", b"x"), Create("/b")])
        assert data.all == children.all == []
        disk.capacity_bytes = None
        await session.multi([SetData("/a", b"x"), Create("/b")])
        assert data.all == [WatchEvent(Change.DATA, "/a")]
        assert children.all == [WatchEvent(Change.CHILDREN, "/")]

    asyncio.run(program())


def test_provisional_change_is_written_with_the_next_one() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    session = finish(store.connect(ignore))
    finish(session.create("/epoch", b"1"))
    finish(session.create("/me", ephemeral=True))
    fill_up(disk)
    disk = disk.after_kill()  # an ephemeral node remains in the file
    fill_up(disk)
    store = opened(disk)
    session = finish(store.connect(ignore))
    assert finish(session.exists("/me")) is None
    with session.provisional():
        finish(session.multi([Create("/me", b"again", ephemeral=True), SetData("/epoch", b"2")]))
    assert finish(session.get("/epoch")).data == b"2"
    with pytest.raises(DiskFull):
        finish(session.create("/kept"))
    assert finish(session.get("/me")).data == b"again"
    with pytest.raises(NoNode):
        Journal.open(disk, PATH)[1].get("/kept")
    disk.capacity_bytes = None
    finish(session.create("/kept"))
    on_disk = Journal.open(disk, PATH)[1]
    assert on_disk.get("/epoch").data == b"2"
    assert on_disk.exists("/kept") is not None
    finish(store.close())
    again = finish(opened(disk).connect(ignore))
    assert finish(again.children("/")) == ["epoch", "kept"]


def test_session_can_end_on_a_full_disk() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    session, other = finish(store.connect(ignore)), finish(store.connect(ignore))
    finish(session.create("/mine", ephemeral=True))
    fill_up(disk)
    finish(session.close())
    assert finish(other.exists("/mine")) is None
    finish(store.close())
    disk.capacity_bytes = None
    again = finish(opened(disk).connect(ignore))
    assert finish(again.children("/")) == []


def test_file_grows_while_there_is_no_space_to_rewrite_it() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    session = finish(store.connect(ignore))
    finish(session.create("/a"))
    with_room = disk.check_room

    def only_in_place(more: int, path: str) -> None:
        if path.endswith(".tmp"):
            raise DiskFull(f"{path}: write: no space left on the disk")
        with_room(more, path)

    disk.check_room = only_in_place
    for number in range(40):
        finish(session.set("/a", b"%d" % number * 10_000))
    size = len(Journal.open(disk, PATH)[1].get("/a").data)
    assert size == len(b"39" * 10_000)
    disk.check_room = with_room
    finish(session.set("/a", b"small"))
    finish(store.close())
    assert finish(finish(opened(disk).connect(ignore)).get("/a")).data == b"small"


class FewOpenFiles(SimulatedDisk):
    """A disk that runs out of descriptors at one call; rewrites are counted."""

    refused = ""

    def open(self, path: str, *, create: bool = False, private: bool = False) -> SimulatedFile:
        self._check("create" if create else "open", path)
        return super().open(path, create=create, private=private)

    def sync_directory(self, path: str) -> None:
        self._check("sync", path)
        super().sync_directory(path)

    def _check(self, what: str, path: str) -> None:
        if what == self.refused:
            raise DescriptorsExhausted(f"{path}: {what}: too many open files")

    @property
    def rewrites(self) -> int:
        return self.calls.count(("rename", f"{PATH}.tmp"))


@pytest.mark.parametrize("refused", ["create", "open", "sync"])
def test_rewrite_without_descriptors_loses_no_acknowledged_write(
    refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "REWRITE_BYTES_MIN", 1000)
    disk = FewOpenFiles()
    store = opened(disk)
    session = finish(store.connect(ignore))
    finish(session.create("/a"))
    disk.refused, acknowledged = refused, ["a"]
    for number in range(40):
        try:
            finish(session.set("/a", bytes(300)))
            finish(session.create(f"/{number}"))
        except StorageFailure:
            break
        acknowledged.append(f"{number}")
    # Before a rename it is known which file has the name, so the store continues.
    assert (store.failure is not None) is (disk.rewrites > 1) is (refused == "sync")
    finish(store.close())
    disk.refused = ""
    again = finish(opened(disk).connect(ignore))
    assert finish(again.children("/")) == sorted(acknowledged)
