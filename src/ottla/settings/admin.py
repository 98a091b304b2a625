"""The admin client settings: those of connection.py, with its own defaults."""

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
