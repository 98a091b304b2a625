"""Runs of a cluster of three brokers from seeds: no invariant and no guarantee is violated.

`make test` runs a sample of the seeds; `make soak` runs all, and ten times as many. Repeat a seed
with `python -m ottla.testing.simulate --seed 17`; it ends in the same way every time.
"""

import os
import subprocess
import sys

import pytest

from ottla.testing.cluster_scenario import run
from sampling import sample, scaled

SEEDS = range(scaled(200))
SEEDS_SAMPLED = 6
FAULTS_MIN = 5
LEADER_CHANGES_MIN = 2
ACKNOWLEDGED_MIN = 500


@pytest.mark.parametrize("seed", sample(SEEDS, SEEDS_SAMPLED), ids=lambda seed: f"seed-{seed}")
def test_no_guarantee_of_a_cluster_is_violated(seed: int) -> None:
    outcome = run(seed)
    assert not outcome.violations, "\n".join(outcome.violations[:5])
    assert outcome.acknowledged >= ACKNOWLEDGED_MIN
    assert sum(outcome.faults.values()) >= FAULTS_MIN
    assert outcome.counts["leader changes"] >= LEADER_CHANGES_MIN


def digest_in_another_process(seed: int, hash_seed: str) -> str:
    code = f"from ottla.testing.cluster_scenario import run; print(run({seed}, minutes=0.5).digest)"
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


def test_seed_of_a_cluster_gives_the_same_run_in_every_process() -> None:
    here = run(3, minutes=0.5).digest
    assert {digest_in_another_process(3, hash_seed) for hash_seed in ("1", "77")} == {here}
