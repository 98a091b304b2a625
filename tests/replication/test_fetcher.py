"""The replica fetcher against leaders that serve real logs: rules A2, A3, A5, A16 and A17."""

import asyncio
import dataclasses
from random import Random

import pytest
from msgspec.structs import replace

from log.log_managers import TOPIC_ID, append, partition
from log.logs import contents, raw
from ottla.errors import DiskFull, ErrorCode
from ottla.ids import BrokerId, LeaderEpoch, Offset
from ottla.log.names import HIGH_WATERMARKS
from ottla.protocol.messages.fetch import FetchResponse
from ottla.testing.disk import Loss
from ottla.testing.network import Weather
from replication.replicas import FOLLOWER, RULES, Leader, World, address, at


async def _equal_leaders(world: World, *values: bytes) -> tuple[Leader, Leader]:
    """Return leaders 2 and 3, which have the same records of partition 0."""
    old, new = world.leaders[2], world.leaders[3]
    for leader in (old, new):
        await leader.create(0)
        for value in values:
            leader.append(0, value)
    return old, new


def test_a16_follower_gets_the_bytes_of_the_leader() -> None:
    async def scenario(world: World) -> None:
        leader = world.leaders[2]
        led = await leader.create(0, epoch=3)
        for number in range(20):
            leader.append(0, b"%d" % number, bytes(50))
        follower = await world.follow(0, 2, epoch=3)
        await world.until(lambda: world.is_equal(0, 2))
        assert list(follower.log.epochs) == list(led.log.epochs) == [(3, 0)]
        leader.append(0, b"later")
        took_s = await world.until(lambda: world.is_equal(0, 2))
        assert took_s < 0.05  # the parked fetch returns at once
        assert world.fetchers.counts.bytes_in == len(raw(led.log))

    at(scenario)


def test_a16_records_with_a_wrong_crc_are_not_appended() -> None:
    async def scenario(world: World) -> None:
        leader = world.leaders[2]
        await leader.create(0)
        leader.append(0, b"value")

        def damage(response: FetchResponse) -> None:
            for one in response.responses[0].partitions:
                records = bytearray(one.records or b"")
                if records:
                    records[-3] ^= 1
                    one.records = bytes(records)

        leader.mend = damage
        follower = await world.follow(0, 2, epoch=0)
        await world.until(lambda: world.fetchers.counts.errors)
        assert world.fetchers.counts.errors.keys() == {ErrorCode.CORRUPT_MESSAGE}
        assert follower.log.log_end_offset == 0
        leader.mend = lambda response: None
        await world.until(lambda: world.is_equal(0, 2))

    at(scenario)


def test_a16_many_partitions_and_leaders() -> None:
    async def scenario(world: World) -> None:
        for number in range(60):
            leader = world.leaders[2 + number % 2]
            await leader.create(number)
            leader.append(number, b"%d" % number)
            await world.follow(number, 2 + number % 2, epoch=0)
        await world.until(lambda: all(world.is_equal(n, 2 + n % 2) for n in range(60)))
        await world.clock.sleep(0.1)
        leader = world.leaders[2]
        fetches = len(leader.fetches)
        leader.append(10, b"x")
        await world.until(lambda: world.is_equal(10, 2))
        await world.clock.sleep(0.1)
        # Only the partition that changed is named again.
        (request,) = leader.fetches[fetches:]
        assert [one.partition for topic in request.topics for one in topic.partitions] == [10]

    at(scenario)


def test_a5_high_watermark_is_bounded_by_the_own_log() -> None:
    async def scenario(world: World) -> None:
        leader = world.leaders[2]
        await leader.create(0)
        for _ in range(4):
            leader.append(0, bytes(300))
        leader.commit(0, 4)
        world.fetchers.config = dataclasses.replace(world.fetchers.config, partition_bytes_max=400)
        follower = await world.follow(0, 2, epoch=0)
        seen: list[tuple[int, int]] = []

        def is_complete() -> bool:
            seen.append((follower.high_watermark, follower.log.log_end_offset))
            return follower.high_watermark == 4

        await world.until(is_complete)
        assert all(high_watermark <= end for high_watermark, end in seen)
        assert {end for _, end in seen} >= {1, 2, 3, 4}
        leader.commit(0, 2)  # a new leader may know less
        leader.append(0, b"x")
        await world.until(lambda: follower.high_watermark == 2)
        assert follower.lag == 0

    at(scenario)


