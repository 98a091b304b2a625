"""Transactions of a producer: the coordinator's requests, and when batches may be sent.

Invariant: a batch is sent only in a transaction that contains its partition, or adds it by the
write. A commit is requested when every record and every offset of the transaction is written, and
never after a failure. Responses change the state (`transaction_state.py`); one request is in flight
at a time.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from ottla.client.group.interfaces import GroupMember
from ottla.client.group.offsets import OffsetAndMetadata
from ottla.client.lifecycle.call_scope import CallScope
from ottla.client.network.coordinators import CoordinatorKind, Coordinators
from ottla.client.producer.identity import NOBODY, Identity
from ottla.client.producer.transaction_requests import (
    add_offsets,
    add_partitions,
    codes_of_offsets,
    codes_of_partitions,
    commit_offsets,
    end_transaction,
    initialize,
)
from ottla.client.producer.transaction_state import (
    Consequence,
    Phase,
    Step,
    TransactionState,
    consequence,
)
from ottla.clock import Clock
from ottla.errors import ErrorCode, RequestError
from ottla.ids import NO_PRODUCER_ID, TopicPartition
from ottla.protocol.apis import END_TXN, INIT_PRODUCER_ID, PRODUCE, TXN_OFFSET_COMMIT
from ottla.protocol.message import Message
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from ottla.protocol.messages.end_txn import EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdResponse
from ottla.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse
from ottla.transport.backoff import Backoff
from ottla.transport.channel import Channel, Disconnected, NotSupported, TimedOut

M = TypeVar("M", bound=Message)

FEATURE: Final = "transaction.version"
IMPLICIT_FROM: Final = 2
"""The feature level from which writing to a partition adds it (KIP-890)."""

# The newest versions in which partitions and groups must be added before they are written to.
_PRODUCE_EXPLICIT: Final = 11
_TXN_OFFSET_COMMIT_EXPLICIT: Final = 4
_END_TXN_EXPLICIT: Final = 4

_ADD_PARTITIONS_NEWEST: Final = 3  # later versions are for brokers
_BUMPS_FROM: Final = 3  # the first version of InitProducerId that returns a new epoch
_TWO_PHASES_FROM: Final = 6  # the first version of InitProducerId with two-phase commit
_MEMBERS_FROM: Final = 3  # the first version of TxnOffsetCommit with the group member

_TEXTS: Final = {
    (Step.END, ErrorCode.INVALID_TXN_STATE): (
        "the coordinator has already ended the transaction, probably because it took longer than "
        "transaction.timeout.ms. Create a new producer with this transactional.id."
    )
}
"""More precise messages than those of the error table."""

_ENDED_BY_NEXT: Final = (
    "the next producer with this transactional.id aborts the transaction if it is still open"
)

CONCURRENT_PAUSE_S: Final = 0.02
"""The previous transaction ends within a moment, so a short pause is enough."""


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Transaction settings."""

    transactional_id: str
    timeout_ms: int
    """After this the coordinator aborts an open transaction."""

    block_s: float
    """The maximum time of a step with all its retries."""

    request_timeout_s: float
    backoff: Backoff
    is_two_phase: bool = False
    """Whether a transaction stays open without a time limit until it is ended (KIP-939)."""


