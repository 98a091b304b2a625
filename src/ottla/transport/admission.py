"""Decides whether a new connection is admitted: max.connections and its relatives.

Invariant: the counts are the connections that were admitted and have not left; a refused connection
is not counted. The limits are read each time, so a changed setting holds for the next connection.
An exempt connection is counted, and is refused only for the limit of its address.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from ottla.settings import broker
from ottla.settings.config import Config
from ottla.settings.config_types import INT_MAX
from ottla.settings.endpoints import connections_by_address


@dataclass(frozen=True, slots=True)
class AdmissionConfig:
    """Limits on connections; the defaults are Kafka's."""

    connections_max: int = INT_MAX
    per_address_max: int = INT_MAX
    per_address_overrides: Mapping[str, int] = field(default_factory=dict[str, int])
    per_second_max: int = INT_MAX

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the limits of a broker."""
        return cls(
            config[broker.MAX_CONNECTIONS],
            config[broker.MAX_CONNECTIONS_PER_IP],
            connections_by_address(config),
            config[broker.MAX_CONNECTION_CREATION_RATE],
        )

    @classmethod
    def of_listener(cls, config: Config, name: str) -> Self:
        """Return the limits of one listener."""
        own = config.listener(name)
        return cls(
            connections_max=own[broker.MAX_CONNECTIONS],
            per_second_max=own[broker.MAX_CONNECTION_CREATION_RATE],
        )


class Refusal(NamedTuple):
    """Why a connection is not admitted."""

    reason: str
    is_final: bool  # False: it may wait until others have left, as in Kafka


class Admission:
    """Counts the connections of a broker, or of one listener below the broker's admission."""

    def __init__(
        self,
        config: Callable[[], AdmissionConfig],
        parent: "Admission | None" = None,
        *,
        exempt: bool = False,
    ) -> None:
        self._config = config
        self._parent = parent
        self._exempt = exempt  # from the parent's limits, but for the one per address
        self._by_address: Counter[str] = Counter()
        self._second = -1
        self._in_second = 0

    @property
    def count(self) -> int:
        """The number of admitted connections."""
        return self._by_address.total()

    @property
    def excess(self) -> int:
        """How many connections are over the limit: exempt ones, or after it was lowered."""
        return max(self.count - self._config().connections_max, 0)

    def enter(self, address: str, elapsed_s: float, *, exempt: bool = False) -> Refusal | None:
        """Admit a connection, or return why it is refused."""
        config = self._config()
        limit = config.per_address_overrides.get(address, config.per_address_max)
        if self._by_address[address] >= limit:
            reason = f"max.connections.per.ip={limit} reached for {address}"
            return Refusal(reason, is_final=True)
        if not exempt and self.count >= config.connections_max:
            reason = f"max.connections={config.connections_max} reached"
            return Refusal(reason, is_final=False)
        if int(elapsed_s) != self._second:
            self._second, self._in_second = int(elapsed_s), 0
        if not exempt and self._in_second >= config.per_second_max:
            reason = f"max.connection.creation.rate={config.per_second_max} reached"
            return Refusal(reason, is_final=False)
        if self._parent is not None:
            refused = self._parent.enter(address, elapsed_s, exempt=self._exempt)
            if refused is not None:
                return refused
        self._in_second += not exempt
        self._by_address[address] += 1
        return None

    def leave(self, address: str) -> None:
        """Uncount a connection that was admitted."""
        if self._parent is not None:
            self._parent.leave(address)
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
