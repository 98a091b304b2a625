"""A producer's requests to its transaction coordinator: retried if retriable, always with a
deadline.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import count, repeat
from typing import Any

import pytest

from client.scenario_runner import run
from client.scripted_broker import HOST, ScriptedBroker
from ottla.client.group.interfaces import GroupMember
from ottla.client.group.offsets import OffsetAndMetadata
from ottla.client.network.connections import ConnectionConfig, Connections
from ottla.client.network.coordinators import Coordinators
from ottla.client.network.metadata import Metadata, MetadataConfig
from ottla.client.producer.identity import Identity
from ottla.client.producer.transaction import Transaction
from ottla.client.producer.transaction_state import OutcomeUnknown, Phase
from ottla.client.producer.transactions import TransactionConfig, Transactions
from ottla.clock import SystemClock
from ottla.errors import ErrorCode, RequestError
from ottla.ids import PartitionIndex, TopicPartition
from ottla.protocol.apis import INIT_PRODUCER_ID, TXN_OFFSET_COMMIT
from ottla.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.transport.backoff import Backoff
from ottla.transport.network import TcpNetwork

BACKOFF = Backoff(0.01, 0.05, lambda: 0.5)
ONE, TWO = (TopicPartition("t", PartitionIndex(index)) for index in (0, 1))
LOST = RequestError(ErrorCode.REQUEST_TIMED_OUT)
NONE = ErrorCode.NONE
SILENCE = ErrorCode.UNKNOWN_SERVER_ERROR  # no response

Codes = dict[type, Iterable[ErrorCode]]


def scripted(codes: Codes | None = None, **arguments: Any) -> ScriptedBroker:
    """A coordinator and leader that returns the scripted codes per request, then NONE."""
    left: dict[type, Iterator[ErrorCode]] = {
        kind: iter(ones) for kind, ones in (codes or {}).items()
    }
    nothing_left = iter(tuple[ErrorCode]())

    def answer(kind: type, make: Callable[[Any, int], Any]) -> Callable[[Any], Any]:
        def answered(request: Any) -> Any:
            code = next(left.get(kind, nothing_left), NONE)
            return None if code is SILENCE else make(request, code)

        return answered

    epochs = count()
    broker = ScriptedBroker(
        {
            FindCoordinatorRequest: lambda request: FindCoordinatorResponse(
                coordinators=[
                    Coordinator(
                        key=key,
                        node_id=broker.number,
                        host=HOST,
                        port=broker.place.port,
                        error_code=0,
                        error_message=None,
                    )
                    for key in request.coordinator_keys
                ]
            ),
            InitProducerIdRequest: answer(
                InitProducerIdRequest,
                lambda _, code: InitProducerIdResponse(
                    throttle_time_ms=0,
                    error_code=code,
                    producer_id=-1 if code else 7,
                    producer_epoch=-1 if code else next(epochs),
                ),
            ),
            AddPartitionsToTxnRequest: answer(
                AddPartitionsToTxnRequest,
                lambda request, code: AddPartitionsToTxnResponse(
                    throttle_time_ms=0,
                    results_by_topic_v3_and_below=[
                        AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=[
                                AddPartitionsToTxnPartitionResult(
                                    partition_index=index,
                                    # Only the last partition is refused; the others are not
                                    # attempted.
                                    partition_error_code=code
                                    if index == topic.partitions[-1]
                                    else code and ErrorCode.OPERATION_NOT_ATTEMPTED,
                                )
                                for index in topic.partitions
                            ],
                        )
                        for topic in request.v3_and_below_topics
                    ],
                ),
            ),
            AddOffsetsToTxnRequest: answer(
                AddOffsetsToTxnRequest,
                lambda _, code: AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=code),
            ),
            TxnOffsetCommitRequest: answer(
                TxnOffsetCommitRequest,
                lambda request, code: TxnOffsetCommitResponse(
                    throttle_time_ms=0,
                    topics=[
                        TxnOffsetCommitResponseTopic(
                            name=topic.name,
                            partitions=[
                                TxnOffsetCommitResponsePartition(
                                    partition_index=one.partition_index, error_code=code
                                )
                                for one in topic.partitions
                            ],
                        )
                        for topic in request.topics
                    ],
                ),
            ),
            EndTxnRequest: answer(
                EndTxnRequest, lambda _, code: EndTxnResponse(throttle_time_ms=0, error_code=code)
            ),
        },
        **arguments,
    )
    return broker


@asynccontextmanager
async def transactions(
    broker: ScriptedBroker, block_s: float = 10, **arguments: Any
) -> AsyncGenerator[Transactions]:
    clock = SystemClock()
    places = [one.place for one in (broker, *broker.others)]
    rules = ConnectionConfig(places, "test", ("ottla", "0"), BACKOFF)
    connections = Connections(rules, TcpNetwork(), clock, lambda: 0.5)
    metadata = Metadata(connections, MetadataConfig(BACKOFF), clock, lambda: None)
    running = asyncio.create_task(metadata.run())
    coordinators = Coordinators(metadata, connections, clock, BACKOFF, 10)
    made = TransactionConfig("id", 60_000, block_s, 10, BACKOFF, **arguments)
    try:
        yield Transactions(made, coordinators, clock, lambda: None)
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await connections.close()


async def flush_nothing() -> None:
    """Flush nothing."""


PASSING = [
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
]


def test_retriable_errors_are_retried_at_every_step() -> None:
    async def scenario() -> None:
        kinds: list[type] = [
            InitProducerIdRequest,
            AddPartitionsToTxnRequest,
            AddOffsetsToTxnRequest,
            TxnOffsetCommitRequest,
            EndTxnRequest,
        ]
        broker = scripted(dict.fromkeys(kinds, PASSING))
        async with broker, transactions(broker) as ours:
            await ours.start()
            async with Transaction(ours, flush_nothing) as transaction:
                assert not ours.admit(ONE)
                assert not ours.admit(TWO)
                await ours.obtain()
                assert ours.admit(ONE)
                assert ours.admit(TWO)
                await ours.obtain()  # nothing to add
                for offset in (5, 6):  # a group is added once
                    await transaction.send_offsets({ONE: offset}, "group")
            assert ours.state.phase is Phase.READY
            asked = [type(one) for one in broker.asked if type(one) in kinds]
            once = [kind for kind in kinds for _ in range(4)]
            assert asked == [*once[:16], TxnOffsetCommitRequest, *once[16:]]
            assert broker.count(FindCoordinatorRequest) == 2 + len(kinds)
            added = next(one for one in broker.asked if type(one) is AddPartitionsToTxnRequest)
            assert isinstance(added, AddPartitionsToTxnRequest)
            assert [(t.name, t.partitions) for t in added.v3_and_below_topics] == [("t", (0, 1))]

    run(scenario())


def test_failed_partition_outranks_unattempted_ones() -> None:
    async def scenario() -> None:
        refused = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        broker = scripted({AddPartitionsToTxnRequest: refused})
        async with broker, transactions(broker) as ours:
            await ours.start()
            await ours.begin()
            ours.admit(ONE)
            ours.admit(TWO)
            with pytest.raises(RequestError) as failed:
                await ours.obtain()
            assert failed.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert ours.failure is failed.value

    run(scenario())


def test_unknown_transaction_sends_no_end_txn() -> None:
    async def scenario() -> None:
        async with scripted() as broker, transactions(broker) as ours:
            await ours.start()
            async with Transaction(ours, flush_nothing):
                pass
            async with Transaction(ours, flush_nothing) as second:
                await second.abort()
            assert broker.count(EndTxnRequest) == 0

    run(scenario())


def test_lost_sequence_bumps_the_epoch_and_keeps_fencing() -> None:
    """The producer sends its old identity, so that a fenced producer does not come back."""

    async def scenario() -> None:
        async with scripted() as broker, transactions(broker) as ours:
            await ours.start()
            transaction = Transaction(ours, flush_nothing)
            await transaction.__aenter__()
            ours.admit(ONE)
            await ours.obtain()
            ours.lost(LOST, numbered=True)
            with pytest.raises(RequestError) as failed:
                await transaction.__aexit__(None, None, None)
            assert failed.value is LOST
            ends = [one.committed for one in broker.asked if isinstance(one, EndTxnRequest)]
            assert ends == [False]
            async with Transaction(ours, flush_nothing):
                assert ours.identity == Identity(7, 1)
            asked = [one for one in broker.asked if isinstance(one, InitProducerIdRequest)]
            given = [(one.producer_id, one.producer_epoch) for one in asked]
            assert given == [(-1, -1), (7, 0)]

    run(scenario())


def test_coordinator_without_epoch_bump_ends_the_producer() -> None:
    async def scenario() -> None:
        broker = scripted(newest={INIT_PRODUCER_ID: 2})
        async with broker, transactions(broker) as ours:
            await ours.start()
            transaction = Transaction(ours, flush_nothing)
            await transaction.__aenter__()
            ours.lost(LOST, numbered=True)
            await transaction.abort()
            with pytest.raises(RequestError) as refused:
                await ours.begin()
            assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION

    run(scenario())


@pytest.mark.parametrize("commit", [True, False])
def test_end_of_unknown_outcome_raises_and_is_retried(commit: bool) -> None:
    async def scenario() -> None:
        broker = scripted({EndTxnRequest: [SILENCE]})
        async with broker, transactions(broker, block_s=2) as ours:
            await ours.start()
            transaction = Transaction(ours, flush_nothing)
            await transaction.__aenter__()
            await transaction.send_offsets({ONE: 1}, "group")
            ending, other = transaction.commit, transaction.abort
            if not commit:
                ending, other = other, ending
            text = r"unknown whether the transaction was (committed|aborted): call (commit|abort)"
            with pytest.raises(OutcomeUnknown, match=text):
                await ending()
            with pytest.raises(
                RequestError, match=r"unknown whether .*: call its (commit|abort)\(\) again"
            ):
                await ours.begin()
            with pytest.raises(RequestError, match="it is unknown"):
                await other()
            broker.drop()  # requests after one without a response get no response either
            await ending()
            await ending()  # it has ended, and no request is sent
            with pytest.raises(RequestError, match=r"was (committed|aborted)"):
                await other()
            ends = [one.committed for one in broker.asked if isinstance(one, EndTxnRequest)]
            assert ends == [commit, commit]
            await ours.begin()
            # The lost request may still arrive: it must not end the next transaction.
            assert ours.identity == Identity(7, 1)

    run(scenario())


@pytest.mark.parametrize("moves", [True, False], ids=["moves", "is-lost"])
def test_end_is_retried_at_the_moved_coordinator(moves: bool) -> None:
    """The coordinator returns NOT_COORDINATOR, or its connection closes before it responds."""

    async def scenario() -> None:
        second = scripted(number=2)
        first = scripted({EndTxnRequest: [ErrorCode.NOT_COORDINATOR] if moves else [SILENCE] * 9})
        where = [first]

        def find(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
            now = where[0]
            return FindCoordinatorResponse(
                coordinators=[
                    Coordinator(
                        key=key,
                        node_id=now.number,
                        host=HOST,
                        port=now.place.port,
                        error_code=0,
                        error_message=None,
                    )
                    for key in request.coordinator_keys
                ]
            )

        first.answers[FindCoordinatorRequest] = second.answers[FindCoordinatorRequest] = find
        first.others, second.others = [second], [first]
        async with second, first, transactions(first) as ours:
            await ours.start()
            transaction = Transaction(ours, flush_nothing)
            await transaction.__aenter__()
            await transaction.send_offsets({ONE: 1}, "group")
            where[0] = second
            committing = asyncio.create_task(transaction.commit())
            while not first.count(EndTxnRequest):
                await asyncio.sleep(0.01)
            if not moves:
                first.stop_listening()
                first.drop()
            await committing
            assert (first.count(EndTxnRequest), second.count(EndTxnRequest)) == (1, 1)
            assert ours.state.phase is (Phase.READY if moves else Phase.STARTING)

    run(scenario())


def test_unsent_end_may_become_the_other_one() -> None:
    async def scenario() -> None:
        broker = scripted({EndTxnRequest: repeat(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)})
        async with broker, transactions(broker, block_s=2) as ours:
            await ours.start()
            transaction = Transaction(ours, flush_nothing)
            await transaction.__aenter__()
            await transaction.send_offsets({ONE: 1}, "group")
            with pytest.raises(RequestError, match="the request was not sent") as late:
                await transaction.commit()
            assert not isinstance(late.value, OutcomeUnknown)
            broker.answers[EndTxnRequest] = scripted().answers[EndTxnRequest]
            await transaction.abort()
            assert ours.state.phase is Phase.READY

    run(scenario())


def test_commit_cancelled_in_flight_can_be_retried() -> None:
    async def scenario() -> None:
        broker = scripted({EndTxnRequest: [SILENCE]})
        async with broker, transactions(broker) as ours:
            await ours.start()
            transaction = Transaction(ours, flush_nothing)
            await transaction.__aenter__()
            await transaction.send_offsets({ONE: 1}, "group")
            committing = asyncio.create_task(transaction.__aexit__(None, None, None))
            while not broker.count(EndTxnRequest):
                await asyncio.sleep(0.01)
            with pytest.raises(RequestError, match="is in progress"):
                await transaction.commit()
            committing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await committing
            broker.drop()
            await transaction.commit()
            assert broker.count(EndTxnRequest) == 2

    run(scenario())


def test_failed_block_after_an_unknown_commit_does_not_abort() -> None:
    async def scenario() -> None:
        broker = scripted({EndTxnRequest: [SILENCE]})
        async with broker, transactions(broker, block_s=2) as ours:
            await ours.start()
            transaction = Transaction(ours, flush_nothing)
            await transaction.__aenter__()
            await transaction.send_offsets({ONE: 1}, "group")
            with pytest.raises(OutcomeUnknown):
                await transaction.commit()
            failure = ZeroDivisionError()
            await transaction.__aexit__(ZeroDivisionError, failure, None)
            assert failure.__notes__ == [
                "the outcome of the transaction is unknown: call the same commit() or abort() again"
            ]
            broker.drop()
            await transaction.commit()
            ends = [one.committed for one in broker.asked if isinstance(one, EndTxnRequest)]
            assert ends == [True, True]

    run(scenario())


def test_fencing_after_an_unknown_commit_keeps_it_unknown() -> None:
    async def scenario() -> None:
        broker = scripted({EndTxnRequest: [SILENCE, ErrorCode.PRODUCER_FENCED]})
        async with broker, transactions(broker, block_s=2) as ours:
            await ours.start()
            transaction = Transaction(ours, flush_nothing)
            await transaction.__aenter__()
            await transaction.send_offsets({ONE: 1}, "group")
            with pytest.raises(OutcomeUnknown):
                await transaction.commit()
            broker.drop()
            with pytest.raises(RequestError, match="unknown whether the transaction was") as raised:
                await transaction.commit()
            assert raised.value.code is ErrorCode.PRODUCER_FENCED
            assert ours.state.phase is Phase.OVER

    run(scenario())


def test_refused_identity_can_be_requested_again() -> None:
    async def scenario() -> None:
        broker = scripted(
            {
                InitProducerIdRequest: [NONE, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED],
                AddOffsetsToTxnRequest: [ErrorCode.INVALID_PRODUCER_ID_MAPPING],
            }
        )
        async with broker, transactions(broker) as ours:
            await ours.start()
            transaction = Transaction(ours, flush_nothing)
            await transaction.__aenter__()
            with pytest.raises(RequestError) as forgotten:
                await transaction.send_offsets({ONE: 1}, "group")
            assert forgotten.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
            await transaction.abort()
            with pytest.raises(RequestError) as refused:
                await ours.begin()
            assert refused.value.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            await ours.begin()
            assert broker.count(EndTxnRequest) == 0

    run(scenario())


def test_commit_cancelled_before_end_txn_aborts() -> None:
    async def scenario() -> None:
        async with scripted() as broker, transactions(broker) as ours:
            await ours.start()
            flushes = 0

            async def flush() -> None:
                nonlocal flushes
                flushes += 1
                if flushes == 1:
                    await asyncio.sleep(60)

            async def commit() -> None:
                async with Transaction(ours, flush) as transaction:
                    await transaction.send_offsets({ONE: 1}, "group")

            committing = asyncio.create_task(commit())
            while not flushes:
                await asyncio.sleep(0.01)
            committing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await committing
            ends = [one.committed for one in broker.asked if isinstance(one, EndTxnRequest)]
            assert ends == [False]
            assert ours.state.phase is Phase.READY

    run(scenario())


def test_transaction_abortable_error_leads_to_an_abort() -> None:
    async def scenario() -> None:
        broker = scripted({EndTxnRequest: [ErrorCode.TRANSACTION_ABORTABLE]})
        async with broker, transactions(broker) as ours:
            await ours.start()
            transaction = Transaction(ours, flush_nothing)
            await transaction.__aenter__()
            await transaction.send_offsets({ONE: 1}, "group")
            with pytest.raises(RequestError) as wanted:
                await transaction.__aexit__(None, None, None)
            assert wanted.value.code is ErrorCode.TRANSACTION_ABORTABLE
            ends = [one.committed for one in broker.asked if isinstance(one, EndTxnRequest)]
            assert ends == [True, False]
            assert (await ours.begin()) == 2

    run(scenario())


def test_offsets_are_committed_with_the_group_member() -> None:
    async def scenario() -> None:
        member = GroupMember("group", 3, "member", "instance")
        async with scripted() as broker, transactions(broker) as ours:
            await ours.start()
            await ours.begin()
            await ours.send_offsets({ONE: OffsetAndMetadata(5, "note", 2)}, member)
            [told] = [one for one in broker.asked if isinstance(one, TxnOffsetCommitRequest)]
            assert (told.generation_id, told.member_id) == (3, "member")
            assert told.group_instance_id == "instance"
            [topic] = told.topics
            [one] = topic.partitions
            assert (one.committed_offset, one.committed_metadata) == (5, "note")
            assert one.committed_leader_epoch == 2
        broker = scripted(newest={TXN_OFFSET_COMMIT: 2})
        async with broker, transactions(broker) as ours:
            await ours.start()
            await ours.begin()
            await ours.send_offsets({ONE: OffsetAndMetadata(5)}, GroupMember("group"))
            with pytest.raises(RequestError, match="does not check which group member commits"):
                await ours.send_offsets({ONE: OffsetAndMetadata(6)}, member)
            assert broker.count(TxnOffsetCommitRequest) == 1

    run(scenario())


def test_two_phase_commit_needs_broker_support() -> None:
    async def scenario() -> None:
        async with scripted() as broker, transactions(broker, is_two_phase=True) as ours:
            await ours.start()
            [asked] = [one for one in broker.asked if isinstance(one, InitProducerIdRequest)]
            assert asked.enable2_pc
        broker = scripted(newest={INIT_PRODUCER_ID: 5})
        async with broker, transactions(broker, is_two_phase=True) as ours:
            with pytest.raises(RequestError, match="two-phase commit"):
                await ours.start()

    run(scenario())
