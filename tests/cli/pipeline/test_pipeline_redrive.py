"""`ottla pipeline redrive`: its errors and its result."""

from collections import Counter
from pathlib import Path

from cli.console import ottla
from cli.golden import check_golden
from cli.non_brokers import nobody
from ottla.cli.pipeline.redrive_command import result_of
from ottla.cli.result import Result, Table
from ottla.pipeline.redrive_decision import Fate
from pipeline.spec.declarations import SENSORS, SENSORS_IN_PYTHON


def shown(result: Result) -> str:
    parts = (one.lines() if isinstance(one, Table) else [one] for one in result.shown)
    return "".join(f"{line}\n" for part in parts for line in part)


def test_result_has_every_fate() -> None:
    import json

    fates = Counter({Fate.REDRIVEN: 12, Fate.PARKED: 1, Fate.OF_ANOTHER: 7, Fate.NOT_POSSIBLE: 2})
    result = result_of(SENSORS_IN_PYTHON, fates, dry_run=False)
    check_golden("pipeline-redrive.txt", shown(result))
    check_golden("pipeline-redrive.json", json.dumps(result.object()) + "\n")
    nothing = result_of(SENSORS_IN_PYTHON, Counter(), dry_run=True)
    assert "not sent" in shown(nothing)


def test_missing_broker_and_unknown_source_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "sensors.yaml").write_text(SENSORS.replace("127.0.0.1:9092", nobody()))
    done = ottla("pipeline", "redrive", "sensors.yaml", folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("ottla: no broker found")
    assert done.stderr.endswith("; the addresses are in `brokers` of the pipeline\n")
    done = ottla("pipeline", "redrive", "sensors.yaml", "--source", "reading", folder=tmp_path)
    assert done.returncode == 2
    message = '--source: there is no source "reading"; did you mean readings?'
    assert done.stderr == f"ottla: {message}\n"
