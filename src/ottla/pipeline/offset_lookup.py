"""A survey: which partitions a source reads, and where they begin and end now.

Invariant: all partitions are asked about in one round trip to each broker, however many there are.
What a survey says was so at one moment: a topic may be gone when it is read. Who asks with
`if_there` hears nothing of what is not there; otherwise that is a RequestError.
"""

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from ottla.client.admin import FoundOffset, OffsetAt
from ottla.client.calls.results import Results
from ottla.client.sync.administrator import Admin
from ottla.ids import PartitionIndex, TopicPartition
from ottla.pipeline.loss import is_gone
from ottla.pipeline.offsets import (
    EARLIEST,
    LATEST,
    AtTime,
    AtTimes,
    Everywhere,
    Limit,
    Offsets,
    Places,
    Specific,
    names,
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


class OffsetLookup:
    """Asks the cluster for a source; `close` ends its connections."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        # As the consumers of the tasks understand it: both have to mean the same end.
        told = client_config(CONSUMER, options.settings)
        self._is_committed = told[ISOLATION_LEVEL] == READ_COMMITTED
        self._admin: Admin | None = None

    def close(self) -> None:
        """End the connections."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.__exit__(None, None, None)

    @property
    def _asked(self) -> Admin:
        if self._admin is None:
            settings = self._options.settings.items()
            # What is for the consumers of the tasks alone is not for who plans.
            wanted = {name: value for name, value in settings if ADMIN.find(name) is not None}
            self._admin = Admin(wanted).__enter__()
        return self._admin

    def tell(self, group: str, offsets: Offsets) -> None:
        """Commit to a group how far its query is."""
        self._asked.alter_group_offsets(group, offsets).or_raise()

    # Which partitions.

    def partitions(self, *, if_there: bool = False) -> frozenset[TopicPartition]:
        """Those that are read."""
        topics: Topics = self._options.topics
        if topics.partitions:
            return frozenset(topics.partitions)
        if topics.pattern is not None:
            pattern = re.compile(topics.pattern)
            listed = self._asked.list_topics()
            counts = {one: told.partitions for one, told in listed.items() if pattern.search(one)}
        else:
            described = _found(self._asked.describe_topics(topics.names), if_there=if_there)
            counts = {str(one): len(told.partitions) for one, told in described.items()}
        return frozenset(
            TopicPartition(topic, PartitionIndex(index))
            for topic, count in counts.items()
            for index in range(count)
        )

    # Where.

    def earliest(
        self, partitions: Iterable[TopicPartition], *, if_there: bool = False
    ) -> dict[TopicPartition, int]:
        """The first offsets that there are."""
        return self._places(dict.fromkeys(partitions, OffsetAt.EARLIEST), if_there=if_there)

    def latest(
        self, partitions: Iterable[TopicPartition], *, if_there: bool = False
    ) -> dict[TopicPartition, int]:
        """The offsets behind the last that can be read."""
        return self._places(dict.fromkeys(partitions, OffsetAt.LATEST), if_there=if_there)

    def resolved(
        self, limit: Limit, partitions: frozenset[TopicPartition], option: str
    ) -> dict[TopicPartition, int]:
        """Where a limit is in each partition; BadOption when it does not fit them."""
        return self.places(limit, partitions, option).offsets

    def places(self, limit: Limit, partitions: frozenset[TopicPartition], option: str) -> Places:
        """The same, with the partitions of which it is the end."""
        if isinstance(limit, Everywhere):
            at_end = partitions if limit.place == LATEST else frozenset[TopicPartition]()
            return Places(self._places(dict.fromkeys(partitions, OffsetAt(limit.place))), at_end)
        if isinstance(limit, Specific):
            self._check_all(limit.offsets, partitions, f"{option}Offsets")
            special = {one: OffsetAt(offset) for one, offset in limit.offsets.items() if offset < 0}
            at_end = frozenset(one for one, offset in limit.offsets.items() if offset == LATEST)
            return Places({**limit.offsets, **self._places(special)}, at_end)
        if isinstance(limit, AtTimes):
            self._check_all(limit.times_ms, partitions, f"{option}OffsetsByTimestamp")
            return self._at_times(limit.times_ms, limit.if_none)
        return self._at_times(dict.fromkeys(partitions, limit.time_ms), limit.if_none)

    def repeated(
        self, limit: Limit, ends: Offsets, *, if_there: bool = False
    ) -> dict[TopicPartition, int]:
        """Where a stream began whose first micro-batch ends there.

        What began at its end has nothing in that micro-batch. Where the first record that there is,
        or that is so new, lies behind the end now, nothing is left of it: the next one begins
        there, and tells what is lost. What went of the micro-batch itself nobody can tell, as its
        beginning is not written down: where the log has lost its first records, a warning says so.
        """
        if isinstance(limit, Specific):
            said = limit.offsets
        elif isinstance(limit, Everywhere):
            said = dict.fromkeys(ends, limit.place)
        else:
            times_ms = limit.times_ms if isinstance(limit, AtTimes) else dict[TopicPartition, int]()
            all_ms = limit.time_ms if isinstance(limit, AtTime) else 0
            wanted = {one: times_ms.get(one, all_ms) for one in ends}
            told = self._told(wanted, if_there=if_there)
            said = {
                one: LATEST if found.offset is None else min(found.offset, ends[one])
                for one, found in told.items()
            }
        first = [one for one in ends if said.get(one, EARLIEST) == EARLIEST]
        begun = {one: ends[one] if (at := said.get(one, LATEST)) < 0 else at for one in ends}
        is_timed = isinstance(limit, AtTime | AtTimes)
        logs = self.earliest(ends if is_timed else first, if_there=if_there)
        for one in first:
            if one in logs:
                begun[one] = min(logs[one], ends[one])
        if cut := [one for one, offset in logs.items() if min(offset, ends[one]) > 0]:
            _log.warning(
                "the first micro-batch is repeated, and the first records of %s are gone: "
                "those that went since its first try are not in it",
                names(cut),
            )
        return begun

    def _at_times(self, times_ms: Offsets, if_none: int | None) -> Places:
        told = self._told(times_ms)
        late = frozenset(one for one, found in told.items() if found.offset is None)
        if late and if_none is None:
            raise BadOption(
                f"there is no record from the time on that was given for {names(late)}; "
                "startingOffsetsByTimestampStrategy=latest begins at the end then"
            )
        found = {one: found.offset for one, found in told.items() if found.offset is not None}
        ends = self._places({one: OffsetAt(if_none or LATEST) for one in late})
        return Places({**found, **ends}, late)

    def _places(
        self, wanted: Mapping[TopicPartition, OffsetAt], *, if_there: bool = False
    ) -> dict[TopicPartition, int]:
        told = self._told(wanted, if_there=if_there)
        return {one: found.offset or 0 for one, found in told.items()}

    def _told(
        self, wanted: Mapping[TopicPartition, OffsetAt | int], *, if_there: bool = False
    ) -> dict[TopicPartition, FoundOffset]:
        if not wanted:
            return {}
        told = self._asked.list_offsets(wanted, read_committed=self._is_committed)
        found = _found(told, if_there=if_there)
        return {one: found[one] for one in wanted if one in found}

    def _check_all(
        self, given: Offsets, partitions: frozenset[TopicPartition], option: str
    ) -> None:
        missing, unknown = partitions - given.keys(), given.keys() - partitions
        if not missing and not unknown:
            return
        said = [f"{option} names all partitions, with -2 for the first record and -1 for the end"]
        if missing:
            said.append(f"it lacks {names(missing)}")
        if unknown:
            said.append(f"there is no {names(unknown)}")
        raise BadOption("; ".join(said))


def _found(told: Results[K, V], *, if_there: bool) -> dict[K, V]:
    """What there is; the first error that says anything else than that something is not there."""
    for error in told.failed.values():
        if not (if_there and is_gone(error)):
            raise error
    return told.succeeded
