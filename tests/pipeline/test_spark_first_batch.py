"""The first micro-batch of a stream in a real Spark, on a topic that is being written to.

test_first_batch.py interrupts the first micro-batch at each step, without Spark. Here a run takes
one trigger, one start and one scenario of two; `make soak` takes both.
"""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from judges.ottla_broker import OttlaBroker
from ottla.sync import Admin, Producer
from pipeline.queries import NOT_STARTED, PATIENCE_S, Running, numbers, running, source, taken
from sampling import sample

PAUSE_S = 0.002  # between two records: far less than a step of Spark takes


@contextmanager
def fed(broker: OttlaBroker, topic: str) -> Generator[list[int]]:
    """Write numbers to a topic until the end of the `with`; those that were acknowledged."""
    with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        admin.create_topic(topic, 3)
    come: list[int] = []
    over, begun = threading.Event(), threading.Event()

    def feed() -> None:
        with Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0}) as producer:
            while not over.is_set():
                n = len(come)
                producer.send(topic, b"%d" % n, partition=n % 3).result()
                come.append(n)
                begun.set()
                over.wait(PAUSE_S)

    feeding = threading.Thread(target=feed)
    feeding.start()
    try:
        assert begun.wait(PATIENCE_S)
        yield come
    finally:
        over.set()
        feeding.join()


def from_the_end(spark: Any, broker: OttlaBroker, topic: str) -> Any:
    return source(spark, broker.bootstrap, subscribe=topic, startingOffsets="latest").select(
        "value"
    )


def assert_whole(found: list[int], come: list[int]) -> None:
    """Each record from the first that was read is there once."""
    assert found
    assert found == [*range(found[0], len(come))]


def starts_and_continues(spark: Any, frame: Any, broker: OttlaBroker, topic: str, at: Path) -> None:
    """A query that runs until it has committed a micro-batch with records."""
    with fed(broker, topic) as come, running(frame, at) as query:
        query.until((at / "place" / "commits" / "1").exists)
    taken(frame, at)
    assert_whole(numbers(spark, at), come)


def has_nothing_to_read(spark: Any, frame: Any, broker: OttlaBroker, topic: str, at: Path) -> None:
    """A query that ends by itself; the next one reads what came since."""
    with fed(broker, topic) as come:
        assert taken(frame, at) == []
        begun = len(come)
    taken(frame, at)
    found = numbers(spark, at)
    assert_whole(found, come)
    assert found[0] <= begun


@pytest.mark.parametrize(
    "scenario",
    sample((starts_and_continues, has_nothing_to_read), 1),
    ids=lambda scenario: scenario.__name__,
)
def test_stream_from_the_end_of_a_busy_topic(
    spark: Any,
    broker: OttlaBroker,
    topic: str,
    tmp_path: Path,
    scenario: Callable[[Any, Any, OttlaBroker, str, Path], None],
) -> None:
    scenario(spark, from_the_end(spark, broker, topic), broker, topic, tmp_path)


@pytest.mark.parametrize("trigger", sample([{}, {"availableNow": True}], 1))
def test_stream_restarts_after_a_failed_first_micro_batch(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path, trigger: dict[str, Any]
) -> None:
    batches: dict[int, list[int]] = {}
    unlike: list[int] = []
    failed = threading.Event()

    def each(rows: Any, number: int) -> None:
        """Spark runs a micro-batch that was not committed again, with the same rows."""
        got = sorted(int(row.value) for row in rows.collect())
        if not failed.is_set():
            failed.set()
            raise RuntimeError("the first one fails")
        if batches.setdefault(number, got) != got:
            unlike.append(number)

    def found() -> list[int]:
        return sorted(n for batch in [*batches.values()] for n in batch)

    def start() -> Any:
        frame = from_the_end(spark, broker, topic)
        writer = frame.writeStream.foreachBatch(each)
        return writer.option("checkpointLocation", f"{tmp_path}/place").trigger(**trigger).start()

    def ended() -> str:
        """The error that ended a query; the query is started again if Python did not start."""
        while True:
            query = start()
            with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark has several
                query.awaitTermination(PATIENCE_S)
            if NOT_STARTED not in str(raised.value):
                return str(raised.value)

    trigger = trigger or {"processingTime": "0 seconds"}
    with fed(broker, topic) as come:
        assert "the first one fails" in ended()
        begun = len(come)
        assert (tmp_path / "place" / "offsets" / "0").exists()
        assert not (tmp_path / "place" / "commits" / "0").exists()
        going = Running(start)
        going.until(lambda: len(found()) > 0)
        going.query.stop()
    trigger = {"availableNow": True}
    going = Running(start)
    going.until(lambda: not going.query.isActive and going.query.exception() is None)
    assert unlike == []
    assert_whole(found(), come)
    assert found()[0] <= begun


STARTS = ("latest", "earliest")


@pytest.mark.parametrize("start", sample(STARTS, 1))
def test_first_micro_batch_is_repeated_with_more_partitions(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path, start: str
) -> None:
    """A crash can leave a checkpoint with offsets and without a commit."""
    servers = {"bootstrap.servers": broker.bootstrap}
    with Producer(servers) as producer:
        for n in range(9):
            producer.send(topic, b"%d" % n, partition=n % 3)
    frame = source(
        spark, broker.bootstrap, subscribePattern=f"^{topic}(-.*)?$", startingOffsets=start
    ).select("value")
    taken(frame, tmp_path)
    for log in ("place/commits", "rows/_spark_metadata"):
        for name in ("0", ".0.crc"):
            (tmp_path / log / name).unlink()
    with Admin(servers) as admin:
        admin.create_partitions({topic: 4}).or_raise()
    with Producer(servers) as producer:
        for n in range(9, 13):
            producer.send(topic, b"%d" % n, partition=n % 4)
        producer.send(f"{topic}-more", b"13", partition=0)
    taken(frame, tmp_path)
    assert numbers(spark, tmp_path) == [*range(0 if start == "earliest" else 9, 14)]
