"""The same requests to our broker and to a real Kafka 4.3, and the same answers, field by field.

Where they are not, `known_differences` says why.
"""

import pytest

from compat import config_scenarios, group_scenarios, record_scenarios, topic_scenarios
from compat.asking import Difference, asker, differences
from compat.known_differences import KNOWN, Known
from judges.ottla_broker import ottla_broker
from kafka_java import kafka_broker
from ottla.broker.dispatch import HANDLERS

SCENARIOS = {
    scenario.__name__: scenario
    for module in (topic_scenarios, config_scenarios, record_scenarios, group_scenarios)
    for scenario in module.SCENARIOS
}


class Judgement:
    """Everything that was asked and is different."""

    def __init__(self) -> None:
        self.differences: dict[str, list[Difference]] = {}
        self.asked: set[str] = set()


@pytest.fixture(scope="module")
def judgement() -> Judgement:
    found = Judgement()
    with ottla_broker() as ours, kafka_broker() as kafka:
        for name, scenario in SCENARIOS.items():
            with asker(ours) as mine, asker(kafka) as other:
                scenario(mine)
                scenario(other)
            found.differences[name] = differences(name, mine.answers, other.answers)
            found.asked |= {one.api for one in mine.answers}
    return found


def known(one: Difference) -> list[Known]:
    return [row for row in KNOWN if row.covers(one.api, one.scenario, one.path, one[-2], one[-1])]


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_answer_is_kafkas(judgement: Judgement, name: str) -> None:
    unknown = [one for one in judgement.differences[name] if not known(one)]
    assert not unknown, "\n".join(map(str, unknown))


@pytest.mark.parametrize("row", KNOWN, ids=[row.what for row in KNOWN])
def test_every_known_difference_is_one(judgement: Judgement, row: Known) -> None:
    everything = [one for found in judgement.differences.values() for one in found]
    assert any(row in known(one) for one in everything)


def test_every_api_that_is_served_was_asked(judgement: Judgement) -> None:
    assert {api.name for api in HANDLERS} <= judgement.asked
