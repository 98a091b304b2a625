"""Compares Ottla's broker with Apache Kafka under the same load.

Invariant: both servers run for the whole benchmark, are warmed up with the same records, and take
turns: ours, Kafka, ours, Kafka. Figures are medians of the rounds; the server's CPU is for the same
work.

    python benchmarks/broker_vs_kafka            # all of it, about 15 minutes
    python benchmarks/broker_vs_kafka --quick    # one round with a quarter of the records
    python benchmarks/broker_vs_kafka --only consume
"""

import argparse
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

# The module path of a script has only its own directory, not its parent or the repository.
sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from loads import Outcome, librdkafka, producer_performance
from rich.console import Console
from rich.table import Table
from servers import (
    KafkaServer,
    OttlaServer,
    Server,
    connections,
    cpu_s,
    create_topic,
    delete_topic,
    memory_mb,
)
from works import LARGE_BATCHES, SOON, WORKS, Goal, Work

from harness import PIPED_WIDTH, write_report
from judges.java import NoJudge
from judges.wire import Wire
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.records.builder import BatchBuilder

QUESTION = "How does our broker compare with Apache Kafka, under the same load?"
ROUNDS = 3
WARM_RECORDS = 2_000_000
PACES_MB = (10, 20, 30, 40)
PACE_SECONDS = 8
IDLE_CONNECTIONS = 5_000
READY_S_MAX = 0.4
MEMORY_START_MB_MAX, MEMORY_MB_MAX, MEMORY_IDLE_MB_MAX = 50, 200, 150


@dataclass(slots=True)
class Figures:
    """The results of one server in a row."""

    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    cpu_s: list[float] = field(default_factory=list[float])

    @property
    def rate(self) -> float:
        """Records per second."""
        return statistics.median(one.rate for one in self.outcomes)

    @property
    def cpu(self) -> float:
        """CPU seconds of the server."""
        return statistics.median(self.cpu_s)

    def latency(self, which: str) -> float | None:
        """A percentile, if the load measures latencies."""
        found = [getattr(one, which) for one in self.outcomes]
        return None if None in found else statistics.median(found)


Measured = dict[str, Figures]  # by the name of the server


def measure(work: Work, servers: Sequence[Server], rounds: int, share: float) -> Measured:
    """Measure all rounds of a row, with the servers in turns."""
    records = max(1000, int(work.records * share))
    figures = {server.name: Figures() for server in servers}
    if work.filled is not None:
        for server in servers:
            create_topic(server, "filled", work.partitions)
            if work.fill is None:
                producer_performance(server, "filled", records, work.filled, LARGE_BATCHES)
            else:
                work.fill(server, "filled", records)
    for number in range(rounds):
        for server in servers:
            topic = "filled" if work.filled is not None else f"round-{number}"
            if work.filled is None:
                create_topic(server, topic, work.partitions)
            before_s = cpu_s(server)
            figures[server.name].outcomes.append(work.load(server, topic, records))
            figures[server.name].cpu_s.append(cpu_s(server) - before_s)
            if work.filled is None:
                delete_topic(server, topic)
    if work.filled is not None:
        for server in servers:
            delete_topic(server, "filled")
    return figures


def pace(servers: Sequence[Server], rounds: int) -> dict[int, Measured]:
    """Latencies at several offered loads, measured from when each record was due."""
    found: dict[int, Measured] = {}
    for megabytes in PACES_MB:
        figures = found[megabytes] = {server.name: Figures() for server in servers}
        for number in range(rounds):
            for server in servers:
                topic = f"pace-{megabytes}-{number}"
                create_topic(server, topic, 6)
                before_s = cpu_s(server)
                outcome = librdkafka(
                    server, topic, "pace", rate=megabytes * 1000, size=1000, seconds=PACE_SECONDS
                )
                figures[server.name].outcomes.append(outcome)
                figures[server.name].cpu_s.append(cpu_s(server) - before_s)
                delete_topic(server, topic)
    return found


# Measurements of a single server.


def first_record_s(server: OttlaServer) -> float:
    """Seconds from the command to the first acknowledged record."""
    builder = BatchBuilder()
    builder.append(time.time_ns() // 1_000_000, None, b"first")
    data = [PartitionProduceData(index=0, records=builder.build())]
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="first", partition_data=data)],
    )
    began_s = time.perf_counter()
    server.start()
    create_topic(server, "first", 1)
    with Wire(server.address) as wire:
        answer = wire.ask(request, 9, ProduceResponse)
    taken_s = time.perf_counter() - began_s
    assert answer.responses[0].partition_responses[0].error_code == 0
    delete_topic(server, "first")
    return taken_s


def idle(server: Server, count: int) -> dict[str, float]:
    """The memory and latency cost of many idle connections."""
    create_topic(server, "idle", 1)

    def latency() -> Outcome:
        return librdkafka(server, "idle", "pace", rate=2000, size=100, seconds=4)

    alone, before_mb = latency(), memory_mb(server)
    with connections(server, count):
        beside, taken_mb = latency(), memory_mb(server) - before_mb
    delete_topic(server, "idle")
    assert alone.p50_ms is not None
    assert alone.p99_ms is not None
    assert beside.p50_ms is not None
    assert beside.p99_ms is not None
    return {
        "connections": count,
        "memory_mb": taken_mb,
        "p50_ms_alone": alone.p50_ms,
        "p50_ms": beside.p50_ms,
        "p99_ms_alone": alone.p99_ms,
        "p99_ms": beside.p99_ms,
    }


# The report.