def test_a5_restart_without_the_checkpoint() -> None:
    async def scenario(world: World) -> None:
        leader = world.leaders[2]
        await leader.create(0)
        for _ in range(5):
            leader.append(0, b"x")
        leader.commit(0, 5)
        follower = await world.follow(0, 2, epoch=0)
        await world.until(lambda: follower.log.log_end_offset == 5)
        await world.fetchers.close()
        await world.logs.close(world.brokers[FOLLOWER].epoch)
        world.disk.remove(f"/data/{HIGH_WATERMARKS}")
        await world.start()
        fetches = len(leader.fetches)
        follower = await world.follow(0, 2, epoch=0)
        assert (follower.high_watermark, follower.log.log_end_offset) == (0, 5)
        await world.until(lambda: follower.high_watermark == 5)
        # Nothing was truncated and fetched again.
        assert leader.fetches[fetches].topics[0].partitions[0].fetch_offset == 5
        assert world.fetchers.counts.bytes_in == 0

    at(scenario)


def test_a2_stale_high_watermark_does_not_truncate() -> None:
    async def scenario(world: World) -> None:
        old, new = await _equal_leaders(world, *[b"x"] * 5)
        follower = await world.follow(0, 2, epoch=0)
        await world.until(lambda: world.is_equal(0, 2))
        assert follower.high_watermark == 0
        # The leader dies before the follower learns the high watermark. It keeps all records.
        old.host.die()
        new.lead(1)
        await world.follow(0, 3, epoch=1)
        new.append(0, b"y")
        await world.until(lambda: world.is_equal(0, 3))
        assert world.fetchers.counts.truncations == 0
        assert len(contents(follower.log)) == 6

    at(scenario)


def test_a2_diverging_tail_is_replaced() -> None:
    async def scenario(world: World) -> None:
        old, new = await _equal_leaders(world, *[b"committed"] * 3)
        for _ in range(4):
            old.append(0, b"lost")
        follower = await world.follow(0, 2, epoch=0)
        await world.until(lambda: follower.log.log_end_offset == 7)
        new.lead(1)
        for _ in range(9):
            new.append(0, b"new")
        await world.follow(0, 3, epoch=1)
        await world.until(lambda: world.is_equal(0, 3))
        assert list(follower.log.epochs) == [(0, 0), (1, 3)]
        assert world.fetchers.counts.truncations == 1

    at(scenario)


def test_a2_two_elections_without_writes_between() -> None:
    async def scenario(world: World) -> None:
        leader = world.leaders[2]
        led = await leader.create(0, epoch=1)
        leader.append(0, b"a")
        leader.lead(4)
        leader.lead(6)
        # The follower led in epoch 5 and wrote a tail that nobody has.
        hosted = await world.logs.create(partition(0), TOPIC_ID, RULES)
        hosted.log.append_replicated(raw(led.log), fetched_offset=0, now_ms=0)
        hosted.log.begin_epoch(LeaderEpoch(5))
        append(hosted, b"tail")
        await world.follow(0, 2, epoch=6)
        await world.until(lambda: world.is_equal(0, 2))
        assert list(hosted.log.epochs) == [(1, 0)]

    at(scenario)


