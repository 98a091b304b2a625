"""Creates the membership for the configured group protocol.

Callers use the Membership interface and do not need to know the protocol.
"""

from collections.abc import Callable, Sequence

from ottla.client.group.classic import ClassicMembership
from ottla.client.group.config import GroupConfig
from ottla.client.group.coordinator import GroupCoordinator
from ottla.client.group.interfaces import GroupOwner, Membership
from ottla.client.group.kip848 import Kip848Membership
from ottla.client.network.metadata import Metadata
from ottla.clock import Clock
from ottla.groups.assignors.assignor import Assignor


def membership_of(
    owner: GroupOwner,
    metadata: Metadata,
    coordinator: GroupCoordinator,
    rules: GroupConfig,
    clock: Clock,
    random: Callable[[], float],
    assignors: Sequence[Assignor] = (),
) -> Membership:
    """Return the membership of a consumer; own `assignors` require a classic group."""
    if rules.is_modern:
        return Kip848Membership(owner, metadata, coordinator, rules, clock, random)
    return ClassicMembership(owner, metadata, coordinator, rules, clock, assignors)
