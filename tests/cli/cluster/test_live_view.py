"""The live display of `ottla cluster start`."""

import asyncio
import io
import time
from pathlib import Path

from ottla.cli.cluster.health import BrokerHealth, ClusterHealth, DiskUse
from ottla.cli.cluster.live_view import lines_of, live_view
from ottla.cli.cluster.local_cluster import LocalCluster, ProcessState
from ottla.cli.cluster.local_layout import LocalLayout, ServerPorts

PATIENCE_S = 30
PROCESSES = [
    ProcessState("ZooKeeper 1", "running", 10, "127.0.0.1:2181"),
    ProcessState("broker 1", "running", 11, "127.0.0.1:9092", 1),
    ProcessState("broker 2", "ended", None, "127.0.0.1:9093", 2),
    ProcessState("broker 3", "starting", 13, "127.0.0.1:9094", 3),
]


class Screen(io.StringIO):
    """A terminal that keeps what is written."""

    def isatty(self) -> bool:
        return True


def test_display_has_a_row_for_each_process() -> None:
    brokers = [
        BrokerHealth(one, "h", 1, None, None, 5, 7, 1.0, DiskUse(2048, None, 0)) for one in (1, 2)
    ]
    health = ClusterHealth("id", 1, brokers, 1, 9, ["t-0"], [])
    assert lines_of(PROCESSES, health) == [
        "PROCESS      STATE     PID  ADDRESS         LEADERS  REPLICAS  DISK",
        "ZooKeeper 1  running    10  127.0.0.1:2181        -         -  -",
        "broker 1     running    11  127.0.0.1:9092        5         7  2.0 KiB",
        "broker 2     ended       -  127.0.0.1:9093        -         -  -",
        "broker 3     starting   13  127.0.0.1:9094        -         -  -",
        "controller: 1, partitions: 9, under-replicated: 1, offline: 0",
        "Press Ctrl-C to stop.",
    ]


def test_display_appears_and_is_removed(tmp_path: Path) -> None:
    layout = LocalLayout(tmp_path, (9092,), (ServerPorts(2181, 0, 0),))
    local = LocalCluster(layout, ["ottla"], [], [], print, restarts=False)
    screen = Screen()

    async def show() -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        async with live_view(local, screen):
            while "broker 1" not in screen.getvalue():
                assert time.monotonic() < deadline_s
                await asyncio.sleep(0.01)

    asyncio.run(show())
    text = screen.getvalue()
    assert "ZooKeeper 1" in text
    assert "waiting" in text
    assert text.endswith("\x1b[2K")  # the last line is erased
