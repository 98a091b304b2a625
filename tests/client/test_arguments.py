"""Client arguments of the wrong form are refused by the call; the error shows the right form."""

from collections.abc import Callable, Coroutine
from decimal import Decimal
from typing import Any

import pytest

from cases import each_case
from client.consumer.test_scripted_consumer import Stage, reading
from client.consumer_scenarios import take
from client.scenario_runner import run
from ottla.client.arguments import (
    NOTE_BYTES_MAX,
    OFFSET_MAX,
    offset_of,
    pair_of,
    seconds_of,
    time_of,
)
from ottla.client.group.offsets import OffsetAndMetadata
from ottla.ids import TopicPartition

T = ("t", 0)


@each_case(
    ("check", "given", "error", "says"),
    [
        (pair_of, "t", TypeError, r"a pair of topic and number such as \(\"orders\", 0\)"),
        (pair_of, "ab", TypeError, "a pair of topic and number"),
        (pair_of, [("t", 0), ("t", 1)], TypeError, "pass one pair per partition"),
        (pair_of, ("t", 0, 1), TypeError, "a pair"),
        (pair_of, ("t", "0"), TypeError, "a partition number must be an integer"),
        (pair_of, ("t", -1), ValueError, "from 0 to 2147483647, not -1"),
        (pair_of, (5, 0), TypeError, "a topic name must be a str"),
        (offset_of, -5, ValueError, "an offset must be from 0 to 9223372036854775807, not -5"),
        (offset_of, OFFSET_MAX + 1, ValueError, "an offset must be from 0"),
        (offset_of, 1.5, TypeError, r"an offset must be an integer, not 1\.5 \(float\)"),
        (offset_of, "5", TypeError, "an offset must be an integer"),
        (time_of, -1, ValueError, "milliseconds since 1970"),
        (time_of, None, TypeError, "milliseconds since 1970.*None"),
        (seconds_of, "3", TypeError, r"timeout_s must be a number of seconds, not '3' \(str\)"),
        (seconds_of, None, TypeError, "not None"),
        (seconds_of, Decimal(3), TypeError, "Decimal"),
    ],
)
def test_wrong_argument_form_names_the_right_one(
    check: Callable[[object], object], given: object, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        check(given)


class IndexNumber:
    """An integer type of another library."""

    def __index__(self) -> int:
        return 5


def test_integers_of_any_type_are_offsets() -> None:
    assert offset_of(OFFSET_MAX) == OFFSET_MAX
    assert offset_of(IndexNumber()) == 5
    assert pair_of(TopicPartition("t", 3)) == ("t", 3)


def test_committed_offsets_are_not_negative() -> None:
    with pytest.raises(ValueError, match="not -5"):
        OffsetAndMetadata(-5)
    with pytest.raises(TypeError, match="must be an integer"):
        OffsetAndMetadata.of("5")  # pyright: ignore[reportArgumentType]
    noted = OffsetAndMetadata(5, "a note")
    assert OffsetAndMetadata.of(noted) is noted
    assert OffsetAndMetadata.of(5) == OffsetAndMetadata(5)


def test_too_long_or_invalid_offset_metadata_is_refused() -> None:
    longest = "é" * (NOTE_BYTES_MAX // 2)
    assert OffsetAndMetadata(5, longest + "e").metadata == longest + "e"
    with pytest.raises(ValueError, match="has 32768 bytes, but the maximum is 32767"):
        OffsetAndMetadata(5, longest + "é")
    with pytest.raises(ValueError, match="surrogates not allowed"):
        OffsetAndMetadata(5, "\ud800")
    with pytest.raises(TypeError, match=r"metadata of an offset must be a str, not b'note'"):
        OffsetAndMetadata(5, b"note")  # pyright: ignore[reportArgumentType]


WRONG: list[Callable[[Any], object]] = [
    lambda ours: ours.seek(T, 1 << 63),
    lambda ours: ours.seek(T, 1.5),
    lambda ours: ours.seek(T, -5),
    lambda ours: ours.seek_to_time(1.5, T),
    lambda ours: ours.assign("t"),
    lambda ours: ours.assign(("t", -1)),
    lambda ours: ours.assign((5, 0)),
    lambda ours: ours.pause("t", 0),
    lambda ours: ours.commit_soon({T: -5}),
    lambda ours: ours.commit_soon({"t": 5}),
    lambda ours: ours.subscribe(["t"]),
    lambda ours: ours.subscribe(b"t"),
]
WRONG_LATER: list[Callable[[Any], Coroutine[Any, Any, object]]] = [
    lambda ours: ours.commit({T: -5}),
    lambda ours: ours.commit({T: "5"}),
    lambda ours: ours.commit({"t": 5}),
    lambda ours: ours.commit([("t", 5)]),
    lambda ours: ours.offsets_for_times([T]),
    lambda ours: ours.offsets_for_times({T: 1.5}),
    lambda ours: ours.position("t"),
    lambda ours: ours.committed("t"),
    lambda ours: ours.partitions(b"t"),
]


WRONG_TIMES: list[Callable[[Any], Coroutine[Any, Any, object]]] = [
    lambda ours: ours.poll("3"),
    lambda ours: ours.poll(None),
    lambda ours: ours.poll_arrow("3"),
    lambda ours: ours.position(T, "3"),
    lambda ours: ours.commit(timeout_s="3"),
    lambda ours: ours.end_offsets(T, timeout_s="3"),
]


def test_wrong_timeouts_of_a_consumer_are_refused() -> None:
    async def scenario() -> None:
        stage = Stage()
        async with stage.broker() as broker, reading(broker, group="g") as ours:
            ours.assign(T)
            for wrong in WRONG_TIMES:
                with pytest.raises(TypeError, match="timeout_s must be a number of seconds, not"):
                    await wrong(ours)
            with pytest.raises(TypeError, match=r"max_records must be an integer, not '3' \(str\)"):
                await ours.poll(max_records="3")  # pyright: ignore[reportArgumentType]

    run(scenario())


def test_consumer_continues_after_a_refused_argument() -> None:
    async def scenario() -> None:
        stage = Stage()
        async with stage.broker() as broker, reading(broker, group="g") as ours:
            ours.assign(T)
            ours.seek(T, 3)
            for wrong in WRONG:
                with pytest.raises((TypeError, ValueError)):
                    wrong(ours)
            for wrong in WRONG_LATER:
                with pytest.raises((TypeError, ValueError)):
                    await wrong(ours)
            assert (await take(ours, 1))[0].offset == 3
            assert ours.assignment == {T}

    run(scenario())
