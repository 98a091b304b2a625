"""The Kafka of the tests: it starts, serves, can be killed, and leaves no files."""

import os
from pathlib import Path

import pytest

from judges.kafka_broker import KafkaBroker, KafkaFailed
from judges.wire import Wire
from kafka_java import judge_needed, kafka_broker
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse


def gone(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.judge
def test_kafka_restarts_after_a_kill_and_leaves_no_files() -> None:
    with kafka_broker({"num.partitions": 3}) as kafka:
        folder = kafka.data.parent
        first = kafka.process_id
        with kafka.wire() as wire:
            answer = wire.ask(MetadataRequest(topics=()), 12, MetadataResponse)
        assert [(b.host, b.port) for b in answer.brokers] == [kafka.address]
        kafka.kill()
        assert gone(first)
        assert not (kafka.data / ".kafka_cleanshutdown").exists()
        kafka.start()
        second = kafka.process_id
        kafka.stop()
        assert gone(second)
        assert (kafka.data / ".kafka_cleanshutdown").exists()
        kafka.start()
        third = kafka.process_id
        address = kafka.address
    assert gone(third)
    assert not folder.exists()
    with pytest.raises(OSError, match="refused"):
        Wire(address)


@pytest.mark.judge
def test_failed_start_shows_the_log_and_leaves_no_files() -> None:
    with judge_needed():
        broker = KafkaBroker({"log.retention.ms": "a week"})
    with pytest.raises(KafkaFailed, match="a week"), broker:
        pass
    assert not Path(broker.data).parent.exists()
    assert not broker.running


def test_failure_in_its_scope_shows_the_log() -> None:
    with judge_needed():
        broker = KafkaBroker()
    broker.log.write_text("what Kafka said\n")
    error = ValueError("what went wrong")
    broker.__exit__(ValueError, error, None)
    assert "what Kafka said" in error.__notes__[0]
    assert not broker.log.exists()


def test_without_java_a_test_is_skipped_and_in_ci_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="install Java"), judge_needed():
        KafkaBroker()
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.fail.Exception, match="install Java"), judge_needed():
        KafkaBroker()
