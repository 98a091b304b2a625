"""`ottla pipeline test` without Spark: its errors, and its reports."""

from pathlib import Path
from xml.etree import ElementTree

from cli.console import ottla
from cli.golden import check_golden
from ottla.cli.pipeline.run_tests import junit_report, outcome_lines, result_of
from ottla.pipeline.declared_tests import TestOutcome
from pipeline.spec.declarations import SENSORS

OUTCOMES = [
    TestOutcome("averages a window", 1.25, []),
    TestOutcome("alerts", 0.5, ["alerts: expected 1 row, found 0", '  - {"device": "a"}']),
]


def test_pipeline_without_tests_fails(tmp_path: Path) -> None:
    (tmp_path / "sensors.yaml").write_text(SENSORS.partition("tests:")[0])
    done = ottla("pipeline", "test", "sensors.yaml", folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    check_golden("pipeline-test.txt", done.stderr)
    done = ottla("pipeline", "test", "sensors.yaml", "-o", "json", folder=tmp_path)
    check_golden("pipeline-test.json", done.stdout)


def test_unknown_test_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "sensors.yaml").write_text(SENSORS)
    words = ("pipeline", "test", "sensors.yaml", "--test", "averages windows")
    done = ottla(*words, folder=tmp_path)
    assert done.returncode == 2
    hint = "did you mean averages a window?"
    assert done.stderr == f'ottla: sensors.yaml has no test "averages windows"; {hint}\n'


def test_results_are_shown_with_their_differences() -> None:
    assert [line for one in OUTCOMES for line in outcome_lines(one)] == [
        "PASS  averages a window (1.2 s)",
        "FAIL  alerts (0.5 s)",
        "      alerts: expected 1 row, found 0",
        '        - {"device": "a"}',
    ]
    result = result_of(Path("p.yaml"), OUTCOMES)
    assert result.shown == ["2 tests, 1 failed"]
    assert [one.message for one in result.failures] == ["p.yaml: 1 of 2 tests failed"]
    assert result_of(Path("p.yaml"), OUTCOMES[:1]).failures == ()


def test_junit_report_has_every_test() -> None:
    suite = ElementTree.fromstring(junit_report("sensors", OUTCOMES))
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    first, second = suite.findall("testcase")
    assert (first.get("name"), first.find("failure")) == ("averages a window", None)
    failure = second.find("failure")
    assert failure is not None
    assert failure.text == "\n".join(OUTCOMES[1].problems)
