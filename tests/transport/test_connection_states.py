"""The states of a connection and the table of their transitions."""

import pytest

from ottla.clock import SystemClock
from ottla.transport.connection import (
    TRANSITIONS,
    Admittance,
    Connection,
    ConnectionConfig,
    Event,
    State,
)


def connection_in(state: State) -> Connection:
    connection = Connection(
        lambda request, connection: None,
        lambda connection: Admittance.ADMITTED,
        lambda connection: None,
        ConnectionConfig(),
        SystemClock(),
    )
    connection._state = state  # pyright: ignore[reportPrivateUsage]
    return connection


def test_every_state_is_reachable_and_ends_in_closed() -> None:
    reached = {State.OPENING}
    while more := {to for (start, _), to in TRANSITIONS.items() if start in reached} - reached:
        reached |= more
    assert reached == set(State)
    assert all(TRANSITIONS[state, Event.LOSE] is State.CLOSED for state in State)
    assert {to for (start, _), to in TRANSITIONS.items() if start is State.CLOSED} == {State.CLOSED}


def test_illegal_transition_raises_and_changes_nothing() -> None:
    for state in State:
        for event in Event:
            connection = connection_in(state)
            if (state, event) in TRANSITIONS:
                connection._change(event)  # pyright: ignore[reportPrivateUsage]
                expected = TRANSITIONS[state, event]
            else:
                with pytest.raises(AssertionError, match=event.name):
                    connection._change(event)  # pyright: ignore[reportPrivateUsage]
                expected = state
            assert connection._state is expected, (state, event)  # pyright: ignore[reportPrivateUsage]
