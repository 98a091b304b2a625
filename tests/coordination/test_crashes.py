"""A scripted history of the embedded store, with a crash at every disk call."""

import os
from collections.abc import Callable
from random import Random

import pytest

from coordination.store_model import Owner
from ottla.coordination import journal
from ottla.coordination.operations import Create, Delete, SetData
from ottla.errors import StorageFailure
from ottla.testing.disk import Crashed, Loss, SimulatedDisk

SEEDS = 3 * max(1, int(float(os.environ.get("OTTLA_FUZZ_SCALE", "1"))))

Step = Callable[[Owner], object]

HISTORY: tuple[Step, ...] = (
    lambda owner: owner.multi([Create("/a", b"1"), Create("/a/b", b"2"), SetData("/a", b"3")]),
    lambda owner: owner.multi([Create("/e", ephemeral=True)]),
    lambda owner: owner.multi([Create("/a/s-", sequence=True), Create("/a/s-", sequence=True)], 1),
    lambda owner: owner.multi([Create("/a/f", ephemeral=True), SetData("/a", b"4", 1)], 1),
    lambda owner: owner.multi([SetData("/a", b"5", 9)]),
    lambda owner: owner.end(1, expire=True),
    lambda owner: owner.multi([Create("/large", bytes(300))]),
    lambda owner: owner.multi([SetData("/large", bytes(400))]),
    lambda owner: owner.multi([SetData("/large", bytes(500)), Delete("/a/b")]),
    lambda owner: owner.multi([SetData("/large", b"")]),
    lambda owner: owner.restart(),
    lambda owner: owner.multi([Create("/e", ephemeral=True), Delete("/a/s-0000000001")]),
    lambda owner: owner.multi([Create("/a/s-", sequence=True)], 2),
    lambda owner: owner.end(2, expire=False),
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limits, so that a short history rewrites the file."""
    monkeypatch.setattr(journal, "REWRITE_BYTES_MIN", 800)


def test_history_is_correct_without_a_crash() -> None:
    owner = Owner(SimulatedDisk())
    for step in HISTORY:
        step(owner)
        owner.check()
    kinds = [what for what, _ in owner.disk.calls]
    assert kinds.count("rename") >= 2  # at creation, and after the file has grown
    owner.sequences()


@pytest.mark.parametrize("loss", list(Loss))
def test_crash_at_any_disk_call_loses_no_acknowledged_write(loss: Loss) -> None:
    crash_at, ended = 0, False
    while not ended:
        for seed in range(SEEDS):
            random = Random(seed * 100_000 + crash_at)
            disk = SimulatedDisk()
            disk.crash_at = crash_at
            try:
                owner = Owner(disk)
            except Crashed:
                Owner(disk.after_crash(loss, random)).check()
                continue
            try:
                for step in HISTORY:
                    owner.doubtful = None
                    step(owner)
                ended = True
            except Crashed:
                pass
            owner.crash(loss, random)
            # The store continues as usual and survives a second crash.
            owner.sequences()
            owner.multi([Create("/after", b"x")])
            owner.doubtful = None
            owner.crash(loss, random)
            owner.check()
        crash_at += 1
    assert crash_at > 30


@pytest.mark.parametrize("what", ["create", "write", "sync", "rename"])
def test_store_opens_after_disk_failure_at_any_call(what: str) -> None:
    turns, ended = 0, False
    while not ended:
        owner = Owner(SimulatedDisk())
        left = turns

        def fails(called: str, path: str) -> bool:
            nonlocal left
            left -= called == what
            return left < 0

        owner.disk.fails = fails
        try:
            for step in HISTORY:
                owner.doubtful = None
                step(owner)
            ended = left >= 0
        except StorageFailure:
            pass
        owner.crash(Loss.ALL, Random(turns))
        owner.check()
        turns += 1
