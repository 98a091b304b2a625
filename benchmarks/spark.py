"""Our source and sink in Spark, compared with Spark's own Kafka connector.

Invariant: one Spark session on two cores, one broker, the same topics. Both formats use their
defaults, do the same work, and take turns, with the order reversed every other round. The first
round of each is not counted. Figures are medians.
"""

import argparse
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from rich.console import Console
from rich.table import Table

from harness import write_report

sys.path.append(str(Path(__file__).parents[1]))

from judges.ottla_broker import ottla_broker
from ottla.sync import Admin
from spark_work import Taken, Work, fill, planning_ms, session

QUESTION: Final = "What do reading and writing topics in Spark cost, without a jar and with it?"
OURS, THEIRS = "ottla", "kafka"
PARTITIONS: Final = 4
SMALL, LARGE = 100, 1000
BATCH_GOAL: Final = {SMALL: 4.0, LARGE: 1.0}
STREAM_GOAL: Final = {SMALL: 3.0, LARGE: 1.0}
WRITE_GOAL: Final = {SMALL: 2.0, LARGE: 1.0}
START_GOAL_MS: Final = 500.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Effort:
    """The amount of work."""

    rounds: int = 4
    read: Mapping[int, int] = field(default_factory=lambda: {SMALL: 3_000_000, LARGE: 600_000})
    written: Mapping[int, int] = field(default_factory=lambda: {SMALL: 600_000, LARGE: 150_000})
    planned: tuple[int, ...] = (1, 10, 100, 1000)
    micro_batches: int = 15
    trips: int = 300
    pause_s: float = 0.025


QUICK: Final = Effort(
    rounds=1,
    read={SMALL: 1_000_000, LARGE: 200_000},
    written={SMALL: 200_000, LARGE: 50_000},
    planned=(1, 1000),
    micro_batches=4,
    trips=80,
)


class Report:
    """The measurements as a table and as figures."""

    def __init__(self, question: str = QUESTION, ours: str = OURS, theirs: str = THEIRS) -> None:
        self._names = ours, theirs
        self.table = Table(title=question)
        for heading in ("work", ours, theirs, "ratio", "goal"):
            self.table.add_column(heading, justify="left" if heading == "work" else "right")
        self.cases: list[dict[str, object]] = []

    def rates(
        self, work: str, found: Mapping[str, Sequence[Taken]], rows: int, goal: float
    ) -> None:
        """Rows per second of both, and the CPU time per row."""
        rates = {one: [rows / turn.seconds for turn in turns] for one, turns in found.items()}
        costs = {one: [turn.cpu_s / rows * 1e6 for turn in turns] for one, turns in found.items()}
        rate = {one: statistics.median(all_) for one, all_ in rates.items()}
        cost = {one: statistics.median(all_) for one, all_ in costs.items()}
        ours, theirs = self._names
        ratio, cheaper = rate[ours] / rate[theirs], cost[theirs] / cost[ours]
        met = ratio >= goal
        mark = f"[green]at least {goal:g}[/]" if met else f"[red]missed: at least {goal:g}[/]"
        figures = (f"{rate[one] / 1000:,.0f} k rows/s" for one in self._names)
        self.table.add_row(work, *figures, f"{ratio:.2f}", mark)
        figures = (f"{cost[one]:.2f} µs CPU a row" for one in self._names)
        self.table.add_row("", *figures, f"{cheaper:.2f}", "")
        self.cases.append(
            {"work": work, "rows_per_s": rates, "cpu_us_per_row": costs, "ratio": ratio,
             "cpu_ratio": cheaper, "goal": goal, "met": met}
        )  # fmt: skip

    def times(self, work: str, taken_ms: Mapping[str, float], goal_ms: float | None = None) -> None:
        """Milliseconds of both, or only of ours."""
        ours, theirs = self._names
        shown = [f"{taken_ms[one]:,.1f} ms" if one in taken_ms else "" for one in self._names]
        ratio = taken_ms[theirs] / taken_ms[ours] if theirs in taken_ms else None
        met = None if goal_ms is None else taken_ms[ours] <= goal_ms
        mark = {
            None: "",
            True: f"[green]at most {goal_ms} ms[/]",
            False: f"[red]missed: at most {goal_ms} ms[/]",
        }[met]
        self.table.add_row(work, *shown, "" if ratio is None else f"{ratio:.2f}", mark)
        self.cases.append(
            {"work": work, "ms": dict(taken_ms), "ratio": ratio, "goal_ms": goal_ms, "met": met}
        )


def in_turns(
    works: Mapping[str, T],
    rounds: int,
    measure: Callable[[T], Any],
    *,
    uncounted: int = 1,
) -> dict[str, list[Any]]:
    """Measure each in turn for several rounds; the first round is not counted."""
    found: dict[str, list[Any]] = {name: [] for name in works}
    for turn in range(uncounted + rounds):
        for name in works if turn % 2 == 0 else reversed([*works]):
            one = measure(works[name])
            if turn >= uncounted:
                found[name].append(one)
    return found


