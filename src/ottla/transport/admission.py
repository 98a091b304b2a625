"""Who may open another connection.

Invariant: the counts are those of the connections that were let in and have not left; a
connection that is refused counts nowhere. What is allowed is asked for each time, so that changed
settings count for the next connection. One that is exempt counts, and is refused for its address
alone.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from ottla.settings import broker
from ottla.settings.config import Config
from ottla.settings.endpoints import connections_by_address
from ottla.settings.values import INT_MAX


@dataclass(frozen=True, slots=True)
class AdmissionConfig:
    """How many connections there may be; the defaults are Kafka's."""

    connections_max: int = INT_MAX
    per_address_max: int = INT_MAX
    per_address_overrides: Mapping[str, int] = field(default_factory=dict[str, int])
    per_second_max: int = INT_MAX

    @classmethod
    def of(cls, config: Config) -> Self:
        """What a broker's configuration says."""
        return cls(
            config[broker.MAX_CONNECTIONS],
            config[broker.MAX_CONNECTIONS_PER_IP],
            connections_by_address(config),
            config[broker.MAX_CONNECTION_CREATION_RATE],
        )

    @classmethod
    def of_listener(cls, config: Config, name: str) -> Self:
        """What it says of one listener alone."""
        own = config.listener(name)
        return cls(
            connections_max=own[broker.MAX_CONNECTIONS],
            per_second_max=own[broker.MAX_CONNECTION_CREATION_RATE],
        )


class Refusal(NamedTuple):
    """Why a connection is not let in."""

    why: str
    for_good: bool  # or it may wait until others have left, as with Kafka


class Admission:
    """Counts the connections of a broker, or of one of its listeners, who asks the broker's too."""

    def __init__(
        self,
        rules: Callable[[], AdmissionConfig],
        above: "Admission | None" = None,
        *,
        exempt: bool = False,
    ) -> None:
        self._rules = rules
        self._above = above
        self._exempt = exempt  # from what holds for all listeners, except for one address
        self._by_address: Counter[str] = Counter()
        self._second = -1
        self._in_second = 0

    @property
    def count(self) -> int:
        """The connections that there are."""
        return self._by_address.total()

    @property
    def excess(self) -> int:
        """How many there are too many: who is exempt has come, or less are allowed by now."""
        return max(self.count - self._rules().connections_max, 0)

    def enter(self, address: str, elapsed_s: float, *, exempt: bool = False) -> Refusal | None:
        """Let a connection in; or the reason why it may not, or not yet."""
        rules = self._rules()
        limit = rules.per_address_overrides.get(address, rules.per_address_max)
        if self._by_address[address] >= limit:
            why = f"max.connections.per.ip={limit} is reached for {address}"
            return Refusal(why, for_good=True)
        if not exempt and self.count >= rules.connections_max:
            why = f"max.connections={rules.connections_max} is reached"
            return Refusal(why, for_good=False)
        if int(elapsed_s) != self._second:
            self._second, self._in_second = int(elapsed_s), 0
        if not exempt and self._in_second >= rules.per_second_max:
            why = f"max.connection.creation.rate={rules.per_second_max} is reached"
            return Refusal(why, for_good=False)
        if self._above is not None:
            refused = self._above.enter(address, elapsed_s, exempt=self._exempt)
            if refused is not None:
                return refused
        self._in_second += not exempt
        self._by_address[address] += 1
        return None

    def leave(self, address: str) -> None:
        """A connection that was let in is gone."""
        if self._above is not None:
            self._above.leave(address)
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
