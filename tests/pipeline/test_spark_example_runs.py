"""The examples on Spark are killed at random moments, and continue without a loss.

tests/pipeline/sensors/test_spark_run.py has other ends of them.
"""

import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet
import pytest

from logs.description import DEAD_LETTERS, ERRORS
from ottla.sync import Consumer
from pipeline.example_processes import (
    counts,
    ended,
    processes_of,
    started,
    wait_for_results,
    wait_until_gone,
)
from sampling import SOAK, seed
from sensors.description import READINGS
from shared.dev_broker import DevBroker

KILLS: Final = 4
WINDOW_MS: Final = 10_000


@pytest.mark.skipif(not SOAK, reason="runs in a soak")
@pytest.mark.parametrize("name", ["logs", "sensors"])
def test_killed_example_loses_nothing(name: str, tmp_path: Path) -> None:
    pick = random.Random(f"{seed()} {name}")
    results = {"logs": "error counts", "sensors": "averages"}[name]
    for number in range(KILLS):
        process = started(name, tmp_path)
        if number % 2:  # else while it starts, or shortly afterwards
            wait_for_results(process, results)
        time.sleep(pick.uniform(0, 8))  # a random moment
        children = processes_of(process.pid)
        process.kill()
        process.communicate()
        wait_until_gone(children)
    summary = ended(started(name, tmp_path, "--seconds", "25"))
    assert counts(summary)["lag"] == 0
    print(summary)
    with DevBroker(0, tmp_path, tmp_path / "broker.log") as broker:
        check: Callable[[str, Path], None] = {"logs": check_logs, "sensors": check_sensors}[name]
        check(broker.wait_until_listening(), tmp_path / name)


def values(servers: str, topic: str) -> list[bytes]:
    settings = {"bootstrap.servers": servers, "auto.offset.reset": "earliest"}
    with Consumer(settings) as consumer:
        partitions = consumer.partitions(topic)
        consumer.assign(*partitions)
        count = sum(consumer.end_offsets(*partitions).values())
        found: list[bytes] = []
        while len(found) < count:
            found += [one.value or b"" for one in consumer.poll(1.0)]
    return found


def check_logs(servers: str, directory: Path) -> None:
    """Every line is in the topic, and is counted or a dead letter."""
    collected = Counter(values(servers, "logs"))
    written = Counter(
        line
        for path in (directory / "files").iterdir()
        for line in path.read_bytes().split(b"\n")[:-1]
    )
    assert written, "there are files"
    assert not written - collected, "lines that were not collected"
    counted: Counter[tuple[str, str]] = Counter()
    dead: set[bytes] = set()
    for line, count in collected.items():
        words = line.decode(errors="replace").split(" ")
        if len(words) > 2 and re.fullmatch("DEBUG|INFO|WARN|ERROR", words[1]):
            counted[words[2], f"{words[0][:16]}:00.000Z"] += count
        else:
            dead.add(line)
    last: dict[tuple[str, str], int] = {}
    for value in values(servers, ERRORS):
        row = json.loads(value)
        key = (row["service"], row["minute"])
        last[key] = max(row["lines"], last.get(key, 0))
    assert last == dict(counted)
    assert {*values(servers, DEAD_LETTERS)} == dead
    repeated = sum(collected.values()) - len(collected)
    print(f"{sum(collected.values())} lines, of which {repeated} are equal to another")


def check_sensors(servers: str, directory: Path) -> None:
    """Each closed window of a device has all its readings, once."""
    expected: Counter[tuple[int, str]] = Counter()
    for value in values(servers, READINGS):
        try:
            reading = json.loads(value)
            at_ms = round(datetime.fromisoformat(reading["at"]).timestamp() * 1000)
            if isinstance(reading["temperature"], float | int) and reading["device"]:
                assert reading["vibration"] is not None
                expected[at_ms - at_ms % WINDOW_MS, reading["device"]] += 1
        except (ValueError, TypeError, KeyError, AssertionError):
            continue  # a dead letter
    parquet: Any = pyarrow.parquet
    log = sorted((directory / "device-averages" / "_spark_metadata").glob("[0-9]*"))
    assert log
    rows: list[dict[str, Any]] = []
    for path in committed_files(directory / "device-averages"):
        rows += parquet.read_table(path).to_pylist()
    found = Counter((start_ms(row), row["device"]) for row in rows)
    assert {*found.values()} == {1}, "no average was written twice"
    for row in rows:
        assert row["readings"] == expected[start_ms(row), row["device"]], row
    newest_ms = max(start for start, _ in found)
    closed = {key for key in expected if key[0] <= newest_ms - WINDOW_MS}
    assert closed <= {*found}
    print(f"{sum(expected.values())} readings, {len(rows)} averages")


def committed_files(directory: Path) -> list[Path]:
    """The files that the log of Spark's sink names; others are of micro-batches that failed."""
    names: dict[str, None] = {}
    for entry in (directory / "_spark_metadata").glob("[0-9]*"):
        for line in entry.read_text().splitlines()[1:]:
            names[Path(json.loads(line)["path"]).name] = None
    return [path for path in directory.rglob("*.parquet") if path.name in names]


def start_ms(row: dict[str, Any]) -> int:
    return round(row["start"].replace(tzinfo=row["start"].tzinfo or UTC).timestamp() * 1000)
