"""The transaction state of a producer: what is allowed next and what an error requires.

Invariant: a state is immutable. A transition that is not in the table raises and changes nothing. A
transaction in which something failed can only be aborted; one whose commit got no response can only
be committed again. A fenced producer can do nothing more.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from ottla.client.producer.identity import NOBODY, Identity
from ottla.errors import ErrorCode, RequestError
from ottla.ids import TopicPartition
from ottla.transport.failures import TimedOut


class OutcomeUnknown(TimedOut):
    """Ending a transaction got no response: repeat the same call."""


class Phase(Enum):
    """The phase of a producer."""

    STARTING = auto()  # without an identity, or in need of a new one
    READY = auto()  # between two transactions
    OPEN = auto()
    FAILED = auto()  # can only be aborted
    COMMITTING = auto()
    ABORTING = auto()
    OVER = auto()


# An identity leads from STARTING to READY; an end from COMMITTING or ABORTING to one of these.
_MOVES: Final = {
    Phase.STARTING: {Phase.OVER},
    Phase.READY: {Phase.OPEN, Phase.OVER},
    Phase.OPEN: {Phase.FAILED, Phase.COMMITTING, Phase.ABORTING, Phase.OVER},
    Phase.FAILED: {Phase.ABORTING, Phase.OVER},
    Phase.COMMITTING: {Phase.FAILED, Phase.ABORTING, Phase.OVER},
    Phase.ABORTING: {Phase.OVER},
    Phase.OVER: set[Phase](),
}


class Step(Enum):
    """The request that was sent."""

    INITIALIZE = "initializing the producer id"
    ADD_PARTITIONS = "adding partitions"
    ADD_OFFSETS = "adding a group's offsets"
    COMMIT_OFFSETS = "committing a group's offsets"
    PRODUCE = "writing records"
    END = "ending the transaction"


class Consequence(Enum):
    """What a response requires."""

    DONE = auto()
    AGAIN = auto()
    ELSEWHERE = auto()  # again at another coordinator
    ABORT = auto()
    FORGOTTEN = auto()  # abort without telling the coordinator
    FENCED = auto()
    OVER = auto()


_ADDS: Final = frozenset({Step.ADD_PARTITIONS, Step.ADD_OFFSETS})
_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_ELSEWHERE: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_NEVER: Final = frozenset(
    {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
# Without an identity no transaction is open, so the request may be repeated after these.
_REFUSED: Final = frozenset(
    {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
_ABORT_AT_END: Final = frozenset({ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.UNKNOWN_PRODUCER_ID})


def consequence(step: Step, code: ErrorCode) -> Consequence:
    """Return what the response to a step requires."""
    if code is ErrorCode.NONE:
        return Consequence.DONE
    if code in _FENCED:
        # A leader with an old epoch may only lag behind; the coordinator decides at the end.
        early = step is Step.PRODUCE and code is ErrorCode.INVALID_PRODUCER_EPOCH
        return Consequence.ABORT if early else Consequence.FENCED
    if step is not Step.PRODUCE and code in _ELSEWHERE:
        return Consequence.ELSEWHERE
    if step is not Step.PRODUCE and code.retriable:
        return Consequence.AGAIN
    if step is Step.INITIALIZE:
        return Consequence.ABORT if code in _REFUSED else Consequence.OVER
    if code is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
        # The producer id was forgotten or belongs to another producer now. Java's client 4.3 stops
        # here. Requesting a new identity with the old one is safe: a replaced producer is fenced.
        return Consequence.FORGOTTEN
    if code in _NEVER:
        return Consequence.OVER
    if step in (Step.ADD_OFFSETS, Step.ADD_PARTITIONS) and code is ErrorCode.INVALID_TXN_STATE:
        return Consequence.OVER
    over = step is Step.END and code not in _ABORT_AT_END
    return Consequence.OVER if over else Consequence.ABORT


@dataclass(frozen=True, slots=True)
class TransactionState:
    """The complete state."""

    phase: Phase = Phase.STARTING
    number: int = 0
    """The number of transactions begun."""

    identity: Identity = NOBODY
    is_implicit: bool = False
    """Whether writing to a partition adds it, and each end brings a new epoch (KIP-890)."""

    wanted: frozenset[TopicPartition] = frozenset()
    """Partitions that must be added before they are written to."""

    added: frozenset[TopicPartition] = frozenset()
    groups: frozenset[str] = frozenset()
    is_known: bool = False
    """Whether the coordinator may know the transaction and has to be told of its end."""

    needs_epoch: bool = False
    """Whether sequence numbers were lost, so that the next transaction needs a new epoch."""

    is_unheard: bool = False
    """Whether an end was requested without a response: it may have happened."""

    failure: RequestError | None = None

    def initialized(self, identity: Identity, *, implicit: bool) -> "TransactionState":
        """The coordinator returned an identity and ended what was open under the old one."""
        self._require(self.phase is Phase.STARTING)
        return TransactionState(Phase.READY, self.number, identity, implicit)

    def begun(self) -> "TransactionState":
        """A transaction begins."""
        return replace(self._moved(Phase.OPEN), number=self.number + 1)

    def admitted(self, partition: TopicPartition) -> "TransactionState":
        """A partition is written to: added implicitly, or wanted to be added before."""
        if partition in self.added:
            return self
        if self.is_implicit:
            return replace(self, added=self.added | {partition}, is_known=True)
        return replace(self, wanted=self.wanted | {partition})

    def with_partitions(self, partitions: frozenset[TopicPartition]) -> "TransactionState":
        """The coordinator has added partitions."""
        return replace(
            self, wanted=self.wanted - partitions, added=self.added | partitions, is_known=True
        )

    def with_group(self, group: str) -> "TransactionState":
        """The coordinator has added a group's offsets, or is about to."""
        return replace(self, groups=self.groups | {group}, is_known=True)

    def failed(self, error: RequestError, *, numbered: bool = False) -> "TransactionState":
        """Something of the transaction failed: it can only be aborted."""
        needs_epoch = self.needs_epoch or numbered
        if self.phase in (Phase.OPEN, Phase.COMMITTING):
            return replace(self._moved(Phase.FAILED), failure=error, needs_epoch=needs_epoch)
        return replace(self, needs_epoch=needs_epoch)  # the first failure is reported

    def forgotten(self, error: RequestError) -> "TransactionState":
        """The coordinator does not know the identity: no end is sent."""
        return replace(self.failed(error, numbered=True), is_known=False)

    def asked(self, step: Step) -> "TransactionState":
        """A request was sent and may take effect even without a response."""
        if step is Step.END:
            return replace(self, is_unheard=True)
        return replace(self, is_known=True) if step in _ADDS else self

    def answered(self, step: Step, before: "TransactionState") -> "TransactionState":
        """The response arrived; an earlier one may be missing."""
        return replace(self, is_unheard=before.is_unheard) if step is Step.END else self

    def consequence(self, step: Step, code: ErrorCode) -> Consequence:
        """Return what the response to a step requires in this state."""
        is_unadded = not self.added and not self.groups and self.phase is Phase.ABORTING
        if is_unadded and step is Step.END and code is ErrorCode.INVALID_TXN_STATE:
            return Consequence.FORGOTTEN  # an addition without a response did not happen
        return consequence(step, code)

    def unended(self, why: str, advice: str = "call {}() again") -> RequestError:
        """Return the error for an end without a response."""
        is_commit = self.phase is Phase.COMMITTING
        advice = advice.format("commit" if is_commit else "abort")
        if not self.is_unheard:
            return TimedOut(f"{why}; the request was not sent: {advice}")
        known = "committed" if is_commit else "aborted"
        return OutcomeUnknown(f"{why}; it is unknown whether the transaction was {known}: {advice}")

    def ending(self, *, commit: bool) -> "TransactionState":
        """The transaction is closed for new records."""
        if self.is_unheard and self.phase is Phase.COMMITTING:
            self._require(False)  # it may be committed already
        return self._moved(Phase.COMMITTING if commit else Phase.ABORTING)

    def ended(
        self, identity: Identity, *, implicit: bool, late: bool = False
    ) -> "TransactionState":
        """The coordinator has ended it or never knew it; the identity may be new.

        A `late` request could end the next transaction if that had the same epoch.
        """
        renewed = identity != self.identity
        needs_epoch = (self.needs_epoch or late) and not renewed
        needs_epoch = needs_epoch or (implicit and not self.is_implicit)
        phase = Phase.STARTING if needs_epoch else Phase.READY
        self._require(self.phase in (Phase.COMMITTING, Phase.ABORTING))
        return TransactionState(phase, self.number, identity, implicit)

    def over(self, error: RequestError) -> "TransactionState":
        """The producer can do nothing more."""
        if self.phase is Phase.OVER:
            return self
        return replace(self._moved(Phase.OVER), failure=error)

    def _moved(self, phase: Phase) -> "TransactionState":
        self._require(phase in _MOVES[self.phase])
        return replace(self, phase=phase)

    def _require(self, is_legal: bool) -> None:
        if is_legal:
            return
        if self.failure is not None:
            raise self.failure
        text = _UNHEARD.get(self.phase) if self.is_unheard else None
        raise RequestError(ErrorCode.INVALID_TXN_STATE, text or _ILLEGAL[self.phase])


_ILLEGAL: Final = {
    Phase.STARTING: "the producer has no producer id yet: use `async with`",
    Phase.READY: "no transaction is open: use `async with producer.transaction()`",
    Phase.OPEN: "a transaction is already open: a producer has one at a time",
    Phase.FAILED: "the transaction has failed: abort it",
    Phase.COMMITTING: "the transaction is not committed yet: call its commit() or abort()",
    Phase.ABORTING: "the transaction is not aborted yet: call its abort()",
    Phase.OVER: "the producer cannot be used any more: create a new one",
}
_UNHEARD: Final = {
    Phase.COMMITTING: (
        "it is unknown whether the transaction was committed: call its commit() again"
    ),
    Phase.ABORTING: "it is unknown whether the transaction was aborted: call its abort() again",
}
