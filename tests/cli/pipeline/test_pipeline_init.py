"""`ottla pipeline init` over a topic with a deliberate bad record."""

from pathlib import Path

from cli.console import ottla
from cli.golden import check_golden
from ottla.sync import Producer
from ottla.testing import ClusterThread

VALUES = [
    b'{"device": "a", "at": "2026-01-01T00:00:01Z", "celsius": 20.5}',
    b'{"device": "b", "at": "2026-01-01T00:00:02Z", "celsius": 21}',
    b'{"device": "c", "at": "2026-01-01T00:00:03Z", "celsius": "n/a"}',
    b"not JSON",
]


def test_file_has_the_schema_of_the_sample(tmp_path: Path) -> None:
    with ClusterThread(settings={"num.partitions": 2}) as cluster:
        with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            for number, value in enumerate(VALUES):
                producer.send("1-readings.raw", value, partition=number % 2)
        words = ("pipeline", "init", "-b", cluster.bootstrap_servers)
        known = {cluster.bootstrap_servers: "SERVERS"}
        done = ottla(*words, "1-readings.raw", folder=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        check_golden("pipeline-init.txt", done.stdout)
        written = tmp_path / "1-readings.raw.yaml"
        check_golden("pipeline-init-file.txt", written.read_text(), known)
        again = ottla(*words, "1-readings.raw", folder=tmp_path)
        assert (again.returncode, again.stdout) == (1, "")
        assert (
            again.stderr == "ottla: 1-readings.raw.yaml exists: choose another file with --file\n"
        )
        other = ottla(*words, "1-readings.raw", "-f", "x.yaml", "-o", "json", folder=tmp_path)
        check_golden("pipeline-init.json", other.stdout)
        missing = ottla(*words, "readings", folder=tmp_path)
        assert missing.returncode == 1
        assert "topic readings does not exist" in missing.stderr.replace('"', "")
        assert not (tmp_path / "readings.yaml").exists()
    validated = ottla("pipeline", "validate", str(written), folder=tmp_path)
    assert validated.returncode == 0, validated.stdout
