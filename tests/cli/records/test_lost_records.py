"""`ottla consume` when records are deleted before they are read."""

import asyncio
from collections.abc import Awaitable, Callable, Generator

import pytest

from cli.records.harness import PATIENCE_S
from judges.ottla_broker import OttlaBroker, ottla_broker
from ottla.cli.failures import Failed
from ottla.cli.records.places import Limits
from ottla.cli.records.stream import ColumnConsumer, taken
from ottla.client.admin import Admin
from ottla.client.partitions import partition_of
from ottla.client.producer.producer import Producer

END = 5


@pytest.fixture(scope="module")
def broker() -> Generator[OttlaBroker]:
    with ottla_broker({"auto.create.topics.enable": "false"}) as running:
        yield running


async def read(broker: OttlaBroker, topic: str, lose: Callable[[Admin], Awaitable[object]]) -> int:
    """Read a topic up to its end before the loss; returns the number of records."""
    where = partition_of((topic, 0))
    servers = {"bootstrap.servers": broker.bootstrap}
    async with Admin(servers) as admin:
        await admin.create_topic(topic, partitions=1)
        async with Producer(servers) as producer:
            for number in range(END):
                await producer.send(topic, b"%d" % number)
        settings = {**servers, "auto.offset.reset": "earliest", "allow.auto.create.topics": "false"}
        async with ColumnConsumer(settings) as consumer, asyncio.timeout(PATIENCE_S):
            assert (await consumer.end_offsets(where))[where] == END
            await lose(admin)
            consumer.assign(where)
            consumer.seek(where, 0)
            consumer.partition_reader.stop_at(where, END)
            limits = Limits(ends={where: END})
            return sum([one[1] async for one in taken(consumer, limits) if one is not None])


@pytest.mark.parametrize(("before", "left"), [(END, 0), (3, 2)])
def test_consume_does_not_wait_for_deleted_records(
    broker: OttlaBroker, before: int, left: int
) -> None:
    topic = f"deleted-{before}"

    async def lose(admin: Admin) -> None:
        (await admin.delete_records({(topic, 0): before})).or_raise()

    assert asyncio.run(read(broker, topic, lose)) == left


def test_consume_fails_when_its_topic_is_deleted(broker: OttlaBroker) -> None:
    with pytest.raises(Failed, match="topic gone was deleted before its end was reached"):
        asyncio.run(read(broker, "gone", lambda admin: admin.delete_topics(["gone"])))
