"""`ottla pipeline validate --topics` compares the sources with their topics."""

from pathlib import Path

from cli.console import ottla
from cli.golden import check_golden
from ottla.sync import Producer
from ottla.testing import ClusterThread

FILE = """\
name: readings
brokers: {servers}
sources:
  good: {{topic: good, json: "device STRING"}}
  mixed: {{topic: mixed, json: "device STRING"}}
  wrong: {{topic: [wrong, goood], json: "device STRING"}}
  lines: {{topic: wrong, text: line}}
  any: {{topic: wrong, binary: value}}
  none: {{pattern: "absent.*", text: line}}
sinks:
  - {{from: good, console: true}}
  - {{from: mixed, console: true}}
  - {{from: wrong, console: true}}
  - {{from: lines, console: true}}
  - {{from: any, console: true}}
  - {{from: none, console: true}}
"""
VALUES = {
    "good": [b'{"device": "a"}', b"{}"],
    "mixed": [b'{"device": "a"}', b"[]", b"", b"{"],
    "wrong": [b"\xff", b"\xfe"],
}


def test_topics_are_compared_with_the_sources(tmp_path: Path) -> None:
    file = tmp_path / "readings.yaml"
    with ClusterThread() as cluster:
        file.write_text(FILE.format(servers=cluster.bootstrap_servers))
        with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            for topic, values in VALUES.items():
                for value in values:
                    producer.send(topic, value)
        done = ottla("pipeline", "validate", "readings.yaml", "--topics", folder=tmp_path)
        assert done.returncode == 1
        check_golden("pipeline-validate-topics.txt", done.stdout)
    done = ottla("pipeline", "validate", "readings.yaml", "--topics", folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "connection refused" in done.stderr
    assert "`brokers` of the pipeline" in done.stderr
