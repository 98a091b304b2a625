"""The services of the messaging example on a real broker, killed in the middle of their work."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence

from messaging.customers import OrderMessage, messages
from messaging.description import load_example
from messaging.service import Service, ServiceConfig
from messaging.services import MailService, OrderService, StockService
from messaging.topics import (
    ANSWERS,
    ATTEMPTS,
    CORRELATION_ID,
    ERROR,
    MAILS,
    ORDERS,
    SENT_MAILS,
    Headers,
    Refused,
    Retry,
    after_failure,
    attempts_of,
    header,
    parking_topic,
)
from ottla import Admin, Consumer, NewTopic, Producer, Record
from ottla.testing import Cluster

PATIENCE_S = 120.0
DELAYS_S = (0.02, 0.04, 0.08)


def test_failed_records_wait_longer_each_time_and_are_parked_then() -> None:
    headers: Headers = [("reply-to", b"answers")]
    places: list[str] = []
    for _ in range(4):
        place, headers = after_failure("orders", headers, Retry("busy"), 3)
        places.append(place)
    assert places == ["orders.retry-1", "orders.retry-2", "orders.retry-3", "orders.parked"]
    assert [*headers] == [("reply-to", b"answers"), (ATTEMPTS, b"4"), (ERROR, b"busy")]


def test_refused_records_are_parked_at_once() -> None:
    place, headers = after_failure("orders", (), Refused("not JSON"), 3)
    assert (place, header(headers, ERROR)) == ("orders.parked", "not JSON")
    assert after_failure("stock", (), Retry("busy"), 0).topic == "stock.parked"


def test_attempts_that_are_not_a_number_count_as_none() -> None:
    for value in (b"", b"x", b"-1", b"\xb2", b"\xff", None):
        assert attempts_of([(ATTEMPTS, value)]) == 0


def test_orders_depend_only_on_seed_and_time() -> None:
    whole = [*messages(7, 1_000, 61_000)]
    parts = [*messages(7, 1_000, 20_013), *messages(7, 20_013, 61_000)]
    assert whole == parts
    assert len({one.key for one in whole}) == len(whole) == 1_200
    assert {json.loads(one.value)["item"] for one in whole} >= {"piano", "umbrella", "tea"}


class Shop:
    """A broker with the topics of the example, and the services in this process."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self._running: dict[type[Service], asyncio.Task[None]] = {}

    async def open(self) -> None:
        example = load_example()
        topics = [*example.counted_topics, *example.topics]
        async with Admin({"bootstrap.servers": self.servers}) as admin:
            created = await admin.create_topics(
                NewTopic(one.name, one.partition_count) for one in topics
            )
            created.or_raise()

    def start(self, kind: type[Service]) -> None:
        config = ServiceConfig(self.servers, DELAYS_S, reply_timeout_s=0.5)
        self._running[kind] = asyncio.create_task(kind(config).run())

    async def kill(self, kind: type[Service]) -> None:
        task = self._running.pop(kind)
        assert not task.done(), task.exception()
        task.cancel()
        await asyncio.wait([task])

    async def close(self) -> None:
        for kind in [*self._running]:
            await self.kill(kind)

    async def send(self, orders: Sequence[OrderMessage]) -> None:
        async with Producer({"bootstrap.servers": self.servers}) as producer:
            for one in orders:
                await producer.send(ORDERS, one.value, key=one.key.encode(), headers=one.headers)

    async def read(self, *topics: str) -> list[Record[bytes, bytes]]:
        """Return the records that are in some topics now."""
        found: list[Record[bytes, bytes]] = []
        settings = {"bootstrap.servers": self.servers, "auto.offset.reset": "earliest"}
        async with Consumer(settings) as consumer:
            partitions = [one for topic in topics for one in await consumer.partitions(topic)]
            ends = await consumer.end_offsets(*partitions)
            consumer.assign(*partitions)
            while len(found) < sum(ends.values()):
                found += await consumer.poll(1.0)
        return found

    async def wait_for(self, count: int, *topics: str) -> None:
        """Wait until so many records are in some topics."""
        settings = {"bootstrap.servers": self.servers}
        async with asyncio.timeout(PATIENCE_S), Consumer(settings) as consumer:
            partitions = [one for topic in topics for one in await consumer.partitions(topic)]
            while sum((await consumer.end_offsets(*partitions)).values()) < count:
                failed = [one for one in self._running.values() if one.done()]
                assert not failed, failed[0].exception()
                await asyncio.sleep(0.01)


def identities(records: Sequence[Record[bytes, bytes]]) -> list[str]:
    return [header(one.headers, CORRELATION_ID) or "" for one in records]


def test_every_order_has_one_outcome_although_services_are_killed() -> None:
    asyncio.run(kill_services())


async def kill_services() -> None:
    orders = [*messages(7, 0, 15_000)]
    keys = [one.key for one in orders]
    parked = parking_topic(ORDERS)
    async with Cluster() as cluster:
        shop = Shop(cluster.bootstrap_servers)
        await shop.open()
        kinds: list[type[Service]] = [OrderService, StockService, MailService]
        for kind in kinds:
            shop.start(kind)
        try:
            for part in range(6):
                some = orders[part * 50 : part * 50 + 50]
                await shop.send([*some, *some[:5]])  # some customers send an order twice
                # Kill a service while it works on these orders, and let the others go on.
                await shop.wait_for(part * 50 + 10, ANSWERS, parked)
                await shop.kill(kinds[part % 3])
                shop.start(kinds[part % 3])
            await shop.wait_for(len(orders), ANSWERS, parked)
            reserved = [
                header(one.headers, CORRELATION_ID)
                for one in await shop.read(ANSWERS)
                if json.loads(one.value or b"")["status"] == "reserved"
            ]
            await shop.wait_for(len(reserved), SENT_MAILS, parking_topic(MAILS))
        finally:
            await shop.close()
        answered, left = await shop.read(ANSWERS), await shop.read(parked)
        assert Counter(identities([*answered, *left])) == Counter(keys)
        pianos = {one.key for one in orders if json.loads(one.value)["item"] == "piano"}
        assert pianos <= set(identities(left))
        assert {attempts_of(one.headers) for one in left} == {len(DELAYS_S) + 1}
        mails = await shop.read(SENT_MAILS, parking_topic(MAILS))
        assert Counter(identities(mails)) == Counter(reserved)


def test_records_that_are_not_orders_are_parked() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            shop = Shop(cluster.bootstrap_servers)
            await shop.open()
            shop.start(OrderService)
            async with Producer({"bootstrap.servers": shop.servers}) as producer:
                for value in (b"", b"[1]", b"{}", b"\xff"):
                    await producer.send(ORDERS, value)
            parked = parking_topic(ORDERS)
            await shop.wait_for(4, parked)
            await shop.kill(OrderService)
            shop.start(OrderService)
            await shop.send([*messages(7, 0, 50)][:1])
            shop.start(StockService)
            await shop.wait_for(1, ANSWERS)
            await shop.close()
            found = await shop.read(parked)
            assert {header(one.headers, ERROR) for one in found} == {
                "the order is not JSON",
                "the order is not a JSON object",
                "the order has no order",
            }
            assert len(set(identities(found))) == len(found) == 4

    asyncio.run(scenario())
