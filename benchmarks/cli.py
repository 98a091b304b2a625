"""The command line: response times of commands, and their record rates.

Invariant: one broker in its own process. Each command is a new process, ours and Java's in turns,
on the same topic. The rate of a consumer counts from its first printed byte to the last, without
its start. `ottla perf` is compared with the client itself as in `clients.py`; the client by columns
returns Arrow batches, which `ottla perf` does not. Each figure is printed when it is measured; all
take about three minutes.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from clients import measured
from harness import write_report

sys.path.append(str(Path(__file__).parents[1]))

from judges.java import java_command
from judges.ottla_broker import UNCOMPILED, OttlaBroker, ottla_broker

Advance: TypeAlias = Callable[[str], None]
"""Called with each figure when it is measured."""

QUESTION: Final = "Does the command line answer at once, and is it ahead of Java's tools?"
BIN: Final = Path(sys.executable).parent
TOOLS: Final = "org.apache.kafka.tools."
JVM: Final = ("-Xmx512m", "-XX:+UseG1GC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
PARTITIONS: Final = 6
SIZE: Final = 100
READ_BYTES: Final = 1 << 20

ANSWER_S_MAX: Final = {
    "ottla version": 0.1,
    "ottla topic list": 0.3,
    "kafka-topics --list": 0.3,
    "ottla pipeline validate": 0.3,
}
WITHOUT_BROKER: Final = ("ottla version", "ottla pipeline validate")
"""Commands that Java's tool does not have."""

PIPELINE: Final = Path(__file__).parents[1] / "examples" / "sensors" / "pipeline.yml"
TIMES_JAVA: Final = 3.0
SHARE_OF_CLIENT: Final = 0.9


def environment() -> dict[str, str]:
    """The environment of a user: modules are compiled, and there is no profile."""
    kept = {name: value for name, value in os.environ.items() if name != UNCOMPILED}
    return {**kept, "OTTLA_CONFIG": os.devnull}


def answer_s(command: Sequence[str]) -> float:
    """The seconds that a command takes from its start to its end."""
    begun_s = time.perf_counter()
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment(), timeout=120
    )
    taken_s = time.perf_counter() - begun_s
    assert done.returncode == 0, done.stderr
    return taken_s


