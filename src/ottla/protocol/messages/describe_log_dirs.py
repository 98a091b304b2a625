"""DescribeLogDirs: the data directories of a broker and their partitions."""

from collections.abc import Sequence

from ottla.protocol.apis import DESCRIBE_LOG_DIRS
from ottla.protocol.message import Message
from ottla.protocol.schema import (
    INT32S,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    nullable_array,
    string,
)


class DescribableLogDirTopic(Struct):
    topic: str = string("0+")
    partitions: Sequence[int] = array(INT32S, "0+")


class DescribeLogDirsRequest(Message, api=DESCRIBE_LOG_DIRS):
    topics: Sequence[DescribableLogDirTopic] | None = nullable_array(DescribableLogDirTopic, "0+")


class DescribeLogDirsPartition(Struct):
    partition_index: int = int32("0+")
    partition_size: int = int64("0+")
    offset_lag: int = int64("0+")
    is_future_key: bool = boolean("0+")


class DescribeLogDirsTopic(Struct):
    name: str = string("0+")
    partitions: Sequence[DescribeLogDirsPartition] = array(DescribeLogDirsPartition, "0+")


class DescribeLogDirsResult(Struct):
    error_code: int = int16("0+")
    log_dir: str = string("0+")
    topics: Sequence[DescribeLogDirsTopic] = array(DescribeLogDirsTopic, "0+")
    total_bytes: int = int64("4+", default=-1, ignorable=True)
    usable_bytes: int = int64("4+", default=-1, ignorable=True)
    is_cordoned: bool = boolean("5+", default=False, ignorable=True)


class DescribeLogDirsResponse(Message, api=DESCRIBE_LOG_DIRS):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("3+", default=0, ignorable=True)
    results: Sequence[DescribeLogDirsResult] = array(DescribeLogDirsResult, "0+")
