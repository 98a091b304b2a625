import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli.console import ottla
from cli.golden import check_golden
from pipeline.spec.declarations import SENSORS

WRONG = SENSORS.replace("topic: sensors.readings", "topics: x").replace(
    "FROM readings", "FROM reading"
)
UNUSED = SENSORS.replace("  alerts:", "  unused: {sql: SELECT * FROM readings}\n  alerts:")
NO_ERRORS = "no errors (--spark also checks the SQL)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sensors.yaml").write_text(SENSORS)
    (tmp_path / "wrong.yaml").write_text(WRONG)
    (tmp_path / "unused.yaml").write_text(UNUSED)
    return tmp_path


def test_valid_file_exits_with_0(folder: Path) -> None:
    done = ottla("pipeline", "validate", "sensors.yaml", folder=folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"sensors.yaml: {NO_ERRORS}\n", "")


def test_help_of_validate_says_that_python_files_run() -> None:
    done = ottla("pipeline", "validate", "--help")
    assert "If FILE is a Python file, the command runs it" in " ".join(done.stdout.split())


def test_errors_are_printed_with_line_and_column(folder: Path) -> None:
    done = ottla("pipeline", "validate", "wrong.yaml", folder=folder)
    assert done.returncode == 1
    check_golden("pipeline-validate.txt", done.stdout + done.stderr)
    done = ottla("pipeline", "validate", "wrong.yaml", "-o", "json", folder=folder)
    assert (done.returncode, done.stderr) == (1, "")
    check_golden("pipeline-validate.json", done.stdout)


def test_warnings_do_not_fail(folder: Path) -> None:
    done = ottla("pipeline", "validate", "unused.yaml", folder=folder)
    assert done.returncode == 0
    assert done.stdout.startswith("unused.yaml:13:3: warning: steps.unused: no sink needs it")


def test_profile_needs_its_variables(folder: Path) -> None:
    words = ("pipeline", "validate", "sensors.yaml", "--profile", "prod")
    done = ottla(*words, folder=folder)
    assert done.returncode == 1
    assert "the environment variable BROKERS is not set" in done.stdout
    done = ottla(*words, folder=folder, env={"BROKERS": "kafka:9092"})
    assert done.returncode == 0


def test_spark_needs_java(folder: Path) -> None:
    words = ("pipeline", "validate", "sensors.yaml", "--spark")
    temporary = folder / "tmp"
    temporary.mkdir()
    env = {"JAVA_HOME": str(folder), "TMPDIR": str(temporary)}
    done = ottla(*words, folder=folder, env=env)
    assert done.returncode == 1
    assert done.stderr.startswith("ottla: Spark needs Java")
    assert [*temporary.iterdir()] == [], "there is no log to keep"
    done = ottla("pipeline", "validate", "wrong.yaml", "--spark", folder=folder)
    assert "unknown key; did you mean topic?" in done.stdout, "Spark does not start for nothing"


def test_missing_file_is_wrong_usage(folder: Path) -> None:
    done = ottla("pipeline", "validate", "none.yaml", folder=folder)
    assert done.returncode == 2
    assert "none.yaml" in done.stderr


@pytest.mark.parametrize("option", ["-b", "--bootstrap-server"])
def test_option_for_brokers_is_refused_with_the_key(folder: Path, option: str) -> None:
    done = ottla("pipeline", "run", option, "kafka:9092", "sensors.yaml", folder=folder)
    assert done.returncode == 2
    assert done.stderr == (
        f"ottla: No such option: {option}: a pipeline names its brokers with `brokers:` in its "
        "file, or in a profile of the file. See `ottla pipeline run --help`.\n"
    )


def test_plan_shows_queries_and_guarantees(folder: Path) -> None:
    done = ottla("pipeline", "plan", "sensors.yaml", folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    check_golden("pipeline-plan.txt", done.stdout)
    done = ottla("pipeline", "plan", "sensors.yaml", "-o", "mermaid", folder=folder)
    check_golden("pipeline-plan-mermaid.txt", done.stdout)


def test_plan_shows_variables_and_not_their_values(folder: Path) -> None:
    words = ("pipeline", "plan", "sensors.yaml", "--profile", "prod", "-o", "json")
    done = ottla(*words, folder=folder, env={"BROKERS": "secret:9092"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "secret" not in done.stdout
    check_golden("pipeline-plan.json", done.stdout)


def test_plan_of_a_wrong_file_reports_its_errors(folder: Path) -> None:
    done = ottla("pipeline", "plan", "wrong.yaml", folder=folder)
    validated = ottla("pipeline", "validate", "wrong.yaml", folder=folder)
    assert (done.returncode, done.stdout) == (1, validated.stdout)


def test_schema_is_json(folder: Path) -> None:
    done = ottla("pipeline", "schema", folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    check_golden("pipeline-schema.json", json.dumps(json.loads(done.stdout), indent=1) + "\n")
    done = ottla("pipeline", "schema", "-o", "table", folder=folder)
    check_golden("pipeline-schema.txt", done.stdout[:120] + "\n")


def test_validate_imports_neither_spark_nor_client_nor_broker_log(folder: Path) -> None:
    code = (
        "import sys; from ottla.pipeline import load; load('sensors.yaml');"
        "print([m for m in sys.modules if m.startswith(('pyspark', 'pyarrow', 'ottla.client',"
        " 'ottla.log', 'ottla.broker'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
