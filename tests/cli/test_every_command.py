"""Every command of Ottla and Kafka: help, wrong flag, no broker, another server, Ctrl-C.

Commands are found in the tables, so new ones are included. Required arguments are found in the
parameters, or listed in ARGUMENTS.
"""

import json
import os
import re
import signal
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import typer.main

from cli.console import PATIENCE_S, SCRIPTS, command, surroundings
from cli.forked import as_text, forked
from cli.golden import FOLDER
from cli.non_brokers import NonBroker, nobody, silent, talkative
from judges.ottla_broker import ottla_broker
from ottla.cli.main import app
from sampling import sample

ROOT = Path(__file__).parents[2]
AT_ONCE = 4
WRONG = "--no-such-flag"

# Required arguments that the parameters do not show.
ARGUMENTS: Mapping[str, Sequence[str]] = {
    "config describe": ("--topic", "t"),
    "config set": ("--topic", "t", "retention.ms=1"),
    "config unset": ("--topic", "t", "retention.ms"),
    "group seek": ("g", "--to", "start", "--topic", "t"),
    "partition cancel": ("--all",),
    "partition move": ("t", "--to", "1"),
    "profile delete": ("none", "--yes"),
    "topic alter": ("t", "--partitions", "2"),
    "topic apply": ("-f", "{topics}", "--yes"),
}
SERVERS = ("broker", "dev", "cluster-start", "zookeeper-start")
# Tools that print errors where Kafka's do, and their exit code.
AS_KAFKA: Mapping[str, int] = {
    "kafka-configs": 1,
    "kafka-consumer-groups": 0,
    "kafka-reassign-partitions": 1,
    "kafka-topics": 1,
}
# Required arguments of Kafka's tools. {server} is the address, {file} an existing file.
TOOLS: Mapping[str, str] = {
    "kafka-broker-api-versions": "--bootstrap-server {server}",
    "kafka-cluster": "cluster-id --bootstrap-server {server}",
    "kafka-configs": "--bootstrap-server {server} --describe --entity-type topics --entity-name t",
    "kafka-console-consumer": "--bootstrap-server {server} --topic t --from-beginning",
    "kafka-console-producer": "--bootstrap-server {server} --topic t",
    "kafka-consumer-groups": "--bootstrap-server {server} --list",
    "kafka-consumer-perf-test": "--bootstrap-server {server} --topic t --num-records 1",
    "kafka-delete-records": "--bootstrap-server {server} --offset-json-file {file}",
    "kafka-dump-log": "",
    "kafka-get-offsets": "--bootstrap-server {server} --topic t",
    "kafka-leader-election": (
        "--bootstrap-server {server} --election-type preferred --all-topic-partitions"
    ),
    "kafka-log-dirs": "--bootstrap-server {server} --describe",
    "kafka-producer-perf-test": (
        "--bootstrap-server {server} --topic t --num-records 1 --record-size 1 --throughput -1"
    ),
    "kafka-reassign-partitions": "--bootstrap-server {server} --list",
    "kafka-replica-verification": "--broker-list {server}",
    "kafka-server-start": "",
    "kafka-server-stop": "",
    "kafka-topics": "--bootstrap-server {server} --list",
    "kafka-verifiable-consumer": "--bootstrap-server {server} --topic t --group-id g",
    "kafka-verifiable-producer": "--bootstrap-server {server} --topic t --max-messages 1",
}
OFFSETS = '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "offset": 0}]}'


