"""Group membership on Apache Kafka, in both protocols."""

import asyncio
from itertools import count

import pytest

from client.group.harness import Guest, Mute, all_of, guests, settled, tp
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
def test_members_come_and_go_and_every_partition_has_one_owner(
    kafka: KafkaBroker, topic: str, protocol: str
) -> None:
    async def scenario() -> None:
        async with guests() as guest:
            whole = all_of(topic, 6)

            def join() -> Guest:
                return guest(kafka.bootstrap, [topic], **settings_of(protocol, topic))

            members = [join()]
            await settled(members, whole)
            members.append(join())
            await settled(members, whole)
            members += [join() for _ in range(5)]
            await settled(members, whole)
            for one in members[2:]:
                await one.leave()
            await settled(members[:2], whole)
            await members[0].leave()
            await settled(members[1:2], whole)
            assert not any(one.owner.heard("lose") for one in members)

    run(scenario())


@pytest.mark.parametrize("protocol", ["cooperative-sticky", "uniform"])
def test_what_stays_is_never_given_up(kafka: KafkaBroker, topic: str, protocol: str) -> None:
    async def scenario() -> None:
        async with guests() as guest:
            settings = settings_of(protocol, topic)
            first = guest(kafka.bootstrap, [topic], **settings)
            await settled([first], all_of(topic, 6))
            second = guest(kafka.bootstrap, [topic], **settings)
            await settled([first, second], all_of(topic, 6))
            [moved] = first.owner.heard("revoke")
            assert moved == second.has

    run(scenario())


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky", "uniform"])
def test_offsets_are_kept_by_the_one_who_has_the_partition(
    kafka: KafkaBroker, topic: str, protocol: str
) -> None:
    async def scenario() -> None:
        async with guests() as guest:
            settings = settings_of(protocol, topic)
            first = guest(kafka.bootstrap, [topic], **settings)
            await settled([first], all_of(topic, 6))

            async def commit(partitions: frozenset[TopicPartition]) -> None:
                await first.commits.commit(
                    {one: OffsetAndMetadata(one.partition, "given up") for one in partitions}, 10
                )

            first.owner.on_revoke = commit
            await commit(all_of(topic, 6))
            second = guest(kafka.bootstrap, [topic], **settings)
            await settled([first, second], all_of(topic, 6))
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


def test_a_pattern_is_resolved_by_the_broker(kafka: KafkaBroker, topic: str) -> None:
    async def scenario() -> None:
        async with guests() as guest:
            settings = settings_of("uniform", topic)
            maker = guest(kafka.bootstrap, [f"{topic}-a", f"{topic}-b"], group_id="other")
            await settled([maker], all_of(f"{topic}-a", 6) | all_of(f"{topic}-b", 6))
            one = guest(kafka.bootstrap, [], pattern=f"{topic}-.*", **settings)
            await settled([one], all_of(f"{topic}-a", 6) | all_of(f"{topic}-b", 6))
            one.owner.regex = f"{topic}-b"
            one.membership.rejoin("the subscription changed")
            await settled([one], all_of(f"{topic}-b", 6))
            one.owner.regex, one.owner.subscribed = None, frozenset({f"{topic}-a"})
            one.membership.rejoin("the subscription changed")
            await settled([one], all_of(f"{topic}-a", 6))

    run(scenario())


def test_a_pattern_that_cannot_be_read_is_told(kafka: KafkaBroker, topic: str) -> None:
    async def scenario() -> None:
        async with guests() as guest:
            one = guest(kafka.bootstrap, [], pattern="(", **settings_of("uniform", topic))
            await until(one.life.done)
            with pytest.raises(RequestError) as refused:
                one.life.result()
            assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION

    run(scenario())


def test_a_member_that_was_fenced_loses_all_and_comes_back(kafka: KafkaBroker, topic: str) -> None:
    """It was silent for longer than its session, and another member has its partitions."""

    async def scenario() -> None:
        async with guests() as guest:
            settings = settings_of("uniform", topic)
            network = Mute()
            # The member cannot know its session timeout, so for a while there are two owners.
            first = guest(kafka.bootstrap, [topic], {}, network=network, **settings)
            await settled([first], all_of(topic, 6))
            second = guest(kafka.bootstrap, [topic], **settings)
            await settled([first, second], all_of(topic, 6))
            had = first.has
            network.is_mute = True
            network.cut()
            await settled([second], all_of(topic, 6))
            network.is_mute = False
            await settled([first, second], all_of(topic, 6))
            assert first.owner.heard("lose") == [had]

    run(scenario())


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky", "uniform"])
def test_a_static_member_gets_back_what_it_had(
    kafka: KafkaBroker, topic: str, protocol: str
) -> None:
    async def scenario() -> None:
        async with guests() as guest:
            settings = settings_of(protocol, topic)

            def join(name: str) -> Guest:
                return guest(kafka.bootstrap, [topic], group_instance_id=name, **settings)

            first, second = join("one"), join("two")
            await settled([first, second], all_of(topic, 6))
            had, told = second.has, len(first.owner.told)
            await second.leave()
            await asyncio.sleep(0.5)  # ten heartbeats of the other member, which sees no rebalance
            assert len(first.owner.told) == told
            again = join("two")
            await settled([first, again], all_of(topic, 6))
            assert again.has == had
            assert len(first.owner.told) == told

    run(scenario())


@pytest.mark.parametrize("protocol", ["range", "uniform"])
def test_a_late_poll_leaves_and_the_next_joins(
    kafka: KafkaBroker, topic: str, protocol: str
) -> None:
    async def scenario() -> None:
        async with guests() as guest:
            settings = settings_of(protocol, topic)
            slow = guest(kafka.bootstrap, [topic], max_poll_interval_ms=1000, **settings)
            other = guest(kafka.bootstrap, [topic], **settings)
            await settled([slow, other], all_of(topic, 6))
            slow.is_polling = False
            await settled([other], all_of(topic, 6))
            assert slow.owner.told[-1][0] == "lose"
            slow.is_polling = True
            await settled([slow, other], all_of(topic, 6))

    run(scenario())


def test_an_assignor_that_the_broker_does_not_have_is_told(kafka: KafkaBroker, topic: str) -> None:
    async def scenario() -> None:
        async with guests() as guest:
            settings = settings_of("fair", topic)
            one = guest(kafka.bootstrap, [topic], **settings)
            await until(one.life.done)
            with pytest.raises(RequestError) as refused:
                one.life.result()
            assert refused.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR

    run(scenario())
