"""`kafka-dump-log` prints the same lines as Kafka's tool, for good and damaged files."""

import asyncio
import shutil
from pathlib import Path

import pytest

from cases import each_case
from cli.console import command
from kafka_tools import KafkaTools, Said
from log.test_dump_tool import write_log
from ottla.cli.kafka.coordinator_json import camel, shown
from ottla.cli.kafka.dump.lines import contents, producer_line
from ottla.errors import OttlaError
from ottla.inspection.entries import ProducerStateEntry
from ottla.protocol import offsets_topic, transactions_topic
from ottla.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    encode_embedded,
)
from ottla.protocol.offsets_topic import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.protocol.transactions_topic import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from ottla.records.builder import BatchBuilder

FIRST = "00000000000000000000"
NOW_MS = 1_700_000_000_000

# {log} stands for all .log files, {first.index} for the index of the first segment.
GOOD: dict[str, str] = {
    "batches": "--files {log}",
    "records": "--deep-iteration --files {log}",
    "contents": "--print-data-log --files {log}",
    "contents alone": "--print-data-log --skip-record-metadata --files {log}",
    "offset indexes": "--files {index}",
    "time indexes": "--files {timeindex}",
    "sanity": "--index-sanity-check --files {index},{timeindex}",
    "verified": "--verify-index-only --files {index},{timeindex}",
    "aborted and producers": "--files {txnindex},{snapshot}",
    "some bytes": "--max-bytes 2000 --deep-iteration --files {first.log}",
    "a decoder": "--value-decoder-class {strings} --files {first.log}",
    "behind a sign": "--print-data-log --files={first.log}",
    "offsets": "--offsets-decoder --files {offsets.log}",
    "transactions": "--transaction-log-decoder --files {transactions.log}",
    "cut off": "--deep-iteration --files {cut.log}",
    "a wrong crc": "--files {crc.log}",
    "wrong indexes": "--files {other.index},{other.timeindex}",
    "many wrong indexes": "--files {wrong.index},{wrong.timeindex}",
    "unknown files": "--files {first.log},/tmp/no.thing",
}
# Exit code 1; the error message may differ from Kafka's, the lines before it may not.
BAD: dict[str, str] = {
    "nothing": "",
    "no flag": "--nothing",
    "no value": "--files",
    "no file": "--files /nonexistent/00000000000000000000.log",
    "no offset": "--files /nonexistent/abc.log",
    "zeros": "--files {zeros.log}",
    "no keys": "--offsets-decoder --files {keyless.log}",
}


def offsets_batch() -> bytes:
    """Return records of groups: commits in several versions, a group, deletions, others."""
    types = offsets_topic.TYPES
    builder = BatchBuilder()
    key = types.encode_key(OffsetCommitKey(group="g", topic="ä", partition=3))
    for version in range(5):
        value = OffsetCommitValue(
            offset=7, leader_epoch=2 if version >= 3 else -1, metadata="m", commit_timestamp=NOW_MS
        )
        builder.append(NOW_MS, key, types.encode_value(value, version))
    builder.append(NOW_MS, key, None)
    told = [TopicPartition(topic="t", partitions=[0, 1])]
    subscription = ConsumerProtocolSubscription(topics=["t"], owned_partitions=told)
    assignment = ConsumerProtocolAssignment(assigned_partitions=told, user_data=b"\1\2")
    for protocol_type, version, embedded in (("consumer", 3, 1), ("consumer", 4, 3), ("x", 0, 0)):
        member = MemberMetadata(
            member_id="m-1", client_id="c", client_host="/1", session_timeout=5,
            rebalance_timeout=6 if version else -1,
            subscription=encode_embedded(subscription, embedded),
            assignment=encode_embedded(assignment, embedded),
        )  # fmt: skip
        group = GroupMetadataValue(
            protocol_type=protocol_type, generation=1, protocol="range", leader="m-1",
            current_state_timestamp=NOW_MS if version >= 2 else -1, members=[member],
        )  # fmt: skip
        group_key = types.encode_key(GroupMetadataKey(group="g"))
        builder.append(NOW_MS, group_key, types.encode_value(group, version))
    builder.append(NOW_MS, b"\x03\xe7abc", b"x")  # 999 is not a known type
    return builder.build()


