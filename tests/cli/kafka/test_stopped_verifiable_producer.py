"""Records that `kafka-verifiable-producer` has sent before a signal.

The last of them would linger for an hour, so only the signal can have written them.
"""

import json
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.records.harness import BIN, PATIENCE_S, broker_with, environment
from cli.stopping import SIGNALS, hears_sigterm, silent, unignored, wait_until
from judges.ottla_broker import OttlaBroker
from ottla.client.admin import NewTopic

HOUR_MS = 3_600_000
SENT = 5
ENDLESS = ("--throughput", "500")


@pytest.fixture(scope="module")
def broker() -> Generator[OttlaBroker]:
    names = ["ended", "stuck", *(f"sending-{int(one)}" for one in SIGNALS)]
    with broker_with(*(NewTopic(one, partitions=1) for one in names)) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def heard() -> Generator[None]:
    with unignored():
        yield


@contextmanager
def started(
    broker: OttlaBroker, topic: str, folder: Path, *more: str
) -> Generator["subprocess.Popen[bytes]"]:
    """Start the tool and wait for its first event."""
    config = folder / "slow.properties"
    # Batches of a few records are sent when they are full.
    config.write_text(f"linger.ms={HOUR_MS}\ndelivery.timeout.ms={2 * HOUR_MS}\nbatch.size=300\n")
    said = ["--topic", topic, "--command-config", str(config), *more]
    with subprocess.Popen(
        [BIN / "kafka-verifiable-producer", "--bootstrap-server", broker.bootstrap, *said],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,  # reading a line must not buffer the rest
        env=environment(),
    ) as process:
        try:
            assert process.stdout is not None
            assert b"startup_complete" in process.stdout.readline()
            yield process
        finally:
            process.kill()


def a_line(process: "subprocess.Popen[bytes]") -> dict[str, Any]:
    """Return the next event."""
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def told(process: "subprocess.Popen[bytes]") -> tuple[list[dict[str, Any]], bytes]:
    """Return the remaining events of a tool and its stderr."""
    out, err = process.communicate(timeout=PATIENCE_S)
    return [json.loads(line) for line in out.splitlines()], err


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_waits_until_sent_records_are_written(
    broker: OttlaBroker, number: signal.Signals, tmp_path: Path
) -> None:
    with started(broker, f"sending-{int(number)}", tmp_path, *ENDLESS) as process:
        first = a_line(process)
        process.send_signal(number)
        events, said = told(process)
    assert (process.returncode, said) == (128 + number, b"")
    *lines, ended, summed = [first, *events]
    assert {one["name"] for one in lines} == {"producer_send_success"}
    assert [one["value"] for one in lines] == [str(one) for one in range(summed["sent"])]
    assert [one["offset"] for one in lines] == [*range(summed["sent"])]
    assert (ended["name"], summed["acked"]) == ("shutdown_complete", summed["sent"])


def test_last_records_do_not_linger(broker: OttlaBroker, tmp_path: Path) -> None:
    with started(broker, "ended", tmp_path, "--max-messages", str(SENT)) as process:
        events, said = told(process)
    assert (process.returncode, said) == (0, b"")
    assert [one["name"] for one in events[:-2]] == ["producer_send_success"] * SENT
    assert events[-1]["acked"] == SENT


def test_second_signal_ends_the_wait(broker: OttlaBroker, tmp_path: Path) -> None:
    with started(broker, "stuck", tmp_path, *ENDLESS) as process:
        a_line(process)
        with silent(broker):
            process.send_signal(signal.SIGINT)
            wait_until(process, lambda: not hears_sigterm(process))
            process.send_signal(signal.SIGINT)
            events, said = told(process)
    assert process.returncode == 128 + signal.SIGINT
    assert [one["name"] for one in events][-2:] == ["shutdown_complete", "tool_data"]
    assert b"Traceback" not in said
