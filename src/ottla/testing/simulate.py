"""Replays a seed of the cluster simulation and prints what happened.

    python -m ottla.testing.simulate --seed 17 --minutes 2 --brokers 3

It exits with status 1 if a guarantee was violated, and with status 2 if an argument is not valid.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Final

from ottla.testing.cluster_scenario import Outcome, run

BROKERS: Final = (3, 4, 5)
MINUTES_MAX: Final = 60.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one seed."""
    parser = argparse.ArgumentParser(
        prog="python -m ottla.testing.simulate",
        description="Replay a simulated run of a cluster and print what happened.",
        epilog="Exit status: 0 if all guarantees held, 1 if one was violated, "
        "2 if an argument is not valid.",
    )
    parser.add_argument("--seed", type=int, required=True, help="seed of the run, an integer")
    parser.add_argument(
        "--minutes", type=_minutes, default=2.0, help="virtual minutes (default: %(default)g)"
    )
    parser.add_argument(
        "--brokers",
        type=int,
        default=BROKERS[0],
        choices=BROKERS,
        help="number of brokers (default: %(default)s)",
    )
    parser.add_argument(
        "--balances", action="store_true", help="let the controller balance the cluster"
    )
    given = parser.parse_args(arguments)
    outcome = run(given.seed, minutes=given.minutes, brokers=given.brokers, balances=given.balances)
    print("\n".join(described(outcome)))
    return 1 if outcome.violations else 0


def described(outcome: Outcome) -> list[str]:
    """Return the lines that tell what happened in a run."""
    return [
        *outcome.story,
        "",
        f"Seed {outcome.seed}: {outcome.seconds:.0f} virtual seconds, digest {outcome.digest}",
        f"{outcome.acknowledged} records acknowledged, the slowest in {outcome.slowest_s:.1f} s",
        "Faults:",
        *_counted(outcome.faults),
        "Events:",
        *_counted(outcome.counts),
        *(f"VIOLATED: {one}" for one in outcome.violations),
        *(() if outcome.violations else ("No guarantee was violated.",)),
    ]


def _counted(counts: Mapping[str, int]) -> list[str]:
    return [f"  {count:6} {name}" for name, count in sorted(counts.items())]


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not isfinite(minutes) or not 0 < minutes <= MINUTES_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes up to 60")
    return minutes


if __name__ == "__main__":
    sys.exit(main())