def test_a2_three_failovers_inside_one_lag_period_converge() -> None:
    async def scenario(world: World) -> None:
        one, two = await _equal_leaders(world, b"a", b"b")
        follower = await world.follow(0, 2, epoch=0)
        await world.until(lambda: world.is_equal(0, 2))
        for epoch in (1, 3):
            one.lead(epoch)
            one.append(0, b"lost in %d" % epoch)
            await world.follow(0, 2, epoch=epoch)
            await world.until(lambda: world.is_equal(0, 2))
        for epoch in (2, 4):
            two.lead(epoch)
            two.append(0, b"kept in %d" % epoch)
        await world.follow(0, 3, epoch=4)
        await world.until(lambda: world.is_equal(0, 3))
        assert [epoch for epoch, _ in follower.log.epochs] == [0, 2, 4]

    at(scenario)


def test_a2_many_logs_are_truncated_at_once() -> None:
    async def scenario(world: World) -> None:
        old, new = world.leaders[2], world.leaders[3]
        for number in range(30):
            for leader in (old, new):
                await leader.create(number)
                leader.append(number, b"committed")
            old.append(number, b"lost")
            await world.follow(number, 2, epoch=0)
        await world.until(lambda: all(world.is_equal(number, 2) for number in range(30)))
        new.lead(1)
        world.disk.calls.clear()
        for number in range(30):
            new.append(number, b"new")
            await world.follow(number, 3, epoch=1)
        await world.until(lambda: all(world.is_equal(number, 3) for number in range(30)))
        stored = [p for what, p in world.disk.calls if what == "rename" and HIGH_WATERMARKS in p]
        assert (world.fetchers.counts.truncations, len(stored)) == (30, 1)

    at(scenario)


def test_a3_answers_of_an_older_epoch_are_discarded() -> None:
    async def scenario(world: World) -> None:
        old, new = await _equal_leaders(world, b"a")
        follower = await world.follow(0, 2, epoch=0)
        await world.until(lambda: world.is_equal(0, 2))
        # The old leader's answer is delayed across an election.
        old.hold = asyncio.Event()
        old.append(0, b"zombie")
        await world.clock.sleep(0.1)
        new.lead(1)
        await world.follow(0, 3, epoch=1)
        await world.until(lambda: len(new.fetches) > 0)
        old.hold.set()
        await world.clock.sleep(1)
        assert [value for _, value in contents(follower.log)] == [b"a"]
        new.append(0, b"b")
        await world.until(lambda: world.is_equal(0, 3))
        assert [value for _, value in contents(follower.log)] == [b"a", b"b"]

    at(scenario)


def test_a3_answers_are_discarded_when_the_same_leader_is_elected_again() -> None:
    async def scenario(world: World) -> None:
        leader = world.leaders[2]
        await leader.create(0)
        leader.append(0, b"a")
        leader.hold = asyncio.Event()
        follower = await world.follow(0, 2, epoch=0)
        await world.until(lambda: leader.fetches)
        follower.update(replace(follower.state, leader_epoch=LeaderEpoch(1)))
        leader.hold.set()
        leader.hold = None
        await world.clock.sleep(0.2)
        assert follower.log.log_end_offset == 0
        leader.lead(1)
        world.fetchers.set(follower)
        await world.until(lambda: world.is_equal(0, 2))
        assert leader.fetches[-1].topics[0].partitions[0].current_leader_epoch == 1

    at(scenario)


async def _begin_truncation(world: World) -> None:
    """Let the follower begin to truncate what leader 2 wrote and leader 3 does not have."""
    old, new = await _equal_leaders(world, b"committed")
    old.append(0, b"lost")
    await world.follow(0, 2, epoch=0)
    await world.until(lambda: world.is_equal(0, 2))
    new.lead(1)
    await world.follow(0, 3, epoch=1)
    await world.until(lambda: world.fetchers.truncating)


def test_a3_removed_replica_is_not_truncated_later() -> None:
    async def scenario(world: World) -> None:
        await _begin_truncation(world)
        hosted = world.logs[partition(0)]
        await world.fetchers.remove(partition(0))
        assert not world.fetchers.truncating
        assert not hosted.log.is_truncating
        hosted.log.begin_epoch(LeaderEpoch(2))  # it becomes the leader
        append(hosted, b"mine")
        await world.clock.sleep(5)
        values = [value for _, value in contents(hosted.log)]
        assert values == [b"committed", b"mine"]

    at(scenario, slow_disk=True)


