"""Group membership on Apache Kafka, in both protocols."""

import asyncio
from itertools import count

import pytest

from client.group.harness import (
    HarnessMember,
    MuteNetwork,
    all_of,
    member_factory,
    tp,
    wait_until_stable,
)
from client.scenario_runner import run, until
from judges.kafka_broker import KafkaBroker
from ottla.client.admin import NewTopic
from ottla.client.group.commits import CommitFailed
from ottla.client.group.offsets import OffsetAndMetadata
from ottla.errors import ErrorCode, RequestError
from ottla.ids import TopicPartition
from ottla.sync import Admin
from shared_kafka import SharedKafka

STRATEGIES = ["range", "roundrobin", "sticky", "cooperative-sticky"]
NUMBERS = count()


@pytest.fixture
def kafka(shared_kafka: SharedKafka) -> KafkaBroker:
    return shared_kafka.broker


@pytest.fixture
def topic(kafka: KafkaBroker) -> str:
    """Create a topic with six partitions, and two more named with -a and -b."""
    name = f"members-{next(NUMBERS)}"
    with Admin(bootstrap_servers=kafka.bootstrap) as admin:
        made = admin.create_topics([NewTopic(f"{name}{end}", 6) for end in ("", "-a", "-b")])
        made.or_raise()
    return name


PROTOCOLS = [*STRATEGIES, "uniform", "remote range"]


def settings_of(protocol: str, topic: str) -> dict[str, object]:
    group = {"group_id": f"group-of-{topic}"}
    if protocol in STRATEGIES:
        return {**group, "partition_assignment_strategy": protocol}
    return {
        **group,
        "group_protocol": "consumer",
        "group_remote_assignor": protocol.removeprefix("remote "),
    }


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_partition_has_one_owner_as_members_change(
    kafka: KafkaBroker, topic: str, protocol: str
) -> None:
    async def scenario() -> None:
        async with member_factory() as make_member:
            whole = all_of(topic, 6)

            def join() -> HarnessMember:
                return make_member(kafka.bootstrap, [topic], **settings_of(protocol, topic))

            members = [join()]
            await wait_until_stable(members, whole)
            members.append(join())
            await wait_until_stable(members, whole)
            members += [join() for _ in range(5)]
            await wait_until_stable(members, whole)
            for one in members[2:]:
                await one.leave()
            await wait_until_stable(members[:2], whole)
            await members[0].leave()
            await wait_until_stable(members[1:2], whole)
            assert not any(one.owner.heard("lose") for one in members)

    run(scenario())


@pytest.mark.parametrize("protocol", ["cooperative-sticky", "uniform"])
def test_remaining_partitions_are_never_revoked(
    kafka: KafkaBroker, topic: str, protocol: str
) -> None:
    async def scenario() -> None:
        async with member_factory() as make_member:
            settings = settings_of(protocol, topic)
            first = make_member(kafka.bootstrap, [topic], **settings)
            await wait_until_stable([first], all_of(topic, 6))
            second = make_member(kafka.bootstrap, [topic], **settings)
            await wait_until_stable([first, second], all_of(topic, 6))
            [moved] = first.owner.heard("revoke")
            assert moved == second.has

    run(scenario())


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky", "uniform"])
def test_only_the_owner_can_commit(kafka: KafkaBroker, topic: str, protocol: str) -> None:
    async def scenario() -> None:
        async with member_factory() as make_member:
            settings = settings_of(protocol, topic)
            first = make_member(kafka.bootstrap, [topic], **settings)
            await wait_until_stable([first], all_of(topic, 6))

            async def commit(partitions: frozenset[TopicPartition]) -> None:
                await first.commits.commit(
                    {one: OffsetAndMetadata(one.partition, "given up") for one in partitions}, 10
                )

            first.owner.on_revoke = commit
            await commit(all_of(topic, 6))
            second = make_member(kafka.bootstrap, [topic], **settings)
            await wait_until_stable([first, second], all_of(topic, 6))
            found = await second.commits.committed([*all_of(topic, 6)], 10)
            assert found == {
                one: OffsetAndMetadata(one.partition, "given up") for one in all_of(topic, 6)
            }
            # After leaving, a member cannot commit.
            await first.membership.leave(10)
            with pytest.raises(CommitFailed, match=r"max\.poll\.interval\.ms") as refused:
                await first.commits.commit({tp(topic, 0): OffsetAndMetadata(9)}, 10)
            assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID

    run(scenario())


