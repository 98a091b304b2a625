"""Parses entries to a Config, or raises InvalidSettings with all problems.

Invariant: a Config is returned only if every entry is known, valid and consistent with the others.
Settings without effect are reported in the notices; they never stop the start of a broker.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ottla.settings import broker, security
from ottla.settings.admin import ADMIN
from ottla.settings.broker import BROKER, BROKER_ID, NODE_ID
from ottla.settings.checks import NOT_SUPPORTED_YET, Check, findings
from ottla.settings.config import Config, Given, ListenerName, split_listener_name
from ottla.settings.config_def import (
    PER_BROKER,
    READ_ONLY,
    ConfigDef,
    Dynamic,
    Ignored,
    Required,
    Setting,
    Unsupported,
    ignored_text,
)
from ottla.settings.config_types import HIDDEN, LIST, BadValue, Secret
from ottla.settings.consumer import CONSUMER
from ottla.settings.invalid_settings import InvalidSettings, Problem, invalid, quoted
from ottla.settings.producer import PRODUCER
from ottla.settings.properties import Entry, Properties, read_override
from ottla.settings.topic import TOPIC

HINTS_MAX: Final = 10
HINT_CHARACTERS_MAX: Final = 100
DYNAMIC_SETTINGS_MAX: Final = 1000  # clients can invent names below an ignored prefix
VALUE_BYTES_MAX: Final = 0x7FFF  # the longest string in a DescribeConfigs response

TABLES: Final = (BROKER, TOPIC, PRODUCER, CONSUMER, ADMIN)


def broker_config(properties: Properties | None = None, overrides: Iterable[str] = ()) -> Config:
    """Return a broker's config from its file and `--override key=value`, which has precedence."""
    properties = properties or Properties()
    entries = list(properties.entries)
    problems = list(properties.problems)
    for text in overrides:
        try:
            entries.append(read_override(text))
        except InvalidSettings as error:
            problems += error.problems
    return _broker_config(Properties(tuple(entries), tuple(problems), properties.notices))


def broker_config_of(settings: Mapping[str, object]) -> Config:
    """Return a broker's config from a mapping {"num.partitions": 3}."""
    return _broker_config(Properties(tuple(Entry(name, value) for name, value in settings.items())))


def _broker_config(properties: Properties) -> Config:
    config = resolve(
        BROKER,
        properties.entries,
        problems=properties.problems,
        notices=properties.notices,
        more_checks=NOT_SUPPORTED_YET,
    )
    return _with_both_broker_ids(config)


def _with_both_broker_ids(config: Config) -> Config:
    """Set both node.id and broker.id if one of them is set."""
    given = dict(config.given)
    for name, other in ((NODE_ID.name, BROKER_ID.name), (BROKER_ID.name, NODE_ID.name)):
        if name in given and other not in given and given[name].value != BROKER_ID.default:
            given[other] = given[name]
    return Config(BROKER, given, config.notices)


