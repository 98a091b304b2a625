"""Ottla's tools for groups, offsets, records and directories, compared with Kafka's Java tools.

On an Ottla broker, the output of Java's tools is recorded. `make judge` runs both kinds of tools on
both kinds of brokers.
"""

import asyncio
import contextlib
import io
import json
import re
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import ExitStack
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cli.group.sample_groups import IDLE, LONG, ORDERS, busy_group, committed, fill, idle_groups
from judges.ottla_broker import ottla_broker
from judges.recording import Json, Mode, Recording, Scenario
from kafka_java import kafka_broker
from kafka_tools import KafkaTools, Said
from ottla.cli.kafka import delete_records, log_dirs
from ottla.cli.kafka.flags import Given, Usage
from ottla.cli.kafka.groups import tool as consumer_groups
from ottla.cli.kafka.offsets import tool as get_offsets
from ottla.cli.kafka.tool import conducted
from ottla.client.admin import Admin, NewTopic
from ottla.client.producer.producer import Producer
from recorded import recording

__all__ = ["recording"]  # a fixture

pytestmark = pytest.mark.recorded

ERR_LINES = 3  # before the usage or the stack trace


class Tool(NamedTuple):
    """A tool of Ottla; Java's has the same name."""

    usage: Usage
    act: Callable[[Given], Coroutine[Any, Any, int]]

    def run(self, *arguments: str) -> Said:
        """Run the tool in this process, which saves hundreds of starts."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = conducted(self.usage, self.act, [*arguments])
        return Said(code, out.getvalue(), err.getvalue())


GROUPS = Tool(consumer_groups.USAGE, consumer_groups.act)
OFFSETS = Tool(get_offsets.USAGE, get_offsets.act)
CUT = Tool(delete_records.USAGE, delete_records.act)
DIRS = Tool(log_dirs.USAGE, log_dirs.act)


class Cluster(NamedTuple):
    """A broker with topics and groups, and Java's tools or their recorded output."""

    bootstrap: str
    owner: str
    java: KafkaTools
    folder: Path
    scenario: Scenario | None
    """The recorded output of Java's tools on our broker."""

    @property
    def has_javas(self) -> bool:
        """Whether Java's tools run, so that their changes are made."""
        return self.scenario is None or self.scenario.mode is not Mode.READ

    def both(self, tool: Tool, *arguments: str) -> tuple[Said, Said]:
        """Run Java's tool and Ottla's with the same arguments."""
        return self.javas(tool, *arguments), self.ours(tool, *arguments)

    def javas(self, tool: Tool, *arguments: str, server: bool = True) -> Said:
        where = ("--bootstrap-server", self.bootstrap) if server else ()

        def ask() -> Said:
            return self._settled(self.java.run(tool.usage.tool, *where, *arguments))

        if self.scenario is None:
            return ask()
        asked = self._plain(" ".join((tool.usage.tool, *where, *arguments)))
        return Said.of(self.scenario.answer(asked, lambda: ask().json))

    def ours(self, tool: Tool, *arguments: str, server: bool = True) -> Said:
        where = ("--bootstrap-server", self.bootstrap) if server else ()
        return self._settled(tool.run(*where, *arguments))

    def fact(self, what: str, find: Callable[[], Json]) -> Json:
        """Return a fact about the effect of Java's tool."""
        return find() if self.scenario is None else self.scenario.answer(what, find)

    def _settled(self, said: Said) -> Said:
        """Replace addresses, paths and member ids, and remove the usage."""
        err = "\n".join(said.err.splitlines()[:ERR_LINES])
        return Said(said.code, self._plain(said.out), self._plain(err))

    def _plain(self, text: str) -> str:
        text = text.replace(self.bootstrap, "{server}").replace(str(self.folder), "{folder}")
        text = re.sub(r"reader-[0-9a-f-]{36}", "reader-{id}", text)
        text = re.sub(r'"logDir":"[^"]*"', '"logDir":"{directory}"', text)
        # Java prints its sets in another order each time.
        text = re.sub(r"(?<= are: )[A-Z]\w+(?:, [A-Z]\w+)+", _in_order, text)
        text = re.sub(r"(?<=\[)\[[\w-]+\](?:, \[[\w-]+\])+(?=\])", _in_order, text)
        text = re.sub(r"(?<=options: )\[[\w-]+\](?:, \[[\w-]+\])+", _in_order, text)
        # The size of the offsets topic depends on how commits are batched.
        return re.sub(r'(__consumer_offsets-\d+","size":)\d+', r"\g<1>0", text)


