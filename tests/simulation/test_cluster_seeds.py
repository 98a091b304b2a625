"""Runs of a cluster of three brokers from seeds: no invariant and no guarantee is violated.

`make test` runs a batch of seeds; `make soak` runs all batches, and ten times as many.
Repeat a seed with `python -m ottla.testing.simulate --seed 17`; it ends in the same way every time.
"""

import gc
import os
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from ottla.testing.cluster_scenario import Outcome, run
from sampling import sample, scaled

SEEDS_PER_BATCH = 24
BATCHES = range(scaled(10))
BATCHES_SAMPLED = 1
BALANCING_SEEDS = 3
FOUR_IN_SYNC = re.compile(r"ISR \(\d+, \d+, \d+, \d+\)")  # of three replicas: one replaces another
FAULTS_MIN = 5
LEADER_CHANGES_MIN = 2
ACKNOWLEDGED_MIN = 500

# What must happen in each batch of seeds.
FAULTS = {
    "connection to coordination lost",
    "failed directory",
    "failed disk",
    "full disk",
    "kill",
    "one-way packet loss",
    "outage of coordination",
    "partition between brokers",
    "partition from coordination",
    "pause",
    "power cut: all",
    "power cut: holes",
    "power cut: torn",
    "refused connections",
    "replaced directory",
    "rotten byte",
    "session expired",
    "slow link",
    "stop",
    "stop of all brokers",
}
EVENTS = {
    "ELR elections",
    "connections broken",
    "controller changes",
    "expands",
    "fast produces",
    "fast replicated produces",
    "leader changes",
    "preferred elections",
    "requests to coordination lost",
    "responses of coordination lost",
    "sessions expired",
    "shrinks",
    "split messages",
    "stalls",
    "topics deleted",
    "topics grown",
    "truncations",
}


def run_seed(seed: int) -> Outcome:
    """Run a seed without garbage collections, which take a twentieth of its time."""
    gc.disable()
    outcome = run(seed)
    gc.collect()
    return outcome


@pytest.mark.parametrize(
    "batch", sample(BATCHES, BATCHES_SAMPLED), ids=lambda batch: f"batch-{batch}"
)
def test_no_guarantee_of_a_cluster_is_violated(batch: int) -> None:
    happened: Counter[str] = Counter()
    seeds = range(batch * SEEDS_PER_BATCH, (batch + 1) * SEEDS_PER_BATCH)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        outcomes = [*pool.map(run_seed, seeds)]
    for seed, outcome in zip(seeds, outcomes, strict=True):
        assert not outcome.violations, "\n".join((f"seed {seed}", *outcome.violations[:5]))
        assert outcome.acknowledged >= ACKNOWLEDGED_MIN, seed
        assert sum(outcome.faults.values()) >= FAULTS_MIN, seed
        assert outcome.counts["leader changes"] >= LEADER_CHANGES_MIN, seed
        happened += Counter(outcome.faults) + Counter(outcome.counts)
    assert not (FAULTS | EVENTS) - happened.keys()


def run_balancing_seed(seed: int) -> Outcome:
    """Run a seed with four brokers whose controller balances them."""
    gc.disable()
    outcome = run(seed, brokers=4, balances=True)
    gc.collect()
    return outcome


@pytest.mark.parametrize(
    "batch", sample(range(scaled(10)), 1), ids=lambda batch: f"balancing-{batch}"
)
def test_no_guarantee_is_violated_while_the_controller_balances(batch: int) -> None:
    seeds = range(batch * BALANCING_SEEDS, (batch + 1) * BALANCING_SEEDS)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        outcomes = [*pool.map(run_balancing_seed, seeds)]
    reassigned = 0
    for seed, outcome in zip(seeds, outcomes, strict=True):
        assert not outcome.violations, "\n".join((f"seed {seed}", *outcome.violations[:5]))
        assert outcome.acknowledged >= ACKNOWLEDGED_MIN, seed
        reassigned += sum(map(bool, map(FOUR_IN_SYNC.search, outcome.story)))
    assert reassigned, "the controller moved nothing"


def test_seed_of_a_cluster_gives_the_same_run_in_every_process() -> None:
    code = "from ottla.testing.cluster_scenario import run; print(run(1, minutes=1).digest)"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed in ("1", "77")
    ]
    first, second = [process.communicate()[0].strip() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert len(first) == 32
    assert first == second