def met(goal: Goal, ours: Figures, theirs: Figures) -> bool:
    reached = [
        not goal.rate_min or ours.rate >= goal.rate_min * theirs.rate,
        not goal.cpu_max or ours.cpu <= goal.cpu_max * theirs.cpu,
    ]
    if goal.latency_max:
        for which in ("p50_ms", "p99_ms"):
            mine, other = ours.latency(which), theirs.latency(which)
            assert mine is not None
            assert other is not None
            reached.append(mine <= goal.latency_max * other)
    return all(reached)


def show(console: Console, rows: Sequence[tuple[str, Goal, Measured]]) -> None:
    table = Table(title=QUESTION, caption="medians; CPU: of the server, for the same work")
    table.add_column("load")
    for name in ("records/s", "kafka", "x", "CPU s", "kafka", "x", "p50 ms", "kafka"):
        table.add_column(name, justify="right")
    for name in ("p99 ms", "kafka", "goal", "met?"):
        table.add_column(name, justify="right")
    for name, goal, measured in rows:
        ours, theirs = measured[OttlaServer.name], measured[KafkaServer.name]
        wanted = [
            f"≥{goal.rate_min:g}" if goal.rate_min else "",
            f"≤{goal.cpu_max:g} CPU" if goal.cpu_max else "",
            f"≤{goal.latency_max:g} ms" if goal.latency_max else "",
        ]
        table.add_row(
            name,
            *(f"{ours.rate:,.0f}", f"{theirs.rate:,.0f}", f"{ours.rate / theirs.rate:.2f}"),
            *(f"{ours.cpu:.2f}", f"{theirs.cpu:.2f}", f"{ours.cpu / max(theirs.cpu, 0.01):.2f}"),
            *(_ms(one.latency(which)) for which in ("p50_ms", "p99_ms") for one in (ours, theirs)),
            " ".join(filter(None, wanted)),
            "yes" if met(goal, ours, theirs) else "[bold]no[/bold]",
        )
    console.print(table)


def _ms(figure: float | None) -> str:
    return "" if figure is None else f"{figure:.1f}"


def as_json(name: str, goal: Goal, measured: Measured) -> Mapping[str, object]:
    ours, theirs = measured[OttlaServer.name], measured[KafkaServer.name]
    return {
        "case": name,
        "goal": asdict(goal),
        "met": met(goal, ours, theirs),
        "servers": {
            server: {"outcomes": [asdict(one) for one in found.outcomes], "cpu_s": found.cpu_s}
            for server, found in measured.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--quick", action="store_true", help="a short run, for a first look")
    parser.add_argument("--only", default="", help="the rows with these words in their names")
    asked = parser.parse_args()
    rounds, share = (1, 0.25) if asked.quick else (ROUNDS, 1.0)
    console = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH + 30)
    ours = OttlaServer()
    try:
        with KafkaServer() as kafka:
            compare(console, ours, kafka, rounds, share, asked.only)
    except NoJudge as missing:
        sys.exit(str(missing))
    finally:
        ours.close()


def compare(
    console: Console, ours: OttlaServer, kafka: KafkaServer, rounds: int, share: float, only: str
) -> None:
    ours.start()  # not measured: compiles the modules, as an installation does
    ours.stop()
    ready_s, start_mb = first_record_s(ours), memory_mb(ours)
    servers: Sequence[Server] = (ours, kafka)
    for server in servers:
        with console.status(f"warming {server.name}"):
            create_topic(server, "warm", 6)
            producer_performance(server, "warm", int(WARM_RECORDS * share), 100)
            delete_topic(server, "warm")
    rows: list[tuple[str, Goal, Measured]] = []
    for work in WORKS:
        if only in work.name:
            with console.status(work.name):
                rows.append((work.name, work.goal, measure(work, servers, rounds, share)))
    if only in "offered load":
        with console.status("offered load"):
            for megabytes, measured in pace(servers, rounds).items():
                rows.append((f"offered load of {megabytes} MB/s, 1 KB", SOON, measured))
    show(console, rows)
    peak_mb = memory_mb(ours, "VmHWM")
    idle_figures = {server.name: idle(server, IDLE_CONNECTIONS) for server in servers}
    mine = idle_figures[ours.name]
    console.print(
        f"ready, first record included: {ready_s:.2f} s (goal {READY_S_MAX})\n"
        f"memory after start: {start_mb:.0f} MB (goal {MEMORY_START_MB_MAX}), "
        f"at most {peak_mb:.0f} MB in all runs (goal {MEMORY_MB_MAX}); "
        f"kafka {memory_mb(kafka, 'VmHWM'):.0f} MB\n"
        f"{IDLE_CONNECTIONS:,} idle connections: {mine['memory_mb']:.0f} MB "
        f"(goal {MEMORY_IDLE_MB_MAX}; kafka {idle_figures[kafka.name]['memory_mb']:.0f}), "
        f"p50 {mine['p50_ms_alone']:.1f} -> {mine['p50_ms']:.1f} ms, "
        f"p99 {mine['p99_ms_alone']:.1f} -> {mine['p99_ms']:.1f} ms"
    )
    path = write_report(
        Path(__file__).parents[1] / "broker_vs_kafka.json",
        {
            "question": QUESTION,
            "quick": share < 1,
            "cases": [as_json(*row) for row in rows],
            "ready_s": ready_s,
            "memory_start_mb": start_mb,
            "memory_peak_mb": {one.name: memory_mb(one, "VmHWM") for one in servers},
            "idle": idle_figures,
        },
    )
    console.print(f"figures: {path}", soft_wrap=True)


if __name__ == "__main__":
    main()
