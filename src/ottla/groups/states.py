"""The states of a classic group and its state transitions.

Invariant: a group changes its state only as MOVES allows; Dead is final.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from ottla.errors import OttlaError


class State(Enum):
    """State of a classic group; the value is Kafka's name."""

    EMPTY = "Empty"  # no members; may have offsets or assigned member ids
    PREPARING_REBALANCE = "PreparingRebalance"  # waiting for members to join
    COMPLETING_REBALANCE = "CompletingRebalance"  # waiting for the leader's assignment
    STABLE = "Stable"  # members can get their assignments
    DEAD = "Dead"  # removed here: another broker coordinates it


MOVES: Final[Mapping[State, frozenset[State]]] = MappingProxyType(
    {
        State.EMPTY: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
        State.PREPARING_REBALANCE: frozenset({State.EMPTY, State.COMPLETING_REBALANCE, State.DEAD}),
        State.COMPLETING_REBALANCE: frozenset(
            {State.PREPARING_REBALANCE, State.STABLE, State.DEAD}
        ),
        State.STABLE: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
        State.DEAD: frozenset(),
    }
)


class IllegalMove(OttlaError):
    """A bug: a state transition that the table does not allow; nothing was changed."""

    def __init__(self, group_id: str, state: State, target: State) -> None:
        super().__init__(f"group {group_id!r} cannot move from {state.value} to {target.value}")


def check_move(group_id: str, state: State, target: State) -> None:
    """Raise IllegalMove unless the table allows the transition."""
    if target not in MOVES[state]:
        raise IllegalMove(group_id, state, target)
