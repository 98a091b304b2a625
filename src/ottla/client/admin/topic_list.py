"""The list of topics, out of the metadata that any broker tells.

Invariant: it is what an administrator of topics tells, with the same connections and settings; it
is on its own because a list is what people ask for most, and then wait for.
"""

from typing import Final, NamedTuple

from ottla.client.admin.calls import Calls
from ottla.ids import ZERO_UUID, Uuid
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse

NOT_CREATING: Final = 4
"""The version of Metadata that can be asked not to make topics."""


class ListedTopic(NamedTuple):
    """A topic that there is."""

    name: str
    id: Uuid | None
    partitions: int
    is_internal: bool


class TopicListCalls(Calls):
    """The call that lists topics."""

    async def list_topics(
        self, *, include_internal: bool = False, timeout_s: float | None = None
    ) -> dict[str, ListedTopic]:
        """All topics that the caller may see."""
        return await self._asking.one(
            self._asking.to_any,
            lambda _: MetadataRequest(topics=None, allow_auto_topic_creation=False),
            MetadataResponse,
            lambda answer: listed(answer, include_internal=include_internal),
            timeout_s,
            since=NOT_CREATING,
        )


def listed(answer: MetadataResponse, *, include_internal: bool) -> dict[str, ListedTopic]:
    """All topics, by name."""
    return {
        topic.name: ListedTopic(
            topic.name, topic_id(topic.topic_id), len(topic.partitions), topic.is_internal
        )
        for topic in sorted(answer.topics, key=lambda topic: topic.name or "")
        if topic.name is not None and (include_internal or not topic.is_internal)
    }


def topic_id(told: Uuid) -> Uuid | None:
    """An id from the wire, where zero stands for none."""
    return None if told == ZERO_UUID else told
