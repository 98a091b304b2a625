"""The table of state transitions."""

import pytest

from cases import each_case
from ottla.groups.group import ClassicGroup
from ottla.groups.states import MOVES, IllegalMove, State

# The transitions of Kafka's ClassicGroupState, by target.
FROM = {
    State.EMPTY: {State.PREPARING_REBALANCE},
    State.PREPARING_REBALANCE: {State.STABLE, State.COMPLETING_REBALANCE, State.EMPTY},
    State.COMPLETING_REBALANCE: {State.PREPARING_REBALANCE},
    State.STABLE: {State.COMPLETING_REBALANCE},
    State.DEAD: {State.STABLE, State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE, State.EMPTY},
}


def test_state_transitions_are_kafkas() -> None:
    assert {(a, b) for a, targets in MOVES.items() for b in targets} == {
        (a, b) for b, sources in FROM.items() for a in sources
    }


@each_case("state", State)
@each_case("target", State)
def test_illegal_transition_raises_and_changes_nothing(state: State, target: State) -> None:
    group = ClassicGroup("g", state=state, state_since_ms=7)
    if target in MOVES[state]:
        group.move_to(target, 9)
        assert (group.state, group.state_since_ms) == (target, 9)
    else:
        with pytest.raises(IllegalMove, match=f"from {state.value} to {target.value}"):
            group.move_to(target, 9)
        assert (group.state, group.state_since_ms) == (state, 7)