def _in_order(found: re.Match[str]) -> str:
    return ", ".join(sorted(found[0].split(", ")))


class Running(NamedTuple):
    """A broker that all tests share."""

    bootstrap: str
    owner: str
    folder: Path


@pytest.fixture(scope="module", params=["ottla", pytest.param("kafka", marks=pytest.mark.judge)])
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Running]:
    owner: str = request.param
    with ExitStack() as stack:
        broker = stack.enter_context(ottla_broker() if owner == "ottla" else kafka_broker())
        asyncio.run(fill(broker.bootstrap))
        asyncio.run(idle_groups(broker.bootstrap, "idle"))
        stack.enter_context(busy_group(broker.bootstrap, "busy"))
        if owner == "kafka":
            stack.enter_context(busy_group(broker.bootstrap, "modern", "consumer"))
        yield Running(broker.bootstrap, owner, tmp_path_factory.mktemp(owner))


@pytest.fixture
def cluster(
    request: pytest.FixtureRequest, running: Running, recording: Recording, java_tools: KafkaTools
) -> Generator[Cluster]:
    bootstrap, owner, folder = running
    if owner == "kafka":
        yield Cluster(bootstrap, owner, java_tools, folder, None)
        return
    with recording.scenario(request.node.name) as scenario:
        yield Cluster(bootstrap, owner, java_tools, folder, scenario)


def lines(text: str) -> list[str]:
    """Return sorted lines, because Java prints hash tables in an arbitrary order."""
    return sorted(text.splitlines())


def same(java: Said, own: Said) -> None:
    """Assert that both tools printed and did the same."""
    assert own.code == java.code, (java, own)
    assert lines(own.out) == lines(java.out)
    assert first_line(own.err) == first_line(java.err)


def first_line(err: str) -> str:
    """Return the message before a usage or a stack trace, without log lines."""
    said = [one for one in err.splitlines() if not re.match(r"\tat |\[.*\] ERROR ", one)]
    first = next((one for one in said if one), "")
    thrown = re.fullmatch(r"(?:Exception in thread .*? )?[a-z]\w*(?:\.\w+)+: (.*)", first)
    return thrown[1] if thrown else first


READING = [
    "--list",
    "--list --state",
    "--list --type",
    "--list --state --type",
    "--list --state Stable",
    "--list --state empty,STABLE",
    "--list --type classic",
    "--describe --group idle",
    "--describe --group idle --verbose",
    "--describe --group idle --offsets",
    "--describe --group idle --members",
    "--describe --group idle --members --verbose",
    "--describe --group idle --state",
    "--describe --group idle --state --verbose",
    "--describe --group busy",
    "--describe --group busy --verbose",
    "--describe --group busy --members",
    "--describe --group busy --members --verbose",
    "--describe --group busy --state",
    "--describe --group busy --state --verbose",
    "--describe --all-groups",
    "--describe --all-groups --state",
    "--describe --group idle --group busy --members",
]


@pytest.mark.parametrize("words", READING)
def test_groups_are_shown_as_by_java(cluster: Cluster, words: str) -> None:
    java, own = cluster.both(GROUPS, *words.split())
    same(java, own)
    assert own.code == 0
    assert own.out


@pytest.mark.judge  # Ottla has only classic groups
@pytest.mark.parametrize("running", ["kafka"], indirect=True)
@pytest.mark.parametrize("view", ["", "--verbose", "--members --verbose", "--state --verbose"])
def test_groups_of_kip_848_are_shown_as_by_java(cluster: Cluster, view: str) -> None:
    java, own = cluster.both(GROUPS, *f"--describe --group modern {view}".split())
    same(java, own)
    assert "modern" in own.out


WRONG = [
    "--list --state nonsense",
    "--list --type nonsense",
    "--list --group idle",
    "--list --describe --group idle",
    "--list --members",
    "--list --nonsense",
    "--describe",
    "--describe --group",
    "--describe --group idle --all-groups",
    "--describe --group idle --state Stable",
    "--describe --group idle --topic orders",
    "--delete",
    "--delete --group idle --topic orders",
    "--delete-offsets --group idle",
    "--reset-offsets --to-earliest --topic orders",
    "--reset-offsets --group idle --to-earliest",
    "--reset-offsets --group idle --topic orders --dry-run",
    "--reset-offsets --group idle --topic orders --to-earliest --to-latest",
    "--reset-offsets --group idle --topic orders --to-earliest --dry-run --execute",
    "--reset-offsets --group idle --topic orders:x --to-earliest --dry-run",
    "--reset-offsets --group idle --topic a:b:c --to-earliest --dry-run",
    "--reset-offsets --group idle --topic void --shift-by 1 --dry-run",
    "",
]


