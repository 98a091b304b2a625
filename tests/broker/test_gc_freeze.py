"""Survivors of a long garbage collection are frozen; closed objects form no reference cycles."""

import asyncio
import gc
from collections.abc import Generator
from pathlib import Path

import pytest

from broker.handlers.test_delete_topics import delete
from broker.nodes import broker, run
from broker.test_node import batch, create, produce
from ottla.broker.gc_freeze import LONG_SECONDS, GcFreeze
from ottla.ids import ZERO_UUID
from ottla.replication.partition import Partition
from ottla.transport.connection import Connection


@pytest.fixture(autouse=True)
def unfreeze() -> Generator[None]:  # pyright: ignore[reportUnusedFunction]
    """Restore what the test run has frozen."""
    yield
    gc.unfreeze()
    gc.collect()
    gc.freeze()


class SteppingClock:
    """A clock that advances by a fixed time per reading."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._now_s = 0.0

    def __call__(self) -> float:
        self._now_s += self.seconds
        return self._now_s


def test_survivors_of_a_long_collection_are_frozen() -> None:
    before = gc.get_freeze_count()
    with GcFreeze(SteppingClock(LONG_SECONDS * 2)):
        gc.collect()
    assert gc.get_freeze_count() > before


def test_short_collection_freezes_nothing() -> None:
    before = gc.get_freeze_count()
    with GcFreeze(SteppingClock(LONG_SECONDS / 2)):
        gc.collect()
    assert gc.get_freeze_count() <= before  # frozen objects may have been freed


@pytest.mark.parametrize("generation", [0, 1])
def test_young_generation_collection_freezes_nothing(generation: int) -> None:
    before = gc.get_freeze_count()
    with GcFreeze(SteppingClock(LONG_SECONDS * 2)):
        gc.collect(generation)
    assert gc.get_freeze_count() <= before  # frozen objects may have been freed


def test_callback_is_removed_on_exit() -> None:
    before = [*gc.callbacks]
    with GcFreeze():
        assert len(gc.callbacks) == len(before) + 1
    assert gc.callbacks == before


def test_closed_connections_and_partitions_form_no_cycles(tmp_path: Path) -> None:
    """Reference counting frees frozen objects; only reference cycles would stay."""

    async def scenario() -> None:
        async with broker(tmp_path) as running:
            first = await running.client()
            await create(first, "kept")
            gc.collect()
            gc.disable()
            try:
                for _ in range(3):
                    client = await running.client()
                    await create(client, "t")
                    await produce(client, "t", batch(b"x"))
                    await delete(client, ("t", ZERO_UUID))
                    await client.close()
                while sum(len(one.connections) for one in running.node.listeners) > 1:
                    await asyncio.sleep(0.01)
                await produce(first, "kept", batch(b"x"))
                alive: list[type[object]] = [type(one) for one in gc.get_objects()]
            finally:
                gc.enable()
            assert alive.count(Connection) == 1
            assert alive.count(Partition) == 1

    run(scenario)
