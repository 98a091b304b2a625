"""The feed of the logs example: services that write files, and a collector as a child process."""

import time
from collections import Counter
from pathlib import Path

from judges.ottla_broker import ottla_broker
from logs.collector import TOPIC, CollectedLogs
from logs.services import SERVICES, lines
from ottla.client.admin import NewTopic
from ottla.sync import Admin, Consumer
from shared.example import Context

PATIENCE_S = 60


def test_stopped_feed_has_collected_every_line(tmp_path: Path) -> None:
    start_ms = time.time_ns() // 1_000_000
    with ottla_broker() as broker:
        context = Context(broker.bootstrap, tmp_path, 7, start_ms, lambda: True)
        with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
            admin.create_topics([NewTopic(TOPIC, partitions=2)]).or_raise()
        settings = {"bootstrap.servers": broker.bootstrap, "auto.offset.reset": "earliest"}
        with Consumer(settings) as consumer:
            with CollectedLogs(context) as feed:
                consumer.assign(*consumer.partitions(TOPIC))
                found = consumer.poll(PATIENCE_S)
                assert feed.failure is None
                feed.stop()
            partitions = consumer.partitions(TOPIC)
            ends = consumer.end_offsets(*partitions)
            while len(found) < sum(ends.values()):
                found += consumer.poll(PATIENCE_S)
    written = [
        line
        for path in (tmp_path / "files").iterdir()
        for line in path.read_bytes().split(b"\n")[:-1]
    ]
    assert Counter(one.value for one in found) == Counter(written)
    assert {*written} <= {one.text for one in lines(7, start_ms, time.time_ns() // 1_000_000)}


def test_lines_do_not_depend_on_the_intervals() -> None:
    whole = [*lines(7, 1_000, 9_000)]
    parts = [one for at in range(1_000, 9_000, 250) for one in lines(7, at, at + 250)]
    assert parts == whole
    assert {one.service for one in whole} == {*SERVICES}
