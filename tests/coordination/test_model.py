"""The embedded store against a dict, under random operations and crashes."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from coordination.store_model import Owner
from ottla.coordination import journal
from ottla.coordination.operations import Check, Create, Delete, Operation, SetData
from ottla.testing.disk import Crashed, Loss, SimulatedDisk
from sampling import examples

PATHS = st.sampled_from(["/a", "/b", "/a/c", "/a/d", "/a/c/e", "/b/f"])
VERSIONS = st.sampled_from([None, None, 0, 1, 2])
DATA = st.sampled_from([b"", b"x", b"yy" * 40])
OPERATIONS: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Create, PATHS, DATA, st.booleans(), st.booleans()),
    st.builds(SetData, PATHS, DATA, VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)


class StoreModel(RuleBasedStateMachine):
    """Three sessions; the power can fail at any disk call."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(journal, "REWRITE_BYTES_MIN", 400)
        self.owner = Owner(SimulatedDisk())
        self.loss = Loss.ALL
        self.random = Random(0)

    def teardown(self) -> None:
        self.patch.undo()

    def do(self, act: Callable[[], object]) -> None:
        try:
            act()
        except Crashed:
            self.owner.crash(self.loss, self.random)

    @rule(operations=st.lists(OPERATIONS, min_size=1, max_size=4), number=st.integers(0, 2))
    def multi(self, operations: list[Operation], number: int) -> None:
        self.do(lambda: self.owner.multi(operations, number))

    @rule(operation=OPERATIONS, number=st.integers(0, 2))
    def one(self, operation: Operation, number: int) -> None:
        self.do(lambda: self.owner.multi([operation], number))

    @rule(number=st.integers(0, 2), expire=st.booleans())
    def end(self, number: int, expire: bool) -> None:
        self.do(lambda: self.owner.end(number, expire=expire))

    @precondition(lambda self: self.owner.disk.crash_at is None)
    @rule()
    def sequences(self) -> None:
        self.owner.sequences()

    @rule()
    def restart(self) -> None:
        self.do(self.owner.restart)

    @rule(loss=st.sampled_from(Loss), seed=st.integers(0, 2**20))
    def crash(self, loss: Loss, seed: int) -> None:
        self.owner.doubtful = None
        self.owner.crash(loss, Random(seed))

    @precondition(lambda self: self.owner.disk.crash_at is None)
    @rule(calls=st.integers(0, 6), loss=st.sampled_from(Loss), seed=st.integers(0, 2**20))
    def crash_soon(self, calls: int, loss: Loss, seed: int) -> None:
        self.owner.disk.crash_at = len(self.owner.disk.calls) + calls
        self.loss, self.random = loss, Random(seed)

    @invariant()
    def the_store_is_as_the_model(self) -> None:
        self.owner.check()


TestStoreModel = StoreModel.TestCase
TestStoreModel.settings = settings(
    max_examples=examples(40, usual=120),
    stateful_step_count=30,
    deadline=None,
)
