"""Selects the topics of `kafka-topics`: by name, pattern and report flag."""

from typing import TYPE_CHECKING, Final

from ottla.cli.kafka.flags import Given
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from ottla.client.admin.topic_list import TopicListCalls

REPORTS: Final = (
    "under-replicated-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
    "unavailable-partitions",
)


async def matching(admin: "TopicListCalls", given: Given, needed: bool = False) -> list[str]:
    """Return the topics that the flags select, sorted; raises if one is needed and none matches."""
    from ottla.cli.kafka.include_list import included

    pattern = given.one("topic")
    hides_internal = "exclude-internal" in given
    listed = await admin.list_topics(include_internal=not hides_internal)
    names = sorted(listed)
    if pattern is not None:
        names = included(pattern, names)
    if needed and pattern and not names:
        raise OttlaError(f"Topic '{pattern}' does not exist as expected")
    return names
