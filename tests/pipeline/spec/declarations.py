"""The declarations that the tests share: one in YAML, and the same one in Python."""

from ottla.pipeline import (
    Expectation,
    Pipeline,
    PipelineTest,
    Profile,
    Sink,
    Source,
    Step,
    Watermark,
)
from ottla.pipeline.spec.loading import Loaded, load_text

SENSORS = """\
name: sensors
sources:
  readings:
    topic: sensors.readings
    json: device STRING, at TIMESTAMP, celsius DOUBLE
    watermark: {column: at, delay: 5 seconds}
    expect:
      plausible: {check: celsius BETWEEN -60 AND 120, otherwise: dead_letter}
steps:
  averages:
    sql: SELECT device, window.start, avg(celsius) AS mean
         FROM readings GROUP BY device, window(at, '10 seconds')
  alerts: {python: sensors.steps:anomalies, from: readings}
sinks:
  - {from: averages, parquet: out/averages, partition_by: [device]}
  - {from: alerts, topic: sensors.alerts, key: device}
dead_letters: sensors.dead
trigger: 2 seconds
brokers: 127.0.0.1:9092
client: {security.protocol: PLAINTEXT}
profiles:
  prod: {brokers: "${BROKERS}", checkpoints: s3a://bucket/checkpoints}
tests:
  - name: averages a window
    given: {readings: [[{device: a, at: 2026-01-01T00:00:01, celsius: 20}]]}
    expect: {averages: [{device: a, mean: 20}]}
"""

SENSORS_IN_PYTHON = Pipeline(
    name="sensors",
    sources={
        "readings": Source(
            topic="sensors.readings",
            json="device STRING, at TIMESTAMP, celsius DOUBLE",
            watermark=Watermark(column="at", delay="5 seconds"),
            expect={
                "plausible": Expectation(
                    check="celsius BETWEEN -60 AND 120", otherwise="dead_letter"
                )
            },
        )
    },
    steps={
        "averages": Step(
            sql="SELECT device, window.start, avg(celsius) AS mean "
            "FROM readings GROUP BY device, window(at, '10 seconds')"
        ),
        "alerts": Step(python="sensors.steps:anomalies", from_="readings"),
    },
    sinks=[
        Sink(from_="averages", parquet="out/averages", partition_by=["device"]),
        Sink(from_="alerts", topic="sensors.alerts", key="device"),
    ],
    dead_letters="sensors.dead",
    trigger="2 seconds",
    brokers="127.0.0.1:9092",
    client={"security.protocol": "PLAINTEXT"},
    profiles={"prod": Profile(brokers="${BROKERS}", checkpoints="s3a://bucket/checkpoints")},
    tests=[
        PipelineTest(
            name="averages a window",
            given={"readings": [[{"device": "a", "at": "2026-01-01T00:00:01", "celsius": 20}]]},
            expect={"averages": [{"device": "a", "mean": 20}]},
        )
    ],
)


def loaded(text: str, profile: str | None = None, **environment: str) -> Loaded:
    """Load a declaration; it can read the file `password`."""
    return load_text(
        text, "sensors.yaml", profile=profile, environment=environment, read_file=_read_file
    )


def _read_file(name: str) -> str:
    if name != "password":
        raise FileNotFoundError(2, "No such file or directory", name)
    return "hunter2\n"
