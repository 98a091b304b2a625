"""The time until a cluster of ottla.testing is up, in a process that has imported it.

A cluster is up when the `with` statement is entered: every broker serves requests, and they have a
controller.

Invariant: each figure is the time of one start of a new cluster with empty directories.
"""

import argparse
import asyncio
import statistics
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from harness import write_report
from ottla.testing.cluster import Cluster
from ottla.testing.cluster_thread import ClusterThread

QUESTION = "How long does a cluster for tests take to start?"
SIZES = (1, 3)
STARTS = 20
GOAL_S = 0.5


async def cluster_s(brokers: int) -> float:
    """Start a cluster on this event loop; returns the seconds."""
    began_s = time.perf_counter()
    async with Cluster(brokers=brokers) as cluster:
        taken_s = time.perf_counter() - began_s
        assert all(cluster.broker(number).running for number in range(1, brokers + 1))
        assert cluster.controller is not None
    return taken_s


def cluster_thread_s(brokers: int) -> float:
    """Start a cluster on an event loop in a thread; returns the seconds."""
    began_s = time.perf_counter()
    with ClusterThread(brokers=brokers) as cluster:
        taken_s = time.perf_counter() - began_s
        assert cluster.controller is not None
    return taken_s


def main() -> None:
    """Start clusters; print and store the times."""
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--quick", action="store_true", help="a short run, for a first look")
    quick: bool = parser.parse_args().quick
    starts = 3 if quick else STARTS
    asyncio.run(cluster_s(1))  # imports and caches
    found: dict[str, list[float]] = {}
    for brokers in SIZES:
        found[f"Cluster(brokers={brokers})"] = [
            asyncio.run(cluster_s(brokers)) for _ in range(starts)
        ]
        found[f"ClusterThread(brokers={brokers})"] = [
            cluster_thread_s(brokers) for _ in range(starts)
        ]
    table = Table(title=QUESTION)
    for name in ("cluster", "starts", "median s", "worst s", "goal", "met?"):
        table.add_column(name, justify="left" if name == "cluster" else "right")
    for name, taken in found.items():
        is_met = "yes" if max(taken) < GOAL_S else "[bold]no[/bold]"
        times = (f"{statistics.median(taken):.3f}", f"{max(taken):.3f}")
        table.add_row(name, str(len(taken)), *times, f"< {GOAL_S:g}", is_met)
    console = Console()
    console.print(table)
    figures = {
        "question": QUESTION,
        "quick": quick,
        "goal_s": GOAL_S,
        "cases": found,
        "met": all(max(taken) < GOAL_S for taken in found.values()),
    }
    console.print(f"figures: {write_report(Path(__file__), figures)}", soft_wrap=True)


if __name__ == "__main__":
    main()
