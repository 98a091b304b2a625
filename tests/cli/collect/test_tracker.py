"""Rotations, truncations and crashes in any order: no line is lost or cut."""

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st

from cli.collect.memory_disk import Inode, MemoryDisk
from ottla.cli.collect.tail import Mark
from ottla.cli.collect.tracker import ReadBlock, Stored, Tracker, TrackerConfig
from sampling import examples

LOG = "/logs/app.log"
CLOSE_AFTER_S = 5.0
LIMIT = 90


@dataclass
class Scene:
    """A program that writes a log, and a collector that can be killed."""

    pattern: str = "/logs/app.log*"
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    now_s: float = 0.0
    written: list[bytes] = field(default_factory=list[bytes])
    delivered: list[bytes] = field(default_factory=list[bytes])
    stored: list[Stored] = field(default_factory=list[Stored])
    pending: list[ReadBlock] = field(default_factory=list[ReadBlock])

    def __post_init__(self) -> None:
        self._parts: dict[tuple[str, int], bytes] = {}
        self._line: bytes = b""
        self._count = 0
        self.writer: Inode = self.disk.create(LOG)
        self.start()

    # The program.

    def write(self, size: int) -> None:
        """Write the next bytes of a stream of lines of different lengths."""
        while size > 0:
            if not self._line:
                self._count += 1
                self._line = b"%d %s\n" % (self._count, b"." * (self._count * 37 % 160))
                self.written.append(self._line[:-1])
            part, self._line = self._line[:size], self._line[size:]
            self.disk.append(self.writer, part)
            size -= len(part)

    def end_line(self) -> None:
        self.write(len(self._line))

    def rotate(self) -> None:
        """Rename the file and create a new one; the program writes to that one."""
        self.end_line()
        self._shift()
        self.disk.rename(LOG, f"{LOG}.1")
        self.writer = self.disk.create(LOG)

    def copy_truncate(self) -> None:
        self.end_line()
        self._shift()
        copy = self.disk.create(f"{LOG}.1")
        self.disk.append(copy, bytes(self.writer.data))
        self.disk.truncate(self.writer)

    def _shift(self) -> None:
        for number in range(30, 0, -1):
            if f"{LOG}.{number}" in self.disk.files:
                self.disk.rename(f"{LOG}.{number}", f"{LOG}.{number + 1}")

    # The collector.

    def start(self) -> None:
        config = TrackerConfig(
            [self.pattern], line_bytes_max=LIMIT, close_after_s=CLOSE_AFTER_S, block_bytes=200
        )
        self.tracker = Tracker(self.disk, config)
        self.tracker.restore(self.stored, self.now_s)
        self.scan()
        self.store()

    def scan(self) -> None:
        self.now_s += 1
        self.tracker.scan(self.now_s)

    def read(self) -> bool:
        found = self.tracker.read(self.now_s)
        if found is None:
            return False
        block, path = found.block, found.source.path
        if block.part:
            self._parts[path, block.part] = block.values[0]
            if block.is_last:
                parts = [self._parts[path, at + 1] for at in range(block.part)]
                self.delivered.append(b"".join(parts))
        else:
            self.delivered += block.values
        self.pending.append(found)
        return True

    def acknowledge(self) -> None:
        if self.pending:
            self.tracker.acknowledge(self.pending.pop(0))

    def store(self) -> None:
        self.stored = self.tracker.stored()
        for one in self.stored:
            mark = one.mark
            assert 0 <= mark.head.size <= mark.position
            assert 0 <= mark.tail.size <= mark.position

    def kill(self) -> None:
        """Kill the collector, and start it again."""
        self.pending.clear()
        self.disk.close_all()
        self.start()

    def drain(self) -> None:
        for _ in range(3):
            self.scan()
            while self.read():
                pass
        while self.pending:
            self.acknowledge()
        self.store()

    def missing(self) -> list[bytes]:
        return sorted({*self.written} - {*self.delivered})


STEPS: dict[str, Callable[[Scene], object]] = {
    "write": lambda scene: scene.write(70),
    "write much": lambda scene: scene.write(1700),
    "rotate": Scene.rotate,
    "copytruncate": Scene.copy_truncate,
    "scan": Scene.scan,
    "read": Scene.read,
    "acknowledge": Scene.acknowledge,
    "store": Scene.store,
    "kill": Scene.kill,
    "drain": Scene.drain,
}


@given(st.lists(st.sampled_from([*STEPS]), max_size=40))
@example(["write much", "drain", "write", "copytruncate", "rotate", "write"])
@settings(max_examples=examples(150, usual=1000), deadline=None)
def test_no_line_is_lost_or_cut(steps: list[str]) -> None:
    scene = Scene()
    for step in steps:
        STEPS[step](scene)
    scene.end_line()
    scene.drain()
    assert scene.missing() == []
    assert {*scene.delivered} <= {*scene.written}


