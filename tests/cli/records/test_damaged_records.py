"""Damaged records: valid ones before them are printed, and nobody waits for the others."""

from collections.abc import Generator
from pathlib import Path

import pytest

from cli.records.harness import run
from judges.ottla_broker import OttlaBroker
from ottla.client.consumer.decoding import Corrupt
from ottla.ids import PartitionIndex, TopicPartition
from ottla.sync import Consumer

BATCHES, RECORDS = 5, 100


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Generator[OttlaBroker]:
    """A broker that was stopped while two logs were damaged.

    The last batch of `flipped` has a wrong byte, which a clean start does not notice. `cut` has no
    whole batch, which the broker notices.
    """
    folder = tmp_path_factory.mktemp("damaged")
    with OttlaBroker(folder) as running:
        running.start()
        for number in range(BATCHES):
            stdin = "".join(f"{number}-{n}\n" for n in range(RECORDS)).encode()
            for topic in ("flipped", "cut"):
                done = run("ottla", "produce", topic, "-b", running.bootstrap, stdin=stdin)
                assert done.returncode == 0, done.stderr
        running.stop()
        flipped, cut = (segment(running, topic) for topic in ("flipped", "cut"))
        data = bytearray(flipped.read_bytes())
        data[-10] ^= 1
        flipped.write_bytes(data)
        cut.write_bytes(cut.read_bytes()[:100])
        running.start()
        yield running


def segment(broker: OttlaBroker, topic: str) -> Path:
    (path,) = (broker.data / f"{topic}-0").glob("*.log")
    return path


@pytest.mark.parametrize("more", [(), ("-o", "json"), ("--group", "g")], ids=["", "json", "group"])
def test_valid_records_before_damage_are_printed(
    broker: OttlaBroker, more: tuple[str, ...]
) -> None:
    done = run("ottla", "consume", "flipped", *more, "-b", broker.bootstrap)
    printed = done.stdout.splitlines()
    records = [line for line in printed if b'"error"' not in line]
    assert len(records) == (BATCHES - 1) * RECORDS
    assert done.returncode == 1
    assert b"offset 400" in done.stdout + done.stderr


def test_damage_that_the_broker_knows_ends_the_command(broker: OttlaBroker) -> None:
    done = run("ottla", "consume", "cut", "-b", broker.bootstrap)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"cut-0: the batch at offset 0 cannot be read: the broker marked it" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_consumer_raises_and_reads_on_after_a_seek(broker: OttlaBroker) -> None:
    done = run("ottla", "produce", "cut", "-b", broker.bootstrap, stdin=b"after\n")
    assert done.returncode == 0, done.stderr
    cut = TopicPartition("cut", PartitionIndex(0))
    with Consumer({"bootstrap.servers": broker.bootstrap}) as consumer:
        consumer.assign(cut)
        consumer.seek(cut, 0)
        for _ in range(2):
            with pytest.raises(Corrupt) as raised:
                wait_for_records(consumer)
            assert (raised.value.offset, raised.value.next_offset) == (0, None)
            assert "Seek past them" in raised.value.hint
        consumer.seek(cut, BATCHES * RECORDS)
        assert wait_for_records(consumer) == [b"after"]


def wait_for_records(consumer: Consumer[bytes, bytes]) -> list[bytes | None]:
    while not (found := consumer.poll(1.0)):
        pass
    return [one.value for one in found]
