"""`ottla group` and `ottla offsets` on an Ottla broker: output, changes and refusals."""

import asyncio
import os
import pty
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count

import pytest

from cases import each_case
from cli.golden import check_golden
from cli.group.commands import OTTLA, PATIENCE_S, environment, ottla
from cli.group.sample_groups import (
    AGELESS,
    FIRST_MS,
    IDLE,
    LONG,
    ORDERS,
    busy_group,
    committed,
    fill,
    idle_groups,
)
from judges.ottla_broker import ottla_broker
from ottla.client.admin import Admin, NewTopic
from ottla.client.producer.producer import Producer
from ottla.testing import ClusterThread

NUMBERS = count()


@pytest.fixture(scope="module")
def cluster() -> Generator[str]:
    with ottla_broker() as broker:
        asyncio.run(fill(broker.bootstrap))
        asyncio.run(idle_groups(broker.bootstrap, "idle"))
        with busy_group(broker.bootstrap, "busy"):
            yield broker.bootstrap


@pytest.fixture
def group(cluster: str) -> str:
    """A new group with committed offsets."""
    name = f"own-{next(NUMBERS)}"
    asyncio.run(idle_groups(cluster, name))
    return name


def plain(text: str, bootstrap: str) -> str:
    """Replace what differs between runs."""
    port = bootstrap.rpartition(":")[2]
    text = re.sub(r"reader-[0-9a-f-]{36}", "reader-ID", text)
    return re.sub(rf"\b{port}\b", "PORT", text)


GOLDEN = {
    "group-list": ["group", "list"],
    "group-describe": ["group", "describe", "idle", "busy"],
    "group-seek": ["group", "seek", "idle", "--to", "@2020-09-13T12:26:43", "-t", ORDERS],
    "offsets": ["offsets", ORDERS, LONG, "--at", "@2020-09-13T12:26:43.500"],
}


# This test comes first, because later ones create more groups.
@each_case("name", GOLDEN)
def test_output_is_golden(cluster: str, name: str) -> None:
    table = ottla(cluster, *GOLDEN[name])
    assert (table.status, table.err) == (0, "")
    check_golden(f"{name}.txt", plain(table.out, cluster))
    told = ottla(cluster, *GOLDEN[name], "-o", "json")
    assert (told.status, told.err) == (0, "")
    assert told.object
    check_golden(f"{name}.json", plain(told.out, cluster))


def test_list_and_describe_agree_about_type_and_protocol(cluster: str) -> None:
    heads, *rows = (line.split() for line in ottla(cluster, "group", "list").out.splitlines())
    listed = {row[0]: dict(zip(heads, row, strict=True)) for row in rows}
    for name in ("busy", "idle"):
        lines = ottla(cluster, "group", "describe", name).out.splitlines()
        described = dict(line.split(maxsplit=1) for line in lines[: lines.index("")])
        for head in ("GROUP", "TYPE", "STATE", "PROTOCOL"):
            assert described[head.lower()] == listed[name][head]


def test_output_of_deletions_is_golden(cluster: str) -> None:
    for form, ending in (("table", "txt"), ("json", "json")):
        asyncio.run(idle_groups(cluster, "first", "second"))
        asked = ["group", "delete", "first", "-t", f"{ORDERS}:0", "--yes", "-o", form]
        only = ottla(cluster, *asked)
        whole = ottla(cluster, "group", "delete", "first", "second", "--yes", "-o", form)
        for told, name in ((only, "group-delete-offsets"), (whole, "group-delete")):
            assert (told.status, told.err) == (0, "")
            check_golden(f"{name}.{ending}", told.out)


def test_yaml_has_the_keys_of_json(cluster: str) -> None:
    import yaml

    asked = ["group", "describe", "idle", "-o"]
    told = yaml.safe_load(ottla(cluster, *asked, "yaml").out)
    assert told == ottla(cluster, *asked, "json").object


def test_groups_are_listed_by_state_and_type(cluster: str) -> None:
    def names(*options: str) -> set[str]:
        return {
            one["name"]
            for one in ottla(cluster, "group", "list", *options, "-o", "json").object["groups"]
        }

    assert "busy" in names("--state", "Stable")
    assert "idle" not in names("--state", "Stable")
    assert names("--state", "Stable", "--state", "Empty") >= {"busy", "idle"}
    assert names("--type", "share") == set()
    assert ottla(cluster, "group", "list", "--type", "share").out == "No matching groups.\n"


def test_new_cluster_has_no_groups() -> None:
    with ClusterThread() as empty:
        assert ottla(empty.bootstrap_servers, "group", "list").out == "There are no groups.\n"


