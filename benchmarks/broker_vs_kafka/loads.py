"""The loads: Kafka's performance tools, a librdkafka client, and a light generator.

Invariant: a load runs in its own process and reports its own result; both servers get the same
command.
"""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from servers import Server, bootstrap, pinned

from judges.java import java_command

TOOLS = "org.apache.kafka.tools."
JVM = ("-Xmx512m", "-XX:+UseG1GC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
LIBRDKAFKA = Path(__file__).with_name("librdkafka.py")
GENERATOR = Path(__file__).with_name("generator.py")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a load: records per second, and latencies if it measures them."""

    rate: float
    p50_ms: float | None = None
    p99_ms: float | None = None


def producer_performance(
    server: Server, topic: str, records: int, size: int, *settings: str
) -> Outcome:
    """Produce at full speed with Java's producer, without the first tenth."""
    arguments = ["--topic", topic, "--num-records", str(records), "--record-size", str(size)]
    arguments += ["--throughput", "-1", "--bootstrap-server", bootstrap(server)]
    arguments += ["--warmup-records", str(records // 10)]
    if settings:
        arguments += ["--command-property", *settings]
    return _told_by_producer(_run("ProducerPerformance", *arguments))


def _told_by_producer(told: str) -> Outcome:
    # The last line has the steady state.
    line = [one for one in told.splitlines() if "records/sec" in one][-1]
    figure = {
        unit: float(amount) for amount, unit in re.findall(r"([\d.]+) (records/sec|ms \w+)", line)
    }
    return Outcome(figure["records/sec"], figure.get("ms 50th"), figure.get("ms 99th"))


def consumer_performance(server: Server, topic: str, records: int) -> Outcome:
    """Consume at full speed with Java's consumer, from its first fetch on."""
    told = _run(
        "ConsumerPerformance",
        *("--topic", topic, "--num-records", str(records), "--bootstrap-server", bootstrap(server)),
        *("--hide-header", "--timeout", "60000"),
    )
    # The last column is records per second, without the time to join the group.
    return Outcome(float(told.strip().splitlines()[-1].split(",")[-1]))


def end_to_end(server: Server, topic: str, records: int, size: int) -> Outcome:
    """Send single records, measured from the call of the producer to the consumer."""
    told = _run("EndToEndLatency", bootstrap(server), topic, str(records), "all", str(size))
    average = re.search(r"Avg latency: ([\d.]+) ms", told)
    found = re.search(r"50th = ([\d.]+), 99th = ([\d.]+)", told)
    assert average is not None, told
    assert found is not None, told
    return Outcome(1000 / float(average[1]), float(found[1]), float(found[2]))


def librdkafka(
    server: Server, topic: str, load: str, *, settings: dict[str, object] | None = None, **job: int
) -> Outcome:
    """Run a load of librdkafka.py."""
    asked: dict[str, object] = {
        "load": load,
        "topic": topic,
        "settings": {"bootstrap.servers": bootstrap(server), **(settings or {})},
        **job,
    }
    return _run_script(LIBRDKAFKA, asked)


def generator(server: Server, topic: str, load: str, **job: int) -> Outcome:
    """Run a load of generator.py on one core, with the server on the other."""
    host, port = server.address
    asked: dict[str, object] = {
        "load": load,
        "host": host,
        "port": port,
        "topic": topic,
        "core": 1,
        **job,
    }
    with pinned(server, 0):
        return _run_script(GENERATOR, asked)


def _run_script(script: Path, asked: dict[str, object]) -> Outcome:
    command = [sys.executable, str(script), json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Outcome(**json.loads(done.stdout.splitlines()[-1]))


def _run(tool: str, *arguments: str) -> str:
    command = java_command(TOOLS + tool, *arguments, options=JVM)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{tool}: {done.stdout}{done.stderr}"
    return done.stdout
