"""Classic group membership on Ottla: every partition has one owner through all rebalances."""

import asyncio

import pytest

from client.group.harness import Guest, all_of, guests, settled
from client.scenario_runner import run, until
from ottla.client.group.offsets import OffsetAndMetadata
from ottla.errors import ErrorCode, RequestError
from ottla.ids import TopicPartition
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.testing import Cluster

SIX = {"num.partitions": 6}
T6 = all_of("t", 6)

STRATEGIES = ["range", "roundrobin", "sticky", "cooperative-sticky"]


def test_one_member_has_everything() -> None:
    async def scenario() -> None:
        async with Cluster(settings=SIX) as cluster, guests() as guest:
            one = guest(cluster.bootstrap_servers, ["t"])
            assert one.membership.waiting_for == "joining the group: the consumer joins"
            await settled([one], T6)
            assert one.owner.told == [("assign", T6, "the consumer joins")]
            assert one.membership.waiting_for is None
            identity = one.membership.identity
            assert (identity.group_id, identity.generation) == ("g", 1)
            assert identity.member_id
            await one.leave()
            assert not one.membership.identity.is_member

    run(scenario())


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_members_come_and_go_and_every_partition_has_one_owner(strategy: str) -> None:
    async def scenario() -> None:
        settings = {"partition_assignment_strategy": strategy}
        async with Cluster(settings=SIX) as cluster, guests() as guest:

            def join() -> Guest:
                return guest(cluster.bootstrap_servers, ["t"], **settings)

            members = [join()]
            await settled(members, T6)
            members.append(join())
            await settled(members, T6)
            members += [join() for _ in range(6)]  # two more members than partitions
            await settled(members, T6)
            assert sorted(len(one.has) for one in members) == [0, 0, 1, 1, 1, 1, 1, 1]
            for one in members[1:]:
                await one.leave()
            await settled(members[:1], T6)

    run(scenario())


def test_a_cooperative_member_never_gives_up_what_stays() -> None:
    async def scenario() -> None:
        settings = {"partition_assignment_strategy": "cooperative-sticky"}
        async with Cluster(settings=SIX) as cluster, guests() as guest:
            first = guest(cluster.bootstrap_servers, ["t"], **settings)
            await settled([first], T6)
            second = guest(cluster.bootstrap_servers, ["t"], **settings)
            await settled([first, second], T6)
            [moved] = first.owner.heard("revoke")
            assert moved == second.has
            assert len(moved) == 3
            await second.leave()
            await settled([first], T6)
            assert first.owner.heard("revoke") == [moved]
            assert not first.owner.heard("lose")

    run(scenario())


def test_an_eager_member_gives_up_all_before_it_joins_again() -> None:
    async def scenario() -> None:
        async with Cluster(settings=SIX) as cluster, guests() as guest:
            first = guest(cluster.bootstrap_servers, ["t"])
            await settled([first], T6)
            second = guest(cluster.bootstrap_servers, ["t"])
            await settled([first, second], T6)
            assert first.owner.heard("revoke") == [T6]
            what, _, why = first.owner.told[1]
            assert (what, why) == (
                "revoke",
                "the coordinator told so: members or their subscriptions changed",
            )

    run(scenario())


def test_a_member_that_falls_silent_loses_its_partitions_to_others() -> None:
    async def scenario() -> None:
        settings = {**SIX, "group.min.session.timeout.ms": 100}
        async with Cluster(settings=settings) as cluster, guests() as guest:
            first = guest(cluster.bootstrap_servers, ["t"], session_timeout_ms=400)
            second = guest(cluster.bootstrap_servers, ["t"], session_timeout_ms=400)
            await settled([first, second], T6)
            await first.close()
            await settled([second], T6)

    run(scenario())


def test_a_member_that_hears_nothing_loses_its_partitions_by_itself() -> None:
    async def scenario() -> None:
        settings = {**SIX, "group.min.session.timeout.ms": 100}
        async with Cluster(settings=settings) as cluster, guests() as guest:
            one = guest(cluster.bootstrap_servers, ["t"], session_timeout_ms=400)
            await settled([one], T6)
            member_id = one.membership.identity.member_id
            with cluster.brokers[0].pause():
                await until(lambda: not one.has)
                what, partitions, why = one.owner.told[-1]
                assert (what, partitions) == ("lose", T6)
                assert why == "no heartbeat was answered within session.timeout.ms"
                assert not one.membership.is_member
            await settled([one], T6)
            assert member_id

    run(scenario())


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    async def scenario() -> None:
        async with Cluster(settings=SIX) as cluster, guests() as guest:

            def join(name: str) -> Guest:
                return guest(cluster.bootstrap_servers, ["t"], group_instance_id=name)

            first, second = join("one"), join("two")
            await settled([first, second], T6)
            had, generation = second.has, first.membership.identity.generation
            told = len(first.owner.told)
            await second.leave()  # a static member does not send LeaveGroup
            again = join("two")
            await settled([first, again], T6)
            assert again.has == had
            assert again.membership.identity.generation == generation
            assert len(first.owner.told) == told
            # The same for the leader of the group.
            had = first.has
            await first.leave()
            leader = join("one")
            await settled([leader, again], T6)
            assert leader.has == had
            assert leader.membership.identity.generation == generation

    run(scenario())


