"""How a consumer enters a group: in the protocol that its settings name.

Invariant: what comes back is a Membership, and whoever uses it need not know which.
"""

from collections.abc import Callable, Sequence

from ottla.client.connecting.metadata import Metadata
from ottla.client.membership.classic import ClassicMembership
from ottla.client.membership.coordinator import GroupCoordinator
from ottla.client.membership.modern import ModernMembership
from ottla.client.membership.owner import GroupOwner, Membership
from ottla.client.membership.rules import GroupRules
from ottla.clock import Clock
from ottla.groups.assignors.assignor import Assignor


def membership_of(
    owner: GroupOwner,
    metadata: Metadata,
    coordinator: GroupCoordinator,
    rules: GroupRules,
    clock: Clock,
    chance: Callable[[], float],
    assignors: Sequence[Assignor] = (),
) -> Membership:
    """The membership of one consumer; `assignors` of its own are for a classic group."""
    if rules.is_modern:
        return ModernMembership(owner, metadata, coordinator, rules, clock, chance)
    return ClassicMembership(owner, metadata, coordinator, rules, clock, assignors)
