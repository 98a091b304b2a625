"""Whom a command asks: the settings of the client, out of what was said in several places.

Invariant: what was said nearer counts: -X, then --bootstrap-server, then the profile of --profile
or OTTLA_PROFILE, then the one in use, then a broker on this machine.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from ottla.cli.profile import file as profiles
from ottla.errors import OttlaError

BOOTSTRAP: Final = "bootstrap.servers"
HERE: Final = "127.0.0.1:9092"
DEFAULTS: Final[Mapping[str, str]] = {
    BOOTSTRAP: HERE,
    # A person waits: for a program it is a minute.
    "default.api.timeout.ms": "20000",
    "request.timeout.ms": "20000",
}


class BadSetting(OttlaError):
    """What was said on the command line is no setting."""


def client_settings(
    environment: Mapping[str, str],
    *,
    bootstrap_server: str | None = None,
    profile: str | None = None,
    settings: Sequence[str] = (),
) -> dict[str, str]:
    """The settings of a client."""
    said = parsed(settings)
    known = profiles.read(profiles.place(environment))
    name = profile or environment.get(profiles.PROFILE_VARIABLE) or known.used
    found = {**DEFAULTS, **(known.of(name) if name else {})}
    if bootstrap_server is not None:
        found[BOOTSTRAP] = bootstrap_server
    return {**found, **said}


def parsed(settings: Sequence[str]) -> dict[str, str]:
    """Settings out of key=value."""
    found: dict[str, str] = {}
    for one in settings:
        key, equals, value = one.partition("=")
        if not equals or not key.strip():
            raise BadSetting(f"{one!r} is no setting: key=value")
        found[key.strip()] = value
    return found
