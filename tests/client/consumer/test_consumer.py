"""The consumer against Ottla's broker, which runs in the same event loop."""

import pytest

from client.close_scenarios import LEAVING, Leaving
from client.consumer_scenarios import ANYWHERE, Scenario, consumer, new_topic, write
from client.rebalance_scenarios import TOGETHER, member
from client.scenario_runner import run
from ottla.errors import ErrorCode, RequestError
from ottla.testing import Cluster


@pytest.mark.parametrize("scenario", [*ANYWHERE, *TOGETHER], ids=lambda scenario: scenario.__name__)
def test_consumer_scenarios_hold_on_ottla(scenario: Scenario) -> None:
    async def with_a_broker() -> None:
        async with Cluster(settings={"num.partitions": 3}) as cluster:
            await scenario(cluster.bootstrap_servers, new_topic("t"))

    run(with_a_broker())


@pytest.mark.parametrize("scenario", LEAVING, ids=lambda scenario: scenario.__name__)
def test_subscriptions_end_at_any_moment(scenario: Leaving) -> None:
    async def with_a_broker() -> None:
        async with Cluster(settings={"num.partitions": 3}) as cluster:
            await scenario(cluster.bootstrap_servers, new_topic("t"), {})

    run(with_a_broker(), 120)


def test_fatal_group_error_is_raised_until_subscribe() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            servers, topic = cluster.bootstrap_servers, new_topic("t")
            await write(servers, topic, 1)
            async with consumer(servers, group_id="g", group_protocol="consumer") as ours:
                ours.subscribe(topic)
                for _ in range(3):
                    with pytest.raises(RequestError) as refused:
                        await ours.poll(30)
                    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
                    assert str(refused.value).count("group.protocol=classic") == 1
                await ours.unsubscribe()
                ours.assign((topic, 0))
                assert len(await ours.poll(30)) == 1

    run(scenario())


@pytest.mark.parametrize("topic", ["", "\ud800"])
def test_invalid_topic_name_is_refused_and_others_are_read(topic: str) -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            servers, good = cluster.bootstrap_servers, new_topic("t")
            await write(servers, good, 1)
            async with consumer(servers, group_id="g") as ours:
                with pytest.raises(RequestError, match="invalid topic name"):
                    ours.subscribe(topic)
                with pytest.raises(RequestError, match="invalid topic name"):
                    ours.assign((topic, 0))
                ours.assign((good, 0))
                assert len(await ours.poll(30)) == 1

    run(scenario())


def test_subscription_to_a_refused_name_raises_once() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            servers = cluster.bootstrap_servers
            await write(servers, "a.b", 1)
            async with consumer(servers, group_id="g") as ours:
                ours.subscribe("a.b", "a_b")
                with pytest.raises(RequestError, match=r"a_b: .*collides") as refused:
                    await anext(record async for record in ours if record.topic == "a_b")
                assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
                await ours.poll(0)  # the other topic can be read
                ours.subscribe("a_b")
                with pytest.raises(RequestError, match="a_b"):
                    await ours.poll(30)

    run(scenario())


def test_callback_may_change_the_subscription() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            servers = cluster.bootstrap_servers
            for topic in ("first", "second"):
                await write(servers, topic, 1)
            async with member(servers, "g") as ours:
                ours.subscribe("first", on_assigned=lambda came, why: ours.subscribe("second"))
                while "second" not in {one.topic for one in await ours.poll()}:
                    pass
                assert {one.topic for one in ours.assignment} == {"second"}

    run(scenario())
