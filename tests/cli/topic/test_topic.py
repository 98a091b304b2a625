"""`ottla topic` on an Ottla broker: changes, output and errors."""

import json
import socket
import subprocess
import threading
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from cases import each_case
from cli.golden import check_settled
from cli.scripts import ottla
from cli.terminal import Terminal
from judges.ottla_broker import OttlaBroker, ottla_broker
from ottla.sync import Admin, Producer


@pytest.fixture(scope="module")
def broker() -> Generator[OttlaBroker]:
    with ottla_broker() as broker:
        yield broker


@pytest.fixture
def clean(broker: OttlaBroker) -> OttlaBroker:
    """A broker without topics."""
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.delete_topics(admin.list_topics()).or_raise()
    return broker


def topic(
    broker: OttlaBroker, *arguments: str, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    return ottla("topic", *arguments, "-b", broker.bootstrap, stdin=stdin)


def told(broker: OttlaBroker, *arguments: str, code: int = 0) -> Any:
    answer = topic(broker, *arguments, "-o", "json")
    assert answer.returncode == code, answer.stderr
    assert answer.stdout.count("\n") == 1
    return json.loads(answer.stdout)


def listed(broker: OttlaBroker) -> dict[str, int]:
    return {one["name"]: one["partitions"] for one in told(broker, "list")["topics"]}


def own_configs(broker: OttlaBroker, name: str) -> dict[str, str]:
    described = told(broker, "describe", name, "--seconds", "0")
    return described["topics"][0]["configs"]


# Create and list.


def test_created_topics_are_listed(clean: OttlaBroker) -> None:
    said = topic(clean, "create", "orders", "-p", "3", "-r", "1", "-c", "retention.ms=1000")
    assert (said.returncode, said.stderr) == (0, "")
    check_settled("topic-create.txt", said.stdout)
    made = topic(clean, "create", "users", "-o", "json")
    check_settled("topic-create.json", made.stdout)
    assert own_configs(clean, "orders") == {"retention.ms": "1000"}
    check_settled("topic-list.txt", topic(clean, "list").stdout)
    check_settled("topic-list.json", topic(clean, "list", "-o", "json").stdout)
    check_settled("topic-list.yaml", topic(clean, "list", "-o", "yaml").stdout)


def test_existing_topic_fails_without_if_not_exists(clean: OttlaBroker) -> None:
    assert topic(clean, "create", "a").returncode == 0
    again = topic(clean, "create", "a", "b")
    assert again.returncode == 1
    assert "a: " in again.stderr
    assert again.stderr.count("\n") == 1
    assert "Created b" in again.stdout
    fine = told(clean, "create", "a", "--if-not-exists")
    assert fine["existing"] == ["a"]
    assert fine["created"] == []


def test_dry_run_creates_nothing(clean: OttlaBroker) -> None:
    assert told(clean, "create", "a", "--dry-run")["possible"] == ["a"]
    assert topic(clean, "create", "b", "--dry-run", "-c", "no.such=1").returncode == 1
    assert listed(clean) == {}
    assert topic(clean, "list").stdout == "No topics.\n"


def test_only_a_name_with_dot_and_underscore_prints_a_warning(clean: OttlaBroker) -> None:
    said = topic(clean, "create", "a.b.c", "d_e", "f-g")
    assert (said.returncode, said.stderr) == (0, "")
    said = topic(clean, "create", "h.i_j")
    assert said.returncode == 0
    assert said.stderr.startswith("ottla: warning: h.i_j has '.' and '_': metric names do not")
    assert said.stderr.count("\n") == 1
    assert len(told(clean, "create", "k.l_m", "n.o")["warnings"]) == 1


def test_colliding_name_is_refused_with_the_other_topic(clean: OttlaBroker) -> None:
    assert topic(clean, "create", "a.b").returncode == 0
    said = topic(clean, "create", "a_b")
    assert said.returncode == 1
    assert "collides with existing topic: a.b" in said.stderr
    assert said.stderr.count("\n") == 1


# Describe.


def test_describe_marks_the_skewed_partition(clean: OttlaBroker) -> None:
    topic(clean, "create", "orders", "-p", "4", "-c", "cleanup.policy=delete")
    with Producer(bootstrap_servers=clean.bootstrap, acks="all") as producer:
        for index in range(400):
            key = b"big" if index % 4 else None
            producer.send("orders", b"x" * 10_000, key=key, partition=2)
            if index % 20 == 0:
                producer.send("orders", b"x" * 10_000, partition=0)
        producer.flush()
    said = topic(clean, "describe", "orders", "--seconds", "0")
    assert said.returncode == 0, said.stderr
    sizes = {
        one["partition"]: one
        for one in told(clean, "describe", "orders", "--seconds", "0")["topics"][0]["partitions"]
    }
    assert sizes[2]["skewed"] == ["size"]
    assert sizes[0]["skewed"] == sizes[1]["skewed"] == []
    assert sizes[2]["hot_keys"] == [{"key": "big", "share": 0.75}]
    assert sizes[0]["hot_keys"] == []
    assert sizes[2]["end_offset"] == 400
    assert sizes[2]["records_per_s"] is None
    assert sizes[2]["size_bytes"] > 4_000_000
    lines = said.stdout.splitlines()
    assert lines[0].startswith("orders: 4 partitions, replication factor 1, id ")
    assert lines[1] == "  cleanup.policy=delete"
    assert "x the mean, hot keys: big (75%)" in lines[5]
    assert [("x the mean" in line) for line in lines].count(True) == 1
    checked = ottla("doctor", "-b", clean.bootstrap, "-o", "json").stdout
    checks = json.loads(checked)["checks"]
    (warning,) = [one for one in checks if one["about"] == "partition orders-2"]
    assert warning["grade"] == "warning"
    assert warning["found"].endswith("; hot keys: big (75%)")


def test_output_of_describe_is_golden(clean: OttlaBroker) -> None:
    topic(clean, "create", "orders", "-p", "2", "-c", "retention.ms=1000")
    topic(clean, "create", "users")
    check_settled("topic-describe.txt", topic(clean, "describe", "--seconds", "0.1").stdout)
    answer = topic(clean, "describe", "orders", "--seconds", "0.1", "-o", "json")
    check_settled("topic-describe.json", answer.stdout)
    topic(clean, "delete", "orders", "users", "--yes")
    assert topic(clean, "describe").stdout == "No topics.\n"


def test_rate_counts_records_between_two_reads(clean: OttlaBroker) -> None:
    topic(clean, "create", "busy", "-p", "3")
    with Producer(bootstrap_servers=clean.bootstrap, linger_ms=0) as producer:
        process = subprocess.Popen(
            [*_command(), "topic", "describe", "busy", "--seconds", "2", "-o", "json", "-b",
             clean.bootstrap],
            stdout=subprocess.PIPE,
        )  # fmt: skip
        while process.poll() is None:
            for _ in range(50):
                producer.send("busy", b"x", partition=1)
            producer.flush()
        assert process.stdout is not None
        (found,) = json.loads(process.stdout.read())["topics"]
        process.stdout.close()
    rates = {one["partition"]: one["records_per_s"] for one in found["partitions"]}
    assert rates[1] > 10
    assert rates[0] == rates[2] == 0
    assert "rate" in found["partitions"][1]["skewed"]


def _command() -> list[str]:
    from cli.scripts import BIN

    return [str(BIN / "ottla")]


def test_unknown_topic_does_not_hide_others(clean: OttlaBroker) -> None:
    topic(clean, "create", "a")
    said = topic(clean, "describe", "a", "absent", "--seconds", "0")
    assert said.returncode == 1
    assert said.stdout.startswith("a: 1 partition")
    assert said.stderr == "ottla: topic absent does not exist\n"
    assert said.stderr.count("\n") == 1
    found = told(clean, "describe", "absent", code=1)
    assert found["topics"] == []
    assert found["errors"][0]["about"] == "absent"
    assert found["errors"][0]["code"] == "UNKNOWN_TOPIC_OR_PARTITION"


# Alter.


def test_alter_adds_partitions_and_changes_settings(clean: OttlaBroker) -> None:
    topic(clean, "create", "a", "b")
    said = topic(clean, "alter", "a", "b", "-p", "3", "-c", "retention.ms=5", "-c", "segment.ms=9")
    assert said.returncode == 0
    assert "more partitions change the partition of keys" in said.stderr
    check_settled("topic-alter.txt", said.stdout)
    assert listed(clean) == {"a": 3, "b": 3}
    assert own_configs(clean, "b") == {"retention.ms": "5", "segment.ms": "9"}
    unset = topic(clean, "alter", "a", "--unset", "retention.ms", "-o", "json")
    check_settled("topic-alter.json", unset.stdout)
    assert unset.stderr == ""
    assert own_configs(clean, "a") == {"segment.ms": "9"}


def test_failed_alter_changes_nothing(clean: OttlaBroker) -> None:
    topic(clean, "create", "a", "b")
    bad = ("-c", "retention.ms=soon")
    assert topic(clean, "alter", "a", "b", "-p", "2", *bad).returncode == 1
    assert topic(clean, "alter", "a", "absent", "-p", "2").returncode == 1
    assert topic(clean, "alter", "a", "-p", "2", "--dry-run").stdout == "Would change a.\n"
    assert listed(clean) == {"a": 1, "b": 1}
    fewer = topic(clean, "alter", "a", "-p", "1")
    assert fewer.returncode == 1
    assert fewer.stderr.count("\n") == 1
    assert "warning" not in fewer.stderr


# Delete.


def test_delete_removes_existing_topics(clean: OttlaBroker) -> None:
    topic(clean, "create", "a", "b", "c")
    check_settled("topic-delete.txt", topic(clean, "delete", "a", "--yes").stdout)
    check_settled("topic-delete.json", topic(clean, "delete", "b", "-y", "-o", "json").stdout)
    assert listed(clean) == {"c": 1}
    assert topic(clean, "delete", "c", "absent", "--yes").returncode == 1
    assert listed(clean) == {"c": 1}
    fine = told(clean, "delete", "c", "absent", "--yes", "--if-exists")
    assert fine == {"deleted": ["c"], "missing": ["absent"]}
    assert listed(clean) == {}


def test_delete_without_a_terminal_requires_yes(clean: OttlaBroker) -> None:
    topic(clean, "create", "a")
    said = topic(clean, "delete", "a")
    assert (said.returncode, said.stdout) == (2, "")
    assert "use --yes" in said.stderr
    refused = told(clean, "delete", "a", code=2)
    assert refused["error"]["code"] == "USAGE"
    assert listed(clean) == {"a": 1}


def test_refused_name_prints_no_warning(clean: OttlaBroker) -> None:
    said = topic(clean, "create", ".")
    assert said.returncode == 1
    assert "warning" not in said.stderr


def test_delete_asks_on_a_terminal(clean: OttlaBroker) -> None:
    topic(clean, "create", "a")
    for keys, code in (("n\r", 1), ("y\r", 0)):
        with Terminal("ottla", "topic", "delete", "a", "-b", clean.bootstrap) as terminal:
            terminal.read_until("Delete topic a with all its records?")
            assert listed(clean) == {"a": 1}
            terminal.type(keys)
            assert terminal.end() == code
    assert "Deleted a." in terminal.said
    assert listed(clean) == {}


def test_delete_of_consumer_offsets_explains_the_loss(clean: OttlaBroker) -> None:
    name = "__consumer_offsets"
    topic(clean, "create", name, "-p", "1")
    with Terminal("ottla", "topic", "delete", name, "-b", clean.bootstrap) as terminal:
        terminal.read_until("holds the committed offsets of all groups")
        terminal.type("y\r")
        assert terminal.end() == 1  # Ottla's broker keeps it; Kafka's would delete it
    assert f"{name} is an internal topic and cannot be deleted." in terminal.said


def test_ctrl_c_at_the_prompt_deletes_nothing(clean: OttlaBroker) -> None:
    topic(clean, "create", "a")
    with Terminal("ottla", "topic", "delete", "a", "-b", clean.bootstrap) as terminal:
        terminal.read_until("Delete topic a")
        terminal.interrupt()
        assert terminal.end() == 130
    assert terminal.said.strip().endswith("ottla: interrupted")
    assert "Traceback" not in terminal.said
    assert listed(clean) == {"a": 1}


# Apply.

FILE = """\
topics:
  - name: orders
    partitions: 3
    configs: {retention.ms: 1000}
  - name: users
    partitions: 2
    replication_factor: 1
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "topics.yaml"
    path.write_text(FILE)
    return path


def test_apply_creates_and_changes_topics_once(clean: OttlaBroker, file: Path) -> None:
    topic(clean, "create", "users", "other", "-c", "segment.ms=7")
    dry = topic(clean, "apply", "-f", str(file), "--dry-run")
    assert dry.returncode == 0
    check_settled("topic-apply-dry-run.txt", dry.stdout)
    assert listed(clean) == {"other": 1, "users": 1}
    done = topic(clean, "apply", "-f", str(file), "--yes")
    assert done.returncode == 0, done.stderr
    check_settled("topic-apply.txt", done.stdout)
    assert "users: more partitions change the partition of keys" in done.stderr
    assert listed(clean) == {"orders": 3, "other": 1, "users": 2}
    assert own_configs(clean, "orders") == {"retention.ms": "1000"}
    assert own_configs(clean, "users") == {"segment.ms": "7"}
    again = topic(clean, "apply", "-f", str(file))
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout == "= 2 topics are unchanged\nNothing to do.\n"


def test_apply_prints_json_and_requires_yes(clean: OttlaBroker, file: Path) -> None:
    answer = topic(clean, "apply", "-f", str(file), "--yes", "-o", "json")
    assert answer.returncode == 0
    check_settled("topic-apply.json", answer.stdout)
    file.write_text("- {name: orders, partitions: 4}\n")
    assert told(clean, "apply", "-f", str(file), code=2)["error"]["code"] == "USAGE"
    assert listed(clean) == {"orders": 3, "users": 2}


def test_apply_removes_others_only_on_request(clean: OttlaBroker, tmp_path: Path) -> None:
    topic(clean, "create", "a", "b", "-c", "segment.ms=7", "-c", "retention.ms=5")
    path = tmp_path / "t.yaml"
    path.write_text("- {name: a, configs: {retention.ms: 5}}\n")
    assert topic(clean, "apply", "-f", str(path), "--yes", "--unset-others").returncode == 0
    assert own_configs(clean, "a") == {"retention.ms": "5"}
    assert own_configs(clean, "b") == {"retention.ms": "5", "segment.ms": "7"}
    said = topic(clean, "apply", "-f", "-", "--yes", "--delete-others", stdin=path.read_text())
    assert said.returncode == 0
    assert "- b: to be deleted with all its records\n" in said.stdout
    assert listed(clean) == {"a": 1}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("- {name: a, partitions: 1}\n- {name: new}\n", "the partition count cannot be reduced"),
        ("- {name: a, replication_factor: 2}\n- {name: new}\n", "reassignment"),
        ("- {name: a, configs: {no.such: 1}}\n- {name: new}\n", "no.such"),
        ("- {name: new, configs: {retention.ms: soon}}\n- {name: more}\n", "retention.ms"),
        ("- {name: new, replication_factor: 9}\n- {name: more}\n", "new: "),
    ],
)
def test_apply_changes_nothing_if_a_part_is_impossible(
    clean: OttlaBroker, tmp_path: Path, text: str, why: str
) -> None:
    topic(clean, "create", "a", "-p", "2")
    path = tmp_path / "t.yaml"
    path.write_text(text)
    said = topic(clean, "apply", "-f", str(path), "--yes")
    assert said.returncode == 1
    assert said.stdout.startswith(("! a: ", "! new: "))
    assert said.stdout.endswith("Nothing was changed: some changes are not possible.\n")
    assert why in said.stderr
    assert listed(clean) == {"a": 2}
    found = told(clean, "apply", "-f", str(path), "--yes", code=1)
    assert found["applied"] == []
    assert found["errors"]


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [("- {name: a.c}\n- {name: a_c}\n", "a.c", "a_c"), ("- {name: x_y}\n", "x.y", "x_y")],
)
def test_apply_refuses_colliding_names(
    clean: OttlaBroker, tmp_path: Path, text: str, first: str, second: str
) -> None:
    topic(clean, "create", "x.y")
    path = tmp_path / "t.yaml"
    path.write_text(text)
    why = f"{second}: its name differs from that of {first} only in . and _"
    for flag in ("--dry-run", "--yes"):
        said = topic(clean, "apply", "-f", str(path), flag)
        assert said.returncode == 1
        assert said.stdout.endswith("Nothing was changed: some changes are not possible.\n")
        assert f"ottla: {why}\n" in said.stderr
        assert listed(clean) == {"x.y": 1}


def test_apply_shows_the_plan_before_it_asks(clean: OttlaBroker, file: Path) -> None:
    for keys, code in (("n\r", 1), ("y\r", 0)):
        with Terminal(
            "ottla", "topic", "apply", "-f", str(file), "-b", clean.bootstrap
        ) as terminal:
            said = terminal.read_until("Create 2 topics?")
            assert "+ orders: to be created\n    partitions: 3\n" in said
            assert listed(clean) == {}
            terminal.type(keys)
            assert terminal.end() == code
    assert listed(clean) == {"orders": 3, "users": 2}


def test_progress_bar_is_only_on_a_terminal(clean: OttlaBroker, tmp_path: Path) -> None:
    """Uses more topics than fit into one request."""
    file = tmp_path / "t.yaml"
    file.write_text("".join(f"- {{name: t{number}, partitions: 1}}\n" for number in range(60)))
    apply = ("apply", "-f", str(file), "--yes")
    describe = ("describe", "t7", "--seconds", "0.5")
    for words in (apply, describe):
        where = ("-b", clean.bootstrap)
        with Terminal("ottla", "topic", *words, *where, env={"TERM": "xterm"}) as terminal:
            assert terminal.end() == 0
            assert "━" in terminal.said
            assert "100%" in terminal.said
    assert listed(clean) == {f"t{number}": 1 for number in range(60)}
    file.write_text(file.read_text().replace("partitions: 1", "configs: {retention.ms: 5}"))
    for words in (describe, apply):
        said = topic(clean, *words)
        assert (said.returncode, said.stderr) == (0, "")
        assert "━" not in said.stdout
    assert said.stdout.endswith("Changed 60 of 60 topics.\n")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("- name: a\n  partitons: 3\n", ", line 2: unknown key 'partitons' of a topic"),
        ("- name: 'a\n", ", line 2: "),
        ("- name: a\n\tpartitions: 3\n", ", line 2: "),
    ],
)
def test_invalid_file_prints_the_line_number(
    clean: OttlaBroker, tmp_path: Path, text: str, why: str
) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(text)
    said = topic(clean, "apply", "-f", str(path))
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr.startswith(f"ottla: {path}{why}")
    assert said.stderr.count("\n") == 1
    missing = topic(clean, "apply", "-f", str(path / "none"))
    assert missing.returncode == 2
    assert missing.stderr.count("\n") == 1


# Errors.

COMMANDS = (
    ("list",),
    ("create", "a"),
    ("describe", "a"),
    ("alter", "a", "-p", "2"),
    ("delete", "a", "--yes"),
)


@each_case("words", COMMANDS, ids=lambda words: words[0])
def test_topic_fails_at_once_without_a_broker(words: tuple[str, ...]) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # not listening
        port = held.getsockname()[1]
        where = f"127.0.0.1:{port}"
        said = ottla("topic", *words, "-b", where)
        assert (said.returncode, said.stdout) == (1, "")
        assert said.stderr == (
            f"ottla: no broker found: {where}: connection refused. "
            f"`ottla dev --port {port}` starts one on this machine\n"
        )
        answer = ottla("topic", *words, "-b", where, "-o", "yaml")
        assert yaml.safe_load(answer.stdout)["error"]["code"] == "NETWORK_EXCEPTION"


@each_case(
    "words",
    [
        ("list", "--nothing"),
        ("create",),
        ("create", "a", "-p", "0"),
        ("create", "a", "-p", "many"),
        ("create", "a", "-c", "retention.ms"),
        ("alter", "a"),
        ("alter", "a", "-c", "x=1", "-u", "x"),
        ("describe", "a", "--seconds", "-1"),
        ("delete",),
        ("apply",),
        ("nothing",),
    ],
    ids=" ".join,
)
def test_wrong_usage_prints_one_line_and_exits_with_2(words: tuple[str, ...]) -> None:
    said = ottla("topic", *words, "-b", "127.0.0.1:1")
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr.startswith("ottla: ")
    assert said.stderr.count("\n") == 1
    answer = ottla("topic", *words, "-b", "127.0.0.1:1", "-o", "json")
    assert answer.returncode == 2
    assert json.loads(answer.stdout)["error"]["code"] == "USAGE"


@pytest.mark.parametrize("name", ["a/b", "ü", "", "x" * 250])
def test_invalid_topic_name_is_refused(clean: OttlaBroker, name: str) -> None:
    said = topic(clean, "create", "--", name)
    assert said.returncode == 1
    assert said.stderr.count("\n") == 1
    assert listed(clean) == {}


def test_ctrl_c_exits_with_130() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections and never responds
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        with Terminal("ottla", "topic", "list", "-b", where) as terminal:
            held = [silent.accept()[0] for _ in range(2)]  # one of the probe, one of the client
            terminal.interrupt()
            assert terminal.end() == 130
        for one in held:
            one.close()
    waits, ended = terminal.said.splitlines()
    assert waits.startswith(f"{where} accepts connections but has not responded yet")
    assert ended == "ottla: interrupted"


def test_non_broker_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as web:
        thread = threading.Thread(target=_serve_text, args=(web,), daemon=True)
        thread.start()
        where = f"127.0.0.1:{web.getsockname()[1]}"
        said = ottla("topic", "list", "-b", where, "-X", "default.api.timeout.ms=2000")
        web.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr.startswith("ottla: ")
    assert said.stderr.count("\n") == 1


def _serve_text(server: socket.socket) -> None:
    """Respond in another protocol."""
    with suppress(OSError):
        while True:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
