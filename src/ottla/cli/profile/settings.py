"""What is known of the settings in a profile: which are secret, which are wrong, which are meant.

Invariant: a value that the tables call secret is never shown; neither is one that nobody knows but
whose name says that it is one.
"""

from collections.abc import Mapping
from typing import Any, Final

from ottla.settings.admin import ADMIN
from ottla.settings.consumer import CONSUMER
from ottla.settings.problems import InvalidSettings, Problem, invalid, quoted
from ottla.settings.producer import PRODUCER
from ottla.settings.table import Refused, Row, Setting, WithoutEffect
from ottla.settings.values import HIDDEN, BadValue

_TABLES: Final = (ADMIN, PRODUCER, CONSUMER)
_SECRET_WORDS: Final = ("password", "secret", "token", "credential", "jaas", "private")
_NEAR: Final = 0.75


def row(name: str) -> Row | None:
    """What a client knows under a name."""
    found = [one for table in _TABLES if (one := table.find(name)) is not None]
    # What one client accepts without effect or refuses may count for another.
    return next((one for one in found if isinstance(one, Setting)), next(iter(found), None))


def is_secret(name: str) -> bool:
    """Whether nobody may see the value."""
    known = row(name)
    if isinstance(known, Setting):
        return known.sensitive
    return any(word in name.lower() for word in _SECRET_WORDS)


def masked(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings as they may be shown."""
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
                warnings.append(f"{name}: no client has such a setting{_nearest(name)}")
            case WithoutEffect():
                warnings.append(f"{name}: {known}")
            case Refused():
                if value.strip() not in known.harmless:
                    problems.append(Problem(name, str(known)))
            case _:
                problems += _wrong(known, value)
                if name not in ADMIN.settings:
                    warnings.append(f"{name}: only producing or consuming commands take it")
    if problems:
        raise InvalidSettings(problems)
    return warnings


def _wrong(setting: Setting[Any], value: str) -> list[Problem]:
    try:
        setting.parse(value)
    except BadValue as bad:
        shown = HIDDEN if setting.sensitive else quoted(value)
        return [invalid(setting.name, shown, setting.valid_text, note=bad.note)]
    return []


def _nearest(name: str) -> str:
    from difflib import get_close_matches

    known = {each for table in _TABLES for each in table.settings}
    spelled = name.lower().replace("_", ".")
    matches = get_close_matches(spelled, sorted(known), n=1, cutoff=_NEAR)
    return f", did you mean {matches[0]}?" if matches else ""
