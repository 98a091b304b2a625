"""A scripted history of a log, stopped at every call of the disk, and opened again."""

import os
from collections.abc import Callable
from random import Random

import pytest

from log.owner import Owner
from ottla.errors import StorageFailure
from ottla.log.cleaner import CleaningFailed
from ottla.testing.disk import Crashed, Loss, SimulatedDisk

SEEDS = max(1, int(float(os.environ.get("OTTLA_FUZZ_SCALE", "1"))))

Step = Callable[[Owner], object]

HISTORY: tuple[Step, ...] = (
    lambda owner: owner.append(2, 30, 1),
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
    lambda owner: owner.append(2, 200, 4),
    lambda owner: owner.kill(),
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


def played(crash_at: int | None, owner: Owner) -> bool:
    """Whether the history came to its end."""
    owner.disk.crash_at = crash_at
    try:
        for step in HISTORY:
            step(owner)
    except Crashed:
        return False
    return True


def test_the_history_is_right_without_a_crash() -> None:
    owner = Owner(SimulatedDisk())
    for step in HISTORY:
        step(owner)
        owner.check()
    kinds = {what for what, _ in owner.disk.calls}
    assert kinds == {"create", "write", "sync", "rename", "remove", "truncate"}
    assert len(owner.disk.calls) > 200


@pytest.mark.parametrize("loss", list(Loss))
def test_c1_a_crash_at_every_call_loses_nothing_that_was_flushed(loss: Loss) -> None:
    crash_at = len(Owner(SimulatedDisk()).disk.calls)
    ended = False
    while not ended:
        for seed in range(SEEDS):
            owner = Owner(SimulatedDisk())
            ended = played(crash_at, owner)
            owner.crash(loss, Random(seed * 100_000 + crash_at))
            # It goes on as if nothing had been, and survives once more.
            owner.append(2, 100, 5)
            owner.append(1, 600)
            owner.check()
            if crash_at % 2:
                owner.flush()
            owner.crash(loss, Random(seed))
        crash_at += 1


@pytest.mark.parametrize("what", ["create", "write", "sync", "rename", "remove", "truncate"])
def test_a_disk_that_fails_at_any_call_leaves_a_log_that_opens(what: str) -> None:
    """The call fails, the owner steps down, and the broker dies later."""
    turns = 0
    while True:
        owner = Owner(SimulatedDisk())
        left = turns

        def fails(called: str, path: str) -> bool:
            nonlocal left
            if called == what:
                left -= 1
            return left < 0

        owner.disk.fails = fails
        try:
            for step in HISTORY:
                step(owner)
            return
        except (StorageFailure, CleaningFailed):
            pass
        owner.crash(Loss.ALL, Random(turns))
        owner.append(2, 100, 5)
        owner.check()
        turns += 1
