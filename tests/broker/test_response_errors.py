"""Errors are found in responses, at the top level and in their parts."""

from ottla.broker.response_errors import ResponseErrors
from ottla.ids import ZERO_UUID
from ottla.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from ottla.protocol.messages.heartbeat import HeartbeatResponse
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.metadata import MetadataResponse


def test_top_level_error_is_found() -> None:
    errors = ResponseErrors()
    assert list(errors.of(HeartbeatResponse(throttle_time_ms=0, error_code=25))) == [25]
    assert list(errors.of(HeartbeatResponse(throttle_time_ms=0, error_code=0))) == []


def test_errors_of_parts_are_found_separately() -> None:
    def partition(code: int) -> ListOffsetsPartitionResponse:
        return ListOffsetsPartitionResponse(partition_index=0, error_code=code)

    topics = [
        ListOffsetsTopicResponse(name="a", partitions=[partition(3), partition(0), partition(6)]),
        ListOffsetsTopicResponse(name="b", partitions=[partition(3)]),
    ]
    assert list(ResponseErrors().of(ListOffsetsResponse(throttle_time_ms=0, topics=topics))) == [
        3,
        6,
        3,
    ]


def test_missing_parts_have_no_errors() -> None:
    result = CreatableTopicResult(
        name="t", topic_id=ZERO_UUID, error_code=36, error_message=None, configs=None
    )
    assert list(ResponseErrors().of(CreateTopicsResponse(throttle_time_ms=0, topics=[result]))) == [
        36
    ]
    empty = MetadataResponse(
        throttle_time_ms=0, brokers=[], cluster_id=None, controller_id=-1, topics=[]
    )
    assert list(ResponseErrors().of(empty)) == []
