"""Looks up the partitions that a source reads, and their start and end offsets.

Invariant: a lookup sends one request to each broker, for any number of partitions. The result is a
snapshot: a topic may be deleted before it is read. With `ignore_missing`, topics and partitions
that do not exist are left out; otherwise they raise RequestError.
"""

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from ottla.client.admin import FoundOffset, OffsetAt
from ottla.client.calls.results import Results
from ottla.client.sync.administrator import Admin
from ottla.ids import PartitionIndex, TopicPartition
from ottla.pipeline.loss import is_missing
from ottla.pipeline.offsets import (
    EARLIEST,
    LATEST,
    AtTime,
    AtTimes,
    Everywhere,
    Limit,
    Offsets,
    ResolvedOffsets,
    Specific,
    format_partitions,
)
from ottla.pipeline.options import BadOption
from ottla.pipeline.source_options import SourceOptions, Topics
from ottla.settings.admin import ADMIN
from ottla.settings.config_parser import client_config
from ottla.settings.consumer import CONSUMER, ISOLATION_LEVEL

READ_COMMITTED: Final = "read_committed"

_log: Final = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")


def admin_settings(options: SourceOptions) -> dict[str, object]:
    """Return the settings of an admin client; some options are only for the tasks' consumers."""
    settings = options.settings.items()
    return {name: value for name, value in settings if ADMIN.find(name) is not None}


