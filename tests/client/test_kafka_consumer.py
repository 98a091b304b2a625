"""The consumer against Apache Kafka."""

from collections.abc import Iterator

import pytest

from client.consuming import ANYWHERE, Scenario, new_topic, run
from client.sharing import TOGETHER
from judges.kafka_broker import KafkaBroker


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    settings = {"num.partitions": 3, "auto.create.topics.enable": "true"}
    with KafkaBroker(settings) as kafka:
        yield kafka.bootstrap


@pytest.mark.parametrize("scenario", [*ANYWHERE, *TOGETHER], ids=lambda scenario: scenario.__name__)
def test_what_holds_anywhere_holds_here(servers: str, scenario: Scenario) -> None:
    run(scenario(servers, new_topic("t")))
