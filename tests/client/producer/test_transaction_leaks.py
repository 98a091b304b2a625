"""Transactions that are cancelled or closed at any moment: nothing leaks, errors are raised, and
the producer continues or says how.

The coordinator and the leader are scripted. A call is cancelled after each iteration of the event
loop, from its start to its end, and while no response comes.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias

import pytest

from client.leaks import Leaks, client_tasks, client_timers
from client.producer.test_transactions import scripted
from client.scenario_runner import FAST, run, until
from client.scripted_broker import ScriptedBroker
from client.scripted_leader import TOPIC, Leader, Word
from client.test_leaks import check_leaves_nothing, run_iterations, wait_ended
from ottla.client.producer.producer import Producer
from ottla.client.producer.transaction import Transaction
from ottla.client.producer.transaction_state import OutcomeUnknown
from ottla.errors import ErrorCode, RequestError
from ottla.protocol.message import Message
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from ottla.records import BatchHeader
from ottla.transport.failures import Disconnected

MOMENTS = 12
OFFSETS = {(TOPIC, 0): 5}
FEATURES: dict[str, dict[str, int]] = {"implicit": {"transaction.version": 2}, "explicit": {}}
"""Whether writing adds a partition to the transaction, or the producer adds it first."""


class Place:
    """A scripted broker with everything that a producer needs, which can stop responding."""

    def __init__(self, broker: ScriptedBroker, leader: Leader) -> None:
        self.broker = broker
        self.leader = leader
        self._answers = {**broker.answers}

    def producer(self, **more: object) -> Producer:
        named = {name.replace("_", "."): value for name, value in more.items()}
        rules = {"bootstrap.servers": self.broker.bootstrap_servers, "transactional.id": "id"}
        return Producer({**FAST, "linger.ms": 0, "batch.size": 200, **rules, **named})

    def silence(self, *kinds: type[Message]) -> None:
        """From now on do not respond to these requests."""
        for kind in kinds:
            self.broker.answers[kind] = lambda _: None

    def speak(self) -> None:
        """Respond again; requests from before get no response."""
        self.broker.answers |= self._answers
        self.broker.drop()

    def ends(self) -> list[bool]:
        """Return the EndTxn requests: True is a commit."""
        return [one.committed for one in self.broker.asked if isinstance(one, EndTxnRequest)]


@asynccontextmanager
async def place(kind: str) -> AsyncGenerator[Place]:
    leader = Leader(lambda _: None)
    async with scripted(features=FEATURES[kind]) as broker:
        leader.join(broker)
        yield Place(broker, leader)


async def check_next_transactions(ours: Producer) -> None:
    """Check that the next transactions work."""
    async with asyncio.timeout(20):
        for _ in range(2):
            async with ours.transaction() as transaction:
                await ours.send(TOPIC, b"next", partition=0)
                await transaction.send_offsets(OFFSETS, "group")


# A whole run, cancelled at moments from its start to its end.


async def transacts(there: Place) -> None:
    async with there.producer() as ours:
        async with ours.transaction() as transaction:
            for number in range(5):
                await ours.send(TOPIC, b"%d" % number, partition=0)
            await transaction.send_offsets(OFFSETS, "group")
        async with ours.transaction() as transaction:
            await ours.send(TOPIC, b"never", partition=0)
            await transaction.abort()
        async with ours.transaction():
            await ours.send(TOPIC, b"last", partition=0)
            await ours.flush()


@pytest.mark.parametrize("kind", FEATURES)
def test_cancelled_transactions_leave_nothing(kind: str) -> None:
    async def scenario() -> None:
        async with place(kind) as there:
            await check_leaves_nothing(lambda: transacts(there), 2 * MOMENTS)

    run(scenario())


# One call, cancelled after each iteration of the event loop.

Step: TypeAlias = Callable[[Producer, Transaction], Coroutine[Any, Any, None]]


async def send(ours: Producer, transaction: Transaction) -> None:
    await (await ours.send(TOPIC, b"sent", partition=0))


async def send_offsets(ours: Producer, transaction: Transaction) -> None:
    await transaction.send_offsets(OFFSETS, "group")


async def commit(ours: Producer, transaction: Transaction) -> None:
    await transaction.commit()


async def abort(ours: Producer, transaction: Transaction) -> None:
    await transaction.abort()


STEPS: list[Step] = [send, send_offsets, commit, abort]


async def end_transaction(
    step: Step, doing: "asyncio.Task[None]", transaction: Transaction
) -> None:
    """End a transaction in which a call was cancelled, as the guide describes."""
    if step is abort:
        await transaction.abort()
    elif step is commit:
        with suppress(RequestError):
            await transaction.commit()
            return
        await transaction.abort()  # it was cancelled before all records were written
    elif step is send_offsets and doing.cancelled():
        with pytest.raises(RequestError, match="it is unknown whether they are in the transaction"):
            await transaction.commit()
    else:
        await transaction.commit()


@pytest.mark.parametrize("step", STEPS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("kind", FEATURES)
def test_producer_continues_after_a_cancelled_call(kind: str, step: Step) -> None:
    async def scenario() -> None:
        async with place(kind) as there, there.producer() as ours:
            residue = Leaks()
            is_whole = False
            for turn in range(1, 300):  # before its first iteration the task has not started
                before = len(there.ends())
                transaction = ours.transaction()
                await transaction.__aenter__()
                await ours.send(TOPIC, b"sent", partition=0)
                doing = asyncio.create_task(step(ours, transaction))
                await run_iterations(doing, turn)
                is_whole = doing.done()
                doing.cancel()
                await wait_ended(doing)
                async with asyncio.timeout(20):
                    await end_transaction(step, doing, transaction)
                asked = there.ends()[before:]
                assert len({*asked}) <= 1, asked  # it was never both committed and aborted
                await check_next_transactions(ours)
                if is_whole:
                    break
            assert is_whole
            residue.check_unheard()
        await residue.check()

    run(scenario())


async def lose_numbers(there: Place, ours: Producer) -> None:
    """Run a transaction after which the next one needs a new epoch."""
    words = iter([ErrorCode.INVALID_RECORD])

    def word(_: BatchHeader) -> Word:
        return next(words, None)

    there.leader.word = word
    transaction = ours.transaction()
    await transaction.__aenter__()
    with pytest.raises(RequestError):
        await send(ours, transaction)
    await transaction.abort()


@pytest.mark.parametrize("kind", FEATURES)
def test_cancelled_begin_can_be_retried(kind: str) -> None:
    async def scenario() -> None:
        async with place(kind) as there, there.producer() as ours:
            for turn in range(1, 300):
                await lose_numbers(there, ours)
                transaction = ours.transaction()
                doing = asyncio.create_task(transaction.__aenter__())
                await run_iterations(doing, turn)
                if doing.done():
                    await transaction.abort()
                    return
                doing.cancel()
                await wait_ended(doing)
                assert doing.cancelled()
                await check_next_transactions(ours)
            raise AssertionError("it never began")

    run(scenario())


# Requests without a response.


@pytest.mark.parametrize("is_added", [True, False], ids=["added", "not-added"])
@pytest.mark.parametrize("cancels", [True, False], ids=["cancelled", "late"])
@pytest.mark.parametrize("silent", [AddOffsetsToTxnRequest, AddPartitionsToTxnRequest])
def test_possibly_added_partition_is_ended(
    silent: type[Message], cancels: bool, is_added: bool
) -> None:
    """The coordinator may have an open transaction of which the producer does not know.

    It would end that by its timeout, and fence the producer.
    """

    async def scenario() -> None:
        async with place("explicit") as there, there.producer(max_block_ms=500) as ours:
            transaction = ours.transaction()
            await transaction.__aenter__()
            there.silence(silent)
            step = send_offsets if silent is AddOffsetsToTxnRequest else send
            doing = asyncio.create_task(step(ours, transaction))
            await until(lambda: there.broker.count(silent) > 0)
            if cancels:
                doing.cancel()
            await wait_ended(doing)
            there.speak()
            if not is_added:
                answer = there.broker.answers[EndTxnRequest]

                def refuse(_: EndTxnRequest) -> EndTxnResponse:
                    there.broker.answers[EndTxnRequest] = answer
                    code = ErrorCode.INVALID_TXN_STATE
                    return EndTxnResponse(throttle_time_ms=0, error_code=code)

                there.broker.answers[EndTxnRequest] = refuse
            await transaction.abort()
            assert there.ends() == [False]
            before = there.broker.count(InitProducerIdRequest)
            await check_next_transactions(ours)
            # A late request belongs to an old epoch.
            assert is_added or there.broker.count(InitProducerIdRequest) > before

    run(scenario())


@pytest.mark.parametrize("kind", FEATURES)
def test_cancelled_unanswered_commit_can_be_retried(kind: str) -> None:
    async def scenario() -> None:
        async with place(kind) as there, there.producer() as ours:
            transaction = ours.transaction()
            await transaction.__aenter__()
            await (await ours.send(TOPIC, b"sent", partition=0))
            there.silence(EndTxnRequest)
            doing = asyncio.create_task(transaction.commit())
            await until(lambda: bool(there.ends()))
            doing.cancel()
            await wait_ended(doing)
            assert doing.cancelled()
            for refused in (ours.transaction().__aenter__, transaction.abort):
                with pytest.raises(RequestError, match=r"was committed: call its commit\(\) again"):
                    await refused()
            with pytest.raises(RequestError, match="ended before this record was sent"):
                await ours.send(TOPIC, b"never", partition=0)
            there.speak()
            await transaction.commit()
            await transaction.commit()
            assert there.ends() == [True, True]
            await check_next_transactions(ours)

    run(scenario())


def test_commit_cancelled_in_flush_notes_a_failed_abort() -> None:
    async def scenario() -> None:
        async with place("implicit") as there:
            rules = {"max.block.ms": 300, "request.timeout.ms": 200, "delivery.timeout.ms": 200}
            async with there.producer(**rules) as ours:
                transaction = ours.transaction()
                await transaction.__aenter__()
                there.silence(ProduceRequest, EndTxnRequest)
                await ours.send(TOPIC, b"never", partition=0)
                doing = asyncio.create_task(transaction.commit())
                await until(lambda: there.broker.count(ProduceRequest) > 0)
                doing.cancel()
                with pytest.raises(asyncio.CancelledError) as caught:
                    await doing
                assert doing.cancelled()  # the cancellation is not replaced by another error
                assert "the transaction was not aborted" in caught.value.__notes__[0]
                there.speak()
                await transaction.abort()
                await check_next_transactions(ours)

    run(scenario())


# Closing while a call waits.


async def begin(ours: Producer, transaction: Transaction) -> None:
    await ours.transaction().__aenter__()


async def fill(ours: Producer, transaction: Transaction) -> None:
    while True:
        await ours.send(TOPIC, b"v" * 100, partition=0)


WAITING: dict[str, tuple[Step, tuple[type[Message], ...]]] = {
    "begin": (begin, (InitProducerIdRequest,)),
    "send": (send, (ProduceRequest,)),
    "send-added": (send, (AddPartitionsToTxnRequest,)),
    "send-full": (fill, (ProduceRequest,)),
    "send_offsets-add": (send_offsets, (AddOffsetsToTxnRequest, TxnOffsetCommitRequest)),
    "send_offsets": (send_offsets, (TxnOffsetCommitRequest,)),
    "commit-flush": (commit, (ProduceRequest,)),
    "commit": (commit, (EndTxnRequest,)),
    "abort": (abort, (EndTxnRequest,)),
}
NOT_SENT = ("implicit", "send-added")  # no request is sent in this case


@pytest.mark.parametrize("ends", ["close", "cancel"])
@pytest.mark.parametrize(
    ("kind", "waiting"),
    [(kind, name) for kind in FEATURES for name in WAITING if (kind, name) != NOT_SENT],
)
def test_close_fails_calls_at_a_silent_coordinator(kind: str, waiting: str, ends: str) -> None:
    step, silent = WAITING[waiting]

    async def scenario() -> None:
        async with place(kind) as there:
            residue = Leaks()
            ours = there.producer(buffer_memory=1000)
            await ours.__aenter__()
            if step is begin:
                await lose_numbers(there, ours)
            transaction = ours.transaction()
            if step is not begin:
                await transaction.__aenter__()
                if step is not send_offsets and waiting != "send-added":
                    await (await ours.send(TOPIC, b"there", partition=0))
            there.silence(*silent)
            if waiting == "commit-flush":
                await ours.send(TOPIC, b"never", partition=0)
            before = sum(there.broker.count(one) for one in silent)
            doing = asyncio.create_task(step(ours, transaction))
            await until(lambda: sum(there.broker.count(one) for one in silent) > before)
            if waiting == "send-full":
                await until(lambda: ours.metrics().waiting_threads > 0)
            assert not doing.done()
            if ends == "close":
                await ours.close()
                unheard = waiting in ("commit", "abort")
                with pytest.raises(OutcomeUnknown if unheard else Disconnected, match="closed"):
                    async with asyncio.timeout(5):
                        await doing
            else:
                doing.cancel()
                await asyncio.sleep(0)
                doing.cancel()  # its close waits for the broker, too
                await wait_ended(doing)
                assert doing.cancelled()
                await ours.close()
            left = [*client_tasks(), *client_timers()]
            assert not left, left
            await residue.check()
            residue.check_unheard()

    run(scenario())
