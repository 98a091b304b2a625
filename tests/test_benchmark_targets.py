"""The verdicts of the benchmarks: measurements compared with targets."""

import importlib.util
import sys
from pathlib import Path

import pytest

HARNESS = Path(__file__).parents[1] / "benchmarks" / "harness.py"


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
