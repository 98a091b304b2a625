"""The effect of each error on a transaction, by the request that returns it.

The table has the decisions of Java's client 4.3 (TransactionManager) beside ours. Where ours
continues and Java's does not, the coordinator still decides: it refuses the abort, or the new
identity that the producer requests with its old one, to a producer that was fenced meanwhile.
"""

from collections.abc import Iterable, Iterator

import pytest

from cases import each_case
from client.producer.test_transactions import ONE, Codes, scripted, transactions
from client.scenario_runner import run
from client.scripted_leader import TOPIC, Leader
from ottla.client.producer.producer import Producer
from ottla.client.producer.transaction_state import Phase
from ottla.errors import ErrorCode, RequestError
from ottla.protocol.message import Message
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

RETRIED = "retried"
ABORT = "abort needed"
RENEWED = "abort needed, of which nobody is told, then another identity"
FATAL = "fatal"

INIT, ADD, OFFSETS, COMMIT, END, PRODUCE = (
    InitProducerIdRequest,
    AddPartitionsToTxnRequest,
    AddOffsetsToTxnRequest,
    TxnOffsetCommitRequest,
    EndTxnRequest,
    ProduceRequest,
)
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH
FENCED = ErrorCode.PRODUCER_FENCED
STATE = ErrorCode.INVALID_TXN_STATE
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
UNKNOWN = ErrorCode.UNKNOWN_PRODUCER_ID
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
MOVED = ErrorCode.NOT_COORDINATOR

# The request, its error, the effect in our client, the effect in Java's client 4.3.
TABLE: list[tuple[type[Message], ErrorCode, str, str]] = [
    (ADD, MAPPING, RENEWED, FATAL),
    (ADD, EPOCH, FATAL, FATAL),
    (ADD, FENCED, FATAL, FATAL),
    (ADD, STATE, FATAL, FATAL),
    (ADD, ABORTABLE, ABORT, ABORT),
    (ADD, CONCURRENT, RETRIED, RETRIED),
    (ADD, UNKNOWN, ABORT, ABORT),
    (ADD, LOADING, RETRIED, RETRIED),
    (ADD, MOVED, RETRIED, RETRIED),
    (OFFSETS, MAPPING, RENEWED, FATAL),
    (OFFSETS, EPOCH, FATAL, FATAL),
    (OFFSETS, FENCED, FATAL, FATAL),
    (OFFSETS, STATE, FATAL, FATAL),
    (OFFSETS, ABORTABLE, ABORT, ABORT),
    (OFFSETS, CONCURRENT, RETRIED, RETRIED),
    (OFFSETS, UNKNOWN, ABORT, ABORT),
    (OFFSETS, LOADING, RETRIED, RETRIED),
    (OFFSETS, MOVED, RETRIED, RETRIED),
    (COMMIT, MAPPING, RENEWED, FATAL),
    (COMMIT, EPOCH, FATAL, FATAL),
    (COMMIT, FENCED, FATAL, FATAL),
    (COMMIT, STATE, ABORT, FATAL),
    (COMMIT, ABORTABLE, ABORT, ABORT),
    (COMMIT, CONCURRENT, RETRIED, RETRIED),
    (COMMIT, UNKNOWN, ABORT, FATAL),
    (COMMIT, LOADING, RETRIED, RETRIED),
    (COMMIT, MOVED, RETRIED, RETRIED),
    (END, MAPPING, RENEWED, FATAL),
    (END, EPOCH, FATAL, FATAL),
    (END, FENCED, FATAL, FATAL),
    (END, STATE, FATAL, FATAL),
    (END, ABORTABLE, ABORT, ABORT),
    (END, CONCURRENT, RETRIED, RETRIED),
    (END, UNKNOWN, ABORT, ABORT),
    (END, LOADING, RETRIED, RETRIED),
    (END, MOVED, RETRIED, RETRIED),
    (PRODUCE, MAPPING, RENEWED, FATAL),
    (PRODUCE, EPOCH, ABORT, ABORT),
    (PRODUCE, FENCED, FATAL, FATAL),
    (PRODUCE, STATE, ABORT, ABORT),
    (PRODUCE, ABORTABLE, ABORT, ABORT),
    (PRODUCE, CONCURRENT, RETRIED, RETRIED),
    (PRODUCE, UNKNOWN, ABORT, ABORT),
    (PRODUCE, LOADING, RETRIED, RETRIED),
    (PRODUCE, MOVED, RETRIED, RETRIED),
]
IMPLICIT = {"transaction.version": 2}  # partitions and groups are added implicitly by writing
ROWS = [
    pytest.param(*row[:3], features, id=f"{row[0].__name__}-{row[1].name}-{kind}")
    for kind, features in (("explicit", {}), ("implicit", IMPLICIT))
    for row in TABLE
    if not (features and row[0] in (ADD, OFFSETS))
]


