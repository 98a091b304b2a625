"""A setting as one row, and the rows of one scope as a table.

Invariant: a name stands in a table once: as a setting that is honoured, as one that is accepted
without effect, or as one that is refused. A row never changes after import.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar, cast, overload

from ottla.settings.config_types import BOOLEAN, PASSWORD, BadValue, ConfigType
from ottla.settings.validators import Validator

T = TypeVar("T")
V = TypeVar("V")

Scope = Literal["broker", "topic", "producer", "consumer", "admin"]


class Dynamic(Enum):
    """What a running broker does with a change. Clients read their settings once, at start."""

    READ_ONLY = "read-only"  # takes a restart
    PER_BROKER = "per-broker"  # one broker at a time
    CLUSTER_WIDE = "cluster-wide"  # one broker, or all of them at once


READ_ONLY: Final = Dynamic.READ_ONLY
PER_BROKER: Final = Dynamic.PER_BROKER
CLUSTER_WIDE: Final = Dynamic.CLUSTER_WIDE


class Required:
    """In place of a default: whoever starts the thing has to say."""

    __slots__ = ()


REQUIRED: Final = Required()


class Setting(Generic[T]):
    """A setting that Ottla honours. Its value has the type T: `config[NUM_PARTITIONS]` is an int.

    A row whose default is None takes null; no other row does. `kafka_default` is Kafka's default
    as text, only where ours differs. `falls_back` is for topics: the broker settings that answer
    when the topic has no value of its own, strongest first.
    """

    __slots__ = (
        "_valid",
        "default",
        "doc",
        "dynamic",
        "falls_back",
        "kafka_default",
        "kind",
        "name",
        "per_listener",
    )

    @overload
    def __init__(
        self: "Setting[V]",
        name: str,
        kind: ConfigType[V],
        default: V | Required,
        valid: Validator[V] | None = None,
        *,
        doc: str,
        dynamic: Dynamic = READ_ONLY,
        per_listener: bool = False,
        falls_back: "tuple[Setting[V] | Setting[V | None] | Fallback, ...]" = (),
        kafka_default: str | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: "Setting[V | None]",
        name: str,
        kind: ConfigType[V],
        default: None,
        valid: Validator[V] | None = None,
        *,
        doc: str,
        dynamic: Dynamic = READ_ONLY,
        per_listener: bool = False,
        kafka_default: str | None = None,
    ) -> None: ...
    def __init__(
        self,
        name: str,
        kind: ConfigType[Any],
        default: Any,
        valid: Validator[Any] | None = None,
        *,
        doc: str,
        dynamic: Dynamic = READ_ONLY,
        per_listener: bool = False,
        falls_back: "tuple[Setting[Any] | Fallback, ...]" = (),
        kafka_default: str | None = None,
    ) -> None:
        self.name: Final = name
        self.kind: Final = kind
        self.default: Final[T | Required] = default
        self._valid: Final = valid
        self.doc: Final = doc
        self.dynamic: Final = dynamic
        self.per_listener: Final = per_listener
        self.falls_back: Final[tuple[Fallback, ...]] = tuple(
            each if isinstance(each, Fallback) else Fallback(each) for each in falls_back
        )
        self.kafka_default: Final = kafka_default

    def __repr__(self) -> str:
        return f"Setting({self.name})"

    @property
    def nullable(self) -> bool:
        """True when null is a value."""
        return self.default is None

    @property
    def sensitive(self) -> bool:
        """True when nobody may see the value."""
        return self.kind is PASSWORD

    @property
    def keyword(self) -> str:
        """The name as a Python keyword argument: linger_ms."""
        return self.name.replace(".", "_")

    @property
    def range_text(self) -> str:
        """The valid values as Kafka prints them; empty when the type alone decides."""
        return str(self._valid) if self._valid else ""

    @property
    def valid_text(self) -> str:
        """What a message calls valid: the type and the values."""
        values = "true or false" if self.kind is BOOLEAN else self.range_text
        return f"{self.kind.name}, {values}" if values else self.kind.name

    def parse(self, text: str) -> T:
        """The value of a text. Raises BadValue."""
        return self._admit(self.kind.parse(text))

    def convert(self, value: object) -> T:
        """The value of a Python object, a str being text. Raises BadValue."""
        if value is None:
            if not self.nullable:
                raise BadValue
            return cast("T", None)
        return self._admit(self.kind.convert(value))

    def format(self, value: T) -> str | None:
        """The value as Kafka writes it; None for null. Of a secret only that it is one."""
        return None if value is None else self.kind.format(value)

    @property
    def default_text(self) -> str | None:
        """The default as text; None for null. Not for a required setting."""
        assert not isinstance(self.default, Required), f"{self.name} has no default"
        return self.format(self.default)

    def but(self, default: T) -> "Setting[T]":
        """The same row with the default of another client."""
        return self._again(default, ())

    def for_topic(self) -> "Setting[T]":
        """The same row for topics, which the broker's of this name answers for."""
        return self._again(self.default, (self,))

    def _again(self, default: T | Required, falls_back: "tuple[Setting[T], ...]") -> "Setting[T]":
        row = Setting[Any](
            self.name,
            self.kind,
            default,
            self._valid,
            doc=self.doc,
            dynamic=self.dynamic,
            per_listener=self.per_listener,
            falls_back=falls_back,
        )
        return cast("Setting[T]", row)

    def _admit(self, value: Any) -> T:
        return self._valid.validate(value) if self._valid else value


