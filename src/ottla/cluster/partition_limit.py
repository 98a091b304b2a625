"""The limit on the partitions of a broker, ottla.partitions.max.

Invariant: a change that would give a broker more partitions than the limit is refused before
anything is stored. Partitions that exist already are not affected. Nothing here changes state.
"""

from collections import Counter
from collections.abc import Mapping
from itertools import chain
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.cluster.existing_topics import ExistingTopics
from ottla.cluster.placement import Assignment
from ottla.errors import RAISE_OPEN_FILES, ErrorCode, RequestError
from ottla.ids import BrokerId

SETTING: Final = "ottla.partitions.max"

DEFAULT_MAX: Final = 20_000
"""More partitions would take more than a few seconds to start and to stop."""

DEFAULT_MIN: Final = 100
"""Room for __consumer_offsets and some topics, whatever the limits of the machine are."""

PARTITION_DESCRIPTORS: Final = 4
"""One open file of the active segment, and three of a closed one: its records and two indexes."""

PARTITION_BYTES: Final = 65_536
"""Memory of a partition in use; an empty one takes 8 KB."""


class PartitionLimit(NamedTuple):
    """How many partitions a broker may have."""

    partitions: int
    origin: str = ""  # empty: the setting
    remedy: str = f"raise {SETTING} in the properties file"

    def __str__(self) -> str:
        origin = f" ({self.origin})" if self.origin else ""
        return f"{SETTING}={self.partitions}{origin}"


class PartitionLimits(NamedTuple):
    """The limit of each broker of a cluster.

    Every broker registers its own. One that has registered none gets the limit of the controller.
    """

    own: PartitionLimit
    registered: Mapping[BrokerId, int] = MappingProxyType({})  # of the other brokers

    def of(self, broker: BrokerId) -> PartitionLimit:
        """Return the limit of a broker."""
        if (partitions := self.registered.get(broker)) is None:
            return self.own
        remedy = f"raise {SETTING} in the properties file of that broker"
        return PartitionLimit(partitions, f"the limit of broker {broker}", remedy)


def partition_limit(
    setting: int | None, open_files_max: int | None, memory_bytes: int | None
) -> PartitionLimit:
    """Return the limit in force: the setting or the default, and at most what can be open.

    An eighth of the descriptors is for closed segments. A quarter is for connections, rolled
    segments and everything else. None means no setting, and unlimited or unknown.
    """
    if setting is None:
        return default_limit(open_files_max, memory_bytes)
    if open_files_max is not None:
        allowed = max(open_files_max * 5 // 8, DEFAULT_MIN)
        if setting > allowed:
            origin = f"{open_files_max} open files do not allow {setting}"
            return PartitionLimit(allowed, origin, RAISE_OPEN_FILES)
    return PartitionLimit(setting)


def default_limit(open_files_max: int | None, memory_bytes: int | None) -> PartitionLimit:
    """Return the limit that descriptors and memory allow; None means unlimited or unknown.

    Half of the descriptors are for the log, the others for connections. A quarter of the memory is
    for partitions.
    """
    found = [PartitionLimit(DEFAULT_MAX, "the default")]
    if open_files_max is not None:
        allowed = open_files_max // 2 // PARTITION_DESCRIPTORS
        found.append(PartitionLimit(allowed, f"the default for {open_files_max} open files"))
    if memory_bytes is not None:
        allowed = memory_bytes // 4 // PARTITION_BYTES
        memory = f"{memory_bytes // 1024**2} MiB of memory"
        found.append(PartitionLimit(allowed, f"the default for {memory}"))
    lowest = min(found, key=lambda one: one.partitions)
    return lowest._replace(partitions=max(lowest.partitions, DEFAULT_MIN))


def check_limit(
    existing: ExistingTopics, added: Assignment, limits: PartitionLimits, internal: int = 0
) -> None:
    """Refuse partitions that would give a broker more than it may have.

    So many as `internal` are reserved for internal topics that are not created yet. A limit that is
    less than twice as large reserves nothing.
    """
    lowest = min([limits.own.partitions, *limits.registered.values()])
    if existing.partition_count + len(added) <= lowest - internal:
        return  # even a broker with a replica of each has few enough
    for broker, more in sorted(Counter(chain.from_iterable(added)).items()):
        limit, present = limits.of(broker), existing.replicas_on(broker)
        reserved = internal if 2 * internal <= limit.partitions else 0
        if present + more > limit.partitions - reserved:
            kept = f", of which {reserved} are reserved for internal topics" if reserved else ""
            raise RequestError(
                ErrorCode.POLICY_VIOLATION,
                f"Broker {broker} has {present} partition(s), and {more} more would exceed "
                f"{limit}{kept}. Delete topics, or {limit.remedy}.",
            )
