"""Our broker's responses, compared field by field with those of Kafka 4.3.1 to the same requests.

Kafka's responses are recorded. `known_differences` lists the differences with their reasons.
"""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from compat import config_scenarios, group_scenarios, record_scenarios, topic_scenarios
from compat.known_differences import KNOWN, Known
from compat.response_comparison import (
    Asker,
    Broker,
    Difference,
    Exchange,
    asker,
    differences,
    fields_of,
    rows,
)
from judges.ottla_broker import ottla_broker
from judges.recording import Json, Recording, Scenario
from kafka_java import kafka_broker
from ottla.broker.dispatch import HANDLERS
from recorded import recording, recording_name

__all__ = ["recording"]  # a fixture

pytestmark = pytest.mark.recorded

ANSWERS = recording_name(Path(__file__))

# Settings of the Kafka that was recorded. They have no effect in Ottla, which describes them.
KRAFT = {
    "process.roles": "broker,controller",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "broker.heartbeat.interval.ms": 500,
    "broker.session.timeout.ms": 6000,
}

SCENARIOS = {
    scenario.__name__: scenario
    for module in (topic_scenarios, config_scenarios, record_scenarios, group_scenarios)
    for scenario in module.SCENARIOS
}


class Comparison:
    """All requests and all differences."""

    def __init__(self) -> None:
        self.differences: dict[str, list[Difference]] = {}
        self.asked: set[str] = set()


@pytest.fixture(scope="module")
def judgement(recording: Recording) -> Comparison:
    found = Comparison()
    with ExitStack() as brokers:
        ours = brokers.enter_context(ottla_broker(KRAFT))
        kafka = brokers.enter_context(kafka_broker()) if recording.asks_kafka else None
        for name, ask_all in SCENARIOS.items():
            mine = answers_of(ours, ask_all)
            kafkas = None if kafka is None else answers_of(kafka, ask_all)
            with recording.scenario(name) as scenario:
                other = recorded_answers(scenario, mine, kafkas)
            found.differences[name] = differences(name, mine, other)
            found.asked |= {one.api for one in mine}
    return found


def answers_of(broker: Broker, ask_all: Callable[[Asker], None]) -> list[Exchange]:
    with asker(broker) as asking:
        ask_all(asking)
    return asking.answers


def recorded_answers(
    scenario: Scenario, ours: list[Exchange], kafkas: list[Exchange] | None
) -> list[Exchange]:
    """Kafka's responses to the requests that our broker got."""
    assert kafkas is None or [one.asked for one in ours] == [one.asked for one in kafkas]
    found: list[Exchange] = []
    for number, one in enumerate(ours):

        def ask(number: int = number) -> Json:
            assert kafkas is not None
            return rows(kafkas[number].fields)

        found.append(one._replace(fields=fields_of(scenario.answer(one.asked, ask))))
    return found


def known(one: Difference) -> list[Known]:
    return [row for row in KNOWN if row.covers(one.api, one.scenario, one.path, one[-2], one[-1])]


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_response_equals_kafka(judgement: Comparison, name: str) -> None:
    unknown = [one for one in judgement.differences[name] if not known(one)]
    assert not unknown, "\n".join(map(str, unknown))


@pytest.mark.parametrize("row", KNOWN, ids=[row.what for row in KNOWN])
def test_every_known_difference_exists(judgement: Comparison, row: Known) -> None:
    everything = [one for found in judgement.differences.values() for one in found]
    assert any(row in known(one) for one in everything)


def test_every_served_api_is_compared(judgement: Comparison) -> None:
    assert {api.name for api in HANDLERS} <= judgement.asked
