"""Ottla's console and performance tools, compared with Kafka's Java tools.

Both write to topics of their own, which are compared record by record. Their output is compared as
it is, except for measured numbers. On an Ottla broker, the output of Java's tools and the records
that they write are recorded; `make judge` runs both kinds of tools on both kinds of brokers.
"""

import asyncio
import re
import struct
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, cast

import pytest

from cli.forked import as_text
from cli.records.harness import run
from judges.ottla_broker import ottla_broker
from judges.recording import Json, Recording
from kafka_java import kafka_broker
from kafka_tools import KafkaTools, Said
from ottla.client.admin import Admin, NewTopic
from ottla.client.consumer.consumer import Consumer
from ottla.client.consumer.record import RecordHeaders
from ottla.client.producer.producer import Producer
from ottla.ids import Uuid
from ottla.protocol import offsets_topic, transactions_topic
from recorded import recording

__all__ = ["recording"]  # a fixture

pytestmark = pytest.mark.recorded

TOOLS = "org.apache.kafka.tools."
SERDE = "org.apache.kafka.common.serialization."


class Case(NamedTuple):
    """A tool with its arguments; {who} is java or ours, {topic} a topic of its own."""

    tool: str
    arguments: str
    stdin: str = ""
    like: str = "same"
    """How outputs are compared: equal, equal except for measurements, or one line that both
    contain."""

    server: bool = True


READ = "kafka-console-consumer"
WRITE = "kafka-console-producer"
WRITE_PERF = "kafka-producer-perf-test"
READ_PERF = "kafka-consumer-perf-test"
EVERY = " ".join(
    f"--formatter-property print.{one}=true"
    for one in ("timestamp", "key", "offset", "epoch", "partition", "headers", "delivery")
)
ALL = "--from-beginning --max-messages 4 --timeout-ms 20000"
HUNDRED = "--topic {topic} --num-records 100 --throughput -1"

INTERNAL = "--partition 0 --from-beginning --max-messages"