def test_a3_next_leader_is_fetched_after_the_truncation() -> None:
    async def scenario(world: World) -> None:
        await _begin_truncation(world)
        old = world.leaders[2]
        old.lead(2)
        old.append(0, b"more")
        await world.follow(0, 2, epoch=2)
        assert world.fetchers.truncating
        await world.until(lambda: not world.fetchers.truncating)
        epochs = [
            one.current_leader_epoch
            for request in old.fetches
            for topic in request.topics
            for one in topic.partitions
        ]
        assert {*epochs} == {0}
        await world.until(lambda: world.is_equal(0, 2), 2)

    at(scenario, slow_disk=True)


def test_close_completes_a_truncation() -> None:
    async def scenario(world: World) -> None:
        await _begin_truncation(world)
        await world.fetchers.close()
        log = world.logs[partition(0)].log
        assert (log.is_truncating, log.log_end_offset) == (False, 1)

    at(scenario, slow_disk=True)


def test_a3_fenced_and_unknown_epochs_are_retried_with_a_backoff() -> None:
    async def scenario(world: World) -> None:
        leader = world.leaders[2]
        await leader.create(0, epoch=4)
        leader.append(0, b"a")
        await world.follow(0, 2, epoch=5)  # the leader has not applied the election yet
        await world.clock.sleep(0.1)
        assert world.fetchers.counts.errors.keys() == {ErrorCode.UNKNOWN_LEADER_EPOCH}
        leader.lead(5)
        took_s = await world.until(lambda: world.is_equal(0, 2))
        assert took_s < 0.2
        leader.lead(6)  # this broker has not applied the next one
        fetches = len(leader.fetches)
        await world.clock.sleep(30)
        assert ErrorCode.FENCED_LEADER_EPOCH in world.fetchers.counts.errors
        assert 20 < len(leader.fetches) - fetches < 60  # about one a second
        await world.follow(0, 2, epoch=6)
        leader.append(0, b"b")
        assert await world.until(lambda: world.is_equal(0, 2)) < 0.1

    at(scenario)


def test_a17_delete_records_mid_batch_with_an_empty_follower() -> None:
    async def scenario(world: World) -> None:
        leader = world.leaders[2]
        led = await leader.create(0)
        leader.append(0, b"0", b"1", b"2")
        leader.append(0, *(b"%d" % number for number in range(3, 9)))
        led.log.advance_log_start(Offset(5))
        leader.commit(0, 9)
        follower = await world.follow(0, 2, epoch=0)
        await world.until(lambda: follower.log.log_end_offset == 9)
        await world.until(lambda: follower.log.log_start_offset == 5)
        assert follower.log.segments.first.base_offset == 3
        assert raw(follower.log, 5) == raw(led.log, 5)
        assert follower.high_watermark == 9

    at(scenario)


def test_a17_log_start_follows_the_leader() -> None:
    async def scenario(world: World) -> None:
        leader = world.leaders[2]
        led = await leader.create(0)
        for number in range(10):
            leader.append(0, b"%d" % number)
        leader.commit(0, 10)
        follower = await world.follow(0, 2, epoch=0)
        await world.until(lambda: world.is_equal(0, 2))
        led.log.advance_log_start(Offset(4))
        leader.append(0, b"x")
        await world.until(lambda: follower.log.log_start_offset == 4)
        await world.clock.sleep(0.6)
        reported = leader.fetches[-1].topics or leader.fetches[-2].topics
        assert reported[0].partitions[0].log_start_offset == 4
        # The follower was away while the leader deleted more than the follower has.
        await world.fetchers.remove(partition(0))
        for number in range(10):
            leader.append(0, b"%d" % number)
        led.log.advance_log_start(Offset(15))
        leader.commit(0, 21)
        await world.follow(0, 2, epoch=0)
        await world.until(lambda: world.is_equal(0, 2))
        assert follower.log.log_start_offset == 15

    at(scenario)


