"""Our client compared with others, by records and by columns.

Invariant: one broker in its own process. Every measurement is a new process that does the same work
with one client, and clients take turns in each round. All use acks=all, a linger of 5 ms and
batches of 64 KB, otherwise their defaults, and the fastest way of their documentation for single
records. Rates count from the first record to the last that is acknowledged or returned, without
imports and connecting.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from harness import write_report

sys.path.append(str(Path(__file__).parents[1]))

from judges.ottla_broker import OttlaBroker, ottla_broker
from ottla.ids import ZERO_UUID
from ottla.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

QUESTION: Final = "Is our client ahead of the others, record by record and by columns?"
QUICK_NOTE: Final = (
    "[yellow]--quick shows only that every client works: librdkafka has fetched all records of a "
    "short run before the measurement starts, and one round does not even out the load of the "
    "machine. Compare clients in a whole run.[/]"
)
PEERS: Final = ("confluent-kafka", "aiokafka", "kafka-python")
PARTITIONS: Final = 6
MEMORY_MB_MAX: Final = 150
SMALL, LARGE = 100, 1000
COLUMNS: Final = {
    ("produce", SMALL): 5.0,
    ("consume", SMALL): 10.0,
    ("produce", LARGE): 2.0,
    ("consume", LARGE): 2.0,
}
"""The goals of columns, for each work and size of records, in the order of the measurements."""

SYNC: Final = 0.6
ROUND_TRIP_MAX: Final = 1.2
RATES: Final = {f"{work} {size} B": (work, size) for work, size in COLUMNS}
TRIPS, MEMORY = "round trip", "consume 1 GB"
ROWS: Final = (*RATES, TRIPS, MEMORY)
COUNTS: Final = {
    ("ottla", SMALL): 1_000_000,
    ("ottla sync", SMALL): 500_000,
    ("ottla columns", SMALL): 5_000_000,
    ("confluent-kafka", SMALL): 1_000_000,
    ("aiokafka", SMALL): 300_000,
    ("kafka-python", SMALL): 150_000,
    ("ottla", LARGE): 300_000,
    ("ottla sync", LARGE): 200_000,
    ("ottla columns", LARGE): 1_000_000,
    ("confluent-kafka", LARGE): 300_000,
    ("aiokafka", LARGE): 150_000,
    ("kafka-python", LARGE): 80_000,
}

Figures = Mapping[str, float]


def measured(client: str, work: str, broker: OttlaBroker, **given: object) -> Figures:
    """Measure one client with one piece of work, in its own process."""
    asked = {"client": client, "work": work, "servers": broker.bootstrap, **given}
    script = Path(__file__).with_name("clients_worker.py")
    done = subprocess.run(
        [sys.executable, str(script), json.dumps(asked)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{client}, {work}: {done.stderr[-2000:]}")
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def delete_topic(broker: OttlaBroker, topic: str) -> None:
    """Delete a topic, so that the system does not write it to disk while others are measured."""
    one = DeleteTopicState(name=topic, topic_id=ZERO_UUID)
    with broker.wire() as wire:
        request = DeleteTopicsRequest(topics=[one], timeout_ms=60_000)
        answer = wire.ask(request, 6, DeleteTopicsResponse)
    assert answer.responses[0].error_code == 0, answer


def rows_named(names: str) -> tuple[str, ...]:
    """Return the rows with these names, which commas separate; raises ArgumentTypeError."""
    asked = [name.strip() for name in names.split(",")]
    for name in asked:
        if name not in ROWS:
            raise argparse.ArgumentTypeError(
                f"there is no row {name!r}; the rows are {', '.join(map(repr, ROWS))}"
            )
    return tuple(row for row in ROWS if row in asked)


def main() -> None:
    arguments = argparse.ArgumentParser(description=QUESTION)
    arguments.add_argument(
        "--quick", action="store_true", help="fewer records, one round; not comparable"
    )
    arguments.add_argument(
        "--only",
        type=rows_named,
        default=ROWS,
        metavar="NAME[,NAME]",
        help=f"measure only these rows of the table, of {', '.join(map(repr, ROWS))}",
    )
    asked = arguments.parse_args()
    quick: bool = asked.quick
    rows: tuple[str, ...] = asked.only
    rounds = 1 if quick else 3
    share = 0.4 if quick else 1.0
    console = Console(width=None if sys.stdout.isatty() else 120)
    table = Table(title=QUESTION)
    for heading in (
        "work",
        "client",
        "k records/s",
        "µs CPU each",
        "times the best peer",
        "goal",
    ):
        table.add_column(heading, justify="left" if heading in ("work", "client") else "right")
    cases: list[dict[str, object]] = []
    settings = {
        "num.partitions": PARTITIONS,
        "auto.create.topics.enable": "true",
        "log.segment.delete.delay.ms": 0,
    }
    clients = ("ottla", "ottla sync", "ottla columns", *PEERS)
    rates = [RATES[row] for row in rows if row in RATES]
    total = rounds * (len(rates) * len(clients) + 2 * (TRIPS in rows)) + (MEMORY in rows)
    with ottla_broker(settings) as broker, Progress(console=console) as progress:
        steps = progress.add_task("measuring", total=total)
        filled: set[int] = set()

        def fill(size: int) -> str:
            """Return the topic to consume from, with as many records as a client consumes."""
            topic = f"filled-{size}"
            if size not in filled:
                filled.add(size)
                most = max(count for (_, one), count in COUNTS.items() if one == size)
                measured("ottla columns", "produce", broker, size=size, topic=topic,
                         count=int(most * share))  # fmt: skip
            return topic

        for work, size in rates:
            found: dict[str, list[Figures]] = {client: [] for client in clients}
            for turn in range(rounds):
                for client in clients if turn % 2 == 0 else reversed(clients):
                    topic = fill(size) if work == "consume" else f"{client}-{size}-{turn}"
                    count = int(COUNTS[client, size] * share)
                    one = measured(client, work, broker, size=size, count=count,
                                   topic=topic.replace(" ", "-"))  # fmt: skip
                    found[client].append(one)
                    if work == "produce":
                        delete_topic(broker, topic.replace(" ", "-"))
                    progress.advance(steps)
            _add(table, cases, work, size, found)
        if TRIPS in rows:
            _round_trips(table, cases, broker, rounds, lambda: progress.advance(steps))
        if MEMORY in rows:
            held = measured("ottla", "consume", broker, size=LARGE, topic=fill(LARGE),
                            count=int(COUNTS["ottla columns", LARGE] * share))  # fmt: skip
            progress.advance(steps)
            memory_mb = held["memory_bytes"] / (1 << 20)
            met = memory_mb <= MEMORY_MB_MAX
            table.add_row(MEMORY, "ottla", f"{memory_mb:.0f} MB", "", "",
                          _mark(f"at most {MEMORY_MB_MAX} MB", met))  # fmt: skip
            cases.append(
                {"work": "memory while 1 GB is consumed", "memory_mb": memory_mb, "met": met}
            )
    console.print(table)
    if quick:
        console.print(QUICK_NOTE)
    path = write_report(Path(__file__), {"question": QUESTION, "quick": quick, "cases": cases})
    console.print(f"figures: {path}", soft_wrap=True)


def _add(
    table: Table,
    cases: list[dict[str, object]],
    work: str,
    size: int,
    found: Mapping[str, list[Figures]],
) -> None:
    rates = {one: statistics.median(each["rate"] for each in all_) for one, all_ in found.items()}
    cpu = {one: statistics.median(each["cpu_us"] for each in all_) for one, all_ in found.items()}
    best = max(rates[peer] for peer in PEERS)
    for client, rate in rates.items():
        goals = {"ottla": 1.0, "ottla sync": SYNC, "ottla columns": COLUMNS[work, size]}
        goal = goals.get(client)
        met = None if goal is None else rate >= goal * best
        table.add_row(
            f"{work} {size} B",
            client,
            f"{rate / 1000:,.0f}",
            f"{cpu[client]:.2f}",
            f"{rate / best:.2f}",
            "" if goal is None else _mark(f"at least {goal:g}", met is True),
        )
        cases.append(
            {
                "work": work,
                "size": size,
                "client": client,
                "records_per_s": rate,
                "cpu_us_per_record": cpu[client],
                "times_best_peer": rate / best,
                "met": met,
            }
        )
    table.add_section()


def _round_trips(
    table: Table,
    cases: list[dict[str, object]],
    broker: OttlaBroker,
    rounds: int,
    advance: Callable[[], None],
) -> None:
    """Send one record at a time with acks=all, and wait for each."""
    found: dict[str, list[Figures]] = {"ottla": [], "confluent-kafka": []}
    for turn in range(rounds):
        for client in found if turn % 2 == 0 else reversed([*found]):
            topic = f"trip-{client}-{turn}"
            found[client].append(
                measured(client, "round trip", broker, size=SMALL, count=2000, topic=topic)
            )
            advance()
    at = {
        client: [statistics.median(one[name] for one in all_) for name in ("p50_ms", "p99_ms")]
        for client, all_ in found.items()
    }
    for client, (p50, p99) in at.items():
        ours = client == "ottla"
        met = all(
            a <= ROUND_TRIP_MAX * b for a, b in zip(at["ottla"], at["confluent-kafka"], strict=True)
        )
        table.add_row(
            "round trip",
            client,
            f"p50 {p50:.2f} ms",
            f"p99 {p99:.2f} ms",
            "",
            _mark(f"at most {ROUND_TRIP_MAX:g} x confluent-kafka's", met) if ours else "",
        )
        cases.append(
            {"work": "round trip", "client": client, "p50_ms": p50, "p99_ms": p99,
             "met": met if ours else None}
        )  # fmt: skip
    table.add_section()


def _mark(goal: str, met: bool) -> str:
    return f"[green]{goal}[/]" if met else f"[red]missed: {goal}[/]"


if __name__ == "__main__":
    main()