def test_two_with_one_instance_id_the_older_one_is_told_and_ends() -> None:
    async def scenario() -> None:
        async with Cluster(settings=SIX) as cluster, guests() as guest:
            first = guest(cluster.bootstrap_servers, ["t"], group_instance_id="same")
            await settled([first], T6)
            second = guest(cluster.bootstrap_servers, ["t"], {}, group_instance_id="same")
            await until(first.life.done)
            with pytest.raises(RequestError, match=r"group\.instance\.id") as fenced:
                first.life.result()
            assert fenced.value.code is ErrorCode.FENCED_INSTANCE_ID
            assert first.owner.told[-1] == ("lose", T6, str(fenced.value))
            await settled([second], T6)

    run(scenario())


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_coordinator_that_was_restarted_is_found_again(strategy: str) -> None:
    async def scenario() -> None:
        async with Cluster(settings=SIX) as cluster, guests() as guest:
            members = [
                guest(cluster.bootstrap_servers, ["t"], partition_assignment_strategy=strategy)
                for _ in range(2)
            ]
            await settled(members, T6)
            await cluster.brokers[0].stop()
            await asyncio.sleep(0.3)
            await cluster.brokers[0].start()
            await settled(members, T6)
            members.append(
                guest(cluster.bootstrap_servers, ["t"], partition_assignment_strategy=strategy)
            )
            await settled(members, T6)
            assert not any(one.owner.heard("lose") for one in members)

    run(scenario())


def test_a_late_poll_leaves_the_group_and_the_next_joins_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with Cluster(settings=SIX) as cluster, guests() as guest:
            # It leaves, because its session would outlast the test.
            slow = guest(
                cluster.bootstrap_servers,
                ["t"],
                max_poll_interval_ms=600,
                session_timeout_ms=60_000,
            )
            other = guest(cluster.bootstrap_servers, ["t"])
            await settled([slow, other], T6)
            had = slow.has
            slow.is_polling = False
            await settled([other], T6)
            assert ("lose", had, "no poll within max.poll.interval.ms") in slow.owner.told
            assert slow.membership.waiting_for == "a poll: no poll within max.poll.interval.ms"
            assert not slow.membership.identity.is_member
            slow.is_polling = True
            await settled([slow, other], T6)

    run(scenario())
    lines = [one.message for one in caplog.records if "max.poll.interval.ms" in one.message]
    assert "joins again at the next poll" in lines[0]


def test_a_late_poll_counts_while_partitions_are_given_up() -> None:
    """The owner waits for the application, which is stuck; other members do not have to wait."""

    async def scenario() -> None:
        async with Cluster(settings=SIX) as cluster, guests() as guest:
            settings = {"max_poll_interval_ms": 600, "session_timeout_ms": 60_000}
            stuck = guest(cluster.bootstrap_servers, ["t"], **settings)
            await settled([stuck], T6)
            polled = asyncio.Event()

            async def waits(partitions: frozenset[TopicPartition]) -> None:
                stuck.owner.drop(partitions)  # no records of these partitions are returned any more
                await polled.wait()

            stuck.owner.on_revoke = waits
            stuck.is_polling = False
            other = guest(cluster.bootstrap_servers, ["t"])
            await settled([other], T6)
            stuck.owner.on_revoke = None
            stuck.is_polling = True
            polled.set()
            await settled([stuck, other], T6)

    run(scenario())


def test_heartbeats_go_on_while_partitions_are_given_up() -> None:
    """A revoke callback that takes longer than the session does not end the membership."""

    async def scenario() -> None:
        settings = {**SIX, "group.min.session.timeout.ms": 100}
        async with Cluster(settings=settings) as cluster, guests() as guest:
            first = guest(cluster.bootstrap_servers, ["t"], session_timeout_ms=1500)
            await settled([first], T6)
            member_id = first.membership.identity.member_id
            began = asyncio.Event()

            async def slowly(_: object) -> None:
                began.set()
                await asyncio.sleep(2)

            first.owner.on_revoke = slowly
            second = guest(cluster.bootstrap_servers, ["t"], session_timeout_ms=1500)
            await began.wait()
            await settled([first, second], T6)
            assert first.membership.identity.member_id == member_id
            assert not first.owner.heard("lose")

    run(scenario())


