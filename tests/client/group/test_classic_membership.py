"""Classic group membership on Ottla: every partition has one owner through all rebalances."""

import asyncio
import logging

import pytest

from client.group.harness import HarnessMember, all_of, member_factory, wait_until_stable
from client.scenario_runner import run, until
from client.scripted_broker import ScriptedBroker
from ottla.client.group.offsets import OffsetAndMetadata
from ottla.errors import ErrorCode, RequestError
from ottla.ids import TopicPartition
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.testing import Cluster

SIX = {"num.partitions": 6}
T6 = all_of("t", 6)

STRATEGIES = ["range", "roundrobin", "sticky", "cooperative-sticky"]


def test_single_member_owns_every_partition() -> None:
    async def scenario() -> None:
        async with Cluster(settings=SIX) as cluster, member_factory() as make_member:
            one = make_member(cluster.bootstrap_servers, ["t"])
            assert one.membership.waiting_for == "joining the group: the consumer joins"
            await wait_until_stable([one], T6)
            assert one.owner.told == [("assign", T6, "the consumer joins")]
            assert one.membership.waiting_for is None
            identity = one.membership.identity
            assert (identity.group_id, identity.generation) == ("g", 1)
            assert identity.member_id
            await one.leave()
            assert not one.membership.identity.is_member

    run(scenario())


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_partition_has_one_owner_as_members_change(strategy: str) -> None:
    async def scenario() -> None:
        settings = {"partition_assignment_strategy": strategy}
        async with Cluster(settings=SIX) as cluster, member_factory() as make_member:

            def join() -> HarnessMember:
                return make_member(cluster.bootstrap_servers, ["t"], **settings)

            members = [join()]
            await wait_until_stable(members, T6)
            members.append(join())
            await wait_until_stable(members, T6)
            members += [join() for _ in range(6)]  # two more members than partitions
            await wait_until_stable(members, T6)
            assert sorted(len(one.has) for one in members) == [0, 0, 1, 1, 1, 1, 1, 1]
            for one in members[1:]:
                await one.leave()
            await wait_until_stable(members[:1], T6)

    run(scenario())


def test_cooperative_member_keeps_its_remaining_partitions() -> None:
    async def scenario() -> None:
        settings = {"partition_assignment_strategy": "cooperative-sticky"}
        async with Cluster(settings=SIX) as cluster, member_factory() as make_member:
            first = make_member(cluster.bootstrap_servers, ["t"], **settings)
            await wait_until_stable([first], T6)
            second = make_member(cluster.bootstrap_servers, ["t"], **settings)
            await wait_until_stable([first, second], T6)
            [moved] = first.owner.heard("revoke")
            assert moved == second.has
            assert len(moved) == 3
            await second.leave()
            await wait_until_stable([first], T6)
            assert first.owner.heard("revoke") == [moved]
            assert not first.owner.heard("lose")

    run(scenario())


def test_eager_member_revokes_all_before_rejoining() -> None:
    async def scenario() -> None:
        async with Cluster(settings=SIX) as cluster, member_factory() as make_member:
            first = make_member(cluster.bootstrap_servers, ["t"])
            await wait_until_stable([first], T6)
            second = make_member(cluster.bootstrap_servers, ["t"])
            await wait_until_stable([first, second], T6)
            assert first.owner.heard("revoke") == [T6]
            what, _, why = first.owner.told[1]
            assert (what, why) == (
                "revoke",
                "the coordinator started a rebalance: members or their subscriptions changed",
            )

    run(scenario())


def test_silent_member_loses_its_partitions_to_others() -> None:
    async def scenario() -> None:
        settings = {**SIX, "group.min.session.timeout.ms": 100}
        async with Cluster(settings=settings) as cluster, member_factory() as make_member:
            first = make_member(cluster.bootstrap_servers, ["t"], session_timeout_ms=400)
            second = make_member(cluster.bootstrap_servers, ["t"], session_timeout_ms=400)
            await wait_until_stable([first, second], T6)
            await first.close()
            await wait_until_stable([second], T6)

    run(scenario())


