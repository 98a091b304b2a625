"""A signal stops `ottla consume` and `kafka-console-consumer` in order.

They leave their group at once, and have committed exactly what they printed.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress

import pytest

from cli.records.harness import BIN, PATIENCE_S, broker_with, environment, run
from cli.stopping import SIGNALS, silent, unignored
from judges.ottla_broker import OttlaBroker
from ottla.client.admin import Admin, NewTopic

CODES = {signal.SIGINT: 130, signal.SIGTERM: -signal.SIGTERM, signal.SIGHUP: -signal.SIGHUP}
RECORDS = b"".join(b"%d\n" % number for number in range(20))


@pytest.fixture(scope="module")
def broker() -> Generator[OttlaBroker]:
    with broker_with(NewTopic("t", partitions=1)) as running:
        assert run("ottla", "produce", "t", "-b", running.bootstrap, stdin=RECORDS).returncode == 0
        yield running


@pytest.fixture(scope="module", autouse=True)
def heard() -> Generator[None]:
    with unignored():
        yield


@contextmanager
def having_printed(
    words: Sequence[str], stdout: int = subprocess.PIPE
) -> Generator["subprocess.Popen[bytes]"]:
    """Run a consumer that has printed all records and waits for more."""
    said = [str(BIN / words[0]), *words[1:]]
    with subprocess.Popen(
        said, stdout=stdout, stderr=subprocess.PIPE, env=environment()
    ) as process:
        try:
            if process.stdout is not None:
                for line in RECORDS.splitlines(keepends=True):
                    assert process.stdout.readline() == line
            yield process
        finally:
            process.kill()


def members_and_offset(broker: OttlaBroker, group: str) -> tuple[int, int | None]:
    """Return the number of members and the committed offset of a group."""

    async def asked() -> tuple[int, int | None]:
        async with Admin(bootstrap_servers=broker.bootstrap) as admin:
            described = (await admin.describe_groups(group)).succeeded  # without a group: empty
            members = sum(len(one.members) for one in described.values())
            committed = (await admin.list_group_offsets(group))[group].succeeded.get(("t", 0))
            return members, committed and committed.offset

    return asyncio.run(asked())


@pytest.mark.parametrize("number", SIGNALS)
def test_consume_leaves_its_group_after_a_signal(
    broker: OttlaBroker, number: signal.Signals
) -> None:
    group = f"ottla-{int(number)}"
    words = ["ottla", "consume", "t", "--follow", "-g", group, "-b", broker.bootstrap]
    with having_printed(words) as process:
        assert members_and_offset(broker, group)[0] == 1
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (CODES[number], b"", b"ottla: interrupted\n")
    assert members_and_offset(broker, group) == (0, 20)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_console_consumer_leaves_its_group_after_a_signal(
    broker: OttlaBroker, number: signal.Signals
) -> None:
    group = f"console-{int(number)}"
    words = ["kafka-console-consumer", "--topic", "t", "--from-beginning", "--group", group]
    with having_printed([*words, "--bootstrap-server", broker.bootstrap]) as process:
        assert members_and_offset(broker, group)[0] == 1
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (128 + number, b"")
    assert err == b"Processed a total of 20 messages\n"
    assert members_and_offset(broker, group) == (0, 20)


def test_stopped_consumer_commits_nothing_without_auto_commit(broker: OttlaBroker) -> None:
    words = ["ottla", "consume", "t", "--follow", "-g", "manual", "-b", broker.bootstrap]
    with having_printed([*words, "-X", "enable.auto.commit=false"]) as process:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
    assert members_and_offset(broker, "manual") == (0, None)


def test_second_signal_ends_the_consumer_at_once(broker: OttlaBroker) -> None:
    words = ["ottla", "consume", "t", "--follow", "-g", "stuck", "-b", broker.bootstrap]
    with having_printed(words) as process, silent(broker):
        process.send_signal(signal.SIGTERM)
        # Without a response the consumer cannot leave, and only the second signal ends it.
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == -signal.SIGTERM


def test_records_that_nobody_read_are_not_committed(broker: OttlaBroker) -> None:
    ours, theirs = os.pipe()
    try:
        os.set_blocking(theirs, False)
        with suppress(BlockingIOError):
            while True:
                os.write(theirs, bytes(4096))  # the reader of the pipe does not read
        os.set_blocking(theirs, True)
        words = ["ottla", "consume", "t", "--follow", "-g", "unread", "-b", broker.bootstrap]
        with having_printed(words, theirs) as process:
            while members_and_offset(broker, "unread")[0] != 1:
                assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == -signal.SIGTERM
    finally:
        os.close(ours)
        os.close(theirs)
    members, offset = members_and_offset(broker, "unread")
    assert (members, offset or 0) == (0, 0)  # at most the start is committed
