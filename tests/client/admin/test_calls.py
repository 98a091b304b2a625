"""Admin calls against scripted brokers: target broker, retries and deadlines."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from client.scenario_runner import run
from client.scripted_broker import HOST, ScriptedBroker
from ottla.client.admin import Admin, CommittedOffset, NewTopic, OffsetAt
from ottla.client.calls.caller import UNSURE
from ottla.client.calls.targets import UNKNOWN_TRIES
from ottla.errors import ErrorCode, RequestError
from ottla.ids import ZERO_UUID
from ottla.protocol.apis import (
    CONSUMER_GROUP_DESCRIBE,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_GROUPS,
    DESCRIBE_TOPIC_PARTITIONS,
    LIST_OFFSETS,
    OFFSET_FETCH,
    UPDATE_FEATURES,
)
from ottla.protocol.message import Message
from ottla.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from ottla.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from ottla.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from ottla.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from ottla.transport.failures import Disconnected, NotSupported, TimedOut

FAST = {"retry.backoff.ms": 5, "reconnect.backoff.ms": 5, "default.api.timeout.ms": 10_000}


def admin(broker: ScriptedBroker, **settings: object) -> Admin:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return Admin({**FAST, "bootstrap.servers": broker.bootstrap_servers, **given})


def answers_in_turn(*answers: Callable[[Any], Message | None]) -> Callable[[Any], Message | None]:
    """Return the answers one after the other, then the last one forever."""
    left = [*answers]

    def answer(request: Message) -> Message | None:
        return (left.pop(0) if len(left) > 1 else left[0])(request)

    return answer


def topics_created(**codes: ErrorCode) -> Callable[[CreateTopicsRequest], CreateTopicsResponse]:
    """Answer CreateTopics with success, or with the given error codes."""

    def answer(request: CreateTopicsRequest) -> CreateTopicsResponse:
        results = [
            CreatableTopicResult(
                name=topic.name,
                error_code=codes.get(topic.name, ErrorCode.NONE),
                error_message=None,
            )
            for topic in request.topics
        ]
        return CreateTopicsResponse(throttle_time_ms=0, topics=results)

    return answer


def cluster_metadata(
    *brokers: ScriptedBroker, controller: int = 1, leader: Callable[[], int] = lambda: 1
) -> Callable[[MetadataRequest], MetadataResponse]:
    """Answer Metadata with topic t, whose two partitions have the same leader."""

    def answer(request: MetadataRequest) -> MetadataResponse:
        partitions = [
            MetadataResponsePartition(
                error_code=0,
                partition_index=index,
                leader_id=leader(),
                leader_epoch=leader(),
                replica_nodes=(1, 2),
                isr_nodes=(1, 2),
            )
            for index in (0, 1)
        ]
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=one.number, host=HOST, port=one.place.port)
                for one in brokers
            ],
            cluster_id="scripted",
            controller_id=controller,
            topics=[
                MetadataResponseTopic(
                    error_code=0 if one.name == "t" else unknown,
                    name=one.name,
                    topic_id=ZERO_UUID,
                    partitions=partitions if one.name == "t" else (),
                )
                for one in request.topics or ()
            ],
        )

    return answer


def test_only_retriable_errors_are_retried() -> None:
    async def scenario() -> None:
        first = topics_created(
            a=ErrorCode.THROTTLING_QUOTA_EXCEEDED, b=ErrorCode.INVALID_PARTITIONS
        )
        script = answers_in_turn(first, topics_created())
        async with ScriptedBroker({CreateTopicsRequest: script}) as broker, admin(broker) as ours:
            result = await ours.create_topics([NewTopic(name, 1, 1) for name in "abc"])
            assert [*result] == ["a", "b", "c"]
            assert {*result.succeeded} == {"a", "c"}
            assert result.failed["b"].code is ErrorCode.INVALID_PARTITIONS
            assert asked_for(broker) == [["a", "b", "c"], ["a"]]

    run(scenario())


def asked_for(broker: ScriptedBroker) -> list[list[str]]:
    return [
        [one.name for one in request.topics]
        for request in broker.asked
        if isinstance(request, CreateTopicsRequest)
    ]


def test_not_controller_redirects_to_the_new_controller() -> None:
    async def scenario() -> None:
        async with (
            ScriptedBroker(
                {CreateTopicsRequest: topics_created(t=ErrorCode.NOT_CONTROLLER)}
            ) as old,
            ScriptedBroker({CreateTopicsRequest: topics_created()}, number=2) as new,
        ):
            before = cluster_metadata(old, new, controller=1)
            after = cluster_metadata(old, new, controller=2)
            old.answers[MetadataRequest] = answers_in_turn(before, after)
            new.answers[MetadataRequest] = after
            async with admin(old) as ours:
                assert (await ours.create_topic("t", 1, 1)).name == "t"
            assert old.count(CreateTopicsRequest) == new.count(CreateTopicsRequest) == 1

    run(scenario())


def test_next_call_uses_the_refreshed_metadata() -> None:
    """The call that found the error does not retry, but the next call uses what it learned."""

    async def scenario() -> None:
        async with (
            ScriptedBroker(
                {CreateTopicsRequest: topics_created(t=ErrorCode.NOT_CONTROLLER)}
            ) as old,
            ScriptedBroker({CreateTopicsRequest: topics_created()}, number=2) as new,
        ):
            after = cluster_metadata(old, new, controller=2)
            old.answers[MetadataRequest] = answers_in_turn(
                cluster_metadata(old, new, controller=1), after
            )
            new.answers[MetadataRequest] = after
            old.answers[FindCoordinatorRequest] = coordinator_at(old, new)
            new.answers[FindCoordinatorRequest] = coordinator_at(new)
            old.answers[DeleteGroupsRequest] = groups_deleted(g=ErrorCode.NOT_COORDINATOR)
            new.answers[DeleteGroupsRequest] = groups_deleted()
            async with admin(old, retries=0) as ours:
                with pytest.raises(RequestError) as refused:
                    await ours.create_topic("t", 1, 1)
                assert refused.value.code is ErrorCode.NOT_CONTROLLER
                while old.count(MetadataRequest) + new.count(MetadataRequest) < 2:
                    await asyncio.sleep(0.001)
                while not (await ours.create_topics([NewTopic("t", 1, 1)])).succeeded:
                    await asyncio.sleep(0.001)
                while not (await ours.delete_groups(["g"])).succeeded:
                    await asyncio.sleep(0.001)
            assert old.count(DeleteGroupsRequest) <= 1

    run(scenario())


def offsets(code: ErrorCode, **values: int) -> Callable[[ListOffsetsRequest], ListOffsetsResponse]:
    """Answer ListOffsets with an error for the first partition and an offset for the others."""

    def answer(request: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=one.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=part.partition_index,
                            error_code=code if part.partition_index == 0 else 0,
                            offset=values.get("offset", -1),
                        )
                        for part in one.partitions
                    ],
                )
                for one in request.topics
            ]
        )

    return answer


def test_deposed_leader_is_asked_once() -> None:
    async def scenario() -> None:
        leader = 1
        moved = offsets(ErrorCode.NOT_LEADER_OR_FOLLOWER, offset=7)
        async with (
            ScriptedBroker({}) as old,
            ScriptedBroker(
                {ListOffsetsRequest: offsets(ErrorCode.NONE, offset=8)}, number=2
            ) as new,
        ):

            def depose(request: ListOffsetsRequest) -> Message:
                nonlocal leader
                leader = 2
                return moved(request)

            old.answers[ListOffsetsRequest] = depose
            for one in (old, new):
                one.answers[MetadataRequest] = cluster_metadata(old, new, leader=lambda: leader)
            async with admin(old) as ours:
                result = await ours.list_offsets({("t", 0): OffsetAt.LATEST, ("t", 1): 5})
            assert (result["t", 0].offset, result["t", 1].offset) == (8, 7)
            assert old.count(ListOffsetsRequest) == new.count(ListOffsetsRequest) == 1

    run(scenario())


def test_unknown_partition_is_looked_up_a_few_times() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({}) as broker:
            broker.answers[MetadataRequest] = cluster_metadata(broker)
            async with admin(broker) as ours:
                result = await ours.list_offsets({("t", 9): 0, ("missing", 0): 0})
            codes = {error.code for error in result.failed.values()}
            assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            assert broker.count(MetadataRequest) <= UNKNOWN_TRIES + 2
            assert not broker.count(ListOffsetsRequest)

    run(scenario())


def coordinator_at(*brokers: ScriptedBroker) -> Callable[[FindCoordinatorRequest], Message]:
    left = [*brokers]

    def answer(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        broker = left.pop(0) if len(left) > 1 else left[0]
        return FindCoordinatorResponse(
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
        )

    return answer


def groups_deleted(**codes: ErrorCode) -> Callable[[DeleteGroupsRequest], DeleteGroupsResponse]:
    def answer(request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(
            throttle_time_ms=0,
            results=[
                DeletableGroupResult(group_id=one, error_code=codes.get(one, ErrorCode.NONE))
                for one in request.groups_names
            ],
        )

    return answer


def test_not_coordinator_triggers_a_new_lookup() -> None:
    async def scenario() -> None:
        async with (
            ScriptedBroker(
                {DeleteGroupsRequest: groups_deleted(g=ErrorCode.NOT_COORDINATOR)}
            ) as old,
            ScriptedBroker({DeleteGroupsRequest: groups_deleted()}, number=2) as new,
        ):
            old.answers[FindCoordinatorRequest] = coordinator_at(old, new)
            async with admin(old) as ours:
                result = await ours.delete_groups(["g", "h"])
            assert {*result.or_raise()} == {"g", "h"}
            assert [one.groups_names for one in requests_of(new, DeleteGroupsRequest)] == [("g",)]
            assert old.count(FindCoordinatorRequest) == 2

    run(scenario())


def requests_of(broker: ScriptedBroker, kind: type[Any]) -> list[Any]:
    return [one for one in broker.asked if isinstance(one, kind)]


def test_deadline_raises_the_last_error() -> None:
    async def scenario() -> None:
        throttled = topics_created(t=ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        async with ScriptedBroker({}) as broker, admin(broker) as ours:
            broker.answers[CreateTopicsRequest] = answers_in_turn(topics_created(), throttled)
            await ours.create_topic("t", 1, 1)
            with pytest.raises(RequestError) as late:
                await ours.create_topic("t", 1, 1, timeout_s=0.5)
            assert late.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert broker.count(CreateTopicsRequest) > 2
            broker.answers[CreateTopicsRequest] = answers_in_turn(throttled, lambda _: None)
            with pytest.raises(RequestError) as silent:
                await ours.create_topic("t", 1, 1, timeout_s=0.5)
            assert silent.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED

    run(scenario())


def test_silent_broker_does_not_block_a_call() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({}) as mute, admin(mute) as ours:
            with pytest.raises(TimedOut, match=r"in time|within"):
                await ours.create_topic("t", 1, 1, timeout_s=0.1)
            with pytest.raises(TimedOut):
                await ours.describe_group("g", timeout_s=0.1)

    run(scenario())


def test_cancelled_call_leaves_nothing() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({}) as mute, admin(mute) as ours:
            call = asyncio.create_task(ours.create_topic("t", 1, 1))
            while not mute.count(CreateTopicsRequest):
                await asyncio.sleep(0.001)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    run(scenario())


def test_close_fails_pending_calls() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({}) as mute:
            async with admin(mute) as ours:
                call = asyncio.create_task(ours.create_topic("t", 1, 1))
                while not mute.count(CreateTopicsRequest):
                    await asyncio.sleep(0.001)
                listing = asyncio.create_task(ours.delete_groups(["g"]))
                await asyncio.sleep(0)
            with pytest.raises(Disconnected, match="closed"):
                await call
            with pytest.raises(Disconnected, match="closed"):
                await listing

    run(scenario())


def test_retries_are_limited_by_the_setting() -> None:
    async def scenario() -> None:
        throttled = topics_created(t=ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        async with (
            ScriptedBroker({CreateTopicsRequest: throttled}) as broker,
            admin(broker, retries=2) as ours,
        ):
            with pytest.raises(RequestError):
                await ours.create_topic("t", 1, 1)
            assert broker.count(CreateTopicsRequest) == 3

    run(scenario())


def test_error_after_a_lost_response_notes_uncertainty() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({}) as broker, admin(broker) as ours:

            def lost(_: Message) -> None:
                broker.drop()

            exists = topics_created(t=ErrorCode.TOPIC_ALREADY_EXISTS)
            broker.answers[CreateTopicsRequest] = answers_in_turn(lost, exists)
            with pytest.raises(RequestError) as refused:
                await ours.create_topic("t", 1, 1)
            assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
            assert refused.value.__notes__ == [UNSURE]
            with pytest.raises(RequestError) as sure:
                await ours.create_topic("t", 1, 1)
            assert not hasattr(sure.value, "__notes__")

    run(scenario())


def test_error_after_a_timeout_of_the_controller_notes_uncertainty() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({}) as broker, admin(broker) as ours:
            broker.answers[CreateTopicsRequest] = answers_in_turn(
                topics_created(t=ErrorCode.REQUEST_TIMED_OUT),
                topics_created(t=ErrorCode.TOPIC_ALREADY_EXISTS),
            )
            with pytest.raises(RequestError) as refused:
                await ours.create_topic("t", 1, 1)
            assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
            assert refused.value.__notes__ == [UNSURE]

    run(scenario())


def test_element_missing_in_the_response_is_an_error() -> None:
    async def scenario() -> None:
        nothing = CreateTopicsResponse(throttle_time_ms=0, topics=())
        async with (
            ScriptedBroker({CreateTopicsRequest: lambda _: nothing}) as broker,
            admin(broker) as ours,
        ):
            with pytest.raises(RequestError, match="does not contain t") as silent:
                await ours.create_topic("t", 1, 1)
            assert silent.value.code is ErrorCode.UNKNOWN_SERVER_ERROR

    run(scenario())


def test_unencodable_request_is_not_sent() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({}) as broker, admin(broker) as ours:
            with pytest.raises(RequestError, match="cannot be encoded") as wrong:
                await ours.create_topic("t", 1 << 40, 1)
            assert wrong.value.code is ErrorCode.INVALID_REQUEST
            assert not broker.count(CreateTopicsRequest)

    run(scenario())


def test_failed_broker_does_not_hide_other_listings() -> None:
    async def scenario() -> None:
        def groups(*names: str) -> Callable[[ListGroupsRequest], ListGroupsResponse]:
            found = [ListedGroup(group_id=name, protocol_type="consumer") for name in names]
            denied = ErrorCode.NONE if names else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return lambda _: ListGroupsResponse(error_code=denied, groups=found)

        async with (
            ScriptedBroker({ListGroupsRequest: groups("a", "b")}) as one,
            ScriptedBroker({ListGroupsRequest: groups()}, number=2) as two,
        ):
            one.others = [two]
            async with admin(one) as ours:
                listing = await ours.list_groups()
            assert [group.id for group in listing.found] == ["a", "b"]
            assert {*listing.failed} == {2}
            with pytest.raises(RequestError) as denied:
                list(listing)
            assert denied.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    run(scenario())


def test_topics_are_described_in_pages() -> None:
    async def scenario() -> None:
        def page(
            *ones: tuple[str, Iterable[int]], cursor: Cursor | None
        ) -> DescribeTopicPartitionsResponse:
            return DescribeTopicPartitionsResponse(
                throttle_time_ms=0,
                topics=[
                    DescribeTopicPartitionsResponseTopic(
                        error_code=0,
                        name=name,
                        topic_id=ZERO_UUID,
                        partitions=[
                            DescribeTopicPartitionsResponsePartition(
                                error_code=0,
                                partition_index=index,
                                leader_id=1,
                                replica_nodes=(1,),
                                isr_nodes=(1,),
                                offline_replicas=(),
                            )
                            for index in indexes
                        ],
                    )
                    for name, indexes in ones
                ],
                next_cursor=cursor,
            )

        at = Cursor(topic_name="b", partition_index=1)
        first = page(("a", [0]), ("b", [0]), cursor=at)
        second = page(("b", [2, 1]), cursor=None)
        script = answers_in_turn(lambda _: first, lambda _: second)
        async with (
            ScriptedBroker({DescribeTopicPartitionsRequest: script}) as broker,
            admin(broker) as ours,
        ):
            result = (await ours.describe_topics(["b", "a"])).or_raise()
            assert [*result] == ["b", "a"]
            assert [one.index for one in result["b"].partitions] == [0, 1, 2]
            cursors = [one.cursor for one in requests_of(broker, DescribeTopicPartitionsRequest)]
            assert cursors == [None, at]

    run(scenario())


def test_old_brokers_are_asked_with_old_versions() -> None:
    async def scenario() -> None:
        old = {
            DESCRIBE_TOPIC_PARTITIONS: -1,
            DESCRIBE_CLUSTER: -1,
            CONSUMER_GROUP_DESCRIBE: -1,
            DESCRIBE_GROUPS: 2,
            DELETE_TOPICS: 5,
            OFFSET_FETCH: 7,
            UPDATE_FEATURES: 0,
            CREATE_TOPICS: 3,
            LIST_OFFSETS: 6,
        }

        def dead(request: DescribeGroupsRequest) -> DescribeGroupsResponse:
            states = {"g": "Empty", "gone": "Dead"}
            return DescribeGroupsResponse(
                groups=[
                    DescribedGroup(
                        error_code=0,
                        group_id=one,
                        group_state=states[one],
                        protocol_type="consumer",
                        protocol_data="",
                        members=(),
                    )
                    for one in request.groups
                ]
            )

        def committed(request: OffsetFetchRequest) -> OffsetFetchResponse:
            part = OffsetFetchResponsePartition(
                partition_index=0, committed_offset=len(request.group_id), metadata="", error_code=0
            )
            return OffsetFetchResponse(
                topics=[OffsetFetchResponseTopic(name="t", partitions=[part])]
            )

        def topics_deleted(request: DeleteTopicsRequest) -> DeleteTopicsResponse:
            results = [DeletableTopicResult(name=one, error_code=0) for one in request.topic_names]
            return DeleteTopicsResponse(throttle_time_ms=0, responses=results)

        answers: dict[type[Message], Callable[[Any], Message]] = {
            DescribeGroupsRequest: dead,
            OffsetFetchRequest: committed,
            DeleteTopicsRequest: topics_deleted,
        }
        async with ScriptedBroker(answers, newest=old) as broker:
            broker.answers[MetadataRequest] = cluster_metadata(broker)
            broker.answers[FindCoordinatorRequest] = coordinator_at(broker)
            async with admin(broker) as ours:
                result = await ours.describe_topics(["t", "missing"])
                assert len(result["t"].partitions) == 2
                assert result.failed["missing"].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                cluster = await ours.describe_cluster()
                assert (cluster.id, cluster.controller) == ("scripted", 1)
                groups = await ours.describe_groups(["g", "gone"])
                assert groups["g"].state == "Empty"
                assert groups.failed["gone"].code is ErrorCode.GROUP_ID_NOT_FOUND
                offsets = await ours.list_group_offsets(["g", "longer"])
                assert offsets["g"]["t", 0] == CommittedOffset(1)
                assert offsets["longer"]["t", 0] == CommittedOffset(6)
                (await ours.delete_topics(["t"])).or_raise()
                with pytest.raises(NotSupported, match=r"CreateTopics .* version 4 or later"):
                    await ours.create_topic("t")
                with pytest.raises(NotSupported, match=r"ListOffsets .* version 7 or later"):
                    (await ours.list_offsets({("t", 0): OffsetAt.MAX_TIMESTAMP})).or_raise()
                with pytest.raises(NotSupported, match="DescribeCluster is not supported"):
                    await ours.describe_cluster(include_fenced=True)
                with pytest.raises(NotSupported, match=r"UpdateFeatures .* version 1 or later"):
                    (await ours.update_features({"f": 1}, validate_only=True)).or_raise()

    run(scenario())
