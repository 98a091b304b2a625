"""What a follower does with a response: decisions of rules A2 and A17, all small cases."""

from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement, product

import pytest

from cases import each_case
from ottla.errors import ErrorCode
from ottla.ids import LeaderEpoch, Offset
from ottla.log.appender import UnexpectedOffset
from ottla.log.epochs import EpochEnd, EpochHistory
from ottla.replication.truncation import (
    FindRange,
    RestartAt,
    Retry,
    TruncateTo,
    after_divergence,
    after_no_records,
    after_out_of_range,
    after_unexpected_offset,
    first_action,
)

Epochs = tuple[int, ...]  # the leader epoch of the record at each offset
EPOCH_MAX = 3
LENGTH_MAX = 3


def history(log: Epochs, empty_epoch: int | None = None) -> EpochHistory:
    """The epoch history of a log; `empty_epoch` began at its end and has no records."""
    epochs = EpochHistory()
    for offset, epoch in enumerate(log):
        epochs.assign(LeaderEpoch(epoch), Offset(offset))
    if empty_epoch is not None:
        epochs.assign(LeaderEpoch(empty_epoch), Offset(len(log)))
    return epochs


def logs() -> list[Epochs]:
    return [
        log
        for length in range(LENGTH_MAX + 1)
        for log in combinations_with_replacement(range(EPOCH_MAX + 1), length)
    ]


def common_prefix(one: Epochs, other: Epochs) -> int:
    """The length of the longest common prefix."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def is_possible(leader: Epochs, follower: Epochs) -> bool:
    """Whether both logs can exist: the leader of an epoch began it once, with one log before it."""
    for epoch in {*leader} & {*follower}:
        begins = leader.index(epoch)
        if begins != follower.index(epoch) or leader[:begins] != follower[:begins]:
            return False
    return True


def pairs() -> Iterator[tuple[Epochs, Epochs, int | None]]:
    """Leader, follower, and an epoch without records in which the follower led before."""
    for leader, follower in product(logs(), logs()):
        if is_possible(leader, follower):
            last = follower[-1] if follower else -1
            yield leader, follower, None
            for empty_epoch in range(last + 1, EPOCH_MAX + 1):
                if empty_epoch not in leader:  # only the follower led in it
                    yield leader, follower, empty_epoch


def diverging(epochs: EpochHistory, log_end: int, asked: int, offset: int) -> EpochEnd | None:
    """The leader's check of a Fetch (KIP-595)."""
    if asked < 0:
        return None
    end = epochs.end_offset(asked, Offset(log_end))
    assert end is not None
    return end if end.epoch < asked or end.end_offset < offset else None


def reconcile(leader: Epochs, follower: Epochs, empty_epoch: int | None) -> list[int]:
    """Fetch and truncate until the logs agree; return the end offsets of the follower."""
    led = history(leader, EPOCH_MAX + 1)
    epochs = history(follower, empty_epoch)
    ends = [len(follower)]
    while True:
        latest = epochs.latest
        asked = -1 if latest is None else latest.epoch
        end = diverging(led, len(leader), asked, ends[-1])
        if end is None:
            return ends
        cut = after_divergence(end, epochs, Offset(ends[-1]))
        assert isinstance(cut, TruncateTo), (leader, follower, empty_epoch, ends)
        assert cut.offset <= ends[-1]
        epochs.truncate_from_end(cut.offset)
        ends.append(cut.offset)


def test_a2_truncation_ends_at_the_common_prefix() -> None:
    cases = [*pairs()]
    wrong: list[tuple[Epochs, Epochs, int | None, list[int]]] = []
    for leader, follower, empty_epoch in cases:
        ends = reconcile(leader, follower, empty_epoch)
        rounds_max = len(set(follower)) + (empty_epoch is not None)
        if ends[-1] != common_prefix(leader, follower) or len(ends) - 1 > rounds_max:
            wrong.append((leader, follower, empty_epoch, ends))
    assert not wrong
    assert len(cases) > 1000


