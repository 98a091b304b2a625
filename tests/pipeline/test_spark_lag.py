"""Group offsets of a query with several sources, one of which is used twice."""

import time
from pathlib import Path
from typing import Any

import pytest

from judges.ottla_broker import OttlaBroker
from ottla.pipeline import register
from ottla.sync import Admin, Producer
from pipeline.queries import source

PATIENCE_S = 60.0


def offsets(broker: OttlaBroker, group: str) -> dict[Any, int]:
    """The committed offsets of a group; the listener is called shortly after the query."""
    until_s = time.monotonic() + PATIENCE_S
    with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        while True:
            told = admin.list_group_offsets(group)[group]
            found = {(one[0], one[1]): kept.offset for one, kept in told.items() if kept}
            if found or time.monotonic() > until_s:
                return found
            time.sleep(0.1)


@pytest.mark.parametrize("twice", ["a topic", "files"])
def test_each_group_has_the_offsets_of_its_own_source(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path, twice: str
) -> None:
    """A file source is of Spark's older kind."""
    register(spark)
    other = f"{topic}-other"
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        for n in range(3):
            producer.send(topic, b"%d" % n, partition=0)
            producer.send(other, b"%d" % n, partition=1)
    files = tmp_path / "files"
    files.mkdir()
    (files / "one.txt").write_text("0\n1\n2\n")

    def stream(name: str) -> Any:
        group: dict[str, Any] = {"kafka.group.id": f"of-{name}"}
        found = source(spark, broker.bootstrap, subscribe=name, **group)
        return found.selectExpr("CAST(value AS STRING) AS value")

    first = stream(topic) if twice == "a topic" else spark.readStream.text(str(files))
    frame = first.where("value = '1'").union(first.where("value = '2'")).union(stream(other))
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "place"))
    assert writer.trigger(availableNow=True).start().awaitTermination(300)
    assert offsets(broker, f"of-{other}") == {(other, 0): 0, (other, 1): 3, (other, 2): 0}
    if twice == "a topic":
        assert offsets(broker, f"of-{topic}") == {(topic, 0): 3, (topic, 1): 0, (topic, 2): 0}


def test_query_adds_nothing_to_the_variables_that_all_queries_share(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path
) -> None:
    """Several queries that add to the map at once damage it for the life of the session."""
    register(spark)
    sources = spark._jsparkSession.sessionState().dataSourceManager()
    shared = sources.lookupDataSource("ottla").dataSourceCls().envVars()
    before = {*shared}
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        producer.send(topic, b"0")
    writer = source(spark, broker.bootstrap, subscribe=topic).writeStream.format("noop")
    writer = writer.option("checkpointLocation", str(tmp_path / "place"))
    assert writer.trigger(availableNow=True).start().awaitTermination(300)
    assert shared["SPARK_PYTHON_RUNTIME"], "Spark has set the variables"
    assert {*shared} == before
