"""The target of a command: client settings from several sources.

Invariant: the order of precedence is -X and --bootstrap-server, the profile of --profile or
OTTLA_PROFILE, the default profile, a broker on this machine. A setting given twice must have one
value.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.cli import profiles
from ottla.cli.failures import BadSetting

if TYPE_CHECKING:
    from ottla.cli.client_settings import Client

BOOTSTRAP: Final = "bootstrap.servers"
HERE: Final = "127.0.0.1:9092"
DEFAULTS: Final[Mapping[str, str]] = {
    BOOTSTRAP: HERE,
    # A person waits; programs have a minute.
    "default.api.timeout.ms": "20000",
    "request.timeout.ms": "20000",
}


class Target(NamedTuple):
    """The effective settings, for any client."""

    settings: Mapping[str, str]
    said: frozenset[str] = frozenset()
    """Those of -X: a command refuses one that its clients do not accept. A profile is for all
    clients."""

    @property
    def servers(self) -> str:
        """The bootstrap servers."""
        return self.settings[BOOTSTRAP]

    def settings_of(
        self, client: "Client", *others: "Client", but: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """Return the settings for a client; raises InvalidSettings for those that none accepts.

        `others` are the other clients of the command; `but` says why it does not accept a setting
        that its client would accept.
        """
        from ottla.cli.client_settings import taken

        return taken(self.settings, self.said, (client, *others), but or {})


def target_of(
    environment: Mapping[str, str],
    *,
    bootstrap_server: str | None = None,
    profile: str | None = None,
    settings: Sequence[str] = (),
) -> Target:
    """Return the target."""
    said = parsed(settings)
    known = profiles.read(profiles.config_path(environment))
    name = profile or environment.get(profiles.PROFILE_VARIABLE) or known.used
    found = {**DEFAULTS, **(known.of(name) if name else {})}
    if bootstrap_server is not None:
        if said.setdefault(BOOTSTRAP, bootstrap_server) != bootstrap_server:
            raise BadSetting(f"--bootstrap-server and -X {BOOTSTRAP} name different brokers")
        found[BOOTSTRAP] = bootstrap_server
    return Target({**found, **said}, frozenset(said))


def parsed(settings: Sequence[str]) -> dict[str, str]:
    """Parse key=value settings."""
    found: dict[str, str] = {}
    for one in settings:
        key, equals, value = one.partition("=")
        if not equals or not key.strip():
            raise BadSetting(f"{one!r} is not a setting: use key=value")
        if found.setdefault(key.strip(), value) != value:
            raise BadSetting(f"{key.strip()} is given twice, with different values")
    return found
