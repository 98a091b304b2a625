"""Setting, one row per setting, and ConfigDef, all rows of one scope.

Invariant: a ConfigDef contains a name once: as a supported setting, as an ignored one, or as an
unsupported one. Rows are immutable.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar, cast, overload

from ottla.settings.config_types import BOOLEAN, INT, LONG, PASSWORD, SHORT, BadValue, ConfigType
from ottla.settings.validators import Validator

T = TypeVar("T")
V = TypeVar("V")

Scope = Literal["broker", "topic", "producer", "consumer", "admin"]


class Dynamic(Enum):
    """How a setting of a running broker can be changed. Clients read their settings once."""

    READ_ONLY = "read-only"  # requires a restart
    PER_BROKER = "per-broker"  # for single brokers
    CLUSTER_WIDE = "cluster-wide"  # for single brokers, or as the default of all brokers


READ_ONLY: Final = Dynamic.READ_ONLY
PER_BROKER: Final = Dynamic.PER_BROKER
CLUSTER_WIDE: Final = Dynamic.CLUSTER_WIDE


class Required:
    """Marks a setting without a default: the user must set it."""

    __slots__ = ()


REQUIRED: Final = Required()


class Setting(Generic[T]):
    """A supported setting. Its value has the type T: `config[NUM_PARTITIONS]` is an int.

    Null is valid only if the default is None. `kafka_default` is Kafka's default as text, set only
    where Ottla's differs. `falls_back` of a topic setting lists the broker settings that provide
    its default, in order of precedence. `no_effect` is the reason why Ottla accepts a value and
    does not use it; it is empty for a setting that is in use.
    """

    __slots__ = (
        "_validator",
        "default",
        "doc",
        "dynamic",
        "falls_back",
        "kafka_default",
        "kind",
        "name",
        "no_effect",
        "per_listener",
    )

    @overload
    def __init__(
        self: "Setting[V]",
        name: str,
        kind: ConfigType[V],
        default: V | Required,
        validator: Validator[V] | None = None,
        *,
        doc: str,
        dynamic: Dynamic = READ_ONLY,
        per_listener: bool = False,
        falls_back: "tuple[Setting[V] | Setting[V | None] | Fallback, ...]" = (),
        kafka_default: str | None = None,
        no_effect: str = "",
    ) -> None: ...
    @overload
    def __init__(
        self: "Setting[V | None]",
        name: str,
        kind: ConfigType[V],
        default: None,
        validator: Validator[V] | None = None,
        *,
        doc: str,
        dynamic: Dynamic = READ_ONLY,
        per_listener: bool = False,
        kafka_default: str | None = None,
        no_effect: str = "",
    ) -> None: ...
    def __init__(
        self,
        name: str,
        kind: ConfigType[Any],
        default: Any,
        validator: Validator[Any] | None = None,
        *,
        doc: str,
        dynamic: Dynamic = READ_ONLY,
        per_listener: bool = False,
        falls_back: "tuple[Setting[Any] | Fallback, ...]" = (),
        kafka_default: str | None = None,
        no_effect: str = "",
    ) -> None:
        self.name: Final = name
        self.kind: Final = kind
        self.default: Final[T | Required] = default
        self._validator: Final = validator
        self.doc: Final = doc
        self.dynamic: Final = dynamic
        self.per_listener: Final = per_listener
        self.falls_back: Final[tuple[Fallback, ...]] = tuple(
            each if isinstance(each, Fallback) else Fallback(each) for each in falls_back
        )
        self.kafka_default: Final = kafka_default
        self.no_effect: Final = no_effect

    def __repr__(self) -> str:
        return f"Setting({self.name})"

    @property
    def nullable(self) -> bool:
        """Whether null is a valid value."""
        return self.default is None

    @property
    def sensitive(self) -> bool:
        """Whether the value is secret and must not be shown."""
        return self.kind is PASSWORD

    @property
    def keyword(self) -> str:
        """The name as a Python keyword argument, for example linger_ms."""
        return self.name.replace(".", "_")

    @property
    def range_text(self) -> str:
        """The valid values as Kafka prints them; empty if every value of the type is valid."""
        return str(self._validator) if self._validator else ""

    @property
    def valid_text(self) -> str:
        """The type and the valid values, for error messages."""
        if self.kind is BOOLEAN:
            return "boolean, true or false"
        if self._validator is not None:
            return self._validator.expected(self.kind.name)
        return "an integer" if self.kind in (SHORT, INT, LONG) else self.kind.name

    def parse(self, text: str) -> T:
        """Parse and validate text. Raises BadValue."""
        return self._validate(self.kind.parse(text))

    def convert(self, value: object) -> T:
        """Convert and validate a Python object; a str is parsed. Raises BadValue."""
        if value is None:
            if not self.nullable:
                raise BadValue
            return cast("T", None)
        return self._validate(self.kind.convert(value))

    def format(self, value: T) -> str | None:
        """Return the value as Kafka formats it; None for null, [hidden] for a secret."""
        return None if value is None else self.kind.format(value)

    @property
    def default_text(self) -> str | None:
        """The default as text; None for null. Not allowed on a required setting."""
        assert not isinstance(self.default, Required), f"{self.name} has no default"
        return self.format(self.default)

    def but(self, default: T) -> "Setting[T]":
        """Return a copy of the row with another default."""
        return self._copy(default, ())

    def for_topic(self) -> "Setting[T]":
        """Return a copy for topics that falls back to this broker setting."""
        return self._copy(self.default, (self,))

    def _copy(self, default: T | Required, falls_back: "tuple[Setting[T], ...]") -> "Setting[T]":
        row = Setting[Any](
            self.name,
            self.kind,
            default,
            self._validator,
            doc=self.doc,
            dynamic=self.dynamic,
            per_listener=self.per_listener,
            falls_back=falls_back,
            no_effect=self.no_effect,
        )
        return cast("Setting[T]", row)

    def _validate(self, value: Any) -> T:
        return self._validator.validate(value) if self._validator else value


class Fallback(NamedTuple):
    """A broker setting that provides the default of a topic setting.

    `unit_ms` is the length of the broker setting's unit in milliseconds.
    """

    setting: Setting[Any]
    unit_ms: int = 1

    def convert(self, value: object) -> object:
        """Convert the broker's value to the unit of the topic. Negative means unlimited."""
        if self.unit_ms == 1:
            return value
        assert isinstance(value, int)
        return value * self.unit_ms if value >= 0 else -1


