"""Long searches for garbage happen once; and what ends leaves no rings for them to find."""

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
def thawed() -> Generator[None]:  # pyright: ignore[reportUnusedFunction]
    """Tests share a process: what one of them sets aside is given back."""
    yield
    gc.unfreeze()


class Watch:
    """A clock that says how long each search took."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._now_s = 0.0

    def __call__(self) -> float:
        self._now_s += self.seconds
        return self._now_s


def test_what_survives_a_long_search_is_set_aside() -> None:
    before = gc.get_freeze_count()
    with GcFreeze(Watch(LONG_SECONDS * 2)):
        gc.collect()
    assert gc.get_freeze_count() > before


def test_a_short_search_may_come_again() -> None:
    before = gc.get_freeze_count()
    with GcFreeze(Watch(LONG_SECONDS / 2)):
        gc.collect()
    assert gc.get_freeze_count() == before


@pytest.mark.parametrize("generation", [0, 1])
def test_what_is_young_is_not_set_aside(generation: int) -> None:
    before = gc.get_freeze_count()
    with GcFreeze(Watch(LONG_SECONDS * 2)):
        gc.collect(generation)
    assert gc.get_freeze_count() == before


def test_it_ends_with_its_block() -> None:
    before = [*gc.callbacks]
    with GcFreeze():
        assert len(gc.callbacks) == len(before) + 1
    assert gc.callbacks == before


def test_connections_and_partitions_that_end_are_no_rings(tmp_path: Path) -> None:
    """What was set aside is freed when nobody refers to it, and only rings are not."""

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
