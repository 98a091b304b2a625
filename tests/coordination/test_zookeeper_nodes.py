"""`zookeeper-shell` and `ottla zookeeper ls` and `get` on a real server.

The expected output of the shell is what ZooKeeper 3.9's own shell prints for one command.
"""

import asyncio
import json
import re
import subprocess
from collections.abc import Collection

import pytest

from cli.golden import check_golden
from cli.kafka.in_process import run_here
from cli.ottla_here import ottla_here
from kafka_tools import Said
from ottla.cluster.znodes import CREDENTIAL
from ottla.coordination.ensemble import pyspark_class_path
from ottla.coordination.zookeeper import ZooKeeper

ROOT = "/nodes-of-tools"
PATIENCE_S = 120
BEGIN = "\n\nWATCHER::\n\nWatchedEvent state:SyncConnected type:None path:null zxid: -1\n"


@pytest.fixture(scope="module")
def connect(zookeeper_port: int) -> str:
    where = f"127.0.0.1:{zookeeper_port}{ROOT}"

    async def fill() -> None:
        session = await ZooKeeper(where).connect(lambda state: None)
        for path, data in (
            ("/x", b"hello"),
            ("/x/y", b""),
            ("/x/z", b"\xff"),
            ("/json", b'{"id": 1}'),
            ("/ottla", b""),
            (CREDENTIAL, b'{"password": "secret"}'),
        ):
            await session.create(path, data)
        await session.close()

    asyncio.run(fill())
    return where


def test_shell_prints_as_zookeepers_own(connect: str) -> None:
    cases = {
        "ls /": (0, "[json, ottla, x]\n", ""),
        "ls /x": (0, "[y, z]\n", ""),
        "ls -R /x": (0, "/x\n/x/y\n/x/z\n", ""),
        "get /x": (0, "hello\n", ""),
        "get /x/y": (0, "\n", ""),
        "ls /nope": (1, "", "Node does not exist: /nope\n"),
        "get /nope": (1, "", "Node does not exist: /nope\n"),
        "stat /nope": (1, "", "Node does not exist: /nope\n"),
    }
    for words, (code, out, err) in cases.items():
        said = run_here("zookeeper-shell", connect, *words.split())
        assert said == (code, f"Connecting to {connect}{BEGIN}{out}", err), words


def test_shell_prints_metadata(connect: str) -> None:
    stat = run_here("zookeeper-shell", connect, "stat", "/x").out.removeprefix(
        f"Connecting to {connect}{BEGIN}"
    )
    zxid, date = r"0x[0-9a-f]+", r"[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d \S+ \d{4}"
    assert re.fullmatch(
        f"cZxid = {zxid}\nctime = {date}\nmZxid = {zxid}\nmtime = {date}\npZxid = {zxid}\n"
        "cversion = 2\ndataVersion = 0\naclVersion = 0\nephemeralOwner = 0x0\ndataLength = 5\n"
        "numChildren = 2\n",
        stat,
    )
    assert run_here("zookeeper-shell", connect, "get", "-s", "/x").out.endswith(f"hello\n{stat}")


@pytest.mark.parametrize("words", ["ls -s -R /x", "get -s /x", "stat /x/z", "ls /nope"])
def test_shell_prints_the_same_as_java(connect: str, words: str) -> None:
    java = subprocess.run(
        (
            *("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=OFF"),
            *("-cp", pyspark_class_path()),
            *("org.apache.zookeeper.ZooKeeperMain", "-server", connect, *words.split()),
        ),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    own, theirs = run_here("zookeeper-shell", connect, *words.split()), Said.by(java)
    assert (own.code, own.err) == (theirs.code, theirs.err)
    # Java prints the event of its session in another thread, also between the other lines.
    event = BEGIN.splitlines()
    for lines in (own.out.splitlines(), theirs.out.splitlines()):
        assert {*event} <= {*lines}
    assert _without(event, own.out) == _without(event, theirs.out)


def _without(lines: Collection[str], out: str) -> list[str]:
    return [one for one in out.splitlines() if one not in lines]


def test_wrong_commands_of_the_shell() -> None:
    cases = {
        "": (1, "USAGE: zookeeper-shell zookeeper_host:port[/path] [args...]\n", ""),
        "a:1 ls": (1, "Connecting to a:1\n", "ls [-s] [-w] [-R] path\n"),
        "a:1 ls x": (1, "Connecting to a:1\n", "Path must start with / character\n"),
        "a:1 set /x 1": (2, "", "zookeeper-shell: the command set is not supported yet\n"),
        "a:1": (2, "", "zookeeper-shell: an interactive shell is not supported yet\n"),
    }
    for words, expected in cases.items():
        assert run_here("zookeeper-shell", *words.split()) == expected, words
    assert run_here("zookeeper-shell", "a:1", "bogus").code == 127


def test_nodes_are_listed_and_read(connect: str) -> None:
    ls, get = ("zookeeper", "ls", "--zookeeper", connect), ("zookeeper", "get", "--zookeeper")
    check_golden("zookeeper-ls.txt", ottla_here(*ls).out)
    check_golden("zookeeper-ls.json", ottla_here(*ls, "/x", "-R", "-o", "json").out)
    check_golden("zookeeper-get.txt", ottla_here(*get, connect, "/json").out)
    shown = json.loads(ottla_here(*get, connect, "/json", "-o", "json").out)
    assert 0 < shown.pop("created_ms") == shown.pop("changed_ms")
    check_golden("zookeeper-get.json", json.dumps(shown) + "\n")
    assert ottla_here(*get, connect, "/x/z").out == "ff\n"
    for path, why in (
        ("/nope", "node /nope does not exist"),
        ("x", "x is not the path of a node"),
        (CREDENTIAL, "the password of the cluster is not printed"),
    ):
        said = ottla_here(*get, connect, path)
        assert (said.code, said.out) == (1, "")
        assert why in said.err


def test_password_is_not_printed_from_any_root(connect: str) -> None:
    for root, path in (
        (connect, CREDENTIAL),
        (connect.removesuffix(ROOT), f"{ROOT}{CREDENTIAL}"),
        (f"{connect}/ottla", "/credential"),
    ):
        for said in (
            run_here("zookeeper-shell", root, "get", path),
            ottla_here("zookeeper", "get", path, "--zookeeper", root),
        ):
            assert said.code == 1
            assert "secret" not in said.out + said.err