CASES = {
    "read": Case(READ, f"--topic filled {ALL}"),
    "read all parts": Case(READ, f"--topic filled {ALL} {EVERY}"),
    "read a partition": Case(READ, "--topic filled --partition 0 --offset 1 --max-messages 2"),
    "read a partition from the start": Case(
        READ, "--topic filled --partition 0 --from-beginning --max-messages 3"
    ),
    "read until nothing comes": Case(
        READ, "--topic filled --partition 0 --offset EARLIEST --timeout-ms 8000"
    ),
    "read nothing": Case(READ, "--topic filled --partition 0 --timeout-ms 1000"),
    "read by a pattern": Case(READ, f"--include fill.d {ALL}"),
    "read as a group": Case(
        READ, "--topic filled --group {who} --from-beginning --max-messages 3 --timeout-ms 20000"
    ),
    "read on as a group": Case(
        READ, "--topic filled --group {who} --max-messages 1 --timeout-ms 20000"
    ),
    "read committed": Case(READ, f"--topic filled {ALL} --isolation-level read_committed"),
    "read with separators": Case(
        READ,
        f"--topic filled {ALL} --formatter-property print.key=true --formatter-property "
        "key.separator=| --formatter-property null.literal=- --formatter-property "
        "print.headers=true --formatter-property headers.separator=;",
    ),
    "read with the old flags": Case(
        READ,
        f"--topic filled {ALL} --property print.key=true --consumer-property client.id=x",
    ),
    "read longs": Case(
        READ,
        f"--topic longs --from-beginning --max-messages 2 --value-deserializer {SERDE}"
        f"LongDeserializer --key-deserializer {SERDE}DoubleDeserializer "
        "--formatter-property print.key=true",
    ),
    "read no longs": Case(
        READ, f"--topic filled {ALL} --value-deserializer {SERDE}LongDeserializer", like="code"
    ),
    "skip what is no long": Case(
        READ,
        f"--topic mixed --from-beginning --max-messages 3 --skip-message-on-error "
        f"--value-deserializer {SERDE}LongDeserializer --formatter-property print.offset=true",
        like="records",
    ),
    "read silently": Case(
        READ, f"--topic filled {ALL} --formatter {TOOLS}consumer.NoOpMessageFormatter"
    ),
    "read committed offsets": Case(
        READ, f"--topic groups {INTERNAL} 21 --formatter {TOOLS}consumer.OffsetsMessageFormatter"
    ),
    "read group metadata": Case(
        READ,
        f"--topic groups {INTERNAL} 21 --formatter {TOOLS}consumer.GroupMetadataMessageFormatter",
    ),
    "read transactions": Case(
        READ,
        f"--topic transactions {INTERNAL} 6 --formatter "
        f"{TOOLS}consumer.TransactionLogMessageFormatter",
    ),
    "read what is not a transaction": Case(
        READ,
        f"--topic filled {ALL} --formatter {TOOLS}consumer.TransactionLogMessageFormatter",
        like="code",
    ),
    "read no topic": Case(READ, "--from-beginning", like="line"),
    "read two things": Case(READ, "--topic a --include b", like="line"),
    "read an offset of no partition": Case(READ, "--topic a --offset 3", like="line"),
    "read a pattern's partition": Case(READ, "--include a --partition 3", like="line"),
    "read no partition": Case(READ, "--topic a --partition x", like="code"),
    "read no offset": Case(READ, "--topic a --partition 0 --offset -4", like="line"),
    "read two beginnings": Case(
        READ, "--topic a --partition 0 --offset 1 --from-beginning", like="line"
    ),
    "read a group's partition": Case(READ, "--topic a --partition 0 --group g", like="line"),
    "read as two groups": Case(
        READ, "--topic a --group g --command-property group.id=h", like="line"
    ),
    "read two resets": Case(
        READ, "--topic a --from-beginning --command-property auto.offset.reset=latest", like="line"
    ),
    "read from nowhere": Case(READ, "--topic a", like="line", server=False),
    "read with an unknown flag": Case(READ, "--topic a --nothing", like="line"),
    "read with two names of a flag": Case(
        READ, "--topic a --property a=b --formatter-property c=d", like="line"
    ),
    "write": Case(WRITE, "--topic {topic}", "a\nb\n\nlast"),
    "write keys": Case(
        WRITE,
        "--topic {topic} --reader-property parse.key=true --reader-property key.separator=:",
        "k1:v1\nk2:v:2\n:\n",
    ),
    "write headers": Case(
        WRITE,
        "--topic {topic} --reader-property parse.key=true --reader-property parse.headers=true "
        "--reader-property null.marker=NULL --compression-codec zstd",
        "h1:1,h2:NULL\tk\tv\nNULL\tNULL\tNULL\n",
    ),
    "write one by one": Case(WRITE, "--topic {topic} --sync --compression-codec", "a\nb\n"),
    "write what has no key": Case(
        WRITE,
        "--topic {topic} --reader-property parse.key=true --reader-property key.separator=:",
        "k1:v1\nno key\nk2:v2\n",
        like="code",
    ),
    "write and ignore errors": Case(
        WRITE,
        "--topic {topic} --property parse.key=true --property ignore.error=true "
        "--property key.separator=: --request-required-acks 1 --batch-size 100 --timeout 0",
        "k1:v1\nno key\n",
    ),
    "write nowhere": Case(WRITE, "", "a\n", like="line"),
    "write to nobody": Case(WRITE, "--topic a", "a\n", like="line", server=False),
    "write with two names of a flag": Case(
        WRITE, "--topic a --property a=b --reader-property c=d", like="line"
    ),
    "write no number": Case(WRITE, "--topic a --batch-size x", like="line"),
    "write fast": Case(WRITE_PERF, f"{HUNDRED} --record-size 10", like="measured"),
    "write numbers": Case(WRITE_PERF, f"{HUNDRED} --payload-monotonic", like="measured"),
    "write at a rate": Case(
        WRITE_PERF,
        "--topic {topic} --num-records 20 --throughput 100 --payload-monotonic "
        "--warmup-records 5 --command-property acks=1 linger.ms=0",
        like="measured",
    ),
    "write fast with old flags": Case(
        WRITE_PERF, f"{HUNDRED} --record-size 10 --producer-props acks=all", like="measured"
    ),
    "write none fast": Case(
        WRITE_PERF, "--topic a --num-records 0 --throughput -1 --record-size 1", like="line"
    ),
    "write two kinds fast": Case(
        WRITE_PERF, f"{HUNDRED} --record-size 1 --payload-monotonic", like="code"
    ),
    "write nowhere fast": Case(
        WRITE_PERF, "--num-records 1 --throughput -1 --record-size 1", like="line"
    ),
    "write fast after a long warm-up": Case(
        WRITE_PERF, f"{HUNDRED} --record-size 1 --warmup-records 100", like="line"
    ),
    "write fast with an unknown flag": Case(
        WRITE_PERF, f"{HUNDRED} --record-size 1 --nothing 1", like="code"
    ),
    "read fast": Case(READ_PERF, "--topic filled --num-records 4 --timeout 20000", like="measured"),
    "read fast without headings": Case(
        READ_PERF, "--topic filled --num-records 4 --timeout 20000 --hide-header", like="measured"
    ),
    "read too few": Case(
        READ_PERF, "--include fille. --messages 10 --timeout 4000", like="measured"
    ),
    "read none fast": Case(READ_PERF, "--topic filled", like="line"),
    "read fast from nowhere": Case(READ_PERF, "--num-records 1", like="line"),
    "read fast and tell never": Case(
        READ_PERF, "--topic a --num-records 1 --reporting-interval 0", like="line"
    ),
}
WRITING = [
    name
    for name, case in CASES.items()
    if "{topic}" in case.arguments and case.like in ("same", "measured", "code")
    and name not in ("write two kinds fast", "write fast with an unknown flag")
]  # fmt: skip


