"""A configuration: the values of one table's settings, typed by their rows.

Invariant: a configuration never changes, and every value in it has passed its row. What was not
given is the row's default.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar, cast

from ottla.settings.config_def import ConfigDef, Required, Setting
from ottla.settings.invalid_settings import Origin, Problem

T = TypeVar("T")

LISTENER_PREFIX: Final = "listener.name."


class Given(NamedTuple):
    """A value that somebody gave, and where. A password is a Secret, so this may be printed."""

    value: object
    origin: Origin | None = None


class Config:
    """Values of one scope: `config[NUM_PARTITIONS]` is an int, to the type checker too.

    `given` holds what was given, under its full name (a broker's may begin with
    listener.name.<listener>.). `notices` are what the user should be told at start.
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
        """The value of a setting of this scope; a row of another is an error of the caller."""
        given = self.given.get(setting.name)
        if given is not None:
            return cast("T", given.value)
        default = self.table.settings[setting.name].default
        assert not isinstance(default, Required), f"{setting.name} is required and was not given"
        return cast("T", default)

    def is_set(self, setting: Setting[Any]) -> bool:
        """True when somebody gave the value, even if it equals the default."""
        return setting.name in self.given

    def origin(self, setting: Setting[Any]) -> Origin | None:
        """Where the value was given, if it was and if that has a place."""
        given = self.given.get(setting.name)
        return given.origin if given else None

    def text(self, setting: Setting[Any]) -> str | None:
        """The value as Kafka writes it; None for null, and a secret only says that it is one."""
        return setting.format(self[setting])

    def listener(self, name: str, mechanism: str | None = None) -> "Config":
        """The configuration as one listener sees it, and one SASL mechanism on it.

        The mechanism's value counts before the listener's, and that before the broker's.
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
    """The name of a setting of one listener, taken apart."""

    listener: str
    mechanism: str | None
    setting: str

    def __str__(self) -> str:
        middle = f"{self.mechanism}." if self.mechanism else ""
        return f"{LISTENER_PREFIX}{self.listener}.{middle}{self.setting}"


def split_listener_name(name: str, mechanisms: tuple[str, ...]) -> ListenerName | None:
    """The parts of listener.name.<listener>.[<mechanism>.]<setting>; None for any other name.

    Listener and mechanism are lower case in the result, however they were written.
    """
    if not name.startswith(LISTENER_PREFIX):
        return None
    listener, _, rest = name[len(LISTENER_PREFIX) :].partition(".")
    if not listener or not rest:
        return None
    first, _, behind = rest.partition(".")
    if behind and first.upper() in mechanisms:
        return ListenerName(listener.lower(), first.lower(), behind)
    return ListenerName(listener.lower(), None, rest)
