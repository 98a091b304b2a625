"""The order, the stock and the mail service.

An order is a request of a customer. The order service asks the stock service, lets the mail service
confirm the order, and answers the customer. The warehouse and the mail server fail at times, which
follows from the key of a record and its attempt.
"""

import asyncio
import json
import zlib
from typing import Any, Final, cast

from messaging.requests import ReplyAddress, Requester
from messaging.service import Request, Service, ServiceConfig
from messaging.topics import (
    ANSWERS,
    ATTEMPTS,
    MAILS,
    ORDERS,
    SENT_MAILS,
    STOCK,
    STOCK_REPLIES,
    Refused,
    Retry,
    attempts_of,
)
from ottla import Producer

SOLD_OUT: Final = frozenset({"umbrella"})
UNREACHABLE: Final = frozenset({"piano"})
"""The items of a warehouse that never answers."""

RESERVED: Final = "reserved"
UNAVAILABLE: Final = "unavailable"


class OrderService(Service):
    """Answers orders, after it has asked the stock service."""

    name = "orders"
    topic = ORDERS
    outcomes = (ANSWERS,)

    def __init__(self, config: ServiceConfig) -> None:
        super().__init__(config)
        self._requester: Requester | None = None

    async def prepare(self, producer: Producer[bytes, bytes], tasks: asyncio.TaskGroup) -> None:
        """Listen to the replies of the stock service."""
        timeout_s = self.config.reply_timeout_s
        self._requester = Requester(producer, self.settings, STOCK_REPLIES, timeout_s)
        is_ready = asyncio.Event()
        tasks.create_task(self._requester.listen(is_ready))
        await is_ready.wait()

    async def handle(self, record: Request) -> None:
        """Ask the stock service, request a mail, and answer the customer."""
        assert self._requester is not None
        order = order_of(record)
        address = ReplyAddress(record)
        attempt = [(ATTEMPTS, str(attempts_of(record.headers)).encode())]
        value = record.value or b""
        reply = await self._requester.ask(STOCK, value, key=record.key, headers=attempt)
        status = reply.decode()
        if status == UNAVAILABLE:
            raise Retry("the warehouse does not answer")
        if status == RESERVED:
            await self.send(MAILS, value, key=record.key, headers=address.headers)
        # The answer is last: an order without an answer is handled again, with its mail.
        answer = json.dumps({**order, "status": status}).encode()
        await self.settle(record, address.topic, answer)


class StockService(Service):
    """Replies to requests for items; a request that is repeated has the same reply."""

    name = "stock"
    topic = STOCK
    retries = False  # the one who asks tries again

    async def handle(self, record: Request) -> None:
        """Reply with the state of an item."""
        order = order_of(record)
        address = ReplyAddress(record)
        if order["item"] in UNREACHABLE or fails(record, one_of=8):
            status = UNAVAILABLE
        else:
            status = "sold out" if order["item"] in SOLD_OUT else RESERVED
        await self.send(address.topic, status.encode(), key=record.key, headers=address.headers)


class MailService(Service):
    """Confirms orders by mail; here a mail is a record of a topic."""

    name = "mail"
    topic = MAILS
    outcomes = (SENT_MAILS,)

    async def handle(self, record: Request) -> None:
        """Send a mail, unless the mail server is busy."""
        order = order_of(record)
        if fails(record, one_of=16):
            raise Retry("the mail server is busy")
        text = f"Dear {order['customer']}, we send you {order['count']} {order['item']}."
        await self.settle(record, SENT_MAILS, text.encode())


SERVICES: Final[tuple[type[Service], ...]] = (OrderService, StockService, MailService)


def order_of(record: Request) -> dict[str, Any]:
    """Parse an order; raises Refused for a record that is not an order."""
    try:
        parsed: object = json.loads(record.value or b"")
    except (ValueError, RecursionError):
        raise Refused("the order is not JSON") from None
    if not isinstance(parsed, dict):
        raise Refused("the order is not a JSON object")
    order = cast("dict[str, Any]", parsed)
    if missing := [name for name in ("order", "customer", "item", "count") if name not in order]:
        raise Refused(f"the order has no {missing[0]}")
    return order


def fails(record: Request, *, one_of: int) -> bool:
    """Whether this attempt fails, as one of so many does."""
    attempt = f"/{attempts_of(record.headers)}".encode()
    return zlib.crc32((record.key or b"") + attempt) % one_of == 0
