"""Lines that `ottla produce` and `kafka-console-producer` have read before a signal.

They would linger for an hour, so only the signal can have written them.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from cli.records.harness import BIN, PATIENCE_S, broker_with, environment, run
from cli.stopping import SIGNALS, hears_sigterm, silent, unignored, unread, wait_until
from judges.ottla_broker import OttlaBroker
from ottla.client.admin import NewTopic

TOOLS = ("ottla", "console")
LINGER_MS = "3600000"
CODES = {
    signal.SIGINT: 130,
    signal.SIGTERM: -signal.SIGTERM,
    signal.SIGHUP: -signal.SIGHUP,
}


@pytest.fixture(scope="module")
def broker() -> Generator[OttlaBroker]:
    names = [
        f"{tool}-{number}" for tool in (*TOOLS, "json", "stuck") for number in map(int, SIGNALS)
    ] + ["nohup", "silent"]
    with broker_with(*(NewTopic(one, partitions=1) for one in names)) as running:
        yield running


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
def heard() -> Generator[None]:
    with unignored():
        yield


@contextmanager
def having_read(said: list[str], data: bytes) -> Generator["subprocess.Popen[bytes]"]:
    """Run a command that has read this data from stdin and waits for more."""
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
            wait_until(process, lambda: unread(pipe) == 0)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("tool", TOOLS)
def test_signal_writes_what_was_read_before_the_exit(
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
def test_json_error_has_the_number_of_written_records(
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
def test_second_signal_ends_the_command_at_once(
    broker: OttlaBroker, tool: str, number: signal.Signals
) -> None:
    with having_read(words(tool, broker, f"stuck-{int(number)}"), b"one\n") as process:
        assert hears_sigterm(process)
        with silent(broker):
            process.send_signal(number)
            wait_until(process, lambda: not hears_sigterm(process))
            process.send_signal(number)
            code = process.wait(PATIENCE_S)
        said = process.communicate()[1].decode()
    assert code == CODES[number], said
    assert "Traceback" not in said


def test_one_signal_ends_the_command_if_the_broker_is_silent(broker: OttlaBroker) -> None:
    hurried = (
        "from ottla.cli.records import produce; produce.STOP_SECONDS = 0.1; "
        "from ottla.cli.entry import run; run()"
    )
    said = [sys.executable, "-c", hurried, *words("ottla", broker, "silent")[1:]]
    with having_read(said, b"one\n") as process:
        assert hears_sigterm(process)
        with silent(broker):
            process.send_signal(signal.SIGTERM)
            code = process.wait(PATIENCE_S)
        told = process.communicate()[1].decode()
    assert code == -signal.SIGTERM
    assert told == (
        "ottla: interrupted; 0 records were written to silent; the broker did not confirm the rest "
        "within 0.1 seconds\n"
    )


def test_nohup_command_ignores_sighup(broker: OttlaBroker) -> None:
    said = ["sh", "-c", """trap '' HUP; exec "$0" "$@" """, *words("ottla", broker, "nohup")]
    with having_read(said, b"one\n") as process:
        process.send_signal(signal.SIGHUP)
        out, _ = process.communicate(b"two\n", PATIENCE_S)
    assert (process.returncode, out) == (0, b"Wrote 2 records to nohup.\n")