def rate(command: Sequence[str], count: int) -> float:
    """Records per second, from the first printed byte to the last."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment(), bufsize=0
    ) as process:
        assert process.stdout is not None
        pipe = process.stdout.fileno()
        size = len(os.read(pipe, READ_BYTES))
        first, begun_s = size, time.perf_counter()
        end_s = begun_s
        while data := os.read(pipe, READ_BYTES):
            size += len(data)
            end_s = time.perf_counter()
    assert process.returncode == 0, command
    # The first record of the topic is shorter.
    assert 0 <= count * (SIZE + 1) - size <= SIZE, f"{size} bytes of {count} records"
    return (size - first) / (SIZE + 1) / (end_s - begun_s)


@dataclass(slots=True)
class Row:
    """A case: the measurement, its peer, and whether there is a target."""

    case: str
    ours: float
    other: float | None
    beside: str
    unit: str
    goal: str = ""
    met: bool | None = None


def in_turns(
    rounds: int, candidates: Mapping[str, Callable[[], float]], advance: Advance
) -> dict[str, float]:
    """The median of each candidate; the candidates take turns in each round."""
    found: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(rounds):
        for name in candidates if turn % 2 == 0 else reversed([*candidates]):
            figure = candidates[name]()
            found[name].append(figure)
            advance(f"{name}: {_number(figure)}")
    return {name: statistics.median(all_) for name, all_ in found.items()}


def answers(broker: OttlaBroker, rounds: int, advance: Advance) -> list[Row]:
    """The response times of commands."""
    servers = ("--bootstrap-server", broker.bootstrap)
    commands = {
        "ottla version": [str(BIN / "ottla"), "version"],
        "ottla topic list": [str(BIN / "ottla"), "topic", "list", *servers],
        "kafka-topics --list": [str(BIN / "kafka-topics"), "--list", *servers],
        "ottla pipeline validate": [str(BIN / "ottla"), "pipeline", "validate", str(PIPELINE)],
        "java": java_command(f"{TOOLS}TopicCommand", "--list", *servers, options=JVM),
    }
    present = {
        name: one for name, one in commands.items() if Path(one[0]).exists() or name == "java"
    }
    medians = in_turns(
        rounds,
        {name: lambda one=one: answer_s(one) for name, one in present.items()},
        advance,
    )
    java_s = medians.pop("java")
    return [
        Row(
            name,
            taken_s,
            None if name in WITHOUT_BROKER else java_s,
            "" if name in WITHOUT_BROKER else "Java's TopicCommand",
            "s",
            f"at most {ANSWER_S_MAX[name]:g} s",
            taken_s <= ANSWER_S_MAX[name],
        )
        for name, taken_s in medians.items()
    ]


def consumers(broker: OttlaBroker, rounds: int, count: int, advance: Advance) -> list[Row]:
    """The rates at which records are printed."""
    topic = f"filled-{SIZE}"
    flags = (
        "--topic", topic, "--from-beginning", "--max-messages", str(count),
        "--bootstrap-server", broker.bootstrap,
    )  # fmt: skip
    ottla = [str(BIN / "ottla"), "consume", topic, "-b", broker.bootstrap, "-n", str(count)]
    commands = {
        "ottla consume": ottla,
        "kafka-console-consumer": [str(BIN / "kafka-console-consumer"), *flags],
        "java": java_command(f"{TOOLS}consumer.ConsoleConsumer", *flags, options=JVM),
    }
    medians = in_turns(
        rounds,
        {name: lambda one=one: rate(one, count) for name, one in commands.items()},
        advance,
    )
    java = medians.pop("java")
    return [
        Row(
            name,
            found,
            java,
            "Java's ConsoleConsumer",
            "records/s",
            f"at least {TIMES_JAVA:g} x",
            found >= TIMES_JAVA * java,
        )
        for name, found in medians.items()
    ]


def perf(broker: OttlaBroker, *arguments: str) -> dict[str, float]:
    """The output of `ottla perf`."""
    done = subprocess.run(
        [str(BIN / "ottla"), "perf", *arguments, "-b", broker.bootstrap, "-o", "json"],
        capture_output=True, text=True, check=False, env=environment(), timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    told: dict[str, float] = json.loads(done.stdout)
    return told


def loads(broker: OttlaBroker, rounds: int, count: int, advance: Advance) -> list[Row]:
    """`ottla perf` compared with the client."""
    topic, number = f"filled-{SIZE}", iter(range(1000))

    def client(name: str, work: str, records: int) -> float:
        where = topic if work == "consume" else f"written-{next(number)}"
        return measured(name, work, broker, size=SIZE, count=records, topic=where)["rate"]

    def produced() -> float:
        where = f"written-{next(number)}"
        return perf(broker, "produce", where, "-n", str(count), "--size", str(SIZE))[
            "records_per_s"
        ]

    cases: dict[str, tuple[Callable[[], float], Callable[[], float]]] = {
        "perf produce": (produced, lambda: client("ottla", "produce", count)),
        "perf consume": (
            lambda: perf(broker, "consume", topic, "-n", str(count))["records_per_s"],
            lambda: client("ottla", "consume", count),
        ),
        "perf consume --columns": (
            lambda: perf(broker, "consume", topic, "-n", str(4 * count), "--columns")[
                "records_per_s"
            ],
            lambda: client("ottla columns", "consume", 4 * count),
        ),
    }
    rows: list[Row] = []
    for name, (ours, theirs) in cases.items():
        case = f"ottla {name}"
        medians = in_turns(rounds, {case: ours, "our client": theirs}, advance)
        met = medians[case] >= SHARE_OF_CLIENT * medians["our client"]
        rows.append(
            Row(case, medians[case], medians["our client"], "our client", "records/s",
                f"at least {SHARE_OF_CLIENT:g} x", met)
        )  # fmt: skip
    perf(broker, "produce", "trips", "-n", "1")  # creates the topic

    def trip() -> float:
        told = perf(broker, "latency", "trips", "-n", "2000", "--size", str(SIZE))
        acked: Mapping[str, float] = told["acked_ms"]  # type: ignore[assignment]
        return acked["p50"]

    medians = in_turns(
        rounds,
        {
            "ottla perf latency": trip,
            # With a consumer too, because the broker serves both.
            "our client": lambda: measured(
                "ottla", "read trip", broker, size=SIZE, count=2200, topic="trips"
            )["p50_ms"],
        },
        advance,
    )
    ours_ms, client_ms = medians["ottla perf latency"], medians["our client"]
    met = ours_ms * SHARE_OF_CLIENT <= client_ms
    rows.append(
        Row("ottla perf latency, p50", ours_ms, client_ms, "our client", "ms",
            f"at most {1 / SHARE_OF_CLIENT:.2f} x", met)
    )  # fmt: skip
    return rows


def main() -> None:
    arguments = argparse.ArgumentParser(description=QUESTION)
    arguments.add_argument("--quick", action="store_true", help="fewer records, one round")
    quick: bool = arguments.parse_args().quick
    rounds, count = (1, 500_000) if quick else (3, 1_000_000)
    console = Console(width=None if sys.stdout.isatty() else 130)
    settings = {"num.partitions": PARTITIONS, "auto.create.topics.enable": "true"}
    rows: list[Row] = []
    with ottla_broker(settings) as broker, Progress(console=console) as progress:
        total = rounds * (3 * 4 + 3 + 8) + 1
        steps = progress.add_task("measuring", total=total)

        def advance(figure: str) -> None:
            progress.update(steps, advance=1, description=figure)
            if not console.is_terminal:  # without a terminal no progress bar is drawn
                done = int(progress.tasks[0].completed)
                print(f"{done} of {total}  {figure}", flush=True)

        filled = f"filled-{SIZE}"
        measured("ottla columns", "produce", broker, size=SIZE, topic=filled, count=5 * count)
        advance(f"{5 * count} records are there")
        rows += answers(broker, 3 * rounds, advance)
        # Enough records for some seconds of Java's consumer.
        rows += consumers(broker, rounds, 3 * count, advance)
        rows += loads(broker, rounds, count, advance)
    table = Table(title=QUESTION)
    for heading in ("case", "ours", "other", "beside", "unit", "ratio", "goal"):
        table.add_column(heading, justify="left" if heading in ("case", "beside") else "right")
    for row in rows:
        goal = f"[green]{row.goal}[/]" if row.met else f"[red]missed: {row.goal}[/]"
        ratio = "" if row.other is None else f"{row.ours / row.other:.2f}"
        table.add_row(row.case, _number(row.ours), _number(row.other), row.beside, row.unit, ratio,
                      goal)  # fmt: skip
    console.print(table)
    cases = [
        {
            "case": row.case,
            "ours": row.ours,
            "other": row.other,
            "beside": row.beside,
            "unit": row.unit,
            "met": row.met,
        }
        for row in rows
    ]
    path = write_report(Path(__file__), {"question": QUESTION, "quick": quick, "cases": cases})
    console.print(f"figures: {path}", soft_wrap=True)


def _number(figure: float | None) -> str:
    if figure is None:
        return ""
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"


if __name__ == "__main__":
    main()
