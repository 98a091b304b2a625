"""Topics that are trimmed, deleted or created again under streams of a real Spark.

`make test` takes a sample of the kinds of loss, and `make soak` takes all of them. `make judge`
also runs all of them, with Spark's official connector. test_lost_topics.py has more, without Spark.
"""

import shutil
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

from judges.ottla_broker import OttlaBroker, ottla_broker
from ottla.ids import PartitionIndex, TopicPartition
from ottla.sync import Admin, Producer
from pipeline.queries import numbers_anywhere, source, taken
from sampling import sample

FIRST = range(30)


@pytest.fixture(scope="module")
def own_broker() -> Generator[OttlaBroker]:
    with ottla_broker({"auto.create.topics.enable": "false"}) as running:
        yield running


class SourceTopic:
    """Topics of three partitions, and what can be done to them."""

    def __init__(self, servers: str, admin: Admin) -> None:
        self.servers = servers
        self.admin = admin

    def make(self, topic: str, values: range) -> None:
        self.admin.create_topic(topic, 3)
        self.write(topic, values)

    def write(self, topic: str, values: range) -> None:
        with Producer({"bootstrap.servers": self.servers}) as producer:
            for n in values:
                producer.send(topic, b"%d" % n, partition=n % 3)

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic]).or_raise()


@pytest.fixture
def source_topic(own_broker: OttlaBroker) -> Generator[SourceTopic]:
    with Admin({"bootstrap.servers": own_broker.bootstrap}) as admin:
        yield SourceTopic(own_broker.bootstrap, admin)


def trim(source_topic: SourceTopic, topic: str) -> None:
    source_topic.write(topic, range(30, 60))
    first = TopicPartition(topic, PartitionIndex(0))
    source_topic.admin.delete_records({first: 15}).or_raise()


def remake_smaller(source_topic: SourceTopic, topic: str) -> None:
    source_topic.delete(topic)
    source_topic.make(topic, range(100, 115))


def remake_larger(source_topic: SourceTopic, topic: str) -> None:
    source_topic.delete(topic)
    source_topic.make(topic, range(100, 160))


def come_and_go(source_topic: SourceTopic, topic: str) -> None:
    source_topic.make(f"{topic}-more", range(30, 60))
    source_topic.delete(topic)


LOSSES: Mapping[str, tuple[Callable[[SourceTopic, str], None], str | None, list[int]]] = {
    "trimmed": (trim, "starts at 15", [n for n in range(30, 60) if n % 3 or n >= 45]),
    "created again with less": (
        remake_smaller, "ends at offset 5, before its starting offset 10", [],
    ),
    "created again with more": (remake_larger, None, [*range(130, 160)]),
    "created and deleted": (come_and_go, "do not exist any more", [*range(30, 60)]),
}  # fmt: skip
"""What happens to the topic, the error if it is a loss, and the values that are left to read."""


CASES = [
    *(("ottla", loss) for loss in sample(LOSSES, 2)),
    *(pytest.param("kafka", loss, marks=pytest.mark.judge) for loss in LOSSES),
]


@pytest.mark.parametrize(("name", "loss"), CASES)
def test_data_loss_fails_or_is_skipped_as_in_the_connector(
    spark: Any,
    source_topic: SourceTopic,
    topic: str,
    tmp_path: Path,
    name: str,
    loss: str,
) -> None:
    happens, is_lost, left = LOSSES[loss]
    source_topic.make(topic, FIRST)

    def frame(fails: str) -> Any:
        return source(
            spark,
            source_topic.servers,
            name,
            subscribePattern=f"^{topic}(-more)?$",
            failOnDataLoss=fails,
        ).select("value")

    taken(frame("true"), tmp_path / "before")
    shutil.rmtree(tmp_path / "before" / "rows")
    happens(source_topic, topic)
    for fails in ("true", "false"):
        folder = tmp_path / fails
        shutil.copytree(tmp_path / "before", folder)
        if is_lost is not None and fails == "true":
            with pytest.raises(Exception, match=is_lost if name == "ottla" else "data"):
                taken(frame(fails), folder)
        else:
            taken(frame(fails), folder)
            assert numbers_anywhere(spark, folder) == left, fails