def reads(report: Report, works: Mapping[str, Work], effort: Effort, servers: str) -> None:
    for size in (SMALL, LARGE):
        rows, topic = effort.read[size], f"read-{size}"
        fill(servers, topic, PARTITIONS, size, rows)

        def batch(one: Work, rows: int = rows, topic: str = topic) -> Taken:
            read, taken = one.read_batch(topic)
            assert read == rows, read
            return taken

        def stream(one: Work, rows: int = rows, topic: str = topic) -> tuple[Taken, float]:
            read, taken, start_s = one.read_stream(topic, rows // 3 + 4)
            assert read == rows, read
            return taken, start_s

        found = in_turns(works, effort.rounds, batch)
        report.rates(f"read a batch, {size} B", found, rows, BATCH_GOAL[size])
        streams = in_turns(works, effort.rounds, stream)
        taken = {name: [one for one, _ in turns] for name, turns in streams.items()}
        report.rates(f"read a stream, {size} B", taken, rows, STREAM_GOAL[size])
        starts = {
            name: statistics.median(start_s for _, start_s in turns) * 1000
            for name, turns in streams.items()
        }
        report.times(f"start of that stream, {size} B", starts, START_GOAL_MS)


def writes(report: Report, works: Mapping[str, Work], effort: Effort, servers: str) -> None:
    for size in (SMALL, LARGE):
        count = effort.written[size]
        rows = works[OURS].rows_to_write(size, count)
        for name in works:
            with Admin({"bootstrap.servers": servers}) as admin:
                admin.create_topic(f"write-{name}-{size}", PARTITIONS)

        def measured(one: Work, rows: Any = rows, size: int = size) -> Taken:
            return one.write_batch(rows, f"write-{one.format}-{size}")

        found = in_turns(works, effort.rounds, measured)
        report.rates(f"write a batch, {size} B", found, count, WRITE_GOAL[size])
        rows.unpersist()


def plans(report: Report, works: Mapping[str, Work], effort: Effort, servers: str) -> None:
    for partitions in effort.planned:
        topic = f"planned-{partitions}"
        with Admin({"bootstrap.servers": servers}) as admin:
            admin.create_topic(topic, partitions)
        found = in_turns(
            works,
            1,
            lambda one, t=topic: one.micro_batches(t, effort.micro_batches),
            uncounted=1 if partitions == effort.planned[0] else 0,
        )
        for key, what in (
            ("idle_ms", "trigger without records"),
            ("busy_latest_ms", "latestOffset of a micro-batch"),
            ("busy_ms", "micro-batch of one record"),
        ):
            medians = {
                name: statistics.median(one[key] for one in all_) for name, all_ in found.items()
            }
            report.times(f"{what}, {partitions} partitions", medians)
        own_ms = planning_ms(servers, topic, 20)
        report.times(f"latestOffset and partitions, {partitions} partitions", {OURS: own_ms})


def trips(report: Report, works: Mapping[str, Work], effort: Effort) -> None:
    found = in_turns(works, 1, lambda one: one.trips(PARTITIONS, effort.trips, effort.pause_s))
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        at = {
            one: sorted(ms for all_ in turns for ms in all_)[int(share * effort.trips)]
            for one, turns in found.items()
        }
        report.times(f"produce to result, {name}", at)


def main() -> None:
    arguments = argparse.ArgumentParser(description=QUESTION)
    arguments.add_argument("--quick", action="store_true", help="fewer records, one round")
    arguments.add_argument("--only", choices=("reads", "writes", "plans", "trips"))
    given = arguments.parse_args()
    quick: bool = given.quick
    effort = QUICK if quick else Effort()
    console = Console(width=None if sys.stdout.isatty() else 120)
    report = Report()
    with ottla_broker() as broker, session() as spark:
        servers = broker.bootstrap
        works = {name: Work(spark, servers, name) for name in (OURS, THEIRS)}
        steps: Mapping[str, Callable[[], None]] = {
            "reads": lambda: reads(report, works, effort, servers),
            "writes": lambda: writes(report, works, effort, servers),
            "plans": lambda: plans(report, works, effort, servers),
            "trips": lambda: trips(report, works, effort),
        }
        try:
            for name, step in steps.items():
                if given.only in (None, name):
                    with console.status(name):
                        step()
        finally:  # print the measurements even after a failure
            console.print(report.table)
    path = write_report(
        Path(__file__), {"question": QUESTION, "quick": quick, "cases": report.cases}
    )
    console.print(f"figures: {path}", soft_wrap=True)


if __name__ == "__main__":
    main()