def client_config(
    table: ConfigDef, settings: Mapping[str, object] | None = None, /, **arguments: object
) -> Config:
    """Return a client's config from a mapping {"linger.ms": 5} and keywords linger_ms=5."""
    if not isinstance(settings, Mapping | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        servers = settings if isinstance(settings, str) else "127.0.0.1:9092"
        example = f'{{"bootstrap.servers": "{servers}"}}'
        raise TypeError(
            f"settings must be a mapping such as {example}, not {type(settings).__name__}"
        )
    entries = [Entry(name, value) for name, value in (settings or {}).items()]
    problems: list[Problem] = []
    for argument, value in arguments.items():
        name = argument.replace("_", ".")
        if settings and name in settings:
            problems.append(Problem(name, f"set twice, also as keyword argument {argument}"))
        entries.append(Entry(name, value))
    return resolve(table, entries, problems=problems)


def topic_overrides(values: Mapping[str, object], *, hints_max: int = HINTS_MAX) -> Config:
    """Return the config that a topic sets; DynamicBrokerConfig.topic adds the defaults."""
    entries = (Entry(name, value) for name, value in values.items())
    return resolve(TOPIC, entries, hints_max=hints_max)


def dynamic_config(values: Mapping[str, object], level: Dynamic) -> Config:
    """Return the dynamic config of one broker (PER_BROKER) or of all (CLUSTER_WIDE).

    DynamicBrokerConfig checks the consistency of the values of all sources.
    """
    assert level is not READ_ONLY
    if len(values) > DYNAMIC_SETTINGS_MAX:
        what = f"{len(values)} dynamic settings exceed the maximum of {DYNAMIC_SETTINGS_MAX}"
        raise InvalidSettings([Problem("", what)])
    reading = _Reading(BROKER, level)
    reading.read(Entry(name, value) for name, value in values.items())
    return reading.config()


def resolve(
    table: ConfigDef,
    entries: Iterable[Entry],
    *,
    problems: Iterable[Problem] = (),
    notices: Iterable[Problem] = (),
    more_checks: Iterable[Check] = (),
    hints_max: int = HINTS_MAX,
) -> Config:
    """Return the config of entries; the last entry of a name applies.

    `problems` and `notices` of an earlier step are reported together with those found here.
    """
    reading = _Reading(table)
    reading.hints_left = hints_max
    reading.problems += problems
    reading.notices += notices
    reading.read(entries)
    reading.check(more_checks)
    return reading.config()


def checked(config: Config) -> Config:
    """Return the config. Raises InvalidSettings if its values are inconsistent."""
    reading = _Reading(config.table)
    reading.given = dict(config.given)
    reading.check()
    return reading.config()


class _Reading:
    """One pass over entries: the values and the problems so far."""

    def __init__(self, table: ConfigDef, level: Dynamic | None = None) -> None:
        self.table = table
        self.level = level
        self.given: dict[str, Given] = {}
        self.broken: set[str] = set()
        self.problems: list[Problem] = []
        self.notices: list[Problem] = []
        self.hints_left = HINTS_MAX

    def read(self, entries: Iterable[Entry]) -> None:
        last = {entry.name: entry for entry in entries}
        for entry in last.values():
            self._read_one(entry)

    def config(self) -> Config:
        if self.problems:
            raise InvalidSettings(_by_line(self.problems))
        return Config(self.table, self.given, _by_line(self.notices))

    def check(self, more: Iterable[Check] = ()) -> None:
        """Add problems for missing required settings and inconsistent values."""
        for setting in self.table.settings.values():
            missing = isinstance(setting.default, Required) and setting.name not in self.given
            if missing and setting.name not in self.broken:
                what = f"required setting is missing: expected {setting.valid_text}"
                self.problems.append(Problem(setting.name, what))
                self.broken.add(setting.name)
        config = Config(self.table, self.given)
        for finding in findings(config, more):
            if any(setting.name in self.broken for setting in finding.settings):
                continue
            name = finding.name or finding.settings[0].name
            if finding.name:
                origin = self.given[name].origin
            else:
                origins = (config.origin(setting) for setting in finding.settings)
                origin = next(filter(None, origins), None)
            into = self.notices if finding.only_warn else self.problems
            into.append(Problem(name, finding.what, origin))

    def _read_one(self, entry: Entry) -> None:
        listener = self._listener_name(entry.name)
        name = str(listener) if listener else entry.name
        row = self.table.find(listener.setting if listener else name)
        match row:
            case None:
                self._fail(entry, name, self._unknown(name, listener))
            case Setting():
                self._take(entry, name, row, listener)
            case Ignored():
                self._accept(entry, name, row)
            case Unsupported():
                if _plain(entry.value) not in row.harmless:
                    self._fail(entry, name, str(row))

    def _listener_name(self, name: str) -> ListenerName | None:
        if self.table is not BROKER:
            return None
        return split_listener_name(name, security.MECHANISMS)

    def _take(
        self, entry: Entry, name: str, setting: Setting[Any], listener: ListenerName | None
    ) -> None:
        if listener and not setting.per_listener:
            self._fail(entry, name, f"{setting.name} cannot be set per listener")
        elif listener and listener.mechanism and not _per_mechanism(setting):
            self._fail(entry, name, f"{setting.name} cannot be set per SASL mechanism")
        elif self.level and (hindrance := _not_dynamic(setting, self.level)):
            self._fail(entry, name, hindrance)
        elif self._is_described(setting) and _is_long(entry.value):
            self._fail(entry, name, f"value is longer than {VALUE_BYTES_MAX:,} bytes")
        else:
            if setting.no_effect:
                self.notices.append(Problem(name, ignored_text(setting.no_effect), entry.origin))
            try:
                self.given[name] = Given(setting.convert(entry.value), entry.origin)
                if setting.kind is LIST and (repeated := _repeated(entry.value)):
                    what = f"duplicate entries are ignored: {', '.join(repeated)}"
                    self.notices.append(Problem(name, what, entry.origin))
            except BadValue as bad:
                if setting.no_effect and not self.level:
                    return  # no value of the file matters here; Kafka validates dynamic ones
                shown = HIDDEN if setting.sensitive else _shown(entry.value)
                problem = invalid(name, shown, setting.valid_text, entry.origin, note=bad.note)
                self.problems.append(problem)
                self.broken.add(setting.name)

    def _is_described(self, setting: Setting[Any]) -> bool:
        """Whether a DescribeConfigs response contains the value."""
        return self.table in (BROKER, TOPIC) and not setting.sensitive

    def _accept(self, entry: Entry, name: str, row: Ignored) -> None:
        self.notices.append(Problem(name, str(row), entry.origin))
        if self.table is BROKER:
            # Its type is unknown, so the value may be a password.
            self.given[name] = Given(Secret(_plain(entry.value)), entry.origin)

    def _fail(self, entry: Entry, name: str, what: str) -> None:
        self.problems.append(Problem(name, what, entry.origin))

    def _unknown(self, name: str, listener: ListenerName | None) -> str:
        """Return the problem text for an unknown name. It does not contain the value."""
        if listener:
            return "unknown listener setting" + self._hint(
                listener.setting, self._per_listener_names()
            )
        for other in TABLES:
            if name in other.settings and other is not self.table:
                return f"{other.scope} setting, not valid for the {self.table.scope}" + (
                    self._instead_of(other.settings[name])
                )
        return "unknown setting" + self._hint(name, self.table.names)

    def _hint(self, name: str, known: Iterable[str]) -> str:
        """Suggest a similar name. The search is slow, so the number of hints is limited."""
        if not self.hints_left or len(name) > HINT_CHARACTERS_MAX:
            return ""
        self.hints_left -= 1
        return _nearest(name, known)

    def _instead_of(self, foreign: Setting[Any]) -> str:
        """Return a hint to the setting of this scope with the same meaning, if there is one."""
        for fallback in foreign.falls_back:
            if fallback.setting in self.table:
                return f"; the {self.table.scope} setting is {fallback.setting.name}"
        for row in self.table.settings.values():
            if foreign.name in (fallback.setting.name for fallback in row.falls_back):
                return f"; the {self.table.scope} setting is {row.name}"
        return ""

    def _per_listener_names(self) -> Iterator[str]:
        return (row.name for row in self.table.settings.values() if row.per_listener)


def _by_line(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the problems once each, in the order of their lines; others follow."""

    def place(problem: Problem) -> tuple[bool, int]:
        line = problem.origin.line if problem.origin else 0
        return line == 0, line

    return tuple(sorted(dict.fromkeys(problems), key=place))


def _per_mechanism(setting: Setting[Any]) -> bool:
    return setting.name.startswith("sasl.") or setting is broker.CONNECTIONS_MAX_REAUTH_MS


def _not_dynamic(setting: Setting[Any], level: Dynamic) -> str:
    """Return why a setting cannot be changed at a level; empty if it can."""
    if setting.dynamic is READ_ONLY:
        return "cannot be changed at runtime; set it in the file and restart the broker"
    if setting.dynamic is PER_BROKER and level is not PER_BROKER:
        return "can only be changed for a single broker, not for all brokers"
    return ""


def _plain(value: object) -> str:
    """Return a value as text, to compare it with the harmless ones."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case list() | tuple():
            return ",".join(map(str, value))  # pyright: ignore[reportUnknownArgumentType]
        case _:
            return str(value).strip()


def _is_long(value: object) -> bool:
    if not isinstance(value, str):
        return False
    return len(value.encode(errors="surrogatepass")) > VALUE_BYTES_MAX


def _shown(value: object) -> str:
    return quoted(value if isinstance(value, str) else repr(value))


def _repeated(value: object) -> list[str]:
    """Return the duplicate entries of a list."""
    entries = [one.strip() for one in value.split(",")] if isinstance(value, str) else []
    return [one for one, count in Counter(entries).items() if count > 1]


def _nearest(name: str, known: Iterable[str]) -> str:
    # Imported here, because it is needed only for an error and slows the start down.
    from difflib import get_close_matches

    spelled = name.lower().replace("_", ".")
    matches = get_close_matches(spelled, list(known), n=1, cutoff=0.75)
    return f", did you mean {matches[0]}?" if matches else ""
