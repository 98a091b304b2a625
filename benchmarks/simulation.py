"""The simulated seconds per real second of a cluster of three brokers, with clients and faults.

Invariant: the same seeds run every time, so a run differs from another only in the machine and the
code. Garbage collections are kept out, as in the tests.
"""

import argparse
import gc
import time
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from harness import write_report
from ottla.testing.cluster_scenario import run

QUESTION = "How many seconds does the simulated cluster run in a real second?"
FIRST_SEED = 1
SEEDS = 5
# `make test` runs at least 60 seeds of two virtual minutes in 3 minutes, on two cores.
GOAL = 60 * 120 / (2 * 180)


def main() -> None:
    """Run seeds of two virtual minutes; print and store the rate of each."""
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--quick", action="store_true", help="a short run, for a first look")
    parser.add_argument("--seeds", type=int, help=f"number of seeds ({SEEDS})")
    asked = parser.parse_args()
    seeds: int = asked.seeds or (1 if asked.quick else SEEDS)
    run(FIRST_SEED, minutes=0.3)  # imports and caches
    table = Table(title=QUESTION)
    for name in ("seed", "virtual s", "CPU s", "virtual s per CPU s", "per real s", "goal", "met?"):
        table.add_column(name, justify="right")
    cases: list[dict[str, float]] = []
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        gc.collect()
        gc.disable()
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        outcome = run(seed)
        cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
        gc.enable()
        virtual_s = outcome.seconds
        cases.append({"seed": seed, "virtual_s": virtual_s, "cpu_s": cpu_s, "wall_s": wall_s})
        rates = (virtual_s / cpu_s, virtual_s / wall_s)
        table.add_row(
            *(str(seed), f"{virtual_s:.0f}", f"{cpu_s:.1f}"), *(f"{one:.1f}" for one in rates)
        )
    rate = median(one["virtual_s"] / one["wall_s"] for one in cases)
    per_cpu_s = median(one["virtual_s"] / one["cpu_s"] for one in cases)
    table.add_section()
    is_met = "yes" if rate >= GOAL else "[bold]no[/bold]"
    table.add_row("median", "", "", f"{per_cpu_s:.1f}", f"{rate:.1f}", f"≥ {GOAL:g}", is_met)
    console = Console()
    console.print(table)
    figures = {
        "question": QUESTION,
        "quick": asked.quick,
        "cases": cases,
        "simulated_s_per_s": rate,
        "goal": GOAL,
        "met": rate >= GOAL,
    }
    console.print(f"figures: {write_report(Path(__file__), figures)}", soft_wrap=True)


if __name__ == "__main__":
    main()
