"""Dead letters from Spark to the topic and back: fixed, redriven, failed again, parked."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from cli.console import ottla
from judges.ottla_broker import OttlaBroker
from ottla.pipeline.compiler import compile_pipeline
from ottla.pipeline.spec.loading import load_text
from pipeline.queries import finished
from pipeline.test_spark_runner import send
from pipeline.test_spark_sink import records

PIPELINE = """\
name: {topic}
brokers: {brokers}
checkpoints: {folder}/checkpoints
trigger: available now
sources: {{orders: {{topic: {topic}, json: n INT NOT NULL}}}}
sinks: [{{from: orders, topic: {topic}.out}}]
"""
FIXABLE = ['{"n": "x1"}', '{"n": "x2"}']
BROKEN = "not JSON"


def run(spark: Any, text: str) -> None:
    loaded = load_text(text, "p.yaml", environment={}, read_file=str)
    for query in compile_pipeline(spark, loaded).queries:
        finished(query.start)


def attempts(broker: OttlaBroker, topic: str) -> Counter[tuple[str, str]]:
    """How often each dead letter has been one, by its value and attempts."""
    return Counter(
        (
            one.value.decode(),
            {name: value.decode() for name, value in one.headers}["ottla.attempts"],
        )
        for one in records(broker, topic)
    )


def test_dead_letter_is_redriven_after_a_fix(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path
) -> None:
    file, dead = tmp_path / "p.yaml", f"{topic}.dead-letters"
    text = PIPELINE.format(topic=topic, brokers=broker.bootstrap, folder=tmp_path)
    file.write_text(text)
    send(broker, topic, '{"n": 1}', *FIXABLE, BROKEN)
    run(spark, text)
    first = {(value, "1"): 1 for value in (*FIXABLE, BROKEN)}
    assert attempts(broker, dead) == first

    fixed = text.replace("n INT", "n STRING")
    file.write_text(fixed)
    # Three records are sent one by one; the redrive is killed before the second commit.
    killed = subprocess.run(
        [sys.executable, "-m", "pipeline.mortal_redrive", "pipeline", "redrive", "p.yaml"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OTTLA_MORTAL": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(records(broker, topic)) == 4 + 2
    done = ottla("pipeline", "redrive", "p.yaml", "-o", "json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["redriven"] == 2, "the one that was not committed, and the rest"
    sent = Counter((one.value or b"").decode() for one in records(broker, topic))
    assert sum(sent.values()) == 4 + 3 + 1, "one of them was sent again"
    assert {sent[value] for value in (*FIXABLE, BROKEN)} == {2, 3}

    run(spark, fixed)
    out = Counter(str(json.loads(one.value or b"")["n"]) for one in records(broker, f"{topic}.out"))
    assert out == {"1": 1, "x1": sent[FIXABLE[0]] - 1, "x2": sent[FIXABLE[1]] - 1}
    again = {(BROKEN, "1"): 1, (BROKEN, "2"): sent[BROKEN] - 1}
    found = attempts(broker, dead)
    assert {one: count for one, count in found.items() if one[0] == BROKEN} == again
    assert sum(found.values()) == len(first) + sent[BROKEN] - 1, "the fixed ones do not fail again"

    parked = ottla(
        *("pipeline", "redrive", "p.yaml", "--attempts", "1", "-o", "json"), folder=tmp_path
    )
    assert json.loads(parked.stdout)["parked"] == sent[BROKEN] - 1
    assert {one.value for one in records(broker, f"{dead}.parked")} == {BROKEN.encode()}
