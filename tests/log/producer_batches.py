"""Batch headers, markers and producer state, for tests that need no bytes."""

from ottla.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence
from ottla.log.producer_state_manager import CompletedTransaction, Duplicate, ProducerStateManager
from ottla.records.batch import TRANSACTIONAL, BatchHeader
from ottla.records.control import EndTxnMarker


def header(
    producer_id: int = 1,
    epoch: int = 0,
    sequence: int = 0,
    count: int = 1,
    *,
    transactional: bool = False,
    base_offset: int = 0,
    timestamp: int = 0,
) -> BatchHeader:
    return BatchHeader(
        base_offset=Offset(base_offset),
        length=49,
        leader_epoch=LeaderEpoch(0),
        magic=2,
        crc=0,
        attributes=TRANSACTIONAL if transactional else 0,
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(epoch),
        base_sequence=Sequence(sequence),
        record_count=count,
    )


class Leader:
    """A producer state with a log end that checks batches and appends the valid ones."""

    def __init__(self, producers: ProducerStateManager | None = None) -> None:
        self.producers = ProducerStateManager() if producers is None else producers
        self.end = 0

    def produce(self, batch: BatchHeader, *, from_client: bool = True) -> Duplicate | None:
        duplicate = self.producers.check(batch, from_client=from_client)
        if duplicate is None:
            self.producers.append(batch, Offset(self.end), batch.max_timestamp)
            self.end += batch.last_offset_delta + 1
        return duplicate

    def end_transaction(
        self,
        producer_id: int = 1,
        epoch: int = 0,
        *,
        commit: bool = True,
        coordinator_epoch: int = 0,
        transaction_version: int | None = 1,
        timestamp: int = 0,
    ) -> CompletedTransaction | None:
        """Append a marker; without a transaction version it is not checked, as on a follower."""
        marker = EndTxnMarker(commit, coordinator_epoch)
        if transaction_version is not None:
            self.producers.check_marker(
                marker,
                producer_id=ProducerId(producer_id),
                producer_epoch=ProducerEpoch(epoch),
                transaction_version=transaction_version,
            )
        completed = self.producers.end_transaction(
            marker,
            producer_id=ProducerId(producer_id),
            producer_epoch=ProducerEpoch(epoch),
            offset=Offset(self.end),
            timestamp=timestamp,
        )
        self.end += 1
        return completed
