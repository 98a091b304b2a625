"""The broker of an example: how its end is reported, and that nothing waits for a dead one."""

import os
import signal
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from ottla.transport.failures import TimedOut
from sensors.devices import messages
from shared.dev_broker import BrokerFailed, DevBroker
from shared.feed import GeneratedFeed

PATIENCE_S = 120.0


@pytest.fixture
def broker(tmp_path: Path) -> Generator[DevBroker]:
    with DevBroker(0, tmp_path, tmp_path / "broker.log") as running:
        yield running


def kill(broker: DevBroker) -> None:
    process: Any = broker._process  # pyright: ignore[reportPrivateUsage]
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def wait_until(holds: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def test_killed_broker_is_reported_with_its_signal(broker: DevBroker, tmp_path: Path) -> None:
    broker.wait_until_listening()
    broker.check()
    assert broker.is_running
    kill(broker)
    assert not broker.is_running
    log = tmp_path / "broker.log"
    assert "level=info" in log.read_text()
    with pytest.raises(BrokerFailed) as raised:
        broker.check()
    assert str(raised.value) == f"the broker was killed by SIGKILL; see {log}"


def test_last_error_of_the_broker_is_the_reason(broker: DevBroker, tmp_path: Path) -> None:
    broker.wait_until_listening()
    kill(broker)
    for line in ("the disk is full", "time=1 level=error source=x event=y"):
        with (tmp_path / "broker.log").open("a") as log:
            log.write(f"{line}\n")
        with pytest.raises(BrokerFailed) as raised:
            broker.check()
        assert str(raised.value) == f"the broker was killed by SIGKILL: {line}"


def test_broker_that_ends_before_it_listens_is_reported(tmp_path: Path) -> None:
    with DevBroker(0, tmp_path, tmp_path / "broker.log") as broker:
        kill(broker)
        with pytest.raises(BrokerFailed, match="the broker was killed by SIGKILL"):
            broker.wait_until_listening()


def test_feed_does_not_wait_for_a_dead_broker(broker: DevBroker) -> None:
    """Its records expire after minutes, and it must end before that."""
    servers = broker.wait_until_listening()
    since_ms = time.time_ns() // 1_000_000 - 1000
    feed = GeneratedFeed(
        servers,
        "readings",
        lambda start_ms, end_ms: messages(7, start_ms, end_ms),
        since_ms,
        lambda: broker.is_running,
    )
    with feed:
        wait_until(lambda: feed.sent)
        kill(broker)
        sent = feed.sent
        wait_until(lambda: feed.sent > sent)  # so there are unacknowledged records
    assert not isinstance(feed.failure, TimedOut), feed.failure
    assert "feed" not in {thread.name for thread in threading.enumerate()}
