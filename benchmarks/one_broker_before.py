"""The CPU time per batch of one broker, beside that of an earlier commit of Ottla.

The earlier commit is checked out with `git worktree` and compiled there. Both brokers run all the
time and take turns. A load of ready-made requests runs on one core, and the brokers on the other.

Invariant: a figure is the median of the rounds. CPU is that of the broker's process, for the same
number of batches of 16 KB.

    python benchmarks/one_broker_before.py --before main~20
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

# The module path of a script has only its own directory, not the repository.
sys.path.append(str(Path(__file__).parents[1]))

from rich.console import Console
from rich.table import Table

from harness import write_report
from judges.ottla_broker import OttlaBroker
from judges.single_node import SINGLE_NODE
from judges.wire import Wire
from ottla.ids import ZERO_UUID
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

QUESTION: Final = "How much CPU time does one broker take per batch, beside an earlier commit?"
BEFORE: Final = "dcb2cb78"  # the last commit before brokers replicated
REPOSITORY: Final = Path(__file__).parents[1]
GENERATOR: Final = Path(__file__).parent / "broker_vs_kafka" / "generator.py"
SERVER_CORE, LOAD_CORE = 0, 1
ROUNDS: Final = 5
RECORD_BYTES, BATCH_BYTES = 100, 16_384
GOAL: Final = 1.03
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Load:
    """Ready-made requests."""

    name: str
    load: str
    batches: int
    per_request: int


LOADS: Final = (
    Load("produce, one batch per request", "produce", 60_000, 1),
    Load("produce, six batches per request", "produce", 60_000, 6),
    Load("fetch, 1 MB per request", "fetch", 120_000, 1),
)


@dataclass(frozen=True, slots=True)
class Result:
    """The CPU time per batch in each round."""

    name: str
    now_us: Sequence[float]
    before_us: Sequence[float]

    @property
    def medians(self) -> tuple[float, float]:
        """Now, and before."""
        return statistics.median(self.now_us), statistics.median(self.before_us)

    @property
    def ratio(self) -> float:
        """The median of now to before in the same round, because machines change their speed."""
        return statistics.median(
            now / before for now, before in zip(self.now_us, self.before_us, strict=True)
        )


@contextmanager
def worktree(commit: str) -> Generator[Path]:
    """The sources of a commit, compiled."""
    folder = Path(tempfile.mkdtemp(prefix="ottla-before-"))
    tree = folder / "tree"

    def git(*arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=REPOSITORY, check=True, capture_output=True)

    try:
        git("worktree", "add", "--detach", str(tree), commit)
        command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
        built = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stderr
        assert [*tree.glob("src/ottla/broker/produce_fast_path.*.so")], built.stderr
        yield tree
    finally:
        git("worktree", "remove", "--force", str(tree))
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def broker(stack_folder: Path, tree: Path) -> Generator[OttlaBroker]:
    """A running broker with the sources of a tree, on its core."""
    stack_folder.mkdir()
    settings = {**SINGLE_NODE, "auto.create.topics.enable": "false"}
    before = os.environ.get("PYTHONPATH")
    with OttlaBroker(stack_folder, *(f"{name}={one}" for name, one in settings.items())) as found:
        os.environ["PYTHONPATH"] = str(tree / "src")  # comes before the installed package
        try:
            found.start()
        finally:
            if before is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = before
        maps = Path(f"/proc/{found.process_id}/maps").read_text()
        assert str(tree / "src/ottla/broker/produce_fast_path") in maps, "another Ottla was started"
        for thread in Path(f"/proc/{found.process_id}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {SERVER_CORE})
        yield found


def create_topic(server: OttlaBroker, name: str) -> None:
    """Create a topic with six partitions."""
    topic = CreatableTopic(
        name=name, num_partitions=6, replication_factor=1, assignments=(), configs=()
    )
    with Wire(server.address) as wire:
        asked = CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
        answer = wire.ask(asked, 7, CreateTopicsResponse)
    assert answer.topics[0].error_code == 0, answer


def delete_topic(server: OttlaBroker, name: str) -> None:
    """Delete a topic and its files."""
    with Wire(server.address) as wire:
        asked = DeleteTopicState(name=name, topic_id=ZERO_UUID)
        wire.ask(DeleteTopicsRequest(topics=[asked], timeout_ms=60_000), 6, DeleteTopicsResponse)


def generate(server: OttlaBroker, topic: str, load: Load, batches: int) -> None:
    """Run the load."""
    host, port = server.address
    job: Mapping[str, object] = {
        "load": load.load,
        "host": host,
        "port": port,
        "topic": topic,
        "records": batches * (BATCH_BYTES // (RECORD_BYTES + 9)),
        "size": RECORD_BYTES,
        "batch_bytes": BATCH_BYTES,
        "batches": load.per_request,
        "core": LOAD_CORE,
    }
    command = [sys.executable, str(GENERATOR), json.dumps(job)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def used_s(server: OttlaBroker) -> float:
    """The CPU seconds of a broker so far."""
    fields = Path(f"/proc/{server.process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def measure(load: Load, servers: Sequence[OttlaBroker], rounds: int, share: float) -> Result:
    """Run a load on each broker in turns; a first round warms up."""
    batches = int(load.batches * share)
    found: list[list[float]] = [[] for _ in servers]
    filling = Load("", "produce", batches, 1)
    for server in servers if load.load == "fetch" else ():
        create_topic(server, "filled")
        generate(server, "filled", filling, batches)
    for number in range(-1, rounds):
        order = [*zip(servers, found, strict=True)]
        for server, taken in order if number % 2 else reversed(order):
            topic = "filled" if load.load == "fetch" else f"load-{time.monotonic_ns()}"
            if load.load == "produce":
                create_topic(server, topic)
            before_s = used_s(server)
            generate(server, topic, load, batches)
            if number >= 0:
                taken.append((used_s(server) - before_s) / batches * 1e6)
            if load.load == "produce":
                delete_topic(server, topic)
    for server in servers if load.load == "fetch" else ():
        delete_topic(server, "filled")
    return Result(load.name, *found)


def main() -> None:
    """Measure both commits; print and store the figures."""
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--quick", action="store_true", help="a short run, for a first look")
    parser.add_argument("--before", default=BEFORE, metavar="COMMIT", help=f"({BEFORE})")
    asked = parser.parse_args()
    rounds, share = (2, 0.2) if asked.quick else (ROUNDS, 1.0)
    console = Console()
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="ottla-one-broker-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        tree = stack.enter_context(worktree(asked.before))
        servers = [
            stack.enter_context(broker(folder / name, source))
            for name, source in (("now", REPOSITORY), ("before", tree))
        ]
        results = [measure(load, servers, rounds, share) for load in LOADS]
    table = Table(title=QUESTION, caption=f"µs of CPU per batch of 16 KB; before: {asked.before}")
    for name in ("load", "now", "before", "x", "goal", "met?"):
        table.add_column(name, justify="left" if name == "load" else "right")
    for one in results:
        is_met = "yes" if one.ratio <= GOAL else "[bold]no[/bold]"
        medians = (f"{median:.1f}" for median in one.medians)
        table.add_row(one.name, *medians, f"{one.ratio:.3f}", f"≤ {GOAL:g}", is_met)
    console.print(table)
    figures = {
        "question": QUESTION,
        "quick": asked.quick,
        "before": asked.before,
        "goal": GOAL,
        "cases": [asdict(one) | {"ratio": one.ratio, "met": one.ratio <= GOAL} for one in results],
    }
    console.print(f"figures: {write_report(Path(__file__), figures)}", soft_wrap=True)


if __name__ == "__main__":
    main()
