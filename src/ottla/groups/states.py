"""The states of a classic group and the moves between them.

Invariant: a group moves only along MOVES; nothing leads out of Dead.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from ottla.errors import OttlaError


class State(Enum):
    """Where a classic group is in the life of a generation; the value is Kafka's name for it."""

    EMPTY = "Empty"  # no members; perhaps offsets, perhaps ids handed out
    PREPARING_REBALANCE = "PreparingRebalance"  # waits for its members to join
    COMPLETING_REBALANCE = "CompletingRebalance"  # waits for the leader's assignment
    STABLE = "Stable"  # every member may have its assignment
    DEAD = "Dead"  # no longer here: another broker coordinates it


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
    """A group was to take a move that the table does not have: our mistake, nothing changed."""

    def __init__(self, group_id: str, state: State, target: State) -> None:
        super().__init__(f"group {group_id!r} cannot move from {state.value} to {target.value}")


def check_move(group_id: str, state: State, target: State) -> None:
    """Raise IllegalMove unless the table has the move."""
    if target not in MOVES[state]:
        raise IllegalMove(group_id, state, target)
