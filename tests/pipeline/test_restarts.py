"""A stream that ends abruptly at any step of any micro-batch, and is started again.

`micro_batches.py` runs the micro-batches as Spark does; test_spark_trouble_kills.py kills Spark.
"""

import pytest

from cases import each_case
from judges.ottla_broker import OttlaBroker
from ottla.sync import Producer
from pipeline.micro_batches import MicroBatches
from sampling import sample

BATCH = 9
COUNTS = {"prepared": 1, "begun": 2, "looked": 3, "logged": 3, "planned": 3, "read": 3, "done": 3}
"""The steps of a query, and how often each is taken in three micro-batches."""


class Crash(Exception):
    """Ends a run of the query."""


def query(broker: OttlaBroker, topic: str, records: int) -> MicroBatches:
    """A query on a topic with a number of records."""
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        for n in range(records):
            producer.send(topic, b"%d" % n, partition=n % 3)
    return MicroBatches(
        **{"kafka.bootstrap.servers": broker.bootstrap},
        subscribe=topic,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=str(BATCH),
    )


def crash(one: MicroBatches, step: str, time: int) -> None:
    """Run the query until it has taken a step a number of times."""
    left = time

    def step_taken(taken: str) -> None:
        nonlocal left
        left -= taken == step
        if not left:
            raise Crash

    one.step_taken = step_taken
    with pytest.raises(Crash):
        one.run()
    one.step_taken = lambda _: None


def values(one: MicroBatches) -> list[int]:
    """The values of the micro-batches that were committed."""
    return sorted(n for batch in one.batches for n in batch)


@each_case(
    ("step", "time"),
    sample([(step, time + 1) for step, count in COUNTS.items() for time in range(count)], 6),
)
def test_crash_at_any_step_loses_and_repeats_nothing(
    broker: OttlaBroker, topic: str, step: str, time: int
) -> None:
    one = query(broker, f"{topic}-{step}-{time}", 4 * BATCH)
    crash(one, step, time)
    one.run()
    assert values(one) == [*range(4 * BATCH)]
    assert [len(batch) for batch in one.batches] == [BATCH] * 4


def test_crashes_at_successive_steps_lose_and_repeat_nothing(
    broker: OttlaBroker, topic: str
) -> None:
    one = query(broker, topic, 12 * BATCH)
    for step in COUNTS:
        crash(one, step, 1)
    one.run()
    assert values(one) == [*range(12 * BATCH)]
