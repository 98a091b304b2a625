"""The consumer against Apache Kafka."""

from collections.abc import Iterator

import pytest

from client.consuming import ANYWHERE, Scenario, new_topic, run
from client.leaving import LEAVING, Leaving
from client.sharing import TOGETHER
from judges.kafka_broker import KafkaBroker


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    settings = {
        "num.partitions": 3,
        "auto.create.topics.enable": "true",
        "group.consumer.min.heartbeat.interval.ms": 100,
        "group.consumer.heartbeat.interval.ms": 100,
    }
    with KafkaBroker(settings) as kafka:
        yield kafka.bootstrap


@pytest.mark.parametrize("scenario", [*ANYWHERE, *TOGETHER], ids=lambda scenario: scenario.__name__)
def test_what_holds_anywhere_holds_here(servers: str, scenario: Scenario) -> None:
    run(scenario(servers, new_topic("t")))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("scenario", LEAVING, ids=lambda scenario: scenario.__name__)
def test_subscriptions_end_at_any_moment(servers: str, scenario: Leaving, protocol: str) -> None:
    run(scenario(servers, new_topic("t"), {"group_protocol": protocol}), 120)
