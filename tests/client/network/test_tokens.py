"""Tokens: when they are fetched, by which thread, and what a failing token function affects."""

import asyncio
import json
from base64 import urlsafe_b64encode

import pytest

from cases import each_case
from client.scenario_runner import run
from ottla.client.network.tokens import (
    RefreshConfig,
    Token,
    TokenFunction,
    Tokens,
    expiry_ms,
    refresh_ms,
)
from ottla.clock import SystemClock
from ottla.transport.failures import Disconnected, TimedOut


class Time(SystemClock):
    ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms


def tokens(fetch: TokenFunction, clock: Time, timeout_s: float = 5) -> Tokens:
    return Tokens(fetch, RefreshConfig(), clock, lambda: 0.5, timeout_s)


def jwt(**claims: object) -> str:
    body = urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.signature"


def test_token_is_used_for_most_of_its_lifetime() -> None:
    async def scenario() -> None:
        clock = Time()
        given: list[Token] = []

        async def fetch() -> Token:
            given.append(Token(f"t{len(given)}", clock.ms + 3_600_000))
            return given[-1]

        ours = tokens(fetch, clock)
        first = await asyncio.gather(*(ours.current() for _ in range(20)))
        assert {one.text for one in first} == {"t0"}
        clock.ms += int(3_600_000 * 0.82)
        assert (await ours.current()).text == "t0"
        clock.ms += int(3_600_000 * 0.01)
        assert (await ours.current()).text == "t1"

    run(scenario())


def test_token_without_an_expiry_is_used_once() -> None:
    async def scenario() -> None:
        asked = 0

        async def fetch() -> str:
            nonlocal asked
            asked += 1
            return "opaque"

        ours = tokens(fetch, Time())
        await ours.current()
        assert (await ours.current()).expires_ms is None
        assert asked == 2

    run(scenario())


def test_failed_refresh_keeps_the_valid_token() -> None:
    async def scenario() -> None:
        clock = Time()
        fails = False

        async def fetch() -> Token:
            if fails:
                raise ValueError("hunter2")
            return Token("old", clock.ms + 1000)

        ours = tokens(fetch, clock)
        await ours.current()
        fails = True
        clock.ms += 999
        assert (await ours.current()).text == "old"
        clock.ms += 1
        with pytest.raises(Disconnected, match="the token function failed: ValueError") as raised:
            await ours.current()
        assert "hunter2" not in str(raised.value)
        assert raised.value.retriable

    run(scenario())


def test_hanging_function_and_expired_token_fail() -> None:
    async def scenario() -> None:
        async def hangs() -> str:
            await asyncio.sleep(3600)
            return ""

        async def stale() -> Token:
            return Token("t", 5)

        with pytest.raises(TimedOut, match=r"longer than 0\.01 s"):
            await tokens(hangs, Time(), 0.01).current()
        with pytest.raises(Disconnected, match="expired token"):
            await tokens(stale, Time()).current()

    run(scenario())


@each_case(
    ("lifetime_s", "after_s"),
    [
        (3600, 2970),  # 82.5 %
        (1000, 700),  # so that 300 s remain
        (400, 100),  # 300 s remain
        (361, 61),
        (360, 60),
        (359, 296.175),  # too short for the buffer and the minimum delay together
        (10, 8.25),
        (0, 0),
    ],
)
def test_refresh_time_is_that_of_kafka_clients(lifetime_s: int, after_s: float) -> None:
    found_ms = refresh_ms(5_000, 5_000 + lifetime_s * 1000, RefreshConfig(), 0.5)
    assert found_ms == pytest.approx(5_000 + after_s * 1000)


@each_case(
    ("text", "found"),
    [
        (jwt(exp=12), 12_000),
        (jwt(exp=1.5), 1500),
        (jwt(), None),
        (jwt(exp="soon"), None),
        (jwt(exp=1e400), None),
        ("opaque", None),
        ("a.b.c", None),
        ("a.%%%.c", None),
        ("e30.W10.c", None),
        ("", None),
    ],
)
def test_expiry_is_read_from_a_jwt(text: str, found: int | None) -> None:
    assert expiry_ms(text) == found


def test_token_is_not_printed() -> None:
    token = Token("hunter2", 5, {"a": "hunter2"})
    assert "hunter2" not in repr(token)
    assert "hunter2" not in f"{token}"
