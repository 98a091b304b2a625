"""The idempotent producer at a scripted leader: no duplicates, no reordering.

The leader checks sequence numbers as a broker does; the test injects the failures.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from cases import each_case
from client.scenario_runner import run
from client.scripted_broker import ScriptedBroker
from client.scripted_leader import LOST, TOPIC, UNSEEN, AppendedWith, Leader, Word
from ottla.client.producer.identity import EPOCH_MAX
from ottla.client.producer.producer import Producer
from ottla.errors import ErrorCode, RequestError
from ottla.ids import ProducerId
from ottla.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from ottla.records import BatchHeader

OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
UNKNOWN = ErrorCode.UNKNOWN_PRODUCER_ID
FAST = {"retry.backoff.ms": 1, "retry.backoff.max.ms": 5, "linger.ms": 0}
SILENT = {**FAST, "request.timeout.ms": 500}


def broker_with_leader(leader: Leader, epoch: int = 0) -> ScriptedBroker:
    """Return a broker with a leader, which assigns producer ids."""
    ids = iter(range(7, 100))
    broker = ScriptedBroker(
        {
            InitProducerIdRequest: lambda _: InitProducerIdResponse(
                throttle_time_ms=0, error_code=0, producer_id=next(ids), producer_epoch=epoch
            )
        }
    )
    leader.join(broker)
    return broker


def decisions_at(words: Mapping[int, Word]) -> Callable[[BatchHeader], Word]:
    """Return a function that decides about the batches at these positions, in order of arrival."""
    numbers = iter(range(10_000))
    return lambda _: words.get(next(numbers))


async def send(
    ours: Producer, values: Iterable[int], failed: list[int] | None = None
) -> list[bytes]:
    """Send values at once, each in its own batch; return those that were written."""
    acks = [(value, await ours.send(TOPIC, b"%d" % value)) for value in values]
    written: list[bytes] = []
    for value, ack in acks:
        try:
            await ack
            written.append(b"%d" % value)
        except RequestError:
            assert failed is not None
            failed.append(value)
    return written


def producing(
    leader: Leader,
    script: Callable[[Producer], Any],
    settings: Mapping[str, object] = FAST,
    epoch: int = 0,
) -> ScriptedBroker:
    broker = broker_with_leader(leader, epoch)

    async def scenario() -> None:
        async with (
            broker,
            Producer(
                {"batch.size": 1, **settings}, bootstrap_servers=broker.bootstrap_servers
            ) as ours,
        ):
            await script(ours)

    run(scenario())
    return broker


@each_case("code", [OUT_OF_ORDER, UNKNOWN], ids=lambda code: code.name)
@each_case("first", [0, 1, 4])
def test_missing_batches_are_resent_with_the_next_epoch(code: ErrorCode, first: int) -> None:
    """Five batches are in flight and one is refused for its sequence; all are written once, in
    order.
    """
    leader = Leader(decisions_at({3 + first: code}))

    async def script(ours: Producer) -> None:
        await send(ours, range(3))
        await send(ours, range(3, 20))
        await send(ours, range(20, 25))

    producing(leader, script)
    assert leader.logs[0] == [b"%d" % value for value in range(25)]
    assert max(one.producer_epoch for one in leader.came) == 1
    sequences = [one.base_sequence for one in leader.came if one.producer_epoch == 1]
    assert sequences == [*range(len(sequences))]


def test_unknown_producer_id_resends_everything() -> None:
    """As after a deletion of all its records: then any sequence number is accepted as the first."""
    leader = Leader(decisions_at({}))

    async def script(ours: Producer) -> None:
        await send(ours, range(5))
        leader.producers[0].clear()
        await send(ours, range(5, 15))

    producing(leader, script)
    assert leader.logs[0] == [b"%d" % value for value in range(15)]


@pytest.mark.parametrize("word", [LOST, UNSEEN])
def test_unanswered_batches_are_resent_without_duplicates(word: str) -> None:
    """The responses to two of five batches are lost, with or without the batches."""
    leader = Leader(decisions_at({4: word, 6: word}))
    producing(leader, lambda ours: send(ours, range(20)), SILENT)
    assert leader.logs[0] == [b"%d" % value for value in range(20)]


@pytest.mark.parametrize("word", [LOST, UNSEEN])
def test_expired_batch_leaves_a_gap_and_no_duplicates(word: str) -> None:
    """One of several batches in flight gets no response until it expires; others follow it."""
    silent = True
    failed: list[int] = []

    def speak(header: BatchHeader) -> Word:
        return word if silent and header.base_sequence >= 3 else None

    leader = Leader(speak)

    async def script(ours: Producer) -> None:
        nonlocal silent
        await send(ours, range(3))
        await send(ours, range(3, 8), failed)
        assert failed == [3, 4, 5, 6, 7]
        silent = False
        await send(ours, range(8, 15))

    settings = {**SILENT, "delivery.timeout.ms": 1200}
    producing(leader, script, settings)
    # A failed record may have been written, and then once and in its place.
    values = [int(value or b"") for value in leader.logs[0]]
    assert values == sorted(set(values))
    assert [one for one in values if one not in failed] == [*range(3), *range(8, 15)]
    assert max(one.producer_epoch for one in leader.came) == 1


def test_batches_that_were_appended_keep_their_numbers_after_a_gap() -> None:
    """One of five batches fails finally; the leader has appended the others, whose ISR shrank."""
    shrunk = AppendedWith(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    final = AppendedWith(ErrorCode.UNKNOWN_SERVER_ERROR)
    leader = Leader(decisions_at({3: final, 4: shrunk, 5: shrunk, 6: shrunk, 7: shrunk}))
    failed: list[int] = []

    async def script(ours: Producer) -> None:
        await send(ours, range(3))
        await send(ours, range(3, 8), failed)
        await send(ours, range(8, 12))

    producing(leader, script)
    assert failed == [3]
    assert leader.logs[0] == [b"%d" % value for value in range(12)]


def test_other_partitions_keep_their_sequence_numbers() -> None:
    leader = Leader(decisions_at({2: OUT_OF_ORDER}), partitions=2)

    async def script(ours: Producer) -> None:
        for value in range(10):
            await (await ours.send(TOPIC, b"%d" % value, partition=value % 2))

    producing(leader, script)
    assert leader.logs == [[b"%d" % value for value in range(start, 10, 2)] for start in (0, 1)]
    [producer] = leader.producers[1]
    assert (producer.epoch, producer.next_sequence) == (0, 5)


def test_exhausted_epochs_get_a_new_producer_id() -> None:
    leader = Leader(decisions_at({3: OUT_OF_ORDER}))

    async def script(ours: Producer) -> None:
        await send(ours, range(3))
        await send(ours, range(3, 10))

    broker = producing(leader, script, epoch=EPOCH_MAX)
    assert leader.logs[0] == [b"%d" % value for value in range(10)]
    assert broker.count(InitProducerIdRequest) == 2
    assert leader.producers[0].get(ProducerId(8)) is not None