def test_a17_follower_does_not_start_above_its_high_watermark() -> None:
    async def scenario(world: World) -> None:
        leader = world.leaders[2]
        led = await leader.create(0)
        for number in range(4):
            leader.append(0, b"%d" % number)
        follower = await world.follow(0, 2, epoch=0)
        await world.until(lambda: world.is_equal(0, 2))
        led.log.advance_log_start(Offset(3))
        leader.commit(0, 2)  # behind: a leader does not do this
        leader.append(0, b"x")
        await world.until(lambda: world.is_equal(0, 2))
        assert (follower.log.log_start_offset, follower.high_watermark) == (2, 2)

    at(scenario)


def test_c5_flush_messages_delays_the_report_of_the_log_end() -> None:
    async def scenario(world: World) -> None:
        leader = world.leaders[2]
        await leader.create(0)
        leader.append(0, b"a")
        rules = dataclasses.replace(RULES, flush_messages=1)
        follower = await world.follow(0, 2, epoch=0, rules=rules)
        await world.until(lambda: any(_offsets(one) == [1] for one in leader.fetches))
        assert follower.log.recovery_point == 1

        def fails(what: str, path: str) -> bool:
            if what == "sync" and path.endswith(".log"):
                raise DiskFull("full")
            return False

        world.disk.fails = fails
        leader.append(0, b"b")
        await world.until(lambda: follower.log.log_end_offset == 2)
        await world.clock.sleep(5)
        assert not any(2 in _offsets(one) for one in leader.fetches)
        world.disk.fails = lambda what, path: False
        await world.until(lambda: any(2 in _offsets(one) for one in leader.fetches))
        assert follower.log.recovery_point == 2

    at(scenario)


def _offsets(request: object) -> list[int]:
    topics = getattr(request, "topics", ())
    return [one.fetch_offset for topic in topics for one in topic.partitions]


def test_new_partition_does_not_wait_for_the_fetch_in_flight() -> None:
    async def scenario(world: World) -> None:
        leader = world.leaders[2]
        for number in range(6):
            await leader.create(number)
            leader.append(number, b"a")
        await world.follow(0, 2, epoch=0)
        await world.until(lambda: world.is_equal(0, 2))
        await world.clock.sleep(0.1)  # the next fetch waits for records, for half a second
        for number in range(1, 5):
            await world.follow(number, 2, epoch=0)
            assert await world.until(lambda number=number: world.is_equal(number, 2)) < 0.03
            leader.append(number, b"b")
            assert await world.until(lambda number=number: world.is_equal(number, 2)) < 0.03
        await world.clock.sleep(1)
        # Then all of them are in one session, and nothing is polled.
        fetches = len(leader.fetches)
        await world.clock.sleep(10)
        assert len(leader.fetches) - fetches <= 21
        leader.append(3, b"c")
        assert await world.until(lambda: world.is_equal(3, 2)) < 0.03
        # Only new ones are left after a removal.
        await world.clock.sleep(0.1)
        await world.follow(5, 2, epoch=0)
        await world.fetchers.remove([partition(number) for number in range(5)])
        await world.until(lambda: world.is_equal(5, 2))
        await world.clock.sleep(1)
        fetches = len(leader.fetches)
        await world.clock.sleep(10)
        assert 19 <= len(leader.fetches) - fetches <= 21

    at(scenario)


def test_new_partition_needs_no_second_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        leader = world.leaders[2]
        for number in range(2):
            await leader.create(number)
            leader.append(number, b"a")
        await world.follow(0, 2, epoch=0)
        await world.until(lambda: world.is_equal(0, 2))
        await world.clock.sleep(0.1)

        async def hang(protocol: object, host: str, port: int) -> None:
            await world.clock.sleep(1000)

        monkeypatch.setattr(world.host, "connect", hang)
        await world.follow(1, 2, epoch=0)
        leader.append(0, b"b")
        assert await world.until(lambda: world.is_equal(0, 2)) < 0.05
        assert await world.until(lambda: world.is_equal(1, 2)) < 0.05

    at(scenario)


