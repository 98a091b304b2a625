"""The leader epoch history: its entries, its lookups and its file."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each_case
from ottla.ids import LeaderEpoch, Offset
from ottla.log.epochs import EpochHistory
from ottla.log.errors import CorruptText

# Written by Kafka 4.3.1.
KAFKA = "0\n3\n0 0\n3 17\n2147483647 9000000000\n"


def history(*entries: tuple[int, int]) -> EpochHistory:
    made = EpochHistory()
    for epoch, start_offset in entries:
        made.assign(LeaderEpoch(epoch), Offset(start_offset))
    return made


def test_epoch_file_has_the_format_of_kafka() -> None:
    parsed = EpochHistory.parse(KAFKA)
    assert list(parsed) == [(0, 0), (3, 17), (2147483647, 9000000000)]
    assert parsed.format() == KAFKA
    assert list(EpochHistory.parse("")) == []  # Kafka creates the file before it writes content
    assert EpochHistory().format() == "0\n0\n"


@each_case(
    ("text", "message"),
    [
        ("1\n0\n", "line 1: unknown version 1, expected 0"),
        ("zero\n0\n", "line 1: version: expected a number, found 'zero'"),
        ("0\n", "line 2: the number of entries is missing"),
        ("0\n2\n0 0\n", "line 2: expected 2 entries, found 1"),
        ("0\n1\n0 0\n1 5\n", "line 2: expected 1 entries, found 2"),
        ("0\n1\n0\n", "line 3: expected 2 columns, found '0'"),
        ("0\n1\n0 0 0\n", "line 3: expected 2 columns, found '0 0 0'"),
        ("0\n2\n0 0\n1 x\n", "line 4: offset: expected a number, found 'x'"),
        ("0\n1\n-1 0\n", "line 3: epoch: -1 is not in 0 to 2147483647"),
        ("0\n1\n0 -5\n", "line 3: offset: -5 is not in 0 to 9223372036854775807"),
        ("0\n1\n2147483648 0\n", "line 3: epoch: 2147483648 is not in 0 to 2147483647"),
        ("0\n1\n0 1234", "line 3: the file is truncated"),  # it may have been 12345
    ],
)
def test_damaged_epoch_file_error_has_the_line(text: str, message: str) -> None:
    with pytest.raises(CorruptText) as raised:
        EpochHistory.parse(text)
    assert str(raised.value) == message


def test_later_entries_replace_conflicting_ones_as_in_kafka() -> None:
    assert list(EpochHistory.parse("0\n3\n1 5\n2 6\n1 7\n")) == [(1, 7)]


def test_a1_epoch_without_records_is_kept_until_replaced() -> None:
    epochs = history((1, 0), (2, 10))
    assert epochs.assign(LeaderEpoch(3), Offset(10))  # nothing was written in epoch 2
    assert list(epochs) == [(1, 0), (3, 10)]
    # A follower whose tail has epoch 2 diverges from this log where epoch 1 ends.
    assert epochs.end_offset(2, Offset(30)) == (1, 10)


def test_a1_batch_of_the_latest_epoch_changes_nothing() -> None:
    epochs = history((1, 0), (2, 10))
    assert not epochs.assign(LeaderEpoch(2), Offset(10))
    assert not epochs.assign(LeaderEpoch(2), Offset(11))
    assert list(epochs) == [(1, 0), (2, 10)]


def test_assign_removes_conflicting_entries() -> None:
    epochs = history((1, 5), (2, 6))
    assert epochs.assign(LeaderEpoch(1), Offset(7))
    assert list(epochs) == [(1, 7)]
    epochs = history((1, 5), (2, 6), (4, 20))
    assert epochs.assign(LeaderEpoch(5), Offset(6))
    assert list(epochs) == [(1, 5), (5, 6)]


@each_case(
    ("asked", "answer"),
    [
        (-1, None),  # a follower without an epoch
        (0, (0, 5)),  # deleted: everything from the first epoch on exists
        (1, (1, 5)),
        (2, (2, 9)),
        (3, (2, 9)),  # an epoch in which this replica wrote nothing
        (5, (4, 30)),
        (6, (6, 50)),  # the latest ends with the log
        (7, None),  # unknown to this replica
    ],
)
def test_a2_epoch_ends_where_the_next_one_starts(
    asked: int, answer: tuple[int, int] | None
) -> None:
    assert history((2, 5), (4, 9), (6, 30)).end_offset(asked, Offset(50)) == answer


def test_a2_empty_history_has_no_end_offset() -> None:
    assert EpochHistory().end_offset(0, Offset(0)) is None


def truncate_to_leader(
    follower: EpochHistory, end: int, leader: EpochHistory, leader_end: int
) -> int:
    """Truncate a follower by rule A2 until it agrees with its leader; return its log end."""
    while (latest := follower.latest) is not None:
        answer = leader.end_offset(latest.epoch, Offset(leader_end))
        assert answer is not None
        own = follower.end_offset(answer.epoch, Offset(end))
        assert own is not None
        end = min(end, own.end_offset)
        agreed = own.epoch == answer.epoch
        if agreed:
            end = min(end, answer.end_offset)
        follower.truncate_from_end(end)
        if agreed:
            break
    return end


@given(data=st.data())
def test_a2_replicas_agree_after_the_follower_truncates(data: st.DataObject) -> None:
    """Logs that diverge several times; each batch is the epoch in which it was written."""
    logs: list[list[int]] = [[], [], []]
    epochs = [EpochHistory() for _ in logs]
    for epoch in range(1, data.draw(st.integers(2, 8))):
        leader = data.draw(st.integers(0, 2))
        epochs[leader].assign(LeaderEpoch(epoch), Offset(len(logs[leader])))  # rule A1
        for replica in range(3):
            if replica != leader and data.draw(st.booleans()):
                end = truncate_to_leader(
                    epochs[replica], len(logs[replica]), epochs[leader], len(logs[leader])
                )
                del logs[replica][end:]
                assert logs[replica] == logs[leader][:end]
                for written_in in logs[leader][end:]:
                    start = Offset(len(logs[replica]))
                    epochs[replica].assign(LeaderEpoch(written_in), start)
                    logs[replica].append(written_in)
        logs[leader] += [epoch] * data.draw(st.integers(0, 4))
    for log, kept in zip(logs, epochs, strict=True):
        assert [kept.epoch_of(offset) for offset in range(len(log))] == log


def test_previous_and_next_epoch_are_found() -> None:
    epochs = history((2, 5), (4, 9))
    assert (epochs.earliest, epochs.latest) == ((2, 5), (4, 9))
    assert [epochs.previous(epoch) for epoch in (2, 3, 4, 5)] == [None, 2, 2, 4]
    assert [epochs.next(epoch) for epoch in (1, 2, 3, 4)] == [2, 4, 4, None]
    assert [epochs.epoch_of(offset) for offset in (4, 5, 8, 9, 99)] == [None, 2, 2, 4, 4]
    assert (EpochHistory().earliest, EpochHistory().latest) == (None, None)


def test_truncation_of_the_end_removes_epochs() -> None:
    epochs = history((2, 5), (4, 9), (6, 30))
    assert not epochs.truncate_from_end(31)
    assert epochs.truncate_from_end(30)
    assert list(epochs) == [(2, 5), (4, 9)]
    assert epochs.truncate_from_end(0)
    assert list(epochs) == []


def test_later_log_start_keeps_its_epoch() -> None:
    epochs = history((2, 5), (4, 9), (6, 30))
    assert not epochs.truncate_from_start(Offset(3))
    assert not epochs.truncate_from_start(Offset(5))
    assert epochs.truncate_from_start(Offset(7))
    assert list(epochs) == [(2, 7), (4, 9), (6, 30)]
    assert epochs.truncate_from_start(Offset(9))
    assert list(epochs) == [(4, 9), (6, 30)]
    assert epochs.truncate_from_start(Offset(100))
    assert list(epochs) == [(6, 100)]


def test_until_returns_a_copy() -> None:
    epochs = history((2, 5), (3, 9))
    shorter = epochs.until(9)
    assert list(shorter) == [(2, 5)]
    shorter.assign(LeaderEpoch(7), Offset(9))
    assert list(epochs) == [(2, 5), (3, 9)]
    assert epochs.until(5).latest is None


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 60)), max_size=30))
def test_epochs_and_offsets_increase_and_round_trip(
    entries: list[tuple[int, int]],
) -> None:
    epochs = history(*entries)
    for one, other in pairwise(epochs):
        assert one.epoch < other.epoch
        assert one.start_offset < other.start_offset
    assert list(EpochHistory.parse(epochs.format())) == list(epochs)
    if entries:
        latest = epochs.latest
        assert latest is not None
        assert latest.epoch == entries[-1][0]
