"""The admin client's settings: what it shares with the other clients, with its own defaults.

Invariant: no row is declared here; connection.py has them all.
"""

from typing import Final

from ottla.settings import connection, ignored, unsupported
from ottla.settings.config_def import ConfigDef

ADMIN: Final = ConfigDef(
    "admin",
    (
        *connection.ROWS,
        connection.RETRIES,
        connection.DEFAULT_API_TIMEOUT_MS,
        connection.CONNECTIONS_MAX_IDLE_MS.but(300_000),
    ),
    ignored=ignored.ADMIN,
    unsupported=unsupported.ADMIN,
)