def test_member_without_responses_gives_up_its_partitions() -> None:
    async def scenario() -> None:
        settings = {**SIX, "group.min.session.timeout.ms": 100}
        async with Cluster(settings=settings) as cluster, member_factory() as make_member:
            one = make_member(cluster.bootstrap_servers, ["t"], session_timeout_ms=400)
            await wait_until_stable([one], T6)
            member_id = one.membership.identity.member_id
            with cluster.brokers[0].pause():
                await until(lambda: not one.has)
                what, partitions, why = one.owner.told[-1]
                assert (what, partitions) == ("lose", T6)
                assert why == "no heartbeat response within session.timeout.ms"
                assert not one.membership.is_member
            await wait_until_stable([one], T6)
            assert member_id

    run(scenario())


def test_static_member_returns_without_a_rebalance() -> None:
    async def scenario() -> None:
        async with Cluster(settings=SIX) as cluster, member_factory() as make_member:

            def join(name: str) -> HarnessMember:
                return make_member(cluster.bootstrap_servers, ["t"], group_instance_id=name)

            first, second = join("one"), join("two")
            await wait_until_stable([first, second], T6)
            had, generation = second.has, first.membership.identity.generation
            result = len(first.owner.told)
            await second.leave()  # a static member does not send LeaveGroup
            again = join("two")
            await wait_until_stable([first, again], T6)
            assert again.has == had
            assert again.membership.identity.generation == generation
            assert len(first.owner.told) == result
            # The same for the leader of the group.
            had = first.has
            await first.leave()
            leader = join("one")
            await wait_until_stable([leader, again], T6)
            assert leader.has == had
            assert leader.membership.identity.generation == generation

    run(scenario())


def test_duplicate_instance_id_fences_the_older_member() -> None:
    async def scenario() -> None:
        async with Cluster(settings=SIX) as cluster, member_factory() as make_member:
            first = make_member(cluster.bootstrap_servers, ["t"], group_instance_id="same")
            await wait_until_stable([first], T6)
            second = make_member(cluster.bootstrap_servers, ["t"], {}, group_instance_id="same")
            await until(first.life.done)
            with pytest.raises(RequestError, match=r"group\.instance\.id") as fenced:
                first.life.result()
            assert fenced.value.code is ErrorCode.FENCED_INSTANCE_ID
            assert first.owner.told[-1] == ("lose", T6, str(fenced.value))
            await wait_until_stable([second], T6)

    run(scenario())


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_restarted_coordinator_is_found_again(strategy: str) -> None:
    async def scenario() -> None:
        async with Cluster(settings=SIX) as cluster, member_factory() as make_member:
            members = [
                make_member(
                    cluster.bootstrap_servers, ["t"], partition_assignment_strategy=strategy
                )
                for _ in range(2)
            ]
            await wait_until_stable(members, T6)
            await cluster.brokers[0].stop()
            await asyncio.sleep(0.3)
            await cluster.brokers[0].start()
            await wait_until_stable(members, T6)
            members.append(
                make_member(
                    cluster.bootstrap_servers, ["t"], partition_assignment_strategy=strategy
                )
            )
            await wait_until_stable(members, T6)
            assert not any(one.owner.heard("lose") for one in members)

    run(scenario())


