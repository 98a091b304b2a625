"""A real Kafka for tests, or a skip if the machine has none.

Without Java and Maven, a test that needs them is skipped with a reason. In CI and in `make judge`
it fails, because these machines must have them.
"""

import os
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager

import pytest

from judges.java import NoJudge, archive_options, java_command
from judges.kafka_archive import write_archive
from judges.kafka_broker import KafkaBroker
from judges.recording import Mode, judge_mode


@contextmanager
def judge_needed() -> Generator[None]:
    """Skip or fail if the body needs a Kafka that is not available."""
    try:
        yield
    except NoJudge as missing:
        if os.environ.get("CI") or judge_mode() is not Mode.READ:
            pytest.fail(str(missing))
        pytest.skip(str(missing))


def run_java(main_class: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a class of Kafka with its libraries."""
    with judge_needed():
        options = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *archive_options())
        command = java_command(main_class, *arguments, options=options)
    return subprocess.run(command, capture_output=True, text=True, check=False)


@contextmanager
def kafka_broker(
    settings: Mapping[str, object] | None = None,
    *,
    listeners: Mapping[str, str] | None = None,
    formatting: tuple[str, ...] = (),
    keeps_ports: bool = False,
) -> Generator[KafkaBroker]:
    """A running broker of Kafka, until the end of the `with`."""
    with judge_needed():
        write_archive()
        broker = KafkaBroker(
            settings, listeners=listeners, formatting=formatting, keeps_ports=keeps_ports
        )
    with broker:
        yield broker
