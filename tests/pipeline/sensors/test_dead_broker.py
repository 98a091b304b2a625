"""The example when its broker dies: what it says, and that it does not wait for it."""

import io
import os
import signal
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, cast

import pytest
from sensors.dev_broker import BrokerFailed, DevBroker
from sensors.failure import Failed
from sensors.feed import Feed
from sensors.local_spark import LocalSpark
from sensors.show import Show

from ottla.transport.failures import TimedOut

PATIENCE_S = 120.0


@pytest.fixture
def broker(tmp_path: Path) -> Generator[DevBroker]:
    with DevBroker(0, tmp_path, tmp_path / "broker.log") as running:
        yield running


def number(broker: DevBroker) -> int:
    process: Any = broker._process  # pyright: ignore[reportPrivateUsage]
    return process.pid


def wait_until(holds: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def test_the_end_of_a_broker_is_told_with_its_signal(broker: DevBroker, tmp_path: Path) -> None:
    broker.listening()
    assert broker.failure is None
    os.kill(number(broker), signal.SIGKILL)
    wait_until(lambda: broker.failure)
    log = tmp_path / "broker.log"
    assert "level=info" in log.read_text()
    assert broker.failure == f"the broker was ended by SIGKILL; {log} may say why"


@pytest.mark.parametrize("said", ["no room is left", "time=1 level=error source=x event=y"])
def test_an_error_that_a_broker_tells_last_is_told(
    broker: DevBroker, tmp_path: Path, said: str
) -> None:
    broker.listening()
    os.kill(number(broker), signal.SIGKILL)
    wait_until(lambda: broker.failure)
    with (tmp_path / "broker.log").open("a") as log:
        log.write(f"{said}\n")
    assert broker.failure == f"the broker was ended by SIGKILL: {said}"


def test_a_broker_that_ends_before_it_listens_is_told(tmp_path: Path) -> None:
    with DevBroker(0, tmp_path, tmp_path / "broker.log") as broker:
        os.kill(number(broker), signal.SIGSTOP)
        os.kill(number(broker), signal.SIGKILL)
        with pytest.raises(BrokerFailed, match="the broker was ended by SIGKILL"):
            broker.listening()


def test_a_feed_does_not_wait_for_a_dead_broker(broker: DevBroker) -> None:
    """It would until its records are too old, which takes minutes."""
    servers = broker.listening()
    since_ms = time.time_ns() // 1_000_000 - 1000
    feed = Feed(servers, 7, since_ms, lambda: broker.failure is None)
    with feed:
        wait_until(lambda: feed.sent)
        os.kill(number(broker), signal.SIGKILL)
        wait_until(lambda: broker.failure)
        sent = feed.sent
        wait_until(lambda: feed.sent > sent)  # there is something to be waited for
    assert not isinstance(feed.failure, TimedOut), feed.failure  # no record had to become too old
    assert "feed" not in {one.name for one in threading.enumerate()}


class NeverUp:
    """A Spark that goes on starting; at the third look the broker dies."""

    def __init__(self, broker: DevBroker) -> None:
        self._broker = broker
        self._looks = 0

    def wait(self, seconds: float) -> bool:
        self._looks += 1
        if self._looks == 3:
            os.kill(number(self._broker), signal.SIGKILL)
        return False


def test_the_show_ends_with_its_broker_and_says_so(broker: DevBroker, tmp_path: Path) -> None:
    (tmp_path / "sensors").mkdir()
    spark = cast("LocalSpark", NeverUp(broker))
    terminal = io.StringIO()
    show = Show(terminal, broker, spark, tmp_path, threading.Event())
    with pytest.raises(Failed, match="the broker was ended by SIGKILL"):
        show.run(7, None)
    assert "starting Spark" in terminal.getvalue()
