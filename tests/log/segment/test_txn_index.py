"""The transaction index, compared with the bytes of Kafka and with how Kafka collects entries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each_case
from log.producer_batches import Leader, header
from ottla.ids import Offset, ProducerId
from ottla.log.errors import CorruptIndex
from ottla.log.segment.txn_index import AbortedTransaction, TransactionIndex

BASE = Offset(100)

# Written by Kafka 4.3.1.
KAFKA = bytes.fromhex(
    "0000000000000000000700000000000000640000000000000078000000000000006e"
    "00000000000000000008000000000000006e00000000000000820000000000000083"
    "00000000000218711a00000000000000008700000000000000960000000000000097"
)


def aborted(producer: int, first: int, last: int, stable: int) -> AbortedTransaction:
    return AbortedTransaction(ProducerId(producer), Offset(first), Offset(last), Offset(stable))


TRANSACTIONS = [
    aborted(7, 100, 120, 110),
    aborted(8, 110, 130, 131),
    aborted(9_000_000_000, 135, 150, 151),
]


def index_of(transactions: list[AbortedTransaction], base: int = BASE) -> TransactionIndex:
    index = TransactionIndex(Offset(base))
    for transaction in transactions:
        index.append(transaction)
    return index


def test_txn_index_bytes_equal_kafka() -> None:
    index = TransactionIndex(BASE, KAFKA)
    index.check()
    assert list(index) == TRANSACTIONS
    assert index_of(TRANSACTIONS).to_bytes() == KAFKA
    assert index.ENTRY.size == 34


@each_case(
    ("fetch_offset", "upper_bound", "producers", "complete"),
    [
        (100, 105, [7], True),
        (100, 111, [7, 8], True),
        (121, 131, [8], True),
        (131, 132, [], True),
        (151, 200, [], False),
        (100, 152, [7, 8, 9_000_000_000], False),
        (0, 100, [], True),
        (120, 121, [7, 8], True),
        (135, 151, [9_000_000_000], True),
        (135, 152, [9_000_000_000], False),
    ],
)
def test_aborted_transactions_are_collected_as_in_kafka(
    fetch_offset: int, upper_bound: int, producers: list[int], complete: bool
) -> None:
    found = TransactionIndex(BASE, KAFKA).overlapping(fetch_offset, upper_bound)
    assert [transaction.producer_id for transaction in found.transactions] == producers
    assert found.complete == complete


def test_search_ends_at_the_last_stable_offset() -> None:
    # A follower of Kafka indexes the markers of a fetch after it has read all of its records.
    index = index_of([aborted(7, 100, 120, 140)])
    assert index.overlapping(125, 140) == ([], True)
    assert index.overlapping(125, 141) == ([], False)


@each_case(("offset", "left"), [(0, 0), (120, 0), (121, 1), (150, 2), (151, 3)])
def test_truncation_removes_transactions_by_their_marker(offset: int, left: int) -> None:
    for index in (index_of(TRANSACTIONS), TransactionIndex(BASE, KAFKA)):
        index.truncate_to(offset)
        assert list(index) == TRANSACTIONS[:left]
        assert index.to_bytes() == KAFKA[: left * 34]


def test_markers_must_be_in_log_order() -> None:
    for transaction in (aborted(1, 140, 150, 151), aborted(1, 160, 155, 156)):
        with pytest.raises(AssertionError):
            index_of([*TRANSACTIONS, transaction])
    with pytest.raises(AssertionError):
        index_of([aborted(1, 90, 99, 100)])
    assert index_of([aborted(1, 5, 100, 101)]).entries == 1  # began in an earlier segment


@each_case(
    "data",
    [
        pytest.param(KAFKA[:-1], id="cut off"),
        pytest.param(b"\0\1" + KAFKA[2:], id="another version"),
        pytest.param(bytes(34), id="zeros: a marker below the segment"),
        pytest.param(KAFKA + bytes(34), id="zeros after the entries"),
        pytest.param(KAFKA[34:68] + KAFKA[:34], id="out of order"),
        pytest.param(KAFKA[:34] + KAFKA[:34], id="twice"),
        pytest.param(KAFKA[:2] + b"\xff" * 8 + KAFKA[10:34], id="no producer"),
        pytest.param(KAFKA[:10] + KAFKA[18:26] + KAFKA[10:18] + KAFKA[26:34], id="ends first"),
    ],
)
def test_damaged_index_is_detected(data: bytes) -> None:
    with pytest.raises(CorruptIndex):
        TransactionIndex(BASE, data).check()


def collected(
    transactions: list[AbortedTransaction], fetch_offset: int, upper_bound: int
) -> tuple[list[AbortedTransaction], bool]:
    """Read entries in order until one shows that everything below the upper bound is decided."""
    found: list[AbortedTransaction] = []
    for transaction in transactions:
        if transaction.last_offset >= fetch_offset and transaction.first_offset < upper_bound:
            found.append(transaction)
        if transaction.last_stable_offset >= upper_bound:
            return found, True
    return found, False


@given(
    steps=st.lists(st.tuples(st.integers(1, 4), st.sampled_from("wwwca")), max_size=60),
    fetch_offset=st.integers(0, 70),
    size=st.integers(1, 30),
    segment=st.integers(1, 20),
)
def test_e7_every_aborted_transaction_of_a_range_is_found(
    steps: list[tuple[int, str]], fetch_offset: int, size: int, segment: int
) -> None:
    leader = Leader()
    transactions: list[AbortedTransaction] = []
    for producer_id, what in steps:
        if what == "w":
            batch = header(producer_id, 0, 0, transactional=True)
            leader.produce(batch, from_client=False)
            continue
        ended = leader.end_transaction(producer_id, commit=what == "c")
        if ended is not None and ended.aborted:
            transactions.append(aborted(*ended[:3], ended.last_stable_offset))
    upper_bound = fetch_offset + size
    assert index_of(transactions, 0).overlapping(fetch_offset, upper_bound) == collected(
        transactions, fetch_offset, upper_bound
    )
    # Collect over segments, from the one that holds the fetch offset, as a reader does.
    found: list[AbortedTransaction] = []
    for base in range(fetch_offset // segment * segment, leader.end + segment, segment):
        here = [entry for entry in transactions if base <= entry.last_offset < base + segment]
        part, complete = index_of(here, base).overlapping(fetch_offset, upper_bound)
        found += part
        if complete:
            break
    touching = [
        entry
        for entry in transactions
        if entry.first_offset < upper_bound and entry.last_offset >= fetch_offset
    ]
    assert found == touching
