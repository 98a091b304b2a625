"""What a consumer subscribes to: topics by name, or by a pattern that somebody matches.

Invariant: a subscription does not change, and is by names or by one pattern. A pattern of Python is
matched here, against whole names, in every group; one for the broker is in RE2's syntax and is the
broker's alone, which needs group.protocol=consumer.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ottla.client.group.interfaces import Rebalance
from ottla.client.topic_name import checked_name
from ottla.ids import TopicPartition

Callback: TypeAlias = Callable[[frozenset[TopicPartition], Rebalance], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class BrokerPattern:
    """A pattern of whole names of topics in the syntax of RE2, which brokers match (KIP-848).

    The client need not know all topics then, and the broker decides which of them it may see.
    """

    expression: str

    def __post_init__(self) -> None:
        if not self.expression:
            raise ValueError("a BrokerPattern without an expression matches no topic")


Pattern: TypeAlias = str | re.Pattern[str] | BrokerPattern
"""As an application gives one; text is taken for a pattern of Python."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a consumer wants to read, and who hears of partitions that come and go."""

    names: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | BrokerPattern | None = None
    on_assigned: Callback | None = None
    on_revoked: Callback | None = None
    on_lost: Callback | None = None
    """Without it `on_revoked` hears of what was lost."""

    @property
    def broker_pattern(self) -> str | None:
        """What the broker matches, if it does."""
        return self.pattern.expression if isinstance(self.pattern, BrokerPattern) else None


def compiled(pattern: Pattern, *, is_modern: bool) -> re.Pattern[str] | BrokerPattern:
    """A pattern that can be matched; ValueError where the group's protocol has none for brokers."""
    if not isinstance(pattern, BrokerPattern):
        return re.compile(pattern)
    if not is_modern:
        raise ValueError(
            "a BrokerPattern needs group.protocol=consumer; in a classic group give the pattern as "
            "text or compiled by re, which the client matches"
        )
    return pattern


def check_names(topics: Sequence[object]) -> None:
    """Refuse lists of names, which other clients take, and what is no name."""
    for one in topics:
        if not isinstance(one, str | bytes):
            kind = type(one).__name__
            raise TypeError(f"a topic is a name, and not a {kind}: subscribe(*topics) takes many")
        checked_name(one)
