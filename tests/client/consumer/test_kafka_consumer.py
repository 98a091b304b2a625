"""The consumer against Apache Kafka."""

import asyncio

import pytest

from client.close_scenarios import LEAVING, Leaving
from client.consumer_scenarios import ANYWHERE, Scenario, new_topic, take, write
from client.rebalance_scenarios import TOGETHER, member
from client.scenario_runner import run
from ottla import BrokerPattern, ErrorCode, RequestError
from shared_kafka import SharedKafka


@pytest.fixture
def servers(shared_kafka: SharedKafka) -> str:
    return shared_kafka.bootstrap


@pytest.mark.parametrize("scenario", [*ANYWHERE, *TOGETHER], ids=lambda scenario: scenario.__name__)
def test_consumer_scenarios_hold_on_kafka(servers: str, scenario: Scenario) -> None:
    run(scenario(servers, new_topic("t")))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("scenario", LEAVING, ids=lambda scenario: scenario.__name__)
def test_subscriptions_end_at_any_moment(servers: str, scenario: Leaving, protocol: str) -> None:
    run(scenario(servers, new_topic("t"), {"group_protocol": protocol}), 120)


def test_broker_pattern_is_matched_by_the_broker(servers: str) -> None:
    async def scenario() -> None:
        topic = new_topic("t")
        for name in ("a", "b"):
            await write(servers, f"{topic}-{name}", 1)
        seen: set[str] = set()
        async with member(servers, topic, group_protocol="consumer") as ours:

            async def assigned(*names: str) -> None:
                wanted = {f"{topic}-{name}" for name in names}
                async with asyncio.timeout(60):
                    while {one.topic for one in ours.assignment} != wanted:
                        seen.update(one.topic for one in await ours.poll(0.05))

            ours.subscribe(pattern=BrokerPattern(f"{topic}-[[:alpha:]]"))  # not a Python pattern
            await assigned("a", "b")
            while len(seen) < 2:
                seen.update(one.topic for one in await ours.poll())
            ours.subscribe(pattern=BrokerPattern(f"{topic}-b"))
            await assigned("b")
            ours.subscribe(f"{topic}-a")
            await assigned("a")
            ours.subscribe(pattern=f"{topic}-(?=b).")  # not an RE2 pattern
            await assigned("b")
            ours.subscribe(pattern=BrokerPattern(f"{topic}-a"))
            await assigned("a")

    run(scenario(), 120)


def test_invalid_pattern_fails_and_another_may_follow(
    servers: str,
) -> None:
    async def scenario() -> None:
        topic = new_topic("t")
        await write(servers, topic, 1)
        async with member(servers, topic, group_protocol="consumer") as ours:
            ours.subscribe(topic)  # now the coordinator knows the member
            assert len(await take(ours, 1)) == 1
            await ours.unsubscribe()
            await write(servers, topic, 1)
            ours.subscribe(pattern=BrokerPattern(f"{topic}("))
            with pytest.raises(RequestError, match=r"missing closing \)") as caught:
                await take(ours, 1)
            assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
            assert not caught.value.retriable
            ours.subscribe(pattern=BrokerPattern(topic))
            assert len(await take(ours, 1)) == 1

    run(scenario(), 120)


def test_broker_pattern_needs_kip848(servers: str) -> None:
    async def scenario() -> None:
        async with member(servers, "g", group_protocol="classic") as ours:
            with pytest.raises(ValueError, match=r"requires group\.protocol=consumer.*as a str"):
                ours.subscribe(pattern=BrokerPattern("t.*"))
        with pytest.raises(ValueError, match="must not be empty"):
            BrokerPattern("")

    run(scenario())
