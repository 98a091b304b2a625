"""Listeners of a broker: name, host, port and security protocol.

Invariant: in a checked config every listener has a security protocol and a port of its own, and
advertised addresses are reachable ones. Listener names are upper case, as in Kafka.
"""

import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final, NamedTuple

from ottla.settings import broker, security
from ottla.settings.config import Config
from ottla.settings.config_types import BadValue

_ENDPOINT: Final = r"([^:/\s]+)://(?:\[([0-9a-fA-F:.]+(?:%[\w.-]+)?)\]|([^:/\[\]\s]*)):([0-9]{1,5})"


class Endpoint(NamedTuple):
    """One listener. An empty host means all interfaces."""

    name: str
    host: str
    port: int
    protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"

    @property
    def tls(self) -> bool:
        """Whether the connection uses TLS."""
        return self.protocol.endswith("SSL")

    @property
    def sasl(self) -> bool:
        """Whether clients must authenticate with SASL."""
        return self.protocol.startswith("SASL")


def protocols(config: Config) -> Mapping[str, str]:
    """Parse listener.security.protocol.map. Raises BadValue."""
    protocol_of: dict[str, str] = {}
    for pair in config[broker.LISTENER_SECURITY_PROTOCOL_MAP].split(","):
        name, _, protocol = (part.strip().upper() for part in pair.partition(":"))
        if protocol not in security.PROTOCOLS:
            raise BadValue(f"{protocol} is not one of {', '.join(security.PROTOCOLS)}")
        if protocol_of.setdefault(name, protocol) != protocol:
            raise BadValue(f"{name} has two protocols")
    return protocol_of


def parse_endpoint(text: str, protocol_of: Mapping[str, str]) -> Endpoint:
    """Parse name://host:port. Raises BadValue."""
    found = re.fullmatch(_ENDPOINT, text)
    if found is None or int(found[4]) > 65_535:
        raise BadValue("not name://host:port")
    name = found[1].upper()
    if name not in protocol_of:
        raise BadValue(f"{name} is not in {broker.LISTENER_SECURITY_PROTOCOL_MAP.name}")
    return Endpoint(name, found[2] or found[3], int(found[4]), protocol_of[name])


def listeners(config: Config) -> tuple[Endpoint, ...]:
    """Return the listeners of the broker, without those of a KRaft controller."""
    return _endpoints(config, config[broker.LISTENERS])


def advertised_listeners(config: Config) -> tuple[Endpoint, ...]:
    """Return advertised.listeners, or else listeners."""
    return _endpoints(config, config[broker.ADVERTISED_LISTENERS] or config[broker.LISTENERS])


def connections_by_address(config: Config) -> Mapping[str, int]:
    """Parse max.connections.per.ip.overrides; IP addresses are normalised."""
    text = config[broker.MAX_CONNECTIONS_PER_IP_OVERRIDES]
    pairs = (one.strip().rpartition(":") for one in text.split(",") if one.strip())
    return {normalised_address(host) or host: int(count) for host, _, count in pairs}


def normalised_address(host: str) -> str | None:
    """Normalise an IP address as sockets print it; None for a host name."""
    try:
        return str(ip_address(host.removeprefix("[").removesuffix("]")))
    except ValueError:
        return None


def inter_broker_listener(config: Config) -> Endpoint | None:
    """Return the inter-broker listener; None if none matches (never in a checked config)."""
    name = config[broker.INTER_BROKER_LISTENER_NAME]
    protocol = config[broker.SECURITY_INTER_BROKER_PROTOCOL]
    endpoints = listeners(config)
    for endpoint in endpoints:
        if endpoint.name == name.upper() if name else endpoint.protocol == protocol:
            return endpoint
    configured = name or config.is_set(broker.SECURITY_INTER_BROKER_PROTOCOL)
    return endpoints[0] if len(endpoints) == 1 and not configured else None


def inter_broker_mechanism(config: Config, listener: str) -> str | None:
    """Return the SASL mechanism between brokers; None if it is ambiguous."""
    own = config.listener(listener)
    if mechanism := own[broker.SASL_MECHANISM_INTER_BROKER_PROTOCOL]:
        return mechanism
    enabled = own[broker.SASL_ENABLED_MECHANISMS]
    return enabled[0] if len(enabled) == 1 else None


def _endpoints(config: Config, texts: tuple[str, ...]) -> tuple[Endpoint, ...]:
    protocol_of = protocols(config)
    controllers = {name.upper() for name in config[broker.CONTROLLER_LISTENER_NAMES]}
    kept = (text for text in texts if text.partition(":")[0].upper() not in controllers)
    return tuple(parse_endpoint(text, protocol_of) for text in kept)