class Transactions:
    """The transactions of a producer, one after the other."""

    def __init__(
        self,
        rules: TransactionConfig,
        coordinators: Coordinators,
        clock: Clock,
        renumber: Callable[[], None],
    ) -> None:
        self.state = TransactionState()
        self.transactional_id: str | None = rules.transactional_id
        self._rules = rules
        self._coordinators = coordinators
        self._clock = clock
        self._renumber = renumber  # called when sequence numbers restart at 0
        self._one_at_a_time = asyncio.Lock()
        self._is_implicit = False  # as of the coordinator's last response
        self._gives_epochs = False
        self._life = CallScope("producer")

    def close(self) -> None:
        """Close: requests to the coordinator get no response any more."""
        self._life.end()

    # Called by the sender.

    @property
    def identity(self) -> Identity:
        """The identity under which batches are numbered."""
        return self.state.identity

    @property
    def produce_version_max(self) -> int:
        """The newest version of Produce that may be used."""
        return PRODUCE.versions.high if self.state.is_implicit else _PRODUCE_EXPLICIT

    @property
    def failure(self) -> RequestError | None:
        """The error that fails all waiting batches."""
        if self.state.phase is Phase.ABORTING:
            text = "the transaction was aborted before this record was written"
            return RequestError(ErrorCode.TRANSACTION_ABORTABLE, text)
        return self.state.failure

    @property
    def refusal(self) -> RequestError | None:
        """None: `obtain` is not retried without end."""
        return None

    def admit(self, partition: TopicPartition, spent: int = NO_PRODUCER_ID) -> bool:
        """Whether a batch of a partition may be sent; otherwise `obtain` adds the partition."""
        self.state = self.state.admitted(partition)
        return partition in self.state.added

    async def obtain(self) -> None:
        """Add the wanted partitions."""
        wanted, identity = self.state.wanted, self.state.identity
        if not wanted or self.failure is not None:
            return
        await self._ask(
            Step.ADD_PARTITIONS,
            add_partitions(self._rules.transactional_id, identity, wanted),
            AddPartitionsToTxnResponse,
            codes_of_partitions,
            newest=_ADD_PARTITIONS_NEWEST,
        )
        if self.state.phase in (Phase.OPEN, Phase.COMMITTING):
            self.state = self.state.with_partitions(wanted)

    def lost(self, error: RequestError, *, numbered: bool) -> None:
        """Note that a batch failed, and its transaction with it."""
        match consequence(Step.PRODUCE, error.code):
            case Consequence.FENCED:
                self.state = self.state.over(self._fenced())
            case Consequence.OVER:
                self.state = self.state.over(error)
            case Consequence.FORGOTTEN:
                self.state = self.state.forgotten(error)
            case _:
                self.state = self.state.failed(error, numbered=numbered)

    # Called by the producer.

    async def start(self) -> None:
        """Get an identity; an earlier producer with this transactional id is fenced."""
        before, rules = self.state.identity, self._rules

        def versioned(channel: Channel) -> int:
            version = channel.version(INIT_PRODUCER_ID)
            if version < _BUMPS_FROM and before != NOBODY:
                raise NotSupported(
                    f"the broker at {channel.address} cannot bump the epoch of a producer"
                )
            if version < _TWO_PHASES_FROM and rules.is_two_phase:
                raise NotSupported(
                    f"the broker at {channel.address} does not support two-phase commit"
                )
            return version

        answer = await self._ask(
            Step.INITIALIZE,
            initialize(rules.transactional_id, before, rules.timeout_ms, rules.is_two_phase),
            InitProducerIdResponse,
            lambda answer: [answer.error_code],
            versioned=versioned,
        )
        identity = Identity(answer.producer_id, answer.producer_epoch)
        self.state = self.state.initialized(identity, implicit=self._is_implicit)
        self._renumber()

    async def begin(self) -> int:
        """Begin a transaction and return its number; under a new epoch if numbers were lost."""
        if self.state.phase is Phase.STARTING:
            await self.start()
        self.state = self.state.begun()
        return self.state.number

    def check(self, number: int | None = None) -> int:
        """Raise unless a transaction is open, and the one with this number if given."""
        state = self.state
        if state.phase is Phase.OPEN and number in (None, state.number):
            return state.number
        if state.failure is not None:
            raise state.failure
        raise RequestError(
            ErrorCode.INVALID_TXN_STATE,
            "the transaction ended before this record was sent: wait for all sends before you end "
            "it"
            if number is not None or state.phase in (Phase.COMMITTING, Phase.ABORTING)
            else "no transaction is open: send inside `async with producer.transaction()`",
        )

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: GroupMember
    ) -> None:
        """Commit a group's offsets with the transaction."""
        self.check()
        try:
            await self._send_offsets(offsets, member)
        except asyncio.CancelledError:
            # They may or may not be in the transaction, so it must not be committed.
            text = (
                "sending a group's offsets was cancelled: it is unknown whether they are in the "
                "transaction"
            )
            self.state = self.state.failed(RequestError(ErrorCode.TRANSACTION_ABORTABLE, text))
            raise

    async def _send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: GroupMember
    ) -> None:
        group, identity = member.group_id, self.state.identity
        if not self.state.is_implicit and group not in self.state.groups:
            await self._ask(
                Step.ADD_OFFSETS,
                add_offsets(self._rules.transactional_id, identity, group),
                AddOffsetsToTxnResponse,
                lambda answer: [answer.error_code],
            )
            self.check()
        self.state = self.state.with_group(group)

        def versioned(channel: Channel) -> int:
            version = channel.version(TXN_OFFSET_COMMIT)
            if version < _MEMBERS_FROM and member.is_member:
                raise NotSupported(
                    f"the broker at {channel.address} does not check which group member commits "
                    "offsets"
                )
            explicit = not self.state.is_implicit
            return min(version, _TXN_OFFSET_COMMIT_EXPLICIT) if explicit else version

        await self._ask(
            Step.COMMIT_OFFSETS,
            commit_offsets(self._rules.transactional_id, identity, member, offsets),
            TxnOffsetCommitResponse,
            codes_of_offsets,
            kind=CoordinatorKind.GROUP,
            key=group,
            versioned=versioned,
        )
        self.check()

    async def end(self, *, commit: bool) -> None:
        """End the transaction at the coordinator, if it knows it; nothing is in flight any more.

        Raises OutcomeUnknown without a response. It may be repeated: a transaction ends once.
        """
        before = renewed = self.state.identity
        if self.state.is_known:
            try:
                renewed = await self._asked_to_end(commit=commit)
            except RequestError:
                if commit or self.state.is_known:
                    raise  # otherwise there is nothing left to abort
        late = self.state.is_unheard and self._gives_epochs
        self.state = self.state.ended(renewed, implicit=self._is_implicit, late=late)
        if renewed != before:
            self._renumber()

    async def _asked_to_end(self, *, commit: bool) -> Identity:
        state = self.state
        try:
            answer = await self._ask(
                Step.END,
                end_transaction(self._rules.transactional_id, state.identity, commit=commit),
                EndTxnResponse,
                lambda answer: [answer.error_code],
                newest=END_TXN.versions.high if state.is_implicit else _END_TXN_EXPLICIT,
            )
        except Disconnected as closed:  # of the producer; lost connections are retried
            if not self.state.is_unheard:
                raise
            raise self.state.unended("the producer was closed", _ENDED_BY_NEXT) from closed
        if answer.producer_id >= 0:
            return Identity(answer.producer_id, answer.producer_epoch)
        return state.identity

    # Requests.

    async def _ask(
        self,
        step: Step,
        request: Message,
        kind_of_answer: type[M],
        codes: "Callable[[M], Iterable[int]]",
        *,
        kind: CoordinatorKind = CoordinatorKind.TRANSACTION,
        key: str | None = None,
        newest: int | None = None,
        versioned: Callable[[Channel], int] | None = None,
    ) -> M:
        """Send a request until the coordinator responds; an error is raised."""
        key = self._rules.transactional_id if key is None else key
        api = request.API
        assert api is not None
        failures = 0
        last: RequestError | None = None
        deadline_s = self._clock.elapsed_s() + self._rules.block_s
        async with self._life.call(), self._one_at_a_time:
            while (left_s := deadline_s - self._clock.elapsed_s()) > 0:
                try:
                    async with asyncio.timeout(left_s):
                        channel = await self._coordinators.channel(kind, key, left_s)
                        version = channel.version(api) if versioned is None else versioned(channel)
                        version = version if newest is None else min(version, newest)
                        before, self.state = self.state, self.state.asked(step)
                        answer = await channel.ask(
                            request, kind_of_answer, self._rules.request_timeout_s, version=version
                        )
                        self.state = self.state.answered(step, before)
                except TimeoutError:
                    break
                except RequestError as error:
                    last = error
                else:
                    if kind is CoordinatorKind.TRANSACTION:
                        self._is_implicit = channel.features.get(FEATURE, 0) >= IMPLICIT_FROM
                        self._gives_epochs = channel.version(INIT_PRODUCER_ID) >= _BUMPS_FROM
                    code = next((ErrorCode.of(one) for one in codes(answer) if one), None)
                    if code is None:
                        return answer
                    text = _TEXTS.get((step, code), code.text)
                    last = RequestError(code, f"{key}: {step.value}: {text}")
                result = self.state.consequence(step, last.code)
                if result is Consequence.ELSEWHERE:
                    self._coordinators.forget(kind, key)
                elif result is not Consequence.AGAIN:
                    raise self._refused(result, last)
                failures += 1
                pause_s = self._rules.backoff.pause_s(failures)
                if last.code is ErrorCode.CONCURRENT_TRANSACTIONS:
                    pause_s = min(pause_s, CONCURRENT_PAUSE_S)
                await self._clock.sleep(pause_s)
        raise self._late(
            step, f"{key}: {step.value} took more than {self._rules.block_s:g} s", last
        )

    def _late(self, step: Step, text: str, last: RequestError | None) -> RequestError:
        """Return the error at the deadline; an end may be repeated."""
        if last is not None:
            text = f"{text} ({last})"
        if step is not Step.END:
            late: RequestError = TimedOut(text)
            if self.state.phase in (Phase.OPEN, Phase.COMMITTING):
                self.state = self.state.failed(late)
        else:
            late = self.state.unended(text)
        late.__cause__ = last
        return late

    def _refused(self, result: Consequence, error: RequestError) -> RequestError:
        if result is Consequence.FENCED:
            error = self._fenced()
        if self.state.is_unheard and self.state.phase is Phase.COMMITTING:
            error = RequestError(
                error.code,
                f"{error.message}; an earlier response was lost, so it is unknown whether the "
                "transaction was committed",
            )
        if result is Consequence.FORGOTTEN:
            self.state = self.state.forgotten(error)
        elif result is Consequence.ABORT and self.state.phase is not Phase.ABORTING:
            lost = error.code is ErrorCode.UNKNOWN_PRODUCER_ID
            self.state = self.state.failed(error, numbered=lost)
        else:
            self.state = self.state.over(error)
        return error

    def _fenced(self) -> RequestError:
        return RequestError(
            ErrorCode.PRODUCER_FENCED,
            f"another producer took over transactional.id {self._rules.transactional_id!r}, or "
            "the coordinator ended a transaction that took longer than transaction.timeout.ms: "
            "close this producer",
        )