def test_lag_is_shown_per_partition_member_and_group(cluster: str) -> None:
    told = ottla(cluster, "group", "describe", "busy", "-o", "json").object["groups"][0]
    assert (told["state"], told["lag"], told["since"]) == ("Stable", 7, "2020-09-13T12:26:43.000Z")
    assert told["coordinator"]["port"] == int(cluster.rpartition(":")[2])
    (member,) = told["members"]
    assert (member["lag"], member["client_id"], len(member["partitions"])) == (7, "reader", 3)
    first, second, third = told["partitions"]
    assert (first["offset"], first["end"], first["lag"]) == (3, 10, 7)
    assert first["since"] == "2020-09-13T12:26:43.000Z"
    assert {one["member"] for one in (first, second, third)} == {member["id"]}
    assert (second["lag"], second["since"]) == (None, None)


def test_lag_skips_records_that_were_deleted(cluster: str) -> None:
    async def cut() -> None:
        async with Admin(bootstrap_servers=cluster) as admin:
            (await admin.create_topics([NewTopic("cut", 1, config=AGELESS)])).or_raise()
            async with Producer(bootstrap_servers=cluster) as producer:
                for at in range(10):
                    await producer.send("cut", b"v", timestamp_ms=FIRST_MS + 1000 * at)
                    await producer.flush()
            (await admin.alter_group_offsets("cut", {("cut", 0): 2})).or_raise()
            (await admin.delete_records({("cut", 0): 5})).or_raise()

    asyncio.run(cut())
    (told,) = ottla(cluster, "group", "describe", "cut", "-o", "json").object["groups"]
    assert (told["lag"], told["since"]) == (8, "2020-09-13T12:26:45.000Z")
    assert told["partitions"][0]["start"] == 5
    plan = ottla(cluster, "group", "seek", "cut", "--to", "+1", "-o", "json").object["partitions"]
    assert [(one["after"], one["limit"], one["skipped"]) for one in plan] == [(5, "start", 0)]
    (offsets,) = ottla(cluster, "offsets", "cut", "-o", "json").object["partitions"]
    assert (offsets["first"], offsets["next"]) == (5, 10)
    asyncio.run(drop(cluster, "cut"))


async def drop(bootstrap: str, topic: str) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        (await admin.delete_topics([topic])).or_raise()


SEEKS = {
    "start": {(ORDERS, 0): 0, (ORDERS, 1): 0, (LONG, 0): 0},
    "end": {(ORDERS, 0): 10, (ORDERS, 1): 5, (LONG, 0): 4},
    "2": {(ORDERS, 0): 2, (ORDERS, 1): 2, (LONG, 0): 2},
    "-2": {(ORDERS, 0): 2, (ORDERS, 1): 3, (LONG, 0): 0},
    "+3": {(ORDERS, 0): 7, (ORDERS, 1): 5, (LONG, 0): 4},
    "@2020-09-13T12:26:42": {(ORDERS, 0): 2, (ORDERS, 1): 2, (LONG, 0): 2},
    "@2020-09-13T14:26:42+02:00": {(ORDERS, 0): 2, (ORDERS, 1): 2, (LONG, 0): 2},
    "@-1h": {(ORDERS, 0): 10, (ORDERS, 1): 5, (LONG, 0): 4},
}


@pytest.mark.parametrize("to", SEEKS)
def test_seek_shows_its_plan_and_executes_it_on_request(cluster: str, group: str, to: str) -> None:
    plan = ottla(cluster, "group", "seek", group, "--to", to, "-o", "json").object
    assert plan["executed"] is False
    assert committed(cluster, group) == IDLE
    done = ottla(cluster, "group", "seek", group, "--to", to, "--execute", "-o", "json").object
    assert done == {**plan, "executed": True}
    assert committed(cluster, group) == SEEKS[to]
    for one in plan["partitions"]:
        where = one["topic"], one["partition"]
        assert (one["before"], one["after"]) == (IDLE[where], SEEKS[to][where])
        assert one["skipped"] - one["again"] == one["after"] - one["before"]


def test_seek_of_some_partitions_leaves_the_others(cluster: str, group: str) -> None:
    asked = ["group", "seek", group, "--to", "start", "-t", f"{ORDERS}:0,2", "--execute"]
    done = ottla(cluster, *asked)
    assert done.status == 0
    assert "was moved in 2 partitions: 0 records skipped, 4 to be read again" in done.out
    assert committed(cluster, group) == {**IDLE, (ORDERS, 0): 0, (ORDERS, 2): 0}


