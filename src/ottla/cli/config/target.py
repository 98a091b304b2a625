"""The resource of a command, from its options.

Invariant: exactly one resource: a topic, a broker, the cluster-wide defaults, a group, or a quota
entity, which is a user, a client id, both, or an IP address.
"""

from dataclasses import dataclass
from typing import TypeAlias

from ottla.cli.failures import Misused
from ottla.client.admin.configs import ConfigResource
from ottla.client.admin.quotas import Quota, QuotaEntity

Target: TypeAlias = ConfigResource | QuotaEntity

_OPTIONS = (
    "--topic, --broker, --broker-defaults, --group, "
    "or for quotas --user, --client-id, --ip, --user-defaults, --client-id-defaults, --ip-defaults"
)


@dataclass(frozen=True, slots=True)
class Said:
    """The options as given."""

    topic: str | None = None
    broker: int | None = None
    broker_defaults: bool = False
    group: str | None = None
    user: str | None = None
    user_defaults: bool = False
    client_id: str | None = None
    client_id_defaults: bool = False
    ip: str | None = None
    ip_defaults: bool = False

    def target(self) -> Target:
        """Return the resource; raises Misused for none or several."""
        found: list[Target] = []
        if self.topic is not None:
            found.append(ConfigResource.topic(self.topic))
        if self.broker is not None:
            found.append(ConfigResource.broker(self.broker))
        if self.broker_defaults:
            found.append(ConfigResource.broker(None))
        if self.group is not None:
            found.append(ConfigResource.group(self.group))
        client = QuotaEntity(
            user=_entity("user", self.user, default=self.user_defaults),
            client_id=_entity("client-id", self.client_id, default=self.client_id_defaults),
        )
        address = QuotaEntity(ip=_entity("ip", self.ip, default=self.ip_defaults))
        found += [one for one in (client, address) if one != QuotaEntity()]
        if len(found) != 1:
            raise Misused(f"name exactly one resource: {_OPTIONS}")
        return found[0]


def _entity(what: str, name: str | None, *, default: bool) -> str | Quota | None:
    if name is not None and default:
        raise Misused(f"--{what} and --{what}-defaults exclude each other")
    return Quota.DEFAULT if default else name


def quotas_of(settings: dict[str, str]) -> dict[str, float | None]:
    """Parse quota values, which are numbers."""
    found: dict[str, float | None] = {}
    for name, text in settings.items():
        try:
            found[name] = float(text)
        except ValueError:
            raise Misused(f"{name}={text}: a quota must be a number") from None
    return found
