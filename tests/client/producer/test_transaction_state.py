"""The transaction state machine: every transition from every phase, and each error's effect."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from cases import each_case
from ottla.client.producer.identity import NOBODY, Identity
from ottla.client.producer.transaction_state import (
    Consequence,
    Phase,
    Step,
    TransactionState,
    consequence,
)
from ottla.errors import ErrorCode, RequestError
from ottla.ids import PartitionIndex, TopicPartition

ME, NEXT = Identity(7, 0), Identity(7, 1)
PLACE, OTHER = (TopicPartition("t", PartitionIndex(index)) for index in (0, 1))
ERROR = RequestError(ErrorCode.MESSAGE_TOO_LARGE)

Move = Callable[[TransactionState], TransactionState]

MOVES: dict[str, Move] = {
    "initialized": lambda state: state.initialized(ME, implicit=False),
    "begun": lambda state: state.begun(),
    "failed": lambda state: state.failed(ERROR),
    "committing": lambda state: state.ending(commit=True),
    "aborting": lambda state: state.ending(commit=False),
    "ended": lambda state: state.ended(state.identity, implicit=False),
    "over": lambda state: state.over(ERROR),
}

# (phase, transition) to phase; transitions that are not listed raise.
TABLE = {
    (Phase.STARTING, "initialized"): Phase.READY,
    (Phase.READY, "begun"): Phase.OPEN,
    (Phase.OPEN, "failed"): Phase.FAILED,
    (Phase.OPEN, "committing"): Phase.COMMITTING,
    (Phase.OPEN, "aborting"): Phase.ABORTING,
    (Phase.FAILED, "aborting"): Phase.ABORTING,
    (Phase.COMMITTING, "failed"): Phase.FAILED,
    (Phase.COMMITTING, "aborting"): Phase.ABORTING,
    (Phase.COMMITTING, "ended"): Phase.READY,
    (Phase.ABORTING, "ended"): Phase.READY,
    **{(phase, "over"): Phase.OVER for phase in Phase},
    # A failed record outside a transaction that could fail changes nothing.
    **{(phase, "failed"): phase for phase in Phase if phase not in (Phase.OPEN, Phase.COMMITTING)},
}


@each_case("name", MOVES)
@each_case("phase", Phase)
def test_illegal_transition_raises(phase: Phase, name: str) -> None:
    state = TransactionState(phase, 3, ME)
    expected = TABLE.get((phase, name))
    if expected is not None:
        assert MOVES[name](state).phase is expected
        return
    with pytest.raises(RequestError) as refused:
        MOVES[name](state)
    assert refused.value.code is ErrorCode.INVALID_TXN_STATE
    assert state == TransactionState(phase, 3, ME)


def opened(*, implicit: bool = False) -> TransactionState:
    return TransactionState().initialized(ME, implicit=implicit).begun()


def test_later_calls_raise_the_failure() -> None:
    failed = opened().failed(ERROR)
    with pytest.raises(RequestError) as raised:
        failed.ending(commit=True)
    assert raised.value is ERROR
    fenced = RequestError(ErrorCode.PRODUCER_FENCED)
    over = failed.over(fenced)
    for move in ("initialized", "begun", "committing", "aborting", "ended"):
        with pytest.raises(RequestError) as raised:
            MOVES[move](over)
        assert raised.value is fenced
    assert over.over(ERROR).failure is fenced  # the first error that ended it


def test_first_failure_is_kept() -> None:
    failed = opened().failed(ERROR).failed(RequestError(ErrorCode.INVALID_RECORD), numbered=True)
    assert failed.failure is ERROR
    assert failed.needs_epoch


def test_partition_is_added_before_it_is_written_to() -> None:
    wanting = opened().admitted(PLACE).admitted(PLACE).admitted(OTHER)
    assert (wanting.wanted, wanting.added) == ({PLACE, OTHER}, set())
    assert not wanting.is_known
    added = wanting.with_partitions(frozenset({PLACE}))
    assert (added.wanted, added.added, added.is_known) == ({OTHER}, {PLACE}, True)
    assert added.admitted(PLACE) == added


def test_partition_is_added_by_writing_to_it() -> None:
    written = opened(implicit=True).admitted(PLACE)
    assert (written.wanted, written.added, written.is_known) == (set(), {PLACE}, True)


def test_offsets_are_part_of_the_transaction() -> None:
    assert opened().with_group("g").is_known
    assert opened().with_group("g").groups == {"g"}


@pytest.mark.parametrize("commit", [True, False])
def test_next_transaction_starts_clean(commit: bool) -> None:
    full = opened().admitted(PLACE).with_partitions(frozenset({PLACE})).with_group("g")
    ended = full.ending(commit=commit).ended(ME, implicit=False)
    assert ended == TransactionState(Phase.READY, 1, ME)
    assert ended.begun().number == 2


@each_case(
    ("lost", "renewed", "was_implicit", "is_implicit", "expected"),
    [
        (False, ME, False, False, Phase.READY),
        (True, ME, False, False, Phase.STARTING),
        (True, NEXT, True, True, Phase.READY),  # the end of the transaction returned a new epoch
        (False, NEXT, True, True, Phase.READY),
        (
            False,
            ME,
            False,
            True,
            Phase.STARTING,
        ),  # the cluster was upgraded to the newer transaction version
        (False, NEXT, True, False, Phase.READY),
    ],
)
def test_lost_sequence_needs_an_epoch_unless_the_end_gave_one(
    lost: bool, renewed: Identity, was_implicit: bool, is_implicit: bool, expected: Phase
) -> None:
    state = opened(implicit=was_implicit)
    if lost:
        state = state.failed(ERROR, numbered=True)
    ended = state.ending(commit=False).ended(renewed, implicit=is_implicit)
    assert (ended.phase, ended.identity, ended.is_implicit) == (expected, renewed, is_implicit)
    if expected is Phase.STARTING:
        assert ended.initialized(NEXT, implicit=is_implicit).phase is Phase.READY


def test_lost_sequence_during_an_abort_needs_an_epoch() -> None:
    aborting = opened().ending(commit=False)
    assert aborting.failed(ERROR, numbered=False) == aborting
    assert aborting.failed(ERROR, numbered=True) == replace(aborting, needs_epoch=True)


def test_commit_of_unknown_outcome_cannot_become_an_abort() -> None:
    committing = opened().with_group("g").ending(commit=True)
    assert committing.ending(commit=False).phase is Phase.ABORTING
    unheard = committing.asked(Step.END)
    with pytest.raises(RequestError, match="is unknown whether"):
        unheard.ending(commit=False)
    with pytest.raises(RequestError, match="is unknown whether"):
        unheard.begun()
    assert unheard.answered(Step.END, committing) == committing


def test_repeated_end_needs_an_epoch_unless_it_gave_one() -> None:
    ending = opened().ending(commit=True)
    assert ending.ended(ME, implicit=False, late=True).phase is Phase.STARTING
    assert ending.ended(NEXT, implicit=False, late=True).phase is Phase.READY


def test_forgotten_transaction_is_not_ended_by_request() -> None:
    forgotten = opened().with_group("g").forgotten(ERROR)
    assert (forgotten.phase, forgotten.is_known) == (Phase.FAILED, False)
    ended = forgotten.ending(commit=False).ended(ME, implicit=False)
    assert (ended.phase, ended.identity) == (Phase.STARTING, ME)


def test_producer_starts_without_an_identity() -> None:
    assert TransactionState().identity == NOBODY


ASKED = [step for step in Step if step is not Step.PRODUCE]


@each_case("step", ASKED)
@each_case(
    ("code", "expected"),
    [
        (ErrorCode.NONE, Consequence.DONE),
        (ErrorCode.PRODUCER_FENCED, Consequence.FENCED),
        (ErrorCode.INVALID_PRODUCER_EPOCH, Consequence.FENCED),
        (ErrorCode.NOT_COORDINATOR, Consequence.ELSEWHERE),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, Consequence.ELSEWHERE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Consequence.AGAIN),
        (ErrorCode.CONCURRENT_TRANSACTIONS, Consequence.AGAIN),
        (ErrorCode.NETWORK_EXCEPTION, Consequence.AGAIN),
        (ErrorCode.REQUEST_TIMED_OUT, Consequence.AGAIN),
        (ErrorCode.UNSUPPORTED_VERSION, Consequence.OVER),
    ],
)
def test_coordinator_errors_mean_the_same_at_every_step(
    step: Step, code: ErrorCode, expected: Consequence
) -> None:
    assert consequence(step, code) is expected


@each_case(
    ("step", "code", "expected"),
    [
        (Step.INITIALIZE, ErrorCode.INVALID_TRANSACTION_TIMEOUT, Consequence.OVER),
        (Step.INITIALIZE, ErrorCode.TRANSACTION_ABORTABLE, Consequence.ABORT),
        (Step.INITIALIZE, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Consequence.ABORT),
        (Step.INITIALIZE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, Consequence.ABORT),
        (Step.INITIALIZE, ErrorCode.INVALID_PRODUCER_ID_MAPPING, Consequence.OVER),
        (Step.END, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Consequence.OVER),
        (Step.END, ErrorCode.INVALID_PRODUCER_ID_MAPPING, Consequence.FORGOTTEN),
        (Step.END, ErrorCode.UNKNOWN_PRODUCER_ID, Consequence.ABORT),
        (Step.PRODUCE, ErrorCode.INVALID_PRODUCER_ID_MAPPING, Consequence.FORGOTTEN),
        (Step.ADD_PARTITIONS, ErrorCode.TOPIC_AUTHORIZATION_FAILED, Consequence.ABORT),
        (Step.ADD_PARTITIONS, ErrorCode.OPERATION_NOT_ATTEMPTED, Consequence.ABORT),
        (Step.ADD_PARTITIONS, ErrorCode.INVALID_TXN_STATE, Consequence.OVER),
        (Step.ADD_PARTITIONS, ErrorCode.TRANSACTION_ABORTABLE, Consequence.ABORT),
        (Step.ADD_OFFSETS, ErrorCode.GROUP_AUTHORIZATION_FAILED, Consequence.ABORT),
        (Step.ADD_OFFSETS, ErrorCode.INVALID_TXN_STATE, Consequence.OVER),
        (Step.COMMIT_OFFSETS, ErrorCode.ILLEGAL_GENERATION, Consequence.ABORT),
        (Step.COMMIT_OFFSETS, ErrorCode.UNKNOWN_MEMBER_ID, Consequence.ABORT),
        (Step.COMMIT_OFFSETS, ErrorCode.FENCED_INSTANCE_ID, Consequence.ABORT),
        (Step.COMMIT_OFFSETS, ErrorCode.STALE_MEMBER_EPOCH, Consequence.ABORT),
        (Step.COMMIT_OFFSETS, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, Consequence.OVER),
        (Step.END, ErrorCode.INVALID_TXN_STATE, Consequence.OVER),
        (Step.END, ErrorCode.TRANSACTION_ABORTABLE, Consequence.ABORT),
        (Step.END, ErrorCode.UNKNOWN_SERVER_ERROR, Consequence.OVER),
        (Step.PRODUCE, ErrorCode.PRODUCER_FENCED, Consequence.FENCED),
        (Step.PRODUCE, ErrorCode.INVALID_PRODUCER_EPOCH, Consequence.ABORT),
        (Step.PRODUCE, ErrorCode.INVALID_TXN_STATE, Consequence.ABORT),
        (Step.PRODUCE, ErrorCode.REQUEST_TIMED_OUT, Consequence.ABORT),
        (Step.PRODUCE, ErrorCode.MESSAGE_TOO_LARGE, Consequence.ABORT),
        (Step.PRODUCE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, Consequence.ABORT),
        (Step.PRODUCE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, Consequence.OVER),
    ],
)
def test_consequence_of_an_error_depends_on_its_step(
    step: Step, code: ErrorCode, expected: Consequence
) -> None:
    assert consequence(step, code) is expected
