"""`ottla dev` and `ottla broker` with `-o json` or `-o yaml`: one object if they listen or fail."""

import json
import signal
import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.scripts import BIN, environment, ottla
from ottla.sync import Admin

NO_METRICS = ("--override", "ottla.metrics.listener=")


@contextmanager
def serving(*arguments: str) -> Generator[subprocess.Popen[str]]:
    """Run the command; at the end it is stopped and has printed nothing more."""
    process = subprocess.Popen(
        [str(BIN / "ottla"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, "")
        assert "broker stopped" in err
    finally:
        process.kill()
        process.communicate()


def first_object(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()
    return json.loads(line)


def test_dev_prints_its_address_as_json(tmp_path: Path) -> None:
    words = ("dev", "--port", "0", "--data", str(tmp_path), *NO_METRICS)
    with serving(*words, "-o", "json") as process:
        told = first_object(process)
        where = told["bootstrap_server"]
        assert told == {
            "bootstrap_server": where,
            "data": str(tmp_path),
            "broker": 1,
            "listeners": {"PLAINTEXT": where},
            "metrics": None,
        }
        with Admin(bootstrap_servers=where) as admin:
            admin.create_topic("t", 1)
        done = ottla(*words, "-o", "yaml")
        assert done.returncode == 1
        error = yaml.safe_load(done.stdout)["error"]
        assert error["code"] == "DATA_IN_USE"
        assert "in use by another process" in error["message"]


def test_broker_prints_its_listeners_as_yaml(tmp_path: Path) -> None:
    settings = ("listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={tmp_path / 'data'}")
    words = [word for one in settings for word in ("--override", one)]
    with serving("broker", *words, *NO_METRICS, "-o", "yaml") as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(5)]
        told = yaml.safe_load("".join(lines))
    assert lines[0] == "---\n"
    assert {*told} == {"broker", "listeners", "metrics"}
    assert {*told["listeners"]} == {"PLAINTEXT"}


@pytest.mark.parametrize("command", ["dev", "broker"])
def test_port_in_use_is_one_error_object(tmp_path: Path, command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        where = f"127.0.0.1:{holder.getsockname()[1]}"
        settings = (f"listeners=PLAINTEXT://{where}", f"log.dirs={tmp_path / 'data'}")
        words = [word for one in settings for word in ("--override", one)]
        done = ottla(command, *words, *NO_METRICS, "-o", "json")
    assert done.returncode == 1
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "ADDRESS_TAKEN"
    assert f"{where} is already in use" in error["message"]


def test_invalid_setting_is_one_error_object() -> None:
    done = ottla("broker", "--override", "num.partitions=x", "-o", "json")
    assert (done.returncode, done.stderr) == (2, "")
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "USAGE"
    assert "num.partitions" in error["message"]
