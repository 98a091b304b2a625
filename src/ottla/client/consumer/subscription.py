"""Subscriptions: topics by name or by pattern.

Invariant: a subscription is immutable and has either names or one pattern. A Python pattern is
matched by the client against whole names, in every group. A BrokerPattern uses RE2 syntax, is
matched by the broker and requires group.protocol=consumer.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ottla.client.arguments import checked_name
from ottla.client.group.interfaces import Rebalance
from ottla.ids import TopicPartition

Callback: TypeAlias = Callable[[frozenset[TopicPartition], Rebalance], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class BrokerPattern:
    """An RE2 pattern of whole topic names that brokers match (KIP-848).

    The client does not need to know all topics, and the broker decides which of them it may see.
    """

    expression: str

    def __post_init__(self) -> None:
        if not self.expression:
            raise ValueError("the expression of a BrokerPattern must not be empty")


Pattern: TypeAlias = str | re.Pattern[str] | BrokerPattern
"""A pattern as the application gives it; text is a Python pattern."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a consumer wants to read, with its rebalance callbacks."""

    names: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | BrokerPattern | None = None
    on_assigned: Callback | None = None
    on_revoked: Callback | None = None
    on_lost: Callback | None = None
    """Without it, `on_revoked` is called for lost partitions."""

    @property
    def broker_pattern(self) -> str | None:
        """The pattern for the broker, if it is one."""
        return self.pattern.expression if isinstance(self.pattern, BrokerPattern) else None


def compiled(pattern: Pattern, *, is_modern: bool) -> re.Pattern[str] | BrokerPattern:
    """Return a pattern that can be matched; raises ValueError if it is invalid.

    The broker matches patterns only with the KIP-848 protocol.
    """
    if not isinstance(pattern, BrokerPattern):
        try:
            return re.compile(pattern)
        except re.error as error:
            raise ValueError(f"invalid pattern of topics {pattern!r}: {error}") from error
    if not is_modern:
        raise ValueError(
            "a BrokerPattern requires group.protocol=consumer; in a classic group pass the "
            "pattern as a str or re.Pattern, which the client matches"
        )
    return pattern


def check_names(topics: Sequence[object]) -> None:
    """Refuse lists of names, which other clients accept, and invalid names."""
    for one in topics:
        if not isinstance(one, str | bytes):
            kind = type(one).__name__
            raise TypeError(
                f"a topic name must be a str, not {kind}: pass several names as subscribe(*topics)"
            )
        checked_name(one)
