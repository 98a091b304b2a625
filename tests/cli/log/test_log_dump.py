"""`ottla log dump`: output, exit codes, and escaping of control characters."""

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cases import each_case
from cli.golden import check_settled
from log.test_dump_tool import write_log
from ottla.cli.log.dump import PROGRESS_BYTES_MIN, Progress
from ottla.cli.main import app
from ottla.protocol import offsets_topic, transactions_topic
from ottla.protocol.consumer_protocol import ConsumerProtocolSubscription, encode_embedded
from ottla.records.builder import BatchBuilder

PAGE = (Path(__file__).parents[3] / "docs" / "log-dump.md").read_text().split("## For programs")[1]
KEYS = {
    row[1]: set(re.findall(r"`(\w+)`", row[2]))
    for row in re.finditer(r"^\| `([a-z-]+)` \| (.*) \|$", PAGE, re.MULTILINE)
}
"""The documented keys of each kind of object."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data directory with one partition after a clean shutdown."""
    data = tmp_path_factory.mktemp("data")
    (data / "events-0").mkdir()
    asyncio.run(write_log(data / "events-0"))
    (data / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    (data / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    (data / "replication-offset-checkpoint").write_text("0\n1\nevents 0 606\n")
    (data / ".lock").touch()
    return data


def dump(*arguments: object) -> Result:
    return CliRunner().invoke(app(["log"]), ["log", "dump", *map(str, arguments)])


def objects(*arguments: object, code: int = 0) -> list[dict[str, Any]]:
    done = dump(*arguments, "-o", "json")
    assert done.exit_code == code, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def lone(folder: Path, *records: tuple[bytes | None, bytes | None], topic: str = "t") -> Path:
    """Create a records file in a partition directory."""
    builder = BatchBuilder()
    for key, value in records:
        builder.append(1_700_000_000_000, key, value)
    (folder / f"{topic}-0").mkdir()
    path = folder / f"{topic}-0" / "00000000000000000000.log"
    path.write_bytes(builder.build())
    return path


def test_json_is_one_object_per_line_with_stable_keys(data: Path) -> None:
    found = objects(data, "--keys", "text", "--values", "text")
    seen = {each["kind"] for each in found}
    assert seen == set(KEYS) - {"finding", "summary", "known-damage"}
    for each in found:
        assert set(each) - {"kind"} == KEYS[each["kind"]]
    records = [each for each in found if each["kind"] == "record"]
    assert [each["offset"] for each in records] == list(range(606))
    assert records[13]["value"] == "value-1-3-x"
    assert records[13]["headers"] == [{"key": "h", "value": "1"}]
    control = [each["control"] for each in records if each["control"]]
    assert control[0] == {"type": "COMMIT", "coordinator_epoch": 1}


def test_yaml_has_the_keys_and_values_of_json(data: Path) -> None:
    arguments = (data, "--records", "-n", 3)
    documents = dump(*arguments, "-o", "yaml").stdout.split("---\n")[1:]
    read = [
        {
            name: json.loads(value)
            for name, value in (line.split(": ", 1) for line in document.splitlines())
        }
        for document in documents
    ]
    assert read == objects(*arguments)


def test_table_describes_batches_and_records(data: Path) -> None:
    done = dump(data / "events-0", "--values", "text", "-n", 2)
    assert done.exit_code == 0
    assert "batch 0 to 9, 10 records, at 0, 271 bytes, none, epoch 3" in done.stdout
    assert (
        "0, 2023-11-14T22:13:20.000Z, sequence 0, key of 2 bytes, value value-0-0-" in done.stdout
    )
    assert "epoch 3 from offset 0" in done.stdout
    assert "producer 9 aborted 131 to 151, last stable offset 152" in done.stdout


def test_range_and_limit_select_records(data: Path) -> None:
    arguments = (data, "--records", "--from-offset", 205, "--to-offset", 400)
    found = [e["offset"] for e in objects(*arguments) if e["kind"] == "record"]
    assert found == list(range(205, 400))
    limited = [e["offset"] for e in objects(*arguments, "-n", 2) if e["kind"] == "record"]
    assert limited == [205, 206, 364, 365]
    path = data / "events-0" / "00000000000000000000.log"
    kinds = [e["kind"] for e in objects(path, "--records", "-n", 10)]
    assert kinds == ["file", "batch", *["record"] * 10]  # without the next batch


def test_verify_of_good_files_exits_with_0(data: Path) -> None:
    (summary,) = objects(data, "--verify")
    assert set(summary) - {"kind"} == KEYS["summary"]
    assert (summary["records"], summary["damage"], summary["incomplete"]) == (606, 0, 0)
    done = dump(data, "--verify")
    assert done.exit_code == 0
    assert done.stdout.endswith("bytes: no damage\n")


@pytest.mark.parametrize("options", [["--verify"], []])
def test_damage_exits_with_1_and_names_the_position(tmp_path: Path, options: list[str]) -> None:
    path = lone(tmp_path, (b"k", b"v"))
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    done = dump(*options, path)
    assert done.exit_code == 1
    assert f"damage: {path}, position 0: wrong CRC" in done.stdout
    finding = next(e for e in objects(*options, path, code=1) if e["kind"] == "finding")
    assert set(finding) - {"kind"} == KEYS["finding"]
    assert (finding["level"], finding["path"], finding["position"]) == ("damage", str(path), 0)


def test_incomplete_last_batch_is_not_damage(tmp_path: Path) -> None:
    path = lone(tmp_path, (b"k", b"v"))
    path.write_bytes(path.read_bytes()[:-1])
    found = objects("--verify", path.parent)
    assert [e["level"] for e in found if e["kind"] == "finding"] == ["incomplete"]
    done = dump("--verify", path.parent)
    assert "no damage, 1 incomplete" in done.stdout


@each_case(
    "arguments",
    [
        ["/nowhere/at/all"],
        [],
        [".", "--verify", "--records"],
        [".", "--verify", "-n", "3"],
        [".", "--compacted"],
        [".", "--values", "xml"],
        [".", "-n", "0"],
        [".", "--from-offset", "-1"],
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    done = dump(*arguments)
    assert done.exit_code == 2
    assert done.stdout == "" or not arguments


def test_output_is_golden(tmp_path: Path) -> None:
    file = lone(tmp_path, (b"apple", b"red"), (b"pear", None))
    check_settled("log-dump.txt", dump(file, "--records", "--keys", "text").stdout)
    check_settled("log-dump.json", dump(file, "--records", "--keys", "text", "-o", "json").stdout)
    check_settled("log-dump-verify.txt", dump(file, "--verify").stdout)
    check_settled("log-dump-verify.json", dump(file, "--verify", "-o", "json").stdout)


@pytest.mark.parametrize("options", [[], ["--verify"]])
def test_path_without_log_files_exits_with_2(
    data: Path, tmp_path: Path, options: list[str]
) -> None:
    (tmp_path / "holiday.jpg").touch()
    for path in (tmp_path, tmp_path / "holiday.jpg"):
        done = dump(path, *options)
        assert done.exit_code == 2
        assert done.stderr == f"ottla: {path}: no log files found\n"
        told = json.loads(dump(path, "-o", "json").stdout)
        assert told["error"]["message"] == f"{path}: no log files found"
        # Other paths are still printed.
        done = dump(path, data, *options)
        assert done.exit_code == 2
        assert done.stdout == dump(data, *options).stdout


@pytest.mark.parametrize("options", [[], ["--verify"]])
def test_directory_with_other_files_is_not_a_partition(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "java-17").mkdir()
    (tmp_path / "java-17" / "release").touch()
    (tmp_path / "photo-1").touch()
    done = dump(tmp_path, *options)
    assert (done.exit_code, done.stderr) == (
        2,
        f"ottla: {tmp_path}: no log files found\n",
    )
    # A partition without records is a partition; the other directory is skipped with a note.
    (tmp_path / "photo-1").unlink()
    (tmp_path / "events-0").mkdir()
    assert dump(tmp_path, *options).exit_code == 0


def test_foreign_file_is_skipped_with_a_note(tmp_path: Path) -> None:
    folder = lone(tmp_path, (b"k", b"v")).parent
    (folder / "holiday.jpg").touch()
    notes = [one for one in objects(folder) if one["kind"] == "finding"]
    assert [(one["level"], one["problem"]) for one in notes] == [
        ("note", "not a file of a log, skipped")
    ]


# Contents of records.

EVIL = "\x1b]0;owned\x07\x1b[2J\u202e\x9b31m\x7f\r\u2028\\"


def test_control_characters_of_records_are_escaped(tmp_path: Path) -> None:
    path = lone(tmp_path, (EVIL.encode(), EVIL.encode() + b"\xff\x1b"), (b"\x1b", EVIL.encode()))
    (path.parent / "\x1b[31mname").touch()
    for options in (
        ["--keys", "text", "--values", "text"],
        ["--values", "json"],
        ["--keys", "hex"],
    ):
        for output in ("table", "json", "yaml"):
            done = dump(path.parent, *options, "-o", output)
            assert done.exit_code == 0
            unprintable = {c for c in done.stdout if not c.isprintable()} - {"\n"}
            assert unprintable <= ({"\x7f"} if output != "table" else set())


def test_values_are_printed_in_the_requested_format(tmp_path: Path) -> None:
    value = b'{"b": [1, "\xc3\xa9"]}'
    path = lone(tmp_path, (b"k", value), (None, b"\xff\x00"), (b"k", None))

    def values(form: str) -> list[Any]:
        return [e["value"] for e in objects(path, "--values", form) if e["kind"] == "record"]

    assert values("text") == [value.decode(), {"base64": "/wA="}, None]
    assert values("json") == [{"b": [1, "é"]}, {"base64": "/wA="}, None]
    assert values("hex") == [value.hex(), "ff00", None]
    assert values("base64")[1:] == ["/wA=", None]
    table = dump(path, "--values", "text").stdout
    assert 'value {"b": [1, "é"]}' in table
    assert "value null" in table


@each_case("value", [b"[" * 100_000, b"NaN", b"1e999", b"1" * 10_000, b"{", b""])
def test_invalid_json_is_printed_as_text(tmp_path: Path, value: bytes) -> None:
    path = lone(tmp_path, (b"k", value))
    found = [e["value"] for e in objects(path, "--values", "json") if e["kind"] == "record"]
    assert found == [value.decode()]


def test_offsets_topic_is_decoded(tmp_path: Path) -> None:
    types = offsets_topic.TYPES
    commit = types.encode_key(offsets_topic.OffsetCommitKey(group="g", topic="t", partition=3))
    committed = types.encode_value(
        offsets_topic.OffsetCommitValue(offset=17, metadata="m", commit_timestamp=5), 3
    )
    group = types.encode_key(offsets_topic.GroupMetadataKey(group="g"))
    subscription = ConsumerProtocolSubscription(topics=["t"])
    member = offsets_topic.MemberMetadata(
        member_id="m-1",
        client_id="c",
        client_host="/127.0.0.1",
        session_timeout=1,
        subscription=encode_embedded(subscription, 0),
        assignment=b"",
    )
    state = types.encode_value(
        offsets_topic.GroupMetadataValue(
            protocol_type="consumer", generation=1, protocol="range", leader="m-1", members=[member]
        ),
        3,
    )
    path = lone(
        tmp_path,
        (commit, committed),
        (commit, None),
        (group, state),
        (b"\x7f\x00what", b"ever"),
        topic="__consumer_offsets",
    )
    for how in ("auto", "offsets"):
        records = [e for e in objects(path, "--decode", how) if e["kind"] == "record"]
        assert records[0]["key"] == {
            "type": "OffsetCommitKey", "group": "g", "topic": "t", "partition": 3,
        }  # fmt: skip
        assert records[0]["value"]["offset"] == 17
        assert records[1]["value"] is None
        (shown,) = records[2]["value"]["members"]
        assert shown["subscription"]["topics"] == ["t"]
        assert records[3]["key"] == "fwB3aGF0"  # an unknown type: base64
    assert "OffsetCommitKey" in dump(path, "--decode", "auto").stdout


def test_transactions_topic_is_decoded(tmp_path: Path) -> None:
    types = transactions_topic.TYPES
    key = types.encode_key(transactions_topic.TransactionLogKey(transactional_id="tx"))
    value = types.encode_value(
        transactions_topic.TransactionLogValue(
            producer_id=7,
            producer_epoch=1,
            transaction_timeout_ms=1000,
            transaction_status=1,
            transaction_partitions=[
                transactions_topic.PartitionsSchema(topic="t", partition_ids=[0])
            ],
            transaction_last_update_timestamp_ms=1,
            transaction_start_timestamp_ms=1,
        ),
        0,
    )
    path = lone(tmp_path, (key, value), topic="renamed")
    (record,) = [e for e in objects(path, "--decode", "transactions") if e["kind"] == "record"]
    assert record["key"] == {"type": "TransactionLogKey", "transactional_id": "tx"}
    assert record["value"]["transaction_partitions"] == [{"topic": "t", "partition_ids": [0]}]
    (plain,) = [e for e in objects(path, "--decode", "auto") if e["kind"] == "record"]
    assert "key" not in plain


# As a process.


def test_closed_reader_exits_with_141_silently(data: Path) -> None:
    run = "from ottla.cli.entry import run; run()"
    command = [
        sys.executable,
        "-c",
        run,
        "log",
        "dump",
        str(data),
        "--values",
        "text",
        "-o",
        "json",
    ]
    dumping = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert dumping.stdout is not None
    assert dumping.stderr is not None
    assert dumping.stdout.readline().startswith(b'{"kind": "file"')
    dumping.stdout.close()
    assert dumping.stderr.read() == b""
    dumping.stderr.close()
    assert dumping.wait() == 141


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize("arguments", [["version"], ["log", "dump"]])
def test_full_disk_prints_one_line_and_exits_with_74(data: Path, arguments: list[str]) -> None:
    run = "from ottla.cli.entry import run; run()"
    paths = [str(data)] * 20 if arguments[0] == "log" else []  # more than fits into the buffer
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", run, *arguments, *paths],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )
    assert done.returncode == 74
    assert done.stderr == b"ottla: cannot write the output: No space left on device\n"


@each_case("arguments", ["version", "log dump {}", "log dump --verify {}"])
@each_case("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_stdout_exits_with_74(data: Path, arguments: str, closed: str) -> None:
    run = f"{sys.executable} -c 'from ottla.cli.entry import run; run()'"
    command = f"{run} {arguments.format(data)} {closed}"
    done = subprocess.run(command, shell=True, capture_output=True, check=False, timeout=60)
    assert done.returncode == 74
    told = b"ottla: cannot write the output: Bad file descriptor\n"
    assert done.stderr == (told if "2>" not in closed else b"")


def test_closed_stderr_is_not_a_failure(data: Path) -> None:
    run = f"{sys.executable} -c 'from ottla.cli.entry import run; run()'"
    command = f"{run} log dump --verify {data} 2>&-"
    done = subprocess.run(command, shell=True, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0
    assert b"batches" in done.stdout


@each_case("options", [[], ["--verify"]])
@each_case("name", ["00000000000000000100.log", "00000000000000000000.index"])
def test_pipe_with_the_name_of_a_log_file_is_refused(
    tmp_path: Path, name: str, options: list[str]
) -> None:
    folder = lone(tmp_path, (b"k", b"v")).parent
    os.mkfifo(folder / name)
    for path in (folder, folder / name):  # if it hangs, the time limit of the test ends it
        done = dump(path, *options)
        assert done.exit_code == 1
        assert f"{name}: open: not a regular file" in done.output
        assert done.output.count(name) == 1
        if path == folder and options:
            assert "1 batches" in done.output  # other files are checked


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "partition.metadata"])
def test_unreadable_text_file_does_not_stop_the_check(tmp_path: Path, name: str) -> None:
    folder = lone(tmp_path, (b"k", b"v")).parent
    os.mkfifo(folder / name)
    done = dump(folder, "--verify")
    assert done.exit_code == 1
    assert f"{name}: open: not a regular file" in done.output
    assert "1 batches" in done.output


def test_damage_known_to_the_broker_is_printed(tmp_path: Path) -> None:
    folder = lone(tmp_path, (b"k", b"v")).parent
    told = folder / "damaged-offset-checkpoint"
    told.write_text("0\n1\n0 70 90 3 5\n")
    (entry,) = [one for one in objects(folder) if one["kind"] == "known-damage"]
    assert {key: entry[key] for key in KEYS["known-damage"] if key != "path"} == {
        "base_offset": 0,
        "position": 70,
        "size": 90,
        "first_offset": 3,
        "end_offset": 5,
    }
    assert "offsets 3 to 4, 90 bytes at 70 of segment 0" in dump(told).output
    assert dump(told, "--verify").exit_code == 0
    told.write_text("0\n1\n0 70 90 5 3\n")
    for path in (folder, told):
        assert "overlapping or negative range" in dump(path, "--verify").output


@pytest.mark.parametrize("number", ["", "-2"])
def test_records_that_were_set_aside_are_printed(data: Path, tmp_path: Path, number: str) -> None:
    (segment,) = (data / "events-0").glob("*0.log")
    batch, *later = [one for one in objects(segment) if one["kind"] == "batch"]
    folder = tmp_path / "events-0"
    folder.mkdir()
    path = folder / f"00000000000000000000.log.truncated{number}"
    content = bytearray(segment.read_bytes())
    content[batch["size"] - 1] ^= 1
    path.write_bytes(content)
    file, first, finding, second, *_ = objects(path, code=1)
    assert (file["content"], file["state"]) == ("records", "truncated")
    assert (first["crc_ok"], finding["problem"]) == (False, "wrong CRC")
    assert (second["crc_ok"], second["base_offset"]) == (True, later[0]["base_offset"])
    records = objects(path, "--from-offset", second["base_offset"], "--values", "text")
    assert [one["kind"] for one in records][1:3] == ["batch", "record"]
    assert "wrong CRC" in dump(path, "--verify").output
    assert "set aside" in dump(folder, "--verify").output


def test_data_directory_is_not_changed(data: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    assert dump(data, "--values", "text").exit_code == 0
    assert dump(data, "--verify").exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in data.rglob("*")} == before


def test_progress_line_is_cleared(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(visible=True)
    progress.show("/small", 1, 100)
    for done in range(0, PROGRESS_BYTES_MIN + 1, 1024 * 1024):
        progress.show("/large\x1b", done, PROGRESS_BYTES_MIN)
    progress.clear()
    shown = capsys.readouterr().err
    assert "100 % large\\x1b" in shown
    assert "small" not in shown
    assert shown.endswith("\r")
    Progress(visible=False).show("/large", 1, PROGRESS_BYTES_MIN)
    assert capsys.readouterr().err == ""


def test_colors_are_for_terminals_without_no_color(tmp_path: Path) -> None:
    path = lone(tmp_path, (b"k", b"v"))
    path.write_bytes(path.read_bytes() + b"?" * 80)
    run = "from ottla.cli.entry import run; run()"
    for variables, colored in (({}, True), ({"NO_COLOR": "1"}, False)):
        main, terminal = os.openpty()
        environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | variables
        subprocess.run(
            [sys.executable, "-c", run, "log", "dump", str(path)],
            stdout=terminal,
            env=environment,
            check=False,
        )
        os.close(terminal)
        shown = os.read(main, 65536)
        os.close(main)
        assert b"damage" in shown
        assert (b"\x1b[" in shown) is colored
