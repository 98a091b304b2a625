"""Settings of the clients: which are secret, and which client accepts them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from ottla.settings.admin import ADMIN
from ottla.settings.config_def import ConfigDef, Ignored, Row, Setting, Unsupported
from ottla.settings.config_types import HIDDEN, BadValue
from ottla.settings.connection import DEFAULT_API_TIMEOUT_MS
from ottla.settings.consumer import CONSUMER
from ottla.settings.invalid_settings import InvalidSettings, Problem, invalid, quoted
from ottla.settings.producer import MAX_BLOCK_MS, PRODUCER

Client: TypeAlias = Literal["admin", "producer", "consumer"]

_TABLES: Final[Mapping[Client, ConfigDef]] = {
    "admin": ADMIN,
    "producer": PRODUCER,
    "consumer": CONSUMER,
}
_WORK: Final[Mapping[Client, str]] = {
    "admin": "administrate",
    "producer": "produce",
    "consumer": "consume",
}
_SECRET_WORDS: Final = ("password", "secret", "token", "credential", "jaas", "private")
_NEAR: Final = 0.75
_PATIENCE: Final = DEFAULT_API_TIMEOUT_MS.name
"""A producer does not have this setting; it gets the value as max.block.ms."""


def row(name: str) -> Row | None:
    """Return the setting of a client by name."""
    found = [one for table in _TABLES.values() if (one := table.find(name)) is not None]
    # A setting that one client ignores or refuses may be in effect for another.
    return next((one for one in found if isinstance(one, Setting)), next(iter(found), None))


def is_secret(name: str) -> bool:
    """Whether the value is secret."""
    known = row(name)
    if isinstance(known, Setting):
        return known.sensitive
    return any(word in name.lower() for word in _SECRET_WORDS)


def masked(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings with secrets hidden."""
    return {name: HIDDEN if is_secret(name) else value for name, value in settings.items()}


def check(settings: Mapping[str, str]) -> list[str]:
    """Return warnings; raises InvalidSettings for an invalid value. Empty values are skipped."""
    warnings: list[str] = []
    problems: list[Problem] = []
    for name, value in settings.items():
        if not value:
            continue
        match known := row(name):
            case None:
                warnings.append(f"{name}: {_unknown(name)}")
            case Ignored():
                warnings.append(f"{name}: {known}")
            case Unsupported():
                if value.strip() not in known.harmless:
                    problems.append(Problem(name, str(known)))
            case _:
                problems += _wrong(known, value)
    if problems:
        raise InvalidSettings(problems)
    return warnings


def taken(
    settings: Mapping[str, str],
    said: Collection[str],
    clients: Sequence[Client],
    but: Mapping[str, str],
) -> dict[str, str]:
    """Return the settings for the first of a command's clients.

    Settings of other clients are left out, because all commands use the same profile. Raises
    InvalidSettings for a name that no client knows. A name in `said` must also be known to one of
    the command's clients and not be in `but`, which has the reason why the command refuses it.
    """
    found: dict[str, str] = {}
    problems: list[Problem] = []
    for name, value in settings.items():
        takers: list[Client] = [one for one, table in _TABLES.items() if table.find(name)]
        own = [one for one in clients if one in takers or name == _PATIENCE]
        if not takers:
            problems.append(Problem(name, _unknown(name)))
        elif name in said and name in but:
            problems.append(Problem(name, but[name]))
        elif name in said and not own:
            work = " or ".join(_WORK[one] for one in takers)
            problems.append(Problem(name, f"only commands that {work} accept it"))
        elif clients[0] in own and name not in but:
            found[name] = value
    if problems:
        raise InvalidSettings(problems)
    if clients[0] == "producer" and (patience_ms := found.pop(_PATIENCE, None)) is not None:
        found.setdefault(MAX_BLOCK_MS.name, patience_ms)
    return found


def known_to(client: Client, settings: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the settings that a client supports, and the names that no client knows."""
    found = {name: value for name, value in settings.items() if _TABLES[client].find(name)}
    return found, [name for name in settings if name not in found and row(name) is None]


def _wrong(setting: Setting[Any], value: str) -> list[Problem]:
    try:
        setting.parse(value)
    except BadValue as bad:
        shown = HIDDEN if setting.sensitive else quoted(value)
        return [invalid(setting.name, shown, setting.valid_text, note=bad.note)]
    return []


def _unknown(name: str) -> str:
    from difflib import get_close_matches

    known = {each for table in _TABLES.values() for each in table.settings}
    spelled = name.lower().replace("_", ".")
    matches = get_close_matches(spelled, sorted(known), n=1, cutoff=_NEAR)
    return "unknown setting" + (f", did you mean {matches[0]}?" if matches else "")