def test_seek_creates_a_group_at_offsets_of_another(cluster: str) -> None:
    asked = ["group", "seek", "made", "--from-group", "idle"]
    assert "The group does not exist yet and will be created." in ottla(cluster, *asked).out
    assert committed(cluster, "made") == {}
    assert "The group was created." in ottla(cluster, *asked, "--execute").out
    assert committed(cluster, "made") == IDLE
    asked = ["group", "seek", "made", "--from-group", "busy", "-t", ORDERS, "--execute"]
    assert ottla(cluster, *asked).status == 0
    assert committed(cluster, "made") == {**IDLE, (ORDERS, 0): 3}


@pytest.mark.parametrize("execute", [[], ["--execute"]])
def test_seek_refuses_a_group_with_members(cluster: str, execute: list[str]) -> None:
    refused = ottla(cluster, "group", "seek", "busy", "--to", "start", *execute)
    assert refused.status == 1
    assert refused.line.startswith(
        "ottla: group busy has a member (state Stable): stop all members first"
    )
    assert refused.out == ""
    assert committed(cluster, "busy") == {(ORDERS, 0): 3}


def test_delete_reports_groups_that_were_not_deleted(cluster: str, group: str) -> None:
    done = ottla(cluster, "group", "delete", group, "absent", "busy", "--yes", "-o", "json")
    assert done.status == 1
    assert done.object["deleted"] == [group]
    assert [(one["about"], one["code"]) for one in done.object["errors"]] == [
        ("absent", "GROUP_ID_NOT_FOUND"),
        ("busy", "NON_EMPTY_GROUP"),
    ]
    assert committed(cluster, group) == {}
    assert committed(cluster, "busy") == {(ORDERS, 0): 3}


def test_delete_of_a_topics_offsets_keeps_the_others(cluster: str, group: str) -> None:
    done = ottla(cluster, "group", "delete", group, "-t", f"{ORDERS}:0", "--yes")
    assert (done.status, done.out) == (0, f"{group}: deleted the offset of orders-0.\n")
    assert committed(cluster, group) == {(ORDERS, 1): 5, (LONG, 0): 1}
    done = ottla(cluster, "group", "delete", "busy", "-t", ORDERS, "--yes")
    assert done.status == 1
    assert "ottla: orders-0: The group is subscribed to the topic" in done.err


def test_deletion_is_confirmed_on_a_terminal(cluster: str, group: str) -> None:
    status, said = on_a_terminal([OTTLA, "group", "delete", group, "-b", cluster], b"n\n")
    assert status == 1
    assert f"Delete {group} with all committed offsets? [y/N]" in said
    assert "nothing was changed" in said
    assert committed(cluster, group) == IDLE
    status, said = on_a_terminal([OTTLA, "group", "delete", group, "-b", cluster], b"y\n")
    assert status == 0
    assert f"Deleted {group}." in said
    assert committed(cluster, group) == {}