def test_pattern_is_resolved_by_the_broker(kafka: KafkaBroker, topic: str) -> None:
    async def scenario() -> None:
        async with member_factory() as make_member:
            settings = settings_of("uniform", topic)
            maker = make_member(kafka.bootstrap, [f"{topic}-a", f"{topic}-b"], group_id="other")
            await wait_until_stable([maker], all_of(f"{topic}-a", 6) | all_of(f"{topic}-b", 6))
            one = make_member(kafka.bootstrap, [], pattern=f"{topic}-.*", **settings)
            await wait_until_stable([one], all_of(f"{topic}-a", 6) | all_of(f"{topic}-b", 6))
            one.owner.regex = f"{topic}-b"
            one.membership.rejoin("the subscription changed")
            await wait_until_stable([one], all_of(f"{topic}-b", 6))
            one.owner.regex, one.owner.subscribed = None, frozenset({f"{topic}-a"})
            one.membership.rejoin("the subscription changed")
            await wait_until_stable([one], all_of(f"{topic}-a", 6))

    run(scenario())


def test_invalid_pattern_is_reported(kafka: KafkaBroker, topic: str) -> None:
    async def scenario() -> None:
        async with member_factory() as make_member:
            one = make_member(kafka.bootstrap, [], pattern="(", **settings_of("uniform", topic))
            await until(one.life.done)
            with pytest.raises(RequestError) as refused:
                one.life.result()
            assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION

    run(scenario())


def test_fenced_member_loses_its_partitions_and_rejoins(kafka: KafkaBroker, topic: str) -> None:
    """It was silent for longer than its session, and another member has its partitions."""

    async def scenario() -> None:
        async with member_factory() as make_member:
            settings = settings_of("uniform", topic)
            network = MuteNetwork()
            # The member cannot know its session timeout, so for a while there are two owners.
            first = make_member(kafka.bootstrap, [topic], {}, network=network, **settings)
            await wait_until_stable([first], all_of(topic, 6))
            second = make_member(kafka.bootstrap, [topic], **settings)
            await wait_until_stable([first, second], all_of(topic, 6))
            had = first.has
            network.is_mute = True
            network.cut()
            await wait_until_stable([second], all_of(topic, 6))
            network.is_mute = False
            await wait_until_stable([first, second], all_of(topic, 6))
            assert first.owner.heard("lose") == [had]

    run(scenario())


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky", "uniform"])
def test_static_member_gets_its_partitions_back(
    kafka: KafkaBroker, topic: str, protocol: str
) -> None:
    async def scenario() -> None:
        async with member_factory() as make_member:
            settings = settings_of(protocol, topic)

            def join(name: str) -> HarnessMember:
                return make_member(kafka.bootstrap, [topic], group_instance_id=name, **settings)

            first, second = join("one"), join("two")
            await wait_until_stable([first, second], all_of(topic, 6))
            had, result = second.has, len(first.owner.told)
            await second.leave()
            await asyncio.sleep(0.5)  # ten heartbeats of the other member, which sees no rebalance
            assert len(first.owner.told) == result
            again = join("two")
            await wait_until_stable([first, again], all_of(topic, 6))
            assert again.has == had
            assert len(first.owner.told) == result

    run(scenario())


@pytest.mark.parametrize("protocol", ["range", "uniform"])
def test_late_poll_leaves_and_the_next_poll_rejoins(
    kafka: KafkaBroker, topic: str, protocol: str
) -> None:
    async def scenario() -> None:
        async with member_factory() as make_member:
            settings = settings_of(protocol, topic)
            slow = make_member(kafka.bootstrap, [topic], max_poll_interval_ms=1000, **settings)
            other = make_member(kafka.bootstrap, [topic], **settings)
            await wait_until_stable([slow, other], all_of(topic, 6))
            slow.is_polling = False
            await wait_until_stable([other], all_of(topic, 6))
            assert slow.owner.told[-1][0] == "lose"
            slow.is_polling = True
            await wait_until_stable([slow, other], all_of(topic, 6))

    run(scenario())


def test_unsupported_assignor_is_reported(kafka: KafkaBroker, topic: str) -> None:
    async def scenario() -> None:
        async with member_factory() as make_member:
            settings = settings_of("fair", topic)
            one = make_member(kafka.bootstrap, [topic], **settings)
            await until(one.life.done)
            with pytest.raises(RequestError) as refused:
                one.life.result()
            assert refused.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR

    run(scenario())
