"""A log compared with a dict, through all operations, crashes and power failures."""

from collections.abc import Callable
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from log.log_model import Owner
from ottla.testing.disk import Crashed, Loss, SimulatedDisk
from sampling import examples


class LogModel(RuleBasedStateMachine):
    """The owner does what a broker does; the power may fail at any disk call."""

    def __init__(self) -> None:
        super().__init__()
        self.owner = Owner(SimulatedDisk())
        self.loss = Loss.ALL
        self.random = Random(0)

    def do(self, act: Callable[[], object]) -> None:
        try:
            act()
        except Crashed:
            self.owner.crash(self.loss, self.random)

    @rule(
        count=st.integers(1, 4),
        size=st.sampled_from([0, 10, 60, 140]),
        producer=st.sampled_from([-1, -1, 1, 2, 9]),
    )
    def append(self, count: int, size: int, producer: int) -> None:
        self.do(lambda: self.owner.append(count, size, producer))

    @rule(producer=st.sampled_from([-1, 1, 9]))
    def append_much(self, producer: int) -> None:
        for size in (100, 5, 140):
            self.do(lambda size=size: self.owner.append(2, size, producer))

    @rule(commit=st.booleans())
    def end_transaction(self, commit: bool) -> None:
        self.do(lambda: self.owner.end_transaction(commit=commit))

    @rule()
    def begin_epoch(self) -> None:
        self.do(self.owner.begin_epoch)

    @rule()
    def roll(self) -> None:
        self.do(self.owner.roll)

    @rule()
    def flush(self) -> None:
        self.do(self.owner.flush)

    @rule(back=st.integers(0, 30), pinned=st.booleans())
    def truncate(self, back: int, pinned: bool) -> None:
        self.owner.disk.pinned = pinned
        offset = max(self.owner.end - back, self.owner.log.segments.first.base_offset)
        self.do(lambda: self.owner.truncate(offset))

    @rule(on=st.integers(0, 12))
    def trim(self, on: int) -> None:
        self.owner.trim(min(self.owner.log_start + on, self.owner.end))

    @rule()
    def retain(self) -> None:
        self.do(self.owner.retain)

    @rule()
    def compact(self) -> None:
        self.do(self.owner.compact)

    @rule()
    def restart(self) -> None:
        self.do(self.owner.restart)

    @rule(loss=st.sampled_from(Loss), seed=st.integers(0, 2**20))
    def crash(self, loss: Loss, seed: int) -> None:
        self.owner.crash(loss, Random(seed))

    @rule()
    def kill(self) -> None:
        self.do(self.owner.kill)

    @precondition(lambda self: self.owner.disk.crash_at is None)
    @rule(where=st.floats(0, 0.999), bit=st.integers(0, 7), clean=st.booleans())
    def rot(self, where: float, bit: int, clean: bool) -> None:
        self.owner.rot(where, 1 << bit, clean=clean)

    @precondition(lambda self: self.owner.disk.crash_at is None)
    @rule(calls=st.integers(0, 12), loss=st.sampled_from(Loss), seed=st.integers(0, 2**20))
    def crash_soon(self, calls: int, loss: Loss, seed: int) -> None:
        self.owner.disk.crash_at = len(self.owner.disk.calls) + calls
        self.loss, self.random = loss, Random(seed)

    @invariant()
    def the_log_is_as_the_model(self) -> None:
        self.owner.check()


TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(
    max_examples=examples(40, usual=120),
    stateful_step_count=40,
    deadline=None,
)
