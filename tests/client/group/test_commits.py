"""Commits: retriable errors are retried, others raise, and a commit never rewinds another's."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import chain, repeat
from typing import Any

import pytest

from cases import each_case
from client.group.harness import HarnessMember, all_of, member_factory, tp, wait_until_stable
from client.scenario_runner import run
from client.scripted_broker import HOST, ScriptedBroker
from ottla.client.group.commits import CommitFailed, Commits, Verdict, verdict
from ottla.client.group.interfaces import GroupMember
from ottla.client.group.offsets import (
    STABLE_SINCE,
    OffsetAndMetadata,
    commit_errors,
    commit_request,
    fetch_request,
    fetched,
    version_for,
)
from ottla.errors import ErrorCode, RequestError
from ottla.ids import ZERO_UUID, TopicPartition, Uuid
from ottla.protocol.apis import OFFSET_COMMIT, OFFSET_FETCH
from ottla.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.testing import Cluster
from ottla.transport.channel import TimedOut

E = ErrorCode
T0, T1 = tp("t", 0), tp("t", 1)
FIVE = {T0: OffsetAndMetadata(5), T1: OffsetAndMetadata(6, "a note", 3)}
ID = Uuid(bytes(15) + b"7")


@each_case(
    ("error", "has_moved_on", "is_ours", "expected"),
    [
        (E.NONE, False, False, Verdict.KEPT),
        (E.COORDINATOR_LOAD_IN_PROGRESS, False, False, Verdict.AGAIN),
        (E.UNKNOWN_TOPIC_OR_PARTITION, False, False, Verdict.AGAIN),
        (E.OFFSET_METADATA_TOO_LARGE, False, True, Verdict.FAILED),
        (E.UNKNOWN_MEMBER_ID, True, True, Verdict.FAILED),
        (E.FENCED_INSTANCE_ID, False, True, Verdict.FAILED),
        # Only a partition that stays assigned is committed again in the next generation.
        (E.REBALANCE_IN_PROGRESS, False, True, Verdict.AGAIN),
        (E.REBALANCE_IN_PROGRESS, False, False, Verdict.FAILED),
        (E.ILLEGAL_GENERATION, True, True, Verdict.AGAIN),
        (E.ILLEGAL_GENERATION, True, False, Verdict.FAILED),
        (E.ILLEGAL_GENERATION, False, True, Verdict.FAILED),
        (E.STALE_MEMBER_EPOCH, False, True, Verdict.AGAIN),
        (E.STALE_MEMBER_EPOCH, True, False, Verdict.FAILED),
    ],
)
def test_every_commit_error_has_a_verdict(
    error: ErrorCode, has_moved_on: bool, is_ours: bool, expected: Verdict
) -> None:
    assert verdict(error, has_moved_on=has_moved_on, is_ours=is_ours) is expected


def test_topic_ids_are_used_when_all_are_known() -> None:
    assert version_for(10, ["t"], {"t": ID}) == 10
    assert version_for(10, ["t", "u"], {"t": ID, "u": ZERO_UUID}) == 9
    assert version_for(7, ["t"], {"t": ZERO_UUID}) == 7


@each_case("version", [*OFFSET_COMMIT.versions])
def test_commit_is_encoded_and_decoded_in_every_version(version: int) -> None:
    member = GroupMember("g", 3, "m")
    request = commit_request(member, FIVE, {"t": ID})
    read = OffsetCommitRequest.decode(request.encode(version), version)
    [topic] = read.topics
    assert (topic.topic_id, topic.name) == ((ID, "") if version >= 10 else (ZERO_UUID, "t"))
    assert [one.committed_offset for one in topic.partitions] == [5, 6]
    answer = commit_response({T0: E.NONE, T1: E.NOT_COORDINATOR}, ID)
    answer = OffsetCommitResponse.decode(answer.encode(version), version)
    assert commit_errors(answer, {"t": ID}) == {T0: E.NONE, T1: E.NOT_COORDINATOR}


@each_case("version", [*OFFSET_FETCH.versions])
def test_offset_fetch_is_encoded_in_every_version(version: int) -> None:
    member = GroupMember("g", 3, "m", is_modern=True)
    stable = version >= 7
    request = fetch_request([member], [T0, T1], {"t": ID}, is_stable=stable, version=version)
    read = OffsetFetchRequest.decode(request.encode(version), version)
    if version < 8:
        assert read.topics is not None
        assert [one.name for one in read.topics] == ["t"]
        assert read.group_id == "g"
    else:
        [group] = read.groups
        assert group.group_id == "g"
        assert group.member_epoch == (3 if version >= 9 else -1)
        assert group.topics is not None
        assert [*group.topics[0].partition_indexes] == [0, 1]


def test_classic_member_fetches_offsets_without_its_id() -> None:
    request = fetch_request([GroupMember("g", 3, "m")], [T0], {}, is_stable=False, version=9)
    assert (request.groups[0].member_id, request.groups[0].member_epoch) == (None, -1)


def commit_response(errors: dict[TopicPartition, ErrorCode], uuid: Uuid = ZERO_UUID) -> Any:
    parts = [
        OffsetCommitResponsePartition(partition_index=one.partition, error_code=code)
        for one, code in errors.items()
    ]
    return OffsetCommitResponse(
        topics=[OffsetCommitResponseTopic(name="t", topic_id=uuid, partitions=parts)]
    )


def fetch_response(*ones: tuple[int, int, ErrorCode], error: ErrorCode = E.NONE) -> Any:
    parts = [
        OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=offset, metadata="", error_code=code
        )
        for index, offset, code in ones
    ]
    topics = [OffsetFetchResponseTopics(name="t", partitions=parts)]
    group = OffsetFetchResponseGroup(group_id="g", topics=topics, error_code=error)
    return OffsetFetchResponse(groups=[group])


def test_response_with_an_unknown_topic_is_an_error() -> None:
    answer = commit_response({T0: E.NONE}, ID)
    read = OffsetCommitResponse.decode(answer.encode(10), 10)
    with pytest.raises(RequestError, match=str(ID)):
        commit_errors(read, {})


@asynccontextmanager
async def scripted(
    kind: Any, answers: Iterable[Any], newest: Any = None, **named: Any
) -> AsyncGenerator[tuple[ScriptedBroker, Commits, HarnessMember]]:
    """Return a broker with scripted answers, and commits of a consumer that is not a member."""
    script = iter(answers)

    def found(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        one = Coordinator(
            key="g", node_id=1, host=HOST, port=broker.place.port, error_code=0, error_message=None
        )
        return FindCoordinatorResponse(coordinators=[one])

    broker = ScriptedBroker(
        {FindCoordinatorRequest: found, kind: lambda _: next(script)}, newest=newest
    )
    async with broker, member_factory() as make_member:
        one = make_member(broker.bootstrap_servers, [], **named)
        one.life.cancel()
        yield broker, Commits(one.coordinator, one.metadata, one.rules, one.clock), one


def test_retriable_commit_errors_are_retried_and_others_raise() -> None:
    async def scenario() -> None:
        answers = [
            commit_response({T0: E.COORDINATOR_LOAD_IN_PROGRESS, T1: E.NONE}),
            commit_response({T0: E.NOT_COORDINATOR}),
            commit_response({T0: E.OFFSET_METADATA_TOO_LARGE}),
        ]
        async with scripted(OffsetCommitRequest, answers) as (broker, commits, _):
            with pytest.raises(CommitFailed, match="t-0: The metadata") as failed:
                await commits.commit(FIVE, 10)
            assert failed.value.code is E.OFFSET_METADATA_TOO_LARGE
            assert failed.value.errors.keys() == {T0}
            asked = [one for one in broker.asked if isinstance(one, OffsetCommitRequest)]
            # What was committed is not sent again: it could overwrite a later commit.
            assert [len(one.topics[0].partitions) for one in asked] == [2, 1, 1]
            assert {one.generation_id_or_member_epoch for one in asked} == {-1}
            assert broker.count(FindCoordinatorRequest) == 2  # again, after NOT_COORDINATOR

    run(scenario())


def test_all_errors_of_a_commit_are_reported() -> None:
    async def scenario() -> None:
        codes = {T0: E.TOPIC_AUTHORIZATION_FAILED, T1: E.INVALID_COMMIT_OFFSET_SIZE}
        async with scripted(OffsetCommitRequest, [commit_response(codes)]) as (_, commits, _guest):
            with pytest.raises(CommitFailed, match="and 1 more") as failed:
                await commits.commit(FIVE, 10)
            assert {one: error.code for one, error in failed.value.errors.items()} == codes

    run(scenario())


def test_commits_are_sent_in_order() -> None:
    """A retried commit does not overwrite a later one."""

    async def scenario() -> None:
        loading = commit_response({T0: E.COORDINATOR_LOAD_IN_PROGRESS})
        answers = chain([loading, loading], repeat(commit_response({T0: E.NONE})))
        async with scripted(OffsetCommitRequest, answers) as (broker, commits, _guest):
            await asyncio.gather(
                *(commits.commit({T0: OffsetAndMetadata(offset)}, 10) for offset in (5, 9, 3))
            )
            asked = [one for one in broker.asked if isinstance(one, OffsetCommitRequest)]
            offsets = [one.topics[0].partitions[0].committed_offset for one in asked]
            assert offsets == [5, 5, 5, 9, 3]

    run(scenario())


def test_commit_after_an_unanswered_one_times_out() -> None:
    async def scenario() -> None:
        async with scripted(OffsetCommitRequest, repeat(None)) as (_, commits, _guest):
            first = asyncio.create_task(commits.commit({T0: OffsetAndMetadata(5)}, 20))
            await asyncio.sleep(0)
            with pytest.raises(CommitFailed, match="an earlier commit has no response"):
                await commits.commit({T0: OffsetAndMetadata(9)}, 0.2)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first

    run(scenario())


def test_commit_timeout_names_the_retriable_error() -> None:
    async def scenario() -> None:
        def always() -> Any:
            while True:
                yield commit_response(dict.fromkeys(FIVE, E.COORDINATOR_LOAD_IN_PROGRESS))

        async with scripted(OffsetCommitRequest, always()) as (_, commits, _guest):
            with pytest.raises(CommitFailed, match="not committed in 1 s") as failed:
                await commits.commit(FIVE, 1)
            assert failed.value.code is E.COORDINATOR_LOAD_IN_PROGRESS
            assert failed.value.errors.keys() == {T0, T1}

    run(scenario())


def test_commit_timeout_keeps_the_cause_of_earlier_attempts() -> None:
    """The deadline cuts off the last attempt; the error has the cause of the earlier ones."""

    async def scenario() -> None:
        loading = commit_response(dict.fromkeys(FIVE, E.COORDINATOR_LOAD_IN_PROGRESS))
        answers = chain([loading], repeat(None))
        async with scripted(OffsetCommitRequest, answers) as (broker, commits, _):
            text = f"t-0 .*not committed in 1 s: {E.COORDINATOR_LOAD_IN_PROGRESS.text}"
            with pytest.raises(CommitFailed, match=text) as failed:
                await commits.commit(FIVE, 1)
            assert broker.count(OffsetCommitRequest) == 2
            for error in (failed.value, *failed.value.errors.values()):
                assert isinstance(error.__cause__, RequestError)
                assert error.__cause__.code is E.COORDINATOR_LOAD_IN_PROGRESS

    run(scenario())


def test_commit_timeout_names_the_silent_broker() -> None:
    async def scenario() -> None:
        async with scripted(OffsetCommitRequest, repeat(None)) as (broker, commits, _):
            text = f"not committed in 0.2 s: no response from {broker.bootstrap_servers}"
            with pytest.raises(CommitFailed, match=text) as failed:
                await commits.commit(FIVE, 0.2)
            assert isinstance(failed.value.__cause__, TimedOut)

    run(scenario())


def test_offset_fetch_timeout_names_the_cause() -> None:
    async def scenario() -> None:
        answers = chain([fetch_response(error=E.COORDINATOR_LOAD_IN_PROGRESS)], repeat(None))
        async with scripted(OffsetFetchRequest, answers) as (_, commits, _guest):
            text = f"after 1 s: {E.COORDINATOR_LOAD_IN_PROGRESS.text}"
            with pytest.raises(TimedOut, match=text) as failed:
                await commits.committed([T0], 1)
            assert isinstance(failed.value.__cause__, RequestError)

    run(scenario())


def test_short_commit_timeout_keeps_the_connection() -> None:
    """The response arrives late; heartbeats on the same connection must not fail."""

    async def scenario() -> None:
        async with scripted(OffsetCommitRequest, [None]) as (_, commits, one):
            channel = await one.coordinator.channel(10)
            with pytest.raises(CommitFailed):
                await commits.commit(FIVE, 0.1)
            assert channel.is_open

    run(scenario())


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_unstable_offsets_are_retried(isolation: str) -> None:
    async def scenario() -> None:
        answers = [
            fetch_response((0, 7, E.NONE), (1, -1, E.UNSTABLE_OFFSET_COMMIT)),
            fetch_response(error=E.COORDINATOR_LOAD_IN_PROGRESS),
            fetch_response((1, -1, E.NONE)),
        ]
        settings = {"isolation_level": isolation}
        async with scripted(OffsetFetchRequest, answers, **settings) as (broker, commits, _):
            assert await commits.committed([T0, T1], 10) == {T0: OffsetAndMetadata(7), T1: None}
            asked = [one for one in broker.asked if isinstance(one, OffsetFetchRequest)]
            assert [one.require_stable for one in asked] == [True] * 3

    run(scenario())


def test_old_broker_is_asked_without_require_stable() -> None:
    async def scenario() -> None:
        part = OffsetFetchResponsePartition(
            partition_index=0, committed_offset=7, metadata="", error_code=E.NONE
        )
        answer = OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=[part])])
        old = {OFFSET_FETCH: STABLE_SINCE - 1}
        async with scripted(OffsetFetchRequest, [answer], newest=old) as (_, commits, _guest):
            assert await commits.committed([T0], 10) == {T0: OffsetAndMetadata(7)}

    run(scenario())


def test_negative_committed_offset_counts_as_none() -> None:
    async def scenario() -> None:
        answers = [fetch_response((0, -5, E.NONE))]
        async with scripted(OffsetFetchRequest, answers) as (_, commits, _guest):
            assert await commits.committed([T0], 10) == {T0: None}

    run(scenario())


def test_unauthorized_offset_fetch_raises_at_once() -> None:
    async def scenario() -> None:
        answers = [fetch_response((0, -1, E.TOPIC_AUTHORIZATION_FAILED))]
        async with scripted(OffsetFetchRequest, answers) as (_, commits, _guest):
            with pytest.raises(RequestError, match="t-0") as refused:
                await commits.committed([T0], 10)
            assert refused.value.code is E.TOPIC_AUTHORIZATION_FAILED

    run(scenario())


def test_offset_fetch_times_out() -> None:
    async def scenario() -> None:
        async with scripted(OffsetFetchRequest, [None]) as (_, commits, _guest):
            with pytest.raises(TimedOut, match=r"t-0 not known after 0\.1 s"):
                await commits.committed([T0], 0.1)

    run(scenario())


class ScriptedMembership:
    """A scripted membership."""

    def __init__(self) -> None:
        self.identity = GroupMember("g", 3, "m")
        self.since: dict[TopicPartition, int] = {T0: 1, T1: 1}
        self.told: list[tuple[GroupMember, ErrorCode]] = []

    def held(self, partition: TopicPartition) -> int | None:
        return self.since.get(partition)

    def fenced(self, member: GroupMember, error: ErrorCode) -> None:
        self.told.append((member, error))


def moved_on(
    standing: ScriptedMembership, errors: dict[TopicPartition, ErrorCode]
) -> Callable[[], Any]:
    def answer() -> Any:
        standing.identity = standing.identity._replace(generation=4)
        standing.since = {T0: 1, T1: 2}  # T1 had another owner in between
        return commit_response(errors)

    return answer


def test_next_generation_commits_only_retained_partitions() -> None:
    async def scenario() -> None:
        standing = ScriptedMembership()
        late = moved_on(standing, dict.fromkeys(FIVE, E.ILLEGAL_GENERATION))

        def script() -> Any:
            yield late()
            yield commit_response({T0: E.NONE})

        async with scripted(OffsetCommitRequest, script()) as (broker, _, one):
            commits = member_commits(one, standing)
            with pytest.raises(CommitFailed) as failed:
                await commits.commit(FIVE, 10)
            assert failed.value.errors.keys() == {T1}
            assert failed.value.code is E.ILLEGAL_GENERATION
            assert not standing.told
            asked = [one for one in broker.asked if isinstance(one, OffsetCommitRequest)]
            assert [one.generation_id_or_member_epoch for one in asked] == [3, 4]
            sent = [[one.partition_index for one in it.topics[0].partitions] for it in asked]
            assert sent == [[0, 1], [0]]

    run(scenario())


def test_failed_commit_reports_an_expelled_member() -> None:
    async def scenario() -> None:
        standing = ScriptedMembership()
        answers = [commit_response({T0: E.UNKNOWN_MEMBER_ID})]
        async with scripted(OffsetCommitRequest, answers) as (_, _, one):
            with pytest.raises(CommitFailed):
                await member_commits(one, standing).commit({T0: FIVE[T0]}, 10)
            assert standing.told == [(standing.identity, E.UNKNOWN_MEMBER_ID)]
            standing.identity = GroupMember("g")
            with pytest.raises(CommitFailed, match="not a member of its group any more"):
                await member_commits(one, standing).commit({T0: FIVE[T0]}, 10)

    run(scenario())


def member_commits(one: HarnessMember, standing: Any) -> Commits:
    return Commits(one.coordinator, one.metadata, one.rules, one.clock, lambda: standing)


def test_offsets_are_committed_without_membership() -> None:
    async def scenario() -> None:
        async with (
            Cluster(settings={"num.partitions": 3}) as cluster,
            member_factory() as make_member,
        ):
            one = make_member(cluster.bootstrap_servers, ["t"])
            await wait_until_stable([one], all_of("t", 3))
            await one.leave()
            other = make_member(cluster.bootstrap_servers, [], group_id="alone")
            other.life.cancel()
            commits = Commits(other.coordinator, other.metadata, other.rules, other.clock)
            assert await commits.committed([T0, T1], 10) == {T0: None, T1: None}
            await commits.commit(FIVE, 10)
            assert await commits.committed([T0, T1], 10) == FIVE
            await asyncio.gather(*(commits.commit({T0: FIVE[T0]}, 10) for _ in range(20)))
            # By topic id, once the ids are known.
            await other.metadata.topic("t", 10)
            await commits.commit({T0: OffsetAndMetadata(9)}, 10)
            assert await commits.committed([T0], 10) == {T0: OffsetAndMetadata(9)}

    run(scenario())


def test_removed_member_loses_its_partitions_after_a_commit() -> None:
    """The commit finds out before the heartbeat that the member was removed."""

    async def scenario() -> None:
        async with (
            Cluster(settings={"num.partitions": 3}) as cluster,
            member_factory() as make_member,
        ):
            one = make_member(cluster.bootstrap_servers, ["t"], heartbeat_interval_ms=1_900)
            await wait_until_stable([one], all_of("t", 3))
            member = one.membership.identity
            one.membership.fenced(member._replace(generation=0), E.UNKNOWN_MEMBER_ID)
            assert one.membership.is_member  # an error for an older generation is ignored
            one.membership.fenced(member, E.UNKNOWN_MEMBER_ID)
            assert not one.membership.identity.is_member
            await wait_until_stable([one], all_of("t", 3))
            assert one.owner.heard("lose") == [all_of("t", 3)]

    run(scenario())


def test_offsets_are_decoded_in_old_versions() -> None:
    answer = OffsetFetchResponse(topics=[], error_code=E.NOT_COORDINATOR)
    read = OffsetFetchResponse.decode(answer.encode(7), 7)
    assert fetched(read, {}).error is E.NOT_COORDINATOR