@dataclass(frozen=True)
class Leaf:
    """A command of `ottla` with its required arguments."""

    words: tuple[str, ...]
    parameters: Sequence[Any]  # Typer's, without types

    @property
    def name(self) -> str:
        return " ".join(self.words)

    @property
    def asks(self) -> bool:
        """Whether the command talks to a cluster."""
        return any(one.name == "bootstrap_server" for one in self.parameters)

    @property
    def has_output(self) -> bool:
        return any("--output" in one.opts for one in self.parameters)

    def needs(self, file: Path) -> list[str]:
        if self.name in ARGUMENTS:
            topics = file.with_name("topics.yaml")
            if not topics.exists():  # a command that runs meanwhile may read it
                new = topics.with_suffix(f".{uuid4()}")
                new.write_text("topics:\n  - name: t\n    partitions: 1\n")
                new.replace(topics)
            places = {"{file}": str(file), "{topics}": str(topics)}
            return [places.get(word, word) for word in ARGUMENTS[self.name]]
        words: list[str] = []
        for one in self.parameters:
            if one.required:
                is_option = one.param_type_name == "option"
                words += [one.opts[0], value(one, file)] if is_option else [value(one, file)]
            elif "--yes" in one.opts:
                words.append("--yes")
        return words


def value(parameter: Any, file: Path) -> str:
    """Return a valid value of a parameter."""
    kind = str(parameter.type.name).lower()
    if kind in ("path", "file"):
        return str(file)
    if kind.startswith("int"):
        return "1"
    if choices := getattr(parameter.type, "choices", None):
        return str(next(iter(choices)))
    return "retention.ms=1" if "=" in str(parameter.metavar or "") else "x"


def leaves(group: Any, words: tuple[str, ...] = ()) -> Iterator[Leaf]:
    for name, found in sorted(group.commands.items()):
        if hasattr(found, "commands"):
            yield from leaves(found, (*words, name))
        if not hasattr(found, "commands") or found.invoke_without_command:
            yield Leaf((*words, name), found.params)


LEAVES = [*leaves(typer.main.get_command(app([])))]
SCRIPT_NAMES = sorted(
    name
    for name in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    if name.startswith("kafka-") and not name.endswith(".sh")
)
ASKING = [one for one in LEAVES if one.asks]
ASKING_TOOLS = [name for name in SCRIPT_NAMES if "{server}" in TOOLS.get(name, "")]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file.json"
    path.write_text(OFFSETS)
    return path


def tool_words(tool: str, server: str, file: Path) -> list[str]:
    return TOOLS[tool].replace("{server}", server).replace("{file}", str(file)).split()


def test_every_command_is_found() -> None:
    names = {one.name for one in LEAVES}
    assert {"topic list", "log dump", "doctor", "cluster describe", "version"} <= names
    assert {*ARGUMENTS} <= names
    assert {*SCRIPT_NAMES} <= {*TOOLS}, "say in TOOLS what a new tool needs"
    assert len(ASKING) >= 4


def test_every_command_has_golden_output() -> None:
    """Servers print until they are stopped; they have their own tests."""
    kept = sorted(path.name for path in FOLDER.iterdir())
    for leaf in LEAVES:
        name = "-".join(leaf.words)
        for form in ("txt", "json"):
            assert name in SERVERS or any(
                re.fullmatch(rf"{name}(-[a-z-]+)?\.{form}", one) for one in kept
            ), f"golden/{name}.{form} is missing"


