"""The simulated seconds per real second of a cluster of three brokers, with clients and faults.

Invariant: the same seeds run every time, so a run differs from another only in the machine and the
code. Garbage collections are kept out, as in the tests.
"""

import argparse
import gc
import time
from statistics import median

from ottla.testing.cluster_scenario import run

FIRST_SEED = 1


def main() -> None:
    """Run seeds of two virtual minutes, and print the rate of each and their median."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds")
    seeds: int = parser.parse_args().seeds
    run(FIRST_SEED, minutes=0.3)  # imports and caches
    print("seed  virtual s  CPU s  virtual s per CPU s  virtual s per real s")
    rates: list[float] = []
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        gc.collect()
        gc.disable()
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        outcome = run(seed)
        cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
        gc.enable()
        rates.append(outcome.seconds / wall_s)
        print(
            f"{seed:>4} {outcome.seconds:>10.0f} {cpu_s:>6.1f} {outcome.seconds / cpu_s:>20.1f} "
            f"{rates[-1]:>21.1f}"
        )
    print(f"median: {median(rates):.1f} simulated seconds per real second")


if __name__ == "__main__":
    main()
