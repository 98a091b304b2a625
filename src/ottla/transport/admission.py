"""Who may open another connection.

Invariant: the counts are those of the connections that were let in and have not left; a
connection that is refused counts nowhere. What is allowed is asked for each time, so that changed
settings count for the next connection.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

from ottla.settings import broker
from ottla.settings.config import Config
from ottla.settings.values import INT_MAX


@dataclass(frozen=True, slots=True)
class AdmissionRules:
    """How many connections there may be; the defaults are Kafka's."""

    connections_max: int = INT_MAX
    per_address_max: int = INT_MAX
    per_address_overrides: Mapping[str, int] = field(default_factory=dict[str, int])
    per_second_max: int = INT_MAX

    @classmethod
    def of(cls, config: Config) -> Self:
        """What a broker's configuration says."""
        text = config[broker.MAX_CONNECTIONS_PER_IP_OVERRIDES]
        pairs = (one.strip().rpartition(":") for one in text.split(",") if one.strip())
        return cls(
            config[broker.MAX_CONNECTIONS],
            config[broker.MAX_CONNECTIONS_PER_IP],
            {host: int(count) for host, _, count in pairs},
            config[broker.MAX_CONNECTION_CREATION_RATE],
        )


class Admission:
    """Counts the connections of a broker, over all its listeners."""

    def __init__(self, rules: Callable[[], AdmissionRules]) -> None:
        self._rules = rules
        self._by_address: Counter[str] = Counter()
        self._second = -1
        self._in_second = 0

    @property
    def count(self) -> int:
        """The connections that there are."""
        return self._by_address.total()

    def enter(self, address: str, elapsed_s: float) -> str | None:
        """Let a connection in; or the reason why it may not."""
        rules = self._rules()
        if self.count >= rules.connections_max:
            return f"max.connections={rules.connections_max} is reached"
        limit = rules.per_address_overrides.get(address, rules.per_address_max)
        if self._by_address[address] >= limit:
            return f"max.connections.per.ip={limit} is reached for {address}"
        if int(elapsed_s) != self._second:
            self._second, self._in_second = int(elapsed_s), 0
        if self._in_second >= rules.per_second_max:
            return f"max.connection.creation.rate={rules.per_second_max} is reached"
        self._in_second += 1
        self._by_address[address] += 1
        return None

    def leave(self, address: str) -> None:
        """A connection that was let in is gone."""
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