def at_once(check: Callable[[Any], str | None], cases: Sequence[Any]) -> None:
    """Check cases concurrently and report all failures."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        wrong = [told for told in pool.map(check, cases) if told]
    assert not wrong, "\n\n".join(wrong)


def verdict(
    name: str,
    done: "subprocess.CompletedProcess[str]",
    codes: Sequence[int],
    *,
    one_line: bool,
    is_json: bool = False,
) -> str | None:
    """Return what is wrong with the result of a command."""
    whys: list[str] = []
    if done.returncode not in codes:
        whys.append(f"ends with {done.returncode} and not with {codes}")
    if "Traceback" in done.stderr + done.stdout or "Error:" in done.stderr:
        whys.append("has a traceback")
    if is_json:
        try:
            found = json.loads(done.stdout)
            if not {"error", "errors"} & found.keys():
                whys.append("has no error in its object")
        except ValueError:
            whys.append("is not one object")
    elif one_line and done.stderr.count("\n") != 1:
        whys.append("is not one line on stderr")
    if not whys:
        return None
    return f"{name}: {'; '.join(whys)}\nstdout: {done.stdout[-600:]}\nstderr: {done.stderr[-1500:]}"


# Help and wrong flags.


def test_every_command_prints_help() -> None:
    groups = {one.words[:-1] for one in LEAVES}
    cases = [("ottla", *words) for words in (*sorted(groups), *(one.words for one in LEAVES))]
    fresh = sample(cases, 6)

    def check(words: tuple[str, ...]) -> str | None:
        done = command(words[0], *words[1:], "--help", fresh=words in fresh)
        if done.returncode or not done.stdout.strip() or done.stderr:
            return f"{words}: {done.returncode} {done.stderr}"
        return None

    at_once(check, cases)


def test_unknown_flag_prints_one_line_and_exits_with_2(file: Path) -> None:
    def check(leaf: Leaf) -> str | None:
        words = [*leaf.words, *leaf.needs(file), WRONG]
        told = verdict(leaf.name, command("ottla", *words), [2], one_line=True)
        if told or not leaf.has_output:
            return told
        done = command("ottla", *words, "-o", "json")
        return verdict(leaf.name, done, [2], one_line=False, is_json=True)

    at_once(check, LEAVES)


def test_unknown_flag_of_kafkas_tool_prints_the_usage(file: Path) -> None:
    def check(tool: str) -> str | None:
        done = command(tool, *tool_words(tool, "127.0.0.1:1", file), WRONG)
        if WRONG[2:] not in done.stderr.splitlines()[0]:
            return f"{tool}: {done.stderr}"
        return verdict(tool, done, [1], one_line=False)

    at_once(check, SCRIPT_NAMES)


# Brokers and other servers.


def asked(leaf: Leaf, server: str, file: Path, *more: str) -> list[str]:
    return [*leaf.words, *leaf.needs(file), "-b", server, *more]


def test_missing_broker_prints_one_line_and_exits_with_1(file: Path) -> None:
    server = nobody()

    def check(leaf: Leaf) -> str | None:
        done = command("ottla", *asked(leaf, server, file), folder=file.parent, stdin="x\n")
        if told := verdict(leaf.name, done, [1], one_line=True):
            return told
        if server not in done.stderr:
            return f"{leaf.name}: does not say who was asked: {done.stderr}"
        words = asked(leaf, server, file, "-o", "json")
        done = command("ottla", *words, folder=file.parent, stdin="x\n")
        return verdict(leaf.name, done, [1], one_line=False, is_json=True)

    def check_tool(tool: str) -> str | None:
        done = command(tool, *tool_words(tool, server, file), stdin="x\n")
        return verdict(tool, done, [AS_KAFKA.get(tool, 1)], one_line=tool not in AS_KAFKA)

    at_once(check, ASKING)
    at_once(check_tool, ASKING_TOOLS)


def test_non_broker_prints_one_line_and_exits_with_1(file: Path) -> None:
    def check(leaf: Leaf) -> str | None:
        words = asked(leaf, stranger.address, file)
        done = command("ottla", *words, folder=file.parent, stdin="x\n")
        return verdict(leaf.name, done, [1], one_line=True) or told(leaf.name, done)

    def check_tool(tool: str) -> str | None:
        done = command(tool, *tool_words(tool, stranger.address, file), stdin="x\n")
        wrong = verdict(tool, done, [AS_KAFKA.get(tool, 1)], one_line=tool not in AS_KAFKA)
        return wrong or told(tool, done)

    def told(name: str, done: subprocess.CompletedProcess[str]) -> str | None:
        said = f"{stranger.address}: invalid response"
        return None if said in done.stdout + done.stderr else f"{name}: {done.stderr}"

    with talkative() as stranger:
        at_once(check, ASKING)
        at_once(check_tool, ASKING_TOOLS)


UNKNOWN: Mapping[str, str] = {
    "collect files": "x --topic {none} -X max.block.ms=2000",
    "config describe": "--topic {none}",
    "config set": "--topic {none} retention.ms=1",
    "config unset": "--topic {none} retention.ms",
    "consume": "{none}",
    "group delete": "{none} --yes",
    "group describe": "{none}",
    "group seek": "g --to start --topic {none}",
    "offsets": "{none}",
    "partition cancel": "{none}",
    "partition elect": "{none}",
    "partition move": "{none} --to 1",
    "perf consume": "{none}",
    "perf latency": "{none}",
    "perf produce": "{none} -X max.block.ms=2000",
    "pipeline init": "{none}",
    "produce": "{none} -X max.block.ms=2000",
    "topic alter": "{none} --partitions 2",
    "topic delete": "{none} --yes",
    "topic describe": "{none}",
}
"""Arguments with a missing topic or group. Kafka's tools are compared with Java's in other tests.
"""


def test_unknown_topic_or_group_exits_with_1(file: Path) -> None:
    naming = {
        one.name
        for one in ASKING
        if {"topic", "topics", "group", "groups"} & {each.name for each in one.parameters}
    }
    assert naming - {"topic create"} == {*UNKNOWN}

    def check(name: str) -> str | None:
        words = [*name.split(), *UNKNOWN[name].format(none="nowhere").split()]
        for more in ((), ("-o", "json")):
            done = command("ottla", *words, "-b", broker.bootstrap, *more, stdin="x\n")
            # A warning is printed before the error of a command that has waited for the topic.
            lines = done.stderr.splitlines(keepends=True)
            done.stderr = "".join(one for one in lines if "waiting for it" not in one)
            if told := verdict(name, done, [1], one_line=not more, is_json=bool(more)):
                return told
            if "nowhere" not in done.stderr + done.stdout:
                return f"{name}: does not say what is not there: {done.stderr}{done.stdout}"
        return None

    with ottla_broker({"auto.create.topics.enable": "false"}) as broker:
        at_once(check, [*UNKNOWN])
        listed = command("ottla", "topic", "list", "-o", "json", "-b", broker.bootstrap)
        assert json.loads(listed.stdout) == {"topics": []}, "nothing was made"


# Ctrl-C.


def interrupted(
    words: Sequence[str], server: NonBroker, folder: Path, *, fresh: bool
) -> subprocess.CompletedProcess[str]:
    """Run a command until it waits for a response, then press Ctrl-C."""
    env = surroundings("/nonexistent")
    if fresh:
        return interrupted_afresh(words, server, folder, env)
    with forked(words, env=env, folder=folder) as process:
        process.stdin.write(b"x\n")
        is_asked = server.asked.acquire(timeout=PATIENCE_S)
        os.kill(process.pid, signal.SIGINT if is_asked else signal.SIGKILL)
        done = process.completed(b"", PATIENCE_S)
    assert is_asked, "it asked nobody"
    return as_text(done)


def interrupted_afresh(
    words: Sequence[str], server: NonBroker, folder: Path, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Do the same with a new interpreter."""
    process = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        cwd=folder,
    )
    try:
        assert process.stdin is not None
        process.stdin.write("x\n")
        process.stdin.flush()
        assert server.asked.acquire(timeout=PATIENCE_S), "it asked nobody"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def test_ctrl_c_during_a_request_exits_with_130(file: Path) -> None:
    def check(case: tuple[str, Sequence[str], bool, bool]) -> str | None:
        name, words, one_line, is_json = case
        with silent() as server:
            given = [word.replace("{server}", server.address) for word in words]
            done = interrupted(given, server, file.parent, fresh=case in fresh)
        return verdict(name, done, [130], one_line=one_line, is_json=is_json)

    ottla = str(SCRIPTS / "ottla")
    cases = [(one.name, [ottla, *asked(one, "{server}", file)], True, False) for one in ASKING]
    cases += [
        (one.name, [ottla, *asked(one, "{server}", file, "-o", "json")], False, True)
        for one in sample(ASKING, 6)
    ]
    cases += [
        (tool, [str(SCRIPTS / tool), *tool_words(tool, "{server}", file)], False, False)
        for tool in ASKING_TOOLS
    ]
    fresh = sample(cases, 6)
    at_once(check, cases)
