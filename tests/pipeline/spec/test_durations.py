import pytest

from cases import each_case
from ottla.pipeline.spec.durations import BadDuration, duration_ms


@each_case(
    ("text", "ms"),
    [
        ("5 seconds", 5_000),
        ("1 second", 1_000),
        ("500 ms", 500),
        ("5s", 5_000),
        ("1 Hour 30 Minutes", 5_400_000),
        ("2 weeks", 1_209_600_000),
        ("0 seconds", 0),
    ],
)
def test_durations_are_parsed(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@each_case("text", ["", " ", "5", "five seconds", "5 secs ago", "-5 seconds", "1.5 s", "1 year"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(BadDuration, match=f'"{text.strip()}'):
        duration_ms(text)
