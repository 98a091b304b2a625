"""The tokens of OAUTHBEARER: fetched by the user's function or a provider, used while they last.

Invariant: a token is fetched anew before it runs out, by one fetch at a time however many
connections log in; and while an old one is still good, a fetch that fails harms nobody. What a
token is stands in no message, log or repr.
"""

import asyncio
import binascii
import json
from base64 import urlsafe_b64decode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import TypeAlias, cast

from ottla.clock import Clock
from ottla.errors import RequestError
from ottla.transport.failures import AuthenticationFailed, Disconnected, TimedOut


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token, until when it is good, and SASL extensions to send with it (KIP-342)."""

    text: str = field(repr=False)
    expires_ms: int | None = None
    """Milliseconds since 1970; None when nobody knows, so that it is used for one login."""

    extensions: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


TokenFunction: TypeAlias = Callable[[], Awaitable[Token | str]]
"""Gives a new token. A str is taken for a JWT, whose `exp` says how long it is good."""


@dataclass(frozen=True, slots=True)
class RefreshConfig:
    """When a token is fetched anew: the settings sasl.login.refresh.*."""

    window: float = 0.8
    jitter: float = 0.05
    least_s: float = 60.0
    buffer_s: float = 300.0


def refresh_ms(fetched_ms: int, expires_ms: int, rules: RefreshConfig, random: float) -> float:
    """When a token should be replaced, as Kafka's clients reckon it."""
    lifetime_ms = max(0, expires_ms - fetched_ms)
    best_ms = fetched_ms + lifetime_ms * (rules.window + rules.jitter * random)
    least_ms, buffer_ms = rules.least_s * 1000, rules.buffer_s * 1000
    if least_ms + buffer_ms > lifetime_ms:
        return best_ms
    return max(fetched_ms + least_ms, min(best_ms, expires_ms - buffer_ms))


def expiry_ms(jwt: str) -> int | None:
    """Until when a JWT is good by its own word, which is not verified; None if it has none."""
    try:
        body = jwt.split(".")[1]
        claims: object = json.loads(urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        assert isinstance(claims, dict)
        expires_s = cast("dict[str, object]", claims)["exp"]
        assert isinstance(expires_s, (int, float))
        return int(expires_s * 1000)
    except (IndexError, KeyError, ValueError, OverflowError, AssertionError, binascii.Error):
        return None


class Tokens:
    """The token that counts now."""

    def __init__(
        self,
        fetch: TokenFunction,
        rules: RefreshConfig,
        clock: Clock,
        random: Callable[[], float],
        timeout_s: float,
    ) -> None:
        self._fetch = fetch
        self._rules = rules
        self._clock = clock
        self._random = random
        self._timeout_s = timeout_s
        self._token: Token | None = None
        self._refresh_ms = -inf
        self._one_at_a_time = asyncio.Lock()

    async def current(self) -> Token:
        """A token to log in with; RequestError when there is none to be had."""
        async with self._one_at_a_time:
            token = self._token
            if token is not None and self._clock.now_ms() < self._refresh_ms:
                return token
            try:
                return await self._new()
            except RequestError:
                if token is None or (token.expires_ms or 0) <= self._clock.now_ms():
                    raise
                return token

    async def _new(self) -> Token:
        try:
            async with asyncio.timeout(self._timeout_s):
                given = await self._fetch()
        except TimeoutError as error:
            raise TimedOut(f"the token function took longer than {self._timeout_s:g} s") from error
        except (AuthenticationFailed, Disconnected):
            raise  # the client's own words, which hold nothing that nobody should see
        except Exception as error:
            # What it says may hold what nobody should see; who looks for it finds the cause.
            raise Disconnected(f"the token function failed: {type(error).__name__}") from error
        token = given if isinstance(given, Token) else Token(given, expiry_ms(given))
        now_ms = self._clock.now_ms()
        if token.expires_ms is not None and token.expires_ms <= now_ms:
            raise Disconnected("the token function gave a token that has run out")
        self._token = token
        self._refresh_ms = (
            -inf
            if token.expires_ms is None
            else refresh_ms(now_ms, token.expires_ms, self._rules, self._random())
        )
        return token
