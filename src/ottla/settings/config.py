"""Config: the values of the settings of one scope.

Invariant: a Config is immutable, and every value in it is valid. A setting without a value has
its default.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar, cast

from ottla.settings.config_def import ConfigDef, Required, Setting
from ottla.settings.invalid_settings import Origin, Problem

T = TypeVar("T")

LISTENER_PREFIX: Final = "listener.name."


class Given(NamedTuple):
    """A value that was set, and its origin. A password is a Secret, so a Given can be printed."""

    value: object
    origin: Origin | None = None


class Config:
    """The values of one scope: `config[NUM_PARTITIONS]` is an int, also to the type checker.

    `given` holds the values that were set, by full name; on a broker the name can begin with
    listener.name.<listener>. `notices` are warnings to log at startup.
    """

    __slots__ = ("given", "notices", "table")

    def __init__(
        self, table: ConfigDef, given: Mapping[str, Given], notices: tuple[Problem, ...] = ()
    ) -> None:
        self.table: Final = table
        self.given: Final[Mapping[str, Given]] = MappingProxyType(dict(given))
        self.notices: Final = notices

    def __repr__(self) -> str:
        return f"Config({self.table.scope}, {len(self.given)} given)"

    def __getitem__(self, setting: Setting[T]) -> T:
        """Return the value of a setting, which must be of this scope."""
        given = self.given.get(setting.name)
        if given is not None:
            return cast("T", given.value)
        default = self.table.settings[setting.name].default
        assert not isinstance(default, Required), f"{setting.name} is required and not set"
        return cast("T", default)

    def is_set(self, setting: Setting[Any]) -> bool:
        """Whether the value was set, even if it equals the default."""
        return setting.name in self.given

    def origin(self, setting: Setting[Any]) -> Origin | None:
        """Return where the value was set; None if it was not set or has no origin."""
        given = self.given.get(setting.name)
        return given.origin if given else None

    def text(self, setting: Setting[Any]) -> str | None:
        """Return the value as Kafka formats it; None for null, [hidden] for a secret."""
        return setting.format(self[setting])

    def listener(self, name: str, mechanism: str | None = None) -> "Config":
        """Return the configuration of one listener, or of one SASL mechanism on it.

        A value of the mechanism overrides the listener's, which overrides the broker's.
        """
        prefixes = [f"{LISTENER_PREFIX}{name.lower()}."]
        if mechanism is not None:
            prefixes.append(f"{prefixes[0]}{mechanism.lower()}.")
        given = dict(self.given)
        for prefix in prefixes:
            for setting in self.table.settings.values():
                if setting.per_listener and (own := self.given.get(prefix + setting.name)):
                    given[setting.name] = own
        return Config(self.table, given, self.notices)


class ListenerName(NamedTuple):
    """The parts of the name of a listener setting."""

    listener: str
    mechanism: str | None
    setting: str

    def __str__(self) -> str:
        middle = f"{self.mechanism}." if self.mechanism else ""
        return f"{LISTENER_PREFIX}{self.listener}.{middle}{self.setting}"


def split_listener_name(name: str, mechanisms: tuple[str, ...]) -> ListenerName | None:
    """Split listener.name.<listener>.[<mechanism>.]<setting>; None for any other name.

    Listener and mechanism are returned in lower case.
    """
    if not name.startswith(LISTENER_PREFIX):
        return None
    listener, _, rest = name[len(LISTENER_PREFIX) :].partition(".")
    if not listener or not rest:
        return None
    first, _, after = rest.partition(".")
    if after and first.upper() in mechanisms:
        return ListenerName(listener.lower(), first.lower(), after)
    return ListenerName(listener.lower(), None, rest)
