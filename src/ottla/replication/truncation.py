"""What a follower does with the response to its Fetch: pure decisions (rules A2, A16 and A17).

A follower sends the epoch of its last record with every Fetch (KIP-595). If its log diverges, the
leader responds with the largest epoch that it knows up to this one, and where that epoch ends. The
follower truncates, and the next Fetch is checked again, until the epochs match.

Invariant: a truncation makes progress. Each one removes records or an epoch, so their number is
bounded by the number of epochs of the follower.
"""

from typing import NamedTuple

from ottla.errors import ErrorCode
from ottla.ids import Offset
from ottla.log.appender import UnexpectedOffset
from ottla.log.epochs import EpochEnd, EpochHistory


class TruncateTo(NamedTuple):
    """Truncate the log to an offset."""

    offset: Offset


class RestartAt(NamedTuple):
    """Delete every record and start the log at an offset."""

    offset: Offset


class FindRange(NamedTuple):
    """Ask the leader for its log start offset and log end offset."""


class Retry(NamedTuple):
    """Fetch the partition again after a backoff."""

    error: ErrorCode


def first_action(
    epochs: EpochHistory, *, log_start: Offset, log_end: Offset, high_watermark: Offset
) -> TruncateTo | None:
    """Return what a replica does before its first Fetch of a leader epoch; usually nothing.

    A log with records but without a leader epoch was written by an old Kafka. Nobody can tell where
    it diverges. As in Kafka, the follower keeps what is below its high watermark.
    """
    if log_end > log_start and epochs.latest is None and high_watermark < log_end:
        return TruncateTo(max(high_watermark, log_start))
    return None


def after_no_records(
    error_code: int, diverging: EpochEnd | None, epochs: EpochHistory, log_end: Offset
) -> TruncateTo | FindRange | Retry:
    """Return what a follower does if the leader returned an error or a diverging epoch.

    FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH are repeated, too. One of the two brokers has not
    applied the newest partition state yet, and the next state replaces this fetch.
    """
    if error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return FindRange()
    if error_code != ErrorCode.NONE:
        return Retry(ErrorCode.of(error_code))
    assert diverging is not None
    return after_divergence(diverging, epochs, log_end)


def after_divergence(
    diverging: EpochEnd, epochs: EpochHistory, log_end: Offset
) -> TruncateTo | Retry:
    """Return where a follower truncates if its last epoch diverges from the leader (rule A2).

    If the follower knows the leader's epoch, that epoch ends at the smaller of the two end offsets.
    Otherwise the follower truncates to the end of the next lower epoch that it knows (KIP-279).
    """
    latest = epochs.latest
    own = epochs.end_offset(diverging.epoch, log_end)
    if own is None:
        offset = min(diverging.end_offset, log_end)
    elif own.epoch == diverging.epoch:
        offset = min(own.end_offset, diverging.end_offset, log_end)
    else:
        offset = min(own.end_offset, log_end)
    if offset < 0 or (offset >= log_end and (latest is None or latest.start_offset < offset)):
        # The log does not diverge there. Truncation would change nothing, for ever.
        return Retry(ErrorCode.UNKNOWN_SERVER_ERROR)
    return TruncateTo(Offset(offset))


def after_out_of_range(
    log_end: Offset, *, leader_start: Offset, leader_end: Offset
) -> TruncateTo | RestartAt | None:
    """Return what a follower does whose fetch offset the leader does not have; None: fetch again.

    The leader has deleted records (rule A17), or has fewer after an unclean election.
    """
    if leader_end < log_end:
        return TruncateTo(leader_end)
    if leader_start > log_end:
        return RestartAt(leader_start)
    return None


def after_unexpected_offset(
    error: UnexpectedOffset, *, log_start: Offset, log_end: Offset
) -> RestartAt | None:
    """Return how an empty log takes a first batch that starts below it; None: an error.

    The leader's log start offset may lie inside a batch, because DeleteRecords can move it there.
    The follower then starts at the base offset of this batch (rule A17).
    """
    if log_start == log_end and error.first_offset < log_end <= error.last_offset:
        return RestartAt(Offset(error.first_offset))
    return None
