"""The consumer against our own broker, which lives in the same event loop."""

import pytest

from client.consuming import ANYWHERE, Scenario, new_topic
from client.leaving import LEAVING, Leaving
from client.scenarios import run
from client.sharing import TOGETHER
from ottla.testing import Cluster


@pytest.mark.parametrize("scenario", [*ANYWHERE, *TOGETHER], ids=lambda scenario: scenario.__name__)
def test_what_holds_anywhere_holds_here(scenario: Scenario) -> None:
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
