"""User name and password of a client, from sasl.jaas.config or sasl.username and sasl.password.

Missing or conflicting credentials are reported before the client connects. No problem contains a
value.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.settings import security
from ottla.settings.config import Config
from ottla.settings.config_def import Setting
from ottla.settings.config_types import BadValue, Secret
from ottla.settings.jaas import FORM, read_jaas


class Credentials(NamedTuple):
    """User name and password."""

    username: str
    password: Secret


def credentials(config: Config) -> Credentials | None:
    """Return the credentials of a config; None if it has none."""
    jaas = config[security.SASL_JAAS_CONFIG]
    if jaas is None:
        username, password = config[security.SASL_USERNAME], config[security.SASL_PASSWORD]
        return Credentials(username, password) if username and password is not None else None
    options = read_jaas(jaas.reveal())
    username, secret = options.get("username"), options.get("password")
    return Credentials(username, Secret(secret)) if username and secret is not None else None


def login_problems(config: Config) -> Iterator[tuple[tuple[Setting[Any], ...], str]]:
    """Yield inconsistent login settings, with the text of the problem."""
    protocol, mechanism = security.SECURITY_PROTOCOL, security.SASL_MECHANISM
    jaas, username, password = (
        security.SASL_JAAS_CONFIG,
        security.SASL_USERNAME,
        security.SASL_PASSWORD,
    )
    if config[jaas] is not None and config[username] is not None:
        yield (username, jaas), f"conflicts with {jaas.name}; set only one of them"
        return
    has_name, has_password = config[username] is not None, config[password] is not None
    if has_name != has_password:
        one, other = (username, password) if has_name else (password, username)
        yield (one, other), f"requires {other.name}"
        return
    if not config[protocol].startswith("SASL"):
        return
    because = f"required, because {protocol.name} is {config[protocol]}"
    if config[mechanism] is None:
        yield (mechanism, protocol), f"{because}: expected {mechanism.range_text}"
    elif config[mechanism] != "OAUTHBEARER":
        try:
            if credentials(config) is not None:
                return
        except BadValue as bad:
            yield (jaas, mechanism), f"invalid value ({bad.note}): expected {FORM}"
            return
        what = because if config[jaas] is None else "no username and password"
        yield (
            (username if config[jaas] is None else jaas, mechanism, protocol),
            f"{what}: set {username.name} and {password.name}, or {jaas.name} to {FORM}",
        )
