"""Stops at random moments: a topic sink has no record twice, and none is missing."""

import random
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from judges.ottla_broker import OttlaBroker
from ottla.pipeline.compiler import Bindings, compile_pipeline
from ottla.pipeline.runner import PipelineRun, StartableQuery
from ottla.pipeline.spec.loading import load_text
from ottla.sync import Producer
from pipeline.test_spark_sink import records
from sampling import SOAK, seed

STOPS = 5
CASES = 20
RUN_S_MAX = 2.0
PIPELINE = """\
name: {topic}
brokers: {brokers}
checkpoints: {folder}/checkpoints
trigger: 1 ms
spark: {{spark.sql.shuffle.partitions: 1}}
sources:
  lines: {{topic: {topic}, binary: line}}
steps:
  texts: {{sql: SELECT CAST(line AS STRING) AS line FROM lines}}
sinks:
  - {{from: texts, topic: {topic}.out}}
"""


@contextmanager
def sending(broker: OttlaBroker, topic: str) -> Generator[list[int]]:
    """Send numbers, one every ten milliseconds, during the `with` block."""
    sent: list[int] = []
    stop = threading.Event()

    def send() -> None:
        with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
            while not stop.wait(0.01):
                producer.send(topic, str(len(sent)).encode())
                sent.append(len(sent))

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield sent
    finally:
        stop.set()
        thread.join()


@pytest.mark.skipif(not SOAK, reason="`make soak` stops a pipeline a hundred times")
@pytest.mark.parametrize("case", range(CASES))
def test_stops_at_random_moments_repeat_nothing(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path, case: int
) -> None:
    stop_file = tmp_path / "stop"
    text = PIPELINE.format(topic=topic, brokers=broker.bootstrap, folder=tmp_path)
    loaded = load_text(text, "p.yaml", environment={}, read_file=str)
    pick = random.Random(f"{seed()} {case}")
    restarts = 0
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        producer.send(topic, b"first").result()
    with sending(broker, topic) as sent:
        compiled = compile_pipeline(spark, loaded, bindings=Bindings(stop_file=str(stop_file)))
        starts = [StartableQuery(one.query.name, one.start) for one in compiled.queries]
        for _ in range(STOPS):
            stop_file.unlink(missing_ok=True)
            until_s = monotonic() + pick.uniform(0.0, RUN_S_MAX)
            done = PipelineRun(topic, starts, stop_file).run(lambda end=until_s: monotonic() > end)
            restarts += sum(one.restarts for one in done.queries)
    assert restarts == 0, "a busy machine may fail to start Python; then rows may be repeated"
    stop_file.unlink(missing_ok=True)
    count = len(sent) + 1

    def is_complete() -> bool:
        return len(records(broker, f"{topic}.out")) >= count

    PipelineRun(topic, starts, stop_file).run(is_complete)
    found = sorted(str(one.value) for one in records(broker, f"{topic}.out"))
    assert len(found) == len(set(found)) == count
