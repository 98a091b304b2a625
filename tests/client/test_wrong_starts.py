"""Clients that are created or started the wrong way: the error says what is right."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import ottla
import ottla.sync
from cases import each_case
from ottla.transport.failures import NotRunning

CLIENTS = (ottla.Producer, ottla.Consumer, ottla.Admin)
SYNC = (ottla.sync.Producer, ottla.sync.Consumer, ottla.sync.Admin)
SERVERS = {"bootstrap.servers": "127.0.0.1:1"}


@each_case("kind", CLIENTS)
def test_plain_with_names_async_with_and_the_sync_client(kind: type[Any]) -> None:
    with pytest.raises(TypeError) as raised, kind(SERVERS):
        pass
    name = kind.__name__
    assert str(raised.value) == (
        f"start {name} with `async with`, or import {name} from ottla.sync to use `with`"
    )


@each_case("kind", SYNC)
def test_async_with_names_with_and_the_async_client(kind: type[Any]) -> None:
    async def scenario() -> None:
        async with kind(SERVERS):
            pass

    with pytest.raises(TypeError) as raised:
        asyncio.run(scenario())
    name = kind.__name__
    assert str(raised.value) == (
        f"start {name} with `with`, or import {name} from ottla to use `async with`"
    )


def test_wrong_loop_over_records_names_the_right_one() -> None:
    async def scenario() -> None:
        consumer: Any = ottla.sync.Consumer(SERVERS)
        async for _ in consumer:
            pass

    with pytest.raises(TypeError, match="with `for`, or import Consumer from ottla to use `async"):
        asyncio.run(scenario())
    consumer: Any = ottla.Consumer(SERVERS)
    with pytest.raises(TypeError, match=r"with `async for`, or import Consumer from ottla\.sync"):
        for _ in consumer:
            pass


@each_case("kind", (*CLIENTS, *SYNC))
def test_address_instead_of_settings_shows_the_mapping(kind: type[Any]) -> None:
    with pytest.raises(TypeError) as raised:
        kind("kafka1:9092")
    assert str(raised.value) == (
        'settings must be a mapping such as {"bootstrap.servers": "kafka1:9092"}, not str'
    )


CALLS: dict[str, Callable[[], object]] = {
    "send": lambda: ottla.sync.Producer(SERVERS).send("t", b"x"),
    "send_many": lambda: ottla.sync.Producer(SERVERS).send_many("t", [b"x"]),
    "flush": lambda: ottla.sync.Producer(SERVERS).flush(),
    "poll": lambda: ottla.sync.Consumer(SERVERS).poll(1),
    "list_topics": lambda: ottla.sync.Admin(SERVERS).list_topics(),
}


@each_case("call", CALLS)
def test_sync_client_outside_with_is_not_running(call: str) -> None:
    with pytest.raises(NotRunning, match="is not running: use `with`"):
        CALLS[call]()