Content = tuple[bytes | None, bytes | None, RecordHeaders]
FILLED: list[Content] = [
    (b"k1", b"first", (("a", b"1"), ("b", None))),
    (None, b"", ()),
    (b"", None, (("c", b"x"),)),
    (b"k4", "\u00e9\u00e9".encode(), ()),
]


MEMBER = offsets_topic.MemberMetadata(
    member_id="m-1",
    group_instance_id="static",
    client_id="reader",
    client_host="/127.0.0.1",
    rebalance_timeout=300_000,
    session_timeout=45_000,
    subscription=b"\x00\x01\xff",
    assignment=b"",
)


def _of_groups() -> list[tuple[bytes | None, bytes | None]]:
    """Return records of __consumer_offsets: every version, a deletion, other types."""
    types = offsets_topic.TYPES
    # Names that a JSON library escapes, and some that it does not.
    key = offsets_topic.OffsetCommitKey(
        group='g "\\u001f" \x1f\n\x7f\u00e9\u2028', topic="t", partition=2
    )
    commit = offsets_topic.OffsetCommitValue(
        offset=7,
        leader_epoch=3,
        metadata="note",
        commit_timestamp=1_700_000_000_000,
        expire_timestamp=1_700_000_000_001,
        topic_id=Uuid(bytes(range(16))),
    )
    own = types.encode_key(key)
    found: list[tuple[bytes | None, bytes | None]] = [
        (own, types.encode_value(commit, version)) for version in range(5)
    ]
    found.append((b"\0\0" + own[2:], types.encode_value(commit, 0)))  # before release 0.8.2
    group = types.encode_key(offsets_topic.GroupMetadataKey(group="g"))
    for members, protocol in (([MEMBER, MEMBER], "range"), ([], None)):
        metadata = offsets_topic.GroupMetadataValue(
            protocol_type="consumer",
            generation=4,
            protocol=protocol,
            leader=protocol and "m-1",
            current_state_timestamp=1_700_000_000_002,
            members=members,
        )
        found += [(group, types.encode_value(metadata, version)) for version in range(5)]
    other = types.encode_key(offsets_topic.ConsumerGroupMetadataKey(group_id="other"))
    return [*found, (own, None), (group, None), (other, None), (b"\x7f\0", b""), (None, b"v")]