@pytest.mark.parametrize("words", WRONG)
def test_wrong_use_of_groups_ends_as_with_java(cluster: Cluster, words: str) -> None:
    before = committed(cluster.bootstrap, "idle")
    java, own = cluster.both(GROUPS, *words.split())
    assert own.code == java.code == 1, (java, own)
    assert own.out == java.out
    assert first_line(own.err) == first_line(java.err)
    assert committed(cluster.bootstrap, "idle") == before


TROUBLE = [
    "--describe --group absent",
    "--describe --group absent --members",
    "--describe --group absent --state",
    "--delete --group absent",
    "--delete --group busy",
    "--delete-offsets --group absent --topic orders",
    "--delete-offsets --group idle --topic absent",
    "--delete-offsets --group idle --topic absent:0",
    "--delete-offsets --group busy --topic orders:0,1",
]


@pytest.mark.parametrize("words", TROUBLE)
def test_failed_change_of_groups_is_printed_as_by_java(cluster: Cluster, words: str) -> None:
    java, own = cluster.both(GROUPS, *words.split())
    assert lines(own.out) == lines(java.out)
    assert own.code == java.code
    assert "Error: " in own.out


RESETS = [
    "--topic orders --to-earliest",
    "--topic orders --to-latest",
    "--topic orders --to-current",
    "--topic orders --to-offset 3",
    "--topic orders --to-offset 99",
    "--topic orders --to-offset -1",
    "--topic orders:0,1 --shift-by 2",
    "--topic orders:0,1 --shift-by -100",
    "--topic orders:0 --topic orders:1 --to-earliest",
    "--topic orders --to-datetime 2020-09-13T12:26:43.000",
    "--topic orders --to-datetime 2020-09-13T14:26:43.000+02:00",
    "--topic orders --to-datetime 2020-09-13T12:26:43",
    "--topic orders --to-datetime yesterday",
    "--topic orders --by-duration PT0S",
    "--topic orders --by-duration P2000D",
    "--topic orders --by-duration 1h",
    "--topic orders:9 --to-earliest",
    "--topic absent --to-earliest",
    "--topic absent:0 --to-earliest",
    "--topic orders --to-offset x",
    "--all-topics --to-earliest",
    "--all-topics --to-latest --export",
    "--topic orders --to-earliest --export",
    "--from-file {plan}",
    "--from-file {groups}",
    "--from-file {plan} --export",
    "--from-file {others}",
    "--from-file {absent}",
]