def test_late_poll_leaves_and_the_next_poll_rejoins(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with Cluster(settings=SIX) as cluster, member_factory() as make_member:
            # It leaves, because its session would outlast the test.
            slow = make_member(
                cluster.bootstrap_servers,
                ["t"],
                max_poll_interval_ms=600,
                session_timeout_ms=60_000,
            )
            other = make_member(cluster.bootstrap_servers, ["t"])
            await wait_until_stable([slow, other], T6)
            had = slow.has
            slow.is_polling = False
            await wait_until_stable([other], T6)
            assert ("lose", had, "no poll within max.poll.interval.ms") in slow.owner.told
            assert slow.membership.waiting_for == "a poll: no poll within max.poll.interval.ms"
            assert not slow.membership.identity.is_member
            slow.is_polling = True
            await wait_until_stable([slow, other], T6)

    run(scenario())
    lines = [one.message for one in caplog.records if "max.poll.interval.ms" in one.message]
    assert "joins again with the next poll" in lines[0]


def test_late_poll_counts_during_a_revocation() -> None:
    """The owner waits for the application, which is stuck; other members do not have to wait."""

    async def scenario() -> None:
        async with Cluster(settings=SIX) as cluster, member_factory() as make_member:
            settings = {"max_poll_interval_ms": 600, "session_timeout_ms": 60_000}
            stuck = make_member(cluster.bootstrap_servers, ["t"], **settings)
            await wait_until_stable([stuck], T6)
            polled = asyncio.Event()

            async def waits(partitions: frozenset[TopicPartition]) -> None:
                stuck.owner.drop(partitions)  # no records of these partitions are returned any more
                await polled.wait()

            stuck.owner.on_revoke = waits
            stuck.is_polling = False
            other = make_member(cluster.bootstrap_servers, ["t"])
            await wait_until_stable([other], T6)
            stuck.owner.on_revoke = None
            stuck.is_polling = True
            polled.set()
            await wait_until_stable([stuck, other], T6)

    run(scenario())


def test_heartbeats_continue_during_a_revocation() -> None:
    """A revoke callback that takes longer than the session does not end the membership."""

    async def scenario() -> None:
        settings = {**SIX, "group.min.session.timeout.ms": 100}
        async with Cluster(settings=settings) as cluster, member_factory() as make_member:
            first = make_member(cluster.bootstrap_servers, ["t"], session_timeout_ms=1500)
            await wait_until_stable([first], T6)
            member_id = first.membership.identity.member_id
            began = asyncio.Event()

            async def slowly(_: object) -> None:
                began.set()
                await asyncio.sleep(2)

            first.owner.on_revoke = slowly
            second = make_member(cluster.bootstrap_servers, ["t"], session_timeout_ms=1500)
            await began.wait()
            await wait_until_stable([first, second], T6)
            assert first.membership.identity.member_id == member_id
            assert not first.owner.heard("lose")

    run(scenario())


def test_pending_join_does_not_block_other_requests() -> None:
    """Offsets can be fetched and the group left while another member delays the rebalance."""

    async def scenario() -> None:
        async with Cluster(settings=SIX) as cluster, member_factory() as make_member:
            quick, slow = (make_member(cluster.bootstrap_servers, ["t"]) for _ in range(2))
            await wait_until_stable([quick, slow], T6)
            go_on = asyncio.Event()

            async def slowly(_: object) -> None:
                await go_on.wait()

            slow.owner.on_revoke = slowly
            third = make_member(cluster.bootstrap_servers, ["t"])
            waits = "the other members of the group to join"
            await until(lambda: quick.membership.waiting_for == waits)
            assert await quick.commits.committed(T6, 5) == dict.fromkeys(T6)
            assert quick.membership.waiting_for == waits
            async with asyncio.timeout(5):
                await quick.leave()
            go_on.set()
            await wait_until_stable([slow, third], T6)

    run(scenario())


def test_leader_rejoins_when_partitions_are_added() -> None:
    async def scenario() -> None:
        async with Cluster(settings=SIX) as cluster, member_factory() as make_member:
            members = [
                make_member(cluster.bootstrap_servers, ["t"], metadata_max_age_ms=200)
                for _ in range(2)
            ]
            await wait_until_stable(members, T6)
            await add_partitions(members[0], "t", 8)
            await wait_until_stable(members, all_of("t", 8))

    run(scenario())


async def add_partitions(member: HarnessMember, topic: str, count: int) -> None:
    channel = await member.metadata.any_channel()
    wanted = CreatePartitionsTopic(name=topic, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=5000, validate_only=False)
    answer = await channel.ask(request, CreatePartitionsResponse, 10)
    assert not answer.results[0].error_code


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_changed_subscription_triggers_a_rebalance(strategy: str) -> None:
    async def scenario() -> None:
        settings = {"partition_assignment_strategy": strategy}
        async with Cluster(settings=SIX) as cluster, member_factory() as make_member:
            one = make_member(cluster.bootstrap_servers, ["t"], **settings)
            other = make_member(cluster.bootstrap_servers, ["t", "u"], **settings)
            await wait_until_stable([one, other], T6 | all_of("u", 6), least=3)
            one.owner.subscribed = frozenset({"u"})
            one.membership.rejoin("the subscription changed")
            await wait_until_stable([one, other], T6 | all_of("u", 6), least=3)
            assert {partition.topic for partition in one.has} == {"u"}
            assert other.has >= T6

    run(scenario())


def test_members_get_only_their_subscribed_topics() -> None:
    async def scenario() -> None:
        async with Cluster(settings=SIX) as cluster, member_factory() as make_member:
            one = make_member(cluster.bootstrap_servers, ["t"])
            other = make_member(cluster.bootstrap_servers, ["u"])
            await wait_until_stable([one, other], T6 | all_of("u", 6))
            assert (one.has, other.has) == (T6, all_of("u", 6))

    run(scenario())


def test_members_without_a_common_assignor_are_refused() -> None:
    async def scenario() -> None:
        async with Cluster(settings=SIX) as cluster, member_factory() as make_member:
            one = make_member(
                cluster.bootstrap_servers, ["t"], partition_assignment_strategy="range"
            )
            await wait_until_stable([one], T6)
            other = make_member(
                cluster.bootstrap_servers, ["t"], partition_assignment_strategy="sticky"
            )
            await until(other.life.done)
            with pytest.raises(RequestError, match="assignor") as refused:
                other.life.result()
            assert refused.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            await wait_until_stable([one], T6)

    run(scenario())


def test_commit_in_a_revoke_callback_is_stored() -> None:
    async def scenario() -> None:
        async with Cluster(settings=SIX) as cluster, member_factory() as make_member:
            first = make_member(cluster.bootstrap_servers, ["t"])
            await wait_until_stable([first], T6)

            async def commit(partitions: frozenset[TopicPartition]) -> None:
                await first.commits.commit(
                    {one: OffsetAndMetadata(7 + one.partition) for one in partitions}, 10
                )

            first.owner.on_revoke = commit
            second = make_member(cluster.bootstrap_servers, ["t"])
            await wait_until_stable([first, second], T6)
            found = await second.commits.committed(T6, 10)
            assert found == {one: OffsetAndMetadata(7 + one.partition) for one in T6}

    run(scenario())


def test_long_wait_to_join_is_logged_with_the_reason(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.client.lifecycle.long_wait.LONG_S", 0.0)

    def refusal(_: object) -> JoinGroupResponse:
        return JoinGroupResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
            generation_id=-1,
            protocol_type=None,
            protocol_name="",
            leader="",
            skip_assignment=False,
            member_id="",
            members=[],
        )

    async def scenario() -> None:
        async with (
            ScriptedBroker({JoinGroupRequest: refusal}) as broker,
            member_factory() as make_member,
        ):
            found = Coordinator(
                key="g",
                node_id=1,
                host=broker.place.host,
                port=broker.place.port,
                error_code=0,
                error_message=None,
            )
            broker.answers[FindCoordinatorRequest] = lambda _: FindCoordinatorResponse(
                coordinators=[found]
            )
            make_member(broker.bootstrap_servers, ["t"])
            await until(lambda: broker.count(JoinGroupRequest) > 2)

    with caplog.at_level(logging.WARNING):
        run(scenario())
    logged = [one for one in caplog.messages if one.startswith("still waiting to join group g: ")]
    assert len(logged) == 1
    assert "COORDINATOR_NOT_AVAILABLE" in logged[0]