def test_nothing_waits_behind_a_join_that_waits_for_others() -> None:
    """Offsets can be fetched and the group left while another member delays the rebalance."""

    async def scenario() -> None:
        async with Cluster(settings=SIX) as cluster, guests() as guest:
            quick, slow = (guest(cluster.bootstrap_servers, ["t"]) for _ in range(2))
            await settled([quick, slow], T6)
            go_on = asyncio.Event()

            async def slowly(_: object) -> None:
                await go_on.wait()

            slow.owner.on_revoke = slowly
            third = guest(cluster.bootstrap_servers, ["t"])
            waits = "the other members of the group to join"
            await until(lambda: quick.membership.waiting_for == waits)
            assert await quick.commits.committed(T6, 5) == dict.fromkeys(T6)
            assert quick.membership.waiting_for == waits
            async with asyncio.timeout(5):
                await quick.leave()
            go_on.set()
            await settled([slow, third], T6)

    run(scenario())


def test_the_leader_joins_again_when_partitions_are_added() -> None:
    async def scenario() -> None:
        async with Cluster(settings=SIX) as cluster, guests() as guest:
            members = [
                guest(cluster.bootstrap_servers, ["t"], metadata_max_age_ms=200) for _ in range(2)
            ]
            await settled(members, T6)
            await grow(members[0], "t", 8)
            await settled(members, all_of("t", 8))

    run(scenario())


async def grow(member: Guest, topic: str, count: int) -> None:
    channel = await member.metadata.any_channel()
    wanted = CreatePartitionsTopic(name=topic, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=5000, validate_only=False)
    answer = await channel.ask(request, CreatePartitionsResponse, 10)
    assert not answer.results[0].error_code


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_subscription_that_changes_is_shared_anew(strategy: str) -> None:
    async def scenario() -> None:
        settings = {"partition_assignment_strategy": strategy}
        async with Cluster(settings=SIX) as cluster, guests() as guest:
            one = guest(cluster.bootstrap_servers, ["t"], **settings)
            other = guest(cluster.bootstrap_servers, ["t", "u"], **settings)
            await settled([one, other], T6 | all_of("u", 6), least=3)
            one.owner.subscribed = frozenset({"u"})
            one.membership.rejoin("the subscription changed")
            await settled([one, other], T6 | all_of("u", 6), least=3)
            assert {partition.topic for partition in one.has} == {"u"}
            assert other.has >= T6

    run(scenario())


def test_members_share_topics_that_only_some_subscribed_to() -> None:
    async def scenario() -> None:
        async with Cluster(settings=SIX) as cluster, guests() as guest:
            one = guest(cluster.bootstrap_servers, ["t"])
            other = guest(cluster.bootstrap_servers, ["u"])
            await settled([one, other], T6 | all_of("u", 6))
            assert (one.has, other.has) == (T6, all_of("u", 6))

    run(scenario())


def test_members_without_a_common_assignor_are_told() -> None:
    async def scenario() -> None:
        async with Cluster(settings=SIX) as cluster, guests() as guest:
            one = guest(cluster.bootstrap_servers, ["t"], partition_assignment_strategy="range")
            await settled([one], T6)
            other = guest(cluster.bootstrap_servers, ["t"], partition_assignment_strategy="sticky")
            await until(other.life.done)
            with pytest.raises(RequestError, match="assignor") as refused:
                other.life.result()
            assert refused.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            await settled([one], T6)

    run(scenario())


def test_offsets_are_kept_while_partitions_are_given_up() -> None:
    async def scenario() -> None:
        async with Cluster(settings=SIX) as cluster, guests() as guest:
            first = guest(cluster.bootstrap_servers, ["t"])
            await settled([first], T6)

            async def commit(partitions: frozenset[TopicPartition]) -> None:
                await first.commits.commit(
                    {one: OffsetAndMetadata(7 + one.partition) for one in partitions}, 10
                )

            first.owner.on_revoke = commit
            second = guest(cluster.bootstrap_servers, ["t"])
            await settled([first, second], T6)
            found = await second.commits.committed(T6, 10)
            assert found == {one: OffsetAndMetadata(7 + one.partition) for one in T6}

    run(scenario())
