"""A store with a model of its acknowledged state, through crashes of its disk."""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from ottla.coordination.embedded import EmbeddedSession, EmbeddedStore
from ottla.coordination.errors import NodeError
from ottla.coordination.journal import Journal
from ottla.coordination.operations import Create, Delete, Operation, SetData
from ottla.coordination.session import SessionState
from ottla.coordination.tree import Kept
from ottla.testing.clock import START_MS
from ottla.testing.disk import Loss, SimulatedDisk, finish

PATH = "/data/coordination"


class ModelNode(NamedTuple):
    data: bytes
    version: int
    owner: int
    creations: int


Model = dict[str, ModelNode]


class StoppedClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return START_MS + round(self.seconds * 1000)

    def elapsed_s(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def ignore(state: SessionState) -> None:
    """A listener that does nothing."""


def done(model: Model, operations: Sequence[Operation], session_id: int) -> Model | None:
    """Apply operations to a model; return None if they are refused. A simple reference."""
    model = dict(model)
    for operation in operations:
        path = operation.path
        if isinstance(operation, Create):
            parent = path.rpartition("/")[0] or "/"
            if parent not in model or model[parent].owner:
                return None
            if operation.sequence:
                path += str(model[parent].creations).rjust(10, "0")
            if path in model:
                return None
            owner = session_id if operation.ephemeral else 0
            model[path] = ModelNode(operation.data, 0, owner, 0)
            model[parent] = model[parent]._replace(creations=model[parent].creations + 1)
            continue
        if path not in model or operation.version not in (None, model[path].version):
            return None
        if isinstance(operation, SetData):
            version = model[path].version + 1
            model[path] = model[path]._replace(data=operation.data, version=version)
        elif isinstance(operation, Delete):
            if any(other.startswith(path + "/") for other in model):
                return None
            del model[path]
    return model


def without(model: Model, owners: set[int]) -> Model:
    return {path: node for path, node in model.items() if node.owner not in owners}


class Owner:
    """Uses a store as brokers do, and tracks its expected content."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.model: Model = {"/": ModelNode(b"", 0, 0, 0)}
        self.doubtful: Model | None = None  # the model with the change in progress applied
        self.zxid = 0
        self.clock = StoppedClock()
        self._open()

    def _open(self) -> None:
        self.sessions: list[EmbeddedSession] = []
        self.store = EmbeddedStore.open(self.disk, PATH, self.clock)

    def session(self, number: int) -> EmbeddedSession:
        while len(self.sessions) <= number:
            session = finish(self.store.connect(ignore))
            assert session.id > self.zxid
            self.sessions.append(session)
        return self.sessions[number]

    def multi(self, operations: Sequence[Operation], number: int = 0) -> None:
        session = self.session(number)
        expected = done(self.model, operations, session.id)
        self.doubtful = expected
        try:
            finish(session.multi(operations))
        except NodeError:
            assert expected is None
            return
        assert expected is not None
        self.model = expected

    def end(self, number: int, *, expire: bool) -> None:
        session = self.session(number)
        self.doubtful = without(self.model, {session.id})
        if expire:
            finish(self.store.expire(session.id))
        else:
            finish(session.close())
        self.model = self.doubtful
        self.sessions.remove(session)

    def check(self) -> None:
        """Check that the store equals the model."""
        assert self.tree() == self.model

    def tree(self) -> Model:
        session = self.session(0)
        found: Model = {}
        paths = ["/"]
        on_disk = Journal.open(self.disk, PATH)[1].snapshot()
        kept = {one.path: one for one in on_disk.changes if isinstance(one, Kept)}
        while paths:
            path = paths.pop()
            data, stat = finish(session.get(path))
            names = finish(session.children(path))
            assert stat.children_count == len(names)
            assert stat.czxid <= stat.mzxid
            self.zxid = max(self.zxid, stat.mzxid)
            assert kept[path][:3] == (path, data, stat.version)
            creations = kept[path].creations
            found[path] = ModelNode(data, stat.version, stat.ephemeral_owner, creations)
            paths += [path.rstrip("/") + "/" + name for name in names]
        assert len(kept) == len(found)
        return found

    def sequences(self) -> None:
        """Check that the parents continue their sequence counters."""
        for path, node in sorted(self.model.items()):
            if not node.owner:
                made = finish(self.session(0).create(path.rstrip("/") + "/s-", sequence=True))
                assert made.endswith(f"s-{node.creations:010d}")
                finish(self.session(0).delete(made))
                self.model[path] = node._replace(creations=node.creations + 1)

    def restart(self) -> None:
        """Stop cleanly and start again."""
        self.doubtful = without(self.model, {node.owner for node in self.model.values()} - {0})
        finish(self.store.close())
        self.model = self.doubtful
        self._open()
        assert self.store.repair is None

    def crash(self, loss: Loss, random: Random) -> None:
        """Lose power, start again and check that acknowledged changes are there.

        A change in progress is there as a whole or not at all.
        """
        self.disk = self.disk.after_crash(loss, random)
        self._open()
        models = [model for model in (self.model, self.doubtful) if model is not None]
        possible = [
            without(model, {node.owner for node in model.values()} - {0}) for model in models
        ]
        found = self.tree()
        assert found in possible
        self.model = found
        self.doubtful = None