class Fallback(NamedTuple):
    """A broker setting that answers for a topic, and the milliseconds in its unit if it is time."""

    setting: Setting[Any]
    unit_ms: int = 1

    def convert(self, value: object) -> object:
        """The broker's value in the unit of the topic. Below zero is "no limit" in any unit."""
        if self.unit_ms == 1:
            return value
        assert isinstance(value, int)
        return value * self.unit_ms if value >= 0 else -1


def in_minutes(setting: Setting[int] | Setting[int | None]) -> Fallback:
    """A fallback that counts minutes where the topic counts milliseconds."""
    return Fallback(setting, 60_000)


def in_hours(setting: Setting[int] | Setting[int | None]) -> Fallback:
    """A fallback that counts hours where the topic counts milliseconds."""
    return Fallback(setting, 3_600_000)


class Ignored(NamedTuple):
    """A setting of Kafka that is accepted so that its file works, and of which the user is told.

    `takes` limits what the value, a list, may say; a value beyond that asks for what is not there.
    """

    name: str
    reason: str
    takes: Validator[tuple[str, ...]] | None = None

    def __str__(self) -> str:
        return f"accepted, without effect here: {self.reason}"


class Unsupported(NamedTuple):
    """A setting of Kafka that Ottla does not have; a name that ends in `.*` is a family.

    A value in `harmless` asks for just what Ottla does anyway, so it passes: the file of someone
    who wrote out that remote storage is off still works.
    """

    name: str
    reason: str
    instead: str = ""
    harmless: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"not supported: {self.reason}" + (f"; {self.instead}" if self.instead else "")


Row = Setting[Any] | Ignored | Unsupported


class ConfigDef:
    """All names of one scope: honoured, accepted without effect, refused.

    Of two settings with one name the later counts: a client's own default comes after the rows
    it shares.
    """

    __slots__ = ("_families", "_names", "ignored", "scope", "settings", "unsupported")

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
        self._families: Final = tuple(row for row in self.unsupported if row.name.endswith(".*"))
        others = (*self.ignored, *self.unsupported)
        self._names: Final[dict[str, Row]] = {**self.settings, **{row.name: row for row in others}}
        assert len(self._names) == len(self.settings) + len(others), f"{scope}: a name twice"

    def find(self, name: str) -> Row | None:
        """The row of a name; None when nobody knows it."""
        if row := self._names.get(name):
            return row
        return next((row for row in self._families if name.startswith(row.name[:-1])), None)

    def __contains__(self, setting: Setting[Any]) -> bool:
        return setting.name in self.settings

    @property
    def names(self) -> Iterable[str]:
        """Every name the table knows, of whatever kind."""
        return self._names.keys()


def settings_in(module: Mapping[str, object]) -> tuple[Setting[Any], ...]:
    """The rows that a module declares as its constants, in the order it declares them."""
    rows = [cast("Setting[Any]", each) for each in module.values() if isinstance(each, Setting)]
    return tuple(rows)
