"""The verdicts of the benchmarks: measurements compared with targets."""

import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
HARNESS = BENCHMARKS / "harness.py"


@pytest.mark.parametrize(("ours_s", "met"), [(19e-6, True), (25e-6, False)])
def test_target_relative_to_a_peer_is_checked(ours_s: float, met: bool) -> None:
    spec = importlib.util.spec_from_file_location("harness_under_test", HARNESS)
    assert spec is not None
    assert spec.loader is not None
    harness = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = harness
    spec.loader.exec_module(harness)
    case = harness.Case("append", {}, target_more_us=12)
    timings = {
        name: harness.Timing(seconds, seconds, 1, 1)
        for name, seconds in (("ottla", ours_s), ("plain", 8e-6), ("slow", 1.0))
    }
    row = harness.Row(case, timings)
    assert row.met is met
    assert row.more_us == pytest.approx((ours_s - 8e-6) * 1e6)
    assert harness.Row(harness.Case("append", {}), timings).met is None


def test_missed_targets_of_many_partitions_are_in_the_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    harness, many = (importlib.import_module(name) for name in ("harness", "many_partitions"))
    seconds = {
        "ottla": {"stop": [2.0], "start after a clean stop": [4.0], "start after kill -9": [6.0]},
        "kafka": {"stop": [1.0], "start after a clean stop": [9.0], "start after kill -9": [9.0]},
    }
    figures = {name: many.Figures(found, 0, 0) for name, found in seconds.items()}
    rows = [*many.rows(figures, 10_000)]
    harness.report(tmp_path / "many.py", "?", rows, "partitions", quick=False)
    (path,) = (tmp_path / "results").iterdir()
    met = {one["case"]: one["met"] for one in json.loads(path.read_text())["cases"]}
    assert met == {
        "10,000 partitions: stop": False,  # slower than Kafka
        "10,000 partitions: start after a clean stop": True,
        "10,000 partitions: start after kill -9": False,  # not within five seconds
    }


def test_unknown_row_of_the_client_benchmark_is_refused() -> None:
    asked = [sys.executable, str(BENCHMARKS / "clients.py"), "--only", "round trip,produce 1 KB"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "there is no row 'produce 1 KB'; the rows are" in done.stderr
    for row in ("produce 100 B", "consume 1000 B", "round trip", "consume 1 GB"):
        assert repr(row) in done.stderr