def test_several_fetchers_share_the_partitions_of_a_leader() -> None:
    async def scenario(world: World) -> None:
        leader = world.leaders[2]
        for number in range(12):
            await leader.create(number)
            leader.append(number, b"a")
        for number in range(6):
            await world.follow(number, 2, epoch=0)
        await world.until(lambda: all(world.is_equal(number, 2) for number in range(6)))
        await world.clock.sleep(5)
        assert len({one.session_id for one in leader.fetches[-6:]}) == 1
        world.fetchers.resize(3)
        for number in range(6, 12):
            await world.follow(number, 2, epoch=0)
        await world.until(lambda: all(world.is_equal(number, 2) for number in range(12)))
        await world.clock.sleep(5)
        sessions = {one.session_id for one in leader.fetches[-6:]}
        assert (len(sessions), 0 in sessions) == (3, False)
        for number in range(12):
            leader.append(number, b"b")
        assert await world.until(lambda: all(world.is_equal(n, 2) for n in range(12))) < 0.05

    at(scenario)


def test_session_is_renewed_after_it_is_lost() -> None:
    async def scenario(world: World) -> None:
        leader = world.leaders[2]
        for number in range(3):
            await leader.create(number)
            await world.follow(number, 2, epoch=0)
        await world.until(lambda: len(leader.fetches) > 2)
        leader.evict_sessions()
        leader.append(1, b"x")
        await world.until(lambda: world.is_equal(1, 2), 2)
        assert world.fetchers.counts.fetch_failures == 0
        leader.slots = 0  # no sessions at all: every fetch names every partition
        leader.evict_sessions()
        leader.append(2, b"y")
        await world.until(lambda: world.is_equal(2, 2), 2)
        leader.append(0, b"z")
        await world.until(lambda: world.is_equal(0, 2), 2)
        assert len(_offsets(leader.fetches[-1])) == 3

    at(scenario)


def test_removed_partition_is_forgotten() -> None:
    async def scenario(world: World) -> None:
        leader = world.leaders[2]
        for number in range(2):
            await leader.create(number)
            await world.follow(number, 2, epoch=0)
        await world.until(lambda: len(leader.fetches) > 1)
        await world.fetchers.remove(partition(0))
        leader.append(0, b"x")
        leader.append(1, b"y")
        await world.until(lambda: world.is_equal(1, 2))
        await world.clock.sleep(1)
        assert world.followers[0].log.log_end_offset == 0
        forgotten = [topic.partitions for one in leader.fetches
                     for topic in one.forgotten_topics_data]  # fmt: skip
        assert forgotten == [(0,)]

    at(scenario)


def test_fetcher_ends_without_partitions_and_begins_again() -> None:
    async def scenario(world: World) -> None:
        leader = world.leaders[2]
        await leader.create(0)
        await world.follow(0, 2, epoch=0)
        await world.until(lambda: leader.fetches)
        await world.fetchers.remove([partition(0)])
        await world.clock.sleep(2)
        fetches = len(leader.fetches)
        await world.clock.sleep(60)
        assert len(leader.fetches) == fetches
        leader.append(0, b"x")
        await world.follow(0, 2, epoch=0)
        await world.until(lambda: world.is_equal(0, 2))

    at(scenario)


def test_leader_that_restarts_is_fetched_again() -> None:
    async def scenario(world: World) -> None:
        leader = world.leaders[2]
        await leader.create(0)
        leader.append(0, b"a")
        await world.follow(0, 2, epoch=0)
        await world.until(lambda: world.is_equal(0, 2))
        leader.host.die()
        await world.clock.sleep(10)
        assert world.fetchers.counts.fetch_failures > 3
        leader.host = world.network.host(address=address(2))
        await leader.listen()
        leader.append(0, b"b")
        await world.until(lambda: world.is_equal(0, 2), 2)

    at(scenario)


