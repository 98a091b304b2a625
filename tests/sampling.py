"""Picks the cases that a run of `make test` takes from a list too long to run whole.

The pick follows from the commit (the hash of git's HEAD), so that a run can be repeated and that
other commits take other cases. OTTLA_SEED overrides it; a run that fails prints the seed it had.
`make soak` sets OTTLA_FUZZ_SCALE above 1 and runs every case:

    @pytest.mark.parametrize("seed", sample(range(100), 10), ids=lambda seed: f"seed-{seed}")
    def test_no_record_is_lost(seed: int) -> None: ...

To run one case that is not in the sample: `OTTLA_FUZZ_SCALE=10 pytest … -k seed-97`.
"""

import os
import random
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeVar

Case = TypeVar("Case")

SCALE: Final = float(os.environ.get("OTTLA_FUZZ_SCALE", "1"))
SOAK: Final = SCALE > 1

_WITHOUT_GIT = "ottla"


def seed() -> str:
    """OTTLA_SEED, or the first digits of the commit's hash, or a fixed word outside a git tree."""
    return os.environ.get("OTTLA_SEED") or _commit()


def sample(cases: Iterable[Case], count: int) -> list[Case]:
    """`count` of the cases in their order, one from each of `count` equal stretches; all in a soak.

    Crash points and seeds are listed in order, so a sample has early, middle and late ones.
    """
    assert count > 0
    every = list(cases)
    if SOAK or count >= len(every):
        return every
    pick = random.Random(f"{seed()} {len(every)} {count}")
    bounds = [len(every) * stretch // count for stretch in range(count + 1)]
    return [every[pick.randrange(*bounds[at : at + 2])] for at in range(count)]


def scaled(count: int) -> int:
    """A number of examples or steps: `count`, multiplied in a soak."""
    return max(1, int(count * SCALE))


def examples(count: int, *, usual: int) -> int:
    """The examples that Hypothesis draws: `count` in a test run, a multiple of `usual` in a soak.

    The first examples are the small and the extreme ones, so that a few of them find most defects.
    """
    assert count <= usual
    return scaled(usual) if SOAK else count


def _commit() -> str:
    asked = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip() or _WITHOUT_GIT
