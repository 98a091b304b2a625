"""The examples of docs/client.md run as shown, in the order of the page."""

import asyncio
import inspect
import re
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from ottla.client.admin import Admin
from ottla.testing import Cluster, ClusterThread

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "docs" / "client.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)


FOR_KAFKA = [block for block in BLOCKS if "def main(" not in block]
"""The blocks that test_kafka_client_guide.py runs, by the names of their functions."""


def names_of(block: str, servers: str) -> dict[str, Any]:
    """The names that a block defines, with the address of another broker in its code."""
    names: dict[str, Any] = {"__name__": "guide"}
    exec(compile(block.replace("127.0.0.1:9092", servers), "client.md", "exec"), names)
    return names


def shown(block: str, servers: str) -> Any:
    """The `main` of a block; None for a block that needs Kafka."""
    return names_of(block, servers).get("main")


def is_terminated(block: str, main: Any) -> bool:
    """Whether SIGTERM ends the example; it then gets the signal with the first record."""

    def terminate(_: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    if "SIGTERM" in block:
        main.__globals__["print"] = terminate
        return True
    return False


async def check_left(block: str, servers: str) -> None:
    """Check that the consumer of the example has committed and left its group."""
    (group,) = re.findall(r'"group.id": "(\w+)"', block)
    async with Admin(bootstrap_servers=servers) as admin:
        assert (await admin.describe_groups(group))[group].members == ()
        committed = (await admin.list_group_offsets(group))[group].or_raise()
        assert sum(one.offset for one in committed.values() if one is not None) > 0


def test_examples_run() -> None:
    async def one_after_the_other() -> tuple[int, int]:
        ran = terminated = 0
        async with Cluster() as cluster:
            for block in BLOCKS:
                main = shown(block, cluster.bootstrap_servers)
                if inspect.iscoroutinefunction(main):
                    ends_by_signal = is_terminated(block, main)
                    async with asyncio.timeout(30):
                        await main()
                        if ends_by_signal:
                            await check_left(block, cluster.bootstrap_servers)
                            terminated += 1
                    ran += 1
        return ran, terminated

    assert asyncio.run(one_after_the_other()) == (len(BLOCKS) - len(FOR_KAFKA) - 2, 2)


@pytest.fixture
def sigterm() -> Generator[None]:
    """Restore the handler that an example replaces."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("sigterm")
def test_sync_examples_run() -> None:
    ran = terminated = 0
    with ClusterThread() as cluster:
        for block in BLOCKS:
            main = shown(block, cluster.bootstrap_servers)
            if main is not None and not inspect.iscoroutinefunction(main):
                ends_by_signal = is_terminated(block, main)
                main()
                if ends_by_signal:
                    asyncio.run(check_left(block, cluster.bootstrap_servers))
                    terminated += 1
                ran += 1
    assert (ran, terminated) == (2, 1)


def test_only_the_kafka_examples_are_skipped() -> None:
    shows = [re.findall(r"^(?:async )?def (\w+)\(", block, re.MULTILINE) for block in FOR_KAFKA]
    assert shows == [["move"], ["move_surely"], ["secured"]]


def test_links_have_targets() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", GUIDE):
        assert (ROOT / "docs" / target).exists(), target