def test_fetches_survive_a_bad_network() -> None:
    async def scenario(world: World) -> None:
        leader = world.leaders[2]
        for number in range(5):
            await leader.create(number)
            await world.follow(number, 2, epoch=0)
        for turn in range(100):
            leader.append(turn % 5, b"%d" % turn, bytes(turn * 5))
            await world.clock.sleep(0.05)
        await world.until(lambda: all(world.is_equal(n, 2) for n in range(5)), 300)
        assert world.fetchers.counts.fetch_failures > 0

    at(scenario, Weather(cut_chance=0.02, split_chance=0.3))


def test_full_disk_does_not_stop_the_other_partitions() -> None:
    async def scenario(world: World) -> None:
        leader = world.leaders[2]
        for number in range(2):
            await leader.create(number)
            await world.follow(number, 2, epoch=0)
        await world.until(lambda: len(leader.fetches) > 1)

        def fails(what: str, path: str) -> bool:
            if what == "write" and "/t-0/" in path:
                raise DiskFull("full")
            return False

        world.disk.fails = fails
        leader.append(0, b"x")
        leader.append(1, b"y")
        await world.until(lambda: world.is_equal(1, 2))
        assert world.followers[0].log.log_end_offset == 0
        assert ErrorCode.KAFKA_STORAGE_ERROR in world.fetchers.counts.errors
        world.disk.fails = lambda what, path: False
        await world.until(lambda: world.is_equal(0, 2))

    at(scenario)


def test_partition_without_a_leader_is_not_fetched() -> None:
    async def scenario(world: World) -> None:
        leader = world.leaders[2]
        await leader.create(0)
        follower = await world.follow(0, 2, epoch=0)
        await world.until(lambda: leader.fetches)
        follower.update(replace(follower.state, leader=BrokerId(-1), leader_epoch=LeaderEpoch(1)))
        world.fetchers.set(follower)
        leader.append(0, b"x")
        await world.clock.sleep(5)
        assert follower.log.log_end_offset == 0
        with pytest.raises(AssertionError, match="never decrease"):
            follower.update(replace(follower.state, leader_epoch=LeaderEpoch(0)))

    at(scenario)


@pytest.mark.parametrize("seed", range(4))
def test_a2_follower_converges_after_elections_and_crashes(seed: int) -> None:
    """Leaders are elected whatever they have, as in unclean elections; the follower loses power."""

    async def scenario(world: World) -> None:
        random, epoch, current = Random(seed), 0, 2
        for number in range(4):
            for leader in world.leaders.values():
                await leader.create(number)
                leader.append(number, b"common")

        async def follow_all() -> None:
            for number in range(4):
                await world.follow(number, current, epoch)

        await follow_all()
        for turn in range(60):
            what = random.random()
            if what < 0.6:
                values = [b"%d" % turn] * random.randrange(1, 4)
                world.leaders[current].append(random.randrange(4), *values)
            elif what < 0.85:
                current, epoch = random.choice((2, 3)), epoch + 1
                world.leaders[current].lead(epoch)
                await follow_all()
            elif what < 0.95:
                await world.crash(random.choice([*Loss]), random)
                await follow_all()
            else:
                world.network.partition(address(FOLLOWER), address(2))
                await world.clock.sleep(random.random())
                world.network.heal(address(FOLLOWER), address(2))
            await world.clock.sleep(random.choice((0, 0.001, 0.01, 0.1)))
        await world.until(lambda: all(world.is_equal(number, current) for number in range(4)), 120)
        for number, follower in world.followers.items():
            led = world.leaders[current].logs[partition(number)].log
            own = [one for one in led.epochs if one.start_offset < led.log_end_offset]
            assert list(follower.log.epochs) == own
            log = follower.log
            assert log.log_start_offset <= follower.high_watermark <= log.log_end_offset

    at(scenario, Weather(cut_chance=0.01, split_chance=0.2), seed, slow_disk=True)
