"""Commits and fetches the offsets of a group.

Invariant: retriable errors are retried until the deadline; other errors are reported per partition.
After a rebalance a commit is retried in the new generation only if the partition was owned all the
time, because another member may have progressed further in between. Commits are sent one after the
other, in the order of their calls.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from typing import Final

from ottla.client.group.config import GroupConfig
from ottla.client.group.consumer_coordinator import ConsumerCoordinator, ask
from ottla.client.group.interfaces import GroupMember, Membership
from ottla.client.group.offsets import (
    STABLE_SINCE,
    OffsetAndMetadata,
    commit_errors,
    commit_request,
    fetch_request,
    fetched,
    version_for,
)
from ottla.client.network.metadata import Metadata
from ottla.clock import Clock
from ottla.errors import ErrorCode, RequestError
from ottla.ids import ZERO_UUID, TopicPartition, Uuid
from ottla.protocol.apis import OFFSET_COMMIT, OFFSET_FETCH
from ottla.protocol.messages.offset_commit import OffsetCommitResponse
from ottla.protocol.messages.offset_fetch import OffsetFetchResponse
from ottla.transport.channel import TimedOut

_ELSEWHERE: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
# The group has a new generation, in which the same commit may be valid.
_SUPERSEDED: Final = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
# The member is not part of the group any more.
_EXPELLED: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)
NOT_A_MEMBER: Final = (
    "the consumer is not a member of its group any more, and its partitions may be assigned to "
    "other members: records read since the last commit will be read again. If polls are far "
    "apart, raise max.poll.interval.ms or lower max.poll.records"
)


class Verdict(Enum):
    """What to do about the offset of one partition."""

    KEPT = auto()
    AGAIN = auto()
    FAILED = auto()


class CommitFailed(RequestError):
    """Offsets that were not committed; the code is that of the first, `errors` has all."""

    def __init__(self, errors: Mapping[TopicPartition, RequestError]) -> None:
        (where, first), *others = errors.items()
        more = f" (and {len(others)} more)" if others else ""
        super().__init__(first.code, f"{where}{more}: {first.message or first.code.text}")
        self.errors: Final = errors
        self.__cause__ = first.__cause__


def verdict(error: ErrorCode, *, has_moved_on: bool, is_ours: bool) -> Verdict:
    """Return what to do about an offset after a response.

    `has_moved_on`: the member's generation has changed since the request; `is_ours`: the partition
    was owned from before the commit until now.
    """
    if not error:
        return Verdict.KEPT
    if error in _SUPERSEDED:
        may_pass = has_moved_on or error is not ErrorCode.ILLEGAL_GENERATION
        return Verdict.AGAIN if is_ours and may_pass else Verdict.FAILED
    return Verdict.AGAIN if error.retriable else Verdict.FAILED


class Commits:
    """The offsets of one group; `membership` returns None for manually assigned partitions."""

    def __init__(
        self,
        coordinator: ConsumerCoordinator,
        metadata: Metadata,
        rules: GroupConfig,
        clock: Clock,
        membership: Callable[[], Membership | None] = lambda: None,
    ) -> None:
        self._coordinator = coordinator
        self._metadata = metadata
        self._rules = rules
        self._clock = clock
        self._membership = membership
        self._in_order = asyncio.Lock()

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float
    ) -> None:
        """Commit offsets; raises CommitFailed with the partitions that failed.

        One commit at a time, in call order: otherwise a retried older commit could overwrite a
        newer one.
        """
        deadline_s = self._clock.elapsed_s() + timeout_s
        # Ownership counts as of the call, not after the wait.
        membership = self._membership()
        since = {one: membership.held(one) for one in offsets} if membership is not None else {}
        try:
            async with asyncio.timeout(timeout_s):
                await self._in_order.acquire()
        except TimeoutError:
            late = TimedOut(f"not committed in {timeout_s:g} s: an earlier commit has no response")
            raise CommitFailed(dict.fromkeys(offsets, late)) from None
        try:
            await self._commit(offsets, since, timeout_s, deadline_s)
        finally:
            self._in_order.release()

    async def _commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        since: Mapping[TopicPartition, int | None],
        timeout_s: float,
        deadline_s: float,
    ) -> None:
        left = dict(offsets)
        failed: dict[TopicPartition, RequestError] = {}
        hindered: dict[TopicPartition, RequestError] = {}
        tries = 0
        while left:
            member = self._member(left, failed)
            told = await self._try_commit(member, left, deadline_s)
            is_late = self._clock.elapsed_s() >= deadline_s
            for where, error in told.items():
                decided = self._verdict(_code(error), member, where, since)
                if decided is not Verdict.AGAIN:
                    del left[where]
                if error is None:
                    continue
                if decided is Verdict.FAILED:
                    failed[where] = error
                # A deadline that is reached during a retry is not the reason for the failure.
                elif where not in hindered or not (is_late and isinstance(error, TimedOut)):
                    hindered[where] = error
            tries += 1
            if left and not await self._pause(tries, deadline_s):
                late = {one: _late(hindered[one], timeout_s) for one in left}
                raise CommitFailed({**failed, **late})
        if failed:
            raise CommitFailed(failed)

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offset of each partition; None if there is none."""
        deadline_s = self._clock.elapsed_s() + timeout_s
        left = {*partitions}
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        hindered: dict[TopicPartition, RequestError] = {}
        tries = 0
        while left:
            told, errors = await self._try_fetch(left, deadline_s)
            found |= told
            left -= told.keys()
            if not left:
                break
            is_late = self._clock.elapsed_s() >= deadline_s
            for where, error in errors.items():
                code = error.code
                if not code.retriable and code is not ErrorCode.STALE_MEMBER_EPOCH:
                    raise RequestError(code, f"{where}: {code.text}")
                if where not in hindered or not (is_late and isinstance(error, TimedOut)):
                    hindered[where] = error
            tries += 1
            if not await self._pause(tries, deadline_s):
                where = min(left)
                last = hindered.get(where) or RequestError(ErrorCode.REQUEST_TIMED_OUT)
                raise TimedOut(
                    f"committed offsets of {where} not known after {timeout_s:g} s: "
                    f"{last.message or last.code.text}"
                ) from last
        return found

    def _member(
        self,
        offsets: Mapping[TopicPartition, object],
        failed: Mapping[TopicPartition, RequestError],
    ) -> GroupMember:
        """Return the committing member; raises CommitFailed if there is none."""
        membership = self._membership()
        if membership is None:
            return GroupMember(self._rules.group_id)
        member = membership.identity
        if not member.is_member:
            error = RequestError(ErrorCode.UNKNOWN_MEMBER_ID, NOT_A_MEMBER)
            raise CommitFailed({**dict.fromkeys(offsets, error), **failed})
        return member

    def _verdict(
        self,
        code: ErrorCode,
        member: GroupMember,
        where: TopicPartition,
        since: Mapping[TopicPartition, int | None],
    ) -> Verdict:
        membership = self._membership()
        if membership is None:
            return verdict(code, has_moved_on=False, is_ours=False)
        has_moved_on = membership.identity != member
        if code in _EXPELLED and not has_moved_on:
            membership.fenced(member, code)
        held = since.get(where)
        is_ours = held is not None and membership.held(where) == held
        return verdict(code, has_moved_on=has_moved_on, is_ours=is_ours)

    async def _try_commit(
        self,
        member: GroupMember,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        deadline_s: float,
    ) -> dict[TopicPartition, RequestError | None]:
        """Commit once; returns the errors by partition."""
        left_s = max(0.0, deadline_s - self._clock.elapsed_s())
        wait_s = self._rules.request_timeout_s
        ids = self._ids(offsets)
        counts, began_s = self._coordinator.counts, self._clock.elapsed_s()
        silence = RequestError(ErrorCode.UNKNOWN_SERVER_ERROR)
        told: dict[TopicPartition, RequestError | None] = dict.fromkeys(offsets, silence)
        try:
            channel = await self._coordinator.channel(left_s)
            version = version_for(channel.version(OFFSET_COMMIT), ids, ids)
            request = commit_request(member, offsets, ids)
            answer = await ask(channel, request, OffsetCommitResponse, left_s, wait_s, version)
            for one, code in commit_errors(answer, ids).items():
                if one in told:
                    told[one] = RequestError(code) if code else None
        except RequestError as error:
            if not error.retriable:
                raise
            told = dict.fromkeys(offsets, error)
        finally:
            counts.commit_ms.add((self._clock.elapsed_s() - began_s) * 1000)
            counts.commit_errors += any(told.values())
        self._note(map(_code, told.values()))
        return told

    async def _try_fetch(
        self, partitions: Iterable[TopicPartition], deadline_s: float
    ) -> tuple[
        Mapping[TopicPartition, OffsetAndMetadata | None], Mapping[TopicPartition, RequestError]
    ]:
        """Fetch once; returns the offsets and the errors of the rest."""
        left_s = max(0.0, deadline_s - self._clock.elapsed_s())
        wait_s = self._rules.request_timeout_s
        partitions = [*partitions]
        ids = self._ids(partitions)
        membership = self._membership()
        member = GroupMember(self._rules.group_id) if membership is None else membership.identity
        try:
            channel = await self._coordinator.channel(left_s)
            version = version_for(channel.version(OFFSET_FETCH), ids, ids)
            # Whoever reads: a transaction in progress may commit offsets, so wait until it ends
            # (KIP-447). Older brokers do not support it.
            stable = version >= STABLE_SINCE
            request = fetch_request([member], partitions, ids, is_stable=stable, version=version)
            answer = await ask(channel, request, OffsetFetchResponse, left_s, wait_s, version)
            told = fetched(answer, ids)
        except RequestError as error:
            if not error.retriable:
                raise
            self._note((error.code,))
            return {}, dict.fromkeys(partitions, error)
        self._note((told.error, *told.errors.values()))
        if told.error:
            if told.error in _EXPELLED and membership is not None:
                membership.fenced(member, told.error)
            return {}, dict.fromkeys(partitions, RequestError(told.error))
        return told.committed, {one: RequestError(code) for one, code in told.errors.items()}

    def _ids(self, partitions: Iterable[TopicPartition]) -> dict[str, Uuid]:
        """Return the known topic ids."""
        topics = self._metadata.view.topics
        return {
            one.topic: topics[one.topic].id if one.topic in topics else ZERO_UUID
            for one in partitions
        }

    def _note(self, codes: Iterable[ErrorCode]) -> None:
        """Look up the coordinator or refresh metadata if the error codes ask for it."""
        codes = {*codes}
        if codes & _ELSEWHERE:
            self._coordinator.forget()
        if any(code.refresh_metadata for code in codes):
            self._metadata.expire()

    async def _pause(self, tries: int, deadline_s: float) -> bool:
        """Wait before the next attempt; returns False if there is no time left."""
        pause_s = self._rules.backoff.pause_s(tries)
        if self._clock.elapsed_s() + pause_s >= deadline_s:
            return False
        await self._clock.sleep(pause_s)
        return True


def _code(error: RequestError | None) -> ErrorCode:
    return ErrorCode.NONE if error is None else error.code


def _late(last: RequestError, timeout_s: float) -> RequestError:
    """Return the error at the deadline: the last error before it."""
    late = RequestError(
        last.code, f"not committed in {timeout_s:g} s: {last.message or last.code.text}"
    )
    late.__cause__ = last
    return late
