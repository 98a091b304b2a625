"""`ottla pipeline run` without Spark: errors that it finds before it starts Spark."""

import json
import sys
from pathlib import Path

import pytest

from cli.console import ottla
from cli.golden import check_settled
from cli.non_brokers import nobody
from ottla.cli.failures import Failed
from ottla.cli.pipeline.run import check_spark
from ottla.pipeline.run_files import AlreadyRunning, RunFiles, known_pipelines
from pipeline.spec.declarations import SENSORS


def write(folder: Path, brokers: str = "127.0.0.1:9092") -> None:
    (folder / "sensors.yaml").write_text(SENSORS.replace("127.0.0.1:9092", brokers))


def test_missing_broker_is_one_line(tmp_path: Path) -> None:
    write(tmp_path, nobody())
    done = ottla("pipeline", "run", "sensors.yaml", folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    check_settled("pipeline-run.txt", done.stderr.replace(f"--port {nobody_port(done.stderr)}", ""))
    done = ottla("pipeline", "run", "sensors.yaml", "-o", "json", folder=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    port = nobody_port(done.stdout)
    check_settled("pipeline-run.json", done.stdout.replace(f"--port {port}", ""))
    assert not (tmp_path / ".ottla").exists(), "nothing was started"


def test_start_without_a_broker_calls_on_failure(tmp_path: Path) -> None:
    brokers = nobody()
    hook = 'on_failure: {command: [sh, -c, "cat > event.json"]}\n'
    text = SENSORS.replace("127.0.0.1:9092", "${BROKERS}") + hook
    (tmp_path / "sensors.yaml").write_text(text)
    words = ("pipeline", "run", "sensors.yaml", "--log-format", "json")
    done = ottla(*words, folder=tmp_path, env={"BROKERS": brokers})
    assert done.returncode == 1
    event = json.loads((tmp_path / "event.json").read_text())
    assert (event["event"], event["query"], event["final"]) == ("failure", None, True)
    assert "addresses are in `brokers`" in event["error"]
    assert "${BROKERS}" in event["error"]
    assert brokers not in event["error"] + done.stderr, "the value of a variable"
    called, failed = done.stderr.splitlines()
    assert json.loads(called)["event"] == "hook called"
    assert failed.startswith("ottla: ")
    (tmp_path / "event.json").unlink()
    assert ottla(*words, "--master", "sc://x", folder=tmp_path, env={"BROKERS": brokers}).returncode
    assert not (tmp_path / "event.json").exists(), "wrong usage is for the terminal"


def nobody_port(text: str) -> str:
    return text.partition("127.0.0.1:")[2].partition(":")[0]


def test_missing_java_is_one_line(tmp_path: Path) -> None:
    write(tmp_path)
    env = {"JAVA_HOME": str(tmp_path)}
    done = ottla("pipeline", "run", "sensors.yaml", folder=tmp_path, env=env)
    assert done.returncode == 1
    assert done.stderr.startswith("ottla: Spark needs Java")
    assert done.stderr.count("\n") == 1


def test_missing_pyspark_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(Failed, match=r"Spark needs pyspark: install Ottla with the extra spark"):
        check_spark("local[1]")


def test_wrong_file_has_the_errors_of_validate(tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text(SENSORS.replace("topic: sensors.r", "topics: sensors.r"))
    done = ottla("pipeline", "run", "wrong.yaml", folder=tmp_path)
    validated = ottla("pipeline", "validate", "wrong.yaml", folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, validated.stdout)


def test_spark_connect_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    done = ottla("pipeline", "run", "sensors.yaml", "--master", "sc://x", folder=tmp_path)
    assert done.returncode == 2
    assert "Spark Connect is not supported" in done.stderr


def test_pipeline_runs_once_at_a_time(tmp_path: Path) -> None:
    files = RunFiles("sensors", tmp_path)
    assert not files.read().is_running
    with files.running():
        files.write({"lag": 3})
        assert files.read().is_running
        assert files.read().process is not None
        assert files.read().content["lag"] == 3
        assert [one.name for one in known_pipelines(tmp_path)] == ["sensors"]
        with pytest.raises(AlreadyRunning, match="running already, as process"), files.running():
            pass
    assert not files.read().is_running
    assert files.read().process is None