def test_no_error_is_treated_more_strictly_than_in_java() -> None:
    mildness = [FATAL, RENEWED, ABORT, RETRIED]
    assert all(mildness.index(ours) >= mildness.index(java) for _, _, ours, java in TABLE)


@each_case(("request_", "code", "expected", "features"), ROWS)
def test_error_has_the_effect_in_the_table(
    request_: type[Message], code: ErrorCode, expected: str, features: dict[str, int]
) -> None:
    async def scenario() -> None:
        codes: Codes = {} if request_ is PRODUCE else {request_: [code]}
        broker = scripted(codes, features=features)
        words: Iterator[ErrorCode] = iter([code] if request_ is PRODUCE else [])
        leader = Leader(lambda _: next(words, None))
        leader.join(broker)
        async with (
            broker,
            Producer(
                {"retry.backoff.ms": 1, "retry.backoff.max.ms": 5},
                bootstrap_servers=broker.bootstrap_servers,
                transactional_id="id",
                linger_ms=0,
            ) as ours,
        ):

            async def work(value: bytes) -> RequestError | None:
                try:
                    async with ours.transaction() as transaction:
                        # A coordinator that does not know the transaction is not asked to end it.
                        if request_ is ADD:
                            await transaction.send_offsets({ONE: 1}, "group")
                        await ours.send(TOPIC, value)
                        await ours.flush()
                        await transaction.send_offsets({ONE: 1}, "group")
                except RequestError as error:
                    return error
                return None

            first = await work(b"first")
            asked = [*broker.asked]
            second = await work(b"second")
        assert outcome(first, second, asked, request_) == expected
        if first is not None:
            fenced = expected is FATAL and code is EPOCH
            assert first.code is (FENCED if fenced else code)
        if second is None:
            # Whatever happened to the first transaction, the sequence numbers of the second are
            # valid.
            assert leader.logs[0][-1] == b"second"
            epochs = [one.producer_epoch for one in leader.came]
            assert epochs == sorted(epochs)

    run(scenario())


def outcome(
    first: RequestError | None,
    second: RequestError | None,
    asked: Iterable[Message],
    request: type[Message],
) -> str:
    """Return how the first of two transactions ended, and whether the second could begin."""
    aborts = sum(isinstance(one, EndTxnRequest) and not one.committed for one in asked)
    if first is None:
        assert second is None
        assert not aborts
        assert sum(isinstance(one, request) for one in asked) == 2
        return RETRIED
    if second is not None:
        assert not aborts
        return FATAL
    return ABORT if aborts else RENEWED


@each_case(
    ("code", "expected"),
    [
        (MAPPING, FATAL),
        (EPOCH, FATAL),
        (FENCED, FATAL),
        (STATE, FATAL),
        (ABORTABLE, ABORT),
        (CONCURRENT, RETRIED),
        (UNKNOWN, FATAL),
        (LOADING, RETRIED),
        (MOVED, RETRIED),
    ],
    ids=lambda one: one.name if isinstance(one, ErrorCode) else one,
)
def test_init_producer_id_error_has_the_effect_in_the_table(code: ErrorCode, expected: str) -> None:
    """The effects are Java's. Where Java aborts, there is nothing to abort: the client retries."""

    async def scenario() -> None:
        broker = scripted({INIT: [code]})
        async with broker, transactions(broker) as ours:
            failure: RequestError | None = None
            try:
                await ours.start()
            except RequestError as error:
                failure = error
            found = RETRIED if failure is None else ABORT
            if ours.state.phase is Phase.OVER:
                found = FATAL
            elif failure is not None:
                await ours.start()
            assert found == expected
            if found != FATAL:
                assert ours.state.phase is Phase.READY

    run(scenario())
