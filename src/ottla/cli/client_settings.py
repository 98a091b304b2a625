"""What is known about the settings of a profile: which are secret and who accepts them."""

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
"""How long a call is tried: of a producer, which has it not, how long one may block."""


def row(name: str) -> Row | None:
    """Return the setting of a client by name."""
    found = [one for table in _TABLES.values() if (one := table.find(name)) is not None]
    # What one client accepts without effect or refuses may count for another.
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
    """What to warn of; InvalidSettings for a value that no client takes. Empty ones are not set."""
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
    """The settings that the first of a command's clients gets.

    What is for other clients is left out, for a profile is for all commands. InvalidSettings when
    no client knows a name, and of those in `said` when none of the command's own does, or when the
    command has said in `but` why it does not take it.
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
    """The settings that a client has a use for, and the names of those that no client knows."""
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
