"""Backoff: pauses double, stay below their limit, and have jitter."""

import pytest

from cases import each_case
from ottla.transport.backoff import Backoff


@each_case(
    ("failures", "pause_s"), [(0, 0), (1, 0.1), (2, 0.2), (3, 0.4), (4, 0.8), (5, 1), (10**6, 1)]
)
def test_pauses_double_up_to_the_limit(failures: int, pause_s: float) -> None:
    assert Backoff(0.1, 1.0, lambda: 0.5).pause_s(failures) == pytest.approx(pause_s)


def test_pauses_have_twenty_percent_jitter() -> None:
    chances = iter((0.0, 1.0))
    backoff = Backoff(1.0, 1.0, lambda: next(chances))
    assert [backoff.pause_s(1), backoff.pause_s(1)] == pytest.approx([0.8, 1.2])


def test_first_pause_above_the_limit_is_capped() -> None:
    assert Backoff(5.0, 1.0, lambda: 0.5).pause_s(1) == pytest.approx(1)
