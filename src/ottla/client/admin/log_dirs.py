"""Log directories of brokers: describe them, and move replicas between them.

Invariant: every broker reports its own directories, and each directory has its own result: an
offline one hides nothing of the others.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ottla.client.admin.calls import Calls
from ottla.client.arguments import many_of, mapping_of
from ottla.client.calls.caller import ApiCall
from ottla.client.calls.results import Results, check, or_none, refused
from ottla.client.partitions import Partition, by_topic, each_once, partition, rows
from ottla.errors import RequestError
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)


@dataclass(frozen=True, slots=True)
class ReplicaSize:
    """A replica in a directory."""

    size_bytes: int
    offset_lag: int
    """The lag in offsets: behind the high watermark or, for a future replica, behind the current
    replica."""

    is_future: bool
    """Whether it is being moved from another directory and will replace the replica there."""


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A directory and its replicas."""

    path: str
    replicas: Mapping[Partition, ReplicaSize]
    total_bytes: int | None
    """Of the volume; None if the broker does not return it."""

    usable_bytes: int | None
    is_cordoned: bool
    """Whether it gets no new replicas."""


class Replica(NamedTuple):
    """A replica of a partition on a broker."""

    topic: str
    partition: int
    broker: int


LogDirs: TypeAlias = Results[str, LogDirDescription]


class LogDirCalls(Calls):
    """Calls about log directories."""

    async def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        partitions: Iterable[Partition] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Results[int, LogDirs]:
        """Describe the directories of brokers, with all replicas or those of partitions."""
        asking = self._asking
        deadline_s = asking.deadline_s(timeout_s)
        if brokers is None:
            brokers = await asking.brokers(asking.left_s(deadline_s))
        brokers = many_of(brokers, int, "a list of broker ids such as [0, 1]")
        topics = None if partitions is None else by_topic(each_once(partitions))
        question = ApiCall[int, DescribeLogDirsResponse, LogDirs](
            request=lambda _, __: describe_request(topics),
            answer=DescribeLogDirsResponse,
            read=lambda keys, answer: dict.fromkeys(keys, described(answer)),
        )
        return await asking.many(asking.to_brokers, brokers, question, asking.left_s(deadline_s))

    async def alter_replica_log_dirs(
        self, paths: Mapping[Replica, str], *, timeout_s: float | None = None
    ) -> Results[Replica, None]:
        """Move replicas to other directories of their brokers."""
        mapping_of(
            paths, Replica, 'a mapping of replicas such as {Replica("orders", 0, broker=1): "/d"}'
        )
        question = ApiCall[Replica, AlterReplicaLogDirsResponse, None](
            request=lambda keys, _: alter_request({key: paths[key] for key in keys}),
            answer=AlterReplicaLogDirsResponse,
            read=altered,
        )
        route = self._asking.to_broker(_owner)
        return await self._asking.many(route, paths, question, timeout_s)


def _owner(replica: Replica) -> int:
    return replica.broker


def describe_request(topics: Mapping[str, Sequence[int]] | None) -> DescribeLogDirsRequest:
    """Build DescribeLogDirs."""
    return DescribeLogDirsRequest(
        topics=None
        if topics is None
        else [
            DescribableLogDirTopic(topic=topic, partitions=indexes)
            for topic, indexes in topics.items()
        ]
    )


def described(answer: DescribeLogDirsResponse) -> LogDirs:
    """Return the directories of one broker."""
    check(answer.error_code, "directories")
    return LogDirs(
        {one.log_dir: refused(one.error_code, one.log_dir) or _dir(one) for one in answer.results}
    )


def _dir(told: DescribeLogDirsResult) -> LogDirDescription:
    return LogDirDescription(
        told.log_dir,
        {
            key: ReplicaSize(one.partition_size, one.offset_lag, one.is_future_key)
            for key, one in rows((topic.name, topic.partitions) for topic in told.topics)
        },
        or_none(told.total_bytes),
        or_none(told.usable_bytes),
        told.is_cordoned,
    )


def alter_request(paths: Mapping[Replica, str]) -> AlterReplicaLogDirsRequest:
    """Build AlterReplicaLogDirs for one broker."""
    by_path: dict[str, list[Partition]] = {}
    for replica, path in paths.items():
        by_path.setdefault(path, []).append((replica.topic, replica.partition))
    return AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path,
                topics=[
                    AlterReplicaLogDirTopic(name=topic, partitions=indexes)
                    for topic, indexes in by_topic(ones).items()
                ],
            )
            for path, ones in by_path.items()
        ]
    )


def altered(
    keys: Sequence[Replica], answer: AlterReplicaLogDirsResponse
) -> dict[Replica, RequestError | None]:
    """Return the result of each replica."""
    topics = ((topic.topic_name, topic.partitions) for topic in answer.results)
    codes = {key: one.error_code for key, one in rows(topics)}
    return {
        key: refused(codes[where], f"{where} on {key.broker}")
        for key in keys
        if (where := partition(key.topic, key.partition)) in codes
    }
