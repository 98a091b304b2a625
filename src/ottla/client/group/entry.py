"""How a consumer enters a group: in the protocol that its settings name.

Invariant: what comes back is a Membership, and whoever uses it need not know which.
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
    """The membership of one consumer; `assignors` of its own are for a classic group."""
    if rules.is_modern:
        return Kip848Membership(owner, metadata, coordinator, rules, clock, random)
    return ClassicMembership(owner, metadata, coordinator, rules, clock, assignors)
