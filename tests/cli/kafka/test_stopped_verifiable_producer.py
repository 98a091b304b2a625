"""What becomes of records that `kafka-verifiable-producer` has sent, at a signal.

The last of them would linger for an hour: what is written then, the signal has written.
"""

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.records.scene import BIN, PATIENCE_S, environment
from judges.ottla_broker import OttlaBroker, ottla_broker
from ottla.client.admin import Admin, NewTopic

HOUR_MS = 3_600_000
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SENT = 5
ENDLESS = ("--throughput", "500")


@pytest.fixture(scope="module")
def broker() -> Generator[OttlaBroker]:
    with ottla_broker({"auto.create.topics.enable": "false"}) as running:
        asyncio.run(_create(running.bootstrap))
        yield running


async def _create(servers: str) -> None:
    async with Admin({"bootstrap.servers": servers}) as admin:
        names = ["ended", "stuck", *(f"sending-{int(one)}" for one in SIGNALS)]
        (await admin.create_topics([NewTopic(one, partitions=1) for one in names])).or_raise()


@pytest.fixture(scope="module", autouse=True)
def unignored() -> Generator[None]:
    """Lets the tool hear the signals also where this process ignores one, as under `nohup`."""
    ignored = [one for one in SIGNALS if signal.getsignal(one) is signal.SIG_IGN]
    for one in ignored:
        signal.signal(one, lambda number, frame: None)  # which the tool does not inherit
    yield
    for one in ignored:
        signal.signal(one, signal.SIG_IGN)


@contextmanager
def started(
    broker: OttlaBroker, topic: str, folder: Path, *more: str
) -> Generator["subprocess.Popen[bytes]"]:
    """The tool, when it has begun."""
    config = folder / "slow.properties"
    # Batches of a few records leave when they are full.
    config.write_text(f"linger.ms={HOUR_MS}\ndelivery.timeout.ms={2 * HOUR_MS}\nbatch.size=300\n")
    said = ["--topic", topic, "--command-config", str(config), *more]
    with subprocess.Popen(
        [BIN / "kafka-verifiable-producer", "--bootstrap-server", broker.bootstrap, *said],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,  # what is read line by line takes nothing from the rest
        env=environment(),
    ) as process:
        try:
            assert process.stdout is not None
            assert b"startup_complete" in process.stdout.readline()
            yield process
        finally:
            process.kill()


def a_line(process: "subprocess.Popen[bytes]") -> dict[str, Any]:
    """The next event."""
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def hears_sigterm(process: "subprocess.Popen[bytes]") -> bool:
    """Whether a process has a handler for it, as it has until the first signal."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    caught = [line.split()[1] for line in text.splitlines() if line.startswith("SigCgt")]
    return bool(caught) and bool(int(caught[0], 16) >> (signal.SIGTERM - 1) & 1)


def told(process: "subprocess.Popen[bytes]") -> tuple[list[dict[str, Any]], bytes]:
    """What a tool still says until it ends: events, and what is on stderr."""
    out, err = process.communicate(timeout=PATIENCE_S)
    return [json.loads(line) for line in out.splitlines()], err


@pytest.mark.parametrize("number", SIGNALS)
def test_what_was_sent_is_written_and_told_before_a_signal_ends_it(
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


def test_nothing_lingers_when_all_is_sent(broker: OttlaBroker, tmp_path: Path) -> None:
    with started(broker, "ended", tmp_path, "--max-messages", str(SENT)) as process:
        events, said = told(process)
    assert (process.returncode, said) == (0, b"")
    assert [one["name"] for one in events[:-2]] == ["producer_send_success"] * SENT
    assert events[-1]["acked"] == SENT


def test_a_second_signal_ends_it_while_it_waits(broker: OttlaBroker, tmp_path: Path) -> None:
    with started(broker, "stuck", tmp_path, *ENDLESS) as process:
        a_line(process)
        os.kill(broker.process_id, signal.SIGSTOP)
        try:
            process.send_signal(signal.SIGINT)
            deadline_s = time.monotonic() + PATIENCE_S
            while hears_sigterm(process):
                assert time.monotonic() < deadline_s
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            events, said = told(process)
        finally:
            os.kill(broker.process_id, signal.SIGCONT)
    assert process.returncode == 128 + signal.SIGINT
    assert [one["name"] for one in events][-2:] == ["shutdown_complete", "tool_data"]
    assert b"Traceback" not in said
