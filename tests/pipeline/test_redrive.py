"""Dead letters that are sent back to their topics, on a broker."""

from collections.abc import Sequence
from typing import Any

from judges.ottla_broker import OttlaBroker
from ottla.client.admin import NewTopic
from ottla.pipeline import Pipeline, Sink, Source
from ottla.pipeline.redrive import parked_topic, redrive
from ottla.pipeline.redrive_decision import Fate, Selection
from ottla.sync import Admin, Producer
from pipeline.test_redrive_decision import headers
from pipeline.test_spark_sink import records


def pipeline_of(broker: OttlaBroker, topic: str) -> Pipeline:
    return Pipeline(
        name="p",
        brokers=broker.bootstrap,
        sources={"s": Source(topic=topic, json="a INT")},
        sinks=[Sink(from_="s", console=True)],
        dead_letters=f"{topic}.dead",
    )


def send(broker: OttlaBroker, topic: str, *given: tuple[bytes, Sequence[Any]]) -> None:
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        for value, found in given:
            producer.send(topic, value, key=b"k", headers=found, partition=0)


def values(broker: OttlaBroker, topic: str) -> list[Any]:
    return [one.value for one in records(broker, topic)]


def test_dead_letters_go_back_once(broker: OttlaBroker, topic: str) -> None:
    pipeline = pipeline_of(broker, topic)
    assert redrive(pipeline, Selection("p")) == {}, "there is no topic of dead letters yet"
    with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        admin.create_topics([NewTopic(topic, 3)]).or_raise()
    json, csv = headers(topic=topic, partition="2"), headers(topic=topic, error="not CSV")
    send(
        broker,
        f"{topic}.dead",
        (b"one", [("trace", b"1"), *json]),
        (b"two", csv),
        (b"row", headers(topic="")),
        (b"often", headers(topic=topic, attempts="6")),
        (b"other", headers(pipeline="q", topic=topic)),
        (b"three", headers(topic=topic, partition="9")),
    )
    chosen = Selection("p", error="CSV")
    expected = {Fate.REDRIVEN: 1, Fate.NOT_SELECTED: 3, Fate.NOT_POSSIBLE: 1, Fate.OF_ANOTHER: 1}
    assert redrive(pipeline, chosen, dry_run=True) == expected
    assert values(broker, topic) == []
    assert redrive(pipeline, chosen) == expected
    assert values(broker, topic) == [b"two"]
    rest = {Fate.REDRIVEN: 2, Fate.PARKED: 1}
    assert redrive(pipeline, Selection("p")) == rest, "what was left out before, and nothing twice"
    assert sorted(values(broker, topic)) == [b"one", b"three", b"two"]
    [one] = [found for found in records(broker, topic) if found.value == b"one"]
    assert (one.key, one.partition) == (b"k", 2)
    assert [*one.headers] == [("trace", b"1"), ("ottla.attempts", b"1")]
    assert values(broker, parked_topic(pipeline)) == [b"often"]
    assert redrive(pipeline, Selection("p")) == {}
    send(broker, f"{topic}.dead", (b"four", json))
    assert redrive(pipeline, Selection("p")) == {Fate.REDRIVEN: 1}
