"""A consumer that a signal interrupts leaves its group: with asyncio and without.

The programs that handle SIGTERM as docs/client.md shows are in test_client_guide.py.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Generator

import pytest

from client.scenario_runner import FAST
from ottla import Consumer
from ottla.sync import Admin as SyncAdmin
from ottla.sync import Consumer as SyncConsumer
from ottla.sync import Producer as SyncProducer
from ottla.testing import ClusterThread

GROUP = "g"


@pytest.fixture
def servers() -> Generator[str]:
    before = signal.getsignal(signal.SIGTERM)
    with ClusterThread() as cluster:
        with SyncProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send_many("t", [b"1", b"2"])
        yield cluster.bootstrap_servers
    signal.signal(signal.SIGTERM, before)


def settings(servers: str) -> dict[str, object]:
    return {
        **FAST,
        "bootstrap.servers": servers,
        "group.id": GROUP,
        "auto.offset.reset": "earliest",
    }


def members_and_offset(servers: str) -> tuple[int, int]:
    with SyncAdmin(bootstrap_servers=servers) as admin:
        committed = admin.list_group_offsets(GROUP)[GROUP].or_raise()[("t", 0)]
        assert committed is not None
        return len(admin.describe_groups(GROUP)[GROUP].members), committed.offset


def terminate_after(seen: threading.Event) -> threading.Thread:
    """Send SIGTERM from another thread when this one has seen the last record."""

    def run() -> None:
        seen.wait()
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_cancelled_iteration_leaves_the_group(servers: str) -> None:
    seen = threading.Event()

    async def program() -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        async with Consumer(settings(servers), "t") as consumer:
            async for record in consumer:
                if record.value == b"2":
                    seen.set()

    thread = terminate_after(seen)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(program())
    thread.join()
    members, offset = members_and_offset(servers)
    assert members == 0
    assert offset >= 1  # whether the loop had asked for the next record is chance


def test_exit_from_a_blocking_iteration_leaves_the_group(servers: str) -> None:
    seen = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit())
    thread = terminate_after(seen)

    def program() -> None:
        with SyncConsumer(settings(servers), "t") as consumer:
            for record in consumer:
                if record.value == b"2":
                    seen.set()

    with pytest.raises(SystemExit):
        program()
    thread.join()
    members, offset = members_and_offset(servers)
    assert members == 0
    assert offset >= 1
