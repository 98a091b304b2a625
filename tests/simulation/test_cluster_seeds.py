"""Runs of a cluster of three brokers from seeds: no invariant and no guarantee is violated.

`make test` runs a sample of the seeds; `make soak` runs all, and ten times as many. Repeat a seed
with `python -m ottla.testing.simulate --seed 17`; it ends in the same way every time.
"""

import os
import subprocess
import sys
from collections import Counter

import pytest

from ottla.replication.in_sync_replicas import InSyncReplicas
from ottla.testing.cluster_scenario import run
from sampling import sample, scaled

SEEDS_PER_GROUP = 8
GROUPS = range(scaled(25))
GROUPS_SAMPLED = 1
FAULTS_MIN = 5
LEADER_CHANGES_MIN = 2
ACKNOWLEDGED_MIN = 500

# What must happen in each group of seeds.
FAULTS = {
    "kill",
    "stop",
    "stop of all brokers",
    "power cut",
    "pause",
    "partition between brokers",
    "partition from coordination",
    "connection to coordination lost",
    "slow link",
}
EVENTS = {"shrinks", "expands", "truncations", "ELR elections", "controller changes"}


@pytest.mark.parametrize(
    "group", sample(GROUPS, GROUPS_SAMPLED), ids=lambda group: f"seeds-{group}"
)
def test_no_guarantee_of_a_cluster_is_violated(group: int) -> None:
    happened: Counter[str] = Counter()
    for seed in range(group * SEEDS_PER_GROUP, (group + 1) * SEEDS_PER_GROUP):
        outcome = run(seed)
        assert not outcome.violations, "\n".join((f"seed {seed}", *outcome.violations[:5]))
        assert outcome.acknowledged >= ACKNOWLEDGED_MIN, seed
        assert sum(outcome.faults.values()) >= FAULTS_MIN, seed
        assert outcome.counts["leader changes"] >= LEADER_CHANGES_MIN, seed
        happened += Counter(outcome.faults) + Counter(outcome.counts)
    assert not (FAULTS | EVENTS) - happened.keys()


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


def test_a4_watermark_above_the_followers_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def high_watermark(self: InSyncReplicas, current: int, log_end: int, now_s: float) -> int:
        return max(current, log_end)

    monkeypatch.setattr(InSyncReplicas, "high_watermark", high_watermark)
    violations = run(1, minutes=0.4).violations
    assert any("of the ISR does not have its batch" in one for one in violations)
