"""Replication quotas in virtual time: the rate, and who is held back (KIP-73)."""

import asyncio
from dataclasses import replace

from log.log_managers import partition
from ottla.ids import BrokerId
from ottla.replication.quota import ReplicationQuota
from ottla.settings.config_types import LONG_MAX
from ottla.testing.clock import SimulatedClock, simulated
from replication.replicas import FOLLOWER, World, at

BYTES_MAX = 1000


def quota(clock: SimulatedClock, throttled: str, bytes_max: int = BYTES_MAX) -> ReplicationQuota:
    return ReplicationQuota(
        FOLLOWER, clock, bytes_max=lambda: bytes_max, throttled=lambda topic: throttled
    )


def test_rate_is_that_of_the_last_windows() -> None:
    async def program(clock: SimulatedClock) -> None:
        one = quota(clock, "*")
        assert one.bytes_per_s == 0
        one.record(3000)
        assert one.bytes_per_s == 3000, "at least one window counts"
        assert one.is_exceeded
        await clock.sleep(2.0)
        assert one.bytes_per_s == 1500
        await clock.sleep(1.0)
        assert one.bytes_per_s == BYTES_MAX
        assert not one.is_exceeded, "the limit itself is allowed"
        await clock.sleep(7.0)
        one.record(1000)
        assert one.bytes_per_s == 400
        await clock.sleep(1.0)
        assert one.bytes_per_s == 1000, "the window of the first bytes is over"
        await clock.sleep(11.0)
        assert one.bytes_per_s == 0

    simulated(program)


def test_copies_of_reassignments_have_a_limit_of_their_own() -> None:
    async def program(clock: SimulatedClock) -> None:
        own = LONG_MAX

        def copies(copied_max: int) -> ReplicationQuota:
            return ReplicationQuota(
                FOLLOWER,
                clock,
                bytes_max=lambda: own,
                throttled=lambda topic: "*",
                copied_max=lambda: copied_max,
                is_copied=lambda name: name == partition(1),
            )

        one = copies(BYTES_MAX)
        assert one.is_limited
        assert [one.is_throttled(partition(number)) for number in range(3)] == [False, True, False]
        one.record(BYTES_MAX + 1)
        assert one.is_exceeded
        assert not copies(LONG_MAX).is_limited, "ottla.balance.enable is not set"
        own = 2 * BYTES_MAX  # the operator's rate takes precedence
        assert [one.is_throttled(partition(number)) for number in range(3)] == [True, True, True]
        assert not one.is_exceeded

    simulated(program)


def test_topic_names_the_throttled_replicas() -> None:
    async def program(clock: SimulatedClock) -> None:
        for text, throttled in (
            ("", []),
            ("*", [0, 1, 2]),
            (f"0:{FOLLOWER}, 2:{FOLLOWER},1:99", [0, 2]),
            (f"10:{FOLLOWER}", []),
        ):
            one = quota(clock, text)
            assert [
                number for number in range(3) if one.is_throttled(partition(number))
            ] == throttled, text
        assert quota(clock, "*").is_limited
        assert not quota(clock, "*", LONG_MAX).is_limited
        assert quota(clock, "*", 0).is_limited

    simulated(program)


def test_follower_that_catches_up_keeps_its_quota() -> None:
    async def scenario(world: World) -> None:
        leader = world.leaders[2]
        for number in (0, 1):
            await leader.create(number)
            for _ in range(20):
                leader.append(number, bytes(500))
            leader.commit(number, 20)
        world.fetchers.config = replace(world.fetchers.config, partition_bytes_max=600)
        world.fetchers.quota = quota(world.clock, f"0:{FOLLOWER}")
        for number in (0, 1):
            await world.follow(number, 2, epoch=0)
        took_s = await world.until(lambda: world.is_equal(1, 2))
        assert took_s < 2, "another partition is not held back"
        assert not world.is_equal(0, 2)
        took_s += await world.until(lambda: world.is_equal(0, 2))
        counted = world.fetchers.counts.throttled_bytes_in
        assert counted > 20 * 500
        assert took_s > 0.8 * counted / BYTES_MAX - 1
        # A replica that has caught up is not held back, whatever the rate is.
        world.fetchers.quota.record(1_000_000)
        await asyncio.sleep(1.0)
        leader.append(0, b"later")
        assert await world.until(lambda: world.is_equal(0, 2)) < 0.1

    at(scenario)


def test_broker_id_is_part_of_the_name() -> None:
    async def program(clock: SimulatedClock) -> None:
        other = ReplicationQuota(
            BrokerId(99), clock, bytes_max=lambda: 1, throttled=lambda topic: f"0:{FOLLOWER}"
        )
        assert not other.is_throttled(partition(0))

    simulated(program)