def in_minutes(setting: Setting[int] | Setting[int | None]) -> Fallback:
    """Fall back to a setting in minutes, where the topic setting is in milliseconds."""
    return Fallback(setting, 60_000)


def in_hours(setting: Setting[int] | Setting[int | None]) -> Fallback:
    """Fall back to a setting in hours, where the topic setting is in milliseconds."""
    return Fallback(setting, 3_600_000)


class Ignored(NamedTuple):
    """A setting that is accepted and has no effect. A name that ends in `.*` is a prefix.

    Ottla logs a warning. Unlike a Setting with `no_effect`, it has no type and no default.
    """

    name: str
    reason: str

    def __str__(self) -> str:
        return ignored_text(self.reason)


def ignored_text(reason: str) -> str:
    """Return the warning about a setting that has no effect."""
    return f"ignored: {reason}"


class Unsupported(NamedTuple):
    """A setting of Kafka that Ottla does not support. A name that ends in `.*` is a prefix.

    The values in `harmless` request what Ottla does anyway and are accepted, for example
    remote.log.storage.system.enable=false.
    """

    name: str
    reason: str
    instead: str = ""
    harmless: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"not supported: {self.reason}" + (f"; {self.instead}" if self.instead else "")


Row = Setting[Any] | Ignored | Unsupported


class ConfigDef:
    """All settings of one scope: supported, ignored and unsupported.

    If two supported settings have one name, the last applies: a client lists its own defaults after
    the shared rows.
    """

    __slots__ = ("_names", "_prefixes", "ignored", "scope", "settings", "unsupported")

    def __init__(
        self,
        scope: Scope,
        settings: Iterable[Setting[Any]],
        *,
        ignored: Iterable[Ignored],
        unsupported: Iterable[Unsupported],
    ) -> None:
        self.scope: Final = scope
        self.settings: Final[Mapping[str, Setting[Any]]] = {row.name: row for row in settings}
        self.ignored: Final = tuple(ignored)
        self.unsupported: Final = tuple(unsupported)
        others = (*self.ignored, *self.unsupported)
        self._prefixes: Final = tuple(row for row in others if row.name.endswith(".*"))
        self._names: Final[dict[str, Row]] = {**self.settings, **{row.name: row for row in others}}
        assert len(self._names) == len(self.settings) + len(others), f"{scope}: duplicate name"

    def find(self, name: str) -> Row | None:
        """Return the row of a name; None for an unknown name."""
        if row := self._names.get(name):
            return row
        return next((row for row in self._prefixes if name.startswith(row.name[:-1])), None)

    def __contains__(self, setting: Setting[Any]) -> bool:
        return setting.name in self.settings

    @property
    def names(self) -> Iterable[str]:
        """The names of all rows."""
        return self._names.keys()


def settings_in(module: Mapping[str, object]) -> tuple[Setting[Any], ...]:
    """Return the settings that a module declares as constants, in order of declaration."""
    rows = [cast("Setting[Any]", each) for each in module.values() if isinstance(each, Setting)]
    return tuple(rows)
