"""Admin client for offsets."""

from collections.abc import Sequence

from ottla.cli.offsets.partition_lists import Choice, chosen
from ottla.client.admin.administration import Administration
from ottla.client.admin.records import RecordCalls
from ottla.client.admin.topics import TopicCalls
from ottla.client.partitions import Partition


class OffsetAdmin(Administration, RecordCalls, TopicCalls):
    """Lists offsets of partitions."""


async def expanded(
    admin: TopicCalls, choices: Sequence[Choice], *, timeout_s: float | None = None
) -> list[Partition]:
    """Return the selected partitions; raises the error of a missing topic."""
    topics = [one.topic for one in choices]
    told = (await admin.describe_topics(topics, timeout_s=timeout_s)).or_raise()
    known = {one.name: [two.index for two in one.partitions] for one in told.values()}
    return chosen(choices, known)
