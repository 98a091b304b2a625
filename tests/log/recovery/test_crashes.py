"""A scripted history of a log that is stopped at disk calls and opened again.

The records are appended by the Appender or, where the request is ordinary, by the compiled path.
`make test` takes a sample of the calls. `make soak` stops at every call, with ten seeds each.
"""

from collections.abc import Callable
from random import Random

import pytest

from log.fast_owner import FastOwner
from log.log_model import Owner
from ottla.errors import StorageFailure
from ottla.log.cleaner.cleaner_runners import CleaningFailed
from ottla.testing.disk import Crashed, Loss, SimulatedDisk
from sampling import sample, scaled

SEEDS = scaled(1)
CRASHES_SAMPLED = 40  # of about 300 calls
FAILURES_SAMPLED = 10  # of each kind of call
APPENDS_ORDINARY_MIN = 10  # of about 30

Step = Callable[[Owner], object]

SMALL: tuple[Step, ...] = (
    lambda owner: owner.append(1, 10, 1),
    lambda owner: owner.append(1, 10, 1),
    lambda owner: owner.append(2, 10),
)
"""Batches that need no new segment, so that most of them are ordinary."""

HISTORY: tuple[Step, ...] = (
    lambda owner: owner.append(2, 30, 1),
    *SMALL,
    lambda owner: owner.append(1, 100),
    lambda owner: owner.append(3, 20, 9),
    lambda owner: owner.flush(),
    lambda owner: owner.append(2, 150, 2),
    lambda owner: owner.append(2, 150, 1),
    lambda owner: owner.end_transaction(commit=False),
    lambda owner: owner.append(1, 150),
    lambda owner: owner.flush(),
    lambda owner: owner.compact(),
    lambda owner: owner.begin_epoch(),
    lambda owner: owner.append(4, 60, 2),
    *SMALL,
    lambda owner: owner.append(4, 60, 9),
    lambda owner: owner.roll(),
    lambda owner: owner.append(1, 10, 1),
    lambda owner: owner.truncate(14),
    lambda owner: owner.append(2, 80, 1),
    lambda owner: owner.append(2, 80, 3),
    lambda owner: owner.append(2, 80, 9),
    lambda owner: owner.end_transaction(commit=True),
    lambda owner: owner.flush(),
    lambda owner: owner.restart(),
    *SMALL,
    lambda owner: owner.append(2, 200, 4),
    lambda owner: owner.kill(),
    *SMALL,
    lambda owner: owner.append(2, 200, 4),
    lambda owner: owner.truncate(5),
    lambda owner: owner.append(2, 200, 2),
    lambda owner: owner.append(2, 200, 2),
    lambda owner: owner.flush(),
    lambda owner: owner.compact(),
    lambda owner: owner.trim(6),
    lambda owner: owner.retain(),
    lambda owner: owner.append(2, 200, 2),
    lambda owner: owner.restart(),
    lambda owner: owner.append(2, 100, 2),
)


def play(owner: Owner) -> None:
    for step in HISTORY:
        step(owner)


def ran_to_end(crash_at: int | None, owner: Owner) -> bool:
    """Whether the history ran to its end."""
    owner.disk.crash_at = crash_at
    try:
        play(owner)
    except Crashed:
        return False
    return True


def test_compiled_path_makes_the_same_calls_and_files() -> None:
    owner, fast = Owner(SimulatedDisk()), FastOwner(SimulatedDisk())
    for step in HISTORY:
        step(owner)
        step(fast)
        fast.check()
        assert fast.written == owner.written
    assert fast.disk.calls == owner.disk.calls
    assert fast.served >= APPENDS_ORDINARY_MIN


def test_history_is_correct_without_a_crash() -> None:
    owner = Owner(SimulatedDisk())
    for step in HISTORY:
        step(owner)
        owner.check()
    kinds = {what for what, _ in owner.disk.calls}
    assert kinds == {"create", "write", "sync", "rename", "remove", "truncate"}
    assert len(owner.disk.calls) > 200


@pytest.mark.parametrize("loss", list(Loss))
@pytest.mark.parametrize("new_owner", [Owner, FastOwner])
def test_c1_crash_at_any_call_keeps_flushed_records(new_owner: type[Owner], loss: Loss) -> None:
    first = len(new_owner(SimulatedDisk()).disk.calls)
    whole = new_owner(SimulatedDisk())
    assert ran_to_end(None, whole)
    for crash_at in sample(range(first, len(whole.disk.calls) + 1), CRASHES_SAMPLED):
        for seed in range(SEEDS):
            owner = new_owner(SimulatedDisk())
            assert ran_to_end(crash_at, owner) == (crash_at == len(whole.disk.calls))
            owner.crash(loss, Random(seed * 100_000 + crash_at))
            # The log continues normally, and survives another crash.
            owner.append(2, 100, 5)
            owner.append(1, 600)
            owner.check()
            if crash_at % 2:
                owner.flush()
            owner.crash(loss, Random(seed))


@pytest.mark.parametrize("what", ["create", "write", "sync", "rename", "remove", "truncate"])
@pytest.mark.parametrize("new_owner", [Owner, FastOwner])
def test_log_opens_after_a_disk_failure_at_any_call(new_owner: type[Owner], what: str) -> None:
    """The call fails, the owner steps down, and the broker dies later."""
    whole = new_owner(SimulatedDisk())
    before = len(whole.disk.calls)
    assert ran_to_end(None, whole)
    count = sum(called == what for called, _ in whole.disk.calls[before:])
    for turns in sample(range(count), FAILURES_SAMPLED):
        owner = new_owner(SimulatedDisk())
        left = turns

        def fails(called: str, path: str) -> bool:
            nonlocal left
            if called == what:
                left -= 1
            return left < 0

        owner.disk.fails = fails
        with pytest.raises((StorageFailure, CleaningFailed)):
            play(owner)
        owner.crash(Loss.ALL, Random(turns))
        owner.append(2, 100, 5)
        owner.check()
