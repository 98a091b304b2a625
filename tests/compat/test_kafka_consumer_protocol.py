"""A Java consumer with the new group protocol (KIP-848) on a broker that has only the classic one.

A Kafka with `group.coordinator.rebalance.protocols=classic` returns an error that names the fix.
Our broker returns the same error, and the consumer does not wait.
"""

import subprocess
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from judges.java import source_command
from judges.kafka_broker import KafkaBroker
from judges.ottla_broker import OttlaBroker, ottla_broker
from kafka_java import judge_needed, kafka_broker

JUDGE = Path(__file__).with_name("ConsumerProtocolJudge.java")
UNSUPPORTED = "UnsupportedVersionException true"
TOLD = {
    "subscribe": UNSUPPORTED,
    "missing": UNSUPPORTED,
    "pattern": UNSUPPORTED,
    "re2": UNSUPPORTED,
    "assign": "1",  # assigned partitions need no group,
    "commit": "1 1",  # except to commit offsets
}


def running(server: str) -> AbstractContextManager[OttlaBroker | KafkaBroker]:
    if server == "Ottla":
        return ottla_broker()
    return kafka_broker({"group.coordinator.rebalance.protocols": "classic"})


@pytest.mark.parametrize("server", ["Ottla", pytest.param("Kafka", marks=pytest.mark.judge)])
def test_new_protocol_error_names_the_classic_protocol(server: str) -> None:
    with running(server) as broker:
        with judge_needed():
            command = source_command(JUDGE, broker.bootstrap)
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    told = dict(line.split("\t", 1) for line in done.stdout.splitlines())
    assert told == TOLD, done.stderr
