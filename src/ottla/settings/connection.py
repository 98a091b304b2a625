# ruff: noqa: E501 - one line per row
"""Settings of connections, metadata and retries, shared by the clients.

A client with another default overrides it in its own ConfigDef.
"""

from typing import Final

from ottla.settings import security
from ottla.settings.config_def import REQUIRED, Setting, settings_in
from ottla.settings.config_types import INT, INT_MAX, LIST, LONG, STRING
from ottla.settings.validators import NON_EMPTY_LIST, at_least, between, one_of

# fmt: off
BOOTSTRAP_SERVERS = Setting("bootstrap.servers", LIST, REQUIRED, NON_EMPTY_LIST,
    doc="Initial brokers as host:port. The client discovers the other brokers from them. List two or three, in "
        "case one is down.")
CLIENT_ID = Setting("client.id", STRING, "",
    doc="Name of this client in broker logs and quotas. Use the name of the application.")
CLIENT_DNS_LOOKUP = Setting("client.dns.lookup", STRING, "use_all_dns_ips", one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    doc="DNS lookup of brokers: use_all_dns_ips tries all addresses of a name in turn; "
        "resolve_canonical_bootstrap_servers_only first resolves each bootstrap address to its canonical names.")
CONNECTIONS_MAX_IDLE_MS = Setting("connections.max.idle.ms", LONG, 540_000,
    doc="Time in milliseconds after which the client closes an idle connection. Keep it below the broker's "
        "value, so that the client closes first.")
SOCKET_CONNECTION_SETUP_TIMEOUT_MS = Setting("socket.connection.setup.timeout.ms", LONG, 10_000,
    doc="Timeout of a TCP connection attempt in milliseconds. It doubles with each consecutive failure.")
SOCKET_CONNECTION_SETUP_TIMEOUT_MAX_MS = Setting("socket.connection.setup.timeout.max.ms", LONG, 30_000,
    doc="Maximum timeout of a TCP connection attempt in milliseconds after consecutive failures.")
SEND_BUFFER_BYTES = Setting("send.buffer.bytes", INT, 131_072, at_least(-1),
    doc="Size of the TCP send buffer (SO_SNDBUF) in bytes; -1 means the default of the operating system.")
RECEIVE_BUFFER_BYTES = Setting("receive.buffer.bytes", INT, 65_536, at_least(-1),
    doc="Size of the TCP receive buffer (SO_RCVBUF) in bytes; -1 means the default of the operating system.")
RECONNECT_BACKOFF_MS = Setting("reconnect.backoff.ms", LONG, 50, at_least(0),
    doc="Time in milliseconds before the client reconnects to a broker. It doubles with each consecutive "
        "failure.")
RECONNECT_BACKOFF_MAX_MS = Setting("reconnect.backoff.max.ms", LONG, 1000, at_least(0),
    doc="Maximum time in milliseconds between two connection attempts to a broker.")
REQUEST_TIMEOUT_MS = Setting("request.timeout.ms", INT, 30_000, at_least(0),
    doc="Time in milliseconds that the client waits for a response. After it the request fails and is retried.")
RETRY_BACKOFF_MS = Setting("retry.backoff.ms", LONG, 100, at_least(0),
    doc="Time in milliseconds before a failed request is retried. It doubles with each consecutive failure.")
RETRY_BACKOFF_MAX_MS = Setting("retry.backoff.max.ms", LONG, 1000, at_least(0),
    doc="Maximum time in milliseconds between two attempts of a request.")
METADATA_MAX_AGE_MS = Setting("metadata.max.age.ms", LONG, 300_000, at_least(0),
    doc="Time in milliseconds after which the client refreshes metadata even without an error. Lower it to "
        "discover new partitions sooner.")
METADATA_RECOVERY_STRATEGY = Setting("metadata.recovery.strategy", STRING, "rebootstrap", one_of("rebootstrap", "none", any_case=True),
    doc="What the client does if no known broker is available: `rebootstrap` starts again from "
        "bootstrap.servers, `none` fails.")
METADATA_RECOVERY_REBOOTSTRAP_TRIGGER_MS = Setting("metadata.recovery.rebootstrap.trigger.ms", LONG, 300_000, at_least(0),
    doc="Time in milliseconds without fresh metadata after which the client starts again from bootstrap.servers.")
# fmt: on

# The settings of every client. The two below belong to some clients only.
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
    doc="Maximum number of retries after a retriable error. Keep the default, and limit the time with "
        "delivery.timeout.ms or default.api.timeout.ms.")
DEFAULT_API_TIMEOUT_MS = Setting("default.api.timeout.ms", INT, 60_000, at_least(0),
    doc="Default timeout in milliseconds of a call, including all retries.")
# fmt: on
