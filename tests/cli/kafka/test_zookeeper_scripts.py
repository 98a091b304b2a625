"""`zookeeper-server-start` and `zookeeper-server-stop`, without starting or stopping a server."""

from pathlib import Path

from cli import console
from cli.kafka.in_process import run_here
from ottla.cli.kafka.zookeeper.start import command
from ottla.cli.kafka.zookeeper.stop import MAIN_CLASSES, is_server


def test_start_needs_a_file() -> None:
    line = "USAGE: zookeeper-server-start [-daemon] zookeeper.properties\n"
    assert run_here("zookeeper-server-start") == (1, line, "")
    assert run_here("zookeeper-server-start", "-daemon") == (1, line, "")
    said = run_here("zookeeper-server-start", "/nowhere")
    assert said == (1, "", "/nowhere: there is no such file\n")


def test_start_runs_zookeeper_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "zookeeper.properties"
    file.write_text("dataDir=/tmp\nclientPort=2181\n")
    words = command(str(file))
    assert words[-2:] == (MAIN_CLASSES[0], str(file))
    assert is_server(words)


def test_other_users_cannot_read_what_zookeeper_writes(tmp_path: Path) -> None:
    file, java = tmp_path / "zookeeper.properties", tmp_path / "java"
    file.write_text("dataDir=/tmp\nclientPort=2181\n")
    java.write_text("#!/bin/sh\numask\n")
    java.chmod(0o755)
    said = console.command("zookeeper-server-start", str(file), env={"PATH": str(tmp_path)})
    assert int(said.stdout, 8) & 0o027 == 0o027


def test_only_servers_are_stopped() -> None:
    assert not is_server(["java", "-cp", "x", "org.apache.zookeeper.ZooKeeperMain"])
    assert not is_server(["grep", MAIN_CLASSES[0]])
    assert not is_server([])
    said = run_here("zookeeper-server-stop", "--help")
    assert (said.code, said.err) == (0, "")
    assert run_here("zookeeper-server-stop", "--x").code == 1