def test_a2_three_failovers_inside_one_lag_period() -> None:
    # The follower has records of epochs 1 and 3 that nobody committed; the leader led in 2 and 4.
    assert reconcile((0, 0, 2, 2, 4), (0, 0, 1, 3, 3), None) == [5, 3, 2]
    assert reconcile((0, 1, 1, 4), (0, 2, 3), None) == [3, 1]


def test_a2_unknown_epoch_is_cut_to_the_next_lower_one() -> None:
    epochs = history((0, 0, 1, 4))
    cut = after_divergence(EpochEnd(LeaderEpoch(3), Offset(9)), epochs, Offset(4))
    assert cut == TruncateTo(Offset(3))  # the end of epoch 1


@each_case(
    ("epoch", "end_offset"),
    [(1, 3), (1, 9), (1, -1)],
)
def test_divergence_without_a_difference_is_not_repeated_at_once(
    epoch: int, end_offset: int
) -> None:
    epochs = history((0, 0, 1))
    end = EpochEnd(LeaderEpoch(epoch), Offset(end_offset))
    assert after_divergence(end, epochs, Offset(3)) == Retry(ErrorCode.UNKNOWN_SERVER_ERROR)


def test_errors_are_retried_except_out_of_range() -> None:
    epochs = history((0,))
    wrong: list[ErrorCode] = []
    for code in ErrorCode:
        if code is ErrorCode.NONE:
            continue
        expected = FindRange() if code is ErrorCode.OFFSET_OUT_OF_RANGE else Retry(code)
        if after_no_records(int(code), None, epochs, Offset(1)) != expected:
            wrong.append(code)
    assert not wrong


@each_case(
    ("log", "log_start", "high_watermark", "expected"),
    [
        ((), 0, 0, None),
        ((1, 1, 1), 0, 1, None),  # never by high watermark if there are epochs
        (None, 0, 2, 2),
        (None, 0, 3, None),
        (None, 1, 0, 1),
        (None, 3, 0, None),  # no records
    ],
)
def test_a2_only_logs_without_epochs_are_cut_at_the_high_watermark(
    log: Epochs | None, log_start: int, high_watermark: int, expected: int | None
) -> None:
    found = first_action(
        EpochHistory() if log is None else history(log),
        log_start=Offset(log_start),
        log_end=Offset(3 if log is None else len(log)),
        high_watermark=Offset(high_watermark),
    )
    assert found == (None if expected is None else TruncateTo(Offset(expected)))


@each_case(
    ("own_end", "start", "end", "expected"),
    [
        (5, 0, 3, TruncateTo(Offset(3))),  # an unclean election
        (5, 7, 9, RestartAt(Offset(7))),  # records were deleted (rule A17)
        (5, 5, 9, None),
        (5, 2, 5, None),
        (0, 4, 4, RestartAt(Offset(4))),
    ],
)
def test_a17_out_of_range(
    own_end: int, start: int, end: int, expected: TruncateTo | RestartAt | None
) -> None:
    found = after_out_of_range(Offset(own_end), leader_start=Offset(start), leader_end=Offset(end))
    assert found == expected


@each_case(
    ("first", "last", "log_start", "expected"),
    [
        (3, 8, 5, RestartAt(Offset(3))),  # the log start offset of the leader is inside a batch
        (3, 5, 5, RestartAt(Offset(3))),
        (3, 4, 5, None),  # does not hold the requested offset
        (3, 8, 4, None),  # the log is not empty
    ],
)
def test_a17_batch_around_the_log_start(
    first: int, last: int, log_start: int, expected: RestartAt | None
) -> None:
    error = UnexpectedOffset(5, first, last)
    assert (
        after_unexpected_offset(error, log_start=Offset(log_start), log_end=Offset(5)) == expected
    )


@pytest.mark.parametrize("follower", [(0,), (0, 1), (1, 1, 2)])
def test_a2_follower_behind_a_matching_leader_is_not_cut(follower: Sequence[int]) -> None:
    leader = (*follower, 3)
    assert reconcile(leader, tuple(follower), None) == [len(follower)]