@given(st.lists(st.sampled_from([one for one in STEPS if one != "kill"]), max_size=40))
@settings(max_examples=examples(100, usual=500), deadline=None)
def test_running_collector_needs_no_pattern_for_rotated_files(steps: list[str]) -> None:
    """It scans before each rotation, as a collector does that is not too slow for them."""
    scene = Scene(LOG)
    for step in steps:
        if step in ("rotate", "copytruncate"):
            scene.drain()
            scene.write(300)
            scene.read()
        STEPS[step](scene)
    scene.end_line()
    scene.drain()
    assert scene.missing() == []
    assert {*scene.delivered} <= {*scene.written}


def test_each_line_is_delivered_once_without_a_crash() -> None:
    scene = Scene()
    for turn in range(12):
        scene.write(1500)
        for _ in range(5):  # a copy of fewer bytes is not recognised
            scene.read()
        STEPS["rotate" if turn % 2 else "copytruncate"](scene)
        scene.drain()
    scene.end_line()
    scene.drain()
    assert sorted(scene.delivered) == sorted(scene.written)


def test_restart_reads_on_in_a_renamed_file() -> None:
    scene = Scene(LOG)
    scene.write(2000)
    scene.end_line()
    scene.read()
    scene.acknowledge()
    scene.store()
    scene.rotate()
    scene.write(500)
    scene.end_line()
    scene.kill()
    scene.drain()
    assert scene.missing() == []
    assert sorted(scene.delivered) == sorted(scene.written)


def test_deleted_file_is_read_to_its_end_and_forgotten() -> None:
    scene = Scene()
    scene.write(1000)
    scene.end_line()
    scene.disk.append(scene.writer, b"no newline")
    scene.disk.delete(LOG)
    scene.drain()
    assert scene.missing() == []
    assert b"no newline" not in scene.delivered
    scene.now_s += CLOSE_AFTER_S
    scene.drain()
    assert scene.delivered[-1] == b"no newline"
    scene.now_s += CLOSE_AFTER_S
    scene.drain()
    assert (scene.stored, scene.writer.opened) == ([], 0)


def test_new_file_with_the_inode_of_a_deleted_one_is_read_from_its_start() -> None:
    scene = Scene()
    scene.write(1000)
    scene.end_line()
    scene.drain()
    number = scene.writer.number
    scene.disk.delete(LOG)
    scene.disk.close_all()
    scene.writer = scene.disk.create(LOG)
    assert scene.writer.number == number
    scene.write(1500)
    scene.end_line()
    scene.kill()
    scene.drain()
    assert sorted(scene.delivered) == sorted(scene.written)


def test_files_begin_at_their_last_line_on_request() -> None:
    disk = MemoryDisk()
    for name, data in (("a", b"one\ntwo\nthr"), ("b", b"one\n"), ("c", b"on"), ("d", b"")):
        disk.append(disk.create(f"/logs/{name}"), data)
    tracker = Tracker(disk, TrackerConfig(["/logs/*"]))
    tracker.scan(0.0, at_end=True)
    assert {one.path[-1]: one.mark.position for one in tracker.files} == {
        "a": 8,
        "b": 4,
        "c": 0,
        "d": 0,
    }
    disk.append(disk.files["/logs/a"], b"ee\n")
    found = tracker.read(0.0)
    assert found is not None
    assert found.block.values == [b"three"]
    assert found.after != Mark()


def test_copy_of_a_file_and_compressed_files_are_ignored() -> None:
    scene = Scene()
    scene.write(3000)
    scene.end_line()
    scene.drain()
    copy = scene.disk.create(f"{LOG}.bak")
    scene.disk.append(copy, bytes(scene.writer.data[:2000]))
    packed = scene.disk.create(f"{LOG}.2.gz")
    scene.disk.append(packed, b"\x1f\x8b\n\n")
    scene.write(3000)
    scene.end_line()
    scene.drain()
    assert sorted(scene.delivered) == sorted(scene.written)


def test_file_that_begins_like_another_one_is_not_a_copy() -> None:
    scene = Scene("/logs/*")
    banner = b"#" * 2000 + b"\n"
    for path in ("/logs/web-1.log", "/logs/web-2.log"):
        file = scene.disk.create(path)
        scene.disk.append(file, banner + path.encode() * 10 + b"\n")
        scene.disk.append(file, b"\n" * (100 if path.endswith("1.log") else 1))
        scene.drain()
    assert scene.delivered.count(b"/logs/web-2.log" * 10) == 1
