"""Entities that the flags of `kafka-configs` name.

Invariant: the result has one entity type, or users and clients. Names are in the order of their
types, and there may be fewer names than types. The name "" is the default entity.
"""

import socket
from dataclasses import dataclass
from typing import Final

from ottla.cli.kafka.flags import Given
from ottla.cli.kafka.wrong_use import Illegal

TOPICS, CLIENTS, USERS, BROKERS = "topics", "clients", "users", "brokers"
LOGGERS, IPS, METRICS, GROUPS = "broker-loggers", "ips", "client-metrics", "groups"

# In the order of Kafka's tool.
KINDS: Final = (TOPICS, CLIENTS, USERS, BROKERS, IPS, METRICS, GROUPS, LOGGERS)
WITH_DEFAULTS: Final = (USERS, CLIENTS, BROKERS, IPS)

NAMED: Final = {
    "topic": TOPICS,
    "client": CLIENTS,
    "user": USERS,
    "broker": BROKERS,
    "broker-logger": LOGGERS,
    "ip": IPS,
    "client-metrics": METRICS,
    "group": GROUPS,
}
DEFAULTS: Final = {
    "client-defaults": CLIENTS,
    "user-defaults": USERS,
    "broker-defaults": BROKERS,
    "ip-defaults": IPS,
}


@dataclass(frozen=True, slots=True)
class Entities:
    """Entity types and entity names."""

    kinds: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def kind(self) -> str:
        """The first entity type; there is a second one only for users with clients."""
        return self.kinds[0]

    @property
    def singular(self) -> str:
        """The entity type in the singular."""
        return self.kind[:-1]


def entities(given: Given) -> Entities:
    """Return the entities that the flags name."""
    said = iter(given.all("entity-name"))
    names = [
        next(said, "") if word == "entity-name" else ""
        for word in given.order
        if word in ("entity-name", "entity-default")
    ]
    kinds = [
        *given.all("entity-type"),
        *(kind for flag, kind in {**NAMED, **DEFAULTS}.items() if flag in given),
    ]
    names += [given.one(flag) or "" for flag in NAMED if flag in given]
    names += ["" for flag in DEFAULTS if flag in given]
    return Entities(tuple(kinds), tuple(names))


def check(given: Given, found: Entities) -> None:
    """Check that the flags fit together; raises Illegal if they do not."""
    _check_kinds(given, found)
    named = any(found.names)
    if "bootstrap-server" in given and "bootstrap-controller" in given:
        raise Illegal("Only one of --bootstrap-server or --bootstrap-controller can be specified")
    if named and (BROKERS in found.kinds or LOGGERS in found.kinds):
        _check_numbers(given, found)
    if named and IPS in found.kinds:
        _check_addresses(given, found)
    if "describe" in given:
        if "entity-default" in given and not {*found.kinds} & {*WITH_DEFAULTS}:
            raise Illegal(
                f"--entity-default must not be specified with --describe of {','.join(found.kinds)}"
            )
        if LOGGERS in found.kinds and not named:
            raise Illegal(
                f"An entity name must be specified with --describe of {','.join(found.kinds)}"
            )
    if "alter" in given:
        _check_alter(given, found, named=named)


def _check_kinds(given: Given, found: Entities) -> None:
    kinds = [*found.kinds]
    if twice := [kind for at, kind in enumerate(kinds) if kind in kinds[:at]]:
        raise Illegal(f"Duplicate entity type(s) specified: {','.join(twice)}")
    if "bootstrap-server" not in given and "bootstrap-controller" not in given:
        raise Illegal("Either --bootstrap-server or --bootstrap-controller must be specified.")
    for kind in kinds:
        if kind not in KINDS:
            raise Illegal(
                f"Invalid entity type {kind}, the entity type must be one of {', '.join(KINDS)} "
                "with a --bootstrap-server or --bootstrap-controller argument"
            )
    if not kinds:
        raise Illegal("At least one entity type must be specified")
    if len(kinds) > 1 and {*kinds} != {USERS, CLIENTS}:
        raise Illegal(f"Only '{USERS}' and '{CLIENTS}' entity types may be specified together")
    general = any(flag in given for flag in ("entity-name", "entity-type", "entity-default"))
    if general and any(flag in given for flag in {**NAMED, **DEFAULTS}):
        raise Illegal(
            "--entity-{type,name,default} should not be used in conjunction with "
            "specific entity flags"
        )


def _check_numbers(given: Given, found: Entities) -> None:
    for flag in ("entity-name", "broker", "broker-logger"):
        name = given.one(flag)
        if name is not None and _number(name) is None:
            raise Illegal(
                f"The entity name for {found.kind} must be a valid integer broker id, "
                f"but it is: {name}"
            )


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _check_addresses(given: Given, found: Entities) -> None:
    for flag in ("entity-name", "ip"):
        name = given.one(flag)
        if name is None:
            continue
        try:
            socket.getaddrinfo(name, None)
        except (OSError, UnicodeError):
            raise Illegal(
                f"The entity name for {found.kind} must be a valid IP or resolvable host, "
                f"but it is: {name}"
            ) from None


def _check_alter(given: Given, found: Entities, *, named: bool) -> None:
    if {*found.kinds} & {*WITH_DEFAULTS}:
        if not found.names:
            raise Illegal(
                "An entity-name or default entity must be specified with --alter of "
                "users, clients, brokers or ips"
            )
    elif not named:
        raise Illegal(f"An entity name must be specified with --alter of {','.join(found.kinds)}")
    if "add-config" in given and "add-config-file" in given:
        raise Illegal("Only one of --add-config or --add-config-file must be specified")
    if not any(flag in given for flag in ("add-config", "add-config-file", "delete-config")):
        raise Illegal(
            "At least one of --add-config, --add-config-file, or --delete-config must be "
            "specified with --alter"
        )
    if len(found.kinds) != len(found.names):
        raise Illegal("An entity name must be specified for every entity type")
