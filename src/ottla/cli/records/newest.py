"""Reads the newest records of partitions, as a sample of what producers write.

Invariant: no group is joined and nothing is committed; the offsets to read are fixed at the start,
so that a busy topic does not keep the reader busy.
"""

from collections.abc import Iterable, Mapping

from ottla.client.consumer.consumer import Consumer
from ottla.client.consumer.record import Record


async def newest_records(
    settings: Mapping[str, object], partitions: Iterable[tuple[str, int]], count: int
) -> list[Record[bytes, bytes]]:
    """Return up to `count` records of each partition, which must exist."""
    found: list[Record[bytes, bytes]] = []
    async with Consumer(
        {**settings, "isolation.level": "read_committed", "allow.auto.create.topics": "false"}
    ) as consumer:
        places = [*partitions]
        starts = await consumer.beginning_offsets(*places)
        ends = await consumer.end_offsets(*places)
        left = {one for one in ends if starts[one] < ends[one]}
        consumer.assign(*left)
        for one in left:
            consumer.seek(one, max(starts[one], ends[one] - count))
        while left:
            records = await consumer.poll(1.0)
            found += [one for one in records if one.offset < ends[one.topic_partition]]
            left = {one for one in left if await consumer.position(one) < ends[one]}
    return found
