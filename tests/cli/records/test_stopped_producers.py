"""What becomes of lines that `ottla produce` and `kafka-console-producer` have read, at a signal.

They would linger for an hour: what is written after a signal, the signal has written.
"""

import array
import asyncio
import fcntl
import json
import os
import signal
import subprocess
import termios
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli.records.scene import BIN, PATIENCE_S, environment, run
from judges.ottla_broker import OttlaBroker, ottla_broker
from ottla.client.admin import Admin, NewTopic

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TOOLS = ("ottla", "console")
LINGER_MS = "3600000"
CODES = {
    signal.SIGINT: 130,
    signal.SIGTERM: -signal.SIGTERM,
    signal.SIGHUP: -signal.SIGHUP,
}


@pytest.fixture(scope="module")
def broker() -> Generator[OttlaBroker]:
    with ottla_broker({"auto.create.topics.enable": "false"}) as running:
        asyncio.run(_create(running.bootstrap))
        yield running


async def _create(servers: str) -> None:
    names = [
        f"{tool}-{number}" for tool in (*TOOLS, "json", "stuck") for number in map(int, SIGNALS)
    ] + ["nohup"]
    async with Admin({"bootstrap.servers": servers}) as admin:
        (await admin.create_topics([NewTopic(one, partitions=1) for one in names])).or_raise()


def words(tool: str, broker: OttlaBroker, topic: str) -> list[str]:
    if tool == "ottla":
        said = ["ottla", "produce", topic, "-X", f"linger.ms={LINGER_MS}", "-b"]
        said += [broker.bootstrap, "-X", "delivery.timeout.ms=7200000"]
    else:
        said = ["kafka-console-producer", "--topic", topic, "--timeout", LINGER_MS]
        said += ["--command-property", "delivery.timeout.ms=7200000"]
        said += ["--message-send-max-retries", "1000000"]
        said += ["--bootstrap-server", broker.bootstrap]
    return [str(BIN / said[0]), *said[1:]]


@pytest.fixture(scope="module", autouse=True)
def unignored() -> Generator[None]:
    """Lets commands hear the signals also where this process ignores one, as under `nohup`."""
    ignored = [one for one in SIGNALS if signal.getsignal(one) is signal.SIG_IGN]
    for one in ignored:
        signal.signal(one, lambda number, frame: None)  # which a command does not inherit
    yield
    for one in ignored:
        signal.signal(one, signal.SIG_IGN)


@contextmanager
def having_read(said: list[str], data: bytes) -> Generator["subprocess.Popen[bytes]"]:
    """A command that has read so much of its stdin, and waits for more."""
    with subprocess.Popen(
        said,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(data)
            process.stdin.flush()
            pipe = process.stdin.fileno()
            _wait_until(process, lambda: _unread(pipe) == 0)
            yield process
        finally:
            process.kill()


@contextmanager
def silent(broker: OttlaBroker) -> Generator[None]:
    """Let a broker answer nobody for a while."""
    os.kill(broker.process_id, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker.process_id, signal.SIGCONT)


def _unread(pipe: int) -> int:
    """How many bytes of a pipe nobody has read."""
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


def _hears_sigterm(process: "subprocess.Popen[bytes]") -> bool:
    """Whether a process has a handler for it."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    [caught] = [line.split()[1] for line in text.splitlines() if line.startswith("SigCgt")]
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def _wait_until(process: "subprocess.Popen[bytes]", is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("tool", TOOLS)
def test_what_was_read_is_written_before_a_signal_ends_it(
    broker: OttlaBroker, tool: str, number: signal.Signals
) -> None:
    topic = f"{tool}-{int(number)}"
    with having_read(words(tool, broker, topic), b"one\ntwo\nno line yet") as process:
        process.send_signal(number)
        code = process.wait(PATIENCE_S)
        out, err = process.communicate()
    told = f"ottla: interrupted; 2 records were written to {topic}\n" if tool == "ottla" else ""
    assert (code, out, err.decode()) == (CODES[number], b"", told)
    assert run("ottla", "consume", topic, "-b", broker.bootstrap).stdout == b"one\ntwo\n"


@pytest.mark.parametrize("number", SIGNALS)
def test_how_many_were_written_is_in_the_object(
    broker: OttlaBroker, number: signal.Signals
) -> None:
    said = [*words("ottla", broker, f"json-{int(number)}"), "-o", "json"]
    with having_read(said, b"one\n") as process:
        process.send_signal(number)
        code = process.wait(PATIENCE_S)
        out, err = process.communicate()
    assert (code, err) == (CODES[number], b"")
    text = f"interrupted; 1 record was written to json-{int(number)}"
    assert json.loads(out) == {"error": {"code": "INTERRUPTED", "message": text}}


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("tool", TOOLS)
def test_a_second_signal_ends_it_at_once(
    broker: OttlaBroker, tool: str, number: signal.Signals
) -> None:
    with having_read(words(tool, broker, f"stuck-{int(number)}"), b"one\n") as process:
        assert _hears_sigterm(process)
        with silent(broker):
            process.send_signal(number)
            _wait_until(process, lambda: not _hears_sigterm(process))
            process.send_signal(number)
            code = process.wait(PATIENCE_S)
        said = process.communicate()[1].decode()
    assert code == CODES[number], said
    assert "Traceback" not in said


def test_a_command_that_nobody_is_to_hang_up_reads_on(broker: OttlaBroker) -> None:
    said = ["sh", "-c", """trap '' HUP; exec "$0" "$@" """, *words("ottla", broker, "nohup")]
    with having_read(said, b"one\n") as process:
        process.send_signal(signal.SIGHUP)
        out, _ = process.communicate(b"two\n", PATIENCE_S)
    assert (process.returncode, out) == (0, b"Wrote 2 records to nohup.\n")