def _of_transactions() -> list[tuple[bytes | None, bytes | None]]:
    """Return records of __transaction_state: both versions, a deletion, another type."""
    types = transactions_topic.TYPES
    own = types.encode_key(transactions_topic.TransactionLogKey(transactional_id="t"))
    partitions = [transactions_topic.PartitionsSchema(topic="t", partition_ids=[0, 1])]
    found: list[tuple[bytes | None, bytes | None]] = []
    for touched, number in ((partitions, 5), (None, -1)):
        value = transactions_topic.TransactionLogValue(
            producer_id=4,
            previous_producer_id=number,
            next_producer_id=-1,
            producer_epoch=2,
            next_producer_epoch=number,
            transaction_timeout_ms=60_000,
            transaction_status=1,
            transaction_partitions=touched,
            transaction_last_update_timestamp_ms=1_700_000_000_000,
            transaction_start_timestamp_ms=-1,
            client_transaction_version=0 if touched is None else 2,
        )
        versions = (0, 1) if number < 0 else (1,)
        found += [(own, types.encode_value(value, version)) for version in versions]
    return [*found, (own, None), (b"\x7f\0", b""), (None, b"v")]


class Outcome(NamedTuple):
    """The compared output of the tools and the records that they wrote."""

    java: dict[str, Json]
    ours: dict[str, Json]
    javas_records: Callable[[str], list[Content]]
    our_records: Callable[[str], list[Content]]


def topic_of(who: str, name: str) -> str:
    return f"{who}-{name.replace(' ', '-')}"


def words(case: Case, who: str, name: str, server: str) -> list[str]:
    said = case.arguments.replace("{who}", who).replace("{topic}", topic_of(who, name))
    return [*said.split(), *(["--bootstrap-server", server] if case.server else [])]


@pytest.fixture(scope="module", params=["ottla", pytest.param("kafka", marks=pytest.mark.judge)])
def outcome(
    request: pytest.FixtureRequest, recording: Recording, java_tools: KafkaTools
) -> Generator[Outcome]:
    settings = {"group.initial.rebalance.delay.ms": 0}
    is_ours = request.param == "ottla"
    with (ottla_broker if is_ours else kafka_broker)(settings) as broker:
        server = broker.bootstrap
        asyncio.run(_fill(server))

        def javas(name: str, case: Case) -> Json:
            arguments = words(case, "java", name, server)
            said = java_tools.run(case.tool, *arguments, stdin=case.stdin)
            return compared(case, said, javas_message)

        def written(who: str, name: str) -> list[Content]:
            found = asyncio.run(_written(server, topic_of(who, name)))
            if "--record-size" not in CASES[name].arguments:
                return found
            # The letters are random.
            return [(key, b"x" * len(value or b""), headers) for key, value, headers in found]

        def javas_records(name: str) -> list[Content]:
            if not is_ours:
                return written("java", name)
            with recording.scenario(f"records of: {name}") as scenario:
                answer = scenario.answer(
                    asked(CASES[name]), lambda: recorded(written("java", name))
                )
            return content_of(answer)

        java: dict[str, Json] = {}
        for name, case in CASES.items():
            if not is_ours:
                java[name] = javas(name, case)
                continue
            with recording.scenario(name) as scenario:
                java[name] = scenario.answer(asked(case), partial(javas, name, case))
        yield Outcome(java, _all_ours(server), javas_records, partial(written, "ours"))


def asked(case: Case) -> Json:
    return {"run": f"{case.tool} {case.arguments}", "stdin": case.stdin, "server": case.server}


def our_message(err: str) -> str:
    return err.splitlines()[0]


def javas_message(err: str) -> str:
    """Return the message before or after the usage; Java breaks long lines and adds spaces."""
    before, *_ = re.split(r"^(?:Option |\tat )", err, maxsplit=1, flags=re.MULTILINE)
    _, error, after = before.rpartition(f"{WRITE_PERF}: error")
    return " ".join((error + after).split())


def compared(case: Case, said: Said, message: Callable[[str], str]) -> Json:
    """Return the part of a tool's output that must equal Java's."""
    assert "Traceback" not in said.err
    out, err = said.out, said.err
    match case.like:
        case "same":
            return {"code": said.code, "out": printed(out), "err": printed(err)}
        case "measured":
            return {"code": said.code, "out": measured(out), "err": printed(err)}
        case "line":
            return {"code": said.code, "out": out, "err": message(err)}
        case "records":
            kept = re.compile(r"Offset:\d+(?:\t\d+)?|Processed.*")
            return {"code": said.code, "out": kept.findall(out), "err": kept.findall(err)}
        case _:
            return {"code": said.code}


def recorded(records: list[Content]) -> Json:
    """Return records as JSON, with bytes in hexadecimal."""
    return [
        [hexed(key), hexed(value), [[name, hexed(one)] for name, one in headers]]
        for key, value, headers in records
    ]