def on_a_terminal(command: list[str], typed: bytes) -> tuple[int, str]:
    """Run a command on a pseudo-terminal and type when it prompts."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment()
    )
    os.close(theirs)
    said = b""
    try:
        while True:
            said += (part := os.read(ours, 4096))
            if not part:
                break
            if typed and b"[y/N]" in said:
                os.write(ours, typed)
                typed = b""
    except OSError:  # the other end was closed
        pass
    finally:
        os.close(ours)
    return process.wait(PATIENCE_S), said.decode()


def test_offsets_of_all_topics_are_listed_by_default(cluster: str) -> None:
    told = ottla(cluster, "offsets", "-o", "json").object["partitions"]
    found = {(one["topic"], one["partition"]): (one["first"], one["next"]) for one in told}
    assert found == {
        (ORDERS, 0): (0, 10),
        (ORDERS, 1): (0, 5),
        (ORDERS, 2): (0, 0),
        (LONG, 0): (0, 4),
        ("void", 0): (0, 0),
    }
    told = ottla(cluster, "offsets", "--internal", "-o", "json").object["partitions"]
    assert "__consumer_offsets" in {one["topic"] for one in told}


# Errors.

WRONG = {
    "seek idle": "no target: use --to POSITION or --from-group GROUP",
    "seek idle --to start --from-group busy": "--to and --from-group exclude each other",
    "seek idle --to begin": "'begin' is not a position",
    "seek idle --to @soon": "'@soon' is not a time",
    "seek idle --to start --topic orders:x": "'x' is not a partition number",
    "seek idle --to start --nonsense": "No such option: --nonsense",
    "seek": "Missing argument 'GROUP'",
    "describe": "Missing argument 'GROUP…'",
    "delete idle": "use --yes",
    "delete idle -o json": "use --yes",
    "list --nonsense": "No such option: --nonsense",
    "offsets orders --at 5": "'5' is not a time",
    "offsets orders: ": "does not name partitions",
}


@each_case("words", WRONG)
def test_wrong_usage_prints_one_line_and_exits_with_2(cluster: str, words: str) -> None:
    noun = [] if words.startswith("offsets") else ["group"]
    refused = ottla(cluster, *noun, *words.split())
    assert refused.status == 2
    if "json" in words:
        assert WRONG[words] in refused.object["error"]["message"]
        assert refused.err == ""
    else:
        assert WRONG[words] in refused.line
        assert refused.out == ""
    assert committed(cluster, "idle") == IDLE


UNKNOWN = {
    "describe absent": "GROUP_ID_NOT_FOUND",
    "delete absent --yes": "GROUP_ID_NOT_FOUND",
    "seek absent --to start": "FAILED",
    "seek idle --to start --topic absent": "UNKNOWN_TOPIC_OR_PARTITION",
    "seek idle --to start --topic orders:9": "FAILED",
    "seek idle --to -1 --topic void": "FAILED",
    "seek idle --from-group absent": "FAILED",
    "delete idle --topic absent --yes": "UNKNOWN_TOPIC_OR_PARTITION",
    "offsets absent": "UNKNOWN_TOPIC_OR_PARTITION",
    "offsets orders:9": "FAILED",
}


@each_case("words", UNKNOWN)
def test_missing_group_or_topic_exits_with_1(cluster: str, words: str) -> None:
    noun = [] if words.startswith("offsets") else ["group"]
    refused = ottla(cluster, *noun, *words.split())
    assert refused.status == 1
    assert refused.line.startswith("ottla: ")
    assert refused.out == ""
    told = ottla(cluster, *noun, *words.split(), "-o", "json")
    assert (told.status, told.err) == (1, "")
    error = told.object.get("error") or told.object["errors"][0]
    assert error["code"] == UNKNOWN[words]
    assert committed(cluster, "idle") == IDLE


@pytest.mark.parametrize("words", ["group describe", "group delete --yes", "topic describe"])
def test_empty_name_is_quoted_in_errors(cluster: str, words: str) -> None:
    assert ottla(cluster, *words.split(), "").line.startswith("ottla: '': ")


COMMANDS = [
    "group list",
    "group describe g",
    "group seek g --to start --execute",
    "group delete g --yes",
    "offsets t",
]


@each_case("words", COMMANDS)
def test_missing_broker_prints_one_line_and_exits_with_1(words: str) -> None:
    with socket.socket() as nobody:  # bound, not listening
        nobody.bind(("127.0.0.1", 0))
        refused = ottla(f"127.0.0.1:{nobody.getsockname()[1]}", *words.split())
    assert refused.status == 1
    assert "connection refused" in refused.line
    assert refused.out == ""


@contextmanager
def server(answer: bytes | None) -> Generator[str]:
    """Serve a port without being a broker; without an answer it never responds."""
    taken: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    one, _ = listening.accept()
                except OSError:
                    return
                taken.append(one)
                if answer is not None:
                    threading.Thread(target=reply, args=(one, answer), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            for one in taken:
                one.close()


def reply(one: socket.socket, answer: bytes) -> None:
    try:
        if one.recv(1024):
            one.sendall(answer)
    except OSError:
        pass
    one.close()


@each_case("words", COMMANDS)
def test_non_broker_prints_one_line_and_exits_with_1(words: str) -> None:
    with server(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address:
        refused = ottla(address, *words.split(), "-X", "default.api.timeout.ms=1000",
                        "-X", "request.timeout.ms=1000")  # fmt: skip
    assert refused.status == 1
    assert address in refused.line
    assert refused.out == ""


@each_case("words", COMMANDS)
def test_ctrl_c_prints_one_line_and_exits_with_130(words: str) -> None:
    with server(None) as address:
        process = subprocess.Popen(
            [OTTLA, *words.split(), "-b", address],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        wait_until_connected(process, address)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert (out, err) == ("", "ottla: interrupted\n")


def wait_until_connected(process: subprocess.Popen[str], address: str) -> None:
    """Wait until the process has an established connection to the address."""
    port = f":{int(address.rpartition(':')[2]):04X}"
    while process.poll() is None:
        with open(f"/proc/{process.pid}/net/tcp") as table:
            rows = [line.split() for line in table.readlines()[1:]]
        if any(row[2].endswith(port) and row[3] == "01" for row in rows):
            return
        time.sleep(0.01)
    raise AssertionError("it ended on its own")
