# ruff: noqa: E501 - a row reads best with its facts on one line.
"""Connections, metadata, retries: the settings that the clients share.

Invariant: a row stands here once; a client whose default differs says so in its own table.
"""

from typing import Final

from ottla.settings import security
from ottla.settings.config_def import REQUIRED, Setting, settings_in
from ottla.settings.config_types import INT, INT_MAX, LIST, LONG, STRING
from ottla.settings.validators import NON_EMPTY_LIST, at_least, between, one_of

# fmt: off
BOOTSTRAP_SERVERS = Setting("bootstrap.servers", LIST, REQUIRED, NON_EMPTY_LIST,
    doc="Brokers to ask first, as host:port; they name all the others. Give two or three, so that one "
        "may be down.")
CLIENT_ID = Setting("client.id", STRING, "",
    doc="The name a broker knows this client by, in its logs and quotas. Name the application.")
CLIENT_DNS_LOOKUP = Setting("client.dns.lookup", STRING, "use_all_dns_ips", one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    doc="What to do with a host name that has several addresses: try one after the other, or first turn "
        "each bootstrap address into its canonical names and use those.")
CONNECTIONS_MAX_IDLE_MS = Setting("connections.max.idle.ms", LONG, 540_000,
    doc="Milliseconds after which an unused connection is closed. Keep it below the broker's value, so "
        "that the client closes first.")
SOCKET_CONNECTION_SETUP_TIMEOUT_MS = Setting("socket.connection.setup.timeout.ms", LONG, 10_000,
    doc="Milliseconds for a TCP connection to come up before another address is tried; doubled with "
        "each failure in a row.")
SOCKET_CONNECTION_SETUP_TIMEOUT_MAX_MS = Setting("socket.connection.setup.timeout.max.ms", LONG, 30_000,
    doc="The most milliseconds that a connection is given to come up after several failures.")
SEND_BUFFER_BYTES = Setting("send.buffer.bytes", INT, 131_072, at_least(-1),
    doc="The TCP send buffer in bytes; -1 leaves it to the operating system.")
RECEIVE_BUFFER_BYTES = Setting("receive.buffer.bytes", INT, 65_536, at_least(-1),
    doc="The TCP receive buffer in bytes; -1 leaves it to the operating system.")
RECONNECT_BACKOFF_MS = Setting("reconnect.backoff.ms", LONG, 50, at_least(0),
    doc="Milliseconds before a lost connection is tried again; doubled with each failure in a row.")
RECONNECT_BACKOFF_MAX_MS = Setting("reconnect.backoff.max.ms", LONG, 1000, at_least(0),
    doc="The longest pause, in milliseconds, between two tries to connect to one broker.")
REQUEST_TIMEOUT_MS = Setting("request.timeout.ms", INT, 30_000, at_least(0),
    doc="Milliseconds to wait for an answer before the request counts as failed and is sent again.")
RETRY_BACKOFF_MS = Setting("retry.backoff.ms", LONG, 100, at_least(0),
    doc="Milliseconds before a failed request is sent again; doubled with each failure in a row.")
RETRY_BACKOFF_MAX_MS = Setting("retry.backoff.max.ms", LONG, 1000, at_least(0),
    doc="The longest pause, in milliseconds, between two tries of a request.")
METADATA_MAX_AGE_MS = Setting("metadata.max.age.ms", LONG, 300_000, at_least(0),
    doc="Milliseconds after which topics and leaders are asked for anew even if nothing failed. Lower "
        "it when new partitions should be noticed sooner.")
METADATA_RECOVERY_STRATEGY = Setting("metadata.recovery.strategy", STRING, "rebootstrap", one_of("rebootstrap", "none", any_case=True),
    doc="What to do when none of the known brokers answers: begin again with bootstrap.servers, or give up.")
METADATA_RECOVERY_REBOOTSTRAP_TRIGGER_MS = Setting("metadata.recovery.rebootstrap.trigger.ms", LONG, 300_000, at_least(0),
    doc="Milliseconds without fresh metadata after which the client begins again with bootstrap.servers.")
# fmt: on

# Every client has these; the two below only some.
ROWS: Final = (
    *settings_in(globals()),
    security.SECURITY_PROTOCOL,
    *security.ROWS,
    security.SASL_MECHANISM,
    security.SASL_USERNAME,
    security.SASL_PASSWORD,
    security.SASL_OAUTHBEARER_HEADER_URLENCODE,
)

# fmt: off
RETRIES = Setting("retries", INT, INT_MAX, between(0, INT_MAX),
    doc="How often a request is sent again after a failure that may pass. Leave it, and limit the time "
        "with delivery.timeout.ms or default.api.timeout.ms instead.")
DEFAULT_API_TIMEOUT_MS = Setting("default.api.timeout.ms", INT, 60_000, at_least(0),
    doc="Milliseconds a call may take, all its retries together, when the call itself names no limit.")
# fmt: on
