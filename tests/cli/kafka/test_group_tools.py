"""Kafka's tools for groups and offsets as processes: without a broker, interrupted, wrong flags."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cases import each_case
from cli.forked import as_text, run_script
from cli.group.commands import PATIENCE_S, environment
from cli.group.test_group import server, wait_until_connected
from ottla.cli.kafka.tool import print_lines

BIN = Path(sys.executable).parent
TOOLS = {
    "kafka-consumer-groups": ["--list"],
    "kafka-get-offsets": ["--topic", "t"],
    "kafka-delete-records": ["--offset-json-file", "{file}"],
    "kafka-log-dirs": ["--describe"],
}


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "offsets.json"
    path.write_text('{"partitions": [{"topic": "t", "partition": 0, "offset": 1}]}')
    return str(path)


def command(tool: str, address: str, file: str) -> list[str]:
    words = [one.format(file=file) for one in TOOLS[tool]]
    return [tool, *words, "--bootstrap-server", address]


def ran(words: list[str]) -> subprocess.CompletedProcess[str]:
    tool, *arguments = words
    done = run_script(tool, arguments, env=environment(), stdin=b"", timeout_s=PATIENCE_S)
    return as_text(done)


@pytest.mark.parametrize("tool", TOOLS)
def test_missing_broker_prints_one_line(tool: str, file: str) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        done = ran(command(tool, address, file))
    told = done.stdout + done.stderr
    assert "connection refused" in told
    assert len(told.strip().splitlines()) == 1
    # Kafka's tool prints the failure and exits with 0.
    assert done.returncode == (0 if tool == "kafka-consumer-groups" else 1)


@pytest.mark.parametrize("tool", TOOLS)
def test_ctrl_c_exits_with_130_silently(tool: str, file: str) -> None:
    with server(None) as address:
        name, *words = command(tool, address, file)
        process = subprocess.Popen(
            [BIN / name, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        wait_until_connected(process, address)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (130, "")


@each_case("tool", TOOLS)
def test_help_and_unknown_flag_exit_with_1(tool: str) -> None:
    helped = ran([tool, "--help"])
    assert (helped.returncode, helped.stdout) == (1, "")
    assert "--bootstrap-server" in helped.stderr
    wrong = ran([tool, "--nonsense"])
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr.startswith("nonsense is not a recognized option\n")


def test_unsupported_flag_prints_one_line_and_exits_with_2() -> None:
    done = ran(["kafka-consumer-groups", "--validate-regex", "a.*"])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "kafka-consumer-groups: --validate-regex is not supported yet\n"


def test_control_characters_are_escaped_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    print_lines(["a\x1b[31m\\"])
    assert capsys.readouterr().out == "a\x1b[31m\\\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_lines(["a\x1b[31m\\"])
    assert capsys.readouterr().out == "a\\x1b[31m\\\\\n"