@pytest.fixture
def files(running: Running) -> dict[str, str]:
    """Return files with plans."""
    folder = running.folder
    texts = {
        "plan": f"orders,0,7\norders,1,99\n{LONG},0,2\n",
        "groups": "idle,orders,0,7\nidle,orders,1,1\n",
        "others": "other,orders,0,7\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    return {name: str(folder / name) for name in (*texts, "absent")}


@pytest.mark.parametrize("words", RESETS)
def test_reset_is_planned_as_by_java(cluster: Cluster, words: str, files: dict[str, str]) -> None:
    arguments = f"--reset-offsets --group idle --dry-run {words}".format(**files).split()
    java, own = cluster.both(GROUPS, *arguments)
    assert own.code == java.code, (java, own)
    assert lines(own.out) == lines(java.out)
    assert committed(cluster.bootstrap, "idle") == IDLE


@pytest.mark.parametrize(
    "words",
    [
        "--group busy --topic orders --to-earliest --execute",
        "--group busy --all-topics --to-latest --export",
        "--group idle --group busy --topic orders:0 --to-latest --export --dry-run",
        "--all-groups --topic orders:0 --to-latest --dry-run",
        "--group nobody --topic orders --to-latest --dry-run",
        "--group idle --topic orders --to-latest",
    ],
)
def test_reset_of_busy_or_missing_groups_ends_as_with_java(cluster: Cluster, words: str) -> None:
    java, own = cluster.both(GROUPS, "--reset-offsets", *words.split())
    same(java, own)
    assert committed(cluster.bootstrap, "busy") == {(ORDERS, 0): 3}


class Change(NamedTuple):
    """The same change of two groups, by Java's tool and by Ottla's."""

    words: str
    after: dict[tuple[str, int], int]


CHANGES = [
    Change("--reset-offsets --topic orders --to-earliest", {(ORDERS, 0): 0, (ORDERS, 1): 0}),
    Change("--reset-offsets --topic orders --to-latest", {(ORDERS, 0): 10, (ORDERS, 2): 0}),
    Change("--reset-offsets --topic orders:0 --shift-by 3", {(ORDERS, 0): 7}),
    Change("--reset-offsets --all-topics --shift-by -1", {(ORDERS, 1): 4, (LONG, 0): 0}),
    Change("--reset-offsets --from-file {plan}", {(ORDERS, 0): 7, (ORDERS, 1): 5}),
    Change(
        "--reset-offsets --topic orders:0 --to-datetime 2020-09-13T12:26:42.500", {(ORDERS, 0): 3}
    ),
    Change("--delete-offsets --topic orders:0", {}),
    Change("--delete-offsets --topic orders", {}),
    Change("--delete", {}),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.words)
def test_groups_are_changed_as_by_java(
    cluster: Cluster, change: Change, files: dict[str, str]
) -> None:
    number = CHANGES.index(change)
    names = f"alike-{number}-java", f"alike-{number}-ours"
    asyncio.run(idle_groups(cluster.bootstrap, *names))
    words = change.words.format(**files).split()
    execute = ["--execute"] if "--reset-offsets" in words else []
    java = cluster.javas(GROUPS, *words, *execute, "--group", names[0])
    own = cluster.ours(GROUPS, *words, *execute, "--group", names[1])
    assert own.code == java.code == 0
    assert lines(own.out.replace(names[1], names[0])) == lines(java.out)
    after = committed(cluster.bootstrap, names[1])
    assert cluster.fact("offsets", lambda: listed(committed(cluster.bootstrap, names[0]))) == (
        listed(after)
    )
    assert change.after.items() <= after.items()
    assert after != IDLE


def listed(offsets: dict[tuple[str, int], int]) -> Json:
    return {f"{topic}-{partition}": offset for (topic, partition), offset in offsets.items()}


# Offsets.

AT = [
    "",
    "--topic orders",
    "--topic or.*,void",
    "--topic orders --partitions 0,2",
    "--topic orders --partitions x",
    "--topic absent",
    "--topic-partitions orders:0-2,void",
    "--topic-partitions :0",
    "--topic-partitions orders:-1,a-.*",
    "--topic-partitions a:b",
    "--topic-partitions orders --topic orders",
    "--topic orders --time earliest",
    "--topic orders --time -2",
    "--topic orders --time max-timestamp",
    "--topic orders --time 1600000003000",
    "--topic orders --time 1600000003001",
    "--topic orders --time 9999999999999",
    "--topic orders --time latest-tiered",
    "--topic orders --time soon",
    "--exclude-internal-topics",
    "--nonsense",
    "--topic",
]


@pytest.mark.parametrize("words", AT)
def test_offsets_are_shown_as_by_java(cluster: Cluster, words: str) -> None:
    java, own = cluster.both(OFFSETS, *words.split())
    assert own.code == java.code, (java, own)
    # The group with members may commit between the two.
    assert shown(own.out) == shown(java.out)
    if "Error" in java.err and own.err.startswith("Error"):
        assert first_line(own.err) == first_line(java.err)
    assert bool(own.err) == bool(java.err)


def shown(out: str) -> list[str]:
    return [line for line in out.splitlines() if not line.startswith("__consumer_offsets")]


def test_get_offsets_needs_a_server(cluster: Cluster) -> None:
    java = cluster.javas(OFFSETS, "--topic", "orders", server=False)
    own = cluster.ours(OFFSETS, "--topic", "orders", server=False)
    assert (own.code, own.out, first_line(own.err)) == (1, "", first_line(java.err))
    assert java.code == 1


# Log directories.


@pytest.mark.parametrize(
    "words",
    [
        "--describe",
        "--describe --topic-list orders,void",
        "--describe --topic-list absent",
        "--describe --broker-list 1",
        "--describe --broker-list 1,8,9",
        "--describe --broker-list x",
        "--topic-list orders",
        "--describe --nonsense",
    ],
)
def test_directories_are_shown_as_by_java(cluster: Cluster, words: str) -> None:
    java, own = cluster.both(DIRS, *words.split())
    assert own.code == java.code, (java, own)
    assert own.out.splitlines()[:2] == java.out.splitlines()[:2]
    assert first_line(own.err) == first_line(java.err)
    if own.code == 0:
        assert "--topic-list" not in words or directories(own) == directories(java)
        assert keys(own) == keys(java)


def directories(said: Said) -> object:
    told = json.loads(said.out.splitlines()[2])
    for broker in told["brokers"]:
        for one in broker["logDirs"]:
            one["partitions"].sort(key=itemgetter("partition"))
    return told


def keys(said: Said) -> list[str]:
    """Return the keys of the JSON object in their order."""
    return [*dict.fromkeys(re.findall(r'"(\w+)":', said.out))]


# Records.


class Cut(NamedTuple):
    """A JSON file and the offsets before which it deletes."""

    text: str
    offset: int


ROW = '{"topic": "TOPIC", "partition": 1, "offset": OFFSET}'
CUTS = {
    "some": Cut('{"partitions": [ROW], "version": 1}', 4),
    "all": Cut('{"partitions": [ROW]}', -1),
    "too many": Cut('{"partitions": [ROW]}', 11),
    "twice": Cut('{"partitions": [ROW, ROW]}', 4),
    "another version": Cut('{"partitions": [], "version": 2}', 4),
    "none": Cut("{}", 4),
    "no JSON": Cut("{", 4),
}
LEFT = {"some": 4, "all": 10}


@pytest.mark.parametrize("name", CUTS)
def test_records_are_deleted_as_by_java(cluster: Cluster, name: str) -> None:
    number = [*CUTS].index(name)
    topics = f"cut-{number}-java", f"cut-{number}-ours"
    asyncio.run(_write(cluster.bootstrap, topics))
    said: list[Said] = []
    for topic, run in zip(topics, (cluster.javas, cluster.ours), strict=True):
        path = cluster.folder / f"{topic}.json"
        text, offset = CUTS[name]
        row = ROW.replace("TOPIC", topic).replace("OFFSET", str(offset))
        path.write_text(text.replace("ROW", row))
        one = run(CUT, "--offset-json-file", str(path))
        said.append(Said(one.code, one.out.replace(topic, "cut"), one.err.replace(topic, "cut")))
    same(*said)
    changed = topics if cluster.has_javas else topics[1:]
    left = asyncio.run(_starts(cluster.bootstrap, changed))
    assert left == dict.fromkeys(changed, LEFT.get(name, 0))


def test_missing_partition_is_reported(cluster: Cluster) -> None:
    """Java's tool reports a timeout after a minute."""
    path = cluster.folder / "absent.json"
    path.write_text('{"partitions": [{"topic": "orders", "partition": 7, "offset": 1}]}')
    own = cluster.ours(CUT, "--offset-json-file", str(path))
    assert own.code == 0
    assert own.out.splitlines()[2] == (
        "partition: orders-7\terror: org.apache.kafka.common.errors."
        "UnknownTopicOrPartitionException: This server does not host this topic-partition."
    )


@pytest.mark.parametrize("words", ["", "--offset-json-file", "--offset-json-file {absent}"])
def test_wrong_use_of_delete_records_ends_as_with_java(
    cluster: Cluster, words: str, files: dict[str, str]
) -> None:
    java, own = cluster.both(CUT, *words.format(**files).split())
    assert own.code == java.code == 1
    assert own.out == java.out
    if "absent" not in words:
        assert first_line(own.err) == first_line(java.err)


async def _write(bootstrap: str, topics: tuple[str, str]) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        (await admin.create_topics([NewTopic(one, 2) for one in topics])).or_raise()
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for topic in topics:
            for _ in range(10):
                await producer.send(topic, b"v", partition=1)


async def _starts(bootstrap: str, topics: Sequence[str]) -> dict[str, int | None]:
    from ottla.client.admin import OffsetAt

    async with Admin(bootstrap_servers=bootstrap) as admin:
        told = await admin.list_offsets(
            dict.fromkeys([(one, 1) for one in topics], OffsetAt.EARLIEST)
        )
        return {topic: one.offset for (topic, _), one in told.or_raise().items()}
