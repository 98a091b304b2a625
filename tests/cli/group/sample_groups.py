"""Topics, records and groups for tests of group commands."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from ottla.client.admin import Admin, NewTopic
from ottla.client.producer.producer import Producer
from ottla.sync import Consumer

ORDERS: Final = "orders"
LONG: Final = "a-topic-with-a-rather-long-name"
VOID: Final = "void"
IDLE: Final = {(ORDERS, 0): 4, (ORDERS, 1): 5, (LONG, 0): 1}
AGELESS: Final = {"retention.ms": "-1"}
FIRST_MS: Final = 1_600_000_000_000  # 2020-09-13T12:26:40Z


def records(partition: int) -> int:
    """Return the number of records in a partition of orders."""
    return (10, 5, 0)[partition]


async def fill(bootstrap: str) -> None:
    """Create topics and write records with timestamps one second apart."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        topics = [
            NewTopic(ORDERS, 3, config=AGELESS),
            NewTopic(LONG, 1, config=AGELESS),
            NewTopic(VOID, 1),
        ]
        (await admin.create_topics(topics)).or_raise()
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(3):
            for at in range(records(number)):
                time_ms = FIRST_MS + 1000 * at
                # One batch per record, so that the log always has the same size.
                await (await producer.send(ORDERS, b"v", partition=number, timestamp_ms=time_ms))
        for at in range(4):
            time_ms = FIRST_MS + 1000 * at
            await (await producer.send(LONG, b"v", partition=0, timestamp_ms=time_ms))


async def idle_groups(bootstrap: str, *names: str) -> None:
    """Create groups without members that have committed offsets."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        for name in names:
            (await admin.alter_group_offsets(name, IDLE)).or_raise()


def committed(bootstrap: str, group: str) -> dict[tuple[str, int], int]:
    """Return the committed offsets of a group."""

    async def asked() -> dict[tuple[str, int], int]:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            told = (await admin.list_group_offsets(group))[group]
            return {where: one.offset for where, one in told.items() if one is not None}

    return asyncio.run(asked())


@contextmanager
def busy_group(bootstrap: str, name: str, protocol: str = "classic") -> Generator[None]:
    """Start a group with a member that reads orders and has committed an offset in partition 0."""
    asyncio.run(_commit(bootstrap, name))
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": name,
        "group.protocol": protocol,
        "auto.offset.reset": "latest",
        "enable.auto.commit": False,
        "client.id": "reader",
    }
    with Consumer(settings) as one:
        one.subscribe(ORDERS)
        while len(one.assignment) < 3:
            one.poll(0.1)
        yield


async def _commit(bootstrap: str, name: str) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        (await admin.alter_group_offsets(name, {(ORDERS, 0): 3})).or_raise()
