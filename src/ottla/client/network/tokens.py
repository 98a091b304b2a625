"""OAUTHBEARER tokens: fetched by the user's function or a token endpoint, and refreshed.

Invariant: a token is refreshed before it expires, by one fetch at a time however many connections
authenticate. While the old token is valid, a failed refresh has no effect. No message, log or repr
contains a token.
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
    """A bearer token, its expiry and SASL extensions to send with it (KIP-342)."""

    text: str = field(repr=False)
    expires_ms: int | None = None
    """Milliseconds since 1970; None if unknown: the token is then used for one login."""

    extensions: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


TokenFunction: TypeAlias = Callable[[], Awaitable[Token | str]]
"""Returns a new token. A str is a JWT, whose `exp` claim is the expiry."""


@dataclass(frozen=True, slots=True)
class RefreshConfig:
    """When a token is refreshed: the settings sasl.login.refresh.*."""

    window: float = 0.8
    jitter: float = 0.05
    least_s: float = 60.0
    buffer_s: float = 300.0


def refresh_ms(fetched_ms: int, expires_ms: int, rules: RefreshConfig, random: float) -> float:
    """Return when to refresh a token, as Kafka's clients compute it."""
    lifetime_ms = max(0, expires_ms - fetched_ms)
    best_ms = fetched_ms + lifetime_ms * (rules.window + rules.jitter * random)
    least_ms, buffer_ms = rules.least_s * 1000, rules.buffer_s * 1000
    if least_ms + buffer_ms > lifetime_ms:
        return best_ms
    return max(fetched_ms + least_ms, min(best_ms, expires_ms - buffer_ms))


def expiry_ms(jwt: str) -> int | None:
    """Return the expiry of a JWT from its `exp` claim, not verified; None if it has none."""
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
    """The current token."""

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
        """Return a token to authenticate with; raises RequestError."""
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
            raise  # our own message, which contains no secret
        except Exception as error:
            # The message of a user's exception may contain a secret; the cause is chained.
            raise Disconnected(f"the token function failed: {type(error).__name__}") from error
        token = given if isinstance(given, Token) else Token(given, expiry_ms(given))
        now_ms = self._clock.now_ms()
        if token.expires_ms is not None and token.expires_ms <= now_ms:
            raise Disconnected("the token function returned an expired token")
        self._token = token
        self._refresh_ms = (
            -inf
            if token.expires_ms is None
            else refresh_ms(now_ms, token.expires_ms, self._rules, self._random())
        )
        return token
