"""Every supported setting is used in the source, or listed with the planned work."""

import ast
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import ottla
from cases import each_case
from ottla.settings import broker, compression, connection, ignored, security, topic
from ottla.settings.broker import BROKER
from ottla.settings.config_def import Setting
from ottla.settings.topic import TOPIC

SOURCE = Path(ottla.__file__).parent
MODULES = {
    "broker": broker,
    "topic": topic,
    "security": security,
    "connection": connection,
    "compression": compression,
    "ignored": ignored,
}
# Modules of settings/ that use values; its checks and tables do not.
DECIDING = {"derived.py", "endpoints.py"}

LATER = {
    "a cluster of several brokers": (
        "controller.socket.timeout.ms",
        "replica.*",
        "request.timeout.ms",
        "socket.connection.setup.timeout.*",
    ),
    "TLS, SASL and ACLs": (
        "allow.everyone.if.no.acl.found",
        "connections.max.reauth.ms",
        "sasl.*",
        "ssl.*",
        "super.users",
    ),
    "quotas": ("quota.window.*", "controller.quota.window.*"),
    "transactions": ("transaction.*", "transactional.*", "add.partitions.to.txn.*"),
    "consumer groups of KIP-848": ("group.consumer.*", "group.coordinator.rebalance.protocols"),
    "share groups": ("group.share.*", "share.coordinator.*"),
}
ROWS = [row for row in (*BROKER.settings.values(), *TOPIC.settings.values()) if not row.no_effect]


@cache
def read_somewhere() -> frozenset[tuple[str, str]]:
    """Return module and constant of every setting that the source uses.

    A setting that the client reads is the client's, even if the broker has one of that name.
    """
    found: set[tuple[str, str]] = set()
    for path in SOURCE.rglob("*.py"):
        if path.is_relative_to(SOURCE / "client"):
            continue
        if path.parent.name == "settings" and path.name not in DECIDING:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Attribute(value=ast.Name(id=module), attr=name):
                    found.add((module, name))
                case ast.ImportFrom(module=str(module)) if module.startswith("ottla.settings."):
                    found |= {(module.rpartition(".")[2], one.name) for one in node.names}
                case _:
                    pass
    return frozenset(found)


def is_read(row: Setting[Any]) -> bool:
    """Whether a setting is read, directly or as the fallback of a topic setting."""
    if any(
        value is row and (module, name) in read_somewhere()
        for module, rows in MODULES.items()
        for name, value in vars(rows).items()
    ):
        return True
    return any(
        row is fallback.setting and is_read(other)
        for other in TOPIC.settings.values()
        if other is not row
        for fallback in other.falls_back
    )


def pieces(row: Setting[Any]) -> list[str]:
    return [work for work, names in LATER.items() if any(fnmatch(row.name, one) for one in names)]


@each_case("row", ROWS, ids=lambda row: str(row.name))
def test_every_supported_setting_is_used(row: Setting[Any]) -> None:
    if not is_read(row):
        assert len(pieces(row)) == 1, f"{row.name} is read by nobody"


def test_settings_without_effect_are_read_by_nobody() -> None:
    assert not [row.name for row in BROKER.settings.values() if row.no_effect and is_read(row)]


def test_exceptions_list_has_no_stale_entries() -> None:
    unread = [row.name for row in ROWS if not is_read(row)]
    for names in LATER.values():
        for pattern in names:
            assert any(fnmatch(name, pattern) for name in unread), pattern


def test_names_in_comments_and_checks_are_ignored() -> None:
    assert not is_read(broker.SUPER_USERS)  # mentioned only in settings/checks.py
    assert is_read(broker.LOG_RETENTION_HOURS)  # through retention.ms
    assert is_read(broker.NUM_PARTITIONS)
