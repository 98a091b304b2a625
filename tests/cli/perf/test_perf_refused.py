"""Performance tools when a broker refuses records."""

import json
from collections.abc import Generator
from pathlib import Path

import pytest

from cli.records.harness import broker_with, run
from judges.ottla_broker import OttlaBroker
from ottla.client.admin import NewTopic

SIZE = 400


@pytest.fixture(scope="module")
def broker() -> Generator[OttlaBroker]:
    small = {"max.message.bytes": str(SIZE)}
    topics = [NewTopic(one, partitions=1, config=small) for one in ("small", "mixed")]
    with broker_with(*topics) as running:
        yield running


@pytest.mark.parametrize("rate", [(), ("--rate", "100")], ids=["fast", "rate"])
def test_perf_produce_stops_at_a_refused_record(broker: OttlaBroker, rate: tuple[str, ...]) -> None:
    # At this rate a complete run would take hours.
    said = ["small", "-n", "1000000", "--size", str(SIZE), "--batch", "1", *rate]
    done = run("ottla", "perf", "produce", *said, "-o", "json", "-b", broker.bootstrap)
    assert (done.returncode, done.stderr) == (1, b"")
    told = json.loads(done.stdout)["error"]
    assert told["code"] == "MESSAGE_TOO_LARGE"
    assert told["message"].endswith("; 0 of 1000000 records were written to small")
    assert ".;" not in told["message"]


@pytest.mark.parametrize("throughput", ["-1", "1000"])
def test_kafkas_tool_reports_refused_records_and_continues(
    broker: OttlaBroker, throughput: str
) -> None:
    done = run(
        "kafka-producer-perf-test", "--topic", "small", "--num-records", "500", "--record-size",
        str(SIZE), "--throughput", throughput, "--bootstrap-server", broker.bootstrap,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stdout.startswith(b"0 records sent, 0.000000 records/sec (0.00 MB/sec), ")
    why, count = done.stderr.decode().splitlines()
    assert why.startswith("MESSAGE_TOO_LARGE (10): ")
    assert count == "500 records were not written."


@pytest.mark.parametrize("throughput", ["-1", "1000"])
def test_kafkas_tool_counts_only_written_records(
    broker: OttlaBroker, throughput: str, tmp_path: Path
) -> None:
    values = tmp_path / "values"
    values.write_text(f"small\n{'x' * SIZE}\n")  # one of the two, at random
    before = offsets(broker, "mixed")
    done = run(
        "kafka-producer-perf-test", "--topic", "mixed", "--num-records", "100", "--payload-file",
        str(values), "--throughput", throughput, "--bootstrap-server", broker.bootstrap,
        "--command-property", "batch.size=1",
    )  # fmt: skip
    written = offsets(broker, "mixed") - before
    assert 0 < written < 100
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith(f"{written} records sent, ".encode())
    said = done.stderr.decode().splitlines()
    assert said[-1] == f"{100 - written} records were not written."
    assert len(said) == 2


def offsets(broker: OttlaBroker, topic: str) -> int:
    """Return the number of records in a topic."""
    done = run("ottla", "offsets", topic, "-o", "json", "-b", broker.bootstrap)
    return sum(one["offsets"] for one in json.loads(done.stdout)["partitions"])
