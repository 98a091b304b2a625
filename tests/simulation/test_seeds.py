"""Many runs of the whole broker, each from a seed: whatever happens, what was promised holds.

OTTLA_FUZZ_SCALE multiplies the number of seeds. A seed that fails is run again by itself with
`pytest tests/simulation -k seed-17`; it fails in the same way every time.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.scenario import run

SEEDS = max(1, int(100 * float(os.environ.get("OTTLA_FUZZ_SCALE", "1"))))
TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("seed", range(SEEDS), ids=lambda seed: f"seed-{seed}")
def test_nothing_promised_is_broken(seed: int) -> None:
    outcome = run(seed)
    assert not outcome.violations, "\n".join(outcome.violations[:5])
    assert outcome.acknowledged > 100


def digest_in_another_process(seed: int, hash_seed: str) -> str:
    code = f"from simulation.scenario import run; print(run({seed}).digest)"
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(TESTS)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_same_seed_is_the_same_run_in_every_process(seed: int) -> None:
    here = run(seed).digest
    assert {digest_in_another_process(seed, hash_seed) for hash_seed in ("1", "77")} == {here}


def test_another_seed_is_another_run() -> None:
    assert run(4).digest != run(5).digest