class OffsetLookup:
    """Looks up offsets for a source; `close` closes its connections."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        # The isolation level of the tasks' consumers, so that both see the same end.
        config = client_config(CONSUMER, options.settings)
        self._is_committed = config[ISOLATION_LEVEL] == READ_COMMITTED
        self._admin: Admin | None = None

    def close(self) -> None:
        """Close the connections."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.__exit__(None, None, None)

    @property
    def _client(self) -> Admin:
        if self._admin is None:
            self._admin = Admin(admin_settings(self._options)).__enter__()
        return self._admin

    def commit(self, group: str, offsets: Offsets) -> None:
        """Commit the offsets of a query to a consumer group."""
        self._client.alter_group_offsets(group, offsets).or_raise()

    def partitions(self, *, ignore_missing: bool = False) -> frozenset[TopicPartition]:
        """Return the partitions to read."""
        topics: Topics = self._options.topics
        if topics.partitions:
            return frozenset(topics.partitions)
        if topics.pattern is not None:
            pattern = re.compile(topics.pattern)
            listed = self._client.list_topics()
            counts = {
                name: topic.partitions for name, topic in listed.items() if pattern.search(name)
            }
        else:
            described = _succeeded(
                self._client.describe_topics(topics.names), ignore_missing=ignore_missing
            )
            counts = {str(name): len(topic.partitions) for name, topic in described.items()}
        return frozenset(
            TopicPartition(topic, PartitionIndex(index))
            for topic, count in counts.items()
            for index in range(count)
        )

    def earliest(
        self, partitions: Iterable[TopicPartition], *, ignore_missing: bool = False
    ) -> dict[TopicPartition, int]:
        """Return the earliest offsets."""
        return self._offsets(
            dict.fromkeys(partitions, OffsetAt.EARLIEST), ignore_missing=ignore_missing
        )

    def latest(
        self, partitions: Iterable[TopicPartition], *, ignore_missing: bool = False
    ) -> dict[TopicPartition, int]:
        """Return the latest offsets: those after the last readable records."""
        return self._offsets(
            dict.fromkeys(partitions, OffsetAt.LATEST), ignore_missing=ignore_missing
        )

    def resolve(
        self, limit: Limit, partitions: frozenset[TopicPartition], option: str
    ) -> dict[TopicPartition, int]:
        """Resolve a limit to an offset for each partition; raise BadOption if it does not fit."""
        return self.resolve_with_ends(limit, partitions, option).offsets

    def resolve_with_ends(
        self, limit: Limit, partitions: frozenset[TopicPartition], option: str
    ) -> ResolvedOffsets:
        """Resolve a limit, and note the partitions in which it is the end."""
        if isinstance(limit, Everywhere):
            at_end = partitions if limit.offset == LATEST else frozenset[TopicPartition]()
            found = self._offsets(dict.fromkeys(partitions, OffsetAt(limit.offset)))
            return ResolvedOffsets(found, at_end)
        if isinstance(limit, Specific):
            self._check_all(limit.offsets, partitions, f"{option}Offsets")
            special = {one: OffsetAt(offset) for one, offset in limit.offsets.items() if offset < 0}
            at_end = frozenset(one for one, offset in limit.offsets.items() if offset == LATEST)
            return ResolvedOffsets({**limit.offsets, **self._offsets(special)}, at_end)
        if isinstance(limit, AtTimes):
            self._check_all(limit.times_ms, partitions, f"{option}OffsetsByTimestamp")
            return self._at_times(limit.times_ms, limit.if_none)
        return self._at_times(dict.fromkeys(partitions, limit.time_ms), limit.if_none)

    def initial_offsets_of_repeat(
        self, limit: Limit, ends: Offsets, *, ignore_missing: bool = False
    ) -> dict[TopicPartition, int]:
        """Return where a stream has started whose first micro-batch has these ends.

        A partition that started at its end has no records in that micro-batch. If the first record,
        or the first record at or after the starting time, is now after the end, then none of its
        records is left: the next micro-batch starts there and reports the loss.

        Records that were deleted since the first try cannot be counted, because Spark does not log
        the start. A warning names the partitions that have lost their first records.
        """
        if isinstance(limit, Specific):
            starts = limit.offsets
        elif isinstance(limit, Everywhere):
            starts = dict.fromkeys(ends, limit.offset)
        else:
            times_ms = limit.times_ms if isinstance(limit, AtTimes) else dict[TopicPartition, int]()
            all_ms = limit.time_ms if isinstance(limit, AtTime) else 0
            wanted = {one: times_ms.get(one, all_ms) for one in ends}
            listed = self._list(wanted, ignore_missing=ignore_missing)
            starts = {
                one: LATEST if found.offset is None else min(found.offset, ends[one])
                for one, found in listed.items()
            }
        first = [one for one in ends if starts.get(one, EARLIEST) == EARLIEST]
        result = {one: ends[one] if (at := starts.get(one, LATEST)) < 0 else at for one in ends}
        is_timed = isinstance(limit, AtTime | AtTimes)
        log_starts = self.earliest(ends if is_timed else first, ignore_missing=ignore_missing)
        for one in first:
            if one in log_starts:
                result[one] = min(log_starts[one], ends[one])
        if cut := [one for one, offset in log_starts.items() if min(offset, ends[one]) > 0]:
            _log.warning(
                "first micro-batch repeated: %s lost their first records; those that were deleted "
                "since the first try are missing",
                format_partitions(cut),
            )
        return result

    def _at_times(self, times_ms: Offsets, if_none: int | None) -> ResolvedOffsets:
        listed = self._list(times_ms)
        late = frozenset(one for one, found in listed.items() if found.offset is None)
        if late and if_none is None:
            raise BadOption(
                f"{format_partitions(late)}: no record at or after the starting time; set "
                "startingOffsetsByTimestampStrategy=latest to start at the end"
            )
        found = {one: found.offset for one, found in listed.items() if found.offset is not None}
        ends = self._offsets({one: OffsetAt(if_none or LATEST) for one in late})
        return ResolvedOffsets({**found, **ends}, late)

    def _offsets(
        self, wanted: Mapping[TopicPartition, OffsetAt], *, ignore_missing: bool = False
    ) -> dict[TopicPartition, int]:
        listed = self._list(wanted, ignore_missing=ignore_missing)
        return {one: found.offset or 0 for one, found in listed.items()}

    def _list(
        self, wanted: Mapping[TopicPartition, OffsetAt | int], *, ignore_missing: bool = False
    ) -> dict[TopicPartition, FoundOffset]:
        if not wanted:
            return {}
        results = self._client.list_offsets(wanted, read_committed=self._is_committed)
        found = _succeeded(results, ignore_missing=ignore_missing)
        return {one: found[one] for one in wanted if one in found}

    def _check_all(
        self, given: Offsets, partitions: frozenset[TopicPartition], option: str
    ) -> None:
        missing, unknown = partitions - given.keys(), given.keys() - partitions
        if not missing and not unknown:
            return
        parts = [f"{option} must list every partition (-2 is earliest, -1 is latest)"]
        if missing:
            parts.append(f"missing: {format_partitions(missing)}")
        if unknown:
            parts.append(f"unknown: {format_partitions(unknown)}")
        raise BadOption("; ".join(parts))


def _succeeded(results: Results[K, V], *, ignore_missing: bool) -> dict[K, V]:
    """Return the successful results; raise the first error that is not to be ignored."""
    for error in results.failed.values():
        if not (ignore_missing and is_missing(error)):
            raise error
    return results.succeeded
