"""The name and password of a client, whichever settings they were given in.

Invariant: there is one way to read them, and a login that needs them and lacks them is a problem
before anything is connected to. No problem holds a value.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.settings import security
from ottla.settings.config import Config
from ottla.settings.config_def import Setting
from ottla.settings.config_types import BadValue, Secret
from ottla.settings.jaas import FORM, read_jaas


class Credentials(NamedTuple):
    """Who logs in, and how that is proved."""

    username: str
    password: Secret


def credentials(config: Config) -> Credentials | None:
    """Name and password, from sasl.jaas.config or settings of their own; None without them."""
    jaas = config[security.SASL_JAAS_CONFIG]
    if jaas is None:
        username, password = config[security.SASL_USERNAME], config[security.SASL_PASSWORD]
        return Credentials(username, password) if username and password is not None else None
    options = read_jaas(jaas.reveal())
    username, secret = options.get("username"), options.get("password")
    return Credentials(username, Secret(secret)) if username and secret is not None else None


def login_problems(config: Config) -> Iterator[tuple[tuple[Setting[Any], ...], str]]:
    """The settings of a client's login that do not go together, and what to say of them."""
    protocol, mechanism = security.SECURITY_PROTOCOL, security.SASL_MECHANISM
    jaas, username, password = (
        security.SASL_JAAS_CONFIG,
        security.SASL_USERNAME,
        security.SASL_PASSWORD,
    )
    if config[jaas] is not None and config[username] is not None:
        yield (username, jaas), f"set together with {jaas.name}; give only one of them"
        return
    has_name, has_password = config[username] is not None, config[password] is not None
    if has_name != has_password:
        one, other = (username, password) if has_name else (password, username)
        yield (one, other), f"set without {other.name}, which belongs to it"
        return
    if not config[protocol].startswith("SASL"):
        return
    because = f"missing, because {protocol.name} is {config[protocol]}"
    if config[mechanism] is None:
        yield (mechanism, protocol), f"{because}, valid: {mechanism.range_text}"
    elif config[mechanism] != "OAUTHBEARER":
        try:
            if credentials(config) is not None:
                return
        except BadValue as bad:
            yield (jaas, mechanism), f"cannot be read ({bad.note}), valid: {FORM}"
            return
        what = because if config[jaas] is None else "has no username and password"
        yield (
            (username if config[jaas] is None else jaas, mechanism, protocol),
            (f"{what}, valid: {username.name} and {password.name}, or {jaas.name} as {FORM}"),
        )
