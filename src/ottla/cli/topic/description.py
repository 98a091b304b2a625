"""`ottla topic describe`: combines several requests about topics.

Invariant: a rate is the growth of the end offsets between two reads divided by the time. Records
are read only from skewed partitions, to name their hot keys. What the user may not see is left out
with a warning and hides nothing else.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ottla.cli.escapes import escaped
from ottla.cli.failures import failure_of
from ottla.cli.output import Json
from ottla.cli.progress import progress
from ottla.cli.result import Failure, Result, Table
from ottla.cli.topic.hot_keys import HotKey, keys_shown
from ottla.cli.topic.partition_load import Load, Look, bytes_shown, rate_shown, skewed
from ottla.cli.topic.settings_admin import TopicSettingsAdmin
from ottla.client.admin.log_dirs import LogDirCalls
from ottla.client.admin.records import OffsetAt, RecordCalls
from ottla.client.admin.topic_descriptions import PartitionDescription, TopicDescription
from ottla.client.partitions import Partition
from ottla.errors import RequestError
from ottla.ids import TopicPartition

_TICK_S: Final = 0.2


class DescribingAdmin(TopicSettingsAdmin, RecordCalls, LogDirCalls):
    """Describes everything about topics."""


@dataclass(frozen=True, slots=True)
class DescribedTopic:
    """A topic with the load of its partitions."""

    topic: TopicDescription
    configs: Mapping[str, str | None]
    loads: Mapping[int, Load]
    skews: Mapping[int, Mapping[str, float]]
    hot_keys: Mapping[int, Sequence[HotKey]]


FindHotKeys = Callable[
    [Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, Sequence[HotKey]]]
]
"""Returns the hot keys of some partitions; see `found_hot_keys`."""


async def describe(
    admin: DescribingAdmin, names: Sequence[str], seconds: float, find_hot_keys: FindHotKeys
) -> tuple[Result, Sequence[str]]:
    """Return topics by name, or all that are not internal, with warnings.

    Rates are measured over this many seconds.
    """
    found, failures, warnings = await found_topics(admin, names, seconds, find_hot_keys)
    return answer(found, failures, warnings), warnings


async def found_topics(
    admin: DescribingAdmin, names: Sequence[str], seconds: float, find_hot_keys: FindHotKeys
) -> tuple[Sequence[DescribedTopic], Sequence[Failure], Sequence[str]]:
    """Return the described topics, what failed, and warnings."""
    wanted = [*names] or sorted(await admin.list_topics())
    told = await admin.describe_topics(wanted)
    topics = [*told.succeeded.values()]
    failures = [failure_of(error, str(name)) for name, error in told.failed.items()]
    led = [
        ((topic.name, one.index), one.leader)
        for topic in topics
        for one in topic.partitions
        if one.leader is not None
    ]
    warnings: list[str] = []
    configs = await admin.own_configs([one.name for one in topics])
    sizes = await _sizes(admin, dict(led), warnings)
    places = [place for place, _ in led]
    firsts = await _offsets(admin, places, OffsetAt.EARLIEST, warnings)
    clock = asyncio.get_running_loop().time
    before, before_s = await _offsets(admin, places, OffsetAt.LATEST, warnings), clock()
    after, after_s = before, before_s
    if seconds > 0 and before:
        await _waited(seconds)
        after, after_s = await _offsets(admin, places, OffsetAt.LATEST, []), clock()
    found = [
        _described(
            topic,
            configs.get(topic.name, {}),
            _of(topic, sizes),
            _of(topic, firsts),
            Look(_of(topic, before), _of(topic, after), after_s - before_s),
        )
        for topic in topics
    ]
    return await _with_hot_keys(found, find_hot_keys, warnings), failures, warnings


async def _with_hot_keys(
    topics: Sequence[DescribedTopic], find: FindHotKeys, warnings: list[str]
) -> Sequence[DescribedTopic]:
    """Add the hot keys of skewed partitions."""
    skewed = [TopicPartition(one.topic.name, index) for one in topics for index in one.skews]
    if not skewed:
        return topics
    try:
        keys = await find(skewed)
    except RequestError as error:
        _warn(warnings, "hot keys are not available", [error])
        return topics
    return [
        replace(
            one, hot_keys={key.partition: keys[key] for key in keys if key.topic == one.topic.name}
        )
        for one in topics
    ]


async def _waited(seconds: float) -> None:
    with progress(seconds) as advance:
        left_s = seconds
        while left_s > 0:
            part_s = min(left_s, _TICK_S)
            await asyncio.sleep(part_s)
            advance(part_s)
            left_s -= part_s


async def _sizes(
    admin: DescribingAdmin, leaders: Mapping[Partition, int], warnings: list[str]
) -> dict[Partition, int]:
    """Return the sizes of partitions on their leaders."""
    if not leaders:
        return {}
    told = await admin.describe_log_dirs(sorted({*leaders.values()}), leaders)
    _warn(warnings, "sizes are not available", told.failed.values())
    found: dict[Partition, int] = {}
    for broker, directories in told.succeeded.items():
        for directory in directories.succeeded.values():
            for place, replica in directory.replicas.items():
                if leaders.get(place) == broker and not replica.is_future:
                    found[place] = replica.size_bytes
    return found


async def _offsets(
    admin: DescribingAdmin, places: Iterable[Partition], at: OffsetAt, warnings: list[str]
) -> dict[Partition, int]:
    told = await admin.list_offsets(dict.fromkeys(places, at))
    _warn(warnings, f"offsets ({at.name.lower()}) are not available", told.failed.values())
    return {place: one.offset for place, one in told.succeeded.items() if one.offset is not None}


def _warn(warnings: list[str], what: str, errors: Iterable[RequestError]) -> None:
    """Add one warning for any number of errors."""
    for error in errors:
        warnings.append(f"{what}: {failure_of(error).message}")
        return


def _of(topic: TopicDescription, values: Mapping[Partition, int]) -> dict[int, int]:
    """Select the values of a topic, by partition."""
    return {
        one.index: values[topic.name, one.index]
        for one in topic.partitions
        if (topic.name, one.index) in values
    }


def _described(
    topic: TopicDescription,
    configs: Mapping[str, str | None],
    sizes: Mapping[int, int],
    firsts: Mapping[int, int],
    look: Look,
) -> DescribedTopic:
    rates = look.rates()
    loads = {
        one.index: Load(
            sizes.get(one.index),
            firsts.get(one.index),
            look.after.get(one.index),
            rates.get(one.index),
        )
        for one in topic.partitions
    }
    return DescribedTopic(topic, configs, loads, skewed(sizes, look if rates else None), {})


# Output.


def answer(
    topics: Sequence[DescribedTopic], failures: Sequence[Failure], warnings: Sequence[str]
) -> Result:
    """Return topics as a result."""
    shown: list[Table | str] = []
    for one in topics:
        if shown:
            shown.append("")
        shown += _shown(one)
    if not topics and not failures:
        shown.append("No topics.")
    value: dict[str, Json] = {"topics": [_object(one) for one in topics], "warnings": [*warnings]}
    return Result(value, shown, failures)


def _object(one: DescribedTopic) -> dict[str, Json]:
    return {
        "name": one.topic.name,
        "id": None if one.topic.id is None else str(one.topic.id),
        "internal": one.topic.is_internal,
        "replication_factor": _factor(one.topic),
        "configs": dict(one.configs),
        "partitions": [_partition_object(one, each) for each in one.topic.partitions],
    }


def _partition_object(topic: DescribedTopic, one: PartitionDescription) -> dict[str, Json]:
    load = topic.loads[one.index]
    rate = load.records_per_s
    return {
        "partition": one.index,
        "leader": one.leader,
        "replicas": [*one.replicas],
        "isr": [*one.in_sync],
        "offline": [*one.offline],
        "first_offset": load.first_offset,
        "end_offset": load.end_offset,
        "size_bytes": load.size_bytes,
        "records_per_s": None if rate is None else round(rate, 3),
        "skewed": sorted(topic.skews.get(one.index, {})),
        "hot_keys": [
            {"key": hot.key, "share": round(hot.share, 3)}
            for hot in topic.hot_keys.get(one.index, ())
        ],
    }


def _factor(topic: TopicDescription) -> int:
    return max((len(one.replicas) for one in topic.partitions), default=0)


_HEADS = (
    "PARTITION", "LEADER", "REPLICAS", "ISR", "FIRST", "END", "SIZE", "RECORDS/S", "NOTE",
)  # fmt: skip


def _shown(one: DescribedTopic) -> list[Table | str]:
    count, factor = len(one.topic.partitions), _factor(one.topic)
    facts = [
        f"{count} {'partition' if count == 1 else 'partitions'}",
        f"replication factor {factor}",
        *(() if one.topic.id is None else (f"id {one.topic.id}",)),
        *(("internal",) if one.topic.is_internal else ()),
    ]
    sizes = _right([bytes_shown(one.loads[each.index].size_bytes) for each in one.topic.partitions])
    rates = _right(
        [rate_shown(one.loads[each.index].records_per_s) for each in one.topic.partitions]
    )
    rows = [
        (
            each.index,
            "none" if each.leader is None else each.leader,
            ",".join(map(str, each.replicas)),
            ",".join(map(str, each.in_sync)),
            one.loads[each.index].first_offset,
            one.loads[each.index].end_offset,
            size,
            rate,
            _note(each, one.skews.get(each.index, {}), one.hot_keys.get(each.index, ())),
        )
        for each, size, rate in zip(one.topic.partitions, sizes, rates, strict=True)
    ]
    settings = [escaped(f"  {name}={value}") for name, value in one.configs.items()]
    return [f"{escaped(one.topic.name)}: {', '.join(facts)}", *settings, Table(_HEADS, rows)]


def _right(texts: Sequence[str]) -> list[str]:
    width = max(map(len, texts), default=0)
    return [text.rjust(width) for text in texts]


def _note(one: PartitionDescription, skew: Mapping[str, float], hot_keys: Sequence[HotKey]) -> str:
    notes = [f"{what} {factor:.1f} x the mean" for what, factor in sorted(skew.items())]
    if hot_keys:
        notes.append(keys_shown(hot_keys))
    if one.leader is None:
        notes.append("offline")
    elif len(one.in_sync) < len(one.replicas):
        notes.append("under-replicated")
    return ", ".join(notes)
