"""From what people wrote to a configuration, or to everything that is wrong with it.

Invariant: either every entry is valid, known and in harmony with the others, and a Config comes
back, or InvalidSettings carries one problem per thing to mend. Nothing is ignored in silence:
what has no effect is in the notices.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ottla.settings import broker, security
from ottla.settings.admin import ADMIN
from ottla.settings.broker import BROKER, BROKER_ID, NODE_ID
from ottla.settings.checks import findings
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
)
from ottla.settings.config_types import HIDDEN, LIST, BadValue
from ottla.settings.consumer import CONSUMER
from ottla.settings.invalid_settings import InvalidSettings, Problem, invalid, quoted
from ottla.settings.producer import PRODUCER
from ottla.settings.properties import Entry, Properties, read_override
from ottla.settings.topic import TOPIC

HINTS_MAX: Final = 10
HINT_CHARACTERS_MAX: Final = 100
VALUE_BYTES_MAX: Final = 0x7FFF  # what fits into a text of an answer

TABLES: Final = (BROKER, TOPIC, PRODUCER, CONSUMER, ADMIN)


def broker_config(properties: Properties | None = None, overrides: Iterable[str] = ()) -> Config:
    """A broker's configuration from its file and its `--override key=value`, which win."""
    properties = properties or Properties()
    entries = list(properties.entries)
    problems = list(properties.problems)
    for text in overrides:
        try:
            entries.append(read_override(text))
        except InvalidSettings as error:
            problems += error.problems
    return _under_both_names(
        resolve(BROKER, entries, problems=problems, notices=properties.notices)
    )


def _under_both_names(config: Config) -> Config:
    """With the broker's id as node.id and as broker.id, whichever was given."""
    given = dict(config.given)
    for name, other in ((NODE_ID.name, BROKER_ID.name), (BROKER_ID.name, NODE_ID.name)):
        if name in given and other not in given and given[name].value != BROKER_ID.default:
            given[other] = given[name]
    return Config(BROKER, given, config.notices)


