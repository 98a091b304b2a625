"""The line for spark-submit, and the masters that a run refuses."""

import shlex
from pathlib import Path

import pytest

from cli.console import ottla
from ottla.cli.failures import Misused
from ottla.cli.pipeline import submitted
from ottla.cli.pipeline.spark_submit import check_master, submit_result
from pipeline.spec.declarations import SENSORS, loaded


def test_dry_run_prints_the_line_and_runs_nothing(tmp_path: Path) -> None:
    text = SENSORS.replace("sensors.steps:anomalies", "steps:anomalies")
    text += 'spark: {spark.executor.instances: 2, spark.some.token: "${TOKEN}"}\n'
    (tmp_path / "my sensors.yaml").write_text(text)
    words = ("pipeline", "run", "my sensors.yaml", "--master", "yarn", "--dry-run", "--once")
    done = ottla(*words, folder=tmp_path, env={"TOKEN": "hunter2"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "hunter2" not in done.stdout
    *notes, line = done.stdout.splitlines()
    assert notes == [
        "# Not in the line, because of variables: spark.some.token",
        "# No test runs this on YARN or Kubernetes yet.",
    ]
    assert shlex.split(line) == [
        *("spark-submit", "--master", "yarn", "--deploy-mode", "client"),
        *("--name", "ottla sensors", "--conf", "spark.executor.instances=2"),
        *(submitted.__file__, "pipeline", "run", "my sensors.yaml"),
        *("--master", "yarn", "--once", "--restarts", "10", "--grace", "60", "--http", "0"),
        *("--log-format", "text", "--log-level", "info"),
    ]
    assert not (tmp_path / ".ottla").exists()


def test_line_has_the_profile() -> None:
    result = submit_result(Path("p.yaml"), loaded(SENSORS).written, "k8s://https://x", "prod", [])
    assert str(result.shown[-1]).endswith("p.yaml --master k8s://https://x --profile prod")


def test_master_without_spark_submit_is_refused() -> None:
    for master in ("yarn", "k8s://https://x:443"):
        with pytest.raises(Misused, match="--dry-run prints the line"):
            check_master(master, {})
        check_master(master, {"PYSPARK_GATEWAY_PORT": "1"})


def test_spark_connect_and_unknown_masters_are_refused() -> None:
    for master, environment in (("sc://x", {}), ("local[2]", {"SPARK_REMOTE": "sc://x"})):
        with pytest.raises(Misused, match="Spark Connect is not supported"):
            check_master(master, environment)
    for master in ("", "mesos://x", "locals", "yarn-client"):
        with pytest.raises(Misused, match="is not local"):
            check_master(master, {})
    for master in ("local", "local[*]", "local[2,3]", "spark://a:7077"):
        check_master(master, {})
