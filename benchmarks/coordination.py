"""The cost of the embedded coordination store, compared with other ways to store a small tree.

Invariant: every candidate has the same nodes in the same directory, and a write is durable when it
returns. SQLite has a write-ahead log and `synchronous=FULL`. The whole-file candidate writes a new
file, syncs and renames it. Opening returns a dict of paths for each, and a tree for ours.
"""

import asyncio
import json
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

from harness import Case, run
from ottla.clock import SystemClock
from ottla.coordination.embedded import EmbeddedStore
from ottla.coordination.journal import Journal
from ottla.coordination.operations import Create
from ottla.coordination.session import SessionState
from ottla.log.disk import read_whole, write_atomically
from ottla.log.files import OsDisk

DATA = b"x" * 200
AT_ONCE = 100


def paths(count: int) -> list[str]:
    return ["/topics", *(f"/topics/{number:06}" for number in range(count))]


def ignore(state: SessionState) -> None:
    """Ignore the state of the session."""


class Ours:
    """The store and the event loop that runs it."""

    def __init__(self, disk: OsDisk, path: Path, count: int) -> None:
        self.runner = asyncio.Runner()
        self.store = EmbeddedStore.open(disk, str(path), SystemClock())
        self.session = self.runner.run(self.store.connect(ignore))
        for start in range(0, count + 1, 1000):
            made = [Create(one, DATA) for one in paths(count)[start : start + 1000]]
            self.runner.run(self.session.multi(made))
        self.target = paths(count)[-1]

    def write(self) -> None:
        """Make one durable change."""
        self.runner.run(self.session.set(self.target, DATA))

    async def _many(self) -> None:
        await asyncio.gather(*(self.session.set(self.target, DATA) for _ in range(AT_ONCE)))

    def write_many(self) -> None:
        """Make many changes that share a sync."""
        self.runner.run(self._many())

    def close(self) -> None:
        """Close the file."""
        self.runner.run(self.store.close())
        self.runner.close()


class Sqlite:
    """A table of paths."""

    def __init__(self, path: Path, count: int) -> None:
        self.path = path
        self.database = sqlite3.connect(path, isolation_level=None)
        self.database.execute("pragma journal_mode=wal")
        self.database.execute("pragma synchronous=full")
        self.database.execute("create table node (path text primary key, data blob, version int)")
        self.database.execute("begin")
        rows = [(one, DATA, 0) for one in paths(count)]
        self.database.executemany("insert into node values (?, ?, ?)", rows)
        self.database.execute("commit")
        self.target = paths(count)[-1]

    def write(self) -> None:
        """Make one durable change."""
        change = "update node set data = ?, version = version + 1 where path = ?"
        self.database.execute(change, (DATA, self.target))

    def read(self) -> object:
        """All nodes."""
        database = sqlite3.connect(self.path)
        rows = database.execute("select path, data, version from node").fetchall()
        database.close()
        return {path: (data, version) for path, data, version in rows}


def whole_file(disk: OsDisk, path: str, count: int) -> tuple[Callable[[], object], ...]:
    nodes = {one: (DATA.decode(), 0) for one in paths(count)}

    def write() -> None:
        write_atomically(disk, path, json.dumps(nodes).encode())

    write()
    return write, lambda: json.loads(read_whole(disk, path))


def main() -> None:
    disk = OsDisk()
    cases: list[Case] = []
    with tempfile.TemporaryDirectory() as folder:
        kept: list[Ours] = []
        for count in (100, 10_000):
            place = Path(folder) / str(count)
            place.mkdir()
            ours, sqlite = Ours(disk, place / "ottla", count), Sqlite(place / "sqlite", count)
            write, read = whole_file(disk, str(place / "whole"), count)
            kept.append(ours)
            nodes = f"{count:,} nodes"
            cases += [
                Case(
                    f"a write, {nodes}",
                    {"ottla": ours.write, "sqlite": sqlite.write, "whole file": write},
                ),
                Case(f"{AT_ONCE} writes at once, {nodes}", {"ottla": ours.write_many}),
                Case(
                    f"open, {nodes}",
                    {
                        "ottla": lambda path=str(place / "ottla"): Journal.open(disk, path),
                        "sqlite": sqlite.read,
                        "whole file": read,
                    },
                ),
            ]
        run(__file__, "How is a small tree kept safe at least cost?", cases, "write")
        for ours in kept:
            ours.close()
    disk.close()


if __name__ == "__main__":
    main()