def client_config(
    table: ConfigDef, settings: Mapping[str, object] | None = None, /, **arguments: object
) -> Config:
    """A client's configuration from {"linger.ms": 5}, from linger_ms=5, or from both."""
    if not isinstance(settings, Mapping | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        kind = type(settings).__name__
        raise TypeError(f'settings are a mapping, as {{"client.id": "me"}}, and not a {kind}')
    entries = [Entry(name, value) for name, value in (settings or {}).items()]
    problems: list[Problem] = []
    for argument, value in arguments.items():
        name = argument.replace("_", ".")
        if settings and name in settings:
            problems.append(Problem(name, f"given twice, the second time as {argument}="))
        entries.append(Entry(name, value))
    return resolve(table, entries, problems=problems)


def topic_overrides(values: Mapping[str, object]) -> Config:
    """What one topic sets for itself. Only what is given counts: see DynamicBrokerConfig.topic."""
    return resolve(TOPIC, (Entry(name, value) for name, value in values.items()))


def dynamic_config(values: Mapping[str, object], level: Dynamic) -> Config:
    """What a running broker is given: PER_BROKER for one, CLUSTER_WIDE as the default of all.

    Checks between settings run in DynamicBrokerConfig, on the values of all sources.
    """
    assert level is not READ_ONLY
    reading = _Reading(BROKER, level)
    reading.read(Entry(name, value) for name, value in values.items())
    return reading.config()


def resolve(
    table: ConfigDef,
    entries: Iterable[Entry],
    *,
    problems: Iterable[Problem] = (),
    notices: Iterable[Problem] = (),
) -> Config:
    """The configuration of entries, of which the last with a name counts.

    `problems` and `notices` are those of the reader, to be reported together with the rest.
    """
    reading = _Reading(table)
    reading.problems += problems
    reading.notices += notices
    reading.read(entries)
    reading.check()
    return reading.config()


def checked(config: Config) -> Config:
    """The same configuration, or InvalidSettings if its values do not go together."""
    reading = _Reading(config.table)
    reading.given = dict(config.given)
    reading.check()
    return reading.config()


class _Reading:
    """One pass over entries: what was given so far, and what was wrong with the rest."""

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
            raise InvalidSettings(dict.fromkeys(self.problems))
        return Config(self.table, self.given, tuple(dict.fromkeys(self.notices)))

    def check(self) -> None:
        """Adds what is missing, and what does not go together among values that are valid."""
        for setting in self.table.settings.values():
            missing = isinstance(setting.default, Required) and setting.name not in self.given
            if missing and setting.name not in self.broken:
                what = f"missing, valid: {setting.valid_text}"
                self.problems.append(Problem(setting.name, what))
                self.broken.add(setting.name)
        config = Config(self.table, self.given)
        for finding in findings(config):
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
            self._fail(entry, name, f"{setting.name} is the broker's; no listener has its own")
        elif listener and listener.mechanism and not _per_mechanism(setting):
            self._fail(entry, name, f"{setting.name} is the listener's; no mechanism has its own")
        elif self.level and (hindrance := _not_dynamic(setting, self.level)):
            self._fail(entry, name, hindrance)
        elif self._is_told(setting) and _is_long(entry.value):
            self._fail(entry, name, f"longer than {VALUE_BYTES_MAX:,} bytes: nobody could be told")
        else:
            try:
                self.given[name] = Given(setting.convert(entry.value), entry.origin)
                if setting.kind is LIST and (repeated := _repeated(entry.value)):
                    what = f"{', '.join(repeated)}: given more than once, and counts once"
                    self.notices.append(Problem(name, what, entry.origin))
            except BadValue as bad:
                shown = HIDDEN if setting.sensitive else _shown(entry.value)
                problem = invalid(name, shown, setting.valid_text, entry.origin, note=bad.note)
                self.problems.append(problem)
                self.broken.add(setting.name)

    def _is_told(self, setting: Setting[Any]) -> bool:
        """Whether DescribeConfigs answers with the value: a client's is nobody else's."""
        return self.table in (BROKER, TOPIC) and not setting.sensitive

    def _accept(self, entry: Entry, name: str, row: Ignored) -> None:
        if row.takes is not None:
            try:
                row.takes.validate(LIST.convert(entry.value))
            except BadValue as bad:
                shown = _shown(entry.value)
                valid = f"{row.takes}: {row.reason}"
                self.problems.append(invalid(name, shown, valid, entry.origin, note=bad.note))
                return
        self.notices.append(Problem(name, str(row), entry.origin))

    def _fail(self, entry: Entry, name: str, what: str) -> None:
        self.problems.append(Problem(name, what, entry.origin))

    def _unknown(self, name: str, listener: ListenerName | None) -> str:
        """What to say of a name that the table does not know. The value is not shown."""
        if listener:
            return "unknown setting of a listener" + self._hint(
                listener.setting, self._per_listener_names()
            )
        for other in TABLES:
            if name in other.settings and other is not self.table:
                return f"a setting of the {other.scope}, not of the {self.table.scope}" + (
                    self._instead_of(other.settings[name])
                )
        return "unknown setting" + self._hint(name, self.table.names)

    def _hint(self, name: str, known: Iterable[str]) -> str:
        """The name that was meant, perhaps; looking for it takes long, so not for many."""
        if not self.hints_left or len(name) > HINT_CHARACTERS_MAX:
            return ""
        self.hints_left -= 1
        return _nearest(name, known)

    def _instead_of(self, foreign: Setting[Any]) -> str:
        """The name under which this scope has what another scope's setting says, if it has."""
        for fallback in foreign.falls_back:
            if fallback.setting in self.table:
                return f"; here its default is {fallback.setting.name}"
        for row in self.table.settings.values():
            if foreign.name in (fallback.setting.name for fallback in row.falls_back):
                return f"; here it is {row.name}"
        return ""

    def _per_listener_names(self) -> Iterator[str]:
        return (row.name for row in self.table.settings.values() if row.per_listener)


def _per_mechanism(setting: Setting[Any]) -> bool:
    return setting.name.startswith("sasl.") or setting is broker.CONNECTIONS_MAX_REAUTH_MS


def _not_dynamic(setting: Setting[Any], level: Dynamic) -> str:
    """Why a setting cannot be changed at a level; empty when it can."""
    if setting.dynamic is READ_ONLY:
        return "cannot be changed while the broker runs; set it in the file and restart"
    if setting.dynamic is PER_BROKER and level is not PER_BROKER:
        return "can be changed for one broker at a time, not for all at once"
    return ""


def _plain(value: object) -> str:
    """A value as text, to compare with the harmless ones."""
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
    """The entries of a list that are in it more than once, as Kafka's files may have them."""
    entries = [one.strip() for one in value.split(",")] if isinstance(value, str) else []
    return [one for one, count in Counter(entries).items() if count > 1]


def _nearest(name: str, known: Iterable[str]) -> str:
    # Imported only when there is a mistake to explain: a start without one need not pay for it.
    from difflib import get_close_matches

    spelled = name.lower().replace("_", ".")
    matches = get_close_matches(spelled, list(known), n=1, cutoff=0.75)
    return f", did you mean {matches[0]}?" if matches else ""
