"""A transaction: its records become visible together or not at all.

Invariant: leaving the context commits if nothing failed, and otherwise aborts and raises. Whether
it was committed is known, or OutcomeUnknown is raised; then only the same call may be repeated.
"""

from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Self

from ottla.client.group.interfaces import GroupMember
from ottla.client.group.offsets import OffsetAndMetadata
from ottla.client.partitions import P, by_partition, partition_of
from ottla.client.producer.transaction_state import OutcomeUnknown, Phase
from ottla.client.producer.transactions import Transactions
from ottla.errors import ErrorCode, RequestError


class Transaction:
    """Created by `producer.transaction()`; `async with` begins and ends it."""

    def __init__(self, transactions: Transactions, flush: Callable[[], Awaitable[None]]) -> None:
        self._transactions = transactions
        self._flush = flush  # returns when nothing of the producer is in flight
        self._number = 0
        self._was_committed = False
        self._is_ending = False

    async def __aenter__(self) -> Self:
        self._number = await self._transactions.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        if self._is_ended():
            return
        if error is None:
            await self.commit()
            return
        if self._transactions.state.is_unheard:
            if not isinstance(error, OutcomeUnknown):
                error.add_note(
                    "the outcome of the transaction is unknown: call the same commit() or abort() "
                    "again"
                )
            return
        try:
            await self.abort()
        except RequestError as failure:
            if isinstance(error, RequestError) and failure.code is ErrorCode.PRODUCER_FENCED:
                raise failure from error
            error.add_note(f"the transaction was not aborted: {failure}")

    async def send_offsets(
        self,
        offsets: Mapping[P, int | OffsetAndMetadata],
        group: GroupMember | str,
    ) -> None:
        """Commit the offsets of a group with the transaction: the offsets of the next records.

        With a group member, it counts only if the group still knows that member.
        """
        self._transactions.check(self._number)
        given = by_partition(offsets)
        wanted = {partition_of(where): OffsetAndMetadata.of(one) for where, one in given.items()}
        member = GroupMember(group) if isinstance(group, str) else group
        if wanted:
            await self._transactions.send_offsets(wanted, member)

    async def commit(self) -> None:
        """Commit; leaving the context then does nothing more.

        Raises OutcomeUnknown if the coordinator did not respond: call it again. It commits once.
        """
        if self._is_ended():
            if not self._was_committed:
                raise RequestError(
                    ErrorCode.INVALID_TXN_STATE,
                    "the transaction cannot be committed: it was aborted",
                )
            return
        with self._ending():
            await self._commit()
        self._was_committed = True

    async def abort(self) -> None:
        """Abort; leaving the context then does nothing more.

        Raises OutcomeUnknown if the coordinator did not respond: call it again.
        """
        if self._is_ended():
            if self._was_committed:
                raise RequestError(
                    ErrorCode.INVALID_TXN_STATE,
                    "the transaction cannot be aborted: it was committed",
                )
            return
        with self._ending():
            await self._abort()

    async def _abort(self) -> None:
        transactions = self._transactions
        if transactions.state.phase is Phase.OVER:
            assert transactions.state.failure is not None
            raise transactions.state.failure
        if transactions.state.phase is not Phase.ABORTING:
            transactions.state = transactions.state.ending(commit=False)
        await self._flush()
        await transactions.end(commit=False)

    async def _commit(self) -> None:
        transactions = self._transactions
        failure = transactions.state.failure
        if failure is None:
            if transactions.state.phase is not Phase.COMMITTING:
                transactions.state = transactions.state.ending(commit=True)
                try:
                    await self._flush()
                except BaseException as error:
                    try:
                        await self._abort()
                    except RequestError as failure:  # a cancellation is raised instead
                        error.add_note(f"the transaction was not aborted: {failure}")
                    raise
            failure = await self._asked_to_commit()
        if failure is None:
            return
        if transactions.state.phase is Phase.FAILED:
            with suppress(RequestError):
                await self._abort()
        # That the producer is fenced says more than an earlier failure.
        if (over := transactions.state.failure) is not None and over is not failure:
            raise over from failure
        raise failure

    @contextmanager
    def _ending(self) -> Generator[None]:
        if self._is_ending:
            raise RequestError(
                ErrorCode.INVALID_TXN_STATE,
                "another commit() or abort() of the transaction is in progress",
            )
        self._is_ending = True
        try:
            yield
        finally:
            self._is_ending = False

    async def _asked_to_commit(self) -> RequestError | None:
        """Commit if everything was written; returns why it was not committed."""
        transactions = self._transactions
        if transactions.state.phase is not Phase.COMMITTING:
            return transactions.state.failure
        try:
            await transactions.end(commit=True)
        except RequestError as error:
            return error
        return None

    def _is_ended(self) -> bool:
        """Whether it was aborted already, or another transaction has begun since."""
        state = self._transactions.state
        ended = state.phase in (Phase.READY, Phase.STARTING)
        return ended or state.number != self._number
