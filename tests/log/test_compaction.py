"""Compaction of a log: what stays of it, whatever it held."""

import os
from random import Random

import pytest

from log.compacting import CompactedLog, write_randomly
from ottla.log.cleaning import CleaningLimits

SCALE = max(1, int(float(os.environ.get("OTTLA_FUZZ_SCALE", "1"))))


@pytest.mark.parametrize("seed", range(20 * SCALE))
def test_c8_the_log_is_as_the_model_after_every_cleaning(seed: int) -> None:
    random = Random(seed)
    owner = CompactedLog()
    cleanings = full = 0
    for _ in range(14):
        write_randomly(owner, random, random.randrange(5, 25))
        for _ in range(random.choice([1, 1, 2])):
            owner.now_ms += random.choice([0, 10, 60])
            keys = random.choice([4, 20, 10_000])
            limits = CleaningLimits(map_bytes=keys * 24, io_bytes=random.choice([100, 100_000]))
            done = owner.compact(limits=limits)
            owner.check()
            cleanings += done is not None
            full += done is not None and done.map_full
        if random.random() < 0.3:
            assert not any("anew" in note for note in owner.reopen())
            owner.check()
        elif random.random() < 0.3:
            owner.reopen(clean=False)
            owner.check()
    assert cleanings > 5
    assert full
