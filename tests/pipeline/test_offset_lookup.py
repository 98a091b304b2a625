"""Offset lookups on a real broker: their results and their requests."""

from collections import Counter
from typing import Any

import pytest

from judges.ottla_broker import OttlaBroker
from ottla.ids import PartitionIndex, TopicPartition
from ottla.pipeline.offset_lookup import OffsetLookup
from ottla.pipeline.options import Use
from ottla.pipeline.source_options import source_options
from ottla.protocol.messages.list_offsets import ListOffsetsRequest
from ottla.sync import Admin, Producer
from ottla.transport.channel import Channel

MANY = 1000


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the requests of each kind that are sent."""
    found: Counter[str] = Counter()
    posted: Any = Channel._post  # pyright: ignore[reportPrivateUsage]

    def post(self: Channel, message: Any, *arguments: Any) -> Any:
        found[type(message).__name__] += 1
        return posted(self, message, *arguments)

    monkeypatch.setattr(Channel, "_post", post)
    return found


@pytest.mark.parametrize("level", ["read_committed", " read_committed ", "read_uncommitted"])
def test_plan_and_tasks_use_the_same_isolation_level(
    broker: OttlaBroker, topic: str, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """Both strip blanks from the setting."""
    with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        admin.create_topic(topic, 1)
    levels: list[int] = []
    posted: Any = Channel._post  # pyright: ignore[reportPrivateUsage]

    def post(self: Channel, message: Any, *arguments: Any) -> Any:
        if isinstance(message, ListOffsetsRequest):
            levels.append(message.isolation_level)
        return posted(self, message, *arguments)

    monkeypatch.setattr(Channel, "_post", post)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}
    lookup = OffsetLookup(source_options({**options, "kafka.isolation.level": level}, Use.STREAM))
    try:
        lookup.latest(lookup.partitions())
    finally:
        lookup.close()
    assert set(levels) == {int("uncommitted" not in level)}


@pytest.mark.parametrize("way", ["subscribe", "subscribePattern"])
def test_1000_partitions_are_planned_in_one_round_trip(
    broker: OttlaBroker, topic: str, asked: Counter[str], way: str
) -> None:
    servers = {"bootstrap.servers": broker.bootstrap}
    with Admin(servers) as admin:
        admin.create_topic(topic, MANY)
    with Producer(servers) as producer:
        producer.send(topic, b"here", partition=7)
    options = {"kafka.bootstrap.servers": broker.bootstrap, way: topic}
    lookup = OffsetLookup(source_options(options, Use.STREAM))
    try:
        lookup.latest(lookup.partitions())  # connected now
        asked.clear()
        ends = lookup.latest(lookup.partitions())
    finally:
        lookup.close()
    assert len(ends) == MANY
    assert {one for one, end in ends.items() if end} == {TopicPartition(topic, PartitionIndex(7))}
    assert asked["ListOffsetsRequest"] == 1
    assert asked.total() <= 3, asked  # topics, leaders, offsets
