"""A transaction: what is sent in it counts together, or not at all.

Invariant: leaving its context commits it when nothing went wrong, and aborts it otherwise; then an
exception tells why. Whether it was committed is known, or OutcomeUnknown says that it is not; then
the same end can be asked for again, and no other.
"""

from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Self

from ottla.client.group.interfaces import GroupMember
from ottla.client.group.offsets import OffsetAndMetadata
from ottla.client.partitions import P, by_partition, partition_of
from ottla.client.produce.transaction_state import OutcomeUnknown, Phase
from ottla.client.produce.transactions import Transactions
from ottla.errors import ErrorCode, RequestError


class Transaction:
    """Made by `producer.transaction()`; `async with` begins and ends it."""

    def __init__(self, transactions: Transactions, flush: Callable[[], Awaitable[None]]) -> None:
        self._transactions = transactions
        self._flush = flush  # returns when nothing of the producer is on its way
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
                error.add_note("the end of its transaction is not known: ask again")
            return
        try:
            await self.abort()
        except RequestError as failure:
            if isinstance(error, RequestError) and failure.code is ErrorCode.PRODUCER_FENCED:
                raise failure from error
            error.add_note(f"its transaction was not aborted: {failure}")

    async def send_offsets(
        self,
        offsets: Mapping[P, int | OffsetAndMetadata],
        group: GroupMember | str,
    ) -> None:
        """Commit how far a group has read, with the transaction: the offsets of the next records.

        With a member of the group it counts only if the group still knows that member.
        """
        self._transactions.check(self._number)
        given = by_partition(offsets)
        wanted = {partition_of(where): OffsetAndMetadata.of(one) for where, one in given.items()}
        member = GroupMember(group) if isinstance(group, str) else group
        if wanted:
            await self._transactions.send_offsets(wanted, member)

    async def commit(self) -> None:
        """End it so that all of it counts; leaving the context does nothing more then.

        OutcomeUnknown when the coordinator did not answer: call it again. It commits once.
        """
        if self._is_ended():
            if not self._was_committed:
                raise RequestError(ErrorCode.INVALID_TXN_STATE, "the transaction was aborted")
            return
        with self._ending():
            await self._commit()
        self._was_committed = True

    async def abort(self) -> None:
        """End it so that nothing of it counts; leaving the context does nothing more then.

        OutcomeUnknown when the coordinator did not answer: call it again.
        """
        if self._is_ended():
            if self._was_committed:
                raise RequestError(ErrorCode.INVALID_TXN_STATE, "the transaction was committed")
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
                    except RequestError as failure:  # who was cancelled hears of that
                        error.add_note(f"its transaction was not aborted: {failure}")
                    raise
            failure = await self._asked_to_commit()
        if failure is None:
            return
        if transactions.state.phase is Phase.FAILED:
            with suppress(RequestError):
                await self._abort()
        # That it is over says more than why it failed before.
        if (over := transactions.state.failure) is not None and over is not failure:
            raise over from failure
        raise failure

    @contextmanager
    def _ending(self) -> Generator[None]:
        if self._is_ending:
            raise RequestError(ErrorCode.INVALID_TXN_STATE, "the transaction is being ended")
        self._is_ending = True
        try:
            yield
        finally:
            self._is_ending = False

    async def _asked_to_commit(self) -> RequestError | None:
        """Ask for the commit if all is there; why it is not committed, if it is not."""
        transactions = self._transactions
        if transactions.state.phase is not Phase.COMMITTING:
            return transactions.state.failure
        try:
            await transactions.end(commit=True)
        except RequestError as error:
            return error
        return None

    def _is_ended(self) -> bool:
        """Whether it was aborted already, or another one began since."""
        state = self._transactions.state
        ended = state.phase in (Phase.READY, Phase.STARTING)
        return ended or state.number != self._number
