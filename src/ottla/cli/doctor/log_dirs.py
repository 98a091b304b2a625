"""Facts about the log directories of brokers: the space of their volumes.

Invariant: takes a limited time. A broker that does not describe its directories is left out:
another check reports why it cannot be reached.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from ottla.cli.doctor.facts import LogDirFacts
from ottla.client.admin.administration import Administration
from ottla.client.admin.log_dirs import LogDirCalls
from ottla.errors import OttlaError

PATIENCE_S: Final = 5.0


class LogDirAdmin(Administration, LogDirCalls):
    """Describes log directories."""


async def log_dirs(settings: Mapping[str, str]) -> Sequence[LogDirFacts]:
    """Return the log directories of the brokers that describe them."""
    try:
        async with LogDirAdmin(settings) as admin:
            described = await admin.describe_log_dirs(partitions=(), timeout_s=PATIENCE_S)
    except OttlaError:
        return ()
    found: list[LogDirFacts] = []
    for broker, directories in sorted(described.succeeded.items()):
        found += (
            LogDirFacts(broker, path, one.usable_bytes, one.total_bytes)
            for path, one in sorted(directories.succeeded.items())
        )
        found += (
            LogDirFacts(broker, path, why_not=error.code.text)
            for path, error in sorted(directories.failed.items())
        )
    return found
