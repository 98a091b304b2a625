"""Replays a seed of the cluster simulation and prints what happened.

    python -m ottla.testing.simulate --seed 17 --minutes 2 --brokers 3

It exits with status 1 if a guarantee was violated.
"""

import argparse
import sys

from ottla.testing.cluster_scenario import run


def main() -> int:
    """Run one seed."""
    parser = argparse.ArgumentParser(
        prog="python -m ottla.testing.simulate",
        description="Replay a simulated run of a cluster and print what happened.",
    )
    parser.add_argument("--seed", type=int, required=True, help="Seed of the run")
    parser.add_argument("--minutes", type=float, default=2.0, help="Virtual minutes (default: 2)")
    parser.add_argument(
        "--brokers", type=int, default=3, choices=(3, 4, 5), help="Number of brokers (default: 3)"
    )
    given = parser.parse_args()
    outcome = run(given.seed, minutes=given.minutes, brokers=given.brokers)
    print("\n".join(outcome.story))
    counted = {**outcome.faults, **outcome.counts}
    print(f"\nSeed {outcome.seed}: {outcome.seconds:.0f} virtual seconds, digest {outcome.digest}")
    print(f"{outcome.acknowledged} records acknowledged")
    print("\n".join(f"{name}: {count}" for name, count in sorted(counted.items())))
    for violation in outcome.violations:
        print(f"VIOLATED: {violation}")
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