def content_of(answer: Json) -> list[Content]:
    return [
        (unhexed(key), unhexed(value), tuple((name, unhexed(one)) for name, one in headers))
        for key, value, headers in cast("list[Any]", answer)
    ]


def hexed(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def unhexed(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


async def _fill(server: str) -> None:
    names = [topic_of(who, name) for name in WRITING for who in ("java", "ours")]
    async with Admin({"bootstrap.servers": server}) as admin:
        kept = {"retention.ms": "-1"}  # its records have any timestamp
        topics = ("filled", "longs", "mixed", "groups", "transactions", *names)
        new = [NewTopic(one, partitions=1, config=kept) for one in topics]
        (await admin.create_topics(new)).or_raise()
    async with Producer({"bootstrap.servers": server}) as producer:
        for at, (key, value, headers) in enumerate(FILLED):
            await producer.send(
                "filled", value, key=key, headers=headers, timestamp_ms=1_700_000_000_000 + at
            )
        for number in (1, -(2**40)):
            key = struct.pack(">d", number * 1.5)
            await producer.send("longs", struct.pack(">q", number), key=key)
        for value in (struct.pack(">q", 5), b"no long", struct.pack(">q", 6)):
            await producer.send("mixed", value)
        for topic, records in (("groups", _of_groups()), ("transactions", _of_transactions())):
            for key, value in records:
                await producer.send(topic, value, key=key)


def _all_ours(server: str) -> dict[str, Json]:
    """Return the output of Ottla's tools; two run at a time, because some only wait."""

    def run_all(tool: str) -> dict[str, Json]:
        return {
            name: compared(case, _run_ours(case, name, server), our_message)
            for name, case in CASES.items()
            if case.tool == tool
        }

    with ThreadPoolExecutor(2) as pool:
        found = [*pool.map(run_all, (READ, WRITE, WRITE_PERF, READ_PERF))]
    return {name: one for each in found for name, one in each.items()}


def _run_ours(case: Case, name: str, server: str) -> Said:
    done = run(case.tool, *words(case, "ours", name, server), stdin=case.stdin.encode())
    return Said.by(as_text(done))


async def _written(server: str, topic: str) -> list[Content]:
    async with Consumer({"bootstrap.servers": server}) as consumer:
        consumer.assign((topic, 0))
        consumer.seek_to_beginning((topic, 0))
        end = (await consumer.end_offsets((topic, 0))).popitem()[1]
        found: list[Content] = []
        while await consumer.position((topic, 0)) < end:
            records = await consumer.poll(1.0)
            found += [(one.key, one.value, one.headers) for one in records]
    return found


def measured(text: str) -> list[str]:
    """Replace what differs between runs: numbers with a point, times, latencies."""
    text = re.sub(r"\d+ ms (50th|95th|99th|99\.9th)", r"<ms> \1", text).replace("99.9th", "last")
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}", "<time>", text)
    text = re.sub(r"-?\d+\.\d+|NaN|Infinity", "<number>", text)
    # The times of joining and fetching.
    last = r", \d+, \d+, <number>, <number>$"
    return re.sub(last, ", <ms>, <ms>, <rates>", text, flags=re.MULTILINE).splitlines()


def printed(text: str) -> list[str]:
    """Return the lines without Java's advice about another protocol."""
    advice = "The consumer rebalance protocol ("
    return [one for one in text.splitlines() if not one.startswith(advice)]


@pytest.mark.parametrize("name", CASES)
def test_tool_prints_what_javas_prints(outcome: Outcome, name: str) -> None:
    java, ours = outcome.java[name], outcome.ours[name]
    if CASES[name].like == "line":
        ours, java = cast("dict[str, Any]", ours), cast("dict[str, Any]", java)
        assert (ours["code"], ours["out"]) == (java["code"], java["out"])
        assert ours["err"]
        assert ours["err"] in java["err"]
    else:
        assert ours == java


@pytest.mark.parametrize("name", WRITING)
def test_tool_writes_what_javas_writes(outcome: Outcome, name: str) -> None:
    java, ours = outcome.javas_records(name), outcome.our_records(name)
    assert ours == java
    assert ours