def transactions_batch() -> bytes:
    types = transactions_topic.TYPES
    builder = BatchBuilder()
    key = types.encode_key(TransactionLogKey(transactional_id="tx"))
    for version, later in ((0, -1), (1, 9)):
        value = TransactionLogValue(
            producer_id=5, previous_producer_id=later, producer_epoch=1,
            transaction_timeout_ms=1000, transaction_status=1,
            transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[0])],
            transaction_last_update_timestamp_ms=NOW_MS, transaction_start_timestamp_ms=NOW_MS,
        )  # fmt: skip
        builder.append(NOW_MS, key, types.encode_value(value, version))
    builder.append(NOW_MS, key, None)
    return builder.build()


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the files by their names in the tables above."""
    folder = tmp_path_factory.mktemp("data") / "events-0"
    folder.mkdir()
    asyncio.run(write_log(folder))
    found = {"strings": "org.apache.kafka.tools.api.StringDecoder"}
    for suffix in ("log", "index", "timeindex", "txnindex", "snapshot"):
        paths = sorted(map(str, folder.glob(f"*.{suffix}")))
        assert paths
        found[suffix] = ",".join(paths)
        if suffix in ("log", "index", "timeindex"):
            found[f"first.{suffix}"] = paths[0]
    records = Path(found["first.log"]).read_bytes()
    builder = BatchBuilder()
    builder.append(NOW_MS, None, b"no key")
    flipped = bytearray(records)
    flipped[-1] ^= 1
    for name, data in {
        "offsets": offsets_batch(),
        "transactions": transactions_batch(),
        "cut": records[:-10],
        "crc": bytes(flipped),
        "zeros": records + bytes(100),
        "keyless": builder.build(),
    }.items():
        other = folder.parent / name
        other.mkdir()
        path = other / f"{FIRST}.log"
        path.write_bytes(data)
        found[f"{name}.log"] = str(path)
    # Indexes that do not match the records.
    other = folder.parent / "other"
    other.mkdir()
    shutil.copy(found["first.log"], other / f"{FIRST}.log")
    for suffix, changed in (("index", (3, 11)), ("timeindex", (7, 23, 35))):
        data = bytearray(Path(found[f"first.{suffix}"]).read_bytes())
        for at in changed:  # the last byte of an offset or a timestamp
            data[at] ^= 1
        (other / f"{FIRST}.{suffix}").write_bytes(data)
        found[f"other.{suffix}"] = str(other / f"{FIRST}.{suffix}")
    # Several of them, to compare the order in which they are printed.
    wrong = [shutil.copytree(other, folder.parent / f"wrong-{number}") for number in range(8)]
    for suffix in ("index", "timeindex"):
        found[f"wrong.{suffix}"] = ",".join(f"{one}/{FIRST}.{suffix}" for one in wrong)
    return found


def arguments(line: str, names: dict[str, str]) -> list[str]:
    for name, value in names.items():
        line = line.replace("{" + name + "}", value)
    return line.split()


@pytest.fixture(scope="module")
def judged(names: dict[str, str], java_tools: KafkaTools) -> dict[str, Said]:
    return {
        case: java_tools.run("kafka-dump-log", *arguments(line, names))
        for case, line in {**GOOD, **BAD}.items()
    }


def ours(*words: str) -> Said:
    return Said.by(command("kafka-dump-log", *words))


@each_case("case", GOOD)
def test_output_equals_kafkas(case: str, names: dict[str, str], judged: dict[str, Said]) -> None:
    assert ours(*arguments(GOOD[case], names)) == judged[case]
    assert judged[case].code == 0


@each_case("case", BAD)
def test_damaged_files_end_as_with_kafka(
    case: str, names: dict[str, str], judged: dict[str, Said]
) -> None:
    told = ours(*arguments(BAD[case], names))
    assert told.code == judged[case].code == 1
    assert "Traceback" not in told.err
    shown = [line for line in judged[case].out.splitlines() if line.startswith(("Dump", "base"))]
    assert [line for line in told.out.splitlines() if line.startswith(("Dump", "base"))] == shown


def test_cases_cover_what_they_are_for(judged: dict[str, Said]) -> None:
    for case, part in {
        "records": "endTxnMarker: ABORT coordinatorEpoch: 1",
        "contents": " payload: value-",
        "contents alone": "\n| key: k0 payload: value-0-0-",
        "some bytes": "baseOffset: 0",
        "offsets": '"ownedPartitions":[{"topic":"t"',
        "transactions": "previousProducerId",
        "cut off": "invalid bytes at the end of",
        "a wrong crc": "isvalid: false",
        "wrong indexes": "Mismatches in :",
        "many wrong indexes": "The following indexed offsets are not found in :",
        "unknown files": "Ignoring unknown file /tmp/no.thing",
        "sanity": "passed sanity check.",
        "zeros": "smaller than minimum record overhead (14)",
    }.items():
        assert part in judged[case].out + judged[case].err, case


@each_case(
    "flags",
    ["--cluster-metadata-decoder", "--remote-log-metadata-decoder", "--share-group-state-decoder",
     "--key-decoder-class my.Decoder"],
)  # fmt: skip
def test_unsupported_flag_prints_one_line_and_exits_with_2(
    flags: str, names: dict[str, str]
) -> None:
    told = ours(*flags.split(), "--files", names["first.log"])
    assert told.code == 2
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert flags.split()[0] in told.err


def test_numbers_are_decoded_by_their_decoder(tmp_path: Path) -> None:
    builder = BatchBuilder()
    builder.append(NOW_MS, (7).to_bytes(4, "big"), (-9).to_bytes(8, "big", signed=True))
    path = tmp_path / f"{FIRST}.log"
    path.write_bytes(builder.build())
    flags = ["--key-decoder-class", "IntegerDecoder", "--value-decoder-class", "LongDecoder"]
    told = ours(*flags, "--files", str(path))
    assert "key: 7 payload: -9\n" in told.out
    told = ours("--key-decoder-class", "LongDecoder", "--files", str(path))
    assert told.code == 1
    assert "4 bytes are not a number of 8 bytes" in told.err


def test_lines_of_unusual_entries() -> None:
    assert contents(None, None, is_alone=True) == ""
    assert contents("k", None, is_alone=True) == "| key: k"
    assert contents(None, "v", is_alone=False) == " payload: v"
    assert camel("transaction_timeout_ms") == "transactionTimeoutMs"
    nothing_yet = ProducerStateEntry(1, 0, -1, -1, 0, 5, -1, -1)
    assert producer_line(nothing_yet).endswith("OptionalLong.empty lastTimestamp: 5")
    with pytest.raises(OttlaError, match="offset 3"):
        shown(offsets_topic.TYPES, None, b"", 3)
    assert shown(offsets_topic.TYPES, b"\0", b"", 3)[0] == (
        "Error at offset 3, skipping. 1 bytes are too few for a coordinator record"
    )
